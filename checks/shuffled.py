"""Check what a shuffler does: the order of reports, the law of one report before it, and the claim that follows.

Check that a shuffler hides who sent which report: the place of a report must not depend on its client.

Each report is found again behind the shuffler by its numbers. Over many runs, the places of one client, of two clients,
in two rounds and in two coordinates are compared with a uniform order, and so are the places of rows of which a number
could name the client. All tests are one-sided and exact, also where a shuffler adds dummy reports.

Hold the law of one report and the number of clients against a claim behind a shuffler.

All clients but one hold the same row of the law's worst pair. How many of the shuffled reports lie in an event is then
a number of coins, whose chances follow from the law up to sampling errors. The epsilon of this number, composed over
the rounds, is a lower bound on that of the reports: counting is post-processing, and so is the noise by which bounds on
the chances are reached. A correct defense fails once in 10^9 checks.

Check that client reports follow their published distribution, and that a shuffler hides who sent which report.

Every log-likelihood ratio s satisfies E1[g(s)] = E0[e^s g(s)] for any bounded g. Reports that the law describes wrongly
violate the identity; scores by that law may then show little of a mechanism that leaks much.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from scipy.stats import beta, binom, hypergeom
from torch import Tensor

from ..audit.arrays import BoolArray, FloatArray, IntArray
from ..audit.check import AMPLIFIED, FITS, ORDER, PLACE, POSSIBLE, CheckResult
from ..audit.claim import Adjacency, Claim, Unit
from ..audit.ledger import SUITE
from ..defenses.accounting.below import LEAST_DELTA, LossPair, composed
from ..fl.laws import Mixing, ReportLaw
from ..fl.message import Message
from ..fl.replay import ReplayedStreams
from ..fl.rounds import Round, given_rows
from ..fl.sampling import Full
from ..fl.streams import Streams, normal
from .given_rows import HookSetup
from .law import law_of_all_rounds

_CLIENTS = 24
"""Clients whose places are compared at most."""
_COORDINATES = 4
"""Coordinates of a report that are found again, where each coordinate is shuffled by itself."""
_FOUND = 0.5
"""Share of reports that must be found again."""
_LEAST = 24
"""Runs from which something is compared."""
_Test = tuple[float, int, int, float, str]
"""Chance, number seen, number counted, the probability under a uniform order, and words."""


def shuffle_checks(setup: HookSetup, runs: int) -> Iterator[CheckResult]:
    """Check that reports arrive in random order, in ``runs`` runs of two rounds."""
    clients = setup.plan.clients
    if clients < 2:
        yield ORDER.skipped("a single report cannot be shuffled")
        return
    everyone = torch.ones(runs, clients, dtype=torch.bool)
    sent = sent_and_received(setup, everyone, range(2), 0)
    split = _mixing(setup) is Mixing.COORDINATES
    places = np.stack([_places(reports, received, split=split) for reports, received in sent], axis=1)
    found = float((places >= 0).mean()) >= _FOUND
    tests = [*_copies(*sent[0]), *_absences(setup, runs)]
    if found:
        tests += [*_orders(places, clients), *_names(setup, sent, places, split=split)]
    elif not any(test[0] < SUITE.level("hooks", len(tests)) for test in tests):
        reason = "reports cannot be recognised after the channel, because it changes them or too many are equal"
        yield ORDER.skipped(reason)
        return
    worst = min(tests, key=lambda test: test[0])
    chance, hits, count, expected, words = worst
    failed = chance < SUITE.level("hooks", len(tests))
    share = hits / max(1, count)
    yield CheckResult(
        name=ORDER,
        passed=not failed,
        measured=share if failed else min(share, expected),
        allowed=expected,
        unit="share of runs",
        witness=f"{words}: {hits} of {count}, which has probability {chance:.2g} in a uniform order",
    )


def _mixing(setup: HookSetup) -> Mixing:
    law = setup.protection.law(setup.claim.observer, setup.plan, 0)
    return law.mixing if isinstance(law, ReportLaw) else Mixing.ROWS


def sent_and_received(setup: HookSetup, present: Tensor, turns: range, noise: int) -> list[tuple[Message, Message]]:
    """Return what clients with distinct rows send in each of some rounds, and what arrives."""
    clients, dim = setup.plan.clients, setup.plan.layout.dim

    def rows(turn: Round) -> Tensor:
        return setup.length * normal(turn.generator("rows"), (len(present), clients, dim))

    rounds = setup.rounds(ReplayedStreams(setup.seed, noise), given_rows(rows, present), len(present))
    each = rounds.each(turns.stop, first=turns.start, model=setup.model(len(present)))
    return [(one.reports, one.received) for one in each]


def _places(reports: Message, received: Message, *, split: bool) -> IntArray:
    """The place at which each client's report arrived, ``(R, groups, clients)``; -1 where it is not the only one."""
    one, other = reports.values.double(), received.values.double()
    if split:
        chosen = _chosen(one.shape[-1])
        keys, seen = one[..., chosen].transpose(1, 2), other[..., chosen].transpose(1, 2)
    else:
        weights = _weights(one.shape[-1])
        keys, seen = (one @ weights).unsqueeze(1), (other @ weights).unsqueeze(1)
    there = received.present.unsqueeze(1).unsqueeze(1)
    same = (keys.unsqueeze(-1) == seen.unsqueeze(-2)) & there & reports.present.unsqueeze(1).unsqueeze(-1)
    alone = (same.sum(-1) == 1) & (same.sum(-2).gather(-1, same.double().argmax(-1)) == 1)
    return torch.where(alone, same.double().argmax(-1), -1).numpy()


