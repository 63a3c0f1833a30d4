"""Shares one probability of a false alarm among all statistical checks of one watched run."""

FALSE_ALARM = 1e-5
"""Probability, at most, that any check fails in a run of a system that follows its claim."""
FAMILIES = 16
"""Families of tests among which it is shared; more than there are today."""


def level(tests: int = 1) -> float:
    """Return the level of each of ``tests`` tests of one family, by Bonferroni's inequality."""
    return FALSE_ALARM / FAMILIES / max(1, tests)
