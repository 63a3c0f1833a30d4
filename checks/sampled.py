"""Compare how far and how often one unit moves a release with the noise law, while cohorts and lots are sampled.

Runs with equal draws that differ in one unit show in which rounds its row was used, and how far it moved the release in
every single cohort and lot. The row of each round lies in coordinates of its own, so that what is left of earlier
rounds (momentum, delays) is not taken for another use.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import binom, chi2, hypergeom
from torch import Tensor
from torch.nn.functional import one_hot

from ..audit.arrays import BoolArray, FloatArray, IntArray
from ..audit.check import AS_SAMPLED, ONCE, PARTICIPATION, UNUSED, CheckResult
from ..audit.claim import Adjacency, Unit
from ..audit.ledger import SUITE
from ..audit.observer import SHUFFLED
from ..audit.wording import plain
from ..fl.hooks import overrides
from ..fl.laws import GaussianLaw, Law
from ..fl.plan import Plan
from ..fl.replay import ReplayedStreams, unequal_stream
from ..fl.rounds import Round, given_lots
from ..fl.sampling import Epoch, Full, Poisson, lot_indices
from .given_rows import (
    ABSENT,
    OPPOSITE,
    PLACES,
    PRESENT,
    ZERO,
    HookRun,
    HookSetup,
    ProposedRows,
    Surroundings,
    unit_vectors,
)
from .law import NotCheckable, law_check
from .measured import Direction, Ratio, bound_of, check_stated, hold, rate_of, stated_rate, states_gaussian, steps_of
from .neighbours import other_inputs, other_labels
from .noise_sample import spacing
from .release_form import Shown, seen_laws
from .setup import SeenLaws

_SLACK, _ROUNDING = 1e-3, 2.0**-20
_MANY, _UNITS = 2048, 16
"""Cohorts that are drawn to compare clients with each other, and clients or samples that are compared."""
_LOTS, _FEWEST_LOTS, _NUMBERS_OF_LOTS = 512, 128, 2**23
"""Lots of a round that are drawn to compare samples, at most and at least, and numbers of their rows, at most."""
_GARBAGE = 1e3
"""Length in clip norms of rows that are in no lot."""
_CORRELATED = 8.0
"""Standard errors from which the noise of two rounds counts as dependent."""
_LEAST_SENT = 8
"""Runs that sent a pair of rounds, from which their noise is compared."""
_SCATTER, _SHIFTS = 32, 8
"""Runs of noise and runs of rows from which their ratio is measured without a law."""
_CLEAR, _BATCHES = 0.5, 8
"""Share of the shift over noise that its lower bound must reach, and batches of runs from which it is measured else."""
_THINNED = 16
"""Batches of runs in which rows are counted that must be used less often than the plan samples them."""
_DOUBTFUL = 1e-3
"""Chance of what was counted, at most, below which more runs are made to count it again."""
_DITHER, _ROUNDED = 1.0, 8
"""Steps of a grid from which noise makes errors of rounding independent, and runs whose errors are averaged."""
_EXACT_ZERO = 2.0**-22
"""Chance, at most, that a normal number of single precision is exactly zero."""
_MARGIN = 1.1
"""Share by which a measured number of a whole sample may exceed the law's."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled:
    """Four runs in each replica: with and without the unit, and the other rows either drawn or zero."""

    setup: HookSetup
    around: Surroundings
    further: Callable[[int], "Sampled"] | None = None
    """Other runs in surroundings of their own, by their number from 1."""

    @property
    def base(self) -> str:
        """What takes the unit's place in runs without it: nothing under add/remove if the observer cannot see that a
        row is missing, otherwise a row of zeros.
        """
        claim = self.setup.claim
        seen = claim.observer.rank >= SHUFFLED.rank and claim.unit is not Unit.SAMPLE
        return ABSENT if claim.adjacency is Adjacency.ADD_REMOVE and not seen else ZERO

    @cached_property
    def runs(self) -> tuple[HookRun, HookRun, HookRun, HookRun]:
        """The four runs: with the unit and without it among other rows, and with a row of zeros and without it among
        zeros.
        """
        return self._runs(0)

    def _runs(self, noise: int) -> tuple[HookRun, HookRun, HookRun, HookRun]:
        run = partial(self.setup.run, self.around, noise=noise)
        alone = run(ZERO, data=False)
        empty = alone if self.base == ZERO else run(self.base, data=False)
        return run(PRESENT), run(self.base), alone, empty

    @cached_property
    def releases(self) -> list[Tensor]:
        return self._releases(self.runs)

    def _releases(self, runs: Sequence[HookRun]) -> list[Tensor]:
        return [run.releases(self.setup.claim, self.around.holders) for run in runs]

    @cached_property
    def unequal(self) -> str:
        """The random stream from which runs with and without the unit drew different amounts; empty if there is
        none.
        """
        within, without, alone, empty = (run.consumed for run in self.runs)
        return unequal_stream(within, without, self.around.rounds) or unequal_stream(alone, empty, self.around.rounds)

    @cached_property
    def moved(self) -> Tensor:
        """The change of each release because of the unit's row, ``(R, T, d)``, without the effect of the unit's mere
        presence on the noise.
        """
        return _moved(self.releases, absent=self.base == ABSENT)

    @cached_property
    def step(self) -> float:
        """The spacing of the values that released numbers can take, as observed; 0 for numbers of full precision."""
        return _step_of(self.releases[0])

    @cached_property
    def reach(self) -> Tensor:
        """A lower bound on how far each round's row moved the releases of all rounds, ``(R, rows of rounds,
        releases)``: the observed move minus the effect of rounding after the noise.

        Noise that is larger than the step makes errors of rounding independent and zero on average. Each moves a number
        by less than a step, so that their sum along a direction is bounded by Hoeffding's inequality; runs of other
        noise lower it further.
        """
        parts, size = self.around.parts[:-1], self.step
        norms = torch.stack([torch.linalg.vector_norm(self.moved[:, :, part], dim=-1) for part in parts], 1)
        if not size:
            return norms
        changed = torch.stack([(self.moved[:, :, part] != 0).sum(-1) for part in parts], 1)
        certain = (norms - size * changed.sqrt()).clamp_min(0)
        if self.laws is None or min(law.noise_std for law in self.laws) < _DITHER * size:
            return certain
        mean = torch.stack([self.moved, *(self._again(number) for number in range(1, _ROUNDED))]).mean(0)
        # A row of one round lies in coordinates of its own.
        along = torch.einsum("rtd,rud->rut", mean, self.around.directions).abs()
        error = size * math.sqrt(math.log(2 / SUITE.level("hooks", along.numel())) / 2 / _ROUNDED)
        return torch.maximum(certain, torch.where(changed > 0, along - error, 0.0).clamp_min(0))

    def _again(self, noise: int) -> Tensor:
        """The moves under other noise."""
        return _moved(self._releases(self._runs(noise)), absent=self.base == ABSENT)

    @property
    def _opposite(self) -> Tensor:
        """The moves by the unit's opposite rows."""
        within = self.setup.released(self.around, OPPOSITE)
        return _moved([within, *self.releases[1:]], absent=self.base == ABSENT)

    def proposed(self, run: int | np.integer[Any], words: str) -> ProposedRows:
        """Return the rows of one replica, for trials."""
        return ProposedRows(setup=self.setup, around=self.around, run=int(run), words=words)

    @property
    def longest(self) -> ProposedRows:
        """The rows, for trials, of the replica in which the unit moves releases furthest relative to its own length."""
        moved = self.moved.flatten(1).norm(dim=1) / self.around.units.flatten(1).norm(dim=1).clamp_min(1e-12)
        run = int(torch.where(self.around.long, moved, 0.0).argmax())
        return self.proposed(
            run, f"vectors of client {int(self.around.holders[run])} that are longer than the clip norm"
        )

    @property
    def noise(self) -> Tensor:
        """The releases in the runs in which all rows are zeros, ``(R, T, d)``."""
        return self.releases[2]

    @cached_property
    def silenced(self) -> Tensor:
        """Whether a release is exactly zero only because the unit is absent, ``(R, T)``, if this depends on who takes
        part and not on data.

        A noisy count may silence a round too: then a release is sometimes zero with a client, or not zero without one.
        """
        setup, around = self.setup, self.around
        again = [setup.released(around, arm, noise=1, data=False) for arm in (ZERO, self.base)]
        both = [self.releases[2:], again]
        cohorts = torch.stack(list(self.runs[2].cohort), dim=1)
        unit = cohorts[torch.arange(around.replicas), :, around.holders]
        lonely = unit & (cohorts.sum(-1) == 1)
        sent = [[(release != 0).any(-1) for release in pair] for pair in both]
        follows = all(
            bool((alone[unit].all()) & (~empty[lonely]).all() & empty[unit & ~lonely].all()) for alone, empty in sent
        )
        return lonely & follows & bool(lonely.sum() >= _LEAST_SENT)

    @cached_property
    def clean(self) -> bool:
        """Whether no row moves a coordinate in which this row and every row of an earlier round are zero."""
        parts = self.around.parts
        return all(
            not bool((self.moved[:, turn, parts[later]] != 0).any())
            for turn in range(self.around.rounds)
            for later in range(turn + 1, len(parts))
        )

    @cached_property
    def fresh(self) -> Tensor:
        """How far the vector of each round changed the release of that round, ``(R, T)``; the total change if the
        vectors of rounds cannot be separated.
        """
        if not self.clean:
            whole: Tensor = torch.linalg.vector_norm(self.moved, dim=-1)
            return whole
        parts = enumerate(self.around.parts[:-1])
        return torch.stack([torch.linalg.vector_norm(self.moved[:, turn, part], dim=-1) for turn, part in parts], dim=1)

    @cached_property
    def used(self) -> BoolArray:
        """Whether the unit's row of each round changed any release, ``(R, T)``."""
        parts = self.around.parts[:-1]
        found = [(self.moved[:, turn:, part] != 0).flatten(1).any(1) for turn, part in enumerate(parts)]
        return torch.stack(found, dim=1).numpy()

    @property
    def visible(self) -> bool:
        """Whether the adversary sees which clients take part."""
        observer = self.setup.claim.observer
        return observer.rank >= SHUFFLED.rank or observer.sees_participation

    @cached_property
    def counted(self) -> BoolArray:
        """The rounds in which a row may be used, ``(R, T)``. If the observer sees which clients take part, a sample
        may be used only in the rounds of its client.
        """
        around = self.around
        if not (self.visible and self.setup.claim.unit is Unit.SAMPLE):
            return np.ones((around.replicas, around.rounds), dtype=bool)
        cohorts = torch.stack(list(self.runs[0].cohort), dim=1)
        return cohorts[torch.arange(around.replicas), :, around.holders].bool().numpy()

    @cached_property
    def seen(self) -> SeenLaws:
        """The laws estimated from these runs, if the defense publishes none."""
        setup, holders = self.setup, range(self.setup.plan.clients)
        if setup.claim.delta == 0 or any(self._published(client) is not None for client in holders):
            return SeenLaws()
        shown = Shown(
            noise=self.runs[2].rows(setup.claim, setup.plan.clients),
            moved=self.moved,
            again=self._again(1),
            own=self.noise,
            rows=self.around.units,
            opposite=self._opposite if setup.claim.adjacency is Adjacency.REPLACE_ONE else None,
            alone=(self.around.others == 0).flatten(1).all(1),
            parts=self.around.parts,
            rounded=_step_of(self.releases[0]) > 0,
        )
        return seen_laws(shown, setup.claim, setup.plan, setup.protection, clip_norm=setup.length)

    def law(self, client: int) -> GaussianLaw | None:
        """Return the Gaussian law of a client's release, published or estimated, if the release can be compared with
        it.
        """
        law = self._published(client)
        if law is None:
            return self.seen.of(client)
        return law if isinstance(law, GaussianLaw) and not law.then and law.additive else None

    def _published(self, client: int) -> Law | None:
        return self.setup.protection.law(self.setup.claim.observer, self.setup.plan, client)

    @cached_property
    def laws(self) -> list[GaussianLaw] | None:
        """The law of the holder in each replica; None if one of them has none."""
        known = {client: self.law(client) for client in set(self.around.holders.tolist())}
        laws = [known[client] for client in self.around.holders.tolist()]
        return None if any(law is None for law in laws) else [law for law in laws if law is not None]