def _chosen(dim: int) -> Tensor:
    """The coordinates that are found again where each is shuffled by itself."""
    return torch.linspace(0, dim - 1, min(_COORDINATES, dim)).long()


def _weights(dim: int) -> Tensor:
    return torch.arange(1, dim + 1, dtype=torch.float64).cos()


def _orders(places: IntArray, clients: int) -> Iterator[_Test]:
    """Tests of ``places (R, rounds, groups, clients)``."""
    few = min(clients, _CLIENTS)
    for client in range(few):
        own = places[:, 0, 0, client]
        yield from _cells(own, 1 / clients, f"client {client} at position {{}}")
        known = (own >= 0) & (places[:, 1, 0, client] >= 0)
        yield _test(
            own[known] == places[known, 1, 0, client],
            1 / clients,
            f"client {client} at the same position in both rounds",
        )
        for group in range(1, places.shape[2]):
            known = (own >= 0) & (places[:, 0, group, client] >= 0)
            alike = own[known] == places[known, 0, group, client]
            yield _test(alike, 1 / clients, f"two coordinates of client {client} at the same position")
    total = int(places.max()) + 1
    for client in range(few if clients > 2 else 0):
        after = (client + 1) % clients
        own, other = places[:, 0, 0, client], places[:, 0, 0, after]
        known = (own >= 0) & (other >= 0)
        apart = (other[known] - own[known]) % max(total, clients)
        yield from _cells(apart, 1 / (clients - 1), f"client {after} {{}} positions after client {client}")


def _cells(places: IntArray, chance: float, words: str) -> Iterator[_Test]:
    known = places[places >= 0]
    if len(known) >= _LEAST:
        values, counts = np.unique(known, return_counts=True)
        most = int(counts.argmax())
        # The fullest of all places: as many tests as there are places.
        p = min(1.0, len(values) * float(binom.sf(counts[most] - 1, len(known), chance)))
        yield p, int(counts[most]), len(known), chance, words.format(int(values[most]))


def _test(hits: BoolArray, chance: float, words: str) -> _Test:
    count, number = int(hits.sum()), len(hits)
    return (float(binom.sf(count - 1, number, chance)) if count else 1.0), count, number, chance, words


