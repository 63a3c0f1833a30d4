"""Join each privacy claim with the result of one audit of the claim, in the suite's order."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...audit.claim import AS_PUBLISHED, Claim, Unit
from ...audit.finding import detected_by_checks
from ...audit.observer import (
    ACTIVE_PARTY,
    AGGREGATE,
    ANSWERS,
    FINAL_MODEL,
    LADDER,
    PASSIVE_PARTY,
    UPLOADS,
    Observer,
)
from ...suites.results.claims_file import StatedClaim
from ...suites.results.outcome import Trained, audited_on, own_training
from ...suites.results.record import Record
from .membership import memberships
from .run_folder import RunFolder, once_per_run


@dataclass(frozen=True, kw_only=True)
class ClaimRow:
    """A claim and the result of one audit of it, by canaries or by attacks on final models.

    ``stated``: None for an audit of a defense that states no claim. ``record``: None for a claim that this run did not
    audit. ``fpr_high``, ``fnr_high``: joint upper bounds on the audit's error rates. ``refuted``:
    a false-positive and a false-negative rate that together refute the claim's trade-off curve. ``checks``: the rows
    of the claim's implementation checks. ``single_run``: whether all canaries of the claim were in one run.
    """

    defense: str
    federation: str
    stated: StatedClaim | None
    record: Record | None
    fpr_high: float | None = None
    fnr_high: float | None = None
    refuted: tuple[float, float] | None = None
    rounds_run: int | None = None
    """Rounds of the federation, where the suite states them."""
    checks: tuple[Record, ...] = ()
    single_run: bool = False
    audited_on: str = ""
    """What the audit trained, in words, where the federation itself trains another data set or model."""

    @property
    def control(self) -> bool:
        """Whether the defense is a control, which means that it is deliberately broken and violates its claim."""
        return self.stated.control if self.stated else bool(self.record and self.record.control)

    @property
    def by_attacks(self) -> bool:
        """Whether the audit used attacks on final models, which are not designed to refute a claim."""
        return self.record is not None and self.record.role == "evidence"

    @property
    def should_be_refuted(self) -> bool:
        """Whether this audit should refute the claim, because it uses canaries and the defense is a control
        (deliberately broken).
        """
        return self.control and not self.by_attacks

    @property
    def published(self) -> bool:
        """Whether the claim is one that a paper published and that is itself under test, so that every verdict is
        acceptable.
        """
        variant = self.stated.variant if self.stated else self.record.variant if self.record else ""
        return variant == AS_PUBLISHED

    @property
    def claim(self) -> Claim:
        """The privacy claim of the row; raises ValueError for an audit of a defense that states none."""
        if self.stated is None:
            raise ValueError(f"the row of {self.defense} must have a claim, got none")
        return self.stated.claim

    @property
    def claim_text(self) -> str:
        """The privacy claim in words, with its unit, adjacency, observer and delta."""
        if self.stated is None:
            return "states no claim"
        claim, run = self.stated.claim, self.rounds_run
        return claim.describe() + (f", over {claim.rounds} of {run} rounds" if run and claim.rounds < run else "")

    @property
    def verdict(self) -> str:
        """The verdict of the claim's audit, or NOT_AUDITED."""
        if self.record is None:
            return "NOT_AUDITED"
        return "FAILED" if self.record.status != "ok" else self.record.verdict

    @property
    def epsilon_low(self) -> float | None:
        """The measured lower bound on epsilon; None without a claim, because an epsilon has no meaning without unit,
        adjacency and delta.
        """
        return self.record.value if self.record and self.stated else None

    @property
    def ceiling(self) -> float | None:
        """The largest epsilon that the audit can certify with this sample size."""
        return self.record.ceiling if self.record and self.stated else None

    @property
    def detectable(self) -> float | None:
        """The smallest true epsilon at which this audit refutes the claim with 90 % power."""
        return self.record.detectable if self.record and self.stated else None

    @property
    def rates(self) -> tuple[float | None, float | None]:
        """The bounds on the two error rates that contradict the claim's trade-off curve most clearly."""
        return self.refuted or (self.fpr_high, self.fnr_high)

    @property
    def by_checks(self) -> bool:
        """Whether ``detectable`` is the smallest epsilon that implementation checks detect, and not the smallest that
        runs detect.
        """
        return self.record is not None and detected_by_checks(self.record.reason, self.detectable)

    @property
    def looked_at(self) -> list[str]:
        """The items that the claim's implementation checks examined; empty if no check ran."""
        return self.record.looked_at if self.record else []

    @property
    def not_looked_at(self) -> list[str]:
        """The items that the claim's implementation checks did not examine, each with the reason."""
        return self.record.not_looked_at if self.record else []

    @property
    def needs_attention(self) -> bool:
        """Whether the report must list the row first. This is so if a claim was refuted or one of its implementation
        checks failed, if a control (a deliberately broken defense) was not refuted, or if an audit failed. Every
        verdict is acceptable for a paper's claim, and for a control under attacks on final models.
        """
        refuted = self.verdict == "REFUTED"
        if self.published or (self.by_attacks and self.control):
            return self.verdict == "FAILED"
        return self.verdict == "FAILED" or refuted != self.control or bool(self.failed_checks and not self.control)

    @property
    def accepted(self) -> bool:
        """Whether the claim counts as not refuted only because the user accepts that its test is weak."""
        return self.record is not None and self.record.weak and self.verdict == "NOT_REFUTED"

    @property
    def failed_checks(self) -> tuple[Record, ...]:
        """The result rows of the claim's implementation checks that failed."""
        return tuple(check for check in self.checks if check.verdict == "FAILED")


