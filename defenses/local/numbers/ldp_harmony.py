"""Each client sends one uniformly drawn coordinate by Duchi's mechanism (Harmony, local DP; Nguyen et al. 2016)."""

from ...randomisers.numbers.duchi import Duchi
from ..defense import NumberDefense


class LDPHarmony(NumberDefense):
    """A local DP defense that spends a round's whole budget on one randomly drawn coordinate of d, and multiplies the
    reported value by d, so that the report is unbiased.
    """

    mechanism = "Harmony"
    source = "Nguyen et al. 2016, Harmony; one number: Duchi, Jordan, Wainwright 2018"
    of = Duchi

    def sampled(self, epsilon: float, dim: int) -> int:
        # Fixed by the mechanism, while the other defenses send more coordinates at larger budgets.
        return 1
