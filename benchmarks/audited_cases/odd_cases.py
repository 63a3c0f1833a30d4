"""Thirty defenses that look odd and keep what they claim; none of them is in ``benchmarks/audited_cases/honest.py``."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.observer import FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer
from fedassay.defenses.accounting.gaussian import calibrate_sampled_gaussian, poisson_rate
from fedassay.defenses.accounting.integer_noise import discrete_gaussian_noise
from fedassay.defenses.accounting.pure import each_of
from fedassay.defenses.accounting.shuffled import shuffled
from fedassay.defenses.defense import Defense, Prepared
from fedassay.defenses.secure.integer_draws import discrete_gaussian
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.laws import clip, clip_entries, clipped_sum, lot_sum
from fedassay.fl.layout import Layout
from fedassay.fl.message import Message
from fedassay.fl.models.network import Network
from fedassay.fl.plan import Plan
from fedassay.fl.preparation import Preparation, PreparedData
from fedassay.fl.protection import Context, Protection, State
from fedassay.fl.streams import normal, uniform
from scipy.special import ndtri
from torch import Tensor

CLIP = 1.0
Rng = np.random.Generator


def sigma_of(mu: float, releases: int) -> float:
    """Noise deviation over the sensitivity at which so many Gaussian releases are mu-GDP together."""
    return math.sqrt(releases) / mu


def client_mu(case: Any, plan: Plan) -> float:
    """The mu of a case's budget; refuses cohorts in which one client would displace another."""
    poisson_rate("cohort", plan.cohort)
    return mu_from_epsilon(case.epsilon, case.delta)


def sample_mu(case: Any, plan: Plan) -> float:
    """The mu of a case's budget; refuses lots in which one sample would displace another."""
    poisson_rate("lot", plan.lot)
    return mu_from_epsilon(case.epsilon, case.delta)


def client_claim(
    case: Any, plan: Plan, mu: float | None = None, observer: Observer = GLOBAL_MODELS, adjacency: str = "add_remove"
) -> Claim:
    """A claim about one client."""
    facts = {"unit": "client", "adjacency": adjacency, "observer": observer, "rounds": plan.rounds}
    return Claim.stated(case.epsilon, getattr(case, "delta", 0.0), mu=mu, **facts)


def sample_claim(case: Any, plan: Plan, mu: float | None = None) -> Claim:
    """A claim about one sample that is there or not, against the server that receives single updates."""
    facts = {"unit": "sample", "adjacency": "add_remove", "observer": UPLOADS, "rounds": plan.rounds}
    return Claim.stated(case.epsilon, case.delta, mu=mu, **facts)


def report_claim(case: Any, plan: Plan, mu: float | None = None) -> Claim:
    """A claim about any two updates of a client."""
    facts = {"unit": "report", "adjacency": "replace_one", "observer": UPLOADS, "rounds": plan.rounds}
    return Claim.stated(case.epsilon, getattr(case, "delta", 0.0), mu=mu, **facts)


def finite(rows: Tensor) -> Tensor:
    """Rows in double precision without NaN and infinite numbers."""
    return torch.nan_to_num(rows.double(), nan=0.0, posinf=1e30, neginf=-1e30)


