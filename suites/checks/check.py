"""Exposure: what one probe found of a claim, and the rows and words that tell of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..jobs.cells import Cell
from ..results.record import Record

KEPT, BROKEN = "KEPT", "BROKEN"


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """One probe of one claim.

    Args:
        name: "sensitivity", "noise present", "noise fresh between clients", "noise fresh between rounds", "noise
            scale" or "public state".
        kept: whether what was measured is allowed; None: it cannot be probed, and ``witness`` says why.
        measured, allowed: the number and its limit, in the probe's own unit, which ``unit`` names.
        relation: how a kept ``measured`` stands to ``allowed``.
        witness: which runs show it.
    """

    name: str
    kept: bool | None
    witness: str
    measured: float | None = None
    allowed: float | None = None
    relation: str = "<="
    unit: str = ""

    @property
    def words(self) -> str:
        """``sensitivity 10 > 1 allowed (a row of 10 clip norms along an unused weight)``."""
        if self.measured is None or self.allowed is None:
            return f"{self.name}: {self.witness}"
        broken = {"<=": ">", ">=": "<"}
        sign = broken[self.relation] if self.kept is False else self.relation
        limit = "allowed" if self.relation == "<=" else "required"
        return f"{self.name} {self.measured:.4g} {sign} {self.allowed:.4g} {limit} ({self.witness})"


def check_rows(cell: Cell, exposures: Sequence[CheckResult]) -> list[Record]:
    """One row a probe, in the audit's own cell; one that could not be probed is skipped, with the reason."""
    return [
        cell.record(
            role="probe",
            attack="replay",
            attack_version="1",
            metric=f"probe_{found.name.replace(' ', '_')}",
            value=found.measured,
            verdict="" if found.kept is None else KEPT if found.kept else BROKEN,
            unit=found.unit,
            status="skipped" if found.kept is None else "ok",
            reason=found.witness if found.kept is None else found.words,
        )
        for found in exposures
    ]


def broken_words(exposures: Sequence[CheckResult]) -> str:
    """``; probe: sensitivity 10 > 1 allowed (...)`` for every broken probe, to stand behind a verdict's reason."""
    return "".join(f"; probe: {found.words}" for found in exposures if found.kept is False)
