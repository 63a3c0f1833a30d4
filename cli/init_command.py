"""Run the command ``init``, which writes a project with a defense, a suite, a test and its baseline."""

import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from .errors import reported_errors

_FILES = {
    "my_defense.py": "my_defense.py.txt",
    "suite.toml": "suite.toml.txt",
    "test_my_defense.py": "test_my_defense.py.txt",
    "pytest.ini": "pytest.ini.txt",
    "requirements.txt": "requirements.txt.txt",
    ".gitignore": "gitignore.txt",
    "README.md": "README.md.txt",
    ".github/workflows/privacy.yml": "workflow.yml.txt",
}
"""Path in the new project -> file below suites/starter."""
_SCORES = "fedassay audit scores.csv --independent-runs --higher-is-member --epsilon 1 --delta 1e-5"
TEMPLATES = dict.fromkeys(("opacus", "flower", "loop"), "fedassay watch mine.py:training")
TEMPLATES["scores"] = f"python mine.py && {_SCORES}"
"""Kind of what a user has -> the command that comes after its file, ``OWN``, was written."""
OWN, _TEST = "mine.py", "test_mine.py"
_ON_PUSH = ("pytest.ini", "requirements.txt", ".github/workflows/privacy.yml")
"""What runs ``_TEST`` on each push, in a project of a training."""
_TEST_OF_TRAINING = '''"""Its checks pass; at night, runs with and without one unit do not refute its claim either."""

import os

from mine import training


def test_the_claim_of_the_training_holds(fedassay_system):
    # Seconds for the checks. With AUDIT=1, as in a job at night, also minutes or hours for the runs of an audit. If
    # these cannot decide, the test fails before them and says so: choose accept_weak=True.
    fedassay_system(training, replicas=os.environ.get("AUDIT") == "1")
'''
_IMPORTED = {
    "opacus": ("opacus", "scikit-learn", "torch"),
    "flower": ("flwr", "torch"),
    "loop": ("scikit-learn", "torch"),
}
"""Packages that the file of a training imports, besides this one."""
_REPLACE = "# Replace this line"
BASELINE = "baselines/main.json"
RUN = "runs/first"


def init(
    where: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Folder of the new project; existing files are never overwritten.")
    ] = ".",
    opacus: Annotated[
        bool, typer.Option("--opacus", help="Instead of a project, write a file that audits an Opacus training.")
    ] = False,
    flower: Annotated[
        bool, typer.Option("--flower", help="Instead of a project, write a file that audits a Flower app.")
    ] = False,
    loop: Annotated[
        bool,
        typer.Option("--loop", help="Instead of a project, write a file that audits a training loop in plain PyTorch."),
    ] = False,
    scores: Annotated[
        bool, typer.Option("--scores", help="Instead of a project, write a file that audits scores of an attack.")
    ] = False,
) -> None:
    """Start a project of your own: a defense, a suite, a test, a CI workflow and a measured baseline."""
    chosen = [name for name, given in zip(TEMPLATES, (opacus, flower, loop, scores), strict=True) if given]
    with reported_errors():
        folder = named_folder(where)
        if chosen:
            _write_template(folder, chosen)
            return
        refuse_what_is_there(folder)
        with _removed_on_failure(folder):
            write(folder)
            for name in _FILES:
                typer.echo(f"wrote  {folder / name}")
            typer.echo("run    suite.toml, for the baseline")
            verdict = measure(folder)
        typer.echo(f"wrote  {folder / BASELINE}")
        typer.echo(f"gate   {verdict}")
        _say_replace(folder, (folder / "requirements.txt").read_text(encoding="utf-8"))
        _say_next(folder, "pytest")


def named_folder(where: str) -> Path:
    """Return the folder of the new project; raise ConfigError for the file system's root and for an empty name (from an
    unset shell variable).
    """
    from ..suites.config.source import ConfigError

    if not where.strip():
        raise ConfigError(f"the project's folder must have a name, got {where!r}; write . for the current folder")
    folder = Path(where)
    if folder.resolve() == folder.resolve().parent:
        raise ConfigError(f"{where} is the root of the file system: name a folder for the project")
    return folder


def refuse_what_is_there(folder: Path) -> None:
    """Raise ConfigError, before anything is written, if a file of the project already exists or cannot be created."""
    _refuse_files(folder, (*_FILES, BASELINE, RUN))


