"""Defenses of a knowledge transfer by answers that are broken on purpose."""

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...fl.protection import State
from ...fl.streams import normal
from ...fl.transfer.protection import ReleasedLabels, TransferContext, counts_of
from ...fl.transfer.task import ABSTAINED
from ..accounting.votes import VOTE_L1, VOTE_L2, data_dependent_epsilon
from ..transfer.confident_gnmax import ConfidentGNMax, ConfidentVotes
from ..transfer.defense import GaussianMax, LaplaceMax, NoisyVotes, RandomVotes
from ..transfer.gaussian_logits import GaussianLogits, NoisyLogits
from ..transfer.gnmax import GNMax
from ..transfer.gnmax_data_dependent import GNMaxDataDependent, PublishedVotes, different
from ..transfer.grr_votes import GRRVotes
from ..transfer.lnmax import LNMax
from ..transfer.unary_votes import UnaryVotes
from .fault import Control


class BitsEachVotes(RandomVotes):
    """A broken protection whose answers have twice the stated epsilon, because each bit gets the epsilon of the whole
    answer.
    """

    def teacher_answers(
        self, logits: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> Tensor:
        twice = replace(self.randomiser, epsilon=2 * self.randomiser.epsilon)
        return RandomVotes(randomiser=twice).teacher_answers(logits, context, state, rng)


class ControlVotesBitsEach(Control, UnaryVotes):
    """This broken randomised response spends an answer's epsilon on every bit of the one-hot vote.

    The real bug: randomised response is epsilon-DP for a bit, and two one-hot votes differ in two bits.
    """

    broken = BitsEachVotes


class BudgetEachVotes(RandomVotes):
    """A broken protection that multiplies an answer's epsilon by the number of queries."""

    def teacher_answers(
        self, logits: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> Tensor:
        whole = replace(self.randomiser, epsilon=self.randomiser.epsilon * context.plan.queries)
        return RandomVotes(randomiser=whole).teacher_answers(logits, context, state, rng)


class ControlVotesBudgetEach(Control, GRRVotes):
    """This broken randomised response spends the whole epsilon on the answer to every query.

    The real bug: the epsilon of one answer is printed as that of the training, and the answers are not composed.
    """

    broken = BudgetEachVotes


class CheckUnpaidVotes(ConfidentVotes):
    """A broken protection whose checks have noise of standard deviation 1, whatever the budget is."""

    def largest(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        most = counts.amax(-1).double()
        return most + normal(rng, tuple(most.shape), dtype=torch.float64)


class ControlVotesCheckUnpaid(Control, ConfidentGNMax):
    """This broken Confident-GNMax does not pay for its checks, which get noise of one vote.

    The real bug: only released labels are accounted, because a query that is not answered seems to reveal nothing.
    Which queries are answered is seen, and with little noise it shows on which side of the threshold the largest count
    lies.
    """

    broken = CheckUnpaidVotes


class EpsilonPublishedVotes(PublishedVotes):
    """A broken protection that publishes a function of the votes as it is."""

    def number(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        rows, which = different(counts)
        each = [data_dependent_epsilon(one.numpy(), sigma=self.noise.scale, delta=self.delta) for one in rows]
        return torch.tensor(each, dtype=torch.float64)[which]


class ControlVotesEpsilonPublished(Control, GNMaxDataDependent):
    """This broken GNMax publishes the data-dependent epsilon of its votes without noise.

    The real bug: the epsilon that an analysis of the votes prints is reported next to the labels. It is a function of
    the private votes, and one vote more or less changes its digits.
    """

    broken = EpsilonPublishedVotes


class ExactLabelVotes(ConfidentVotes):
    """A broken protection whose released labels have no noise."""

    def aggregate_votes(
        self, answers: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> tuple[ReleasedLabels, State]:
        released, state = super().aggregate_votes(answers, context, state, rng)
        exact = counts_of(answers).argmax(-1)
        return ReleasedLabels(labels=exact.masked_fill(released.labels == ABSTAINED, ABSTAINED)), state


class ControlVotesExactLabel(Control, ConfidentGNMax):
    """This broken Confident-GNMax releases the exact majority of the votes where the noisy check passes.

    The real bug: a query on which teachers agree seems to need no more noise, and only the check draws some.
    """

    broken = ExactLabelVotes


class NoClipLogits(NoisyLogits):
    """A broken protection that adds noise to logits of any size."""

    def teacher_answers(
        self, logits: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> Tensor:
        return logits + self.noise_std * normal(rng, tuple(logits.shape))


class ControlVotesNoClip(Control, GaussianLogits):
    """This broken noise on logits clips nothing.

    The real bug: logits are taken to lie within the clip bound, because those of an untrained model do.
    """

    broken = NoClipLogits


class NoiseOnceVotes(NoisyVotes):
    """A broken protection that leaves the counts of all queries but the first without noise."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        noised = counts.double().clone()
        noised[:, :1] = super().noised(counts[:, :1], rng)
        return noised


class ControlVotesNoiseOnce(Control, GNMax):
    """This broken GNMax adds noise to the votes on the first query only.

    The real bug: the noise is drawn before the loop over queries and added inside a branch for the first one, or an
    array of noise with one row is broadcast and zeroed. All later labels are exact majorities.
    """

    broken = NoiseOnceVotes


class LateBareVotes(NoisyVotes):
    """A broken protection whose noise was drawn for the first 16 queries alone."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        return torch.cat([super().noised(counts[:, :16], rng), counts[:, 16:].double()], dim=1)


class ControlVotesLateBare(Control, GNMax):
    """This broken GNMax leaves the counts of all queries after the first 16 without noise.

    The real bug: noise is drawn for one batch of queries, and padded with zeros for all that follow.
    """

    broken = LateBareVotes


class UnanimousBareVotes(NoisyVotes):
    """A broken protection that draws no noise where all teachers agree."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        agreed = counts.amax(-1, keepdim=True) == counts.sum(-1, keepdim=True)
        return torch.where(agreed, counts.double(), super().noised(counts, rng))


class ControlVotesUnanimousBare(Control, LNMax):
    """This broken LNMax releases the label of all teachers without noise where they agree.

    The real bug: a label on which all agree seems to say nothing about any of them. One teacher that votes otherwise
    makes other labels possible.
    """

    broken = UnanimousBareVotes


class NoiseReusedVotes(NoisyVotes):
    """A broken protection that draws the noise of one query and adds it to all."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        noise = super().noised(counts[:, :1] * 0, rng)
        return counts + noise


class ControlVotesNoiseReused(Control, GNMax):
    """This broken GNMax adds the same noise to the votes on every query.

    The real bug: a generator that is seeded inside the function of a query. A label of known votes then shows between
    which numbers the noise lies, and the label of the next query shows a vote exactly.
    """

    broken = NoiseReusedVotes


class ScaleHalvedVotes(NoisyVotes):
    """A broken protection whose noise has half the scale."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        return LaplaceMax(self.noise.scale / VOTE_L1).noised(counts, rng)


class ControlVotesScaleHalved(Control, LNMax):
    """This broken LNMax takes 1 / b for the epsilon of a label, where it is 2 / b.

    The real bug: the scale of a count, of which one teacher changes one vote, although a changed vote changes two
    counts.
    """

    broken = ScaleHalvedVotes


class SensitivityVotes(NoisyVotes):
    """A broken protection whose noise is too small by the factor sqrt 2."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        return GaussianMax(self.noise.scale / VOTE_L2).noised(counts, rng)


class ControlVotesSensitivity(Control, GNMax):
    """This broken GNMax is calibrated to sensitivity 1 where a changed vote moves the counts by the root of 2.

    The real bug: the sensitivity of one count, or of a teacher that is added, taken for that of a teacher that votes
    otherwise: two counts change.
    """

    broken = SensitivityVotes


class TopTwoVotes(NoisyVotes):
    """A broken protection that never releases a label whose count is below the second largest."""

    def noised(self, counts: Tensor, rng: np.random.Generator) -> Tensor:
        second = counts.topk(2, dim=-1).values[..., 1:]
        return super().noised(counts, rng).masked_fill(counts < second, -math.inf)


class ControlVotesTopTwo(Control, GNMax):
    """This broken GNMax adds noise to the two largest vote counts only, and releases one of their labels.

    The real bug: all other labels seem to have no chance, and are left out for speed. Which labels are left out depends
    on the votes, and a label that one vote brings back shows it.

    With two labels it is correct.
    """

    broken = TopTwoVotes