def _step_of(releases: Tensor) -> float:
    """The distance of the values that the numbers of releases ``(R, T, d)`` can take; 0 for full precision."""
    seen = [spacing(row.numpy()) for row in releases.flatten(0, 1)[:64] if bool(row.any())]
    # A release without noise takes few values too: rounding shows in all of them.
    return max(seen) if seen and min(seen) > 0 else 0.0


def _moved(releases: Sequence[Tensor], *, absent: bool) -> Tensor:
    """How the unit moved each release; ``absent``: whether the runs without it have one client less."""
    within, without, alone, empty = releases
    # A round that is skipped in one run alone shows all other rows, and not how far the unit moves them.
    sent = [(release != 0).any(-1, keepdim=True) for release in releases]
    same = (sent[0] == sent[1]) & (sent[2] == sent[3]) if absent else torch.ones_like(sent[0])
    return torch.where(same, within - without - (alone - empty), 0.0)


def sampled_checks(sampled: Sampled) -> Iterator[CheckResult]:
    """Check that in no drawn cohort or lot a unit moves a release further, or in more rounds, than the law states."""
    yield _of_equal_draws(sampled, _as_sampled(sampled))
    yield from _participation(sampled)
    yield from _by_data(sampled)
    yield from (_of_equal_draws(sampled, one) for one in _once(sampled))
    yield from _unused(sampled)


