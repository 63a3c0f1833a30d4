"""Define the command ``check``, which runs the conformance checks of a part and prints a line per check."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..suites.config.source import ConfigError, apply_override

OK, FAULT = 0, 10


def check_lines(
    part: str, *, kind: str | None, options: Sequence[str], limit: float, as_json: bool
) -> tuple[Iterator[str], Callable[[], int]]:
    """Return the printed lines of a part's checks, each as soon as its check has ended, and the exit code after them.

    Raises:
        ConfigError: for a part that cannot be found, an option that is no ``key=value``, or a limit that is not > 0.
    """
    from ..suites.conformance.conformance import check_part, kind_of

    if not limit > 0:
        raise ConfigError(f"--limit must be > 0, got {limit:g}")
    given: dict[str, Any] = {}
    for assignment in options:
        apply_override(given, assignment)
    found = kind or kind_of(part)
    outcomes, faults = check_part(part, kind=found, options=given, limit=limit), list[bool]()

    def lines() -> Iterator[str]:
        shown = []
        for outcome in outcomes:
            faults.append(not outcome.passed)
            shown.append({"check": outcome.name, "passed": outcome.passed, "remark": outcome.remark})
            if not as_json:
                yield outcome.line
        if as_json:
            yield json.dumps({"part": part, "kind": found, "checks": shown}, indent=1)
        else:
            number = sum(faults)
            yield f"{part} ({found}): {len(faults)} checks, {number or 'no'} fault{'' if number == 1 else 's'}"

    return lines(), lambda: FAULT if any(faults) else OK