def _refuse_files(folder: Path, names: Sequence[str]) -> None:
    from ..suites.config.source import ConfigError

    # Dangling links count as well: writing through one would put the file elsewhere.
    if there := [name for name in names if os.path.lexists(folder / name)]:
        raise ConfigError(f"{folder} already holds {', '.join(there)}: name another folder")
    for name in names:
        for above in (folder / name).parents:
            if os.path.lexists(above) and not above.is_dir():
                raise ConfigError(f"{above} is not a folder, so {folder / name} cannot be written: name another folder")


def _write_template(folder: Path, chosen: Sequence[str]) -> None:
    """Write a file for what a user has, of a training with its test and workflow, and say how to go on."""
    from ..reports.formats.write import write_whole
    from ..suites.config.source import ConfigError

    if len(chosen) > 1:
        raise ConfigError(f"only one template can be chosen, got --{' and --'.join(chosen)}")
    kind = chosen[0]
    texts = {OWN: _starter(f"{kind}.py.txt")}
    if kind != "scores":
        extra = f"fedassay[{'train' if kind == 'loop' else kind}]"
        texts |= {_TEST: _TEST_OF_TRAINING} | {name: _starter(_FILES[name], extra) for name in _ON_PUSH}
        texts["requirements.txt"] += "".join(f"{one}\n" for one in _IMPORTED[kind])
    _refuse_files(folder, tuple(texts))
    for name, text in texts.items():
        write_whole(folder / name, text)
        typer.echo(f"wrote  {folder / name}")
    _say_replace(folder, texts.get("requirements.txt", ""))
    _say_next(folder, TEMPLATES[kind])


def _starter(source: str, asked: str = "fedassay[train]") -> str:
    text = (resources.files("fedassay.suites") / "starter" / source).read_text(encoding="utf-8")
    return text.replace("{version}", __version__).replace("{fedassay}", _requirement(asked))


def _requirement(asked: str) -> str:
    """The line that installs this version from its repository; while the package states none, a comment to replace."""
    try:
        stated = metadata("fedassay").get_all("Project-URL") or []
    except PackageNotFoundError:
        stated = []
    places = dict(one.split(", ", 1) for one in stated)
    if (repository := places.get("Repository")) is not None:
        return f"{asked} @ git+{repository}@v{__version__}"
    return f"{_REPLACE} by the one that installs your copy, such as: {asked} @ git+https://HOST/OWNER/fedassay@COMMIT"


def _say_replace(folder: Path, requirements: str) -> None:
    """Say which line of the requirements does not install this package, without which the workflow fails."""
    numbered = enumerate(requirements.splitlines(), start=1)
    if (number := next((number for number, line in numbered if line.startswith(_REPLACE)), None)) is not None:
        typer.echo(
            f"edit   {folder / 'requirements.txt'}, line {number}: name where your copy of fedassay is installed from; "
            "until then the workflow ends with an error"
        )


def _say_next(folder: Path, command: str) -> None:
    typer.echo(f"next   {f'cd {shlex.quote(str(folder))} && ' if folder != Path() else ''}{command}")


@contextmanager
def _removed_on_failure(folder: Path) -> Iterator[None]:
    """Remove what was written if the command stops half way, so that it can be run again."""
    created = [folder / name for name in (*_FILES, BASELINE, RUN)]
    new_folders = {above for place in created for above in place.parents if not above.exists()}
    # Python writes it when the suite imports the defense.
    created += [cache for cache in [folder / "__pycache__"] if not cache.exists()]
    try:
        yield
    except BaseException:
        if any(map(os.path.lexists, (*created, *new_folders))):
            _remove(created, new_folders)
            left = [str(place) for place in created if os.path.lexists(place)]
            outcome = f"could not be removed: {', '.join(left)}" if left else "was removed"
            typer.echo(f"stopped: what was written in {folder} {outcome}", err=True)
        raise


def _remove(files: Iterable[Path], folders: Iterable[Path]) -> None:
    for place in files:
        with suppress(OSError):  # The caller reports what stays.
            if place.is_dir():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink(missing_ok=True)
    for above in sorted(folders, key=lambda place: -len(place.parts)):
        with suppress(OSError):  # It was never made, or holds other files.
            above.rmdir()


def write(folder: Path) -> None:
    """Write the files of the new project and create its folders."""
    from ..reports.formats.write import write_whole

    for name, source in _FILES.items():
        write_whole(folder / name, _starter(source))


def measure(folder: Path) -> str:
    """Run the new project's suite and store the run as its baseline; return the line that states the verdict."""
    from ..api import run
    from ..reports.reading.run_folder import RunFolder
    from ..reports.regression.gated_run import accept

    finished = run(str(folder / "suite.toml"), folder=folder / RUN, command="fedassay run suite.toml")
    accept(RunFolder.read(finished.folder), folder / BASELINE)
    return finished.verdict.verdict_line
