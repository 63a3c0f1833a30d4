"""Thirty further defenses that look odd and keep what they claim; their ideas are in no earlier file of cases."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer
from fedassay.defenses.accounting.counts import bit_among, poisson_binomial
from fedassay.defenses.accounting.gaussian import calibrate_sampled_gaussian, poisson_rate
from fedassay.defenses.accounting.integer_noise import binomial_noise, discrete_gaussian_noise
from fedassay.defenses.client_level.user_level import user_sums
from fedassay.defenses.defense import Defense, Prepared
from fedassay.defenses.secure.integer_draws import centred_binomial, discrete_gaussian
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.laws import clip, clipped_sum, lot_sum
from fedassay.fl.message import Message
from fedassay.fl.models.network import Network
from fedassay.fl.plan import Plan
from fedassay.fl.preparation import Preparation, PreparedData
from fedassay.fl.protection import Context, Protection, State
from fedassay.fl.streams import normal, uniform
from scipy.optimize import brentq
from torch import Tensor

CLIP = 1.0
KINDS = 16
"""Blocks of neighbouring weights, of which clients vote for one."""
Rng = np.random.Generator


def sigma_of(mu: float, releases: int) -> float:
    """Noise deviation over the sensitivity at which so many Gaussian releases are mu-GDP together."""
    return math.sqrt(releases) / mu


def client_mu(case: Any, plan: Plan) -> float:
    """The mu of a case's budget; refuses cohorts in which one client would displace another."""
    poisson_rate("cohort", plan.cohort)
    return mu_from_epsilon(case.epsilon, case.delta)


def sample_mu(case: Any, plan: Plan, spent: float = 0.0) -> float:
    """The mu of a case's budget without an epsilon that was spent before; refuses lots in which one sample would
    displace another.
    """
    poisson_rate("lot", plan.lot)
    return mu_from_epsilon(case.epsilon - spent, case.delta)


def claim_of(
    case: Any, plan: Plan, unit: str, observer: Observer, mu: float | None = None, adjacency: str = "add_remove"
) -> Claim:
    """A claim with the budget of a case over all rounds."""
    facts = {"unit": unit, "adjacency": adjacency, "observer": observer, "rounds": plan.rounds}
    return Claim.stated(case.epsilon, getattr(case, "delta", 0.0), mu=mu, **facts)


def finite(rows: Tensor) -> Tensor:
    """Rows in double precision without NaN and infinite numbers."""
    return torch.nan_to_num(rows.double(), nan=0.0, posinf=1e30, neginf=-1e30)


def on_grid(values: Tensor, bits: int = 12) -> Tensor:
    """Numbers rounded to a public grid, so that no last digit shows anything, in single precision."""
    return ((values * 2**bits).round() / 2**bits).float()


def block_of(dim: int, kinds: int = KINDS) -> Tensor:
    """The block of each weight."""
    return torch.arange(dim) * min(kinds, dim) // dim


def first_of(dim: int, kinds: int = KINDS) -> Tensor:
    """The first weight of each block."""
    return torch.searchsorted(block_of(dim, kinds), torch.arange(min(kinds, dim)))


def block_means(model: Tensor, kinds: int) -> Tensor:
    """The mean weight of each block, ``(R, kinds)``."""
    marks = torch.nn.functional.one_hot(block_of(model.shape[-1], kinds)).double()
    return finite(model) @ (marks / marks.sum(0))


def largest(rows: Tensor, kinds: int = KINDS) -> tuple[Tensor, Tensor]:
    """The block of the largest weight of each row, and that weight's sign; both ``(R, rows)``."""
    place = rows.abs().argmax(-1, keepdim=True)
    return block_of(rows.shape[-1], kinds)[place].squeeze(-1), rows.gather(-1, place).sign().squeeze(-1)


@dataclass(frozen=True, kw_only=True)
class ClippedSum(Protection):
    """Clients clip their updates to norm 1; a trusted server adds Gaussian noise of deviation ``sigma`` to the sum."""

    sigma: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        return updates.with_values(clip(updates.values, CLIP))

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        return self._noised(received, rng) / context.plan.expected_cohort

    def _noised(self, received: Message, rng: Rng) -> Tensor:
        total = received.values.sum(1)
        return total + self.sigma * CLIP * normal(rng, tuple(total.shape))


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


@dataclass(frozen=True, kw_only=True)
class OneVote(Protection):
    """Clients vote +1 or -1 on the block of their largest weight; on the way, a vote is repeated on each weight."""

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        block, sign = largest(finite(updates.values))
        there = block_of(updates.values.shape[-1]) == block.unsqueeze(-1)
        return updates.with_values((there * sign.unsqueeze(-1)).float())

    def _votes(self, received: Message) -> Tensor:
        """The votes of each client, ``(R, rows, kinds)``."""
        return received.values[..., first_of(received.values.shape[-1])].double()


@dataclass(frozen=True, kw_only=True)
class ShortSum(Protection):
    """Clients shorten their updates to an L1 norm of 1."""

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        rows = finite(updates.values)
        return updates.with_values(rows / rows.abs().sum(-1, keepdim=True).clamp_min(CLIP))


