"""Defenses that look unusual and keep what they claim."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, UPLOADS, Observer
from fedassay.defenses.accounting.gaussian import calibrate_sampled_gaussian, poisson_rate
from fedassay.defenses.accounting.integer_noise import discrete_gaussian_noise, skellam_noise
from fedassay.defenses.defense import Defense, Prepared
from fedassay.defenses.secure.integer_draws import discrete_gaussian, skellam
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.laws import clip, clipped_sum
from fedassay.fl.message import Message
from fedassay.fl.models.network import Network
from fedassay.fl.plan import Plan
from fedassay.fl.preparation import Preparation, PreparedData
from fedassay.fl.protection import Context, Protection, State
from fedassay.fl.streams import normal, uniform
from scipy.fft import dct
from torch import Tensor

CLIP = 1.0


def sigma_of(mu: float, releases: int) -> float:
    """Noise deviation over the sensitivity at which so many Gaussian releases are mu-GDP together."""
    return math.sqrt(releases) / mu


def client_mu(case: Any, plan: Plan) -> float:
    """The mu of a case's budget; refuses cohorts in which one client would displace another."""
    poisson_rate("cohort", plan.cohort)
    return mu_from_epsilon(case.epsilon, case.delta)


def client_claim(case: Any, plan: Plan, mu: float | None = None, observer: Observer = GLOBAL_MODELS) -> Claim:
    """A claim about one client that is there or not."""
    facts = {"unit": "client", "adjacency": "add_remove", "observer": observer, "rounds": plan.rounds}
    return Claim.stated(case.epsilon, case.delta, mu=mu, **facts)


def sample_claim(case: Any, plan: Plan, mu: float | None = None) -> Claim:
    """A claim about one sample that is there or not, against the server that receives single updates."""
    facts = {"unit": "sample", "adjacency": "add_remove", "observer": UPLOADS, "rounds": plan.rounds}
    return Claim.stated(case.epsilon, case.delta, mu=mu, **facts)


@dataclass(frozen=True, kw_only=True)
class ClippedSum(Protection):
    """Clients clip their updates to norm 1; a trusted server adds Gaussian noise of deviation ``sigma`` to the sum."""

    sigma: float

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return updates.with_values(clip(updates.values, CLIP))

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return self._noised(received, rng) / context.plan.expected_cohort

    def _noised(self, received: Message, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1)
        return total + self.sigma * CLIP * normal(rng, tuple(total.shape))


@dataclass(frozen=True, kw_only=True)
class SampleNoise(Protection):
    """Clients clip each sample's gradient to norm 1 and add Gaussian noise of deviation ``sigma`` to the sum."""

    sigma: float
    per_sample: bool = True

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        total = clipped_sum(gradients, present, CLIP)
        return (total + self.sigma * CLIP * normal(rng, tuple(total.shape))) / context.plan.expected_lot(client)


# Post-processing after the noise, by a trusted server


