"""Clients clip, round and mask their vectors and add noise shares; the server learns only the sum of the vectors."""

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Real
from typing import ClassVar, TypedDict

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import IntArray
from ...audit.claim import Adjacency, Claim, Unit, Value
from ...audit.curve import Curve
from ...audit.observer import AGGREGATE, GLOBAL_MODELS, Observer
from ...audit.wording import nearest
from ...fl.laws import GaussianLaw
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.sampling import Poisson
from ...fl.streams import row_generators, uniform
from ..accounting.accountant import RENYI
from ..accounting.gaussian import check_least_noise
from ..accounting.spending import gaussian_spending
from ..clipped.claims import ClippedDefense
from ..defense import Prepared
from .integer_draws import LARGEST_SCALE
from .modular_sum import SizedGrid, check_bits, draw_masks, size_grid, to_integers

SERVER = Observer("aggregate", sees_participation=True, sees_masked_words=True)
"""The adversary of every claim of a secure sum: a server that knows who took part, every masked word, and their sum."""
DROPS = ("random", "first")
# Largest deviation of the sum's noise, in steps: on a finer grid the exact sampler would have too large a table.
_FINEST = LARGEST_SCALE - 1


class Budget(TypedDict):
    """The arguments from which the noise of a secure sum is calibrated: the privacy budget and public facts about all
    rounds.
    """

    epsilon: float
    delta: float
    rounds: int
    dimension: int