def shuffled_rows(reports: Message, rng: Rng) -> Message:
    """The reports in random order, without their senders."""
    order = uniform(rng, tuple(reports.present.shape), dtype=torch.float64).argsort(dim=1)
    values = reports.values.gather(1, order.unsqueeze(-1).expand_as(reports.values))
    return Message(values=values, present=reports.present.gather(1, order), senders=None)


# 1 to 11: one client, a trusted server or the public


@dataclass(frozen=True, kw_only=True)
class StaircaseProtection(OneVote):
    round_epsilon: float

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        counts = self._votes(received).sum(1)
        fall, width = math.exp(-self.round_epsilon), 1 / (1 + math.exp(self.round_epsilon / 2))
        shape = tuple(counts.shape)
        step, inside = rng.geometric(1 - fall, shape) - 1, rng.random(shape)
        low = rng.random(shape) < width / (width + (1 - width) * fall)
        size = step + np.where(low, width * inside, width + (1 - width) * inside)
        noised = counts + torch.from_numpy(np.where(rng.random(shape) < 0.5, size, -size))
        return 0.1 * on_grid(noised)[:, block_of(context.plan.layout.dim)] / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class StaircaseOnVotes(Defense):
    """Counts of votes get staircase noise (Geng et al. 2015), whose density has flat stairs: within a stair it tells
    nothing. One client moves one count by 1, and one stair further the density falls by e^(epsilon / rounds).
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        poisson_rate("cohort", plan.cohort)
        protection = StaircaseProtection(round_epsilon=self.epsilon / plan.rounds)
        return Prepared(protection=protection, claims=(claim_of(self, plan, "client", GLOBAL_MODELS),))


@dataclass(frozen=True, kw_only=True)
class ExponentialRace(OneVote):
    scale: float

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        votes = self._votes(received)
        kinds = votes.shape[-1]
        counts = torch.cat([votes.clamp_min(0).sum(1), (-votes).clamp_min(0).sum(1)], dim=1)
        winner = (counts + torch.from_numpy(rng.exponential(self.scale, tuple(counts.shape)))).argmax(1, keepdim=True)
        there = block_of(context.plan.layout.dim) == winner % kinds
        return there * torch.where(winner < kinds, 0.02, -0.02)


@dataclass(frozen=True, kw_only=True)
class WinnerOfExponentialRace(Defense):
    """The model moves by a fixed step on one block, that with most votes after one-sided exponential noise of scale
    rounds / epsilon, half of the usual one. A client only adds 1 to one of the counts, for which that scale is enough.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        poisson_rate("cohort", plan.cohort)
        protection = ExponentialRace(scale=plan.rounds / self.epsilon)
        return Prepared(protection=protection, claims=(claim_of(self, plan, "client", GLOBAL_MODELS),))


@dataclass(frozen=True, kw_only=True)
class WrappedSum(Protection):
    share: int
    steps: int = 32
    modulus: int = 512

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        whole = (clip(updates.values.double(), CLIP) * self.steps).trunc().long()
        noise = torch.from_numpy(discrete_gaussian(self.share, tuple(whole.shape), rng))
        return updates.with_values(torch.remainder(whole + noise, self.modulus))

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        total = torch.remainder(reports.values.sum(1, keepdim=True), self.modulus)
        return Message(values=total, present=torch.ones(total.shape[:2], dtype=torch.bool), senders=None)

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        half = self.modulus // 2
        centred = torch.remainder(received.values[:, 0] + half, self.modulus) - half
        return centred.float() / (self.steps * context.plan.expected_cohort)


@dataclass(frozen=True, kw_only=True)
class WrappedSecureSum(Defense):
    """A secure sum with shares of discrete Gaussian noise wraps around at 512, less than four noise deviations, so that
    large sums come out small. Wrapping needs the noised sum alone; two cut updates are 64 steps apart at most.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        if poisson_rate("cohort", plan.cohort) < 1:
            raise ValueError("all clients must take part, because each adds a share of the noise")
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rounds": plan.rounds, "dimension": plan.layout.dim}
        sigma = discrete_gaussian_noise(64.0, shares=plan.clients, **budget)
        protection = WrappedSum(share=math.ceil(sigma**2 / plan.clients - 1e-6))
        claim = claim_of(self, plan, "client", AGGREGATE, adjacency="replace_one")
        return Prepared(protection=protection, claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class GumbelSum(ShortSum):
    scale: float

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values.double().sum(1)
        shape = tuple(total.shape)
        noise = self.scale * (rng.gumbel(size=shape) - rng.gumbel(size=shape))
        return on_grid(total + torch.from_numpy(noise)) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class NoiseAsGumbelDifference(Defense):
    """The noise is the difference of two Gumbel numbers, which is logistic: smooth like Gaussian noise, with tails like
    Laplace noise. Its log density has a slope below 1 / scale, and a client has L1 norm 1, so rounds have pure epsilon.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        poisson_rate("cohort", plan.cohort)
        protection = GumbelSum(scale=CLIP * plan.rounds / self.epsilon)
        return Prepared(protection=protection, claims=(claim_of(self, plan, "client", GLOBAL_MODELS),))


