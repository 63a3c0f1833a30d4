"""Attack that fits normals to logits of models with and without the candidate (LiRA, Carlini et al. 2022, Alg. 1)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...audit.arrays import FloatArray
from ..shadow_bank import ModelLogits, ShadowBank
from .shadow_attack import ShadowAttack

# Models may agree to the last digit; a deviation of zero would divide.
_LEAST_DEVIATION = 1e-6


@dataclass(frozen=True, kw_only=True)
class LiRAOnline(ShadowAttack):
    """An attack whose score is the log-likelihood ratio of the candidate's logit, under normal fits to the logits of
    models trained with the candidate and without it.

    It is ln N(logit; in) - ln N(logit; out), with normal distributions in and out that are fitted to the reference
    models trained with and without the candidate.

    Args:
        variance: ``"example"``: each candidate's own variance, which needs many references; ``"pooled"``: one for all
            members and one for all non-members, computed within candidates.
    """

    variance: Literal["example", "pooled"] = "example"

    def scores(self, references: ShadowBank, target: ModelLogits) -> FloatArray:
        references.check(outs=2, ins=2)
        within, out = (self._log_density(references, target, included) for included in (True, False))
        return within - out

    def _log_density(self, references: ShadowBank, target: ModelLogits, included: bool) -> FloatArray:
        """Log density up to the constant that both distributions share."""
        law = references.moments(included=included)
        variance = law.variance if self.variance == "example" else np.full_like(law.mean, law.pooled_variance)
        spread = deviation(variance)
        return np.asarray(-0.5 * ((target.candidates - law.mean) / spread) ** 2 - np.log(spread), dtype=np.float64)


def deviation(variance: FloatArray) -> FloatArray:
    """Return the standard deviation for a given variance, kept above a small positive number."""
    return np.asarray(np.sqrt(variance).clip(_LEAST_DEVIATION), dtype=np.float64)
