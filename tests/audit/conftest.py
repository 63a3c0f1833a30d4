"""Builders with plain defaults: a test names only what it is about."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.evidence import MembershipScores, Setting
from fedassay.audit.measurement import INDEPENDENT_TRIALS, Measurement
from scipy.stats import binom
from toy_claim import toy_claim


@pytest.fixture(scope="session")
def setting_of() -> Callable[..., Setting]:
    return lambda **changes: replace(Setting.claimed(toy_claim()), **changes)


@pytest.fixture(scope="session")
def scores_of(setting_of: Callable[..., Setting]) -> Callable[..., MembershipScores]:
    return lambda member, nonmember, **changes: MembershipScores(member, nonmember, setting_of(**changes))


@pytest.fixture(scope="session")
def claim_of() -> Callable[..., Claim]:
    # These words stand in the claim's pinned identity.
    fields: dict[str, Any] = {
        "parameters": {"noise_multiplier": 1.08, "clip_norm": 1.0},
        "accountant": "dp-accounting 0.6.0",
        "sampling": "all clients in all rounds",
        "trust": "server adds the noise",
        "source": "Dong, Roth, Su 2022, corollary 1",
    }
    return lambda **changes: toy_claim(**(fields | changes))


@pytest.fixture(scope="session")
def measurement_of(setting_of: Callable[..., Setting]) -> Callable[..., Measurement]:
    def build(**changes: Any) -> Measurement:
        fields: dict[str, Any] = {
            "estimator": "clopper_pearson",
            "assumption": INDEPENDENT_TRIALS,
            "alpha": 0.05,
            "n0": 1000,
            "n1": 1000,
            "delta": 1e-5,
            "threshold_policy": "fixed",
            "threshold": 0.5,
            "false_positives": 12,
            "false_negatives": 24,
            "fpr_high": 0.0209,
            "fnr_high": 0.0355,
            "epsilon_low": 3.8289,
            "estimate": 4.4,
            "ceiling": 5.6006,
            "detectable": 5.0,
            "witness": "",
            "setting": setting_of(),
            "below_curve": None,
        }
        return Measurement(**(fields | changes))

    return build


@pytest.fixture(scope="session")
def most_false_alarms() -> Callable[[int, float], int]:
    """The 99.9 % limit on refutations among so many repeats, were each falsely refuted with chance alpha."""
    return lambda repeats, alpha: int(binom.ppf(0.999, repeats, alpha))
