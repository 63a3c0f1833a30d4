"""Conformance checks of what a federation's table names: data sets, models, algorithms, partitions, sampling rules."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...audit.parts import load, points
from ...checks.canaries import CANARIES
from ...fl.algorithms import KNOWN_ALGORITHMS, Algorithm, LocalState, Numbers
from ...fl.data.dataset import Dataset
from ...fl.data.shakespeare import ALPHABET, LENGTH
from ...fl.engine import run_federation
from ...fl.models.network import WORDS, Network, returns_probabilities
from ...fl.models.small_models import find_model, known_models
from ...fl.objective import CLASSIFICATION, MULTILABEL, NEXT_TOKEN, REGRESSION, SEGMENTATION
from ...fl.partitions import KNOWN_PARTITIONS, Partition
from ...fl.protection import Protection
from ...fl.sampling import Epoch, FixedSize, Full, Poisson
from ...fl.streams import Streams, normal, seeded, uniform
from ...fl.training.local import Batch
from ..config.source import ConfigError
from .check import (
    CheckedPart,
    ConformanceCheck,
    NotConforming,
    built,
    can_be_sent,
    equal,
    no_global_randomness,
    require,
    require_refused,
)
from .toys import toy_plan, toy_task

_LABELS = {
    CLASSIFICATION: "classes",
    REGRESSION: "numbers to predict",
    MULTILABEL: "labels per image",
    NEXT_TOKEN: "tokens",
}


def dataset_ranges(subject: CheckedPart) -> str | None:
    """Its images are finite and in [0, 1], and its labels and owners are in range."""
    data: Dataset = subject.make()
    # Built again from its own arrays: the data set may have changed them after it was checked.
    dataclasses.replace(data, strokes=False)  # Its masks are there already.
    return (
        f"{len(data.train_labels)} + {len(data.test_labels)} images of shape {data.shape}, {data.classes} "
        f"{_LABELS[data.task]}"
    )


def dataset_classes(subject: CheckedPart) -> None:
    """Every class has a training sample; the labels of other tasks vary."""
    data: Dataset = subject.make()
    if data.task != CLASSIFICATION:
        constant = (data.train_labels == data.train_labels[0]).all(0)
        equal = torch.flatten(torch.nonzero(constant)).tolist()
        require(not equal, f"labels {equal[:10]} of {data.classes} have one value in all training samples")
        return
    counts = torch.bincount(data.train_labels, minlength=data.classes)
    lacking = torch.flatten(torch.nonzero(counts == 0)).tolist()
    require(not lacking, f"classes {lacking[:10]} of {data.classes} have no training sample")


def dataset_same_again(subject: CheckedPart) -> None:
    """It is the same at every load, whatever the global random generators."""
    first: Dataset = subject.make()
    with seeded(1):
        again: Dataset = subject.make()
    if first.digest != again.digest:
        raise NotConforming(
            "a second load gave different data: workers and resumed runs load it again, so draw with a fixed seed"
        )


def dataset_no_shared_images(subject: CheckedPart) -> str | None:
    """No test image is also a training image with another label."""
    data: Dataset = subject.make()
    labels = data.train_labels.tolist(), data.test_labels.tolist()
    train = {row.tobytes(): label for row, label in zip(data.train_images.numpy(), labels[0], strict=True)}
    pairs = [
        (train[key], label)
        for row, label in zip(data.test_images.numpy(), labels[1], strict=True)
        if (key := row.tobytes()) in train
    ]
    other = sum(a != b for a, b in pairs)
    require(not other or other < len(data.test_labels) / 2, f"{other} test images are training images of another label")
    return f"{len(pairs)} test images are also training images" if pairs else None


DATASET_CHECKS: tuple[ConformanceCheck, ...] = (
    built,
    dataset_ranges,
    dataset_classes,
    dataset_same_again,
    dataset_no_shared_images,
)


MODEL_SHAPES = ((1, 8, 8), (1, 28, 28), (3, 32, 32), (1, 64, 64), (1, 1, 64))
"""Images on which a model is tried in turn; it must take one of these shapes, or texts, of 64 places or like those
of data set shakespeare."""
_TEXTS = (((1, 1, 64), 10), ((1, 1, LENGTH), len(ALPHABET)))
_MODEL_CLASSES = (10, 2)
_MODEL_SAMPLES, _CLOSE = 3, 1e-5


def model_takes_images(subject: CheckedPart) -> str | None:
    """It builds a module whose output is logits."""
    network = network_for(subject)
    return f"shape {network.shape}, {network.classes} classes, {network.layout.model_dim} parameters"


def model_finite(subject: CheckedPart) -> None:
    """Its outputs are logits, not probabilities: finite numbers in single precision."""
    network, params, images, _ = _model_case(subject)
    logits = network.logits(params, images)
    require(logits.dtype == torch.float32, f"the logits are {logits.dtype}, not torch.float32")
    require(bool(logits.isfinite().all()), "the logits are not finite for images in [0, 1]")
    require(not returns_probabilities(network), WORDS)


def model_deterministic(subject: CheckedPart) -> None:
    """Equal seeds and inputs give equal parameters and logits, other seeds other parameters."""
    network, params, images, _ = _model_case(subject)
    again = network_for(subject)
    require(equal(params, again.initial(Streams(0).generator("init"))), "equal seeds give different initial parameters")
    require(
        not equal(params, again.initial(Streams(1).generator("init"))), "all seeds give the same initial parameters"
    )
    with no_global_randomness():
        first, second = (network.logits(params, images) for _ in range(2))
    require(equal(first, second), "a second evaluation of the same images gives different logits: it keeps state")
    require(equal(first, again.logits(params, images)), "a module that is built again gives different logits")


def model_separate(subject: CheckedPart) -> str | None:
    """Each image's logits depend on that image alone."""
    network, params, images, _ = _model_case(subject)
    if network.mixes:
        return (
            "batch norm mixes the images of a batch, so that no defense at sample level accepts this model: replace "
            "it by GroupNorm, under which each sample has its own gradient"
        )
    whole = network.logits(params, images)
    alone = torch.cat([network.logits(params, image.unsqueeze(0)) for image in images])
    gap = float((whole - alone).abs().max())
    require(
        gap <= 1e-4 * max(1.0, float(whole.abs().max())),
        f"the logits of a sample change by {gap:.2g} when the other samples of its batch change",
    )
    return None


