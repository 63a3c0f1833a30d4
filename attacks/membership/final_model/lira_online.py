"""LiRA online: two normal laws of a candidate's logit, with it and without it (Carlini et al. 2022, Algorithm 1)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ....audit.arrays import FloatArray
from ...shadow_bank import Outputs, ShadowBank
from .shadow_attack import ShadowAttack

_LEAST_DEVIATION = 1e-6


@dataclass(frozen=True, kw_only=True)
class LiRAOnline(ShadowAttack):
    """score = ln N(logit; in) - ln N(logit; out), the laws fitted to the references with it and to those without it.

    Args:
        variance: ``"example"``: each candidate's own, which takes many references; ``"pooled"``: one for all members
            and one for all non-members, of the scatter within candidates.
    """

    variance: Literal["example", "pooled"] = "example"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variance not in ("example", "pooled"):
            raise ValueError(f'variance must be "example" or "pooled", got {self.variance!r}')

    def scores(self, references: ShadowBank, target: Outputs) -> FloatArray:
        references.check(outs=2, ins=2)
        within, out = (self._log_density(references, target, included) for included in (True, False))
        return within - out

    def _log_density(self, references: ShadowBank, target: Outputs, included: bool) -> FloatArray:
        """Up to the constant that both laws share."""
        law = references.moments(included=included)
        variance = law.variance if self.variance == "example" else np.full_like(law.mean, law.pooled_variance)
        spread = deviation(variance)
        return np.asarray(-0.5 * ((target.candidates - law.mean) / spread) ** 2 - np.log(spread), dtype=np.float64)


def deviation(variance: FloatArray) -> FloatArray:
    """Its root; not zero where models agree to the last digit."""
    return np.asarray(np.sqrt(variance).clip(_LEAST_DEVIATION), dtype=np.float64)
