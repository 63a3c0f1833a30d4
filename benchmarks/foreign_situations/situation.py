"""One situation of a foreign system, right or broken, and what ``fedassay watch`` or ``fedassay audit`` says of it."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fedassay.adapters.replicas import audit_replicas, plan_replicas
from fedassay.adapters.runner import watch
from fedassay.audit.check import EFFECTIVE, FINITE, NEIGHBOUR, REPLAYED, SIZE, CheckResult
from fedassay.audit.finding import Finding
from fedassay.checks.watched_run import Watched
from fedassay.cli.system_run import judge_watched
from fedassay.suites.results.outcome import FAIL, INCONCLUSIVE, OK, judge_finding

LAYERS = ("watch", "play-back", "runs on other data", "trials")
REFUSED = 2
"""Exit code of the command line where a system is refused in words."""

_MOST_RUNS = 300
"""Runs per arm from which on an audit is left out, as it takes minutes."""


def tried(system: Any, seen: Watched) -> Finding:
    """Audit by independent runs; raises ValueError where too many would be needed."""
    plan = plan_replicas(system)
    if plan.runs > _MOST_RUNS:
        raise ValueError(f"{plan.runs} runs per arm are planned, and left out")
    return audit_replicas(system, plan=plan, seen=seen)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """A system that is right or broken.

    Args:
        name: unique within its kind.
        kind: Opacus, loop, function or Flower.
        right: whether its claim holds.
        source: the public thread, page or paper that has the situation, or ``own``.
        make: makes the system anew; ``look(system, seed)`` looks at it.
        look: by default ``watch``; results of all checks, or the finding of an audit.
        trials: audits a broken system that no check accuses; None where ``look`` makes trials itself, or none exist.
    """

    name: str
    kind: str
    right: bool
    source: str
    make: Callable[[], Any]
    look: Callable[[Any, int], Watched | Finding] = lambda system, seed: watch(system, seed=seed)
    trials: Callable[[Any, Watched], Finding] | None = tried


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was seen of a situation under one seed.

    Args:
        code: exit code of ``watch``, and of ``audit`` for functions.
        checks: those that failed, or why nothing is known.
        layer: the first layer that found a fault; empty where none did.
        cpu_s: CPU seconds, also of worker processes.
    """

    code: int
    checks: str
    layer: str
    cpu_s: float

    @property
    def found(self) -> bool:
        """Whether some layer found a fault."""
        return bool(self.layer)

    @property
    def missed(self) -> bool:
        """Whether the situation passed."""
        return self.code == OK and not self.layer


def see(one: Situation, seed: int = 0, *, trials: bool = False) -> Seen:
    """Look at a situation; ``trials``: also by an audit, where no check accuses it."""
    start = _cpu()
    try:
        system = one.make()
        result = one.look(system, seed)
        if isinstance(result, Finding):
            gate = judge_finding(one.name, result)
            words = result.reason if gate.exit_code == INCONCLUSIVE else _bound(result)
            found = (gate.exit_code, words, "trials" if gate.exit_code == FAIL else "")
        else:
            found = _of_checks(result)
            if trials and found[0] != FAIL and one.trials is not None:
                found = _tried(one, system, result, found)
    except Exception as error:  # Also one of the system itself.
        found = REFUSED, f"{type(error).__name__}: {str(error).split('. ')[0][:150]}", ""
    return Seen(code=found[0], checks=found[1], layer=found[2], cpu_s=_cpu() - start)


def _of_checks(result: Watched) -> tuple[int, str, str]:
    gate = judge_watched(result)
    if not result.failed:
        words = gate.verdict_line.removeprefix("INCONCLUSIVE: ") if gate.exit_code == INCONCLUSIVE else ""
        return gate.exit_code, words[:150], ""
    names = dict.fromkeys(each.name for each in result.failed)
    return gate.exit_code, ", ".join(names), min((layer_of(each) for each in result.failed), key=LAYERS.index)


def _tried(one: Situation, system: Any, seen: Watched, found: tuple[int, str, str]) -> tuple[int, str, str]:
    """Exit code and words of the watch, and whether trials refute the claim."""
    assert one.trials is not None
    try:
        finding = one.trials(system, seen)
    except ValueError as refused:
        words = f"trials: {str(refused).split('. ')[0][:150]}"
        return found[0], "; ".join(filter(None, (found[1], words))), ""
    if judge_finding(one.name, finding).exit_code == FAIL:
        return found[0], _bound(finding), "trials"
    return found


def _bound(finding: Finding) -> str:
    measured = finding.measurement
    return "" if measured is None else f"eps >= {measured.epsilon_low:.3g}, claimed {finding.claim.epsilon:.3g}"


def layer_of(result: CheckResult) -> str:
    """Return the layer that a failed check belongs to."""
    if result.check in (NEIGHBOUR, SIZE) or "other records" in result.words:
        return "runs on other data"
    played = (EFFECTIVE, FINITE, REPLAYED)
    return "play-back" if any(result.name.startswith(one) for one in played) else "watch"


def _cpu() -> float:
    return sum(os.times()[:4])


def named(rows: Iterable[Situation]) -> list[Situation]:
    """Return the rows, and raise ValueError for two of one name."""
    found = list(rows)
    names = [(one.kind, one.name) for one in found]
    if double := {one for one in names if names.count(one) > 1}:
        raise ValueError(f"names must differ, got {double} twice")
    return found
