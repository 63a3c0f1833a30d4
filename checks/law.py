"""Compare a privacy claim with the epsilon that the defense's published noise distribution (its law) implies, without a
trial.

Rounds, steps, sampling rate, clip norm, noise and scale of the law give the privacy losses of two neighbouring inputs.
Their epsilon is bounded from below (``defenses.accounting.below``), so that a rounding, a looser accountant or a part
of the release that the law does not describe can never make a correct defense fail. Where the law of one round is not
the law of every round, fewer rounds are counted, which is valid too: a claim about all rounds covers each of them.
"""

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import FloatArray
from ..audit.check import AS_SAMPLED, EXTREME, LAW_CURVE, LAW_EPSILON, SCALE, SENSITIVITY, CheckResult
from ..audit.claim import Adjacency, Claim, Unit
from ..audit.curve import Curve, GaussianCurve, delta_from_mu, epsilon_from_mu
from ..audit.observer import FINAL_MODEL, SHUFFLED
from ..audit.wording import plain
from ..defenses.accounting.below import LEAST_DELTA, Losses, LossPair, composed, gaussian_pair
from ..defenses.local.defense import SampledLaw
from ..fl.hooks import overrides
from ..fl.laws import GaussianLaw, Law, LayeredGaussianLaw, ReportLaw
from ..fl.plan import Plan
from ..fl.protection import Context, Protection
from ..fl.rounds import Rounds, given_lots
from ..fl.sampling import Epoch, FixedSize
from ..fl.streams import Streams, normal
from .canaries import JOINT, rows_that_differ

_SLACK = 0.01
"""Share by which an implied number may exceed the stated one: claims are printed with two or three digits."""
_LEAST = 1e-9
"""Delta below which curves are not compared."""
_UNITS = (Unit.SAMPLE, Unit.USER, Unit.CLIENT, Unit.REPORT, Unit.COORDINATE)
_STATE_HOOKS = ("initial_state", "open_round", "query", "close_round", "participates")
_CLIENTS = 64
"""Clients for which the law is computed at most, in addition to those with the fewest and the most samples."""
_DRAWS, _DRAWN, _OUTPUTS, _GRID = 4096, 2**17, 4001, 2**25
"""Reports drawn from each row and numbers drawn at most; outputs of a grid and numbers on it at most."""
_MORE = 1.05
"""Noise over the law's from which the difference is no chance of a few draws."""
_DISTINCT, _TOTAL = 512, 0.01
"""Distinct values up to which a report counts as discrete; error of a density's integral."""
_STEP = 1.1
"""Factor by which a density may change within a cell without having jumped."""
_RUN_NUMBERS = 2**20
"""Numbers of rows in all rounds that are compared with each other, unless one round of three clients has more."""
_TAIL = 20
"""Of so many draws, one at least lies beyond the others' range almost surely if that much mass lies there."""


_T = TypeVar("_T")


class NotCheckable(ValueError):
    """An error that means that no epsilon to compare with the claim can be determined; the message is the reason."""


def law_checks(
    protection: Protection,
    claim: Claim,
    plan: Plan,
    replayed: Sequence[CheckResult] = (),
    *,
    noise: float = 1.0,
    every_round: bool = False,
) -> tuple[CheckResult, ...]:
    """Compare the claim with the laws that the protection publishes for the claim's observer; of several clients' laws
    the one with the largest epsilon counts.

    Args:
        plan: the plan for which the defense was prepared, and not a smaller one: numbers of the protection that were
            computed from the plan do not fit another one.
        replayed: results of the replay checks. Where a unit of the claim moved the release less far than the law's
            bound, or the noise was larger than the law's, what was seen counts: the law may be that of a larger unit,
            or loose.
        noise: share of a Gaussian law's noise that is assumed to be there.
        every_round: whether all rounds count, also where the law of one round may not be that of the others.
    """
    try:
        if claim.unit is Unit.SAMPLE and not protection.per_sample and not _moved(replayed):
            raise NotCheckable(
                "the published distribution is that of a client's report, and does not state how far "
                "one sample changes it"
            )
        laws = [_quieter(law, noise) for law in _laws(protection, claim, plan)]
        rounds, why = (None, "") if every_round else rounds_alike(protection, claim, plan)
        found = [
            law_check(law, claim, plan, rounds=rounds, reached=_reached(law, replayed), remark=why) for law in laws
        ]
    except NotCheckable as reason:
        return (_unchecked(str(reason)),)
    except Exception as error:  # A user's own law may raise anything, and other checks still apply.
        return (_unchecked(f"the published distribution could not be evaluated: {type(error).__name__}: {error}"),)
    return max(found, key=_severity)