def _names(
    setup: HookSetup, sent: Sequence[tuple[Message, Message]], places: IntArray, *, split: bool
) -> Iterator[_Test]:
    """Whether a number of a row that arrives, whatever noise it has, names its sender, or links its rows of two rounds:
    an array that travels with the row, or the size of its numbers.

    Rows of all clients have one distribution here, and so has the place of a client's row among those that arrive.
    """
    clients = setup.plan.clients
    laws = [setup.protection.law(setup.claim.observer, setup.plan, client) for client in range(clients)]
    # Clients of different laws send different reports, which the claim must account for.
    if any(law != laws[0] for law in laws):
        return
    learnt = len(places) // 2
    rounds = [_keys(received, split=split) for _, received in sent]
    for (name, keys, group), (_, later, _) in zip(*rounds, strict=True):
        for client in range(min(clients, _CLIENTS)):
            own = places[:, 0, group, client]
            known = np.flatnonzero(own[:learnt] >= 0)
            if not len(known):
                continue
            values, counts = np.unique(keys[known, own[known]], return_counts=True)
            same = keys[learnt:] == values[int(counts.argmax())]
            # Runs without the client's place count: a row with a number of its own is found more often than others.
            single = same.sum(1) == 1
            hits = same.argmax(1)[single] == own[learnt:][single]
            yield _test(hits, 1 / clients, f"the report whose {name} equals that of client {client} is its own")
            if setup.claim.rounds > 1:
                yield _linked(keys, later, places[:, :, group, client], clients, f"{name} of client {client}")


def _linked(keys: FloatArray, later: FloatArray, places: IntArray, clients: int, words: str) -> _Test:
    """Whether the one row of the second round that has the number of a client's row in the first is that client's."""
    known = (places >= 0).all(1)
    keys, later, places = keys[known], later[known], places[known]
    same = later == keys[np.arange(len(keys)), places[:, 0]][:, np.newaxis]
    single = same.sum(1) == 1
    return _test(same.argmax(1)[single] == places[single, 1], 1 / clients, f"the {words} reappears in its next report")


def _keys(received: Message, *, split: bool) -> Iterator[tuple[str, FloatArray, int]]:
    """Numbers by which rows can be told apart, ``(R, rows)`` with NaN for absent ones, and the coordinates' group."""
    absent = ~received.present.numpy()
    if split:
        chosen = _chosen(received.values.shape[-1])
        yield from (
            ("size", _masked(received.values[..., where].abs().double(), absent), group)
            for group, where in enumerate(chosen.tolist())
        )
        return
    for name, array in received.side.items():
        flat = array.double().reshape(*array.shape[:2], -1)
        if name not in received.unsent and flat.shape[-1]:
            yield f"array {name}", _masked(flat @ _weights(flat.shape[-1]), absent), 0
    values = received.values.double()
    if values.shape[-1]:
        yield "largest number", _masked(values.abs().amax(-1), absent), 0
        yield "L2 norm", _masked(torch.linalg.vector_norm(values, dim=-1), absent), 0


def _masked(keys: Tensor, absent: BoolArray) -> FloatArray:
    """Numbers of five digits, so that rounding does not tell equal ones apart."""
    found = keys.numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = 10.0 ** np.floor(np.log10(np.abs(found)) - 4)
        rounded = np.where(np.isfinite(found) & (found != 0), np.rint(found / unit) * unit, found)
    return np.where(absent, np.nan, rounded)


