"""Audits a foreign system by one run with many canaries, each included by a fair coin.

Every unit lies along a coordinate of its own, so that units do not disturb each other, and is scored by the exact
log-likelihood ratio of its coordinate in the releases less the known rest (Steinke, Nasr, Jagielski 2023).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..audit.arrays import BoolArray, FloatArray, IntArray
from ..audit.claim import Claim
from ..audit.estimators.likelihood_ratio import subsampled_gaussian
from ..audit.finding import Finding
from ..audit.supplied.given import check_whole
from ..audit.supplied.scores import audit_one_run
from ..checks.training_record import TrainingRecord
from ..fl.fields import check_positive
from ..fl.laws import GaussianLaw
from ..fl.layout import Layout


@dataclass(frozen=True, kw_only=True)
class ManyUnits:
    """Many units (canaries) that are planted in one run.

    Args:
        units: their number, >= 2 and at most the number of coordinates.
        weight: L2 norm of each vector before clipping, in clip norms, > 0.
        seed: of coins and coordinates.
    """

    units: int
    weight: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("units", self.units, least=2)
        check_positive("weight", self.weight)

    @property
    def coins(self) -> BoolArray:
        """Which planted units take part, ``(units,)``, by independent fair coins."""
        return np.asarray(np.random.default_rng([self.seed, 0]).random(self.units) < 0.5)

    def coordinates(self, layout: Layout) -> IntArray:
        """Return the coordinate of each unit, ``(units,)``, all different; ValueError if there are too few."""
        if self.units > layout.dim:
            raise ValueError(f"units must be at most the number of coordinates, {layout.dim}, got {self.units}")
        drawn = np.random.default_rng([self.seed, 1]).permutation(layout.dim)[: self.units]
        return np.asarray(drawn, dtype=np.int64)

    def vectors(self, layout: Layout) -> Iterator[Tensor]:
        """Yield the vector of each unit, ``(d,)`` in clip norms; zeros for units that do not take part."""
        for coordinate, coin in zip(self.coordinates(layout).tolist(), self.coins.tolist(), strict=True):
            vector = torch.zeros(layout.dim, dtype=torch.float64)
            vector[coordinate] = self.weight * coin
            yield vector

    def scores(self, recording: TrainingRecord, law: GaussianLaw) -> FloatArray:
        """Return one score per unit, ``(units,)``; a higher score means that the unit took part.

        Raises ValueError where the contribution of the other rows is not known.
        """
        places = torch.from_numpy(self.coordinates(recording.layout))
        total = np.zeros(self.units)
        for release in recording.releases:
            if release.rest is None:
                raise ValueError(
                    f"in step {release.step} the sum without the canaries is unknown, because its "
                    "gradients were not seen"
                )
            seen = (release.released.double() - release.rest.double())[places].numpy() / release.clip_norm
            total += subsampled_gaussian(seen, sigma=law.noise_std / law.clip_norm, rate=law.rate)
        return total


class ManyUnitsRunner(Protocol):
    """The interface of a foreign system that can be run with many planted units."""

    @property
    def claim(self) -> Claim: ...

    @property
    def law(self) -> GaussianLaw | None: ...

    def run_many_units(self, many: ManyUnits, seed: int = 0) -> TrainingRecord:
        """Run the system once; each planted unit takes part by its own coin."""
        ...


def audit_many_units(runner: ManyUnitsRunner, many: ManyUnits, *, seed: int = 0, alpha: float = 0.05) -> Finding:
    """Judge the privacy claim of a foreign system by one run with many planted units (canaries).

    One run shows less than replicas: it refutes gross faults only. ``seed``: of the run. Raises ValueError for a system
    whose steps do not follow one law with noise.
    """
    law = runner.law
    if law is None or law.noise_std == 0:
        raise ValueError(
            "a test with many canaries needs one noise multiplier, clip norm and sampling rate for all steps"
        )
    scores = many.scores(runner.run_many_units(many, seed), law)
    return audit_one_run(scores, many.coins, runner.claim, higher_is_member=True, alpha=alpha)
