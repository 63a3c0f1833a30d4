"""Claims as a report tabulates them: what was signed beside what one audit found about it, in the suite's order; an
audit by canaries, or by what attacks said.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...audit.claim import AS_PUBLISHED
from ...suites.results.claims_file import StatedClaim
from ...suites.results.record import Record
from .order import Order
from .run_folder import RunFolder, once_a_run


@dataclass(frozen=True, kw_only=True)
class ClaimRow:
    """A claim beside what one audit found about it. ``signed`` is None for an audit of a defense that signs nothing,
    ``record`` is None for a claim that no audit of this run has judged; ``probes`` are the rows of the claim's probes.
    """

    defense: str
    federation: str
    signed: StatedClaim | None
    record: Record | None
    fpr_high: float | None = None
    fnr_high: float | None = None
    rounds_run: int | None = None
    """Rounds of the federation, where the suite tells."""
    probes: tuple[Record, ...] = ()

    @property
    def control(self) -> bool:
        return self.signed.control if self.signed else bool(self.record and self.record.control)

    @property
    def by_attacks(self) -> bool:
        """Whether attacks on final models were the audit: none was planted to see anything."""
        return self.record is not None and self.record.role == "evidence"

    @property
    def must_fall(self) -> bool:
        """A control's own audit."""
        return self.control and not self.by_attacks

    @property
    def published(self) -> bool:
        """A paper's claim, which is on trial."""
        variant = self.signed.variant if self.signed else self.record.variant if self.record else ""
        return variant == AS_PUBLISHED

    @property
    def says(self) -> str:
        """The claim in words, with its unit, adjacency, observer and delta."""
        if self.signed is None:
            return "signs no claim"
        claim, run = self.signed.claim, self.rounds_run
        return claim.describe() + (f", over {claim.rounds} of {run} rounds" if run and claim.rounds < run else "")

    @property
    def verdict(self) -> str:
        """The finding's verdict, or NOT_AUDITED."""
        if self.record is None:
            return "NOT_AUDITED"
        return "FAILED" if self.record.status != "ok" else self.record.verdict

    @property
    def epsilon_low(self) -> float | None:
        """What was shown about epsilon, in the claim's own unit, adjacency and delta; without a claim it has none."""
        return self.record.value if self.record and self.signed else None

    @property
    def ceiling(self) -> float | None:
        return self.record.ceiling if self.record and self.signed else None

    @property
    def detectable(self) -> float | None:
        return self.record.detectable if self.record and self.signed else None

    @property
    def alarming(self) -> bool:
        """What a reader has to see first: an honest claim refuted, or a probe of it broken; a control not refuted; an
        audit that failed. A paper's claim may come out either way, and so may a control that attacks looked at.
        """
        refuted = self.verdict == "REFUTED"
        if self.published or (self.by_attacks and self.control):
            return self.verdict == "FAILED"
        return self.verdict == "FAILED" or refuted != self.control or bool(self.broken and not self.control)

    @property
    def broken(self) -> tuple[Record, ...]:
        """Rows of the probes that the claim breaks."""
        return tuple(probe for probe in self.probes if probe.verdict == "BROKEN")


@once_a_run
def claim_rows(folder: RunFolder) -> list[ClaimRow]:
    """One row per claim and audit of it, in the suite's order, attacks last; claims that nothing judged included."""
    order = Order.of(folder)
    audits = [record for record in folder.rows("audit") if record.verdict or record.status != "ok"]
    # Attacks that have no answer are omissions, no audit that failed.
    audits += [record for record in folder.rows("evidence") if record.verdict or record.status == "failed"]
    rows = [_claim_row(folder, folder.claim_of(record), record) for record in audits]
    judged = {(record.federation, record.defense, record.claim_id) for record in audits}
    rows += [_claim_row(folder, signed, None) for signed in folder.claims if signed.key not in judged]
    places = {signed.key: place for place, signed in enumerate(folder.claims)}

    def place(row: ClaimRow) -> tuple[int, int, int, bool, str]:
        claimed = places[row.signed.key] if row.signed else len(places)
        return (
            order.federation(row.federation),
            order.defense(row.defense),
            claimed,
            row.by_attacks,
            row.record.attack if row.record else "",
        )

    return sorted(rows, key=place)


def once(rows: Sequence[ClaimRow]) -> list[ClaimRow]:
    """One row a claim: where several audited it the one that refuted it, else the first."""
    best: dict[object, ClaimRow] = {}
    for row in rows:
        key = row.signed.key if row.signed else id(row)
        if key not in best or (row.verdict == "REFUTED" and best[key].verdict != "REFUTED"):
            best[key] = row
    return list(best.values())


def _claim_row(folder: RunFolder, signed: StatedClaim | None, record: Record | None) -> ClaimRow:
    source = signed or record
    if source is None:
        raise ValueError("a row of the claim table needs a claim or a record, got neither")
    arrays = (folder.files.arrays(record) if record else None) or {}
    bounds = {name: float(arrays[name]) for name in ("fpr_high", "fnr_high") if name in arrays}
    probes = _probes(folder).get(record.cell_id, ()) if record is not None else ()
    return ClaimRow(
        defense=source.defense,
        federation=source.federation,
        signed=signed,
        record=record,
        probes=probes,
        rounds_run=folder.rounds_of(source.federation),
        **bounds,
    )


@once_a_run
def _probes(folder: RunFolder) -> dict[str, tuple[Record, ...]]:
    """Rows of probes by their cell."""
    found: dict[str, tuple[Record, ...]] = {}
    for row in folder.rows("probe"):
        found[row.cell_id] = (*found.get(row.cell_id, ()), row)
    return found
