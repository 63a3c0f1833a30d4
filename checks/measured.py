"""Measure sensitivity and noise where no noise distribution is published, and compare the epsilon that they imply with
the claim.

One unit shifts the release along a chosen direction, and equal draws show by how much; other draws show the noise along
the same direction. Both go through everything that the defense does with the release afterwards, so that scaling,
averaging over rounds, masks and rounding change their ratio no more than they change the privacy.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..audit.check import MEASURED, CheckResult
from ..audit.claim import Adjacency, Claim, Unit
from ..audit.curve import GaussianCurve
from ..audit.observer import AGGREGATE, FINAL_MODEL, SHUFFLED
from ..audit.wording import plain
from ..fl.canary import Canary
from ..fl.channels import FINAL, changes_broadcast
from ..fl.hooks import overrides
from ..fl.laws import GaussianLaw, describes_release
from ..fl.plan import Plan
from ..fl.protection import Protection
from ..fl.replay import Recording
from ..fl.rounds import Rounds
from ..fl.sampling import Epoch
from ..fl.streams import Streams, normal
from ..fl.training.local import Batch
from .canaries import JOINT, absent_row
from .law import NotCheckable, law_check, law_of_all_rounds, subject_of
from .neighbours import Inputs, Proposed, ReplaySetup, extreme_layers

LENGTH = 1e4
"""The canary in clip norms: it outweighs all other rows, so that a clip of a mean or a lot shows too."""
_DRAWS, _MORE_DRAWS = 4, 8
"""Runs of different noise, and where they must also show that it is Gaussian."""
_ERRORS = 6.0
"""Standard errors by which the measured ratio is lowered; a correct defense fails once in 10^9 checks."""
_QUIET, _FEW = 0.25, 16
"""Share of the weights, and number of weights, that have the least noise."""
_EXCESS, _VECTORS = 0.1, 12
"""Fourth moments, as a share of the squared variance of their sum, and number of vectors from which a sum of many
numbers counts as Gaussian."""
_DISTINCT = 0.9
"""Share of distinct numbers from which noise counts as continuous."""
_BELOW = 1.2816
"""Standard errors below its mean that a measured ratio exceeds with probability 0.9."""
_MOST_LESS, _HALVINGS = 64.0, 8
"""Factor by which the noise is reduced at most in search of what would be found, and steps of the search."""
_RATES = ("rate", "sampling_rate")
"""Parameters of a claim that state the probability that a unit is sampled."""
_TRIED, _COHORTS = 5, 64
"""Rounds and cohorts in which a hook is seen to leave clients out."""
_STATED = ("noise_multiplier", "noise_std")
"""Parameters of a claim that state the standard deviation of Gaussian noise."""


def measured_checks(setup: ReplaySetup, own: Plan) -> tuple[CheckResult, ...]:
    """Compare the claim with the epsilon implied by the sensitivity and noise that runs with equal draws show; empty if
    a law of every round is published, which other checks use.

    ``own``: the plan for which the defense was prepared, with its rounds and cohorts.
    """
    protection = setup.protection
    try:
        # A law that may be that of one round alone leaves the others to be measured.
        law = protection.law(setup.claim.observer, setup.plan, setup.holder)
        if describes_release(law) and not law_of_all_rounds(protection, setup.plan):
            return ()
        found = _measured(setup, own)
    except NotCheckable as reason:
        found = MEASURED.skipped(str(reason))
    return (found,)


def _measured(setup: ReplaySetup, own: Plan) -> CheckResult:
    protection, claim, plan = setup.protection, setup.claim, setup.plan
    if claim.unit is Unit.USER:
        raise NotCheckable(
            "without a published noise distribution, the noise in the direction of a user's change is not measured"
        )
    if claim.delta == 0:
        check_stated(claim)
    last = claim.observer.rank == FINAL_MODEL.rank and changes_broadcast(protection)
    if last and (own.cohort_rate < 1 or (claim.unit is Unit.SAMPLE and min(map(own.lot.rate, own.sizes)) < 1)):
        raise NotCheckable(
            "without a published noise distribution, a final model that depends on sampling cannot be checked"
        )
    if not last and claim.observer.rank in (SHUFFLED.rank, FINAL_MODEL.rank):
        raise NotCheckable(
            "without a published noise distribution, this check needs a report or a sum of one round, and the "
            "adversary receives neither"
        )
    if not last and claim.observer.rank < AGGREGATE.rank and changes_broadcast(protection):
        raise NotCheckable("noise may be added to the model that is broadcast")
    if claim.part != JOINT:
        raise NotCheckable(
            f"without a published noise distribution, a claim that covers only {claim.part} cannot be checked"
        )
    if claim.observer.rank < SHUFFLED.rank and plan.clients < own.clients:
        # Clients may share the noise of a sum, as in secure aggregation.
        raise NotCheckable(
            f"without a published noise distribution, a sum of {plan.clients} clients may have less noise than the "
            "sum of all clients"
        )
    rate, steps = rate_of(claim, own, protection), steps_of(claim, own, protection)
    measured = [
        replace(ratio, client=client)
        for runs in _runs_of(setup)
        for direction, client in _directions(runs)
        if (ratio := _known_ratio(runs, direction, client)) is not None
    ]
    if not measured:
        raise NotCheckable(
            "without a published noise distribution, this check needs Gaussian noise in the direction of a unit's "
            "change, and the noise may not be Gaussian"
        )
    worst = max(measured, key=lambda ratio: ratio.each)
    where = "after the last round" if last else f"in each of {worst.rounds} round{'s' * (worst.rounds != 1)}"
    words = (
        f"at least {plain(round(worst.each, 4))} standard deviations of the noise {where}, {worst.direction.words}, "
        f"sampling rate {plain(rate)}, steps {steps}"
    )
    witness = f"one {claim.unit} changes the release by {words}"
    # The final model is one release, whatever the rounds before it.
    stated = replace(claim, observer=AGGREGATE, rounds=1) if last else claim
    found = hold(worst, stated, own, rate, steps)
    proposal = proposed_along(setup, worst.direction, worst.client) if found.passed is False else None
    return replace(found, name=MEASURED, witness=witness, proposal=proposal)


def states_gaussian(claim: Claim) -> bool:
    """Return whether a claim states Gaussian noise."""
    return isinstance(claim.curve, GaussianCurve) or any(name in claim.parameters for name in _STATED)


def check_stated(claim: Claim) -> None:
    """Raise NotCheckable unless a claim states Gaussian noise."""
    if not states_gaussian(claim):
        raise NotCheckable(
            "without a published noise distribution, this check needs a claim that states Gaussian noise"
        )


def steps_of(claim: Claim, plan: Plan, protection: Protection) -> int:
    """Return the number of separately noised steps whose sum is a round's release."""
    return plan.algorithm.local_steps if claim.unit is Unit.SAMPLE and protection.per_sample else 1


