"""Tabulate what each claim protects, against which adversary, and which parties it trusts."""

from ...audit.claim import Claim
from ...suites.results.claims_file import StatedClaim
from ...suites.results.record import printed_label
from ..reading.claims import left_unprotected, same_subject
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
            size = next(iter(folder.size_of(one.federation)), NOTHING)
            # Everything except epsilon belongs to the key, so that noise levels of one mechanism share a row.
            kind = (*_kind(one.claim), size, _unprotected(folder, one))
            groups.setdefault(kind, []).append(printed_label(one.defense))
    return Table(
        title="Protection and trust",
        headers=("DP model", "neighbours", "adversary", "trusted", "participants", "not protected against", "defenses"),
        rows=tuple((*kind, ", ".join(dict.fromkeys(names))) for kind, names in groups.items()),
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


def _unprotected(folder: RunFolder, stated: StatedClaim) -> str:
    """The adversaries that no claim of the defense about the same unit covers."""
    left = left_unprotected(stated.claim, folder.rounds_of(stated.federation), same_subject(folder, stated))
    return "; ".join(words.removeprefix(_OBSERVED) for words in left if words.startswith(_OBSERVED)) or NOTHING
