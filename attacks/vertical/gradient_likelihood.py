"""Attack that computes how likely each label makes the received gradients, under the defense's published law."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...audit.evidence import PersonLabels
from ...fl.fields import Count
from ...fl.vertical.protection import Noise, Noised, VerticalLaw
from ...fl.vertical.view import VerticalView
from ..attack import Level, Undefined
from .attack import PersonLabelAttack, Replayed, VerticalKnowledge, clipped_rows, replay
from .gradient_sign import GradientSign

# People at once: each has a row for each epoch and draw of the predictions.
_CHUNK = 500
_TINY = 1e-12
# Smallest mean probability of a class, so that its share of the draws has a distribution.
_LEAST = 0.02


@dataclass(frozen=True, kw_only=True)
class GradientLikelihood(PersonLabelAttack):
    """An attack whose score of a label is its log posterior probability, up to a constant of the person.

    The prior is the classes' shares. What is multiplied over the releases is

    - under a label channel: the channel's probability of the label that was released, read as in ``gradient_sign``;
    - under additive noise on residuals or gradients: the noise's density of the residual that was received;
    - under additive noise on targets: the posterior over the prediction, because the active party is taken to train on
      the posterior of the label given its noised target, with the prediction as the prior (``label_laplace``).

    A residual is the predicted probabilities minus the target. A passive party does not know the predictions, which
    depend on the other parties' columns. With ``knows = "gradients"`` it averages the density over predictions that are
    the same in all epochs, from a Dirichlet distribution whose mean is that of the received residuals plus the classes'
    shares, and whose concentration is the number of classes. That loses much where the model predicts well. It needs
    embeddings that are summed to logits, where the gradients are the residuals. The party's own columns are left out,
    so that the scores show what messages reveal.

    With ``knows = "columns"`` the adversary knows all columns of all people and computes the predictions again step by
    step (worst case: it lacks the labels alone). The posterior is then exact where every model is updated from the
    released residuals alone, that is under channels and under noise on targets or residuals that is the only
    randomness, and where the top model's derivative by the party's embedding has full rank. This needs embeddings with
    at least as many numbers as there are classes.

    Args:
        knows: ``"gradients"``, the received gradients alone, or ``"columns"``, all columns of all people as well.
        draws: predictions drawn for the average.
    """

    knows: Literal["gradients", "columns"] = "gradients"
    draws: Count = 256

    @property
    def level(self) -> Level:
        return Level.WORST_CASE if self.knows == "columns" else Level.REALISTIC

    def run(self, view: VerticalView, knowledge: VerticalKnowledge, rng: np.random.Generator) -> PersonLabels:
        """Return scores ``(n, classes)``.

        Raises:
            Undefined: if no law is published, the law is about embeddings, or the residuals or predictions cannot be
                computed.
            ValueError: for a view without gradients, or knowledge without the columns of all parties.
        """
        law = knowledge.law
        if law is None:
            raise Undefined(
                "the defense publishes no noise distribution of the received gradients; for gradients without noise "
                "use gradient_sign"
            )
        if law.noised in (Noised.EMBEDDINGS, Noised.COLUMNS):
            raise Undefined(
                f"the published noise distribution is that of {law.noised}, which do not depend on one person's label"
            )
        if self.knows == "columns" and law.noised is Noised.GRADIENTS:
            raise Undefined("models are updated from gradients that the party does not see, so no prediction is known")
        replayed = replay(view, knowledge) if self.knows == "columns" else None
        if law.channel is not None:
            found = _channel_likelihood(law.channel.double(), self._read(view, knowledge, law, replayed))
        elif replayed is not None:
            found = _known_predictions(replayed, law)
        else:
            found = self._drawn_predictions(view, knowledge, law, rng)
        return self.evidence(found + knowledge.prior.double().clamp_min(1e-30).log(), view, knowledge)

    def _read(
        self, view: VerticalView, knowledge: VerticalKnowledge, law: VerticalLaw, replayed: Replayed | None
    ) -> Tensor:
        """The released labels as the gradients show them, ``(releases, people)``."""
        if replayed is None:
            scores = GradientSign(epochs="all" if law.releases > 1 else 1).readings(view, knowledge)
        else:
            scores = replayed.probabilities - replayed.residuals
            scores = scores if law.releases > 1 else scores.mean(0, keepdim=True)
        return scores.argmax(-1)

    def _drawn_predictions(
        self, view: VerticalView, knowledge: VerticalKnowledge, law: VerticalLaw, rng: np.random.Generator
    ) -> Tensor:
        network = view.plan.network
        if not network.summed:
            raise Undefined("the top model is not public, so gradients cannot be converted to residuals")
        residuals = -GradientSign(epochs="all").readings(view, knowledge)
        mean = (residuals.mean((0, 1)) + knowledge.prior.double()).clamp_min(_LEAST)
        drawn = rng.dirichlet((network.classes * mean / mean.sum()).numpy(), size=self.draws)
        parts = torch.split(residuals, _CHUNK, dim=1)
        return torch.cat([_averaged(part, torch.from_numpy(drawn), law) for part in parts])


def _channel_likelihood(channel: Tensor, read: Tensor) -> Tensor:
    """Log probability ``(people, classes)`` of the labels ``read (releases, people)`` under each true label."""
    return channel.clamp_min(1e-30).log().T[read].sum(0)


def _known_predictions(replayed: Replayed, law: VerticalLaw) -> Tensor:
    """Log likelihood of each label, ``(people, classes)``, with each person's own predictions."""
    return _over_releases(_log_likelihoods(replayed.residuals, replayed.probabilities, law), law)


def _averaged(residuals: Tensor, predictions: Tensor, law: VerticalLaw) -> Tensor:
    """Log of the sum of the likelihoods ``(n, classes)`` over ``predictions (draws, classes)``, of ``residuals
    (epochs, n, classes)``.
    """
    logs = torch.stack([_log_likelihoods(rows.unsqueeze(1), predictions, law) for rows in residuals])
    return torch.logsumexp(_over_releases(logs, law), dim=1)


def _over_releases(logs: Tensor, law: VerticalLaw) -> Tensor:
    """The sum over the epochs ``(epochs, ...)``, or their mean where all epochs show the same release."""
    return logs.sum(0) if law.releases > 1 else logs.mean(0)


def _log_likelihoods(residuals: Tensor, predictions: Tensor, law: VerticalLaw) -> Tensor:
    """Log likelihood of each label, in the last dimension, up to a constant, of one release each."""
    return (
        _log_ratios(residuals, predictions)
        if law.noised is Noised.TARGETS
        else _log_densities(residuals, predictions, law)
    )


def _log_ratios(residuals: Tensor, predictions: Tensor) -> Tensor:
    """Log of posterior over prediction, normalised over the classes."""
    ratios = (predictions - residuals).clamp_min(_TINY).log() - predictions.clamp_min(_TINY).log()
    return torch.log_softmax(ratios, dim=-1)


def _log_densities(residuals: Tensor, predictions: Tensor, law: VerticalLaw) -> Tensor:
    """Log density of the noise for each label in the last dimension, up to a constant."""
    found = []
    for label in range(predictions.shape[-1]):
        without_noise = clipped_rows(predictions - one_hot(torch.tensor(label), predictions.shape[-1]), law)
        differences = residuals - without_noise
        if law.noise is Noise.LAPLACE:
            found.append(-differences.abs().sum(-1) / law.scale)
        else:
            found.append(-differences.square().sum(-1) / (2 * law.scale**2))
    return torch.stack(found, dim=-1)
