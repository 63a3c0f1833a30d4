"""Carry out ``fedassay watch``, and ``fedassay audit`` on a foreign system: a runner, or a function that makes one."""

import hashlib
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..adapters.kept_runs import default_folder, held_folder, known_verdicts, share_of, spend
from ..adapters.replicas import KeptProjections, ReplicaPlan, audit_replicas, first_run, plan_replicas
from ..adapters.runner import Runner, watch, why_not_planted
from ..audit.finding import Finding, accept_weak
from ..audit.wording import counted, duration, plain
from ..checks.watched_run import Watched, folded_names
from ..suites.config.source import ConfigError
from ..suites.results.outcome import FAIL, INCONCLUSIVE, OK, Outcome, judge_finding
from .audit_run import find_system
from .console import print_lines
from .errors import exit_code, fail, with_config_errors, word
from .printing import write_page

_BY_SYSTEM = "Stated by this system; tested: its own runs, not a simulation of it."


def carry_out_watch(target: str, *, seed: int, as_json: bool, html: Path | None = None) -> int:
    """Check a system, print the results, and return the exit code. Raises ConfigError if the target is no system."""
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
        shown = [*_claimed(system), *results.lines(), *_reported(results)]
        print_lines(*shown, f"gate   {gate.verdict_line} (exit code {gate.exit_code})", *results.limit_lines())
    if html is not None:
        write_system_page(html, target, system, gate, results, as_json=as_json)
    return gate.exit_code


def write_system_page(
    path: Path,
    target: str,
    system: Runner,
    gate: Outcome,
    seen: Watched,
    finding: Finding | None = None,
    *,
    found: Sequence[str] = (),
    as_json: bool,
) -> None:
    """Write the page of a watched run or an audit, as ``write_page``; ``found``: lines about the finding."""
    limits = seen.limit_lines() if finding is None or finding.limit else []
    lines = [*([] if finding else seen.lines()), *_reported(seen), *found, *limits]
    checks = [(one.name, one.passed, one.words) for one in seen.results]
    shown: dict[str, Any] = {"checks": checks, "lines": lines, "stated_by": _BY_SYSTEM, "finding": finding}
    claim = None
    with suppress(Exception):  # None can be stated, as of a training that adds no noise.
        claim = system.claim
    write_page(path, target, claim, gate, as_json=as_json, **shown)


def judge_watched(results: Watched) -> Outcome:
    """Return the verdict on the checks of one watched run."""
    if results.failed:
        names = folded_names([one.name for one in results.failed])
        return Outcome(verdict_line=f"FAIL: implementation checks failed: {names}", exit_code=FAIL)
    passed = sum(one.passed is True for one in results.results)
    if not passed:
        return Outcome(verdict_line="INCONCLUSIVE: no check was possible", exit_code=INCONCLUSIVE)
    if results.blind:
        return Outcome(verdict_line=f"INCONCLUSIVE: {results.blind}", exit_code=INCONCLUSIVE)
    line = "; ".join(filter(None, (f"OK: {counted(passed, 'check')} passed", results.aside)))
    return Outcome(verdict_line=line, exit_code=OK)


def carry_out_replicas(target: str, system: Runner, given: Mapping[str, Any]) -> int:
    """Judge the claim of a system by replicas, print the finding, and return the exit code."""
    lines = [*_claimed(system), "watch  one run with its checks, and its repeats on other records"]
    (_ignored if given["json"] else print_lines)(*lines)
    try:
        seen = with_config_errors(target, lambda: watch(system, seed=given["seed"]))
    except KeyboardInterrupt as error:
        way_on = f"before any run that is kept; start again with: {_command(target, given)}"
        fail(f"{word(error)} {way_on}", code=exit_code(error))
    if reason := "a check failed" if seen.failed else with_config_errors(target, lambda: why_not_planted(system)):
        return _carry_out(target, system, given, seen, f"no runs: {reason}", None)
    with ExitStack() as held:
        kept = with_config_errors(target, lambda: _KeptAudit.prepared(target, system, given, held))
        return _carry_out(target, system, given, seen, kept.plan.line(), kept)


