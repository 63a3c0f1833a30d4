"""Base classes of defenses in which each client randomises its own report under pure local DP.

A defense splits its budget over rounds and coordinates, and states the resulting claim. A client sends all coordinates
or k of d, drawn independently of the data (Wang et al. 2019, Algorithm 4). It randomises each clipped number so that
the report is itself the server's estimate of the number, and the server averages the reports.
"""

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ...audit.arrays import FloatArray, IntArray
from ...audit.claim import AS_PUBLISHED, Claim, Value
from ...audit.observer import UPLOADS, Observer
from ...fl.laws import Mixing, ReportLaw
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ..accounting.pure import BASIC_COMPOSITION, EXACT_COMPOSITION, each_of
from ..accounting.spending import Spending, pure_spending
from ..defense import Bound, Defense, DeltaOrZero, Epsilon, Prepared, report_claim, variant_of
from ..randomisers.randomiser import BoundedNumber, check_given_count


@dataclass(frozen=True, kw_only=True)
class LocalProtection(Protection):
    """A protection in which each client randomises its own report; no other step changes reports.

    Args:
        release: the law of one row's report, for any length.
    """

    release: ReportLaw

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return updates.with_values(self.release.sample(updates.values, rng))

    def law(self, observer: Observer, plan: Plan, client: int) -> ReportLaw | None:
        """Return the distribution of one client's report as the server observes it."""
        # Observers below see aggregates, whose law depends on all clients.
        return self.release if observer.rank >= UPLOADS.rank else None


# Relative distance within which a number that was sent as float32 is matched with its double.
_ROUNDING = 1e-6


