"""Train one vertical federation and run every attack of the suite on it; a failure is stored as a result row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...attacks.attack import Level
from ...attacks.vertical.attack import VerticalAttack, VerticalKnowledge
from ...audit.evidence import CandidateScores, PersonColumns, PersonLabels
from ...audit.wording import counted
from ...defenses.vertical.defense import VerticalPrepared
from ...fl.streams import Streams
from ...fl.vertical.engine import run_vertical
from ...fl.vertical.network import VerticalModels
from ...fl.vertical.protection import VerticalLaw, VerticalPlan
from ...fl.vertical.task import People, VerticalTask, predicted, utility_of
from ...fl.vertical.view import VerticalRecorder
from ..attacking.finished_cells import AttackCell, Clock
from ..attacking.jobs import TrainingJob
from ..config.other_federations import vertical_plan_of, vertical_task_of
from ..config.tables.other_federations import VerticalSpec
from ..results.cell import Cell
from ..results.record import Record
from ..results.store import Store
from ..scoring.label_rows import score_person_columns, score_person_labels
from ..scoring.membership_rows import all_scores, score_membership

CANDIDATES = 400
"""Most candidates of a membership attack of either kind, members and non-members."""


@dataclass(kw_only=True, eq=False)
class TrainedVertical:
    """A trained vertical federation, with everything that each observer of an attack received during its training."""

    task: VerticalTask
    plan: VerticalPlan
    streams: Streams
    final: VerticalModels
    recorders: dict[str, VerticalRecorder]


@dataclass(frozen=True, kw_only=True)
class VerticalTrialJob(TrainingJob):
    """A job that trains one vertical federation once and runs all attacks on it."""

    federation: VerticalSpec
    prepared: VerticalPrepared

    @property
    def words(self) -> str:
        spec = self.federation
        holders = spec.columns if isinstance(spec.columns, int) else len(spec.columns)
        parties = f"columns at {holders} of {holders + (not spec.active)} parties"
        return f"{parties}, {counted(spec.epochs, 'epoch')}"

    def trained(self, store: Store, clock: Clock) -> TrainedVertical:
        return self._trained([item.entry.part.instance for item in self.attacks])

    def _trained(self, attacks: Sequence[VerticalAttack], attacker: VerticalAttack | None = None) -> TrainedVertical:
        """Train the federation for the observers of some attacks, or again for one active attacker."""
        task, streams = vertical_task_of(self.federation, self.seed), Streams(self.seed)
        plan = vertical_plan_of(self.federation, task)
        observers = {str(attack.observer): attack.observer for attack in attacks}
        recorders = {name: VerticalRecorder(observer=observer) for name, observer in observers.items()}
        speeds = {} if attacker is None else attacker.speeds(0)  # The first passive party attacks.
        final = run_vertical(
            task, plan, self.prepared.protection, streams, recorders=list(recorders.values()), speeds=speeds
        )
        if not all(bool(torch.isfinite(layer).all()) for layers in (*final.bottoms, final.top) for layer in layers):
            raise FloatingPointError("training diverged: the final models hold NaN or infinity")
        return TrainedVertical(task=task, plan=plan, streams=streams, final=final, recorders=recorders)

    def utility(self, cell: Cell, trained: TrainedVertical, store: Store) -> list[Record]:
        """Return the accuracy on the test people and, for two classes, the area under the ROC curve."""
        task, protection = trained.task, self.prepared.protection
        logits = predicted(trained.final, task.test, trained.plan, protection, trained.streams)[0]
        found, n = utility_of(logits, task.test.labels), len(task.test)
        values = {"accuracy": (found.accuracy, "share of people", "higher_better")}
        values["loss"] = (found.loss, "nats", "lower_better")
        if found.auc is not None:
            values["test_auc"] = (found.auc, "probability", "higher_better")
        return [
            cell.record(metric=metric, value=value, n=n, unit=unit, direction=direction)
            for metric, (value, unit, direction) in values.items()
        ]

    def attacked(self, item: AttackCell, trained: TrainedVertical, store: Store) -> list[Record]:
        attack: VerticalAttack = item.entry.part.instance
        # An active party changes the training, so its view comes from a federation of its own.
        if attack.active:
            trained = self._trained([attack], attack)
        recorder, people = trained.recorders[str(attack.observer)], trained.task.people
        view = recorder.view(trained.plan, trained.final, columns=people.columns, labels=people.labels)
        chosen = _candidates(trained) if attack.infers == "membership" else None
        knowledge = knowledge_of(trained, attack, self, chosen and chosen[0])
        evidence = attack.run(view, knowledge, trained.streams.generator(f"attack {item.entry.label}"))
        if isinstance(evidence, PersonLabels):
            return score_person_labels(item.cell, _without_known(evidence, knowledge), people)
        if isinstance(evidence, PersonColumns):
            return score_person_columns(item.cell, evidence, people)
        if isinstance(evidence, CandidateScores):
            if chosen is None:
                raise TypeError('an attack that returns membership scores must set infers = "membership"')
            return score_membership(item.cell, all_scores(evidence, chosen[1]), store, adversary=attack.adversary)
        raise TypeError(
            "an attack on a vertical federation must return PersonLabels, PersonColumns or CandidateScores, "
            f"got {type(evidence).__name__}"
        )


def _without_known(evidence: PersonLabels, knowledge: VerticalKnowledge) -> PersonLabels:
    """The guesses about people whose labels the adversary did not have before."""
    new = ~np.isin(evidence.people, knowledge.known.numpy())
    if not new.any():
        raise ValueError("the attack guessed the labels of people whose labels are known, and of no other")
    return PersonLabels(evidence.scores[new], evidence.people[new], evidence.setting)


def _candidates(trained: TrainedVertical) -> tuple[People, np.ndarray]:
    """Equally many people that took part and public ones, in an order that reveals nothing, and which took part."""
    rng, task = trained.streams.generator("candidates"), trained.task
    count = min(CANDIDATES, len(task.people), len(task.public))
    inside, outside = (
        side.chosen(torch.from_numpy(rng.permutation(len(side))[:count])) for side in (task.people, task.public)
    )
    order = torch.from_numpy(rng.permutation(2 * count))
    columns = tuple(torch.cat(pair)[order] for pair in zip(inside.columns, outside.columns, strict=True))
    both = People(columns=columns, labels=torch.cat([inside.labels, outside.labels])[order])
    return both, (order < count).numpy()


def knowledge_of(
    trained: TrainedVertical, attack: VerticalAttack, job: VerticalTrialJob, candidates: People | None = None
) -> VerticalKnowledge:
    """Return what the adversary of an attack knows in addition to its view.

    The public people's share of each class is its prior. The stream ``known`` chooses the people whose labels it has.
    """
    task, plan, streams = trained.task, trained.plan, trained.streams
    order = torch.from_numpy(streams.generator("known").permutation(plan.people))
    known = order[: job.federation.known]
    counts = torch.bincount(task.public.labels, minlength=task.network.classes).double() + 1
    laws = [
        job.prepared.laws[claim.claim_id]
        for claim in job.prepared.claims
        if claim.observer == attack.observer and claim.claim_id in job.prepared.laws
    ]
    law: VerticalLaw | None = next(iter(laws), None)
    return VerticalKnowledge(
        level=attack.level,
        plan=plan,
        public=task.public,
        prior=counts / counts.sum(),
        known=known,
        known_labels=task.people.labels[known],
        initial=task.network.initial(streams),
        law=law,
        candidates=candidates,
        # A worst-case adversary knows everything but what it infers.
        columns=task.people.columns if attack.level is Level.WORST_CASE and attack.infers == "labels" else None,
        final=trained.final if attack.level is Level.WORST_CASE else None,
    )
