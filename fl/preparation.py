"""Defines preparations of a federation: what happens to the clients' records before the training, and to the models
after it.

Statistics by which features are scaled, features that are chosen, an initial model, rules by which records are dealt
and thresholds that are tuned are computed from the same records that a claim protects. A preparation names these steps,
so that a run makes them as the project does, and an audit can change one record before them and compare all that leaves
the clients.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..audit.parts import Spec, build, check_members, described
from .algorithms import algorithm_from
from .data.dataset import Dataset
from .models.layers import Normalisation
from .models.network import Network
from .partitions import Partition
from .streams import Streams, global_states, seeded
from .task import Task, build_task, held_rows

Leaves = dict[str, NDArray[Any]]
"""Published values by their names: each an array of float64 numbers or of texts, of any shape."""
STREAM = "preparation"
"""Purpose of the stream from which a preparation draws."""


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """The result of a preparation of the clients' records before training.

    Args:
        dataset: what clients train on.
        initial: the model of the first round, as a flat vector ``(d,)`` or as the model's state dictionary; None: the
            model is drawn as usual.
        algorithm: options that replace those of the federation's algorithm, such as ``{"learning_rate": 0.3}``.
        parts: for each client the indices of its rows in the data set's training part, no row twice; None: the
            federation's partition deals the records.
        published: everything else that leaves the clients, by name: finite numbers, texts, arrays, lists and
            dictionaries of these.

    All but the data set's rows, and which client holds which of them, is public. Raises ValueError or TypeError for
    values of other kinds.
    """

    dataset: Dataset
    initial: Tensor | Mapping[str, Tensor] | None = None
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    parts: Sequence[Any] | None = None
    published: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.dataset, Dataset):
            raise TypeError(f"dataset must be a Dataset, got {type(self.dataset).__name__}")
        _check_names("algorithm", self.algorithm)
        _check_names("published", self.published)
        # Copies, because the caller may go on changing its own.
        changes: dict[str, Any] = {
            "initial": _initial(self.initial),
            "algorithm": MappingProxyType(dict(self.algorithm)),
            "parts": None if self.parts is None else _parts(self.parts, len(self.dataset.train_labels)),
            "published": MappingProxyType(leaves_of("published", self.published)),
        }
        leaves_of("algorithm", self.algorithm)
        for name, value in changes.items():
            object.__setattr__(self, name, value)

    def leaves(self) -> Leaves:
        """Return all public values, keyed by name, except how many rows each client holds.

        ``rows`` is the number of training rows.
        """
        data = self.dataset
        facts = {
            "shape of a sample": list(data.shape),
            "classes": data.classes,
            "class names": list(data.class_names),
            "columns": [name for name, _ in data.columns],
            "features of columns": [width for _, width in data.columns],
            "units of labels": list(data.label_scale),
            "rows": len(data.train_labels),
        }
        found = {name: value for fact, one in facts.items() for name, value in leaves_of(fact, one).items()}
        if self.initial is not None:
            found |= leaves_of("initial", self.initial)
        return found | leaves_of("algorithm", self.algorithm) | dict(self.published)


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """The base class of a preparation of the clients' data before training; its fields are public options.

    ``rng`` is the only source of randomness. All training rows of ``records`` are private, and its test rows are
    public. Neither method may change its arguments.
    """

    def prepare(self, records: Dataset, rng: np.random.Generator) -> PreparedData:
        """Return the data on which clients train, and the values that are published before the training.

        Args:
            records: the records as they are before any step.
        """
        raise NotImplementedError(f"{type(self).__name__} must define prepare(records, rng)")

    def finish(self, models: Tensor, network: Network, records: Dataset, rng: np.random.Generator) -> Mapping[str, Any]:
        """Return the values that are published after the training, keyed by name, such as a threshold; none by default.

        Args:
            models: (rounds + 1, d), the server's model before the first round and after each round.
            network: ``network.logits(model, images)`` gives the logits of a model ``(d,)``.
            records: as for ``prepare``.
        """
        return {}


def preparation_from(spec: Spec) -> Preparation:
    """Build the preparation that a suite names: ``"case.py:Prep"``, or a table with this path as ``part`` and its
    options.

    Raises ValueError for one that is not found, options that it refuses, and a part without its methods.
    """
    found: Preparation = build("preparation", spec, {})
    check_members("preparation", found, Preparation)
    return found


class Draw(NamedTuple):
    """Prepared data, and whether their preparation used any randomness."""

    data: PreparedData
    random: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Pipeline:
    """A federation whose data are prepared: the steps from records to the task on which clients train.

    Args:
        model, partition, clients, samples, held_out, normalisation: as for ``build_task``.
        own_model: whether ``model`` is the federation's own; an audit's other model starts from a drawn one.
        streams: of the federation's seed.
    """

    preparation: Preparation
    records: Dataset
    model: Spec
    partition: Partition
    clients: int
    streams: Streams
    samples: int | None = None
    held_out: int = 0
    normalisation: Normalisation | None = None
    own_model: bool = True

    def draw(self, records: Dataset, *, number: int = 0, arm: int = 0) -> Draw:
        """Prepare records; equal values of ``number`` and ``arm`` give equal random draws.

        Raises:
            ValueError: whatever the preparation raises, and where it returns or changes what it must not.
        """
        with self._guarded("prepare", records, number, arm) as (rng, used):
            found = self.preparation.prepare(records, rng)
            if not isinstance(found, PreparedData):
                raise TypeError(f"must return PreparedData(dataset, ...), got {type(found).__name__}")
            random = used()
        return Draw(found, random)

    def finish(
        self, models: Tensor, network: Network, records: Dataset, *, number: int = 0, arm: int = 0
    ) -> tuple[Leaves, bool]:
        """Return what the preparation publishes after a training with the models ``models (rounds + 1, d)``, and
        whether any randomness was used.

        Raises:
            ValueError: as ``draw``.
        """
        with self._guarded("finish", records, number, arm) as (rng, used):
            found = self.preparation.finish(models, network, records, rng)
            _check_names("finish", found)
            return leaves_of("finish", found), used()

    @property
    def finishes(self) -> bool:
        """Whether the preparation publishes anything after the training."""
        return type(self.preparation).finish is not Preparation.finish

    def keeps_rows(self, data: PreparedData) -> bool:
        """Return whether the preparation turned each record into one training row at the record's own index, so that
        clients hold the records that the partition assigns to them.
        """
        return data.parts is None and len(data.dataset.train_labels) == len(self.records.train_labels)

    def rows(self, data: PreparedData) -> tuple[Tensor, ...]:
        """Return the training rows of each client, followed by the rows of each held-out client."""
        if data.parts is None:
            dealt = self.records if self.keeps_rows(data) else data.dataset
            facts: dict[str, Any] = {"clients": self.clients, "samples": self.samples, "held_out": self.held_out}
            return held_rows(dealt, partition=self.partition, streams=self.streams, **facts)
        if self.held_out:
            raise ValueError(f"held_out must be 0 where the preparation gives parts, got {self.held_out}")
        if len(data.parts) != self.clients:
            raise ValueError(f"preparation: parts must list the {self.clients} clients, got {len(data.parts)}")
        return tuple(data.parts)

    def task(self, data: PreparedData, rows: tuple[Tensor, ...] | None = None) -> Task:
        """Build the task from prepared data.

        Args:
            rows: of each client and each held-out client; by default those of ``rows``.

        Raises:
            ValueError: as ``build_task``, and for an initial model that is none of the federation's.
        """
        held = self.rows(data) if rows is None else rows
        task = build_task(
            data.dataset,
            model=self.model,
            partition=self.partition,
            clients=len(held) - self.held_out,
            streams=self.streams,
            held_out=self.held_out,
            normalisation=self.normalisation,
            rows=held,
            exchangeable="none" if data.parts is not None else self.partition.exchangeable,
            options=data.algorithm,
        )
        return task if data.initial is None or not self.own_model else task.starting(data.initial)

    @contextmanager
    def _guarded(self, step: str, records: Dataset, number: int, arm: int) -> Iterator[tuple[np.random.Generator, Any]]:
        """A generator, and what returns whether it or a global one was used since; exceptions of the user's own code
        become one sentence.
        """
        rng = self.streams.generator(f"{STREAM}: {step}", replicate=number, arm=arm)
        before, seen = _position(rng), _fingerprint(records)
        try:
            # Code that draws from a global generator all the same gives equal results for equal numbers.
            with seeded((2 * number + arm) % 2**32):
                start = global_states()
                yield rng, lambda: _position(rng) != before or global_states() != start
        except Exception as error:
            raise ValueError(f"preparation {type(self.preparation).__name__}.{step}: {described(error)}") from error
        if _fingerprint(records) != seen:
            raise ValueError(
                f"preparation {type(self.preparation).__name__}.{step} changed the records in place: it must return "
                "new tensors, such as dataclasses.replace(records, train_images=...)"
            )


def leaves_of(name: str, value: Any) -> Leaves:
    """Return a published value as arrays of numbers or texts, keyed by name: ``means``, ``weights.bias``,
    ``chosen[0].size``.

    Raises:
        ValueError: for a number that is not finite.
        TypeError: for a value of another kind.
    """
    if isinstance(value, Mapping):
        _check_names(name, value)
        inner = name not in ("published", "finish")
        return {
            key: leaf
            for word in sorted(value)
            for key, leaf in leaves_of(f"{name}.{word}" if inner else word, value[word]).items()
        }
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if (array := _array(value)) is None:
        if not isinstance(value, list | tuple):
            raise TypeError(
                f"{name} must be a number, a text, an array, or a list of these, got {type(value).__name__}"
            )
        return {
            key: leaf for place, one in enumerate(value) for key, leaf in leaves_of(f"{name}[{place}]", one).items()
        }
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinite numbers")
    return {name: array}


def _array(value: Any) -> NDArray[Any] | None:
    """A copy of a value as an array of numbers or texts; None for what is neither."""
    if value is None or isinstance(value, str | bytes):
        return np.array(str(value))
    try:
        array = np.array(value)
    except ValueError:  # Lists of different lengths.
        return None
    if array.dtype.kind in "biuf" and not _holds_texts(value):
        return array.astype(np.float64)
    # Numbers and texts in one list would all become texts.
    return array if array.dtype.kind == "U" and _all_texts(value) else None


def _holds_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(one, str) for one in value)


def _all_texts(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_all_texts(one) for one in value)
    return isinstance(value, str | np.ndarray)


def _initial(value: Any) -> Tensor | Mapping[str, Tensor] | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        _check_names("initial", value)
        return MappingProxyType({name: _weights(f"initial[{name!r}]", one) for name, one in value.items()})
    weights = _weights("initial", value)
    if weights.ndim != 1:
        raise ValueError(f"initial must be a vector (d,) or a state dictionary, got shape {tuple(weights.shape)}")
    return weights


def _weights(name: str, value: Any) -> Tensor:
    given = torch.as_tensor(value) if isinstance(value, Tensor | np.ndarray) else None
    if given is None or not given.is_floating_point():
        raise TypeError(f"{name} must be a tensor of float32, got {getattr(value, 'dtype', type(value).__name__)}")
    weights = given.detach().cpu().to(torch.float32, copy=True)
    if not bool(weights.isfinite().all()):
        raise ValueError(f"{name} must be finite, got NaN or infinite weights")
    return weights


def _parts(parts: Any, rows: int) -> tuple[Tensor, ...]:
    if isinstance(parts, str | Mapping) or not isinstance(parts, Sequence | np.ndarray):
        raise TypeError(f"parts must be a list with the rows of each client, got {type(parts).__name__}")
    found = [np.array(part if not isinstance(part, Tensor) else part.numpy()) for part in parts]
    for client, part in enumerate(found):
        if part.ndim != 1 or not part.size or part.dtype.kind not in "iu":
            raise ValueError(
                f"parts must list one row or more of each client as whole numbers, got {part.dtype} of shape "
                f"{part.shape} for client {client}"
            )
    if not found:
        raise ValueError("parts must list the rows of one client at least, got none")
    held = np.concatenate(found)
    if held.min() < 0 or held.max() >= rows:
        raise ValueError(f"parts must hold rows in 0..{rows - 1}, got {held.min()} to {held.max()}")
    if len(np.unique(held)) < len(held):
        raise ValueError("parts must give each row to one client at most, got a row twice")
    return tuple(torch.from_numpy(part.astype(np.int64)) for part in found)


def _check_names(name: str, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dictionary of values by name, got {type(value).__name__}")
    if wrong := [key for key in value if not isinstance(key, str)]:
        raise TypeError(f"{name} must have texts as names, got {wrong[0]!r}")


def _position(rng: np.random.Generator) -> tuple[Any, ...]:
    """How much of a generator was drawn."""
    state: Any = rng.bit_generator.state
    return state["state"]["counter"].tobytes(), state["buffer_pos"], state["has_uint32"]


def _fingerprint(records: Dataset) -> list[float]:
    """Numbers that a change in place of a data set's tensors alters."""
    tensors = (records.train_images, records.train_labels, records.test_images, records.test_labels)
    # NumPy's changes count up no version.
    return [float(records.train_images.sum()), *(tensor._version for tensor in tensors)]


def check_options(algorithm: Spec, options: Mapping[str, Any]) -> Spec:
    """Return an algorithm's table with the options that a preparation replaces.

    Raises:
        ValueError: for an option that the algorithm does not have.
    """
    if not options:
        return algorithm
    table = {"part": algorithm} if isinstance(algorithm, str) else dict(algorithm)
    changed = {**table, **options}
    try:
        algorithm_from(changed)
    except ValueError as error:
        raise ValueError(f"preparation: algorithm: {error}") from error
    return changed
