"""Pairs of data sets of a vertical federation that differ in the label, or in the columns, of one person."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...audit.claim import Claim, Unit
from ...fl.streams import Streams, normal
from ...fl.vertical.engine import Planted, public_order
from ...fl.vertical.task import VerticalTask

ROWS = 512
"""Random rows among which the two are chosen whose embeddings differ most."""
LENGTH = 100.0
"""Length of the two rows, in lengths of an ordinary row: short rows could not reveal a missing clip."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """Two data sets that differ in one person.

    Args:
        person: number of this person.
        plant: (arm, replicas) -> what is planted.
        words: what differs.
    """

    person: int
    plant: Callable[[int, int], Planted]
    words: str


def frequent(task: VerticalTask) -> tuple[int, int]:
    """Return the most and the second most frequent label, which no prior excludes."""
    counts = torch.bincount(task.public.labels, minlength=task.network.classes)
    first, second = torch.argsort(counts, descending=True, stable=True)[:2].tolist()
    return first, second


def pair_of_claim(claim: Claim, task: VerticalTask, streams: Streams) -> Pair:
    """Return two data sets that differ in the claim's unit: in one person's label, or in its row at the first party."""
    return pair_of_labels(task, streams) if claim.unit is Unit.LABEL else pair_of_rows(task, streams)


def _person(task: VerticalTask, streams: Streams) -> int:
    """The last person of the first epoch, whose batch is the smaller one where batches are not equal."""
    return int(public_order(streams, len(task.people), 0)[-1])


def pair_of_labels(task: VerticalTask, streams: Streams) -> Pair:
    """Return two data sets in which one person has one of the two most frequent labels."""
    person, (first, second) = _person(task, streams), frequent(task)

    def plant(arm: int, replicas: int) -> Planted:
        labels = task.people.labels.clone()
        labels[person] = (first, second)[arm]
        return Planted(labels=labels.expand(replicas, -1).clone())

    return Pair(person=person, plant=plant, words=f"label {first} or {second}")


def pair_of_rows(task: VerticalTask, streams: Streams) -> Pair:
    """Return two data sets in which one person has one of two long rows at the first party, those of many whose
    embeddings point in the most different directions.
    """
    rng, person = streams.generator("audit rows"), _person(task, streams)
    block = task.people.columns[0]
    length = LENGTH * max(1.0, float(block.norm(dim=1).mean()))
    directions = normal(rng, (ROWS, block.shape[1]))
    rows = length * directions / directions.norm(dim=1, keepdim=True)
    rows = torch.cat([rows, -rows])
    layers = task.network.initial(streams).bottoms[0]
    values = task.network.bottoms[0].forward(layers, rows.unsqueeze(0))[0][0]
    # A short embedding reaches no clip, wherever it points.
    long = values.norm(dim=1) >= values.norm(dim=1).median()
    rows, cosines = rows[long], torch.nn.functional.normalize(values[long], dim=1)
    worst = int((cosines @ cosines.T).argmin())
    chosen = rows[worst // len(rows)], rows[worst % len(rows)]

    def plant(arm: int, replicas: int) -> Planted:
        return Planted(person=person, rows={0: chosen[arm].expand(replicas, -1).clone()})

    return Pair(person=person, plant=plant, words=f"rows at the first party, {LENGTH:g} times as long as the others")