@dataclass(frozen=True, kw_only=True)
class ClippedSum(Protection):
    """Clients clip their updates to norm 1; a trusted server adds Gaussian noise of deviation ``sigma`` to the sum."""

    sigma: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        return updates.with_values(clip(updates.values, CLIP))

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values.sum(1)
        return (total + self._noise(total, context, rng)) / context.plan.expected_cohort

    def _noise(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        return self.sigma * CLIP * normal(rng, tuple(like.shape))


@dataclass(frozen=True, kw_only=True)
class SampleNoise(Protection):
    """Clients clip each sample's gradient to norm 1 and add Gaussian noise of deviation ``sigma`` to the sum."""

    sigma: float
    per_sample: bool = True

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        total = clipped_sum(gradients, present, CLIP)
        return (total + self.sigma * CLIP * normal(rng, tuple(total.shape))) / context.plan.expected_lot(client)


def layers_of(layout: Layout) -> list[slice]:
    """The layers as slices that cover all weights; unused weights belong to the last layer."""
    starts = [layout.slices[name].start for name in layout.names] + [layout.dim]
    return [slice(low, high) for low, high in pairwise(starts)]


# 1 to 12: one client, a trusted server


@dataclass(frozen=True, kw_only=True)
class AdamSum(ClippedSum):
    """The aggregator noises the sum on its way to the server, whose Adam keeps its moments in the public state."""

    def initial_state(self, plan: Plan) -> State:
        return {"mean": torch.zeros(1, plan.layout.dim), "square": torch.zeros(1, plan.layout.dim)}

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        total = reports.values.sum(1)
        noised = (total + self._noise(total, context, rng)).unsqueeze(1)
        return Message(values=noised, present=torch.ones(noised.shape[:2], dtype=torch.bool), senders=None)

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        moments = self._moments(received, context, state)
        turn = context.round + 1
        return 0.1 * (moments["mean"] / (1 - 0.9**turn)) / ((moments["square"] / (1 - 0.99**turn)).sqrt() + 1e-4)

    def query(self, received: Message, context: Context, state: State, rng: Rng) -> State:
        return self._moments(received, context, state)

    def _moments(self, received: Message, context: Context, state: State) -> dict[str, Tensor]:
        step = received.values[:, 0] / context.plan.expected_cohort
        return {"mean": 0.9 * state["mean"] + 0.1 * step, "square": 0.99 * state["square"] + 0.01 * step.square()}


@dataclass(frozen=True, kw_only=True)
class AdamOnNoisedSums(Defense):
    """The server runs Adam on noised sums, and its two moments are public state. Step and moments are functions of the
    noised sums of all rounds so far, each a Gaussian release at sensitivity 1: post-processing of mu-GDP.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 6}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=AdamSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class AveragedSum(ClippedSum):
    def initial_state(self, plan: Plan) -> State:
        return {"total": torch.zeros(1, plan.layout.dim)}

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        fresh = super().aggregate(received, context, state, rng)
        return (state["total"] + fresh) / (context.round + 1)

    def close_round(self, aggregate: Tensor, context: Context, state: State) -> State:
        return {"total": aggregate * (context.round + 1)}


@dataclass(frozen=True, kw_only=True)
class MeanOfReleasesSoFar(Defense):
    """Every round the model moves by the plain mean of all noised means so far, so that the visible noise falls like
    1 / sqrt(round). Each noised mean has its own noise for all rounds and enters unchanged: post-processing.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 8}
    epsilon: float = 3.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=AveragedSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),))


def public_basis(dim: int, number: int, kept: int = 40) -> Tensor:
    """An orthonormal basis ``(d, kept)`` that anybody computes from the number of the round."""
    drawn = np.random.default_rng([7, number]).standard_normal((dim, min(kept, dim)))
    return torch.from_numpy(np.linalg.qr(drawn)[0])


@dataclass(frozen=True, kw_only=True)
class SubspaceSum(ClippedSum):
    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        basis = public_basis(received.values.shape[-1], context.round)
        coordinates = received.values.sum(1).double() @ basis
        noised = coordinates + self.sigma * CLIP * normal(rng, tuple(coordinates.shape), dtype=torch.float64)
        return (noised @ basis.T).float() / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class PublicSubspace(Defense):
    """Sums are released within a public random subspace of 40 dimensions, and noise is drawn within it alone: most
    directions have no noise, and no data. Projection cannot lengthen a clipped update, so each round has sensitivity 1.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=SubspaceSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class AntitheticSum(ClippedSum):
    def _noise(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        half = normal(rng, (like.shape[0], (like.shape[1] + 1) // 2))
        opposite = torch.cat([half, -half], dim=1)[:, : like.shape[1]]
        return self.sigma * CLIP * (normal(rng, tuple(like.shape)) + 0.8 * opposite)


@dataclass(frozen=True, kw_only=True)
class PartlyAntitheticNoise(Defense):
    """Noise of two halves of the model is negatively correlated (-0.39): on independent calibrated noise comes noise
    that is opposite in both halves. The first alone keeps the claim, and noise added to it is post-processing.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(
            protection=AntitheticSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),)
        )


@dataclass(frozen=True, kw_only=True)
class CoinSum(ClippedSum):
    def _noise(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        size = torch.where(uniform(rng, (len(like), 1)) < 0.5, 1.0, 3.0)
        return size * super()._noise(like, context, rng)


@dataclass(frozen=True, kw_only=True)
class CoinSizedNoise(Defense):
    """A coin per round, which everybody can tell from the release, makes the noise one or three times what is
    calibrated. Given the coin a round is mu_t-GDP or mu_t/3-GDP, and the mixture with the coin shown is no worse.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=CoinSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class FourSourcesSum(ClippedSum):
    def _noise(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        shape, total = tuple(like.shape), np.zeros(tuple(like.shape))
        for kind in (np.random.PCG64, np.random.MT19937, np.random.SFC64):
            own = np.random.Generator(kind(rng.integers(0, 2**63, size=4).tolist()))
            # In columns, a few at a time.
            total += np.concatenate([own.standard_normal((len(part), shape[0])) for part in _parts(shape[1])]).T
        radius = np.sqrt(-2 * np.log1p(-rng.random(shape)))
        total += radius * np.cos(2 * math.pi * rng.random(shape))
        return (self.sigma * CLIP / 2 * torch.from_numpy(total)).float()


def _parts(size: int) -> list[range]:
    return [range(low, min(low + 64, size)) for low in range(0, size, 64)]


@dataclass(frozen=True, kw_only=True)
class FourSources(Defense):
    """The noise is half the sum of four independent normal numbers: of three generators of different kinds, which get
    252 fresh bits each and draw in transposed chunks, and one of Box and Muller by hand. Variances add up to sigma^2.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(
            protection=FourSourcesSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),)
        )


