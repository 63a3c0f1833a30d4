"""Faults of clipping, where the clip does not bound what the accountant assumes, and unusual correct clips."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.observer import UPLOADS, Observer
from ...fl.laws import Law, LayeredGaussianLaw, clip, clip_layers, clipped_sum, layer_starts, lot_sum, spread_layers
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ...fl.streams import normal
from ..accounting.gaussian import gaussian_curve, gaussian_noise, poisson_rate
from ..client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from ..client_level.user_level import UserLevel, UserLevelProtection
from ..defense import Prepared
from ..sample_level.dp_sgd import DPSGD, DPSGDProtection
from .case import At, ClientCase, Fault, ReportCase, SampleCase, layers_of, lengths_of
from .fault import Control
from .local import clip_l1


class PerLayerClip(Fault, SampleCase):
    """A broken protection: it clips each layer to the clip norm of the whole update."""

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        layers = layers_of(at.plan.layout)
        return torch.cat([clipped_sum(gradients[..., part], present, self.clip_norm) for part in layers], dim=-1)


class FirstRowFree(Fault, SampleCase):
    """The first sample of each lot, by which the clip is initialised, is not clipped."""

    curve = False

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        first = gradients[:, :1].nan_to_num()
        more = lot_sum(first - clip(first, self.clip_norm), present[:, :1])
        return super().total(gradients, present, at) + more


class LargestEntry(Fault, ClientCase):
    """Single numbers are clamped to the clip norm, and the vector is not clipped."""

    def clipped(self, values: Tensor, at: At) -> Tensor:
        return values.nan_to_num().clamp(-self.clip_norm, self.clip_norm)


class ShortPass(Fault, ClientCase):
    """Updates shorter than three clip norms pass unclipped, as a tolerance."""

    def clipped(self, values: Tensor, at: At) -> Tensor:
        return torch.where(lengths_of(values) < 3 * self.clip_norm, values, super().clipped(values, at))


class PerStepBound(Fault, ClientCase):
    """A broken defense: it clips each local step and not the update, whose norm can be as many times larger."""

    local_steps = 2

    def clipped(self, values: Tensor, at: At) -> Tensor:
        return clip(values, self.clip_norm * at.plan.algorithm.local_steps)


class AverageThenClip(Fault, ClientCase):
    """The mean of the updates is clipped, with the noise that fits one client's share of it."""

    def clipped(self, values: Tensor, at: At) -> Tensor:
        return values.nan_to_num()

    def total(self, received: Message, at: At) -> Tensor:
        divisor = self.divisor(at.plan)
        return clip(super().total(received, at) / divisor, self.clip_norm) * divisor


class _AutomaticClip(ClientCase):
    published = False

    def scaled(self, rows: Tensor, lengths: Tensor) -> Tensor:
        """Return rows of length 1 at most."""
        return rows / (lengths + 0.01)

    def clipped(self, values: Tensor, at: At) -> Tensor:
        rows = values.nan_to_num().clamp(-1e15, 1e15)
        return self.clip_norm * self.scaled(rows, lengths_of(rows))


class WrongBracket(Fault, _AutomaticClip):
    """Automatic clipping has a misplaced bracket: row / length + gamma row, instead of row / (length + gamma)."""

    def scaled(self, rows: Tensor, lengths: Tensor) -> Tensor:
        return rows / lengths.clamp_min(1e-6) + 0.01 * rows


class NoClipProtection(DPSGDProtection):
    """A broken protection that sums the gradients without clipping them."""

    def total(self, gradients: Tensor, present: Tensor) -> Tensor:
        return lot_sum(gradients, present)


class ControlNoClip(Control, DPSGD):
    """This broken DP-SGD does not clip gradients.

    The real bug: the clip is applied to a copy, or to the mean of the batch, so that one sample can move the sum
    without a bound.
    """

    broken = NoClipProtection


