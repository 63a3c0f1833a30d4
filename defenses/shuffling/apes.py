"""APES perturbs each coordinate by clip-Laplace at the client's own budget and shuffles it (Liu et al. 2023)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ..accounting.heterogeneous import published_bound
from ..accounting.pld_convolution import Profile
from .claims.amplification import among_unequals
from .mechanisms.budgeted import CoordinateNoise
from .personal import PersonalBudgets


@dataclass(frozen=True, kw_only=True)
class APES(PersonalBudgets):
    """A defense in which every client has its own budget. A shuffler mixes each coordinate separately, and also the
    budgets.

    Claims, replace-one, of one client with the smallest, the median and the largest budget each: the whole report over
    all rounds, and one coordinate of one round. The adversary is the analyser behind the shuffler. Knowing all clients'
    budgets does not help it.

    The server stretches the mean of all reports back (equation 1, ``shuffling.mechanisms.calibration``): without bias
    where all clients send the same value, otherwise with the bias that ``calibration_quality`` computes.

    Args:
        epsilon, delta: the total budget of the client with the largest local budget; all local budgets are scaled to
            it.
        coordinate_delta: delta of the claims about one coordinate.
        budgets: one of Table 2's distributions; ``shuffling.claims.budgets.deal`` assigns them to clients.
        budget_scale: factor of Table 2's budgets; where it is given nothing is calibrated.
        radius: clip bound of each coordinate of an update.
        variant: "corrected", or "as_published": one claim for all, from clones averaged over all clients' mechanisms.

    Errata:
        - Paper, Lemma 5 and Theorem 4: reports that resemble any client's mechanism, averaged over all, hide client 1.
          Right: only clones of client 1's own mechanism do; .0596 for a budget of 1 at Uniform2, 10,000 clients, delta
          1e-8, where the average gives .0571.
        - Paper, Lemma 4: exponent max of both budgets. Right, and tighter: the neighbour's own.
        - Paper, Lemma 6: the last term is the expected number of clones. Right: 8 over it, as in Theorem 4; neither
          closed form is used here.
        - Paper, Table 3: eps_c .057, which Theorem 4's closed form does not give (.205). Right: the numerical clones.
        - Paper, Table 3: eps_uc 57.6 by advanced composition over 7850 coordinates. Right: 4.93 at delta 3.6e-5, by
          privacy-loss distributions.
        - Paper, equation 1: calibration by the mean of equal gradients. Right: biased where gradients and budgets
          differ together; at Uniform2 it multiplies the reports' own noise by 8.
    """

    noise: ClassVar[CoordinateNoise] = CoordinateNoise.CLIP_LAPLACE
    mechanism: ClassVar[str] = "clip-Laplace"
    source: ClassVar[str] = "Liu et al. 2023, Lemma 4; clones of the client's own mechanism, Poisson-binomial"
    published_source: ClassVar[str] = "Liu et al. 2023, Theorem 4 and Lemma 2, as published"

    def _hidden(self, client: int, budgets: tuple[float, ...], others: int) -> Profile:
        # Clones of the client's own mechanism only, as the errata explain.
        return among_unequals(client=client, budgets=budgets, others=others)

    def _averaged(self, budgets: tuple[float, ...]) -> Callable[[float], float]:
        return published_bound(budgets).epsilon