@dataclass(frozen=True, kw_only=True)
class ScheduledSum(Protection):
    """Clip norms fall and noise falls faster, both by a public schedule."""

    mu: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        return updates.with_values(clip(updates.values, self._bound(context)))

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total, rounds = received.values.sum(1), context.plan.rounds
        sigma = math.sqrt(rounds * (rounds + 1) / 2 / (context.round + 1)) / self.mu
        return (total + sigma * self._bound(context) * normal(rng, tuple(total.shape))) / context.plan.expected_cohort

    def _bound(self, context: Context) -> float:
        return CLIP * 0.85**context.round


@dataclass(frozen=True, kw_only=True)
class PublicSchedules(Defense):
    """Round t has clip norm .85^t and noise of deviation sigma_t clip norms, where sigma_t^-2 = mu^2 (t + 1) / (1 + ...
    + T). The squares of the rounds' mu, sigma_t^-2, add up to mu^2: heterogeneous Gaussian composition.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 6}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=ScheduledSum(mu=mu), claims=(client_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class OneVote(Protection):
    stop: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        rows = finite(updates.values)
        place = rows.abs().argmax(-1, keepdim=True)
        return updates.with_values(torch.zeros_like(rows).scatter(-1, place, rows.gather(-1, place).sign()).float())

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values.sum(1)
        waits = [rng.geometric(self.stop, tuple(total.shape)) for _ in range(2)]
        return 0.1 * (total + torch.from_numpy(waits[0] - waits[1]).float()) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class GeometricVotes(Defense):
    """A client votes +1 or -1 on its largest weight, and the server adds differences of two geometric numbers to the
    counts. P(k) falls by exp(epsilon / rounds) per step and one client moves one count by one: pure epsilon.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        poisson_rate("cohort", plan.cohort)
        stop = -math.expm1(-self.epsilon / plan.rounds)
        return Prepared(protection=OneVote(stop=stop), claims=(client_claim(self, plan),))


@dataclass(frozen=True, kw_only=True)
class TurnsSum(ClippedSum):
    def participates(self, context: Context, state: State, rng: Rng) -> Tensor | None:
        turn = (torch.tensor(context.senders, dtype=torch.long) + context.round) % 2 == 0
        return turn.expand(context.replicas, -1).clone()


@dataclass(frozen=True, kw_only=True)
class ClientsTakeTurns(Defense):
    """Clients with even numbers train in even rounds and the others in odd rounds, a public rule. A client is in at
    most half of the rounds (rounded up), for which the noise is calibrated; the other rounds do not depend on it.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 6}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        sigma = sigma_of(mu, (plan.rounds + 1) // 2)
        return Prepared(protection=TurnsSum(sigma=sigma), claims=(client_claim(self, plan, mu),))


RATES = (0.15, 0.3, 0.5)


@dataclass(frozen=True, kw_only=True)
class ThinnedSum(ClippedSum):
    def participates(self, context: Context, state: State, rng: Rng) -> Tensor | None:
        own = torch.tensor([RATES[client % 3] for client in context.senders], dtype=torch.float64)
        return uniform(rng, (context.replicas, len(context.senders)), dtype=torch.float64) < own


@dataclass(frozen=True, kw_only=True)
class RatesOfTheirOwn(Defense):
    """Cohorts are full by the plan, and each client comes by a secret coin of its own, with a public chance of .15, .3
    or .5. For one client this is Poisson sampling at its rate, accounted for at .5, which is the worst of them.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        rate = max(RATES) * poisson_rate("cohort", plan.cohort)
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rate": rate, "steps": plan.rounds}
        sigma = calibrate_sampled_gaussian(**budget).sigma
        return Prepared(protection=ThinnedSum(sigma=sigma), claims=(client_claim(self, plan),))


@dataclass(frozen=True, kw_only=True)
class ReleasedOnce(ClippedSum):
    """``sigma``: over the sensitivity of the sum of all rounds."""

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        return received.values.sum(1) / context.plan.expected_cohort

    def broadcast(self, model: Tensor, context: Context, state: State, rng: Rng) -> Tensor:
        plan = context.plan
        if context.round < plan.rounds:
            return torch.zeros_like(model)
        move = float(plan.algorithm.combine(torch.zeros(1, 1), torch.ones(1, 1)))
        std = self.sigma * CLIP * plan.rounds * move / plan.expected_cohort
        return model + std * normal(rng, tuple(model.shape))


