"""Compute the joint privacy of Gaussian releases in which each layer of a model has its own clip norm and noise.

FedRE (Xiao et al. 2025) sets its noise by equation 9, sigma = sqrt(2 T ln(1/delta)) / eps, which does not keep (eps,
delta) at every eps: at a layer's eps 10 it gives 10.5 where two inputs are C apart, and 25.8 where they are 2C apart.
Its corollary 1 adds the layers' epsilons, which is valid and loose; Gaussians compose by the root of the sum of
squares: ten layers at eps 1 and delta 1e-6 each are jointly 5.43 at delta 1e-5 by equation 9 (2C apart; 2.45 at C),
3.14 where each is calibrated.
"""

import math
from dataclasses import dataclass

from ...audit.claim import Adjacency
from ...audit.curve import GaussianCurve, epsilon_from_mu
from ...fl.fields import check_positive
from ..defense import check_budget, check_delta, check_whole
from .accountant import sensitivity


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer of a client update that is clipped to ``clip_norm`` and gets Gaussian noise of standard deviation
    ``noise_std``.
    """

    clip_norm: float
    noise_std: float

    def __post_init__(self) -> None:
        check_positive("clip_norm", self.clip_norm)
        check_positive("noise_std", self.noise_std)


@dataclass(frozen=True, kw_only=True)
class LayeredGaussian:
    """A mechanism that makes ``releases`` Gaussian releases of all ``layers`` of an update. It computes the exact mu
    (as in mu-GDP) of each layer alone and of all layers jointly.

    The noise must not depend on the data: no composition theorem covers a sigma that is set by a score of private data
    (FedRE, equation 6).
    """

    layers: tuple[Layer, ...]
    adjacency: Adjacency
    releases: int = 1

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError("layers must hold at least one layer of the model, got an empty list")
        check_whole("releases", self.releases)

    def layer_mu(self, index: int) -> float:
        """Return mu (as in mu-GDP) of one layer over all releases: sensitivity / noise, times the root of the number of
        releases.
        """
        layer = self.layers[index]
        return math.sqrt(self.releases) * sensitivity(layer.clip_norm, self.adjacency) / layer.noise_std

    @property
    def mu(self) -> float:
        """Return mu (as in mu-GDP) of all layers jointly: the root of the sum of squares (Dong, Roth, Su 2022,
        Corollary 3.3).
        """
        return math.hypot(*(self.layer_mu(index) for index in range(len(self.layers))))

    def epsilon(self, delta: float) -> float:
        """Compute epsilon at ``delta`` in (0, 1) against an observer that receives all layers of every release."""
        check_delta(delta)
        return epsilon_from_mu(self.mu, delta)

    def layer_epsilon(self, index: int, delta: float) -> float:
        """Compute the epsilon of one layer alone, which gives no guarantee against an observer that receives all
        layers.
        """
        check_delta(delta)
        return epsilon_from_mu(self.layer_mu(index), delta)

    def curve(self) -> GaussianCurve:
        """Return the exact trade-off curve against an observer that receives all layers."""
        return GaussianCurve(mu=self.mu)


def published_noise(*, epsilon: float, delta: float, rounds: int) -> float:
    """Compute the noise standard deviation, divided by the clip norm, by equation 9 of the FedRE paper as printed;
    noise of this size does not satisfy (epsilon, delta) at every epsilon (see this module's docstring).
    """
    check_budget(epsilon, delta)
    check_whole("rounds", rounds)
    return math.sqrt(2 * rounds * math.log(1 / delta)) / epsilon


def joint_noise(*multipliers: float) -> float:
    """Return the noise multiplier ``(sum z^-2)^(-1/2)`` of one Gaussian query that is as private as several queries on
    the same batch with the noise multipliers z (standard deviation / sensitivity).

    Poisson sampling therefore amplifies them together (Andrew et al. 2021, Theorem 1): two at sigma are one at sigma /
    sqrt 2.
    """
    for multiplier in multipliers:
        check_positive("multiplier", multiplier)
    return 1 / math.hypot(*(1 / multiplier for multiplier in multipliers))