def _copies(reports: Message, received: Message) -> Iterator[_Test]:
    """Whether the reports of one client arrive more often, or less often, than those of another one."""
    one, other = reports.values.double(), received.values.double().masked_fill(~received.present.unsqueeze(-1), 0)
    weights = _weights(one.shape[-1])
    keys, seen = one @ weights, (other @ weights).masked_fill(~received.present, torch.nan)
    alone = ((keys.unsqueeze(-1) == keys.unsqueeze(-2)).sum(-1) == 1).numpy()
    times = (keys.unsqueeze(-1) == seen.unsqueeze(-2)).sum(-1).numpy()
    for client in range(min(keys.shape[1], _CLIENTS)):
        following = (client + 1) % keys.shape[1]
        known = alone[:, client] & alone[:, following]
        more = int((times[known, client] > times[known, following]).sum())
        less = int((times[known, client] < times[known, following]).sum())
        words = f"reports of client {client} arrive more often than those of client {following}"
        for hits in (more, less):
            yield (float(binom.sf(hits - 1, more + less, 0.5)) if hits else 1.0), hits, more + less, 0.5, words


def _absences(setup: HookSetup, runs: int) -> Iterator[_Test]:
    """Whether the empty places show which clients are absent, among runs of equally many."""
    (opened,) = setup.rounds(ReplayedStreams(setup.seed), None, runs).each(1, model=setup.model(runs))
    present = opened.cohort
    # Only absences that the plan allows: a shuffler may rest on all reports being there.
    if bool(present.all()):
        return
    ((_, received),) = sent_and_received(setup, present, range(1), 1)
    if received.present.shape[1] != setup.plan.clients:
        return
    gone, empty = (~present).numpy(), (~received.present).numpy()
    counts = gone.sum(1)
    for count in np.unique(counts):
        here = counts == count
        number = int(here.sum())
        if number < _LEAST:
            continue
        for client in range(min(setup.plan.clients, _CLIENTS)):
            a, b = gone[here, client], empty[here, client]
            both = int((a & b).sum())
            chance = float(hypergeom.sf(both - 1, number, int(a.sum()), int(b.sum())))
            words = (
                f"runs with client {client} absent and position {client} empty, among runs with {count} absent clients"
            )
            yield chance, both, number, float(a.mean() * b.mean()), words


_NUMBERS, _POOLED, _MOST = 2**22, 2**20, 2**17
"""Numbers of all drawn reports, the same where coordinates count one by one, and reports drawn of one row, at most."""
_ARRIVING_RUNS, _COUNTED_CLIENTS = 8, 4096
"""Runs in which arriving reports are counted; clients whose reports are counted, at most."""
_SLACK = 0.01
"""Share by which the bound may exceed the claim: claims are printed with two or three digits."""


def amplified_checks(setup: HookSetup) -> Iterator[CheckResult]:
    """Check that the published law of one report implies no more than the claim if this report is shuffled among the
    reports of all clients of the plan.
    """
    try:
        yield _amplified(setup)
    except _NotComparable as reason:
        yield AMPLIFIED.skipped(str(reason))


class _NotComparable(ValueError):
    """The law and the number of clients determine no epsilon to hold against the claim; the message is the reason."""


def _amplified(setup: HookSetup) -> CheckResult:
    claim, plan = setup.claim, setup.plan
    if claim.unit not in (Unit.CLIENT, Unit.REPORT) or claim.adjacency is not Adjacency.REPLACE_ONE:
        raise _NotComparable("the bound is computed only for replacing a client's whole report")
    if reason := setup.why_not():
        raise _NotComparable(reason)
    if not isinstance(plan.cohort, Full) or plan.clients > _COUNTED_CLIENTS:
        raise _NotComparable(f"the bound is computed only for at most {_COUNTED_CLIENTS} clients that all take part")
    law = _law(setup)
    _check_arrivals(setup, law.mixing)
    why = law_of_all_rounds(setup.protection, plan)
    rounds = 1 if why else min(claim.rounds, plan.rounds)
    pairs = [pair for chances in _chances(law, plan.layout.dim) for pair in _pairs(*chances, clients=plan.clients)]
    epsilon = max(_epsilon(one, rounds, claim.epsilon, claim.delta) for one in pairs)
    words = f"{rounds} round{'s' * (rounds != 1)}, {plan.clients} clients, all others with the same input"
    words += f"; computed for one round only, because {why}" if why else ""
    return AMPLIFIED.at_most(epsilon, claim.epsilon, unit="epsilon", witness=words, slack=_SLACK * claim.epsilon)


