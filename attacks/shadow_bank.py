"""Stores logits of candidates and population points under shadow models, whose training sets are known."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import BoolArray, FloatArray, IntArray
from ..fl.models.network import Network


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelLogits:
    """The logits ``ln(p / (1 - p))`` of the true class under one model.

    Args:
        candidates: (N,), of each candidate.
        population: (Z,), of each public point that no model trained on.
    """

    candidates: FloatArray
    population: FloatArray

    def __post_init__(self) -> None:
        for name in ("candidates", "population"):
            object.__setattr__(self, name, _logits(name, getattr(self, name), dimensions=1))


@dataclass(frozen=True, kw_only=True, eq=False)
class Moments:
    """The mean of each candidate's logits under some shadow models, and the sum of squared deviations from this mean.

    ``mean`` and ``squares`` (N,): mean and sum of squared deviations; ``count`` (N,): number of models.
    """

    mean: FloatArray
    squares: FloatArray
    count: IntArray

    @property
    def variance(self) -> FloatArray:
        """Return the unbiased variance of each candidate's logits, shape (N,)."""
        return np.asarray(self.squares / (self.count - 1), dtype=np.float64)

    @property
    def pooled_variance(self) -> float:
        """Return the mean of the candidates' variances; a variance over all logits at once would include differences
        between candidates.
        """
        return float(self.squares.sum() / (self.count - 1).sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class ShadowBank:
    """A set of logits from M shadow models (models with known training sets), for N candidates and Z points of the
    population.

    An attack gets a bank of reference models (``references``), without its target.

    Args:
        logits: (M, N), of the true class, ``ln(p / (1 - p))``.
        included: (M, N) booleans, which model trained on which candidate.
        population: (M, Z), logits of points that no model trained on.
        ids: (N,), the candidates' indices in their pool, which identify the columns.
        paired: models 2k and 2k + 1 hold complementary halves of the candidates.

    Raises:
        ValueError: for logits of another number of dimensions, or NaN or infinite ones.
    """

    logits: FloatArray
    included: BoolArray
    population: FloatArray
    ids: IntArray
    paired: bool = False

    def __post_init__(self) -> None:
        for name in ("logits", "population"):
            object.__setattr__(self, name, _logits(name, getattr(self, name), dimensions=2))
        for name in ("included", "ids"):
            array = np.array(getattr(self, name))
            # Attacks share one bank; none may change it for the next.
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def models(self) -> int:
        """Return the number of shadow models, M."""
        return len(self.logits)

    def model_logits(self, target: int) -> ModelLogits:
        """Return the logits under the shadow model number ``target``, which are all that an attack receives of this
        model.
        """
        return ModelLogits(candidates=self.logits[target], population=self.population[target])

    def references(self, target: int) -> "ShadowBank":
        """Return the logits of the reference models: all except ``target`` and, if models are paired, the other model
        of its pair.

        The complementary half is in the other model, so it would reveal the target's members.

        Raises:
            ValueError: if there is no such model, or no model would be left.
        """
        if not 0 <= target < self.models:
            raise ValueError(f"target (number of the attacked model) must be in 0..{self.models - 1}, got {target}")
        # Pairs are neighbours, so the pair of a target starts at its even number.
        first, size = (target - target % 2, 2) if self.paired else (target, 1)
        if size == self.models:
            raise ValueError(
                f"more than {size} shadow models are needed, because the attack leaves {size} of them out, "
                f"got {self.models}"
            )
        return self.without(range(first, first + size))

    def without(self, left_out: Iterable[int]) -> "ShadowBank":
        """Return the logits of all shadow models except those numbered ``left_out``; of two paired models, ``left_out``
        must contain both or neither.
        """
        left = np.delete(np.arange(self.models), list(left_out))
        return ShadowBank(
            logits=self.logits[left],
            included=self.included[left],
            population=self.population[left],
            ids=self.ids,
            paired=self.paired,
        )

    def check(self, *, outs: int, ins: int = 0) -> None:
        """Raise ValueError unless at least ``outs`` shadow models were trained without each candidate and at least
        ``ins`` with it.
        """
        for word, needed, each in (("out of", outs, (~self.included).sum(0)), ("in", ins, self.included.sum(0))):
            if each.min() < needed:
                which = int(each.argmin())
                raise ValueError(
                    f"too few shadow models: each candidate must be {word} {needed} or more of their training sets, "
                    f"candidate {self.ids[which]} is {word} {each[which]} of {self.models}"
                )

    def moments(self, *, included: bool) -> Moments:
        """Compute the mean and the sum of squared deviations of each candidate's logits, over the models that trained
        on the candidate or over the others.
        """
        which = self.included if included else ~self.included
        count = which.sum(0)
        mean = (self.logits * which).sum(0) / np.maximum(count, 1)
        # Deviations from the mean, not a difference of squares, which would lose digits.
        squares = (((self.logits - mean) ** 2) * which).sum(0)
        return Moments(mean=mean, squares=squares, count=count)


def true_class_logits(network: Network, model: Tensor, images: Tensor, labels: Tensor) -> FloatArray:
    """Compute ``ln(p / (1 - p))`` of each image's true class under ``model (d,)``, shape ``(n,)``."""
    # From logits, not from probabilities: it is finite where p rounds to 1.
    with torch.no_grad():
        logits = network.logits_in_parts(model, images).double()
    return np.asarray(of_true_class(logits, labels).numpy(), dtype=np.float64)


def of_true_class(logits: Tensor, labels: Tensor) -> Tensor:
    """Compute the logit of each true class minus the log-sum-exp of the other logits, from logits ``(..., classes)``
    and labels ``(...)``.
    """
    # ln p - ln(1 - p) of the softmax, without computing p.
    own = logits.gather(-1, labels.unsqueeze(-1))
    others = logits.scatter(-1, labels.unsqueeze(-1), -torch.inf)
    return own.squeeze(-1) - others.logsumexp(-1)


def rank_among(values: FloatArray, others: FloatArray) -> FloatArray:
    """Return, for each of ``values``, the share of ``others (m,)`` that are below it; ties count half."""
    ordered = np.sort(others)
    below, up_to = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    return np.asarray((below + up_to) / (2 * len(ordered)), dtype=np.float64)


def _logits(name: str, values: FloatArray, *, dimensions: int) -> FloatArray:
    array = np.array(values, dtype=np.float64)
    if array.ndim != dimensions or not array.size:
        raise ValueError(f"{name} must have {dimensions} dimension(s) and not be empty, got shape {array.shape}")
    if bad := int(np.count_nonzero(~np.isfinite(array))):
        raise ValueError(f"{name} must be finite, got {bad} of {array.size} NaN or infinite")
    array.flags.writeable = False
    return array
