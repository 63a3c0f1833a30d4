"""Shadow bank: logits of candidates and population points under models with known training sets."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import BoolArray, FloatArray, IntArray
from ..fl.models.network import Network


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelLogits:
    """One model's logits ``ln(p / (1 - p))`` of the true class.

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
    """Moments of each candidate's logits over some models.

    ``mean`` and ``squares`` (N,): mean and sum of squared deviations; ``count`` (N,): number of models.
    """

    mean: FloatArray
    squares: FloatArray
    count: IntArray

    @property
    def variance(self) -> FloatArray:
        """(N,), unbiased."""
        return np.asarray(self.squares / (self.count - 1), dtype=np.float64)

    @property
    def pooled_variance(self) -> float:
        """The mean variance within candidates; over all logits at once, candidates' differences would count too."""
        return float(self.squares.sum() / (self.count - 1).sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class ShadowBank:
    """M models, N candidates, Z points of the population.

    An attack gets a bank of reference models (``references``), without its target.

    Args:
        logits: (M, N), of the true class, ``ln(p / (1 - p))``.
        included: (M, N) booleans, which model trained on which candidate.
        population: (M, Z), logits of points that no model trained on.
        ids: (N,), the candidates' indices in their pool, which identify the columns.
        paired: models 2k and 2k + 1 hold complementary halves of the candidates.

    Raises:
        ValueError: for arrays that do not fit each other, NaN or infinity, a repeated id, or wrong pairs.
    """

    logits: FloatArray
    included: BoolArray
    population: FloatArray
    ids: IntArray
    paired: bool = False

    def __post_init__(self) -> None:
        for name in ("logits", "population"):
            object.__setattr__(self, name, _logits(name, getattr(self, name), dimensions=2))
        for name, kind in (("included", np.bool_), ("ids", np.int64)):
            array = np.array(getattr(self, name))
            if array.dtype != kind:
                raise ValueError(f"{name} must be of {np.dtype(kind).name}, got {array.dtype}")
            # Attacks share one bank; none may change it for the next.
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        self._check()

    def _check(self) -> None:
        models, candidates = self.logits.shape
        if self.included.shape != self.logits.shape:
            raise ValueError(f"included must be {self.logits.shape} as the logits are, got {self.included.shape}")
        if len(self.population) != models:
            raise ValueError(f"population must have a row for each of {models} models, got {len(self.population)}")
        if self.ids.shape != (candidates,) or len(np.unique(self.ids)) != candidates:
            raise ValueError(f"ids must be {candidates} different numbers, got {self.ids}")
        if self.paired and not (
            models % 2 == 0 and np.array_equal(self.included[0::2], np.logical_not(self.included[1::2]))
        ):
            raise ValueError("paired models must come in twos, each candidate in exactly one of both; these do not")

    @property
    def models(self) -> int:
        """M."""
        return len(self.logits)

    def model_logits(self, target: int) -> ModelLogits:
        """The logits of model ``target``: all that an attack gets of it."""
        return ModelLogits(candidates=self.logits[target], population=self.population[target])

    def references(self, target: int) -> "ShadowBank":
        """The bank without ``target`` and, where models are paired, without the other model of the pair.

        The complementary half is in the other model, so it would reveal the target's members.

        Raises:
            ValueError: if there is no such model, or no model would be left.
        """
        if not 0 <= target < self.models:
            raise ValueError(f"target must be in 0..{self.models - 1}, got {target}")
        # Pairs are neighbours, so the pair of a target starts at its even number.
        first, size = (target - target % 2, 2) if self.paired else (target, 1)
        if size == self.models:
            raise ValueError(f"the bank must hold more than the target's {size} models, got {self.models}")
        return self.without(range(first, first + size))

    def without(self, left_out: Iterable[int]) -> "ShadowBank":
        """The bank without these models; of a pair both must be named or none."""
        left = np.delete(np.arange(self.models), list(left_out))
        return ShadowBank(
            logits=self.logits[left],
            included=self.included[left],
            population=self.population[left],
            ids=self.ids,
            paired=self.paired,
        )

    def check(self, *, outs: int, ins: int = 0) -> None:
        """Raise ValueError unless each candidate is out of at least ``outs`` models and in at least ``ins``."""
        for word, needed, each in (("out of", outs, (~self.included).sum(0)), ("in", ins, self.included.sum(0))):
            if each.min() < needed:
                which = int(each.argmin())
                raise ValueError(
                    f"fewer shadow models than needed: each candidate must be {word} {needed} or more, "
                    f"candidate {self.ids[which]} is {word} {each[which]} of {self.models}"
                )

    def moments(self, *, included: bool) -> Moments:
        """Moments of the candidates' logits over the models that trained on them, or over those that did not."""
        which = self.included if included else ~self.included
        count = which.sum(0)
        mean = (self.logits * which).sum(0) / np.maximum(count, 1)
        # Deviations from the mean, not a difference of squares, which would lose digits.
        squares = (((self.logits - mean) ** 2) * which).sum(0)
        return Moments(mean=mean, squares=squares, count=count)


def true_class_logits(network: Network, model: Tensor, images: Tensor, labels: Tensor) -> FloatArray:
    """``ln(p / (1 - p))`` of each image's own class under ``model (d,)``, ``(n,)``."""
    # From logits, not from probabilities: it is finite where p rounds to 1.
    with torch.no_grad():
        logits = network.logits(model, images).double()
    return np.asarray(of_true_class(logits, labels).numpy(), dtype=np.float64)


def of_true_class(logits: Tensor, labels: Tensor) -> Tensor:
    """``(..., classes)`` and ``(...)`` -> ``(...)``: the class's own logit minus the log-sum-exp of the others."""
    # ln p - ln(1 - p) of the softmax, without computing p.
    own = logits.gather(-1, labels.unsqueeze(-1))
    others = logits.scatter(-1, labels.unsqueeze(-1), -torch.inf)
    return own.squeeze(-1) - others.logsumexp(-1)


def _logits(name: str, values: FloatArray, *, dimensions: int) -> FloatArray:
    array = np.array(values, dtype=np.float64)
    if array.ndim != dimensions or not array.size:
        raise ValueError(f"{name} must have {dimensions} dimension(s) and not be empty, got shape {array.shape}")
    if bad := int(np.count_nonzero(~np.isfinite(array))):
        raise ValueError(f"{name} must be finite, got {bad} of {array.size} NaN or infinite")
    array.flags.writeable = False
    return array
