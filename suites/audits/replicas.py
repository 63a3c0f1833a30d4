"""Store and pool independent runs with and without the canary, and bound epsilon from below by a threshold test on
their scores.
"""

import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...audit.claim import Claim
from ...audit.estimators.hockey_stick import MechanismOutputs
from ...audit.estimators.release_tests import BrokenRelease, release_scores
from ...audit.evidence import Design, MembershipScores, Projections, Setting
from ...audit.output_file import parsed_json
from ...audit.parts import Spec
from ...audit.supplied.chosen import EstimatorOptions, chosen, measure_runs, measure_scores
from ...audit.supplied.power import certifiable
from ..config.tables.suite import AuditSpec
from ..results.store import Store
from .audit_method import BlockJob, BlockMethod, PlannedAudit, Reading, final_look, pooled_replicas
from .power import enough_replicas

ARMS = ("nonmember", "member")
"""Names of the arrays without the canary and with it."""
SETTING = "setting.json"
"""File in a block's folder: what its scores are evidence of."""
Arms = list[list[Projections]]
"""Batches without the canary, and batches with it."""
ALONE = "alone"
"""Name of a stored array that says that the runs were made one at a time."""
ONE_AT_A_TIME = "made one at a time, because runs that are made in one batch share random draws of the defense"


class ReplicaMethod(BlockMethod):
    """An audit method that makes independent runs with and without a canary. A fifth of the runs chooses the score
    threshold, and the others test it.

    Attributes:
        powered: whether the detectable epsilon of the test is also that of the audit. It is not where better scores
            exist, as for a projection along a direction that other samples share.
    """

    sequential = True
    powered: ClassVar[bool] = True

    @abstractmethod
    def trials(self, job: BlockJob) -> tuple[Arms, Mapping[str, NDArray[Any]]]:
        """Run the trials with and without the canary; return their scores in batches, and further arrays to be
        stored.
        """

    @abstractmethod
    def witness(self, audit: PlannedAudit) -> str:
        """Describe the canary and the score that the audit used as evidence."""

    def enough(self, claim: Claim, audit: AuditSpec, alpha: float) -> AuditSpec:
        # Where the power is not known, more runs would not make it known.
        if audit.most_replicas is None or not self.powered:
            return audit
        needed = enough_replicas(claim, alpha=alpha, limit=audit.most_replicas)
        return audit if needed is None else audit.model_copy(update={"replicas": max(audit.replicas, needed)})

    def run(self, job: BlockJob, store: Store) -> dict[str, Any]:
        arms, more = self.trials(job)
        artifact, count = save_projections(job, arms, store, more), job.replicas
        row = {"metric": "replicas", "value": count, "n": count, "unit": "replicas per arm", "artifact": artifact}
        return row | ({"reason": ONE_AT_A_TIME} if ALONE in more else {})

    def measure(self, audit: PlannedAudit, store: Store) -> Reading:
        return self.measure_by_split(audit, *pooled(audit, store))

    def measure_by_split(self, audit: PlannedAudit, member: Projections, nonmember: Projections) -> Reading:
        """Bound epsilon from the trials' scores, each summed over rounds. A fifth of the trials chooses the threshold,
        and the others test it.

        A threshold chosen on the trials that it is tested on would make the bound too large.
        """
        within, out = (np.where(side.seen, side.values, 0.0).sum(axis=1) for side in (member, nonmember))
        shown, claim = MembershipScores(within, out, member.setting), audit.claim
        measured = measure_scores(shown, claim, alpha=audit.alpha, witness=self.witness(audit))
        return Reading(measurement=measured if self.powered else replace(measured, detectable=None), scores=shown)

    def measure_by(self, estimator: Spec, audit: PlannedAudit, store: Store) -> Reading:
        (one,) = chosen(estimator, Design.INDEPENDENT, ())
        member, nonmember = pooled(audit, store)
        law, claim = audit.blocks[0].release, audit.claim
        if one.evidence is Projections or law is None:
            within, out = (np.where(side.seen, side.values, 0.0) for side in (member, nonmember))
            if one.evidence not in (Projections, MechanismOutputs):
                within, out = within.sum(axis=1), out.sum(axis=1)
        else:
            within, out = (
                release_scores(side.values, law, BrokenRelease(), seen=side.seen) for side in (member, nonmember)
            )
        options = EstimatorOptions(
            sigma=None if law is None else law.sigma,
            rate=None if law is None else law.rate,
            steps=None if law is None else law.steps,
        )
        shown = MembershipScores(_sums(within), _sums(out), member.setting)
        measured = measure_runs(
            one, within, out, member.setting, claim, alpha=audit.alpha, options=options, witness=self.witness(audit)
        )
        return Reading(measurement=measured, scores=shown)

    def plan_text(self, audit: PlannedAudit) -> list[str]:
        last = final_look(audit)
        best = certifiable(audit.claim, last.replicas, last.replicas, alpha=last.alpha)
        size = f"{replicas_words(audit)}, max certifiable {best:.2f}"
        return [f"{size}, {self.witness(audit)}: one part of the runs chooses the threshold, the other tests it"]


