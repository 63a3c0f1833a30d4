"""Run every implementation check of one privacy claim: replays, calls of the defense's hooks, the published noise
distribution, measurements, and trials of everything that the claim's observer receives.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from ..audit.check import (
    AMPLIFIED,
    AS_SAMPLED,
    BETWEEN_CLIENTS,
    BETWEEN_ROUNDS,
    COVERS_MOVES,
    DISTRIBUTION,
    EVENTS,
    EVERY_DIRECTION,
    EVERY_NUMBER,
    GIVEN_CLIENTS,
    GIVEN_ROUNDS,
    LOCAL,
    MASKS,
    MEASURED,
    MESSAGE,
    ORDER,
    PRESENT,
    PURE,
    SCALE,
    VIEW,
    CheckResult,
)
from ..audit.claim import Claim, Unit
from ..audit.observer import FINAL_MODEL, SHUFFLED
from ..fl.plan import Plan
from ..fl.protection import Protection
from ..fl.task import Task
from .events import event_checks, local_checks
from .every_number import UNSEEN_ROUNDS, every_number_checks
from .given_rows import HookSetup, Surroundings
from .law import with_law_checks
from .masks import mask_checks
from .measured import measured_checks, proposed_noise
from .neighbours import PLANTED, ReplaySetup, replay_setup
from .pure import pure_checks
from .replay import replay_checks, with_own_model
from .results import placed
from .sampled import Sampled, sampled_checks
from .searches import chosen_check, driven_check, followed_check, longest_check, together_check
from .setup import SeenLaws
from .shuffled import amplified_checks, shuffle_checks
from .trials import MOST_RUNS, view_checks

_ROUNDS, _RUNS, _LEAST = 5, 256, 8
"""Rounds and runs of one claim at most, and runs at least."""
_NUMBERS = 2**20
"""Numbers of one round of all runs: rows of clients, or of the samples of a lot."""
_MOST = 2**22
"""The same, at most, where no fewer would make enough runs; they take about 2 GB."""
_HOLDERS = 4
"""Clients that hold the unit: the largest, the smallest and random ones."""
_DISCRETE = 2**17
"""Noised numbers of one round of all runs of a secure sum, at most."""
_SEEDS = 2**32
"""Distance of the seeds of batches of runs in one claim."""
_ORDERED = 1024
"""Runs in which the order of shuffled reports is compared."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HookRuns:
    """Runs of a defense's hooks under a claim; most checks use them, and they reveal noise distributions (laws) that
    the defense does not publish.
    """

    setup: HookSetup

    @cached_property
    def sampled(self) -> Sampled | str:
        """The runs in which cohorts and lots are sampled, or the reason why there are none."""
        return _runs(self.setup)

    @property
    def seen(self) -> SeenLaws:
        """The laws estimated from runs, if the defense publishes none."""
        try:
            return SeenLaws() if isinstance(self.sampled, str) else self.sampled.seen
        except Exception:  # A user's own hooks may raise anything on rows that training hardly gives.
            return SeenLaws()

    def checks(self) -> tuple[CheckResult, ...]:
        """The results of the checks that need no training."""
        setup = self.setup
        claim, plan = setup.claim, setup.plan
        made: list[tuple[str, Callable[[], Iterable[CheckResult]]]] = [(AS_SAMPLED, lambda: _sampled(self))]
        if claim.observer.sees_masked_words:
            made.append((MASKS, lambda: _masks(setup)))
        if claim.observer.rank >= SHUFFLED.rank and claim.unit in (Unit.REPORT, Unit.CLIENT):
            # Behind a shuffler all clients report, of which one is looked at.
            numbers = 2 * _NUMBERS if claim.observer.rank > SHUFFLED.rank else _NUMBERS // 2
            made.append((EVENTS, lambda: event_checks(setup, numbers)))
        if claim.observer.rank == SHUFFLED.rank:
            made.append((AMPLIFIED, lambda: amplified_checks(setup)))
            made.append((LOCAL, lambda: local_checks(setup, _holders(setup), 2 * _NUMBERS)))
            runs = min(_ORDERED, 2 * _NUMBERS // (plan.clients * plan.layout.dim))
            made.append((ORDER, lambda: shuffle_checks(setup, runs)))
        return tuple(result for name, checks in made for result in _guarded(name, checks))


def hook_runs(task: Task, plan: Plan, protection: Protection, claim: Claim, *, seed: int = 0) -> HookRuns:
    """Return the runs of a defense's hooks under a claim; each run is made only when it is needed.

    Args:
        task: gives the initial model, and the samples that hooks ask for.
        plan: the plan for which the protection was prepared, with the layout of the task's model.
    """
    return HookRuns(setup=HookSetup(task=task, plan=plan, protection=protection, claim=claim, seed=seed))


def _sampled(runs: HookRuns) -> Iterator[CheckResult]:
    setup, sampled = runs.setup, runs.sampled
    if isinstance(sampled, str):
        yield AS_SAMPLED.skipped(sampled)
        return
    found = sampled_checks(sampled)
    most = sampled.around.replicas
    searches: tuple[Callable[[], CheckResult | None], ...] = (
        partial(chosen_check, setup, _holders(setup), most=most),
        partial(longest_check, sampled),
        partial(driven_check, sampled),
    )
    moved = next(found)
    for search in searches:
        moved = moved if moved.passed is False else _worse(moved, _tried(search))
    yield moved
    yield from found
    for further in (together_check, followed_check):
        result = _tried(partial(further, sampled))
        yield from () if result is None else (result,)


def _runs(setup: HookSetup) -> Sampled | str:
    """The runs of hooks with cohorts and lots as sampled, or why there are none."""
    claim, plan = setup.claim, setup.plan
    reason = setup.why_not()
    if not reason and claim.observer.rank in (SHUFFLED.rank, FINAL_MODEL.rank):
        reason = "the adversary receives neither single reports nor the sum of a round"
    rounds, dim = min(claim.rounds, _ROUNDS), plan.layout.dim
    # Only one row in several is the unit's where samples are drawn, so that more runs are needed.
    size = _rows(setup) * dim
    runs = min(_RUNS, max((2 if claim.unit is Unit.SAMPLE else 1) * _NUMBERS // size, min(_LEAST, _MOST // size)))
    if claim.observer.sees_masked_words:
        rounds, runs = min(rounds, 2), min(runs, masked_runs(plan, _RUNS // 8, _DISCRETE))
    if not reason and runs < _LEAST:
        reason = f"{plan.clients} clients with {dim} weights are too many for the {_LEAST} runs that are needed"
    if reason:
        return reason

    def batch(number: int) -> Sampled:
        other = replace(setup, seed=setup.seed + _SEEDS * number)
        return Sampled(setup=other, around=_around(other, rounds=rounds, runs=runs))

    return replace(batch(0), further=batch)


def _tried(check: Callable[[], CheckResult | None]) -> CheckResult | None:
    try:
        return check()
    except Exception:  # A user's own hooks may raise anything on rows that training hardly gives.
        return None


def _worse(found: CheckResult, chosen: CheckResult | None) -> CheckResult:
    """Of the rows that are drawn and those that are chosen, the result that fails."""
    return chosen if found.passed is not False and chosen is not None and chosen.passed is False else found


def masked_runs(plan: Plan, most: int, numbers: int) -> int:
    """Return the number of runs with secure aggregation: at most ``numbers`` noised numbers in one round, but always
    the smallest number of runs that allows comparisons.
    """
    rows = plan.clients * plan.layout.dim
    # Each pair of clients has a mask; discrete noise is drawn number by number, at ten times the cost.
    return min(most, _NUMBERS // (plan.clients * rows), max(_LEAST, numbers // rows))


def _masks(setup: HookSetup) -> Iterator[CheckResult]:
    plan = setup.plan
    runs = masked_runs(plan, _RUNS // 4, 2 * _DISCRETE)
    if reason := setup.why_not() or (
        "" if runs >= _LEAST else "there are too many masked integers to repeat the secure sums"
    ):
        yield MASKS.skipped(reason)
        return
    yield from mask_checks(setup, _around(setup, rounds=min(2, setup.claim.rounds), runs=runs))


def _around(setup: HookSetup, *, rounds: int, runs: int) -> Surroundings:
    return setup.surroundings(sorted(_holders(setup)), rounds=rounds, runs=runs)


def _rows(setup: HookSetup) -> int:
    """Rows of a round: clients, or the samples of the lots of those clients that hold the unit."""
    plan = setup.plan
    if setup.claim.unit is not Unit.SAMPLE:
        return plan.clients
    lots = sum(math.ceil(1.5 * plan.lot.rate(plan.sizes[one]) * plan.sizes[one]) + 4 for one in _holders(setup))
    return max(plan.clients, lots * plan.algorithm.local_steps)


def _holders(setup: HookSetup) -> list[int]:
    """The largest client, the smallest one, and others."""
    sizes = setup.plan.sizes
    if setup.claim.subjects != "all":
        client = setup.claim.parameters.get("client", 0)
        return [client if isinstance(client, int) and 0 <= client < len(sizes) else 0]
    order = sorted(range(len(sizes)), key=lambda client: (-sizes[client], client))
    return [order[0], *order[:0:-1][:1], *order[1:-1]][:_HOLDERS]


def _guarded(name: str, made: Callable[[], Iterable[CheckResult]]) -> Iterator[CheckResult]:
    given = set[str]()
    try:
        for result in made():
            given.add(result.name)
            yield result
    except Exception as error:  # A user's own hooks may raise anything, and other checks still apply.
        words = f"the hooks could not be run: {type(error).__name__}: {error}"
        yield CheckResult(name=f"checks after {name}" if name in given else name, passed=None, witness=words)


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A defense prepared for the plan that is run, with the claim that it states for this plan.

    Args:
        reason: why runs under this plan are no evidence about the audited claim; empty where they are.
        unprepared: whether the protection is not one that the defense prepared for a claim under this plan.
        again: whether the defense was prepared again; else the protection is that of the claim's own plan.
    """

    protection: Protection
    claim: Claim
    reason: str = ""
    unprepared: bool = False
    again: bool = False


def claim_checks(
    fit: Callable[[Plan], Fitted],
    claim: Claim,
    own: Plan,
    checked: tuple[Task, Plan],
    *,
    own_task: Task | None = None,
    own_model: tuple[Task, Plan] | None = None,
    seed: int = 0,
) -> tuple[CheckResult, ...]:
    """Return the results of all implementation checks of a claim except the trials.

    A move that is longer than the law's bound is no failure where the claim's epsilon covers it at the law's noise,
    whichever check measured it.

    Args:
        fit: returns the protection and the claim as the defense prepares them for a plan.
        claim, own: the claim, and the plan for which it is stated.
        checked: the federation that is run.
        own_task: the task of the claim's own plan, where it is another one.
        own_model: a few clients with the claim's own model, where the federation has another one.
    """
    task, plan = checked
    there, whole = fit(plan), replace(own, layout=plan.layout)
    # Hooks are called on given rows, so that all clients of the claim's plan can take part.
    hooks = there if whole == plan else fit(whole)
    of_hooks = hook_runs(task, whole, hooks.protection, hooks.claim, seed=seed)
    of_checked = of_hooks if hooks is there else hook_runs(*checked, there.protection, there.claim, seed=seed)
    replayed: tuple[CheckResult, ...] = (MESSAGE.skipped(there.reason),)
    measured: tuple[CheckResult, ...] = ()
    if not there.unprepared:
        about = plan if there.again else own
        setup = replay_setup(*checked, there.protection, there.claim, seed=seed, seen=of_checked.seen)
        replayed = _with_proposals(_replayed(setup, fit, own_model), setup)
        measured = (
            *_guarded(MEASURED, lambda: measured_checks(setup, about)),
            *_guarded(PURE, lambda: pure_checks(setup, about)),
        )
    hooked = () if hooks.unprepared else of_hooks.checks()
    stated = fit(own)
    laid_out = HookSetup(task=own_task or task, plan=own, protection=stated.protection, claim=stated.claim, seed=seed)
    if not stated.unprepared:
        hooked = (*hooked, *_guarded(EVERY_NUMBER, lambda: _every_number(laid_out, of_hooks.setup)))
    moves, laws = with_law_checks(stated.protection, claim, own, (*replayed, *hooked))
    return placed((*moves[: len(replayed)], *laws, *measured, *moves[len(replayed) :]), stated.protection)


def _every_number(own: HookSetup, small: HookSetup) -> Iterator[CheckResult]:
    """The check in the claim's own layout, and in fewer weights where its rounds are too many for that."""
    for result in every_number_checks(own):
        shorter = result.passed and any(words.startswith(UNSEEN_ROUNDS) for words in result.not_compared)
        found = next(iter(every_number_checks(small))) if shorter else result
        yield found if found.passed is False else result


def received_checks(
    fit: Callable[[Plan], Fitted], own: Plan, small: tuple[Task, Plan], *, most: int = MOST_RUNS, seed: int = 0
) -> tuple[CheckResult, ...]:
    """Return the results of trials of everything that the claim's observer receives.

    Args:
        small: a federation that can be run thousands of times.
        most: runs with and without the unit, at most, each.
    """
    task, plan = small
    there = fit(plan)
    reason = there.reason
    if not reason and not there.again and plan.clients < own.clients:
        reason = f"the defense was prepared for {own.clients} clients, and this federation has {plan.clients}"
    if reason:
        return (VIEW.skipped(reason),)
    few = task.with_few_weights()
    light = replace(plan, layout=few.network.layout)
    fitted = fit(light)
    # Constants of a protection that was prepared for other weights would be wrong.
    usable = fitted.again and not fitted.reason
    few_weights = (few, light, fitted.protection, fitted.claim) if usable else None
    found = view_checks((task, plan, there.protection, there.claim), few_weights, most=most, seed=seed)
    return placed(found, there.protection)


_OF_NOISE = {
    PRESENT,
    PURE,
    SCALE,
    BETWEEN_CLIENTS,
    BETWEEN_ROUNDS,
    EVERY_DIRECTION,
    GIVEN_CLIENTS,
    GIVEN_ROUNDS,
    DISTRIBUTION,
    COVERS_MOVES,
}
"""Comparisons of noise with a law or with itself, which name no inputs."""


def _with_proposals(results: Sequence[CheckResult], setup: ReplaySetup) -> tuple[CheckResult, ...]:
    """The results; where noise failed, with inputs on which it would show the unit."""
    failed = [one for one in results if one.passed is False and one.proposal is None and one.name in _OF_NOISE]
    if not failed or setup.claim.unit not in PLANTED:
        return tuple(results)
    try:
        proposal = proposed_noise(setup)
    except Exception:  # A user's own hooks may raise anything, and the comparisons stand.
        return tuple(results)
    names = {one.name for one in failed}
    return tuple(replace(one, proposal=one.proposal or proposal) if one.name in names else one for one in results)


def _replayed(
    setup: ReplaySetup, fit: Callable[[Plan], Fitted], own_model: tuple[Task, Plan] | None
) -> tuple[CheckResult, ...]:
    checks = replay_checks(setup)
    if own_model is None or (same := fit(own_model[1])).unprepared:
        return checks
    return with_own_model(checks, *own_model, same.protection, same.claim, seed=setup.seed)
