"""Ways for the tests of turns, which spawned processes import."""

import subprocess
import sys
import time

BURN = "import time\nwhile time.process_time() < {}: pass"


def busy(turn_over, *, turns, seconds):
    for _ in range(turns):
        until = time.process_time() + seconds
        while time.process_time() < until:
            pass
        turn_over()
    return "ended"


def busy_below(turn_over, *, turns, seconds):
    """Burn the time in another process."""
    for _ in range(turns):
        subprocess.run([sys.executable, "-S", "-c", BURN.format(seconds)], check=True)
        turn_over()


def idle(turn_over, *, turns):
    for _ in range(turns):
        time.sleep(0.2)
        turn_over()


def missing(turn_over):
    import a_library_that_is_not_installed  # noqa: F401


def failing(turn_over):
    turn_over()
    raise ZeroDivisionError("at work")