def _of_equal_draws(sampled: Sampled, result: CheckResult) -> CheckResult:
    """The result; not made where it failed, and other draws in runs with the unit may be the reason."""
    # Without a law a shift is told from noise by many runs, whatever they draw.
    if result.passed is not False or sampled.laws is None or not sampled.unequal:
        return result
    words = f"with the unit, the defense makes another number of draws from the random stream {sampled.unequal}"
    return CheckResult(name=result.name, passed=None, witness=words)


def _as_sampled(sampled: Sampled) -> CheckResult:
    """The largest shift of a release, and the largest shift over its noise, in what the law states."""
    laws = sampled.laws
    if laws is not None and not sampled.seen:
        return _by_law(sampled, laws)
    stated = states_gaussian(sampled.setup.claim) and not sampled.step
    found = (_coarse(sampled) if stated else None) or held_by_claim(sampled)
    if laws is None or found.passed is False:
        return found
    seen = sampled.seen.named(_by_law(sampled, laws))
    return seen if seen.passed is False else found


def _by_law(sampled: Sampled, laws: list[GaussianLaw]) -> CheckResult:
    setup = sampled.setup
    moved = sampled.fresh.numpy()
    first = np.array(sampled.runs[0].first_state)
    allowed = np.array([abs(law.scale) * law.clip_norm * law.steps for law in laws])[:, None]
    size = torch.linalg.vector_norm(sampled.releases[1], dim=-1).numpy()
    slack = _SLACK * allowed + _ROUNDING * size
    if ((moved > allowed + slack)[:, first]).any():
        # Numbers that are rounded after the noise was added move by one step more.
        changed = (sampled.moved != 0).sum(-1).numpy() ** 0.5
        slack = slack + changed * sampled.step
    share = np.where(first, moved / (allowed + slack), 0.0)
    run, turn = np.unravel_index(int(share.argmax()), share.shape)
    where = f"the vector of {_words(sampled, run, turn)}"
    shift = AS_SAMPLED.at_most(
        float(moved[run, turn]),
        float(allowed[run, 0]),
        unit="L2 norm",
        witness=where,
        slack=float(np.broadcast_to(slack, moved.shape)[run, turn]),
        proposal=sampled.proposed(run, where),
    )
    if shift.passed is False:
        return shift
    if (
        setup.claim.adjacency is Adjacency.ADD_REMOVE
        and sampled.base == ABSENT
        and not setup.claim.observer.sees_participation
    ):
        silenced = sampled.silenced.numpy() & first
        if silenced.any():
            run, turn = np.argwhere(silenced)[0]
            witness = f"{where.split(',')[0]}, round {turn}: without this vector the release is exactly zero"
            return AS_SAMPLED.failed(witness, 1.0, 0.0, unit="releases")
    if not sampled.step and (found := _bare(sampled, first) or _coarse(sampled)):
        return found
    if sampled.step and not sampled.clean:
        # How far a single run's release moved holds its rounding too, which nothing here tells from the move.
        return shift
    least = sampled.reach.diagonal(dim1=1, dim2=2).numpy() if sampled.step else moved
    return _over_noise(sampled, laws, least, allowed, first) or shift