def with_law_checks(
    protection: Protection, claim: Claim, plan: Plan, replayed: Sequence[CheckResult]
) -> tuple[tuple[CheckResult, ...], tuple[CheckResult, ...]]:
    """Return the results of checks in runs, judged together with the published law, and the checks of the law itself.

    A unit that moves a release further than the law's bound contradicts the law. It contradicts the claim only where
    this distance, at the law's noise in every round, implies more than the claim states: a law may be that of a smaller
    unit.
    """
    laws = law_checks(protection, claim, plan, replayed)
    failed = any(result in _moves(replayed) and result.passed is False for result in replayed)
    covering = law_checks(protection, claim, plan, replayed, every_round=True) if failed else laws
    if covering[0].passed is not True or any(result.passed is False for result in (*laws, *covering)):
        return tuple(replayed), laws
    words = (
        "the change exceeds the sensitivity that the law states, but with the stated noise the claim's epsilon "
        "still covers it: {0}"
    )
    kept = tuple(
        replace(result, passed=None, witness=words.format(result.witness))
        if result in _moves(replayed) and result.passed is False
        else result
        for result in replayed
    )
    return kept, laws


def law_check(
    law: Law, claim: Claim, plan: Plan, *, rounds: int | None = None, reached: float = 1.0, remark: str = ""
) -> tuple[CheckResult, ...]:
    """Compare a claim with the epsilon that a noise law implies over ``rounds`` rounds, by default the rounds of the
    claim. Also compare the claim's trade-off curve, if the claim states one, with the law's curve.

    The epsilon is a lower bound at the claim's delta, and the check passes where it is at most one per cent above the
    claim's.

    Args:
        reached: share of a Gaussian law's sensitivity over noise that one unit of the claim attains.
        remark: appended to the words of the result.
    """
    try:
        implied = _implied(law, claim, plan, min(rounds or claim.rounds, plan.rounds), reached)
    except NotCheckable as reason:
        return (_unchecked(str(reason)),)
    words = implied.words + remark
    epsilon = implied.epsilon(claim.delta)
    if math.isfinite(epsilon):
        slack = _SLACK * claim.epsilon
        first = LAW_EPSILON.at_most(epsilon, claim.epsilon, unit="epsilon", witness=words, slack=slack)
    else:
        # An infinite epsilon is no number to print; the delta at the claim's epsilon is one.
        words = f"delta at epsilon {plain(claim.epsilon)}, because no finite epsilon holds at the stated delta; {words}"
        delta = implied.delta(claim.epsilon)
        first = LAW_EPSILON.failed(words, delta, claim.delta, unit="delta")
    return (first,) if claim.curve is None else (first, _curve_check(claim.curve, implied, words))


@dataclass(frozen=True, kw_only=True)
class _Implied:
    """What a law implies: mu of a Gaussian release, or the privacy losses in both directions, or a pure epsilon."""

    words: str
    mu: float | None = None
    losses: tuple[Losses, ...] = ()
    pure: float | None = None

    def epsilon(self, delta: float) -> float:
        if self.mu is not None:
            return epsilon_from_mu(self.mu, delta)
        if self.pure is not None:
            return self.pure
        # Tails beyond the window of a composition were left out, so that it has an end; the law's noise has none.
        return max(one.epsilon(delta) for one in self.losses) if delta > 0 else math.inf

    def delta(self, epsilon: float) -> float:
        if self.mu is not None:
            return 1.0 if math.isinf(self.mu) else delta_from_mu(self.mu, epsilon)
        return max((one.delta(epsilon) for one in self.losses), default=0.0)


