"""Several registered bounds under one alpha."""

from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.curve import GaussianCurve
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.estimators.joint_point import best_bound
from fedassay.audit.evidence import MembershipScores, Setting
from fedassay.audit.measurement import Measurement
from fedassay.audit.threshold import FixedThreshold

SETTING = Setting.claimed(Claim.stated(1.0))


def measured(shift: float, alpha: float, curve: GaussianCurve | None = None, threshold: float = 0.5) -> Measurement:
    rng = np.random.default_rng(7)
    scores = MembershipScores(rng.normal(size=400) + shift, rng.normal(size=400), SETTING)
    return clopper_pearson(scores, delta=1e-5, alpha=alpha, threshold=FixedThreshold(threshold), curve=curve)


def test_the_largest_bound_is_reported_at_the_sum_of_the_alphas() -> None:
    weak, strong = measured(0.5, 0.01), measured(3.0, 0.02)
    best = best_bound([weak, strong])
    assert best.epsilon_low == strong.epsilon_low > weak.epsilon_low
    assert best.alpha == pytest.approx(0.03)
    assert best.comparisons == 2
    assert best.threshold_policy == "bonferroni(k=2)"


def test_one_under_the_curve_comes_before_a_larger_bound() -> None:
    under = replace(measured(1.0, 0.01, GaussianCurve(0.01)), epsilon_low=0.1)
    larger = replace(measured(3.0, 0.01, GaussianCurve(9.0)), epsilon_low=2.0)
    assert under.below_curve
    assert not larger.below_curve
    assert best_bound([larger, under]).below_curve


def test_nothing_and_mixed_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        best_bound([])
    other = replace(measured(1.0, 0.01), setting=replace(SETTING, rounds=2))
    with pytest.raises(ValueError, match="measurements of one setting and one delta"):
        best_bound([measured(1.0, 0.01), other])
    with pytest.raises(ValueError, match="measurements of one setting and one delta"):
        best_bound([measured(1.0, 0.01), replace(measured(1.0, 0.01), delta=1e-6)])


@pytest.mark.simulations
def test_the_best_of_five_null_bounds_errs_no_oftener_than_alpha() -> None:
    """Null scores, five thresholds at .05 / 5 over 1000 repeats: more than 73 errors have chance .001 at a true 5 %."""
    rng, errors = np.random.default_rng(3), 0
    for _ in range(1000):
        scores = MembershipScores(rng.normal(size=200), rng.normal(size=200), SETTING)
        bounds = [
            clopper_pearson(scores, delta=1e-5, alpha=0.05 / 5, threshold=FixedThreshold(t))
            for t in (-1.0, -0.5, 0.0, 0.5, 1.0)
        ]
        errors += best_bound(bounds).epsilon_low > 0
    assert errors <= 73
