"""A task is the model and the data of one federation: each client's samples, the non-members and the test images.

A warm start trains the initial model on the server's public data before the first round, at no cost in privacy.

Every claim about a federation holds for whatever model it starts from, as long as that model does not depend on the
clients' data. The public images belong to the server: no client, no held-out client and no non-member has one of them
(nor, in a data set with owners, another image of the same owner), and none of them is a test image.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..audit.parts import Spec, name_and_options
from .algorithms import FedAvg
from .data.dataset import Dataset, check_masks
from .fields import check_count, check_share, check_weight
from .models.layers import BINS, Normalisation, thresholds
from .models.network import Network
from .objective import SEGMENTATION, Objective, objective_of
from .partitions import ByOwner, Exchangeable, Partition
from .streams import Streams, normal
from .utility import Outcomes, Utility, by_class, by_group, utility_of

Indices = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TrainingRule:
    """The rule by which one model is trained.

    Args:
        steps: number of training steps.
        learning_rate, optimizer: of these steps ("sgd" or "adam", as in ``FedAvg``).
        lot: number of samples in each step, drawn without replacement within the step; None: all samples.
    """

    steps: int
    learning_rate: float
    optimizer: Literal["sgd", "adam"] = "adam"
    lot: int | None = None

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        if self.lot is not None:
            check_count("lot", self.lot, alternative=" or None")
        self.algorithm()

    def algorithm(self) -> FedAvg:
        """Return the federated algorithm of one client that trains alone."""
        return FedAvg(learning_rate=self.learning_rate, local_steps=self.steps, optimizer=self.optimizer)

    def draw(self, rng: np.random.Generator, models: int, samples: int) -> Tensor:
        """Draw the lots of ``models`` models that have ``samples`` samples each: indices ``(models, steps, lot)``.

        Where all samples are used there is one lot, ``(models, 1, samples)``, and nothing is drawn.
        """
        if self.lot is None or self.lot >= samples:
            return torch.arange(samples).expand(models, 1, samples)
        # Column by column of a random order: without replacement, and one draw for all steps.
        order = rng.random((models, self.steps, samples)).argsort(axis=-1)
        return torch.from_numpy(order[..., : self.lot].copy())


@dataclass(frozen=True, kw_only=True)
class WarmStartRule(TrainingRule):
    """The rule by which the server trains the initial model on its public data.

    Args:
        samples: number of public images.
        lot: number of public images in each step, drawn without replacement within the step.
    """

    samples: int
    lot: int = 16

    def __post_init__(self) -> None:
        check_count("warm_start.samples", self.samples)
        try:
            super().__post_init__()
        except ValueError as error:
            # The messages of FedAvg name its own fields: local_steps are the steps here.
            raise ValueError(f"warm_start.{str(error).removeprefix('local_')}") from None
        if self.lot > self.samples:
            raise ValueError(f"warm_start.lot must be at most warm_start.samples, {self.samples}, got {self.lot}")


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """The server's public data with the rule by which it trains the initial model on them.

    ``images (n, c, h, w)`` and ``labels (n,)``, for a segmentation model ``(n, h, w)``. Two warm starts are equal if
    rule and data are.
    """

    rule: WarmStartRule
    images: Tensor = field(compare=False)
    labels: Tensor = field(compare=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        content = hashlib.sha256(self.images.contiguous().numpy().data)
        content.update(self.labels.contiguous().numpy().data)
        object.__setattr__(self, "digest", content.hexdigest())

    def model(self, network: Network, streams: Streams) -> Tensor:
        """Return the trained initial model as one flat vector ``(d,)``; unused weights (see ``Layout``) are zero.

        The same streams always give the same model. A process trains it once per seed, for all defenses and for both
        arms of an audit.
        """
        # Without the unused weights: an audit's federation then shares the training, whatever its canaries.
        trained = _trained(self, replace(network, inert=0), streams)
        return torch.cat([trained, trained.new_zeros(network.inert)])


@lru_cache(maxsize=32)
def _trained(start: WarmStart, network: Network, streams: Streams) -> Tensor:
    algorithm, rule = start.rule.algorithm(), start.rule
    model = network.initial(streams.generator("init")).unsqueeze(0)
    state, weights = algorithm.start(model), torch.full((1, rule.lot), 1 / rule.lot)
    for step in range(rule.steps):
        rng = streams.generator("warm start", step=step)
        chosen = torch.from_numpy(rng.permutation(len(start.images))[: rule.lot])
        dropout = network.draw_dropout(streams.generator("warm start dropout", step=step), (1, rule.lot))
        lot = start.images[chosen].unsqueeze(0), start.labels[chosen].unsqueeze(0)
        model, state = algorithm.step(model, network.gradient(model, *lot, weights, dropout), state)
    return model[0]


def public_part(dataset: Dataset, order: Indices, samples: int) -> tuple[Indices, Indices]:
    """Choose the server's public images among the training images. Return their indices, and the indices of all images
    that clients and non-members must then not use.

    ``order``: the indices that clients may hold, in the order in which they are dealt. Public images come from its end,
    so that clients hold the same images with and without a warm start wherever enough are left. In a data set with
    owners whole owners are taken, with all their images.

    Raises:
        ValueError: if clients would be left without an image.
    """
    owners = np.arange(len(dataset.train_labels)) if dataset.train_owners is None else dataset.train_owners.numpy()
    last = owners[order[::-1]]
    # From the end of the order: each owner where it appears first.
    found = last[np.sort(np.unique(last, return_index=True)[1])]
    held = np.bincount(owners)[found].cumsum()
    taken = found[: int(np.searchsorted(held, samples)) + 1]
    withdrawn = np.flatnonzero(np.isin(owners, taken))
    if samples > len(withdrawn) or not np.isin(order, withdrawn, invert=True).any():
        raise ValueError(
            f"warm_start.samples must leave images of {dataset.name} for the clients, which share {len(order)} with "
            f"the server, got {samples}"
        )
    return withdrawn[:samples], withdrawn


# A segmentation model keeps features of every pixel, so a thousand images at once would not fit in the cache.
_AT_ONCE = 256
# The images of all clients at once would need gigabytes for the features of a convolutional model.
_OWN_AT_ONCE = 2000

PUBLIC_IMAGES = 1000
"""Number of test images, the first of the data set, on whose loss a protection may decide."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """The labelled images that a defense's hook receives, with the models to evaluate on them.

    ``images (n, c, h, w)``, ``labels`` in the form of the network's objective (``(n,)`` for a classifier) and ``models
    (R, d)`` of ``network``.
    """

    network: Network
    models: Tensor
    images: Tensor
    labels: Tensor


@dataclass(frozen=True, kw_only=True)
class Task:
    """The model and all data of one federation; attacks never receive it.

    Args:
        network: model and loss.
        images, labels: the pool that clients hold, ``(n, c, h, w)`` in [0, 1] and, for a classifier, ``(n,)``. Labels,
            here and below, have the form of the network's objective, such as booleans ``(n, h, w)`` of pixels.
        parts: for each client the indices of its samples in the pool.
        outsider_images, outsider_labels: drawn like the pool, never trained on: the non-members of membership attacks.
        test_images, test_labels: measure utility; they are also the adversary's public data.
        masks: which pixels of the pool's images are privacy-sensitive, ``(n, h, w)`` booleans; None if not known.
        originals: the pool's images before noise on their sensitive pixels; None without such noise.
        held_out: sample indices of each client that was dealt samples like any other but never takes part: the
            non-members of attacks on clients.
        owners: (n,), the owner of each of the pool's images; None if not known.
        exchangeable: which outsiders are distributed like a client's own samples, as the partition states.
        warm_start: the server's own public data, on which it trains the initial model; None: the model is drawn.
        label_scale: the unit of each label of a regression (see ``Dataset``); empty: 1.
        first_model: (d,) without unused weights, the model of the first round that a preparation of the data gives;
            None: it is drawn, or trained by the warm start.
        options: of the algorithm, which a preparation of the data replaces.
        columns: of rows of a table, the name of each column and the number of its features; empty: not known.
    """

    network: Network
    images: Tensor
    labels: Tensor
    parts: tuple[Tensor, ...]
    outsider_images: Tensor
    outsider_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    masks: Tensor | None = None
    originals: Tensor | None = None
    held_out: tuple[Tensor, ...] = ()
    owners: Tensor | None = None
    exchangeable: Exchangeable = "all"
    warm_start: WarmStart | None = None
    label_scale: tuple[float, ...] = ()
    first_model: Tensor | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        for name in ("", "outsider_", "test_"):
            images, labels = getattr(self, f"{name}images"), getattr(self, f"{name}labels")
            if images.shape[1:] != self.network.shape or images.dtype != torch.float32:
                wanted = f"(n, {', '.join(map(str, self.network.shape))}) float32"
                raise ValueError(f"{name}images must be {wanted}, got {tuple(images.shape)} of {images.dtype}")
            self.network.objective.check(f"{name}labels", labels, images, self.network.classes)
        check_masks("masks", self.masks, self.images)
        dealt = torch.cat([torch.zeros(0, dtype=torch.int64), *self.parts, *self.held_out])
        if len(dealt) and not 0 <= int(dealt.min()) <= int(dealt.max()) < len(self.labels):
            raise ValueError(
                f"the clients' sample indices (parts, held_out) must be in 0..{len(self.labels) - 1}, "
                f"got {dealt.min()} to {dealt.max()}"
            )

    @property
    def private_images(self) -> Tensor:
        """The images that clients have to protect, before any noise was added to their pixels.

        They are in the order of ``images``.
        """
        return self.images if self.originals is None else self.originals

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.parts)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of samples of each client."""
        return tuple(len(part) for part in self.parts)

    @cached_property
    def clients_per_user(self) -> int | None:
        """The largest number of clients that hold samples of one owner; None if the owners are not known."""
        if self.owners is None:
            return None
        clients = torch.repeat_interleave(torch.arange(self.clients), torch.tensor(self.sizes))
        owners, of = torch.unique(self.owners[torch.cat(self.parts)], return_inverse=True)
        # Each pair of a client and an owner once.
        pairs = torch.unique(clients * len(owners) + of)
        return int(torch.bincount(pairs % len(owners)).max())

    def initial(self, streams: Streams) -> Tensor:
        """Return the model with which the first round starts, as one flat vector ``(d,)``. Either the preparation gives
        this model, or the stream ``init`` draws it; a drawn model is then trained on public data if the federation has
        a warm start.
        """
        if self.first_model is not None:
            return torch.cat([self.first_model, self.first_model.new_zeros(self.network.inert)])
        if self.warm_start is None:
            return self.network.initial(streams.generator("init"))
        return self.warm_start.model(self.network, streams)

    def outcomes(self, model: Tensor, images: Tensor, labels: Tensor) -> Outcomes:
        """Return the predictions and losses of ``model (d,)`` on labelled images, all from one evaluation.

        ``images (n, c, h, w)`` and ``labels`` in the form of the network's objective, ``(n,)`` for a classifier.
        """
        objective, found, losses = self.network.objective, list[Tensor](), list[Tensor]()
        size = _AT_ONCE if objective.name == SEGMENTATION else max(1, len(images))
        for part, wanted in zip(torch.split(images, size), torch.split(labels, size), strict=True):
            outputs = self.network.evaluated(model, part)
            found.append(objective.found(outputs))
            losses.append(objective.losses(outputs, wanted))
        facts: dict[str, Any] = {"task": objective.name, "wanted": labels, "scale": self.label_scale}
        return Outcomes(found=torch.cat(found), losses=torch.cat(losses), **facts)

    def utility(self, model: Tensor) -> tuple[Utility, ...]:
        """Return the utility metrics of ``model (d,)`` on the test images.

        They depend on the task (see ``utility_of``), such as accuracy and loss for a classifier.
        """
        return utility_of(self.outcomes(model, self.test_images, self.test_labels))

    def utility_by_class(self, outcomes: Outcomes) -> Tensor:
        """Return the first utility metric on the test images of each class or label, ``(classes,)``, from a model's
        ``outcomes``; empty for a regression.
        """
        return by_class(outcomes, self.network.classes)

    def utility_by_client(self, model: Tensor) -> Tensor:
        """Return the first metric of utility, such as the accuracy, of ``model (d,)`` on each client's own samples.

        The result has shape ``(clients,)``. These are the samples and labels with which the clients train: no client
        releases these numbers.
        """
        if not self.parts:
            return torch.zeros(0, dtype=torch.float64)
        held = torch.cat(self.parts)
        # Batch norm would mix the clients' samples in one batch; all other models evaluate many clients at once.
        batches = self.parts if self.network.mixes else torch.split(held, _OWN_AT_ONCE)
        found = [self.outcomes(model, self.images[batch], self.labels[batch]) for batch in batches]
        parts: dict[str, Any] = {
            name: torch.cat([getattr(one, name) for one in found]) for name in ("found", "wanted", "losses")
        }
        owners = torch.repeat_interleave(torch.arange(self.clients), torch.tensor(self.sizes))
        return by_group(replace(found[0], **parts), owners, self.clients)

    def public_loss(self, models: Tensor) -> Tensor:
        """Return the mean loss of each model on the first thousand test images, which are public.

        ``models (R, d)`` give ``(R,)``.
        """
        # Evaluated in every round: on all ten thousand test images it would cost more than the training.
        images, labels = self.test_images[:PUBLIC_IMAGES], self.test_labels[:PUBLIC_IMAGES]
        objective = self.network.objective
        return torch.stack([objective.mean_loss(self.network.evaluated(model, images), labels) for model in models])

    def samples(self, models: Tensor, client: int | None) -> Samples:
        """Return the images of a client (or the public images if ``client`` is None), with the models to evaluate on
        them.

        ``models``: ``(R, d)``.
        """
        if client is None:
            return Samples(network=self.network, models=models, images=self.test_images, labels=self.test_labels)
        part = self.parts[client]
        return Samples(network=self.network, models=models, images=self.images[part], labels=self.labels[part])

    def restricted(self, *, clients: int, samples: int) -> "Task":
        """Return the same task with at most ``clients`` clients and at most ``samples`` samples per client.

        The first ones are kept.

        Raises:
            ValueError: if either is below 1.
        """
        if clients < 1 or samples < 1:
            raise ValueError(f"clients and samples must be >= 1, got {clients} and {samples}")
        return replace(self, parts=tuple(part[:samples] for part in self.parts[:clients]))

    def starting(self, initial: Tensor | Mapping[str, Tensor]) -> "Task":
        """Return the same task with this model in the first round: a flat vector ``(d,)`` or tensors by layer.

        Raises ValueError for a model of other weights.
        """
        layout = replace(self.network.layout, inert=0)
        first = layout.flatten(initial) if isinstance(initial, Mapping) else initial
        if first.shape != (layout.dim,):
            raise ValueError(
                f"initial must hold the {layout.dim} weights of model {self.network.model}, got {tuple(first.shape)}"
            )
        return replace(self, first_model=first)

    def with_inert(self, inert: int) -> "Task":
        """Return the same task with ``inert`` unused weights after the model's own, along which canaries
        are planted.
        """
        if inert == self.network.inert:
            return self
        return replace(self, network=replace(self.network, inert=inert).sharing(self.network))

    def with_few_weights(self) -> "Task":
        """Return a task that is small enough to be run a hundred thousand times: with the same clients, samples of one
        number, and a model of four weights besides unused ones.
        """

        def blank(images: Tensor) -> tuple[Tensor, Tensor]:
            return torch.zeros(len(images), 1, 1, 1), torch.arange(len(images)) % 2

        images, labels = blank(self.images)
        outsider_images, outsider_labels = blank(self.outsider_images)
        test_images, test_labels = blank(self.test_images)
        return replace(
            self,
            network=Network(model="logistic", shape=(1, 1, 1), classes=2, inert=max(1, self.network.inert)),
            images=images,
            labels=labels,
            outsider_images=outsider_images,
            outsider_labels=outsider_labels,
            test_images=test_images,
            test_labels=test_labels,
            masks=None,
            originals=None,
            warm_start=None,
            label_scale=(),
            first_model=None,
            columns=(),
        )


