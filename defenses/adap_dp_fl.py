"""Adap DP-FL: DP-SGD at each client whose clip norm follows its gradients and whose noise shrinks (Fu et al. 2022)."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import truediv

import numpy as np
import torch
from torch import Tensor

from ..audit.claim import Adjacency, Claim, Unit
from ..fl.law import clip
from ..fl.message import Message
from ..fl.plan import Plan
from ..fl.protection import Context, Protection, State
from ..fl.streams import normal
from .accounting.accountant import Method, gaussian_steps
from .accounting.filter import RenyiFilter, planned_filter
from .accounting.gaussian import SampledGaussian, gaussian_noise, poisson_rate
from .accounting.layers import joint_noise
from .clipped.claims import sampled_gaussian_claim
from .clipped.defense import ClippedDefense
from .defense import Prepared, check_positive, check_share, check_variant, provable

_LEAST = 1e-12
"""Below every floor: without one the published rule would come to divide by zero."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """What the two queries on a lot take of the charged noise, and how norms are answered.

    Args:
        direction: noise on the gradients' sum, in clip norms, at a charged noise of 1.
        query: the same on the sum of clipped norms.
        centre: what every norm is counted from, in clip norms.
        floor: the least clip norm.
    """

    direction: float
    query: float
    centre: float
    floor: float


@dataclass(frozen=True, kw_only=True)
class AdapDPFLProtection(Protection):
    """DP-SGD at the state's noise and at each client's own clip norm, while the client's budget lasts.

    The state, all of it broadcast: ``clip_norm`` and ``spent`` (Renyi) by client, ``(R,)`` each; ``level (R,)``, how
    often the noise has shrunk; ``losses (R, 0..4)``, the last public losses.

    Args:
        noise_multiplier: noise over the sensitivity that the filter charges for, before it shrinks.
    """

    clip_norm: float
    clip_factor: float
    noise_multiplier: float
    decay: float
    split: Split
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
        """The noise shrinks where the public loss of the global model has fallen three times in a row (eq. 9)."""
        if context.public_loss is None:
            return state
        past = state["losses"].expand(context.replicas, -1)
        losses = torch.cat([past, context.public_loss().unsqueeze(-1)], dim=1)[:, -4:]
        fell = (losses.diff(dim=1) < 0).all(1) if losses.shape[1] == 4 else torch.zeros(context.replicas).bool()
        return {**state, "losses": losses, "level": state["level"] + fell}

    def participates(self, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        """Each client for itself stops before the round that its budget does not pay for."""
        cost = self._cost(context, state)
        there = [self._of(state["spent"], client) + cost <= self.filter.budget for client in context.senders]
        return torch.stack([row.expand(context.replicas) for row in there], dim=1)

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        bound = self._bound(state, client)
        total = clip(gradients, bound.unsqueeze(-1)).masked_fill(~present.unsqueeze(-1), 0).sum(1)
        noise = self.split.direction * self._sigma(state) * bound * normal(rng, tuple(total.shape))
        return (total + noise) / context.plan.expected_lot(client)

    def local_query(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        """The lot's noised mean of clipped norms ``(R, 1)`` (eq. 6 to 8)."""
        bound = self._bound(state, client)
        known = torch.nan_to_num(gradients, nan=0.0)  # As ``clip`` counts them.
        norms = torch.minimum(torch.linalg.vector_norm(known, dim=-1), bound)
        centre = self.split.centre * bound
        total = (norms - centre).masked_fill(~present, 0).sum(1, keepdim=True)
        noise = self.split.query * self._sigma(state) * bound * normal(rng, tuple(total.shape))
        return centre + (total + noise) / context.plan.expected_lot(client)

    def log_ratio(
        self, direction: Tensor, answer: Tensor | None, client: int, context: Context, state: State
    ) -> Tensor:
        """Log-likelihood ratio ``(R,)`` of a step's release and, where it is read, of the query's answer: of a client
        that holds nothing against one that holds a sample far beyond the bound along the last coordinate.

        Exact given the public state: two Gaussian views of whether that sample was drawn.
        """
        bound, sigma = (column.double().squeeze(-1) for column in (self._bound(state, client), self._sigma(state)))
        unit = context.plan.expected_lot(client) / bound
        views = [(direction[..., -1].double() * unit, 1.0, self.split.direction * sigma)]
        if answer is not None:
            centre = self.split.centre
            counted = (answer[..., 0].double() - centre * bound) * unit
            views.append((counted, 1 - centre, self.split.query * sigma))
        drawn: Tensor = sum((moved * (seen - moved / 2) / std**2 for seen, moved, std in views), torch.zeros(()))
        return torch.logaddexp(torch.tensor(1 - self.rate).log(), math.log(self.rate) + drawn)

    def query(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> State:
        """Each client's next clip norm, from what it released, and what its round has cost it."""
        bounds, spent, cost = dict(state["clip_norm"]), dict(state["spent"]), self._cost(context, state)
        for row, client in enumerate(received.senders or ()):
            came, answers = received.present[:, row], received.side["query"][:, row]
            wished = (self.clip_factor * answers.mean((1, 2)).abs()).clamp_min(self.split.floor)
            bounds[client] = torch.where(came, wished, self._of(bounds, client, self.clip_norm))
            spent[client] = self._of(spent, client) + came * cost
        return {**state, "clip_norm": bounds, "spent": spent}

    def paid_epsilon(self, plan: Plan) -> float:
        """What both queries of all rounds cost as published, a norm counted from 0, at the filter's order, however the
        noise shrinks: at most what its fastest fall costs, and at most what the filter lets pass, whose charge leaves
        out a share.

        The first fall needs four losses, so that it is the fourth round's.
        """
        steps, budget = plan.algorithm.local_steps, self.filter.budget

        def cost(level: int, factor: float) -> float:
            return steps * _step_cost(self.filter, factor * self.noise_multiplier * self.decay**level, self.rate)

        # A round for which the noise has shrunk too far is never run; a slower fall may run it at less cost.
        falls = range(max(1, plan.rounds - 2))
        charged = list(itertools.takewhile(lambda part: part <= budget, (cost(level, 1.0) for level in falls)))
        both = joint_noise(self.split.direction, self.split.query)
        paid = [cost(level, both) for level in range(len(charged))]
        fastest = sum(paid[min(max(0, number - 2), len(paid) - 1)] for number in range(plan.rounds))
        return self.filter.converted(min(fastest, budget * max(map(truediv, paid, charged))))

    def _of(self, held: Mapping[int, Tensor], client: int, default: float = 0.0) -> Tensor:
        """A client's number; a canary client begins like any."""
        return held.get(client, torch.tensor([default]))

    def _bound(self, state: State, client: int) -> Tensor:
        return self._of(state["clip_norm"], client, self.clip_norm).unsqueeze(-1)

    def _sigma(self, state: State) -> Tensor:
        """The charged noise ``(R, 1)``."""
        level: Tensor = state["level"]
        return (self.noise_multiplier * self.decay ** level.double()).float().unsqueeze(-1)

    def _cost(self, context: Context, state: State) -> Tensor:
        """What a round costs a client that takes part, ``(R,)``."""
        steps = context.plan.algorithm.local_steps
        costs = [
            steps * _step_cost(self.filter, self.noise_multiplier * self.decay**level, self.rate)
            for level in state["level"].tolist()
        ]
        return torch.tensor(costs, dtype=torch.float64)


@lru_cache(maxsize=4096)
def _step_cost(budget: RenyiFilter, sigma: float, rate: float) -> float:
    """Of one noised lot; replicas and rounds ask for the same few again and again."""
    return budget.cost(gaussian_steps(sigma=sigma, rate=rate, steps=1))


@dataclass(frozen=True, kw_only=True)
class AdapDPFL(ClippedDefense):
    """Sample-level DP by each client for itself, with an adaptive clip norm and noise.

    The claim: one sample of a client, add/remove, against the server that sees every upload, with the released clip
    norms and noise. The noise shrinks by the loss on the task's public images; a filter at one Renyi order, asked
    before each round, stops each client for itself. No curve and no law: clip and noise move with the state; given the
    state, ``log_ratio`` says what one sample does to a step and to the answer beside it, so that audits read both.

    Args:
        epsilon, delta: the budget at which clients stop.
        clip_norm: a client's bound in the first round (the paper: a mean norm on random noise).
        clip_factor: the next bound over the noised mean of clipped norms.
        floor: the least bound; only the corrected form has one.
        noise_multiplier: noise over the sensitivity in the first round.
        decay: factor on the noise after three falls of the public loss in a row.
        query_share: part of each release's budget that goes to the mean of norms (in inverse variance); only the
            corrected form pays for it.
        variant: "corrected", or "as_published": the paper's noise, bounds and claim.

    Raises (in prepare):
        ValueError: if not even one round fits the budget, if all steps fit it at .3 clip norms of noise, or if lots are
            not Poisson samples (or everything), which is what the accountant assumes.

    Errata:
        - Paper, eq. 6 to 8: the mean norm, with noise of the gradients' size, costs nothing. Right: it is a second
          query on the same lot, which leaves sigma / sqrt(2): at rate .013 and delta 1e-5 epsilon 2.25 becomes 5.07 in
          1000 steps at sigma 1.1, and 0.60 becomes 0.89 in 5000 at sigma 6.
          Corrected: both queries share the charged noise as one Gaussian release (Andrew et al. 2021, Theorem 1).
        - Paper, eq. 6 and 7: norms are clipped at the bound that they set, so with a factor up to 1 it rises through
          noise alone, and a factor of .01 sends it to 7e-11 in five rounds. Corrected: a floor; the ratchet stays.
        - Paper, Theorem 1: no logarithm around the binomial sum, and T + 1 terms. Right: the logarithm, and T terms;
          printed, 1000 steps at (.013, 1.1) give 114 where Renyi accounting gives 2.25. Both forms use dp-accounting.
        - Paper, eq. 9: noise is chosen by a validation loss of data that nobody names. Right: adaptive noise needs
          public data and a filter before each release; both forms have them.
        - Paper, Algorithm 1: "break" at the first client without budget stops all later ones. Right: each stops for
          itself; both forms do.
    """

    clip_factor: float = 1.0
    floor: float = 0.1
    noise_multiplier: float = 6.0
    decay: float = 0.9999
    query_share: float = 0.1
    variant: str = "corrected"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("clip_factor", "floor", "noise_multiplier"):
            check_positive(name, getattr(self, name))
        check_share("decay", self.decay)
        check_share("query_share", self.query_share)
        check_variant(self.variant)

    def prepare(self, plan: Plan) -> Prepared:
        rate, steps = poisson_rate("lot", plan.lot), plan.algorithm.local_steps
        # A budget that even whole lots with next to no noise would keep stops nobody.
        gaussian_noise(epsilon=self.epsilon, delta=self.delta, releases=plan.steps)
        planned = gaussian_steps(sigma=self.noise_multiplier, rate=rate, steps=steps)
        try:
            kept = planned_filter(
                epsilon=self.epsilon, delta=self.delta, release=planned, adjacency=Adjacency.ADD_REMOVE
            )
        except ValueError:
            raise ValueError(
                f"epsilon {self.epsilon:g} must pay for one round of {steps} steps at noise_multiplier "
                f"{self.noise_multiplier:g} and rate {rate:g}"
            ) from None
        protection = AdapDPFLProtection(
            clip_norm=self.clip_norm,
            clip_factor=self.clip_factor,
            noise_multiplier=self.noise_multiplier,
            decay=self.decay,
            filter=kept,
            rate=rate,
            split=self._split(),
        )
        return Prepared(protection=protection, claims=(self._claim(protection, plan),))

    def _split(self) -> Split:
        """How the charged noise falls on the two queries."""
        if self.variant == "as_published":
            return Split(direction=1.0, query=1.0, centre=0.0, floor=_LEAST)
        # Counted from half the bound, a norm moves the sum by at most half the bound.
        share = self.query_share
        return Split(direction=(1 - share) ** -0.5, query=0.5 * share**-0.5, centre=0.5, floor=self.floor)

    def _claim(self, protection: AdapDPFLProtection, plan: Plan) -> Claim:
        published = self.variant == "as_published"
        return sampled_gaussian_claim(
            self,
            SampledGaussian(sigma=self.noise_multiplier, rate=protection.rate, steps=plan.steps),
            unit=Unit.SAMPLE,
            rounds=plan.rounds,
            words=", clip norm and noise adaptive",
            more={
                "renyi_order": protection.filter.order,
                "renyi_budget": protection.filter.budget,
                **(provable(protection.paid_epsilon(plan)) if published else {}),
            },
            accountant=f"{Method.RDP.accountant} filter",
            source="Fu et al. 2022, Algorithm 1, as published"
            if published
            else "Fu et al. 2022, Algorithm 1; Andrew et al. 2021, Theorem 1; Feldman and Zrnic 2021 (filter)",
        )
