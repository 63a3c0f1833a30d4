"""Run a federation a few times with equal random draws and compare the runs exactly, without statistics.

Two runs that differ by one row give a lower bound on the sensitivity that is enforced; two runs that differ by the
draws of the hooks show the noise. A check that passes proves nothing; one that fails names the row that violates the
sensitivity, or the noise that is missing.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.observer import FINAL_MODEL, SHUFFLED
from ...fl.canary import Canary
from ...fl.channels import changes_broadcast
from ...fl.laws.law import GaussianLaw, ReportLaw
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.replay import DrawHalf, FrozenFederation, Recording, frozen_federation, replay
from ...fl.streams import Streams, normal
from ...fl.task import Task
from ..config.canaries import absent_row
from .check import CheckResult
from .draw_checks import LawOfDraws, draw_checks, other_data_check
from .extreme_checks import ExtremeProbe
from .message_checks import MessageComparison, Pair
from .noise_checks import BETWEEN_ROUNDS, PRESENT, SCALE, freshness_checks, noise_checks, same_state
from .noise_sample import NUMBERS, NoiseSample, noise_sample, runs_needed, spacing
from .other_data import other_data
from .structure_checks import Move, structure_checks

SENSITIVITY = "sensitivity"
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
_LENGTHS = (10.0, 1e4, 0.1)
"""Canaries in clip norms: the audit's own, one that outweighs all other rows, for clips of a mean or a lot, and one
that no clip shortens.
"""
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

    def run(
        self,
        *,
        noise: int = 0,
        canary: Canary | None = None,
        world: int = 0,
        task: Task | None = None,
        rounds: int | None = None,
    ) -> Recording:
        """Run the federation once and return what was recorded; ``task`` replaces its data."""
        still = self.still if task is None else replace(self.still, task=task)
        return replay(
            still,
            self.protection,
            self.claim.observer,
            seed=self.seed,
            noise=noise,
            canary=canary,
            world=world,
            rounds=rounds,
        )

    def law(self, sender: int) -> GaussianLaw | None:
        """Return the noise distribution of what this client releases; None if it is not Gaussian."""
        law = self.protection.law(self.claim.observer, self.still.plan, sender)
        return law if isinstance(law, GaussianLaw) and not law.then else None

    @property
    def no_law(self) -> str:
        """Why no Gaussian law can be compared with what is released, where ``law`` is None."""
        sender = 0 if self.claim.unit is Unit.SAMPLE else self.still.plan.clients
        law = self.protection.law(self.claim.observer, self.still.plan, sender)
        if isinstance(law, GaussianLaw) and law.then:
            return f"the noised release is post-processed: {law.then}"
        return "no Gaussian law is published for this observer"

    @property
    def drawn(self) -> bool:
        """Whether each client's report is a random draw from a published distribution."""
        return isinstance(self.protection.law(self.claim.observer, self.still.plan, 0), ReportLaw)

    @cached_property
    def draws(self) -> list[Recording]:
        """Runs without a canary that differ in their noise alone."""
        return [self.run(noise=number) for number in range(_DRAWS)]

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
    task: Task, plan: Plan, protection: Protection, claim: Claim, *, seed: int = 0
) -> tuple[CheckResult, ...]:
    """Run every implementation check that applies to the claim, by some thirty runs of the federation, most of them
    brief.

    Sensitivity and noise scale are compared with the published law, in the rounds that share the first one's public
    state; a claim without a Gaussian law gets the other checks. Everything else that the claim's observer receives is
    compared between runs that differ by a unit.
    """
    setup = replay_setup(task, plan, protection, claim, seed=seed)
    message, moves, moved = _message(setup), list[CheckResult](), list[Move]()
    reason, constant = "", {*range(setup.still.rounds)}
    for pair in _pairs(setup):
        message.add(pair)
        constant -= _moved_rounds(pair)
        reason = reason or _add_moves(setup, pair, moves)
        moved += _moved(setup, pair)
    found = (_sensitivity(setup, moves, reason), *_noise(setup, setup.draws, moved, constant), *message.results())
    return (*found, *_extreme(setup))


