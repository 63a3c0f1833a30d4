"""The table: found, silent, accused, could not run, CPU seconds, by tool and kind, with intervals."""

from collections.abc import Sequence

from .binomial import lower, upper
from .case import KINDS
from .runner import Row

OUTSIDE = "outside its purpose"
HALVES = ("development", "frozen")


def interval(count: int, number: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson of a share: ``count`` of ``number``, at level 1 - ``alpha``."""
    return lower(count, number, alpha / 2), upper(count, number, alpha / 2)


def share(count: int, number: int) -> str:
    """Return ``count of number`` with its interval in per cent."""
    if not number:
        return "-"
    low, high = interval(count, number)
    return f"{count} of {number} ({100 * low:.0f} to {100 * high:.0f} %)"


def table(rows: Sequence[Row]) -> str:
    """Return, for each half, all tools and then each tool by kind, in Markdown."""
    latest = list({row.key[:4]: row for row in rows}.values())
    parts = []
    for half in HALVES:
        here = [row for row in latest if row.half == half]
        if here:
            parts += [f"### The {half} half", _lines(here, by_kind=False), _lines(here, by_kind=True)]
    return "\n\n".join(parts)


def _lines(rows: Sequence[Row], *, by_kind: bool) -> str:
    head = [
        "tool",
        *(["kind"] if by_kind else []),
        "found",
        "silent",
        "could not run (broken + correct)",
        "accused",
        "CPU s",
    ]
    lines = [head, ["---"] * len(head)]
    for tool in dict.fromkeys(row.tool for row in rows):
        own = [row for row in rows if row.tool == tool]
        inside = [row for row in own if row.reason != OUTSIDE]
        for kind in KINDS if by_kind else [""]:
            if some := [row for row in inside if kind in ("", row.kind)]:
                lines.append([tool, *([kind] if by_kind else []), *_counts(some)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _counts(rows: Sequence[Row]) -> list[str]:
    broken = [row for row in rows if row.version == "broken"]
    correct = [row for row in rows if row.version == "correct"]

    def number(outcome: str, some: Sequence[Row]) -> int:
        return sum(row.outcome == outcome for row in some)

    unable = number("could not run", broken), number("could not run", correct)
    judged = len(correct) - unable[1]
    return [
        share(number("found", broken), len(broken)),
        str(number("silent", broken)),
        f"{unable[0]} + {unable[1]}",
        share(number("found", correct), judged),
        f"{sum(row.seconds for row in rows) / len(rows):.1f}",
    ]
