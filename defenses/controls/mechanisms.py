"""Mechanisms with a planted bug, which belong to no federation: each class is both versions of one, under one claim."""

import math
from abc import ABC
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.curve import GaussianCurve, ProfileCurve
from ...audit.estimators.likelihood_ratio import laplace, subsampled_gaussian
from ...audit.observer import AGGREGATE, SHUFFLED
from ..accounting.counts import binomial, bit_among
from ..accounting.gaussian import SampledGaussian, calibrate_sampled_gaussian, gaussian_curve, gaussian_noise
from ..accounting.shuffled import shuffled_bits
from ..randomisers.numbers.piecewise import Piecewise
from .fault import Mechanism


def randomised_response(bits: NDArray[Any], *, epsilon: float, rng: np.random.Generator) -> NDArray[Any]:
    """Keep each of the ``bits`` with probability e^eps / (1 + e^eps), otherwise flip it (Warner 1965); return an array
    of the same shape.
    """
    return np.asarray(np.where(rng.random(bits.shape) < expit(epsilon), bits, 1 - bits))


class BudgetEveryRound(Mechanism):
    """This broken local DP mechanism spends its epsilon again in every round but claims it once for all rounds.

    The real bug: the client draws fresh noise at the full epsilon in each round, and the claim forgets composition.
    """

    epsilon, rounds = 1.0, 10
    # Values lie in [-1, 1], so two of them are at most 2 apart.
    span = 2.0
    named = f"Laplace in each of {rounds} rounds"
    source = "Dwork et al. 2006; basic composition over the rounds"
    witness = "inputs 1 and -1 in every round; the score is the likelihood ratio if each round spends the full epsilon"

    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        scale = (1 if broken else self.rounds) * self.span / self.epsilon
        return (2.0 * arm - 1) + rng.laplace(scale=scale, size=(n, self.rounds))

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        # Centred at the lower value -1, so that the ratio is between shifts of 0 and of the whole range.
        return laplace(outputs + 1, np.full(self.rounds, self.span), scale=self.span / self.epsilon)


class BudgetPerCoordinate(Mechanism):
    """This broken local DP mechanism spends its epsilon on every coordinate but claims it once for the whole vector.

    The real bug: each bit is randomised at the full epsilon, so two vectors that differ in all d bits leak d times as
    much.
    """

    epsilon, coordinates = 2.0, 8
    named = f"randomised response on each of {coordinates} bits"
    source = "Warner 1965; basic composition over the coordinates"
    witness = "inputs all ones and all zeros; the score is the number of ones"

    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        epsilon = self.epsilon / (1 if broken else self.coordinates)
        return randomised_response(np.full((n, self.coordinates), arm), epsilon=epsilon, rng=rng)

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return np.asarray(outputs.sum(axis=1), dtype=np.float64)


class DomainOffByOne(Mechanism):
    """This broken randomised response uses probabilities for a domain that is one value too small.

    The real bug: the probability of the true value is e^eps / (e^eps + k - 1). A formula that counts the k - 1 other
    values already and subtracts one again gives e^eps / (e^eps + k - 2).
    """

    epsilon, domain = 1.0, 4
    named = f"generalised randomised response over {domain} values"
    source = "Kairouz, Bonawitz, Ramage 2016, equation 3"
    witness = "inputs 1 and 0; the event {1 is reported}"

    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        others = self.domain - (2 if broken else 1)
        keep = math.exp(self.epsilon) / (math.exp(self.epsilon) + others)
        # An offset of 1..k-1 modulo k is uniform over the other values and never the true one.
        other = (arm + rng.integers(1, self.domain, size=n)) % self.domain
        return np.asarray(np.where(rng.random(n) < keep, arm, other))

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return np.asarray(outputs == 1, dtype=np.float64)


class UnspentBudget(Mechanism):
    """This broken Piecewise mechanism spends more epsilon than it claims.

    The real bug: a sixth of the budget is set aside for a second query (a count, a choice of coordinate), but it is not
    subtracted from the first query, which still spends all of it: 1.2 epsilon where epsilon is claimed.
    """

    right = Piecewise(epsilon=1.0, radius=1.0)
    spent = replace(right, epsilon=1.2)
    witness = "inputs 1 and -1; the event {the report lies in the interval of 1}"

    def claim(self) -> Claim:
        return self.right.claim()

    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        randomiser = self.spent if broken else self.right
        return np.asarray(randomiser.sample(np.full(n, randomiser.worst_pair()[arm]), rng))

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        # The event of the broken version is the one to test: its laws differ most there.
        return np.asarray(self.spent.event(outputs), dtype=np.float64)


