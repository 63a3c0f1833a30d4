"""Each client adds Laplace noise within a fixed range to a few coordinates (local DP; APES: Liu et al. 2023)."""

from ...randomisers.numbers.clipped_laplace import ClippedLaplace
from ..defense import SampledDefense


class LDPClippedLaplace(SampledDefense):
    """A local DP defense that adds Laplace noise to each sent coordinate, conditioned on a result in [-radius, radius].
    The defense has no shuffler, and so no privacy amplification.

    **Biased**: a report's mean is pulled towards zero, at a number's epsilon .4 to about .07 of the radius for a
    coordinate at the radius. No function of one report removes this for all coordinates, and no correction is
    attempted.
    """

    mechanism = "clip-Laplace"
    source = f"{ClippedLaplace.source}; sampling: Wang et al. 2019, Algorithm 4"
    of = ClippedLaplace
