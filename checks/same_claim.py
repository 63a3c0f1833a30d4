"""Compare the claims that one defense states about two plans."""

from ..audit.claim import NOT_PROVABLE, PROVABLE, Claim


def same_claim(one: Claim, other: Claim) -> bool:
    """Return whether two claims promise the same, whatever noise their plans need for it."""
    return _promise(one) == _promise(other)


def _promise(claim: Claim) -> tuple[object, ...]:
    return (
        round(claim.epsilon, 6),
        claim.delta,
        claim.unit,
        claim.adjacency,
        claim.observer,
        claim.rounds,
        claim.subjects,
        claim.part,
        claim.parameters.get(PROVABLE),
        NOT_PROVABLE in claim.parameters,
    )