class FloatLaplace(Mechanism):
    """This broken Laplace mechanism adds noise in single precision, and low bits of the result reveal the value.

    The real bug: floating-point numbers lie closer together near 0 than near 1, so the low bits of ``x + noise`` reveal
    x (Mironov 2012, "On significance of the least significant bits for differential privacy").
    """

    epsilon, grid = 1.0, 2.0**-10
    # Near 1 - noise, every single-precision sum is a multiple of 2^-24; near 0 hardly any is.
    coarse, near = 2.0**24, 2.0**-5
    named = "Laplace on [0, 1]"
    source = "Dwork et al. 2006; discrete Laplace: Ghosh, Roughgarden, Sundararajan 2012"
    witness = f"inputs 1 and 0; the event {{the output is within {near:g} of 0 and a multiple of 2^-24}}"

    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        if broken:
            size = rng.standard_exponential(n, dtype=np.float32) / np.float32(self.epsilon)
            sign = np.where(rng.random(n) < 0.5, np.float32(-1), np.float32(1))
            return np.asarray(np.float32(arm) + sign * size, dtype=np.float32)
        # Laplace on a grid of 2^-10: the difference of two geometric numbers, which is exact in any precision.
        stop = -math.expm1(-self.epsilon * self.grid)
        steps = rng.geometric(stop, size=n) - rng.geometric(stop, size=n)
        return np.asarray(arm + steps * self.grid, dtype=np.float64)

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        exact = outputs.astype(np.float64)
        on_the_grid = np.mod(exact * self.coarse, 1.0) == 0
        # Both conditions are needed: far from 0 single precision lies on the coarse grid under either input.
        return np.asarray((np.abs(exact) < self.near) & on_the_grid, dtype=np.float64)


class _NoisedSum(Mechanism, ABC):
    """One noised secure sum, projected onto the direction of one client's update, which is 1 with the canary; epsilon 2
    at ``sigma`` clip norms.
    """

    epsilon, delta = 2.0, 1e-5
    unit, adjacency, observer = Unit.CLIENT, Adjacency.ADD_REMOVE, AGGREGATE
    dp_model, source = "distributed", "Balle and Wang 2018, Theorem 8"

    @cached_property
    def sigma(self) -> float:
        """The standard deviation of the noise, divided by the clip norm, that the claim requires."""
        return gaussian_noise(epsilon=self.epsilon, delta=self.delta, releases=1)

    @property
    def curve(self) -> GaussianCurve:
        return gaussian_curve(noise=self.sigma, releases=1)

    def total(self, arm: int, n: int, rng: np.random.Generator, *, shares: int, of: int) -> FloatArray:
        """Draw ``n`` sums with that many noise shares; ``of`` shares have the noise of the claim together."""
        share = self.sigma / math.sqrt(of)
        # Shares are drawn one by one and summed, as clients would add them, not as one Gaussian.
        return np.asarray(arm + share * rng.standard_normal((n, shares)).sum(axis=1), dtype=np.float64)

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return np.asarray(outputs, dtype=np.float64)


class ClippedNoise(_NoisedSum):
    """This broken Gaussian mechanism cuts its noise off at two standard deviations.

    The real bug: the noise is clamped, or the noised value saturates, to fit the integers of the wire format. An output
    beyond the cut is possible under one input only.
    """

    cut = 2.0
    named = "Gaussian"
    witness = "one client with an update of the clip norm or without it, all others 0; the score is the sum"

    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        noise = rng.standard_normal(n)
        # Clamps the noise and not the sum: a clamped sum is post-processing and would keep the claim.
        return np.asarray(arm + self.sigma * (np.clip(noise, -self.cut, self.cut) if broken else noise))


class LostShares(_NoisedSum):
    """This broken secure sum loses the noise shares of clients that drop out.

    The real bug: every client adds its share of the noise before the secure sum, half of the clients drop out, and the
    missing noise is not replaced (Kairouz, Liu, Steinke 2021, section on drop-out).
    """

    clients, dropped = 40, 20
    named = f"Gaussian shares of {clients} clients in a secure sum"
    witness = f"one client of clip norm or none, the others 0, {dropped} of {clients} dropped; the sum"

    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        # The survivors add fresh shares; revealing the seeds of the missing ones would show the noise to the server.
        return self.total(arm, n, rng, shares=self.clients - self.dropped * broken, of=self.clients)