def model_per_sample_gradients(subject: CheckedPart) -> str | None:
    """Its per-sample gradients agree with one backward pass per sample."""
    network, params, images, labels = _model_case(subject)
    if network.mixes:
        return "not checked: with batch norm, the gradient of a sample depends on the other samples of the batch"
    rows = network.sample_gradients(params.unsqueeze(0), images.unsqueeze(0), labels.unsqueeze(0))[0]
    for row, image, label in zip(rows, images, labels, strict=True):
        point = params.clone().requires_grad_(True)
        loss = network.losses(point, image.unsqueeze(0), label.unsqueeze(0)).sum()
        (slope,) = torch.autograd.grad(loss, point)
        gap, size = float((row - slope).abs().max()), max(1.0, float(slope.abs().max()))
        require(gap <= _CLOSE * size, f"a sample's gradient differs by {gap:.2g} from the gradient of a backward pass")
    return f"gradients of {len(rows)} samples, {rows.shape[1]} parameters each"


def model_inputs_kept(subject: CheckedPart) -> None:
    """It changes neither the images nor the parameters that it is given."""
    network, params, images, _ = _model_case(subject)
    kept = params.clone(), images.clone()
    network.logits(params, images)
    require(equal(params, kept[0]), "it changed the parameters")
    require(equal(images, kept[1]), "it changed the images")


def network_for(subject: CheckedPart) -> Network:
    """Build the network of the model for the first of ``MODEL_SHAPES`` that it accepts, or else for texts; raise the
    first error if it accepts none.

    Raises:
        NotConforming: if it accepts none of the shapes.
    """
    first = ""
    tried = [(shape, classes, CLASSIFICATION) for shape in MODEL_SHAPES for classes in _MODEL_CLASSES]
    for shape, classes, task in [*tried, *((*text, NEXT_TOKEN) for text in _TEXTS)]:
        network = _model_network(subject, shape, classes, task)
        try:
            network.objective  # noqa: B018
            return network
        except ValueError as error:
            first = first or str(error)
    raise NotConforming(first)


def _model_network(subject: CheckedPart, shape: tuple[int, int, int], classes: int, task: str) -> Network:
    options = dict(subject.options)
    bins = tuple((n + 0.5) / 8 for n in range(options.pop("bins", 8))) if subject.name == "imprint" else ()
    return Network(model=subject.name, shape=shape, classes=classes, bins=bins, options=options, task=task)