@dataclass(frozen=True, kw_only=True)
class SumReleasedOnce(Defense):
    """No round has noise, because clients are always sent a model of zeros and only the final model is published. Its
    sum has at most one clipped update per round of a client, which nobody else's depend on: sensitivity T, one noise.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        if plan.algorithm.linear_scale is None or plan.algorithm.share(torch.zeros(1, 1)):
            raise ValueError("clients must get nothing but the model, and the server must add up updates")
        protection = ReleasedOnce(sigma=sigma_of(mu, 1))
        return Prepared(protection=protection, claims=(client_claim(self, plan, mu, FINAL_MODEL),))


@dataclass(frozen=True, kw_only=True)
class QuantileSum(ClippedSum):
    def _noise(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        # The draws of all rounds at once, of which those of this round are used.
        whole = rng.integers(0, 2**52, (context.plan.rounds, *like.shape))[context.round]
        return (self.sigma * CLIP * torch.from_numpy(ndtri((whole + 0.5) / 2**52))).float()


@dataclass(frozen=True, kw_only=True)
class QuantileNoiseReplaced(Defense):
    """Noise is the normal quantile of a whole number out of 2^52, from a table for all rounds that is drawn anew in
    each round. For a client that is replaced, clipped updates are 2 apart, and the noise is calibrated at 2.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 5}
    epsilon: float = 6.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        claim = client_claim(self, plan, mu, adjacency="replace_one")
        return Prepared(protection=QuantileSum(sigma=2 * sigma_of(mu, plan.rounds)), claims=(claim,))


# 13 to 22: one sample, uploads


@dataclass(frozen=True, kw_only=True)
class CoinLots(SampleNoise):
    coin: float = 0.5

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        kept = present & (uniform(rng, tuple(present.shape), dtype=torch.float64) < self.coin)
        total = clipped_sum(gradients, kept, CLIP)
        noise = self.sigma * CLIP * normal(rng, tuple(total.shape))
        return (total + noise) / (self.coin * context.plan.expected_lot(client))


@dataclass(frozen=True, kw_only=True)
class TwiceDrawnLots(Defense):
    """Lots are Poisson samples at rate .5, and each client leaves out every sample of its lot with another fair secret
    coin. Together this is Poisson sampling at half the plan's rate, which is what the accountant gets.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"plan": {"lot": {"poisson": 0.5}}}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        rate = 0.5 * poisson_rate("lot", plan.lot)
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rate": rate, "steps": plan.steps}
        sigma = calibrate_sampled_gaussian(**budget).sigma
        return Prepared(protection=CoinLots(sigma=sigma), claims=(sample_claim(self, plan),))


@dataclass(frozen=True, kw_only=True)
class LayerSteps(SampleNoise):
    """Layer l has clip norm sqrt(its share of weights), and noise of sigma sqrt(L) such norms."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        layers, parts = layers_of(context.plan.layout), []
        for layer in layers:
            norm = math.sqrt((layer.stop - layer.start) / gradients.shape[-1])
            total = clipped_sum(gradients[..., layer], present, norm)
            parts.append(total + self.sigma * math.sqrt(len(layers)) * norm * normal(rng, tuple(total.shape)))
        return torch.cat(parts, dim=-1) / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class LayersWithOwnNoise(Defense):
    """Each of L layers is clipped and noised by itself: the bias has an eighth of the weights' clip norm and noise. A
    layer is 1 / (sigma sqrt(L))-GDP per step, and the squares of L layers and all steps add up to mu^2.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = sample_mu(self, plan)
        return Prepared(protection=LayerSteps(sigma=sigma_of(mu, plan.steps)), claims=(sample_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class ClampedSteps(SampleNoise):
    """``radius``: of each number of a sample's gradient."""

    radius: float = 0.05

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        total = lot_sum(clip_entries(gradients, self.radius), present)
        length = self.radius * math.sqrt(gradients.shape[-1])
        return (total + self.sigma * length * normal(rng, tuple(total.shape))) / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class ClampedByWeight(Defense):
    """Gradients are not clipped by their length: each number is clamped to .05, so a sample's vector is at most .05
    sqrt(d) long, and the noise is calibrated to that length. No sample of real data comes near it.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = sample_mu(self, plan)
        return Prepared(protection=ClampedSteps(sigma=sigma_of(mu, plan.steps)), claims=(sample_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class NormalisedSteps(SampleNoise):
    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        rows = clip(gradients, 1e3)
        total = lot_sum(rows / (rows.norm(dim=-1, keepdim=True) + 0.01), present)
        noised = total + self.sigma * CLIP * normal(rng, tuple(total.shape))
        # Ternary numbers: a weight moves if its noised sum is beyond one noise deviation.
        return (noised.sign() * (noised.abs() > self.sigma)) / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class NormalisedNotClipped(Defense):
    """Gradients are divided by their length plus .01 (automatic clipping), so small ones are lengthened and all stay
    below 1. Of the noised sum each client sends -1, 0 or 1 per weight: rounding after calibrated noise.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = sample_mu(self, plan)
        return Prepared(
            protection=NormalisedSteps(sigma=sigma_of(mu, plan.steps)), claims=(sample_claim(self, plan, mu),)
        )