class ThinShares(_NoisedSum):
    """This broken secure sum sizes each noise share for more clients than take part.

    The real bug: each client's variance is sigma^2 / K with K the number of registered clients, and the cohort that is
    summed is smaller.
    """

    registered, cohort = 100, 30
    named = f"Gaussian shares of a cohort of {cohort} clients in a secure sum"
    witness = f"one client of clip norm or none, the others 0, a cohort of {cohort} of {registered}; the sum"

    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        return self.total(arm, n, rng, shares=self.cohort, of=self.registered if broken else self.cohort)


class _SampledSteps(Mechanism, ABC):
    """Noised sums of Poisson lots, of which one sample is claimed."""

    delta, rounds = 1e-5, 20
    unit, adjacency, dp_model = Unit.SAMPLE, Adjacency.ADD_REMOVE, "central"
    named, source = "Poisson-subsampled Gaussian", "Abadi et al. 2016, Algorithm 1"
    rate: ClassVar[float]
    unseen: ClassVar[str] = ""

    @cached_property
    def mechanism(self) -> SampledGaussian:
        """The mechanism that satisfies the claim."""
        return calibrate_sampled_gaussian(epsilon=2.0, delta=self.delta, rate=self.rate, steps=self.rounds)

    @property
    def epsilon(self) -> float:
        return 2.0

    @property
    def sampling(self) -> str:
        return f"each sample enters a lot with probability {self.rate:g}, independently{self.unseen}"

    @property
    def curve(self) -> ProfileCurve:
        return self.mechanism.curve(self.epsilon)

    def noised(self, sums: NDArray[Any], rng: np.random.Generator) -> FloatArray:
        """Add the noise of all steps."""
        return np.asarray(sums + self.mechanism.sigma * rng.standard_normal(sums.shape), dtype=np.float64)


class FixedLots(_SampledSteps):
    """This broken mechanism draws batches of a fixed size but accounts for privacy as if they were Poisson samples.

    The real bug: a data loader draws batches of equal size, while the accountant assumes that each sample enters
    independently. A unit that enters a full lot displaces another sample and so moves the sum by up to twice the clip
    norm (Lebeda, Regehr, Kamath 2024, "Avoiding pitfalls for privacy accounting of subsampled mechanisms").
    """

    samples, lot = 40, 4
    rate = lot / samples
    witness = (
        "39 samples of gradient -1, with or without one of +1; the score is the likelihood ratio for a change "
        "of twice the clip norm"
    )

    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        shape = (n, self.rounds)
        if broken:
            # In the lot of 4 the unit (+1) takes the place of one of the others (-1 each).
            return self.noised(-self.lot + 2 * arm * rng.binomial(1, self.rate, size=shape), rng)
        others = -rng.binomial(self.samples - 1, self.rate, size=shape)
        return self.noised(others + arm * rng.binomial(1, self.rate, size=shape), rng)

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        # The unit moves the sum by 2, so half the distance to the sum of the others has sensitivity 1.
        ratio = subsampled_gaussian((outputs + self.lot) / 2, sigma=self.mechanism.sigma / 2, rate=self.rate, steps=1)
        return np.asarray(ratio.sum(axis=1), dtype=np.float64)


class ShuffledEpochs(_SampledSteps):
    """This broken mechanism shuffles data for each epoch but accounts for batches as if they were Poisson samples.

    The real bug: nearly every DP-SGD loop shuffles once per epoch, so that each sample is in exactly one of its lots,
    while the accountant assumes independent draws (Chua et al. 2024, "How private are DP-SGD implementations?").
    """

    lot, sigma = 5, 0.5
    rate = 1 / 20
    adjacency = Adjacency.ZERO_OUT
    witness = (
        "99 samples of gradient -1, and one of +1 or 0; the score is the likelihood ratio of the two shuffled epochs"
    )

    @cached_property
    def mechanism(self) -> SampledGaussian:
        """The mechanism that satisfies the claim."""
        return SampledGaussian(sigma=self.sigma, rate=self.rate, steps=self.rounds)

    @cached_property
    def epsilon(self) -> float:
        """The epsilon of the claim."""
        return self.mechanism.epsilon(self.delta)

    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        shape = (n, self.rounds)
        if broken:
            # At the unit's place in the epoch: +1 with the unit, 0 where it was zeroed out; the others are -1 each.
            sums = np.full(shape, -float(self.lot))
            sums[np.arange(n), rng.integers(self.rounds, size=n)] += 1 + arm
            return self.noised(sums, rng)
        # The gradients of the others are all -1, opposite to the unit's: the inputs of the witness.
        others = -rng.binomial(self.rounds * self.lot - 1, self.rate, size=shape)
        return self.noised(others + arm * rng.binomial(1, self.rate, size=shape), rng)

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        """Log-likelihood ratio of the shuffled epoch: ln of the mean over places of N(2 e_t), less ln of the mean over
        places of N(e_t), of what lies above the sum of the others.
        """
        moved, variance = outputs + self.lot, 2 * self.sigma**2
        inside, zeroed = (logsumexp((2 * row * moved - row**2) / variance, axis=1) for row in (2, 1))
        return np.asarray(inside - zeroed, dtype=np.float64)


