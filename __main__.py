"""``python -m fedassay`` and the ``fedassay`` command."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command line."""
    # One thread per process, set before numpy or torch load: two on a busy machine were measured 50 times slower.
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    from .cli.errors import exit_code, leave, stop_once, word

    stop_once()
    try:
        from .cli.app import app
        from .cli.console import keep_running_without_reader

        keep_running_without_reader()
        sys.exit(app())
    except KeyboardInterrupt as error:  # While modules load; commands handle it themselves once they run.
        print(word(error), file=sys.stderr)
        sys.exit(exit_code(error))
    finally:
        leave(sys.exception())


if __name__ == "__main__":
    # `python -m` searches the working directory first, where a file may have the name of any module. It stays where the
    # package itself lies there, which worker processes must find, but comes last.
    if not sys.flags.safe_path and (here := sys.path.pop(0)) == str(Path(__file__).parents[1]):
        sys.path.append(here)
    main()