def hold(worst: "Ratio", claim: Claim, own: Plan, rate: float, steps: int) -> CheckResult:
    """Compare a measured ratio of shift to noise with the claim; the result's ``detects`` is a true epsilon.

    Raises:
        NotCheckable: where the ratio determines no epsilon.
    """

    def held(each: float, rounds: int) -> tuple[CheckResult, ...]:
        # A release in units of its own noise; noise that was measured may be discrete.
        law = GaussianLaw(
            clip_norm=max(each, 1e-12) / steps if math.isfinite(each) else 1.0,
            scale=1.0,
            noise_std=1.0 if math.isfinite(each) else 0.0,
            rate=rate,
            steps=steps,
            additive=False,
        )
        return law_check(law, claim, own, rounds=rounds)

    first, *rest = held(worst.each, worst.rounds)
    if first.passed is None:
        raise NotCheckable(first.witness)
    broken = next((found for found in (first, *rest) if found.passed is False), first)
    return replace(broken, detects=_detectable(worst, claim, held) if broken.passed else None)


def _detectable(worst: "Ratio", claim: Claim, held: Callable[[float, int], tuple[CheckResult, ...]]) -> float | None:
    """The true epsilon of the release with so little noise that the check fails with probability 0.9; None where no
    noise in reach is little enough.

    Args:
        held: the results of the claim against a ratio of shift and noise in so many rounds.
    """
    # The measured ratio is lowered by its errors, and may lie below its mean.
    certain = 1 - _BELOW * worst.error
    if not (worst.each > 0 and worst.true > 0 and certain > 0):
        return None

    def fails(factor: float) -> bool:
        return any(found.passed is False for found in held(worst.each * factor * certain, worst.rounds))

    low, high = 1.0, _MOST_LESS
    if not fails(high):
        return None
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fails(middle) else (middle, high)
    first = held(worst.true * high, claim.rounds)[0]
    known = first.unit == "epsilon" and first.measured is not None
    return max(claim.epsilon, first.measured or 0.0) if known else None


