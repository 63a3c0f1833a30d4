"""Audit a privacy claim by attacks: membership guesses about one shadow federation bound epsilon from below.

Every sample of that federation is a member by a fair coin of its own. All that an attack sees of these coins is the
final model: the attack's references were drawn by other coins (the federation with the opposite coins is none of them),
and the initial model, the plan and the population are public. So the scores are post-processing of what the claim is
about and of draws that are independent of the coins: these are the guesses of Steinke, Nasr, Jagielski (2023), on as
many canaries as there are samples. The federation, the attacks and the number of guesses are fixed when the run is
planned; the attacks share alpha, and each of them may refute. The federations after the first are not judged: their
references contain the first one's model.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...attacks.attack import Undefined
from ...audit.check import CheckResult
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.estimators.joint_point import best_bound
from ...audit.estimators.one_run_claim import guesses_on, measured_by_guesses
from ...audit.evidence import CandidateScores, Design, MembershipScores, Setting
from ...audit.finding import Weakness, beyond_all
from ...audit.measurement import Measurement
from ...audit.observer import FINAL_MODEL
from ...fl.streams import Streams
from ..attacking.finished_cells import AttackCell
from ..attacking.shadows import ShadowJob
from ..results.store import Store
from .audit_method import AttackedFederation, AttackMethod, PlannedAudit, Reading
from .one_run import guesses_text

TARGET = 0
"""The federation that is guessed: fixed before anything has run."""


class ByAttacks(AttackMethod):
    """An audit method that counts for how many samples the suite's attacks on final models guess membership correctly;
    each sample was included by a fair coin. Attacks that ignore their input (null attacks) do not count.
    """

    attack = "membership"
    # Last in listings; it never competes with a method that makes runs.
    precedence = 100

    def setting(self, job: ShadowJob) -> Setting:
        return Setting(
            unit=Unit.SAMPLE,
            adjacency=Adjacency.ADD_REMOVE,
            observer=FINAL_MODEL,
            rounds=job.federation.rounds,
            design=Design.ONE_RUN,
        )

    def covers(self, claim: Claim, job: ShadowJob) -> bool:
        return not beyond_all(claim, self.setting(job))

    def registered(self, jobs: Sequence[ShadowJob]) -> tuple[AttackCell, ...]:
        return tuple(item for job in jobs for item in job.attacks if not item.entry.attack.null)

    def measure(self, audit: PlannedAudit, store: Store) -> Reading:
        attacked = attacked_by(audit)
        read = ((item.entry.label, scores_of(item, attacked, store)) for item in attacked.attacks)
        found = {label: scores for label, scores in read if scores is not None}
        if not found:
            raise Undefined("none of the audit's attacks on final models could be run, so there are no scores to audit")
        measured, label = measure_attacks(audit, found)
        return Reading(measurement=measured, scores=found[label])

    def weakness(self, audit: PlannedAudit, measured: Measurement, checks: Sequence[CheckResult]) -> Weakness:
        reason = "no attack refuted the claim, and it is not known how much noise must be missing before an attack does"
        return Weakness(unknown_power=reason)

    def plan_text(self, audit: PlannedAudit) -> list[str]:
        attacked = attacked_by(audit)
        planned = guesses_on(audit.claim, attacked.candidates, alpha=audit.alpha / len(attacked.attacks))
        labels = ", ".join(item.entry.label for item in attacked.attacks)
        return [f"{attacked.candidates} samples in one run, by attacks ({labels}), {guesses_text(planned)}"]


def attacked_by(audit: PlannedAudit) -> AttackedFederation:
    """Return the shadow federation that an audit by attacks uses; raise ValueError for an audit by another method."""
    if audit.attacked is None:
        raise ValueError(
            "the audit must use the results of attacks on a shadow federation, got an audit by the method "
            f"{audit.method}"
        )
    return audit.attacked


def scores_of(item: AttackCell, attacked: AttackedFederation, store: Store) -> MembershipScores | None:
    """Return one attack's membership scores of the audited shadow federation; None if the attack could not be run.

    Raises:
        ValueError: if it failed, with its reason, or left out candidates.
    """
    row = store.cell_records(item.cell.cell_id)[0]
    # Skipped is no failure: an attack may turn out not to apply to this model, and the others still count.
    if row.status == "skipped":
        return None
    if row.status != "ok":
        raise ValueError(
            f"attack {item.entry.label} on the shadow federations of seed {attacked.seed} failed: {row.reason}"
        )
    arrays = store.load_arrays(row.artifact)
    member, nonmember = (arrays[side][arrays[f"{side}_run"] == TARGET] for side in ("member", "nonmember"))
    # The theorem counts all coins: an attack that left out hard candidates would look better than it is.
    if len(member) + len(nonmember) != attacked.candidates:
        counts = f"scores of {len(member)} members and {len(nonmember)} non-members"
        raise ValueError(f"attack {item.entry.label} must score all {attacked.candidates} candidates, got {counts}")
    # The stored scores are of all federations, clustered by federation; those of a single one are evidence of one run.
    return MembershipScores(member, nonmember, attacked.setting)


def measure_attacks(audit: PlannedAudit, found: dict[str, MembershipScores]) -> tuple[Measurement, str]:
    """Return the largest lower bound on epsilon over all attacks and estimators, with the label of its attack.

    The detectable epsilon is None: it would take each attack's success on a mechanism with less noise.
    """
    attacked = attacked_by(audit)
    # Divided by all registered attacks, not by those that ran: which ones ran was not known in advance.
    share, where = audit.alpha / len(attacked.attacks), f"shadow federation {TARGET} of seed {attacked.seed}"
    read = {}
    for label, scores in found.items():
        witness = f"attack {label} on {where}, which included each of {attacked.candidates} samples by a fair coin"
        rng = Streams(attacked.seed).generator(f"guess ties {label}")
        read[label] = measure_attack(audit.claim, scores, alpha=share, rng=rng, witness=witness)
    best = best_bound(list(read.values()))
    (label,) = [label for label, one in read.items() if one.witness == best.witness]
    # The measurement holds at the whole alpha, of which attacks that could not be carried out used nothing.
    return replace(best, alpha=audit.alpha, detectable=None), label


def measure_attack(
    claim: Claim, scores: MembershipScores, *, alpha: float, rng: np.random.Generator, witness: str
) -> Measurement:
    """Compute the lower bound on epsilon from one attack's guesses, by all estimators that the claim allows, at a joint
    error rate ``alpha``.

    Args:
        scores: of one run in which candidates were members by independent fair coins; higher means member.
        rng: breaks ties.
    """
    values = np.concatenate([scores.member, scores.nonmember])
    coins = np.arange(len(values)) < len(scores.member)
    candidates = CandidateScores(values, scores.setting)
    measured = measured_by_guesses(claim, candidates, coins, alpha=alpha, rng=lambda: rng, witness=witness)
    return replace(measured, witness=f"{witness}: {measured.right} of {measured.made} guesses were right")


METHOD = ByAttacks()
