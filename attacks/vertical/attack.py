"""Base classes of attacks on vertical federations, in which parties hold different columns of the same people.

Attacks infer labels, columns or membership. Those on labels may compute again what every model predicted in training,
for an adversary that knows all columns; those on columns may follow a passive party's bottom model from its public
initial parameters, or predict columns by a ridge regression on features and random rectified features.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...audit.claim import Adjacency, Unit
from ...audit.evidence import CandidateScores, Design, PersonColumns, PersonLabels, Setting
from ...audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY, Observer
from ...fl.fields import CountOrAll, Index, Several
from ...fl.streams import normal
from ...fl.vertical.network import Layers, VerticalModels, VerticalNetwork, moved, weighted_sum
from ...fl.vertical.protection import Noise, VerticalLaw, VerticalPlan
from ...fl.vertical.task import People
from ...fl.vertical.view import StepView, VerticalView
from ..attack import AttackPart, Level, Undefined

VerticalEvidence = PersonLabels | PersonColumns | CandidateScores


@dataclass(frozen=True, kw_only=True, eq=False)
class VerticalKnowledge:
    """The information that an adversary has in addition to its view of a vertical federation.

    Args:
        plan: the federation's public facts, with the architecture of all models.
        public: people of the same distribution, with all columns and labels.
        prior: (classes,), the share of each class, which is public.
        known: (m,), numbers of a few people whose labels the adversary has from elsewhere; attacks on labels leave them
            out of their result.
        known_labels: (m,), their labels.
        initial: the public models from which training starts, one replica.
        law: the public description of the noise in what the observer receives, where the defense publishes one.
        candidates: people whose membership is to be inferred, the first columns of ``CandidateScores``; None where the
            attack infers something else.
        final: the final models of all parties, first replica, for attacks on federations that publish them; else None.
        columns: (n, width) per party, of all people; None unless the adversary knows everything but labels (worst
            case).
    """

    level: Level
    plan: VerticalPlan
    public: People
    prior: Tensor
    known: Tensor
    known_labels: Tensor
    initial: VerticalModels
    law: VerticalLaw | None = None
    candidates: People | None = None
    final: VerticalModels | None = None
    columns: tuple[Tensor, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class VerticalAttack(AttackPart, ABC):
    """The base class of attacks on a vertical federation.

    ``infers``: what the attack finds out, ``labels``, ``columns`` or ``membership``; it returns ``PersonLabels``,
    ``PersonColumns`` or ``CandidateScores``.
    """

    observer: ClassVar[Observer] = PASSIVE_PARTY
    infers: ClassVar[Literal["labels", "columns", "membership"]] = "labels"

    def speeds(self, party: int) -> Mapping[int, float]:
        """Return factors on passive parties' learning rates, keyed by party, for a federation in which the passive
        party ``party`` carries out this attack. The default is no factors, for an attack that follows the protocol.
        """
        return {}

    @abstractmethod
    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> VerticalEvidence:
        """Carry out the attack on the first replica (independent run) of a view; all its randomness comes from
        ``rng``.
        """


def setting_of(view: VerticalView, unit: Unit = Unit.LABEL) -> Setting:
    """Return the setting of an attack on one run, whose scores of different people share the run's noise."""
    return Setting(
        unit=unit,
        adjacency=Adjacency.REPLACE_ONE,
        observer=view.observer,
        rounds=view.plan.epochs,
        design=Design.CLUSTERED,
    )


def clipped_rows(rows: Tensor, law: VerticalLaw) -> Tensor:
    """Return the rows clipped to the clip norm of the noise distribution: in L1 norm for Laplace noise, in L2 norm for
    Gaussian noise.
    """
    if law.clip is None:
        return rows
    order = 1 if law.noise is Noise.LAPLACE else 2
    lengths: Tensor = torch.linalg.vector_norm(rows, ord=order, dim=-1, keepdim=True)
    return rows * (law.clip / lengths.clamp_min(1e-30)).clamp(max=1.0)


@dataclass(frozen=True, kw_only=True)
class PersonLabelAttack(VerticalAttack, ABC):
    """A base class of attacks that score the possible labels of all people whose label the adversary does not know."""

    observer: ClassVar[Observer] = PASSIVE_PARTY
    infers: ClassVar[Literal["labels"]] = "labels"

    def evidence(self, scores: Tensor, view: VerticalView, knowledge: VerticalKnowledge) -> PersonLabels:
        """Return the attack's result, without the people whose labels are known.

        ``scores``: (people, classes) of all people, higher means more likely.
        """
        unknown = torch.ones(len(scores), dtype=torch.bool)
        unknown[knowledge.known] = False
        people = unknown.nonzero().squeeze(1)
        return PersonLabels(scores[people].double().numpy(), people.numpy(), setting_of(view))