@once_per_run
def claim_rows(folder: RunFolder) -> list[ClaimRow]:
    """Build one table row per claim and audit, in the suite's order, audits by attacks last; a claim without an audit
    gets a row too.
    """
    order = folder.order
    audits = [record for record in folder.rows("audit") if record.verdict or record.status != "ok"]
    # Attacks that could not be run are listed as omissions; they are not failed audits.
    audits += [record for record in folder.rows("evidence") if record.verdict or record.status == "failed"]
    rows = [_claim_row(folder, folder.claim_of(record), record) for record in audits]
    # By federation too: one defense may state equal claims on several federations, of which some are audited.
    judged = {(record.federation, record.defense, record.claim_id) for record in audits}
    rows += [_claim_row(folder, stated, None) for stated in folder.claims if stated.key not in judged]
    places = {stated.key: place for place, stated in enumerate(folder.claims)}

    def place(row: ClaimRow) -> tuple[tuple[int, int], int, bool, str]:
        claimed = places[row.stated.key] if row.stated else len(places)
        return order.place(row), claimed, row.by_attacks, row.record.attack if row.record else ""

    return sorted(rows, key=place)


def one_row_per_claim(rows: Sequence[ClaimRow]) -> list[ClaimRow]:
    """Choose one audit for each claim: an audit that refuted it, otherwise the first one."""
    best: dict[object, ClaimRow] = {}
    for row in rows:
        key = row.stated.key if row.stated else id(row)
        # Without a claim there is no key, so each such row is kept.
        if key not in best or (row.verdict == "REFUTED" and best[key].verdict != "REFUTED"):
            best[key] = row
    return list(best.values())


def stated_rows(folder: RunFolder) -> list[ClaimRow]:
    """Return the table rows of a run in which a defense states a claim."""
    return [row for row in claim_rows(folder) if row.stated]


def claims_under_test(folder: RunFolder) -> list[ClaimRow]:
    """Return one row per claim of a run, without the claims of controls (deliberately broken defenses)."""
    return [row for row in one_row_per_claim(stated_rows(folder)) if not row.control]


def _claim_row(folder: RunFolder, stated: StatedClaim | None, record: Record | None) -> ClaimRow:
    source = stated or record
    if source is None:
        raise ValueError("a row of the claim table needs a claim or the result row of an audit, got neither")
    arrays = (folder.files.arrays(record) if record else None) or {}
    bounds = {name: float(arrays[name]) for name in ("fpr_high", "fnr_high") if name in arrays}
    refuted = (float(arrays["refuted_fpr"]), float(arrays["refuted_fnr"])) if "refuted_fnr" in arrays else None
    return ClaimRow(
        defense=source.defense,
        federation=source.federation,
        stated=stated,
        record=record,
        checks=_checks(folder).get(record.cell_id, ()) if record is not None else (),
        rounds_run=folder.rounds_of(source.federation),
        single_run=(source.federation, source.defense, source.claim_id) in _single_runs(folder),
        refuted=refuted,
        audited_on=audited_on(record, _own_training(folder)) if record is not None else "",
        **bounds,
    )


@once_per_run
def _single_runs(folder: RunFolder) -> frozenset[tuple[str, str, str]]:
    """Federation, defense and claim of every claim with runs that count canaries, not replicas."""
    rows = (row for row in folder.rows("replicas") if row.metric == "canaries")
    return frozenset((row.federation, row.defense, row.claim_id) for row in rows)


@once_per_run
def _own_training(folder: RunFolder) -> dict[str, Trained]:
    return own_training(folder.records)


@once_per_run
def _checks(folder: RunFolder) -> dict[str, tuple[Record, ...]]:
    """Rows of implementation checks by their cell, which is the audit's."""
    found: dict[str, tuple[Record, ...]] = {}
    for row in folder.rows("check"):
        found[row.cell_id] = (*found.get(row.cell_id, ()), row)
    return found