def _carry_out(
    target: str, system: Runner, given: Mapping[str, Any], seen: Watched, planned: str, kept: "_KeptAudit | None"
) -> int:
    show = _ignored if given["json"] else print_lines
    show(*_reported(seen), f"plan   {planned}")
    options: dict[str, Any] = {"seed": given["seed"], "jobs": given["jobs"] or 1, "seen": seen}
    if kept is not None:
        show(*kept.lines(options["jobs"]))
        every = max(1, kept.plan.runs // 5)

        def progress(done: int, total: int) -> None:
            if done % every == 0 or done == total:
                show(f"run    {done}/{total}")

        options |= {"plan": kept.plan, "checkpoint": kept.runs, "progress": progress}
    try:
        finding = with_config_errors(target, lambda: _audited(system, options, kept))
    except KeyboardInterrupt as error:
        if kept is None:
            raise
        fail(f"{word(error)}. {kept.way_on}", code=exit_code(error))
    if kept is not None and kept.plan.decides:
        kept.spend()  # Before the verdict is seen.
    finding = accept_weak(finding) if given["accept_weak"] else finding
    gate = judge_finding(target, finding)
    measured = finding.measurement
    evidence = [] if measured is None else [f"seen   {measured.estimator}, {measured.trials}; {measured.witness}"]
    if given["json"]:
        facts = {"target": target, "claim": system.claim.to_dict(), "finding": finding.to_dict()}
        print_lines(*json.dumps(facts | {"plan": planned, "exit_code": gate.exit_code}, indent=1).split("\n"))
    found = [f"claim  {target}  {replace(finding, limit='').line()}", *evidence]
    limits = seen.limit_lines() if finding.limit else []
    show(*found, f"gate   {gate.verdict_line} (exit code {gate.exit_code})", *limits)
    if given["html"] is not None:
        found = [f"plan   {planned}", *found]
        write_system_page(given["html"], target, system, gate, seen, finding, found=found, as_json=given["json"])
    return gate.exit_code


@dataclass(frozen=True, kw_only=True)
class _KeptAudit:
    """The plan of an audit whose runs are kept in the file ``path``.

    ``seconds``: wall time of one run; ``command``: continues an audit that was stopped; ``spend``: notes that the
    verdict was given, which costs its part of ``total_alpha``.
    """

    plan: ReplicaPlan
    path: Path
    runs: KeptProjections
    seconds: float
    command: str
    total_alpha: float
    spend: Callable[[], None]

    @classmethod
    def prepared(cls, target: str, system: Runner, given: Mapping[str, Any], held: ExitStack) -> "_KeptAudit":
        """Run the system once, find and lock the folder of its runs until ``held`` is closed, and plan at the level
        that this verdict on them has.
        """
        first = first_run(system, seed=given["seed"])
        facts = dict(first.facts)
        if "first_run_sha256" not in facts:
            # No run can be repeated, so that only the file shows that the system was changed.
            facts["source_sha256"] = _source_digest(target)
        path = (given["keep"] or default_folder(target, facts)) / "replicas.jsonl"
        held.enter_context(held_folder(path.parent))
        # Before a level is spent on runs of something else.
        runs = KeptProjections(path=path, facts=facts)
        look = {"trials": given["trials"], "alpha": given["alpha"]}
        verdicts = path.with_name("replicas.verdicts.json")
        known_verdicts(verdicts, kept=path.exists())
        share = share_of(verdicts, look, given["alpha"])
        options: dict[str, Any] = {"runs": given["trials"], "accept_weak": given["accept_weak"]}
        plan = plan_replicas(system, alpha=share, seed=given["seed"], **options)
        found: dict[str, Any] = {"total_alpha": given["alpha"], "spend": partial(spend, verdicts, look)}
        found["command"] = _command(target, given)
        return cls(plan=plan, path=path, runs=runs, seconds=first.seconds, **found)

    @property
    def way_on(self) -> str:
        """What was done when the audit was stopped, and how to go on."""
        total = 2 * self.plan.runs
        done = f"{total - len(self.runs.missing(self.plan.runs))} of at most {total} runs are done"
        return f"{done} and kept in {self.path.parent}; go on with: {self.command}"

    def lines(self, jobs: int) -> list[str]:
        """Return lines about the time and the place of the runs."""
        total, left = 2 * self.plan.runs, len(self.runs.missing(self.plan.runs))
        each = f"{left} runs of {self.seconds:.2g} s each" + (f" in {jobs} processes" if jobs > 1 else "")
        name = self.path.parent.name.rpartition("-")[0]
        others = [one.parent for one in self.path.parent.parent.glob(f"{name}-????????/{self.path.name}")]
        older = [str(one) for one in sorted(others) if one != self.path.parent and name.startswith("audit-")]
        aside = f"; not used, because they are of another version or seed: {', '.join(older)}" if older else ""
        kept = f"runs   at most {total}, of which {total - left} are kept in {self.path.parent}{aside}"
        part = round(self.total_alpha / self.plan.alpha)
        earlier = part.bit_length() - 2
        spent = (
            f"because {counted(earlier, 'verdict')} on these runs came before; an audit that is stopped before its "
            "verdict costs nothing"
            if earlier
            else "so that runs can be added after the verdict; each further verdict has half as much"
        )
        alpha = f"alpha  {plain(self.plan.alpha)} of {plain(self.total_alpha)}, {spent}"
        if not self.plan.decides:
            alpha = (
                "alpha  not used: so few runs cannot refute the claim, so that later audits of more runs have all of it"
            )
        return [*self._ways(jobs), alpha, *([f"time   {self._time(left, jobs)} ({each})"] if left else []), kept]

    def _time(self, runs: int, jobs: int) -> str:
        return duration(runs * self.seconds / jobs)

    def _ways(self, jobs: int) -> list[str]:
        """How an audit that cannot end with OK could, before it costs any time; nothing where it can."""
        if not self.plan.weak or self.plan.accept_weak:
            return []
        # An audit of more runs is a further verdict, at half of this level.
        if (runs := self.plan.enough[1]) is None:
            more = (
                "after this verdict no number of runs up to a million ends with OK, only the checks of fedassay watch "
                "decide here"
            )
        else:
            when = f" after this verdict (--trials {self.plan.enough[0]} in place of it)" if self.plan.decides else ""
            more = f"--trials {runs} ends with OK{when}, if nothing refutes the claim, in {self._time(2 * runs, jobs)}"
        return [
            f"weak   {more}; --accept-weak ends with exit code 0 after these runs; fedassay watch checks the code "
            "alone, without runs; a claim of larger epsilon needs fewer runs"
        ]


def _audited(system: Runner, options: Mapping[str, Any], kept: "_KeptAudit | None") -> Finding:
    try:
        return audit_replicas(system, **options)
    except Exception as error:
        # Only an exception of the system has notes already.
        if kept is not None and getattr(error, "__notes__", []):
            error.add_note(kept.way_on)
        raise


def _ignored(*lines: str) -> None:
    """Print nothing."""


def _source_digest(target: str) -> str:
    place = target.rpartition(":")[0]
    if not place.endswith(".py"):
        place = str(getattr(sys.modules.get(place), "__file__", None) or "")
    path = Path(place)
    return hashlib.sha256(path.read_bytes() if path.is_file() else b"").hexdigest()


def _reported(seen: Watched) -> list[str]:
    return [f"report {seen.reported}"] if seen.reported else []


def _claimed(system: Runner) -> list[str]:
    """The claim that is judged; nothing where none can be stated, as of a training that adds no noise."""
    with suppress(Exception):
        return [f"claim  {system.claim.describe()}"]
    return []


def _command(target: str, given: Mapping[str, Any]) -> str:
    """The command that makes the same audit."""
    usual = {"seed": 0, "trials": None, "alpha": 0.05, "jobs": None, "keep": None}
    words = ["fedassay", "audit", target]
    for name, default in usual.items():
        words += [f"--{name}", str(given[name])] if given[name] != default else []
    return shlex.join(words + ["--accept-weak"] * bool(given["accept_weak"]))
