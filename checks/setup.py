"""The federation and the privacy claim that checks run, and the Gaussian laws estimated from runs where none is
published.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp, log1p

from ..audit.check import CheckResult
from ..audit.claim import Claim, Unit
from ..audit.observer import SHUFFLED
from ..fl.laws import GaussianLaw
from ..fl.plan import Plan
from ..fl.protection import Protection
from ..fl.task import Task

SUM = -1
"""The number under which the law of a sum of all clients is kept."""
_WORDS = (
    "the defense publishes no noise distribution, so this value is compared with the noise measured in runs and "
    "with the claimed epsilon"
)


@dataclass(frozen=True, kw_only=True)
class SeenLaws:
    """Laws estimated from runs, keyed by client, or by ``SUM`` for the sum; empty if runs show no law, or if one is
    published.
    """

    laws: Mapping[int, GaussianLaw] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.laws)

    def of(self, client: int) -> GaussianLaw | None:
        """Return the law of a client's release."""
        return self.laws.get(client, self.laws.get(SUM))

    def named(self, result: CheckResult) -> CheckResult:
        """Return a result that compares with an estimated law; if it failed, its words say that the law was
        estimated.
        """
        failed = bool(self) and result.passed is False
        return replace(result, witness=f"{result.witness}; {_WORDS}") if failed else result


@dataclass(frozen=True, kw_only=True, eq=False)
class ClaimSetup:
    """A federation that is run under a claim: ``task`` gives the initial model and the samples."""

    task: Task
    plan: Plan
    protection: Protection
    claim: Claim
    seed: int

    @property
    def rate(self) -> float:
        """The smallest probability with which a unit takes part in a round."""
        return self.plan.cohort_rate * min(self.plan.lot.rate(size) for size in self.plan.sizes)

    def local_epsilon(self, rounds: int) -> float:
        """Return the largest epsilon that one round may have for a unit that takes part, if the unit affects the given
        number of rounds; sampling and shuffling allow more than the claim's share of a round.
        """
        each = self.claim.epsilon / max(1, rounds)
        hidden = self.rate / (self.plan.clients if self.claim.observer.rank == SHUFFLED.rank else 1)
        return min(each if hidden >= 1 else log1p(exp(min(each, 700.0)) / hidden - 1 / hidden), 30.0)

    @property
    def numbers(self) -> int:
        """The number of values in one round of a run: the rows of clients, or of the largest client's samples."""
        samples = max(self.plan.sizes) if self.claim.unit is Unit.SAMPLE else 1
        return max(self.plan.clients, samples) * self.plan.layout.dim

    @property
    def length(self) -> float:
        """The clip norm that the law or the claim states; 1 if neither does."""
        law = self.protection.law(self.claim.observer, self.plan, 0)
        published = law.clip_norm if isinstance(law, GaussianLaw) else self.claim.parameters.get("clip_norm", 1.0)
        return float(published) if isinstance(published, int | float) and published > 0 else 1.0