class VisibleLots(_SampledSteps):
    """This broken mechanism claims amplification by sampling, although the server observes which samples were drawn.

    The real bug: the report carries the indices or the size of the lot (or the participants are logged), so the
    observer knows whether the unit took part.
    """

    rate = 0.1
    unseen = ", unseen"
    witness = (
        "with or without a sample of the clip norm; the score is whether it was seen in a lot, then the "
        "likelihood ratio"
    )

    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        seen = arm * rng.binomial(1, self.rate, size=(n, self.rounds))
        # The correct version has the same shape with zeros, so one score reads both.
        return np.stack([self.noised(seen, rng), seen * float(broken)], axis=2)

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        # A visible draw decides by itself: 1e3 is above every log-likelihood ratio that the noise produces.
        ratio = subsampled_gaussian(outputs[..., 0], sigma=self.mechanism.sigma, rate=self.rate, steps=1)
        return np.asarray(ratio.sum(axis=1) + 1e3 * outputs[..., 1].any(axis=1), dtype=np.float64)


class _ShuffledBits(Mechanism, ABC):
    """Reports of one bit by many clients behind a shuffler."""

    delta, clients = 1e-5, 200
    observer, dp_model, source = SHUFFLED, "shuffle", "exact, from the distribution of the number of ones"


class OpenBudgets(_ShuffledBits):
    """This broken mechanism sends clients' personal budgets with their reports, so a budget that only one client has
    identifies it.

    The real bug: the analyser needs each client's budget to debias its report, so the budget is sent in the same
    message. A client with a rare budget can then be found among the shuffled reports.
    """

    rare, common = 2.0, 1.0
    named = f"randomised response of {_ShuffledBits.clients} clients with personal budgets, shuffled"
    witness = (
        f"one client of budget {rare:g} holds 1 or 0, {_ShuffledBits.clients - 1} of budget {common:g} hold 0; the "
        "score is the report with the rare budget"
    )

    @property
    def epsilon(self) -> float:
        others = binomial(self.clients - 1, float(expit(-self.common)))
        return bit_among(others, epsilon=self.rare).epsilon(self.delta)

    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        """Draw bits and budgets in a shuffled order, ``(n, clients, 2)``. In the broken version the budgets stay with
        their bits, otherwise budgets are shuffled separately.
        """
        budgets = np.full((n, self.clients), self.common)
        budgets[:, 0] = self.rare
        bits = np.zeros((n, self.clients))
        bits[:, :1] = randomised_response(np.full((n, 1), arm), epsilon=self.rare, rng=rng)
        bits[:, 1:] = randomised_response(bits[:, 1:], epsilon=self.common, rng=rng)
        # Bits and budgets are the same draws in both versions; only the link between them differs.
        order = rng.permuted(np.tile(np.arange(self.clients), (n, 1)), axis=1)
        other = order if broken else rng.permuted(order, axis=1)
        return np.stack([np.take_along_axis(bits, order, 1), np.take_along_axis(budgets, other, 1)], axis=2)

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        place = outputs[..., 1].argmax(axis=1)
        return np.asarray(outputs[np.arange(len(outputs)), place, 0], dtype=np.float64)


class UnshuffledReports(_ShuffledBits):
    """This broken mechanism claims amplification by shuffling, although no shuffler runs.

    The real bug: the reports travel over authenticated connections, or the shuffler is a stub that keeps their order.
    """

    local = 2.0
    named = f"randomised response of {_ShuffledBits.clients} clients, shuffled"
    witness = f"one client holds 1 or 0, {_ShuffledBits.clients - 1} hold 0; the score is the report at its position"

    @property
    def epsilon(self) -> float:
        return shuffled_bits(clients=self.clients, epsilon0=self.local).epsilon(self.delta)

    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        bits = np.zeros((n, self.clients), dtype=np.int8)
        bits[:, 0] = arm
        reports = randomised_response(bits, epsilon=self.local, rng=rng)
        return reports if broken else rng.permuted(reports, axis=1)

    def score(self, outputs: NDArray[Any]) -> FloatArray:
        return np.asarray(outputs[:, 0], dtype=np.float64)
