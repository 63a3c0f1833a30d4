"""Provide pytest fixtures: one runs a suite and checks its verdict, the others audit a mechanism and a system.

Every pytest run in an environment with fedassay loads this file, so heavy imports wait until a fixture is used.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..adapters.runner import Runner
    from ..api import Run
    from ..audit.claim import Claim
    from ..audit.finding import Finding
    from ..defenses.defense import Defense

_FIXTURES = {"fedassay_gate", "fedassay_audit", "fedassay_system"}
_OPTIONS = ("seeds", "seed", "jobs", "overrides", "device", "accept_weak")
_KNOWN = f"{', '.join(_OPTIONS[:-1])} and {_OPTIONS[-1]}"
_PROPERTY = "fedassay"
"""Name of the user property that carries a test's verdicts to the summary, also from other processes."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fedassay")
    group.addoption("--fedassay-report", metavar="DIR", help="Keep every run and its report in a folder below DIR.")
    group.addoption(
        "--fedassay-accept",
        action="store_true",
        help="Write the baselines from what this run of pytest measures, instead of comparing with them.",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "fedassay(**options): runs federations or audits. Options (keywords only, such as seeds=2) are defaults of "
        "fedassay_gate; the nearest of several markers wins. Tests that use a fixture of fedassay get the marker "
        "automatically: -m 'not fedassay' leaves them out.",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _FIXTURES & set(getattr(item, "fixturenames", ())) and item.get_closest_marker("fedassay") is None:
            item.add_marker("fedassay")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    reports = [report for group in terminalreporter.stats.values() for report in group]
    lines = [
        f"{report.nodeid}: {text}"
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, text in report.user_properties
        if name == _PROPERTY
    ]
    if lines:
        terminalreporter.section("fedassay")
        for line in lines:
            terminalreporter.line(line)


@dataclass(frozen=True, kw_only=True)
class GateFixture:
    """The fixture ``fedassay_gate``, which runs a suite and fails the test unless the verdict is OK.

    Paths are relative to pytest's root folder.
    """

    folder: Callable[[], Path]
    root: Path
    test: str
    accept: bool
    defaults: Mapping[str, Any]
    note_verdict: Callable[[str], None]

    def __call__(
        self,
        suite: str | Path = "quick",
        *defenses: "str | Defense",
        baseline: str | Path | None = None,
        margins: Mapping[str, float] | None = None,
        fail_on: Iterable[str] | None = None,
        **options: Any,
    ) -> "Run":
        """Run ``suite`` with these defenses added, and compare it with ``baseline`` if one is given.

        Args:
            suite: a bundled suite's name or a suite file.
            defenses: names, ``package.module:Class``, or built: ``MyDefense(clip_norm=1.0)``.
            baseline: ``"baselines/main"``; ``pytest --fedassay-accept`` writes it.
            margins, fail_on: see ``fedassay gate``.
            options: ``seeds``, ``seed``, ``jobs``, ``overrides``, ``device``, ``accept_weak`` as for
                ``fedassay.run``; their defaults come from the marker.

        Returns:
            the finished run.
        """
        # For a mistake in the call pytest shows the test's own line and one sentence, no source of this package.
        __tracebackhide__ = True
        from ..suites.config.arguments import check_gate, string_list
        from ..suites.config.source import ConfigError
        from ..suites.results.outcome import failing_codes

        # Workers of pytest-xdist occupy the cores already.
        options = {"jobs": 1 if "PYTEST_XDIST_WORKER" in os.environ else None, **self.defaults, **options}
        if unknown := _unknown(options):
            raise TypeError(f"fedassay_gate accepts only the keyword arguments {_KNOWN}, got {unknown}")
        try:
            check_gate(baseline, margins)
            if fail_on is not None:
                fail_on = string_list("fail_on", fail_on, such_as="fail")
                failing_codes(fail_on)
            run = self._run(suite, defenses, options)
            self._judge(run, None if baseline is None else self.root / baseline, margins, fail_on)
        except ConfigError as error:
            # Without the traceback pytest shows the test's own line.
            raise error.with_traceback(None) from None
        return run

    def _run(self, suite: str | Path, defenses: "tuple[str | Defense, ...]", options: Mapping[str, Any]) -> "Run":
        from ..api import run as run_suite
        from ..suites.config.arguments import check_arguments

        check_arguments(suite)
        place, folder = self.root / suite, self.folder()
        try:
            return run_suite(
                str(place if place.is_file() else suite),
                defenses=defenses,
                folder=folder,
                command=f"pytest {shlex.quote(self.test)}",
                **options,
            )
        finally:
            with suppress(OSError):  # It is empty if a mistake was found before anything ran.
                folder.rmdir()

    def _judge(
        self,
        run: "Run",
        baseline: Path | None,
        margins: Mapping[str, float] | None,
        fail_on: Iterable[str] | None,
    ) -> None:
        from ..reports.reading.run_folder import RunFolder
        from ..reports.regression.gated_run import accept
        from ..suites.results.outcome import EVERYTHING

        # An accepted run is not compared with itself; its claims are still judged below.
        if baseline is not None and self.accept:
            accept(RunFolder.read(run.folder), baseline)
            baseline = None
        outcome = run.gate(baseline, margins=margins, fail_on=EVERYTHING if fail_on is None else fail_on)
        self.note_verdict(f"{outcome.verdict_line} ({run.folder / 'report.html'})")
        if outcome.exit_code:
            pytest.fail("\n".join([outcome.verdict_line, *outcome.details]), pytrace=False)


@dataclass(frozen=True, kw_only=True)
class AuditFixture:
    """The fixture ``fedassay_audit``, which audits a mechanism and fails the test unless its claim is NOT REFUTED."""

    note_verdict: Callable[[str], None]

    def __call__(
        self, mechanism: Callable[..., Any], claim: "Claim", *, accept_weak: bool = False, **options: Any
    ) -> "Finding":
        """Audit ``mechanism`` against ``claim``; ``options`` are those of ``fedassay.audit_mechanism``.

        ``accept_weak``: whether a claim that is UNDERPOWERED only because its test is weak counts as NOT REFUTED.
        """
        __tracebackhide__ = True
        from ..audit.finding import accept_weak as accepted
        from ..audit.mechanism.mechanism import audit_mechanism
        from ..suites.results.outcome import judge_finding

        finding = audit_mechanism(mechanism, claim, **options)
        finding = accepted(finding) if accept_weak else finding
        gate = judge_finding(getattr(mechanism, "__name__", repr(mechanism)), finding)
        self.note_verdict(finding.line())
        if gate.exit_code:
            pytest.fail(f"{gate.verdict_line}\n{finding.line()}", pytrace=False)
        return finding


@dataclass(frozen=True, kw_only=True)
class SystemFixture:
    """The fixture ``fedassay_system``, which checks and audits a foreign system, such as an Opacus training.

    It fails the test where a check fails, and unless the claim is NOT REFUTED. ``folder``: makes the one
    for a page; None without ``--fedassay-report``.
    """

    test: str = ""
    folder: Callable[[], Path] | None = None
    note_verdict: Callable[[str], None]

    def __call__(
        self, system: "Runner", *, replicas: bool = True, seed: int = 0, accept_weak: bool = False, **options: Any
    ) -> "Finding | None":
        """Watch ``system``, and judge its claim by replicas, whose finding is returned.

        ``replicas=False`` leaves the audit out, and returns None; ``accept_weak`` is that of ``fedassay_audit``,
        ``options`` are those of ``fedassay.audit_replicas``.
        """
        __tracebackhide__ = True
        from ..audit.finding import accept_weak as accepted
        from ..audit.parts import extras_named
        from ..suites.results.outcome import INCONCLUSIVE, Outcome, judge_finding

        with extras_named():
            from ..adapters.replicas import audit_replicas, plan_replicas
            from ..adapters.runner import watch, why_not_planted
            from .system_run import judge_watched

        page = self._pages(system)
        results = watch(system, seed=seed)
        checked = judge_watched(results)
        if checked.exit_code or not replicas:
            page(checked, results)
            # An audit's finding says the limits itself.
            for line in (checked.verdict_line, *results.limit_lines()):
                self.note_verdict(line)
        if checked.exit_code:
            pytest.fail("\n".join(results.lines()), pytrace=False)
        if not replicas:
            return None
        if options.get("plan") is None and not why_not_planted(system):
            plan = plan_replicas(system, seed=seed, plant=options.get("plant"), accept_weak=accept_weak)
            if plan.weak and not accept_weak:
                # Before the runs, because no correct training could pass.
                page(Outcome(verdict_line=f"INCONCLUSIVE: no runs: {plan.line()}", exit_code=INCONCLUSIVE), results)
                pytest.fail(f"no runs were made: {plan.line()}\n{_choose(plan.enough[0])}", pytrace=False)
            options["plan"] = plan
        finding = audit_replicas(system, seed=seed, seen=results, **options)
        finding = accepted(finding) if accept_weak else finding
        gate = judge_finding(type(system).__name__, finding)
        page(gate, results, finding, found=[replace(finding, limit="").line()])
        self.note_verdict(finding.line())
        if gate.exit_code:
            choose = f"\n{_choose(None)}" if finding.verdict.value == "UNDERPOWERED" else ""
            pytest.fail(f"{gate.verdict_line}\n{finding.line()}{choose}", pytrace=False)
        return finding

    def _pages(self, system: "Runner") -> Callable[..., None]:
        """What writes the page of this system, if pages are wanted."""
        from .system_run import write_system_page

        if self.folder is None:
            return lambda *_, **__: None
        return partial(write_system_page, self.folder() / "report.html", self.test, system, as_json=True)


def _choose(enough: int | None) -> str:
    """What can be chosen where runs decide nothing."""
    runs = "" if enough is None else f", or plan=plan_replicas(system, runs={enough}) for enough runs"
    return (
        "nothing was found against the system, and runs decide too little: choose replicas=False (checks decide) or "
        f"accept_weak=True (runs may still refute the claim){runs}"
    )


@dataclass
class _Folders:
    """Makes a new folder for each run of a test, also while other processes make theirs in the same place."""

    place: Path
    test: str
    made: int = field(default=0)

    def __call__(self) -> Path:
        from ..suites.config.source import ConfigError

        self.made += 1
        name = _folder_name(self.test) if self.made == 1 else f"{_folder_name(self.test)}-{self.made}"
        try:
            self.place.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise ConfigError(
                f"{self.place} cannot be created as the folder for runs: a part of its path is a file, not a folder"
            ) from None
        folder, again = self.place / name, 1
        while not _made(folder):  # An earlier or a concurrent pytest with the same DIR has taken the name.
            again += 1
            folder = self.place / f"{name}.{again}"
        return folder


def _folder_name(test: str) -> str:
    """The end of a test's id in portable characters, with a digest of the whole id so that names stay distinct."""
    readable = re.sub(r"[^\w.-]+", "-", test, flags=re.ASCII)[-100:].strip("-.")
    return f"{readable}-{hashlib.sha256(test.encode(errors='surrogatepass')).hexdigest()[:8]}"


def _made(folder: Path) -> bool:
    """Whether this call made the folder; testing first and making it later would be a race between processes."""
    try:
        folder.mkdir()
    except FileExistsError:
        return False
    return True


def _unknown(options: Mapping[str, Any]) -> str:
    return ", ".join(sorted(options.keys() - set(_OPTIONS)))


def _defaults(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Options from the test's markers; the nearest marker wins. A mistake fails the test with one sentence."""
    found: dict[str, Any] = {}
    # iter_markers starts with the nearest marker, so values found first win.
    for marker in request.node.iter_markers("fedassay"):
        if marker.args:
            given = ", ".join(map(repr, marker.args))
            pytest.fail(
                f"@pytest.mark.fedassay takes options by name ({_KNOWN}), got {given}; "
                'a suite is named in the test: fedassay_gate("suite.toml")',
                pytrace=False,
            )
        if unknown := _unknown(marker.kwargs):
            pytest.fail(
                f"@pytest.mark.fedassay accepts only the keyword arguments {_KNOWN}, got {unknown}", pytrace=False
            )
        found = {**marker.kwargs, **found}
    return found


@pytest.fixture
def fedassay_gate(request: pytest.FixtureRequest, tmp_path: Path) -> GateFixture:
    """Run a suite with your defense and fail unless the verdict is OK: ``fedassay_gate("quick", MyDefense())``."""
    kept = request.config.getoption("--fedassay-report")
    return GateFixture(
        folder=_Folders(Path(kept) if kept else tmp_path, request.node.nodeid),
        root=request.config.rootpath,
        test=request.node.nodeid,
        accept=request.config.getoption("--fedassay-accept"),
        defaults=_defaults(request),
        note_verdict=_noter(request),
    )


@pytest.fixture
def fedassay_audit(request: pytest.FixtureRequest) -> AuditFixture:
    """Audit a mechanism; fail unless its claim is NOT REFUTED: ``fedassay_audit(mechanism, claim, inputs=(0, 1))``."""
    _defaults(request)
    return AuditFixture(note_verdict=_noter(request))


@pytest.fixture
def fedassay_system(request: pytest.FixtureRequest) -> SystemFixture:
    """Check and audit a foreign system; fail unless its claim is NOT REFUTED: ``fedassay_system(training)``."""
    _defaults(request)
    kept, test = request.config.getoption("--fedassay-report"), request.node.nodeid
    return SystemFixture(test=test, folder=_Folders(Path(kept), test) if kept else None, note_verdict=_noter(request))


def _noter(request: pytest.FixtureRequest) -> Callable[[str], None]:
    # pytest-xdist sends user properties to the main process; other state of a worker is lost.
    def note_verdict(line: str) -> None:
        request.node.user_properties.append((_PROPERTY, line))

    return note_verdict
