"""Bound from below the epsilon of the labels that a defense releases, from many trials of the releasing method alone.

A released label may depend on the labels of other people, and so show whether a label equals theirs. The hook is
therefore given four people: the label of the second one differs, and may be that of the people before and after.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import torch
from torch.nn.functional import one_hot

from ....audit.arrays import FloatArray
from ....audit.check import CHANNEL, CheckResult
from ....audit.measurement import Measurement
from ....audit.mechanism.mechanism import audit_mechanism
from ....fl.hooks import check_returned, overrides
from ....fl.vertical.protection import VerticalContext
from ..case import VerticalCase

TRIALS, PILOT, COMPARED = 2**16, 2**13, 2**13
"""Trials per label that are counted, that choose an event, and that choose the two labels."""
PEOPLE = 4
"""People whose labels a trial releases."""

_Draws = Callable[[FloatArray, np.random.Generator], FloatArray]


def channel_check(case: VerticalCase, labels: Sequence[int], *, alpha: float) -> CheckResult:
    """Compare the released labels of four people with the claim, drawn under each of two labels of the second person.

    Of all pairs of ``labels``, and of all labels that the people before and after have, pilot trials choose those that
    show most. The event is about all released labels, and about which are equal. The bound of one release counts once
    for each release that the training makes in the epochs of the claim, which is exact for pure DP: the losses of
    independent releases add up on the worst outcome.
    """
    claim = case.claim
    if not overrides(case.protection, "targets"):
        return CHANNEL.skipped("the defense releases no labels of its own")
    releases = case.epochs if case.protection.redraws else 1
    if claim.delta > 0 and releases > 1:
        words = "at a delta above 0 the privacy losses of several releases do not simply add up"
        return CHANNEL.skipped(words)
    each = replace(case, claim=replace(claim, epsilon=claim.epsilon / releases, curve=None))
    try:
        bounds = [_of_release(each, labels, epoch, alpha / releases) for epoch in range(releases)]
    except Exception as error:  # A hook of the user's own may need the rows of all people.
        return CHANNEL.skipped(f"the hook targets cannot be run by itself: {error}")
    pairs = len(labels) * (len(labels) - 1) // 2
    found = CHANNEL.at_most(
        sum(bound.epsilon_low for bound in bounds),
        claim.epsilon,
        unit="epsilon",
        witness=f"labels released for {PEOPLE} people, drawn {TRIALS} times under each of two labels of one person "
        f"(chosen from {pairs} pairs), in {releases} releases",
    )
    detects = [bound.detectable for bound in bounds]
    found = replace(found, detects=None if None in detects else sum(one for one in detects if one is not None))
    return case.judged(found, "released labels")


def _of_release(case: VerticalCase, labels: Sequence[int], epoch: int, alpha: float) -> Measurement:
    """The bound of what one epoch releases."""
    mechanism, rng = partial(_released, case, epoch), case.streams.generator("label channel", round=epoch)
    found = audit_mechanism(
        mechanism,
        case.claim,
        inputs=_furthest(mechanism, labels, rng),
        trials=TRIALS,
        pilot=PILOT,
        seed=int(rng.integers(2**31)),
        alpha=alpha,
        batched=True,
    ).measurement
    if found is None:
        raise ValueError("its draws show no event")
    return found


def _released(case: VerticalCase, epoch: int, given: FloatArray, rng: np.random.Generator) -> FloatArray:
    """The released labels of people with the labels ``given (n, people)``, and whether each one's equals that of the
    person before: (n, people * classes + people).
    """
    people, plan = torch.arange(given.shape[1]), case.plan
    context = VerticalContext(
        plan=plan, epoch=epoch, step=epoch * plan.steps_per_epoch, replicas=len(given), people=people
    )
    values = one_hot(torch.from_numpy(given.astype(np.int64)), plan.network.classes).to(torch.float32)
    found = check_returned("targets", case.protection.targets(values, context, rng), values, of_type=True).double()
    equal = (found == found.roll(1, 1)).all(-1)
    return torch.cat([found.flatten(1), equal.double()], dim=1).numpy()


def _furthest(mechanism: _Draws, labels: Sequence[int], rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """The labels of all people, under each of the two labels that differ most, among those others where they do."""
    found = []
    for other, last in zip(labels, [*labels[1:], labels[0]], strict=True):
        # The last label ends a run of equal ones, also where the first person counts as following the last one.
        given = {label: np.array([other, label, other, last], dtype=float) for label in labels}
        shown = _shown({label: mechanism(np.tile(row, (COMPARED, 1)), rng) for label, row in given.items()})
        found += [(apart, given[one], given[two]) for (one, two), apart in shown.items()]
    _, first, second = max(found, key=lambda one: one[0])
    return first, second


def _shown(drawn: dict[int, FloatArray]) -> dict[tuple[int, int], float]:
    """How far apart every two labels are: the log of how many times as often an entry is above its median, or not, for
    one as for the other, of the entry that shows most of each person, and added up over these.
    """
    middle = np.median(np.concatenate(list(drawn.values())), axis=0)
    above = {label: (rows > middle).sum(0) for label, rows in drawn.items()}
    counts = {label: np.stack([found, COMPARED - found]).astype(float) for label, found in above.items()}

    def apart(one: FloatArray, other: FloatArray) -> float:
        # Cautious by two deviations, so that a rare event counts no more than is known of it.
        high, low = np.maximum(one, other), np.minimum(one, other)
        ratios = ((high - 2 * np.sqrt(high)) / (low + 2 * np.sqrt(low) + 4)).max(0)
        logs = np.log(ratios.clip(min=1))
        return float(logs[:-PEOPLE].reshape(PEOPLE, -1).max(1).sum() + logs[-PEOPLE:].max())

    return {both: apart(counts[both[0]], counts[both[1]]) for both in combinations(drawn, 2)}