def _bare(sampled: Sampled, first: BoolArray) -> CheckResult | None:
    """The failed check where a row moves numbers whose noise is exactly zero; None where it moves no more than chance
    gives in single precision.
    """
    sent = torch.from_numpy(first) & (sampled.noise != 0).any(-1)
    moved = (sampled.moved != 0) & sent.unsqueeze(-1)
    count, bare = int(moved.sum()), int((moved & (sampled.noise == 0)).sum())
    allowed = float(binom.isf(SUITE.level("hooks"), max(1, count), _EXACT_ZERO))
    if bare <= allowed:
        return None
    run, turn, place = (moved & (sampled.noise == 0)).nonzero()[0].tolist()
    witness = (
        f"among {count} numbers that one vector changes, those without noise, such as number {place} of "
        f"{_words(sampled, run, turn)}"
    )
    return AS_SAMPLED.failed(
        witness, float(bare), allowed, unit="numbers without noise", proposal=sampled.proposed(run, witness)
    )


def _coarse(sampled: Sampled) -> CheckResult | None:
    """The failed check where noise takes fewer values than releases do: the digits that it lacks are those of rows."""
    noise, releases = sampled.noise, sampled.releases[0]
    step = _step_of(noise)
    single = [bool((numbers == numbers.float().double()).all()) for numbers in (noise, releases)]
    if step:
        words = f"noise lies on a grid of step {step:.3g}"
    elif single == [True, False]:
        words = "noise has single precision"
    else:
        return None
    return AS_SAMPLED.failed(
        f"the {words} and the releases do not, so that these keep the last digits of the data",
        1.0,
        0.0,
        unit="releases with digits finer than those of the noise",
    )


def _over_noise(
    sampled: Sampled, laws: list[GaussianLaw], moved: FloatArray, allowed: FloatArray, first: BoolArray
) -> CheckResult | None:
    """The release whose shift over noise exceeds the law's by the most; None if none does."""
    stds = np.array([law.noise_std for law in laws])[:, None]
    if not (stds > 0).all():
        return None
    dim = sampled.noise.shape[-1]
    squares = sampled.noise.square().sum(-1).numpy() / stds**2
    counted = (moved > 0) & first
    if not counted.any():
        return None
    # Under the law the squares are chi-squared; where the noise is smaller, the shift must be smaller too.
    least = chi2.ppf(SUITE.level("hooks", moved.size), dim)
    steps = sampled.step / stds * dim**0.5
    ratio = np.where(counted, moved / allowed / ((np.sqrt(squares) + steps) / math.sqrt(least) + 1e-12), 0.0)
    run, turn = np.unravel_index(int(ratio.argmax()), ratio.shape)
    if ratio[run, turn] <= 1 + 2 * _SLACK:
        return None
    witness = (
        f"the noise has {math.sqrt(squares[run, turn] / dim):.3g} times the stated standard deviation, with the "
        f"vector of {_words(sampled, run, turn)}"
    )
    return AS_SAMPLED.failed(
        witness,
        float(ratio[run, turn]),
        1.0,
        unit="times the stated ratio of change to noise",
        proposal=sampled.proposed(run, witness),
    )


def _words(sampled: Sampled, run: int | np.intp, turn: int | np.intp) -> str:
    present = sampled.runs[0].cohort[int(turn)][int(run)]
    client = int(sampled.around.holders[int(run)])
    return f"client {client}, round {turn}, in a cohort of {int(present.sum())} of {len(present)} clients"


def held_by_claim(sampled: Sampled) -> CheckResult:
    """Return the check for a release without a law: it compares the ratio of shift to noise along each holder's rows,
    over many runs, with the claim.

    Noise is measured along the row of each round, whatever its weights share: its runs are independent.
    """
    setup, claim = sampled.setup, sampled.setup.claim
    try:
        check_stated(claim)
        rate, steps = rate_of(claim, setup.plan, setup.protection), steps_of(claim, setup.plan, setup.protection)
        shifts = [_shifts_of(sampled)]
        worst = _worst(shifts, setup.plan)
        found = hold(worst, claim, setup.plan, rate, steps)
        # Where equal draws do not cancel, a few runs do not tell the shift from the noise.
        if sampled.further is not None and found.passed and worst.each < _CLEAR * worst.true:
            shifts += [_shifts_of(sampled.further(number)) for number in range(1, _BATCHES)]
            worst = _worst(shifts, setup.plan)
            found = hold(worst, claim, setup.plan, rate, steps)
    except NotCheckable as reason:
        return AS_SAMPLED.skipped(str(reason))
    return replace(
        found,
        name=AS_SAMPLED,
        witness=f"in sampled runs, {worst.direction.words}, without a published distribution: {found.witness}",
        proposal=sampled.longest,
    )