def build_task(
    dataset: Dataset,
    *,
    model: Spec,
    partition: Partition,
    clients: int,
    streams: Streams,
    samples: int | None = None,
    label_noise: float = 0.0,
    pixel_noise: float = 0.0,
    held_out: int = 0,
    normalisation: Normalisation | None = None,
    warm_start: WarmStartRule | None = None,
    rows: Sequence[Tensor] | None = None,
    exchangeable: Exchangeable | None = None,
    options: Mapping[str, Any] | None = None,
) -> Task:
    """Distribute a data set to the clients of a federation.

    A tenth of the training images (chosen by the ``outsiders`` stream) stays outside every federation. The
    partition deals the rest, or ``samples`` of it, to ``clients`` and to ``held_out`` additional clients that never
    take part (chosen among all by the ``held out`` stream). Each training label is redrawn with probability
    ``label_noise``, uniformly over all classes (see ``redrawn``). ``pixel_noise`` is the standard deviation of the
    noise on sensitive pixels (see ``noised``). ``normalisation``: the model's first operation, with public
    constants. A segmentation model's labels are the data set's targets; the partition still uses the images'
    labels. Where labels are no classes, only partitions that ignore labels can be used. With a ``warm_start`` the
    server holds further training images, without noise, which neither clients nor non-members have (see
    ``public_part``).

    ``rows``: the training rows of each client, and after them of each held-out one, instead of those that the partition
    deals; all other rows are then those of non-members. ``exchangeable``: as which samples these count, by default as
    the partition states. ``options``: of the algorithm, which a preparation of the data replaces.

    Raises:
        ValueError: if ``samples``, ``clients``, ``held_out`` or ``warm_start`` exceed what there is, the partition
            needs owners that are not known, or classes where labels are none, ``label_noise`` is not a probability or
            labels are no classes, a segmentation model has no targets, or pixels are to have noise and the sensitive
            ones are not known.
    """
    check_count("held_out (clients that never take part)", held_out, least=0)
    network = network_of(dataset, model, normalisation)
    labels, tested = _labels(dataset, network.objective)
    # The outsiders' labels are redrawn too; otherwise clean labels would reveal the non-members.
    found = _redrawn(labels, network, label_noise, streams)
    images = noised(dataset, pixel_noise, streams) if pixel_noise else dataset.train_images
    inside, outside, start = _pools(dataset, labels, warm_start, streams)
    if rows is None:
        keys = found if network.objective.classifies else _keys(dataset, partition)
        _check_samples(dataset.name, len(inside), samples=samples, clients=clients, held_out=held_out)
        # Sorted: how many samples are used must not change the order in which the partition sees them.
        inside = np.sort(inside[:samples])
        parts, absent = _dealt(dataset, keys, inside, partition, clients, held_out, streams)
    else:
        inside = np.unique(torch.cat([*rows]).numpy())
        outside = np.setdiff1d(np.arange(len(labels)), inside)
        places = tuple(torch.from_numpy(np.searchsorted(inside, row.numpy())) for row in rows)
        parts, absent = places[:clients], places[clients:]
    return Task(
        network=network,
        images=images[inside],
        labels=found[inside],
        parts=parts,
        outsider_images=images[outside],
        outsider_labels=found[outside],
        test_images=dataset.test_images,
        test_labels=tested,
        masks=None if dataset.train_masks is None else dataset.train_masks[inside],
        originals=dataset.train_images[inside] if pixel_noise else None,
        held_out=absent,
        owners=None if dataset.train_owners is None else dataset.train_owners[inside],
        exchangeable=exchangeable or partition.exchangeable,
        warm_start=start,
        label_scale=dataset.label_scale,
        options=options or {},
        columns=dataset.columns,
    )


