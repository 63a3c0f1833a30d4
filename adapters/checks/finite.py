"""Tries inputs that are no ordinary numbers on foreign code, which may refuse them or release no number."""

from collections.abc import Callable, Mapping

from torch import Tensor

from ...audit.check import FINITE, CheckResult


def finite_check(tries: Mapping[str, Callable[[], Tensor | None]], *, where: str, otherwise: str) -> CheckResult:
    """Report what inputs do that are no numbers. Only the system's user knows whether such inputs can occur, so the
    check passes or gives no verdict.

    Args:
        tries: what is sent, as in "a row with an entry NaN" -> sends it, and returns what is released, or None.
        where: what a release is called.
        otherwise: for whom the claim holds if one of them raises an error or makes the release no number.
    """
    broken = []
    for words, send in tries.items():
        try:
            released = send()
        except Exception as error:  # Foreign code may refuse such inputs by any exception.
            broken.append(f"{words} raises {type(error).__name__}")
            continue
        if released is not None and not bool(released.isfinite().all()):
            broken.append(f"{words} makes the {where} no number")
    if broken:
        return FINITE.skipped(f"{'; '.join(broken)}: the claim holds for {otherwise}")
    return FINITE.passes(f"sent: {', '.join(tries)}")