class _Shifts(NamedTuple):
    """Shifts and noise of runs along two directions, ``(R, T)`` each, which rounds count, and holders ``(R,)``."""

    rows: tuple[Tensor, Tensor, BoolArray]
    others: tuple[Tensor, Tensor, BoolArray]
    holders: IntArray
    direction: Tensor


def _shifts_of(sampled: Sampled) -> _Shifts:
    around = sampled.around
    # Noise on the same rows: what is done with a release afterwards may depend on them.
    again = sampled.setup.released(around, sampled.base, noise=1)
    scattered = (again - sampled.releases[1]) / math.sqrt(2)
    # Rows within the clip norm move less.
    long = around.long.unsqueeze(1).expand(-1, around.rounds).numpy()
    others = around.others.sum(1, keepdim=True).expand_as(sampled.moved).double()
    used = (sampled.used if sampled.clean else np.ones_like(long)) & long
    found = []
    for unit, counted in ((around.directions, used), (unit_vectors(others), long & (others != 0).any(-1).numpy())):
        found.append(((sampled.moved * unit).sum(-1), (scattered * unit).sum(-1), counted))
    return _Shifts(rows=found[0], others=found[1], holders=around.holders.numpy(), direction=around.units[0, 0])


def _worst(shifts: Sequence[_Shifts], plan: Plan) -> Ratio:
    """The largest ratio of all runs together; of the first rounds of all passes where a unit comes once in each."""
    period = plan.cohort.rounds if isinstance(plan.cohort, Epoch) else 1
    holders = np.concatenate([one.holders for one in shifts])
    ratios = list[Ratio]()
    for parts, words in (
        ([one.rows for one in shifts], "along vectors"),
        ([one.others for one in shifts], "along the sum of all other vectors"),
    ):
        moved, noise = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        counted = np.concatenate([part[2] for part in parts])
        firsts = moved[:, ::period], noise[:, ::period], counted[:, ::period]
        for one in _ratios(holders, *firsts, shifts[0].direction, words):
            ratios.append(replace(one, rounds=min(one.rounds * period, plan.rounds)))
    if not ratios:
        raise NotCheckable("too few vectors were sampled in these runs")
    return max(ratios, key=lambda one: one.each)


def _ratios(
    holders: IntArray, moved: Tensor, noise: Tensor, counted: BoolArray, direction: Tensor, words: str
) -> Iterator[Ratio]:
    """The ratio of shift and noise of each holder, and of all together, over all rounds in which rows were used.

    Mean shifts over the root of the mean squared noise are no larger than the largest ratio of one holder.
    """
    # A round that is not sent holds no noise.
    whole = noise[(noise != 0).all(1)]
    if len(whole) < _SCATTER or len(torch.unique(whole)) < 0.9 * whole.numel():
        return
    groups = {f"client {client}": holders == client for client in sorted(set(holders.tolist()))}
    for name, here in {**groups, "all clients": np.ones(len(holders), dtype=bool)}.items():
        columns = [moved[here & counted[:, turn], turn] for turn in range(moved.shape[1])]
        few = min(map(len, columns))
        if few < _SHIFTS:
            continue
        own = noise[torch.from_numpy(here) & (noise != 0).all(1)]
        # Where each client adds noise of its own, only its own runs show it.
        own = own if len(own) >= _SCATTER else whole
        shift = torch.stack([column[:few] for column in columns], dim=1)
        each, true, error = bound_of(shift, own.T @ own / len(own), float(len(own)))
        yield Ratio(
            each=each,
            rounds=shift.shape[1],
            direction=Direction(values=direction, words=f"{words} of {name}"),
            true=true,
            error=error,
        )


def _participation(sampled: Sampled) -> Iterator[CheckResult]:
    """How often rows are used, given what happened to the unit in earlier rounds, at the rate of the claim."""
    rates = {client: _rate(sampled, client) for client in sorted(set(sampled.around.holders.tolist()))}
    if not any(rate < 1 for rate in rates.values()):
        return
    if not sampled.clean:
        yield PARTICIPATION.skipped(
            "under equal random draws one vector also changes other numbers, so that noise does not cancel"
        )
        return
    counted = _counts(sampled, rates)
    thinned = any(rate < _rate_of_plan(sampled, client) for client, rate in rates.items())
    numbers = range(1, _THINNED if thinned else _BATCHES)
    others = [] if sampled.further is None else [partial(sampled.further, number) for number in numbers]
    if thinned:
        # Hooks must leave out what the plan samples, which few runs cannot show.
        for more in _counts_of(others, rates):
            counted = {words: one + more[words] if words in more else one for words, one in counted.items()}
        others = []
    words, worst = min(counted.items(), key=lambda one: one[1].chance)
    # Half of the level for what these runs show, half for one hypothesis that they raised, on fresh runs.
    limit = SUITE.level("hooks", 2 * len(counted))
    if limit <= worst.chance < _DOUBTFUL and others:
        fresh = replace(worst, hits=0, count=0, chosen=0)
        for more in _counts_of(others, rates):
            fresh = fresh + more[words] if words in more else fresh
        worst, limit = (fresh, SUITE.level("hooks", 2)) if fresh.chance < SUITE.level("hooks", 2) else (worst, limit)
    result = CheckResult(
        name=PARTICIPATION,
        passed=worst.chance >= limit,
        measured=worst.hits / max(1, worst.count),
        allowed=worst.rate,
        unit="share of rounds",
        relation="<=" if worst.hits >= worst.rate * worst.count else ">=",
        witness=f"{words}: in {worst.hits} of {worst.count}, which has probability {worst.chance:.2g} at the "
        "claimed rate",
    )
    if result.passed:
        together = _together(sampled)
        # A share above the rate is no fault in itself, within chance.
        result = together or replace(result, measured=min(result.measured or 0.0, worst.rate))
    yield result


