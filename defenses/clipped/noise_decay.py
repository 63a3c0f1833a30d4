"""Run DP-SGD at each client under a Renyi filter, with noise that shrinks as a public loss falls (Fu et al. 2022).

The clip norm may follow the gradients as well (Algorithm 1).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ...fl.laws import clipped_sum
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.streams import normal
from ...fl.task import Samples
from ..accounting.accountant import gaussian_steps
from ..accounting.filter import FilterCost, RenyiFilter, fixed_release_epsilon
from ..accounting.gaussian import joint_noise

FIRST_CLIPS = ("clip_norm", "noise_images")
"""Where the first clip norm comes from: a constant, or gradients of the initial model on images of noise."""
_NOISE_IMAGES = 64


@dataclass(frozen=True, kw_only=True)
class NoiseSplit:
    """A rule that divides the accounted noise between two queries on one batch, the sum of gradients and the sum of
    their norms; the rule also sets the constant that is subtracted from every norm, and the smallest clip norm.

    Args:
        direction: noise on the sum of gradients, in clip norms, at a charged noise of 1.
        query: the same for the sum of clipped norms.
        centre: offset that is subtracted from every norm, in clip norms.
        floor: the smallest clip norm.
    """

    direction: float
    query: float
    centre: float
    floor: float


@dataclass(frozen=True, kw_only=True)
class NoiseDecayProtection(Protection):
    """A protection that runs DP-SGD at each client with noise that shrinks over rounds; a client stops when its budget
    is spent.

    The state is broadcast as a whole: ``clip_norm`` and ``spent`` (Renyi) by client, ``(R,)`` each; ``level (R,)``, how
    often the noise has shrunk; ``losses (R, 0..4)``, the last public losses.

    Args:
        noise_multiplier: noise over the sensitivity that the filter charges for, before it shrinks.
        decay: factor on it after three consecutive decreases of the public loss; at 1 that loss is never computed.
    """

    clip_norm: float
    noise_multiplier: float
    decay: float
    split: NoiseSplit
    filter: RenyiFilter
    rate: float
    per_sample: bool = True

    def initial_state(self, plan: Plan) -> State:
        return {
            "clip_norm": {client: torch.tensor([self.clip_norm]) for client in range(plan.clients)},
            "spent": {client: torch.zeros(1, dtype=torch.float64) for client in range(plan.clients)},
            "level": torch.zeros(1, dtype=torch.int64),
            "losses": torch.zeros(1, 0),
        }

    def open_round(self, context: Context, state: State) -> State:
        """Shrink the noise if the global model's loss on public data has decreased three times in a row (Fu et al.
        2022, eq. 9).
        """
        if self.decay == 1 or context.public_loss is None or self._over(context, state):
            return state
        # The state starts with one replica; the engine's replicas diverge from the first round on.
        past = state["losses"].expand(context.replicas, -1)
        losses = torch.cat([past, context.public_loss().unsqueeze(-1)], dim=1)[:, -4:]
        fell = (losses.diff(dim=1) < 0).all(1) if losses.shape[1] == 4 else torch.zeros(context.replicas).bool()
        return {**state, "losses": losses, "level": state["level"] + fell}

    def participates(self, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        """Return which clients take part in the round; a client takes part if its remaining budget covers the round's
        cost.
        """
        cost = self._cost(context, state)
        there = [self._of(state["spent"], client) + cost <= self.filter.budget for client in context.senders]
        return torch.stack([row.expand(context.replicas) for row in there], dim=1)

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        bound = self._bound(state, client)
        total = clipped_sum(gradients, present, bound.unsqueeze(-1))
        noise = self.split.direction * self._sigma(state) * bound * normal(rng, tuple(total.shape))
        return (total + noise) / context.plan.expected_lot(client)

    def log_ratio(
        self, direction: Tensor, answer: Tensor | None, client: int, context: Context, state: State
    ) -> Tensor:
        """Return the log-likelihood ratio (with over without the canary), shape ``(R,)`` for R runs, of the release of
        one DP-SGD step: the gradient and, if given, the noisy norm.

        It compares a client that holds one sample far beyond the bound along the last coordinate with a client that
        holds no sample, and is exact given the public state: two Gaussian observations of whether that sample was
        drawn.
        """
        bound, sigma = (column.double().squeeze(-1) for column in (self._bound(state, client), self._sigma(state)))
        unit = context.plan.expected_lot(client) / bound
        # Each view is scaled so that the canary's contribution is 1 in it (1 - centre in the answer).
        views = [(direction[..., -1].double() * unit, 1.0, self.split.direction * sigma)]
        if answer is not None:
            centre = self.split.centre
            counted = (answer[..., 0].double() - centre * bound) * unit
            views.append((counted, 1 - centre, self.split.query * sigma))
        drawn: Tensor = sum((moved * (seen - moved / 2) / std**2 for seen, moved, std in views), torch.zeros(()))
        return torch.logaddexp(torch.tensor(1 - self.rate).log(), math.log(self.rate) + drawn)

    def query(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> State:
        """Add the privacy cost of this round to the total of each client that took part."""
        spent, cost = dict(state["spent"]), self._cost(context, state)
        for row, client in enumerate(received.senders or ()):
            spent[client] = self._of(spent, client) + received.present[:, row] * cost
        return {**state, "spent": spent}

    def numbers(self, plan: Plan, state: State) -> dict[str, float]:
        """Return three quantities of this round: the noise, the largest epsilon that a client has spent (at the
        filter's Renyi order), and all clients' clip norms.
        """
        spent = max(float(self._of(state["spent"], client)[0]) for client in range(plan.clients))
        bounds = {f"clip_norm_{client}": float(state["clip_norm"][client][0]) for client in range(plan.clients)}
        epsilon = self.filter.converted(spent) if spent else 0.0
        return {"noise_multiplier": float(self._sigma(state)[0]), "epsilon": epsilon, **bounds}

    def _of(self, held: Mapping[int, Tensor], client: int, default: float = 0.0) -> Tensor:
        """A client's number; a canary client, which has no entry yet, starts like any other."""
        return held.get(client, torch.tensor([default]))

    def _bound(self, state: State, client: int) -> Tensor:
        return self._of(state["clip_norm"], client, self.clip_norm).unsqueeze(-1)

    def _sigma(self, state: State) -> Tensor:
        """The charged noise ``(R, 1)``."""
        level: Tensor = state["level"]
        return (self.noise_multiplier * self.decay ** level.double()).float().unsqueeze(-1)

    def _over(self, context: Context, state: State) -> bool:
        """Whether no client can pay for another round in any replica. It then never can, because the noise only
        shrinks.
        """
        cost = self._cost(context, state)
        return all(bool((spent + cost > self.filter.budget).all()) for spent in state["spent"].values())

    def _cost(self, context: Context, state: State) -> Tensor:
        """The cost of one round for a client that takes part, ``(R,)``."""
        steps = context.plan.algorithm.local_steps
        return torch.tensor([steps * self._charge(level) for level in state["level"].tolist()], dtype=torch.float64)

    def _charge(self, level: int) -> float:
        """The cost of one step at this level, at the filter's order."""
        return _step_cost(self.filter, self._at(level), self.rate)

    def _at(self, level: int) -> float:
        """The charged noise at this level."""
        return self.noise_multiplier * self.decay**level


@dataclass(frozen=True, kw_only=True)
class AdaptiveClipProtection(NoiseDecayProtection):
    """A protection with shrinking noise in which each client releases a noisy mean of its gradient norms and adapts its
    clip norm to that mean.
    """

    clip_factor: float
    first_clip: str = FIRST_CLIPS[0]

    def open_round(self, context: Context, state: State) -> State:
        opened = super().open_round(context, state)
        if context.round > 0 or self.first_clip != "noise_images" or context.samples is None:
            return opened
        bound = noise_image_norm(context.samples(None))
        return {**opened, "clip_norm": {client: torch.tensor([bound]) for client in opened["clip_norm"]}}

    def local_query(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        """Return the noisy mean of the clipped gradient norms of each batch, shape ``(R, 1)`` for R runs (Fu et al.
        2022, eq. 6 to 8).
        """
        bound = self._bound(state, client)
        norms = torch.linalg.vector_norm(gradients, dim=-1)
        if not norms.isfinite().all():
            norms = torch.linalg.vector_norm(torch.nan_to_num(gradients, nan=0.0), dim=-1)  # As ``clip`` treats them.
        norms = torch.minimum(norms, bound)
        centre = self.split.centre * bound
        total = (norms - centre).masked_fill(~present, 0).sum(1, keepdim=True)
        noise = self.split.query * self._sigma(state) * bound * normal(rng, tuple(total.shape))
        return centre + (total + noise) / context.plan.expected_lot(client)

    def query(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> State:
        """Set each client's next clip norm from the noisy mean gradient norm that it released."""
        charged = super().query(received, context, state, rng)
        bounds = dict(state["clip_norm"])
        for row, client in enumerate(received.senders or ()):
            came, answers = received.present[:, row], received.side["query"][:, row]
            following = (self.clip_factor * answers.mean((1, 2)).abs()).clamp_min(self.split.floor)
            # A client that was absent released nothing, so its bound must not move.
            bounds[client] = torch.where(came, following, self._of(bounds, client, self.clip_norm))
        return {**charged, "clip_norm": bounds}

    def paid_epsilon(self, plan: Plan) -> float:
        """Compute, for the version that the paper publishes, the true epsilon of both queries (gradients and norms)
        over all rounds; this epsilon holds however the noise shrinks.

        As published a norm is counted from 0, and the filter omits the cost of that query. The first decrease needs
        four losses, so it comes with the fourth round at the earliest. Noise that stays constant needs no filter.
        """
        steps, both = plan.algorithm.local_steps, joint_noise(self.split.direction, self.split.query)
        if self.decay == 1:
            rounds = min(plan.rounds, int(self.filter.budget / (steps * self._charge(0))))
            release = gaussian_steps(sigma=both * self.noise_multiplier, rate=self.rate, steps=steps * rounds)
            return fixed_release_epsilon(release, delta=self.filter.delta, adjacency=self.filter.adjacency)
        charges, before = list[float](), 0.0
        for level in range(max(1, plan.rounds - 2)):
            charge = steps * self._charge(level)
            # A round that the filter would refuse is never run; after a slower decrease it may run at less cost.
            if before + charge > self.filter.budget:
                break
            charges.append(charge)
            before += charge if plan.cohort_rate == 1 else 0.0
        return FilterCost(
            filter=self.filter,
            charges=charges,
            noise=[both * self._at(level) for level in range(len(charges))],
            rate=self.rate,
            steps=steps,
            rounds=plan.rounds,
            everyone=plan.cohort_rate == 1,
        ).epsilon()


def noise_image_norm(public: Samples) -> float:
    """Return the mean norm of the gradients of a model on 64 images of uniform noise with random labels.

    Images and labels are fixed public draws, so the norm reveals nothing. ``public`` gives the model (its first row),
    the images' shape and the labels' form; its data are not read.
    """
    network, rng = public.network, np.random.default_rng(0)
    shape = (1, _NOISE_IMAGES, *network.shape)
    images = torch.from_numpy(rng.random(shape, dtype=np.float32))
    size = (*shape[:2], *public.labels.shape[1:])
    labels = network.objective.drawn(rng, size, network.classes)
    dropped = network.draw_dropout(rng, shape[:2])
    gradients = network.sample_gradients(public.models[:1], images, labels, dropped)
    return float(torch.linalg.vector_norm(gradients, dim=-1).mean())


@lru_cache(maxsize=4096)
def _step_cost(budget: RenyiFilter, sigma: float, rate: float) -> float:
    """The cost of one noised lot; cached, because replicas and rounds need the same few values again and again."""
    return budget.cost(gaussian_steps(sigma=sigma, rate=rate, steps=1))
