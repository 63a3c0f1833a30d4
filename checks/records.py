"""Pairs of neighbouring data sets, which differ only in what one record or one client holds.

A claim holds for every pair of neighbours. A record is replaced by records that move statistics most: with every
feature far beyond the range of all others, or at the end of the range that the kind of data allows, of another label,
or equal to another record.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..audit.claim import Adjacency, Claim, Unit
from ..fl.data.dataset import Dataset
from ..fl.objective import CLASSIFICATION, MULTILABEL, NEXT_TOKEN

_FAR = 1000.0
"""How many ranges of all other records an extreme number of a table lies beyond them."""
CONTENTS = (
    ("with the highest value in every feature", "highest", "own"),
    ("with the highest value in every feature, and another label", "highest", "other"),
    ("with each feature at one end of its range and another label", "drawn", "other"),
    ("with another label", "own", "other"),
    ("with the lowest value in every feature", "lowest", "own"),
    ("with each feature at one end of its range", "drawn", "own"),
    ("with the highest value in the feature that varies least", "single", "own"),
    ("that equals another record", "another", "another"),
    ("that equals another record except for its label", "another", "other"),
    ("that equals a public record except for its label", "public", "other"),
)
"""What a changed record holds: in words, where its features come from, and where its label."""
_ROWS = (
    "train_images",
    "train_labels",
    "train_masks",
    "train_targets",
    "train_owners",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class RecordPair:
    """Two data sets that differ by one unit; each is built anew whenever it is requested.

    Args:
        records: the data set as it is.
        rows: the unit's training rows.
        present, absent: what the unit holds in arm 1 and in arm 0, as features and labels; None: what it holds in
            ``records``.
        removed: whether arm 0 lacks these rows.
        apart: how many neighbours lie between both: 1, or 2 where a unit that may only be added or removed is replaced.
        words: the unit by its index, and how it differs.
    """

    records: Dataset
    rows: Tensor
    present: tuple[Tensor, Tensor] | None
    absent: tuple[Tensor, Tensor] | None = None
    removed: bool
    apart: int
    words: str

    @property
    def within(self) -> Dataset:
        """The data set of arm 1, with the unit."""
        return self.records if self.present is None else _with_rows(self.records, self.rows, *self.present)

    @property
    def without(self) -> Dataset:
        """The data set of arm 0, without the unit."""
        if self.removed:
            return without_rows(self.records, self.rows)
        return self.records if self.absent is None else _with_rows(self.records, self.rows, *self.absent)


def unit_rows(claim: Claim, records: Dataset, held: Tensor) -> Tensor:
    """Return the training rows of the unit that is changed; ``held``: the rows of each client.

    Raises:
        ValueError: for a unit of which a data set does not say what it is.
    """
    if claim.unit is Unit.SAMPLE:
        return held[:1]
    if claim.unit in (Unit.CLIENT, Unit.REPORT):
        return held
    if claim.unit is Unit.USER and records.train_owners is not None:
        return torch.nonzero(records.train_owners == records.train_owners[held[0]]).flatten()
    raise ValueError(f"it is not known which records belong to one {claim.unit}")


def unit_words(claim: Claim, rows: Tensor) -> str:
    """Describe the unit by the index of its record, or of its first record."""
    first = int(rows[0])
    if claim.unit is Unit.SAMPLE:
        return f"record {first}"
    return f"the {claim.unit} of record {first} ({len(rows)} records)"


def changed_sets(claim: Claim, records: Dataset, rows: Tensor, seed: int) -> Iterator[RecordPair]:
    """Yield pairs of data sets; in the second one, the unit with these rows has other content."""
    for words, content in _contents(claim, records, rows, seed):
        facts: dict[str, Any] = {"present": content, "removed": False, "apart": 1}
        yield RecordPair(records=records, rows=rows, words=words, **facts)


def _contents(
    claim: Claim, records: Dataset, rows: Tensor, seed: int, near: Tensor | None = None
) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    rng, unit = np.random.default_rng(seed), unit_words(claim, rows)
    for words, features, labels in CONTENTS:
        content = _features(records, rows, features, rng, near), _labels(records, rows, labels, near)
        yield f"{unit} replaced by one {words}", content


def without_rows(records: Dataset, rows: Tensor) -> Dataset:
    """Return the data set without these training rows."""
    keep = torch.ones(len(records.train_labels), dtype=torch.bool)
    keep[rows] = False
    return _kept(records, keep)


def exact_pairs(
    claim: Claim, records: Dataset, rows: Tensor, seed: int, *, removes: bool, near: Tensor | None = None
) -> Iterator[RecordPair]:
    """Yield pairs of data sets that are neighbours under the claim's adjacency.

    ``removes``: whether records can be left out; else a unit that is added or removed is replaced, two steps apart.
    ``near``: rows among which the record lies that a changed one equals; None: all.
    """
    unit, changed = unit_words(claim, rows), list(_contents(claim, records, rows, seed, near))
    facts: dict[str, Any] = {"records": records, "rows": rows}
    if claim.adjacency is Adjacency.REPLACE_ONE or not removes:
        facts |= {"removed": False, "apart": 1 if claim.adjacency is Adjacency.REPLACE_ONE else 2}
        for words, content in changed:
            yield RecordPair(present=content, words=words, **facts)
        lowest = next(content for (_, content), kind in zip(changed, CONTENTS, strict=True) if kind[1] == "lowest")
        words = f"{unit}, once with the highest and once with the lowest value in every feature"
        yield RecordPair(present=changed[0][1], absent=lowest, words=words, **facts)
        # Several statistics that are published may each show another part of a record.
        yield RecordPair(present=changed[1][1], absent=lowest, words=f"{words}, with different labels", **facts)
        return
    facts |= {"removed": True, "apart": 1}
    yield RecordPair(present=None, words=f"{unit} removed", **facts)
    for words, content in changed:
        removed = f"{words.replace('replaced by', 'changed to', 1)}, compared with the data set without it"
        yield RecordPair(present=content, words=removed, **facts)


def extreme_rows(records: Dataset, held: Tensor, count: int) -> Tensor:
    """Return units to change among all records: a client's rows, one row of each of the rarest labels, and the rows
    farthest from the mean.
    """
    flat = records.train_images.flatten(1).double()
    spread = flat.std(0, correction=0)
    far = (((flat - flat.mean(0)) / torch.where(spread > 0, spread, 1.0)) ** 2).sum(1)
    order = [int(held[0]), *far.argsort(descending=True)[:count].tolist()]
    if records.task == CLASSIFICATION:
        # The rarest label first.
        counts = torch.bincount(records.train_labels, minlength=records.classes)
        labels = [label for label in counts.argsort(stable=True).tolist() if counts[label]]
        order[1:1] = [int((records.train_labels == label).nonzero()[0]) for label in labels[: max(1, count // 2)]]
    return torch.tensor(list(dict.fromkeys(order))[:count])


def few_records(records: Dataset, count: int) -> Dataset:
    """Return a data set of about ``count`` records, taken from each label in turn, in their order."""
    if len(records.train_labels) <= count:
        return records
    labels = records.train_labels if records.task == CLASSIFICATION else torch.zeros(len(records.train_labels))
    turns = torch.zeros(len(labels), dtype=torch.int64)
    for label in np.unique(labels.numpy()).tolist():
        there = (labels == label).nonzero().flatten()
        turns[there] = torch.arange(len(there))
    keep = turns.argsort(stable=True)[:count].sort().values
    return _kept(records, keep)


def uneven_records(records: Dataset, most: int) -> Dataset:
    """Return a data set of one record of a label, two of the next, and so on up to ``most``, so that one record decides
    whatever depends on a small count.
    """
    if records.task != CLASSIFICATION:
        return few_records(records, most * (most + 1) // 2)
    keep = [
        (records.train_labels == label).nonzero().flatten()[: 1 + place % most]
        for place, label in enumerate(np.unique(records.train_labels.numpy()).tolist())
    ]
    return _kept(records, torch.cat(keep).sort().values)


def equal_records(records: Dataset, count: int) -> Dataset:
    """Return ``count`` copies of the first record, which have no spread at all."""
    return _kept(records, torch.zeros(min(count, len(records.train_labels)), dtype=torch.int64))


def _kept(records: Dataset, rows: Tensor) -> Dataset:
    return _changed(records, {name: getattr(records, name)[rows] for name in _given(records)})


def _given(records: Dataset) -> list[str]:
    left_out = ("train_masks",) if records.strokes else ()
    return [name for name in _ROWS if name not in left_out and getattr(records, name) is not None]


def _changed(records: Dataset, arrays: dict[str, Tensor]) -> Dataset:
    # Masks of strokes follow from the images again.
    derived: dict[str, Any] = {"train_masks": None, "test_masks": None} if records.strokes else {}
    changes: dict[str, Any] = {**derived, **arrays}
    return replace(records, **changes)


def _with_rows(records: Dataset, rows: Tensor, images: Tensor, labels: Tensor) -> Dataset:
    features, wanted = records.train_images.clone(), records.train_labels.clone()
    features[rows], wanted[rows] = images.to(features.dtype), labels.to(wanted.dtype)
    return _changed(records, {"train_images": features, "train_labels": wanted})


def _features(records: Dataset, rows: Tensor, kind: str, rng: np.random.Generator, near: Tensor | None) -> Tensor:
    images = records.train_images
    own = images[rows]
    if kind == "own":
        return own
    if kind == "another":
        return images[_others(records, rows, near)]
    if kind == "public":
        public = records.test_images
        return public[torch.arange(len(rows)) % len(public)].to(own.dtype) if len(public) else own
    low, high = _ends(records, rows)
    if kind == "single":
        changed, place = own.flatten(1).clone(), int(images.flatten(1).std(0, correction=0).argmin())
        changed[:, place] = high.flatten()[place]
        return changed.reshape(own.shape)
    if kind == "drawn":
        coins = torch.from_numpy(rng.random(tuple(own.shape)) < 0.5)
        return torch.where(coins, high, low)
    return (high if kind == "highest" else low).expand(own.shape)


def _ends(records: Dataset, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest and the highest value of each feature, ``(c, h, w)``; in a table far beyond those of all others."""
    images = records.train_images
    if records.task == NEXT_TOKEN:
        return torch.zeros(images.shape[1:]), torch.full(images.shape[1:], float(records.classes - 1))
    if not records.rows:
        return torch.zeros(images.shape[1:]), torch.ones(images.shape[1:])
    others = without_rows(records, rows).train_images if len(rows) < len(images) else images
    low, high = others.amin(0), others.amax(0)
    far = _FAR * torch.where(high > low, high - low, 1.0)
    return low - far, high + far


