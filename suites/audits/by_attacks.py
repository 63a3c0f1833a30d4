"""Attacks in court: one claim held against what attacks said of the first shadow federation, as evidence of one run.

Every sample of that federation is in by a fair coin of its own. What an attack sees of these coins is the final model:
its references were drawn by other coins (the twin, whose coins are the opposite, is none of them), and the initial
model, the plan and the population are public. So its scores are made of what the claim is about and of draws that know
nothing of the coins: the guesses of Steinke, Nasr, Jagielski (2023) on as many canaries as there are samples. Which
federation, which attacks and how many guesses is fixed when the run is planned; the attacks share alpha, and each of
them may be the one that refutes. The federations after the first are judged by nobody: their references hold its model.
"""

from dataclasses import replace

import numpy as np

from ...attacks.attack import Undefined
from ...audit.claim import Claim
from ...audit.estimators.best_bound import best_bound
from ...audit.estimators.one_run import guess
from ...audit.evidence import CandidateScores, MembershipScores
from ...audit.finding import Finding, Verdict, judge
from ...audit.measurement import Measurement
from ...fl.streams import Streams
from ..attacking.trial import Clock, failures_as_rows
from ..jobs.cells import AttackAudit, AttackCell
from ..results.store import Store
from .judge_claim import verdict_row
from .one_run import guesses_on, read_guesses

TARGET = 0
"""The federation that is guessed: named before anything has run."""


def hear_attacks(audit: AttackAudit, store: Store) -> list[str]:
    """Judge one claim by its finished attacks and write the row; returns what failed."""
    clock = Clock()
    with failures_as_rows([audit.cell], store, clock) as failed:
        said = {item.entry.label: one for item in audit.attacks if (one := scores_of(item, audit, store)) is not None}
        if not said:
            raise Undefined("no attack on final models could be carried out")
        measured, label = measure_attacks(audit, said)
        row = verdict_row(audit.cell, _sober(judge(audit.claim, measured)), measured, said[label], store)
        store.finish(audit.cell.cell_id, [row.model_copy(update=clock.fields())])
    return failed


def scores_of(item: AttackCell, audit: AttackAudit, store: Store) -> MembershipScores | None:
    """What one attack said of the target; None where it could not be carried out.

    Raises:
        ValueError: if it failed, with its reason, or left out candidates.
    """
    row = store.cell_records(item.cell.cell_id)[0]
    if row.status == "skipped":
        return None
    if row.status != "ok":
        raise ValueError(f"{item.entry.label} on shadows of seed {audit.seed}: {row.reason}")
    arrays = store.load_arrays(row.artifact)
    member, nonmember = (arrays[side][arrays[f"{side}_run"] == TARGET] for side in ("member", "nonmember"))
    if len(member) + len(nonmember) != audit.candidates:
        counts = f"{len(member)} in and {len(nonmember)} out"
        raise ValueError(f"{item.entry.label} must score all {audit.candidates} candidates, got {counts}")
    # Whose coins were tossed is the suite's to say: attacks take the scores of all federations for clustered ones.
    return MembershipScores(member, nonmember, audit.setting)


def measure_attacks(audit: AttackAudit, said: dict[str, MembershipScores]) -> tuple[Measurement, str]:
    """The best of all registered attacks and estimators, and which attack that was. ``said``: one run, by label.

    What is detectable is not known: that would take what each attack makes of a mechanism with less noise.
    """
    share, where = audit.alpha / len(audit.attacks), f"shadow federation {TARGET} of seed {audit.seed}"
    read = {}
    for label, scores in said.items():
        witness = f"{label} on {where}, each of {audit.candidates} samples in by a fair coin"
        rng = Streams(audit.seed).generator(f"guess ties {label}")
        read[label] = measure_attack(audit.claim, scores, alpha=share, rng=rng, witness=witness)
    best = best_bound(list(read.values()))
    (label,) = [label for label, one in read.items() if one.witness == best.witness]
    # The whole of it was registered, answered or not.
    return replace(best, alpha=audit.alpha, detectable=None), label


def measure_attack(
    claim: Claim, scores: MembershipScores, *, alpha: float, rng: np.random.Generator, witness: str
) -> Measurement:
    """One attack's guesses, by every estimator that the claim allows, together at ``alpha``.

    ``scores``: of one run whose candidates were in by independent fair coins; ``rng`` breaks ties.
    """
    values = np.concatenate([scores.member, scores.nonmember])
    coins = np.arange(len(values)) < len(scores.member)
    candidates = CandidateScores(values, scores.setting)
    guesses = {
        name: guess(candidates, coins, highest=made - made // 2, lowest=made // 2, rng=rng)
        for name, made in guesses_on(claim, len(values), alpha=alpha).items()
    }
    measured = read_guesses(claim, guesses, alpha=alpha, witness=witness)
    return replace(measured, witness=f"{witness}: {measured.right} of {measured.made} guesses right")


def _sober(finding: Finding) -> Finding:
    """NOT_REFUTED only where something was shown: attacks that tell nobody may be weak, whatever was left out."""
    measured = finding.measurement
    if finding.verdict is not Verdict.NOT_REFUTED or measured is None or measured.epsilon_low > 0:
        return finding
    reason = "no attack showed anything: how much noise must be missing before one does is not known"
    return replace(finding, verdict=Verdict.UNDERPOWERED, route="", reason=reason)
