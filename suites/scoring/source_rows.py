"""Compute how often a source-inference attack names the client that holds a sample."""

import numpy as np
from scipy.stats import norm

from ...audit.evidence import SourceScores
from ...fl.probe import CandidateProbe
from ..jobs.cell import Cell
from ..results.record import Record
from ..results.store import Store
from .membership_rows import LEVEL, setting_arrays


def credits(evidence: SourceScores, holder: np.ndarray) -> np.ndarray:
    """Return each sample's score, array ``(n,)``: 1 if the attack scores the client that holds it above all others, 1/k
    if that client shares the top score with k - 1 others, else 0.

    ``holder``: (n,), the client that holds each sample.
    """
    values = evidence.values
    top = values == values.max(axis=1, keepdims=True)
    return np.asarray(top[np.arange(len(holder)), holder] / top.sum(axis=1), dtype=np.float64)


def wilson(share: float, n: int) -> tuple[float, float]:
    """Compute the 95 % score interval of a fraction of n samples (Wilson 1927); it is conservative if some samples
    count as fractions between 0 and 1.
    """
    z = float(norm.ppf(0.5 + LEVEL / 2))
    centre, half = share + z**2 / (2 * n), z * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
    return max(0.0, (centre - half) / (1 + z**2 / n)), min(1.0, (centre + half) / (1 + z**2 / n))


def score_source(cell: Cell, evidence: SourceScores, probe: CandidateProbe, store: Store) -> list[Record]:
    """Build the result rows of source inference: the fraction of right guesses, and its advantage, which is 0 at chance
    (1 / number of clients) and 1 if all are right.

    The interval is over the samples of this one run, which share its noise. Outsiders, which no client holds, are left
    out.

    Raises:
        ValueError: unless there is one score per candidate and client.
    """
    wanted = (len(probe.holder), len(probe.shown.clients))
    if evidence.values.shape != wanted:
        raise ValueError(
            f"source-inference scores must have shape (candidates, clients) = {wanted}, got {evidence.values.shape}"
        )
    # The holder of an outsider is -1, which would credit guesses of the last client.
    held = probe.member
    own = SourceScores(evidence.values[held], evidence.setting)
    worth, chance = credits(own, probe.holder[held]), 1 / wanted[1]
    arrays = {"values": own.values, "holder": probe.holder[held], **setting_arrays(evidence.setting)}
    artifact = store.save_arrays(cell.cell_id, "scores", arrays)
    mean = float(worth.mean())
    bounds = (mean, *wilson(mean, len(worth)))
    rows: dict[str, tuple[float, ...]] = {"source_accuracy": bounds}
    if chance < 1:  # With a single client every guess is right, and the advantage is undefined.
        rows["source_advantage"] = tuple((bound - chance) / (1 - chance) for bound in bounds)
    return [
        cell.record(
            metric=metric,
            value=value,
            ci_low=low,
            ci_high=high,
            ci_level=LEVEL,
            ci_method="wilson, samples of one run",
            n=len(worth),
            unit=f"share of samples, chance {chance:.3g}" if metric == "source_accuracy" else "share beyond chance",
            direction="higher_leaks",
            artifact=artifact,
        )
        for metric, (value, low, high) in rows.items()
    ]