def _counts_of(others: Sequence[Callable[[], Sampled]], rates: Mapping[int, float]) -> Iterator[dict[str, "_Uses"]]:
    """The uses in other runs, but for those whose rows are not separable."""
    for other in others:
        again = other()
        if again.clean:
            yield _counts(again, rates)


def _rate(sampled: Sampled, client: int) -> float:
    """The chance that a row is used in a round, where the claim would not hold if it always were; else 1."""
    claim, plan = sampled.setup.claim, sampled.setup.plan
    law = sampled.law(client)
    if law is None:
        stated = stated_rate(claim)
        return _of_steps(stated if stated is not None and 0 < stated <= 1 else 1.0, sampled)
    if law.rate >= 1:
        return 1.0
    full = replace(plan, cohort=Full())
    always = law_check(replace(law, rate=1.0), claim, full)
    return _of_steps(law.rate, sampled) if any(one.passed is False for one in always) else 1.0


def _rate_of_plan(sampled: Sampled, client: int) -> float:
    """The chance that a row is used in a counted round where no hook leaves anything out, less rounding."""
    claim, plan = sampled.setup.claim, sampled.setup.plan
    cohort = 1.0 if sampled.visible else plan.cohort_rate
    return (1 - _SLACK) * (
        cohort * _of_steps(plan.lot.rate(plan.sizes[client]), sampled)
        if claim.unit is Unit.SAMPLE
        else plan.cohort_rate
    )


def _of_steps(rate: float, sampled: Sampled) -> float:
    steps = sampled.setup.plan.algorithm.local_steps if sampled.setup.claim.unit is Unit.SAMPLE else 1
    return 1 - (1 - rate) ** steps


@dataclass(frozen=True, kw_only=True)
class _Uses:
    """How often a row was used, among how many times, where ``rate`` is the largest chance of each.

    Args:
        chosen: how many times there were in all, where any number of them may have been chosen by outcomes; 0 where
            none was.
    """

    hits: int
    count: int
    rate: float
    chosen: int = 0

    @property
    def chance(self) -> float:
        """An upper bound on the probability of at least so many uses."""
        if not self.hits:
            return 1.0
        return min(1.0, max(1, self.chosen) * float(binom.sf(self.hits - 1, self.count, self.rate)))

    def __add__(self, other: "_Uses") -> "_Uses":
        return replace(
            self,
            hits=self.hits + other.hits,
            count=self.count + other.count,
            chosen=self.chosen + other.chosen,
        )


def _counts(sampled: Sampled, rates: Mapping[int, float]) -> dict[str, _Uses]:
    """The uses of rows by client, round, place in the lot and history, in words."""
    found, cohort = dict[str, _Uses](), sampled.setup.plan.cohort
    for client, rate in rates.items():
        held = (sampled.around.holders == client).numpy()
        used, counted = sampled.used[held], sampled.counted[held]
        if rate < 1:
            found |= {f"client {client}, {words}": one for words, one in _histories(used, counted, rate, cohort)}
            for kind, words in enumerate(PLACES if sampled.setup.claim.unit is Unit.SAMPLE else ()):
                there = (sampled.around.kinds == kind).numpy() & held
                of_kind = sampled.used[there][sampled.counted[there]]
                found[f"client {client}, {words}"] = _Uses(hits=int(of_kind.sum()), count=of_kind.size, rate=rate)
    if len(set(rates.values())) == 1:
        rate = next(iter(rates.values()))
        found |= {
            f"all clients, {words}": one for words, one in _histories(sampled.used, sampled.counted, rate, cohort)
        }
    return found


def _histories(used: BoolArray, counted: BoolArray, rate: float, cohort: object) -> Iterator[tuple[str, _Uses]]:
    """Uses in rounds that follow a given history, in words; ``counted``: rounds in which the row may be used.

    Given any history the row is used with probability ``rate`` at most, so that the number used is at most binomial.
    Where rounds of several histories are counted together, any number of them may have been chosen by their outcome.
    """

    def uses(picked: BoolArray, chosen: int = 0) -> _Uses:
        return _Uses(hits=int(picked.sum()), count=picked.size, rate=rate, chosen=chosen)

    yield "all rounds", uses(used[counted])
    rounds = used.shape[1]
    for turn in range(rounds):
        yield f"round {turn}", uses(used[counted[:, turn], turn])
    # The rounds of one pass depend on each other by design.
    if isinstance(cohort, Epoch):
        return
    for lag in range(1, rounds):
        before, after, may = used[:, :-lag], used[:, lag:], counted[:, lag:]
        for state, words in ((True, "sampled"), (False, "not sampled")):
            yield f"{lag} rounds after it was {words}", uses(after[may & (before == state)], after.size)
    for turn in range(1, rounds):
        never = ~used[:, :turn].any(1)
        yield f"round {turn}, if not sampled in earlier rounds", uses(used[never & counted[:, turn], turn])


