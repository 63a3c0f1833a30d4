"""Each client sends sampled coordinates by the mechanism of condensed local DP (LDP-Fed: Truex et al. 2020)."""

from dataclasses import dataclass

from ....audit.claim import Value
from ....fl.plan import Plan
from ...accounting.pure import composed_epsilon
from ...defense import Variant, provable
from ...randomisers.numbers.condensed import Condensed
from ...randomisers.randomiser import check_given_count
from ..defense import SampledDefense


@dataclass(frozen=True, kw_only=True)
class LDPFed(SampledDefense):
    """A local DP defense that rounds each sent coordinate to the nearest of 2 * ``steps`` + 1 grid points and reports a
    random grid point, with a probability that falls exponentially with its distance from the rounded coordinate.

    A report's mean is pulled towards zero and is not corrected.

    Args:
        epsilon, delta: of the claim, over all rounds; split over the numbers that are sent.
        steps: grid points on each side of zero (the paper's clip bound times ten to its precision).
        variant: "corrected", or "as_published": the condensed alpha of all numbers together, compared with other
            defenses as if it were the epsilon of local DP; the paper claims condensed local DP only. Coordinates are
            sampled in both; the paper sends all and splits over all.

    Errata:
        - Not stated: in the survey of Fu et al. 2024 (the paper itself was not at hand), the epsilon of local DP that
          the budget of condensed local DP amounts to. The survey labels its row "Condensed LDP", so the 1 in its column
          of epsilons is no mistake: it bounds the ratio by e^alpha for two values one grid step apart, where the
          distance counts grid steps. For any two values, as local DP asks, this mechanism's exact epsilon is alpha
          times ``steps``. Here: the corrected form claims local DP with epsilon, which leaves alpha = epsilon / steps.
    """

    steps: int = 10
    variant: Variant = "corrected"
    mechanism = "exponential, condensed"
    source = f"{Condensed.source}; sampling: Wang et al. 2019, Algorithm 4"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_given_count("steps", self.steps, least=1)

    def number(self, epsilon: float) -> Condensed:
        # As published epsilon is read as the alpha of one grid step, which the whole range multiplies.
        spent = epsilon * self.steps if self.variant == "as_published" else epsilon
        return Condensed(epsilon=spent, radius=1.0, steps=self.steps)

    def published(self, plan: Plan) -> dict[str, Value]:
        count, epsilon = self.spent(plan)
        if self.variant == "corrected":
            return super().published(plan) | {"steps": self.steps, "alpha": epsilon / self.steps}
        whole = composed_epsilon(epsilon * self.steps, releases=count * plan.participations, delta=self.delta)
        return super().published(plan) | {"steps": self.steps, "alpha": epsilon} | provable(whole)