@dataclass(frozen=True, kw_only=True)
class GradientLabelAttack(PersonLabelAttack, ABC):
    """A base class of attacks on the gradients that a passive party receives about each person.

    Args:
        epochs: the first epochs whose gradients are used, or ``"all"``.
    """

    epochs: CountOrAll = "all"

    def by_epoch(self, view: VerticalView, values: Callable[[StepView, Tensor], Tensor]) -> Tensor:
        """Return ``values`` for each person in each epoch that the attack uses, ``(epochs, people, k)``.

        ``values``: (step, its gradients (b, embedding) in double precision) -> (b, k); steps are visited in order.

        Raises ValueError for a view without gradients.
        """
        last = max((step.epoch for step in view.steps), default=0)
        epochs = last + 1 if self.epochs == "all" else min(self.epochs, last + 1)
        found: list[Tensor] = []
        for step in view.steps:
            if step.epoch >= epochs:
                break
            rows = values(step, gradients_of(step))
            if len(found) <= step.epoch:
                found.append(rows.new_zeros(view.plan.people, rows.shape[1]))
            found[step.epoch][step.people] = rows
        if not found:
            raise ValueError("view must hold the steps of a passive party, got none")
        return torch.stack(found)


def gradients_of(step: StepView) -> Tensor:
    """Return the gradients ``(b, embedding)`` that a passive party received in a step, in double precision.

    Raises ValueError for a view of another observer.
    """
    if step.gradients is None:
        raise ValueError(f"view of step {step.step} must hold the gradients that a passive party receives, got none")
    return step.gradients[0].double()


def unit_rows(rows: Tensor) -> Tensor:
    """Return the rows scaled to length 1; a row of zeros is not changed."""
    lengths: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / lengths.clamp_min(1e-30)


def scores_by_share(values: Tensor, share: float) -> Tensor:
    """Return scores ``(n, 2)`` for two classes from ``values (n,)`` that are larger for the second class. The given
    share of all people scores higher for the second class.
    """
    score = values - torch.quantile(values, 1 - share)
    return torch.stack([-score, score], dim=1)


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The predictions for people, and the values released about them, person by person, from a replayed training.

    ``probabilities``, ``residuals``: (epochs, people, classes); a residual is the probability minus the target, with
    the noise of the defense.
    """

    probabilities: Tensor
    residuals: Tensor


def replay(view: VerticalView, knowledge: VerticalKnowledge) -> Replayed:
    """Compute all models of a training again from the public initial models, all columns and the released residuals.

    Exact where all models are updated from the residuals that the passive party can compute from its gradients, without
    noise of other parties.

    Raises:
        Undefined: for embeddings that are smaller than the number of classes, from which no residual can be computed.
        ValueError: for knowledge without all columns, or a view without gradients.
    """
    network = view.plan.network
    if knowledge.columns is None:
        raise ValueError("knowledge must hold the columns of all parties, got none")
    if network.embedding < network.classes:
        raise Undefined(
            f"{network.embedding} numbers per person do not determine the residuals of {network.classes} classes"
        )
    models = VerticalModels(
        bottoms=tuple(_double(layers) for layers in knowledge.initial.bottoms), top=_double(knowledge.initial.top)
    )
    shape = (1 + max(step.epoch for step in view.steps), view.plan.people, network.classes)
    probabilities, residuals = torch.zeros(shape).double(), torch.zeros(shape).double()
    for step in view.steps:
        rows = tuple(block[step.people].double().unsqueeze(0) for block in knowledge.columns)
        models, predicted, released = _step(models, rows, step, view)
        probabilities[step.epoch, step.people], residuals[step.epoch, step.people] = predicted, released
    return Replayed(probabilities=probabilities, residuals=residuals)


def _double(layers: Layers) -> Layers:
    return tuple(layer[:1].double() for layer in layers)


def _step(
    models: VerticalModels, rows: tuple[Tensor, ...], step: StepView, view: VerticalView
) -> tuple[VerticalModels, Tensor, Tensor]:
    """The models after a step, and the probabilities and residuals ``(b, classes)`` in it."""
    plan, network = view.plan, view.plan.network
    outputs = [
        bottom.forward(layers, block)
        for bottom, layers, block in zip(network.bottoms, models.bottoms, rows, strict=True)
    ]
    logits, held = network.logits(models.top, tuple(values for values, _ in outputs))
    residuals = _residuals(network, models.top, held, gradients_of(step), view.party or 0)
    by_layers, back = network.by_embeddings(models.top, held, residuals)
    equal, rate = residuals.new_ones(residuals.shape[:2]), plan.learning_rate / len(step.people)
    top = moved(models.top, rate * weighted_sum(held, by_layers, equal)) if models.top else ()
    bottoms = list(models.bottoms)
    for party, (bottom, layers) in enumerate(zip(network.bottoms, models.bottoms, strict=True)):
        if not plan.frozen or party == network.passive:
            inputs = outputs[party][1]
            gradients, _ = bottom.backward(layers, inputs, back[party])
            bottoms[party] = moved(layers, rate * weighted_sum(inputs, gradients, equal))
    return VerticalModels(bottoms=tuple(bottoms), top=top), torch.softmax(logits, dim=-1)[0], residuals[0]


def _residuals(network: VerticalNetwork, top: Layers, held: Layers, gradients: Tensor, party: int) -> Tensor:
    """The residuals ``(1, b, classes)`` from the gradients ``(b, embedding)`` that a party received: the top model's
    derivative at each person is known, so they are the solution of linear equations.
    """
    if network.summed:
        return gradients.unsqueeze(0)
    each = one_hot(torch.arange(network.classes), network.classes).to(gradients)
    rows = [network.by_embeddings(top, held, one.expand(1, len(gradients), -1))[1][party][0] for one in each]
    inverse: Tensor = torch.linalg.pinv(torch.stack(rows, dim=1))
    return (gradients.unsqueeze(1) @ inverse).squeeze(1).unsqueeze(0)


@dataclass(frozen=True, kw_only=True)
class PersonColumnAttack(VerticalAttack, ABC):
    """A base class of attacks that reconstruct the columns of all people at one passive party.

    Args:
        party: number of the passive party.
    """

    observer: ClassVar[Observer] = ACTIVE_PARTY
    infers: ClassVar[Literal["columns"]] = "columns"
    party: Index = 0

    def check_party(self, view: VerticalView) -> None:
        """Raise ValueError unless the federation has this passive party."""
        passive = view.plan.network.passive
        if self.party >= passive:
            raise ValueError(f"party must be a passive party, 0..{passive - 1}, got {self.party}")

    def evidence(self, rows: Tensor, view: VerticalView) -> PersonColumns:
        """Return the attack's result; ``rows``: (people, width) of all people."""
        people = torch.arange(len(rows)).numpy()
        return PersonColumns(rows.double().numpy(), self.party, people, setting_of(view, Unit.SAMPLE))


