"""Define the commands run, resume, plan, list, report, schema and doctor of the command line.

Each command imports what it needs when it runs, so that ``--help`` and ``list`` start without torch.
"""

import math
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from .. import __version__
from . import audit_command, epsilon_command, gate_command, init_command
from .console import print_lines
from .errors import reported_errors, resumable

# Help is plain text, which spares the import of Rich, and a crash keeps Python's own traceback.
app = typer.Typer(
    name="fedassay",
    help="Audits privacy claims in federated learning.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command()(init_command.init)
app.command()(audit_command.audit)
app.command()(audit_command.watch)
app.command()(epsilon_command.epsilon)
app.command()(gate_command.compare)
app.command()(gate_command.gate)


def _suites(incomplete: str) -> list[str]:
    """The bundled suites and suite files that a shell offers after ``fedassay run``."""
    from ..suites.config.part_listing import bundled_suites

    files = [path.as_posix() for path in Path().glob(f"{incomplete}*") if path.is_dir() or path.suffix == ".toml"]
    return [name for name in [*bundled_suites(), *sorted(files)] if name.startswith(incomplete)]


def _defenses(incomplete: str) -> list[str]:
    from ..suites.config.part_files import own_parts

    return [name for name in own_parts("defense") if name.startswith(incomplete)]


Suite = Annotated[
    str,
    typer.Argument(help="A bundled suite ('fedassay list suites' names them) or a suite file.", autocompletion=_suites),
]
Defenses = Annotated[
    list[str] | None,
    typer.Option(
        "-d",
        "--defense",
        help="Add a defense: a name, or your own as package.module:Class. Repeatable.",
        autocompletion=_defenses,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0, help="Number that selects a block of seeds; runs with different numbers share no random stream."
    ),
]
Seeds = Annotated[int | None, typer.Option(min=1, help="How many seeds are run, instead of the suite's number.")]
Jobs = Annotated[int | None, typer.Option("-j", "--jobs", min=1, help="Number of processes; by default one per core.")]
Backend = Annotated[
    str,
    typer.Option(
        help="Where cells are computed: local (default), or dask or ray, whose packages are extras of the same names.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(help="With --backend dask or ray: a running cluster; by default -j workers start on this machine."),
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="Change one setting of the suite: key.sub=value in TOML. Repeatable.")
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        help="Keep only these tables of their kind, such as defenses.dp_*; the bare word defenses keeps only "
        "those that -d adds. Repeatable."
    ),
]
Preset = Annotated[str | None, typer.Option(help="A preset defined in the suite file, such as smoke.")]
Device = Annotated[
    str | None,
    typer.Option(help="Device of local training and of the attacks that search for images: cpu (default) or cuda."),
]
Budget = Annotated[
    str | None,
    typer.Option(
        help="Limit of wall time, such as 90s, 10m or 2h: audits make as many runs as fit, most for the weakest claims."
    ),
]


@app.command()
def run(
    suite: Suite,
    defense: Defenses = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    jobs: Jobs = None,
    backend: Backend = "local",
    address: Address = None,
    device: Device = None,
    preset: Preset = None,
    only: Only = None,
    set_: Changes = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The run's folder; by default a new one below runs/.")
    ] = None,
    budget: Budget = None,
    accept_weak: gate_command.AcceptWeak = False,
) -> None:
    """Run a suite and write its report."""
    with reported_errors():
        from ..suites.config.suite_file import named_changes, weak_change

        loaded = {
            "preset": preset,
            "overrides": tuple(set_ or ()),
            "options": named_changes(seeds=seeds, device=device, **weak_change(accept_weak)),
            "only": tuple(only or ()),
        }
        workers = {"name": backend, "address": address, "jobs": jobs}
        _carry_out(suite, loaded, workers, output, seed=seed, parts=tuple(defense or ()), budget=budget)


