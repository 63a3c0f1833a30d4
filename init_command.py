"""The command init: the project of a defense author, ready to run."""

import sys
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


def init(
    folder: Annotated[Path, typer.Argument(help="Where; what is there already is never overwritten.")] = Path(),
) -> None:
    """Start a project of your own: a defense, a suite, a test, a workflow, and the baseline that they begin with."""
    with told():
        from .suites.source import ConfigError

        if there := [name for name in (*_FILES, BASELINE) if (folder / name).exists()]:
            raise ConfigError(f"{folder} already holds {', '.join(there)}: name another folder")
        write(folder)
        for name in _FILES:
            typer.echo(f"wrote  {folder / name}")
        typer.echo("run    suite.toml, for the baseline")
        verdict = measure(folder)
        typer.echo(f"wrote  {folder / BASELINE}")
        typer.echo(f"gate   {verdict}")
        typer.echo(f"next   {f'cd {folder} && ' if folder != Path() else ''}pytest")


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
    done = run(str(folder / "suite.toml"), folder=folder / "runs" / "first", command="fedassay run suite.toml")
    accept(RunFolder.read(done.folder), folder / BASELINE)
    return done.verdict.verdict_line
