"""Start processes that a terminal's Ctrl-C does not reach."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def ctrl_c_blocked() -> Iterator[None]:
    """Processes that start inside this context never receive Ctrl-C; this process receives it afterwards.

    A terminal sends the signal to the run and to its workers, but only the run must react and end them: a worker that
    reacted would report a failure and take the next job, or print a traceback of its imports.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows has none; there every process handles Ctrl-C by itself.
        yield
        return
    # If Python started its resource tracker inside the context, that would unblock the signal again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
