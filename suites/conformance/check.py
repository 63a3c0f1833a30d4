"""Run the conformance checks of a part, each within a time limit, in small federations of random images or texts."""

import json
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

from ...attacks.attack import Undefined
from ...audit.claim import Claim
from ...audit.parts import Spec, described, name_and_options
from ...fl.algorithms import FedSGD
from ...fl.data.dataset import Dataset
from ...fl.data.shakespeare import ALPHABET, CODES, LETTERS, PREFIX, tokens_of
from ...fl.models.gradients import SlowGradients
from ...fl.objective import NEXT_TOKEN
from ...fl.partitions import IID
from ...fl.plan import Plan
from ...fl.sampling import Full
from ...fl.streams import Streams, global_states, uniform
from ...fl.task import Task, build_task

_Found = TypeVar("_Found")
LIMIT = 120.0
"""Seconds that one check may take by default."""
_PACKAGE = str(Path(__file__).parents[2])
_FIRST = 2
"""Checks at the start of each list that all later ones depend on: the part can be built, and it runs."""


class NotConforming(ValueError):
    """What a conformance check found wrong with a part, in one sentence."""


@dataclass(frozen=True, kw_only=True)
class CheckedPart:
    """The part under test.

    Args:
        make: builds the part anew from its name and options.
    """

    kind: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    make: Callable[[], Any]


ConformanceCheck = Callable[[CheckedPart], str | None]
"""Raises `Fault`, or any exception, where the part does not conform; returns a remark or None. The first line of its
docstring states what the part must do."""


@dataclass(frozen=True, kw_only=True)
class CheckOutcome:
    """The result of one conformance check.

    Args:
        name: what the part must do.
        passed: whether it does.
        remark: what is wrong, or a remark on what was checked; empty where there is none.
    """

    name: str
    passed: bool
    remark: str = ""

    @property
    def line(self) -> str:
        """The result as one printed line."""
        return f"{'ok    ' if self.passed else 'FAULT '} {self.name}{f': {self.remark}' if self.remark else ''}"


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
    started = time.monotonic()
    try:
        with _time_limit(limit), _own_warnings() as slow:
            remark = check(subject) or ""
    except NotConforming as fault:
        return CheckOutcome(name=name, passed=False, remark=str(fault))
    except (Exception, SystemExit) as error:
        text = " ".join(described(error).split())
        return CheckOutcome(name=name, passed=False, remark=f"it raised {type(error).__name__}: {text}"[:600])
    if (took := time.monotonic() - started) > limit:
        return CheckOutcome(name=name, passed=False, remark=f"it took {took:.1f} s, more than the limit of {limit:g} s")
    return CheckOutcome(name=name, passed=True, remark="; ".join(filter(None, [remark, *slow])))


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
    """Raise Fault in the main thread after so many seconds; elsewhere, and on Windows, the time is only measured."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        raise NotConforming(f"it was stopped after the limit of {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def no_global_randomness() -> Iterator[None]:
    """Raise Fault if the code inside draws from, or seeds, a global generator of Python, NumPy or PyTorch."""
    before = global_states()
    yield
    for name, state in global_states().items():
        if state != before[name]:
            raise NotConforming(f"it used the global random generator of {name}; it must use only what it is given")


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
    """Raise Fault with this text unless the condition holds."""
    if not condition:
        raise NotConforming(fault)


def check_repeated_claims(first: Sequence[Claim], again: Sequence[Claim]) -> None:
    """Raise Fault unless two preparations for one plan state the same claims, which survive being written and read."""
    require(first == again, "a second preparation for the same plan states other claims")
    for claim in first:
        read = Claim.from_dict(json.loads(json.dumps(claim.to_dict())))
        require(read.claim_id == claim.claim_id, "a claim changes when it is written and read")
        require(claim.curve_shortfall() <= 1e-3, "its trade-off curve is weaker than its epsilon and delta")


def defined(run: Callable[[], _Found]) -> _Found | None:
    """Return what an attack returns; None where it is not defined in the federation of the check.

    Raises Fault for an attack that returns None itself.
    """
    try:
        found = run()
    except Undefined:
        return None
    require(found is not None, "run(view, knowledge, rng) must return evidence, got None")
    return found


def check_repeated_evidence(run: Callable[[], Any]) -> None:
    """Raise Fault unless an attack returns equal evidence, or none, at two calls, and uses no global generator."""
    with no_global_randomness():
        first, again = (run() for _ in range(2))
    require((first is None) == (again is None), "it is defined at one time and not at another")
    require(first is None or equal(vars(first), vars(again)), "equal generators give other evidence")


def built(subject: CheckedPart) -> str | None:
    """It is found and can be built."""
    subject.make()  # Once before: the first import of a library may draw the name of a temporary file.
    with no_global_randomness():
        subject.make()
    return None


def can_be_sent(subject: CheckedPart) -> str | None:
    """It can be sent to a worker process."""
    try:
        pickle.dumps(subject.make())
    except Exception as error:
        raise NotConforming(f"it cannot be pickled: {described(error)}") from error
    return None


def toy_dataset(count: int = 200, *, side: int = 3, classes: int = 3, seed: int = 0) -> Dataset:
    """Return random images ``(1, side, side)`` with random labels; two images of each owner."""
    rng = Streams(seed).generator("conformance data")
    images = uniform(rng, (count + 30, 1, side, side))
    labels = torch.from_numpy(rng.integers(classes, size=count + 30))
    return Dataset(
        name=f"toy{seed}",
        train_images=images[:count],
        train_labels=labels[:count],
        test_images=images[count:],
        test_labels=labels[count:],
        classes=classes,
        train_owners=torch.arange(count) // 2,
    )


def toy_texts(count: int = 8, *, seed: int = 0) -> Dataset:
    """Return texts that each hold a secret of its own; two texts of each owner."""
    rng = Streams(seed).generator("conformance texts")
    words = tokens_of(CODES)[rng.integers(len(CODES), size=(count + 60, LETTERS))]
    drawn = torch.from_numpy(np.hstack([np.tile(tokens_of(PREFIX), (len(words), 1)), words]))
    images, labels = drawn[:, None, None, :-1].float(), drawn[:, 1:].contiguous()
    return Dataset(
        name=f"toy texts {seed}",
        train_images=images[:count],
        train_labels=labels[:count],
        test_images=images[count:],
        test_labels=labels[count:],
        classes=len(ALPHABET),
        train_owners=torch.arange(count) // 2,
        rows=True,
        task=NEXT_TOKEN,
    )


def toy_task(*, clients: int = 4, model: Spec = "logistic", seed: int = 0, held_out: int = 0, **data: Any) -> Task:
    """Return a task on such images, or on such texts for a model of texts, dealt evenly."""
    of_texts = name_and_options("model", model)[0] in ("text_transformer", "text_lora")
    return build_task(
        toy_texts(seed=seed) if of_texts else toy_dataset(seed=seed, **data),
        model=model,
        partition=IID(),
        clients=clients,
        held_out=held_out,
        streams=Streams(seed),
    )


def toy_plan(task: Task, **changes: Any) -> Plan:
    """Return the task's plan: by default two rounds of FedSGD with all clients and all samples."""
    fields: dict[str, Any] = {"rounds": 2, "cohort": Full(), "lot": Full(), "algorithm": FedSGD(learning_rate=0.5)}
    fields |= {"sizes": task.sizes, "layout": task.network.layout, "clients_per_user": task.clients_per_user}
    return Plan(**(fields | changes))