@dataclass(frozen=True, kw_only=True)
class ClampedSum(ClippedSum):
    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        bound = 1.5 * self.sigma * CLIP
        return self._noised(received, rng).clamp(-bound, bound) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class ClampAfterNoise(Defense):
    """The server noises the sum of clipped updates, then clamps every number to 1.5 noise deviations, so that many
    numbers stand exactly at the bound. The bound is public and comes after noise for all rounds: post-processing.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=ClampedSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class RoundedSum(ClippedSum):
    step: float = 0.5

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return (self._noised(received, rng) / self.step).round() * self.step / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class CoarseStepsAfterNoise(Defense):
    """The noised sum is rounded to whole steps of half a clip norm, so that releases take few values. Rounding needs
    the noised sum alone, which has the Gaussian noise of all rounds: post-processing.
    """

    epsilon: float = 2.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=RoundedSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan),))


@dataclass(frozen=True, kw_only=True)
class LargestKept(ClippedSum):
    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        noised = self._noised(received, rng) / context.plan.expected_cohort
        places = noised.abs().topk(max(1, noised.shape[1] // 10), dim=1).indices
        return torch.zeros_like(noised).scatter(1, places, noised.gather(1, places))


@dataclass(frozen=True, kw_only=True)
class MomentumSum(ClippedSum):
    def initial_state(self, plan: Plan) -> State:
        return {"velocity": torch.zeros(1, plan.layout.dim)}

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return 0.8 * state["velocity"] + self._noised(received, rng) / context.plan.expected_cohort

    def close_round(self, aggregate: Tensor, context: Context, state: State) -> State:
        return {"velocity": aggregate}


@dataclass(frozen=True, kw_only=True)
class MomentumOfNoisedSums(Defense):
    """The server moves the model by a momentum of all noised sums so far, which is also the public state. The momentum
    is computed from the Gaussian releases of the rounds alone, and these compose to the budget.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 6}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        sigma = sigma_of(mu, plan.rounds)
        claim = replace(client_claim(self, plan, mu), parameters={"noise_multiplier": sigma, "clip_norm": CLIP})
        return Prepared(protection=MomentumSum(sigma=sigma), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class ErrorFeedback(ClippedSum):
    """The aggregator noises the sum on the way to the server, which sends the tenth of largest numbers and keeps the
    rest for later rounds.
    """

    def initial_state(self, plan: Plan) -> State:
        return {"left": torch.zeros(1, plan.layout.dim)}

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        noised = self._noised(reports, rng).unsqueeze(1)
        return Message(values=noised, present=torch.ones(noised.shape[:2], dtype=torch.bool), senders=None)

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return self._split(received, context, state)[0]

    def query(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> State:
        return {"left": self._split(received, context, state)[1]}

    def _split(self, received: Message, context: Context, state: State) -> tuple[Tensor, Tensor]:
        wanted = state["left"] + received.values[:, 0] / context.plan.expected_cohort
        places = wanted.abs().topk(max(1, wanted.shape[1] // 10), dim=1).indices
        sent = torch.zeros_like(wanted).scatter(1, places, wanted.gather(1, places))
        return sent, wanted - sent


@dataclass(frozen=True, kw_only=True)
class ErrorFeedbackAfterNoise(Defense):
    """Top-k compression with error feedback, both of sums that were noised before. What is sent and what is left over
    (public state) are functions of the noised sums, whose Gaussian noise composes over the rounds to the budget.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(
            protection=ErrorFeedback(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),)
        )


@dataclass(frozen=True, kw_only=True)
class SignedSum(ClippedSum):
    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return 0.01 * self._noised(received, rng).sign()


@dataclass(frozen=True, kw_only=True)
class SignOfNoisedSum(Defense):
    """Only the sign of each number of the noised sum is released, times a public step (signSGD at the server). The sum
    has the Gaussian noise of all rounds, and the sign is post-processing.
    """

    epsilon: float = 1.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=SignedSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan),))


@dataclass(frozen=True, kw_only=True)
class MedianSum(ClippedSum):
    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        copies = torch.stack([self._noised(received, rng) for _ in range(3)])
        return copies.median(0).values / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class MedianOfPaidCopies(Defense):
    """The server noises the sum three times and releases the median of each number. Each copy is paid for: noise is
    calibrated to three releases a round, and the median is a function of the three.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(
            protection=MedianSum(sigma=sigma_of(mu, 3 * plan.rounds)), claims=(client_claim(self, plan, mu),)
        )


# Odd draws of the noise


@dataclass(frozen=True, kw_only=True)
class DifferenceSum(ClippedSum):
    def _noised(self, received: Message, rng: np.random.Generator) -> Tensor:
        total, half = received.values.sum(1), self.sigma * CLIP / math.sqrt(2)
        first, second = normal(rng, tuple(total.shape)), normal(rng, tuple(total.shape))
        return total + half * first - half * second


@dataclass(frozen=True, kw_only=True)
class NoiseAsDifference(Defense):
    """The noise is the difference of two independent normal draws, each of half the variance. Variances of independent
    normal numbers add up, so it is Gaussian noise of the calibrated deviation.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(
            protection=DifferenceSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),)
        )


@dataclass(frozen=True, kw_only=True)
class NumpySum(ClippedSum):
    def _noised(self, received: Message, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1).double()
        own = np.random.Generator(np.random.PCG64(rng.integers(0, 2**63, size=4).tolist()))
        return (total + torch.from_numpy(own.normal(0.0, self.sigma * CLIP, tuple(total.shape)))).float()


@dataclass(frozen=True, kw_only=True)
class NoiseFromSeededNumpy(Defense):
    """The noise comes from a numpy generator of its own, seeded anew in each round with 252 random bits of the round's
    generator, in double precision. It is fresh Gaussian noise of the calibrated deviation in every round.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=NumpySum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class CosineSum(ClippedSum):
    def _noised(self, received: Message, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1).double()
        waves = self.sigma * CLIP * rng.standard_normal(tuple(total.shape))
        return (total + torch.from_numpy(dct(waves, norm="ortho", axis=1))).float()


@dataclass(frozen=True, kw_only=True)
class NoiseInCosineBasis(Defense):
    """The noise is drawn for the coefficients of an orthonormal cosine transform and transformed to weights. A rotation
    of independent normal numbers of one deviation is the same distribution, so nothing changes.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=CosineSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class BatchSum(ClippedSum):
    def _noised(self, received: Message, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1)
        pool = normal(rng, (2 * total.numel(),))[1::2].reshape(total.shape[1], total.shape[0])
        return total + self.sigma * CLIP * pool.flip(0).T


@dataclass(frozen=True, kw_only=True)
class NoiseFromOnePool(Defense):
    """All noise of a round is drawn as one long vector, of which every second number is used, in reversed and
    transposed order. Every weight still has one normal number of its own, with the calibrated deviation.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=BatchSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan),))


@dataclass(frozen=True, kw_only=True)
class HeavySum(ClippedSum):
    def _noised(self, received: Message, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1)
        paid = total + self.sigma * CLIP * normal(rng, tuple(total.shape))
        return paid + 0.2 * torch.from_numpy(rng.standard_t(2.0, tuple(total.shape))).float()


@dataclass(frozen=True, kw_only=True)
class HeavyTailedExtra(Defense):
    """On top of the calibrated Gaussian noise the server adds independent Student noise with two degrees of freedom,
    against rounding artefacts. Further noise that does not depend on the data is post-processing.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=HeavySum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan),))


# Public rules


@dataclass(frozen=True, kw_only=True)
class EvenRounds(ClippedSum):
    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        if context.round % 2:
            return torch.zeros_like(received.values.sum(1))
        return self._noised(received, rng) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class EverySecondRound(Defense):
    """The server uses the updates of even rounds alone and releases zeros in odd ones. The rule is public, so noise is
    calibrated to half of the rounds (rounded up), which is all that is ever released.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 7}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        sigma = sigma_of(mu, (plan.rounds + 1) // 2)
        return Prepared(protection=EvenRounds(sigma=sigma), claims=(client_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class SilentStart(ClippedSum):
    silent: int

    def participates(self, context: Context, state: State, rng: np.random.Generator) -> Tensor | None:
        if context.round >= self.silent:
            return None
        return torch.zeros(context.replicas, len(context.senders), dtype=torch.bool)

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        if context.round < self.silent:
            return torch.zeros_like(received.values.sum(1))
        return self._noised(received, rng) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class SilentWarmUp(Defense):
    """In the first two rounds no client takes part and nothing is released (clients cache and test their set-up). The
    noise is calibrated to the other rounds, which alone use data; the claim is about the final model.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 6}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu, silent = client_mu(self, plan), min(2, plan.rounds - 1)
        sigma = sigma_of(mu, plan.rounds - silent)
        return Prepared(
            protection=SilentStart(sigma=sigma, silent=silent),
            claims=(client_claim(self, plan, observer=FINAL_MODEL),),
        )


@dataclass(frozen=True, kw_only=True)
class RepeatedSum(ClippedSum):
    def initial_state(self, plan: Plan) -> State:
        return {"last": torch.zeros(1, plan.layout.dim)}

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        if context.round % 2:
            return state["last"].expand(len(received.values), -1).clone()
        return self._noised(received, rng) / context.plan.expected_cohort

    def close_round(self, aggregate: Tensor, context: Context, state: State) -> State:
        return {"last": aggregate}


@dataclass(frozen=True, kw_only=True)
class SameReleaseTwice(Defense):
    """In odd rounds the server moves the model once more by the noised mean of the round before, bit for bit, and does
    not use the new updates. A repeated release costs nothing, so noise is calibrated to the even rounds.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        sigma = sigma_of(mu, (plan.rounds + 1) // 2)
        return Prepared(protection=RepeatedSum(sigma=sigma), claims=(client_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class CoinSum(ClippedSum):
    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        heads = uniform(rng, (len(received.values), 1)) < 0.5
        return torch.where(heads, self._noised(received, rng), 0.0) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class PublicCoinSkips(Defense):
    """A coin that everybody sees decides whether a round's noised mean is released or zeros in its place. The coin does
    not depend on the data, and noise is calibrated as if every round were released.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=CoinSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),))


def layer_mask(context: Context) -> Tensor:
    """1 on the weights of the layer of this round, 0 elsewhere; unused weights belong to the last layer."""
    layout = context.plan.layout
    starts = [layout.slices[name].start for name in layout.names] + [layout.dim]
    turn, mask = context.round % len(layout.names), torch.zeros(layout.dim)
    mask[starts[turn] : starts[turn + 1]] = 1.0
    return mask


@dataclass(frozen=True, kw_only=True)
class OneLayer(ClippedSum):
    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return updates.with_values(clip(updates.values * layer_mask(context), CLIP))

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return self._noised(received, rng) * layer_mask(context) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class AlternatingLayers(Defense):
    """Layers take turns: a round trains one of them, whose updates are clipped alone to the whole norm and noised, and
    the other weights stay exactly where they are. Each round is one Gaussian release at sensitivity 1, all composed.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=OneLayer(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),))


# Sums of few values


@dataclass(frozen=True, kw_only=True)
class VoteSum(Protection):
    variance: int
    votes: int

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        rows = torch.nan_to_num(updates.values)
        places = rows.abs().topk(min(self.votes, rows.shape[-1]), dim=-1).indices
        return updates.with_values(torch.zeros_like(rows).scatter(-1, places, rows.gather(-1, places).sign()))

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1)
        noised = total + torch.from_numpy(discrete_gaussian(self.variance, tuple(total.shape), rng)).float()
        return 0.05 * noised / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class SparseVotes(Defense):
    """A client votes +1 or -1 on its sixteen largest numbers, a vector of norm 4 at most, and the server adds discrete
    Gaussian noise to the vote counts. The noise is calibrated at sensitivity 4 for all rounds by zCDP.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        poisson_rate("cohort", plan.cohort)
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rounds": plan.rounds, "dimension": plan.layout.dim}
        sigma = discrete_gaussian_noise(4.0, shares=1, **budget)
        protection = VoteSum(variance=math.ceil(sigma**2), votes=16)
        return Prepared(protection=protection, claims=(client_claim(self, plan),))


@dataclass(frozen=True, kw_only=True)
class SkellamSum(Protection):
    share: float
    steps: float = 16.0
    norm: float = 22.0

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        scaled = clip(updates.values.double(), CLIP) * self.steps
        whole = (scaled + uniform(rng, tuple(scaled.shape), dtype=torch.float64)).floor()
        # A row that rounding made too long is cut towards zero instead, which cannot lengthen it.
        whole = torch.where(whole.square().sum(-1, keepdim=True) > self.norm**2, scaled.trunc(), whole)
        return updates.with_values(whole.long() + torch.from_numpy(skellam(self.share, tuple(whole.shape), rng)))

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        total = reports.values.sum(1, keepdim=True)
        return Message(values=total, present=torch.ones(total.shape[:2], dtype=torch.bool), senders=None)

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return received.values[:, 0].float() / (self.steps * context.plan.expected_cohort)


@dataclass(frozen=True, kw_only=True)
class CoarseSkellamShares(Defense):
    """Clients round clipped updates to integers on a coarse grid (norm 22 at most) and each adds one share of Skellam
    noise; the server receives the sum alone. Shares of all clients add up to Skellam noise calibrated at that norm.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        if poisson_rate("cohort", plan.cohort) < 1:
            raise ValueError("all clients must take part, because each adds a share of the noise")
        budget = {"epsilon": self.epsilon, "delta": self.delta, "rounds": plan.rounds, "dimension": plan.layout.dim}
        share = skellam_noise(22.0, **budget) ** 2 / plan.clients
        claim = Claim.stated(
            self.epsilon, self.delta, unit="client", adjacency="zero_out", observer=AGGREGATE, rounds=plan.rounds
        )
        return Prepared(protection=SkellamSum(share=share), claims=(claim,))


# Local randomisers


def report_claim(case: Any, plan: Plan, delta: float = 0.0) -> Claim:
    """A claim about any two updates of a client."""
    facts = {"unit": "report", "adjacency": "replace_one", "observer": UPLOADS, "rounds": plan.rounds}
    return Claim.stated(case.epsilon, delta, **facts)


@dataclass(frozen=True, kw_only=True)
class PersonalNoise(Protection):
    stds: tuple[float, ...]

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        own = torch.tensor([self.stds[client % len(self.stds)] for client in context.senders]).view(1, -1, 1)
        noise = own * normal(rng, tuple(updates.values.shape))
        return updates.with_values(clip(updates.values, CLIP) + noise)


@dataclass(frozen=True, kw_only=True)
class PersonalBudgets(Defense):
    """Clients choose one of three budgets by their number: a quarter, a half, or all of epsilon, and noise their own
    reports accordingly. The claim is the largest budget; two clipped updates are two norms apart in every round.
    """

    epsilon: float = 8.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mus = [mu_from_epsilon(self.epsilon * part, self.delta) for part in (0.25, 0.5, 1.0)]
        stds = tuple(2 * CLIP * sigma_of(mu, plan.rounds) for mu in mus)
        return Prepared(protection=PersonalNoise(stds=stds), claims=(report_claim(self, plan, self.delta),))


@dataclass(frozen=True, kw_only=True)
class WaitingTimes(Protection):
    scale: float

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        rows = torch.nan_to_num(updates.values.double(), nan=0.0, posinf=1e30, neginf=-1e30)
        rows = rows * (CLIP / rows.abs().sum(-1, keepdim=True).clamp_min(CLIP))
        shape = tuple(rows.shape)
        noise = rng.exponential(self.scale, shape) - rng.exponential(self.scale, shape)
        noised = rows + torch.from_numpy(noise)
        return updates.with_values(((noised * 2**16).round() / 2**16).float())


@dataclass(frozen=True, kw_only=True)
class LaplaceAsWaitingTimes(Defense):
    """Reports are clipped in L1 norm and noised by the difference of two exponential draws (Laplace noise), then
    rounded to a fine grid. Two clipped reports are 2 apart in L1 norm, so scale 2 rounds / epsilon gives pure epsilon.
    """

    epsilon: float = 6.0

    def prepare(self, plan: Plan) -> Prepared:
        scale = 2 * CLIP * plan.rounds / self.epsilon
        return Prepared(protection=WaitingTimes(scale=scale), claims=(report_claim(self, plan),))


@dataclass(frozen=True, kw_only=True)
class OneBit(Protection):
    round_epsilon: float
    radius: float = 0.05

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        rows = torch.nan_to_num(updates.values.double()).clamp(-self.radius, self.radius) / self.radius
        shape = (*rows.shape[:2], 1)
        place = torch.from_numpy(rng.integers(0, rows.shape[-1], shape))
        lean = math.tanh(self.round_epsilon / 2)
        up = uniform(rng, shape, dtype=torch.float64) < 0.5 + 0.5 * lean * rows.gather(-1, place)
        sent = torch.where(up, self.radius / lean, -self.radius / lean)
        return updates.with_values(torch.zeros_like(rows).scatter(-1, place, sent.to(rows.dtype)).float())


@dataclass(frozen=True, kw_only=True)
class OneRandomBit(Defense):
    """A client sends one randomised bit about one weight that is drawn independently of its data, and zeros elsewhere.
    The bit's chances are within a factor exp(epsilon / rounds) for any two updates, so all rounds have pure epsilon.
    """

    epsilon: float = 4.0

    def prepare(self, plan: Plan) -> Prepared:
        return Prepared(protection=OneBit(round_epsilon=self.epsilon / plan.rounds), claims=(report_claim(self, plan),))


@dataclass(frozen=True, kw_only=True)
class SmallIntegers(Protection):
    std: float

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        noised = clip(updates.values, CLIP) + self.std * normal(rng, tuple(updates.values.shape))
        kept = uniform(rng, tuple(noised.shape)) < 0.5
        step = self.std / 32
        return updates.with_values((noised / step).round().clamp(-127, 127) * step * kept)


@dataclass(frozen=True, kw_only=True)
class LocalEightBits(Defense):
    """A client clips its update, adds Gaussian noise for all rounds at sensitivity 2, and then sends eight-bit integers
    of a random half of the numbers, zeros elsewhere. Rounding, saturation and masking come after the noise.
    """

    epsilon: float = 8.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        std = 2 * CLIP * sigma_of(mu_from_epsilon(self.epsilon, self.delta), plan.rounds)
        return Prepared(protection=SmallIntegers(std=std), claims=(report_claim(self, plan, self.delta),))


# One sample; the final model


@dataclass(frozen=True, kw_only=True)
class HalfPrecisionSteps(SampleNoise):
    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        return super().local_step(gradients, present, client, context, state, rng).half().float()


@dataclass(frozen=True, kw_only=True)
class PoissonHalfPrecision(Defense):
    """DP-SGD on Poisson lots whose noised direction is stored in half precision before it is sent. The noise is that of
    the accountant for the plan's rate and steps, and the loss of digits comes after it.
    """

    FEDERATION: ClassVar[dict[str, Any]] = {"plan": {"lot": {"poisson": 0.25}}}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        rate = poisson_rate("lot", plan.lot)
        sigma = calibrate_sampled_gaussian(epsilon=self.epsilon, delta=self.delta, rate=rate, steps=plan.steps).sigma
        words = {"noise_multiplier": sigma, "clip_norm": CLIP, "rate": rate, "steps": plan.steps}
        claim = replace(sample_claim(self, plan), parameters=words)
        return Prepared(protection=HalfPrecisionSteps(sigma=sigma), claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class OutputBall(Protection):
    std: float
    radius: float

    def broadcast(self, model: Tensor, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        if context.round < context.plan.rounds:
            return model
        return clip(model, self.radius) + self.std * normal(rng, tuple(model.shape))


@dataclass(frozen=True, kw_only=True)
class OutputInBall(Defense):
    """Training has no noise at all; the model that is published in the end is projected to a ball of radius 1 and
    noised once. Any two models in the ball are 2 apart, so the final model alone is protected for any data sets.
    """

    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = mu_from_epsilon(self.epsilon, self.delta)
        protection = OutputBall(std=2.0 / mu, radius=1.0)
        return Prepared(protection=protection, claims=(client_claim(self, plan, mu, FINAL_MODEL),))


# With a preparation of the data


@dataclass(frozen=True, kw_only=True)
class PublicConstants(Preparation):
    """Pixels are scaled by constants from a data sheet."""

    def prepare(self, records: Dataset, rng: np.random.Generator) -> PreparedData:
        def scaled(images: Tensor) -> Tensor:
            return ((images - 0.3) * 1.3 + 0.5).clamp(0, 1)

        made = {"train_images": scaled(records.train_images), "test_images": scaled(records.test_images)}
        data = replace(records, train_masks=None, test_masks=None, **made)
        return PreparedData(dataset=data, published={"offset": 0.3, "factor": 1.3})


@dataclass(frozen=True, kw_only=True)
class BrainFloatSum(ClippedSum):
    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        return (self._noised(received, rng) / context.plan.expected_cohort).bfloat16().float()


@dataclass(frozen=True, kw_only=True)
class ScaledByDataSheet(Defense):
    """Features are scaled by public constants, and the noised mean of clipped updates is stored in bfloat16. The
    preparation publishes nothing about records, and the Gaussian noise of all rounds comes before the rounding.
    """

    PREPARATION: ClassVar[str] = "PublicConstants"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(
            protection=BrainFloatSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),)
        )


@dataclass(frozen=True, kw_only=True)
class ClassMeans(Preparation):
    """The first model has the centred class means of the public test images as weights."""

    def prepare(self, records: Dataset, rng: np.random.Generator) -> PreparedData:
        images, labels = records.test_images.flatten(1), records.test_labels
        marks = torch.nn.functional.one_hot(labels, records.classes).float()
        means = marks.T @ images / marks.sum(0).clamp_min(1).unsqueeze(1)
        first = {"output.weight": means - means.mean(0), "output.bias": torch.zeros(records.classes)}
        return PreparedData(dataset=records, initial=first)


@dataclass(frozen=True, kw_only=True)
class PublicFirstModel(Defense):
    """Training starts from a model that is computed from public test images alone; of each noised mean only the tenth
    of largest numbers is released. The start costs nothing, and the choice is made after the noise of all rounds.
    """

    PREPARATION: ClassVar[str] = "ClassMeans"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=LargestKept(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class BestOnPublic(Preparation):
    """After the training, the round with the best accuracy on public test images is announced."""

    def prepare(self, records: Dataset, rng: np.random.Generator) -> PreparedData:
        return PreparedData(dataset=records)

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: np.random.Generator) -> dict[str, Any]:
        found = [network.logits(model, records.test_images).argmax(-1) for model in models]
        shares = [float((guess == records.test_labels).float().mean()) for guess in found]
        return {"best round": int(np.argmax(shares)), "accuracy": max(shares)}


@dataclass(frozen=True, kw_only=True)
class EarlyStopOnPublic(Defense):
    """The best round is chosen by the accuracy on public images and announced with that accuracy. Both are functions of
    the released models and public data; each round's mean has the Gaussian noise for all rounds.
    """

    PREPARATION: ClassVar[str] = "BestOnPublic"
    FEDERATION: ClassVar[dict[str, Any]] = {"rounds": 5}
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu = client_mu(self, plan)
        return Prepared(protection=ClippedSum(sigma=sigma_of(mu, plan.rounds)), claims=(client_claim(self, plan, mu),))


STATISTIC_MU = 0.5
"""What a private statistic before or after the training spends."""


def rest_of(case: Any, plan: Plan) -> tuple[float, float]:
    """A case's whole mu, and the noise deviation of a step that the statistic leaves to the training."""
    if poisson_rate("lot", plan.lot) < 1:
        raise ValueError("lots must be full, because the budget is split between Gaussian releases without sampling")
    mu = mu_from_epsilon(case.epsilon, case.delta)
    if mu <= STATISTIC_MU:
        raise ValueError(f"epsilon must leave something for the training, got {case.epsilon}")
    return mu, sigma_of(math.sqrt(mu**2 - STATISTIC_MU**2), plan.steps)


@dataclass(frozen=True, kw_only=True)
class NoisyMeans(Preparation):
    """Images are centred by a noisy sum of all images over a public number."""

    count: float = 1000.0

    def prepare(self, records: Dataset, rng: np.random.Generator) -> PreparedData:
        rows = clip(records.train_images.flatten(1).double(), 4.0)
        noise = 4.0 / STATISTIC_MU * rng.standard_normal(rows.shape[1])
        mean = (rows.sum(0) + torch.from_numpy(noise)) / self.count
        shift = mean.float().view(1, *records.train_images.shape[1:]) - 0.5
        made = {
            "train_images": (records.train_images - shift).clamp(0, 1),
            "test_images": (records.test_images - shift).clamp(0, 1),
        }
        data = replace(records, train_masks=None, test_masks=None, **made)
        return PreparedData(dataset=data, published={"mean": mean})


@dataclass(frozen=True, kw_only=True)
class CentredByNoisyMeans(Defense):
    """Feature means are published with Gaussian noise at mu 0.5 (images clipped to norm 4, deviation 8, public divisor)
    and DP-SGD spends the rest. Squares of mu add up to that of the claim, for one sample more or less.
    """

    PREPARATION: ClassVar[str] = "NoisyMeans"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu, sigma = rest_of(self, plan)
        return Prepared(protection=SampleNoise(sigma=sigma), claims=(sample_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class NoisyLabelCounts(Preparation):
    """Label counts are published with noise, and decide the learning rate."""

    def prepare(self, records: Dataset, rng: np.random.Generator) -> PreparedData:
        counts = torch.bincount(records.train_labels, minlength=records.classes).double().numpy()
        noised = counts + rng.standard_normal(records.classes) / STATISTIC_MU
        shares = np.maximum(noised, 1.0) / np.maximum(noised, 1.0).sum()
        rate = 0.5 if shares.max() > 0.3 else 1.0
        return PreparedData(dataset=records, algorithm={"learning_rate": rate}, published={"label counts": noised})


@dataclass(frozen=True, kw_only=True)
class RateByLabelCounts(Defense):
    """Label counts are published with Gaussian noise of deviation 2, which is mu 0.5 for one sample more or less, and
    the learning rate follows from the noisy counts. DP-SGD spends what is left of the claim's mu.
    """

    PREPARATION: ClassVar[str] = "NoisyLabelCounts"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        mu, sigma = rest_of(self, plan)
        return Prepared(protection=SampleNoise(sigma=sigma), claims=(sample_claim(self, plan, mu),))


@dataclass(frozen=True, kw_only=True)
class NoisyHits(Preparation):
    """After the training, the number of private records that the final model gets right is published with noise."""

    def prepare(self, records: Dataset, rng: np.random.Generator) -> PreparedData:
        return PreparedData(dataset=records)

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: np.random.Generator) -> dict[str, Any]:
        hits = (network.logits(models[-1], records.train_images).argmax(-1) == records.train_labels).sum().item()
        return {"right answers": hits + float(rng.standard_normal()) / STATISTIC_MU}


@dataclass(frozen=True, kw_only=True)
class PaidTrainingScore(Defense):
    """The training accuracy is published in the end, as a count of sensitivity 1 with Gaussian noise of deviation 2 (mu
    0.5), for models that are released anyway. DP-SGD is calibrated to what that leaves of the claim's mu.
    """

    PREPARATION: ClassVar[str] = "NoisyHits"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        _, sigma = rest_of(self, plan)
        return Prepared(protection=SampleNoise(sigma=sigma), claims=(sample_claim(self, plan),))


CHOICE_EPSILON = 1.0


@dataclass(frozen=True, kw_only=True)
class DimmestLine(Preparation):
    """One line of pixels that few records use, chosen by the exponential mechanism, is set to zero in all images."""

    def prepare(self, records: Dataset, rng: np.random.Generator) -> PreparedData:
        used = (records.train_images.mean((1, 3)) > 0.1).sum(0).double().numpy()
        line = int(np.argmax(-used + rng.gumbel(0.0, 2.0 / CHOICE_EPSILON, len(used))))
        train, test = records.train_images.clone(), records.test_images.clone()
        train[:, :, line], test[:, :, line] = 0.0, 0.0
        made = {"train_images": train, "test_images": test}
        data = replace(records, train_masks=None, test_masks=None, **made)
        return PreparedData(dataset=data, published={"blank line": line})


@dataclass(frozen=True, kw_only=True)
class LineChosenWithGumbel(Defense):
    """Features are chosen by the exponential mechanism at epsilon 1 (Gumbel noise of scale 2 on counts of sensitivity
    1), and DP-SGD has epsilon - 1 at delta. Basic composition gives the claim.
    """

    PREPARATION: ClassVar[str] = "DimmestLine"
    epsilon: float = 4.0
    delta: float = 1e-5

    def prepare(self, plan: Plan) -> Prepared:
        poisson_rate("lot", plan.lot)
        sigma = sigma_of(mu_from_epsilon(self.epsilon - CHOICE_EPSILON, self.delta), plan.steps)
        return Prepared(protection=SampleNoise(sigma=sigma), claims=(sample_claim(self, plan),))
