"""A vertical task holds the records of the people used for training, of those used for testing, and of public ones,
with the columns split over the parties.

Utility is what a federation's models are worth on new people.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ...audit.metrics import ScoresByRun, area
from ..data.dataset import Dataset, feature_numbers
from ..hooks import check_returned
from ..objective import CLASSIFICATION
from ..streams import Streams
from .network import VerticalModels, VerticalNetwork
from .protection import VerticalPlan, VerticalProtection

Columns = int | tuple[tuple[int | str, ...], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class People:
    """The rows of some people, aligned over the parties.

    Args:
        columns: one tensor (n, width) per party; the passive parties first, the active party last.
        labels: (n,) int64, in [0, classes).
    """

    columns: tuple[Tensor, ...]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def chosen(self, which: Tensor) -> "People":
        """Return the rows of some people, chosen by numbers or a mask."""
        return People(columns=tuple(block[which] for block in self.columns), labels=self.labels[which])


@dataclass(frozen=True, kw_only=True, eq=False)
class VerticalTask:
    """The model and the data of one vertical federation.

    Args:
        network: the architecture of all parties' models.
        people: those on whose rows the parties train.
        public: people of the same distribution that take part in no training: public data, and non-members.
        test: people on whom the utility is measured.
        groups: the numbers of the data set's columns that each party holds, flattened image by image.
        shape: (channels, height, width) of a person's whole row.
    """

    network: VerticalNetwork
    people: People
    public: People
    test: People
    groups: tuple[tuple[int, ...], ...]
    shape: tuple[int, int, int]


def column_groups(
    shape: tuple[int, int, int], columns: Columns, *, active: bool, named: tuple[tuple[str, int], ...] = ()
) -> tuple[tuple[int, ...], ...]:
    """Return the column numbers of each party; the passive parties come first, the active party last.

    Args:
        shape: of a person's row, (channels, height, width).
        columns: the number of parties among which the columns are split into vertical strips of equal width, from left
            to right; or the columns of each party, by number along the flattened row or by name.
        active: whether the last of these parties is the one that holds the labels; else a further party holds the
            labels and no column.
        named: of a table, the name of each column and the number of its features. A column is then never split, and a
            name stands for all of its features.

    Raises:
        ValueError: for too few or too many parties, and columns that do not exist or are held twice.
    """
    if isinstance(columns, int):
        groups = _strips(shape, columns, 1 + active, named)
    else:
        groups = tuple(feature_numbers(group, named) for group in columns)
        _check_groups(groups, int(np.prod(shape)), active=active, named=named)
    return groups if active else (*groups, ())


def _strips(
    shape: tuple[int, int, int], parties: int, least: int, named: tuple[tuple[str, int], ...]
) -> tuple[tuple[int, ...], ...]:
    most = len(named) or shape[2]
    if isinstance(parties, bool) or not least <= parties <= most:
        raise ValueError(f"columns must be the number of parties that hold columns, in {least}..{most}, got {parties}")
    if named:
        ends = np.cumsum([width for _, width in named])
        cuts = [0]
        # The ends of columns that are nearest to strips of equal width, with a column at least for each party.
        for party in range(1, parties):
            near = 1 + int(np.abs(ends - party * ends[-1] / parties).argmin())
            cuts.append(min(max(near, cuts[-1] + 1), len(named) - (parties - party)))
        return tuple(
            tuple(range(0 if not first else int(ends[first - 1]), int(ends[last - 1])))
            for first, last in zip(cuts, [*cuts[1:], len(named)], strict=True)
        )
    numbers = np.arange(np.prod(shape)).reshape(shape)
    return tuple(tuple(int(one) for one in strip.flatten()) for strip in np.array_split(numbers, parties, axis=2))


def _check_groups(
    groups: tuple[tuple[int, ...], ...], features: int, *, active: bool, named: tuple[tuple[str, int], ...]
) -> None:
    if len(groups) < 1 + active or not all(groups[: len(groups) - active]):
        raise ValueError(f"columns must list at least one column for each passive party, got {groups}")
    held = [one for group in groups for one in group]
    if min(held) < 0 or max(held) >= features:
        raise ValueError(f"columns must be in 0..{features - 1}, got {min(held)} to {max(held)}")
    if len(set(held)) < len(held):
        names: list[int | str] = [name for name, width in named for _ in range(width)] or [*range(features)]
        times = Counter(held)
        twice = list(dict.fromkeys(names[one] for one in sorted(times) if times[one] > 1))
        raise ValueError(f"columns: a column must be held by one party only, got twice: {twice[:5]}")


def build_vertical_task(
    dataset: Dataset,
    *,
    streams: Streams,
    columns: Columns = 2,
    active: bool = False,
    people: int | None = None,
    public: int | None = None,
    embedding: int | None = None,
    hidden: tuple[int, ...] = (),
    top_hidden: tuple[int, ...] = (),
    summed: bool = False,
) -> VerticalTask:
    """Split the columns of a data set over the parties of a vertical federation.

    The stream ``outsiders`` chooses the people that take part and the public ones among the training rows. All test
    rows are the test.

    Args:
        columns, active: see ``column_groups``.
        people: how many take part; by default nine tenths of the training rows.
        public: how many people of the training rows are public; by default a tenth.
        embedding: numbers that a passive party sends about a person, by default the number of classes.
        hidden, top_hidden, summed: see ``VerticalNetwork``.

    Raises:
        ValueError: for a data set without one class per row, or settings that do not fit it.
    """
    if dataset.task != CLASSIFICATION:
        raise ValueError(f"a vertical federation needs one class per person, but {dataset.name} is a {dataset.task}")
    total = len(dataset.train_labels)
    public = max(1, total // 10) if public is None else public
    people = total - public if people is None else people
    if min(people, public) < 1 or people + public > total:
        raise ValueError(
            f"people + public must be at most {total}, the rows that {dataset.name} offers, and each at least 1; got "
            f"{people} and {public}"
        )
    groups = column_groups(dataset.shape, columns, active=active, named=dataset.columns)
    network = VerticalNetwork(
        widths=tuple(len(group) for group in groups),
        classes=dataset.classes,
        embedding=dataset.classes if embedding is None else embedding,
        hidden=hidden,
        top_hidden=top_hidden,
        summed=summed,
    )
    order = streams.generator("outsiders").permutation(total)
    shown, used = (torch.from_numpy(np.sort(part)) for part in (order[:public], order[public : public + people]))
    return VerticalTask(
        network=network,
        people=_people(dataset.train_images[used], dataset.train_labels[used], groups),
        public=_people(dataset.train_images[shown], dataset.train_labels[shown], groups),
        test=_people(dataset.test_images, dataset.test_labels, groups),
        groups=groups,
        shape=dataset.shape,
    )


def _people(images: Tensor, labels: Tensor, groups: tuple[tuple[int, ...], ...]) -> People:
    rows = images.flatten(1)
    return People(columns=tuple(rows[:, list(group)] for group in groups), labels=labels)


def rows_of(columns: tuple[Tensor, ...], groups: tuple[tuple[int, ...], ...], shape: tuple[int, int, int]) -> Tensor:
    """Join the parties' columns of some people to whole rows: ``(n, channels, height, width)``; columns that no party
    holds are 0.
    """
    rows = columns[0].new_zeros(len(columns[0]), int(np.prod(shape)))
    for block, group in zip(columns, groups, strict=True):
        rows[:, list(group)] = block
    return rows.view(-1, *shape)


def predicted(
    models: VerticalModels, people: People, plan: VerticalPlan, protection: VerticalProtection, streams: Streams
) -> Tensor:
    """Return the logits ``(R, n, classes)`` of new people. The columns of the passive parties pass the protection's
    hook ``columns``, and the embeddings that these parties send pass the hook ``evaluated``.

    Raises:
        ValueError: if a hook returns no tensor of the right shape and type.
        FloatingPointError: if a hook returns NaN or infinity.
    """
    network, embeddings = plan.network, []
    for party, (bottom, layers) in enumerate(zip(network.bottoms, models.bottoms, strict=True)):
        rows = people.columns[party].expand(len(layers[0]), -1, -1)
        if party < network.passive:
            rng = streams.generator("columns of new people", client=party)
            rows = _checked("columns", protection.columns(rows, party, plan, rng), rows)
        values, _ = bottom.forward(layers, rows)
        if party < network.passive:
            rng = streams.generator("evaluated", client=party)
            values = _checked("evaluated", protection.evaluated(values, party, plan, rng), values)
        embeddings.append(values)
    return network.logits(models.top, tuple(embeddings))[0]


def _checked(hook: str, found: Tensor, like: Tensor) -> Tensor:
    """What a hook returned about new people, which are finite numbers as those that it was given."""
    if not bool(torch.isfinite(check_returned(hook, found, like, of_type=True)).all()):
        raise FloatingPointError(f"hook {hook} returned NaN or infinity for new people, so no prediction can be scored")
    return found


@dataclass(frozen=True, kw_only=True)
class VerticalUtility:
    """The utility of one replica's models.

    Args:
        accuracy: share of people whose class is predicted.
        majority: share of the largest class, which a model without any information reaches.
        loss: mean cross-entropy.
        auc: of two classes, the area under the ROC curve; None for more.
    """

    accuracy: float
    majority: float
    loss: float
    auc: float | None


def utility_of(logits: Tensor, labels: Tensor) -> VerticalUtility:
    """Return the utility of one replica's ``logits (n, classes)`` for ``labels (n,)``."""
    counts = torch.bincount(labels, minlength=logits.shape[1])
    two = logits.shape[1] == 2 and bool((counts > 0).all())
    margin = (logits[:, 1] - logits[:, 0]).numpy() if two else None
    return VerticalUtility(
        accuracy=float((logits.argmax(1) == labels).double().mean()),
        majority=float(counts.max()) / len(labels),
        loss=float(cross_entropy(logits, labels)),
        auc=None if margin is None else area(ScoresByRun.of(margin[labels == 1], margin[labels == 0])),
    )
