"""Run a federation a few times with equal random draws and compare the runs exactly, without statistics.

Two runs that differ by one row give a lower bound on the sensitivity that is enforced; two runs that differ by the
draws of the hooks show the noise. A check that passes proves nothing; one that fails names the row that violates the
sensitivity, or the noise that is missing.

Make the replay checks on the claim's own model too: its layers are not those of the audit's small model.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice

import numpy as np
import torch
from torch import Tensor

from ..audit.check import BETWEEN_ROUNDS, PRESENT, SCALE, SENSITIVITY, CheckResult
from ..audit.claim import HELD_BY_CLIENTS, Adjacency, Claim, Unit
from ..audit.observer import AGGREGATE, FINAL_MODEL
from ..fl.canary import Canary, UserCanary
from ..fl.channels import changes_broadcast
from ..fl.laws import GaussianLaw, ReportLaw
from ..fl.layout import Layout
from ..fl.plan import Plan
from ..fl.protection import Protection
from ..fl.replay import (
    DrawHalf,
    FixedGradients,
    FrozenFederation,
    ManyRuns,
    Recording,
    ReplayedStreams,
    frozen_federation,
    many_runs,
    replay,
    replay_many,
    unequal_stream,
)
from ..fl.sampling import Full
from ..fl.streams import Streams, normal
from ..fl.task import Task
from .canaries import absent_row, against_others, clients_of_user, user_shapes
from .event_odds import EventOdds, SideArrays
from .extreme import ExtremeProbe
from .messages import MessageComparison, RunPair, other_data, other_inputs
from .noise_law import LawOfDraws, draw_checks, other_data_check
from .noise_sample import NUMBERS, NoiseSample, noise_sample, runs_needed, same_state, spacing
from .noise_structure import Move, bare_checks, freshness_checks, noise_checks, structure_checks
from .seen_laws import SeenLaws

_CLIENTS, _DRAWS = 16, 3
"""Clients that are probed one by one at most, spread over their sizes; and runs of different noise."""
_FEW = 4
"""A federation of so few clients gets every row at every client, in all rounds."""
_BRIEF = 2
"""Rounds of the probes of further clients; the state of the second round shows what the first one left."""
_NUMBERS = 2**22
"""Numbers stored of one run at most: a large model is checked in fewer rounds than the claim covers, three at least."""
_STEEP = 10.0
"""Length of all real gradients in clip norms, at least: else a real row that is not clipped could not show."""
_QUIET, _SHORT = 1e-3, 1e-2
"""Factors of the real gradients, so that no clip shortens them, and of the row that replaces a long one."""
_COUNTED = 256
"""Number of the noise of the first runs in which events are counted: other runs have lower ones."""
_STEEPEST = 1e6
"""Factor of the real gradients where all of them change at once: no federation of the checks has so many samples."""
_LAYERS = 4
"""Layers that get a row of their own at most."""
_LENGTHS = (10.0, 1e4, 0.1)
"""Canaries in clip norms: the audit's own, one that outweighs all other rows, for clips of a mean or a lot, and one
that no clip shortens.
"""
_REPLACED = (
    (Unit.REPORT, Adjacency.REPLACE_ONE),
    (Unit.CLIENT, Adjacency.REPLACE_ONE),
    (Unit.CLIENT, Adjacency.ZERO_OUT),
)
"""Units of which a client stays in the federation when its row is replaced."""
_PLANTED = (Unit.SAMPLE, Unit.CLIENT, Unit.REPORT)
_GROUPS = 2
"""Groups of clients that hold the samples of a planted user in turn."""
_PARTIAL = 3
"""Clients that are probed with cohorts and lots as sampled."""
_SLACK, _ROUNDING = 1e-3, 2.0**-22
"""Allowed excess: a share of the limit, and float32 rounding as a share of the numbers compared."""


@dataclass(frozen=True, kw_only=True)
class ReplaySetup:
    """A federation that is run repeatedly; runs share all random draws except those that a check changes."""

    still: FrozenFederation
    protection: Protection
    claim: Claim
    clip_norm: float
    seed: int
    seen: SeenLaws = field(default_factory=SeenLaws)

    def run(
        self,
        *,
        noise: int = 0,
        canary: Canary | None = None,
        arm: int = 0,
        task: Task | None = None,
        rounds: int | None = None,
    ) -> Recording:
        """Run the federation once and return what was recorded; ``task`` replaces its data."""
        (recording,) = self.run_many(1, noise=noise, canary=canary, arm=arm, task=task, rounds=rounds)
        return recording

    def run_many(
        self,
        replicas: int,
        *,
        noise: int = 0,
        canary: Canary | None = None,
        arm: int = 0,
        task: Task | None = None,
        rounds: int | None = None,
    ) -> list[Recording]:
        """Run the federation in several replicas at once, which differ in their noise; one recording of each."""
        return replay_many(
            self.still if task is None else replace(self.still, task=task),
            self.protection,
            self.claim.observer,
            seed=self.seed,
            noise=noise,
            canary=canary,
            arm=arm,
            rounds=rounds,
            replicas=replicas,
        )

    def many(
        self,
        replicas: int,
        noise: int,
        canary: Canary | None,
        *,
        arm: int,
        task: Task | None = None,
        rounds: int = 2,
    ) -> ManyRuns:
        """Run the first rounds in many replicas at once, with noise that no other run has, on ``task`` if given."""
        return many_runs(
            self.still if task is None else replace(self.still, task=task),
            self.protection,
            self.claim.observer,
            seed=self.seed,
            noise=_COUNTED + noise,
            canary=canary,
            arm=arm,
            rounds=min(rounds, self.still.rounds),
            replicas=replicas,
        )

    def law(self, sender: int) -> GaussianLaw | None:
        """Return the noise distribution of what this client releases; None if it is not Gaussian."""
        law = self.protection.law(self.claim.observer, self.still.plan, sender)
        if law is None:
            return self.seen.of(sender)
        return law if isinstance(law, GaussianLaw) and not law.then else None

    @property
    def no_law(self) -> str:
        """Why no Gaussian law can be compared with what is released, where ``law`` is None."""
        law = self.protection.law(self.claim.observer, self.still.plan, self.holder)
        if isinstance(law, GaussianLaw) and law.then:
            return f"the noised release is post-processed: {law.then}"
        return "no Gaussian law is published for this observer"

    @property
    def drawn(self) -> bool:
        """Whether each client's report is a random draw from a published distribution."""
        return isinstance(self.protection.law(self.claim.observer, self.still.plan, 0), ReportLaw)

    @cached_property
    def unaccepted(self) -> str:
        """Why the defense does not run with one client more than the plan has; empty where it does."""
        row = torch.zeros(self.still.plan.layout.dim)
        canary = Canary(unit=Unit.REPORT, present=row, absent=row)
        try:
            self.protection.law(self.claim.observer, self.still.plan, self.still.plan.clients)
            self.run(canary=canary, rounds=1)
        except Exception as problem:  # A hook of a foreign defense may raise anything.
            return f"{type(problem).__name__}: {problem}"
        return ""

    @property
    def holder(self) -> int:
        """The client for which the law is read before a row is planted at any client."""
        return 0 if self.claim.unit in HELD_BY_CLIENTS or self.unaccepted else self.still.plan.clients

    @cached_property
    def draws(self) -> list[Recording]:
        """Runs without a canary that differ in their noise alone."""
        return [self.run(noise=number) for number in range(_DRAWS)]

    @cached_property
    def extended(self) -> list[Recording]:
        """Runs with one client more that sends the row without a canary, and that differ in their noise alone."""
        row = self.clip_norm * _LENGTHS[0] * _unused(self.still.plan.layout.dim)
        canary = Canary(unit=self.claim.unit, present=row, absent=self.absent(row))
        return [self.run(canary=canary, arm=0, noise=number) for number in range(_DRAWS)]

    @cached_property
    def quiet(self) -> "ReplaySetup":
        """The federation in which no clip shortens any real row, so that a planted one is the longest."""
        task = self.still.task
        network = task.network
        if isinstance(network, FixedGradients):
            task = replace(task, network=replace(network, steepness=_QUIET * network.steepness).sharing(network))
        return replace(self, still=replace(self.still, task=task))

    @property
    def several_reports(self) -> bool:
        """Whether a user's samples lie in the reports of several clients, which the adversary receives one by one."""
        return self.draws[0].senders is not None and clients_of_user(self.claim, self.still.plan) > 1

    @property
    def adds_to_sum(self) -> bool:
        """Whether a client is added or removed, and the adversary receives sums."""
        added = (self.claim.unit, self.claim.adjacency) == (Unit.CLIENT, Adjacency.ADD_REMOVE)
        return added and self.draws[0].senders is None

    @cached_property
    def brings_noise(self) -> bool:
        """Whether a client that is added to a sum, or removed from it, takes a share of the noise with it."""
        place = self.probed[0] if self.unaccepted else None
        canary = Canary(unit=Unit.CLIENT, present=torch.zeros(self.still.plan.layout.dim), place=place)
        # (noise, without and with the client) of one round
        runs = [[self.run(canary=canary, arm=arm, noise=n, rounds=1).releases[0] for arm in (0, 1)] for n in (0, 1)]
        (without, added), (without_too, added_too) = runs
        moved = (added - without) - (added_too - without_too)
        return bool((moved.abs() > 4 * _ROUNDING * added.abs().max()).any())

    def absent(self, row: Tensor) -> Tensor | None:
        """Return what a client sends without its row: equal draws must cancel in the difference of two runs."""
        if self.claim.adjacency is Adjacency.ADD_REMOVE and self.brings_noise:
            return torch.zeros_like(row)
        return absent_row(row, self.claim.adjacency)

    @property
    def brief(self) -> int | None:
        """The number of rounds of the probes of further clients; None: all rounds."""
        # An observer of the final model receives nothing before the last round.
        return None if self.claim.observer.rank == FINAL_MODEL.rank else min(_BRIEF, self.still.rounds)

    @property
    def probed(self) -> list[int]:
        """The clients at which rows are planted: all, or the largest, the smallest and random ones, in this order."""
        sizes = self.still.plan.sizes
        order = sorted(range(len(sizes)), key=lambda client: (-sizes[client], client))
        first = [order[0], *order[:0:-1][:1]]
        rest = [client for client in range(len(sizes)) if client not in first]
        drawn = Streams(self.seed).generator("probe clients").permutation(len(rest))
        return [*first, *(rest[place] for place in drawn)][:_CLIENTS]


