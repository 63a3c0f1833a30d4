"""Faults of differentially private programs, each beside its correct version, by which auditors are judged.

>>> from dp_faults import cases
>>> case = next(cases("functions"))
>>> case.broken.release(case.neighbours[0], rng)
"""

from .case import KINDS, Case, Claim, Program, Subject, cases, load
from .verdict import ALPHA, Verdict, outputs, runs, trials

__all__ = [
    "ALPHA",
    "KINDS",
    "Case",
    "Claim",
    "Program",
    "Subject",
    "Verdict",
    "cases",
    "load",
    "outputs",
    "runs",
    "trials",
]
