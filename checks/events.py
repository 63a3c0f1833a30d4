"""Count events in reports on extreme pairs of inputs, and state how large a violation must be for a count to refute a
claim.

Scale the privacy losses of an event, to state from which violation a test that counts it would refute a claim.

Hold reports on extreme pairs of inputs against the claim: the ratio of the chances of events, bounded exactly.

Events are chosen on some of the runs and counted on the others. They look at numbers one by one and at what they share:
neighbouring coordinates, another client, another round, and the length of a report. Where rounds are independent and
alike, the chance that an event happens in so many of all rounds follows from its chance in one.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.special import bdtrc, betaincinv
from scipy.stats import beta, binom
from torch import Tensor

from ..audit.arrays import BoolArray, FloatArray, IntArray
from ..audit.binomial import upper_bound
from ..audit.check import EVENTS, LOCAL, Check, CheckResult
from ..audit.claim import Adjacency, Claim, Unit
from ..audit.ledger import SUITE
from ..audit.observer import SHUFFLED, UPLOADS
from ..fl.laws import GaussianLaw, ReportLaw
from ..fl.message import clear_absent
from ..fl.replay import ReplayedStreams
from ..fl.rounds import Round, given_rows
from .canaries import FAR, in_turn, range_ends
from .given_rows import HookSetup, ProposedRows, Surroundings
from .law import largest_ratio, law_of_all_rounds

MISSED = 0.1
"""Probability with which a violation may be missed that counts as detectable."""
_CAUTION = 0.05
"""Level of the bounds on rates that were seen."""
_FACTORS = tuple(1.05**number for number in range(50))
"""Factors of the privacy losses that are tried."""


def cautious_rates(within: int, out: int, n: int) -> tuple[float, float]:
    """Return an event's rates with and without the unit, moved towards each other by confidence bounds on counts of
    ``n`` runs of each.
    """
    low = float(beta.ppf(_CAUTION, within, n - within + 1)) if within else 0.0
    return low, float(upper_bound(out, n, _CAUTION))


def smallest_factor(p: float, q: float, refutes: Callable[[float, float], bool]) -> float | None:
    """Return the smallest factor on the privacy losses of an event with rates p and q at which a test refutes; None if
    no factor in reach suffices, or if p is not larger than q.

    The losses are ln(p / q) and ln((1 - p) / (1 - q)). With r and t for these two ratios, the rates of which the losses
    are c times as large are q' = (1 - t^c) / (r^c - t^c) and p' = r^c q'.

    Args:
        refutes: whether the test refutes the claim with probability 0.9 at rates p' and q'; the larger the losses, the
            rather it does.
    """
    if not 0 < q < p < 1:
        return None
    gain, loss = math.log(p / q), math.log((1 - p) / (1 - q))

    def at(factor: float) -> bool:
        low = -math.expm1(factor * loss) / (math.exp(factor * gain) - math.exp(factor * loss))
        return refutes(min(1.0, math.exp(factor * gain) * low), low)

    # Most events show little: the largest factor alone rules them out.
    return _FACTORS[bisect_left(_FACTORS, True, key=at)] if at(_FACTORS[-1]) else None


def likely_counts(p: float, q: float, n: int) -> tuple[int, int]:
    """Return counts of an event among ``n`` runs with and without the unit; with probability 0.9, the observed counts
    are at least this far apart.
    """
    return int(binom.ppf(MISSED / 2, n, p)), int(binom.ppf(1 - MISSED / 2, n, q))


_ROUNDS = 2
"""Rounds that are drawn; their reports are also compared with each other."""
_BINS = 8
"""Parts of the range of a number between which events distinguish, at most."""
_LEAST, _MANY = 128, 1024
"""Runs of one input at least, and where epsilon is small."""
_BRIEF = 256
"""Runs at further clients before a shuffler."""
_GROUP, _GROUP_RUNS = 20, 8192
"""Part of the numbers of a row that differs from the rest, and runs that show how often one of them is chosen."""
_LEARN = 4
"""One run in so many is used to choose an event."""
_PILOT = 0.05
"""Level of the bounds by which an event is chosen."""
_HIGH, _LOW, _TURNS, _ZERO = "at one end", "at the other end", "at both ends in turn", "of zeros"
_FIRST, _ABOVE, _BELOW = "at one end except the first number", "far beyond one end", "far beyond the other end"
_BEFORE, _AFTER = "at one end in the first half and zero elsewhere", "at one end in the second half and zero elsewhere"
_FEW, _REST = "far beyond one end in a twentieth of the numbers", "far beyond one end except a twentieth of the numbers"
_PAIRS = (
    (_HIGH, _LOW),
    (_HIGH, _TURNS),
    (_HIGH, _FIRST),
    (_HIGH, _ZERO),
    (_HIGH, _BELOW),
    (_ABOVE, _BELOW),
    (_BEFORE, _AFTER),
    (_FEW, _REST),
)
"""Pairs of inputs that are compared under replace-one."""
Arm = tuple[list[Tensor], list[Tensor]]


def event_checks(setup: HookSetup, numbers: int) -> Iterator[CheckResult]:
    """Check the reports of one client by the rates of events; ``numbers``: the most numbers per round over all runs on
    one input.
    """
    if not _applies(setup):
        return
    if reason := setup.why_not():
        yield EVENTS.skipped(reason)
        return
    yield from _events_of(setup, _senders(setup), numbers)


def local_checks(setup: HookSetup, holders: Sequence[int], numbers: int) -> Iterator[CheckResult]:
    """Check each report, before the shuffler, against its published law: a shuffler hides less if reports reveal more
    than the law, or if they depend on reports of other clients.
    """
    if not _applies(setup):
        return
    if reason := setup.why_not():
        yield LOCAL.skipped(reason)
        return
    found = list[CheckResult]()
    for turn, holder in enumerate(holders):
        law = setup.protection.law(setup.claim.observer, setup.plan, holder)
        if not isinstance(law, ReportLaw):
            yield LOCAL.skipped("the defense publishes no distribution of one report")
            return
        each = largest_ratio(law, setup.plan.layout.dim)
        # The law states one report: the budget of as many rounds as events are counted in.
        local = replace(setup.claim, unit=Unit.REPORT, adjacency=Adjacency.REPLACE_ONE, observer=UPLOADS, delta=0.0)
        rounds, _ = _rounds(replace(setup, claim=local))
        local = replace(local, epsilon=each * max(rounds, min(_ROUNDS, local.rounds)))
        senders = (holder, (holder + 1) % setup.plan.clients)
        # A client whose reports are not random shows in few runs; a budget that is too large shows at every client.
        some = numbers if turn == 0 else min(numbers, _BRIEF * 2 * setup.plan.layout.dim)
        found += _events_of(replace(setup, claim=local), senders, some, name=LOCAL, shares=len(holders))
    yield max(found, key=lambda one: (one.passed is False, (one.measured or 0.0) / (one.allowed or 1.0)))


def _events_of(
    setup: HookSetup, senders: tuple[int, ...], numbers: int, *, name: Check = EVENTS, shares: int = 1
) -> Iterator[CheckResult]:
    """The check on runs of ``senders``, the first of which holds the inputs; ``shares``: of its false-alarm rate."""
    claim, plan = setup.claim, setup.plan
    rounds, why = _rounds(setup)
    # Without other rounds, an event must be rare enough by itself to break the claim.
    wanted = _MANY if rounds > 2 else max(_MANY, 45 * math.exp(min(claim.epsilon, 4.2)))
    runs = min(math.ceil(wanted), (2 if wanted > _MANY else 1) * numbers // (len(senders) * plan.layout.dim))
    if runs < _LEAST:
        yield name.skipped(f"the reports are too long to draw {_LEAST} of them")
        return
    rows = _rows(setup)
    inputs = {kind: (row, row) for kind, row in rows.items()}
    pairs = [(kind, _ZERO) for kind in inputs if kind != _ZERO] if claim.adjacency is Adjacency.ZERO_OUT else [*_PAIRS]
    if claim.unit is Unit.REPORT and claim.rounds > 1:
        # The second input differs from the first: a correct memory of the first report is independent of the second.
        inputs |= {f"{_HIGH}, then {kind}": (rows[_HIGH], rows[kind]) for kind in (_LOW, _TURNS)}
        inputs[f"{_LOW}, then {_HIGH}"] = (rows[_LOW], rows[_HIGH])
        # Where both inputs change, a draw that is used twice shows which way.
        pairs += [
            (f"{_HIGH}, then {_LOW}", f"{_HIGH}, then {_TURNS}"),
            (f"{_HIGH}, then {_LOW}", f"{_LOW}, then {_HIGH}"),
        ]
    most = max(runs, min(_GROUP_RUNS, 6 * numbers // (len(senders) * plan.layout.dim)))
    arms = {
        kind: _drawn(setup, senders, most if kind in (_FEW, _REST) else runs, given, number)
        for number, (kind, given) in enumerate(inputs.items())
    }
    if rounds > 1 and _remembered(arms[_HIGH]):
        rounds, why = 1, "counted in one or two rounds, because reports of different rounds depend on each other"
    found = [
        (
            counted.bound,
            f"{counted.name}, on inputs {one} and {other} at client {senders[0]}, {len(arms[one][0][0])} runs of each",
            counted.factor(claim),
            (one, other),
        )
        for one, other in pairs
        for counted in _bounds(
            arms[one], arms[other], claim.delta, shares * len(pairs), rounds=rounds, shuffled=_shuffled(setup)
        )
    ]
    if not found:
        yield name.skipped("the reports do not vary, or contain no numbers")
        return
    epsilon, words, _, pair = max(found, key=lambda one: one[:2])
    result = name.at_most(epsilon, claim.epsilon, unit="epsilon", witness=f"a lower bound from {words}; {why}")
    if result.passed is False and name == EVENTS:
        yield replace(result, proposal=_proposed(setup, senders[0], [inputs[kind] for kind in pair], words))
        return
    factor = min((one for _, _, one, _ in found if one is not None), default=None)
    yield replace(result, detects=claim.epsilon * factor) if result.passed and factor is not None else result


def _proposed(setup: HookSetup, holder: int, given: Sequence[tuple[Tensor, Tensor]], words: str) -> ProposedRows:
    """The two inputs of a client, among rows of zeros, for trials of all rounds."""
    rounds, dim = min(setup.claim.rounds, _ROUNDS), setup.plan.layout.dim
    present, other = (torch.stack([first, *[later] * (rounds - 1)]) for first, later in given)
    around = Surroundings(
        holders=torch.tensor([holder]),
        places=torch.zeros(1),
        kinds=torch.zeros(1, dtype=torch.long),
        units=present.unsqueeze(0),
        others=torch.zeros(1, setup.plan.clients, dim),
        parts=(slice(0, dim),) * rounds,
        long=torch.ones(1, dtype=torch.bool),
    )
    return ProposedRows(setup=setup, around=around, run=0, words=words, other=other)


def _shuffled(setup: HookSetup) -> bool:
    return setup.claim.observer.rank == SHUFFLED.rank


def _applies(setup: HookSetup) -> bool:
    """Whether the claim is about reports that the adversary receives, with other noise than Gaussian noise, which other
    checks compare with its law.
    """
    claim = setup.claim
    if claim.unit not in (Unit.REPORT, Unit.CLIENT) or claim.adjacency is Adjacency.ADD_REMOVE:
        return False
    law = setup.protection.law(claim.observer, setup.plan, 0)
    return claim.observer.rank >= SHUFFLED.rank and not isinstance(law, GaussianLaw)


def _senders(setup: HookSetup) -> tuple[int, ...]:
    if _shuffled(setup):
        return tuple(range(setup.plan.clients))
    client = setup.claim.parameters.get("client", 0) if setup.claim.subjects != "all" else 0
    client = client if isinstance(client, int) and 0 <= client < setup.plan.clients else 0
    return tuple(dict.fromkeys((client, (client + 1) % setup.plan.clients)))


def _rounds(setup: HookSetup) -> tuple[int, str]:
    """In how many rounds an event can be counted whose chance is known of one, with the reason."""
    claim, plan = setup.claim, setup.plan
    rounds = plan.cohort.participations(min(claim.rounds, plan.rounds))
    if why := law_of_all_rounds(setup.protection, plan):
        return 1, f"counted in one or two rounds, because {why}"
    if _shuffled(setup) and plan.cohort_rate < 1:
        return 1, "counted in one or two rounds, because clients are sampled"
    return rounds, f"composed over {rounds} equal rounds"


def _rows(setup: HookSetup) -> Mapping[str, Tensor]:
    """Inputs by name: the ends of the range, both in turn, zeros, and rows far outside of the range."""
    dim, law = setup.plan.layout.dim, setup.protection.law(setup.claim.observer, setup.plan, 0)
    low, high = range_ends(law, setup.claim, dim, setup.length / dim**0.5)
    middle, zero = (high + low) / 2, torch.zeros(dim)
    first = torch.where(torch.arange(dim) == 0, low, high)
    # A choice among many numbers shows a group of them with a chance that can be counted.
    few = torch.arange(dim) < max(1, dim // _GROUP)
    return {
        _FEW: middle + FAR * (torch.where(few, high, low) - middle),
        _REST: middle + FAR * (torch.where(few, low, high) - middle),
        _HIGH: high,
        _LOW: low,
        _TURNS: in_turn(low, high),
        _FIRST: first,
        _ZERO: zero,
        _ABOVE: middle + FAR * (high - middle),
        _BELOW: middle + FAR * (low - middle),
        _BEFORE: torch.where(torch.arange(dim) < dim // 2, high, zero),
        _AFTER: torch.where(torch.arange(dim) < dim // 2, zero, high),
    }


def _drawn(setup: HookSetup, senders: tuple[int, ...], runs: int, given: tuple[Tensor, Tensor], number: int) -> Arm:
    """What the observer receives in each round, ``(runs, rows, d)``, and the further arrays of the first round."""
    # Other noise for each input: their runs are independent.
    streams = ReplayedStreams(setup.seed, 1 + number)
    rows = _rows(setup)[_HIGH].expand(runs, len(senders), -1).clone()

    def updates(turn: Round) -> Tensor:
        rows[:, 0] = given[turn.number]
        return rows

    # The public state does not depend on the inputs.
    rounds = setup.rounds(streams, given_rows(updates, torch.ones(rows.shape[:2], dtype=torch.bool)), runs, senders)
    seen, side = list[Tensor](), list[Tensor]()
    for turn in rounds.each(min(_ROUNDS, setup.claim.rounds), model=setup.model(runs)):
        message = turn.received if _shuffled(setup) else turn.reports
        seen.append(clear_absent(message.values.to(torch.float64, copy=True), message.present))
        if turn.number == 0:
            arrays = (array for name, array in message.side.items() if name not in message.unsent)
            side = [array.double().reshape(*array.shape[:2], -1) for array in arrays]
    return seen, side


@dataclass(frozen=True, kw_only=True)
class _Table:
    """Log-ratios of the parts of the range of a number, between two inputs."""

    edges: FloatArray
    ratios: FloatArray

    @classmethod
    def of(cls, one: FloatArray, other: FloatArray) -> "_Table":
        both = np.concatenate([one.ravel(), other.ravel()])
        values = np.unique(both)
        # A few values are parts of their own; else equally many numbers lie in each part.
        edges = values[1:] if len(values) <= 2 * _BINS else np.unique(np.quantile(both, np.arange(1, _BINS) / _BINS))
        counts = [
            np.bincount(np.searchsorted(edges, side.ravel(), "right"), minlength=len(edges) + 1)
            for side in (one, other)
        ]
        first, second = ((count + 0.5) / (count.sum() + 0.5 * len(count)) for count in counts)
        return cls(edges=edges, ratios=np.log(first / second))

    def of_each(self, numbers: FloatArray) -> FloatArray:
        return np.asarray(self.ratios[np.searchsorted(self.edges, numbers, "right")])


def _remembered(arm: Arm) -> bool:
    """Whether numbers of two rounds are equal more often in one run than between runs, as if a report were kept."""
    seen, _ = arm
    if len(seen) < 2:
        return True
    own = (seen[0] == seen[1]).double().flatten(1).mean(1)
    other = (seen[0] == seen[1].roll(1, 0)).double().flatten(1).mean(1)
    error = float((own.var() + other.var()).sqrt()) / math.sqrt(len(own))
    return float(own.mean() - other.mean()) > 5 * error


@dataclass(frozen=True, kw_only=True)
class _Counted:
    """The bound from a statistic's event, and its counts in ``n`` runs of each input in the order of the better
    direction.

    Args:
        alpha: level of the bounds on its rates; ``times``: rounds in which it could happen.
    """

    name: str
    bound: float
    within: int
    out: int
    n: int
    alpha: float
    times: int

    def factor(self, claim: Claim) -> float | None:
        """The smallest factor of the privacy losses of the event at which its counts break the claim."""

        def breaks(p: float, q: float) -> bool:
            within, out = (np.array([count]) for count in likely_counts(p, q, self.n))
            low, high = _intervals(within, out, self.n, self.alpha)
            return _composed(float(low[0]), float(high[0]), self.times, claim.delta) > claim.epsilon

        return smallest_factor(*cautious_rates(self.within, self.out, self.n), breaks)


def _bounds(one: Arm, other: Arm, delta: float, pairs: int, *, rounds: int, shuffled: bool) -> Iterator[_Counted]:
    """A lower bound on epsilon for each statistic, by the better of two directions."""
    statistics = list(_statistics(one, other, shuffled=shuffled))
    for name, taken, (first, second) in statistics:
        part = len(first) // _LEARN
        # Four events: both sides of the threshold, in both directions.
        alpha = SUITE.level("hooks", 4 * pairs * len(statistics))
        threshold = _threshold(first[:part], second[:part])
        above, below = first[part:] > threshold, second[part:] > threshold
        counts = np.array([(int(a.sum()), int(b.sum())) for a, b in _events(above, below)])
        low, high = _intervals(counts[:, 0], counts[:, 1], len(above), alpha)
        times = max(1, rounds // taken)
        bounds = [_composed(float(p), float(q), times, delta) for p, q in zip(low, high, strict=True)]
        best = int(np.argmax(bounds))
        within, out = counts[best].tolist()
        yield _Counted(name=name, bound=bounds[best], within=within, out=out, n=len(above), alpha=alpha, times=times)


def _composed(low: float, high: float, times: int, delta: float) -> float:
    """The largest ln((p - delta) / q) of events that happen in so many of ``times`` rounds, given bounds for one."""
    number = np.arange(1, times + 1)
    p, q = bdtrc(number - 1, times, low) - delta, bdtrc(number - 1, times, high)
    return float(np.where(p > 0, np.log(np.maximum(p, 1e-300) / np.maximum(q, 1e-300)), -math.inf).max())


def _threshold(first: FloatArray, second: FloatArray) -> float:
    """The place with the largest lower bound, in either direction, on the runs that are used to learn."""
    places = np.unique(np.concatenate([first, second]))
    middles = (places[1:] + places[:-1]) / 2 if len(places) > 1 else places
    middles = middles[:: max(1, len(middles) // 48)]
    # Counts of all places at once: the numbers above each of them.
    above, below = (len(side) - np.searchsorted(np.sort(side), middles, "right") for side in (first, second))
    count = len(first)
    bounds = [
        _ratio(one, other, count)
        for one, other in (
            (above, below),
            (below, above),
            (count - above, count - below),
            (count - below, count - above),
        )
    ]
    return float(middles[int(np.max(bounds, axis=0).argmax())])


def _events(above: BoolArray, below: BoolArray) -> tuple[tuple[BoolArray, BoolArray], ...]:
    """Both sides of a threshold, in both directions."""
    return (above, below), (below, above), (~above, ~below), (~below, ~above)


def _ratio(hits: IntArray, others: IntArray, count: int) -> FloatArray:
    """Lower bounds on ln(p / q) of a pilot."""
    low, high = _intervals(hits, others, count, _PILOT)
    return np.asarray(np.log(np.maximum(low, 1e-300) / high))


def _intervals(hits: IntArray, others: IntArray, count: int, alpha: float) -> tuple[FloatArray, FloatArray]:
    """A lower bound on p and an upper one on q, by Clopper and Pearson at level ``alpha / 2`` each."""
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), count - hits + 1, alpha / 2), 0.0)
    high = np.where(others < count, betaincinv(others + 1, np.maximum(count - others, 1), 1 - alpha / 2), 1.0)
    return low, high


def _statistics(one: Arm, other: Arm, *, shuffled: bool) -> Iterator[tuple[str, int, tuple[FloatArray, FloatArray]]]:
    """Numbers ``(runs,)`` of both inputs, by name, and how many rounds they look at; the first runs teach."""
    (mine, own_side), (theirs, other_side) = one, other
    rows = slice(None) if shuffled else slice(0, 1)
    both = [[turn[:, rows].flatten(1).numpy() for turn in side] for side in (mine, theirs)]
    if not all(np.isfinite(turn).all() for side in both for turn in side):
        return
    first, second = both[0][0], both[1][0]
    part = len(first) // _LEARN
    table = _Table.of(first[:part], second[:part])
    scores = [table.of_each(side) for side in (first, second)]
    yield "all numbers of a report together", 1, (scores[0].sum(1), scores[1].sum(1))
    yield "largest number", 1, (first.max(1), second.max(1))
    yield "smallest number", 1, (first.min(1), second.min(1))
    yield "first number", 1, (first[:, 0], second[:, 0])
    yield "index of the largest number", 1, (np.abs(first).argmax(1), np.abs(second).argmax(1))
    yield "L2 norm", 1, (np.square(first).sum(1), np.square(second).sum(1))
    centre = float(np.median(np.concatenate([first[:part], second[:part]])))
    centre = 0.0 if (first == 0).mean() > 0.2 else centre
    signs = [[np.sign(turn - centre) for turn in side] for side in both]
    yield (
        "agreement of the signs of adjacent numbers",
        1,
        tuple((side[0][:, 1:] * side[0][:, :-1]).mean(1) for side in signs),
    )
    if len(mine) > 1:
        yield "agreement of the signs in two rounds", 2, tuple((side[0] * side[1]).mean(1) for side in signs)
        yield "difference between two rounds", 2, tuple((side[1] - side[0]).mean(1) for side in signs)
    if not shuffled and mine[0].shape[1] > 1:
        companions = [np.sign(side[0][:, 1].numpy() - centre) for side in (mine, theirs)]
        yield (
            "agreement of signs with another client",
            1,
            ((signs[0][0] * companions[0]).mean(1), (signs[1][0] * companions[1]).mean(1)),
        )
    for number, (left, right) in enumerate(zip(own_side, other_side, strict=True)):
        sums = [array[:, rows].flatten(1).numpy() for array in (left, right)]
        if sums[0].size and all(np.isfinite(array).all() for array in sums):
            learnt = _Table.of(sums[0][:part], sums[1][:part])
            yield f"further array {number}", 1, (learnt.of_each(sums[0]).sum(1), learnt.of_each(sums[1]).sum(1))
