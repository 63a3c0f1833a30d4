"""What a tool says about one version, and how tools are found."""

import importlib
import importlib.util
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, cast

import numpy as np

from .case import KINDS, Claim, Subject

ALPHA = 0.05
"""The largest probability with which a tool may accuse a correct version; it may take less."""
FOLDER = Path(__file__).parent / "tools"
Outcome = Literal["found", "silent", "could not run"]
_LEAST, _MOST = 256, 2**17


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a tool says about one version.

    Args:
        outcome: ``found``, ``silent`` or ``could not run``.
        words: the fault in the tool's words, or the reason.
        epsilon_low: the lower bound on epsilon, where the tool has one.
    """

    outcome: Outcome
    words: str = ""
    epsilon_low: float | None = None

    def __post_init__(self) -> None:
        if self.outcome not in ("found", "silent", "could not run"):
            raise ValueError(f"outcome must be found, silent or could not run, got {self.outcome!r}")

    @classmethod
    def of_bound(cls, epsilon_low: float, claim: Claim, words: str = "") -> "Verdict":
        """Return ``found`` where a lower bound on epsilon is above the claim, else ``silent``."""
        outcome: Outcome = "found" if epsilon_low > claim.epsilon else "silent"
        return cls(outcome=outcome, words=words, epsilon_low=float(epsilon_low))


class Tool(Protocol):
    """A module with these names."""

    NAME: str
    PURPOSE: str
    KINDS: Collection[str]
    judge: Callable[[Subject, int], Verdict]


def tool(name: str) -> Tool:
    """Return a tool by its name in the folder ``tools``, or by the path of its file.

    Raises ModuleNotFoundError where its library is absent, ValueError for an unknown name or kind, and AttributeError
    for a file without one of the four names.
    """
    if name.endswith(".py"):
        spec = importlib.util.spec_from_file_location(Path(name).stem, name)
        if spec is None or spec.loader is None or not Path(name).is_file():
            raise ValueError(f"tool must be a name or the path of a Python file, got {name!r}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    elif name in tool_names():
        module = importlib.import_module(f"{__package__}.tools.{name}")
    else:
        raise ValueError(f"tool must be one of {', '.join(tool_names())}, or the path of a file, got {name!r}")
    for word in ("NAME", "PURPOSE", "KINDS", "judge"):
        if not hasattr(module, word):
            raise AttributeError(f"the tool {name} must define {word}")
    for kind in module.KINDS:
        if kind not in KINDS:
            raise ValueError(f"KINDS of the tool {name} must be kinds of the corpus, got {kind!r}")
    return cast(Tool, module)


def tool_names() -> list[str]:
    """Return the names of all tools, by their files."""
    return sorted(one.stem for one in FOLDER.glob("*.py") if not one.stem.startswith("_"))


def runs(subject: Subject) -> Callable[[int, np.random.Generator], np.ndarray]:
    """Return a function: the number of the neighbour, 0 or 1, and a generator -> one release as a vector ``(d,)``.

    Where the lengths of 32 releases differ, each is preceded by its length, and filled up with NaN (cut at twice the
    longest one).
    """

    def released(side: int, rng: np.random.Generator) -> np.ndarray:
        return np.asarray(subject.program.release(subject.neighbours[side], rng), dtype=float).ravel()

    rng = np.random.default_rng(0)
    lengths = {len(released(k % 2, rng)) for k in range(32)}
    if len(lengths) == 1:
        return released

    def filled(side: int, rng: np.random.Generator) -> np.ndarray:
        one, room = released(side, rng), np.full(1 + 2 * max(lengths), np.nan)
        room[0], room[1 : 1 + len(one)] = len(one), one[: len(room) - 1]
        return room

    return filled


def trials(subject: Subject, *, share: float = 0.5, most: int = _MOST) -> int:
    """Return how many releases on each neighbour take at most a share of the subject's CPU seconds, a power of two."""
    rng, start, made = np.random.default_rng(0), time.process_time(), 0
    while made < 8 or (time.process_time() - start < 0.05 and made < _MOST):
        subject.program.release(subject.neighbours[made % 2], rng)
        made += 1
    each = max(time.process_time() - start, 1e-3) / made
    return int(2 ** np.floor(np.log2(np.clip(subject.seconds * share / (2 * each), _LEAST, most))))


def outputs(subject: Subject, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the releases of ``number`` runs on each neighbour, ``(number, d)`` twice."""
    rng, release = np.random.default_rng(seed), runs(subject)
    sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for _ in range(number):
        for side in (0, 1):
            sides[side].append(release(side, rng))
    return np.array(sides[0]), np.array(sides[1])
