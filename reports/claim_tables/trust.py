"""Tabulate what each claim protects, against which adversary, and which parties it trusts."""

from ...audit.claim import Claim
from ...suites.results.record import printed_label
from ..reading.claims import left_unprotected
from ..reading.order import Order
from ..reading.run_folder import RunFolder
from ..tables.numerals import NOTHING
from ..tables.table import Table

MODELS = {
    "central": "central",
    "distributed": "distributed, secure sum",
    "local": "local",
    "shuffle": "shuffle",
}
_OBSERVED = "against "


def trust_table(folder: RunFolder) -> Table:
    """Return a table with one row per kind of claim; defenses whose claims differ only in epsilon share a row, and
    controls (deliberately broken defenses) are left out.

    Its columns follow Table 2 of the survey of Fu et al. 2024: model, neighbourhood, server, clients, protected object.
    """
    order = Order.of(folder)
    groups: dict[tuple[str, ...], list[str]] = {}
    for one in sorted(folder.claims, key=lambda one: (order.federation(one.federation), order.defense(one.defense))):
        # Claims about single layers repeat the joint claim, and the claim of a control is false on purpose.
        if one.claim.part == "joint" and not one.control:
            clients = folder.clients_of(one.federation)
            size = NOTHING if clients is None else str(clients)
            # Everything except epsilon belongs to the key, so that noise levels of one mechanism share a row.
            kind = (*_kind(one.claim), size, _unprotected(one.claim, folder.rounds_of(one.federation)))
            groups.setdefault(kind, []).append(printed_label(one.defense))
    return Table(
        title="Protection and trust",
        headers=("DP model", "neighbours", "adversary", "trusted", "clients", "not protected against", "defenses"),
        rows=tuple((*kind, ", ".join(dict.fromkeys(names))) for kind, names in groups.items()),
        numeric=frozenset({4}),
        about=2,
        note="Taken from the claims as stated. Equal epsilons of two rows are not equal protection, because the rows "
        "differ in the neighbouring datasets, the adversary or the trusted parties.",
    )


def _kind(claim: Claim) -> tuple[str, str, str, str]:
    return (
        MODELS.get(claim.dp_model, claim.dp_model),
        f"one {claim.unit} ({claim.adjacency.phrase})",
        claim.observer.phrase,
        claim.trust,
    )


def _unprotected(claim: Claim, rounds: int | None) -> str:
    """The adversaries that the claim does not cover."""
    left = left_unprotected(claim, rounds)
    return "; ".join(words.removeprefix(_OBSERVED) for words in left if words.startswith(_OBSERVED)) or NOTHING