def _law(setup: HookSetup) -> ReportLaw:
    laws = [setup.protection.law(setup.claim.observer, setup.plan, client) for client in range(setup.plan.clients)]
    if not isinstance(laws[0], ReportLaw) or laws[0].mixing is Mixing.NONE:
        raise _NotComparable("the defense publishes no distribution of a shuffled report")
    if any(law != laws[0] for law in laws):
        raise _NotComparable(
            "the bound needs reports of all clients to have one distribution, and they have different ones"
        )
    return laws[0]


def _check_arrivals(setup: HookSetup, mixing: Mixing) -> None:
    """Raise where the shuffler adds or drops reports, so that the number of those in an event has another law."""
    clients = torch.ones(_ARRIVING_RUNS, setup.plan.clients, dtype=torch.bool)
    ((reports, received),) = sent_and_received(setup, clients, range(1), 0)
    same = received.values.shape[2:] == reports.values.shape[2:]
    same = same and bool((received.present.sum(1) == setup.plan.clients).all())
    if not same or (mixing is Mixing.COORDINATES and not _equal_columns(reports.values, received.values)):
        raise _NotComparable("the bound does not apply, because the shuffler adds, drops or changes reports")


def _equal_columns(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one.sort(dim=1).values == other.sort(dim=1).values).all())