Infer = Callable[[Layers, Tensor, Tensor, int], Tensor]
"""(layers, embeddings (m, embedding), their people (m,), number of embeddings that each is the mean of) -> the people's
rows (m, width).
"""


def followed_rows(view: VerticalView, knowledge: VerticalKnowledge, party: int, infer: Infer) -> Tensor:
    """Return the columns ``(people, width)`` of a passive party, as ``infer`` computes them from the party's
    embeddings.

    A frozen bottom model is public, and each person's embeddings are averaged over the epochs. Another one is public
    before the first step only. The active party knows the gradients that it sent, so the rows that it infers in a step
    also give the step's update, as long as the passive party adds no noise to it. The result is the mean over epochs.

    Inferred rows are cut to the range of the party's public columns, widened by its length on both sides: a wrong model
    must not grow without bound.

    Raises ValueError for a view without embeddings.
    """
    layers = tuple(layer.double() for layer in knowledge.initial.bottoms[party])
    public = knowledge.public.columns[party].double()
    low, high = float(public.min()), float(public.max())
    edges = (low - (high - low), high + (high - low))
    seen = [step for step in view.steps if step.embeddings]
    if not seen:
        raise ValueError("view must hold the embeddings that the active party receives, got none")
    if view.plan.frozen:
        values, times = _mean(view, [(step, step.embeddings[party][0].double()) for step in seen])
        return infer(layers, values, torch.arange(view.plan.people), times).clamp(*edges)
    found = []
    for step in seen:
        rows = infer(layers, step.embeddings[party][0].double(), step.people, 1).clamp(*edges)
        found.append((step, rows))
        layers = _updated(layers, rows, step.returned[party][0].double(), view, party)
    return _mean(view, found)[0]


def _mean(view: VerticalView, values: list[tuple[StepView, Tensor]]) -> tuple[Tensor, int]:
    """Each person's mean over the epochs, ``(people, k)``, and the number of epochs."""
    total = values[0][1].new_zeros(view.plan.people, values[0][1].shape[1])
    for step, rows in values:
        total[step.people] += rows
    epochs = len({step.epoch for step, _ in values})
    return total / epochs, epochs


