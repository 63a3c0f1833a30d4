"""End a command: print an error that the user can correct as one paragraph, and choose the exit code. Ctrl-C or SIGTERM
stops a command once, whatever signals follow while it stops.
"""

import atexit
import errno
import math
import os
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import typer

from .console import print_lines

T = TypeVar("T")
_PATIENCE_S = 10.0
"""Seconds in which further signals are ignored: a second exception would interrupt the end of the workers."""


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM, which stops a command in the same way as Ctrl-C; only the exit code differs."""


def exit_code(error: KeyboardInterrupt) -> int:
    """Return the exit code of a command that this exception stopped: 128 plus the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


def word(error: KeyboardInterrupt) -> str:
    """Return the word for how the command was stopped: ``terminated`` by SIGTERM, else ``interrupted``."""
    return "terminated" if isinstance(error, Terminated) else "interrupted"


def stop_once() -> None:
    """From now on raise KeyboardInterrupt at Ctrl-C and Terminated at SIGTERM, and ignore signals that follow soon."""
    last = -math.inf

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= _PATIENCE_S:
            last = now
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    _handle(stop)
    # Python restores the default of any other handler before it ends, and a late signal would change the exit code.
    atexit.register(_handle, signal.SIG_IGN)


def end_at_once() -> None:
    """From now on let SIGTERM end the process inside one long computation, which Python's own handlers could not
    interrupt. Use this only in commands that write no file. A SIGTERM that the calling process ignores stays ignored.
    """
    if callable(signal.getsignal(signal.SIGTERM)):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def leave(leaving: BaseException | None) -> None:
    """From now on let Python finish its own shutdown, whatever signals come, because all work is done. A process that
    ended in the middle of its shutdown would leave semaphores of workers behind, with a warning. After ``_PATIENCE_S``
    a signal ends the process with the exit code of the exception ``leaving``.
    """
    code = leaving.code if isinstance(leaving, SystemExit) and isinstance(leaving.code, int) else 1
    began = time.monotonic()

    def end(number: int, frame: FrameType | None) -> None:
        if time.monotonic() - began >= _PATIENCE_S:
            os._exit(code)

    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    _handle(end)


def _handle(handler: "signal._HANDLER") -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        # A shell starts a command in the background of a script with Ctrl-C ignored, and it must stay so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


_USAGE, _INCOMPLETE = 2, 12
_MISTAKES = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
_PHRASES = {
    errno.ENOENT: "it does not exist and cannot be created",
    errno.EISDIR: "it is a folder, not a file",
    errno.EEXIST: "a part of this path is a file, not a folder",
    errno.ENOTDIR: "a part of this path is a file, not a folder",
}
"""The errors of the operating system for which its own words would mislead."""


@contextmanager
def reported_errors() -> Iterator[None]:
    """Print any error that a user can correct, and exit with its code; any other exception propagates unchanged."""
    from ..audit.parts import NotInstalled, extras_named
    from ..suites.config.source import ConfigError

    try:
        with extras_named():
            yield
    except (ConfigError, NotInstalled) as error:
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
    """Print the lines to the standard error stream and exit; lines that are too long lose their middle part."""
    # A message may quote what a file holds, of any length.
    print_lines(*(line if len(line) <= 2000 else f"{line[:1696]} ... {line[-299:]}" for line in lines), err=True)
    raise typer.Exit(code)


def with_config_errors(target: str, audit: Callable[[], T]) -> T:
    """Call ``audit``; turn its ValueError into a ConfigError, and report an exception of the audited function."""
    from ..suites.config.source import ConfigError

    try:
        return audit()
    except Exception as error:
        if type(error).__name__ == "TerminatedWorkerError":
            fail(
                f"a process that ran {target} died, perhaps for lack of memory; finished runs stay where they are kept",
                code=1,
            )
        # A note marks an error inside the user's mechanism: report it as a crash of that code, not as one of ours.
        if getattr(error, "__notes__", []) or (not isinstance(error, ValueError) and _is_foreign(audit, error)):
            _fail_in_mechanism(target, error)
        if not isinstance(error, ValueError):
            raise
        raise ConfigError(str(error)) from None


def _is_foreign(call: Callable[..., Any], error: Exception) -> bool:
    """Whether an error comes from a call of the user's own function, such as one that makes a system."""
    inside = error.__traceback__.tb_next if error.__traceback__ is not None else None
    place = getattr(call, "__code__", None) if inside is None else inside.tb_frame.f_code
    return place is None or not _is_own(place.co_filename)


def _is_own(file: str) -> bool:
    """Whether a file of code is one of this package."""
    return Path(file).resolve().is_relative_to(Path(__file__).resolve().parents[1])


def _fail_in_mechanism(target: str, error: Exception) -> NoReturn:
    """Print the error as Python does, with the frames of the user's code only, and exit with code 1."""
    shown = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = shown
    while link is not None:
        foreign = [n for n, frame in enumerate(link.stack) if not _is_own(frame.filename)]
        del link.stack[: min(foreign, default=len(link.stack))]
        link = link.__cause__ or link.__context__
    fail(f"cannot audit {target}, because it raised an exception:", *"".join(shown.format()).splitlines(), code=1)


def _described(error: OSError) -> str:
    """The error as a sentence that names the file; its own message where it names none."""
    if not error.filename or not error.strerror:
        return str(error)
    phrase = _PHRASES.get(error.errno or 0, error.strerror[:1].lower() + error.strerror[1:])
    return f"{error.filename} cannot be read or written: {phrase}"