def _others(records: Dataset, rows: Tensor, near: Tensor | None) -> Tensor:
    """As many records of others, from the last one: of another label where there is one."""
    free = torch.full((len(records.train_labels),), near is None)
    if near is not None:
        free[near] = True
    free[rows] = False
    different = free.clone()
    if records.task == CLASSIFICATION:
        different &= records.train_labels != records.train_labels[rows[0]]
    places = (different if bool(different.any()) else free).nonzero().flatten().flip(0)
    if not len(places):
        return rows
    return places[torch.arange(len(rows)) % len(places)]


def _labels(records: Dataset, rows: Tensor, kind: str, near: Tensor | None) -> Tensor:
    labels = records.train_labels
    own = labels[rows]
    if kind == "own":
        return own
    if kind == "another":
        return labels[_others(records, rows, near)]
    if records.task == MULTILABEL:
        return ~own
    if labels.is_floating_point():
        spread = torch.where(labels.amax(0) > labels.amin(0), labels.amax(0) - labels.amin(0), 1.0)
        return (labels.amax(0) + _FAR * spread).expand(own.shape)
    counts = torch.bincount(labels.flatten(), minlength=records.classes)
    # The rarest one, also one that no record has.
    order = counts.argsort(stable=True)
    return torch.where(own == order[0], order[1 % len(order)], order[0])
