"""Task: a network and the data of one federation: who holds what, who stays outside, what measures utility."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from .data.dataset import Dataset, check_masks
from .models.imprint import thresholds
from .models.network import Network
from .partitions.partitions import ByOwner, Exchangeable, Partition
from .streams import Streams, normal
from .utility import Utility, of_labels, of_pixels

_AT_ONCE = 256
"""Images that a segmenter, which keeps features of every pixel, looks at together."""

PUBLIC_IMAGES = 1000
"""The test images, the data set's first, on whose loss a protection may decide."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Images ``(n, c, h, w)``, their labels ``(n,)`` or, of a segmenter, ``(n, h, w)``, and the models ``(R, d)`` of
    ``network`` that look at them.
    """

    network: Network
    models: Tensor
    images: Tensor
    labels: Tensor


@dataclass(frozen=True, kw_only=True)
class Task:
    """The data side of a federation; attacks never get it.

    Args:
        network: model and loss.
        images, labels: the pool that clients hold, ``(n, c, h, w)`` in [0, 1] and ``(n,)``; of a segmenter the labels,
            here and below, are booleans ``(n, h, w)``.
        parts: for each client the indices of its samples in the pool.
        outsider_images, outsider_labels: drawn as the pool was, never trained on: membership's non-members.
        test_images, test_labels: measure utility; they also serve attackers as public data.
        masks: which pixels of the pool's images are privacy-sensitive, ``(n, h, w)`` booleans; None: nothing says so.
        originals: the pool's images before noise on their sensitive pixels; None: there is none.
        held_out: for each client that was dealt samples like any other and never takes part their indices in the pool:
            the non-members of attacks on clients.
        owners: (n,), from whom each of the pool's images is; None: nobody knows.
        exchangeable: which outsiders are like a client's own samples but for the deal, as its partition says.
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

    def __post_init__(self) -> None:
        for name in ("", "outsider_", "test_"):
            images, labels = getattr(self, f"{name}images"), getattr(self, f"{name}labels")
            if images.shape[1:] != self.network.shape or images.dtype != torch.float32:
                wanted = f"(n, {', '.join(map(str, self.network.shape))}) float32"
                raise ValueError(f"{name}images must be {wanted}, got {tuple(images.shape)} of {images.dtype}")
            if self.network.segments:
                check_masks(f"{name}labels", labels, images)
            elif labels.shape != images.shape[:1] or labels.dtype != torch.int64:
                raise ValueError(
                    f"{name}labels must be ({len(images)},) int64, got {tuple(labels.shape)} of {labels.dtype}"
                )
        check_masks("masks", self.masks, self.images)
        dealt = torch.cat([torch.zeros(0, dtype=torch.int64), *self.parts, *self.held_out])
        if len(dealt) and not 0 <= int(dealt.min()) <= int(dealt.max()) < len(self.labels):
            raise ValueError(f"parts must index the {len(self.labels)} samples, got {dealt.min()} to {dealt.max()}")

    @property
    def private_images(self) -> Tensor:
        """What clients have to hide, as the pool: images as they were before any noise on their pixels."""
        return self.images if self.originals is None else self.originals

    @property
    def clients(self) -> int:
        """Number of clients."""
        return len(self.parts)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Samples of each client."""
        return tuple(len(part) for part in self.parts)

    def accuracy(self, model: Tensor) -> float:
        """Share of test images that ``model (d,)`` labels right."""
        right = self.network.evaluated(model, self.test_images).argmax(-1) == self.test_labels
        return float(right.double().mean())

    def utility(self, model: Tensor) -> tuple[Utility, ...]:
        """What ``model (d,)`` is worth on the test images: accuracy, or IoU, precision, recall and F of pixels."""
        if not self.network.segments:
            return of_labels(self.accuracy(model), len(self.test_labels))
        return of_pixels(self.marked(model), self.test_labels)

    def marked(self, model: Tensor) -> Tensor:
        """Test pixels ``(n, h, w)`` that ``model (d,)``, a segmenter, marks; booleans."""
        with torch.no_grad():
            return torch.cat([self.network.logits(model, part) > 0 for part in torch.split(self.test_images, _AT_ONCE)])

    def public_loss(self, models: Tensor) -> Tensor:
        """Mean loss ``(R,)`` of ``models (R, d)`` on the first thousand test images, which are public.

        Asked in every round: all ten thousand would cost more than the training.
        """
        images, labels = self.test_images[:PUBLIC_IMAGES], self.test_labels[:PUBLIC_IMAGES]
        if self.network.segments:
            with torch.no_grad():
                return torch.stack([self.network.losses(model, images, labels).mean() for model in models])
        return torch.stack([cross_entropy(self.network.evaluated(model, images), labels) for model in models])

    def samples(self, models: Tensor, client: int | None) -> Samples:
        """A client's own samples, or (None) the public ones, beside ``models (R, d)``."""
        if client is None:
            return Samples(network=self.network, models=models, images=self.test_images, labels=self.test_labels)
        part = self.parts[client]
        return Samples(network=self.network, models=models, images=self.images[part], labels=self.labels[part])

    def restricted(self, *, clients: int, samples: int) -> "Task":
        """The same task with at most its first ``clients`` clients, each with at most its first ``samples`` samples.

        Raises:
            ValueError: if either is below 1.
        """
        if clients < 1 or samples < 1:
            raise ValueError(f"clients and samples must be >= 1, got {clients} and {samples}")
        return replace(self, parts=tuple(part[:samples] for part in self.parts[:clients]))

    def with_inert(self, inert: int) -> "Task":
        """The same task with unused weights behind the model's own, for canaries to stand on."""
        return replace(self, network=replace(self.network, inert=inert))


