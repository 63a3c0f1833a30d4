"""The limits of a claim, and the rule on values that are no numbers: NaN and infinity.

Only the user of a system knows whether its records or clients can send them. So a system that lets them through keeps
its claim, for those who cannot send such values; each finding says so, and no check fails.
"""

from collections.abc import Iterable, Sequence

from .check import FINITE, SIZE, CheckResult
from .wording import counted

HOLDS = "the claim holds for"
"""What stands in the words of a check that was not made, before those for whom the claim holds without it."""
SIZES_SHOW = "the sizes of the updates alone would show eps >= "
_PUBLIC = (
    "the number of records counts as public; if it is secret, divide by a constant (Opacus: "
    "optimizer.expected_batch_size), because under add/remove "
)


def finite_result(sent: Sequence[str], broken: Sequence[str], *, whom: str) -> CheckResult:
    """Return the check result for NaN, infinite or other extreme values that were sent to a system.

    Args:
        sent: what was sent, in words.
        broken: those after which the system released no number or raised an error, in words; empty if none did.
        whom: who sends them, such as "clients".
    """
    if broken:
        more = f" (and {counted(len(broken) - 1, 'other input')})" if len(broken) > 1 else ""
        return FINITE.skipped(f"{broken[0]}{more}: {HOLDS} {whom} that cannot cause such values")
    return FINITE.passes(f"sent: {', '.join(sent)}")


def limit_of(results: Iterable[CheckResult]) -> str:
    """Return to whom a claim is limited, and why, if the system does not stop NaN or infinite values, or if inputs were
    ruled out; otherwise return an empty string.
    """
    found = (one.witness for one in results if one.passed is None)
    return "; ".join(dict.fromkeys(one for one in found if HOLDS in one))


def limits_of(results: Sequence[CheckResult]) -> tuple[str, ...]:
    """Return ``limit_of``, and which epsilon a public number of records alone would show under add/remove; one text for
    each limit that applies.
    """
    sizes = [one.witness.partition(SIZES_SHOW) for one in results if one.name == SIZE and one.passed]
    shown = (f"{_PUBLIC}{mark}{rest}" for _, mark, rest in sizes if mark)
    return tuple(filter(None, (limit_of(results), *shown)))