def _carry_out(
    suite: str | dict[str, Any],
    loaded: dict[str, Any],
    workers: dict[str, Any],
    output: Path | None,
    *,
    seed: int = 0,
    parts: tuple[str, ...] = (),
    budget: str | None = None,
) -> NoReturn:
    """Run a suite, print what ``fedassay run`` prints, and end with the run's exit code. ``loaded``: arguments of
    ``load_suite``; ``workers``: of ``chosen_backend``.
    """
    from ..api import _reported
    from ..suites.config.suite_file import load_suite
    from ..suites.execution.clusters import chosen_backend
    from ..suites.execution.run import carry_out, launch
    from ..suites.planning.budget import budget_seconds, in_budget
    from ..suites.planning.estimate import estimate, learnt
    from ..suites.planning.plan_text import headline, weak_attacks
    from ..suites.results.environment import Cost
    from .progress import progress

    spec, source = load_suite(suite, **loaded)
    command, times = shlex.join(["fedassay", *_without_output(sys.argv[1:])]), learnt()
    cost = Cost(since=0.0)  # The whole process counts as cost of this run, from the start of Python.
    until = math.inf
    if budget is not None:
        budget_seconds(budget)  # Refused before a cluster is started.
    with chosen_backend(**workers) as backend:
        if budget is not None:
            fitted = in_budget(spec, source, budget, times, workers=backend.at_once, seed=seed, extra=parts)
            spec, until = fitted.spec, fitted.until
            print_lines(f"budget {fitted.words}")
        begun = launch(spec, source, seed=seed, extra=parts, folder=output, command=command, cost=cost, until=until)
        print_lines(f"plan   {headline(begun.plan)}")
        if budget is None:  # The line of the budget states the time that was expected.
            print_lines(f"time   {estimate(begun.plan, times)}")
        if weak := weak_attacks(begun.plan):
            print_lines(f"weak   {weak}")
        with resumable(begun.store.folder):
            gate = carry_out(begun, progress(), backend)
    with resumable(begun.store.folder):
        _close(_reported(begun, gate, True))


@app.command()
def attack(
    recording: Annotated[Path, typer.Argument(help="The folder of a recording (fedassay.MessageRecorder).")],
    model: Annotated[
        str, typer.Option(help="The trained model: file.py:function of (shape, classes), or a name of the catalogue.")
    ],
    data: Annotated[
        str,
        typer.Option(
            help="Data set whose training rows the truth names, and whose test rows are public: a name, a file, or a "
            "table in TOML of its part and options."
        ),
    ],
    attacks: Annotated[
        list[str] | None, typer.Option("--attack", help="An attack to run; by default all that fit. Repeatable.")
    ] = None,
    column: Annotated[str | None, typer.Option(help="Sensitive column of attribute attacks: a name or number.")] = None,
    mean_std: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--normalise", help="Mean and standard deviation by which clients scale images.", metavar="MEAN STD"
        ),
    ] = None,
    set_: Changes = None,
    jobs: Jobs = None,
    device: Device = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The run's folder; by default a new one below runs/.")
    ] = None,
) -> None:
    """Attack what one observer received in a recorded training, and write the report."""
    with reported_errors():
        from ..suites.config.recorded import recorded_suite
        from ..suites.config.source import ConfigError
        from ..suites.config.suite_file import named_changes

        named = int(column) if column is not None and column.isdecimal() else column
        scaled = None if mean_std is None else {"mean": mean_std[0], "std": mean_std[1]}
        try:
            table = tomllib.loads(f"data = {data}")["data"] if data.startswith("{") else data
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"--data {data} is no table in TOML: {error}") from None
        facts: dict[str, Any] = {"model": model, "data": table, "attacks": attacks or (), "normalise": scaled}
        suite, lines = recorded_suite(recording, column=named, **facts)
        print_lines(*(f"note   {line}" for line in lines))
        loaded = {"overrides": tuple(set_ or ()), "options": named_changes(device=device)}
        _carry_out(suite, loaded, {"name": "local", "jobs": jobs}, output)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")],
    retry_failed: Annotated[
        bool,
        typer.Option(
            "--retry-failed",
            help="Also run the cells that failed, those whose data files are missing or damaged, and those that depend "
            "on a part whose code has changed.",
        ),
    ] = False,
    jobs: Jobs = None,
    backend: Backend = "local",
    address: Address = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Wall time from now, such as 90s, 10m or 2h, after which no further stage of an audit is begun; for "
            "runs that began with a budget or whose audits are sequential."
        ),
    ] = None,
) -> None:
    """Resume an interrupted run; finished work is not repeated. This runs the code that the run's manifest names."""
    with reported_errors(), resumable(folder):
        from ..api import resume as resume_run
        from .progress import progress

        run = resume_run(
            folder,
            retry_failed=retry_failed,
            jobs=jobs,
            backend=backend,
            address=address,
            progress=progress(),
            budget=budget,
            show=print_lines,
        )
        _close(run)


