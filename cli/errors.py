"""Print, as one paragraph, an error that the user can correct, and choose the exit code."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer

from .console import print_lines

_USAGE, _INCOMPLETE, _INTERRUPTED = 2, 12, 130
_MISTAKES = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


@contextmanager
def reported_errors() -> Iterator[None]:
    """Print any error that a user can correct, and exit with its code; any other exception propagates unchanged."""
    from ..suites.config.source import ConfigError

    try:
        yield
    except ConfigError as error:
        _fail(*map(str, error.args), code=_USAGE)
    except _MISTAKES as error:
        _fail(str(error), code=_USAGE)
    except OSError as error:
        _fail(f"INCOMPLETE: {error}", code=_INCOMPLETE)
    except KeyboardInterrupt:
        _fail("interrupted", code=_INTERRUPTED)


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Print how to resume the run if it is interrupted; finished work is kept."""
    go_on = f"Finished cells are kept; go on with: fedassay resume {shlex.quote(str(folder))}"
    try:
        yield
    except KeyboardInterrupt:
        _fail(f"interrupted. {go_on}", code=_INTERRUPTED)
    except _MISTAKES:
        raise
    except OSError as error:
        _fail(f"INCOMPLETE: the run stopped, {folder} cannot be written: {error}. {go_on}", code=_INCOMPLETE)
    except Exception as error:
        # By name: importing joblib here would slow down every command.
        if type(error).__name__ != "TerminatedWorkerError":
            raise
        _fail(f"INCOMPLETE: a worker process died, perhaps for lack of memory. {go_on}", code=_INCOMPLETE)


def _fail(*lines: str, code: int) -> NoReturn:
    print_lines(*lines, err=True)
    raise typer.Exit(code)
