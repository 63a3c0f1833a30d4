"""What fedassay looks at inside programs: Opacus trainings are watched, and epsilon is computed again.

Each look returns the first fault in words, and an empty string where it sees none.
"""

from importlib import import_module
from typing import Any

from fedassay import claim_from_noise

from dp_faults import Subject

UNITS = {"record": "sample", "client": "client", "user": "user"}
ROUNDING = 0.01
"""Relative difference of two accountants that is no fault."""


def setting(subject: Subject) -> dict[str, Any]:
    claim = subject.program.claim
    return {"unit": UNITS.get(claim.unit, "report"), "adjacency": claim.adjacency}


def failed(system: Any, seed: int, **setting: Any) -> str:
    """The first check that fails in a watched run."""
    found = system.watch(seed, **setting).failed
    return str(found[0].words) if found else ""


def too_small(subject: Subject, implied: float) -> str:
    """Why the claimed epsilon is too small."""
    claimed = subject.program.claim.epsilon
    words = f"the stated law implies epsilon {implied:.4g}, and {claimed:.4g} is claimed"
    return words if implied > claimed * (1 + ROUNDING) else ""


def opacus(subject: Subject, part: Any, seed: int) -> str:
    """Watch an Opacus training."""
    system = import_module("fedassay.adapters.opacus").Training
    found = system(part["build"], part["train"], subject.neighbours[0], delta=part["delta"], **setting(subject))
    return failed(found, seed) or too_small(subject, found.claim.epsilon)


def law(subject: Subject, part: Any, seed: int) -> str:
    """Compute epsilon again, of steps of Gaussian noise on Poisson-sampled lots; other laws are left to the release.

    So are claims about replaced records, since a law does not state how far these move a sum.
    """
    if subject.program.claim.adjacency == "replace_one":
        return ""
    if part["mechanism"] != "gaussian" or set(part) - {"mechanism", "noise_multiplier", "rate", "steps"}:
        return ""
    implied = claim_from_noise(
        part["noise_multiplier"],
        delta=subject.program.claim.delta,
        sampling_rate=part["rate"],
        steps=part["steps"],
        adjacency=subject.program.claim.adjacency,
    )
    return too_small(subject, implied.epsilon)
