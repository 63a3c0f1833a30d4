"""The command init: the project of a defense author, ready to run."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from .exits import told

_FILES = {
    "my_defense.py": "my_defense.py.txt",
    "suite.toml": "suite.toml.txt",
    "test_my_defense.py": "test_my_defense.py.txt",
    "pytest.ini": "pytest.ini.txt",
    ".gitignore": "gitignore.txt",
    "README.md": "README.md.txt",
    ".github/workflows/privacy.yml": "workflow.yml.txt",
}
"""Where each file goes, and which one below suites/starter it is."""
BASELINE = "baselines/main.json"
RUN = "runs/first"


def init(
    folder: Annotated[Path, typer.Argument(help="Where; what is there already is never overwritten.")] = Path(),
) -> None:
    """Start a project of your own: a defense, a suite, a test, a workflow, and the baseline that they begin with."""
    with told():
        refuse_what_is_there(folder)
        with _taken_back(folder):
            write(folder)
            for name in _FILES:
                typer.echo(f"wrote  {folder / name}")
            typer.echo("run    suite.toml, for the baseline")
            verdict = measure(folder)
        typer.echo(f"wrote  {folder / BASELINE}")
        typer.echo(f"gate   {verdict}")
        typer.echo(f"next   {f'cd {folder} && ' if folder != Path() else ''}pytest")


def refuse_what_is_there(folder: Path) -> None:
    """Raises ConfigError, before anything is written, where something stands in the way of any of it."""
    from .suites.source import ConfigError

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
        for place in ours:
            if place.is_dir():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink(missing_ok=True)
        for above in sorted(new_folders, key=lambda place: -len(place.parts)):
            with suppress(OSError):  # It was never made, or holds what somebody else has put there.
                above.rmdir()
        typer.echo(f"stopped: what was written in {folder} is taken back", err=True)
        raise


def write(folder: Path) -> None:
    """Write the files; the folder is made where there is none."""
    starter = resources.files(f"{__package__}.suites") / "starter"
    for name, source in _FILES.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text((starter / source).read_text(encoding="utf-8"), encoding="utf-8")


def measure(folder: Path) -> str:
    """Run the suite and make it the baseline; returns the verdict line."""
    from .face import run
    from .reports.regression.judgement import accept
    from .reports.run_folder import RunFolder

    # The suite names the defense by its module, which lies beside it.
    sys.path.insert(0, str(folder.resolve()))
    done = run(str(folder / "suite.toml"), folder=folder / RUN, command="fedassay run suite.toml")
    accept(RunFolder.read(done.folder), folder / BASELINE)
    return done.verdict.verdict_line