def _together(sampled: Sampled) -> CheckResult | None:
    """The failed check where units are drawn together, or again, though their claim counts on independent coins, by
    Fisher's exact test; None where they are not, or may be.
    """
    setup, plan = sampled.setup, sampled.setup.plan
    of_sample = setup.claim.unit is Unit.SAMPLE
    rule = plan.lot if of_sample else plan.cohort
    # Where a unit is added or removed, amplification by sampling rests on independent coins.
    added = isinstance(rule, Full) and setup.claim.adjacency is Adjacency.ADD_REMOVE
    rests = isinstance(rule, Poisson) or (added and any(_rate(sampled, one) < 1 for one in range(plan.clients)))
    thrown = of_sample or overrides(setup.protection, "participates") or type(rule) is not Poisson
    drawn = (_samples_drawn(sampled) if of_sample else _clients_drawn(sampled)) if rests and thrown else []
    if not drawn:
        return None
    runs, pairs = len(drawn[0][1]), list(_pairs_of(drawn, "sample" if of_sample else "client"))
    limit = SUITE.level("hooks", len(pairs)) / 2
    counts = np.array([(int((one & two).sum()), int(one.sum()), int(two.sum())) for one, two, _ in pairs])
    law = runs, counts[:, 1], counts[:, 2]
    tails = np.minimum(hypergeom.sf(counts[:, 0] - 1, *law), hypergeom.cdf(counts[:, 0], *law))
    worst = int(np.argmin(tails))
    if tails[worst] >= limit:
        return None
    # Of independent coins, and how far from it chance reaches on the side of what was seen.
    both, first, second = (int(count) for count in counts[worst])
    expected = first * second / runs
    found = hypergeom(runs, first, second)
    reached = float(found.isf(limit) if both > expected else found.ppf(limit))
    return PARTICIPATION.failed(
        f"{pairs[worst][2]} are not sampled independently: the share of {runs} runs with both differs from that of "
        f"independent sampling, probability {min(1.0, 2 * float(tails[worst])):.2g}",
        abs(both - expected) / runs,
        abs(reached - expected) / runs,
        unit="share of runs",
    )


def _pairs_of(drawn: "_Drawn", name: str) -> Iterator[tuple[BoolArray, BoolArray, str]]:
    """Pairs of events ``(R,)`` that are independent where all coins are: two units in the same or in two rounds, and
    a unit and many of all others.
    """
    columns = [(turn, unit, one[:, place]) for turn, one, units in drawn for place, unit in enumerate(units)]
    for number, (turn, unit, one) in enumerate(columns):
        for later, other, two in columns[number + 1 :]:
            yield one, two, f"{name} {unit} in round {turn} and {name} {other} in round {later}"
    for turn, all_of_them, units in drawn:
        for place, unit in enumerate(units):
            others = np.delete(all_of_them, place, axis=1).sum(1)
            yield all_of_them[:, place], others > np.median(others), f"{name} {unit} and others in round {turn}"


_Drawn = list[tuple[int, BoolArray, list[int]]]
"""A round, which units were drawn in it, ``(R, units)``, and their numbers."""


def _clients_drawn(sampled: Sampled) -> _Drawn:
    setup, clients = sampled.setup, list(range(min(sampled.setup.plan.clients, _UNITS)))
    rounds = setup.rounds(ReplayedStreams(setup.seed, 1), None, _MANY)
    opened = rounds.each(min(3, sampled.around.rounds), model=setup.model(_MANY))
    return [(turn.number, turn.cohort.numpy()[:, clients], clients) for turn in opened]


def _samples_drawn(sampled: Sampled) -> _Drawn:
    """Which samples of the largest client its steps use: each has a row along a weight of its own, and runs with rows
    of zeros have the same noise. None where more than the rows differs.
    """
    setup, plan = sampled.setup, sampled.setup.plan
    client, size, dim = int(np.argmax(plan.sizes)), max(plan.sizes), plan.layout.dim
    held = list(dict.fromkeys([*range(min(size, _UNITS - 4)), *np.linspace(0, size - 1, 4).astype(int).tolist()]))
    steps = plan.algorithm.local_steps
    runs = min(_LOTS, int(_NUMBERS_OF_LOTS / (1 + plan.lot.rate(size) * size) / dim / steps))
    if dim <= size or runs < _FEWEST_LOTS:
        return []

    def updates(length: float) -> Iterator[Tensor]:
        def lot(turn: Round, _: int, step: int) -> tuple[Tensor, Tensor]:
            drawn, real = lot_indices(plan.lot.draw(turn.generator("lot", client=client, step=step), runs, size))
            return length * one_hot(drawn, dim).float(), real

        rounds = setup.everyone.rounds(ReplayedStreams(setup.seed, 1), given_lots(lot), runs, (client,))
        for turn in rounds.each(min(3, sampled.around.rounds), model=setup.model(runs)):
            yield turn.updates.values[:, 0].double()

    found: _Drawn = []
    # One run after the other: a rule or a hook may keep something between rounds.
    both = [list(updates(length)) for length in (setup.length / 2, 0.0)]
    for turn, (own, zeros) in enumerate(zip(*both, strict=True)):
        moved = own != zeros
        if bool(moved[:, size:].any()):
            return []
        found.append((turn, moved[:, held].numpy(), held))
    return found


