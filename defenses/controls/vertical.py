"""Defenses of vertical federations that are broken on purpose."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot as one_hot_of

from ...fl.streams import uniform
from ...fl.vertical.protection import Noise, VerticalContext, VerticalPlan
from ..vertical.columns.columns_randomised_response import ColumnsRandomisedResponse
from ..vertical.columns.embedding_bits import EmbeddingBits
from ..vertical.columns.embedding_gaussian import EmbeddingGaussian
from ..vertical.columns.protection import NoisedEmbeddingProtection, embedding_releases
from ..vertical.defense import ChannelProtection, VerticalPrepared, clipped, drawn, response_channel, through
from ..vertical.labels.label_gradient_noise import (
    ONE_LABEL,
    GradientNoiseProtection,
    LabelGradientNoise,
    ResidualNoiseProtection,
)
from ..vertical.labels.label_laplace import LabelLaplace
from ..vertical.labels.label_randomised_response import LabelRandomisedResponse
from ..vertical.labels.label_rr_with_prior import LabelRRWithPrior, likely_classes, top_k_channel
from .fault import Control


class ControlBitsInFull(Control, EmbeddingBits):
    """A broken defense: it randomises every bit of an embedding with the whole epsilon of a release, instead of a
    share.

    The real bug: the budget is taken for that of a message, and the randomiser is applied number by number.

    It states the claim of randomised signs, which an audit must refute: the epsilons of all numbers of an embedding add
    up. With embeddings of one number it is correct.
    """

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        each = self.each_of(embedding_releases(plan, sends_once=self.sends_once))
        return {"channel": response_channel(each, 2)}


@dataclass(frozen=True, kw_only=True)
class ControlBottomUnpaid(Control, EmbeddingGaussian):
    """A broken defense: it adds noise to embeddings, but its bottom models are trained on raw columns.

    The real bug: only embeddings are thought to be released; but the bottom model learns from each person's columns,
    and later embeddings of all people are computed from it.

    It states the claim of noised embeddings with bottom models by DP-SGD, which an audit must refute. Where the bottom
    models are frozen it is correct.
    """

    bottom_clip: float | None = 1.0

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"bottom_clip": None}


class ControlColumnsInFull(Control, ColumnsRandomisedResponse):
    """A broken defense: it randomises each column with the whole epsilon of a person, instead of a share.

    The real bug: the budget is taken for that of a person, and the randomiser is applied column by column.

    It states the claim of randomised columns, which an audit must refute: the epsilons of all numbers of a person add
    up. With one column it is correct.
    """

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"epsilons": (self.each_of(1),) * plan.network.passive}


class SharedEmbeddingNoiseProtection(NoisedEmbeddingProtection):
    """A broken protection whose noise is equal for all people of a batch."""

    def noised(self, values: Tensor, rng: np.random.Generator) -> Tensor:
        noise = drawn(self.noise, self.scale, (len(values), 1, values.shape[2]), rng)
        return clipped(values, self.clip_norm, self.noise) + noise


class ControlEmbeddingNoiseShared(Control, EmbeddingGaussian):
    """This broken noise on embeddings is drawn once per batch, and added to the embeddings of all its people.

    The real bug: noise of the shape of one row is broadcast over the batch.

    It states the claim of clipped embeddings with noise, which an audit must refute: the difference of two people's
    embeddings has no noise.
    """

    broken = SharedEmbeddingNoiseProtection


@dataclass(frozen=True, kw_only=True)
class ControlEmbeddingResent(Control, EmbeddingGaussian):
    """This broken noise on embeddings is that of one release, and they are sent in every epoch, each with new noise.

    The real bug: the budget is computed per message, and the training loop asks for the embeddings once per epoch.

    It states the claim of embeddings that are sent once, which an audit over several epochs must refute. In one epoch
    it is correct.
    """

    sends_once: bool = True

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"sends_once": False}


class UnclippedProtection(NoisedEmbeddingProtection):
    """A broken protection that adds noise to embeddings of any length."""

    def noised(self, values: Tensor, rng: np.random.Generator) -> Tensor:
        return values + drawn(self.noise, self.scale, tuple(values.shape), rng)


class ControlEmbeddingUnclipped(Control, EmbeddingGaussian):
    """A broken defense: it adds noise to embeddings that are not clipped.

    The real bug: embeddings are believed to be of the order of the clip norm, and the clip is left out.

    It states the claim of clipped embeddings with noise, which an audit with long rows must refute.
    """

    broken = UnclippedProtection


class ControlLabelBinaryFormula(Control, LabelRandomisedResponse):
    """This broken randomised response keeps a label with the probability of two classes, however many there are.

    The real bug: e^eps / (1 + e^eps) from a text about yes-or-no questions, with the rest divided among the other
    classes.

    With k classes its epsilon is larger by ln(k - 1), and an audit must refute its claims. With two classes it is
    correct.
    """

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        classes, each = plan.network.classes, self.each_of(self.releases(plan))
        kept = 1 / (1 + math.exp(-each))
        channel = torch.full((classes, classes), (1 - kept) / (classes - 1), dtype=torch.float64)
        return {"channel": channel.fill_diagonal_(kept)}


class SharedCoinProtection(ChannelProtection):
    """A broken protection whose people share one random number."""

    def targets(self, one_hot: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        labels, last = one_hot.argmax(-1), len(self.channel) - 1
        coin = uniform(rng, (len(labels), 1, 1), dtype=torch.float64)
        drawn = (coin >= self.channel.cumsum(1)[labels]).sum(-1).clamp_max(last)
        return one_hot_of(drawn, last + 1).to(one_hot.dtype)


class ControlLabelCoinShared(Control, LabelRandomisedResponse):
    """This broken randomised response throws one coin per training, and randomises the labels of all people by it.

    The real bug: a random number of the shape of a channel's row is drawn outside the loop over people. Each label on
    its own is randomised as stated, but the labels of two people of one class show together what the coin was.

    It states the claims of randomised response on labels, which an audit of all messages must refute. For a single
    person it is correct.
    """

    broken = SharedCoinProtection


class ControlLabelFlipsHalved(Control, LabelRandomisedResponse):
    """This broken randomised response flips labels half as often as its budget asks.

    The real bug: a label is flipped with probability p and replaced by a uniform class, but the formula for p is that
    of a mechanism whose other outcome is always another class, or a second coin is thrown before the flip.

    It states the claims of randomised response on labels, which an audit must refute: its epsilon is larger by ln 2 or
    more.
    """

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        classes = plan.network.classes
        right = response_channel(self.each_of(self.releases(plan)), classes)
        return {"channel": (right + torch.eye(classes, dtype=right.dtype)) / 2}


class ControlLabelLaplaceOne(Control, LabelLaplace):
    """This broken Laplace noise on one-hot labels takes their L1 distance for 1.

    The real bug: a label is one number out of k, so its sensitivity is set to 1; but two numbers of its one-hot
    encoding change.

    It states the claims of Laplace noise on labels, which an audit must refute: its epsilon is twice as large.
    """

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"scale": 1 / self.each_of(self.releases(plan))}


class ControlLabelsRedrawn(Control, LabelRandomisedResponse):
    """This broken randomised response draws labels again in every epoch, at the budget of one draw.

    The real bug: the randomiser sits in the data loader, which runs once per epoch.

    An audit over several epochs must refute its claims. In one epoch it is correct.
    """

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"redraws": True}


@dataclass(frozen=True, kw_only=True, eq=False)
class PriorOfLabelsProtection(ChannelProtection):
    """A broken protection that draws labels among the classes that are most frequent in the protected labels."""

    epsilon: float

    def targets(self, one_hot: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        classes, drawn = one_hot.shape[-1], one_hot.argmax(-1)
        # Replicas mostly hold equal labels, and one channel serves all of them.
        shares, which = one_hot.double().mean(1).unique(dim=0, return_inverse=True)  # type: ignore[no-untyped-call]
        for number, prior in enumerate(shares.tolist()):
            channel = top_k_channel(likely_classes(prior, self.epsilon), self.epsilon, classes)
            drawn[which == number] = through(channel, drawn[which == number], rng)
        return one_hot_of(drawn, classes).to(one_hot.dtype)


class ControlPriorOfLabels(Control, LabelRRWithPrior):
    """This broken randomised response with a prior takes the shares of the classes from the labels that it protects.

    The real bug: the prior is "what one knows about the classes", and a histogram of the training labels is at hand.

    It states the claims of randomised response with a public prior, which an audit must refute: where one label decides
    which classes are drawn at all, a class shows it for certain.
    """

    broken = PriorOfLabelsProtection

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"epsilon": self.epsilon}


class FullBatchesProtection(ResidualNoiseProtection):
    """A broken protection that leaves the residuals of a smaller batch as they are."""

    def residuals(self, values: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        full = values.shape[1] == context.plan.batch
        return super().residuals(values, context, rng) if full else values


class ControlResidualNoiseFullBatches(Control, LabelGradientNoise):
    """This broken noise on residuals is left out in a batch that is smaller than the others.

    The real bug: noise of a fixed shape is drawn ahead, and the branch for a last batch of another shape forgets it.

    It states the claims of noise on residuals, which an audit with a person in a smaller batch must refute. Where all
    batches are equal it is correct.
    """

    broken = FullBatchesProtection


class OneEpochProtection(ResidualNoiseProtection):
    """A broken protection that leaves residuals as they are from the second epoch on."""

    def residuals(self, values: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        return values if context.epoch else super().residuals(values, context, rng)


class ControlResidualNoiseOneEpoch(Control, LabelGradientNoise):
    """This broken noise on residuals is added in the first epoch only.

    The real bug: the noise is attached to a loss that is built once, and later epochs use the plain one.

    It states the claims of noise on residuals, which an audit over several epochs must refute. In one epoch it is
    correct.
    """

    broken = OneEpochProtection


class SharedResidualNoiseProtection(ResidualNoiseProtection):
    """A broken protection whose noise is equal for all people of a batch."""

    def residuals(self, values: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        return values + drawn(self.noise, self.scale, (len(values), 1, values.shape[2]), rng)


class ControlResidualNoiseShared(Control, LabelGradientNoise):
    """This broken noise on residuals is drawn once per batch, and added to the residuals of all its people.

    The real bug: noise of the shape of one row is broadcast over the batch.

    It states the claims of noise on residuals, which an audit must refute: the difference of two people's residuals has
    no noise.
    """

    broken = SharedResidualNoiseProtection


class ControlTopOnRawLabels(Control, LabelGradientNoise):
    """This broken label DP adds noise to the gradients that are sent, and trains the top model on raw labels.

    The real bug: only messages are thought to be released; but the top model learns the labels, and later messages
    about all people are computed from it.

    It states the claims of noise on residuals, which an audit must refute. A person's own gradients are clipped, so
    that the noise covers them; those of other people, and the final models, are not covered.
    """

    broken = GradientNoiseProtection

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"clip_norm": ONE_LABEL[Noise(self.noise)] / 2}