def build_task(
    dataset: Dataset,
    *,
    model: str,
    partition: Partition,
    clients: int,
    streams: Streams,
    samples: int | None = None,
    label_noise: float = 0.0,
    pixel_noise: float = 0.0,
    held_out: int = 0,
) -> Task:
    """Deal a data set to clients.

    A tenth of the training images (chosen by the ``outsiders`` stream) stays outside every federation; the partition
    deals the rest, or ``samples`` of it, to ``clients`` and to ``held_out`` more who never take part (chosen among all
    by the ``held out`` stream). Each training label is redrawn with probability ``label_noise``, uniformly over all
    classes (see ``redrawn``), the outsiders' too: else the labels would tell who took part; ``pixel_noise`` is the
    standard deviation of the noise on their sensitive pixels (see ``noised``). A segmenter's labels are the data set's
    targets; the partition goes by the images' labels all the same.

    Raises:
        ValueError: if ``samples``, ``clients`` or ``held_out`` ask for more than there is, the partition for owners
            that nobody knows, ``label_noise`` is no probability, a segmenter has no targets or is to have noisy labels,
            or nothing says which pixels are sensitive that are to have noise.
    """
    if held_out < 0:
        raise ValueError(f"held_out must be >= 0, got {held_out}")
    network = Network(
        model=model,
        shape=dataset.shape,
        classes=dataset.classes,
        # Of the public images: before the first round a server has no others.
        bins=thresholds(dataset.test_images) if model == "imprint" else (),
    )
    given = redrawn(dataset.train_labels, dataset.classes, label_noise, streams)
    found, tested = _targets(dataset, label_noise) if network.segments else (given, dataset.test_labels)
    images = noised(dataset, pixel_noise, streams) if pixel_noise else dataset.train_images
    order = streams.generator("outsiders").permutation(len(dataset.train_labels))
    outside, inside = order[: len(order) // 10], order[len(order) // 10 :]
    dealt = clients + held_out
    if samples is not None and not dealt <= samples <= len(inside):
        raise ValueError(f"samples must be in {dealt}..{len(inside)} ({dataset.name}, {dealt} clients), got {samples}")
    inside = np.sort(inside[:samples])
    keys = (_owners(dataset) if isinstance(partition, ByOwner) else given)[inside]
    split = partition.split(keys.numpy(), dealt, streams.generator("partition"))
    hands = [torch.from_numpy(np.asarray(part, dtype=np.int64)) for part in split]
    absent = set(streams.generator("held out").permutation(dealt)[:held_out].tolist())
    return Task(
        network=network,
        images=images[inside],
        labels=found[inside],
        parts=tuple(hand for client, hand in enumerate(hands) if client not in absent),
        outsider_images=images[outside],
        outsider_labels=found[outside],
        test_images=dataset.test_images,
        test_labels=tested,
        masks=None if dataset.train_masks is None else dataset.train_masks[inside],
        originals=dataset.train_images[inside] if pixel_noise else None,
        held_out=tuple(hand for client, hand in enumerate(hands) if client in absent),
        owners=None if dataset.train_owners is None else dataset.train_owners[inside],
        exchangeable=partition.exchangeable,
    )


def noised(dataset: Dataset, scale: float, streams: Streams) -> Tensor:
    """Training images ``(n, c, h, w)`` with Gaussian noise of this standard deviation on their sensitive pixels, cut to
    [0, 1]: what Xiao et al. 2025 (Figure 5) hold gradient noise against. It is the clients' own, promises nothing, and
    is drawn once, by the stream ``pixel noise``.

    Raises ValueError for a scale that is no number >= 0, or a data set that marks no sensitive pixels.
    """
    if not 0 <= scale < math.inf:
        raise ValueError(f"pixel_noise must be a number >= 0, got {scale}")
    if dataset.train_masks is None:
        raise ValueError(f"pixel_noise needs a data set that marks sensitive pixels, got {dataset.name}")
    clean = dataset.train_images
    noise = scale * normal(streams.generator("pixel noise"), tuple(clean.shape))
    return torch.where(dataset.train_masks.unsqueeze(1), (clean + noise).clamp(0, 1), clean)


def redrawn(labels: Tensor, classes: int, share: float, streams: Streams) -> Tensor:
    """``labels (n,)`` of which each, by a coin of its own, is drawn anew with probability ``share``.

    A new label may be the old one, so that about ``share * (1 - 1 / classes)`` of them change. By the stream ``label
    noise``, which draws as much for every share: what is redrawn at .1 is redrawn at .2 too, and to the same label.
    Raises ValueError unless share is in [0, 1].
    """
    if not 0 <= share <= 1:
        raise ValueError(f"label_noise must lie in [0, 1], got {share}")
    rng = streams.generator("label noise")
    coins, drawn = rng.random(len(labels)), rng.integers(classes, size=len(labels))
    return torch.where(torch.from_numpy(coins < share), torch.from_numpy(drawn), labels)


def _targets(dataset: Dataset, label_noise: float) -> tuple[Tensor, Tensor]:
    """What a segmenter has to find in the training and in the test images."""
    if dataset.train_targets is None or dataset.test_targets is None:
        raise ValueError(f"a segmenter needs a data set with targets, a mark for each pixel, got {dataset.name}")
    if label_noise:
        raise ValueError(f"label_noise must be 0 for a segmenter, whose labels are pixels', got {label_noise}")
    return dataset.train_targets, dataset.test_targets


def _owners(dataset: Dataset) -> Tensor:
    if dataset.train_owners is None:
        raise ValueError(f"partition by_owner needs a data set that says whose its images are, got {dataset.name}")
    return dataset.train_owners