@dataclass(frozen=True, kw_only=True)
class SecureSumProtection(Protection):
    """A protection in which the server receives only a secure sum of clients' clipped, rounded vectors and noise
    shares, and divides it by the expected number of clients that do not drop out (survivors).

    Of the clients invited to a round a share ``dropout``, rounded down, sends nothing. The number of invited clients is
    announced, and each share of noise is large enough that the survivors' shares make up the whole noise. (If more
    clients dropped out, the others would reveal no keys and the round would release nothing; here as many drop out as
    may.) A subclass defines a share of noise.
    """

    clip_norm: float
    dropout: float
    drops: str
    sized: SizedGrid
    sums = "sum"

    def noise_share(self, shares: int, shape: tuple[int, ...], rng: np.random.Generator) -> IntArray:
        """Draw clients' noise shares in grid steps; ``shares`` of them add up to the noise that the claim needs."""
        raise TypeError(f"{type(self).__name__} must define the method noise_share(shares, shape, rng)")

    def shares_needed(self, invited: int) -> int:
        """Return how many clients' noise shares must add up to the whole noise: the number of invited clients that
        remain for certain.
        """
        return survivors_of(invited, self.dropout)

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        """Return the masked vectors (int64) of all clients that did not drop out; the side information ``recovered``
        holds the masks that their key shares reveal.
        """
        grid, invited = self.sized.grid, updates.present
        survived = self._survivors(invited, rng)
        words = self.encoded(updates, rng)
        # Drawn last: masks cancel in the sum, so that a sum in blocks may leave them out and has the same other draws.
        masks = draw_masks(invited, survived, updates.values.shape[-1], grid, rng)
        # The server computes recovered masks from key shares; they are no part of the clients' reports.
        side, unsent = {"recovered": masks.recovered}, frozenset({"recovered"})
        return replace(self._sent(updates, survived, words + masks.words), side=side, unsent=unsent)

    def block_sum(self, present: Tensor, context: Context, state: State, rng: np.random.Generator) -> "SecureBlocks":
        """Return an object that adds up the secure sum of one cohort block by block."""
        return SecureBlocks(protection=self, survived=self._survivors(present, rng), invited=present.sum(1), rng=rng)

    def encoded(self, updates: Message, rng: np.random.Generator, invited: Tensor | None = None) -> Tensor:
        """Return each client's vector before masks are added, int64 in grid steps: the rounded update plus a noise
        share. Each client draws its noise share from a generator of its own.

        ``invited (replicas,)``: clients of the cohort, where these are a block of them.
        """
        count = updates.present.sum(1) if invited is None else invited
        words = torch.empty(updates.values.shape, dtype=torch.int64)
        for row, own in enumerate(row_generators(rng, words.shape[1])):
            words[:, row] = self.word(updates.values[:, row], count, own)
        return words

    def word(self, vectors: Tensor, invited: Tensor, rng: np.random.Generator) -> Tensor:
        """Return one client's vectors ``(replicas, d)`` in grid steps, with a noise share for ``invited (replicas,)``
        clients.
        """
        noise = self._noise(invited, tuple(vectors.shape), rng)
        return noise.add_(to_integers(vectors.unsqueeze(1), self.clip_norm, self.sized, rng).squeeze(1))

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        """Return the secure sum as one vector without a sender, or no vector if no client took part; the side
        information ``survivors`` is the number of clients in the sum.
        """
        # Recovered masks are removed before the sum; the rest cancels in it.
        unmasked = (reports.values - reports.side["recovered"]).masked_fill_(~reports.present.unsqueeze(-1), 0)
        return self.summed(unmasked.sum(1), reports.present)

    def summed(self, total: Tensor, survived: Tensor) -> Message:
        """Return what arrives at the server, given the sum ``total (replicas, d)`` of the encoded vectors of clients
        ``survived``.
        """
        survivors = survived.sum(1, keepdim=True)
        words = self.sized.grid.wrap(total).unsqueeze(1)
        return Message(values=words, present=survivors > 0, senders=None, side={"survivors": survivors})

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        """Return the decoded sum in the unit of the updates, divided by the expected number of clients that do not drop
        out.
        """
        mean = self.sized.grid.decode(received.values[:, 0]) / expected_survivors(context.plan, self.dropout)
        return mean.float()

    def law(self, observer: Observer, plan: Plan, client: int) -> GaussianLaw | None:
        """Return the distribution of the secure sum in a round in which as few clients remain as the claim allows.

        The grid of the noise is fine compared with its deviation, so the law is the continuous one. ``clip_norm`` is
        the bound on a rounded row, slightly above the raw one.
        """
        if not GLOBAL_MODELS.rank <= observer.rank <= AGGREGATE.rank:
            return None
        expected, step = expected_survivors(plan, self.dropout), self.sized.grid.step
        # If the first clients drop out, the canary client, which comes last, always stays.
        stays = 1.0 if self.drops == "first" else expected / plan.expected_cohort
        return GaussianLaw(
            clip_norm=self.sized.norm_bound * step,
            scale=1 / expected,
            noise_std=self.sized.sigma * step / expected,
            rate=plan.cohort_rate * stays,
        )

    def _survivors(self, invited: Tensor, rng: np.random.Generator) -> Tensor:
        """The clients left ``(replicas, rows)`` when a share of those invited, rounded down, drops out."""
        gone = [count - survivors_of(count, self.dropout) for count in range(invited.shape[1] + 1)]
        # Clients that were not invited rank last, so that they do not count among those that drop out.
        places = uniform(rng, tuple(invited.shape)) if self.drops == "random" else torch.zeros(invited.shape)
        ranks = places.masked_fill(~invited, 2.0).argsort(dim=1, stable=True).argsort(dim=1)
        return invited & (ranks >= torch.tensor(gone)[invited.sum(1)].unsqueeze(1))

    def _sent(self, updates: Message, survived: Tensor, words: Tensor) -> Message:
        """The reports of the clients that did not drop out."""
        grid = self.sized.grid
        sent = replace(updates, present=survived, masked=True, word_bits=grid.bits)
        return sent.with_values(grid.wrap(words))

    def _noise(self, invited: Tensor, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
        """One client's noise shares ``shape``, int64, for ``invited (replicas,)`` clients."""
        noise = torch.zeros(shape, dtype=torch.int64)
        # Replicas with cohorts of one size share a noise level and are drawn together.
        for count in sorted(set(invited.tolist())):
            chosen = invited == count
            if count:
                drawn = self.noise_share(self.shares_needed(count), (int(chosen.sum()), *shape[1:]), rng)
                noise[chosen] = torch.from_numpy(drawn)
        return noise


@dataclass(kw_only=True)
class SecureBlocks:
    """A secure sum to which words are added block by block, without their masks, because masks cancel in the sum.

    ``survived (replicas, clients)`` are the clients of the whole cohort that do not drop out, of ``invited
    (replicas,)``. The result equals the sum of one matrix of masked words, bit by bit.
    """

    protection: SecureSumProtection
    survived: Tensor
    invited: Tensor
    rng: np.random.Generator
    total: Tensor | None = None
    added: int = 0

    def add(self, updates: Message, context: Context) -> Message:
        """Add the words of the next clients of the cohort; return their reports, without masks."""
        rows = slice(self.added, self.added + updates.values.shape[1])
        words = self.protection.encoded(updates, self.rng, self.invited)
        sent = self.protection._sent(updates, self.survived[:, rows], words)
        block = sent.values.sum(1)
        self.total = block if self.total is None else self.protection.sized.grid.wrap(self.total + block)
        self.added = rows.stop
        return sent

    def received(self) -> Message:
        """Return what ``channel`` returns for the whole cohort."""
        if self.total is None:
            raise ValueError("received must be called after add, because before there is no sum")
        return self.protection.summed(self.total, self.survived)


@dataclass(frozen=True, kw_only=True)
class SecureSumDefense(ClippedDefense, ABC):
    """A base class of defenses for client-level DP against the server, in which clients add noise to a secure sum.

    The claim: one client's update set to zero. (Zero-out, because the server knows who takes part and how many, and a
    client that left would take its noise along.) The adversary is the server, which sees masked words, their sum and
    who sent them. No amplification by sampling is claimed.

    Args:
        epsilon, delta: the budget of all rounds together.
        clip_norm: L2 bound of an update.
        bits: length of a word; the grid is the finest on which the sum and its noise do not wrap around.
        dropout: largest share of a cohort that may drop out, in [0, 1); as many do in each round.
        drops: which clients: "random", or always the "first" of the cohort, the worst case for all who stay.

    Raises (in prepare):
        ValueError: where fewer than two clients are expected in a round, words are too short for their sum, or epsilon
            is so large that it needs almost no noise.
    """

    kind: ClassVar[type[SecureSumProtection]]
    mechanism: ClassVar[str]
    accountant: ClassVar[str] = RENYI
    source: ClassVar[str]
    bits: int = 20
    dropout: float = 0.5
    drops: str = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bits(self.bits)
        if isinstance(self.dropout, bool) or not isinstance(self.dropout, Real) or not 0 <= self.dropout < 1:
            raise ValueError(
                f"dropout, the fraction of a cohort that drops out, must be in [0, 1), got {self.dropout!r}"
            )
        if self.drops not in DROPS:
            raise ValueError(
                f"drops, the rule for which clients drop out, must be one of: {nearest(str(self.drops), DROPS)}; "
                f"got {self.drops!r}"
            )

    def prepare(self, plan: Plan) -> Prepared:
        sized = self.sized(plan)
        claim = self.stated_claim(plan, sized)
        spending = {} if claim.curve is None else gaussian_spending(claim)
        return Prepared(protection=self.protected(plan, sized), claims=(claim,), spending=spending)

    def protected(self, plan: Plan, sized: SizedGrid) -> SecureSumProtection:
        """Return the protection with the configuration of this defense."""
        return self.kind(clip_norm=self.clip_norm, dropout=self.dropout, drops=self.drops, sized=sized)

    def sized(self, plan: Plan) -> SizedGrid:
        """Return the grid of numbers for this plan, with the noise that ``sigma_of`` computes. Raise ValueError as
        ``prepare`` does.
        """
        return size_grid(
            clip_norm=self.clip_norm,
            bits=self.bits,
            dim=plan.layout.dim,
            rows=most_clients(plan),
            survivors=least_survivors(plan, self.dropout),
            rounds=plan.rounds,
            sigma_of=lambda norm: self.sigma_of(norm, plan),
            largest_sigma=_FINEST,
        )

    def sigma_of(self, norm: float, plan: Plan) -> float:
        """Return the standard deviation of the sum's noise, in grid steps, that the budget requires if one client
        changes the sum by ``norm`` steps.
        """
        raise TypeError(f"{type(self).__name__} must define the method sigma_of(norm, plan)")

    def budget(self, plan: Plan) -> Budget:
        """Return the arguments from which ``accounting.integer_noise`` calibrates the noise for a federation's plan."""
        return {"epsilon": self.epsilon, "delta": self.delta, "rounds": plan.rounds, "dimension": plan.layout.dim}

    def shares(self, plan: Plan) -> int:
        """Return the number of noise shares in the sum of the largest possible cohort: one per client that does not
        drop out.
        """
        return survivors_of(most_clients(plan), self.dropout)

    def curve(self, plan: Plan, sized: SizedGrid) -> Curve | None:
        """Return the trade-off curve that the claim states; None if it states epsilon and delta alone."""
        return None

    def more(self, plan: Plan, sized: SizedGrid) -> Mapping[str, Value]:
        """Return the claim's further public parameters."""
        return {}

    def stated_claim(self, plan: Plan, sized: SizedGrid) -> Claim:
        """Return the claim of a secure-sum defense; raise ValueError if its epsilon needs noise below 0.3 times the
        sensitivity.
        """
        check_least_noise(sized.sigma / sized.norm_bound, epsilon=self.epsilon)
        return Claim(
            epsilon=self.epsilon,
            delta=self.delta,
            unit=Unit.CLIENT,
            adjacency=Adjacency.ZERO_OUT,
            observer=SERVER,
            rounds=plan.rounds,
            dp_model="distributed",
            mechanism=self.mechanism,
            parameters={
                "clip_norm": self.clip_norm,
                "noise_multiplier": sized.sigma / sized.norm_bound,
                "norm_bound": sized.norm_bound * sized.grid.step,
                "step": sized.grid.step,
                "bits": self.bits,
                "dropout": self.dropout,
                "survivors": expected_survivors(plan, self.dropout),
                **self.more(plan, sized),
            },
            accountant=self.accountant,
            sampling="no sampling is assumed; who takes part does not depend on the data",
            trust="the server, which follows the protocol; clients that do not drop out tell it neither their keys "
            "nor their noise",
            source=self.source,
            curve=self.curve(plan, sized),
        )


def survivors_of(invited: int, dropout: float) -> int:
    """Return how many of ``invited`` clients remain if the fraction ``dropout`` of them drops out. The number of
    dropouts is rounded down in decimal arithmetic: .3 of 10 is 3.
    """
    # A fraction of the decimal text: as floats .29 of 100 would round down to 28.
    return invited - int(Fraction(str(dropout)) * invited)


def expected_survivors(plan: Plan, dropout: float) -> float:
    """Return the number by which a secure sum is divided: how many clients do not drop out (survivors) if the cohort
    size is known, otherwise approximately the mean of this number.
    """
    whole = _whole_cohort(plan)
    return plan.expected_cohort * survivors_of(whole, dropout) / whole


def least_survivors(plan: Plan, dropout: float) -> int:
    """Return how many clients of the expected cohort do not drop out (survivors), rounded down.

    Raises:
        ValueError: where fewer than two clients are expected: the sum of one client is that client's word.
    """
    if (whole := _whole_cohort(plan)) < 2:
        sampled = isinstance(plan.cohort, Poisson)
        needed = (
            (f"; at this sampling rate the federation needs {math.ceil(2 / plan.cohort_rate - 1e-9)} clients")
            if sampled
            else ""
        )
        raise ValueError(
            "a secure sum must have at least 2 clients per round, "
            f"got an expected cohort of {plan.expected_cohort:g}{needed}"
        )
    return survivors_of(whole, dropout)


def _whole_cohort(plan: Plan) -> int:
    # In floating point .6 times 5 is just below 3.
    return max(1, math.floor(plan.expected_cohort + 1e-9))


def most_clients(plan: Plan) -> int:
    """Return the size of the largest cohort that the plan's client sampling can draw."""
    return plan.cohort.most(plan.clients)