@app.command()
def plan(
    suite: Suite,
    defense: Defenses = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    device: Device = None,
    preset: Preset = None,
    only: Only = None,
    set_: Changes = None,
    jobs: Jobs = None,
    budget: Budget = None,
) -> None:
    """Print what a suite would run, how long it takes, and which epsilon each audit can certify or refute."""
    with reported_errors():
        from ..suites.config.resolve import resolve
        from ..suites.config.suite_file import load_suite, named_changes
        from ..suites.planning.budget import in_budget
        from ..suites.planning.estimate import estimate, learnt, pilot_times
        from ..suites.planning.plan_text import headline, plan_lines
        from ..suites.planning.run_plan import plan_run

        options = named_changes(seeds=seeds, device=device)
        spec, source = load_suite(
            suite, preset=preset, overrides=tuple(set_ or ()), options=options, only=tuple(only or ())
        )
        parts, times = tuple(defense or ()), learnt()
        if budget is not None:
            fitted = in_budget(spec, source, budget, times, workers=jobs, seed=seed, extra=parts)
            spec = fitted.spec
            print_lines(f"budget {fitted.words}")
        planned = plan_run(resolve(spec, source, seed=seed, extra=parts))
        lines = plan_lines(planned)
        unknown = any(times.of(cell.facts) is None for cell in planned.cells)
        pilot = pilot_times(planned) if unknown else None
        print_lines(f"plan   {headline(planned)}", f"time   {estimate(planned, times, pilot)}", *lines)