class BatchClipProtection(NoClipProtection):
    """A broken protection that scales all gradients of a batch by one factor and does not clip single gradients."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        lengths = torch.linalg.vector_norm(gradients, dim=-1).masked_fill(~present, 0)
        # Only samples that were drawn count: a factor set by the others would be a second bug.
        mean = lengths.sum(1) / present.sum(1).clamp_min(1)
        factor = self.clip_norm / mean.clamp_min(self.clip_norm)
        return super().local_step(gradients * factor[:, None, None], present, client, context, state, rng)


class ControlBatchClip(Control, DPSGD):
    """This broken DP-SGD scales the whole batch by one factor instead of clipping each sample's gradient.

    The real bug: one clip per batch, by the mean of the samples' norms. A gradient that is much longer than all others
    sets the factor and enters with up to n clip norms, where n is the size of the lot.
    """

    broken = BatchClipProtection


class ClipAfterMeanProtection(DPSGDProtection):
    """A broken protection that clips the mean gradient of the batch, not each gradient, and adds the noise of the
    correct version.
    """

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        lot = context.plan.expected_lot(client)
        mean = gradients.masked_fill(~present.unsqueeze(-1), 0).sum(1) / lot
        noise = self.noise_multiplier * self.clip_norm * normal(rng, tuple(mean.shape))
        # The mean has sensitivity up to 2 clip norms; the noise is for one clip norm over the lot.
        return clip(mean, self.clip_norm) + noise / lot


class ControlClipAfterMean(Control, DPSGD):
    """This broken DP-SGD clips the mean gradient of the batch instead of each sample's gradient.

    The real bug: ``clip_grad_norm_`` after ``loss.mean().backward()``. One long gradient turns the whole mean, by up to
    twice the clip norm, while the noise is scaled to the clip norm over the lot.
    """

    broken = ClipAfterMeanProtection


class AdaptiveClipRawProtection(DPFedAvgProtection):
    """A broken protection that clips to the exact median norm of the previous round; the noise distribution that its
    method ``law`` returns is right in the first round only.
    """

    def initial_state(self, plan: Plan) -> State:
        return {"clip_norm": torch.tensor(self.clip_norm), "medians": []}

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        bound, lengths = state["clip_norm"], torch.linalg.vector_norm(updates.values, dim=-1)
        # Absent clients have zero rows; counting them would pull the median to 0.
        median = lengths.masked_fill(~updates.present, torch.nan).nanmedian(1, keepdim=True).values
        state["medians"].append(torch.where(median.isnan(), bound, median.clamp_min(1e-6)))
        return updates.with_values(updates.values * (bound / torch.maximum(lengths, bound)).unsqueeze(-1))

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1)
        noise: Tensor = self.noise_multiplier * state["clip_norm"] * normal(rng, tuple(total.shape))
        return (total + noise) / context.plan.expected_cohort

    def close_round(self, aggregate: Tensor, context: Context, state: State) -> State:
        return {"clip_norm": state["medians"][-1], "medians": []}


class ControlAdaptiveClipRaw(Control, DPFedAvg):
    """This broken DP-FedAvg clips to the median of the clients' update norms, computed without noise.

    The real bug: adaptive clipping (Andrew et al. 2021) without its noise. The clip norm is broadcast, so every client
    reads a function of all updates that has no noise, and from the second round on one client moves the scale of the
    noise.
    """

    broken = AdaptiveClipRawProtection


class UserClipPerClientProtection(UserLevelProtection):
    """A broken protection in which each client clips a user's gradients to the whole bound, not to one of k shares of
    the bound.
    """

    @property
    def share(self) -> float:
        return self.clip_norm


class ControlUserClipPerClient(Control, UserLevel):
    """This broken user-level DP-FedSGD lets every client clip a user to the whole bound.

    The real bug: clients take a user's samples for all that the user has, although the user has samples at k of them.
    The user moves the sum by k times what the noise is scaled to.
    """

    broken = UserClipPerClientProtection


class UserClipPerSampleProtection(UserLevelProtection):
    """A broken protection that clips the gradient of each sample, not the sum of a user's gradients."""

    def total(self, gradients: Tensor, present: Tensor, owners: Tensor) -> Tensor:
        return clipped_sum(gradients, present, self.share)


class ControlUserClipPerSample(Control, UserLevel):
    """This broken user-level DP-FedSGD clips each sample's gradient to the bound of a user.

    The real bug: a DP-SGD library that clips samples is used as it is, and its epsilon is reported for users. A user
    with m samples moves the sum by m times what the noise is scaled to.
    """

    broken = UserClipPerSampleProtection


def _norms(plan: Plan) -> tuple[float, ...]:
    """Public clip norms that differ between layers."""
    return tuple(0.7**number for number in range(len(plan.layout.names)))


@dataclass(frozen=True, kw_only=True)
class PerLayerJoint(ReportCase):
    """Every layer spends the same share of the budget of one report."""

    stds: tuple[float, ...] = (1.0,)

    def _law(self, plan: Plan) -> LayeredGaussianLaw:
        return LayeredGaussianLaw(starts=layer_starts(plan.layout), clip_norms=_norms(plan), noise_stds=self.stds)

    def sent(self, updates: Message, at: At) -> Message:
        law = self._law(at.plan)
        return updates.with_values(law.sample(law.contribution(updates.values), at.rng))

    def law(self, observer: Observer, plan: Plan, client: int) -> Law | None:
        return self._law(plan) if observer.rank == UPLOADS.rank else None

    @classmethod
    def spent(cls, layers: int) -> tuple[float, ...]:
        """Return each layer's share of the squared mu."""
        return (1 / layers,) * layers

    @classmethod
    def prepare(cls, plan: Plan) -> Prepared:
        norms = _norms(plan)
        pairs = zip(norms, cls.spent(len(norms)), strict=True)
        stds = tuple(cls.needed(plan) * norm / math.sqrt(share) for norm, share in pairs)
        return Prepared(protection=cls(stds=stds), claims=cls.claims_of(plan))


