"""Hold against the claim how often a number exceeds a threshold with and without one unit that moves it far over its
noise.

The numbers are those of the public state after one round, and the size of a release's noise: a clip norm or a noise
scale that follows the raw data without noise of its own shows the unit. Single runs with equal draws select suspects.
Of a suspect, the threshold is chosen in some runs of other noise, and exceeding it is counted in others, so that the
epsilon is an exact lower bound whatever the noise's distribution. A correct defense fails once in 10^7 checks.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import beta

from ...audit.arrays import FloatArray
from ...audit.check_result import CheckResult
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED
from ...fl.plan import Plan
from ...fl.replay import ManyRuns, Recording
from ..false_alarms import level

ODDS = "numbers that a unit moves"
_FAR = 4.0
"""Multiple of the noise of a few runs from which a number is a suspect."""
_LOUDER = 1.2
"""Factor of the noise of equal draws from which its size is a suspect."""
_LEARNT, _APART = 64, 3.0
"""Runs of each kind from which a threshold is chosen, and standard deviations of both kinds between their means."""
_SUSPECTS, _NUMBERS, _AT_ONCE = 4, 2**26, 2**22
"""Suspects that are counted at most, and numbers of rows of clients or samples of all runs and of one batch."""

Many = Callable[[int, int], tuple[ManyRuns, ManyRuns]]
"""From the number of a noise and the number of runs, runs of two rounds without and with the unit."""


@dataclass(kw_only=True)
class EventOdds:
    """The check of numbers that units move; ``add`` compares pairs of runs, and ``results`` returns the check.

    Args:
        released: whether the size of a release's noise is compared: the observer receives a sum or a client's report.
    """

    claim: Claim
    plan: Plan
    released: bool
    suspects: int = 0
    found: list[CheckResult] = field(default_factory=list)
    reason: str = ""
    _known: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, claim: Claim, plan: Plan, *, changes_broadcast: bool) -> "EventOdds":
        """Return the check of a claim."""
        rank = claim.observer.rank
        sees = rank not in (SHUFFLED.rank, FINAL_MODEL.rank)
        return cls(claim=claim, plan=plan, released=sees and not (rank < AGGREGATE.rank and changes_broadcast))

    @property
    def rate(self) -> float:
        """The least chance that a unit takes part in a round."""
        return self.plan.cohort_rate * min(self.plan.lot.rate(size) for size in self.plan.sizes)

    @property
    def needed(self) -> int:
        """Runs of each kind in which an event that always and never happens refutes the claim."""
        odds = (math.exp(min(self.claim.epsilon, 30.0)) + self.rate) / max(self.rate - self.claim.delta, 1e-9)
        return math.ceil(1.1 * -math.log(level(2 * _SUSPECTS)) * odds)

    @property
    def numbers(self) -> int:
        """Numbers of one run: rows of clients, or of the samples of the largest one."""
        samples = max(self.plan.sizes) if self.claim.unit is Unit.SAMPLE else 1
        return max(self.plan.clients, samples) * self.plan.layout.dim

    def add(self, before: Recording, after: Recording, others: Sequence[Recording], many: Many, witness: str) -> None:
        """Compare the public state that the first round of two runs with equal draws left."""
        if self.claim.observer.rank < GLOBAL_MODELS.rank or min(map(len, (before.states, after.states))) < 2:
            return
        for name, one in before.states[1].items():
            other, noisy = after.states[1].get(name), [run.states[1].get(name) for run in others]
            rows = [row for row in noisy if row is not None and row.shape == one.shape]
            if other is None or other.shape != one.shape or len(rows) < 2 or name in self._known:
                continue
            spread = np.max([(row - rows[0]).abs().numpy() for row in rows[1:]], axis=0)
            moved = (other - one).abs().numpy()
            # Without any noise it is a finding of the message.
            far = np.where(spread > 0, moved / np.maximum(spread, 1e-300), 0.0)
            if far.size and far.max() > _FAR:
                self._known.add(name)
                self._count(_State(name=name, where=int(far.argmax())), many, f"public state {name}, {witness}")

    def add_noise(self, sizes: FloatArray, row: int, many: Many, witness: str) -> None:
        """Compare the size of the noise of a row of the first round's release, ``sizes``: without and with the unit,
        from equal draws.
        """
        if self.released and (sizes > 0).all() and not 1 / _LOUDER < sizes[1] / sizes[0] < _LOUDER:
            self._count(_Size(row=row), many, f"the size of a release's noise, {witness}")

    def results(self) -> Iterator[CheckResult]:
        """The check; none without a suspect."""
        if self.found:
            yield max(self.found, key=lambda one: (one.passed is False, one.measured or 0.0))
        elif self.reason:
            yield CheckResult(name=ODDS, passed=None, witness=self.reason)

    def _count(self, number: "_State | _Size", many: Many, words: str) -> None:
        self.suspects += 1
        if self.suspects > _SUSPECTS:
            self.reason = self.reason or f"{words}: more than {_SUSPECTS} numbers would have had to be counted"
            return
        if self.rate < 1 and self.claim.adjacency is not Adjacency.ADD_REMOVE:
            self.reason = f"{words}: runs in which the unit is not sampled are unlike both kinds of runs"
            return
        try:
            self._counted(number, many, words)
        except Exception as error:  # A user's own hooks may raise anything in several runs at once.
            self.reason = f"{words}: several runs at once are not possible: {type(error).__name__}: {error}"

    def _counted(self, number: "_State | _Size", many: Many, words: str) -> None:
        most = _NUMBERS // self.numbers
        # A model too large to learn from is too large to count with.
        known = number.learn(*many(0, _LEARNT)) if _LEARNT * self.numbers <= 4 * _AT_ONCE else (1.0, 0.0)
        if known is None:
            return
        sign, threshold = known
        if self.needed > most:
            self.reason = f"{words}: {self.needed} runs would be needed, and {most} are made at most"
            return
        counts, total, size = np.zeros(2, dtype=int), 0, max(2, _AT_ONCE // self.numbers)
        while total < self.needed:
            values = [number.values(runs) for runs in many(3 + total, min(size, self.needed - total))]
            if values[0] is None or values[1] is None:
                return
            counts += [int((sign * one > sign * threshold).sum()) for one in values if one is not None]
            total += len(values[0])
        self.found.append(self._held(int(counts[0]), int(counts[1]), total, words))

    def _held(self, without: int, present: int, total: int, words: str) -> CheckResult:
        alpha = level(2 * _SUSPECTS)
        high = float(beta.ppf(1 - alpha, without + 1, total - without)) if without < total else 1.0
        low = float(beta.ppf(alpha, present, total - present + 1)) if present else 0.0
        # A unit that is sampled is there in a share of the runs, and the others are like those without it.
        odds = (self.rate * low - self.claim.delta) / high + 1 - self.rate
        epsilon = math.log(odds) if odds > 1 else 0.0
        witness = f"{words}: beyond a threshold in {present} of {total} runs with the unit, in {without} without it"
        witness += f", rate {self.rate:.3g}" if self.rate < 1 else ""
        return CheckResult.at_most(ODDS, epsilon, self.claim.epsilon, unit="epsilon", witness=witness)


@dataclass(kw_only=True)
class _State:
    """One number of the public state that the first round left."""

    name: str
    where: int

    def learn(self, without: ManyRuns, present: ManyRuns) -> tuple[float, float] | None:
        values = [self.values(runs) for runs in (without, present)]
        return None if values[0] is None or values[1] is None else _threshold(values[0], values[1])

    def values(self, runs: ManyRuns) -> FloatArray | None:
        """The number in every run; None where the runs have no number each."""
        array = runs.states[1].get(self.name)
        if array is None or len(array) != runs.replicas:
            return None
        return np.asarray(array.reshape(runs.replicas, -1)[:, self.where].numpy())


@dataclass(kw_only=True)
class _Size:
    """The distance of one row of the first round's release from the nearer centre of both kinds of runs."""

    row: int
    centres: list[FloatArray] = field(default_factory=list)

    def learn(self, without: ManyRuns, present: ManyRuns) -> tuple[float, float] | None:
        half = without.replicas // 2
        releases = [runs.releases[0][:, self.row].numpy() for runs in (without, present)]
        self.centres = [rows[:half].mean(0) for rows in releases]
        return _threshold(*(self._sizes(rows[half:]) for rows in releases))

    def values(self, runs: ManyRuns) -> FloatArray | None:
        return self._sizes(runs.releases[0][:, self.row].numpy())

    def _sizes(self, rows: FloatArray) -> FloatArray:
        away = np.min([np.linalg.norm(rows - centre, axis=-1) for centre in self.centres], axis=0)
        return np.asarray(np.log(np.maximum(away, 1e-300)))


def _threshold(without: FloatArray, present: FloatArray) -> tuple[float, float] | None:
    """The sign of the move, and the number between both kinds of runs; None where they are not far apart."""
    spreads = [float(values.std()) for values in (without, present)]
    apart = float(present.mean() - without.mean())
    if not abs(apart) > _APART * sum(spreads):
        return None
    share = spreads[0] / sum(spreads) if sum(spreads) > 0 else 0.5
    return math.copysign(1.0, apart), float(without.mean()) + apart * share