@app.command()
def check(
    part: Annotated[str, typer.Argument(help="A name of the catalogue, package.module:Name or file.py:Name.")],
    kind: Annotated[
        str | None,
        typer.Option(
            help="dataset, model, algorithm, partition, sampling, attack, estimator, defense or canary; by default it "
            "is found out from the part."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the part: key=value in TOML. Repeatable.")
    ] = None,
    limit: Annotated[float, typer.Option(help="Seconds of wall time that one check may take.")] = 120.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that a part does what its kind requires, a line per check; exit code 10 for a fault, 11 if stopped."""
    with reported_errors():
        from .printing import check_lines

        lines, code = check_lines(part, kind=kind, options=set_ or [], limit=limit, as_json=json)
        for line in lines:
            print_lines(line)
        raise typer.Exit(code())


@app.command("list")
def list_(
    kind: Annotated[
        str,
        typer.Argument(
            help="defenses, attacks, estimators, mutants, suites, datasets, metrics, models, algorithms, partitions, "
            "samplings or canaries."
        ),
    ],
    name: Annotated[
        str | None, typer.Argument(help="A data set's name or path, which is read and described; with datasets only.")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="An option of that data set, key=value; may be repeated.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    errata: Annotated[bool, typer.Option("--errata", help="Print notes on the papers of the defenses.")] = False,
) -> None:
    """List the available parts of one kind, mutants (mechanisms with a planted bug), suites or metrics; or describe one
    data set, such as a file of your own. Of defenses and attacks, the words before the colon are the kinds of
    federations on which they run.
    """
    with reported_errors():
        from .list_command import errata_of, listing, one_dataset

        if name is not None or changes:
            found = one_dataset(kind, name, tuple(changes or ()))
        else:
            found = errata_of(kind) if errata else listing(kind)
        if json:
            import json as writer  # The option has the name of the module.

            typer.echo(writer.dumps(found, indent=1))
            return
        width = max(map(len, found), default=0)
        for name, text in found.items():
            first, *more = text.split("\n")
            print_lines(f"{name:{width}}  {first}", *(f"{'':{width}}  {line}" for line in more))


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="One or more run folders; several are shown side by side.")],
    html: Annotated[
        Path | None, typer.Option(help="Write the HTML page to this file instead of the run's folder.")
    ] = None,
    md: Annotated[Path | None, typer.Option(help="Write Markdown to this file.")] = None,
    latex: Annotated[
        Path | None, typer.Option(help="Write LaTeX tables to this file (packages booktabs and array).")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write all records to this file.")] = None,
    claims: Annotated[
        Path | None, typer.Option(help="Write the claims to this file, in the fields of a deployment registry.")
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            help="With --latex: print one table with this column, such as defense, epsilon, accuracy or loss.auc. "
            "Repeatable.",
        ),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="With --latex: print one table with this metric of every attack. Repeatable."),
    ] = None,
    label: Annotated[str, typer.Option(help="With --latex and --column or --metric: the table's \\label.")] = "",
    figures: Annotated[
        Path | None, typer.Option(help="Write every figure to this folder, as SVG and as PDF.", metavar="DIR")
    ] = None,
    pack: Annotated[
        Path | None,
        typer.Option(
            help="Write an evidence pack of one run to this folder: statement and crosswalk (PDF and Markdown), page, "
            "claims, records, hashes.",
            metavar="DIR",
        ),
    ] = None,
) -> None:
    """Write the report of one run, or a common report of several runs, from their result rows."""
    with reported_errors():
        from .printing import ChosenTable, print_report

        table = ChosenTable(columns=tuple(columns or ()), metrics=tuple(metric or ()), label=label)
        wanted = {"html": html, "md": md, "latex": latex, "csv": csv, "claims": claims}
        print_lines(*print_report(runs, wanted, figures, table, pack))


@app.command()
def site(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, of any suites and versions.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the site.", metavar="DIR")],
) -> None:
    """Write a static site over many runs: comparable claims, the history of each defense, and every run's page."""
    with reported_errors():
        from .printing import print_site

        print_lines(*print_site(runs, output))


@app.command()
def schema(kind: Annotated[str, typer.Argument(help="result, claim or suite.")]) -> None:
    """Print the JSON Schema of result rows, claims or suite files."""
    with reported_errors():
        from .printing import print_schema

        typer.echo(print_schema(kind))


@app.command()
def doctor(
    digests: Annotated[
        bool, typer.Option("--digests", help="Print the SHA-256 of every data set on this machine.")
    ] = False,
    fetch_lpips: Annotated[
        bool,
        typer.Option(
            "--fetch-lpips", help="First download the weights of LPIPS (64 to 244 MB), where they are missing."
        ),
    ] = False,
) -> None:
    """Print what this machine offers: threads, GPU, package versions, data sets, LPIPS weights."""
    with reported_errors():
        if fetch_lpips:
            from ..suites.scoring.images import fetch

            typer.echo(fetch(), err=True)
        from .list_command import diagnosis

        print_lines(*diagnosis(digests=digests))


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"fedassay {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Audits privacy claims in federated learning."""


def _without_output(words: list[str]) -> list[str]:
    """The command without its output folder and its cluster's address, so that the printed command can be run again."""
    options, kept, skip = ("-o", "--output", "--address"), [], False
    for word in words:
        if not skip and word not in options and not word.startswith(tuple(f"{one}=" for one in options)):
            kept.append(word)
        skip = not skip and word in options
    return kept


def _close(finished: Any) -> NoReturn:
    from ..reports.formats.terminal import tables
    from ..reports.reading.run_folder import RunFolder
    from ..reports.tables.stated import coverage_lines, scope_lines

    # Printed from the records, as the report is: terminal and page cannot disagree.
    folder = RunFolder.read(finished.folder)
    print_lines(*finished.lines(), *coverage_lines(folder), "", *tables(folder), *scope_lines(folder))
    print_lines(f"gate   {finished.verdict.verdict_line} (exit code {finished.verdict.exit_code})")
    print_lines(f"open   {finished.folder / 'report.html'}")
    raise typer.Exit(finished.verdict.exit_code)
