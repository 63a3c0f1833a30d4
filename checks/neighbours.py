"""Pairs of neighbouring inputs of a federation whose model never changes, each with a description of both runs in
words.

A pair is run twice with equal random draws, and everything that an observer receives is recorded. What is compared in
the two recordings is for other modules; here stand the choices of what the unit is, of what surrounds it, and the other
data on which noise is tested again: short and very long gradients of the shortest and the longest input, one class,
lots without a sample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import torch
from torch import Tensor

from ..audit.claim import HELD_BY_CLIENTS, Adjacency, Claim, Unit
from ..audit.observer import FINAL_MODEL, SHUFFLED
from ..fl.canary import Canary
from ..fl.channels import changes_broadcast
from ..fl.laws import GaussianLaw, ReportLaw
from ..fl.layout import Layout
from ..fl.plan import Plan
from ..fl.protection import Protection
from ..fl.replay import (
    DrawAll,
    FixedGradients,
    FrozenFederation,
    ManyRuns,
    Recording,
    ReplayedStreams,
    frozen_federation,
    replay_many,
)
from ..fl.sampling import Full
from ..fl.streams import Streams, normal
from ..fl.task import Task
from .canaries import absent_row, against_others, clients_of_user, user_shapes
from .noise_sample import spacing
from .setup import ClaimSetup, SeenLaws

_CLIENTS, _DRAWS = 16, 3
"""Clients that are checked one by one at most, spread over their sizes; and runs of different noise."""
FEW = 4
"""A federation of so few clients gets every row at every client, in all rounds."""
BRIEF = 2
"""Rounds in which further clients are checked; the state of the second round shows what the first one left."""
_NUMBERS = 2**22
"""Numbers stored of one run at most: a large model is checked in fewer rounds than the claim covers, three at least."""
_STEEP = 10.0
"""Length of all real gradients in clip norms, at least: else a real row that is not clipped could not show."""
_QUIET, _SHORT = 1e-3, 1e-2
"""Factors of the real gradients, so that no clip shortens them, and of the row that replaces a long one."""
_COUNTED = 256
"""Number of the noise of the first runs in which events are counted: other runs have lower ones."""
_LAYERS = 4
"""Layers that get a row of their own at most."""
LENGTHS = (10.0, 1e4, 0.1)
"""Canaries in clip norms: the audit's own, one that outweighs all other rows, for clips of a mean or a lot, and one
that no clip shortens.
"""
_REPLACED = (
    (Unit.REPORT, Adjacency.REPLACE_ONE),
    (Unit.CLIENT, Adjacency.REPLACE_ONE),
    (Unit.CLIENT, Adjacency.ZERO_OUT),
)
"""Units of which a client stays in the federation when its row is replaced."""
PLANTED = (Unit.SAMPLE, Unit.CLIENT, Unit.REPORT)
_GROUPS = 2
"""Groups of clients that hold the samples of a planted user in turn."""
_PARTIAL = 3
"""Clients that are checked with cohorts and lots as sampled."""
_SLACK, _ROUNDING = 1e-3, 2.0**-22
"""Allowed excess: a share of the limit, and float32 rounding as a share of the numbers compared."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """The inputs of one run: ``canary`` with the unit (``arm`` 1) or without it, and optionally ``task`` in place of
    the usual data.
    """

    canary: Canary | None = None
    arm: int = 0
    task: Task | None = None


NOTHING = Inputs()
"""The federation as it is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ReplaySetup(ClaimSetup):
    """A federation that is run repeatedly; runs share all random draws except those that a check changes."""

    rounds: int
    seen: SeenLaws = field(default_factory=SeenLaws)

    @property
    def still(self) -> FrozenFederation:
        """The federation that is run, with a model that does not change."""
        return FrozenFederation(task=self.task, plan=self.plan, rounds=self.rounds)

    def _given(self, inputs: Inputs) -> FrozenFederation:
        return self.still if inputs.task is None else replace(self.still, task=inputs.task)

    def run(self, inputs: Inputs = NOTHING, *, noise: int = 0, rounds: int | None = None) -> Recording:
        """Run the federation once and return what was recorded."""
        (recording,) = self.run_many(1, inputs, noise=noise, rounds=rounds)
        return recording

    def run_many(
        self, replicas: int, inputs: Inputs = NOTHING, *, noise: int = 0, rounds: int | None = None
    ) -> list[Recording]:
        """Run the federation in several replicas at once, which differ only in their noise; return one recording of
        each.
        """
        return replay_many(
            self._given(inputs),
            self.protection,
            self.claim.observer,
            seed=self.seed,
            noise=noise,
            canary=inputs.canary,
            arm=inputs.arm,
            rounds=rounds,
            replicas=replicas,
        )

    def many(self, replicas: int, inputs: Inputs, *, noise: int, rounds: int = 2) -> ManyRuns:
        """Run the first rounds in many replicas at once, with noise that no other run shares."""
        found = ManyRuns(observer=self.claim.observer, replicas=replicas)
        self._given(inputs).run(
            self.protection,
            ReplayedStreams(self.seed, _COUNTED + noise),
            [found],
            canary=inputs.canary,
            arm=inputs.arm,
            rounds=min(rounds, self.rounds),
            replicas=replicas,
        )
        return found

    def law(self, sender: int) -> GaussianLaw | None:
        """Return the noise distribution of what this client releases; None if it is not Gaussian."""
        law = self.protection.law(self.claim.observer, self.plan, sender)
        if law is None:
            return self.seen.of(sender)
        return law if isinstance(law, GaussianLaw) and not law.then else None

    @property
    def no_law(self) -> str:
        """The reason why the release cannot be compared with a Gaussian law, if ``law`` is None."""
        law = self.protection.law(self.claim.observer, self.plan, self.holder)
        if isinstance(law, GaussianLaw) and law.then:
            return f"the noised release is post-processed ({law.then})"
        return "the defense publishes no Gaussian noise distribution for this adversary"

    @property
    def drawn(self) -> bool:
        """Whether each client's report is a random draw from a published distribution."""
        return isinstance(self.protection.law(self.claim.observer, self.plan, 0), ReportLaw)

    @cached_property
    def unaccepted(self) -> str:
        """The reason why the defense does not run with one client more than the plan has; empty if the defense runs."""
        row = torch.zeros(self.plan.layout.dim)
        canary = Canary(unit=Unit.REPORT, present=row, absent=row)
        try:
            self.protection.law(self.claim.observer, self.plan, self.plan.clients)
            self.run(Inputs(canary=canary), rounds=1)
        except Exception as problem:  # A hook of a foreign defense may raise anything.
            return f"{type(problem).__name__}: {problem}"
        return ""

    @property
    def holder(self) -> int:
        """The client whose noise distribution (law) is used before any row is planted."""
        return 0 if self.claim.unit in HELD_BY_CLIENTS or self.unaccepted else self.plan.clients

    @cached_property
    def draws(self) -> list[Recording]:
        """Runs without a canary that differ only in their noise."""
        return [self.run(noise=number) for number in range(_DRAWS)]

    @cached_property
    def extended(self) -> list[Recording]:
        """Runs that differ only in their noise, with an additional client that sends its row without the canary."""
        row = self.length * LENGTHS[0] * _unused(self.plan.layout.dim)
        canary = Canary(unit=self.claim.unit, present=row, absent=self.absent(row))
        return [self.run(Inputs(canary=canary), noise=number) for number in range(_DRAWS)]

    @property
    def sampled(self) -> "ReplaySetup":
        """The same federation, with cohorts and lots drawn by the plan instead of complete ones."""
        cohort, lot = (rule.rule if isinstance(rule, DrawAll) else rule for rule in (self.plan.cohort, self.plan.lot))
        return replace(self, plan=replace(self.plan, cohort=cohort, lot=lot))

    @cached_property
    def quiet(self) -> "ReplaySetup":
        """The same federation with shorter real rows, none of which is clipped, so that a planted row is the
        longest.
        """
        return replace(self, task=steeper(self.task, _QUIET))

    @property
    def several_reports(self) -> bool:
        """Whether a user's samples enter the reports of several clients, and the adversary receives these reports one
        by one.
        """
        return self.claim.observer.rank >= SHUFFLED.rank and clients_of_user(self.claim, self.plan) > 1

    @property
    def adds_to_sum(self) -> bool:
        """Whether the claim adds or removes a client, and the adversary receives sums."""
        added = (self.claim.unit, self.claim.adjacency) == (Unit.CLIENT, Adjacency.ADD_REMOVE)
        return added and self.claim.observer.rank < SHUFFLED.rank

    @cached_property
    def brings_noise(self) -> bool:
        """Whether a client that is added to a sum, or removed from it, adds or removes a share of the noise."""
        place = self.checked_clients[0] if self.unaccepted else None
        canary = Canary(unit=Unit.CLIENT, present=torch.zeros(self.plan.layout.dim), place=place)
        arms = [Inputs(canary=canary, arm=arm) for arm in (0, 1)]
        # (noise, without and with the client) of one round
        runs = [[self.run(arm, noise=noise, rounds=1).releases[0] for arm in arms] for noise in (0, 1)]
        (without, added), (without_too, added_too) = runs
        moved = (added - without) - (added_too - without_too)
        return bool((moved.abs() > 4 * _ROUNDING * added.abs().max()).any())

    def absent(self, row: Tensor) -> Tensor | None:
        """Return what a client sends without its planted row, such that equal random draws cancel in the difference of
        two runs.
        """
        if self.claim.adjacency is Adjacency.ADD_REMOVE and self.brings_noise:
            return torch.zeros_like(row)
        return absent_row(row, self.claim.adjacency)

    @property
    def brief(self) -> int | None:
        """The number of rounds in which clients after the first are checked; None means all rounds."""
        # An observer of the final model receives nothing before the last round.
        return None if self.claim.observer.rank == FINAL_MODEL.rank else min(BRIEF, self.rounds)

    @property
    def checked_clients(self) -> list[int]:
        """The clients at which rows are planted: all of them, or the largest, the smallest and random ones, in this
        order.
        """
        sizes = self.plan.sizes
        order = sorted(range(len(sizes)), key=lambda client: (-sizes[client], client))
        first = [order[0], *order[:0:-1][:1]]
        rest = [client for client in range(len(sizes)) if client not in first]
        drawn = Streams(self.seed).generator("probe clients").permutation(len(rest))
        return [*first, *(rest[place] for place in drawn)][:_CLIENTS]

    @cached_property
    def one_sample(self) -> "ReplaySetup | None":
        """The federation in which all samples are equal, so that their gradients add up; None if samples are mixed in a
        batch.
        """
        if self.task.network.mixes:
            return None
        first = int(self.task.parts[0][0])
        images, labels = (one[first : first + 1].expand_as(one) for one in (self.task.images, self.task.labels))
        return replace(self, task=replace(self.task, images=images, labels=labels))


