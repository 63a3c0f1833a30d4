"""Gradients that are sent get Gaussian noise that makes two classes alike, without DP (Marvell: Li et al. 2022)."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ....audit.arrays import FloatArray
from ....fl.fields import Positive
from ....fl.streams import normal
from ....fl.vertical.protection import VerticalContext, VerticalPlan, VerticalProtection
from ..defense import VerticalDefense, VerticalPrepared, targets_of

_GRID = 2000


class LabelSpread(NamedTuple):
    """The variances of one class's noise: along the difference of the classes' mean gradients, and in each other
    direction.
    """

    along: float
    across: float


@dataclass(frozen=True, kw_only=True)
class MarvellProtection(VerticalProtection):
    """A protection that adds the optimised Gaussian noise of Marvell to the gradients of a batch.

    Args:
        power: expected squared norm of a gradient's noise, over the squared distance of the classes' mean gradients.
    """

    power: float

    def gradients(self, values: Tensor, party: int, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        positive = targets_of(context).argmax(-1) == 1
        along = normal(rng, (*values.shape[:2], 1))
        across = normal(rng, tuple(values.shape))
        return torch.stack(
            [
                self._noised(values[replica], positive[replica], along[replica], across[replica])
                for replica in range(len(values))
            ]
        )

    def _noised(self, rows: Tensor, positive: Tensor, along: Tensor, across: Tensor) -> Tensor:
        """One replica's gradients ``(b, d)`` with noise; ``positive (b,)``, and two sets of standard normal numbers."""
        if bool(positive.all()) or not bool(positive.any()):
            return rows
        classes = [rows[~positive], rows[positive]]
        difference = classes[1].mean(0) - classes[0].mean(0)
        distance = float(difference.norm())
        if distance == 0:
            return rows
        variances = [float(one.var(0, correction=0).mean()) for one in classes]
        negative, other = best_spreads(
            variances=(variances[0], variances[1]),
            dimension=rows.shape[1],
            distance=distance**2,
            share=float(positive.double().mean()),
            power=self.power * distance**2,
        )
        deviations = torch.tensor(
            [[(one.along - one.across) ** 0.5, one.across**0.5] for one in (negative, other)], dtype=rows.dtype
        )[positive.long()]
        return rows + along * deviations[:, :1] * (difference / distance) + across * deviations[:, 1:]


@dataclass(frozen=True, kw_only=True)
class Marvell(VerticalDefense):
    """A defense of two classes' labels by noise that is best against all tests of one gradient, at a given power. It
    states no claim: what it minimises is a divergence of two Gaussians that it fits to each batch, which bounds no
    ratio of probabilities, and its noise depends on the labels.

    This is the optimised version, under the paper's assumption that the gradients of each class are isotropic
    Gaussians: the sum of both KL divergences between the noised classes is minimised over four variances, with a fixed
    expected squared norm of the noise in a batch (``power`` times the squared distance of the mean gradients). The
    paper's further loop, which raises the power until the divergence is below a threshold, is left out. The batch's
    labels give the classes' means and variances. A batch of one class gets no noise.

    Args:
        power: the expected squared norm of the noise, over the squared distance of the classes' mean gradients.

    Raises (in prepare):
        ValueError: for more than two classes, for which the method is not defined.
    """

    power: Positive = 4.0

    def prepare(self, plan: VerticalPlan) -> VerticalPrepared:
        if plan.network.classes != 2:
            raise ValueError(f"marvell is defined for two classes, got classes = {plan.network.classes}")
        return VerticalPrepared(protection=MarvellProtection(power=self.power), claims=())


def best_spreads(
    *, variances: tuple[float, float], dimension: int, distance: float, share: float, power: float
) -> tuple[LabelSpread, LabelSpread]:
    """Return the noise of the negative and the positive class that minimises the sum of both KL divergences between
    the noised classes (Li et al. 2022, the optimisation problem of Marvell).

    The class whose own variance is larger gets no noise across, and the best noise across of the other one is found on
    a grid of 2000 values; the noise along the difference is in closed form.

    Args:
        variances: of one coordinate, of the negative and the positive class, >= 0.
        dimension: of a gradient.
        distance: squared, of the two means, > 0.
        share: of the positive class, in (0, 1).
        power: expected squared norm of the noise of a gradient drawn from both classes.
    """
    if variances[0] > variances[1]:
        positive, negative = best_spreads(
            variances=(variances[1], variances[0]),
            dimension=dimension,
            distance=distance,
            share=1 - share,
            power=power,
        )
        return negative, positive
    low, high = variances
    most = min(high - low, power / ((1 - share) * dimension)) if dimension > 1 else 0.0
    across = np.linspace(0.0, most, _GRID if most > 0 else 1)
    left = power - (1 - share) * (dimension - 1) * across
    # Total variances along the difference, a and b with (1 - share) a + share b = total, are best at b = ratio a.
    total = left + share * high + (1 - share) * low
    ratio = np.sqrt((total + (1 - share) * distance) / (total + share * distance))
    along = np.clip(total / (1 - share + share * ratio) - low, across, left / (1 - share))
    other = np.maximum(left - (1 - share) * along, 0.0) / share
    best = int(np.argmin(divergence(along + low, other + high, across + low, high, dimension, distance)))
    return LabelSpread(float(along[best]), float(across[best])), LabelSpread(float(other[best]), 0.0)


def divergence(
    along: FloatArray | float,
    other_along: FloatArray | float,
    across: FloatArray | float,
    other_across: float,
    dimension: int,
    distance: float,
) -> FloatArray:
    """Return the sum of both KL divergences of two Gaussians with the same axes, whose means are ``distance`` (squared)
    apart along the first axis.

    Args:
        along, other_along: variances of the two along the first axis.
        across, other_across: their variances along each of the ``dimension - 1`` other axes.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = np.asarray(across) / other_across + other_across / np.asarray(across) - 2
        first = (np.asarray(along) + distance) / other_along + (np.asarray(other_along) + distance) / along - 2
    # Two classes without any variance across agree there.
    rest = np.where(np.asarray(across) == other_across, 0.0, rest)
    return np.asarray((first + (dimension - 1) * rest) / 2)