def _extreme(setup: ReplaySetup) -> Iterator[CheckResult]:
    """The check of extreme rows at the largest client, or at one client more where a row is a client's."""
    if setup.claim.unit not in (Unit.SAMPLE, Unit.CLIENT, Unit.REPORT):
        return
    client = setup.probed[0] if setup.claim.unit is Unit.SAMPLE else setup.still.plan.clients
    yield ExtremeProbe(
        claim=setup.claim,
        plan=setup.still.plan,
        protection=setup.protection,
        clip_norm=setup.clip_norm,
        law=setup.law(client),
        client=client,
        # One round: the first one, for which the law is published.
        run=lambda canary, world: setup.run(canary=canary, world=world, rounds=1),
    ).result()


def replay_setup(task: Task, plan: Plan, protection: Protection, claim: Claim, *, seed: int = 0) -> ReplaySetup:
    """Build the federation that is run repeatedly, whose gradients never change."""
    length = _clip_norm(claim, protection, plan)
    # A gradient is clipped, or an update, which is gradients times the learning rate.
    scale = 1.0 if claim.unit is Unit.SAMPLE else abs(plan.algorithm.linear_scale or 1.0)
    rounds = min(claim.rounds, max(3, _NUMBERS // (plan.clients * plan.layout.dim)))
    moving = changes_broadcast(protection)
    steepness = _STEEP * length / scale
    still = frozen_federation(task, plan, rounds=rounds, steepness=steepness, seed=seed, moving=moving)
    return ReplaySetup(still=still, protection=protection, claim=claim, clip_norm=length, seed=seed)


def _message(setup: ReplaySetup) -> MessageComparison:
    """The comparison of everything that the observer receives, with what it leaves out."""
    claim, plan = setup.claim, setup.still.plan
    sender = 0 if claim.unit is Unit.SAMPLE else plan.clients
    covered = setup.protection.law(claim.observer, plan, sender) is not None
    message = MessageComparison(claim=claim, plan=plan, covered=covered)
    if not changes_broadcast(setup.protection):
        message.missing["broadcast model"] = "the defense leaves it as it is, so that it follows from the aggregates"
    if setup.still.rounds < claim.rounds:
        message.missing[f"rounds after round {setup.still.rounds - 1}"] = "the model is too large to run them all"
    if len(setup.probed) < plan.clients:
        message.missing[f"{plan.clients - len(setup.probed)} of {plan.clients} clients"] = "no row was planted at them"
    return message


def _clip_norm(claim: Claim, protection: Protection, plan: Plan) -> float:
    """The clip norm that the law or the claim publishes; 1 where neither does."""
    law = protection.law(claim.observer, plan, 0 if claim.unit is Unit.SAMPLE else plan.clients)
    published = law.clip_norm if isinstance(law, GaussianLaw) else claim.parameters.get("clip_norm", 1.0)
    return float(published) if isinstance(published, int | float) else 1.0


def _noise(
    setup: ReplaySetup, draws: Sequence[Recording], moved: Sequence[Move], constant: Collection[int]
) -> list[CheckResult]:
    sees_sum = setup.claim.observer.rank < SHUFFLED.rank
    if sees_sum and changes_broadcast(setup.protection):
        reason = "its noise may be added to the broadcast model, which is compared with the whole message"
        return [CheckResult(name=PRESENT, passed=None, witness=reason)]
    senders = draws[0].senders
    if senders is None:
        senders = (0 if setup.claim.unit is Unit.SAMPLE else setup.still.plan.clients,)
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
        return [*(one for one in found if one.name != SCALE), CheckResult(name=SCALE, passed=None, witness=reason)]
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
        yield CheckResult(name=SCALE, passed=None, witness=reason)
        return
    if law is not None:
        yield from draw_checks(sample, law, setup.claim)
        few, brief = 8 if rows >= _FEW else 16, min(_BRIEF, rounds)
        others = enumerate(other_data(still), start=1)
        samples = {words: draw(other, runs=few, rounds=brief, number=n) for n, (words, other) in others}
        yield other_data_check(samples, law, sample.silent)
    yield from structure_checks(sample, moved, setup.claim)


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


def _moved(setup: ReplaySetup, pair: Pair) -> Iterator[Move]:
    """How far the pair's row moved each row of the first and the last round that both runs have."""
    law = setup.law(pair.sender)
    if (law is not None and not law.additive) or pair.before.senders != pair.after.senders:
        return
    rounds = min(len(pair.before.releases), len(pair.after.releases))
    for turn in sorted({0, rounds - 1}):
        delta = (pair.after.releases[turn] - pair.before.releases[turn]).numpy() / pair.rows
        for row in np.flatnonzero(np.abs(delta).max(axis=1) > 0):
            yield Move(delta[row], f"{pair.witness}, round {turn}")


def _moved_rounds(pair: Pair) -> set[int]:
    """Rounds in which the pair's unit moved anything that was released."""
    runs = zip(pair.before.releases, pair.after.releases, strict=False)
    return {turn for turn, (one, other) in enumerate(runs) if one.shape != other.shape or bool((one != other).any())}


def _pairs(setup: ReplaySetup) -> Iterator[Pair]:
    """Pairs of runs that differ by a planted row or by another label of real rows."""
    yield from _planted(setup)
    yield from _relabelled(setup)


def _planted(setup: ReplaySetup) -> Iterator[Pair]:
    """A canary of the claim's unit along the unused weight and in directions of all weights, at every client."""
    claim, clients = setup.claim, setup.still.plan.clients
    senders = setup.draws[0].senders
    replaced = claim.adjacency is Adjacency.REPLACE_ONE
    clean: list[Recording] = []
    for number, (direction, length, words) in enumerate(_canary_rows(setup)):
        row = setup.clip_norm * length * direction
        witness = f"a row of {length:g} clip norms {words}"
        if claim.unit is Unit.SAMPLE and claim.adjacency is not Adjacency.ZERO_OUT:
            for client, rounds in _places(setup, number):
                canary = Canary(unit=claim.unit, present=row, absent=-row if replaced else None, client=client)
                opposite = " and its opposite" if replaced else ""
                yield _pair(setup, canary, client, f"{witness}{opposite} at client {client}", setup.draws, rounds)
        elif (claim.unit, claim.adjacency) in ((Unit.REPORT, Adjacency.REPLACE_ONE), (Unit.CLIENT, Adjacency.ZERO_OUT)):
            canary = Canary(unit=claim.unit, present=row, absent=absent_row(row, claim.adjacency))
            # The canary is one more client, whose noise the runs without it do not show.
            clean = clean or [setup.run(canary=canary, world=0, noise=noise) for noise in range(_DRAWS)]
            other = "its opposite" if replaced else "zeros"
            rounds = None if number == 0 or clients <= _FEW else setup.brief
            yield _pair(setup, canary, clients, f"{witness} and {other}", clean, rounds, reuse=number == 0)
        # One client more is one report more, which cannot be separated from its noise; in a sum it can.
        elif (claim.unit, claim.adjacency) == (Unit.CLIENT, Adjacency.ADD_REMOVE) and senders is None:
            rounds = None if number == 0 or clients <= _FEW else setup.brief
            yield _pair(setup, Canary(unit=claim.unit, present=row), clients, witness, setup.draws, rounds)


def _places(setup: ReplaySetup, number: int) -> Iterator[tuple[int, int | None]]:
    """The clients that get the canary row of this number, with the rounds to run; None: all."""
    probed = setup.probed
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
    reuse: bool = False,
) -> Pair:
    """A pair that differs by the canary; ``reuse``: whether ``others`` are its runs without the canary."""

    def arms(noise: int, rounds: int | None = None) -> tuple[Recording, Recording]:
        after = setup.run(canary=canary, world=1, noise=noise, rounds=rounds)
        if canary.absent is None:
            return setup.draws[noise] if noise < _DRAWS else setup.run(noise=noise), after
        # Rows of zeros are the same whatever the canary.
        if noise < _DRAWS and others is not setup.draws and (reuse or not bool(canary.absent.any())):
            return others[noise], after
        return setup.run(canary=canary, world=0, noise=noise, rounds=rounds), after

    before, after = arms(0, rounds)
    rows = 2 if canary.adjacency is Adjacency.REPLACE_ONE else 1
    return Pair(before=before, after=after, rows=rows, sender=sender, witness=witness, others=others, again=arms)


def _canary_rows(setup: ReplaySetup) -> Iterator[tuple[Tensor, float, str]]:
    """Unit directions ``(d,)`` with the canary's length and the direction's words."""
    dim = setup.still.plan.layout.dim
    unused = torch.zeros(dim)
    # The last weight is the inert one where the plan has one.
    unused[-1] = 1.0
    anywhere = normal(Streams(setup.seed).generator("probe direction"), (dim,))
    anywhere = anywhere / torch.linalg.vector_norm(anywhere)
    long, longest, short = _LENGTHS
    yield unused, long, "along an unused weight"
    yield anywhere, longest, "along all weights"
    yield anywhere, short, "along all weights"


def _relabelled(setup: ReplaySetup) -> Iterator[Pair]:
    """Another label for one of the real rows: a missing clip may affect a real client or sample only."""
    unit, task = setup.claim.unit, setup.still.task
    if unit not in (Unit.SAMPLE, Unit.CLIENT, Unit.REPORT):
        return
    rng = Streams(setup.seed).generator("probe samples")
    for turn, client in enumerate(setup.probed):
        part = task.parts[client]
        # The first sample of a lot at one client, a random one at the next.
        sample = 0 if turn % 2 == 0 else int(rng.integers(len(part)))
        changed, words = (part[sample : sample + 1], "a sample") if unit is Unit.SAMPLE else (part, "all samples")
        labels = task.labels.clone()
        # The next class: always another label, without a random draw.
        labels[changed] = (labels[changed] + 1) % task.network.classes
        brief = None if turn == 0 or len(setup.probed) <= _FEW else setup.brief
        again = partial(_relabelled_runs, setup, replace(task, labels=labels))
        yield Pair(
            before=setup.draws[0],
            after=setup.run(task=replace(task, labels=labels), rounds=brief),
            rows=2,
            sender=client,
            witness=f"another label for {words} of client {client}",
            others=setup.draws,
            again=again,
        )


def _relabelled_runs(setup: ReplaySetup, task: Task, noise: int) -> tuple[Recording, Recording]:
    before = setup.draws[noise] if noise < _DRAWS else setup.run(noise=noise)
    return before, setup.run(task=task, noise=noise)


def _add_moves(setup: ReplaySetup, pair: Pair, found: list[CheckResult]) -> str:
    """Add how far the pair's row moves each release, relative to what the law allows; return why it cannot be compared,
    if so.
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
        moved = float(torch.linalg.vector_norm(after - before))
        slack = _SLACK * allowed + _ROUNDING * float(torch.linalg.vector_norm(before))
        if moved > allowed + slack and not law.grid:
            # Numbers that are rounded after the noise was added move by one step more.
            changed = int(torch.count_nonzero(after - before))
            slack += max(spacing(row.numpy()) for row in (*before, *after)) * changed**0.5
        witness = f"{pair.witness}, round {number}"
        found.append(CheckResult.at_most(SENSITIVITY, moved, allowed, unit="L2 norm", witness=witness, slack=slack))
    return ""


def _sensitivity(setup: ReplaySetup, found: Sequence[CheckResult], reason: str) -> CheckResult:
    """The largest move of a release by one row, relative to what the law allows."""
    if reason:
        return CheckResult(name=SENSITIVITY, passed=None, witness=reason)
    if not found:
        reason = f"no row of one {setup.claim.unit} under {setup.claim.adjacency.phrase} can be planted"
        return CheckResult(name=SENSITIVITY, passed=None, witness=reason)
    # Rounded: the last digit must not decide which of several equal moves is named.
    return max(found, key=lambda result: round((result.measured or 0.0) / (result.allowed or 1.0), 4))
