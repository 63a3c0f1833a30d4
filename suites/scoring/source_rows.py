"""Scores of source inference: whose sample is it?"""

import numpy as np
from scipy.stats import norm

from ...audit.evidence import SourceScores
from ...fl.probe import CandidateProbe
from ..jobs.cells import Cell
from ..results.record import Record
from ..results.store import Store

_LEVEL = 0.95


def credits(evidence: SourceScores, holder: np.ndarray) -> np.ndarray:
    """For each sample what the guess is worth, ``(n,)``: 1 for its holder alone on top, a share where clients tie.

    ``holder``: (n,), the client that holds each.
    """
    values = evidence.values
    top = values == values.max(axis=1, keepdims=True)
    return np.asarray(top[np.arange(len(holder)), holder] / top.sum(axis=1), dtype=np.float64)


def wilson(share: float, n: int) -> tuple[float, float]:
    """95 % score interval of a share of n samples (Wilson 1927); conservative for credits between 0 and 1."""
    z = float(norm.ppf(0.5 + _LEVEL / 2))
    centre, half = share + z**2 / (2 * n), z * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
    return max(0.0, (centre - half) / (1 + z**2 / n)), min(1.0, (centre + half) / (1 + z**2 / n))


def score_source(cell: Cell, evidence: SourceScores, probe: CandidateProbe, store: Store) -> list[Record]:
    """Share of right guesses, and how far that is beyond chance, 1 / clients, on the way to always right.

    The interval is over the samples of this one run, whose noise they share. Outsiders, whom nobody holds, are left
    out.

    Raises:
        ValueError: if the scores are not one a client for each candidate.
    """
    wanted = (len(probe.holder), len(probe.shown.clients))
    if evidence.values.shape != wanted:
        raise ValueError(f"source scores must be {wanted}, (candidates, clients), got {evidence.values.shape}")
    held = probe.member
    own = SourceScores(evidence.values[held], evidence.setting)
    worth, chance = credits(own, probe.holder[held]), 1 / wanted[1]
    setting = {name: np.array(value) for name, value in evidence.setting.to_dict().items() if name != "observer"}
    arrays = {"values": own.values, "holder": probe.holder[held], **setting}
    artifact = store.save_arrays(cell.cell_id, "scores", arrays)
    mean = float(worth.mean())
    bounds = (mean, *wilson(mean, len(worth)))
    rows: dict[str, tuple[float, ...]] = {"source_accuracy": bounds}
    if chance < 1:
        rows["source_advantage"] = tuple((bound - chance) / (1 - chance) for bound in bounds)
    return [
        cell.record(
            metric=metric,
            value=value,
            ci_low=low,
            ci_high=high,
            ci_level=_LEVEL,
            ci_method="wilson, samples of one run",
            n=len(worth),
            unit=f"share of samples, chance {chance:.3g}" if metric == "source_accuracy" else "share beyond chance",
            direction="higher_leaks",
            artifact=artifact,
        )
        for metric, (value, low, high) in rows.items()
    ]
