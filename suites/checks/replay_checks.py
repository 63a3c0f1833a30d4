"""Probes: what a few replayed runs show of a claim without any sampling, before statistics.

Two runs that differ by one row bound the sensitivity that is enforced from below; two runs that differ by the
hooks' draws show the noise. A probe that is kept proves nothing; one that is broken names the row that breaks it, or
the noise that is not there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.observer import SHUFFLED
from ...fl.canary import Canary
from ...fl.laws.law import GaussianLaw, ReportLaw
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.replay import FrozenFederation, Recording, frozen_federation, replay
from ...fl.streams import Streams, normal
from ...fl.task import Task
from ..config.canaries import absent_row
from ..jobs.audited_federation import audited_federation
from ..jobs.cells import AuditCell
from ..results.record import Record
from .check import CheckResult, broken_words, check_rows
from .noise_checks import PRESENT, noise_checks, same_state

SENSITIVITY, PUBLIC_STATE = "sensitivity", "public state"
_CLIENTS, _DRAWS = 4, 3
_NUMBERS = 2**22
"""Kept of one run at most: a large model is probed in fewer rounds than the claim covers, three at least."""
_STEEP = 10.0
"""All gradients are long too, ten clip norms and more: a real row that is not clipped could not show else."""
_LENGTHS = (10.0, 1e4)
"""Canaries in clip norms: the audit's own, and one that outweighs everybody, against clips of a mean or a whole lot."""
_SLACK, _ROUNDING = 1e-3, 2.0**-22
_HIDES = 1000.0
"""Three draws tell a spread badly: a state is bare only where a row moves it a thousand times as far as noise does."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two runs of equal draws; data differ by ``rows`` rows (1: one is added, 2: one is replaced) at ``sender``."""

    before: Recording
    after: Recording
    rows: int
    sender: int
    witness: str


@dataclass(frozen=True, kw_only=True)
class ReplaySetup:
    """A claim's still federation: every run in it shares all draws that are not changed on purpose."""

    still: FrozenFederation
    protection: Protection
    claim: Claim
    clip_norm: float
    seed: int

    def run(
        self, *, noise: int = 0, canary: Canary | None = None, world: int = 0, task: Task | None = None
    ) -> Recording:
        """One recording; ``task``: other data."""
        still = self.still if task is None else replace(self.still, task=task)
        return replay(
            still, self.protection, self.claim.observer, seed=self.seed, noise=noise, canary=canary, world=world
        )

    def law(self, sender: int) -> GaussianLaw | None:
        """The law of what this sender adds, where it is a Gaussian one."""
        law = self.protection.law(self.claim.observer, self.still.plan, sender)
        return law if isinstance(law, GaussianLaw) else None

    @property
    def drawn(self) -> bool:
        """Whether a client's report is drawn from a law of its own."""
        return isinstance(self.protection.law(self.claim.observer, self.still.plan, 0), ReportLaw)


def checked_rows(audit: AuditCell, record: Record, shown: Sequence[CheckResult] = ()) -> list[Record]:
    """The audit's row, its reason naming every broken probe, and a row for each probe, on the first block's
    federation; ``shown``: what its replicas show besides.
    """
    torch.set_num_threads(1)
    block = audit.blocks[0]
    task, plan = audited_federation(block)
    exposures = (*check_claim(task, plan, block.protection, audit.claim, seed=block.seed), *shown)
    judged = record.model_copy(update={"reason": record.reason + broken_words(exposures)})
    return [judged, *check_rows(audit.cell, exposures)]


