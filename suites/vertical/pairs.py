"""Pairs of data sets of a vertical federation that differ in the label, or in the columns, of one person."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.observer import FINAL_MODEL, PASSIVE_PARTY
from ...fl.streams import Streams, normal
from ...fl.vertical.engine import Planted, public_order
from ...fl.vertical.network import VerticalNetwork
from ...fl.vertical.task import VerticalTask

ROWS = 512
"""Random rows among which the two are chosen whose embeddings differ most."""
LENGTH = 100.0
"""Length of a long row, in lengths of an ordinary row: short rows could not reveal a missing clip."""
OUTSIDE = "these rows lie outside the range of the data; a defense that relies on a bounded range must clip to it"
"""What is assumed of the rows of every pair."""
STEPS = 100
"""Steps of the ascent to a row whose embedding has one number alone."""
LABELS = 10
"""Labels of which pairs are made, at most: the two most frequent ones, the rarest one, and others by chance."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PersonPair:
    """Two data sets that differ in one person.

    Args:
        person: number of this person.
        party: number of the passive party whose messages, those that it sends or receives, may show the difference.
        plant: (arm, replicas) -> what is planted.
        words: what differs.
        zeros: whether the row of the second data set is one of zeros.
        brief: whether the noise of messages is not measured on this pair, because that of another pair is.
        caution: what a reader of a result must know about the pair.
    """

    person: int
    party: int = 0
    plant: Callable[[int, int], Planted]
    words: str
    zeros: bool = False
    brief: bool = False
    caution: str = ""

    def witness(self, claim: Claim) -> str:
        """A description of what differs between the two data sets, and of the party at which the audit of a claim looks
        for it.
        """
        place = "" if claim.observer == FINAL_MODEL else f", at passive party {self.party + 1}"
        return f"one person's {self.words}{place}" + (f" ({self.caution})" if self.caution else "")


def why_no_pair(claim: Claim, *, frozen: bool) -> str:
    """Return why no pair of data sets differs as the claim's adjacency says; empty string if some do.

    ``frozen``: whether the bottom models are not trained.
    """
    if claim.adjacency is Adjacency.REPLACE_ONE:
        return ""
    if claim.adjacency is Adjacency.ADD_REMOVE:
        return "all parties hold rows of the same people, so no data sets with and without one of them are known"
    if claim.unit is Unit.LABEL:
        return "no label makes the contribution of a person zero"
    # Biases are 0 before the training, and then a row of zeros has an embedding of zeros.
    return "" if frozen else "a trained bottom model gives a row of zeros an embedding other than zero"


def covered(claim: Claim, pairs: Sequence[PersonPair]) -> tuple[PersonPair, ...]:
    """Return the pairs of data sets that differ as the claim's adjacency says; use this if ``why_no_pair`` names no
    reason against it.
    """
    return tuple(pair for pair in pairs if pair.zeros or claim.adjacency is Adjacency.REPLACE_ONE)


def frequent(task: VerticalTask) -> tuple[int, int]:
    """Return the most frequent and the second most frequent label; no prior of an adversary excludes either of them."""
    counts = torch.bincount(task.public.labels, minlength=task.network.classes)
    first, second = torch.argsort(counts, descending=True, stable=True)[:2].tolist()
    return first, second


def labels_of(task: VerticalTask, streams: Streams) -> tuple[int, ...]:
    """Return the labels from which pairs are formed: the two that ``frequent`` returns, and all other labels. If there
    are many other labels, only the rarest one and some random ones are used.

    A defense may protect some labels alone, and the claim holds for each of them.
    """
    counts = torch.bincount(task.public.labels, minlength=task.network.classes)
    order = torch.argsort(counts, descending=True, stable=True).tolist()
    between = order[2:-1]
    others = [between[place] for place in streams.generator("audit labels").permutation(len(between)).tolist()]
    return tuple([*order[:2], *order[2:][-1:], *others][:LABELS])


def pairs_of_claim(claim: Claim, task: VerticalTask, streams: Streams) -> tuple[PersonPair, ...]:
    """Return pairs of data sets that differ in the claim's unit: in one person's label, or in its row at a party.

    A claim holds for every party that has a person's columns, or receives gradients, and for every two labels or rows.
    """
    parties = range(task.network.passive)
    if claim.unit is not Unit.LABEL:
        return tuple(pair for party in parties for pair in pairs_of_rows(task, streams, party))
    # Published models are the same for every reader.
    seen = parties if claim.observer == PASSIVE_PARTY else parties[:1]
    first, *others = labels_of(task, streams)
    return tuple(pair_of_labels(task, streams, party, (first, label)) for party in seen for label in others)


