"""Run a federation a few times with equal random draws and compare the runs exactly, without statistics.

Two runs that differ by one row give a lower bound on the sensitivity that is enforced; two runs that differ by the
draws of the hooks show the noise. A check that passes proves nothing; one that fails names the row that violates the
sensitivity, or the noise that is missing.
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
from .check import CheckResult
from .noise_checks import PRESENT, noise_checks, same_state

SENSITIVITY, PUBLIC_STATE = "sensitivity", "public state"
_CLIENTS, _DRAWS = 4, 3
_NUMBERS = 2**22
"""Numbers stored of one run at most: a large model is checked in fewer rounds than the claim covers, three at least."""
_STEEP = 10.0
"""Length of all real gradients in clip norms, at least: else a real row that is not clipped could not show."""
_LENGTHS = (10.0, 1e4)
"""Canaries in clip norms: the audit's own, and one that outweighs all other rows, for clips of a mean or a lot."""
_SLACK, _ROUNDING = 1e-3, 2.0**-22
"""Allowed excess: a share of the limit, and float32 rounding as a share of the numbers compared."""
_HIDES = 1000.0
"""Three draws estimate a spread badly: a state fails where a row moves it a thousand times as far as noise does."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two runs with equal random draws that differ in the update of client ``sender``. ``rows`` counts the vectors in
    which they differ: 1 if a vector was added, 2 if one was replaced.
    """

    before: Recording
    after: Recording
    rows: int
    sender: int
    witness: str


@dataclass(frozen=True, kw_only=True)
class ReplaySetup:
    """A small federation that is run repeatedly; runs share all random draws except those that a check changes."""

    still: FrozenFederation
    protection: Protection
    claim: Claim
    clip_norm: float
    seed: int

    def run(
        self, *, noise: int = 0, canary: Canary | None = None, world: int = 0, task: Task | None = None
    ) -> Recording:
        """Run the small federation once and return what was recorded; ``task`` replaces its data."""
        still = self.still if task is None else replace(self.still, task=task)
        return replay(
            still, self.protection, self.claim.observer, seed=self.seed, noise=noise, canary=canary, world=world
        )

    def law(self, sender: int) -> GaussianLaw | None:
        """Return the noise distribution of what this client releases; None if it is not Gaussian."""
        law = self.protection.law(self.claim.observer, self.still.plan, sender)
        return law if isinstance(law, GaussianLaw) else None

    @property
    def drawn(self) -> bool:
        """Whether each client's report is a random draw from a published distribution."""
        return isinstance(self.protection.law(self.claim.observer, self.still.plan, 0), ReportLaw)


