"""Hold the law of one report and the number of clients against a claim behind a shuffler.

All clients but one hold the same row of the law's worst pair. How many of the shuffled reports lie in an event is then
a number of coins, whose chances follow from the law up to sampling errors. The epsilon of this number, composed over
the rounds, is a lower bound on that of the reports: counting is post-processing, and so is the noise by which bounds on
the chances are reached. A correct defense fails once in 10^9 checks.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from scipy.stats import beta, binom
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.check_result import CheckResult
from ...audit.claim import Adjacency, Unit
from ...defenses.accounting.below import LEAST_DELTA, Pair, composed
from ...fl.laws.law import Mixing, ReportLaw
from ...fl.partitions.sampling import Full
from ...fl.streams import Streams
from ..law_check import law_of_all_rounds
from ..report_checks import AMPLIFIED
from .hook_run import HookSetup
from .shuffle_checks import sent_and_received

_NUMBERS, _POOLED, _MOST = 2**22, 2**20, 2**17
"""Numbers of all drawn reports, the same where coordinates count one by one, and reports drawn of one row, at most."""
_ALPHA = 1e-9
"""Probability that a bound on a chance is wrong, at most."""
_RUNS, _CLIENTS = 8, 4096
"""Runs in which arriving reports are counted; clients whose reports are counted, at most."""
_SLACK = 0.01
"""Share by which the bound may exceed the claim: claims are printed with two or three digits."""


def amplified_checks(setup: HookSetup) -> Iterator[CheckResult]:
    """Check that the published law of one report, shuffled among those of the plan's clients, implies no more than the
    claim.
    """
    try:
        yield _amplified(setup)
    except _NotComparable as reason:
        yield CheckResult(name=AMPLIFIED, passed=None, witness=str(reason))


class _NotComparable(ValueError):
    """The law and the number of clients determine no epsilon to hold against the claim; the message is the reason."""


def _amplified(setup: HookSetup) -> CheckResult:
    claim, plan = setup.claim, setup.plan
    if claim.unit not in (Unit.CLIENT, Unit.REPORT) or claim.adjacency is not Adjacency.REPLACE_ONE:
        raise _NotComparable("only a client's whole report, replaced by another one, is compared")
    if reason := setup.why_not():
        raise _NotComparable(reason)
    if not isinstance(plan.cohort, Full) or plan.clients > _CLIENTS:
        raise _NotComparable("clients are sampled, or too many")
    law = _law(setup)
    _check_arrivals(setup, law.mixing)
    why = law_of_all_rounds(setup.protection)
    rounds = 1 if why else min(claim.rounds, plan.rounds)
    pairs = [pair for chances in _chances(law, plan.layout.dim) for pair in _pairs(*chances, clients=plan.clients)]
    epsilon = max(_epsilon(one, rounds, claim.epsilon, claim.delta) for one in pairs)
    words = f"{rounds} round{'s' * (rounds != 1)}, {plan.clients} clients, of which all others hold one row"
    words += f"; of one round alone, because {why}" if why else ""
    return CheckResult.at_most(
        AMPLIFIED, epsilon, claim.epsilon, unit="epsilon", witness=words, slack=_SLACK * claim.epsilon
    )


def _law(setup: HookSetup) -> ReportLaw:
    laws = [setup.protection.law(setup.claim.observer, setup.plan, client) for client in range(setup.plan.clients)]
    if not isinstance(laws[0], ReportLaw) or laws[0].mixing is Mixing.NONE:
        raise _NotComparable("no law of a shuffled report is published")
    if any(law != laws[0] for law in laws):
        raise _NotComparable("clients have laws of their own")
    return laws[0]


def _check_arrivals(setup: HookSetup, mixing: Mixing) -> None:
    """Raise where the shuffler adds or drops reports, so that the number of those in an event has another law."""
    clients = torch.ones(_RUNS, setup.plan.clients, dtype=torch.bool)
    reports, received = sent_and_received(setup, clients, 0, 0)
    same = received.values.shape[2:] == reports.values.shape[2:]
    same = same and bool((received.present.sum(1) == setup.plan.clients).all())
    if not same or (mixing is Mixing.COORDINATES and not _equal_columns(reports.values, received.values)):
        raise _NotComparable("the shuffler adds, drops or changes reports")


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
            raise _NotComparable("the coordinates of a report have different ranges")
        # Each coordinate is shuffled by itself, and counted by itself.
        numbers, places = [_columns(law, one, rows) for one in drawn], dim
    learnt = [one[: len(one) // 4] for one in numbers]
    for sign, (first, second) in ((1, (1, 0)), (-1, (0, 1))):
        top = sign * np.concatenate(learnt)
        for threshold in np.unique([0.0, float(np.quantile(top[top > 0], 0.5)) if (top > 0).any() else 0.0]):
            hits = [int((sign * one[len(one) // 4 :] >= max(threshold, 1e-9)).sum()) for one in numbers]
            total = len(numbers[0]) - len(numbers[0]) // 4
            low = float(beta.ppf(_ALPHA, hits[first], total - hits[first] + 1)) if hits[first] else 0.0
            high = float(beta.ppf(1 - _ALPHA, hits[second] + 1, total - hits[second])) if hits[second] < total else 1.0
            if low > high:
                yield low, high, places


def _scores(law: ReportLaw, drawn: Tensor, rows: list[Tensor]) -> FloatArray:
    absent, present = (law.log_density(drawn, row).double() for row in rows)
    return (present - absent).nan_to_num().numpy()


def _columns(law: ReportLaw, drawn: Tensor, rows: list[Tensor]) -> FloatArray:
    absent, present = (law.log_densities(drawn, row).double() for row in rows)
    return (present - absent).nan_to_num().flatten().numpy()


def _pairs(low: float, high: float, places: int, *, clients: int) -> Iterator[Pair]:
    """The number of reports in the event, if one client holds the other row and if none does; in both directions."""
    counts = np.arange(clients + 1)
    others = binom.pmf(counts, clients - 1, high)
    one = low * np.append(0.0, others[:-1]) + (1 - low) * others
    pair = Pair(one, np.asarray(binom.pmf(counts, clients, high)), releases=places)
    yield pair
    yield pair.swapped()


def _epsilon(pair: Pair, rounds: int, reach: float, delta: float) -> float:
    if delta < LEAST_DELTA:
        known = (pair.one > 0) & (pair.other > 0)
        return rounds * pair.releases * float(np.log(pair.one[known] / pair.other[known]).max(initial=0.0))
    many = Pair(pair.one, pair.other, releases=pair.releases * rounds)
    found = composed([many], reach=reach).epsilon(delta)
    return found if math.isfinite(found) else reach * 1e3
