"""The command line: run, resume, plan, audit, list, report, schema, doctor; others have a file of their own.

Heavy modules load where a command needs them.
"""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from .. import __version__
from . import gate_command, init_command
from .console import say
from .errors import resumable, told

app = typer.Typer(
    name="fedassay",
    help="Measures what privacy claims in federated learning are worth.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command()(init_command.init)
app.command()(gate_command.compare)
app.command()(gate_command.gate)

Suite = Annotated[str, typer.Argument(help="A bundled suite ('fedassay list suites' names them) or a suite file.")]
Defenses = Annotated[
    list[str] | None,
    typer.Option("-d", "--defense", help="Add a defense: a name, or your own as package.module:Class. Repeatable."),
]
Seed = Annotated[int, typer.Option(min=0, help="Which block of seeds; of as many seeds, they share no random stream.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="How many seeds, instead of the suite's number.")]
Jobs = Annotated[int | None, typer.Option("-j", "--jobs", min=1, help="Processes; by default one a core.")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="Change the suite: key.sub=value, a TOML value. Repeatable.")
]
Preset = Annotated[str | None, typer.Option(help="A preset that the suite's file names, such as smoke.")]
Device = Annotated[str | None, typer.Option(help="Where attacks search for images: cpu, the default, or cuda.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="The run's folder, by default below runs/.")]


@app.command()
def run(
    suite: Suite,
    defense: Defenses = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    jobs: Jobs = None,
    device: Device = None,
    preset: Preset = None,
    set_: Changes = None,
    output: Output = None,
) -> None:
    """Run a suite and write its report."""
    with told():
        from ..api import _reported
        from ..suites.config.suite_file import load_suite, named_changes
        from ..suites.execution.run import carry_out, launch
        from ..suites.planning.estimate import estimate, learnt
        from ..suites.planning.plan_text import headline
        from ..suites.results.cost import Cost
        from .progress import progress

        spec, source = load_suite(
            suite, preset=preset, overrides=(*(set_ or ()), *named_changes(seeds=seeds, device=device))
        )
        words, times = shlex.join(["fedassay", *_without_output(sys.argv[1:])]), learnt()
        cost = Cost(since=0.0)  # This process is the run's own, from the start of Python on.
        begun = launch(spec, source, seed=seed, extra=tuple(defense or ()), folder=output, command=words, cost=cost)
        say(f"plan   {headline(begun.plan)}", f"time   {estimate(begun.plan, times)}")
        with resumable(begun.store.folder):
            gate = carry_out(begun, progress(), jobs=jobs)
            _close(_reported(begun, gate, True))


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="A run's folder.")],
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run the cells that failed again.")] = False,
    jobs: Jobs = None,
) -> None:
    """Go on with an interrupted run; finished cells are not run again."""
    with told(), resumable(folder):
        from ..api import resume as go_on
        from .progress import progress

        _close(go_on(folder, retry_failed=retry_failed, jobs=jobs, progress=progress()))


@app.command()
def plan(
    suite: Suite,
    defense: Defenses = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    device: Device = None,
    preset: Preset = None,
    set_: Changes = None,
) -> None:
    """Say what a suite would run, and how far each audit could see."""
    with told():
        from ..suites.config.resolve import resolve
        from ..suites.config.suite_file import load_suite, named_changes
        from ..suites.planning.estimate import estimate, learnt
        from ..suites.planning.plan_text import headline, outlook
        from ..suites.planning.run_plan import plan_run

        spec, source = load_suite(
            suite, preset=preset, overrides=(*(set_ or ()), *named_changes(seeds=seeds, device=device))
        )
        planned = plan_run(resolve(spec, source, seed=seed, extra=tuple(defense or ())))
        say(f"plan   {headline(planned)}", f"time   {estimate(planned, learnt())}", *outlook(planned))


@app.command()
def audit(
    target: Annotated[str, typer.Argument(help="scores.npz or .csv (member, nonmember), or package.module:function.")],
    epsilon: Annotated[float | None, typer.Option(help="What is claimed; left out, it follows from mu.")] = None,
    delta: Annotated[float, typer.Option(help="What is claimed.")] = 0.0,
    mu: Annotated[float | None, typer.Option(help="Sign the curve of mu-GDP: sensitivity / noise std.")] = None,
    unit: Annotated[str, typer.Option(help="What is protected: sample, client, user, report, ...")] = "report",
    adjacency: Annotated[str, typer.Option(help="replace_one, add_remove or zero_out.")] = "replace_one",
    observer: Annotated[
        str, typer.Option(help="uploads, shuffled, aggregate, global_models, final_model.")
    ] = "uploads",
    rounds: Annotated[int, typer.Option(help="Rounds that the claim covers.")] = 1,
    inputs: Annotated[
        tuple[str, str] | None, typer.Option(metavar="X0 X1", help="Of a function: two neighbours, as JSON.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Of a function: runs counted a world, by default 100,000.")] = None,
    batched: Annotated[bool, typer.Option("--batched", help="Of a function: x has one row a trial.")] = False,
    threshold: Annotated[float | None, typer.Option(help="Of scores: fixed before they were seen.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of trials, or of the split of the scores.")] = 0,
    alpha: Annotated[float, typer.Option(help="Chance of a false refutation, at most.")] = 0.05,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Audit a mechanism of your own, or scores, against a claim; no federation."""
    with told():
        from ..suites.results.outcome import judge_finding
        from .audit_command import Wishes, audit_target, finding_lines, stated_claim

        wished = {"unit": unit, "adjacency": adjacency, "observer": observer, "rounds": rounds}
        claim = stated_claim(epsilon=epsilon, delta=delta, mu=mu, **wished)
        wishes = Wishes(seed=seed, alpha=alpha, threshold=threshold, inputs=inputs, trials=trials, batched=batched)
        finding = audit_target(target, claim, wishes)
        gate = judge_finding(target, finding)
        for line in finding_lines(target, finding, gate, as_json=json):
            say(*line.split("\n"))
        raise typer.Exit(gate.exit_code)


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(help="defenses, attacks, estimators, mutants, suites, datasets or metrics.")],
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    errata: Annotated[bool, typer.Option("--errata", help="What the defenses' papers get wrong.")] = False,
) -> None:
    """List the parts there are."""
    with told():
        from .list_command import errata_of, listing

        found = errata_of(kind) if errata else listing(kind)
        if json:
            import json as writer

            typer.echo(writer.dumps(found, indent=1))
            return
        width = max(map(len, found), default=0)
        for name, words in found.items():
            first, *more = words.split("\n")
            say(f"{name:{width}}  {first}", *(f"{'':{width}}  {line}" for line in more))


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs; several stand side by side.")],
    html: Annotated[Path | None, typer.Option(help="Write the page here instead of into the run's folder.")] = None,
    md: Annotated[Path | None, typer.Option(help="Write Markdown here.")] = None,
    latex: Annotated[
        Path | None, typer.Option(help="Write the tables here, for LaTeX with booktabs and array.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write all records here.")] = None,
    claims: Annotated[
        Path | None, typer.Option(help="Write the claims in a deployment registry's fields here.")
    ] = None,
) -> None:
    """Write the report of a run again, or of several, from records alone."""
    with told():
        from .printing import print_report

        wanted = {"html": html, "md": md, "latex": latex, "csv": csv, "claims": claims}
        say(*print_report(runs, wanted))


@app.command()
def schema(kind: Annotated[str, typer.Argument(help="result, claim or suite.")]) -> None:
    """Print the JSON Schema of records, claims or suite files."""
    with told():
        from .printing import print_schema

        typer.echo(print_schema(kind))


@app.command()
def doctor(
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Repeat every estimator on mechanisms of known privacy instead.")
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=100,
            help="Of the calibration, by default 2000: two minutes on one core. Fewer than 100 show nothing.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the calibration, by default 0.")] = None,
    digests: Annotated[bool, typer.Option("--digests", help="Read every data set that is here: its SHA-256.")] = False,
) -> None:
    """Say what this machine has: threads, GPU, versions, data sets, LPIPS weights; or whether the estimators hold their
    alpha.
    """
    with told():
        if calibrate:
            from .printing import print_calibration

            raise typer.Exit(print_calibration(2000 if repeats is None else repeats, seed or 0))
        if (repeats, seed) != (None, None):
            raise typer.BadParameter("--repeats and --seed belong to --calibrate")
        from .list_command import diagnosis

        say(*diagnosis(digests=digests))


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fedassay {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Measures what privacy claims in federated learning are worth."""
    # A defense of your own is named by its module: look for it where you stand, as `python -m` would.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)


def _without_output(words: list[str]) -> list[str]:
    """The command without its output folder, so that it can be given again as it is printed."""
    kept, skip = [], False
    for word in words:
        if not skip and word not in ("-o", "--output") and not word.startswith(("--output=", "-o=")):
            kept.append(word)
        skip = not skip and word in ("-o", "--output")
    return kept


def _close(finished: Any) -> NoReturn:
    from ..reports.formats.terminal import tables
    from ..reports.reading.run_folder import RunFolder

    say(*finished.lines(), "", *tables(RunFolder.read(finished.folder)))
    say(f"gate   {finished.verdict.verdict_line} (exit code {finished.verdict.exit_code})")
    say(f"open   {finished.folder / 'report.html'}")
    raise typer.Exit(finished.verdict.exit_code)
