"""Recognise exceptions that a handler of signals raised while a part was running."""

import signal
import traceback


def raised_by_signal(error: BaseException) -> bool:
    """Return whether a handler of signals, set by the program that runs the suite, raised this exception.

    Such an exception, often ``SystemExit`` at SIGTERM, is meant to end the program and is no failure of a part.
    """
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    # A function, a lambda or a method; a handler without code of its own, such as a partial, is not recognised.
    codes = {code for handler in handlers if (code := getattr(handler, "__code__", None)) is not None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))
