"""Scope: whether a claim speaks about evidence of this setting, and why not where it does not."""

from .claim import Claim
from .evidence import Setting


def beyond_scope(claim: Claim, setting: Setting) -> str:
    """Why the claim does not speak about evidence of this observer, unit, adjacency or number of rounds; else empty."""
    if not claim.observer.covers(setting.observer):
        return f"the evidence is of {setting.observer.phrase}, the claim covers {claim.observer.phrase}"
    if setting.unit != claim.unit:
        return f"the evidence is of one {setting.unit}, the claim of one {claim.unit}"
    if setting.adjacency != claim.adjacency:
        return f"the evidence is of {setting.adjacency.phrase} neighbours, the claim of {claim.adjacency.phrase}"
    if setting.rounds > claim.rounds:
        return f"the evidence is of {setting.rounds} rounds, the claim covers {claim.rounds}"
    return ""


def beyond_all(claim: Claim, setting: Setting) -> str:
    """The same for evidence of whole releases and of any subjects: a claim of one layer or of some users is silent."""
    if claim.part != "joint":
        return f"the claim is of {claim.part} alone"
    if claim.subjects != "all":
        return f"the claim is for {claim.subjects} alone"
    return beyond_scope(claim, setting)
