"""Decides whether a claim covers the unit, adversary and rounds of some evidence, and gives the reason if not."""

from .claim import Claim
from .evidence import Setting


def beyond_scope(claim: Claim, setting: Setting) -> str:
    """Return why a claim does not cover evidence from this setting (its unit, adversary, rounds); empty string if it
    does.

    The setting's observer, unit, adjacency and rounds are compared with the claim's.
    """
    if not claim.observer.covers(setting.observer):
        return f"the evidence is of {setting.observer.phrase}, the claim covers {claim.observer.phrase}"
    if setting.unit != claim.unit:
        return f"the evidence is of one {setting.unit}, the claim of one {claim.unit}"
    if setting.adjacency != claim.adjacency:
        return f"the evidence is of {setting.adjacency.phrase} neighbours, the claim of {claim.adjacency.phrase}"
    # Fewer rounds are covered: the claim also bounds every part of the release that it covers.
    if setting.rounds > claim.rounds:
        return f"the evidence is of {setting.rounds} rounds, the claim covers {claim.rounds}"
    return ""


def beyond_all(claim: Claim, setting: Setting) -> str:
    """Return why the claim does not cover the whole release (it may cover one layer only); empty string if it does.

    A claim of one layer, or of some users only, bounds no attack on the whole release. In a vertical federation, a
    claim of a person's columns at one party bounds no attack on the person, whose columns at other parties are released
    too; together they have the sum of the parties' epsilons, which no such claim states.
    """
    if claim.part != "joint":
        return f"the claim is of {claim.part} alone"
    if claim.subjects != "all":
        return f"the claim is for {claim.subjects} alone"
    return beyond_scope(claim, setting)
