"""Compare the votes that an attack inferred about one teacher of a transfer with those that the teacher was given."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...audit.arrays import FloatArray, IntArray
from ...audit.evidence import VoteScores
from ..jobs.cell import Cell
from ..results.record import Record
from .labels import Interval, mean_interval


def score_votes(cell: Cell, evidence: Sequence[VoteScores], votes: IntArray) -> list[Record]:
    """Build the result rows of an attack on one teacher's votes ``(runs, queries)``, which were drawn uniformly.

    ``label_accuracy`` is the share of votes that have the highest score, of equal scores a part; ``label_over_chance``
    is the same, rescaled so that a guess without information scores 0 on average and a perfect attack 1. The interval
    is over runs, each with noise and votes of its own, for the same other teachers.
    """
    right = np.array([hits(one.values, true).mean() for one, true in zip(evidence, votes, strict=True)])
    chance = 1 / evidence[0].values.shape[1]
    found = mean_interval(right)
    rows = {
        "label_over_chance": (found.over_chance(chance), "share of the largest possible gain over chance"),
        "label_accuracy": (found, "share of queries"),
    }
    return [_row(cell, metric, one, unit, len(votes)) for metric, (one, unit) in rows.items()]


def hits(scores: FloatArray, votes: IntArray) -> FloatArray:
    """Return for each query 1 if the true vote alone has the highest score, 1/m if m votes with the highest score
    include it, else 0: ``scores (queries, classes)``, ``votes (queries,)``.
    """
    if scores.shape[0] != len(votes) or votes.max() >= scores.shape[1]:
        raise ValueError(f"scores must have a row per query and a column per class, got {scores.shape}")
    best = scores == scores.max(1, keepdims=True)
    return np.asarray(best[np.arange(len(votes)), votes] / best.sum(1))


def _row(cell: Cell, metric: str, found: Interval, unit: str, n: int) -> Record:
    method = found.method.replace("over uploads", "over runs with the same other teachers")
    fields = replace(found, method=method).fields
    return cell.record(metric=metric, **fields, n=n, unit=unit, direction="higher_leaks")