def check_claim(
    task: Task, plan: Plan, protection: Protection, claim: Claim, *, seed: int = 0
) -> tuple[CheckResult, ...]:
    """Every probe that applies to the claim: some ten runs of the claim's rounds with the task's first four clients.

    Sensitivity and noise scale are held against the published law, in the rounds that share the first one's public
    state; a claim without a Gaussian law is probed for the rest.
    """
    task = task.restricted(clients=_CLIENTS, samples=max(task.sizes))
    plan = plan.resized(task.sizes)
    length = _clip_norm(claim, protection, plan)
    # What is clipped is a gradient, or an update: gradients times the learning rate.
    scale = 1.0 if claim.unit is Unit.SAMPLE else abs(plan.algorithm.linear_scale or 1.0)
    rounds = min(claim.rounds, max(3, _NUMBERS // (plan.clients * plan.layout.dim)))
    still = frozen_federation(task, plan, rounds=rounds, steepness=_STEEP * length / scale, seed=seed)
    laboratory = ReplaySetup(still=still, protection=protection, claim=claim, clip_norm=length, seed=seed)
    draws = [laboratory.run(noise=number) for number in range(_DRAWS)]
    pairs = [*_planted(laboratory, draws[0]), *_relabelled(laboratory, draws[0])]
    return (_sensitivity(laboratory, pairs), *_noise(laboratory, draws), *_public_state(pairs, draws))


def _clip_norm(claim: Claim, protection: Protection, plan: Plan) -> float:
    """The clip norm that the law or the claim publishes; 1 where neither does."""
    law = protection.law(claim.observer, plan, 0 if claim.unit is Unit.SAMPLE else plan.clients)
    published = law.clip_norm if isinstance(law, GaussianLaw) else claim.parameters.get("clip_norm", 1.0)
    return float(published) if isinstance(published, int | float) else 1.0


def _noise(laboratory: ReplaySetup, draws: Sequence[Recording]) -> list[CheckResult]:
    sees_sum = laboratory.claim.observer.rank < SHUFFLED.rank
    if sees_sum and type(laboratory.protection).broadcast is not Protection.broadcast:
        reason = "its noise may be added on the way down, to a model that stands still here"
        return [CheckResult(name=PRESENT, kept=None, witness=reason)]
    senders = draws[0].senders
    if senders is None:
        senders = (0 if laboratory.claim.unit is Unit.SAMPLE else laboratory.still.plan.clients,)
    laws = [law for law in map(laboratory.law, senders) if law is not None]
    layers = laboratory.still.plan.layout.slices
    return noise_checks(draws, laws if len(laws) == len(senders) else None, layers, drawn=laboratory.drawn)


def _planted(laboratory: ReplaySetup, base: Recording) -> Iterator[Pair]:
    """A canary of the claim's unit along the unused weight and in a direction of all weights, at every client."""
    claim, clients = laboratory.claim, laboratory.still.plan.clients
    for direction, length, words in _canary_rows(laboratory):
        row = laboratory.clip_norm * length * direction
        witness = f"a row of {length:g} clip norms {words}"
        if (claim.unit, claim.adjacency) == (Unit.SAMPLE, Adjacency.ADD_REMOVE):
            for client in range(clients):
                after = laboratory.run(canary=Canary(unit=claim.unit, present=row, client=client), world=1)
                yield Pair(before=base, after=after, rows=1, sender=client, witness=f"{witness} at client {client}")
        elif (claim.unit, claim.adjacency) == (Unit.SAMPLE, Adjacency.REPLACE_ONE):
            for client in range(clients):
                canary = Canary(unit=claim.unit, present=row, absent=-row, client=client)
                before, after = (laboratory.run(canary=canary, world=world) for world in (0, 1))
                words = f"{witness} and its opposite at client {client}"
                yield Pair(before=before, after=after, rows=2, sender=client, witness=words)
        elif (claim.unit, claim.adjacency) in ((Unit.REPORT, Adjacency.REPLACE_ONE), (Unit.CLIENT, Adjacency.ZERO_OUT)):
            canary = Canary(unit=claim.unit, present=row, absent=absent_row(row, claim.adjacency))
            before, after = (laboratory.run(canary=canary, world=world) for world in (0, 1))
            replaced = claim.adjacency is Adjacency.REPLACE_ONE
            rows, other = (2, "its opposite") if replaced else (1, "zeros")
            yield Pair(before=before, after=after, rows=rows, sender=clients, witness=f"{witness} and {other}")
        # One client more is one report more, whose noise cannot be told from it; its sum can.
        elif (claim.unit, claim.adjacency) == (Unit.CLIENT, Adjacency.ADD_REMOVE) and base.senders is None:
            after = laboratory.run(canary=Canary(unit=claim.unit, present=row), world=1)
            yield Pair(before=base, after=after, rows=1, sender=clients, witness=witness)


def _canary_rows(laboratory: ReplaySetup) -> Iterator[tuple[Tensor, float, str]]:
    """Unit directions ``(d,)`` with the canary's length and the direction's words."""
    dim = laboratory.still.plan.layout.dim
    unused = torch.zeros(dim)
    unused[-1] = 1.0
    anywhere = normal(Streams(laboratory.seed).generator("probe direction"), (dim,))
    short, long = _LENGTHS
    yield unused, short, "along an unused weight"
    yield anywhere / torch.linalg.vector_norm(anywhere), long, "along all weights"


def _relabelled(laboratory: ReplaySetup, base: Recording) -> Iterator[Pair]:
    """Another label for one of the real rows: a client or a sample that no clip reaches need not be the planted one."""
    unit, task = laboratory.claim.unit, laboratory.still.task
    if unit not in (Unit.SAMPLE, Unit.CLIENT, Unit.REPORT):
        return
    for client, part in enumerate(task.parts):
        changed, words = (part[:1], "a sample") if unit is Unit.SAMPLE else (part, "all samples")
        labels = task.labels.clone()
        labels[changed] = (labels[changed] + 1) % task.network.classes
        after = laboratory.run(task=replace(task, labels=labels))
        witness = f"another label for {words} of client {client}"
        yield Pair(before=base, after=after, rows=2, sender=client, witness=witness)


def _sensitivity(laboratory: ReplaySetup, pairs: Sequence[Pair]) -> CheckResult:
    """The longest move of a release by one row, over what the law allows."""
    found: list[CheckResult] = []
    for pair in pairs:
        law = laboratory.law(pair.sender)
        if law is None:
            return CheckResult(name=SENSITIVITY, kept=None, witness="no Gaussian law is published for this observer")
        if not law.additive:
            reason = "its noise is drawn through the rows: equal draws do not cancel"
            return CheckResult(name=SENSITIVITY, kept=None, witness=reason)
        allowed = pair.rows * abs(law.scale) * law.clip_norm * law.steps
        for number, (before, after) in enumerate(zip(pair.before.releases, pair.after.releases, strict=True)):
            if not (same_state(pair.before, number) and same_state(pair.after, number)):
                continue
            moved = float(torch.linalg.vector_norm(after - before))
            slack = _SLACK * allowed + _ROUNDING * float(torch.linalg.vector_norm(before))
            found.append(
                CheckResult(
                    name=SENSITIVITY,
                    kept=moved <= allowed + slack,
                    measured=moved,
                    allowed=allowed,
                    unit="L2 norm",
                    witness=f"{pair.witness}, round {number}",
                )
            )
    if not found:
        reason = f"no row of one {laboratory.claim.unit} under {laboratory.claim.adjacency.phrase} can be planted"
        return CheckResult(name=SENSITIVITY, kept=None, witness=reason)
    # Rounded: among moves that differ in the last digit the first is the plainest witness.
    return max(found, key=lambda exposure: round((exposure.measured or 0.0) / (exposure.allowed or 1.0), 4))


def _public_state(pairs: Sequence[Pair], draws: Sequence[Recording]) -> list[CheckResult]:
    """How far one row moves a number of the public state, against how far other noise does; nothing where there is no
    state.
    """
    found: list[CheckResult] = []
    for pair in pairs:
        for number, (before, after) in enumerate(zip(pair.before.states, pair.after.states, strict=True)):
            for name in sorted(before.keys() & after.keys()):
                if before[name].shape != after[name].shape or not before[name].numel():
                    continue
                moved = float((after[name] - before[name]).abs().max())
                spread = _spread([draw.states[number].get(name) for draw in draws])
                slack = _ROUNDING * float(before[name].abs().max())
                found.append(
                    CheckResult(
                        name=PUBLIC_STATE,
                        kept=moved <= _HIDES * spread + slack,
                        measured=moved,
                        allowed=_HIDES * spread,
                        unit="the state's own",
                        witness=f"{name}, round {number}, {pair.witness}; allowed: {_HIDES:g} times its noise",
                    )
                )
    return [max(found, key=lambda exposure: (exposure.kept is False, exposure.measured or 0.0))] if found else []


def _spread(values: Sequence[Tensor | None]) -> float:
    """How far other noise moves a number of the state, at most."""
    first = values[0]
    others = [value for value in values[1:] if value is not None and first is not None and value.shape == first.shape]
    return max((float((value - first).abs().max()) for value in others), default=0.0) if first is not None else 0.0
