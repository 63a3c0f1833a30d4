"""How a command ends: what a user can mend is told in one paragraph, with the exit code that belongs to it."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer

from .console import say

_USAGE, _INCOMPLETE, _INTERRUPTED = 2, 12, 130
_MISTAKES = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


@contextmanager
def told() -> Iterator[None]:
    """Errors that a user can mend become one paragraph and the right exit code; others stay what they are."""
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
    """What stops a run half way keeps what is finished, and says how to go on."""
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
        if type(error).__name__ != "TerminatedWorkerError":
            raise
        _fail(f"INCOMPLETE: a worker process died, perhaps for want of memory. {go_on}", code=_INCOMPLETE)


def _fail(*lines: str, code: int) -> NoReturn:
    say(*lines, err=True)
    raise typer.Exit(code)