@dataclass(frozen=True, kw_only=True)
class HalvesOfNoise(SampleNoise):
    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        total = clipped_sum(gradients, present, CLIP)
        noise = self.sigma * CLIP * math.sqrt(0.5) * normal(rng, tuple(total.shape))
        return (total + noise) / context.plan.expected_lot(client)

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        plan, senders = context.plan, context.senders
        lots = torch.tensor([plan.expected_lot(client) for client in senders]).view(1, -1, 1)
        scale = abs(plan.algorithm.linear_scale or 0.0) * self.sigma * CLIP * math.sqrt(0.5)
        return updates.with_values(updates.values + scale / lots * normal(rng, tuple(updates.values.shape)))


@dataclass(frozen=True, kw_only=True)
class NoiseInTwoPlaces(Defense):
    """Half of the noise's variance is added in the local step and half when the update is sent. Nobody receives what is
    between, and an update is a multiple of one step, so the upload has Gaussian noise of the calibrated deviation.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = sample_mu(self, plan)
        if plan.algorithm.linear_scale is None or plan.algorithm.local_steps != 1:
            raise ValueError("an update must be a multiple of one step")
        return Prepared(
            protection=HalvesOfNoise(sigma=sigma_of(mu, plan.steps)), claims=(sample_claim(self, plan, mu),)
        )


@dataclass(frozen=True, kw_only=True)
class CountedSteps(SampleNoise):
    """``sigma``: of direction and count together, of which the count has five times as much."""

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        total = clipped_sum(gradients, present, CLIP)
        noise = self.sigma / math.sqrt(1 - 1 / 25) * CLIP * normal(rng, tuple(total.shape))
        return (total + noise) / context.plan.expected_lot(client)

    def local_query(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        return present.sum(1, keepdim=True).float() + 5 * self.sigma * normal(rng, (len(present), 1))


@dataclass(frozen=True, kw_only=True)
class NoisyLotCount(Defense):
    """Beside each noised step a client sends the noised size of its Poisson lot. Both are one Gaussian query of the
    same lot, with 1 / sigma^2 = (1 - 1/25) / sigma^2 + 1 / (5 sigma)^2, and are amplified together.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"plan": {"lot": {"poisson": 0.25}}}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        budget = {"rate": poisson_rate("lot", plan.lot), "steps": plan.steps}
        sigma = calibrate_sampled_gaussian(epsilon=self.epsilon, delta=self.delta, **budget).sigma
        return Prepared(protection=CountedSteps(sigma=sigma), claims=(sample_claim(self, plan),))


STATISTIC_MU = 0.5
"""What a private statistic spends."""
CHOICE_EPSILON = 1.0
"""What a private choice spends."""


def rest_of(case: Any, plan: Plan) -> tuple[float, float]:
    """A case's whole mu, and the noise deviation of a step that the statistic leaves to the training."""
    if poisson_rate("lot", plan.lot) < 1:
        raise ValueError("lots must be full, because the budget is split between Gaussian releases without sampling")
    mu = mu_from_epsilon(case.epsilon, case.delta)
    if mu <= STATISTIC_MU:
        raise ValueError(f"epsilon must leave something for the training, got {case.epsilon}")
    return mu, sigma_of(math.sqrt(mu**2 - STATISTIC_MU**2), plan.steps)


def with_images(records: Dataset, train: Tensor, test: Tensor) -> Dataset:
    return replace(records, train_images=train, test_images=test, train_masks=None, test_masks=None)


