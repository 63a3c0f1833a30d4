"""Faults of sampling and weights: units are not drawn, or not weighted, as the accountant assumes."""

import numpy as np
import torch
from torch import Tensor

from ...fl.laws import clipped_sum
from ...fl.message import Message
from ...fl.protection import Context, State
from ..sample_level.dp_sgd import DPSGD, DPSGDProtection
from .case import At, ClientCase, Fault, SampleCase, lengths_of
from .fault import Control


class _ThinnedLots(SampleCase):
    """Half of each lot is drawn again."""

    thinning = 0.5
    published = False

    def chosen(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        """Draw which samples of a lot are used."""
        return present & (at.uniform(*present.shape) < 0.5)

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        return 2 * clipped_sum(gradients, self.chosen(gradients, present, at), self.clip_norm)

    def noise(self, like: Tensor, at: At) -> Tensor:
        return 2 * super().noise(like, at)


class EveryOther(Fault, _ThinnedLots):
    """A broken protection: rounds use the samples at even and at odd positions in turn, instead of sampling each one
    independently.
    """

    def chosen(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        places = torch.arange(present.shape[1])
        return present & (places % 2 == (at.round + len(places) + 1) % 2)


class CoinForEight(Fault, _ThinnedLots):
    """One coin decides for eight neighbouring samples of a lot together."""

    def chosen(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        coins = at.uniform(*present.shape) < 0.5
        return present & coins[:, torch.arange(present.shape[1]) // 8 * 8]


class BiasedCoin(Fault, _ThinnedLots):
    """Samples with long gradients are kept with probability .95, short ones with .1; the accountant assumes .5."""

    def chosen(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        lengths = lengths_of(gradients).squeeze(-1).nan_to_num(posinf=1e30)
        rate = torch.where(lengths > self.clip_norm, 0.95, 0.1)
        return present & (at.uniform(*present.shape) < rate)


class _ThinnedCohorts(ClientCase):
    """A fair coin per client decides again who takes part."""

    thinning = 0.5

    def participates(self, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        at = At(context=context, state=state, rng=rng)
        return self.drawn(at.uniform(context.replicas, len(context.senders)) < 0.5, at)

    def drawn(self, coins: Tensor, at: At) -> Tensor:
        """Return the cohort that one coin for each client gives."""
        return coins


class FixedCohort(Fault, _ThinnedCohorts):
    """The cohort is drawn once and stays for all rounds."""

    def drawn(self, coins: Tensor, at: At) -> Tensor:
        if at.round == 0:
            self.memory["cohort"] = coins
        return self.remembered("cohort", coins)


class Turns(Fault, _ThinnedCohorts):
    """Clients take part in turns, in a public order, instead of by coins."""

    def drawn(self, coins: Tensor, at: At) -> Tensor:
        even = (torch.tensor(at.context.senders, dtype=torch.int64) + at.round) % 2 == 0
        return even.expand_as(coins).clone()


class OneCoinForAll(Fault, _ThinnedCohorts):
    """One coin decides for all clients together, and an empty round shows it."""

    def drawn(self, coins: Tensor, at: At) -> Tensor:
        return coins[:, :1].expand_as(coins).clone()


class SecretCohorts(ClientCase):
    """The hook ``participates`` draws a cohort that other clients do not see; its rate counts as amplification."""

    thinning = 0.3

    def participates(self, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        at = At(context=context, state=state, rng=rng)
        return at.uniform(context.replicas, len(context.senders)) < self.thinning


class ActualCohort(Fault, ClientCase):
    """Sum and noise are divided by the number of clients that came, which the scale of the noise shows."""

    def mean(self, received: Message, at: At) -> Tensor:
        came = received.present.sum(1, keepdim=True).clamp_min(1)
        return super().mean(received, at) * (self.divisor(at.plan) / came)


class MeanOfPresent(Fault, ClientCase):
    """The mean is over the clients that came, and its noise is for the expected cohort."""

    def total(self, received: Message, at: At) -> Tensor:
        came = received.present.sum(1, keepdim=True).clamp_min(1)
        return super().total(received, at) * (self.divisor(at.plan) / came)


class RescaledByLargest(Fault, ClientCase):
    """The sum is rescaled so that its longest update has the clip norm, and so one client rescales all others."""

    def total(self, received: Message, at: At) -> Tensor:
        total = super().total(received, at)
        if not received.values.shape[1]:
            return total
        longest = lengths_of(received.values).squeeze(-1).amax(1, keepdim=True)
        return total / longest.clamp_min(1e-3 * self.clip_norm) * self.clip_norm


class WeightAfterClip(Fault, ClientCase):
    """A client weights its update by its progress after the clip, by up to 4."""

    def clipped(self, values: Tensor, at: At) -> Tensor:
        lengths = lengths_of(values).nan_to_num(posinf=100.0)
        return super().clipped(values, at) * (lengths / self.clip_norm).clamp(0.5, 4)


class NewClientsLouder(Fault, ClientCase):
    """A client's first update counts three times, after the clip."""

    def sent(self, updates: Message, at: At) -> Message:
        sent = super().sent(updates, at)
        if at.round == 0:
            self.memory.clear()
        values = sent.values.clone()
        for row, sender in enumerate(updates.senders or ()):
            there = updates.present[:, row]
            seen = self.remembered(sender, torch.zeros_like(there))
            values[:, row] *= torch.where(seen, 1.0, 3.0).unsqueeze(-1)
            self.memory[sender] = seen | there
        return sent.with_values(values)


class ActualLotProtection(DPSGDProtection):
    """A broken protection that divides by the actual batch size, which is private; the correct version divides by the
    expected size.
    """

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        direction = super().local_step(gradients, present, client, context, state, rng)
        # The parent has divided by the expected lot already: undo that, then divide by the samples that are present.
        return direction * context.plan.expected_lot(client) / present.sum(1, keepdim=True).clamp_min(1)


class ControlActualLot(Control, DPSGD):
    """This broken DP-SGD divides the noised sum by the actual size of the sampled batch, not by the expected size.

    The real bug: ``.mean()`` over a Poisson sample. The size shows who was drawn, through the scale of the sum and of
    the noise, and large lots carry less noise than the accountant assumes.
    """

    broken = ActualLotProtection
