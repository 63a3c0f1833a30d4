"""Trust: what each claim protects, before whom, and whom its holder must trust, as the claims themselves say it."""

from ...audit.claim import Claim
from ..reading.order import Order
from ..reading.run_folder import RunFolder
from ..reading.unprotected import left_unprotected
from .numerals import NOTHING
from .table import Table

MODELS = {
    "central": "central",
    "distributed": "distributed, secure sum",
    "local": "local",
    "shuffle": "shuffle",
}
_OBSERVED = "against "


def trust_table(folder: RunFolder) -> Table:
    """One row for each kind of claim: defenses that sign the same but for its size share one. No rows without claims.

    What the survey of Fu et al. 2024 has as its Table 2, from data: model, neighbourhood, server, clients, protected
    object.
    """
    order = Order.of(folder)
    groups: dict[tuple[str, ...], list[str]] = {}
    for one in sorted(folder.claims, key=lambda one: (order.federation(one.federation), order.defense(one.defense))):
        if one.claim.part == "joint" and not one.control:
            clients = folder.clients_of(one.federation)
            size = NOTHING if clients is None else str(clients)
            kind = (*_kind(one.claim), size, _silent(one.claim, folder.rounds_of(one.federation)))
            groups.setdefault(kind, []).append(one.defense)
    return Table(
        title="What is protected, and who is trusted",
        headers=("DP model", "neighbours", "before whom", "trusted", "clients", "not protected", "defenses"),
        rows=tuple((*kind, ", ".join(dict.fromkeys(names))) for kind, names in groups.items()),
        numeric=frozenset({4}),
        about=2,
        note="From the claims as they were signed. Equal epsilons of two rows are not equal protection: they are about "
        "other neighbours, or before another observer.",
    )


def _kind(claim: Claim) -> tuple[str, str, str, str]:
    return (
        MODELS.get(claim.dp_model, claim.dp_model),
        f"one {claim.unit} ({claim.adjacency.phrase})",
        claim.observer.phrase,
        claim.trust,
    )


def _silent(claim: Claim, rounds: int | None) -> str:
    """Before whom it says nothing."""
    left = left_unprotected(claim, rounds)
    return "; ".join(words.removeprefix(_OBSERVED) for words in left if words.startswith(_OBSERVED)) or NOTHING