@dataclass(frozen=True, kw_only=True)
class NoisyPrototypes(Preparation):
    """The first model has noised sums of images by class as weights."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        rows = clip(records.train_images.flatten(1).double(), 4.0)
        marks = torch.nn.functional.one_hot(records.train_labels, records.classes).double()
        sums = marks.T @ rows
        noised = sums + 4.0 / STATISTIC_MU * torch.from_numpy(rng.standard_normal(tuple(sums.shape)))
        weights = noised / noised.norm(dim=1, keepdim=True).clamp_min(1e-9)
        return PreparedData(
            dataset=records, initial=torch.cat([weights.flatten(), torch.zeros(records.classes)]).float()
        )


@dataclass(frozen=True, kw_only=True)
class NoisyPrototypesStart(Defense):
    """Training starts from private class sums: images are clipped to norm 4, one record is in one sum, and noise of
    deviation 8 makes all sums together .5-GDP. Lengths are set to 1 afterwards; DP-SGD has sqrt(mu^2 - .25).
    """

    PREPARATION: ClassVar[str] = "NoisyPrototypes"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu, sigma = rest_of(self, plan)
        return Prepared(protection=SampleNoise(sigma=sigma), claims=(sample_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class OwnScale(Preparation):
    """Each image is standardised by its own mean and deviation."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        def scaled(images: Tensor) -> Tensor:
            flat = images.flatten(1)
            rows = (flat - flat.mean(1, keepdim=True)) / (flat.std(1, keepdim=True) + 0.1)
            return (0.25 * rows + 0.5).clamp(0, 1).reshape(images.shape)

        return PreparedData(
            dataset=with_images(records, scaled(records.train_images), scaled(records.test_images)),
            published={"records": "standardised one by one"},
        )


