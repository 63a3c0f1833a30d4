"""Compare the exposures of secrets that clients trained on with those of secrets that they did not, as result rows."""

import numpy as np

from ...audit.evidence import CandidateScores, Exposures
from ...fl.probe import CandidateProbe
from ..jobs.cell import Cell
from ..results.record import Record
from ..results.store import Store
from .candidates import all_scores
from .labels import mean_interval
from .membership_rows import score_membership


def score_exposures(
    cell: Cell, evidence: Exposures, probe: CandidateProbe, store: Store, *, adversary: str
) -> list[Record]:
    """Build the result rows of one attack on secrets: the mean exposure of trained and of absent secrets in bits, with
    intervals over the secrets of this one run, and how well exposure separates the two.

    Raises ValueError for another number of exposures than secrets.
    """
    member = probe.member
    if len(evidence.values) != len(member):
        raise ValueError(f"the attack must return {len(member)} exposures, one per secret, got {len(evidence.values)}")
    rows = []
    for metric, chosen in (("exposure", member), ("exposure_absent", ~member)):
        found = mean_interval(evidence.values[chosen])
        rows.append(
            cell.record(
                metric=metric,
                value=found.value,
                ci_low=found.low,
                ci_high=found.high,
                ci_level=None if found.low is None else 0.95,
                ci_method="" if found.low is None else "95 % t over secrets",
                n=int(np.count_nonzero(chosen)),
                unit="bits",
                direction="higher_leaks",
            )
        )
    scores = CandidateScores(evidence.values, evidence.setting)
    return [*rows, *score_membership(cell, all_scores(scores, member), store, adversary=adversary)]
