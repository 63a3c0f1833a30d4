"""State claims behind a shuffler: unequal budgets, the amplification of one coordinate, and the paper's own totals.

Draw unequal privacy budgets and assign them to clients (Liu et al. 2023, APES, Table 2).

Compute the privacy of one coordinate of a client's report that is shuffled among other clients' reports.

Coordinates are noised and shuffled independently of each other, so they compose as that many releases; one pair
dominates each release.

Recompute the epsilons in Table 3 of the APES paper by advanced composition over coordinates (Liu et al. 2023).

See Lemma 2 and Proposition 1 of the paper.

Build the claims of a shuffling defense, or of its baselines without a shuffler, from fields that all its claims
share.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom, hypergeom, norm

from ...audit.arrays import FloatArray, IntArray
from ...audit.claim import Adjacency, Claim, Unit, Value
from ...audit.curve import Curve
from ...audit.observer import SHUFFLED, UPLOADS, Observer
from ...audit.wording import nearest
from ...fl.fields import check_positive
from ...fl.plan import Plan
from ...fl.sampling import Epoch, Full, Sampling
from ...fl.streams import Streams
from ..accounting.accountant import ACCOUNTANT
from ..accounting.blanket import laplace, laplace_chances
from ..accounting.counts import least_epsilon
from ..accounting.gaussian import poisson_rate
from ..accounting.pld import Profile, many_curve, many_epsilon
from ..accounting.pure import advanced_composition
from ..defense import check_share
from .budgeted import CoordinateNoise
from .clip_laplace import LaplacePair

Quantiles = Callable[[int], FloatArray]
MOST_LOCAL = 50.0
"""Largest local budget of one number that is accounted for; at it a false report has probability e^-50."""
_LEAST_DELTA = 1e-12


def deal(name: str, clients: int, scale: float = 1.0) -> tuple[float, ...]:
    """Return one budget per client: quantiles of a distribution from Table 2 of the APES paper, multiplied by
    ``scale``.

    The result is public and the same for every run: the (i + 1/2)/n quantiles of the distribution, clipped to its
    range, in an order that is fixed for each n, so that budgets do not follow a partition which sorts clients by label.

    Raises:
        ValueError: for an unknown name; the message lists the known ones.
    """
    # A value of a suite file may be a list, which has no hash.
    if not isinstance(name, str) or name not in _TABLE_2:
        raise ValueError(
            f"budgets, the distribution of clients' budgets, must be one of: {nearest(str(name), _TABLE_2)}; "
            f"got {name!r}"
        )
    quantiles, low, high = _TABLE_2[name]
    budgets = np.clip(quantiles(clients), low, high)
    return tuple((scale * budgets[_order(clients)]).tolist())


def check_budget_scale(name: str, scale: float | None, *, noise: float = 1.0) -> None:
    """Raise ValueError for an unknown distribution of budgets, or for a scale that makes the largest budget invalid.

    A scale, where given, must be above 0, and the largest budget that it gives, at ``noise`` times its noise, at most
    50.
    """
    deal(name, 1)
    if scale is None:
        return
    check_positive("budget_scale", scale)
    if (largest := scale * _TABLE_2[name][2] / noise) > MOST_LOCAL:
        raise ValueError(
            f"budget_scale must give local budgets of at most {MOST_LOCAL:g}, got {scale:g}, which gives a "
            f"largest local budget of {largest:g}"
        )


def check_local(local: float | None) -> None:
    """Raise ValueError if a local epsilon is given and not in (0, 50]."""
    if local is None:
        return
    check_positive("local_epsilon", local)
    if local > MOST_LOCAL:
        raise ValueError(f"local_epsilon must be at most {MOST_LOCAL:g}, got {local:g}")


def check_coordinate_delta(delta: float) -> None:
    """Raise ValueError unless a coordinate's delta is in (0, 1) and large enough for sums in double precision."""
    check_share("coordinate_delta", delta)
    if delta < _LEAST_DELTA:
        raise ValueError(
            f"coordinate_delta must be >= {_LEAST_DELTA:g}: sums in double precision cannot represent a smaller "
            f"one, got {delta:g}"
        )