def check_claim(
    task: Task,
    plan: Plan,
    protection: Protection,
    claim: Claim,
    *,
    seed: int = 0,
    seen: SeenLaws | None = None,
) -> tuple[CheckResult, ...]:
    """Run every implementation check that applies to the claim, by some thirty runs of the federation, most of them
    brief.

    Sensitivity and noise scale are compared with the published law, in the rounds that share the first one's public
    state; a claim without a Gaussian law gets the other checks. Everything else that the claim's observer receives is
    compared between runs that differ by a unit.

    Args:
        seen: the laws that runs of the hooks show where none is published.
    """
    setup = replace(replay_setup(task, plan, protection, claim, seed=seed), seen=seen or SeenLaws())
    message, moves, moved, unequal = _message(setup), list[CheckResult](), list[Move](), dict[str, str]()
    reason, constant = "", {*range(setup.still.rounds)}
    sampled = replay_setup(task, plan, protection, claim, seed=seed, sampled=True)
    odds = EventOdds.of(claim, plan, changes_broadcast=changes_broadcast(protection))
    side = SideArrays(claim=claim, plan=plan)
    for pair in chain(_pairs(setup), _sampled_pairs(sampled, message.missing)):
        message.add(pair)
        _add_odds(odds, pair)
        side.add(pair)
        constant -= _moved_rounds(pair)
        reason = reason or _add_moves(setup, pair, moves, unequal)
        moved += _moved(setup, pair)
    moves += moves_of_all(setup)
    found = (
        setup.seen.named(_sensitivity(setup, moves, reason, unequal)),
        *_noise(setup, setup.draws, moved, constant),
        *message.results(),
    )
    return (*found, *odds.results(), *side.results(), *_extreme(setup))