def _implied(law: Law, claim: Claim, plan: Plan, rounds: int, reached: float) -> _Implied:
    if claim.unit not in _UNITS:
        raise NotCheckable(f"it is not known whether the published distribution describes one {claim.unit}")
    if claim.observer.rank == SHUFFLED.rank:
        raise NotCheckable(
            "the published distribution is that of one report before the shuffler, and shuffling hides more"
        )
    if claim.part != JOINT and isinstance(law, GaussianLaw):
        raise NotCheckable(
            f"the published distribution is that of the whole release, and the claim covers {claim.part}"
        )
    if claim.observer.rank == FINAL_MODEL.rank:
        raise NotCheckable(
            "the published distribution is that of one round, and the final model reveals no single round"
        )
    if isinstance(law, GaussianLaw):
        return _of_gaussian(law, claim, plan, rounds, reached)
    if claim.unit is Unit.SAMPLE:
        raise NotCheckable(
            "the published distribution is that of a report, and does not state how far one sample changes it"
        )
    if isinstance(law, LayeredGaussianLaw):
        return _of_layers(law, claim, plan, rounds)
    if isinstance(law, ReportLaw):
        return _of_reports(law, claim, plan, rounds)
    raise NotCheckable("the published distribution is neither Gaussian nor that of one report")


def _of_gaussian(law: GaussianLaw, claim: Claim, plan: Plan, rounds: int, reached: float) -> _Implied:
    if not law.additive and claim.delta < LEAST_DELTA:
        raise NotCheckable(
            "the published Gaussian distribution approximates discrete noise, and its error may exceed the stated delta"
        )
    shift = abs(law.scale) * law.clip_norm * reached / law.noise_std if law.noise_std else math.inf
    taken = _Taken.of(claim, plan, rounds, law)
    displaces = _displaces(claim, plan)
    shift *= 2 if displaces else 1
    words = (
        f"{taken.words}, contributions clipped to norm {plain(law.clip_norm)} and multiplied by {plain(law.scale)}, "
        f"noise of standard deviation {plain(law.noise_std)}, sampling rate {plain(law.rate)}, noised steps per "
        f"round {law.steps}, {claim.adjacency.phrase}"
    )
    if displaces:
        words += ", where a sampled unit replaces another, whose contribution may be the opposite"
    if reached != 1:
        words += f", of which one {claim.unit} reached the share {plain(round(reached, 3))} in runs"
    return _composed_gaussian(shift, claim, taken, words, rate=law.rate, steps=law.steps)


def _displaces(claim: Claim, plan: Plan) -> bool:
    """Whether a unit that is added takes the place of another one in a sum of a fixed number of units."""
    if claim.adjacency is not Adjacency.ADD_REMOVE or claim.observer.rank >= SHUFFLED.rank:
        return False
    if claim.unit is Unit.SAMPLE:
        return isinstance(plan.lot, FixedSize) and max(map(plan.lot.rate, plan.sizes)) < 1
    return isinstance(plan.cohort, FixedSize) and plan.cohort_rate < 1


def _of_layers(law: LayeredGaussianLaw, claim: Claim, plan: Plan, rounds: int) -> _Implied:
    # A report that is not sent is compared with one of zeros.
    removed = claim.adjacency is Adjacency.ADD_REMOVE
    absent, present = _rows(law, replace(claim, adjacency=Adjacency.ZERO_OUT) if removed else claim, plan)
    shift = float(torch.linalg.vector_norm((present - absent) / law.stds(present)))
    taken = _Taken.of(claim, plan, rounds, law)
    # The two rows are already apart as the adjacency has it.
    words = f"{taken.words}, {len(law.starts)} layers, {_part(claim)}, {claim.adjacency.phrase}"
    return _composed_gaussian(shift, replace(claim, adjacency=Adjacency.ZERO_OUT), taken, words)


def _composed_gaussian(
    shift: float, claim: Claim, taken: "_Taken", words: str, *, rate: float = 1.0, steps: int = 1
) -> _Implied:
    replaced = claim.adjacency is Adjacency.REPLACE_ONE
    if taken.surely and rate == 1:
        mu = math.sqrt(taken.rounds) * steps * shift * (2 if replaced else 1)
        return _Implied(words=words, mu=mu)
    if claim.delta < 10 * LEAST_DELTA and claim.delta > 0:
        raise NotCheckable(f"the composition is not exact enough at delta {plain(claim.delta)}")
    losses = _composed_losses(min(shift, 1e6), taken, claim.epsilon, rate=rate, steps=steps, replaced=replaced)
    return _Implied(words=words, losses=losses)


