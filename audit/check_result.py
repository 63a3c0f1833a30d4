"""The result of one implementation check of a claim, which can be stored as a result row or printed as text."""

from dataclasses import dataclass

from .measurement import Measurement


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of one implementation check of one claim.

    Args:
        name: such as "sensitivity" or "noise scale".
        passed: whether the measured number is within its limit; None where the check does not apply, for the reason in
            ``witness``.
        measured, allowed: the number and its limit, in the check's own unit, which ``unit`` names.
        relation: of ``measured`` to ``allowed`` in a check that passes.
        witness: which runs show it.
        detects: the smallest violation at which the check fails with probability 0.9: a share of the law's noise
            ("noise scale"), or a true epsilon; None where it is not known.
        compared, not_compared: parts of a message that were and were not compared, the latter with the reason.
        evidence: the measurement of a check that is a statistical test of the claim itself, and so may refute it.
    """

    name: str
    passed: bool | None
    witness: str
    measured: float | None = None
    allowed: float | None = None
    relation: str = "<="
    unit: str = ""
    detects: float | None = None
    compared: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()
    evidence: Measurement | None = None

    @classmethod
    def at_most(
        cls, name: str, measured: float, allowed: float, *, unit: str, witness: str, slack: float = 0.0
    ) -> "CheckResult":
        """Return the result of a check that passes if ``measured`` is at most ``allowed + slack``."""
        passed = bool(measured <= allowed + slack)
        return cls(name=name, passed=passed, measured=measured, allowed=allowed, unit=unit, witness=witness)

    @classmethod
    def at_least(cls, name: str, measured: float, allowed: float, *, unit: str, witness: str) -> "CheckResult":
        """Return the result of a check that passes if ``measured`` is at least ``allowed``."""
        passed = bool(measured >= allowed)
        return cls(
            name=name, passed=passed, measured=measured, allowed=allowed, relation=">=", unit=unit, witness=witness
        )

    @property
    def words(self) -> str:
        """A description of the check, as in ``sensitivity 10 > 1 allowed (a row of 10 clip norms along an unused
        weight)``.
        """
        if self.measured is None or self.allowed is None:
            return f"{self.name}: {self.witness}"
        opposite = {"<=": ">", ">=": "<"}
        sign = opposite[self.relation] if self.passed is False else self.relation
        limit = "allowed" if self.relation == "<=" else "required"
        # More digits where few would print two different numbers alike.
        digits = 4 if self.passed is not False or f"{self.measured:.4g}" != f"{self.allowed:.4g}" else 12
        return f"{self.name} {self.measured:.{digits}g} {sign} {self.allowed:.{digits}g} {limit} ({self.witness})"
