"""Stop a command at Ctrl-C or SIGTERM once, whatever signals follow while it stops."""

import atexit
import math
import os
import signal
import sys
import time
from types import FrameType

_PATIENCE_S = 10.0
"""Seconds in which further signals are ignored: a second exception would interrupt the end of the workers."""


class Terminated(KeyboardInterrupt):
    """SIGTERM was received. It stops a command in the same way as Ctrl-C, and only the exit code differs."""


def exit_code(error: KeyboardInterrupt) -> int:
    """Return the exit code of a command that this exception stopped: 128 and the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


def word(error: KeyboardInterrupt) -> str:
    """Return what happened, in one word."""
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


def leave(leaving: BaseException | None) -> None:
    """From now on let Python's own end finish whatever signals come, for all work is done: ended in the middle of it,
    semaphores of workers would stay behind with a warning. After ``_PATIENCE_S`` a signal ends the process with the
    exit code of the exception ``leaving``.
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