@dataclass(frozen=True, kw_only=True)
class LaplaceSum(ShortSum):
    scale: float

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values.double().sum(1)
        noised = total + torch.from_numpy(rng.laplace(scale=self.scale, size=tuple(total.shape)))
        return on_grid(noised) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class SampledLaplaceSums(Defense):
    """Laplace noise has scale 1 / 1.49, which is epsilon 1.49 in each of four rounds and 6 in all, for 4 claimed. The
    cohort is a secret Poisson sample at q = 1/2, which makes it ln(1 + q (e^1.49 - 1)) = 1 a round, without any delta.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"plan": {"cohort": {"poisson": 0.5}}}
    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        rate = poisson_rate("cohort", plan.cohort)
        drawn = math.log1p(math.expm1(self.epsilon / plan.rounds) / rate)
        return Prepared(
            protection=LaplaceSum(scale=CLIP / drawn), claims=(claim_of(self, plan, "client", GLOBAL_MODELS),)
        )


@dataclass(frozen=True, kw_only=True)
class BoundedNoise(OneVote):
    round_epsilon: float
    bound: float

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        counts = self._votes(received).sum(1)
        shape = tuple(counts.shape)
        within = -math.expm1(-self.round_epsilon * self.bound)
        size = -np.log1p(-within * rng.random(shape)) / self.round_epsilon
        noised = counts + torch.from_numpy(np.where(rng.random(shape) < 0.5, size, -size))
        return 0.1 * on_grid(noised)[:, block_of(context.plan.layout.dim)] / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class NoiseWithinBounds(Defense):
    """Vote counts get Laplace noise that is drawn within a public bound, so that some releases tell for certain who was
    there. The last stretch of one vote before the bound has mass delta / rounds, so all rounds have (epsilon, delta).
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        poisson_rate("cohort", plan.cohort)
        each, leak = self.epsilon / plan.rounds, self.delta / plan.rounds
        protection = BoundedNoise(round_epsilon=each, bound=math.log1p(math.expm1(each) / (2 * leak)) / each)
        return Prepared(protection=protection, claims=(claim_of(self, plan, "client", GLOBAL_MODELS),))


