"""Bound from below the epsilon of the labels that a defense releases, from many trials of its hook alone."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import torch
from torch.nn.functional import one_hot

from ....audit.arrays import FloatArray
from ....audit.check_result import CheckResult
from ....audit.claim import Claim
from ....audit.measurement import Measurement
from ....audit.mechanism.mechanism import audit_mechanism
from ....fl.hooks import overrides
from ....fl.streams import Streams
from ....fl.vertical.plan import VerticalPlan
from ....fl.vertical.protection import VerticalContext, VerticalProtection
from ..received import held_against

CHANNEL = "label channel"
TRIALS, PILOT, COMPARED = 2**16, 2**13, 2**13
"""Trials per label that are counted, that choose an event, and that choose the two labels."""


def channel_check(
    claim: Claim,
    plan: VerticalPlan,
    protection: VerticalProtection,
    streams: Streams,
    labels: Sequence[int],
    *,
    alpha: float,
) -> CheckResult:
    """Hold the released label of one person, drawn under each of two labels, against the claim.

    Of all pairs of ``labels``, pilot trials choose the one that shows most. The bound of one release counts once for
    each release that the training makes in the epochs of the claim, which is exact for pure DP: the losses of
    independent releases add up on the worst outcome.
    """
    if not overrides(protection, "targets"):
        return CheckResult(name=CHANNEL, passed=None, witness="the defense releases no labels of its own")
    releases = min(plan.epochs, claim.rounds) if protection.redraws else 1
    if claim.delta > 0 and releases > 1:
        words = "losses of several releases at a delta above 0 do not simply add up"
        return CheckResult(name=CHANNEL, passed=None, witness=words)
    each = replace(claim, epsilon=claim.epsilon / releases, curve=None)
    try:
        bounds = [
            _of_release(each, plan, protection, streams, labels, epoch, alpha / releases) for epoch in range(releases)
        ]
    except Exception as error:  # A hook of the user's own may need the rows of all people.
        return CheckResult(name=CHANNEL, passed=None, witness=f"the hook targets cannot run alone: {error}")
    pairs = len(labels) * (len(labels) - 1) // 2
    found = CheckResult.at_most(
        CHANNEL,
        sum(bound.epsilon_low for bound in bounds),
        claim.epsilon,
        unit="epsilon",
        witness=f"{TRIALS} draws of one person's released label under each of two labels, chosen of {pairs} pairs, "
        f"in {releases} releases",
    )
    detects = [bound.detectable for bound in bounds]
    found = replace(found, detects=None if None in detects else sum(one for one in detects if one is not None))
    return held_against(claim, found, "released labels")


def _of_release(
    claim: Claim,
    plan: VerticalPlan,
    protection: VerticalProtection,
    streams: Streams,
    labels: Sequence[int],
    epoch: int,
    alpha: float,
) -> Measurement:
    """The bound of what one epoch releases."""

    mechanism, rng = partial(_released, plan, protection, epoch), streams.generator("label channel", round=epoch)
    found = audit_mechanism(
        mechanism,
        claim,
        inputs=_furthest({label: mechanism(np.full((COMPARED, 1), label), rng) for label in labels}),
        trials=TRIALS,
        pilot=PILOT,
        seed=int(rng.integers(2**31)),
        alpha=alpha,
        batched=True,
    ).measurement
    if found is None:
        raise ValueError("its draws show no event")
    return found


def _released(
    plan: VerticalPlan, protection: VerticalProtection, epoch: int, given: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """One person's released labels, (n, classes), for the labels ``given (n, 1)``."""
    context = VerticalContext(
        plan=plan,
        epoch=epoch,
        step=epoch * plan.steps_per_epoch,
        replicas=len(given),
        people=torch.zeros(1, dtype=torch.int64),
    )
    values = one_hot(torch.from_numpy(given.astype(np.int64)), plan.network.classes).to(torch.float32)
    return np.asarray(protection.targets(values, context, rng)[:, 0].double().numpy())


def _furthest(drawn: dict[int, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """The two labels for one of which some entry is above its median, or not, most times as often as for the other."""
    middle = np.median(np.concatenate(list(drawn.values())), axis=0)
    above = {label: (rows > middle).sum(0) for label, rows in drawn.items()}
    counts = {label: np.concatenate([found, COMPARED - found]).astype(float) for label, found in above.items()}

    def apart(both: tuple[int, int]) -> float:
        # Cautious by two deviations, so that a rare event counts no more than is known of it.
        one, other = counts[both[0]], counts[both[1]]
        high, low = np.maximum(one, other), np.minimum(one, other)
        return float(((high - 2 * np.sqrt(high)) / (low + 2 * np.sqrt(low) + 4)).max())

    first, second = max(combinations(drawn, 2), key=apart)
    return np.array([float(first)]), np.array([float(second)])