def _model_case(subject: CheckedPart) -> tuple[Network, Tensor, Tensor, Tensor]:
    """The network, its initial parameters, random images and labels."""
    network, rng = network_for(subject), Streams(0).generator("conformance images")
    images = uniform(rng, (_MODEL_SAMPLES, *network.shape))
    labels = torch.from_numpy(rng.integers(network.classes, size=_MODEL_SAMPLES))
    if network.objective.name == SEGMENTATION:
        labels = images[:, 0] > 0.5
    if network.objective.name == NEXT_TOKEN:
        images = (images * network.classes).floor()
        labels = images[:, 0, 0].long().roll(-1, 1)
    return network, network.initial(Streams(0).generator("init")), images, labels


MODEL_CHECKS: tuple[ConformanceCheck, ...] = (
    model_takes_images,
    model_finite,
    model_deterministic,
    model_separate,
    model_per_sample_gradients,
    model_inputs_kept,
)


_VECTORS, _DIM = 3, 7


def algorithm_shapes(subject: CheckedPart) -> None:
    """Its steps and models are (replicas, parameters) in single precision; what it keeps has replicas first."""
    algorithm, (model, directions) = subject.make(), _algorithm_vectors()
    for name, value in _algorithm_round(algorithm, model, directions).items():
        require(tuple(value.shape) == (_VECTORS, _DIM), f"{name} has shape {tuple(value.shape)}")
        require(value.dtype == torch.float32, f"{name} is {value.dtype}")
    for name, value in {**algorithm.share(model), **_algorithm_kept(algorithm, model, directions)}.items():
        require(value.shape[:1] == (_VECTORS,), f"{name} has shape {tuple(value.shape)}: replicas must come first")


def algorithm_begins(subject: CheckedPart) -> str | None:
    """A client that has not taken part begins alike with nothing kept and with zeros."""
    algorithm, (model, directions) = subject.make(), _algorithm_vectors()
    kept = _algorithm_kept(algorithm, model, directions)
    if not kept:
        return "not checked: its clients keep no state between rounds"
    # Clients that train in one block share one tensor, in which those that were never there are zeros.
    zeros = {name: torch.zeros_like(value) for name, value in kept.items()}
    first, other = (_algorithm_round(algorithm, model, directions, kept=before) for before in (None, zeros))
    require(
        equal(first, other),
        "start must treat a state of zeros like no state (of a client that has not taken part yet), but the two "
        "rounds differ",
    )
    return None


def algorithm_replicas_apart(subject: CheckedPart) -> None:
    """A replica's numbers depend on that replica alone."""
    model, directions = _algorithm_vectors()
    together = _algorithm_round(subject.make(), model, directions)
    for replica in range(_VECTORS):
        row = slice(replica, replica + 1)
        alone = _algorithm_round(subject.make(), model[row], directions[:, row])
        for name, value in alone.items():
            gap = float((together[name][row] - value).abs().max())
            require(gap < 1e-5, f"{name} of a replica changes by {gap:.2g} when the other replicas change")


def algorithm_no_side_effects(subject: CheckedPart) -> None:
    """Equal arguments give equal results, and it changes none of them."""
    algorithm, (model, directions) = subject.make(), _algorithm_vectors()
    kept = model.clone(), directions.clone()
    with no_global_randomness():
        first, again = (_algorithm_round(algorithm, model, directions) for _ in range(2))
    require(equal(first, again), "two rounds with equal arguments give different numbers: it keeps state")
    require(equal((model, directions), kept), "the part changed the tensors that it was given")


def algorithm_inverse(subject: CheckedPart) -> None:
    """aggregate_between is the inverse of combine."""
    algorithm, (model, directions) = subject.make(), _algorithm_vectors()
    after = algorithm.combine(model, directions[0])
    found = algorithm.aggregate_between(model, after)
    gap = float((found - directions[0]).abs().max())
    require(gap < 1e-3, f"aggregate_between(model, combine(model, aggregate)) differs by {gap:.2g} from the aggregate")


def algorithm_linear(subject: CheckedPart) -> str | None:
    """linear_scale states how an update follows from the steps' directions."""
    algorithm, (model, directions) = subject.make(), _algorithm_vectors()
    scale = algorithm.linear_scale
    if scale is None:
        return "not linear, as it states"
    steps = directions[: algorithm.local_steps]
    update = _algorithm_round(algorithm, model, steps)["update"]
    gap = float((update - scale * steps.sum(0)).abs().max())
    require(gap < 1e-4, f"an update differs by {gap:.2g} from the sum of the directions times linear_scale = {scale:g}")
    return None