def covers(observer: Observer, other: str) -> bool:
    """Return whether a claim about ``observer`` covers an adversary given by its text; an unknown adversary is never
    covered.
    """
    try:
        return observer.covers(Observer.parse(other))
    except ValueError:  # Rows of other versions may name observers that this one does not have.
        return False


def covered(folder: RunFolder, federation: str, defense: str, observer: str, attack: str = "") -> bool:
    """Return whether a claim of a defense in a federation covers an adversary, given by its text. For a membership
    attack with stored scores, a claim must also cover the unit, adjacency and rounds of its evidence.
    """
    known = _membership_scope(folder).get((federation, defense, observer, attack))
    if known is not None:
        return known
    return any(covers(one, observer) for one in _claimed(folder).get(defense, {}).get(federation, ()))


@once_per_run
def _membership_scope(folder: RunFolder) -> dict[tuple[str, str, str, str], bool]:
    """For each membership attack whose scores are stored, whether a claim covers it."""
    return {
        (one.federation, one.defense, str(one.setting.observer), one.attack): bool(one.claims)
        for one in memberships(folder)
    }


@once_per_run
def _claimed(folder: RunFolder) -> dict[str, dict[str, list[Observer]]]:
    """The observers of the claims of each defense, by federation."""
    found: dict[str, dict[str, list[Observer]]] = {}
    for one in folder.claims:
        found.setdefault(one.defense, {}).setdefault(one.federation, []).append(one.claim.observer)
    return found


def beyond_claims(folder: RunFolder, federation: str, defense: str, observer: str, attack: str = "") -> bool:
    """Return whether a defense states a claim in the run, but no claim in this federation that covers the adversary or
    the evidence of an attack.
    """
    return defense in _claimed(folder) and not covered(folder, federation, defense, observer, attack)


def adversaries(claim: Claim) -> tuple[Observer, ...]:
    """Return the possible adversaries in the kind of federation that a claim is about, from the weakest to the
    strongest. The kinds are federations of clients, of parties, and transfers by answers. The party with the labels is
    no adversary of a claim about labels.
    """
    if claim.unit is Unit.LABEL:
        return FINAL_MODEL, PASSIVE_PARTY
    if claim.observer in (PASSIVE_PARTY, ACTIVE_PARTY):
        return FINAL_MODEL, PASSIVE_PARTY, ACTIVE_PARTY
    return (FINAL_MODEL, ANSWERS, UPLOADS) if claim.observer == ANSWERS else LADDER


def same_subject(folder: RunFolder, row: ClaimRow | StatedClaim) -> tuple[Claim, ...]:
    """Return the defense's other claims on the same federation that have the same unit, adjacency, part and subjects,
    and at least as many rounds. These claims may cover adversaries that this claim does not cover.
    """
    own = row.claim
    about = (own.unit, own.adjacency, own.part, own.subjects)
    return tuple(
        other.claim
        for other in folder.claims_on(row.federation, row.defense)
        if other.claim.claim_id != own.claim_id
        and (other.claim.unit, other.claim.adjacency, other.claim.part, other.claim.subjects) == about
        and other.claim.rounds >= own.rounds
    )


def covered_elsewhere(claim: Claim, others: Sequence[Claim]) -> list[Observer]:
    """Return the adversaries that this claim does not cover, but that one of the claims ``others`` covers."""
    left = [observer for observer in adversaries(claim) if not claim.observer.covers(observer)]
    return [observer for observer in left if any(other.observer.covers(observer) for other in others)]


def left_unprotected(claim: Claim, rounds_run: object = None, others: Sequence[Claim] = ()) -> list[str]:
    """Return phrases that describe what the claim leaves unprotected, as its fields (such as observer, unit and rounds)
    imply it. Adversaries that one of the claims ``others`` covers, which are about the same unit, are left out.
    """
    known, elsewhere = adversaries(claim), covered_elsewhere(claim, others)
    uncovered = [
        f"against {observer.phrase}"
        for observer in known
        if not claim.observer.covers(observer) and observer not in elsewhere
    ]
    # Who sees each upload sees who sent it.
    if known == LADDER and not (claim.observer.sees_participation or claim.observer.covers(UPLOADS)):
        uncovered.append("against an adversary who also observes which clients take part in a round")
    if claim.observer.name == AGGREGATE.name and not claim.observer.sees_masked_words:
        uncovered.append("against an adversary who also observes the masked words")
    # Group privacy would need a larger epsilon, which no claim here states.
    uncovered.append(f"several {claim.unit}s at once")
    if isinstance(rounds_run, int) and rounds_run > claim.rounds:
        uncovered.append(f"more than {claim.rounds} of the {rounds_run} rounds")
    uncovered += [] if claim.part == "joint" else [f"everything except {claim.part}"]
    return uncovered + ([] if claim.subjects == "all" else [f"anyone except {claim.subjects}"])
