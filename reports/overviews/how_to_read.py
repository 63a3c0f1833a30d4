"""Explain how to read a report, in the words of the kinds of federations and of the claims that the run has."""

from ..reading.run_folder import RunFolder
from ..tables.printed import ANSWERS, VERDICTS
from ..tables.summary import INTERVALS


def how_to_read(folder: RunFolder) -> list[tuple[str, str]]:
    """Return what a reader must know about the claims, audits and intervals of a report, each a term and sentences."""
    verdicts = "; ".join(f"“{words}” is {VERDICTS[verdict]}" for verdict, words in ANSWERS.items())
    return [
        ("Claim", _claim(folder)),
        ("Adversary", _adversary(folder)),
        (
            "Audit",
            " ".join(
                (
                    *(kind.audit for kind in folder.kinds),
                    "The error rates give a lower bound: the true ε is at least the measured one.",
                )
            ),
        ),
        (
            "Power",
            "“Max certifiable” is the largest ε that this sample size can certify, even with an attack without errors. "
            "“Min detectable” is the smallest true ε at which this audit refutes the claim with 90 % power. NOT "
            "REFUTED is not a proof of the claim.",
        ),
        ("Intervals", INTERVALS),
        (
            "Answers and verdicts",
            f"The tables print as verdicts what the first screen says in words: {verdicts}.",
        ),
    ]


def _claim(folder: RunFolder) -> str:
    units = dict.fromkeys(f"a {one.claim.unit}" for one in folder.claims)
    named = f" (in this run: {', '.join(units)})" if units else ""
    return (
        f"A defense states an upper limit ε on what an adversary can learn about one unit{named}, whatever else the "
        "adversary knows, except with probability δ. A smaller ε is a stronger claim. Values for different units or δ "
        "cannot be compared."
    )


def _adversary(folder: RunFolder) -> str:
    named = "; ".join(dict.fromkeys(one.claim.observer.phrase for one in folder.claims))
    stated = f", in this run: {named}" if named else ""
    return (
        f"Each claim names its adversary{stated}. A claim covers no adversary who observes anything that its own does "
        "not."
    )
