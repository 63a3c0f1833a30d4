"""Lists the estimators of epsilon, found by their file names, with the evidence that each takes and its guarantee.

An estimator is the function named like its file, alone or after ``audit_``. Its first argument is evidence (a data
class with a setting) and it returns a ``Measurement``. No registration is needed.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from ..evidence import CanaryScores, CandidateScores, Design, Guesses, MembershipScores, Projections
from ..measurement import Measurement
from .hockey_stick import MechanismOutputs
from .pairwise_event import EventCounts

INPUTS: dict[type[Any], str] = {
    MembershipScores: "one score per run",
    MechanismOutputs: "the output vector of each run",
    Projections: "one vector per run: the projection of each round's release on the canary",
    EventCounts: "one score per run, and a threshold that it exceeds or not",
    Guesses: "one score per canary, and whether it was included",
    CanaryScores: "one score per canary, and whether it was included",
    CandidateScores: "the cosine of each canary with the sum of updates, where all canaries were included",
}
"""The data that a user supplies for each type of evidence."""
NOT_ASKED = ("witness",)
"""Arguments that only describe the measurement."""
_KNOWN_FROM_CLAIM = {"delta", "alpha", "threshold", "rounds", "release", "tests", "curve", "epsilon"}


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """An estimator of epsilon: its function ``measure``, the evidence that it takes and its other arguments.

    It is called as ``measure(*evidence, **levels)`` with ``sides`` pieces of ``evidence``; ``summary``: the first line
    of its file.

    ``required``: the other arguments without a default, ``optional``: those with one, both without the witness.
    """

    name: str
    measure: Callable[..., Measurement]
    evidence: type[Any]
    sides: int
    required: frozenset[str]
    optional: frozenset[str]
    summary: str = ""

    @property
    def design(self) -> Design:
        """Whether the trials behind the estimator's evidence are independent runs or the canaries of one run."""
        return Design.ONE_RUN if self.evidence in (Guesses, CanaryScores, CandidateScores) else Design.INDEPENDENT

    @property
    def inputs(self) -> str:
        """The data that the estimator takes, in words, with the arguments that only the user can state."""
        asked = sorted(self.required - _KNOWN_FROM_CLAIM)
        return INPUTS.get(self.evidence, self.evidence.__name__) + (f"; {', '.join(asked)}" if asked else "")


def estimators() -> dict[str, Estimator]:
    """Return a dictionary from file name to estimator, in alphabetical order, with all estimators."""
    package = importlib.import_module(__package__)
    # Sorted, so that the order of tables does not depend on the file system.
    files = sorted(entry.name for entry in pkgutil.iter_modules(package.__path__))
    found = (_in_module(name, importlib.import_module(f"{__package__}.{name}")) for name in files)
    return {estimator.name: estimator for estimator in found if estimator is not None}


def describe(name: str, measure: Callable[..., Any], summary: str = "") -> Estimator | None:
    """Build an estimator's catalogue entry (the evidence and arguments that it takes) from its function ``measure``.

    Returns None where the function takes no evidence or returns no Measurement.
    """
    hints = get_type_hints(measure)
    parameters = list(inspect.signature(measure).parameters.values())
    if hints.get("return") is not Measurement or not parameters:
        return None
    evidence = hints.get(parameters[0].name)
    if not (isinstance(evidence, type) and is_dataclass(evidence) and "setting" in {f.name for f in fields(evidence)}):
        return None
    keywords = [p for p in parameters if hints.get(p.name) is not evidence and p.name not in NOT_ASKED]
    return Estimator(
        name=name,
        measure=measure,
        evidence=evidence,
        sides=sum(hints.get(p.name) is evidence for p in parameters),
        required=_names(p for p in keywords if p.default is p.empty),
        optional=_names(p for p in keywords if p.default is not p.empty),
        summary=summary,
    )


def _in_module(name: str, module: Any) -> Estimator | None:
    for title in (name, f"audit_{name}"):
        function = vars(module).get(title)
        # Only functions defined in the file itself: an imported estimator would be listed twice.
        if inspect.isfunction(function) and function.__module__ == module.__name__:
            return describe(name, function, (module.__doc__ or "").partition("\n")[0])
    return None


def _names(parameters: Iterable[inspect.Parameter]) -> frozenset[str]:
    return frozenset(parameter.name for parameter in parameters)