def _chances(law: ReportLaw, dim: int) -> Iterator[tuple[float, float, int]]:
    """Bounds on an event's chances, from below on one row and from above on the other, and how often it is counted."""
    rows = [law.contribution(row).float() for row in law.worst_pair(dim)]
    single = law.mixing is Mixing.COORDINATES
    count = max(64, min(_MOST, (_POOLED if single else _NUMBERS) // dim))
    rng = Streams(0).generator("shuffled law")
    drawn = [law.sample(row.expand(count, -1), rng) for row in rows]
    numbers, places = [_scores(law, one, rows) for one in drawn], 1
    if single:
        kinds = torch.unique(torch.stack(rows, dim=1), dim=0)
        if len(kinds) > 1:
            raise _NotComparable(
                "the bound needs one range for all coordinates of a report, and they have different ones"
            )
        # Each coordinate is shuffled by itself, and counted by itself.
        numbers, places = [_columns(law, one, rows) for one in drawn], dim
    learnt = [one[: len(one) // 4] for one in numbers]
    for sign, (first, second) in ((1, (1, 0)), (-1, (0, 1))):
        top = sign * np.concatenate(learnt)
        for threshold in np.unique([0.0, float(np.quantile(top[top > 0], 0.5)) if (top > 0).any() else 0.0]):
            hits = [int((sign * one[len(one) // 4 :] >= max(threshold, 1e-9)).sum()) for one in numbers]
            total = len(numbers[0]) - len(numbers[0]) // 4
            level = SUITE.level("amplification")
            low = float(beta.ppf(level, hits[first], total - hits[first] + 1)) if hits[first] else 0.0
            high = float(beta.ppf(1 - level, hits[second] + 1, total - hits[second])) if hits[second] < total else 1.0
            if low > high:
                yield low, high, places


def _scores(law: ReportLaw, drawn: Tensor, rows: list[Tensor]) -> FloatArray:
    absent, present = (law.log_density(drawn, row).double() for row in rows)
    return (present - absent).nan_to_num().numpy()


def _columns(law: ReportLaw, drawn: Tensor, rows: list[Tensor]) -> FloatArray:
    absent, present = (law.log_densities(drawn, row).double() for row in rows)
    return (present - absent).nan_to_num().flatten().numpy()


def _pairs(low: float, high: float, places: int, *, clients: int) -> Iterator[LossPair]:
    """The number of reports in the event, if one client holds the other row and if none does; in both directions."""
    counts = np.arange(clients + 1)
    others = binom.pmf(counts, clients - 1, high)
    one = low * np.append(0.0, others[:-1]) + (1 - low) * others
    pair = LossPair(one, np.asarray(binom.pmf(counts, clients, high)), releases=places)
    yield pair
    yield pair.swapped()


def _epsilon(pair: LossPair, rounds: int, reach: float, delta: float) -> float:
    if delta < LEAST_DELTA:
        known = (pair.one > 0) & (pair.other > 0)
        return rounds * pair.releases * float(np.log(pair.one[known] / pair.other[known]).max(initial=0.0))
    many = LossPair(pair.one, pair.other, releases=pair.releases * rounds)
    found = composed([many], reach=reach).epsilon(delta)
    return found if math.isfinite(found) else reach * 1e3


_ERRORS = 7.0
"""Standard errors beyond which a check fails: once in 10^11 checks of a correct mechanism."""
_BELOW = 1.2816
"""Standard errors below its mean that a measured number exceeds with probability 0.9."""
_FACTORS = tuple(1.01**number for number in range(240))
"""Factors of the law's privacy losses that are tried, from the law itself to the largest violation."""
_EFFECTIVE = 20
"""Trials, as far as their weights are equal, from which means by weights are taken."""
_FEWEST = 30
"""Trials below which nothing is checked."""


def report_checks(
    arrays: Sequence[Mapping[str, Any]], claim: Claim, *, exact: bool, clients: int | None, changes: str = ""
) -> tuple[CheckResult, ...]:
    """Run both checks, of the client reports' distribution and of the shuffler, on the client reports of all seeds of
    the audit; return their results.

    Args:
        arrays: what each block kept.
        claim: what the reports must keep.
        exact: whether the score is the likelihood ratio itself.
        clients: number of clients behind the shuffler; None where reports are not shuffled.
        changes: why other rounds may not follow the law that is published; empty where all do.
    """
    kept = {name: np.concatenate([one[name] for one in arrays]) for name in arrays[0]}
    found = [_fits(kept["member"], kept["nonmember"], claim) if exact else _not_exact()]
    if clients is not None:
        found.append(_place(kept, clients))
    elif changes:
        found.append(POSSIBLE.skipped(f"the published distribution may hold for one round only, because {changes}"))
    else:
        found.append(_possible(kept))
    return tuple(found)


def _not_exact() -> CheckResult:
    reason = "the score is not the exact likelihood ratio, because clients are sampled or have different distributions"
    return FITS.skipped(reason)


def _fits(member: FloatArray, nonmember: FloatArray, claim: Claim) -> CheckResult:
    """Check the identity for g = 1 / (1 + e^s)^2 and its mirror image, averaged over the rounds of each trial."""
    # A law that gives every report one score satisfies the identity and can show nothing.
    if member.size and np.ptp(member) == np.ptp(nonmember) == member.flat[0] - nonmember.flat[0] == 0:
        return FITS.failed("the published distribution gives every report the same likelihood ratio")
    # The mirror image tests the absent row.
    worst: CheckResult | None = None
    for name, present, absent in (("present", member, nonmember), ("absent", -nonmember, -member)):
        one, other = (torch.from_numpy(side.astype(np.float64)) for side in (present, absent))
        left, right = (-one).sigmoid().square().mean(1).numpy(), (other.sigmoid() * (-other).sigmoid()).mean(1).numpy()
        error = math.sqrt(left.var() / len(left) + right.var() / len(right)) + 1e-9
        measured = abs(float(left.mean() - right.mean())) / error
        witness = f"{len(left)} runs per arm, identity of likelihood ratios for the {name} input"
        found = FITS.at_most(measured, _ERRORS, unit="standard errors", witness=witness)
        worst = found if worst is None or measured > (worst.measured or 0.0) else worst
    if worst is None or min(len(member), len(nonmember)) < _FEWEST:
        return FITS.skipped(f"fewer than {_FEWEST} runs")
    return replace(worst, detects=_detectable(member, nonmember, claim)) if worst.passed else worst


def _detectable(member: FloatArray, nonmember: FloatArray, claim: Claim) -> float | None:
    """The epsilon of reports whose privacy losses are larger than the law's by the smallest factor at which the check
    fails with probability 0.9; None where no factor that these trials resolve is large enough.

    A factor c means densities P1' ~ sqrt(P0 P1) e^(c s / 2) and P0' ~ sqrt(P0 P1) e^(-c s / 2): randomised response of
    epsilon c times as large, or Gaussian noise on rows that are c times as far apart. Their means follow from the
    trials by weights.
    """
    within, out = (side.astype(np.float64) for side in (member, nonmember))
    rounds, chance = within.shape[1], (0.0, 0.0)
    for factor in _FACTORS:
        weights = [np.exp((factor - 1) / 2 * sign * side) for sign, side in ((1, within), (-1, out))]
        if min(one.sum() ** 2 / np.square(one).sum() for one in weights) < _EFFECTIVE * rounds:
            return None
        # The same two identities as above: the mirror image exchanges the rows, and the sign of the score.
        pairs = (
            (_weighed(expit(-within) ** 2, weights[0]), _weighed(expit(out) * expit(-out), weights[1])),
            (_weighed(expit(out) ** 2, weights[1]), _weighed(expit(within) * expit(-within), weights[0])),
        )
        apart = [left - right for (left, _), (right, _) in pairs]
        if factor == 1:
            # What these trials show under the law itself is chance.
            chance = (apart[0], apart[1])
        for number, ((_, left_error), (_, right_error)) in enumerate(pairs):
            allowed = (_ERRORS + _BELOW) * (math.hypot(left_error, right_error) + 1e-9)
            if abs(apart[number] - chance[number]) > allowed:
                return _larger(claim, factor, within, weights, rounds)
    return None


def _weighed(values: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """The mean of ``values (trials, rounds)`` by weights, and the standard error of the mean of as many trials."""
    share = weights / weights.sum()
    mean = float((share * values).sum())
    return mean, math.sqrt(float((share * (values - mean) ** 2).sum()) / values.size)


def _larger(claim: Claim, factor: float, within: FloatArray, weights: Sequence[FloatArray], rounds: int) -> float:
    """The epsilon of privacy losses that are ``factor`` times as large: exact for a pure epsilon that is reached, and
    for Gaussian noise.
    """
    pure = factor * claim.epsilon
    if claim.delta == 0:
        return pure
    # The mean loss grows with the square of the factor.
    mean = factor * float((weights[0] * within).sum() / weights[0].sum())
    return pure + rounds * max(0.0, mean - factor * float(within.mean()))


def _possible(kept: Mapping[str, Any]) -> CheckResult:
    """Check that no trial has a report that its own row cannot produce."""
    odd = np.concatenate([kept["member_odd"], kept["nonmember_odd"]])
    witness = f"runs with a report of density zero, among {len(odd)} runs"
    return POSSIBLE.at_most(float(odd.mean()), 0.0, unit="share of trials", witness=witness)


def _place(kept: Mapping[str, Any], clients: int) -> CheckResult:
    """Check that the report in the sender's own place resembles the present row as little when the sender holds it."""
    within, out = kept["member_place"], kept["nonmember_place"]
    error = math.sqrt(within.var() / len(within) + out.var() / len(out))
    # A shuffler leaves the report in its own place with probability 1 / clients.
    allowed = 1 / clients + _ERRORS * error
    measured = abs(float(within.mean() - out.mean()))
    witness = f"{len(within)} runs per arm, report at the sender's own position"
    return PLACE.at_most(measured, allowed, unit="likeness", witness=witness)
