"""Print, as one paragraph, an error that the user can correct, and choose the exit code."""

import errno
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer

from .console import print_lines
from .signals import exit_code, word

_USAGE, _INCOMPLETE = 2, 12
_MISTAKES = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
_PHRASES = {
    errno.ENOENT: "it does not exist and cannot be created",
    errno.EISDIR: "it is a folder, not a file",
    errno.EEXIST: "one part of this path is a file, not a folder",
    errno.ENOTDIR: "one part of this path is a file, not a folder",
}
"""The errors of the operating system for which its own words would mislead."""


@contextmanager
def reported_errors() -> Iterator[None]:
    """Print any error that a user can correct, and exit with its code; any other exception propagates unchanged."""
    from ..suites.config.source import ConfigError

    try:
        yield
    except ConfigError as error:
        fail(*map(str, error.args), code=_USAGE)
    except _MISTAKES as error:
        fail(_described(error), code=_USAGE)
    except OSError as error:
        fail(f"INCOMPLETE: {_described(error)}", code=_INCOMPLETE)
    except KeyboardInterrupt as error:
        fail(word(error), code=exit_code(error))


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """If the run is interrupted, print how to resume it; finished work is kept."""
    go_on = f"Finished cells are kept; go on with: fedassay resume {shlex.quote(str(folder))}"
    try:
        yield
    except KeyboardInterrupt as error:
        fail(f"{word(error)}. {go_on}", code=exit_code(error))
    except _MISTAKES:
        raise
    except OSError as error:
        fail(f"INCOMPLETE: the run stopped, because {_described(error)}. {go_on}", code=_INCOMPLETE)
    except Exception as error:
        # By name: importing joblib here would slow down every command.
        if type(error).__name__ == "ClusterError":
            fail(f"INCOMPLETE: {error}. {go_on}", code=_INCOMPLETE)
        if type(error).__name__ != "TerminatedWorkerError":
            raise
        fail(f"INCOMPLETE: a worker process died, perhaps for lack of memory. {go_on}", code=_INCOMPLETE)


def fail(*lines: str, code: int) -> NoReturn:
    """Print the lines to the standard error stream and exit with ``code``."""
    print_lines(*lines, err=True)
    raise typer.Exit(code)


def _described(error: OSError) -> str:
    """The error as a sentence that names the file; its own message where it names none."""
    if not error.filename or not error.strerror:
        return str(error)
    phrase = _PHRASES.get(error.errno or 0, error.strerror[:1].lower() + error.strerror[1:])
    return f"{error.filename} cannot be read or written: {phrase}"