def _add_odds(odds: EventOdds, pair: RunPair) -> None:
    """Compare the numbers of the public state, and the noise of a release that the unit is planted for."""
    # One record in another's place is two steps of a claim of added ones.
    if pair.many is None or pair.of_data:
        return
    odds.add(pair.before, pair.after, pair.others, pair.many, pair.witness)
    if not pair.compares_noise or pair.before.senders != pair.after.senders:
        return
    senders = pair.before.senders
    row = 0 if senders is None else senders.index(pair.sender)
    try:
        drawn = [runs.releases[0] for runs in pair.many(2, 2)]
    except Exception:  # Hooks that cannot run several times at once are reported by the noise of many runs.
        return
    if all(rows.shape[1] == len(senders or (0,)) for rows in drawn):
        sizes = [float(torch.linalg.vector_norm(rows[0, row] - rows[1, row])) for rows in drawn]
        odds.add_noise(np.array(sizes), row, pair.many, pair.witness)


def _extreme(setup: ReplaySetup) -> Iterator[CheckResult]:
    """The check of extreme rows at the largest client; of a user at the first clients."""
    if setup.claim.unit not in (*_PLANTED, Unit.USER):
        return
    of_user = setup.claim.unit is Unit.USER
    client = 0 if of_user else setup.probed[0]
    yield ExtremeProbe(
        claim=setup.claim,
        plan=setup.still.plan,
        protection=setup.protection,
        clip_norm=setup.clip_norm,
        law=None if of_user and setup.several_reports else setup.law(client),
        client=client,
        clients=clients_of_user(setup.claim, setup.still.plan),
        # One round: the first one, for which the law is published. A final model may be protected in the last one.
        run=lambda canary, arm: setup.run(canary=canary, arm=arm, rounds=setup.brief and 1),
    ).result()


