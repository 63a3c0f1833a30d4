"""Tabulate what each claim lets an adversary believe about one unit, and what it implies for two units together."""

import math

from ...audit.claim import Claim
from ...audit.posterior import group_privacy, posterior_bounds, right_guesses
from ...audit.wording import plain
from ...suites.results.record import printed_label
from ..reading.order import Order
from ..reading.run_folder import RunFolder
from ..tables.numerals import NOTHING
from ..tables.printed import neighbours_of
from ..tables.table import Table

EVEN = 0.5
"""The belief before the release for which the table is printed."""


def belief_table(folder: RunFolder) -> Table:
    """Return a table with one row per claim about a whole release, without those of controls: the largest belief after
    the release from a belief of 1/2 before it, the share of right guesses, and epsilon and delta of two units.
    """
    order = Order.of(folder)
    claims = sorted(folder.claims, key=lambda one: (order.federation(one.federation), order.defense(one.defense)))
    rows = [
        (printed_label(one.defense), *_bounds(one.claim))
        for one in claims
        if one.claim.part == "joint" and not one.control
    ]
    return Table(
        title="Beliefs under each claim",
        headers=("defense", "claim", "ε", "belief after 0.5", "right guesses", "two units: ε", "two units: δ"),
        rows=tuple(dict.fromkeys(rows)),
        numeric=frozenset({2, 3, 4, 5, 6}),
        about=2,
        note="What the claim allows if it holds, not what an attack reached. Belief: the largest probability that an "
        "adversary who finds both of two neighbouring data sets equally likely gives to one of them after the release "
        "(Bayes' rule; none at δ > 0, where a rare release may give certainty). Right guesses: the largest share of "
        "right decisions between the two, by ε and δ alone. Two units: what the claim implies for a group of two.",
    )


def _bounds(claim: Claim) -> tuple[str, ...]:
    epsilon, delta = group_privacy(claim.epsilon, claim.delta, 2)
    belief = _up(posterior_bounds(EVEN, claim.epsilon)[1]) if claim.delta == 0 else NOTHING
    right = _up(right_guesses(EVEN, claim.epsilon, claim.delta))
    return neighbours_of(claim), plain(claim.epsilon), belief, right, plain(epsilon), plain(delta)


def _up(share: float) -> str:
    """A share rounded up to three decimals, because it is an upper bound."""
    return f"{min(1.0, math.ceil(round(1000 * share, 6)) / 1000):.3f}"
