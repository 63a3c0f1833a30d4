"""Rules that draw the clients that take part in a round (cohort) and the samples of a local step (lot)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..audit.parts import build, name_and_options, points
from ..audit.wording import nearest, unknown
from .fields import check_count
from .streams import uniform

_RULES = ("full", "poisson", "fixed_size")
_EPOCH = ("epoch", "same", "probability")


class Sampling(ABC):
    """The base class of a public rule that draws a random subset of clients or samples."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, replicas: int, n: int, turn: int = 0) -> Tensor:
        """Draw a subset of n items in each replica (independent run), as a mask ``(replicas, n)`` that is true for
        drawn items.

        Every rule consumes the same uniform numbers.

        Args:
            rng: the generator of the round ``pass_start``.
            turn: how many rounds have passed since ``pass_start``.
        """

    @abstractmethod
    def rate(self, n: int) -> float:
        """Return the expected share of ``n`` items that is drawn."""

    def pass_start(self, round: int) -> int:
        """Return the round whose generator draws the subset of ``round``; this is an earlier round only if one random
        order serves several rounds.
        """
        return round

    def participations(self, rounds: int) -> int:
        """Return the largest number of rounds, out of the first ``rounds``, in which one item can be drawn."""
        return rounds

    def most(self, n: int) -> int:
        """Return the largest number of items that can be drawn from ``n``."""
        return n


@dataclass(frozen=True)
class Full(Sampling):
    """A sampling rule that always draws every item."""

    def draw(self, rng: np.random.Generator, replicas: int, n: int, turn: int = 0) -> Tensor:
        # Drawn although not needed: a change of the rule must not shift the draws that follow.
        return uniform(rng, (replicas, n)) >= 0

    def rate(self, n: int) -> float:
        return 1.0


@dataclass(frozen=True)
class Poisson(Sampling):
    """A sampling rule that draws each item independently with the same probability (Poisson subsampling).

    Amplification theorems for DP-SGD assume it.
    """

    probability: float

    def __post_init__(self) -> None:
        number = isinstance(self.probability, Real) and not isinstance(self.probability, bool)
        if not (number and 0 < self.probability <= 1):
            raise ValueError(f"Poisson probability must be in (0, 1], got {self.probability!r}")

    def draw(self, rng: np.random.Generator, replicas: int, n: int, turn: int = 0) -> Tensor:
        return uniform(rng, (replicas, n)) < self.probability

    def rate(self, n: int) -> float:
        return self.probability


@dataclass(frozen=True)
class FixedSize(Sampling):
    """A sampling rule that draws a uniform subset of fixed size (all items if there are fewer).

    Theorems for Poisson sampling do not apply.
    """

    size: int

    def __post_init__(self) -> None:
        check_count("FixedSize size", self.size)

    def draw(self, rng: np.random.Generator, replicas: int, n: int, turn: int = 0) -> Tensor:
        return _smallest(uniform(rng, (replicas, n)), self.size)

    def rate(self, n: int) -> float:
        return min(1.0, self.size / n) if n else 1.0

    def most(self, n: int) -> int:
        return min(self.size, n)


