"""Hold the Gaussian laws that runs of a defense show where it publishes none."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..audit.check import CheckResult
from ..fl.laws import GaussianLaw

SUM = -1
"""The number under which the law of a sum of all clients is kept."""
_WORDS = "no law is published: this is held against the noise that runs show, and the epsilon of the claim"


@dataclass(frozen=True, kw_only=True)
class SeenLaws:
    """Laws by client, or that of the sum under ``SUM``; none where runs show no law, or one is published."""

    laws: Mapping[int, GaussianLaw] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.laws)

    def of(self, client: int) -> GaussianLaw | None:
        """Return the law of what is released of a client."""
        return self.laws.get(client, self.laws.get(SUM))

    def named(self, result: CheckResult) -> CheckResult:
        """Return a result that was held against such a law, with words that say so where it failed."""
        failed = bool(self) and result.passed is False
        return replace(result, witness=f"{result.witness}; {_WORDS}") if failed else result