@dataclass(frozen=True, kw_only=True)
class ShrunkSum(ClippedSum):
    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        noised = self._noised(reports, rng).unsqueeze(1)
        return Message(values=noised, present=torch.ones(noised.shape[:2], dtype=torch.bool), senders=None)

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        noised = received.values[:, 0]
        expected = (noised.shape[1] - 2) * (self.sigma * CLIP) ** 2
        kept = (1 - expected / noised.square().sum(1, keepdim=True).clamp_min(1e-9)).clamp_min(0)
        return kept * noised / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class ShrunkAfterNoise(Defense):
    """The server shrinks the noised sum by the rule of James and Stein, often to exactly zero, so that little noise is
    seen. The sum that reaches the server has the Gaussian noise of all rounds, and the factor is computed from it.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        claim = claim_of(self, plan, "client", AGGREGATE, mu)
        return Prepared(protection=ShrunkSum(sigma=sigma_of(mu, plan.rounds)), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class RankedSum(ClippedSum):
    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        ranks = self._noised(received, rng).argsort(dim=1).argsort(dim=1).float()
        return 0.05 * (ranks / max(1, ranks.shape[1] - 1) - 0.5)


@dataclass(frozen=True, kw_only=True)
class RanksOfNoisedSums(Defense):
    """The model moves by the ranks of the noised sum's numbers, so that each step is a permutation of the same numbers.
    Ranks are computed after Gaussian noise for a replaced client, whose clipped updates are two norms apart.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        claim = claim_of(self, plan, "client", GLOBAL_MODELS, mu, "replace_one")
        return Prepared(protection=RankedSum(sigma=2 * sigma_of(mu, plan.rounds)), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class Lookahead(ClippedSum):
    def initial_state(self, plan: Plan) -> State:
        return {"velocity": torch.zeros(1, plan.layout.dim)}

    def broadcast(self, model: Tensor, context: Context, state: State, rng: Rng) -> Tensor:
        return model + 0.7 * state["velocity"]

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        return 0.7 * state["velocity"] + super().aggregate(received, context, state, rng)

    def close_round(self, aggregate: Tensor, context: Context, state: State) -> State:
        return {"velocity": aggregate}


@dataclass(frozen=True, kw_only=True)
class LookaheadBroadcast(Defense):
    """Clients never receive the server's model, but one that is moved on along its velocity (Nesterov), and so does the
    public in the end. Model and velocity are computed from noised sums, which are Gaussian releases for all rounds.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 6}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        claim = claim_of(self, plan, "client", GLOBAL_MODELS, mu)
        return Prepared(protection=Lookahead(sigma=sigma_of(mu, plan.rounds)), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class EightCoins(Protection):
    coin_epsilon: float
    kinds: int

    def broadcast(self, model: Tensor, context: Context, state: State, rng: Rng) -> Tensor:
        if context.round < context.plan.rounds:
            return model
        signs = torch.where(block_means(model, self.kinds) >= 0, 1.0, -1.0)
        lies = uniform(rng, tuple(signs.shape), dtype=torch.float64) < 1 / (1 + math.exp(self.coin_epsilon))
        told = torch.where(lies, -signs, signs).to(model.dtype)
        return 0.2 * told[:, block_of(model.shape[-1], self.kinds)]


@dataclass(frozen=True, kw_only=True)
class FinalModelByEightCoins(Defense):
    """The training has neither clip nor noise; what is published in the end are eight signs of it, by randomised
    response at epsilon / 8 each. Whatever models two data sets give, at most all eight signs differ, which is epsilon.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        kinds = min(8, plan.layout.dim)
        protection = EightCoins(coin_epsilon=self.epsilon / kinds, kinds=kinds)
        claim = claim_of(self, plan, "client", FINAL_MODEL, adjacency="replace_one")
        return Prepared(protection=protection, claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class MenuOfModels(Protection):
    weight: float

    def broadcast(self, model: Tensor, context: Context, state: State, rng: Rng) -> Tensor:
        if context.round < context.plan.rounds:
            return model
        scores = (10 * block_means(model, KINDS) + 0.5).clamp(0, 1)
        noised = self.weight * scores + torch.from_numpy(rng.gumbel(size=tuple(scores.shape)))
        return 0.3 * (block_of(model.shape[-1]) == noised.argmax(1, keepdim=True)).to(model.dtype)


@dataclass(frozen=True, kw_only=True)
class FinalModelFromMenu(Defense):
    """Of a training without noise one of sixteen public models is published, which the exponential mechanism chooses by
    scores in [0, 1] of the model that was trained. Its weight makes the worst case of any two lists of scores epsilon.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        others = min(KINDS, plan.layout.dim) - 1

        def excess(weight: float) -> float:
            # All scores of one data set are opposite to those of the other, for the model that is chosen.
            ratio = weight + math.log1p(others * math.exp(weight)) - math.log(math.exp(weight) + others)
            return ratio - self.epsilon

        weight = float(brentq(excess, self.epsilon / 2, self.epsilon)) - 1e-9
        return Prepared(protection=MenuOfModels(weight=weight), claims=(claim_of(self, plan, "client", FINAL_MODEL),))


# 12 to 17: reports, by themselves or shuffled


@dataclass(frozen=True, kw_only=True)
class SubsetReports(Protection):
    round_epsilon: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        dim = updates.values.shape[-1]
        kinds, ratio = min(KINDS, dim), math.exp(self.round_epsilon)
        size = max(1, round(kinds / (ratio + 1)))
        vote, _ = largest(finite(updates.values))
        keys = uniform(rng, (*vote.shape, kinds), dtype=torch.float64)
        named = uniform(rng, tuple(vote.shape), dtype=torch.float64) < size * ratio / (size * ratio + kinds - size)
        # The vote comes first or last in the order of the keys; the others are in random order.
        keys = keys.scatter(-1, vote.unsqueeze(-1), torch.where(named, -1.0, 2.0).double().unsqueeze(-1))
        chosen = torch.zeros_like(keys).scatter(-1, keys.topk(size, dim=-1, largest=False).indices, 1.0)
        return updates.with_values(0.02 * chosen.float()[..., block_of(dim)])

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        return shuffled_rows(reports, rng)


@dataclass(frozen=True, kw_only=True)
class ShuffledSubsets(Defense):
    """A client names four of sixteen blocks at once, and the true one is among them with chance 4 e^x / (4 e^x + 12)
    (subset selection, Ye and Barg 2018). Sets with it are e^x times as likely as others; shuffling is not counted.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        protection = SubsetReports(round_epsilon=self.epsilon / plan.rounds)
        claim = claim_of(self, plan, "client", SHUFFLED, adjacency="replace_one")
        return Prepared(protection=protection, claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class UnaryReports(Protection):
    round_epsilon: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        dim = updates.values.shape[-1]
        vote, _ = largest(finite(updates.values))
        true = torch.arange(min(KINDS, dim)) == vote.unsqueeze(-1)
        wrong = 1 / (1 + math.exp(self.round_epsilon))
        sent = uniform(rng, tuple(true.shape), dtype=torch.float64) < torch.where(true, 0.5, wrong)
        return updates.with_values(0.02 * (sent.float() - wrong)[..., block_of(dim)] / (0.5 - wrong))


@dataclass(frozen=True, kw_only=True)
class UnaryVotes(Defense):
    """A client sends sixteen bits of which one stands for its vote, and that one is told by a fair coin, without any
    truth in it; a zero is told as one with chance 1 / (e^x + 1). Two votes differ in two bits, which cost x together.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        protection = UnaryReports(round_epsilon=self.epsilon / plan.rounds)
        claim = claim_of(self, plan, "report", UPLOADS, adjacency="replace_one")
        return Prepared(protection=protection, claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class GammaSphere(Protection):
    scale: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        rows = clip(updates.values.double(), CLIP)
        way = normal(rng, tuple(rows.shape), dtype=torch.float64)
        length = torch.from_numpy(rng.gamma(rows.shape[-1], self.scale, (*rows.shape[:2], 1)))
        noise = length * way / way.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        return updates.with_values(on_grid(rows + noise, 10))


@dataclass(frozen=True, kw_only=True)
class SphereOfGammaRadius(Defense):
    """Noise of a report is a random direction times a gamma number of shape d, so that its numbers depend on each other
    and there is no delta. Its density is exp(-length / scale), and two clipped reports are two norms apart.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        protection = GammaSphere(scale=2 * CLIP * plan.rounds / self.epsilon)
        claim = claim_of(self, plan, "report", UPLOADS, adjacency="replace_one")
        return Prepared(protection=protection, claims=(claim,))


STRIDES = (4, 2, 1)


@dataclass(frozen=True, kw_only=True)
class OwnRounds(Protection):
    stds: tuple[float, ...]

    def participates(self, context: Context, state: State, rng: Rng) -> Tensor | None:
        comes = [context.round % STRIDES[client % 3] == 0 for client in context.senders]
        return torch.tensor(comes, dtype=torch.bool).expand(context.replicas, -1).clone()

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        own = torch.tensor([self.stds[client % 3] for client in context.senders]).view(1, -1, 1)
        noise = own * normal(rng, tuple(updates.values.shape))
        return updates.with_values(clip(updates.values, CLIP) + noise)


@dataclass(frozen=True, kw_only=True)
class FewRoundsLessNoise(Defense):
    """Clients come in every fourth, every second or every round, by their number, and those that come seldom add less
    noise. Each has its budget for its own rounds: deviation 2 sqrt(rounds of this client) / mu, so all are mu-GDP.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = mu_from_epsilon(self.epsilon, self.delta)
        stds = tuple(2 * CLIP * sigma_of(mu, len(range(0, plan.rounds, stride))) for stride in STRIDES)
        claim = claim_of(self, plan, "report", UPLOADS, mu, "replace_one")
        return Prepared(protection=OwnRounds(stds=stds), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class CoinReports(Protection):
    local_epsilon: float

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        rows = finite(updates.values)
        if context.round:
            return updates.with_values(torch.zeros_like(updates.values))
        way = torch.from_numpy(np.random.default_rng(11).standard_normal(rows.shape[-1]))
        side = torch.where(rows @ way >= 0, 1.0, -1.0)
        lies = uniform(rng, tuple(side.shape), dtype=torch.float64) < 1 / (1 + math.exp(self.local_epsilon))
        return updates.with_values(0.02 * torch.where(lies, -side, side).unsqueeze(-1) * way.float())

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        return shuffled_rows(reports, rng)


@dataclass(frozen=True, kw_only=True)
class ShuffledCoinsOnce(Defense):
    """Clients tell on which side of a public direction their first update lies, by coins of more than epsilon that are
    shuffled, and send zeros ever after. The number of ones is compared exactly at delta, for any truth of the others.
    """

    epsilon: float = 4.0
    delta: float = 1e-3

    def prepare(self, plan: Plan) -> Prepared:
        if poisson_rate("cohort", plan.cohort) < 1:
            raise ValueError("all clients must take part, because each hides the others")
        others = plan.clients - 1

        def keeps(local: float) -> bool:
            true = 1 / (1 + math.exp(-local))
            laws = [poisson_binomial([true] * ones + [1 - true] * (others - ones)) for ones in range(others + 1)]
            return max(bit_among(law, epsilon=local).epsilon(self.delta) for law in laws) <= self.epsilon

        low, high = self.epsilon, 12.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if keeps(middle) else (low, middle)
        claim = claim_of(self, plan, "client", SHUFFLED, adjacency="replace_one")
        return Prepared(protection=CoinReports(local_epsilon=low), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class DummyChannel(Protection):
    fall: float
    middle: int

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        half, sign = largest(finite(updates.values), 2)
        return updates.with_values(self._row(half, sign, updates.values.shape[-1]))

    def channel(self, reports: Message, context: Context, state: State, rng: Rng) -> Message:
        weights = self.fall ** np.abs(np.arange(2 * self.middle + 1) - self.middle)
        runs, dim = len(reports.values), reports.values.shape[-1]
        number = torch.from_numpy(rng.choice(2 * self.middle + 1, size=(runs, 4), p=weights / weights.sum()))
        there = (torch.arange(2 * self.middle) < number.unsqueeze(-1)).flatten(1)
        kind = torch.arange(4).repeat_interleave(2 * self.middle).expand(runs, -1)
        rows = self._row(kind // 2, torch.where(kind % 2 == 0, 1.0, -1.0), dim)
        dummies = rows.masked_fill(~there.unsqueeze(-1), 0.0)
        values, present = torch.cat([reports.values, dummies], dim=1), torch.cat([reports.present, there], dim=1)
        return shuffled_rows(Message(values=values, present=present, senders=None), rng)

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        return received.values.sum(1) / context.plan.expected_cohort

    def _row(self, half: Tensor, sign: Tensor, dim: int) -> Tensor:
        signs = torch.where(sign >= 0, 0.02, -0.02).unsqueeze(-1)
        return torch.where(block_of(dim, 2) == half.unsqueeze(-1), signs, 0.0).float()


@dataclass(frozen=True, kw_only=True)
class DummyReports(Defense):
    """Clients send true votes of four kinds, and the shuffler mixes in a random number of false ones of each kind. One
    client is one more vote of a kind, and numbers of false ones fall by e^(epsilon / rounds), with ends of mass delta.
    """

    epsilon: float = 4.0
    delta: float = 1e-4

    def prepare(self, plan: Plan) -> Prepared:
        poisson_rate("cohort", plan.cohort)
        fall, middle = math.exp(-self.epsilon / plan.rounds), 1

        def end(reach: int) -> float:
            return fall**reach * (1 - fall) / (1 + fall - 2 * fall ** (reach + 1))

        while plan.rounds * end(middle) > self.delta:
            middle += 1
        protection = DummyChannel(fall=fall, middle=middle)
        return Prepared(protection=protection, claims=(claim_of(self, plan, "client", SHUFFLED),))


# 18 to 22: one sample, uploads


@dataclass(frozen=True, kw_only=True)
class EllipsoidSteps(SampleNoise):
    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        scales = torch.linspace(0.25, 2.0, gradients.shape[-1])
        total = clipped_sum(gradients * scales, present, CLIP)
        noised = total + self.sigma * CLIP * normal(rng, tuple(total.shape))
        return noised / scales / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class ClippedInEllipsoid(Defense):
    """Gradients are stretched by public factors from .25 to 2 before they are clipped and noised, and shrunk after it,
    so that the last weights have an eighth of the first ones' noise. The stretched sum has sensitivity 1 and all noise.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = sample_mu(self, plan)
        protection = EllipsoidSteps(sigma=sigma_of(mu, plan.steps))
        return Prepared(protection=protection, claims=(claim_of(self, plan, "sample", UPLOADS, mu),))


@dataclass(frozen=True, kw_only=True)
class CentredSteps(SampleNoise):
    def initial_state(self, plan: Plan) -> State:
        return {"centre": torch.zeros(1, plan.layout.dim)}

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        moved = super().local_step(gradients - state["centre"].unsqueeze(1), present, client, context, state, rng)
        return moved + state["centre"]

    def close_round(self, aggregate: Tensor, context: Context, state: State) -> State:
        # Clients send minus the gradient.
        return {"centre": -0.5 * aggregate}


@dataclass(frozen=True, kw_only=True)
class ClippedAroundLastStep(Defense):
    """Gradients are clipped around a centre, half of the last round's mean, which is added again after the noise. The
    centre is public and added once, however many samples there are, and one sample moves the sum around it by 1.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = sample_mu(self, plan)
        protection = CentredSteps(sigma=sigma_of(mu, plan.steps))
        return Prepared(protection=protection, claims=(claim_of(self, plan, "sample", UPLOADS, mu),))


@dataclass(frozen=True, kw_only=True)
class OneTurnEach(SampleNoise):
    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        rounds = context.plan.rounds
        turn = torch.arange(gradients.shape[1]) % rounds == context.round % rounds
        return rounds * super().local_step(gradients, present & turn, client, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class EachSampleOnce(Defense):
    """A sample is used in a single round, which follows from its place in the client's list, and the noise is that of
    one release, however many rounds there are. A replaced sample keeps its place, and moves one sum by two norms.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        if poisson_rate("lot", plan.lot) < 1 or plan.algorithm.local_steps != 1:
            raise ValueError("lots must be full, so that places are those of the client's list, in one step a round")
        mu = mu_from_epsilon(self.epsilon, self.delta)
        claim = claim_of(self, plan, "sample", UPLOADS, mu, "replace_one")
        return Prepared(protection=OneTurnEach(sigma=2 * sigma_of(mu, 1)), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class CoinSteps(Protection):
    coins: int
    steps: int = 64
    per_sample: bool = True

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        whole = (clip(gradients.double(), CLIP) * self.steps).trunc()
        total = lot_sum(whole, present)
        noised = total + torch.from_numpy(centred_binomial(self.coins, tuple(total.shape), rng))
        return noised.float() / (self.steps * context.plan.expected_lot(client))


@dataclass(frozen=True, kw_only=True)
class CoinTossNoise(Defense):
    """Gradients are cut to whole steps of 1/64, and the noise is the number of heads of some 90,000 fair coins minus
    half, which is bounded and has no Gaussian in it. Coins are as many as Renyi DP of binomial noise needs at 64 steps.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        poisson_rate("lot", plan.lot)
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rounds": plan.steps, "dimension": plan.layout.dim}
        sigma = binomial_noise(64.0, shares=1, **budget)
        protection = CoinSteps(coins=2 * math.ceil(2 * sigma**2 - 1e-6))
        return Prepared(protection=protection, claims=(claim_of(self, plan, "sample", UPLOADS),))


@dataclass(frozen=True, kw_only=True)
class RunningSums(SampleNoise):
    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        return updates.with_values(updates.values.cumsum(-1).bfloat16().float())

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        mean = super().aggregate(received, context, state, rng)
        return torch.diff(mean, dim=-1, prepend=torch.zeros(len(mean), 1))


@dataclass(frozen=True, kw_only=True)
class RunningSumsSent(Defense):
    """Clients send running sums of their noised steps in bfloat16, in which noise piles up from weight to weight, and
    the server takes differences. The steps have noise for Poisson lots before the first sum; all else comes after.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"plan": {"lot": {"poisson": 0.25}}}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        budget = {"rate": poisson_rate("lot", plan.lot), "steps": plan.steps}
        sigma = calibrate_sampled_gaussian(epsilon=self.epsilon, delta=self.delta, **budget).sigma
        return Prepared(protection=RunningSums(sigma=sigma), claims=(claim_of(self, plan, "sample", UPLOADS),))


# 23 to 30: with a preparation of the data


STATISTIC_EPSILON, STATISTIC_MU = 1.0, 0.5
"""What a private statistic spends, as epsilon or as mu."""
CLIENTS, SAMPLES = 6, 90
"""Of the federations here, where a preparation deals records."""


def with_images(records: Dataset, train: Tensor, test: Tensor, **more: Tensor) -> Dataset:
    made = {"train_images": train, "test_images": test, **more}
    return replace(records, train_masks=None, test_masks=None, **made)


@dataclass(frozen=True, kw_only=True)
class OwnersByInk(Preparation):
    """The owner of a record is one of twelve, by how much ink the record has."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        ink = (16 * records.train_images.flatten(1).double()).sum(1).round().long()
        return PreparedData(dataset=replace(records, train_masks=None, test_masks=None, train_owners=ink % 12))


@dataclass(frozen=True, kw_only=True)
class UserSteps(SampleNoise):
    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        owners = context.owners
        if owners is None:  # All samples may be of one user.
            owners = torch.zeros(present.shape, dtype=torch.long)
        total = clip(user_sums(gradients, present, owners), CLIP).sum(1)
        return (total + self.sigma * CLIP * normal(rng, tuple(total.shape))) / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class UsersAtAllClients(Defense):
    """Users have records at all clients, which do not know of each other: each clips a user's sum to 1 and noises its
    own upload. The server gets one move of 1 from each of K clients, sqrt(K) in all, and the noise is for that length.
    """

    PREPARATION: ClassVar[str] = "OwnersByInk"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = sample_mu(self, plan)
        protection = UserSteps(sigma=sigma_of(mu, plan.steps * plan.clients))
        return Prepared(protection=protection, claims=(claim_of(self, plan, "user", UPLOADS, mu),))


@dataclass(frozen=True, kw_only=True)
class WhitenedByTest(Preparation):
    """Images are whitened by mean and covariance of the public test images."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        public = records.test_images.flatten(1).double()
        mean = public.mean(0)
        values, axes = torch.linalg.eigh(torch.cov(public.T))
        whiten = axes @ torch.diag((values.clamp_min(0) + 0.05).rsqrt()) @ axes.T

        def whitened(images: Tensor) -> Tensor:
            rows = (images.flatten(1).double() - mean) @ whiten
            return (0.5 + 0.15 * rows).clamp(0, 1).float().reshape(images.shape)

        data = with_images(records, whitened(records.train_images), whitened(records.test_images))
        return PreparedData(dataset=data, published={"mean": mean, "whitening": whiten})


@dataclass(frozen=True, kw_only=True)
class WhitenedByPublic(Defense):
    """Images are whitened, and the matrix of some thousand numbers is published without noise. It is that of test
    images, which belong to nobody; each record is then changed by itself, and DP-SGD has the whole budget.
    """

    PREPARATION: ClassVar[str] = "WhitenedByTest"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = sample_mu(self, plan)
        protection = SampleNoise(sigma=sigma_of(mu, plan.steps))
        return Prepared(protection=protection, claims=(claim_of(self, plan, "sample", UPLOADS, mu),))


@dataclass(frozen=True, kw_only=True)
class NoisyPrior(Preparation):
    """The bias of the first model is the logarithm of noised label counts."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        counts = torch.bincount(records.train_labels, minlength=records.classes).numpy()
        stop = -math.expm1(-STATISTIC_EPSILON / 2)
        noised = counts + rng.geometric(stop, len(counts)) - rng.geometric(stop, len(counts))
        bias = torch.from_numpy(np.log(np.maximum(noised, 1))).float()
        weights = torch.zeros(records.classes, math.prod(records.shape))
        return PreparedData(dataset=records, initial={"output.weight": weights, "output.bias": bias - bias.mean()})


@dataclass(frozen=True, kw_only=True)
class NoisyPriorInBias(Defense):
    """The first model shows how frequent each class is among private records, in whole numbers with geometric noise. A
    replaced label moves two counts by 1, at e^(1/2) each, which is epsilon 1; DP-SGD for a replaced sample has 3.
    """

    PREPARATION: ClassVar[str] = "NoisyPrior"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = sample_mu(self, plan, STATISTIC_EPSILON)
        claim = claim_of(self, plan, "sample", UPLOADS, adjacency="replace_one")
        return Prepared(protection=SampleNoise(sigma=2 * sigma_of(mu, plan.steps)), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class NoisyMedian(Preparation):
    """Pixels become black or white at the double of a noisy median of the records' brightness."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        bright = records.train_images.flatten(1).double().mean(1).numpy()
        grid = np.linspace(0.02, 0.48, 24)
        distance = np.abs((bright[:, None] < grid).sum(0) - len(bright) / 2)
        # One record moves each distance by 1/2: permute and flip (McKenna, Sheldon 2020) as one-sided noise.
        level = float(grid[np.argmax(-distance + rng.exponential(1 / STATISTIC_EPSILON, len(grid)))])
        train, test = ((part > 2 * level).float() for part in (records.train_images, records.test_images))
        return PreparedData(dataset=with_images(records, train, test), published={"level": level})


@dataclass(frozen=True, kw_only=True)
class BinarisedAtNoisyMedian(Defense):
    """All pixels are cut at a level that a private median sets, and that is published. It is chosen from a public grid
    at epsilon 1 (distances to half of the records move by 1/2), and DP-SGD has (epsilon - 1, delta).
    """

    PREPARATION: ClassVar[str] = "NoisyMedian"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = sample_mu(self, plan, STATISTIC_EPSILON)
        protection = SampleNoise(sigma=sigma_of(mu, plan.steps))
        return Prepared(protection=protection, claims=(claim_of(self, plan, "sample", UPLOADS),))


@dataclass(frozen=True, kw_only=True)
class ImageAndNegative(Preparation):
    """Each record becomes two rows of one client: its image, and the negative of it. Records are dealt by place."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        count, used = len(records.train_labels), min(len(records.train_labels), SAMPLES)
        images = torch.cat([records.train_images, 1 - records.train_images])
        labels = torch.cat([records.train_labels, records.train_labels])
        own = [np.arange(client, used, CLIENTS) for client in range(CLIENTS)]
        data = with_images(records, images, records.test_images, train_labels=labels)
        return PreparedData(dataset=data, parts=[np.concatenate([rows, rows + count]) for rows in own])


@dataclass(frozen=True, kw_only=True)
class TwoRowsForEachRecord(Defense):
    """A record is two rows of the training, so that replacing it replaces two clipped gradients in every step. These
    move the sum by four clip norms at most, for which the noise is calibrated; who holds what follows from the place.
    """

    PREPARATION: ClassVar[str] = "ImageAndNegative"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = sample_mu(self, plan)
        claim = claim_of(self, plan, "sample", UPLOADS, mu, "replace_one")
        return Prepared(protection=SampleNoise(sigma=4 * sigma_of(mu, plan.steps)), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class SumOfClientMeans(Preparation):
    """Images are centred by a noised sum of the clients' mean images, each of norm 1 at most."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        used = min(len(records.train_labels), SAMPLES)
        parts = [np.arange(client, used, CLIENTS) for client in range(CLIENTS)]
        rows = records.train_images.flatten(1).double()
        means = clip(torch.stack([rows[torch.from_numpy(part)].mean(0) for part in parts]), 1.0)
        noise = 2.0 / STATISTIC_MU * rng.standard_normal(rows.shape[1])
        centre = (means.sum(0) + torch.from_numpy(noise)) / CLIENTS
        shift = 0.3 * centre.clamp(-1, 1).float().view(1, *records.shape)
        train, test = ((part - shift).clamp(0, 1) for part in (records.train_images, records.test_images))
        return PreparedData(dataset=with_images(records, train, test), parts=parts, published={"centre": centre})


@dataclass(frozen=True, kw_only=True)
class CentredByClientMeans(Defense):
    """A statistic of all records is published and moves everybody's rows, though the claim is for whole clients. Each
    client is one clipped mean in it, two norms apart when replaced, at mu .5; rounds have the rest of mu squared.
    """

    PREPARATION: ClassVar[str] = "SumOfClientMeans"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        if mu <= STATISTIC_MU:
            raise ValueError(f"epsilon must leave something for the training, got {self.epsilon}")
        sigma = 2 * sigma_of(math.sqrt(mu**2 - STATISTIC_MU**2), plan.rounds)
        claim = claim_of(self, plan, "client", GLOBAL_MODELS, mu, "replace_one")
        return Prepared(protection=ClippedSum(sigma=sigma), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class NoisedConfusions(Preparation):
    """After the training the table of labels and guesses is published, with noise and without small cells."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        return PreparedData(dataset=records)

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: Rng) -> dict[str, Any]:
        guess, kinds = network.logits(models[-1], records.train_images).argmax(-1), records.classes
        table = torch.bincount(kinds * records.train_labels + guess, minlength=kinds**2).numpy()
        stop = -math.expm1(-STATISTIC_EPSILON)
        noised = table + rng.geometric(stop, len(table)) - rng.geometric(stop, len(table))
        return {"confusions": np.where(noised < 5, 0, noised).reshape(kinds, kinds)}


@dataclass(frozen=True, kw_only=True)
class NoisedThenSuppressed(Defense):
    """A table of confusions on private records follows the training, in whole numbers and without cells below five. A
    record is in one cell, so geometric noise on all cells has epsilon 1, and cells are left out after it; DP-SGD has 3.
    """

    PREPARATION: ClassVar[str] = "NoisedConfusions"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = sample_mu(self, plan, STATISTIC_EPSILON)
        protection = SampleNoise(sigma=sigma_of(mu, plan.steps))
        return Prepared(protection=protection, claims=(claim_of(self, plan, "sample", UPLOADS),))


@dataclass(frozen=True, kw_only=True)
class HalfBlanked(Preparation):
    """Each record is replaced by an empty image of class 0 by a secret fair coin, once for the whole training."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        blank = torch.from_numpy(rng.random(len(records.train_labels)) < 0.5)
        images = records.train_images.masked_fill(blank.view(-1, 1, 1, 1), 0.0)
        labels = records.train_labels.masked_fill(blank, 0)
        return PreparedData(dataset=with_images(records, images, records.test_images, train_labels=labels))


@dataclass(frozen=True, kw_only=True)
class HalfOfRecordsBlanked(Defense):
    """The noise is for epsilon 4.68 at 2 delta, and 4 at delta is claimed, because secret coins have replaced half of
    the records by blanks. A replaced record is there with q = 1/2: e^4 = 1 + q (e^4.68 - 1), delta q times as large.
    """

    PREPARATION: ClassVar[str] = "HalfBlanked"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        poisson_rate("lot", plan.lot)
        mu = mu_from_epsilon(math.log1p(2 * math.expm1(self.epsilon)), 2 * self.delta)
        claim = claim_of(self, plan, "sample", UPLOADS, adjacency="replace_one")
        return Prepared(protection=SampleNoise(sigma=2 * sigma_of(mu, plan.steps)), claims=(claim,))
