"""Audits a claim with outputs of runs that were made before, such as trained models of two neighbouring inputs.

Every second output of each input only learns what distinguishes the inputs and fixes a threshold; the rest is counted.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..claim import Claim, check_claim
from ..estimators.catalogue import Estimator
from ..estimators.hockey_stick import MechanismOutputs
from ..evidence import Design, Projections, Setting
from ..finding import Finding, judge
from ..measurement import Measurement
from ..power.cut import CountingPlan
from ..supplied.chosen import (
    Choice,
    EstimatorOptions,
    chosen,
    measure_runs,
    measured_by,
    options_of_runs,
    uses_threshold,
)
from ..supplied.copies import check_copies
from ..supplied.given import check_alpha, detached
from ..supplied.power import weakness_of, with_power
from .candidates import candidates
from .event import Event, fix_event

FEWEST = 8
"""The fewest outputs of an input: with fewer, there is nothing to learn from and to count."""


def audit_outputs(
    nonmember: ArrayLike,
    member: ArrayLike,
    claim: Claim,
    *,
    inputs: tuple[Any, Any] = (0, 1),
    alpha: float = 0.05,
    estimator: Choice | Sequence[Choice] | None = None,
    options: EstimatorOptions | None = None,
) -> Finding:
    """Judge a claim by the outputs of independent runs on two neighbouring inputs.

    ``nonmember``: (n0, ...) outputs on the first input, ``member``: (n1, ...) on the second: numbers (NaN and
    infinities are values) or strings, all of one shape, n0, n1 >= 8. ``inputs``: the two inputs themselves, if they are
    vectors that help to score the outputs. ``estimator``, ``options``: as for ``audit_mechanism``, by default
    ``clopper_pearson``.

    The finding holds with probability 1 - ``alpha`` if the runs are independent. It is UNDERPOWERED where no violation,
    or only one of more than ten times the claimed epsilon, would be refuted with 90 % power.

    Raises ValueError for outputs of other shapes or types, outputs that both sides share or that are all repeated, and
    alpha outside (0, 0.5]; TypeError for a claim that is not a Claim.
    """
    check_claim(claim)
    check_alpha(alpha)
    found = chosen(estimator, Design.INDEPENDENT, ("clopper_pearson",))
    given = options_of_runs(options, found)
    sides = _outputs("nonmember", nonmember), _outputs("member", member)
    if sides[0].shape[1:] != sides[1].shape[1:] or (sides[0].dtype.kind in "US") != (sides[1].dtype.kind in "US"):
        raise ValueError(
            f"outputs on both inputs must have the same type and shape, got {sides[0].dtype} of {sides[0].shape[1:]} "
            f"and {sides[1].dtype} of {sides[1].shape[1:]}"
        )
    check_copies(*sides, design=Design.INDEPENDENT)
    pilots, counted = [side[::2] for side in sides], [side[1::2] for side in sides]
    plan = CountingPlan(trials=min(map(len, counted)), delta=claim.delta, alpha=alpha, curve=claim.curve)
    event = _event(pilots, inputs, plan)
    setting = Setting.claimed(claim)

    def measure(one: Estimator, share: float) -> Measurement:
        if one.evidence in (MechanismOutputs, Projections):
            out, within = (side.reshape(len(side), -1) for side in counted)
        else:
            out, within = (event.score.score(side) for side in counted)
        fixed = replace(given, threshold=event.cut.threshold if uses_threshold(one) else None)
        words = f"every second output; event {event}"
        return measure_runs(one, within, out, setting, claim, alpha=share, options=fixed, witness=words)

    measured = with_power(measured_by(found, measure, claim, alpha), claim)
    return judge(claim, measured, weakness=weakness_of(measured))


def _outputs(name: str, values: ArrayLike) -> NDArray[Any]:
    array = np.asarray(detached(values))
    if array.dtype.kind not in "biufUS" or array.ndim == 0 or array.size == 0:
        raise ValueError(f"{name} must hold outputs (n, ...) of numbers or strings, got {array.dtype} of {array.shape}")
    if len(array) < FEWEST:
        raise ValueError(f"{name} must hold at least {FEWEST} outputs, got {len(array)}")
    return array


def _event(pilots: Sequence[NDArray[Any]], inputs: tuple[Any, Any], plan: CountingPlan) -> Event:
    """The event with the most promise on the half of the pilot that no score was learnt from."""
    out, within = pilots
    first = min(len(out), len(within)) // 2
    events = [
        fix_event(score, score.score(within[first:]), score.score(out[first:]), plan)
        for score in candidates(within[:first], out[:first], inputs, thorough=True, low_bits=False)
    ]
    return max(events, key=lambda event: event.cut.promise)
