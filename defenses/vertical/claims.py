"""State the claims of defenses of a vertical federation: about one label, and about one person's columns at a party."""

from collections.abc import Mapping

from ...audit.claim import Adjacency, Claim, Unit, Value
from ...audit.curve import Curve
from ...audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY, Observer
from ...fl.vertical.protection import VerticalPlan

LABEL_OBSERVERS = (PASSIVE_PARTY, FINAL_MODEL)
ONE_PARTY = "a person's columns at one party"
"""The part of a claim about columns where several passive parties hold some."""


def label_claims(
    plan: VerticalPlan,
    *,
    epsilon: float,
    delta: float,
    mechanism: str,
    parameters: Mapping[str, Value],
    accountant: str,
    source: str,
    curve: Curve | None = None,
    observers: tuple[Observer, ...] = LABEL_OBSERVERS,
) -> tuple[Claim, ...]:
    """Return the claims that one person's label has (epsilon, delta)-DP over the whole training, one per observer.

    The first observer is a passive party, the second one the public, which receives the final models of all parties.
    What both see is computed from the randomised labels alone, so that the claims have the same epsilon; they are two
    because no observer of a vertical federation sees all that another one sees. The active party holds the labels
    itself.
    """
    return tuple(
        Claim(
            epsilon=epsilon,
            delta=delta,
            unit=Unit.LABEL,
            adjacency=Adjacency.REPLACE_ONE,
            observer=observer,
            rounds=plan.epochs,
            dp_model="local",
            mechanism=mechanism,
            parameters=parameters,
            accountant=accountant,
            sampling="none assumed: batches are public",
            trust="the party with the labels",
            source=source,
            curve=curve,
        )
        for observer in observers
    )


def columns_claim(
    plan: VerticalPlan,
    *,
    epsilon: float,
    delta: float,
    mechanism: str,
    parameters: Mapping[str, Value],
    accountant: str,
    source: str,
    curve: Curve | None = None,
) -> Claim:
    """Return the claim that one person's columns at one passive party have (epsilon, delta)-DP over the whole training,
    against the active party.

    Each passive party protects its own columns and trusts no other party. Where there are several, the claim names its
    part: all columns of a person together have the sum of the parties' privacy losses.
    """
    return Claim(
        epsilon=epsilon,
        delta=delta,
        unit=Unit.SAMPLE,
        adjacency=Adjacency.REPLACE_ONE,
        observer=ACTIVE_PARTY,
        rounds=plan.epochs,
        dp_model="local",
        mechanism=mechanism,
        parameters=parameters,
        accountant=accountant,
        sampling="none assumed: batches are public",
        trust="each passive party for itself",
        source=source,
        part="joint" if plan.network.passive == 1 else ONE_PARTY,
        curve=curve,
    )