def _person(task: VerticalTask, streams: Streams) -> int:
    """The last person of the first epoch, whose batch is the smaller one where batches are not equal."""
    return int(public_order(streams, len(task.people), 0)[-1])


def pair_of_labels(
    task: VerticalTask, streams: Streams, party: int = 0, labels: tuple[int, int] | None = None
) -> PersonPair:
    """Return two data sets that differ in the label of one person, each with one of two ``labels``, by default the two
    most frequent ones; ``party`` may notice the difference.
    """
    person, (first, second) = _person(task, streams), labels or frequent(task)

    def plant(arm: int, replicas: int) -> Planted:
        planted = task.people.labels.clone()
        planted[person] = (first, second)[arm]
        return Planted(labels=planted.expand(replicas, -1).clone())

    brief = (first, second) != frequent(task)
    return PersonPair(person=person, party=party, plant=plant, words=f"label {first} or {second}", brief=brief)


def pairs_of_rows(task: VerticalTask, streams: Streams, party: int) -> tuple[PersonPair, ...]:
    """Return pairs of data sets in which one person has one of two rows at a passive party.

    The rows are opposite ones, which a clip keeps furthest apart; a long one and one of zeros, which differ in length
    and in which numbers are zero; and two whose embeddings have one large number each, with opposite signs, where noise
    for each number hides least.
    """
    rng, person = streams.generator("audit rows", client=party), _person(task, streams)
    block = task.people.columns[party]
    length = LENGTH * max(1.0, float(block.norm(dim=1).mean()))
    rows = normal(rng, (ROWS, block.shape[1]))
    rows = torch.cat([rows, -rows])
    rows *= length / rows.norm(dim=1, keepdim=True)
    embedding = _Embedding(task.network, streams, party)
    opposite = _opposite(embedding, rows)
    kinds = {
        "opposite rows, {}": opposite,
        "a row, {}, or zeros": (opposite[0], torch.zeros_like(opposite[0])),
        "rows with one number in their embeddings, {}": _single(embedding, rows, length),
    }
    return tuple(_planted(person, party, kind, chosen) for kind, chosen in kinds.items())


def _planted(person: int, party: int, kind: str, chosen: tuple[Tensor, Tensor]) -> PersonPair:
    def plant(arm: int, replicas: int) -> Planted:
        return Planted(person=person, rows={party: chosen[arm].expand(replicas, -1).clone()})

    words, zeros = kind.format(f"{LENGTH:g} times as long as the others"), not bool(chosen[1].any())
    return PersonPair(person=person, party=party, plant=plant, words=words, zeros=zeros, caution=OUTSIDE)


class _Embedding:
    """The embeddings of rows by a party's initial bottom model."""

    def __init__(self, network: VerticalNetwork, streams: Streams, party: int) -> None:
        self.layers, self.stack = network.initial(streams).bottoms[party], network.bottoms[party]

    def __call__(self, rows: Tensor) -> Tensor:
        return self.stack.forward(self.layers, rows.unsqueeze(0))[0][0]


def _opposite(embedding: _Embedding, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The two rows whose embeddings point in the most different directions."""
    values = embedding(rows)
    # A short embedding reaches no clip, wherever it points.
    long = values.norm(dim=1) >= values.norm(dim=1).median()
    rows, cosines = rows[long], torch.nn.functional.normalize(values[long], dim=1)
    worst = int((cosines @ cosines.T).argmin())
    return rows[worst // len(rows)], rows[worst % len(rows)]


def _single(embedding: _Embedding, rows: Tensor, length: float) -> tuple[Tensor, Tensor]:
    """Two rows whose embeddings have, as far as the model allows, one and the same number alone, above and below 0."""
    shares = torch.nn.functional.normalize(embedding(rows), p=1, dim=1)
    number = int((shares.amax(0) - shares.amin(0)).argmax())
    first, second = rows[shares[:, number].argmax()], rows[shares[:, number].argmin()]
    found = torch.stack([first, second]).requires_grad_()
    optimizer = torch.optim.Adam([found], lr=0.1 * length / found.shape[1] ** 0.5)
    for _ in range(STEPS):
        optimizer.zero_grad()
        up, down = torch.nn.functional.normalize(embedding(found), p=1, dim=1)[:, number]
        (down - up).backward()
        optimizer.step()
    ends = length * torch.nn.functional.normalize(found.detach(), dim=1)
    return ends[0], ends[1]
