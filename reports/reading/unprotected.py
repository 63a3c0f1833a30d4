"""Unprotected: what a claim, by its own terms, says nothing about."""

from ...audit.claim import Claim
from ...audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS

_LADDER = (FINAL_MODEL, GLOBAL_MODELS, AGGREGATE, SHUFFLED, UPLOADS)


def left_unprotected(claim: Claim, rounds_run: object = None) -> list[str]:
    """What the claim, by its own terms, says nothing about; there may be more that it does not know of."""
    silent = [f"against {observer.phrase}" for observer in _LADDER if not claim.observer.covers(observer)]
    if not claim.observer.sees_participation:
        silent.append("against an adversary who also observes which clients take part in a round")
    if claim.observer.name == AGGREGATE.name and not claim.observer.sees_masked_words:
        silent.append("against an adversary who also observes the masked words")
    silent.append(f"several {claim.unit}s at once")
    if isinstance(rounds_run, int) and rounds_run > claim.rounds:
        silent.append(f"more than {claim.rounds} of the {rounds_run} rounds")
    silent += [] if claim.part == "joint" else [f"anything but {claim.part}"]
    return silent + ([] if claim.subjects == "all" else [f"anybody but {claim.subjects}"])
