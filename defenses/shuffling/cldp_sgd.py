"""CLDP-SGD shuffles one-bit reports, each about one coordinate of one record's gradient (Girgis et al. 2021)."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Claim, Unit
from ...audit.observer import SHUFFLED, UPLOADS, Observer
from ...fl.algorithms import FedAvg, FedSGD
from ...fl.laws import Mixing, clip_entries
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.sampling import FixedSize, Full
from ...fl.streams import uniform
from ..accounting.blanket import BlanketPair, randomised_response
from ..accounting.gaussian import poisson_rate
from ..accounting.pld import many_curve, many_epsilon
from ..defense import Bound, Defense, Delta, Epsilon, Prepared
from .budgeted import shuffle_rows
from .claims import ACCOUNTED, LEAST_EPSILON, Terms, check_clients, check_local, largest_scale


@dataclass(frozen=True, kw_only=True)
class OneBitLaw:
    """A distribution of a report that is zero except at one uniformly drawn coordinate, whose value is +size or -size.

    The sign is + with probability (1 + x / radius tanh(eps / 2)) / 2 for its clipped value x, so that the report's mean
    is the clipped row.
    """

    radius: float
    local_epsilon: float
    mixing: Mixing

    def contribution(self, rows: Tensor) -> Tensor:
        return clip_entries(rows, self.radius)

    def size(self, dim: int) -> float:
        """Return the absolute value of the one number that a client sends."""
        return self.radius * dim / math.tanh(self.local_epsilon / 2)

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        dim = contribution.shape[-1]
        rows = contribution.reshape(-1, dim)
        # A double times dim is uniform to 53 bits, which is enough for any number of coordinates.
        drawn = uniform(rng, (len(rows), 2), dtype=torch.float64)
        place = (drawn[:, :1] * dim).long().clamp_max(dim - 1)
        up = drawn[:, 1:] < self._chance(rows.gather(1, place).double())
        sent = torch.where(up, self.size(dim), -self.size(dim)).to(rows.dtype)
        return torch.zeros_like(rows).scatter_(1, place, sent).view_as(contribution)

    def _chance(self, values: Tensor) -> Tensor:
        """Probability of +."""
        return (1 + values / self.radius * math.tanh(self.local_epsilon / 2)) / 2

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        dim = release.shape[-1]
        place = release.abs().argmax(-1, keepdim=True)
        sent = release.gather(-1, place).squeeze(-1)
        up = self._chance(contribution.expand_as(release).gather(-1, place).squeeze(-1).double())
        # The place is uniform whatever the value, so it contributes a constant.
        found = torch.where(sent > 0, up, 1 - up).log() - math.log(dim)
        # Exactly one number of the right size; float32 is compared with a tolerance.
        possible = (release != 0).sum(-1).eq(1) & ((sent.abs() / self.size(dim) - 1).abs() < 1e-5)
        return found.masked_fill(~possible, -math.inf)

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        raise ValueError(
            "the coordinates of a report are not independent: only one of them is sent, so the log density of a report "
            "is not a sum over coordinates; call log_density for the whole report"
        )

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        ends = torch.full((dim,), self.radius)
        return -ends, ends


@dataclass(frozen=True, kw_only=True)
class CLDPSGDProtection(Protection):
    """A protection in which each client reports one bit about one coordinate; whole reports are shuffled, and the
    server averages them into an unbiased estimate.
    """

    radius: float
    local_epsilon: float
    sums = "unweighted mean"

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        law = OneBitLaw(radius=self.radius, local_epsilon=self.local_epsilon, mixing=Mixing.NONE)
        return updates.with_values(law.sample(law.contribution(updates.values), rng))

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return shuffle_rows(reports, rng)

    def law(self, observer: Observer, plan: Plan, client: int) -> OneBitLaw | None:
        """Return the distribution of what the observer receives of one client: its report or, behind a shuffler, one of
        all shuffled reports.
        """
        mixing = {UPLOADS.rank: Mixing.NONE, SHUFFLED.rank: Mixing.ROWS}.get(observer.rank)
        if mixing is None:
            return None
        return OneBitLaw(radius=self.radius, local_epsilon=self.local_epsilon, mixing=mixing)


@dataclass(frozen=True, kw_only=True)
class CLDPSGD(Defense):
    """A defense for local DP with a shuffler and little communication: a client sends log2(d) + 1 bits per round.

    Claims, replace-one, over all rounds: one record of a client, and the client's whole dataset. The adversary is the
    analyser behind the shuffler, who sees how many reports there are. Each client uses one record, drawn uniformly from
    its own in every round, so that its report is about one of r records with probability 1 / r. The privacy blanket of
    the whole randomiser is counted (Balle et al. 2019): the coin by which a client takes part (Poisson cohorts, as in
    dss-SGD and shuffled check-in), the draw of a record, and the randomised sign.

    Args:
        epsilon, delta: the budget of one record over all rounds, to which the local one is calibrated.
        local_epsilon: budget of one report, at most 50; where it is given nothing is calibrated.
        radius: clip bound of each coordinate of an update.

    Raises (in prepare):
        ValueError: unless a lot is one record and a client takes one step per round, by an algorithm that keeps no
            client state between rounds.
    """

    epsilon: Epsilon = 4.0
    delta: Delta = 1e-5
    local_epsilon: float | None = None
    radius: Bound = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_local(self.local_epsilon)

    def prepare(self, plan: Plan) -> Prepared:
        check_clients(plan.clients)
        _check_one_record(plan)

        def cost(epsilon0: float) -> float:
            return many_epsilon(record_pair(plan, epsilon0), releases=plan.rounds, delta=self.delta)

        local = self.local_epsilon or largest_scale(cost, self.epsilon)
        # Both units are claimed: one record is hidden among its client's records too, a client among others alone.
        claims = (
            self._claim(plan, Unit.SAMPLE, local, record_pair(plan, local), rate=1 / min(plan.sizes)),
            self._claim(plan, Unit.CLIENT, local, client_pair(plan, local), rate=1.0),
        )
        return Prepared(protection=CLDPSGDProtection(radius=self.radius, local_epsilon=local), claims=claims)

    def _claim(self, plan: Plan, unit: Unit, local: float, pair: BlanketPair, *, rate: float) -> Claim:
        # The computed cost and not the target: near the pure epsilon delta drops to 0 within the error of the search.
        epsilon = max(many_epsilon(pair, releases=plan.rounds, delta=self.delta), LEAST_EPSILON)
        claim = Terms(
            plan=plan,
            observer=SHUFFLED,
            mechanism="randomised response on the sign of one coordinate, reports shuffled",
            radius=self.radius,
            trust="the shuffler",
            source="Girgis et al. 2021; Balle et al. 2019, Lemma 5.3; Zhu, Dong, Wang 2022, Theorem 10",
        ).stated(
            unit=unit,
            epsilon=epsilon,
            delta=self.delta,
            accountant=ACCOUNTED,
            parameters={"local_epsilon": local, "releases": plan.rounds, "rate": rate},
            curve=many_curve(pair, releases=plan.rounds, reach=epsilon),
        )
        drawn = (
            f"one record per round, sampled uniformly from {min(plan.sizes)} or more, which the adversary does "
            f"not see; clients: {claim.sampling}"
        )
        return replace(claim, sampling=drawn) if unit is Unit.SAMPLE else claim


def record_pair(plan: Plan, epsilon0: float) -> BlanketPair:
    """Return the bound of one round for one of a client's r records; the client's report is about this record with
    probability 1 / r.
    """
    return _one_bit(plan, epsilon0).one_of(min(plan.sizes)).checked_in(poisson_rate("cohort", plan.cohort))


def client_pair(plan: Plan, epsilon0: float) -> BlanketPair:
    """Return the bound of one round for a client's whole dataset. If the client checks in, its report hides among those
    of the other clients that check in.
    """
    return _one_bit(plan, epsilon0).checked_in(poisson_rate("cohort", plan.cohort))


def _one_bit(plan: Plan, epsilon0: float) -> BlanketPair:
    # The place is uniform whatever the values, and the sign moves most where all values are at their bounds.
    return randomised_response(epsilon0=epsilon0, values=2, reports=plan.clients)


def _check_one_record(plan: Plan) -> None:
    single = isinstance(plan.lot, FixedSize) and plan.lot.size == 1
    if not single and not (isinstance(plan.lot, Full) and max(plan.sizes) == 1):
        raise ValueError(
            "lot, the rule by which a client draws its batch, must draw one record, such as FixedSize(1), because a "
            f"report describes one record, got {plan.lot}"
        )
    if not isinstance(plan.algorithm, FedSGD | FedAvg) or plan.algorithm.local_steps != 1:
        raise ValueError(f"algorithm must be FedSGD or FedAvg with one local step per round, got {plan.algorithm}")
