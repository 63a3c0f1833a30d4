"""Calibrate each defense once per federation and seed, and collect the claims that the defenses state."""

from dataclasses import dataclass, field

from ...audit.claim import Claim
from ...defenses.defense import Defense, Prepared, variant_of
from ...fl.plan import marks
from ..config.resolve import DefenseEntry, ResolvedSuite, prepare
from ..config.tables.suite import FederationSpec, PlanChange
from ..jobs.planned_claim import PlannedClaim


@dataclass(frozen=True, kw_only=True)
class PreparedDefenses:
    """The calibrated defenses of one suite; each is calibrated when it is first needed."""

    suite: ResolvedSuite
    _prepared: dict[tuple[str, str, int], Prepared] = field(default_factory=dict)

    def on(self, federation: str) -> list[DefenseEntry]:
        """Return the defenses that run on a federation: those whose settings name it; if there are none, those whose
        settings name no federation.

        A federation that borrows its calibration shows the defenses of the federation that it borrows from.
        """
        own = self.suite.spec.federations[federation].calibrated_on or federation
        entries = [entry for entry in self.suite.defenses if isinstance(entry.part.instance, Defense)]
        chosen = [entry for entry in entries if entry.federation == own]
        return chosen or [entry for entry in entries if entry.federation is None]

    def seeds(self, entry: DefenseEntry) -> tuple[int, ...]:
        """Return the seeds on which a defense runs."""
        return self.suite.seeds[: entry.seeds]

    def of(self, entry: DefenseEntry, federation: str, seed: int) -> Prepared:
        """Return the defense calibrated for a federation's plan; raise ConfigError if the plan violates one of the
        defense's assumptions.
        """
        key = (entry.label, federation, seed)
        # Calibration may take seconds, and trials, claims and audits all need it.
        if key not in self._prepared:
            self._prepared[key] = prepare(self.suite, entry, federation, seed)
        return self._prepared[key]

    def claims(self, entry: DefenseEntry, federation: str, seed: int) -> tuple[Claim, ...]:
        """Return a defense's claims about this federation's own plan; empty if the defense uses another federation's
        calibration.
        """
        # A borrowed calibration is for another plan, and nothing is claimed about this one.
        borrowed = self.suite.spec.federations[federation].calibrated_on is not None
        return () if borrowed else tuple(self.of(entry, federation, seed).claims)

    def stated(self) -> list[PlannedClaim]:
        """Return every claim of the suite once, even if several seeds state it."""
        found: dict[tuple[str, str, str], PlannedClaim] = {}
        for name in self.suite.spec.federations:
            for entry in self.on(name):
                for seed in self.seeds(entry):
                    spending = self.of(entry, name, seed).spending
                    for claim in self.claims(entry, name, seed):
                        stated = PlannedClaim(
                            defense=entry.label,
                            federation=name,
                            control=entry.defense.control,
                            claim=claim,
                            variant=variant_of(entry.defense),
                            marks=marks(self.suite.spec.federations[name].rounds),
                            spending=spending.get(claim.claim_id),
                        )
                        # Equal claims of several seeds are one claim: its audit pools the seeds.
                        found.setdefault((entry.label, name, claim.claim_id), stated)
        return list(found.values())


def change_of(entry: DefenseEntry, spec: FederationSpec) -> PlanChange:
    """Return how the defense changes the federation's plan; a defense that uses another federation's calibration
    changes nothing.
    """
    return entry.change if spec.calibrated_on is None else PlanChange()
