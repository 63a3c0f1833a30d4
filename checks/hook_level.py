"""Share one probability of a false alarm among all statistical tests that call hooks, in all claims of a run."""

RUN = 3e-4
"""Probability, at most, that any of these tests fails in a run in which every defense is correct."""
CLAIMS, FAMILIES = 100, 8
"""Claims of a run, and families of tests of a claim, among which it is shared; both are more than there are today."""


def level(tests: int) -> float:
    """Return the level of each of ``tests`` tests of one family, by Bonferroni's inequality."""
    return RUN / CLAIMS / FAMILIES / max(1, tests)