def _updated(layers: Layers, rows: Tensor, back: Tensor, view: VerticalView, party: int) -> Layers:
    """The layers after the party's update by ``rows (b, width)`` and the gradients ``back (b, embedding)``."""
    bottom = view.plan.network.bottoms[party]
    _, held = bottom.forward(layers, rows.unsqueeze(0))
    gradients, _ = bottom.backward(layers, held, back.unsqueeze(0))
    total = weighted_sum(held, gradients, back.new_ones(1, len(back)))
    return moved(layers, view.plan.learning_rate / len(rows) * total)


# Penalties of which the best is chosen by leave-one-out errors on the public people.
_PENALTIES = tuple(10.0**power for power in range(-3, 6))


@dataclass(frozen=True, kw_only=True)
class ColumnRegression:
    """A regression on given features and on ``random`` additional features, which are rectified random combinations of
    them.

    Args:
        seed: of the random combinations.
    """

    random: int
    seed: int

    def predicted(self, features: Tensor, rows: Tensor, asked: Tensor) -> Tensor:
        """Return the predicted rows ``(m, width)`` of people with features ``asked (m, k)``, learned from public people
        with ``features (n, k)`` and ``rows (n, width)``.
        """
        from sklearn.linear_model import RidgeCV  # Imported late: half a second.

        spread = features.std(0, correction=0)
        centre, scale = features.mean(0), torch.where(spread > 0, spread, 1.0)
        known, wanted = (self._expanded((values - centre) / scale) for values in (features, asked))
        model = RidgeCV(alphas=_PENALTIES).fit(known.numpy(), rows.numpy())
        return torch.from_numpy(np.asarray(model.predict(wanted.numpy()))).view(len(asked), -1)

    def _expanded(self, rows: Tensor) -> Tensor:
        rng = np.random.default_rng(self.seed)
        weights = normal(rng, (rows.shape[1], self.random), dtype=torch.float64) / rows.shape[1] ** 0.5
        bias = normal(rng, (self.random,), dtype=torch.float64)
        return torch.cat([rows, torch.relu(rows @ weights + bias)], dim=1)


@dataclass(frozen=True, kw_only=True)
class RegressionAttack(PersonColumnAttack, ABC):
    """A base class of attacks that predict columns by a regression learned from public people.

    Args:
        random: rectified random combinations of the features, in addition to these.
        samples: largest number of public people whose rows are used.
    """

    random: Index = 100
    samples: Several = 1000

    def drawn(self, knowledge: VerticalKnowledge, rng: np.random.Generator) -> tuple[Tensor, ColumnRegression]:
        """Return the numbers of the public people from whom the attack learns, and the regression."""
        chosen = torch.from_numpy(rng.permutation(len(knowledge.public))[: self.samples])
        return chosen, ColumnRegression(random=self.random, seed=int(rng.integers(2**31)))


def held_features(view: VerticalView) -> Tensor:
    """Return the active party's own columns and labels, ``(people, k)``; raise ValueError for a view of another
    observer.
    """
    if view.columns is None or view.labels is None:
        raise ValueError("view must hold the columns and labels of the active party, got none")
    return _joined(view.columns, view.labels, view.plan.network.classes)


def public_features(knowledge: VerticalKnowledge) -> Tensor:
    """Return the same features as ``held_features``, for the public people, ``(n, k)``."""
    return _joined(knowledge.public.columns[-1], knowledge.public.labels, knowledge.plan.network.classes)


def _joined(columns: Tensor, labels: Tensor, classes: int) -> Tensor:
    return torch.cat([columns.double(), one_hot(labels, classes).double()], dim=1)


@dataclass(frozen=True, kw_only=True)
class PeopleMembershipAttack(VerticalAttack, ABC):
    """A base class of attacks that score candidates, of whom the adversary knows all columns and the label."""

    observer: ClassVar[Observer] = FINAL_MODEL
    infers: ClassVar[Literal["membership"]] = "membership"

    def shown(self, knowledge: VerticalKnowledge) -> People:
        """Return the candidates; raise ValueError if there are none."""
        if knowledge.candidates is None:
            raise ValueError(f"{type(self).__name__} needs candidates, got none")
        return knowledge.candidates

    def evidence(self, scores: np.ndarray, view: VerticalView) -> CandidateScores:
        """Return the attack's result; ``scores``: (n,), higher means that the candidate is a member."""
        return CandidateScores(scores, setting_of(view, Unit.SAMPLE))
