"""A case: a correct program, the same program with one fault, the claim that both state, and how the fault shows.

A case is one file ``cases/KIND/NAME.py`` that ends with ``CASE = Case(...)``; its docstring names the fault in its
first line. Cases are found by their files and import nothing but numpy, torch, and the library that their kind names.
"""

import hashlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

KINDS = {
    "functions": "queries and mechanisms of a curator, as functions of a data set",
    "randomisers": "local randomisers of one report",
    "shufflers": "reports of many clients that a shuffler mixes",
    "secure_sums": "sums of clients under secure aggregation, with shares of noise",
    "teachers": "answers by votes of teachers, and models trained on them",
    "vertical": "messages between parties that hold columns of the same records",
    "accountants": "programs whose release is right and whose stated epsilon is not",
    "loops": "trainings in numpy or plain PyTorch",
    "opacus": "trainings with Opacus",
    "flower": "apps of Flower",
    "jax": "trainings in JAX",
}
FOLDER = Path(__file__).parent / "cases"
Release = Callable[[Any, np.random.Generator], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """What both versions state.

    Args:
        epsilon: > 0.
        delta: in [0, 1).
        unit: whose data may differ between neighbours: record, report, client, vote, ...
        adjacency: ``replace_one``, ``add_remove``, or ``zero_out`` (the unit's data are replaced by zeros).
        observer: who receives what.
    """

    epsilon: float
    delta: float = 0.0
    unit: str = "record"
    adjacency: Literal["replace_one", "add_remove", "zero_out"] = "replace_one"
    observer: str = "whoever receives the result"

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise ValueError(f"epsilon must be > 0, got {self.epsilon}")
        if not 0 <= self.delta < 1:
            raise ValueError(f"delta must be in [0, 1), got {self.delta}")
        if self.adjacency not in ("replace_one", "add_remove", "zero_out"):
            raise ValueError(f"adjacency must be replace_one, add_remove or zero_out, got {self.adjacency!r}")


@dataclass(frozen=True, kw_only=True)
class Program:
    """One version of a case.

    Args:
        claim: what it states.
        release: ``(data, rng)`` -> all that the claim's observer receives, a float array whose shape does not depend on
            the data unless this is the fault; all randomness comes from ``rng``, or from seeds drawn from it.
        parts: entries for tools that look inside, by the name of the protocol (see the README): ``loop``, ``opacus``,
            ``flower``, ``jax``, ``law``.
    """

    claim: Claim
    release: Release
    parts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fault beside its correct version.

    Args:
        fault: the class of the fault, one of FAULTS.
        correct, broken: the two versions.
        neighbours: two data sets that differ by one unit, and that show the fault.
        source: the address of the public thread, paper or page that has the fault, or ``own``.
        ideal: what an ideal tool says about the broken version.
        event: of a release; its probabilities on the neighbours show that the broken version violates its claim. None
            where no event of a few thousand runs can show it: ``proof`` then says why it is violated.
        trials: runs of each side after which the event shows the violation.
        proof: the true epsilon of the broken version, or the reason why the claim does not hold.
    """

    fault: str
    correct: Program
    broken: Program
    neighbours: tuple[Any, Any]
    source: str
    ideal: str
    event: Callable[[np.ndarray], bool] | None
    proof: str
    trials: int = 4000
    name: str = ""
    kind: str = ""

    def __post_init__(self) -> None:
        if self.fault not in FAULTS:
            raise ValueError(f"fault must be one of {', '.join(FAULTS)}, got {self.fault!r}")
        for word in ("source", "ideal", "proof"):
            if not getattr(self, word):
                raise ValueError(f"{word} must be stated")

    @property
    def half(self) -> str:
        """``development`` or ``frozen``."""
        return half(self.kind, self.name)

    def subject(self, *, broken: bool, seconds: float = 60.0) -> "Subject":
        """Return what a tool receives of one version."""
        program = self.broken if broken else self.correct
        return Subject(kind=self.kind, neighbours=self.neighbours, program=program, seconds=seconds)


FAULTS = {
    "clip": "sensitivity is not bounded as stated",
    "noise": "noise is missing, too small, repeated, or of another law than stated",
    "sampling": "lots or cohorts are drawn otherwise than the claim accounts for",
    "accounting": "epsilon is computed wrongly, or releases are not counted",
    "preparation": "private data enter before or beside the protected release",
    "state": "something that is kept between steps, or published with the result, depends on private data",
    "numbers": "finite precision, rounding, or special values break the law",
    "protocol": "who sees what differs from what the claim assumes",
}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a tool receives: one version, without a word on whether it is broken.

    A tool that the public documentation of a library would tell to choose other inputs may do so; ``neighbours`` are
    two data sets between which the claim must hold.
    """

    kind: str
    neighbours: tuple[Any, Any]
    program: Program
    seconds: float = 60.0
    """CPU seconds after which the tool is ended."""


def half(kind: str, name: str) -> str:
    """Return ``development`` or ``frozen``, by a hash of kind and name: nobody chooses."""
    return "frozen" if hashlib.sha256(f"{kind}/{name}".encode()).digest()[0] % 2 else "development"


def path(kind: str, name: str) -> Path:
    """Return the file of a case."""
    return FOLDER / kind / f"{name}.py"


def load(kind: str, name: str) -> Case:
    """Return one case.

    Raises ModuleNotFoundError where its file, or the library that it needs, is absent, and TypeError where the file
    does not end with a case.
    """
    module = importlib.import_module(f"{__package__}.cases.{kind}.{name}")
    found = getattr(module, "CASE", None)
    if not isinstance(found, Case):
        raise TypeError(f"{kind}/{name}.py must end with CASE = Case(...), got CASE = {found!r}")
    object.__setattr__(found, "kind", kind)
    object.__setattr__(found, "name", name)
    return found


def names(kind: str = "") -> list[tuple[str, str]]:
    """Return kind and name of all cases, by their files, of one kind or all."""
    if kind and kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    files = sorted(FOLDER.glob(f"{kind or '*'}/*.py"))
    return [(one.parent.name, one.stem) for one in files if not one.stem.startswith("_")]


def cases(kind: str = "") -> Iterator[Case]:
    """Load cases one after the other, of one kind or all; those whose library is absent are left out."""
    for each in names(kind):
        try:
            yield load(*each)
        except ModuleNotFoundError as absent:
            if (absent.name or "").startswith(__package__ or ""):
                raise
