"""Bound from below the epsilon of the labels that a defense releases, from many trials of its hook alone."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ....audit.arrays import FloatArray
from ....audit.check_result import CheckResult
from ....audit.claim import Claim
from ....audit.estimators.clopper_pearson import clopper_pearson
from ....audit.evidence import MembershipScores, Setting
from ....audit.power.threshold import SplitThreshold
from ....fl.hooks import overrides
from ....fl.streams import Streams
from ....fl.vertical.plan import VerticalPlan
from ....fl.vertical.protection import VerticalContext, VerticalProtection
from ..received import held_against

CHANNEL = "label channel"
TRIALS = 2**17
"""Trials per arm; half of them choose the threshold."""


def channel_check(
    claim: Claim,
    plan: VerticalPlan,
    protection: VerticalProtection,
    streams: Streams,
    pair: tuple[int, int],
    *,
    alpha: float,
) -> CheckResult:
    """Hold the released labels of one person, drawn under each of two labels, against the claim.

    The score is the difference of the two labels' entries. The bound of one release counts once for each release that
    the training makes in the epochs of the claim, which is exact for pure DP: the losses of independent releases add up
    on the worst outcome.
    """
    if not overrides(protection, "targets"):
        return CheckResult(name=CHANNEL, passed=None, witness="the defense releases no labels of its own")
    releases = min(plan.epochs, claim.rounds) if protection.redraws else 1
    if claim.delta > 0 and releases > 1:
        words = "losses of several releases at a delta above 0 do not simply add up"
        return CheckResult(name=CHANNEL, passed=None, witness=words)
    bounds = []
    for epoch in range(releases):
        try:
            out, within = (_scores(plan, protection, streams, pair, arm, epoch) for arm in (0, 1))
        except Exception as error:  # A hook of the user's own may need the rows of all people.
            return CheckResult(name=CHANNEL, passed=None, witness=f"the hook targets cannot run alone: {error}")
        bounds.append(
            clopper_pearson(
                MembershipScores(within, out, Setting.claimed(claim)),
                delta=claim.delta,
                alpha=alpha / releases,
                threshold=SplitThreshold(0.5),
                epsilon=claim.epsilon / releases,
            )
        )
    found = CheckResult.at_most(
        CHANNEL,
        sum(bound.epsilon_low for bound in bounds),
        claim.epsilon,
        unit="epsilon",
        witness=f"{TRIALS} draws of one person's released label under each of two labels, in {releases} releases",
    )
    detects = [bound.detectable for bound in bounds]
    found = replace(found, detects=None if None in detects else sum(one for one in detects if one is not None))
    return held_against(claim, found, "released labels")


def _scores(
    plan: VerticalPlan, protection: VerticalProtection, streams: Streams, pair: tuple[int, int], arm: int, epoch: int
) -> FloatArray:
    label = torch.full((TRIALS, 1), pair[arm])
    values = one_hot(label, plan.network.classes).to(torch.float32)
    step = epoch * plan.steps_per_epoch
    context = VerticalContext(
        plan=plan, epoch=epoch, step=step, replicas=TRIALS, people=torch.zeros(1, dtype=torch.int64)
    )
    drawn: Tensor = protection.targets(values, context, streams.generator("label channel", world=arm, round=epoch))
    return np.asarray((drawn[:, 0, pair[1]] - drawn[:, 0, pair[0]]).double().numpy())