@dataclass(frozen=True)
class Epoch(Sampling):
    """A sampling rule without replacement across rounds: in every pass of ``rounds`` rounds each item is drawn exactly
    once.

    A pass cuts a random order of all items into batches, one per round, whose sizes differ by at most one. The next
    pass has another order, unless all passes have the ``same`` one: then item i comes in round i of each pass, modulo
    ``rounds`` (cyclic participation), and one more item changes no other item's rounds; each item then comes with
    ``probability`` (cyclic Poisson sampling). Theorems for Poisson sampling of all items do not apply.

    The number of rounds in a pass stays when an audit cuts the federation to fewer clients, so that a client still
    takes part as often as the claim counts; with fewer clients than ``rounds`` some rounds have no client.
    """

    rounds: int
    same: bool = False
    probability: float = 1.0

    def __repr__(self) -> str:
        return f"Epoch(rounds={self.rounds}{f', same=True, probability={self.probability}' if self.same else ''})"

    def __post_init__(self) -> None:
        check_count("Epoch rounds", self.rounds)
        if not isinstance(self.same, bool):
            raise ValueError(f"same (whether each pass has the same order) must be true or false, got {self.same!r}")
        if Poisson(self.probability).probability < 1 and not self.same:
            raise ValueError(
                f"same must be true (one order for all passes) if probability is below 1, got {self.probability}"
            )

    def draw(self, rng: np.random.Generator, replicas: int, n: int, turn: int = 0) -> Tensor:
        numbers = uniform(rng, (replicas, n))
        if not self.same:
            return _ascending(numbers).argsort(dim=1) * self.rounds // max(n, 1) == turn
        # An item comes in one round of a pass at most, so that one number for it serves all of them.
        return (torch.arange(n) % self.rounds == turn) & (numbers < self.probability)

    def rate(self, n: int) -> float:
        # Averaged over a pass: where batches differ by one item, the larger ones have a slightly larger share.
        return self.probability / self.rounds

    def pass_start(self, round: int) -> int:
        return round - round % self.rounds

    def participations(self, rounds: int) -> int:
        return -(-rounds // self.rounds)

    def most(self, n: int) -> int:
        return -(-n // self.rounds)

    def fewest(self, n: int) -> int:
        """Return the smallest number of items in a batch during a pass over ``n`` items."""
        return n // self.rounds if self.probability == 1 else 0


def _ascending(numbers: Tensor) -> Tensor:
    # Stable: among 60,000 numbers of 24 bits about a hundred pairs are equal, and machines order ties differently.
    return numbers.argsort(dim=1, stable=True)


def _smallest(numbers: Tensor, size: int) -> Tensor:
    """The places of the ``size`` smallest numbers of each row, of equal ones the first: a mask like ``numbers``."""
    if size >= numbers.shape[1]:
        return torch.ones_like(numbers, dtype=torch.bool)
    # A partial sort takes a twentieth of the time of a sort, and the same items, unless equal numbers lie at the cut.
    values = numbers.numpy()
    mask = torch.from_numpy(values <= np.partition(values, size - 1, axis=1)[:, size - 1 : size])
    if bool((mask.sum(1) == size).all()):
        return mask
    return torch.zeros_like(mask).scatter_(1, _ascending(numbers)[:, :size], True)


def cohort_from(spec: str | dict[str, Any], clients: int) -> Sampling:
    """Build the rule by which a suite file draws cohorts from ``clients`` clients. This is a rule of ``sampling_from``,
    or ``{epoch = 500}``, which passes over all clients in cohorts of at most 500. With ``same = true`` all passes have
    one order; with ``probability = 0.1`` in addition, each client of a cohort takes part with this probability.

    The cohorts of a pass are as equal in size as possible: 1,200 clients and ``epoch = 500`` make three cohorts of 400.
    With ``epoch`` >= ``clients`` a pass is one round.

    Raises:
        ValueError: for any other spelling; the message names the nearest known one.
    """
    if _is_outside(spec):
        return _outside(spec)
    if not (isinstance(spec, dict) and "epoch" in spec):
        return _parsed(spec, (*_RULES, "epoch"))
    for name in spec:
        if name not in _EPOCH:
            raise unknown("field of the sampling rule epoch", name, _EPOCH)
    size, same = spec["epoch"], spec.get("same", False)
    check_count("epoch, the largest size of a cohort,", size)
    rule = Epoch(-(-clients // size), same=same, probability=spec.get("probability", 1.0))
    return Full() if rule.rounds == 1 and rule.probability == 1 else rule


def sampling_from(spec: str | dict[str, Any]) -> Sampling:
    """Build the sampling rule that a suite file specifies: ``"full"``, ``{poisson = 0.1}``, ``{fixed_size = 32}``, or a
    rule from outside this package, ``{part = "package.module:Name"}``.

    Raises:
        ValueError: for any other spelling; the message names the nearest known one.
    """
    if _is_outside(spec):
        return _outside(spec)
    if isinstance(spec, dict) and "epoch" in spec:
        raise ValueError(
            "lots must be full, Poisson or of fixed size: { epoch = N }, which is sampling without replacement across "
            f"rounds, is a rule for cohorts, got {spec!r}"
        )
    return _parsed(spec, _RULES)


def _is_outside(spec: object) -> bool:
    if isinstance(spec, dict):
        return "part" in spec
    return isinstance(spec, str) and (":" in spec or (spec not in _RULES and spec in points("sampling")))


def _outside(spec: str | dict[str, Any]) -> Sampling:
    rule = build("sampling", spec, {})
    if not isinstance(rule, Sampling):
        raise ValueError(
            f"sampling rule {name_and_options('sampling', spec)[0]!r} must be a subclass of fedassay's Sampling, or a "
            f"function that returns an instance of one, got {type(rule).__name__}"
        )
    return rule


def _parsed(spec: str | dict[str, Any], known: tuple[str, ...]) -> Sampling:
    if spec == "full":
        return Full()
    kind, amount = next(iter(spec.items())) if isinstance(spec, dict) and len(spec) == 1 else (spec, None)
    if kind == "poisson" and amount is not None:
        return Poisson(amount)
    if kind == "fixed_size" and amount is not None:
        return FixedSize(amount)
    passes = ", { fixed_size = N } or { epoch = N }" if "epoch" in known else " or { fixed_size = N }"
    raise ValueError(
        f'sampling must be "full", {{ poisson = RATE }}{passes}, got {spec!r} (known: {nearest(str(kind), known)})'
    )


def lot_indices(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices of the samples drawn in each replica (independent run), padded to equal length, and a mask
    that is false on the padding.

    A mask ``(replicas, n)`` gives indices ``(replicas, L)``, ascending.

    Replicas draw different numbers: shorter lots are padded to the longest with samples that were not drawn.
    """
    sizes = mask.sum(dim=1)
    size = int(sizes.max())
    if size and bool((sizes == size).all()):
        # Nothing to pad: without a sort.
        drawn = mask.nonzero()[:, 1].view(len(mask), size)
        return drawn, torch.ones_like(drawn, dtype=torch.bool)
    # At least one column, so that an empty lot still has a shape to compute with.
    size = max(1, size) if mask.shape[1] else 0
    order = torch.argsort(mask.to(torch.int8), dim=1, descending=True, stable=True)[:, :size]
    return order, torch.gather(mask, 1, order)