def check_claim(
    task: Task, plan: Plan, protection: Protection, claim: Claim, *, seed: int = 0
) -> tuple[CheckResult, ...]:
    """Run every implementation check that applies to the claim, by about ten runs of a federation of four clients.

    Sensitivity and noise scale are compared with the published law, in the rounds that share the first one's public
    state; a claim without a Gaussian law gets the other checks.
    """
    task = task.restricted(clients=_CLIENTS, samples=max(task.sizes))
    plan = plan.resized(task.sizes)
    length = _clip_norm(claim, protection, plan)
    # A gradient is clipped, or an update, which is gradients times the learning rate.
    scale = 1.0 if claim.unit is Unit.SAMPLE else abs(plan.algorithm.linear_scale or 1.0)
    rounds = min(claim.rounds, max(3, _NUMBERS // (plan.clients * plan.layout.dim)))
    still = frozen_federation(task, plan, rounds=rounds, steepness=_STEEP * length / scale, seed=seed)
    setup = ReplaySetup(still=still, protection=protection, claim=claim, clip_norm=length, seed=seed)
    draws = [setup.run(noise=number) for number in range(_DRAWS)]
    pairs = [*_planted(setup, draws[0]), *_relabelled(setup, draws[0])]
    return (_sensitivity(setup, pairs), *_noise(setup, draws), *_public_state(pairs, draws))


def _clip_norm(claim: Claim, protection: Protection, plan: Plan) -> float:
    """The clip norm that the law or the claim publishes; 1 where neither does."""
    law = protection.law(claim.observer, plan, 0 if claim.unit is Unit.SAMPLE else plan.clients)
    published = law.clip_norm if isinstance(law, GaussianLaw) else claim.parameters.get("clip_norm", 1.0)
    return float(published) if isinstance(published, int | float) else 1.0


def _noise(setup: ReplaySetup, draws: Sequence[Recording]) -> list[CheckResult]:
    sees_sum = setup.claim.observer.rank < SHUFFLED.rank
    if sees_sum and type(setup.protection).broadcast is not Protection.broadcast:
        reason = "its noise may be added to the broadcast model, which stays fixed here"
        return [CheckResult(name=PRESENT, passed=None, witness=reason)]
    senders = draws[0].senders
    if senders is None:
        senders = (0 if setup.claim.unit is Unit.SAMPLE else setup.still.plan.clients,)
    laws = [law for law in map(setup.law, senders) if law is not None]
    layers = setup.still.plan.layout.slices
    return noise_checks(draws, laws if len(laws) == len(senders) else None, layers, drawn=setup.drawn)


def _planted(setup: ReplaySetup, base: Recording) -> Iterator[Pair]:
    """A canary of the claim's unit along the unused weight and in a direction of all weights, at every client."""
    claim, clients = setup.claim, setup.still.plan.clients
    for direction, length, words in _canary_rows(setup):
        row = setup.clip_norm * length * direction
        witness = f"a row of {length:g} clip norms {words}"
        if (claim.unit, claim.adjacency) == (Unit.SAMPLE, Adjacency.ADD_REMOVE):
            for client in range(clients):
                after = setup.run(canary=Canary(unit=claim.unit, present=row, client=client), world=1)
                yield Pair(before=base, after=after, rows=1, sender=client, witness=f"{witness} at client {client}")
        elif (claim.unit, claim.adjacency) == (Unit.SAMPLE, Adjacency.REPLACE_ONE):
            for client in range(clients):
                canary = Canary(unit=claim.unit, present=row, absent=-row, client=client)
                before, after = (setup.run(canary=canary, world=world) for world in (0, 1))
                words = f"{witness} and its opposite at client {client}"
                yield Pair(before=before, after=after, rows=2, sender=client, witness=words)
        elif (claim.unit, claim.adjacency) in ((Unit.REPORT, Adjacency.REPLACE_ONE), (Unit.CLIENT, Adjacency.ZERO_OUT)):
            canary = Canary(unit=claim.unit, present=row, absent=absent_row(row, claim.adjacency))
            before, after = (setup.run(canary=canary, world=world) for world in (0, 1))
            replaced = claim.adjacency is Adjacency.REPLACE_ONE
            rows, other = (2, "its opposite") if replaced else (1, "zeros")
            yield Pair(before=before, after=after, rows=rows, sender=clients, witness=f"{witness} and {other}")
        # One client more is one report more, which cannot be separated from its noise; in a sum it can.
        elif (claim.unit, claim.adjacency) == (Unit.CLIENT, Adjacency.ADD_REMOVE) and base.senders is None:
            after = setup.run(canary=Canary(unit=claim.unit, present=row), world=1)
            yield Pair(before=base, after=after, rows=1, sender=clients, witness=witness)


def _canary_rows(setup: ReplaySetup) -> Iterator[tuple[Tensor, float, str]]:
    """Unit directions ``(d,)`` with the canary's length and the direction's words."""
    dim = setup.still.plan.layout.dim
    unused = torch.zeros(dim)
    # The last weight is the inert one where the plan has one.
    unused[-1] = 1.0
    anywhere = normal(Streams(setup.seed).generator("probe direction"), (dim,))
    short, long = _LENGTHS
    yield unused, short, "along an unused weight"
    yield anywhere / torch.linalg.vector_norm(anywhere), long, "along all weights"


def _relabelled(setup: ReplaySetup, base: Recording) -> Iterator[Pair]:
    """Another label for one of the real rows: a missing clip may affect a real client or sample only."""
    unit, task = setup.claim.unit, setup.still.task
    if unit not in (Unit.SAMPLE, Unit.CLIENT, Unit.REPORT):
        return
    for client, part in enumerate(task.parts):
        changed, words = (part[:1], "a sample") if unit is Unit.SAMPLE else (part, "all samples")
        labels = task.labels.clone()
        # The next class: always another label, without a random draw.
        labels[changed] = (labels[changed] + 1) % task.network.classes
        after = setup.run(task=replace(task, labels=labels))
        witness = f"another label for {words} of client {client}"
        yield Pair(before=base, after=after, rows=2, sender=client, witness=witness)


def _sensitivity(setup: ReplaySetup, pairs: Sequence[Pair]) -> CheckResult:
    """Check the largest move of a release by one row, relative to what the law allows."""
    found: list[CheckResult] = []
    for pair in pairs:
        law = setup.law(pair.sender)
        if law is None:
            return CheckResult(name=SENSITIVITY, passed=None, witness="no Gaussian law is published for this observer")
        if not law.additive:
            reason = "its noise depends on the rows: equal draws do not cancel"
            return CheckResult(name=SENSITIVITY, passed=None, witness=reason)
        allowed = pair.rows * abs(law.scale) * law.clip_norm * law.steps
        for number, (before, after) in enumerate(zip(pair.before.releases, pair.after.releases, strict=True)):
            # The law is published for the first round's public state; in another state its clip norm may differ.
            if not (same_state(pair.before, number) and same_state(pair.after, number)):
                continue
            moved = float(torch.linalg.vector_norm(after - before))
            slack = _SLACK * allowed + _ROUNDING * float(torch.linalg.vector_norm(before))
            witness = f"{pair.witness}, round {number}"
            found.append(CheckResult.at_most(SENSITIVITY, moved, allowed, unit="L2 norm", witness=witness, slack=slack))
    if not found:
        reason = f"no row of one {setup.claim.unit} under {setup.claim.adjacency.phrase} can be planted"
        return CheckResult(name=SENSITIVITY, passed=None, witness=reason)
    # Rounded: the last digit must not decide which of several equal moves is named.
    return max(found, key=lambda result: round((result.measured or 0.0) / (result.allowed or 1.0), 4))


def _public_state(pairs: Sequence[Pair], draws: Sequence[Recording]) -> list[CheckResult]:
    """Check how far one row moves a number of the public state, compared with other noise; empty without a state."""
    found: list[CheckResult] = []
    for pair in pairs:
        for number, (before, after) in enumerate(zip(pair.before.states, pair.after.states, strict=True)):
            for name in sorted(before.keys() & after.keys()):
                if before[name].shape != after[name].shape or not before[name].numel():
                    continue
                moved = float((after[name] - before[name]).abs().max())
                spread = _spread([draw.states[number].get(name) for draw in draws])
                slack = _ROUNDING * float(before[name].abs().max())
                witness = f"{name}, round {number}, {pair.witness}; allowed: {_HIDES:g} times its noise"
                result = CheckResult.at_most(
                    PUBLIC_STATE, moved, _HIDES * spread, unit="the state's own", witness=witness, slack=slack
                )
                found.append(result)
    return [max(found, key=lambda result: (result.passed is False, result.measured or 0.0))] if found else []


def _spread(values: Sequence[Tensor | None]) -> float:
    """How far other noise moves a number of the state, at most; 0 where the state is missing or its shape changes."""
    first = values[0]
    others = [value for value in values[1:] if value is not None and first is not None and value.shape == first.shape]
    return max((float((value - first).abs().max()) for value in others), default=0.0) if first is not None else 0.0
