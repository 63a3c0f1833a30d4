"""The small Python face: run a suite, read what came out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .suites.results.outcome import EVERYTHING, Outcome
from .suites.results.record import Record
from .suites.results.store import Store

if TYPE_CHECKING:
    import pandas

    from .defenses.defense import Defense
    from .suites.execution.run import Launch, Progress


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run: its folder, its verdict without a baseline, its rows."""

    folder: Path
    verdict: Outcome

    def gate(
        self,
        baseline: str | Path | None = None,
        *,
        margins: Mapping[str, float] | None = None,
        fail_on: Iterable[str] = EVERYTHING,
    ) -> Outcome:
        """The run's claims, and its cells against a baseline (a file or a run's folder), as ``fedassay gate`` has it.

        Args:
            baseline: ``baselines/main`` means ``baselines/main.json``.
            margins: by metric, what worsening you would mind, instead of the default.
            fail_on: of ``fail``, ``incomplete`` and ``inconclusive`` those that ``raise_for_status`` raises for.

        Raises:
            ConfigError: a baseline that cannot be read, an unknown metric or word, a margin that is no number > 0.
        """
        from .reports.reading.run_folder import RunFolder
        from .reports.regression.gated_run import judge_folder

        return judge_folder(RunFolder.read(self.folder), baseline, margins=margins, fail_on=fail_on).outcome

    @property
    def records(self) -> list[Record]:
        """All rows."""
        return Store(self.folder).records()

    def table(self) -> "pandas.DataFrame":
        """All rows as a data frame."""
        import pandas

        return pandas.DataFrame([record.model_dump(by_alias=True) for record in self.records])

    def lines(self) -> list[str]:
        """One line a claim, as the command prints them."""
        from .reports.formats.terminal import claim_lines
        from .reports.reading.run_folder import RunFolder

        return claim_lines(RunFolder.read(self.folder))


def run(
    suite: str | Path = "quick",
    *,
    defenses: Iterable["str | Defense"] = (),
    seed: int = 0,
    seeds: int | None = None,
    jobs: int | None = None,
    device: str | None = None,
    preset: str | None = None,
    overrides: Iterable[str] = (),
    folder: str | Path | None = None,
    report: bool = True,
    progress: "Progress | None" = None,
    command: str = "",
) -> Run:
    """Run a suite and write its report.

    Args:
        suite: a bundled suite's name, or the path of a suite file.
        defenses: more defenses, by name, as ``package.module:Class``, or built: ``MyDefense(clip_norm=1.0)``.
        seed: which block of seeds; runs with different ones share no random stream.
        seeds: how many seeds, instead of the suite's number.
        jobs: processes; by default one a core.
        device: where attacks search for images, ``cpu`` or ``cuda``, instead of the suite's.
        preset: a preset that the suite's file names, such as ``smoke``.
        overrides: ``key.sub=value`` changes of the suite file.
        folder: where to write; by default a new folder below ``runs/``.
        report: whether to write report.html and report.md.

    Raises:
        ConfigError: unknown names, keys or fields, values that are bad or of another kind.
        DatasetMissing: a data set that is neither here nor to be had.
    """
    from .suites.results.cost import Cost

    cost = Cost()  # Before what loads torch: that is a part of a run.
    from .suites.config.arguments import check_arguments, string_list
    from .suites.config.suite_file import load_suite, named_changes
    from .suites.execution.run import carry_out, launch

    check_arguments(suite, seed=seed, seeds=seeds, jobs=jobs, device=device)
    told = string_list("overrides", overrides, such_as="audit.replicas=500")
    changes = (*told, *named_changes(seeds=seeds, device=device))
    added = tuple(defenses)
    suite = str(suite)
    spec, source = load_suite(suite, preset=preset, overrides=changes)
    begun = launch(
        spec,
        source,
        seed=seed,
        extra=added,
        folder=Path(folder) if folder is not None else None,
        command=command or _call(suite, defenses=list(added), seed=seed, preset=preset, overrides=list(changes)),
        cost=cost,
    )
    gate = carry_out(begun, progress or Silent(), jobs=jobs)
    return _reported(begun, gate, report)


def resume(
    folder: str | Path,
    *,
    retry_failed: bool = False,
    jobs: int | None = None,
    report: bool = True,
    progress: "Progress | None" = None,
) -> Run:
    """Go on with an interrupted run; finished cells are not run again, failed ones only with ``retry_failed``.

    Raises:
        ConfigError: if it cannot be resumed.
    """
    from .suites.execution.run import carry_out, relaunch

    begun = relaunch(Path(folder), retry_failed=retry_failed)
    gate = carry_out(begun, progress or Silent(), jobs=jobs)
    return _reported(begun, gate, report)


def _call(suite: str, **given: Any) -> str:
    """The call that gives the same run again."""
    told = [f"{name}={value!r}" for name, value in given.items() if value]
    return f"fedassay.run({', '.join([repr(suite), *told])})"


class Silent:
    """Progress that nobody watches."""

    def start(self, total: int, cached: int) -> None: ...

    def advance(self, titles: Iterable[str], failed: Iterable[str]) -> None: ...

    def close(self) -> None: ...


def _reported(begun: "Launch", gate: Outcome, report: bool) -> Run:
    folder = begun.store.folder
    if report:
        from .reports.formats.write import write_report
        from .suites.config.source import ConfigError
        from .suites.execution.run import record_cost

        try:
            write_report(folder)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        record_cost(begun)
    return Run(folder=folder, verdict=gate)


def parts(kind: Any) -> dict[str, str]:
    """Every part of a kind ("defense" or "attack") with the first line of what it says of itself."""
    from .suites.config.part_listing import summaries

    return summaries(kind)