# Several checks hold the same law against the same claim.
@lru_cache(maxsize=8)
def _composed_losses(
    shift: float, taken: "_Taken", reach: float, *, rate: float, steps: int, replaced: bool
) -> tuple[Losses, ...]:
    pair = gaussian_pair(shift, rate=rate, steps=steps, hidden=taken.hidden, replaced=replaced)
    return tuple(composed(taken.pairs(one), reach=reach) for one in (pair, pair.swapped()))


@dataclass(frozen=True, kw_only=True)
class _Taken:
    """In how many rounds the protected unit takes part.

    Args:
        exposures: numbers of rounds, each with the probability that the unit takes part in one of them, where the
            observer sees whether it does.
        hidden: the same probability where the observer does not see it, and the law's rate does not contain it.
    """

    exposures: tuple[tuple[int, float], ...]
    hidden: float = 1.0

    @classmethod
    def of(cls, claim: Claim, plan: Plan, rounds: int, law: Law) -> "_Taken":
        """Return the rounds that certainly count, from the plan's cohorts.

        A claim may rest on the chance that its client is drawn, even where the observer sees who takes part: what
        shows nothing costs nothing.
        """
        chance = plan.cohort_rate
        seen = claim.observer.rank >= SHUFFLED.rank or claim.observer.sees_participation
        # A law of an aggregate whose rate is below 1 contains the cohort's rate already.
        counted = isinstance(law, GaussianLaw) and law.rate < 1 and claim.observer.rank < SHUFFLED.rank
        left = 1.0 if counted and claim.unit is not Unit.SAMPLE else chance
        if isinstance(plan.cohort, Epoch):
            passes, rest = divmod(rounds, plan.cohort.rounds)
            if plan.cohort.same:
                # Its rounds are public, and only a coin is not.
                left, most = (1.0 if left == 1 else plan.cohort.probability), passes + (rest > 0)
                return cls(exposures=((most, left),)) if seen else cls(exposures=((most, 1.0),), hidden=left)
            if seen and not counted:
                return cls(exposures=((passes, 1.0), (1, rest / plan.cohort.rounds)))
            # Rounds of one pass are not independent; the first ones of different passes are.
            return cls(exposures=((passes + (rest > 0), 1.0),), hidden=left)
        return cls(exposures=((rounds, left),)) if seen else cls(exposures=((rounds, 1.0),), hidden=left)

    @property
    def rounds(self) -> int:
        return sum(number for number, chance in self.exposures if chance == 1)

    @property
    def surely(self) -> bool:
        return self.hidden == 1 and all(chance in (0, 1) for number, chance in self.exposures if number)

    @property
    def words(self) -> str:
        counted = [
            f"{number} round{'s' * (number != 1)}" + (f" with probability {plain(chance)}" if chance < 1 else "")
            for number, chance in self.exposures
            if number and chance
        ]
        return " and ".join(counted) + (f" with probability {plain(self.hidden)}" if self.hidden < 1 else "")

    def pairs(self, one: LossPair) -> list[LossPair]:
        return [replace(one, releases=number, share=chance) for number, chance in self.exposures if number and chance]


def _of_reports(law: ReportLaw, claim: Claim, plan: Plan, rounds: int) -> _Implied:
    if claim.adjacency is Adjacency.ADD_REMOVE:
        raise NotCheckable("the published distribution of reports does not cover a report that is not sent")
    absent, present = _rows(law, claim, plan)
    taken = _Taken.of(claim, plan, rounds, law)
    words = f"{taken.words}, the two most different inputs, {_part(claim)}"
    if claim.delta == 0:
        each = _largest_ratio(law, absent, present)
        # Where taking part is a matter of chance, it may happen in every round.
        most = sum(number for number, chance in taken.exposures if chance)
        return _Implied(words=words, pure=most * each)
    columns = list(_columns(law, absent, present))
    # All coordinates of a round are sent together or not at all, so a round is composed before its chance counts.
    losses = tuple(
        composed(taken.pairs(composed(pairs, reach=claim.epsilon).pair), reach=claim.epsilon)
        for pairs in zip(*columns, strict=True)
    )
    return _Implied(words=words, losses=losses)