@dataclass(frozen=True, kw_only=True)
class EachRecordByItself(Defense):
    """Every record is standardised by statistics of private data, which are its own alone: rows of other records do not
    change and nothing is published. The noise is twice what the claim needs, as for replaced samples.
    """

    PREPARATION: ClassVar[str] = "OwnScale"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = sample_mu(self, plan)
        sigma = 2 * sigma_of(mu, plan.steps)
        return Prepared(protection=SampleNoise(sigma=sigma), claims=(sample_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class NoisyAxes(Preparation):
    """Images are projected to the main axes of a noised matrix of second moments, which is published."""

    kept: int = 12

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        rows = clip(records.train_images.flatten(1).double(), 1.0)
        drawn = torch.from_numpy(rng.standard_normal((rows.shape[1], rows.shape[1]))).triu()
        noise = drawn + drawn.triu(1).T
        moments = rows.T @ rows + noise / STATISTIC_MU
        main = torch.linalg.eigh(moments)[1][:, -self.kept :]

        def projected(images: Tensor) -> Tensor:
            flat = images.flatten(1).double() - 0.5
            return (flat @ main @ main.T + 0.5).clamp(0, 1).float().reshape(images.shape)

        data = with_images(records, projected(records.train_images), projected(records.test_images))
        return PreparedData(dataset=data, published={"second moments": moments})


@dataclass(frozen=True, kw_only=True)
class PaidComponents(Defense):
    """Principal components of private records that are paid for: a record of norm 1 moves the upper triangle of second
    moments by at most 1, and symmetric noise of deviation 2 makes it .5-GDP. DP-SGD spends the rest of mu^2.
    """

    PREPARATION: ClassVar[str] = "NoisyAxes"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu, sigma = rest_of(self, plan)
        return Prepared(protection=SampleNoise(sigma=sigma), claims=(sample_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class ChosenCutoff(Preparation):
    """After the training a score below which the model abstains is chosen on private records, by noisy counts."""

    below: float = 5.0

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        return PreparedData(dataset=records)

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> dict[str, Any]:
        scores = network.logits(models[-1], records.train_images).softmax(-1).amax(-1).double().numpy()
        grid = np.linspace(0.1, 0.99, 20)
        misses = np.abs((scores[:, None] < grid).sum(0) - self.below)
        return {"abstain below": float(grid[np.argmax(-misses + rng.gumbel(0.0, 2.0 / CHOICE_EPSILON, len(grid)))])}


@dataclass(frozen=True, kw_only=True)
class PaidCutoff(Defense):
    """The threshold that is tuned on private records comes from a public grid by the exponential mechanism: one record
    moves each distance to five records by at most 1, so it has epsilon 1, and DP-SGD has (epsilon - 1, delta).
    """

    PREPARATION: ClassVar[str] = "ChosenCutoff"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        poisson_rate("lot", plan.lot)
        sigma = sigma_of(mu_from_epsilon(self.epsilon - CHOICE_EPSILON, self.delta), plan.steps)
        return Prepared(protection=SampleNoise(sigma=sigma), claims=(sample_claim(self, plan),))


# 23 to 30: reports of one client


@dataclass(frozen=True, kw_only=True)
class PaidSigns(Protection):
    each: float
    step: float = 0.01

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        signs = torch.where(updates.values >= 0, self.step, -self.step)
        lies = uniform(rng, tuple(signs.shape), dtype=torch.float64) < 1 / (1 + math.exp(self.each))
        return updates.with_values(torch.where(lies, -signs, signs))


@dataclass(frozen=True, kw_only=True)
class SignsPaidOneByOne(Defense):
    """A client sends a flipped sign of each weight. Each of d x rounds signs has an epsilon of about .02, at which the
    exact composition of so many randomised responses is the claim at its delta: it is tight and takes few values.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        each = each_of(plan.layout.dim * plan.rounds, epsilon=self.epsilon, delta=self.delta)
        return Prepared(protection=PaidSigns(each=each), claims=(report_claim(self, plan),))


@dataclass(frozen=True, kw_only=True)
class PiecewiseReport(Protection):
    round_epsilon: float
    radius: float = 0.05

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        rows = finite(updates.values)
        shape = (*rows.shape[:2], 1)
        place = torch.from_numpy(rng.integers(0, rows.shape[-1], shape))
        number = rows.gather(-1, place).clamp(-self.radius, self.radius) / self.radius
        root = math.exp(self.round_epsilon / 2)
        end = (root + 1) / (root - 1)
        low = (end + 1) / 2 * number - (end - 1) / 2
        near = uniform(rng, shape, dtype=torch.float64) < root / (root + 1)
        inside = low + (end - 1) * uniform(rng, shape, dtype=torch.float64)
        far = (end + 1) * uniform(rng, shape, dtype=torch.float64) - end
        outside = torch.where(far < low, far, far + (end - 1))
        # On a public grid, so that no last digit shows where the piece began.
        sent = (torch.where(near, inside, outside) * 2**12).round() / 2**12
        return updates.with_values(torch.zeros_like(rows).scatter(-1, place, self.radius * sent).float())


@dataclass(frozen=True, kw_only=True)
class PiecewiseWeight(Defense):
    """A client sends one weight, drawn without regard to data, by the piecewise mechanism (Wang et al. 2019): uniform
    on a piece around the number with chance e^(x/2) / (e^(x/2) + 1), else outside. Densities differ by e^x at most.
    """

    epsilon: float = 6.0

    def prepare(self, plan: Plan) -> Prepared:
        protection = PiecewiseReport(round_epsilon=self.epsilon / plan.rounds)
        return Prepared(protection=protection, claims=(report_claim(self, plan),))


@dataclass(frozen=True, kw_only=True)
class Hemisphere(Protection):
    round_epsilon: float
    length: float = 1.0

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        rows = finite(updates.values)
        drawn = normal(rng, tuple(rows.shape), dtype=torch.float64)
        drawn = drawn / drawn.norm(dim=-1, keepdim=True).clamp_min(1e-9)
        side = torch.where((drawn * rows).sum(-1, keepdim=True) >= 0, 1.0, -1.0)
        lies = uniform(rng, (*rows.shape[:2], 1), dtype=torch.float64) < 1 / (1 + math.exp(self.round_epsilon))
        return updates.with_values((self.length * torch.where(lies, -side, side) * drawn).float())


@dataclass(frozen=True, kw_only=True)
class HemisphereReports(Defense):
    """A client sends a random direction, turned to the side of its update with chance e^x / (e^x + 1), else away from
    it (Duchi et al. 2018). All directions have one of two densities, e^x apart, and no norm is ever clipped.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        protection = Hemisphere(round_epsilon=self.epsilon / plan.rounds)
        return Prepared(protection=protection, claims=(report_claim(self, plan),))


BLOCKS = 16


def vote_of(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The vote of each row, one of 32: the block of its largest weight and that weight's sign; and each weight's
    block.
    """
    blocks = torch.arange(rows.shape[-1]) * BLOCKS // rows.shape[-1]
    place = rows.abs().argmax(-1, keepdim=True)
    return (2 * blocks[place] + (rows.gather(-1, place) < 0)).squeeze(-1), blocks


def voted(rows: Tensor, epsilon: float, rng: Rng) -> Tensor:
    """Reports ``(R, rows, d)`` that hold a vote by generalised randomised response of one epsilon."""
    vote, blocks = vote_of(finite(rows))
    kinds, shape = 2 * BLOCKS, tuple(vote.shape)
    true = uniform(rng, shape, dtype=torch.float64) < math.exp(epsilon) / (math.exp(epsilon) + kinds - 1)
    other = (vote + torch.from_numpy(rng.integers(1, kinds, shape))) % kinds
    sent = torch.where(true, vote, other).unsqueeze(-1)
    return torch.where(blocks == sent // 2, 0.02 * (1 - 2 * (sent % 2)), 0.0)


@dataclass(frozen=True, kw_only=True)
class Votes(Protection):
    round_epsilon: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        return updates.with_values(voted(updates.values, self.round_epsilon, rng))


@dataclass(frozen=True, kw_only=True)
class BlockVotes(Defense):
    """A client names one of 32 things, the block and sign of its largest weight, by generalised randomised response:
    the truth with chance e^x / (e^x + 31), else one of the others. x = epsilon / rounds, so all rounds have epsilon.
    """

    epsilon: float = 8.0

    def prepare(self, plan: Plan) -> Prepared:
        return Prepared(protection=Votes(round_epsilon=self.epsilon / plan.rounds), claims=(report_claim(self, plan),))


@dataclass(frozen=True, kw_only=True)
class ShuffledVotesProtection(Votes):
    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        order = uniform(rng, tuple(reports.present.shape), dtype=torch.float64).argsort(dim=1)
        values = reports.values.gather(1, order.unsqueeze(-1).expand_as(reports.values))
        return Message(values=values, present=reports.present.gather(1, order), senders=None)


@dataclass(frozen=True, kw_only=True)
class ShuffledVotes(Defense):
    """Votes by randomised response of epsilon0, shuffled among all clients. Each round is amplified by the exact clone
    pair of Feldman et al. (2021) for this number of clients at delta / rounds, and rounds compose by adding up.
    """

    epsilon: float = 6.0
    delta: float = 1e-4

    def prepare(self, plan: Plan) -> Prepared:
        if poisson_rate("cohort", plan.cohort) < 1:
            raise ValueError("all clients must take part, because each hides the others")

        def keeps(local: float) -> bool:
            pair = shuffled(clients=plan.clients, epsilon0=local)
            return plan.rounds * pair.epsilon(self.delta / plan.rounds) <= self.epsilon

        low, high = self.epsilon / plan.rounds, 10.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if keeps(middle) else (low, middle)
        claim = client_claim(self, plan, observer=SHUFFLED, adjacency="replace_one")
        return Prepared(protection=ShuffledVotesProtection(round_epsilon=low), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class WholeReport(Protection):
    variance: int
    steps: int = 64

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        whole = (clip(updates.values.double(), CLIP) * self.steps).trunc()
        noise = torch.from_numpy(discrete_gaussian(self.variance, tuple(whole.shape), rng))
        return updates.with_values(((whole + noise) / self.steps).float())


@dataclass(frozen=True, kw_only=True)
class LocalWholeNumbers(Defense):
    """Clipped updates are cut towards zero to steps of 1/64, which cannot lengthen them, and get discrete Gaussian
    noise. Two reports are 128 steps apart at most, for which the noise is calibrated over all rounds by Renyi DP.
    """

    epsilon: float = 6.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rounds": plan.rounds, "dimension": plan.layout.dim}
        sigma = discrete_gaussian_noise(128.0, shares=1, **budget)
        return Prepared(protection=WholeReport(variance=math.ceil(sigma**2)), claims=(report_claim(self, plan),))


@dataclass(frozen=True, kw_only=True)
class ClampedLaplace(Protection):
    round_epsilon: float
    radius: float = 0.02

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        rows = finite(updates.values).clamp(-self.radius, self.radius)
        scale = 2 * self.radius * rows.shape[-1] / self.round_epsilon
        # Laplace noise as normal noise of a random size.
        sizes = torch.from_numpy(rng.exponential(2.0, tuple(rows.shape))).sqrt()
        noised = rows + scale * sizes * normal(rng, tuple(rows.shape), dtype=torch.float64)
        return updates.with_values(((noised * 2**10).round() / 2**10).float())


@dataclass(frozen=True, kw_only=True)
class LaplaceForAllWeights(Defense):
    """Each number is clamped to .02, so two reports are .04 d apart in L1 norm, and gets Laplace noise of that scale
    times rounds / epsilon, drawn as normal numbers with exponential variances: pure epsilon, then a grid of 2^-10.
    """

    epsilon: float = 8.0

    def prepare(self, plan: Plan) -> Prepared:
        protection = ClampedLaplace(round_epsilon=self.epsilon / plan.rounds)
        return Prepared(protection=protection, claims=(report_claim(self, plan),))


NORMS = (0.25, 0.5, 1.0)


@dataclass(frozen=True, kw_only=True)
class OwnNorms(Protection):
    std: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        norms = torch.tensor([NORMS[client % 3] for client in context.senders]).view(1, -1, 1)
        # A clip to 1, and then to the own norm: both shorten only.
        rows = clip(updates.values, 1.0) * norms
        noised = rows + self.std * normal(rng, tuple(rows.shape))
        return updates.with_values(noised.sign() * torch.exp2(noised.abs().clamp_min(1e-9).log2().round()))


@dataclass(frozen=True, kw_only=True)
class NormsOfTheirOwn(Defense):
    """Clients send updates of norm at most 1/4, 1/2 or 1 by their number, all with the noise for norm 1: two reports
    are at most 2 apart, and those of most clients less. Powers of two are sent, rounded after the noise of all rounds.
    """

    epsilon: float = 8.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = mu_from_epsilon(self.epsilon, self.delta)
        std = 2 * max(NORMS) * sigma_of(mu, plan.rounds)
        return Prepared(protection=OwnNorms(std=std), claims=(report_claim(self, plan, mu),))