def replay_setup(
    task: Task,
    plan: Plan,
    protection: Protection,
    claim: Claim,
    *,
    seed: int = 0,
    seen: SeenLaws | None = None,
    moving: bool = False,
) -> ReplaySetup:
    """Build the federation that is run repeatedly: its gradients never change, and every client takes part with all its
    samples.

    Args:
        seen: the laws that runs of the hooks show where none is published.
        moving: whether the server's model moves by the aggregates; it does where the defense changes what is broadcast.
    """
    length = ClaimSetup(task=task, plan=plan, protection=protection, claim=claim, seed=seed).length
    # A gradient is clipped, or an update, which is gradients times the learning rate.
    scale = 1.0 if claim.unit is Unit.SAMPLE else abs(plan.algorithm.linear_scale or 1.0)
    rounds = min(claim.rounds, max(3, _NUMBERS // (plan.clients * plan.layout.dim)))
    moving = moving or changes_broadcast(protection)
    steepness = _STEEP * length / scale
    still = frozen_federation(task, plan, rounds=rounds, steepness=steepness, seed=seed, moving=moving)
    return ReplaySetup(
        task=still.task,
        plan=still.plan,
        rounds=still.rounds,
        protection=protection,
        claim=claim,
        seed=seed,
        seen=seen or SeenLaws(),
    )


def steeper(task: Task, factor: float) -> Task:
    """Return the task with its gradients multiplied by ``factor``, if they are fixed."""
    network = task.network
    if not isinstance(network, FixedGradients):
        return task
    return replace(task, network=replace(network, steepness=factor * network.steepness).sharing(network))


@dataclass(frozen=True, kw_only=True, eq=False)
class Proposed:
    """Two inputs of a federation for trials that decide whether a failed comparison refutes the claim.

    Args:
        steps: how many steps of the claim's adjacency the two are apart: 2 for another record in a record's place,
            where the claim is about a record more or less.
        direction: (d,) unit vector along which the release moved; None: along all weights.
    """

    setup: ReplaySetup
    without: Inputs
    present: Inputs
    words: str
    steps: int = 1
    direction: Tensor | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class RunPair:
    """Two runs with equal random draws that differ in one unit of client ``sender``.

    Args:
        without, present: what both runs are given.
        rounds: of both runs; None: all.
        rows: vectors in which the runs differ: 1 if a vector was added, 2 if one was replaced.
        others: runs like ``before`` with other noise.
        same: whether the first ones of ``others`` are those of ``without``.
        adjacent: whether the two are neighbours of the claim, and not two steps of it away.
        compares_noise: whether the noise of both runs is compared.
        of_data: whether the runs differ in real data, a unit's own in the place of another's.
        sampled: whether cohorts and lots are drawn as the plan draws them.
    """

    setup: ReplaySetup
    without: Inputs
    present: Inputs
    sender: int
    witness: str
    others: Sequence[Recording]
    rows: int
    rounds: int | None = None
    same: bool = False
    adjacent: bool = True
    compares_noise: bool = False
    of_data: bool = False
    sampled: bool = False

    @property
    def proposal(self) -> Proposed:
        """The two inputs, with cohorts and lots as sampled, as neighbours under the claim's adjacency."""
        claim, without, present = self.setup.claim, self.without, self.present
        if present.canary is not None and not self.adjacent:
            # A row of zeros in an absent row's place would be two steps away.
            canary = replace(present.canary, absent=None)
            without, present = replace(NOTHING, canary=canary), replace(present, canary=canary)
        return Proposed(
            setup=self.setup.sampled,
            without=without,
            present=present,
            words=self.witness,
            steps=2 if self.of_data and claim.adjacency is not Adjacency.REPLACE_ONE else 1,
            direction=self._moved(),
        )

    def _moved(self) -> Tensor | None:
        """The direction of the longest move of a release of both runs."""
        rounds = zip(self.before.releases, self.after.releases, strict=False)
        moves = [row for one, other in rounds if one.shape == other.shape for row in other - one]
        longest = max(moves, key=lambda row: float(row.norm()), default=None)
        known = longest is not None and bool(longest.isfinite().all()) and float(longest.norm()) > 0
        return (longest / longest.norm()).float() if known and longest is not None else None

    @cached_property
    def before(self) -> Recording:
        """The recording of the run without the unit."""
        return self._before(0, self.rounds)

    @cached_property
    def after(self) -> Recording:
        """The recording of the run with the unit."""
        return self.setup.run(self.present, rounds=self.rounds)

    def again(self, noise: int) -> tuple[Recording, Recording]:
        """Run both inputs once more, over all rounds, with the noise that the number ``noise`` selects."""
        return self._before(noise, None), self.setup.run(self.present, noise=noise)

    def _before(self, noise: int, rounds: int | None) -> Recording:
        if self.same and noise < len(self.others):
            return self.others[noise]
        return self.setup.run(self.without, noise=noise, rounds=rounds)

    def replicas(self, noise: int, number: int) -> tuple[list[Recording], list[Recording]]:
        """Run both inputs in the given number of further replicas, over all rounds, with the noise that the number
        ``noise`` selects.
        """
        without, present = (self.setup.run_many(number, inputs, noise=noise) for inputs in (self.without, self.present))
        return without, present

    def many(self, noise: int, number: int, rounds: int = 2) -> tuple[ManyRuns, ManyRuns]:
        """Run the first rounds of both inputs in the given number of replicas at once, with the noise that the number
        ``noise`` selects.
        """
        without, present = (
            self.setup.many(number, inputs, noise=noise, rounds=rounds) for inputs in (self.without, self.present)
        )
        return without, present


def pairs_of(setup: ReplaySetup) -> Iterator[RunPair]:
    """Yield pairs of runs that differ by a planted row, or by other labels or inputs of real rows."""
    yield from _planted(setup)
    yield from _planted_users(setup)
    yield from _among_short(setup)
    yield from _changed_records(setup)


def _planted(setup: ReplaySetup) -> Iterator[RunPair]:
    """A canary of the claim's unit along the unused weight and in directions of all weights, at every client."""
    claim = setup.claim
    replaced = claim.adjacency is Adjacency.REPLACE_ONE
    rows = [(number, *row) for number, row in enumerate(canary_rows(setup))]
    for number, direction, length, words in (*rows, *((None, *row) for row in _layer_rows(setup))):
        row = setup.length * length * direction
        witness = f"one unit's vector of {length:g} clip norms {words}"
        if claim.unit is Unit.SAMPLE:
            for client, rounds in _places(setup, number):
                absent = absent_row(row, claim.adjacency)
                canary = Canary(unit=claim.unit, present=row, absent=absent, client=client)
                opposite = " and its opposite" if replaced else ""
                yield _pair(setup, canary, client, f"{witness}{opposite} at client {client}", rounds)
        elif (claim.unit, claim.adjacency) in _REPLACED:
            other = "its opposite" if replaced else "zeros"
            yield from _planted_clients(setup, row, number, f"{witness} and {other}")
        # A report more or less cannot be separated from its noise; in a sum it can.
        elif setup.adds_to_sum:
            witness += " and zeros" if setup.brings_noise else ""
            yield from _planted_clients(setup, row, number, witness)


def _planted_clients(setup: ReplaySetup, row: Tensor, number: int | None, witness: str) -> Iterator[RunPair]:
    """A row as the update of one client more, and in the place of a client of the plan, with its size and weight."""
    clients = setup.plan.clients
    canary = Canary(unit=setup.claim.unit, present=row, absent=setup.absent(row))
    if number is not None and not setup.unaccepted:
        rounds = None if number == 0 or clients <= FEW else setup.brief
        # One more client has noise that the runs without it do not show.
        others = setup.draws if canary.absent is None else setup.extended
        yield _pair(setup, canary, clients, witness, rounds, others)
    for client, brief in _places(setup, number):
        # Without room for one client more these runs are the only ones over all rounds.
        rounds = None if setup.unaccepted and number == 0 else setup.brief if number is not None else brief
        place = replace(canary, place=client)
        yield _pair(setup, place, client, f"{witness} in the place of client {client}", rounds)


def _among_short(setup: ReplaySetup) -> Iterator[RunPair]:
    """A long row among rows that no clip shortens, against a short one or none: a number may depend on the longest row,
    or on whether any row was clipped.
    """
    claim, client = setup.claim, setup.checked_clients[0]
    row = setup.length * LENGTHS[0] * _unused(setup.plan.layout.dim)
    replaced = claim.adjacency is Adjacency.REPLACE_ONE
    words = (
        f"one unit's vector of {LENGTHS[0]:g} clip norms along an unused weight at client {client}, where no "
        "other vector is clipped"
    )
    if claim.unit is Unit.SAMPLE:
        absent = _SHORT * row if replaced else absent_row(row, claim.adjacency)
        canary = Canary(unit=claim.unit, present=row, absent=absent, client=client)
    elif (claim.unit, claim.adjacency) in _REPLACED or setup.adds_to_sum:
        absent = _SHORT * row if replaced else setup.absent(row)
        canary = Canary(unit=claim.unit, present=row, absent=absent, place=client)
    else:
        return
    yield replace(_pair(setup.quiet, canary, client, words, setup.brief), compares_noise=True)


def _planted_users(setup: ReplaySetup) -> Iterator[RunPair]:
    """Users of several shapes, present and absent, along the unused weight, along all weights, along single layers, and
    against the samples of others, where these are equal.
    """
    if (setup.claim.unit, setup.claim.adjacency) != (Unit.USER, Adjacency.ADD_REMOVE) or setup.several_reports:
        return
    groups = _groups(setup)
    for number, (direction, length, words) in enumerate(canary_rows(setup)):
        row = setup.length * length * direction
        for turn, holders in enumerate(groups):
            for shape, (at, user) in enumerate(user_shapes(row, holders, setup.seed)):
                rounds = None if number == turn == shape == 0 else setup.brief
                witness = f"a user of {at}, each of {length:g} clip norms {words}"
                yield _pair(setup, user, user.holders[0], witness, rounds)
    for direction, length, words in _layer_rows(setup):
        at, user = next(user_shapes(setup.length * length * direction, groups[0], setup.seed))
        witness = f"a user of {at}, each of {length:g} clip norms {words}"
        yield _pair(setup, user, user.holders[0], witness, setup.brief and 1)
    if setup.one_sample is not None and (towards := gradient_direction(setup)) is not None:
        for at, user in against_others(-setup.length * LENGTHS[0] * towards, groups[0]):
            words = (
                f"a user of {at}, each of {LENGTHS[0]:g} clip norms and opposite to all other samples, which are equal"
            )
            yield _pair(setup.one_sample, user, user.holders[0], words, setup.brief)


def _groups(setup: ReplaySetup) -> list[list[int]]:
    """The clients that hold the samples of a planted user, in turn: as many as the claim allows."""
    many, checked = clients_of_user(setup.claim, setup.plan), setup.checked_clients
    # Of too many clients, those that are not checked hold samples of the first group's user.
    order = [*checked, *(client for client in range(setup.plan.clients) if client not in checked)]
    groups = [order[first : first + many] for first in range(0, len(order), many)]
    return [group for group in groups if len(group) == many][:_GROUPS]


def gradient_direction(setup: ReplaySetup) -> Tensor | None:
    """Return the direction ``(d,)`` of the first sample's gradient; None if there is none."""
    task, first = setup.task, setup.task.parts[0][:1]
    model = task.initial(Streams(setup.seed)).unsqueeze(0)
    images, labels = task.images[first].unsqueeze(0), task.labels[first].unsqueeze(0)
    gradient = task.network.sample_gradients(model, images, labels)[0, 0]
    length = torch.linalg.vector_norm(gradient)
    return gradient / length if length > 0 else None


def _places(setup: ReplaySetup, number: int | None) -> Iterator[tuple[int, int | None]]:
    """The clients that get the canary row of this number, with the rounds to run; None: all. A row without a number
    stands at one client in one round.
    """
    checked = setup.checked_clients
    if number is None:
        yield checked[0], setup.brief and 1
        return
    # Each row at the largest, the smallest or a random client, the first in all rounds; at others two rows in turn.
    for turn, client in enumerate(checked):
        if len(checked) <= FEW:
            yield client, None
        elif turn == number:
            yield client, None if turn == 0 else setup.brief
        elif turn >= len(LENGTHS) and turn % (len(LENGTHS) - 1) == number:
            yield client, setup.brief


def _pair(
    setup: ReplaySetup,
    canary: Canary,
    sender: int,
    witness: str,
    rounds: int | None,
    others: list[Recording] | None = None,
) -> RunPair:
    """A pair that differs by the canary; ``others``: runs like the one without it, with other noise."""
    return RunPair(
        setup=setup,
        without=NOTHING if canary.added else Inputs(canary=canary),
        present=Inputs(canary=canary, arm=1),
        rounds=rounds,
        rows=2 if canary.adjacency is Adjacency.REPLACE_ONE else 1,
        sender=sender,
        witness=witness,
        others=setup.draws if others is None else others,
        # Rows of zeros are the same whatever the canary.
        same=canary.place is None and not bool(canary.rows(0).any()),
        # A row of zeros for an absent one is two steps of such a claim away.
        adjacent=setup.claim.adjacency is not Adjacency.ADD_REMOVE or canary.absent is None,
    )


def canary_rows(setup: ReplaySetup) -> Iterator[tuple[Tensor, float, str]]:
    """Yield unit directions ``(d,)``, each with the canary's length and a description."""
    dim = setup.plan.layout.dim
    anywhere = normal(Streams(setup.seed).generator("probe direction"), (dim,))
    anywhere = anywhere / torch.linalg.vector_norm(anywhere)
    long, longest, short = LENGTHS
    yield _unused(dim), long, "along an unused weight"
    yield anywhere, longest, "along all weights"
    yield anywhere, short, "along all weights"


def _layer_rows(setup: ReplaySetup) -> Iterator[tuple[Tensor, float, str]]:
    """Random directions of single layers with the longest canary's length: a clip may leave a layer out."""
    rng, layout = Streams(setup.seed).generator("probe layers"), setup.plan.layout
    for name, place in extreme_layers(layout):
        direction = torch.zeros(layout.dim)
        direction[place] = normal(rng, (place.stop - place.start,))
        yield direction / torch.linalg.vector_norm(direction), LENGTHS[1], f"along {name}"


def extreme_layers(layout: Layout) -> list[tuple[str, slice]]:
    """Return the smallest and the largest layers, at most four; none if there is only one layer."""
    layers = sorted(layout.slices.items(), key=lambda item: item[1].stop - item[1].start)
    half = _LAYERS // 2
    return [] if len(layers) < 2 else layers if len(layers) <= _LAYERS else [*layers[:half], *layers[-half:]]


def _unused(dim: int) -> Tensor:
    """The direction of the last weight, which is the inert one where the plan has one."""
    direction = torch.zeros(dim)
    direction[-1] = 1.0
    return direction


def _changed_records(setup: ReplaySetup) -> Iterator[RunPair]:
    """Another label or other inputs for one of the real rows: a missing clip may affect a real client or sample only,
    and hooks may read what it holds.
    """
    if setup.claim.unit not in PLANTED:
        return
    rng = Streams(setup.seed).generator("probe samples")
    for turn, client in enumerate(setup.checked_clients):
        # The first sample of a lot at one client, a random one at the next.
        sample = 0 if turn % 2 == 0 else int(rng.integers(len(setup.task.parts[client])))
        rounds = None if turn == 0 or len(setup.checked_clients) <= FEW else setup.brief
        for inputs in _changed_in(turn, len(setup.checked_clients)):
            yield _changed_record(setup, client, sample, rounds, inputs=inputs)


def _changed_in(turn: int, clients: int) -> tuple[bool, ...]:
    """Whether a client's data get other inputs, and not other labels: by turns, and both where there is one client."""
    return (False, True) if clients == 1 else (bool(turn % 2),)


def _changed_record(
    setup: ReplaySetup, client: int, sample: int, rounds: int | None, when: str = "", *, inputs: bool = False
) -> RunPair:
    """Another label or other ``inputs`` for one sample of a client, or for all where the unit is larger."""
    task, of_sample = setup.task, setup.claim.unit is Unit.SAMPLE
    changed = task.parts[client][sample : sample + 1] if of_sample else task.parts[client]
    what, which = "other inputs" if inputs else "another label", "a sample" if of_sample else "all samples"
    return RunPair(
        setup=setup,
        without=NOTHING,
        present=Inputs(task=other_inputs(task, changed) if inputs else other_labels(task, changed)),
        rounds=rounds,
        rows=2,
        sender=client,
        witness=f"{what} for {which} of client {client}{when}",
        same=True,
        of_data=True,
        others=setup.draws,
    )


def sampled_pairs(setup: ReplaySetup, missing: dict[str, str]) -> Iterator[RunPair]:
    """Yield pairs of runs in which cohorts and lots are drawn by the plan instead of complete.

    Labels or inputs alone change, so that both runs of a pair draw the same clients and samples.
    """
    plan = setup.plan
    if isinstance(plan.cohort, Full) and isinstance(plan.lot, Full):
        return
    if setup.claim.unit is Unit.USER:
        missing["lots and cohorts as sampled"] = "with a canary user all clients take part with all their samples"
    if setup.claim.unit not in PLANTED:
        return
    try:
        taking_part = list(islice(_drawn(setup), _PARTIAL))
        drawn = bool(taking_part and setup.draws)
    except Exception as problem:  # A hook of a foreign defense may raise anything, as for an empty cohort.
        drawn, words = False, f"{type(problem).__name__}: {problem}"
    else:
        words = "" if drawn else "no client takes part in the rounds that are compared"
    if not drawn:
        missing["lots and cohorts as sampled"] = words
        return
    for turn, (client, sample) in enumerate(taking_part):
        for inputs in _changed_in(turn, len(taking_part)):
            pair = _changed_record(setup, client, sample, None, ", with sampled lots and cohorts", inputs=inputs)
            yield replace(pair, sampled=True)


def _drawn(setup: ReplaySetup) -> Iterator[tuple[int, int]]:
    """A client of each round's cohort with a sample of its first lot; no client twice."""
    plan, streams, known = setup.plan, ReplayedStreams(setup.seed), set[int]()
    for number in range(setup.rounds):
        cohort = plan.draw_cohort(streams.generator, 1, plan.clients, round=number)[0]
        for client in cohort.nonzero().flatten().tolist():
            lot = plan.lot.draw(streams.generator("lot", round=number, client=client), 1, plan.sizes[client])[0]
            if client not in known and bool(lot.any()):
                known.add(client)
                # Not the first sample of the lot: a bug may spare it.
                yield client, int(lot.nonzero()[-1])
                break


def other_data(federation: FrozenFederation) -> Iterator[tuple[str, FrozenFederation]]:
    """Yield federations that equal the given one but for their data, each with a description of the data."""
    task, plan = federation.task, federation.plan
    if isinstance(task.network, FixedGradients):
        lengths = task.images.flatten(1).norm(dim=1)
        for factor, place, words in (
            (1e-5, lengths.argmin(), "short gradients, where all inputs equal the shortest one"),
            (1e3, lengths.argmax(), "very long gradients, where all inputs equal the longest one"),
        ):
            images = task.images[int(place)].expand_as(task.images)
            yield words, replace(federation, task=replace(steeper(task, factor), images=images))
    yield "one class", replace(federation, task=replace(task, labels=torch.zeros_like(task.labels)))
    # Only a rule that leaves samples out draws lots without any.
    if min(plan.lot.rate(size) for size in plan.sizes) < 1:
        yield "empty lots", replace(federation, plan=replace(plan, lot=DrawAll(plan.lot, count=0)))


def other_inputs(task: Task, places: Tensor) -> Task:
    """Return the task with the inputs at ``places`` replaced by those inputs of the task that are farthest from them.

    Real inputs, because a domain may have bounds that its records keep and that are stated nowhere.
    """
    moved, flat = task.images.clone(), task.images.flatten(1)
    moved[places] = task.images[torch.cdist(flat[places], flat).argmax(1)]
    return replace(task, images=moved)


def other_labels(task: Task, places: Tensor) -> Task:
    """Return the task with other labels at ``places``, chosen without random draws: each class becomes the next one."""
    labels = task.labels.clone()
    labels[places] = task.network.objective.others(labels[places], task.network.classes)
    return replace(task, labels=labels)


def distance(before: Tensor, after: Tensor, allowed: float) -> tuple[float, float]:
    """Return how far a release ``(rows, d)`` moved, and by how much more than ``allowed`` it may move because of
    rounding.
    """
    moved = float(torch.linalg.vector_norm(after - before))
    slack = _SLACK * allowed + _ROUNDING * float(torch.linalg.vector_norm(before))
    if moved > allowed + slack:
        # Numbers that are rounded after the noise was added move by one step more.
        changed = int(torch.count_nonzero(after - before))
        slack += max(spacing(row.numpy()) for row in (*before, *after)) * changed**0.5
    return moved, slack
