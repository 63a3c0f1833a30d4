"""Tabulate which adversaries each claim covers, with what the run found, and what attacks showed to the others."""

from ...audit.observer import Observer
from ..reading.claims import (
    ClaimRow,
    adversaries,
    claim_rows,
    covered_elsewhere,
    covers,
    one_row_per_claim,
    same_subject,
)
from ..reading.run_folder import RunFolder, once_per_run
from ..tables import numerals
from ..tables.grid import GridLine, attack_grids
from ..tables.pooled_rows import AttackRow, pooled_attacks
from ..tables.printed import defense_words, verdict_words
from ..tables.table import Table


def covered_table(folder: RunFolder) -> Table:
    """Return a table with one row per claim and one column per adversary: the verdict below the claim's own adversary,
    and below those that the claim does not cover the results of attacks, which no claim of this defense bounds.
    """
    rows = [row for row in one_row_per_claim(claim_rows(folder)) if row.stated and row.stated.claim.part == "joint"]
    many = len({row.federation for row in rows}) > 1
    observers = dict.fromkeys(one for row in rows if row.stated for one in adversaries(row.stated.claim))
    return Table(
        title="Claims by adversary",
        headers=("defense", "unit", *(observer.phrase for observer in observers)),
        rows=tuple(
            (
                defense_words(row.defense, row.control, row.federation if many else ""),
                str(row.stated.claim.unit) if row.stated else "",
                *(_cell(folder, row, observer) for observer in observers),
            )
            for row in rows
        ),
        note="Adversaries from the weakest to the strongest. The verdict stands below the claim's adversary; the claim "
        "also covers every adversary who receives less. Another claim: one of this defense about the same unit covers "
        "the adversary, in another row. Not covered: nothing is claimed, and the attacks on this "
        "defense that received as much show what is possible.",
        about=2,
    )


def _cell(folder: RunFolder, row: ClaimRow, observer: Observer) -> str:
    claimed = row.stated.claim.observer if row.stated else None
    if row.stated and observer not in adversaries(row.stated.claim):
        return ""
    if claimed is not None and claimed.name == observer.name:
        return verdict_words(row)
    if row.stated and observer in covered_elsewhere(row.stated.claim, same_subject(folder, row.stated)):
        return "another claim"
    if claimed is not None and claimed.covers(observer):
        # What refutes a claim may need all that its adversary receives.
        return "covered by a refuted claim" if row.verdict == "REFUTED" else "covered"
    shown = [
        f"{one.attack} {value_words(one)}"
        for one in uncovered_attacks(folder, row.defense)
        if one.observer == str(observer)
    ]
    return "; ".join(("not covered", *shown))


def uncovered_attacks(folder: RunFolder, defense: str) -> list[AttackRow]:
    """Return the primary result of each attack on a defense whose adversary no claim of the defense covers."""
    claims = [one.claim for one in folder.claims if one.defense == defense]
    return [
        cell
        for _, line, cell in _primary(folder).get(defense, [])
        if not line.null and not any(covers(claim.observer, line.observer) for claim in claims)
    ]


def outside_attacks(folder: RunFolder, defense: str) -> dict[str, list[AttackRow]]:
    """Return the primary results of attacks on a defense that no claim covers although a claim covers their adversary,
    by the reason in words.
    """
    claims = [one for one in folder.claims if one.defense == defense]
    federations = {one.federation for one in claims}
    found: dict[str, list[AttackRow]] = {}
    for federation, line, cell in _primary(folder).get(defense, []):
        reason = (
            "For another unit, relation or number of rounds than the claim's"
            if federation in federations
            else f"On {federation}, for which no claim is stated"
        )
        if cell.beyond and any(covers(one.claim.observer, line.observer) for one in claims):
            found.setdefault(reason, []).append(cell)
    return found


@once_per_run
def _primary(folder: RunFolder) -> dict[str, list[tuple[str, GridLine, AttackRow]]]:
    """The measured primary results of each defense, with their federation and attack, in the order of the tables."""
    found: dict[str, list[tuple[str, GridLine, AttackRow]]] = {}
    for grid in attack_grids(pooled_attacks(folder)):
        for line in grid.primary:
            for cell in line.cells:
                if cell and cell.pooled:
                    found.setdefault(cell.defense, []).append((grid.federation, line, cell))
    return found


def value_words(one: AttackRow) -> str:
    """Format the pooled value of an attack with its metric, such as ``PSNR 38.8 dB``."""
    metric = numerals.metric(one.metric)
    value = numerals.metric_value(one.metric, one.pooled.value) if one.pooled else numerals.NOTHING
    return f"{metric.name} {value} {metric.unit}".rstrip()