def stated_rate(claim: Claim) -> float | None:
    """Return the sampling rate that a claim states in its parameters, whether or not it is a probability; None without
    one.
    """
    stated = (claim.parameters.get(name) for name in _RATES)
    return next((float(one) for one in stated if isinstance(one, int | float) and not isinstance(one, bool)), None)


def rate_of(claim: Claim, plan: Plan, protection: Protection) -> float:
    """Return the probability that a unit is sampled, from the claim, or from the plan's lots if the claim states none.
    A claim that does not rely on sampling is then tested less strictly than possible.

    Raises:
        NotCheckable: for a stated rate that is no probability, and where the hook ``participates`` leaves clients out
            and no rate is stated.
    """
    stated = stated_rate(claim)
    if stated is not None:
        if not 0 < stated <= 1:
            raise NotCheckable(f"the sampling rate of the claim must be a probability above 0, got {plain(stated)}")
        return stated
    if leaves_out(protection, plan):
        raise NotCheckable(
            "without a published noise distribution, this check needs the sampling rate in the claim, because a "
            "hook samples participants"
        )
    return min(plan.lot.rate(size) for size in plan.sizes) if claim.unit is Unit.SAMPLE else 1.0


def leaves_out(protection: Protection, plan: Plan) -> bool:
    """Return whether the hook ``participates`` excludes any client in one of the plan's first rounds."""
    if not overrides(protection, "participates"):
        return False
    rounds = Rounds(plan=plan, protection=protection, streams=Streams(0), runs=Batch(replicas=_COHORTS), closes=False)
    for turn in rounds.each(min(plan.rounds, _TRIED)):
        try:
            taken = turn.thinned
        except Exception:  # A hook of a foreign defense may need the data of its clients.
            return True
        if taken is not None and not bool(taken.all()):
            return True
    return False


