"""The command init: the project of a defense author, ready to run."""

import os
import shlex
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from .errors import told

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
"""Where each file goes, and which one below suites/starter it is."""
BASELINE = "baselines/main.json"
RUN = "runs/first"


def init(
    where: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Where; what is there already is never overwritten.")
    ] = ".",
) -> None:
    """Start a project of your own: a defense, a suite, a test, a workflow, and the baseline that they begin with."""
    with told():
        folder = named_folder(where)
        refuse_what_is_there(folder)
        with _taken_back(folder):
            write(folder)
            for name in _FILES:
                typer.echo(f"wrote  {folder / name}")
            typer.echo("run    suite.toml, for the baseline")
            verdict = measure(folder)
        typer.echo(f"wrote  {folder / BASELINE}")
        typer.echo(f"gate   {verdict}")
        typer.echo(f"next   {f'cd {shlex.quote(str(folder))} && ' if folder != Path() else ''}pytest")


def named_folder(where: str) -> Path:
    """The folder; ConfigError for an empty name, which a shell's unset variable leaves, and for the file system's root,
    where no project belongs.
    """
    from ..suites.config.source import ConfigError

    if not where.strip():
        raise ConfigError(f"name a folder for the project, got {where!r}; the one that you are in is .")
    folder = Path(where)
    if folder.resolve() == folder.resolve().parent:
        raise ConfigError(f"{where} is the root of the file system: name a folder for the project")
    return folder


def refuse_what_is_there(folder: Path) -> None:
    """Raises ConfigError, before anything is written, where something stands in the way of any of it."""
    from ..suites.config.source import ConfigError

    # Links that lead nowhere count too: written through, the file would be somewhere else.
    if there := [name for name in (*_FILES, BASELINE, RUN) if os.path.lexists(folder / name)]:
        raise ConfigError(f"{folder} already holds {', '.join(there)}: name another folder")
    for name in (*_FILES, BASELINE, RUN):
        for above in (folder / name).parents:
            if os.path.lexists(above) and not above.is_dir():
                raise ConfigError(f"{above} is no folder: {folder / name} cannot be written, name another folder")


@contextmanager
def _taken_back(folder: Path) -> Iterator[None]:
    """Whatever stops it half way leaves only what was there before: the same command can be given again."""
    ours = [folder / name for name in (*_FILES, BASELINE, RUN)]
    new_folders = {above for place in ours for above in place.parents if not above.exists()}
    # Python leaves it beside the defense that the suite imports.
    ours += [cache for cache in [folder / "__pycache__"] if not cache.exists()]
    try:
        yield
    except BaseException:
        if any(map(os.path.lexists, (*ours, *new_folders))):
            _take_back(ours, new_folders)
            left = [str(place) for place in ours if os.path.lexists(place)]
            told = f"could not be taken back: {', '.join(left)}" if left else "is taken back"
            typer.echo(f"stopped: what was written in {folder} {told}", err=True)
        raise


def _take_back(files: Iterable[Path], folders: Iterable[Path]) -> None:
    for place in files:
        with suppress(OSError):  # What stays is told.
            if place.is_dir():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink(missing_ok=True)
    for above in sorted(folders, key=lambda place: -len(place.parts)):
        with suppress(OSError):  # It was never made, or holds what somebody else has put there.
            above.rmdir()


def write(folder: Path) -> None:
    """Write the files; the folder is made where there is none."""
    starter = resources.files("fedassay.suites") / "starter"
    for name, source in _FILES.items():
        place = folder / name
        text = (starter / source).read_text(encoding="utf-8")
        place.parent.mkdir(parents=True, exist_ok=True)
        with naming(place):
            place.write_text(text.replace("{version}", __version__), encoding="utf-8")


@contextmanager
def naming(place: Path) -> Iterator[None]:
    """An error of the disk names the file: Python's own does so where one is opened, not where it grows too long."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, error.filename or str(place)) from error


def measure(folder: Path) -> str:
    """Run the suite and make it the baseline; returns the verdict line."""
    from ..api import run
    from ..reports.reading.run_folder import RunFolder
    from ..reports.regression.gated_run import accept

    done = run(str(folder / "suite.toml"), folder=folder / RUN, command="fedassay run suite.toml")
    with naming(folder / BASELINE):
        accept(RunFolder.read(done.folder), folder / BASELINE)
    return done.verdict.verdict_line