class NumberReport(Protocol):
    """A distribution of the report of one number in [-1, 1]; the caller multiplies reports by the clipping radius."""

    @property
    def atoms(self) -> FloatArray:
        """Return all reports that have positive probability, ascending; empty if reports are continuous."""
        ...

    @property
    def largest(self) -> float:
        """Return the largest possible absolute value of a report."""
        ...

    def sample(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw one randomised report for each value; return an array of the same shape."""
        ...

    def log_density(self, reports: FloatArray, values: FloatArray) -> FloatArray:
        """Compute the log density of each report given its value: arrays of shape (n,); -inf if the report is
        impossible.
        """
        ...

    def worst_pair(self) -> tuple[Any, Any]:
        """Return the two values, without and with the canary, that reports distinguish best."""
        ...


def unrounded(number: NumberReport, sent: ArrayLike, scales: ArrayLike) -> FloatArray:
    """Recover the exact reports from the float32 numbers ``sent``, each of which is a report times its scale.

    A report is an atom where the atom's float32 number is what was sent. The report of a density is returned as it is,
    up to its reach, beyond which it may have been rounded.
    """
    crossed, scale = np.asarray(sent, dtype=np.float32), np.asarray(scales, dtype=np.float64)
    reports = crossed.astype(np.float64) / scale
    # Reports clearly beyond the reach are impossible and must keep a density of 0.
    within = np.abs(reports) <= number.largest * (1 + _ROUNDING)
    reports = np.where(within, np.clip(reports, -number.largest, number.largest), reports)
    if not number.atoms.size:
        return np.asarray(reports)
    above = np.clip(np.searchsorted(number.atoms, reports), 1, max(1, number.atoms.size - 1))
    # Rounding may move a report to the other side of an atom, so both neighbours are compared.
    for near in (number.atoms[above - 1], number.atoms[np.minimum(above, number.atoms.size - 1)]):
        reports = np.where(crossed == sendable(near * scale), near, reports)
    return np.asarray(reports)


def sendable(numbers: ArrayLike) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """Convert numbers to float32 and replace a zero by the smallest normal number, 1.2e-38, because zero means that
    nothing was sent.
    """
    rounded = np.asarray(numbers, dtype=np.float32)
    return np.where(rounded == 0, np.finfo(np.float32).tiny, rounded)


@dataclass(frozen=True, kw_only=True)
class SampledLaw:
    """A distribution of a report that randomises k (``coordinates``) of the d entries of a client's vector, drawn
    uniformly and independently of the data. A drawn entry holds d / k times the randomised value, the others are zero
    (Wang et al. 2019, Algorithm 4).

    It is unbiased where the number's report is. Where d is smaller than k, all d are sent. The density is that of the
    reports given which entries were drawn: the draw is the same for all rows and cancels. A report that is zero is sent
    as 1.2e-38, so that a zero always means "not sent".

    Args:
        number: the report of one entry, in units of its radius.
        radius: L-infinity bound of an entry; NaN counts as zero.
        coordinates: k.
        mixing: how rows reach the observer.
    """

    number: NumberReport
    radius: float
    coordinates: int
    mixing: Mixing = Mixing.NONE

    def radii(self, dim: int) -> FloatArray:
        """Return the largest absolute value that each coordinate may have, array of shape (dim,)."""
        return np.full(dim, self.radius)

    def contribution(self, rows: Tensor) -> Tensor:
        """Return client vectors ``(..., d)`` with every entry clipped to its range."""
        bounds = torch.from_numpy(self.radii(rows.shape[-1])).to(rows)
        return torch.clamp(torch.nan_to_num(rows, nan=0.0), -bounds, bounds)

    def sample(self, contribution: Tensor, rng: np.random.Generator) -> Tensor:
        """Draw one report for each client vector. Vectors need not be clipped, because the entries that are sent are
        clipped here.
        """
        dim = contribution.shape[-1]
        rows, scales = contribution.reshape(-1, dim), self._scales(dim)
        places = drawn_places(len(rows), dim, min(self.coordinates, dim), rng)
        entries = rows.gather(1, torch.from_numpy(places)).numpy()
        reports = self.number.sample(self._units(entries, self.radii(dim)[places]), rng)
        # Scaled by d / k, so that the mean over clients is unbiased.
        sent = torch.from_numpy(sendable(reports * scales[places])).to(rows)
        return torch.zeros_like(rows).scatter_(1, torch.from_numpy(places), sent).reshape(contribution.shape)

    def log_density(self, release: Tensor, contribution: Tensor) -> Tensor:
        reports, rows, sent = _aligned(release, contribution)
        owners, places = sent.reshape(-1, sent.shape[-1]).nonzero().unbind(1)
        # Only what was sent is evaluated: for few coordinates of many this is most of the saving.
        logs = self._logs(reports[sent].numpy(), rows[sent].numpy(), places.numpy(), sent.shape[-1])
        total = torch.zeros(sent.shape[:-1], dtype=torch.float64).flatten()
        total = total.index_add(0, owners, torch.from_numpy(logs)).reshape(sent.shape[:-1])
        return total.masked_fill(sent.sum(-1) != min(self.coordinates, sent.shape[-1]), -torch.inf)

    def log_densities(self, release: Tensor, contribution: Tensor) -> Tensor:
        if self.coordinates < release.shape[-1]:
            raise ValueError(
                f"the coordinates of a report are not independent: only {self.coordinates} of {release.shape[-1]} "
                "are sent, so the log density of a report is not a sum over coordinates; call log_density for the "
                "whole report"
            )
        reports, rows, sent = _aligned(release, contribution)
        places = np.broadcast_to(np.arange(sent.shape[-1]), sent.shape)
        # Absent rows are evaluated with the others, which is faster than selecting the present ones.
        logs = self._logs(reports.numpy().ravel(), rows.numpy().ravel(), places.ravel(), sent.shape[-1])
        return torch.from_numpy(logs).reshape(sent.shape).masked_fill(~sent, -torch.inf)

    def worst_pair(self, dim: int) -> tuple[Tensor, Tensor]:
        """Return two client vectors, without and with the canary. All entries of the first vector are at one of the two
        values that reports distinguish best, all entries of the second at the other.
        """
        radii = torch.from_numpy(self.radii(dim)).float()
        absent, present = self.number.worst_pair()
        return float(absent) * radii, float(present) * radii

    def _logs(
        self, sent: NDArray[np.floating], entries: NDArray[np.floating], places: NDArray[np.integer], dim: int
    ) -> FloatArray:
        """Log densities of numbers (m,) that were sent for ``entries`` at ``places`` of rows (dim,)."""
        seen = unrounded(self.number, sent, self._scales(dim)[places])
        return self.number.log_density(seen, self._units(entries, self.radii(dim)[places]))

    def _scales(self, dim: int) -> FloatArray:
        return np.asarray(self.radii(dim) * dim / min(self.coordinates, dim))

    @staticmethod
    def _units(entries: NDArray[np.floating], radii: FloatArray) -> FloatArray:
        """Entries in units of their radius, clipped in double, because a float32 bound may lie beyond the radius."""
        return np.clip(np.nan_to_num(entries.astype(np.float64), nan=0.0), -radii, radii) / radii


def _aligned(release: Tensor, contribution: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Both in one shape, and a mask of where something was sent."""
    shape = np.broadcast_shapes(release.shape, contribution.shape)
    reports = release.expand(shape)
    return reports, contribution.expand(shape), reports != 0


def drawn_places(rows: int, dim: int, count: int, rng: np.random.Generator) -> IntArray:
    """Draw the positions of ``count`` different coordinates out of ``dim``, uniformly for each client; array of shape
    (clients, count) (Floyd's algorithm: Bentley 1987).
    """
    if count == dim:
        return np.tile(np.arange(dim), (rows, 1))
    places = np.full((rows, count), -1, dtype=np.int64)
    for column, last in enumerate(range(dim - count, dim)):
        place = rng.integers(last + 1, size=rows)
        # Floyd's algorithm needs one draw per place and never a rejection, so rows draw equally often.
        taken = (places[:, :column] == place[:, np.newaxis]).any(axis=1)
        places[:, column] = np.where(taken, last, place)
    return places


PER_NUMBER = 2.5
"""Budget per coordinate: one more coordinate is sent for each 2.5 of a round's epsilon (Wang et al. 2019,
Algorithm 4).
"""
_MOST = 300.0


@dataclass(frozen=True, kw_only=True)
class LocalDefense(Defense, ABC):
    """A base class of defenses that give pure local DP for all of a client's reports together, for any two updates. The
    adversary is the server, which observes individual updates.

    Each release has a pure epsilon. At delta 0 all releases get equal parts of the claimed epsilon; at another delta
    each may spend what exact composition allows.
    """

    epsilon: Epsilon = 8.0
    delta: DeltaOrZero = 0.0
    radius: Bound = 0.01
    mechanism: ClassVar[str]
    source: ClassVar[str]

    def claim(self, plan: Plan, parameters: Mapping[str, Value]) -> Claim:
        """Return the local DP claim over all rounds of the plan; the claim states as public parameters the radius to
        which coordinates are clipped and the entries of ``parameters``.
        """
        return report_claim(
            epsilon=self.epsilon,
            delta=self.delta,
            rounds=plan.rounds,
            mechanism=self.mechanism,
            parameters={"radius": self.radius, "releases": plan.participations, **parameters},
            accountant=EXACT_COMPOSITION if self.delta else BASIC_COMPOSITION,
            source=f"{self.source}; composition: Kairouz, Oh, Viswanath 2015" if self.delta else self.source,
        )

    def each_of(self, releases: int) -> float:
        """Return the epsilon that each of ``releases`` releases may spend so that all together stay within the
        budget.
        """
        return each_of(releases, epsilon=self.epsilon, delta=self.delta)


class NumberDefense(LocalDefense, ABC):
    """A base class of defenses that send some coordinates of an update, drawn uniformly and independently of the data;
    each is clipped to [-radius, radius] and randomised with an equal share of the budget. A subclass defines the
    randomiser.
    """

    of: ClassVar[type[BoundedNumber]]

    def number(self, epsilon: float) -> NumberReport:
        """Return the randomiser that reports a number in [-1, 1] at the given ``epsilon``."""
        return self.of(epsilon=epsilon, radius=1.0)

    def sampled(self, epsilon: float, dim: int) -> int:
        """Return how many of an update's ``dim`` coordinates a client sends if one round has the budget ``epsilon``."""
        return max(1, min(dim, math.floor(epsilon / PER_NUMBER)))

    def prepare(self, plan: Plan) -> Prepared:
        protection = LocalProtection(release=self.release(plan))
        claim = self.claim(plan, self.published(plan))
        return Prepared(protection=protection, claims=(claim,), spending=self.spending(plan, claim))

    def spending(self, plan: Plan, claim: Claim) -> dict[str, Spending]:
        """Return a dictionary from the claim's id to a function that computes the epsilon of a number of rounds; the
        dictionary is empty for a paper's own claim, which may not compose over rounds.
        """
        # A published budget may not be composed over rounds at all.
        if variant_of(self) == AS_PUBLISHED:
            return {}
        count, epsilon = self.spent(plan)
        return pure_spending(claim, each=epsilon, releases=count, participations=plan.cohort.participations)

    def release(self, plan: Plan) -> SampledLaw:
        """Return the distribution of one client's report, calibrated to the budget."""
        count, epsilon = self.spent(plan)
        return SampledLaw(number=self.number(epsilon), radius=self.radius, coordinates=count)

    def spent(self, plan: Plan) -> tuple[int, float]:
        """Return how many numbers a client sends per round, and the epsilon that each number spends."""
        # First the number of coordinates at a round's epsilon, then the exact share of each number.
        count = self.sampled(self.each_of(plan.participations), plan.layout.dim)
        epsilon = self.each_of(plan.participations * count)
        if epsilon > _MOST:
            raise ValueError(
                f"each sent number must have an epsilon of at most {_MOST:g}, because a larger one hides nothing; got "
                f"a total epsilon of {self.epsilon} for {plan.participations} rounds of {count} numbers each"
            )
        return count, epsilon

    def published(self, plan: Plan) -> dict[str, Value]:
        """Return the mechanism's parameters that the claim makes public."""
        count, epsilon = self.spent(plan)
        return {"coordinates": count, "number_epsilon": epsilon}


@dataclass(frozen=True, kw_only=True)
class SampledDefense(NumberDefense, ABC):
    """A base class of defenses that send one coordinate for every 2.5 of a round's epsilon, as in Wang et al. (2019,
    Algorithm 4), or a configured number of coordinates.

    Args:
        epsilon, delta: budget of all rounds together.
        radius: L-infinity bound of an update's coordinate.
        coordinates: sent per round; None: max(1, min(d, floor(a round's epsilon / 2.5))).
    """

    coordinates: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coordinates is not None:
            check_given_count("coordinates", self.coordinates, least=1)

    def sampled(self, epsilon: float, dim: int) -> int:
        if self.coordinates is None:
            return super().sampled(epsilon, dim)
        if self.coordinates > dim:
            raise ValueError(
                f"coordinates must be <= {dim}, the number of coordinates of an update, got {self.coordinates}"
            )
        return self.coordinates