class PerLayerUneven(PerLayerJoint):
    """The first layer spends a tenth of the squared mu, and the others share the rest."""

    @classmethod
    def spent(cls, layers: int) -> tuple[float, ...]:
        return (0.1, *(0.9 / (layers - 1),) * (layers - 1)) if layers > 1 else (1.0,)


class PerLayerSamples(SampleCase):
    """Every sample's gradient is clipped layer by layer in every local step, without amplification."""

    published = False

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        rows = clip_layers(gradients, layer_starts(at.plan.layout), _norms(at.plan))
        return rows.masked_fill(~present.unsqueeze(-1), 0).sum(1)

    def noise(self, like: Tensor, at: At) -> Tensor:
        norms = torch.tensor(_norms(at.plan))
        stds = spread_layers(self.noise_multiplier * norms, layer_starts(at.plan.layout), like.shape[-1])
        return stds * at.normal(like)

    @classmethod
    def prepare(cls, plan: Plan) -> Prepared:
        noise = gaussian_noise(epsilon=cls.epsilon, delta=cls.delta, releases=plan.steps)
        curve = gaussian_curve(noise=noise, releases=plan.steps)
        claim = cls.stated(plan, Unit.SAMPLE, Adjacency.ADD_REMOVE, UPLOADS, curve=curve)
        return Prepared(protection=cls(noise_multiplier=noise * len(_norms(plan)) ** 0.5), claims=(claim,))


class NormalisedGradients(SampleCase):
    """Automatic clipping scales each sample's gradient to a length below the clip norm."""

    published = False

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        rows = torch.nan_to_num(gradients)
        rows = rows / (lengths_of(rows) + 0.01) * self.clip_norm
        return clipped_sum(rows, present, self.clip_norm)


class LaplaceSteps(SampleCase):
    """The sum of gradients clipped in L1 gets Laplace noise, with the pure amplification of Poisson lots."""

    published = False
    epsilon = 8.0
    delta = 0.0

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        return lot_sum(clip_l1(gradients, self.clip_norm), present)

    def noise(self, like: Tensor, at: At) -> Tensor:
        return torch.from_numpy(at.rng.laplace(0.0, self.std, tuple(like.shape))).float()

    @classmethod
    def prepare(cls, plan: Plan) -> Prepared:
        each = math.log1p(math.expm1(cls.epsilon / plan.steps) / poisson_rate("lot", plan.lot))
        claim = cls.stated(plan, Unit.SAMPLE, Adjacency.ADD_REMOVE, UPLOADS, clip_norm=cls.clip_norm)
        return Prepared(protection=cls(noise_multiplier=1 / each), claims=(claim,))


class SampleInReport(ReportCase):
    """A correct protection: it clips no gradient, but clips the whole report and adds noise, which also protects each
    sample.
    """

    published = False

    @classmethod
    def claims_of(cls, plan: Plan) -> tuple[Claim, ...]:
        (report,) = super().claims_of(plan)
        both = (Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE)
        return tuple(cls.stated(plan, Unit.SAMPLE, one, UPLOADS, curve=report.curve) for one in both)


class AdaptiveSampleClip(SampleCase):
    """Each client's clip norm follows a noised count of its short gradients, which takes half of the budget."""

    published = False

    def initial_state(self, plan: Plan) -> State:
        return {"clip_norm": {client: torch.tensor([self.clip_norm]) for client in range(plan.clients)}}

    def _bound(self, state: State, client: int) -> Tensor:
        found: Tensor = state["clip_norm"].get(client, torch.tensor([self.clip_norm]))
        return found.view(-1, 1)

    def total(self, gradients: Tensor, present: Tensor, at: At) -> Tensor:
        bound = self._bound(at.state, at.client).unsqueeze(-1).expand(len(gradients), -1, -1)
        return lot_sum(clip(gradients, bound), present)

    def noise(self, like: Tensor, at: At) -> Tensor:
        return 2**0.5 * self.noise_multiplier * self._bound(at.state, at.client) * at.normal(like)

    def local_query(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        lengths = lengths_of(torch.nan_to_num(gradients)).squeeze(-1)
        halves = (lengths <= self._bound(state, client)).float() - 0.5
        total = halves.masked_fill(~present, 0).sum(1, keepdim=True)
        noise = self.noise_multiplier / 2**0.5 * normal(rng, tuple(total.shape))
        return 0.5 + (total + noise) / context.plan.expected_lot(client)

    def query(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> State:
        bounds = dict(state["clip_norm"])
        for row, client in enumerate(received.senders or ()):
            share = received.side["query"][:, row].mean((1, 2))
            old = self._bound(state, client).squeeze(1)
            new = (old * torch.exp(-0.2 * (share - 0.5))).clamp(1e-3, 1e3)
            bounds[client] = torch.where(received.present[:, row], new, old)
        return {"clip_norm": bounds}