def algorithm_trains(subject: CheckedPart) -> None:
    """A small federation trains with it, repeatably."""
    task = toy_task()
    plan = toy_plan(task, algorithm=subject.make())
    finals = [run_federation(task, plan, Protection(), Streams(1), batch=Batch(replicas=2)) for _ in range(2)]
    require(bool(finals[0].isfinite().all()), "the trained model is not finite")
    require(equal(*finals), "equal seeds give different models")


def algorithm_refuses(subject: CheckedPart) -> str | None:
    """It refuses a learning rate below 0 with a ValueError that names it."""
    algorithm = subject.make()
    if not (dataclasses.is_dataclass(algorithm) and hasattr(algorithm, "learning_rate")):
        return "not checked: it has no field learning_rate"
    require_refused(lambda: dataclasses.replace(algorithm, learning_rate=-1.0), "learning_rate")  # type: ignore[type-var]
    return None


def _algorithm_vectors() -> tuple[torch.Tensor, torch.Tensor]:
    """A model ``(replicas, parameters)``, and one direction of that shape for each of up to eight steps."""
    rng = Streams(0).generator("conformance vectors")
    return normal(rng, (_VECTORS, _DIM)), normal(rng, (8, _VECTORS, _DIM))


def _algorithm_round(
    algorithm: Algorithm, model: torch.Tensor, directions: torch.Tensor, *, kept: Numbers | None = None
) -> dict[str, torch.Tensor]:
    """All tensors of one client's round and of the server's step after it."""
    local, _ = _algorithm_local(algorithm, model, directions, kept)
    update = algorithm.update(model, local)
    new = algorithm.combine(model, update)
    return {"local": local, "update": update, "model": new, "gradient": algorithm.gradient(update)}


def _algorithm_kept(algorithm: Algorithm, model: torch.Tensor, directions: torch.Tensor) -> Numbers:
    """What a client keeps after its first round."""
    return algorithm.keep(model, *_algorithm_local(algorithm, model, directions, None))


def _algorithm_local(
    algorithm: Algorithm, model: torch.Tensor, directions: torch.Tensor, kept: Numbers | None
) -> tuple[torch.Tensor, LocalState]:
    state, local = algorithm.start(model, algorithm.share(model), kept), model
    for direction in directions[: algorithm.local_steps]:
        local, state = algorithm.step(local, direction, state)
    return local, state


ALGORITHM_CHECKS: tuple[ConformanceCheck, ...] = (
    built,
    algorithm_shapes,
    algorithm_replicas_apart,
    algorithm_begins,
    algorithm_no_side_effects,
    algorithm_inverse,
    algorithm_linear,
    algorithm_trains,
    algorithm_refuses,
    can_be_sent,
)


_HANDS = 5


def partition_deals(subject: CheckedPart) -> str | None:
    """It deals every client its own samples: ascending, disjoint, none empty."""
    labels = _partition_labels()
    with no_global_randomness():
        hands = subject.make().split(labels, _HANDS, np.random.default_rng(0))
    require(len(hands) == _HANDS, f"the part returned samples for {len(hands)} clients, not for {_HANDS}")
    for hand in map(np.asarray, hands):
        require(
            hand.ndim == 1 and hand.dtype.kind == "i",
            f"a client's samples must be indices (n,), got {hand.dtype} {hand.shape}",
        )
        require(len(hand), "a client got no sample")
        require((np.diff(hand) > 0).all(), "the indices of a client are not ascending")
        require(hand[0] >= 0 and hand[-1] < len(labels), f"an index is outside 0..{len(labels) - 1}")
    everything = np.concatenate(hands)
    require(len(np.unique(everything)) == len(everything), "two clients hold the same sample")
    return f"{len(everything)} of {len(labels)} samples given to clients"


def partition_deterministic(subject: CheckedPart) -> None:
    """Equal seeds give equal hands, and the labels stay as they were."""
    labels, partition = _partition_labels(), subject.make()
    first, again = (partition.split(labels, _HANDS, np.random.default_rng(0)) for _ in range(2))
    require(
        equal(tuple(first), tuple(again)),
        "two calls with equal seeds give different partitions: it keeps state, or draws from another generator",
    )
    require(equal(labels, _partition_labels()), "it changed the labels")


