"""The probability of a false alarm in one run, shared out in one place among the families of the run's statistical
tests.

By Bonferroni's inequality the levels of all tests add up to at most their ledger's total, however tests depend on each
other. In a suite run of 100 claims, all correct, any check fails with probability .046 at most (4.6e-4 per claim). All
but .001 of it belongs to tests that may refute a claim by themselves, and to families that few claims have: channels
that take few values, released labels, and independent runs of vertical mutants. In a watched run of a correct foreign
system it is 1e-5. Guards that refuse to count dependent runs fail no check, and state their levels themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum

from .binomial import check_level
from .wording import unknown


@dataclass(frozen=True, kw_only=True)
class Share:
    """The share of a run's false-alarm probability that one family of tests may use.

    Args:
        total: probability, at most, that any of its tests fails in a run in which everything is correct.
        claims, groups: claims of a run, and groups of tests of a claim, among which it is shared equally; both are at
            least as many as there are.
    """

    total: float
    claims: int = 100
    groups: int = 1

    def __post_init__(self) -> None:
        check_level("total", self.total)


@dataclass(frozen=True)
class Ledger:
    """The shares of false-alarm probability for one kind of run, keyed by the families of tests."""

    shares: Mapping[str, Share]

    @property
    def total(self) -> float:
        """An upper bound on the probability that any test of any family fails in a correct run."""
        return fsum(share.total for share in self.shares.values())

    def level(self, family: str, tests: int = 1) -> float:
        """Return the significance level of each of ``tests`` tests in one group of a family; ValueError for an unknown
        family.
        """
        if family not in self.shares:
            raise unknown("family", family, self.shares)
        share = self.shares[family]
        return share.total / share.claims / share.groups / max(1, tests)


SUITE = Ledger(
    {
        # Distributions of noise that a law states.
        "noise": Share(total=5e-4, groups=128),
        # Draws of single hooks: events, cohorts and lots, shufflers, masks, numbers without noise; no claim has all.
        "hooks": Share(total=3e-4, groups=8),
        # Trials of everything that an observer receives, which may refute a claim by themselves: of the audit's model,
        # where its pilots suspect something, and of one of few weights.
        "trials": Share(total=5e-3, groups=2),
        # Draws of a preparation of the data, which may refute a claim by themselves: without noise, with noise, given
        # the models, and together with the training on all and on a few records.
        "preparation": Share(total=5e-3, groups=5),
        # Trials that decide what failed comparisons mean, on a few pairs of inputs of a claim.
        "decisions": Share(total=5e-3, groups=2),
        # Coins that a channel of few values would have shown.
        "few values": Share(total=1e-2),
        "repeated numbers": Share(total=1e-5),
        "extreme rows": Share(total=1e-7),
        # Each bound on one of two shares, for three pairs of thresholds.
        "privacy loss by size": Share(total=6e-8, groups=6),
        # Each of two bounds on chances, for two signs and two thresholds.
        "amplification": Share(total=8e-7, groups=8),
        # Vertical federations.
        "released labels": Share(total=1e-2),
        "vertical noise": Share(total=1e-4),
        "vertical messages": Share(total=1e-4),
        # Answers of transfers.
        "answers": Share(total=5e-6),
        # Independent runs of mutants, which may refute a claim by themselves.
        "vertical runs": Share(total=1e-2),
    }
)
"""All implementation checks of a suite run."""
WATCHED = Ledger({"watched run": Share(total=1e-5, claims=1, groups=16)})
"""All checks of one watched run of a foreign system, and of the runs that play it back."""
