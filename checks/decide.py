"""Let trials decide about failed comparisons of runs with equal random draws. Such a failure is a reason to suspect a
privacy claim, and proves nothing where noised numbers were processed afterwards.

Each failed comparison names two inputs. Fresh runs on both, by the hooks as they are, show what everything that is
received says about the unit. They refute the claim, or pass although a violation of the size that the comparison stands
for would have been seen, or cannot tell.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from ..audit.check import (
    AS_SAMPLED,
    DISTRIBUTION,
    EVERY_DIRECTION,
    GIVEN_CLIENTS,
    GIVEN_ROUNDS,
    ONCE,
    PURE,
    SCALE,
    SENSITIVITY,
    CheckResult,
)
from ..audit.claim import Adjacency, Claim
from ..audit.curve import epsilon_from_mu, mu_from_epsilon
from ..audit.finding import refutes
from ..audit.ledger import SUITE
from ..audit.observer import SHUFFLED
from ..fl.streams import Runs, Streams
from .arms import Arms, Parts, TwoArms, of_one_step, two_steps, wanted_epsilon
from .every_number import SuspectedNumbers
from .given_rows import ABSENT, OPPOSITE, PRESENT, ZERO, ProposedRows, event_of
from .neighbours import Proposed
from .received import ReceivedNumbers
from .trials import FEWEST_RUNS, proposed_arms

_MOST_DECIDED = 2
"""Pairs of inputs of one claim on which trials decide, at most."""
_LEARN, _CHOOSE = 256, 512
"""Runs of each arm of a pilot."""
_NUMBERS, _AT_ONCE, _MOST_BATCH = 2**28, 2**22, 2**12
"""Numbers of all runs of one arm, and of one batch, and runs of one batch, at most."""
_KEPT = 256
"""Numbers of an array that are kept as they are."""


_RATIOS = {SENSITIVITY, AS_SAMPLED, ONCE, SCALE, EVERY_DIRECTION, GIVEN_CLIENTS, GIVEN_ROUNDS, DISTRIBUTION}
"""Comparisons whose number over its limit is the factor by which a move over its noise is too large."""


def decided(results: Sequence[CheckResult], claim: Claim, *, most: int) -> tuple[CheckResult, ...]:
    """Return the check results after trials have decided whether failed comparisons refute the claim.

    A comparison that trials explain has passed, with their power; one by which they refute the claim has their
    measurement as its evidence; one of which they cannot tell stays, and its witness says how many runs there were.

    Args:
        claim: as it is stated for the plan that was run.
        most: runs of each arm, at most.
    """
    refuted = any(one.evidence is not None and refutes(claim, one.evidence) for one in results)
    if refuted or most < FEWEST_RUNS:
        return tuple(results)
    found = {number: one for number, one in enumerate(results) if one.passed is False and one.proposal is not None}
    order = sorted(found, key=lambda number: -_implied(found[number], claim))
    known: dict[str, CheckResult] = {}
    after = list(results)
    for number in order:
        proposal = found[number].proposal
        if proposal.words not in known and len(known) < _MOST_DECIDED:
            known[proposal.words] = _decided(found[number], claim, most)
        if proposal.words in known:
            after[number] = _as(known[proposal.words], found[number], claim)
        if (evidence := after[number].evidence) is not None and refutes(claim, evidence):
            break
    return tuple(after)


def _decided(failed: CheckResult, claim: Claim, most: int) -> CheckResult:
    proposal = failed.proposal
    steps = 1 if isinstance(proposal, ProposedRows) else proposal.steps
    tested = claim if steps == 1 else two_steps(claim)
    if tested is None:
        return replace(
            failed,
            witness=f"{failed.witness}; runs cannot confirm it, because its inputs are two steps of adjacency "
            "apart, and at this epsilon group privacy bounds nothing for them",
        )
    try:
        arms = arms_of(proposal)
        wanted = min(wanted_epsilon(tested), steps * _implied(failed, claim))
        trials = TwoArms(claim=tested, alpha=SUITE.level("decisions"), most=min(most, arms.most), wanted=wanted)
        pilot = trials.deeper(trials.pilot(arms, _LEARN, _CHOOSE))
        if trials.constant:
            return replace(
                failed, witness=f"{failed.witness}; all {trials.made} runs on both inputs released the same numbers"
            )
        measured = trials.count(pilot)
    except Exception as error:  # A user's own hooks may raise anything, and the comparison stands.
        return replace(failed, witness=f"{failed.witness}; trials could not be run: {type(error).__name__}: {error}")
    if measured is None:
        return replace(
            failed,
            witness=f"{failed.witness}; no bound follows, because runs of one batch depend on each other",
        )
    return replace(failed, evidence=measured if steps == 1 else of_one_step(measured, claim))


def _as(decision: CheckResult, failed: CheckResult, claim: Claim) -> CheckResult:
    """The result of a comparison on whose inputs trials were made."""
    measured = decision.evidence
    if measured is None:
        return replace(failed, witness=failed.witness + decision.witness.removeprefix(decision.witness.split("; ")[0]))
    if refutes(claim, measured):
        return replace(failed, evidence=measured)
    implied, seen = _implied(failed, claim), measured.detectable
    if failed.name == PURE:
        # Its losses lie in tails that no number of runs reaches.
        return replace(
            failed,
            witness=f"{failed.witness}; runs cannot confirm it, because only very rare events reveal it",
        )
    runs = f"{measured.n1:,} runs on each of the two inputs"
    if seen is None or seen > implied:
        would = (
            "no number of runs would be enough to find that"
            if seen is None
            else f"these runs find violations only from epsilon {seen:.3g} on"
        )
        words = (
            f"{failed.witness}; {runs} cannot confirm it: this difference implies epsilon {implied:.3g}, and {would}"
        )
        return replace(failed, witness=words)
    meant = "a move without noise" if math.isinf(implied) else f"epsilon {implied:.3g}"
    words = (
        f"{failed.words}; explained by post-processing of noised numbers: {runs} show no more than the claim "
        f"allows, and would have shown {meant} (epsilon {seen:.3g} with probability 0.9 by the best score)"
    )
    return replace(
        failed,
        passed=True,
        measured=measured.epsilon_low,
        allowed=claim.epsilon,
        relation="<=",
        unit="epsilon",
        witness=words,
        proposal=None,
        evidence=measured,
    )


def _implied(failed: CheckResult, claim: Claim) -> float:
    """The epsilon of a violation of the size that a failed comparison stands for; infinite for a move without noise."""
    measured, allowed = failed.measured, failed.allowed
    if measured is None or allowed is None or not all(map(math.isfinite, (measured, allowed))):
        return math.inf
    if failed.unit == "epsilon":
        return max(measured, claim.epsilon)
    less, more = (measured, allowed) if failed.relation == ">=" else (allowed, measured)
    if less <= 0 or failed.name not in _RATIOS:
        return math.inf
    factor = more / less
    if claim.delta == 0:
        return claim.epsilon * factor
    mu = mu_from_epsilon(claim.epsilon, claim.delta) * factor
    return max(claim.epsilon, float(epsilon_from_mu(mu, claim.delta))) if mu < 30 else math.inf


def arms_of(proposal: Proposed | ProposedRows | SuspectedNumbers) -> Arms:
    """Return the two inputs, with their sampler, that a comparison proposes for trials."""
    if isinstance(proposal, SuspectedNumbers):
        return proposal.arms
    return proposed_arms(proposal) if isinstance(proposal, Proposed) else _rows_arms(proposal)


@dataclass(kw_only=True)
class _RowsArms:
    """Runs of hooks on given rows, with and without the unit; ``grids`` and ``rounds`` are kept for later batches."""

    proposal: ProposedRows
    grids: dict[str, float] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)

    def draw(self, arm: int, runs: int, block: int) -> Parts:
        setup, around = self.proposal.setup.as_sampled, self.proposal.around.repeated(self.proposal.run, runs)
        claim, other = setup.claim, self.proposal.other
        if not arm and other is not None:
            around = replace(around, units=other.expand(runs, -1, -1))
        held = PRESENT if arm or other is not None else self._without
        rows = setup.rows(around, held, around.others)
        streams, batch = Streams(setup.seed), Runs(replicas=runs, block=2**29 + 2 * block + arm)
        rounds = replace(setup.rounds(streams, rows, runs), runs=batch, closes=True)
        unit = self.proposal.around.units[self.proposal.run].double()
        longest = unit[int(unit.norm(dim=1).argmax())]
        recorder = ReceivedNumbers(
            observer=claim.observer,
            protection=setup.protection,
            holder=int(around.holders[0]),
            direction=(longest / longest.norm().clamp_min(1e-300)).float(),
            grids=self.grids,
            raw=_KEPT,
        )
        final = torch.zeros(runs, 1)
        for turn in rounds.each(around.rounds):
            recorder.watch(event_of(turn))
            final = turn.aggregate
        numbers = recorder.numbers(final)
        self.rounds.update(recorder.widths)
        return numbers

    @property
    def _without(self) -> str:
        claim = self.proposal.setup.claim
        if claim.adjacency is Adjacency.REPLACE_ONE:
            return OPPOSITE
        seen = claim.observer.rank >= SHUFFLED.rank and claim.unit not in ("sample", "user")
        return ABSENT if claim.adjacency is Adjacency.ADD_REMOVE and not seen else ZERO


def _rows_arms(proposal: ProposedRows) -> Arms:
    setup, arms = proposal.setup, _RowsArms(proposal=proposal)
    cost = setup.numbers * proposal.around.rounds
    batch = int(np.clip(_AT_ONCE // cost, 16, _MOST_BATCH))
    return Arms(draw=arms.draw, words=proposal.words, batch=batch, most=_NUMBERS // cost, rounds=arms.rounds)