def replay_setup(
    task: Task, plan: Plan, protection: Protection, claim: Claim, *, seed: int = 0, sampled: bool = False
) -> ReplaySetup:
    """Build the federation that is run repeatedly, whose gradients never change.

    ``sampled``: cohorts and lots are drawn as the plan draws them; else every client takes part with all its samples.
    """
    length = _clip_norm(claim, protection, plan)
    # A gradient is clipped, or an update, which is gradients times the learning rate.
    scale = 1.0 if claim.unit is Unit.SAMPLE else abs(plan.algorithm.linear_scale or 1.0)
    rounds = min(claim.rounds, max(3, _NUMBERS // (plan.clients * plan.layout.dim)))
    moving = changes_broadcast(protection)
    steepness = _STEEP * length / scale
    still = frozen_federation(task, plan, rounds=rounds, steepness=steepness, seed=seed, moving=moving, sampled=sampled)
    return ReplaySetup(still=still, protection=protection, claim=claim, clip_norm=length, seed=seed)


def _message(setup: ReplaySetup) -> MessageComparison:
    """The comparison of everything that the observer receives, with what it leaves out."""
    claim, plan = setup.claim, setup.still.plan
    covered = setup.protection.law(claim.observer, plan, setup.holder) is not None
    message = MessageComparison(claim=claim, plan=plan, covered=covered)
    if not changes_broadcast(setup.protection):
        message.missing["broadcast model"] = "the defense leaves it as it is, so that it follows from the aggregates"
    if claim.unit not in HELD_BY_CLIENTS and setup.unaccepted:
        message.missing["one client more than the plan has"] = f"the defense does not run with it ({setup.unaccepted})"
    if setup.adds_to_sum and setup.brings_noise:
        message.missing["whether a client takes part"] = "its share of the noise comes and goes with it"
    if setup.still.rounds < claim.rounds:
        message.missing[f"rounds after round {setup.still.rounds - 1}"] = "the model is too large to run them all"
    if len(setup.probed) < plan.clients:
        message.missing[f"{plan.clients - len(setup.probed)} of {plan.clients} clients"] = "no row was planted at them"
    return message


def _clip_norm(claim: Claim, protection: Protection, plan: Plan) -> float:
    """The clip norm that the law or the claim publishes; 1 where neither does."""
    try:
        law = protection.law(claim.observer, plan, 0 if claim.unit in HELD_BY_CLIENTS else plan.clients)
    except Exception:  # A defense may have no law of one client more than the plan has.
        law = protection.law(claim.observer, plan, 0)
    published = law.clip_norm if isinstance(law, GaussianLaw) else claim.parameters.get("clip_norm", 1.0)
    return float(published) if isinstance(published, int | float) else 1.0


def _noise(
    setup: ReplaySetup, draws: Sequence[Recording], moved: Sequence[Move], constant: Collection[int]
) -> list[CheckResult]:
    sees_models = setup.claim.observer.rank < AGGREGATE.rank
    if sees_models and changes_broadcast(setup.protection):
        reason = "its noise may be added to the broadcast model, which is compared with the whole message"
        return [PRESENT.skipped(reason)]
    senders = draws[0].senders
    if senders is None:
        senders = (setup.holder,)
    laws = [law for law in map(setup.law, senders) if law is not None]
    law = LawOfDraws(laws=laws, layers=setup.still.plan.layout.slices) if len(laws) == len(senders) else None
    rounded = max((spacing(row.numpy()) for row in draws[0].releases[0]), default=0.0) > 0
    check = partial(
        noise_checks,
        laws=laws if law else None,
        layers=setup.still.plan.layout.slices,
        drawn=setup.drawn,
        rounded=rounded,
        reason=setup.no_law,
        constant=constant,
    )
    found, repeated = check(draws), set[int]()
    if any(one.name == BETWEEN_ROUNDS and one.passed is False for one in found):
        repeated = _repeated_rounds(setup)
        found = check([_without(draw, repeated) for draw in draws]) if repeated else found
    # Reports that are drawn from a law of their own have no noise that could be told from the rest.
    if setup.drawn:
        return found
    draw = partial(noise_sample, protection=setup.protection, observer=setup.claim.observer, seed=setup.seed)
    dim, rows = setup.still.plan.layout.dim, len(senders)
    rounds = max(1, min(setup.still.rounds, NUMBERS // (6 * rows * dim)))
    try:
        sample = draw(setup.still, runs=runs_needed(dim, rows, rounds), rounds=rounds)
    except Exception as error:  # A user's own defense may raise anything, and other checks still apply.
        reason = f"several runs at once are not possible: {type(error).__name__}: {error}"
        return [*(one for one in found if one.name != SCALE), SCALE.skipped(reason)]
    return [*_over_many_runs(found, sample, repeated), *_sampled(setup, draw, sample, law, moved)]


def _over_many_runs(
    found: Sequence[CheckResult], sample: NoiseSample, repeated: Collection[int]
) -> Iterator[CheckResult]:
    """The results, in which shared noise must persist over all runs of a sample: one draw shows its direction alone."""
    present = sample.present.T.copy()
    present[[turn for turn in repeated if turn < len(present)]] = False
    # (rounds, rows, numbers of all runs)
    noise = torch.from_numpy(sample.paired.transpose(2, 1, 0, 3).reshape(*present.shape, -1))
    again = {one.name: one for one in freshness_checks(noise, torch.from_numpy(present), sample.senders)}
    for one in found:
        yield again.get(one.name, one) if one.passed is False else one


def _sampled(
    setup: ReplaySetup,
    draw: Callable[..., NoiseSample],
    sample: NoiseSample,
    law: LawOfDraws | None,
    moved: Sequence[Move],
) -> Iterator[CheckResult]:
    """The checks of noise that need many runs; ``draw`` makes a sample."""
    still, (_, rows, rounds, _) = setup.still, sample.values.shape
    one, other = setup.draws[:2]
    noisy = any(bool((a != b).any()) for a, b in zip(one.releases, other.releases, strict=True))
    if noisy and bool((sample.values == sample.values[:1]).all()):
        reason = "parallel runs share their noise, which is drawn once for all of them"
        yield SCALE.skipped(reason)
        return
    if law is not None:
        yield from map(setup.seen.named, draw_checks(sample, law, setup.claim))
        few, brief = 8 if rows >= _FEW else 16, min(_BRIEF, rounds)
        others = enumerate(other_data(still), start=1)
        samples = {words: draw(other, runs=few, rounds=brief, number=n) for n, (words, other) in others}
        yield setup.seen.named(other_data_check(samples, law, sample.silent))
    yield from structure_checks(sample, moved, setup.claim)
    if (law is None or setup.seen) and setup.claim.unit in _PLANTED:
        yield from bare_checks(sample, setup.claim, partial(_sample_with_unit, setup, draw, sample))


def _sample_with_unit(
    setup: ReplaySetup, draw: Callable[..., NoiseSample], sample: NoiseSample, row: int
) -> NoiseSample | None:
    """The sample with a unit's row along all weights in each run, at the client of a row or in a sum; None where it
    cannot be made.
    """
    direction, _, _ = list(_canary_rows(setup))[2]
    client = setup.probed[0] if sample.senders is None else sample.senders[row]
    of_sample, length = setup.claim.unit is Unit.SAMPLE, setup.clip_norm * _LENGTHS[0]
    where = {"client": client} if of_sample else {"place": client}
    canary = Canary(unit=setup.claim.unit, present=length * direction, absent=None, **where)
    try:
        return draw(setup.still, runs=sample.runs, rounds=sample.values.shape[2], canary=canary)
    except Exception:  # A user's own defense may raise anything with other rows.
        return None


def _repeated_rounds(setup: ReplaySetup) -> set[int]:
    """Rounds that send an earlier release once more, bit for bit, although the clients' data changed in between."""
    plan = setup.still.plan
    changing = replace(setup.still, plan=replace(plan, lot=DrawHalf(plan.lot)))
    runs = [
        replay(changing, setup.protection, setup.claim.observer, seed=setup.seed, noise=number).releases
        for number in range(2)
    ]
    return {
        turn
        for turn in range(1, len(runs[0]))
        if any(all(torch.equal(run[turn], run[earlier]) for run in runs) for earlier in range(turn))
    }


def _without(draw: Recording, rounds: set[int]) -> Recording:
    """The recording, in which nothing was sent in some rounds."""
    there = [torch.zeros_like(row) if turn in rounds else row for turn, row in enumerate(draw.present)]
    return replace(draw, present=there)


def _moved(setup: ReplaySetup, pair: RunPair) -> Iterator[Move]:
    """How far the pair's row moved each row of the first and the last round that both runs have."""
    law = setup.law(pair.sender)
    if (law is not None and not law.additive) or pair.before.senders != pair.after.senders:
        return
    rounds = min(len(pair.before.releases), len(pair.after.releases))
    for turn in sorted({0, rounds - 1}):
        delta = (pair.after.releases[turn] - pair.before.releases[turn]).numpy() / pair.rows
        for row in np.flatnonzero(np.abs(delta).max(axis=1) > 0):
            yield Move(delta[row], f"{pair.witness}, round {turn}", turn)


def _moved_rounds(pair: RunPair) -> set[int]:
    """Rounds in which the pair's unit moved anything that was released."""
    runs = zip(pair.before.releases, pair.after.releases, strict=False)
    return {turn for turn, (one, other) in enumerate(runs) if one.shape != other.shape or bool((one != other).any())}


def _pairs(setup: ReplaySetup) -> Iterator[RunPair]:
    """Pairs of runs that differ by a planted row or by another label of real rows."""
    yield from _planted(setup)
    yield from _planted_users(setup)
    yield from _among_short(setup)
    yield from _changed_records(setup)


def _among_short(setup: ReplaySetup) -> Iterator[RunPair]:
    """A long row among rows that no clip shortens, against a short one or none: a number may tell the longest row, or
    whether any row was clipped.
    """
    claim, quiet, client = setup.claim, setup.quiet, setup.probed[0]
    row = setup.clip_norm * _LENGTHS[0] * _unused(setup.still.plan.layout.dim)
    replaced = claim.adjacency is Adjacency.REPLACE_ONE
    words = f"a row of {_LENGTHS[0]:g} clip norms along an unused weight among short ones"
    if claim.unit is Unit.SAMPLE and claim.adjacency is not Adjacency.ZERO_OUT:
        canary = Canary(unit=claim.unit, present=row, absent=_SHORT * row if replaced else None, client=client)
    elif (claim.unit, claim.adjacency) in _REPLACED or setup.adds_to_sum:
        absent = _SHORT * row if replaced else setup.absent(row)
        canary = Canary(unit=claim.unit, present=row, absent=absent, place=client)
    else:
        return
    yield _pair(quiet, canary, client, f"{words} at client {client}", quiet.draws, setup.brief, noise_too=True)


def _planted(setup: ReplaySetup) -> Iterator[RunPair]:
    """A canary of the claim's unit along the unused weight and in directions of all weights, at every client."""
    claim = setup.claim
    replaced = claim.adjacency is Adjacency.REPLACE_ONE
    rows = [(number, *row) for number, row in enumerate(_canary_rows(setup))]
    for number, direction, length, words in (*rows, *((None, *row) for row in _layer_rows(setup))):
        row = setup.clip_norm * length * direction
        witness = f"a row of {length:g} clip norms {words}"
        if claim.unit is Unit.SAMPLE and claim.adjacency is not Adjacency.ZERO_OUT:
            for client, rounds in _places(setup, number):
                canary = Canary(unit=claim.unit, present=row, absent=-row if replaced else None, client=client)
                opposite = " and its opposite" if replaced else ""
                yield _pair(setup, canary, client, f"{witness}{opposite} at client {client}", setup.draws, rounds)
        elif (claim.unit, claim.adjacency) in _REPLACED:
            other = "its opposite" if replaced else "zeros"
            yield from _planted_clients(setup, row, number, f"{witness} and {other}")
        # A report more or less cannot be separated from its noise; in a sum it can.
        elif setup.adds_to_sum:
            witness += " and zeros" if setup.brings_noise else ""
            yield from _planted_clients(setup, row, number, witness)


def _planted_users(setup: ReplaySetup) -> Iterator[RunPair]:
    """Users of several shapes, present and absent, along the unused weight, along all weights, along single layers, and
    against the samples of others, where these are equal.
    """
    if (setup.claim.unit, setup.claim.adjacency) != (Unit.USER, Adjacency.ADD_REMOVE) or setup.several_reports:
        return
    groups = _groups(setup)
    for number, (direction, length, words) in enumerate(_canary_rows(setup)):
        row = setup.clip_norm * length * direction
        for turn, holders in enumerate(groups):
            for shape, (at, user) in enumerate(user_shapes(row, holders, setup.seed)):
                rounds = None if number == turn == shape == 0 else setup.brief
                yield _user_pair(setup, user, f"a user of {at}, each of {length:g} clip norms {words}", rounds)
    for direction, length, words in _layer_rows(setup):
        at, user = next(user_shapes(setup.clip_norm * length * direction, groups[0], setup.seed))
        yield _user_pair(setup, user, f"a user of {at}, each of {length:g} clip norms {words}", setup.brief and 1)
    if (equal := _equal_samples(setup)) is not None:
        row = -setup.clip_norm * _LENGTHS[0] * equal[1]
        for at, user in against_others(row, groups[0]):
            words = f"a user of {at}, each of {_LENGTHS[0]:g} clip norms against all other samples, which are equal"
            yield _user_pair(equal[0], user, words, setup.brief)


def _groups(setup: ReplaySetup) -> list[list[int]]:
    """The clients that hold the samples of a planted user, in turn: as many as the claim allows."""
    many, probed = clients_of_user(setup.claim, setup.still.plan), setup.probed
    # Of too many clients, those that are not probed hold samples of the first group's user.
    order = [*probed, *(client for client in range(setup.still.plan.clients) if client not in probed)]
    groups = [order[first : first + many] for first in range(0, len(order), many)]
    return [group for group in groups if len(group) == many][:_GROUPS]


def _user_pair(setup: ReplaySetup, user: UserCanary, witness: str, rounds: int | None) -> RunPair:
    return _pair(setup, user, user.holders[0], witness, setup.draws, rounds)


def _equal_samples(setup: ReplaySetup) -> tuple[ReplaySetup, Tensor] | None:
    """The federation in which all samples are equal, so that their gradients add up, with the direction ``(d,)`` of
    these; None where there is none.
    """
    task = setup.still.task
    if task.network.mixes:
        return None
    first = int(task.parts[0][0])
    images, labels = (values[first : first + 1].expand_as(values) for values in (task.images, task.labels))
    model = task.initial(Streams(setup.seed)).unsqueeze(0)
    gradient = task.network.sample_gradients(model, images[:1].unsqueeze(0), labels[:1].unsqueeze(0))[0, 0]
    length = torch.linalg.vector_norm(gradient)
    equal = replace(setup, still=replace(setup.still, task=replace(task, images=images, labels=labels)))
    return (equal, gradient / length) if length > 0 else None


def _planted_clients(setup: ReplaySetup, row: Tensor, number: int | None, witness: str) -> Iterator[RunPair]:
    """A row as the update of one client more, and in the place of a client of the plan, with its size and weight."""
    clients = setup.still.plan.clients
    canary = Canary(unit=setup.claim.unit, present=row, absent=setup.absent(row))
    if number is not None and not setup.unaccepted:
        rounds = None if number == 0 or clients <= _FEW else setup.brief
        # One more client has noise that the runs without it do not show.
        others = setup.draws if canary.absent is None else setup.extended
        yield _pair(setup, canary, clients, witness, others, rounds)
    for client, brief in _places(setup, number):
        # Without room for one client more these runs are the only ones over all rounds.
        rounds = None if setup.unaccepted and number == 0 else setup.brief if number is not None else brief
        place = replace(canary, place=client)
        yield _pair(setup, place, client, f"{witness} in the place of client {client}", setup.draws, rounds)


def _places(setup: ReplaySetup, number: int | None) -> Iterator[tuple[int, int | None]]:
    """The clients that get the canary row of this number, with the rounds to run; None: all. A row without a number
    stands at one client in one round.
    """
    probed = setup.probed
    if number is None:
        yield probed[0], setup.brief and 1
        return
    # Each row at the largest, the smallest or a random client, the first in all rounds; at others two rows in turn.
    for turn, client in enumerate(probed):
        if len(probed) <= _FEW:
            yield client, None
        elif turn == number:
            yield client, None if turn == 0 else setup.brief
        elif turn >= len(_LENGTHS) and turn % (len(_LENGTHS) - 1) == number:
            yield client, setup.brief


def _pair(
    setup: ReplaySetup,
    canary: Canary,
    sender: int,
    witness: str,
    others: list[Recording],
    rounds: int | None,
    *,
    noise_too: bool = False,
) -> RunPair:
    """A pair that differs by the canary.

    Args:
        others: runs like the one without it, with other noise.
        noise_too: whether the noise of the two runs is compared.
    """
    added = canary.added
    # Rows of zeros are the same whatever the canary.
    same = canary.place is None and not bool(canary.rows(0).any())

    def arms(noise: int, rounds: int | None = None) -> tuple[Recording, Recording]:
        after = setup.run(canary=canary, arm=1, noise=noise, rounds=rounds)
        if same and noise < _DRAWS:
            return others[noise], after
        absent = None if added else canary
        return setup.run(canary=absent, arm=0, noise=noise, rounds=rounds), after

    def many(noise: int, number: int, rounds: int = 2) -> tuple[ManyRuns, ManyRuns]:
        without = setup.many(number, noise, None if added else canary, arm=0, rounds=rounds)
        return without, setup.many(number, noise, canary, arm=1, rounds=rounds)

    def replicas(noise: int, number: int) -> tuple[list[Recording], list[Recording]]:
        without = setup.run_many(number, canary=None if added else canary, arm=0, noise=noise)
        return without, setup.run_many(number, canary=canary, arm=1, noise=noise)

    before, after = arms(0, rounds)
    return RunPair(
        before=before,
        after=after,
        rows=2 if canary.adjacency is Adjacency.REPLACE_ONE else 1,
        sender=sender,
        witness=witness,
        others=others,
        again=arms,
        replicas=replicas,
        # A row of zeros for an absent one is two steps of such a claim away.
        many=None if setup.claim.adjacency is Adjacency.ADD_REMOVE and canary.absent is not None else many,
        compares_noise=noise_too,
    )


def _canary_rows(setup: ReplaySetup) -> Iterator[tuple[Tensor, float, str]]:
    """Unit directions ``(d,)`` with the canary's length and the direction's words."""
    dim = setup.still.plan.layout.dim
    unused = _unused(dim)
    anywhere = normal(Streams(setup.seed).generator("probe direction"), (dim,))
    anywhere = anywhere / torch.linalg.vector_norm(anywhere)
    long, longest, short = _LENGTHS
    yield unused, long, "along an unused weight"
    yield anywhere, longest, "along all weights"
    yield anywhere, short, "along all weights"


def _layer_rows(setup: ReplaySetup) -> Iterator[tuple[Tensor, float, str]]:
    """Random directions of single layers with the longest canary's length: a clip may leave a layer out."""
    rng, layout = Streams(setup.seed).generator("probe layers"), setup.still.plan.layout
    for name, place in extreme_layers(layout):
        direction = torch.zeros(layout.dim)
        direction[place] = normal(rng, (place.stop - place.start,))
        yield direction / torch.linalg.vector_norm(direction), _LENGTHS[1], f"along {name}"


def extreme_layers(layout: Layout) -> list[tuple[str, slice]]:
    """Return the smallest and the largest layers, four at most; none where there is only one."""
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
    if setup.claim.unit not in _PLANTED:
        return
    rng = Streams(setup.seed).generator("probe samples")
    for turn, client in enumerate(setup.probed):
        # The first sample of a lot at one client, a random one at the next.
        sample = 0 if turn % 2 == 0 else int(rng.integers(len(setup.still.task.parts[client])))
        rounds = None if turn == 0 or len(setup.probed) <= _FEW else setup.brief
        for inputs in _changed_in(turn, len(setup.probed)):
            yield _changed_record(setup, client, sample, rounds, inputs=inputs)


def _changed_in(turn: int, clients: int) -> tuple[bool, ...]:
    """Whether a client's data get other inputs, and not other labels: by turns, and both where there is one client."""
    return (False, True) if clients == 1 else (bool(turn % 2),)


def _changed_record(
    setup: ReplaySetup, client: int, sample: int, rounds: int | None, when: str = "", *, inputs: bool = False
) -> RunPair:
    """Another label or other ``inputs`` for one sample of a client, or for all where the unit is larger."""
    task, of_sample = setup.still.task, setup.claim.unit is Unit.SAMPLE
    changed = task.parts[client][sample : sample + 1] if of_sample else task.parts[client]
    labels = task.labels.clone()
    # Without a random draw: of classes it is the next one.
    labels[changed] = task.network.objective.others(labels[changed], task.network.classes)
    other = replace(task, images=other_inputs(task.images, changed)) if inputs else replace(task, labels=labels)

    def many(noise: int, number: int, rounds: int = 2) -> tuple[ManyRuns, ManyRuns]:
        without = setup.many(number, noise, None, arm=0, rounds=rounds)
        return without, setup.many(number, noise, None, arm=0, task=other, rounds=rounds)

    return RunPair(
        before=setup.draws[0],
        after=setup.run(task=other, rounds=rounds),
        rows=2,
        sender=client,
        witness=f"{'other inputs' if inputs else 'another label'} for {'a sample' if of_sample else 'all samples'} "
        f"of client {client}{when}",
        many=many,
        of_data=True,
        others=setup.draws,
        again=partial(_changed_runs, setup, other),
        replicas=lambda noise, number: (
            setup.run_many(number, noise=noise),
            setup.run_many(number, noise=noise, task=other),
        ),
    )


def _sampled_pairs(setup: ReplaySetup, missing: dict[str, str]) -> Iterator[RunPair]:
    """Pairs in which cohorts and lots are drawn as the plan draws them, and not complete.

    Labels or inputs alone change, so that both runs of a pair draw the same clients and samples.
    """
    plan = setup.still.plan
    if isinstance(plan.cohort, Full) and isinstance(plan.lot, Full):
        return
    if setup.claim.unit is Unit.USER:
        missing["lots and cohorts as sampled"] = "all clients take part with all samples, where a user is planted"
    if setup.claim.unit not in _PLANTED:
        return
    try:
        taking_part = list(islice(_drawn(setup), _PARTIAL))
        drawn = bool(taking_part and setup.draws)
    except Exception as problem:  # A hook of a foreign defense may raise anything, as for an empty cohort.
        drawn, words = False, f"{type(problem).__name__}: {problem}"
    else:
        words = "" if drawn else "no client takes part in the compared rounds"
    if not drawn:
        missing["lots and cohorts as sampled"] = words
        return
    for turn, (client, sample) in enumerate(taking_part):
        for inputs in _changed_in(turn, len(taking_part)):
            pair = _changed_record(setup, client, sample, None, ", lots and cohorts as sampled", inputs=inputs)
            yield replace(pair, sampled=True)


def _drawn(setup: ReplaySetup) -> Iterator[tuple[int, int]]:
    """A client of each round's cohort with a sample of its first lot; no client twice."""
    plan, streams, known = setup.still.plan, ReplayedStreams(setup.seed), set[int]()
    for number in range(setup.still.rounds):
        cohort = plan.draw_cohort(streams.generator, 1, plan.clients, round=number)[0]
        for client in cohort.nonzero().flatten().tolist():
            lot = plan.lot.draw(streams.generator("lot", round=number, client=client), 1, plan.sizes[client])[0]
            if client not in known and bool(lot.any()):
                known.add(client)
                # Not the first sample of the lot: a bug may spare it.
                yield client, int(lot.nonzero()[-1])
                break


def _changed_runs(setup: ReplaySetup, task: Task, noise: int) -> tuple[Recording, Recording]:
    before = setup.draws[noise] if noise < _DRAWS else setup.run(noise=noise)
    return before, setup.run(task=task, noise=noise)


def _add_moves(setup: ReplaySetup, pair: RunPair, found: list[CheckResult], unequal: dict[str, str]) -> str:
    """Add how far the pair's row moves each release, relative to what the law allows; return why it cannot be compared,
    if so.

    ``unequal``: gets the reason, by the words of a pair, where its two runs did not draw equally much.
    """
    law = setup.law(pair.sender)
    if law is None:
        return setup.no_law
    if not law.additive:
        return "its noise depends on the rows: equal draws do not cancel"
    allowed = pair.rows * abs(law.scale) * law.clip_norm * law.steps
    # A brief run is the beginning of a full one.
    for number, (before, after) in enumerate(zip(pair.before.releases, pair.after.releases, strict=False)):
        # The law is published for the first round's public state; in another state its clip norm may differ.
        if not (same_state(pair.before, number) and same_state(pair.after, number)):
            continue
        # Without the client a hook may draw fewer numbers, and so another cohort of the others.
        if not _same_others(pair, number):
            continue
        move = _move(before, after, allowed, f"{pair.witness}, round {number}", grid=law.grid)
        # Noise that differs in the two runs looks like a move; within the limit there was none.
        stream = move.passed is False and unequal_stream(pair.before.consumed, pair.after.consumed, number)
        if stream:
            unequal[move.witness] = f"with the unit other amounts are drawn from the stream {stream}"
        else:
            found.append(move)
    return ""


def _same_others(pair: RunPair, number: int) -> bool:
    """Whether the same clients other than the pair's took part in a round of both runs."""
    one, other = (run.took_part[number] - {pair.sender} for run in (pair.before, pair.after))
    return one == other


def _move(before: Tensor, after: Tensor, allowed: float, witness: str, *, grid: float) -> CheckResult:
    """How far a release ``(rows, d)`` moved; ``grid``: the step of the law's own grid."""
    moved = float(torch.linalg.vector_norm(after - before))
    slack = _SLACK * allowed + _ROUNDING * float(torch.linalg.vector_norm(before))
    if moved > allowed + slack and not grid:
        # Numbers that are rounded after the noise was added move by one step more.
        changed = int(torch.count_nonzero(after - before))
        slack += max(spacing(row.numpy()) for row in (*before, *after)) * changed**0.5
    return SENSITIVITY.at_most(moved, allowed, unit="L2 norm", witness=witness, slack=slack)


def moves_of_all(setup: ReplaySetup) -> Iterator[CheckResult]:
    """How far each release moves if all rows of all clients change at once, and are so long that a single one that
    passes no clip would outweigh all others: so many units may move it so many times as far as one.
    """
    task, plan, network = setup.still.task, setup.still.plan, setup.still.task.network
    if setup.claim.unit not in _PLANTED or not isinstance(network, FixedGradients) or network.mixes:
        return
    units = plan.sizes if setup.claim.unit is Unit.SAMPLE else (1,) * plan.clients
    laws = [law for law in map(setup.law, range(plan.clients)) if law is not None and law.additive]
    if len(laws) < plan.clients:
        return
    allowed = [2 * n * abs(law.scale) * law.clip_norm * law.steps for n, law in zip(units, laws, strict=True)]
    steep = replace(task, network=replace(network, steepness=_STEEPEST * network.steepness).sharing(network))
    other = replace(steep, labels=network.objective.others(task.labels, network.classes))
    before, after = (setup.run(task=held, rounds=1) for held in (steep, other))
    if before.senders != after.senders or unequal_stream(before.consumed, after.consumed, 0):
        return
    words = f"another label for all samples, with gradients of {_STEEPEST:g} times the length,"
    for row, sender in enumerate(before.senders or [None]):
        limit, rows = sum(allowed) if sender is None else allowed[sender], slice(row, row + 1)
        where = f"{words} {'all clients' if sender is None else f'client {sender}'}, round 0"
        yield _move(before.releases[0][rows], after.releases[0][rows], limit, where, grid=laws[sender or 0].grid)


def _sensitivity(
    setup: ReplaySetup, found: Sequence[CheckResult], reason: str, unequal: Mapping[str, str]
) -> CheckResult:
    """The largest move of a release by one row, relative to what the law allows; ``unequal``: moves that no equal draws
    show, with the reason.
    """
    if unequal and not found:
        reason = reason or f"equal draws do not cancel: {next(iter(unequal.values()))}"
    if reason:
        return SENSITIVITY.skipped(reason)
    if not found:
        if setup.claim.unit is Unit.USER and setup.several_reports:
            reason = "no law describes the reports of several clients, which hold the samples of one user, together"
            return SENSITIVITY.skipped(reason)
        reason = f"no row of one {setup.claim.unit} under {setup.claim.adjacency.phrase} can be planted"
        return SENSITIVITY.skipped(reason)
    # Rounded: the last digit must not decide which of several equal moves is named.
    most = max(found, key=lambda result: round((result.measured or 0.0) / (result.allowed or 1.0), 4))
    return replace(most, not_compared=tuple(f"{name}: {one}" for one, name in _by_reason(unequal).items()))


def _by_reason(unequal: Mapping[str, str]) -> dict[str, str]:
    """The first of all moves for each reason, with the number of others."""
    found: dict[str, list[str]] = {}
    for words, reason in unequal.items():
        found.setdefault(reason, []).append(words)
    return {
        reason: words[0] + (f" and {len(words) - 1} more" if len(words) > 1 else "") for reason, words in found.items()
    }


_OWN = "the claim's own model "
_OWN_ROUNDS = 2
"""Rounds that are run; the state of the second one shows what the first one left."""


def with_own_model(
    checks: Sequence[CheckResult], task: Task, plan: Plan, protection: Protection, claim: Claim, *, seed: int = 0
) -> tuple[CheckResult, ...]:
    """Return the results of the replay checks. A check that fails on the claim's own model, or can be made there alone,
    gets the result that it has there.

    Args:
        checks: results on the model of the audit.
        task, plan: a few clients with the claim's own model.
        protection, claim: as prepared and stated for this plan.
    """
    words = f"{_OWN}{task.network.model}, {_OWN_ROUNDS} rounds"
    brief = replace(claim, rounds=min(_OWN_ROUNDS, claim.rounds))
    try:
        found = {one.name: one for one in check_claim(task, plan, protection, brief, seed=seed)}
    except Exception as error:  # A user's own model or hook may raise anything, and the other results stand.
        reason = f"{words}: the checks do not run there ({type(error).__name__}: {error})"
        return (replace(checks[0], not_compared=(*checks[0].not_compared, reason)), *checks[1:])
    return tuple(_together(one, found.get(one.name), words) for one in checks)


def on_own_model(checks: Sequence[CheckResult]) -> bool:
    """Return whether any of the results was compared on the claim's own model."""
    return any(words.startswith(_OWN) for one in checks for words in one.compared)


def _together(one: CheckResult, other: CheckResult | None, words: str) -> CheckResult:
    if other is None or other.passed is None or one.passed is False:
        return one
    if other.passed is False or one.passed is None:
        witness = f"{words}: {other.witness}"
        one = replace(other, witness=witness, compared=one.compared, not_compared=one.not_compared)
    return replace(one, compared=(*one.compared, words))