def replicas_words(audit: PlannedAudit) -> str:
    """Return in words how many runs an audit makes, and whether this number was chosen for the claim."""
    most = audit.blocks[0].audit.most_replicas
    chosen = "" if most is None else f" (chosen for this claim; the suite allows {most})"
    looks = f", or fewer if one of the earlier of {len(audit.looks)} interim looks decides" if audit.looks else ""
    return f"{pooled_replicas(audit)} replicas per arm{chosen}{looks}"


def _sums(values: NDArray[Any]) -> NDArray[Any]:
    return values if values.ndim == 1 else np.asarray(values.sum(axis=1))


def save_projections(job: BlockJob, arms: Arms, store: Store, more: Mapping[str, NDArray[Any]] | None = None) -> str:
    """Store the scores of one seed's runs without and with the canary, and further arrays; return the path of
    the file.
    """
    arrays = dict(more or {})
    for name, batches in zip(ARMS, arms, strict=True):
        # Single precision halves the files; the repeat check allows for it.
        arrays[name] = np.concatenate([batch.values for batch in batches]).astype(np.float32)
        arrays[f"{name}_seen"] = np.concatenate([batch.seen for batch in batches])
    store.save_text(job.cell.cell_id, SETTING, json.dumps(arms[0][0].setting.to_dict()))
    return store.save_arrays(job.cell.cell_id, "projections", arrays)


def pooled(audit: PlannedAudit, store: Store) -> tuple[Projections, Projections]:
    """Return the scores of all runs made for the claim, with and without the canary; each run is one independent trial.

    Raises:
        ValueError: if a block failed (the reason is the block's), or blocks are evidence of different settings.
    """
    arrays = kept_arrays(audit, store)
    # Evidence about different observers or rounds must not add up to one verdict.
    settings = {(store.cell_folder(block.cell.cell_id) / SETTING).read_text(encoding="utf-8") for block in audit.blocks}
    if len(settings) != 1:
        raise ValueError(
            f"the runs of all seeds of one claim must have the same unit, adjacency, observer and "
            f"rounds, got {sorted(settings)}"
        )
    setting = Setting.from_dict(parsed_json(settings.pop()))

    def side(name: str) -> Projections:
        values = np.concatenate([block[name] for block in arrays])
        return Projections(values, np.concatenate([block[f"{name}_seen"] for block in arrays]), setting)

    return side("member"), side("nonmember")


def kept_arrays(audit: PlannedAudit, store: Store) -> list[dict[str, Any]]:
    """Return the stored arrays of each seed's runs; raise ValueError with the reason if the runs of one seed failed."""
    arrays = []
    for block in audit.blocks:
        # A failed block fails the audit: fewer replicas than planned would have another power, and perhaps a bias.
        row = store.cell_records(block.cell.cell_id)[0]
        if row.status != "ok":
            raise ValueError(f"the audit runs of seed {block.seed} failed: {row.reason}")
        arrays.append(store.load_arrays(row.artifact))
    return arrays