def _rows(law: ReportLaw, claim: Claim, plan: Plan) -> tuple[Tensor, Tensor]:
    absent, present = (law.contribution(row) for row in rows_that_differ(claim, law, plan))
    return absent.double(), present.double()


def largest_ratio(law: ReportLaw, dim: int) -> float:
    """Return the largest log-ratio of the probabilities of one report ``(dim,)`` on the law's worst pair of rows."""
    absent, present = (law.contribution(row).double() for row in law.worst_pair(dim))
    return _largest_ratio(law, absent, present)


def _largest_ratio(law: ReportLaw, absent: Tensor, present: Tensor) -> float:
    """The largest log-ratio of the probabilities of one report, over reports that were drawn.

    Where coordinates are independent, the reports of largest ratio are put together from the drawn ones.
    """
    count = max(16, min(_DRAWS, _DRAWN // len(absent)))
    drawn = torch.cat([law.sample(row.float().expand(count, -1), _rng()) for row in (absent, present)])
    ratio = _ratio(law.log_density(drawn, absent), law.log_density(drawn, present))
    best = float(ratio.abs().max())
    try:
        split = _ratio(law.log_densities(drawn, absent), law.log_densities(drawn, present))
    except ValueError:
        return best
    return max(best, float(split.amax(0).sum()), float((-split).amax(0).sum()))


def _ratio(absent: Tensor, present: Tensor) -> Tensor:
    """Log-ratio of each report; 0 where a row cannot produce it, which other checks report."""
    if bool((absent.isnan() | present.isnan()).any()):
        raise NotCheckable("the published log density is not a number")
    return torch.where(absent.isfinite() & present.isfinite(), present - absent, 0.0)


def _columns(law: ReportLaw, absent: Tensor, present: Tensor) -> Iterator[tuple[LossPair, LossPair]]:
    """The probabilities of one coordinate's reports, of the present row before the absent one and the other way round,
    released as often as there are such coordinates.
    """
    dim = len(absent)
    # Coordinates with equal rows show nothing; equal ends of the range make equal laws.
    kinds = torch.stack([absent, present], dim=1)
    moved = (absent != present).nonzero().flatten()
    groups, which = torch.unique(kinds[moved], dim=0, return_inverse=True)
    if type(law) is SampledLaw and len(groups) == 1 and len(moved) == dim:
        # Which coordinates are sent does not depend on the data: each of those sent is like a report of one coordinate.
        sent = min(law.coordinates, dim)
        yield _masses(replace(law, coordinates=1), absent[:1], present[:1], 0, sent)
        return
    try:
        law.log_densities(law.sample(present.float(), _rng()), present)
    except ValueError:
        raise NotCheckable("this check needs independent coordinates of a report, because delta is above 0") from None
    if dim * _OUTPUTS > _GRID:
        raise NotCheckable(f"a report has {dim} coordinates, which are too many for the integration")
    if len(groups) > 16:
        raise NotCheckable("the coordinates of a report have too many different ranges")
    for number in range(len(groups)):
        places = moved[which == number]
        yield _masses(law, absent, present, int(places[0]), len(places))


def _masses(law: ReportLaw, absent: Tensor, present: Tensor, place: int, alike: int) -> tuple[LossPair, LossPair]:
    """The probabilities of cells of one coordinate's outputs, in both directions.

    Where a density jumps, those of the first row are rounded down and those of the other one up, which lowers the
    losses; outcomes beyond the drawn ones are left out.
    """
    count = max(64, min(_DRAWS, 4 * _DRAWN // len(absent)))
    rows = (present, absent)
    drawn = [law.sample(row.float().expand(count, -1), _rng())[:, place].double().numpy() for row in rows]
    values = np.unique(np.concatenate(drawn))
    if len(values) <= _DISTINCT:
        low = high = _densities(law, rows, values, place)
        total = _measure([float(masses.sum()) for masses in low])
    else:
        # Every value that an input may take is a possible kink, so it is an edge and not within a cell.
        kinks = np.array([0.0, float(absent[place]), float(present[place])])
        kinks = kinks[(kinks > values[0]) & (kinks < values[-1])]
        edges = np.unique(np.concatenate([np.linspace(values[0], values[-1], _OUTPUTS), kinks]))
        middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
        ends, inner = (_densities(law, rows, places, place) for places in (edges, middles))
        cells = [np.stack([end[:-1], mid, end[1:]]) for end, mid in zip(ends, inner, strict=True)]
        smooth = np.logical_and(*(cell.max(0) <= _STEP * cell.min(0) for cell in cells))
        # Simpson's rule, but where a density jumps its least and its largest number.
        simpson = [np.array([1, 4, 1]) @ cell / 6 for cell in cells]
        low, high = (
            [np.where(smooth, mean, bound(cell, axis=0)) * widths for mean, cell in zip(simpson, cells, strict=True)]
            for bound in (np.min, np.max)
        )
        total = _measure([float(mid @ widths) for mid in inner])
        if total != 1:
            # A density may be relative to any measure, but only that of lengths can be integrated.
            for mid, sample in zip(inner, drawn, strict=True):
                _check_lengths(np.cumsum(mid * widths) / total, edges[1:], sample)
            # The total leaves out what lies beyond the drawn ones.
            low = [masses * (1 - _TAIL / count) for masses in low]
    ahead, behind = (
        LossPair(one / max(total, float(one.sum())), other / total, alike)
        for one, other in ((low[0], high[1]), (low[1], high[0]))
    )
    return ahead, behind


def _densities(law: ReportLaw, rows: tuple[Tensor, Tensor], outputs: FloatArray, place: int) -> list[FloatArray]:
    held = torch.from_numpy(outputs).unsqueeze(1).expand(-1, len(rows[0]))
    return [law.log_densities(held, row)[:, place].double().exp().numpy() for row in rows]


def _measure(sums: Sequence[float]) -> float:
    """The total of the densities relative to their measure: 1, or the same number for both rows."""
    if max(sums) - min(sums) > _TOTAL * max(sums):
        raise NotCheckable("the published densities of one coordinate differ in their total between two inputs")
    return 1.0 if abs(max(sums) - 1) <= _TOTAL else max(sums)


def _check_lengths(below: FloatArray, places: FloatArray, sample: FloatArray) -> None:
    """Raise NotCheckable where reports are not spread as the integrated densities are."""
    shares = np.searchsorted(np.sort(sample), places, side="right") / len(sample)
    if float(np.abs(shares - below).max()) > 3 / math.sqrt(len(sample)):
        raise NotCheckable("the published densities of single coordinates cannot be integrated")


def _curve_check(curve: Curve, implied: _Implied, words: str) -> CheckResult:
    """Compare the delta of the law with that of the stated curve at the same epsilon; the worst ratio is reported."""
    worst: tuple[float, float, float, float] | None = None
    for epsilon, stated in _profile(curve):
        # Both the epsilon and the delta of a stated curve may be rounded.
        allowed, measured = stated * (1 + _SLACK) + _LEAST, implied.delta(epsilon * (1 + _SLACK) + 1e-3)
        if worst is None or measured / allowed > worst[0]:
            worst = (measured / allowed, epsilon, measured, allowed)
    if worst is None:
        return LAW_CURVE.skipped("the stated trade-off curve has no point that can be compared")
    ratio, epsilon, measured, allowed = worst
    witness = f"delta at epsilon {plain(round(epsilon, 3))}; {words}"
    return CheckResult(
        name=LAW_CURVE, passed=ratio <= 1, measured=measured, allowed=allowed, unit="delta", witness=witness
    )


def _profile(curve: Curve) -> list[tuple[float, float]]:
    """Points (epsilon, delta) of a curve; where adding and removing differ, the larger delta."""
    if isinstance(curve, GaussianCurve):
        reach = epsilon_from_mu(curve.mu, _LEAST)
        return [(float(e), delta_from_mu(curve.mu, float(e))) for e in np.linspace(0, reach, 25)]
    points = list(zip(curve.epsilons, np.maximum(curve.delta_remove, curve.delta_add).tolist(), strict=True))
    return points[:: max(1, len(points) // 40)]


def subject_of(claim: Claim, plan: Plan) -> int | None:
    """Return the one client that a claim protects; None for a claim about all clients.

    Raises:
        NotCheckable: for a claim for some clients that names none.
    """
    if claim.subjects == "all":
        return None
    client = claim.parameters.get("client")
    if isinstance(client, bool) or not isinstance(client, int) or not 0 <= client < plan.clients:
        raise NotCheckable(f"the claim covers {claim.subjects}, and does not name a client")
    return client


def _laws(protection: Protection, claim: Claim, plan: Plan) -> list[Law]:
    """The different laws of the clients that the claim is about, and of a client that joins them."""
    if (client := subject_of(claim, plan)) is not None:
        clients = [client]
    else:
        sizes = np.asarray(plan.sizes)
        clients = [*range(min(plan.clients, _CLIENTS)), int(sizes.argmin()), int(sizes.argmax())]
        clients += [] if claim.unit is Unit.SAMPLE else [plan.clients]
    found: list[Law] = []
    for client in clients:
        law = protection.law(claim.observer, plan, client)
        if law is not None and law not in found:
            found.append(law)
    if not found:
        raise NotCheckable("the defense publishes no noise distribution for this adversary")
    gaussian = [law for law in found if isinstance(law, GaussianLaw)]
    # One composition costs up to seconds: of many clients' Gaussian laws, the one that shows a row best is computed.
    return [*([max(gaussian, key=_loudness)] if gaussian else []), *(law for law in found if law not in gaussian)]


def _loudness(law: GaussianLaw) -> float:
    """The mean distance by which a row moves the release, over its noise."""
    return law.rate * law.steps * abs(law.scale) * law.clip_norm / max(law.noise_std, 1e-300)


def _quieter(law: Law, noise: float) -> Law:
    return replace(law, noise_std=noise * law.noise_std) if isinstance(law, GaussianLaw) and noise != 1 else law


def rounds_alike(protection: Protection, claim: Claim, plan: Plan) -> tuple[int, str]:
    """Return how many rounds certainly follow the law, and why the others may not (empty text if all do)."""
    rounds = min(claim.rounds, plan.rounds)
    why = law_of_all_rounds(protection, plan)
    return (rounds, "") if rounds == 1 or not why else (1, f"; computed for one round only, because {why}")


def law_of_all_rounds(protection: Protection, plan: Plan) -> str:
    """Return why the release of one round may be distributed differently from that of other rounds; empty if all have
    one distribution.

    A state, and who takes part, may change it. All other hooks are run on the same rows with the same draws in rounds
    of different numbers: what they return then differs only if they use the number.
    """
    return _changes(_Same(protection), _Same(plan))


class _Same(Generic[_T]):
    """An object as the key of a cache: equal to itself alone."""

    def __init__(self, held: _T) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.held is other.held

    def __hash__(self) -> int:
        return id(self.held)


@lru_cache(maxsize=8)
def _changes(of: _Same[Protection], during: _Same[Plan]) -> str:
    if hook := _changing_hook(of.held):
        return f"the hook {hook} may change the distribution of the noise from round to round"
    try:
        # What a defense keeps on itself must not be changed by these runs.
        protection = deepcopy(of.held)
    except Exception:  # Such as a lock of a foreign defense.
        protection = of.held
    try:
        first, again, *others = _rounds_with_equal_draws(protection, during.held)
    except (
        Exception
    ) as error:  # Hooks may need data, which these rounds have none of, and a foreign one may raise anything.
        return f"its hooks could not be run with other round numbers ({type(error).__name__})"
    if _differ(first, again):
        return "its hooks draw further random numbers when they are called again"
    return "its hooks depend on the number of the round" if any(_differ(first, other) for other in others) else ""


def _changing_hook(protection: Protection) -> str:
    """The first hook of a protection, or of one that it holds, that may keep a state or choose who takes part."""
    own = next((hook for hook in _STATE_HOOKS if overrides(protection, hook)), "")
    inner = (part for part in vars(protection).values() if isinstance(part, Protection))
    return own or next((hook for part in inner if (hook := _changing_hook(part))), "")


def _differ(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return any(not torch.equal(a, b) for a, b in zip(one, other, strict=True))


class _AnyRound(Streams):
    """Streams that are the same in all rounds."""

    def generator(
        self, purpose: str, *, replicate: int = 0, arm: int = 0, round: int = 0, client: int = 0, step: int = 0
    ) -> np.random.Generator:
        return super().generator(purpose, replicate=replicate, arm=arm, client=client, step=step)


class _OwnedRounds(Rounds):
    """Rounds in which all samples have one owner."""

    def facts(self, number: int, model: Tensor) -> Context:
        return replace(super().facts(number, model), owners=torch.zeros(1, 1, dtype=torch.long))


def _rounds_with_equal_draws(protection: Protection, plan: Plan) -> Iterator[list[Tensor]]:
    """Yield what clients and server send in single rounds on the same gradients: twice in the first one, and in others.

    Large models are run with few clients, in the first four rounds, the last one and some between.
    """
    streams, dim = _AnyRound(0), plan.layout.dim
    clients = min(plan.clients, max(3, _RUN_NUMBERS // (8 * dim)))
    rows = normal(streams.generator("rows"), (clients, 1, 1, dim))
    real, invited = torch.ones(1, 1, dtype=torch.bool), torch.ones(1, clients, dtype=torch.bool)
    run = _OwnedRounds(
        plan=plan,
        protection=protection,
        streams=streams,
        rows=given_lots(lambda turn, client, step: (rows[client], real)),
        candidates=tuple(range(clients)),
        invited=lambda turn: invited,
        closes=False,
    )
    order = streams.generator("order").permutation(plan.rounds).tolist()
    numbers = [0, *dict.fromkeys([0, 1, 2, 3, plan.rounds - 1, *order[: _RUN_NUMBERS // (clients * dim)]])]
    for number in (number for number in numbers if number < plan.rounds):
        (turn,) = run.each(number + 1, first=number)
        arrays = [
            array for message in (turn.reports, turn.received) for array in (message.values, *message.side.values())
        ]
        yield [torch.nan_to_num(array.double()) for array in (turn.sent, *arrays, turn.aggregate)]


def _reached(law: Law, replayed: Sequence[CheckResult]) -> float:
    """Share of a Gaussian law's sensitivity over noise that the replays confirm; 1 where they show nothing about it.

    A unit counts as far as it moved the release, less far than the law's bound or further, and noise that was larger
    than the law's counts as it was seen: neither is a fault in itself.
    """
    if not isinstance(law, GaussianLaw):
        return 1.0
    share = 1.0
    for found in replayed:
        if found.name == SENSITIVITY and found.measured and found.allowed:
            # A longer move that passed is one that rounding after the noise explains.
            ratios = [(one, one.measured / one.allowed) for one in _moves(replayed) if one.measured and one.allowed]
            moved = max(min(1.0, ratio) if one.passed else ratio for one, ratio in ratios)
            # A unit may have moved the release in one of the steps only.
            share *= min(1.0, law.steps * moved) if moved <= 1 + _SLACK else moved
        if found.name == SCALE and found.measured and found.measured > _MORE:
            share /= found.measured
    return share


def _moves(replayed: Sequence[CheckResult]) -> list[CheckResult]:
    """The results that compare how far a unit moved the release with the law's bound."""
    named = (EXTREME, AS_SAMPLED)
    return [one for one in replayed if one.name == SENSITIVITY or (one.name in named and one.unit == "L2 norm")]


def _moved(replayed: Sequence[CheckResult]) -> bool:
    """Whether the replays compared how far one unit moves the release."""
    return any(found.name == SENSITIVITY and found.passed is not None for found in replayed)


def _severity(results: tuple[CheckResult, ...]) -> tuple[bool, bool, float]:
    """Failed before passed before unchecked, and among these by how far the first number exceeds its limit."""
    first = results[0]
    failed = any(result.passed is False for result in results)
    return failed, first.passed is not None, (first.measured or 0.0) / (first.allowed or 1.0)


def _unchecked(reason: str) -> CheckResult:
    return LAW_EPSILON.skipped(reason)


def _part(claim: Claim) -> str:
    return "all coordinates" if claim.part == JOINT else claim.part


def _rng() -> np.random.Generator:
    return Streams(0).generator("law check")
