"""Run every check that calls the hooks of a defense in many small surroundings, drawn by seed."""

import math
from collections.abc import Callable, Iterable, Iterator

from ....audit.claim import Claim, Unit
from ....audit.observer import FINAL_MODEL, SHUFFLED
from ....fl.laws.law import GaussianLaw
from ....fl.plan import Plan
from ....fl.protection import Protection
from ....fl.task import Task
from ..check import CheckResult
from .hook_run import HookSetup
from .sampled_checks import AS_SAMPLED, Sampled, sampled_checks
from .surroundings import draw_surroundings

_ROUNDS, _RUNS, _LEAST = 5, 256, 8
"""Rounds and runs of one claim at most, and runs at least."""
_NUMBERS = 2**21
"""Numbers of one round of all runs, at most: rows of clients, or of the samples of a lot."""
_HOLDERS = 4
"""Clients that hold the unit: the largest, the smallest and random ones."""


def hook_checks(
    task: Task, plan: Plan, protection: Protection, claim: Claim, *, seed: int = 0
) -> tuple[CheckResult, ...]:
    """Return the checks of a claim that need no training.

    Args:
        task: gives the initial model, and the samples that hooks ask for.
        plan: the plan for which the protection was prepared, with the layout of the task's model.
    """
    setup = HookSetup(task=task, plan=plan, protection=protection, claim=claim, seed=seed)
    return tuple(_guarded(AS_SAMPLED, lambda: _sampled(setup)))


def _sampled(setup: HookSetup) -> Iterator[CheckResult]:
    claim, plan = setup.claim, setup.plan
    reason = setup.why_not()
    if not reason and claim.observer.rank in (SHUFFLED.rank, FINAL_MODEL.rank):
        reason = "the adversary receives neither a report nor the sum of one round"
    rounds, dim = min(claim.rounds, _ROUNDS), plan.layout.dim
    runs = min(_RUNS, _NUMBERS // (_rows(setup) * dim))
    if not reason and runs < _LEAST:
        reason = f"{plan.clients} clients and {dim} weights are too many for {_LEAST} runs"
    if reason:
        yield CheckResult(name=AS_SAMPLED, passed=None, witness=reason)
        return
    around = draw_surroundings(
        holders=_holders(setup),
        clients=plan.clients,
        dim=dim,
        rounds=rounds,
        replicas=runs,
        clip_norm=clip_norm_of(setup),
        seed=setup.seed,
    )
    yield from sampled_checks(Sampled(setup=setup, around=around))


def _rows(setup: HookSetup) -> int:
    """Rows of a round: clients, or the samples of the lots of those clients that hold the unit."""
    plan = setup.plan
    if setup.claim.unit is not Unit.SAMPLE:
        return plan.clients
    lots = sum(math.ceil(1.5 * plan.lot.rate(plan.sizes[one]) * plan.sizes[one]) + 4 for one in _holders(setup))
    return max(plan.clients, lots * plan.algorithm.local_steps)


def clip_norm_of(setup: HookSetup) -> float:
    """Return the clip norm that the law or the claim publishes; 1 where neither does."""
    law = setup.protection.law(setup.claim.observer, setup.plan, 0)
    published = law.clip_norm if isinstance(law, GaussianLaw) else setup.claim.parameters.get("clip_norm", 1.0)
    return float(published) if isinstance(published, int | float) and published > 0 else 1.0


def _holders(setup: HookSetup) -> list[int]:
    sizes = setup.plan.sizes
    if setup.claim.subjects != "all":
        client = setup.claim.parameters.get("client", 0)
        return [client if isinstance(client, int) and 0 <= client < len(sizes) else 0]
    order = sorted(range(len(sizes)), key=lambda client: (-sizes[client], client))
    chosen = [order[0], *order[:0:-1][:1], *order[1:-1]]
    return sorted(chosen[:_HOLDERS])


def _guarded(name: str, made: Callable[[], Iterable[CheckResult]]) -> Iterator[CheckResult]:
    try:
        yield from made()
    except Exception as error:  # A user's own hooks may raise anything, and other checks still apply.
        yield CheckResult(
            name=name, passed=None, witness=f"the hooks could not be run: {type(error).__name__}: {error}"
        )
