"""Run a suite from Python, or open a finished run, and give access to its results."""

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .audit.parts import extras_named
from .suites.results.outcome import EVERYTHING, Outcome
from .suites.results.record import Record
from .suites.results.store import Store

if TYPE_CHECKING:
    import pandas

    from .defenses.defense import Defense
    from .reports.figures.frame import Figure
    from .reports.reading.claims import ClaimRow
    from .reports.reading.run_folder import RunFolder
    from .suites.config.source import Source
    from .suites.config.tables.suite import Suite
    from .suites.execution.run import Launch, Progress


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run with its folder and its results.

    A notebook shows it as the verdict, the claims and the main table of attacks.

    Attributes:
        folder: where its records and its report are.
        verdict: the verdict on its claims and controls, without a baseline.
    """

    folder: Path
    verdict: Outcome

    def gate(
        self,
        baseline: str | Path | None = None,
        *,
        margins: Mapping[str, float] | None = None,
        fail_on: Iterable[str] = EVERYTHING,
        accept_weak: bool = False,
    ) -> Outcome:
        """Return the run's verdict: judge its claims and compare its metrics with a baseline, as ``fedassay gate``
        does.

        Args:
            baseline: a baseline file or a run's folder; ``baselines/main`` means ``baselines/main.json``.
            margins: metric -> largest acceptable change for the worse, instead of the suite's margins.
            fail_on: the verdicts for which ``raise_for_status`` raises: ``fail``, ``incomplete``, ``inconclusive``.
            accept_weak: whether claims that are UNDERPOWERED only because their test is weak count as not refuted.

        Raises:
            ConfigError: an argument of another type, a baseline that cannot be read, an unknown metric or verdict, or
                a margin that is not > 0.
        """
        from .reports.regression.gated_run import judge_folder
        from .suites.config.arguments import check_gate, string_list

        check_gate(baseline, margins)
        words = string_list("fail_on", fail_on, such_as="fail")
        judged = judge_folder(self._read(), baseline, margins=margins, fail_on=words, accept_weak=accept_weak)
        return judged.outcome

    @property
    def records(self) -> list[Record]:
        """Return all result rows of the run. Raises ConfigError if the folder is no longer there."""
        return Store.open(self.folder).records()

    def frame(self) -> "pandas.DataFrame":
        """Return all result rows as a data frame, one column per field."""
        import pandas  # Takes long to import, and most callers never need it.

        return pandas.DataFrame([record.model_dump(by_alias=True) for record in self.records])

    @property
    def claims(self) -> "list[ClaimRow]":
        """Return every claim with the result of its audit, in the order of the report.

        Each has ``defense``, ``stated`` (with ``stated.claim``), ``verdict``, ``epsilon_low`` (the measured lower bound
        on epsilon), ``ceiling`` (the largest epsilon that the audit can certify), ``detectable`` (the smallest true
        epsilon that it refutes with 90 % power) and ``failed_checks``.
        """
        from .reports.reading.claims import claim_rows

        return claim_rows(self._read())

    @property
    def figures(self) -> tuple[str, ...]:
        """Return the names of the figures that this run has data for; ``figure`` draws one of them."""
        from .reports.formats.page import figures

        return tuple(figure.key for figure in figures(self._read()))

    def figure(self, name: str) -> "Figure":
        """Draw one figure of the report; a notebook shows it, and its ``save`` writes it as SVG or PDF.

        Raises:
            ConfigError: the run has no figure of this name; the message lists those that it has.
        """
        from .audit.wording import nearest
        from .reports.formats.page import figures
        from .suites.config.source import ConfigError

        drawn = {figure.key: figure for figure in figures(self._read())}
        if not isinstance(name, str) or name not in drawn:
            raise ConfigError(f"the run {self.folder} has no figure {name!r}; it has: {nearest(str(name), drawn)}")
        return drawn[name]

    def _read(self) -> "RunFolder":
        return _run_folder(self.folder)

    def _repr_html_(self) -> str:
        from .reports.formats.page import notebook_html

        return notebook_html(self._read())

    def lines(self) -> list[str]:
        """Return one line per claim, with the text that the command line prints."""
        from .reports.formats.terminal import claim_lines

        return claim_lines(self._read())


def run(
    suite: "str | Path | Mapping[str, Any] | Suite" = "quick",
    *,
    defenses: Iterable["str | Defense"] = (),
    only: Iterable[str] = (),
    seed: int = 0,
    seeds: int | None = None,
    jobs: int | None = None,
    backend: str = "local",
    address: str | None = None,
    device: str | None = None,
    preset: str | None = None,
    overrides: Iterable[str] = (),
    folder: str | Path | None = None,
    report: bool = True,
    progress: "Progress | None" = None,
    command: str = "",
    budget: str | None = None,
    accept_weak: bool = False,
) -> Run:
    """Run a suite and write its report.

    Args:
        suite: a bundled suite's name, the path of a suite file, a dictionary with the keys of a suite file, or a
            ``fedassay.Suite``.
        defenses: further defenses: a name, ``package.module:Class`` or an instance, ``MyDefense(clip_norm=1.0)``.
        only: the suite's tables to keep, such as ``"attacks.loss"`` or ``"defenses.dp_*"``; tables of other kinds stay.
            The bare word ``"defenses"`` removes all defenses of the suite, so that those in ``defenses`` run alone.
        seed: number of the block of seeds; runs with different blocks share no random stream.
        seeds: number of seeds, instead of the suite's.
        jobs: number of processes on this machine; by default one per core.
        backend: ``local``, ``dask`` or ``ray``: where cells are computed. Rows do not depend on it.
        address: of a Dask scheduler or a Ray cluster that runs already; by default workers start on this machine.
        device: device of local training and of the attacks that search for images, ``cpu`` or ``cuda``, instead of
            the suite's.
        preset: a preset defined in the suite file, such as ``smoke``.
        overrides: changes of the suite file, each ``key.sub=value``.
        folder: the run's folder; by default a new one below ``runs/``.
        report: whether to write report.html and report.md.
        progress: receives the progress; by default a notebook shows a bar, and nothing is shown elsewhere.
        command: the command recorded in the manifest; by default this call.
        budget: wall time, such as ``"90s"``, ``"10m"`` or ``"2h"``: audits make as many runs as fit
            into it, most where claims are weakest, and stop as soon as they are certain. By default the suite's own
            runs.
        accept_weak: whether claims that are UNDERPOWERED only because their test is weak count as not refuted.

    Returns:
        the finished run.

    Warns:
        UserWarning: of attacks that the run cannot tell from guessing.

    Raises:
        ConfigError: an unknown name, key or field, a value that is out of range or of the wrong type, a folder that
            already holds a run or cannot be made or written, or a backend that is not installed or does not answer.
        DatasetMissing: a data set is not on this machine and cannot be downloaded.
        ClusterError: a cluster could not compute every cell; ``resume`` computes the rest.
        KeyboardInterrupt: at Ctrl-C. No handler of signals is installed, and what the program's own handlers raise is
            passed on; finished work is kept, and ``resume`` goes on from it.

    Example:
        ```
        run = fedassay.run("quick", defenses=[DPSGD(epsilon=1.0)], only=["defenses"], seeds=1)
        run.gate().raise_for_status()
        ```
    """
    from .suites.results.environment import Cost

    cost = Cost()  # Started before torch is imported, because loading it is part of the cost of a run.
    from .suites.config.arguments import check_arguments, string_list
    from .suites.config.source import ConfigError

    # The command line checks these itself; a caller in Python gets the same errors here.
    check_arguments(
        suite, defenses=defenses, seed=seed, seeds=seeds, jobs=jobs, device=device, preset=preset, folder=folder
    )
    from .suites.config.suite_file import load_suite, named_changes, weak_change
    from .suites.execution.clusters import chosen_backend
    from .suites.execution.run import carry_out, launch

    stated = string_list("overrides", overrides, such_as="audit.replicas=500")
    kept = string_list("only", only, such_as="attacks.loss")
    options = named_changes(seeds=seeds, device=device, **weak_change(accept_weak))
    added = tuple(defenses)
    if "defenses" in kept and not added:
        raise ConfigError("only = 'defenses' removes the suite's defenses: give those that run in defenses=[...]")
    suite = str(suite) if isinstance(suite, Path) else suite
    spec, source = load_suite(suite, preset=preset, overrides=stated, options=options, only=kept)
    named, changes = suite if isinstance(suite, str) else source.parse(), [*stated, *options]
    given = {"defenses": list(added), "only": list(kept), "seed": seed, "preset": preset, "overrides": changes}
    called = _call(named, **given, budget=budget)
    with chosen_backend(backend, address=address, jobs=jobs) as workers:
        spec, until = _in_budget(spec, source, budget, workers=workers.at_once, seed=seed, extra=added)
        begun = launch(
            spec,
            source,
            seed=seed,
            extra=added,
            folder=Path(folder) if folder is not None else None,
            command=command or called,
            cost=cost,
            until=until,
        )
        gate = carry_out(_warned(begun), progress or _display(), workers)
    return _reported(begun, gate, report)


def attack_recording(
    recording: str | Path,
    *,
    model: Any,
    data: Any = "digits",
    attacks: Iterable[str] = (),
    column: int | str | None = None,
    normalise: Mapping[str, Any] | None = None,
    show: Callable[[str], object] = lambda line: None,
    **options: Any,
) -> Run:
    """Attack what one observer received in a real training, from the folder of a ``MessageRecorder``, and write
    the report.

    Args:
        recording: its folder.
        model: the trained model, as in a suite: ``mine.py:model`` names a function ``(shape, classes)`` that returns
            the module; a name of the catalogue, or a table of its ``part`` and options.
        data: a data set, as in a suite, of which the truth names the clients' training rows. The other training rows
            are non-members, and the test rows are what the adversary has.
        attacks: names of attacks (``fedassay list attacks``); by default those that fit what was recorded.
        column: the sensitive column of attribute attacks, by number or name; without it they are left out.
        normalise: ``{"mean": ..., "std": ...}`` if the clients scaled their images before the model.
        show: receives lines on what is attacked and what no attack looks at.
        options: further arguments of ``run``, such as ``folder``, ``jobs``, and ``overrides`` of the suite that is
            made (``"attacks.inversion.iterations=100"``).

    Raises:
        ConfigError: as ``run``; a recording that cannot be read, or model or data that do not fit it.

    Example:
        ```
        fedassay.attack_recording("recording", model="mine.py:model", data="records.npz", folder="runs/attack")
        ```
    """
    from .suites.config.recorded import recorded_suite

    chosen = [attacks] if isinstance(attacks, str) else list(attacks)
    facts = {"model": model, "data": data, "attacks": chosen, "column": column, "normalise": normalise}
    suite, lines = recorded_suite(recording, **facts)
    for line in lines:
        show(line)
    return run(suite, **options)


def _warned(begun: "Launch") -> "Launch":
    """The run itself, after a warning of attacks that it cannot tell from guessing."""
    from .suites.planning.plan_text import weak_attacks

    if weak := weak_attacks(begun.plan):
        warnings.warn(weak, stacklevel=3)
    return begun


def _in_budget(spec: "Suite", source: "Source", budget: str | None, **options: Any) -> tuple["Suite", float]:
    """The suite that fits into a budget, and until when its runs may go on; without a budget the suite as it is."""
    if budget is None:
        return spec, math.inf
    from .suites.planning.budget import in_budget
    from .suites.planning.estimate import learnt

    fitted = in_budget(spec, source, budget, learnt(), **options)
    return fitted.spec, fitted.until


def _until_spent(begun: "Launch", budget: str, workers: int) -> float:
    from .suites.planning.budget import until_spent
    from .suites.planning.estimate import learnt

    return until_spent(begun.plan, budget, learnt(), workers=workers)


def resume(
    folder: str | Path,
    *,
    retry_failed: bool = False,
    jobs: int | None = None,
    backend: str = "local",
    address: str | None = None,
    report: bool = True,
    progress: "Progress | None" = None,
    budget: str | None = None,
    show: Callable[[str], object] = lambda line: None,
) -> Run:
    """Resume an interrupted run. Finished work is not repeated. With ``retry_failed``, failed work is repeated, and so
    is all work that depends on a part whose code has changed. The backend may differ from the one with which the run
    began.

    A run that began with a budget keeps its numbers of runs, and has no limit of time unless ``budget`` sets a new one:
    wall time from now, after which no further stage of an audit is begun. ``show`` gets a line, before they are
    imported, about the modules and files that the run names.

    Raises:
        ConfigError: the folder holds no run, or code, data or suite changed since it began; a budget for a run whose
            audits do not stop early; or as for ``run``.
        ClusterError: as for ``run``.
    """
    from .suites.config.arguments import check_folder

    with extras_named():
        from .suites.execution.clusters import chosen_backend
        from .suites.execution.run import carry_out, relaunch

    check_folder(folder)
    with chosen_backend(backend, address=address, jobs=jobs) as workers:
        begun = relaunch(Path(folder), retry_failed=retry_failed, show=show)
        if budget is not None:
            begun = replace(begun, until=_until_spent(begun, budget, workers.at_once))
        gate = carry_out(begun, progress or _display(), workers)
    return _reported(begun, gate, report)


def open(folder: str | Path) -> Run:
    """Open the folder of a run that an earlier process finished, to read its results.

    Raises:
        ConfigError: the folder holds no run, its files cannot be read, or the run is not finished.
    """
    from .suites.config.arguments import check_folder
    from .suites.config.source import ConfigError

    check_folder(folder)
    run_folder = _run_folder(folder)
    if run_folder.gate is None:
        raise ConfigError(f"{folder}: the run is not finished; finish it with fedassay.resume({str(folder)!r})")
    return Run(folder=Path(folder), verdict=run_folder.gate)


def _run_folder(folder: str | Path) -> "RunFolder":
    from .reports.reading.run_folder import RunFolder
    from .suites.config.source import ConfigError, config_errors

    try:
        with config_errors():
            return RunFolder.read(folder)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read: {error.strerror}" if error.strerror else str(error)) from error


def _call(suite: str | Mapping[str, Any], **given: Any) -> str:
    """The call that repeats this run."""
    # Defaults are left out: the recorded call is as short as the one that was made.
    arguments = [f"{name}={value!r}" for name, value in given.items() if value]
    return f"fedassay.run({', '.join([repr(suite), *arguments])})"


def _display() -> "Progress":
    """A bar in a notebook, where a run of minutes would look stuck; elsewhere nothing."""
    if "ipykernel" in sys.modules:
        from .reports.formats.progress_bar import Bar

        return Bar()
    return Silent()


class Silent:
    """A progress display that prints nothing."""

    def start(self, total: int, cached: int) -> None: ...

    def advance(self, titles: Iterable[str], failed: Iterable[str]) -> None: ...

    def close(self) -> None: ...


def _reported(begun: "Launch", gate: Outcome, report: bool) -> Run:
    folder = begun.store.folder
    if report:
        from .reports.formats.write import write_report
        from .suites.config.source import config_errors
        from .suites.execution.run import record_cost

        with config_errors():
            write_report(folder)
        # After the report, whose time belongs to the run.
        record_cost(begun)
    return Run(folder=folder, verdict=gate)
