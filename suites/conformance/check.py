"""Run the conformance checks of a part, each within a time limit, in small federations of random images or texts."""

import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ...audit.parts import described
from ...fl.models.gradients import SlowGradients
from ...fl.streams import global_states

_Found = TypeVar("_Found")
LIMIT = 120.0
"""Seconds that one check may take by default."""
_PACKAGE = str(Path(__file__).parents[2])
_FIRST = 2
"""Checks at the start of each list that all later ones depend on: the part can be built, and it runs."""


class NotFinished(BaseException):
    """Ends a check at its time limit; no ``Exception``, so that no code of a part takes it for an error of its own."""


class NotConforming(ValueError):
    """The error that describes, in one sentence, what a conformance check found wrong with a part."""


@dataclass(frozen=True, kw_only=True)
class CheckedPart:
    """The part (such as a defense or an attack) that is checked for conformance.

    Args:
        make: builds the part anew from its name and options.
    """

    kind: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    make: Callable[[], Any]


ConformanceCheck = Callable[[CheckedPart], str | None]
"""Raises `NotConforming`, or any exception, where the part does not conform; returns a remark or None. The first line
of its docstring states what the part must do."""


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """The result of one conformance check.

    Args:
        name: what the part must do.
        passed: whether it does; None where the check did not finish.
        remark: what is wrong, or a remark on what was checked; empty where there is none.
    """

    name: str
    passed: bool | None
    remark: str = ""

    @property
    def line(self) -> str:
        """The result as one printed line."""
        result = {True: "ok    ", False: "FAULT ", None: "not finished "}[self.passed]
        return f"{result} {self.name}{f': {self.remark}' if self.remark else ''}"


def run_checks(
    checks: Sequence[ConformanceCheck], subject: CheckedPart, *, limit: float = LIMIT
) -> Iterator[CheckOutcome]:
    """Run checks one after the other; yield the outcome of each. A part that cannot be built or run at all ends the
    list.
    """
    for number, check in enumerate(checks):
        outcome = _run(check, subject, limit)
        yield outcome
        # Every later check builds and runs the part too and would repeat the same error.
        if number < _FIRST and not outcome.passed:
            return


def _run(check: ConformanceCheck, subject: CheckedPart, limit: float) -> CheckOutcome:
    name = (check.__doc__ or check.__name__).partition("\n")[0].strip().rstrip(".")
    started, used = time.monotonic(), time.process_time()
    try:
        with _time_limit(limit), _own_warnings() as slow:
            remark = check(subject) or ""
    except NotFinished:
        pass
    except NotConforming as fault:
        return CheckOutcome(name=name, passed=False, remark=str(fault))
    except (Exception, SystemExit) as error:
        text = " ".join(described(error).split())
        return CheckOutcome(name=name, passed=False, remark=f"it raised {type(error).__name__}: {text}"[:600])
    else:
        if time.monotonic() - started <= limit:
            return CheckOutcome(name=name, passed=True, remark="; ".join(filter(None, [remark, *slow])))
    cpu = time.process_time() - used
    words = f"the limit of {limit:g} s was reached after {cpu:.1f} s of CPU; --limit allows more"
    return CheckOutcome(name=name, passed=None, remark=words)


@contextmanager
def _own_warnings() -> Iterator[list[str]]:
    """Hold back warnings from this package's lines, which are no fault of the part, and repeated ones.

    Collects those of slow gradients, which belong to the remark.
    """
    slow = list[str]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield slow
    slow += dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, SlowGradients))
    for one in caught:
        if not one.filename.startswith(_PACKAGE) and not issubclass(one.category, SlowGradients):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise NotFinished in the main thread after so many seconds; elsewhere, and on Windows, the time is measured."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise NotFinished

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def no_global_randomness() -> Iterator[None]:
    """Raise NotConforming if the code inside draws from, or seeds, a global generator of Python, NumPy or PyTorch."""
    before = global_states()
    yield
    for name, state in global_states().items():
        if state != before[name]:
            raise NotConforming(f"the part used the global random generator of {name}; draw from the given generators")


def equal(first: object, second: object) -> bool:
    """Return whether two results are equal, arrays and tensors bit for bit."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape == second.shape and first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return bool(np.array_equal(first, second, equal_nan=first.dtype.kind == "f"))
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(equal(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(equal(a, b) for a, b in zip(first, second, strict=True))
    return bool(first == second)


def require(condition: object, fault: str) -> None:
    """Raise NotConforming with this text unless the condition holds."""
    if not condition:
        raise NotConforming(fault)


def require_refused(make: Callable[[], object], name: str) -> None:
    """Raise NotConforming unless the part refuses a value below 0 for the field of this name, by a ValueError that
    names the field.
    """
    try:
        make()
    except ValueError as error:
        require(name in str(error), f"the part's message for {name} = -1.0 does not name the field: {error}")
        return
    raise NotConforming(f"the part accepted {name} = -1.0: check fields in __post_init__ and raise ValueError")


def built(subject: CheckedPart) -> None:
    """It is found and can be built."""
    subject.make()  # Once before: the first import of a library may draw the name of a temporary file.
    with no_global_randomness():
        subject.make()


def can_be_sent(subject: CheckedPart) -> None:
    """It can be sent to a worker process."""
    try:
        pickle.dumps(subject.make())
    except Exception as error:
        raise NotConforming(f"the part cannot be pickled: {described(error)}") from error
