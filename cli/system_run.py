"""Carry out ``fedassay watch``, and ``fedassay audit`` on a foreign system: a runner, or a function that makes one."""

import inspect
import json
from collections.abc import Mapping
from typing import Any

from ..adapters.replicas import audit_replicas, plan_replicas
from ..adapters.runner import Runner, is_runner, missing_parts, watch, why_not_planted
from ..adapters.target import find_object
from ..audit.finding import accept_weak
from ..audit.wording import counted
from ..checks.watched_run import Watched
from ..suites.config.source import ConfigError
from ..suites.results.outcome import FAIL, INCONCLUSIVE, OK, Outcome, judge_finding
from .console import print_lines
from .errors import with_config_errors


def find_system(target: str) -> Runner | None:
    """Return the system that ``module:name`` or ``file.py:name`` is, or that a function without arguments returns.

    None for anything else, such as a mechanism. Raises ConfigError where the name cannot be imported, and for a class
    or an object with a method ``run`` that lacks other members of a system.
    """
    found = with_config_errors(target, lambda: find_object(target))
    if is_runner(found):
        return found  # type: ignore[no-any-return]
    made = with_config_errors(target, found) if callable(found) and _takes_nothing(found) else found
    if is_runner(made):
        return made  # type: ignore[no-any-return]
    if callable(getattr(made, "run", None)):
        lacks = " and ".join(missing_parts(made))
        why = "it is a class, and not an object of it" if isinstance(made, type) else f"it lacks {lacks}"
        raise ConfigError(f"{target} has a method run, and is no system: {why}")
    return None


def carry_out_watch(target: str, *, seed: int, as_json: bool) -> int:
    """Check a system, print the results, and return the exit code. Raises ConfigError for a target that is none."""
    if ":" not in target:
        raise ConfigError(f"cannot watch {target!r}: the target must be package.module:name or path/to/file.py:name")
    system = find_system(target)
    if system is None:
        raise ConfigError(
            f"{target} must be a system with run, claim, law and replayable, such as Training of "
            "fedassay.adapters.opacus, or a function without arguments that returns one"
        )
    results = with_config_errors(target, lambda: watch(system, seed=seed))
    gate = judge_watched(results)
    if as_json:
        checks = [{"name": one.name, "passed": one.passed, "words": one.words} for one in results.results]
        text = json.dumps({"target": target, "checks": checks, "exit_code": gate.exit_code}, indent=1)
        print_lines(*text.split("\n"))
    else:
        print_lines(*_reported(results), *results.lines(), f"gate   {gate.verdict_line} (exit code {gate.exit_code})")
    return gate.exit_code


def judge_watched(results: Watched) -> Outcome:
    """Return the verdict on the checks of one watched run."""
    if results.failed:
        names = ", ".join(dict.fromkeys(one.name for one in results.failed))
        return Outcome(verdict_line=f"FAIL: implementation checks failed: {names}", exit_code=FAIL)
    passed = sum(one.passed is True for one in results.results)
    if not passed:
        return Outcome(verdict_line="INCONCLUSIVE: no check could look at anything", exit_code=INCONCLUSIVE)
    if results.blind:
        return Outcome(verdict_line=f"INCONCLUSIVE: {results.blind}", exit_code=INCONCLUSIVE)
    line = "; ".join(filter(None, (f"OK: {counted(passed, 'check')} passed", results.aside)))
    return Outcome(verdict_line=line, exit_code=OK)


def carry_out_replicas(target: str, system: Runner, given: Mapping[str, Any]) -> int:
    """Judge the claim of a system by replicas, print the finding, and return the exit code."""
    seen = with_config_errors(target, lambda: watch(system, seed=given["seed"]))
    reason = "a check failed" if seen.failed else with_config_errors(target, lambda: why_not_planted(system))
    plan, planned = None, f"no runs: {reason}"
    if not reason:
        plan = with_config_errors(target, lambda: plan_replicas(system, alpha=given["alpha"], seed=given["seed"]))
        planned = plan.line()
    if not given["json"]:
        print_lines(*_reported(seen), f"plan   {planned}")
    path = None if given["keep"] is None else given["keep"] / "replicas.jsonl"
    options: dict[str, Any] = {"seed": given["seed"], "jobs": given["jobs"] or 1, "checkpoint": path, "seen": seen}
    finding = with_config_errors(target, lambda: audit_replicas(system, plan=plan, **options))
    finding = accept_weak(finding) if given["accept_weak"] else finding
    gate = judge_finding(target, finding)
    if given["json"]:
        facts = {"target": target, "claim": system.claim.to_dict(), "finding": finding.to_dict()}
        print_lines(*json.dumps(facts | {"plan": planned, "exit_code": gate.exit_code}, indent=1).split("\n"))
        return gate.exit_code
    print_lines(f"claim  {target}  {finding.line()}")
    if (measured := finding.measurement) is not None:
        print_lines(f"seen   {measured.estimator}, {measured.trials}; {measured.witness}")
    print_lines(f"gate   {gate.verdict_line} (exit code {gate.exit_code})")
    return gate.exit_code


def _reported(seen: Watched) -> list[str]:
    return [f"report {seen.reported}"] if seen.reported else []


def _takes_nothing(found: Any) -> bool:
    if isinstance(found, type):
        return False
    try:
        inspect.signature(found).bind()
    except (TypeError, ValueError):
        return False
    return True