def partition_refuses_too_many(subject: CheckedPart) -> None:
    """It refuses more clients than samples with a ValueError."""
    partition: Partition = subject.make()
    try:
        partition.split(_partition_labels()[:3], 4, np.random.default_rng(0))
    except ValueError:
        return
    raise NotConforming(
        "the part accepted 3 samples for 4 clients: raise ValueError, because a client without a sample cannot train"
    )


def _partition_labels() -> np.ndarray:
    # Owners in the case of by_owner: many of each value.
    return np.repeat(np.arange(10), 8)


PARTITION_CHECKS: tuple[ConformanceCheck, ...] = (
    built,
    partition_deals,
    partition_deterministic,
    partition_refuses_too_many,
    can_be_sent,
)


_DRAWS, _ITEMS, _TURNS = 400, 12, 12


def sampling_draws_masks(subject: CheckedPart) -> None:
    """It draws a mask (replicas, items) of booleans, without a global generator."""
    rule = subject.make()
    with no_global_randomness():
        mask = rule.draw(np.random.default_rng(0), 3, _ITEMS)
    require(isinstance(mask, torch.Tensor), f"draw must return a tensor, got {type(mask).__name__}")
    require(mask.dtype == torch.bool, f"the mask must hold booleans, got {mask.dtype}")
    require(tuple(mask.shape) == (3, _ITEMS), f"the mask must have shape (3, {_ITEMS}), got {tuple(mask.shape)}")
    require(
        int(mask.sum(1).max()) <= rule.most(_ITEMS), f"the part drew more than most({_ITEMS}) = {rule.most(_ITEMS)}"
    )


def sampling_deterministic(subject: CheckedPart) -> None:
    """Equal generators give equal draws."""
    rule = subject.make()
    first, again = (rule.draw(np.random.default_rng(3), 3, _ITEMS) for _ in range(2))
    require(equal(first, again), "two calls with equal generators give different draws: it keeps state")


def sampling_rate(subject: CheckedPart) -> str | None:
    """The mean share that it draws is the rate that it states."""
    rule = subject.make()
    stated = rule.rate(_ITEMS)
    require(0 < stated <= 1, f"rate({_ITEMS}) must be in (0, 1], got {stated}")
    # One generator per pass: a pass may cut one random order into several turns.
    shares = [
        rule.draw(np.random.default_rng(rule.pass_start(turn)), _DRAWS, _ITEMS, turn - rule.pass_start(turn))
        for turn in range(_TURNS)
    ]
    found = float(torch.stack(shares).double().mean())
    # Five standard deviations of independent draws, the largest spread of any rule.
    slack = 5 * (stated * (1 - stated) / (_DRAWS * _ITEMS)) ** 0.5 + 1e-9
    require(
        abs(found - stated) <= slack,
        f"the part states the rate {stated:.4g}, but drew the share {found:.4g} over {_DRAWS} replicas",
    )
    return f"stated rate {stated:.4g}, drawn share {found:.4g}"


SAMPLING_CHECKS: tuple[ConformanceCheck, ...] = (
    built,
    sampling_draws_masks,
    sampling_deterministic,
    sampling_rate,
    can_be_sent,
)


def summaries_of(kind: str) -> dict[str, str]:
    """Return the first docstring line of every model, algorithm, partition, sampling rule or canary, keyed by name,
    including those from entry points.

    Raises:
        ConfigError: for an entry point that does not load.
    """
    own: dict[str, Callable[[], dict[str, Any]]] = {
        "model": lambda: {name: inspect.getmodule(find_model(name)) for name in known_models()},
        "algorithm": lambda: dict(KNOWN_ALGORITHMS),
        "partition": lambda: dict(KNOWN_PARTITIONS),
        "sampling": lambda: {"full": Full, "poisson": Poisson, "fixed_size": FixedSize, "epoch": Epoch},
        "canary": lambda: {name: canary.build for name, canary in CANARIES.items()},
    }
    try:
        offered = {name: load(point) for name, point in points(kind).items()}
    except ValueError as error:
        raise ConfigError(str(error)) from error
    # The package's own parts come last, so that they win over an entry point of the same name.
    return {name: _first_sentence(part) for name, part in sorted((offered | own[kind]()).items())}


def _first_sentence(part: Any) -> str:
    """The first paragraph of a docstring, up to its first full stop."""
    text = " ".join((inspect.getdoc(part) or "").partition("\n\n")[0].split())
    return text if text.endswith(".") or not text else f"{text}."