def _by_data(sampled: Sampled) -> Iterator[CheckResult]:
    """Whether who takes part, by the hook ``participates``, depends on the samples of one client."""
    setup, around = sampled.setup, sampled.around
    if not overrides(setup.protection, "participates"):
        return
    holder = int(around.holders[0])
    part = setup.task.parts[holder]
    task = other_labels(other_inputs(setup.task, part), part)
    other = replace(setup, task=task).run(around, ZERO, data=False)
    changed = torch.stack([a != b for a, b in zip(other.cohort, sampled.runs[2].cohort, strict=True)]).any(0).any(0)
    # A client may choose for itself, as long as no claim rests on the chance that it is chosen.
    changed[holder] &= _rate(sampled, holder) < 1
    if bool(changed.any()):
        client = int(changed.nonzero()[0])
        witness = f"the data of client {holder} change the rounds in which client {client} takes part"
        yield PARTICIPATION.failed(witness, 1.0, 0.0, unit="cohorts")


def _once(sampled: Sampled) -> Iterator[CheckResult]:
    """The shift of all rounds' releases by the row of one round, over their noise, given each other."""
    laws, around = sampled.laws, sampled.around
    if laws is None or around.rounds < 2 or not sampled.clean or not all(law.noise_std > 0 for law in laws):
        return
    if not (sampled.noise != 0).any():
        return
    shares = [abs(law.scale) * law.clip_norm * law.steps / law.noise_std for law in laws]
    stds = torch.tensor([law.noise_std for law in laws], dtype=torch.float64).view(-1, 1, 1)
    noise = sampled.noise / stds
    # A round that is skipped in a run holds neither noise nor a row.
    sent = (noise != 0).any(-1).double()
    count = sent.T @ sent
    if count.min() < _LEAST_SENT:
        return
    covariance = torch.einsum("rtd,rsd->ts", noise, noise) / count / noise.shape[-1]
    # In standard deviations of the law.
    reach = sampled.reach / stds
    lost, whitened = _whitened(covariance, reach)
    each = whitened / torch.tensor(shares, dtype=torch.float64).view(-1, 1)
    worst = int(each.argmax())
    run, row = divmod(worst, around.rounds)
    witness = (
        f"the vector of client {int(around.holders[run])} in round {row}, seen in the releases of all "
        f"{around.rounds} rounds"
    )
    if bool(lost.any()):
        run = int(lost.flatten().nonzero()[0]) // around.rounds
        witness = f"a vector of client {int(around.holders[run])} changes releases in a direction without noise"
        yield ONCE.failed(witness, 1.0, 0.0, unit="shifts without noise", proposal=sampled.proposed(run, witness))
        return
    measured = float(each.flatten()[worst])
    deviations = covariance.diagonal().clamp_min(1e-300).sqrt()
    correlation = (covariance / deviations.outer(deviations)).fill_diagonal_(0).abs().max()
    if measured > _MARGIN and float(correlation) > _CORRELATED / math.sqrt(float(count.min()) * noise.shape[-1]):
        # Correlated noise is a mechanism of its own: only what the claim states counts.
        total = float(whitened.square().sum(1).max().sqrt()) if min(law.rate for law in laws) == 1 else None
        law = GaussianLaw(clip_norm=total or float(whitened.max()), scale=1.0, noise_std=1.0, rate=1.0)
        full = replace(sampled.setup.plan, cohort=Full())
        found = law_check(law, sampled.setup.claim, full, rounds=1)[0]
        words = f"{witness}, where noise depends on other rounds: {found.witness}"
        yield replace(found, name=ONCE, witness=words, proposal=sampled.proposed(run, witness))
        return
    yield ONCE.at_most(
        measured,
        1.0,
        unit="times the stated ratio of change to noise",
        witness=witness,
        slack=_MARGIN - 1,
        proposal=sampled.proposed(run, witness),
    )


def _whitened(covariance: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Which shifts lie outside of the noise, and the size of each in standard deviations of the noise, ``(R, T)``."""
    values, vectors = torch.linalg.eigh(covariance)
    kept = values > 1e-6 * values.max()
    along = reach @ vectors
    size = torch.linalg.vector_norm(reach, dim=-1)
    lost = torch.linalg.vector_norm(along[..., ~kept], dim=-1) > 1e-2 * size.clamp_min(1e-12)
    return lost & (size > 0), (along[..., kept].square() / values[kept]).sum(-1).sqrt()


def _unused(sampled: Sampled) -> Iterator[CheckResult]:
    """Whether rows of samples that are in no lot change a release."""
    setup = sampled.setup
    sampling = min(setup.plan.lot.rate(size) for size in setup.plan.sizes) < 1
    if setup.claim.unit is not Unit.SAMPLE or not setup.protection.per_sample or not sampling:
        return
    laws = sampled.laws
    length = _GARBAGE * (laws[0].clip_norm if laws else 1.0)
    other = setup.released(sampled.around, sampled.base, garbage=length)
    before = sampled.releases[1]
    moved = torch.linalg.vector_norm(other - before, dim=-1)
    share = float((moved / torch.linalg.vector_norm(before, dim=-1).clamp_min(1e-12)).max())
    witness = f"samples of {plain(_GARBAGE)} clip norms that no lot contains; change as a share of the release"
    yield UNUSED.at_most(share, 0.0, unit="share of the release", witness=witness, slack=1e-4)