def held_rows(
    dataset: Dataset,
    *,
    partition: Partition,
    clients: int,
    streams: Streams,
    samples: int | None = None,
    held_out: int = 0,
) -> tuple[Tensor, ...]:
    """Return the training rows that a partition assigns to each client, followed by the rows of each held-out client.

    They are those of ``build_task`` without noise and without a warm start.
    """
    inside, _, _ = _pools(dataset, dataset.train_labels, None, streams)
    _check_samples(dataset.name, len(inside), samples=samples, clients=clients, held_out=held_out)
    inside = np.sort(inside[:samples])
    parts, absent = _dealt(dataset, _keys(dataset, partition), inside, partition, clients, held_out, streams)
    return tuple(torch.from_numpy(inside)[part] for part in (*parts, *absent))


def dealt_of(dataset: Dataset) -> int:
    """Return how many training samples of a data set clients may hold: all but a tenth."""
    return len(dataset.train_labels) - len(dataset.train_labels) // 10


def _pools(
    dataset: Dataset, labels: Tensor, rule: WarmStartRule | None, streams: Streams
) -> tuple[Indices, Indices, WarmStart | None]:
    """The indices of the images that clients may hold, of those that nobody holds, and the server's warm start."""
    order = streams.generator("outsiders").permutation(len(dataset.train_labels))
    outside, inside = np.split(order, [len(order) // 10])
    if rule is None:
        return inside, outside, None
    public, withdrawn = public_part(dataset, inside, rule.samples)
    inside, outside = (part[~np.isin(part, withdrawn)] for part in (inside, outside))
    return inside, outside, WarmStart(rule=rule, images=dataset.train_images[public], labels=labels[public])


def _dealt(
    dataset: Dataset,
    keys: Tensor,
    inside: Indices,
    partition: Partition,
    clients: int,
    held_out: int,
    streams: Streams,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The samples of each client, and of each client that never takes part, as indices into ``inside``."""
    if isinstance(partition, ByOwner):
        keys = _owners(dataset)
    dealt = clients + held_out
    split = partition.split(keys[inside].numpy(), dealt, streams.generator("partition"))
    hands = [torch.from_numpy(np.asarray(part, dtype=np.int64)) for part in split]
    # Drawn after the deal, so that held-out clients have data like all others.
    absent = set(streams.generator("held out").permutation(dealt)[:held_out].tolist())
    return (
        tuple(hand for client, hand in enumerate(hands) if client not in absent),
        tuple(hand for client, hand in enumerate(hands) if client in absent),
    )


def network_of(dataset: Dataset, model: Spec, normalisation: Normalisation | None) -> Network:
    """Build the network for the images and classes of a data set; ``model``: a name, or a table with options."""
    name, options = name_and_options("model", model)
    return Network(
        model=name,
        shape=dataset.shape,
        classes=dataset.classes,
        # From the public images: before the first round the server has no others.
        bins=thresholds(dataset.test_images, _bins(options)) if name == "imprint" else (),
        normalisation=normalisation,
        options=options,
        task=dataset.task,
    )


def _bins(options: dict[str, Any]) -> int:
    """The number of thresholds, taken out of the options of an imprint model: the thresholds themselves replace it."""
    bins = options.pop("bins", BINS)
    check_count("bins", bins)
    return int(bins)


def _check_samples(name: str, offered: int, *, samples: int | None, clients: int, held_out: int) -> None:
    """Raise ValueError unless the images that a data set offers suffice for the requested ``samples`` (None: all), and
    at least one for each client.
    """
    if samples is not None and samples > offered:
        raise ValueError(f"samples must be at most {offered}, the number that {name} offers, got {samples}")
    if clients + held_out > (samples or offered):
        further = f" and held_out {held_out}" if held_out else ""
        raise ValueError(
            f"each client needs at least one sample: clients{' + held_out' if held_out else ''} must be at most "
            f"{samples or offered}, the number of samples, got clients {clients}{further}"
        )


def noised(dataset: Dataset, scale: float, streams: Streams) -> Tensor:
    """Return the training images with Gaussian noise on their sensitive pixels.

    ``scale``: the noise's standard deviation; the result has shape ``(n, c, h, w)``.

    Clipped to [0, 1]. Xiao et al. 2025 (Figure 5) compare gradient noise with it. It is part of the clients' data, has
    no privacy claim, and is drawn once, by the stream ``pixel noise``. Raises ValueError if the scale is not a number
    >= 0 or the data set marks no sensitive pixels.
    """
    check_weight("pixel_noise", scale)
    if dataset.train_masks is None:
        raise ValueError(f"pixel_noise needs a data set that marks sensitive pixels, got {dataset.name}")
    clean = dataset.train_images
    noise = scale * normal(streams.generator("pixel noise"), tuple(clean.shape))
    return torch.where(dataset.train_masks.unsqueeze(1), (clean + noise).clamp(0, 1), clean)


def redrawn(labels: Tensor, classes: int, share: float, streams: Streams) -> Tensor:
    """Replace each label, with probability ``share``, by a label that is drawn uniformly from all classes.

    ``labels``: ``(n,)``; labels are replaced independently.

    A new label may equal the old one: about ``share * (1 - 1 / classes)`` of them change. The stream ``label noise``
    draws equally many numbers for every share: what is redrawn at .1 is redrawn at .2 too, to the same label. Raises
    ValueError unless share is in [0, 1].
    """
    check_share("label_noise", share)
    rng = streams.generator("label noise")
    coins, drawn = rng.random(len(labels)), rng.integers(classes, size=len(labels))
    return torch.where(torch.from_numpy(coins < share), torch.from_numpy(drawn), labels)


def _labels(dataset: Dataset, objective: Objective) -> tuple[Tensor, Tensor]:
    """The training and the test labels: for a segmentation the pixels that the model has to find."""
    if objective.name != SEGMENTATION:
        return dataset.train_labels, dataset.test_labels
    if dataset.train_targets is None or dataset.test_targets is None:
        raise ValueError(f"a segmentation model needs a data set with targets for each pixel, got {dataset.name}")
    return dataset.train_targets, dataset.test_targets


def _redrawn(labels: Tensor, network: Network, label_noise: float, streams: Streams) -> Tensor:
    if network.objective.classifies:
        return redrawn(labels, network.classes, label_noise, streams)
    if label_noise:
        raise ValueError(
            f"label_noise must be 0 for a {network.objective.name}, whose samples have no class, got {label_noise}"
        )
    return labels


def _keys(dataset: Dataset, partition: Partition) -> Tensor:
    """The classes by which a partition deals samples; all 0 where the data set has none."""
    if objective_of(dataset.task).classifies:
        return dataset.train_labels
    if partition.exchangeable == "label":
        raise ValueError(
            f"the partition {type(partition).__name__.lower()} deals samples by their class, but the samples of "
            f"{dataset.name} have none (task {dataset.task}): choose iid, one_sample, or by_owner, which needs the "
            "owners of the samples"
        )
    return torch.zeros(len(dataset.train_labels), dtype=torch.int64)


def _owners(dataset: Dataset) -> Tensor:
    if dataset.train_owners is None:
        raise ValueError(f"partition by_owner needs a data set that names its images' owners, got {dataset.name}")
    return dataset.train_owners