def representative_clients(budgets: tuple[float, ...]) -> tuple[int, ...]:
    """Return three clients for which claims are stated: those with the smallest, the median and the largest budget."""
    # A stable sort picks the same clients on every platform.
    order = np.argsort(budgets, kind="stable")
    chosen = (int(order[0]), int(order[(len(order) - 1) // 2]), int(order[-1]))
    return tuple({budgets[client]: client for client in chosen}.values())


@cache
def _order(clients: int) -> IntArray:
    # Raw bits and a stable sort, not `permutation`, whose result may change with numpy's version.
    raw = Streams(0).generator("budgets").bit_generator.random_raw(clients)
    return np.argsort(np.asarray(raw), kind="stable").astype(np.int64)


def _levels(count: int) -> FloatArray:
    return np.asarray((np.arange(count) + 0.5) / max(count, 1), dtype=np.float64)


def _uniform(low: float, high: float) -> Quantiles:
    return lambda count: np.asarray(low + (high - low) * _levels(count), dtype=np.float64)


def _normal(*parts: tuple[float, float]) -> Quantiles:
    """Normal laws of variance 1: (mean, share of the clients) each."""

    def quantiles(count: int) -> FloatArray:
        # Rounding the ends and not the sizes keeps the total at the number of clients.
        ends = np.rint(np.cumsum([0.0, *(share for _, share in parts)]) * count).astype(int)
        each = [
            norm.ppf(_levels(int(end - start)), loc=mean)
            for (mean, _), start, end in zip(parts, ends[:-1], ends[1:], strict=True)
        ]
        return np.asarray(np.concatenate(each), dtype=np.float64)

    return quantiles


_TABLE_2: dict[str, tuple[Quantiles, float, float]] = {
    "uniform1": (_uniform(0.05, 0.5), 0.05, 0.5),
    "uniform2": (_uniform(0.05, 1.0), 0.05, 1.0),
    "gauss1": (_normal((0.1, 1.0)), 0.05, 0.5),
    "gauss2": (_normal((0.2, 1.0)), 0.05, 1.0),
    "mix_gauss1": (_normal((0.1, 0.9), (0.5, 0.1)), 0.05, 0.5),
    "mix_gauss2": (_normal((0.2, 0.9), (1.0, 0.1)), 0.05, 1.0),
}
KNOWN_BUDGETS = tuple(_TABLE_2)


_FAILS = 1e-3
_LEAST_LOCAL = 1e-6
_STRATA = 50
"""Groups into which the other clients are sorted by how often they hide a report. More groups hardly help: at 10,000
clients in batches of 500, a hundred lower the epsilon of a client by .4 % at most.
"""


@dataclass(frozen=True)
class LocalPair:
    """The privacy profile of one clip-Laplace coordinate at budget eps (``epsilon``) for an observer that knows its
    sender: delta(s) = (1 - e^((s - eps)/2))^2 / (1 - e^-eps) at every epsilon s <= eps.

    The pair is the two ends of the range. The larger the value, the likelier is every upper set of reports, and those
    sets are the best tests of any two values (the likelihood ratio is monotone).
    """

    epsilon: float

    @property
    def pure_epsilon(self) -> float:
        """Return epsilon at delta 0, which is the coordinate's own budget."""
        return self.epsilon

    def delta(self, epsilon: float) -> float:
        # Beyond its own epsilon the profile is 0, which the minimum gives without a branch.
        short = math.expm1((min(epsilon, self.epsilon) - self.epsilon) / 2)
        return short**2 / -math.expm1(-self.epsilon)


@dataclass(frozen=True)
class LargestPair(LocalPair):
    """The privacy profile of one number of a report whose sender is known. Clip-Laplace perturbs the client's ``among``
    numbers; only the ``kept`` largest results are sent, and dummies replace the others.

    Above delta 0 it is that of a number that is sent, because what is sent is post-processing of all noisy numbers. At
    delta 0 all of them together spend less, ``kept`` epsilon + (``among`` - ``kept``) ln((e^(epsilon/2) + 1)/2):

    Given which numbers were kept, the density of a report is a product. A kept number contributes its own density, at
    most a ratio of e^epsilon. Any other number contributes the dummy's density, which does not depend on the value, and
    the probability that a noisy number was at most t, the smallest size that was kept. That probability falls with the
    distance of the value from 0 (the size has a monotone likelihood ratio in it), so its ratio is largest between 0 and
    an end of the range, where it is (e^(epsilon/2) + 1) / (e^(epsilon t / (2 radius)) + 1), and thus at t = 0. The
    density of a report is the sum of these products over all choices, and a ratio of sums is at most the largest ratio.

    The bound is less than one epsilon above the truth: where the kept numbers are at the end of the range except for
    one, and that one is small and all dummies are smaller still, the loss comes as near as desired to (``kept`` - 1)
    epsilon + (``among`` - ``kept`` + 1) ln((e^(epsilon/2) + 1)/2).
    """

    kept: int
    among: int

    @property
    def pure_epsilon(self) -> float:
        """Return the epsilon at delta 0 of a whole report, divided by the number ``among`` of perturbed numbers."""
        unsent = math.log1p(math.expm1(self.epsilon / 2) / 2)
        return (self.kept * self.epsilon + (self.among - self.kept) * unsent) / self.among


def local_pair(noise: str, epsilon: float) -> Profile:
    """Return delta as a function of epsilon (the privacy profile) of one coordinate with budget ``epsilon``, for an
    observer that knows its sender.
    """
    # Strings and not enum members arrive from suite files; a StrEnum equals both.
    return LaplacePair(epsilon) if noise == CoordinateNoise.LAPLACE else LocalPair(epsilon)


@dataclass(frozen=True)
class SampledRelease:
    """A release that contains the client's value only with probability ``rate``, independently of all other clients.

    By the joint convexity of the hockey-stick divergence.
    """

    release: Profile
    rate: float

    @property
    def pure_epsilon(self) -> float:
        """Return epsilon at delta 0; sampling does not reduce it, because the observer may learn whether the value is
        included.
        """
        return self.release.pure_epsilon

    def delta(self, epsilon: float) -> float:
        return self.rate * self.release.delta(epsilon)


@dataclass(frozen=True, kw_only=True)
class AssuredCohort:
    """A guarantee about the other clients in each sampled cohort, which holds except with probability ``failure``. At
    least ``others`` other clients take part. For each (k, q) of ``most_of``, at most q of the k clients that hide a
    report least take part.

    A client that takes part sends all coordinates, so the clones of different coordinates depend on each other through
    the clients present. Therefore the worst cohort is counted, and the probability ``failure`` that any round has a
    worse one is added to delta.

    Raises:
        ValueError: for fewer than two clients, or cohorts of another kind than all clients, Poisson samples and the
            batches of a pass.
    """

    others: int
    failure: float
    most_of: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, plan: Plan, delta: float, *, rounds: int, unequal: bool = False) -> Self:
        """Return the guarantee for each of the plan's cohorts; if clients are ``unequal``, the guarantee also covers
        which clients take part. The guarantee fails with probability at most a thousandth of ``delta``, and never if
        all clients take part, or if equal clients take part in batches of known size.
        """
        check_clients(plan.clients)
        if isinstance(plan.cohort, Epoch):
            check_clients(fewest := plan.cohort.fewest(plan.clients))
            equal = cls(others=fewest - 1, failure=0.0)
            return equal._of_a_pass(plan, _FAILS * delta, rounds=rounds) if unequal else equal
        rate = poisson_rate("cohort", plan.cohort)
        if rate == 1:
            return cls(others=plan.clients - 1, failure=0.0)
        # Fewer clients than this quantile take part with a smaller probability.
        sure = binom.ppf(_FAILS * delta / rounds, plan.clients - 1, rate)
        return cls(others=int(sure), failure=_FAILS * delta)

    def _of_a_pass(self, plan: Plan, failure: float, *, rounds: int) -> Self:
        """The same number of others, drawn without replacement; a quantile of their number in each group."""
        pool = plan.clients - 1
        cuts = [pool * number // _STRATA for number in range(1, _STRATA)]
        each = failure / (plan.cohort.participations(rounds) * len(cuts))
        # The largest counts that are exceeded with a smaller probability than `each`.
        counts = hypergeom.isf(each, pool, cuts, self.others).astype(int).tolist()
        return replace(self, failure=failure, most_of=tuple(zip(cuts, counts, strict=True)))

    def worst(self, ranked: FloatArray) -> FloatArray:
        """Return the entries of ``ranked`` for the worst cohort that the guarantee allows, one for each of the
        ``others``.

        ``ranked``: one number for each other client of the federation, of the one that hides a report least first.
        """
        places = np.arange(self.others)
        for group, count in self.most_of:
            # At most `count` are of this group: those that follow rank behind it.
            places[count:] = np.maximum(places[count:], group)
        return ranked[places]


def among_equals(*, others: int, epsilon0: float) -> Profile:
    """Return the privacy profile (delta as a function of epsilon) of one coordinate that is shuffled among the
    coordinates of ``others`` other clients; all clients use clip-Laplace at ``epsilon0``.
    """
    return Tighter(LocalPair(epsilon0), laplace(epsilon0=epsilon0, reports=others + 1, clipped=True))


def among_unequals(
    *, client: int, budgets: tuple[float, ...], cohort: AssuredCohort, noise: str = CoordinateNoise.CLIP_LAPLACE
) -> Profile:
    """Return the privacy profile of one shuffled coordinate if clients add ``noise`` at their own ``budgets``. Only
    reports that are drawn from the blanket of the client's own mechanism hide the client's report; without clipping, no
    client with less noise sends such a report (see ``accounting.blanket``).

    Where not all take part, the worst assured ``cohort`` is counted.
    """
    own, clipped = budgets[client], noise == CoordinateNoise.CLIP_LAPLACE
    chances = laplace_chances(np.delete(np.asarray(budgets, dtype=np.float64), client), own, clipped=clipped)
    alone = laplace(epsilon0=own, reports=1, clipped=clipped)
    return Tighter(local_pair(noise, own), alone.hidden_by(cohort.worst(np.sort(chances))))


@dataclass(frozen=True)
class Tighter:
    """The smaller of two valid privacy profiles at each epsilon: one is for the shuffled report, the other assumes that
    the sender is known.
    """

    one: Profile
    other: Profile

    @property
    def pure_epsilon(self) -> float:
        """Return the smaller of both epsilons at delta 0."""
        return min(self.one.pure_epsilon, self.other.pure_epsilon)

    def delta(self, epsilon: float) -> float:
        return min(self.one.delta(epsilon), self.other.delta(epsilon))


def largest_scale(
    cost: Callable[[float], float], epsilon: float, *, largest: float = 1.0, else_too_large: str = ""
) -> float:
    """Find the largest factor by which all local budgets can be multiplied so that ``cost``, the total epsilon as a
    function of the factor, is at most ``epsilon``; the result is too small by a relative error of at most 1e-4.

    Args:
        largest: local budget at factor 1.
        else_too_large: appended to the error where no budget costs epsilon.

    Raises:
        ValueError: where no local budget in [1e-6, 50] costs it.
    """
    check_positive("epsilon", epsilon)

    @cache
    def excess(log_scale: float) -> float:
        # In logarithms, where the cost is nearly linear, the root search needs few evaluations.
        return math.log(max(cost(math.exp(log_scale)), 1e-12) / epsilon)

    # A start that is small for most federations; both directions are searched from it.
    low = high = math.log(0.1 / largest)
    least, top = math.log(_LEAST_LOCAL / largest), math.log(MOST_LOCAL / largest)
    while excess(low) > 0:
        if low == least:
            raise ValueError(
                f"epsilon must be large enough to allow local budgets above {_LEAST_LOCAL:g}, got {epsilon}"
            )
        low, high = max(least, low - 1.5), low
    while (short := excess(high)) < 0:
        if high == top:
            raise ValueError(
                f"epsilon must be small enough to need local budgets of at most {MOST_LOCAL:g}{else_too_large}, "
                f"got {epsilon}"
            )
        # The cost grows at least as fast as the factor, so half of what is missing is hardly too far.
        low, high = high, min(top, high + min(1.0, max(0.2, -short / 2)))
    root = float(brentq(excess, low, high, xtol=1e-5)) if high > low else low
    # The search ends on either side of the root; the budget must not be exceeded.
    while excess(root) > 0:
        root -= 2e-5
    return math.exp(root)


def check_clients(clients: int) -> None:
    """Raise ValueError for fewer than two clients, because a shuffler cannot hide the report of a single client."""
    if clients < 2:
        raise ValueError(
            f"clients must be >= 2, because a shuffler cannot hide the sender of a single report, got {clients}"
        )


_SLACK = 1 / 7200
_LEAST = 1e-12  # A coordinate may have epsilon 0 at its delta, but the formula needs one above 0.


def published_total(
    one: Callable[[float], float], *, coordinates: int, releases: int, largest: float, delta: float
) -> float:
    """Compute the epsilon at ``delta`` of ``releases`` releases as the APES paper does. ``coordinates`` is the number
    of coordinates in all rounds; S-APES has fewer releases, because clients send only some coordinates.

    The paper does not state how it splits delta. This split meets its totals within 1 %: of 3.6e-5, 5e-9 for the
    composition of all coordinates and the rest for them, each at tanh(``largest`` / 2) delta_s (Theorem 4); what fewer
    releases leave goes to the composition.

    Args:
        one: epsilon of one coordinate as a function of delta_s.
    """
    # Coordinates get nearly all of delta: the composition needs little for its own slack.
    each = (1 - _SLACK) * delta / coordinates
    slack = delta - min(releases, coordinates) * each
    return advanced_composition(
        epsilon=max(one(min(0.5, each / math.tanh(largest / 2))), _LEAST),
        releases=releases,
        slack=max(slack, _SLACK * delta),
    )


ACCOUNTED = f"{ACCOUNTANT}, by connected dots"
ACCOUNTED_AS_PUBLISHED = "numerical clones, advanced composition"
EXACT_RELEASE = "exact, one release"
LEAST_EPSILON = 1e-9
"""A claim's epsilon must be above 0, also where 0 would suffice at its delta."""
# Beyond this epsilon a curve has no point that an error rate could reach.
_DRAWN = 150.0


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The fields that all claims of one defense share, such as plan, adversary, mechanism, public parameters, trust
    assumption and source.

    Args:
        spending: how many numbers of a report spend a budget each; None: all.
    """

    plan: Plan
    observer: Observer
    mechanism: str
    radius: float
    trust: str
    source: str
    spending: int | None = None

    @property
    def releases(self) -> int:
        """Return the number of coordinates, over all rounds in which a client takes part, that each spend a privacy
        budget.
        """
        return (self.spending or self.plan.layout.dim) * self.plan.participations

    def total(self, release: Profile, *, delta: float, failure: float = 0.0) -> float:
        """Compute the epsilon of all coordinates of all rounds together; ``release`` is the release of one
        coordinate.
        """
        return many_epsilon(release, releases=self.releases, delta=delta - failure)

    def of_clients(
        self, pair_of: Callable[[float], Profile], budgets: tuple[float, ...], *, delta: float, **parameters: Any
    ) -> tuple[Claim, ...]:
        """Return the joint claims of clients that represent the range of ``budgets``; ``pair_of``: returns the release
        of one coordinate at a budget.
        """
        return tuple(
            self.joint(pair_of(budgets[client]), delta=delta, **of_budget(client, budgets), **parameters)
            for client in representative_clients(budgets)
        )

    def joint(
        self,
        release: Profile,
        *,
        delta: float,
        failure: float = 0.0,
        epsilon: float | None = None,
        subjects: str = "all",
        **parameters: Value,
    ) -> Claim:
        """Return the claim about all coordinates of all rounds together; it states the given ``epsilon``, or the
        smallest valid one if none is given.
        """
        # A calibrated claim states its target and not the slightly smaller value that the search reached.
        found = max(epsilon or self.total(release, delta=delta, failure=failure), LEAST_EPSILON)
        curve = None
        # A curve over very large epsilons would only contain points that no audit can reach.
        if found <= _DRAWN:
            curve = many_curve(release, releases=self.releases, reach=found, failure=failure)
        return self.stated(
            unit=Unit.CLIENT if self.observer == SHUFFLED else Unit.REPORT,
            epsilon=found,
            delta=delta,
            accountant=ACCOUNTED,
            subjects=subjects,
            curve=curve,
            parameters={"releases": self.releases, **parameters},
        )

    def coordinate(
        self, release: Profile, *, delta: float, failure: float = 0.0, subjects: str = "all", **parameters: Value
    ) -> Claim:
        """Return the claim about one coordinate in one round."""
        return self.stated(
            unit=Unit.COORDINATE,
            epsilon=least_epsilon(release.delta, delta - failure),
            delta=delta,
            accountant=EXACT_RELEASE,
            subjects=subjects,
            parameters=parameters,
        )

    def published(
        self,
        *numbers: tuple[Unit, float, float, float],
        parameters: Mapping[str, Value],
        accountant: str = ACCOUNTED_AS_PUBLISHED,
    ) -> tuple[Claim, ...]:
        """Return a paper's own claims, one for each given unit, epsilon and delta; each also states the epsilon that
        can be proved.
        """
        return tuple(
            self.stated(
                unit=unit,
                epsilon=epsilon,
                delta=delta,
                accountant=accountant,
                parameters={**parameters, "provable_epsilon": provable},
            )
            for unit, epsilon, delta, provable in numbers
        )

    def stated(
        self,
        *,
        unit: Unit,
        epsilon: float,
        delta: float,
        accountant: str,
        parameters: Mapping[str, Value],
        subjects: str = "all",
        curve: Curve | None = None,
    ) -> Claim:
        """Return a claim with the given epsilon and delta. If ``unit`` is `Unit.COORDINATE`, the claim covers one
        coordinate of a client's report in one round; otherwise it covers the client's whole reports of all rounds.
        """
        single = unit is Unit.COORDINATE
        return Claim(
            epsilon=max(epsilon, LEAST_EPSILON),
            delta=delta,
            unit=unit,
            adjacency=Adjacency.REPLACE_ONE,
            observer=self.observer,
            rounds=1 if single else self.plan.rounds,
            dp_model="local" if self.observer == UPLOADS else "shuffle",
            mechanism=self.mechanism,
            parameters={
                "radius": self.radius,
                # Also under the name that reports and audits read for all defenses.
                "clip_norm": self.radius,
                "clients": self.plan.clients,
                **parameters,
            },
            accountant=accountant,
            sampling=_assumed(self.plan.cohort),
            trust=self.trust,
            source=self.source,
            subjects=subjects,
            part="one coordinate" if single else "joint",
            curve=curve,
        )


def of_budget(client: int, budgets: tuple[float, ...]) -> dict[str, Any]:
    """Return the claim fields that restrict a claim to the clients with the same budget as ``client``."""
    own = budgets[client]
    return {"subjects": f"clients of budget {own:.4g}", "client": client, "local_epsilon": own}


def _assumed(cohort: Sampling) -> str:
    if isinstance(cohort, Epoch):
        return f"each client takes part in one of every {cohort.rounds} rounds, drawn independently of the data"
    return "none assumed" if isinstance(cohort, Full) else "cohorts are Poisson samples"


def local_terms(plan: Plan, radius: float, *, noise: str = CoordinateNoise.CLIP_LAPLACE) -> Terms:
    """Return the fields that all claims of a defense without a shuffler share."""
    classic = noise == CoordinateNoise.LAPLACE
    return Terms(
        plan=plan,
        observer=UPLOADS,
        mechanism="Laplace noise on each coordinate" if classic else "clip-Laplace on each coordinate",
        radius=radius,
        trust="nobody",
        source=f"{'Dwork et al. 2006' if classic else 'Liu et al. 2023'}, Theorem 1; Zhu, Dong, Wang 2022, Theorem 10",
    )