@dataclass(frozen=True, kw_only=True, eq=False)
class Direction:
    """A unit vector ``(d,)``, with a description in words."""

    values: Tensor
    words: str


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A lower bound on the ratio of the unit's shift to the noise, in each of ``rounds`` rounds, along a direction.

    ``true``: the ratio itself, as it was seen; ``error``: its standard error, as a share of it.
    """

    each: float
    rounds: int
    direction: Direction
    true: float = 0.0
    error: float = 0.0
    client: int = 0


@dataclass(frozen=True, kw_only=True)
class RunsOnData:
    """Runs on one data set, which differ only in their noise.

    ``alike``: whether all samples of all clients are equal, so that their rows add up; ``first``: number of the first
    noise; ``draws``: of different noise; ``earlier``: runs of other noise that show which weights have the least.
    """

    setup: ReplaySetup
    alike: bool = False
    first: int = 0
    draws: int = _DRAWS
    earlier: "RunsOnData | None" = None

    @cached_property
    def clean(self) -> list[Recording]:
        """Runs without the unit."""
        known = [] if self.first else self.setup.draws[: self.draws]
        return [*known, *(self.setup.run(noise=self.first + n) for n in range(len(known), self.draws))]


def _runs_of(setup: ReplaySetup) -> Iterator[RunsOnData]:
    draws = _DRAWS if states_gaussian(setup.claim) else _MORE_DRAWS
    runs = RunsOnData(setup=setup, alike=False, draws=draws)
    yield runs
    # New noise: that by which weights were chosen would look smaller there than it is.
    yield RunsOnData(setup=setup, alike=False, first=draws, draws=draws, earlier=runs)
    if setup.claim.adjacency is Adjacency.ADD_REMOVE and setup.one_sample is not None:
        yield RunsOnData(setup=setup.one_sample, alike=True, draws=draws)


def _directions(runs: RunsOnData) -> Iterator[tuple[Direction, int]]:
    """All weights at some clients, and single layers and the weights of least noise at one; where all rows are alike,
    against them.
    """
    setup = runs.setup
    layout, subject = setup.plan.layout, subject_of(setup.claim, setup.plan)
    sender = setup.holder if subject is None else subject
    sampled = setup.claim.unit is Unit.SAMPLE
    if runs.alike:
        if runs.clean[0].senders is None or sender in runs.clean[0].senders:
            # What one row adds may depend on the others, as where a sum is divided by their number.
            others = torch.stack([rows_of(run, sender) for run in runs.clean]).mean((0, 1))
            scale = setup.plan.algorithm.linear_scale or -1.0
            against = -others * (math.copysign(1.0, scale) if sampled else 1.0)
            if bool(others.any()):
                yield Direction(values=_unit(against), words="against all other rows"), sender
        return
    if runs.earlier is not None:
        yield from ((one, sender) for one in _quietest(runs.earlier))
        return
    rng = Streams(setup.seed).generator("measured directions")

    def drawn(place: slice, words: str) -> Direction:
        values = torch.zeros(layout.dim, dtype=torch.float64)
        values[place] = normal(rng, (len(values[place]),), dtype=torch.float64)
        return Direction(values=_unit(values), words=words)

    whole = drawn(slice(0, layout.dim), "along all weights")
    # One more client, the largest, the smallest, and the one that a brief run shows most. A hook that draws a cohort
    # draws in the order of the clients: were one of them removed, those behind it would get other draws.
    alone = subject is not None or (not sampled and leaves_out(setup.protection, setup.plan))
    places = [sender] if alone else [sender, *setup.checked_clients[:2], *_most_exposed(runs, whole)]
    yield from ((whole, client) for client in dict.fromkeys(places))
    yield from ((drawn(place, f"along {name}"), sender) for name, place in extreme_layers(layout))


def quietest(setup: ReplaySetup) -> Direction | None:
    """Return a direction of random signs on the quarter of the weights with the least noise; None if runs show no
    noise.
    """
    return next(_quietest(RunsOnData(setup=setup)), None)


def _quietest(runs: RunsOnData) -> Iterator[Direction]:
    """Random signs on the weights with the least noise, of those that have any."""
    # All clients show it: weights matter that have little noise whoever sends them.
    each_round = (torch.stack(draws) for draws in zip(*(_released(run) for run in runs.clean), strict=True))
    power = torch.stack([(draws - draws.mean(0)).square().sum((0, 1)) for draws in each_round]).sum(0)
    noisy = power.nonzero().flatten()
    order = noisy[power[noisy].argsort()]
    signs = normal(Streams(runs.setup.seed).generator("measured weights"), (len(power),), dtype=torch.float64).sign()
    for count in dict.fromkeys((math.ceil(len(order) * _QUIET), min(_FEW, len(order)))):
        if count:
            values = torch.zeros(len(power), dtype=torch.float64)
            values[order[:count]] = signs[order[:count]]
            yield Direction(values=_unit(values), words=f"along the {count} weights with the least noise")


def _most_exposed(runs: RunsOnData, direction: Direction) -> list[int]:
    """The checked client whose row moves one release furthest over its noise; empty where none is comparable."""
    ratios = {}
    for client in runs.setup.checked_clients:
        try:
            found = releases_of(runs, direction, client, draws=1, rounds=1)
            clean = torch.stack([rows_of(run, client)[0] for run in runs.clean])
        except NotCheckable:
            continue
        moved = float(torch.linalg.vector_norm(found.after - found.before))
        ratios[client] = moved / max(float((clean - clean.mean(0)).square().mean().sqrt()), 1e-300)
    return [max(ratios, key=lambda client: ratios[client])] if ratios else []


def _unit(values: Tensor) -> Tensor:
    unit: Tensor = values / torch.linalg.vector_norm(values)
    return unit


@dataclass(frozen=True, kw_only=True)
class Releases:
    """The releases of one client, or their sum, ``(draws, rounds, d)`` without and with the unit.

    ``fewer``: whether a client of the plan is absent without the unit, and with it a share of the noise.
    """

    before: Tensor
    after: Tensor
    fewer: bool

    def every(self, period: int) -> "Releases":
        """Return the releases of the first round and of every ``period``-th round after it."""
        return Releases(before=self.before[:, ::period], after=self.after[:, ::period], fewer=self.fewer)

    @cached_property
    def noise(self) -> Tensor:
        noisy = self.after if self.fewer else self.before
        return noisy - noisy.mean(0)


def _known_ratio(runs: RunsOnData, direction: Direction, client: int) -> Ratio | None:
    """The ratio; None where the weights of least noise show no noise in every draw, as under private masks, and where
    noise that the claim does not state to be Gaussian is not so along the direction.
    """
    if runs.earlier is None:
        return _ratio(runs, direction, client)
    try:
        found = _ratio(runs, direction, client)
    except NotCheckable:
        return None
    return found if found is not None and math.isfinite(found.each) else None


def _ratio(runs: RunsOnData, direction: Direction, client: int) -> Ratio | None:
    # Replays use the unit in every round, and an epoch in one round of each pass alone, such as the first one.
    rule = runs.setup.sampled.plan.cohort
    period = rule.rounds if isinstance(rule, Epoch) else 1
    releases = releases_of(runs, direction, client).every(period)
    noise, moved = releases.noise, releases.after - releases.before
    if not bool(moved[0].any()):
        return Ratio(each=0.0, rounds=runs.setup.claim.rounds, direction=direction)
    # The direction is that in which the first draw's release moved; the other draws show how far.
    towards = _unit(moved[0].mean(0)) if bool(moved[0].mean(0).any()) else direction.values
    along = moved[1:] @ towards
    # A round in which nothing is sent shows neither.
    variance = (noise.square() @ towards.square()).sum(0) / (len(noise) - 1)
    silent = (variance == 0) & (along == 0).all(0)
    if bool(silent.all()):
        raise NotCheckable("the client that holds the unit sent nothing")
    if bool(((variance == 0) & ~silent).any()):
        # Signs and sparse vectors show no noise in a few draws, or show it with the unit only.
        seen = releases.before[releases.before != 0]
        after = ((releases.after - releases.after.mean(0)).square() @ towards.square()).sum(0)
        if (len(seen) and len(np.unique(seen.numpy())) < _DISTINCT * len(seen)) or bool(
            after[(variance == 0) & ~silent].any()
        ):
            raise NotCheckable(
                "without a published noise distribution, this check needs noise in all numbers of a release"
            )
        return Ratio(each=math.inf, rounds=1, direction=direction)
    # Rounds for which a hook left the unit out show nothing of it.
    left_out = (moved == 0).all(-1).all(0) & leaves_out(runs.setup.protection, runs.setup.plan)
    kept = ~silent & ~left_out
    noise, along = noise[:, kept], along[:, kept]
    check_independent(releases.before[:, kept], runs.setup)
    weighed = noise * towards
    if not states_gaussian(runs.setup.claim) and not _sums_to_gaussian(weighed):
        return None
    moments = weighed.square()
    # Degrees of freedom of the variance: those of Gaussian noise of equal size, fewer for few or uneven numbers.
    free = float((3 * moments.sum((0, 2)).square() / moments.square().sum((0, 2))).min())
    free *= (len(noise) - 1) / len(noise)
    rounds = max(1, min(along.shape[1], int((free - 10) / 3)))
    shift, covariance = along[:, :rounds], torch.einsum("ktd,ksd->ts", weighed[:, :rounds], weighed[:, :rounds])
    each, true, error = bound_of(shift, covariance / (len(noise) - 1), free)
    rounds = min(rounds * period, runs.setup.claim.rounds)
    return Ratio(each=each, rounds=rounds, direction=direction, true=true, error=error)


def _sums_to_gaussian(weighed: Tensor) -> bool:
    """Whether noise ``(draws, rounds, d)`` sums up, over its last axis, to a number that is Gaussian up to far tails:
    many independent numbers, of which none has heavy tails, and with no common factor that changes from draw to draw.
    """
    squares = weighed.square()
    total = squares.sum(-1).mean(0)
    if not bool((total > 0).all()):
        return False
    fourth = weighed.pow(4).sum(-1).mean(0) / total.square()
    # The excess kurtosis of the sum is at most its fourth moments' share.
    if float(fourth.max()) > _EXCESS:
        return False
    factors = (squares.sum(-1) / total - 1).square().sum() / max(1, total.numel() * (len(weighed) - 1))
    vectors = total.numel() * (len(weighed) - 1)
    return vectors >= _VECTORS and float(factors) < float(fourth.mean()) * (1 + _ERRORS * math.sqrt(2 / vectors))


def bound_of(shift: Tensor, covariance: Tensor, free: float) -> tuple[float, float, float]:
    """Return a lower bound on the ratio of shift to noise as a mean over the rounds, the ratio itself, and its relative
    standard error.

    Args:
        shift: ``(draws, rounds)``; covariance: ``(rounds, rounds)``, with ``free`` degrees of freedom.
    """
    rounds, mean = len(covariance), shift.mean(0)
    scatter = float((shift - mean).square().sum() / max(1, shift.numel() - rounds))
    lowest = mean.abs() - (_ERRORS if shift.numel() > 12 else 3 * _ERRORS) * math.sqrt(scatter / shift.numel())
    lowest = mean.sign() * lowest.clamp_min(0)
    if _white(covariance, free):
        # Only then do all rounds together estimate the noise.
        totals = [float((one.square() / covariance.diagonal()).sum()) for one in (lowest, mean)]
        error = math.sqrt(1 / (2 * free * rounds)) + (math.sqrt(1 / (free * rounds)) if rounds > 1 else 0.0)
    else:
        left = free - rounds - 1
        inverse = torch.linalg.pinv(covariance, rtol=1e-6, hermitian=True)
        totals = [float(one @ inverse @ one) * left / free for one in (lowest, mean)]
        error = math.sqrt(1 / (2 * left))
    low, seen = (math.sqrt(max(0.0, total) / rounds) for total in totals)
    return low * max(0.0, 1 - _ERRORS * error), seen, error


def _white(covariance: Tensor, free: float) -> bool:
    """Whether no correlation of rounds at any distance shows, and no round is noisier than another."""
    deviations = covariance.diagonal().sqrt()
    correlation = covariance / deviations.outer(deviations)
    rounds = len(covariance)
    lags = (float(correlation.diagonal(lag).mean()) * math.sqrt(free * (rounds - lag)) for lag in range(1, rounds))
    even = (deviations / deviations.mean() - 1).abs().max() < _ERRORS / math.sqrt(2 * free)
    return bool(even) and all(abs(lag) < _ERRORS for lag in lags)


def check_independent(before: Tensor, setup: ReplaySetup) -> None:
    """Raise NotCheckable if the noise of different weights is dependent, because its size along a direction then does
    not follow from single weights.
    """
    # Differences without a common draw: draws of unequal size would make those with one dependent.
    pairs = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    noise = torch.stack([torch.stack([before[a] - before[b] for a, b in pair]) for pair in pairs])
    # Numbers may have several sizes, which all draws and rounds show.
    noise /= noise.square().mean((0, 1, 2), keepdim=True).sqrt().clamp_min(1e-300)
    unit = noise / torch.linalg.vector_norm(noise, dim=-1, keepdim=True).clamp_min(1e-300)
    # Within a round: the dependence may change from round to round, as with a new public hash.
    cosines = (unit[:, 0] * unit[:, 1]).sum(-1).square()
    # The squares of two of the three pairs are correlated by 1/4: as many errors as two independent ones have.
    allowed = (1 + _ERRORS * math.sqrt(3 / cosines.numel())) / before.shape[-1]
    if float(cosines.mean()) > allowed:
        raise NotCheckable(
            "without a published noise distribution, this check needs independent noise in different weights"
        )


def releases_of(
    runs: RunsOnData, direction: Direction, client: int, *, draws: int | None = None, rounds: int | None = None
) -> Releases:
    """Return the releases of one client, or their sum, without and with a row of ``LENGTH`` clip norms along a
    direction.

    Raises:
        NotCheckable: where one client more cannot be separated from its noise.
    """
    draws = runs.draws if draws is None else draws
    setup, claim, canary = runs.setup, runs.setup.claim, canary_along(runs.setup, direction, client)
    pairs = []
    for place_of, number in enumerate(range(runs.first, runs.first + draws)):
        arms = [Inputs(canary=canary, arm=arm) for arm in (0, 1)]
        without = runs.clean[place_of] if canary.added else setup.run(arms[0], noise=number, rounds=rounds)
        pairs.append((without, setup.run(arms[1], noise=number, rounds=rounds)))
    share = 2 if claim.adjacency is Adjacency.REPLACE_ONE else 1
    before, after = (torch.stack([rows_of(pair[arm], client)[:rounds] for pair in pairs]) for arm in (0, 1))
    # A replaced row moves the release from its own place to the opposite one: twice what one row adds.
    fewer = canary.absent is None and canary.place is not None
    return Releases(before=before, after=before + (after - before) / share, fewer=fewer)


def proposed_noise(setup: ReplaySetup) -> Proposed:
    """Return runs for trials, without and with a row along the weights of least noise that changes its sign in every
    round. Such runs reveal noise that is too small along these weights, or that several rounds share.
    """
    claim, holder = setup.claim, setup.checked_clients[0]
    direction = quietest(setup)
    values = _unit(torch.ones(setup.plan.layout.dim, dtype=torch.float64)) if direction is None else direction.values
    row = (setup.length * LENGTH * values).float()
    present = torch.stack([row, -row]) if claim.rounds > 1 else row
    constant = claim.adjacency is Adjacency.REPLACE_ONE and claim.rounds > 1
    place = None if claim.unit is Unit.SAMPLE or (not setup.unaccepted and setup.adds_to_sum) else holder
    absent = row if constant else absent_row(row, claim.adjacency)
    canary = Canary(unit=claim.unit, present=present, absent=absent, client=holder, place=place)
    words = "all weights" if direction is None else direction.words.removeprefix("along ")
    return Proposed(
        setup=setup.sampled,
        without=Inputs(canary=canary),
        present=Inputs(canary=canary, arm=1),
        words=f"one unit's vector of {LENGTH:g} clip norms along {words} whose sign changes in every round",
        direction=values.float(),
    )


def proposed_along(setup: ReplaySetup, direction: Direction, client: int) -> Proposed:
    """Return runs for trials, without and with a row along a direction, at a client of the plan or at an additional
    one.
    """
    canary = canary_along(setup, direction, client)
    return Proposed(
        setup=setup.sampled,
        without=Inputs(canary=canary),
        present=Inputs(canary=canary, arm=1),
        words=f"one unit's vector of {LENGTH:g} clip norms {direction.words} at client {client}",
        direction=direction.values.float(),
    )


def canary_along(setup: ReplaySetup, direction: Direction, client: int) -> Canary:
    """Return a canary of ``LENGTH`` clip norms along a direction, at a client of the plan or as an additional
    client.
    """
    claim = setup.claim
    row = (setup.length * LENGTH * direction.values).float()
    place = None if claim.unit is Unit.SAMPLE or client == setup.plan.clients else client
    absent = absent_row(row, claim.adjacency)
    return Canary(unit=claim.unit, present=row, absent=absent, client=client, place=place)


def _released(recording: Recording) -> list[Tensor]:
    """The rows ``(rows, d)`` that the observer receives, one entry per round, or the final model as the only one."""
    final = recording.ending.get(FINAL) if recording.observer.rank == FINAL_MODEL.rank else None
    if isinstance(final, np.ndarray):
        return [torch.from_numpy(final).double().unsqueeze(0)]
    return recording.releases


def rows_of(recording: Recording, client: int) -> Tensor:
    """Return the releases of a client, or the sums, ``(rounds, d)``; if only the final model is observed, one round."""
    if recording.senders is None:
        return torch.stack([release[0] for release in _released(recording)])
    if client not in recording.senders:
        raise NotCheckable("an additional client adds a report together with noise, and the two cannot be separated")
    place = recording.senders.index(client)
    return torch.stack([release[place] for release in recording.releases])
