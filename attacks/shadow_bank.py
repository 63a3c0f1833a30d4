"""Shadow bank: what models of known membership say of the candidates, and of points that none of them trained on."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import BoolArray, FloatArray, IntArray
from ..fl.models.network import Network


@dataclass(frozen=True, kw_only=True, eq=False)
class Outputs:
    """What one model says: its logit ``ln(p / (1 - p))`` of the true class.

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
    """Of each candidate's logits over some models: ``mean`` and ``squares``, the sum of squares about it, both (N,);
    ``count``, over how many.
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
        """The mean scatter **within** candidates. Over all logits at once, candidates' differences would count as
        noise.
        """
        return float(self.squares.sum() / (self.count - 1).sum())


@dataclass(frozen=True, kw_only=True, eq=False)
class ShadowBank:
    """M models, N candidates, Z points of the population.

    What an attack gets is a bank of references (``references``), in which its target is not.

    Args:
        logits: (M, N), of the true class, ``ln(p / (1 - p))``.
        included: (M, N) booleans, who trained on whom.
        population: (M, Z), logits of points that nobody trained on.
        ids: (N,), the candidates' places in their pool: what a column is about, whatever else is in the bank.
        paired: models 2k and 2k + 1 hold complementary halves of the candidates.

    Raises:
        ValueError: for arrays that do not fit each other, NaN or infinity, an id given twice, or pairs that are none.
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
            raise ValueError("paired models must come by two, each candidate in one of both; these do not")

    @property
    def models(self) -> int:
        """M."""
        return len(self.logits)

    def outputs(self, target: int) -> Outputs:
        """What model ``target`` says: all that an attack gets of it."""
        return Outputs(candidates=self.logits[target], population=self.population[target])

    def references(self, target: int) -> "ShadowBank":
        """The bank without ``target`` and, where models are paired, without its twin: who is in the twin is not in the
        target.

        Raises:
            ValueError: if there is no such model, or it leaves none.
        """
        if not 0 <= target < self.models:
            raise ValueError(f"target must be in 0..{self.models - 1}, got {target}")
        first, size = (target - target % 2, 2) if self.paired else (target, 1)
        if size == self.models:
            raise ValueError(f"{self.models} models are fewer than needed: none is left beside the target")
        return self.without(range(first, first + size))

    def without(self, left_out: Iterable[int]) -> "ShadowBank":
        """The bank without these models; of a pair both or none."""
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
        """Of the candidates' logits, over the models that trained on them or over those that did not."""
        which = self.included if included else ~self.included
        count = which.sum(0)
        mean = (self.logits * which).sum(0) / np.maximum(count, 1)
        squares = (((self.logits - mean) ** 2) * which).sum(0)
        return Moments(mean=mean, squares=squares, count=count)


def true_class_logits(network: Network, model: Tensor, images: Tensor, labels: Tensor) -> FloatArray:
    """``ln(p / (1 - p))`` of each image's own class under ``model (d,)``, ``(n,)``; finite where p rounds to 1."""
    with torch.no_grad():
        logits = network.logits(model, images).double()
    return np.asarray(of_true_class(logits, labels).numpy(), dtype=np.float64)


def of_true_class(logits: Tensor, labels: Tensor) -> Tensor:
    """``(..., classes)`` and ``(...)`` -> ``(...)``: the class's own logit minus the log-sum-exp of the others."""
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
