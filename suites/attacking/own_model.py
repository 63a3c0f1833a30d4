"""Attack the caller's own PyTorch model outside any federation: one of its gradients, or the trained model.

A gradient shows images or labels, a trained model on which samples it was trained.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ...attacks.attack import Attack, Knowledge, Level
from ...attacks.membership.candidates import MembershipAttack
from ...attacks.membership.shadow_attack import ShadowAttack
from ...attacks.shadow_bank import ShadowBank, true_class_logits
from ...audit.arrays import BoolArray, FloatArray, IntArray
from ...audit.evidence import CandidateScores, LabelCounts, Reconstructions
from ...audit.metrics import MembershipResult
from ...audit.observer import FINAL_MODEL, UPLOADS
from ...audit.supplied.given import detached, scores_or_rows
from ...audit.wording import shortened
from ...fl.algorithms import FedSGD
from ...fl.candidates import Candidates
from ...fl.fields import check_count
from ...fl.laws import Law
from ...fl.layout import Layout
from ...fl.message import Message
from ...fl.models.layers import Normalisation, Normalise, normalisation_from
from ...fl.models.network import Network
from ...fl.objective import CLASSIFICATION, Objective, objective_of
from ...fl.plan import Plan
from ...fl.recorder import RoundView, View
from ...fl.sampling import Full
from ...fl.streams import Streams
from ..config.catalogue import build, part_from_instance
from ..config.source import ConfigError
from ..scoring.images import match, score_images

if TYPE_CHECKING:
    import pandas

Gradient = Tensor | ArrayLike | Sequence[Tensor | None] | Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class GivenNetwork(Network):
    """A network whose module the caller built; ``given`` is a copy, so that no attack changes the caller's model."""

    given: nn.Module = field(repr=False, compare=False)

    @cached_property
    def module(self) -> nn.Module:
        """The caller's module, preceded by the normalisation if there is one."""
        if self.normalisation is None:
            return self.given
        self.normalisation.check_channels(self.shape[0])
        return nn.Sequential(Normalise(self.normalisation), self.given)

    @property
    def objective(self) -> Objective:
        """Always the objective of classification, because these attacks are for classifiers."""
        return objective_of(CLASSIFICATION)

    @property
    def weights(self) -> Tensor:
        """The caller's weights as one flat vector ``(d,)``."""
        return self.layout.flatten({name: value.detach() for name, value in self.module.named_parameters()})


def given_network(
    model: nn.Module, shape: Sequence[int], *, normalisation: Normalisation | None = None, name: str = "model"
) -> tuple[GivenNetwork, Tensor]:
    """Return a network of the caller's model and its weights ``(d,)`` in single precision.

    Args:
        model: turns images ``(n, *shape)`` into logits ``(n, classes)``.
        shape: (channels, height, width) of an image.
        normalisation: applied before the model, if the caller's images are in [0, 1] and the model wants others.
        name: the caller's argument, for messages.

    Raises:
        TypeError: ``model`` is no PyTorch module.
        ValueError: a shape that is no image's, a model without parameters, in training mode with dropout or batch norm,
            or that does not turn an image of this shape into one vector of finite logits.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"{name} must be a torch.nn.Module with its weights, got {type(model).__name__}")
    sides = tuple(shape) if isinstance(shape, Sequence | torch.Size) else ()
    if len(sides) != 3 or not all(isinstance(side, int) and side >= 1 for side in sides):
        raise ValueError(f"shape must be (channels, height, width) of one image, each >= 1, got {shape!r}")
    if drawing := _changes_in_training(model):
        raise ValueError(
            f"{name} is in training mode and its layer {drawing!r} then draws random numbers or mixes the samples "
            "of a batch: call its eval(), and compute the gradient in that mode too"
        )
    own = deepcopy(model).to(device="cpu", dtype=torch.float32)
    if not any(True for _ in own.parameters()):
        raise ValueError(f"{name} has no parameters, so that no gradient reveals anything")
    blank = torch.full((2, *sides), 0.5)
    try:
        with torch.no_grad():
            logits = own(blank if normalisation is None else normalisation.apply(blank))
    except Exception as error:  # A caller's model may raise anything; its own words name the cause.
        raise ValueError(
            f"{name} cannot evaluate images of shape {sides}: {type(error).__name__}: {str(error).strip()}"
        ) from error
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != 2 or logits.shape[1] < 2:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"{name} must turn n images into logits (n, classes) with 2 classes or more, got {found}")
    if not bool(logits.isfinite().all()):
        raise ValueError(f"{name} returned logits that are NaN or infinite for a grey image: check its weights")
    network = GivenNetwork(model="given", shape=sides, classes=logits.shape[1], normalisation=normalisation, given=own)
    return network, network.weights


def flat_gradients(gradient: Gradient, model: nn.Module, layout: Layout) -> Tensor:
    """Return the caller's gradients as rows ``(n, d)`` in the order of the model's parameters.

    ``gradient``: one array per parameter, in the order of ``model.parameters()`` or by name, as ``torch.autograd.grad``
    returns them (None or left out: zero); one flat vector ``(d,)``; or several, ``(n, d)``.

    Raises:
        TypeError: for anything that is no array of numbers and no list or dictionary of arrays.
        ValueError: for other shapes, with the first parameter that does not fit; for zero or non-finite gradients.
    """
    named = dict(model.named_parameters())
    if isinstance(gradient, Mapping):
        rows = _joined([gradient.get(name) for name in named], named)
        if unknown := sorted(set(map(str, gradient)) - set(named)):
            raise ValueError(f"gradient names {unknown[0]!r}, which is no parameter of the model: {', '.join(named)}")
    elif isinstance(gradient, Sequence) and any(isinstance(part, Tensor | np.ndarray) for part in gradient):
        parts = list(gradient)
        if len(parts) != len(named):
            raise ValueError(
                f"gradient must hold one array per parameter of the model, {len(named)}, in the order of "
                f"model.parameters(), got {len(parts)}"
            )
        rows = _joined(parts, named)
    else:
        rows = _tensor("gradient", gradient)
        rows = rows.unsqueeze(0) if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.shape[1] != layout.model_dim or not len(rows):
        raise ValueError(
            f"a flat gradient must have as many numbers as the model has weights, {layout.model_dim}, got shape "
            f"{tuple(rows.shape)}"
        )
    # Without a direction, a search would return noise that looks like a result.
    for fault, bad in (("zero", (rows == 0).all(1)), ("NaN or infinite numbers", ~rows.isfinite().all(1))):
        if bad.any():
            which = "" if len(rows) == 1 else f" in row {int(bad.nonzero()[0])}"
            raise ValueError(f"gradient must be finite and not zero, got {fault}{which}")
    return rows


def _tensor(name: str, given: Any) -> Tensor:
    try:
        # An array of Python objects, such as None, or a generator has no numbers.
        return torch.as_tensor(given, dtype=torch.float32).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"{name} must be numbers: the list that torch.autograd.grad returns, a dictionary of arrays by parameter "
            f"or a flat array, got {shortened(given)}"
        ) from None


def _joined(parts: Sequence[Any], named: Mapping[str, nn.Parameter]) -> Tensor:
    found = []
    for part, (name, parameter) in zip(parts, named.items(), strict=True):
        # torch.autograd.grad returns None for a parameter that the loss does not use.
        array = torch.zeros(parameter.shape) if part is None else _tensor(f"the gradient of {name}", part)
        if array.shape != parameter.shape:
            raise ValueError(
                f"the gradient of parameter {name} must have shape {tuple(parameter.shape)}, got {tuple(array.shape)}"
            )
        found.append(array.flatten())
    return torch.cat(found).unsqueeze(0)


def _changes_in_training(model: nn.Module) -> str:
    """The first layer in training mode that draws random numbers or mixes samples; empty if there is none."""
    kinds = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
    return next((name for name, layer in model.named_modules() if isinstance(layer, kinds) and layer.training), "")


Labelled = tuple[ArrayLike, ArrayLike]


def attack_membership(
    model: nn.Module,
    members: Labelled,
    nonmembers: Labelled,
    *,
    attack: str | Attack = "loss",
    references: Sequence[nn.Module] = (),
    included: ArrayLike | None = None,
    public: Labelled | None = None,
    normalise: dict[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> MembershipResult:
    """Attack your own trained model with samples that it was and was not trained on.

    The attack gets all samples in a random order and does not learn which are which. Members and non-members must be
    drawn alike: otherwise the scores measure the difference between the two sets and not the training.

    Args:
        model: images ``(n, c, h, w)`` in, logits ``(n, classes)`` out, in evaluation mode.
        members: images ``(n1, c, h, w)`` in [0, 1] and labels ``(n1,)`` of the model's training samples.
        nonmembers: the same of samples that it was not trained on.
        attack: the name of an attack on the final model (``fedassay list attacks``), ``package.module:Class`` or an
            object.
        references: models of the same kind that were trained on other samples, for attacks that compare with them, such
            as ``rmia`` and ``lira_offline``.
        included: (references, n1 + n0) booleans, which reference was trained on which sample, members first; None: on
            none of them.
        public: images and labels that no model was trained on, for attacks that use them.
        normalise: ``{"mean": ..., "std": ...}`` if the models take normalised images.
        seed: of the attack's random numbers.
        options: fields of a named attack.

    Raises:
        ConfigError: an unknown attack or option, an attack that is not on a final model, or ``references`` or
            ``included`` for an attack that uses no reference models.
        TypeError, ValueError: models or samples that cannot be used, with the reason, images that members and
            non-members share, or too few references.
    """
    chosen = chosen_attack(attack, options)
    if not isinstance(chosen, MembershipAttack) or chosen.observer != FINAL_MODEL:
        raise ConfigError(f"attack {attack!r} is no membership attack on a final model; see `fedassay list attacks`")
    # A null attack takes the arguments of the attack whose baseline it is.
    _check_references(attack, references, included, used=isinstance(chosen, ShadowAttack) or chosen.null)
    constants = None if normalise is None else normalisation_from(normalise)
    network, weights = given_network(model, _image_shape(members), normalisation=constants)
    sides = [
        labelled_images(name, side, network.shape, network.classes)
        for name, side in (("members", members), ("nonmembers", nonmembers))
    ]
    _check_disjoint(sides[0][0], sides[1][0])
    images, labels = (torch.cat(parts) for parts in zip(*sides, strict=True))
    # Members and non-members are mixed: their order would otherwise reveal the truth.
    order = Streams(seed).generator("candidate order").permutation(len(labels))
    shown = Candidates(images=images[order], labels=labels[order], clients=(0,))
    population, cut = public_data(public, network.shape, network.classes), len(sides[0][1])
    shadows = None
    if isinstance(chosen, ShadowAttack):
        shadows = _bank(_like(network, references), included, order, shown, population)
    knowledge = _realistic(network, (cut,), population, candidates=shown, shadows=shadows)
    view = View(observer=FINAL_MODEL, plan=knowledge.plan, rounds=(), final_model=weights.unsqueeze(0))
    found = chosen.run(view, knowledge, Streams(seed).generator("attack membership"))
    if not isinstance(found, CandidateScores):
        raise ConfigError(f"attack {attack!r} must return CandidateScores, got {type(found).__name__}")
    if found.values.shape != order.shape:
        raise ConfigError(f"attack {attack!r} must give {len(order)} scores, one per sample, got {found.values.shape}")
    scores = found.values[np.argsort(order)]
    return MembershipResult.of(scores[:cut], scores[cut:])


def _realistic(
    network: GivenNetwork, sizes: tuple[int, ...], public: tuple[Tensor, Tensor], law: Law | None = None, **more: Any
) -> Knowledge:
    """What an adversary knows of one step of FedSGD by clients with these numbers of samples."""
    plan = Plan(
        sizes=sizes,
        rounds=1,
        cohort=Full(),
        lot=Full(),
        algorithm=FedSGD(learning_rate=1.0),
        layout=network.layout,
    )
    return Knowledge(
        level=Level.REALISTIC,
        network=network,
        plan=plan,
        law=lambda observer, client: law,
        public_images=public[0],
        public_labels=public[1],
        **more,
    )


def _check_references(attack: str | Attack, references: Any, included: Any, *, used: bool) -> None:
    if isinstance(references, nn.Module | str) or not isinstance(references, Sequence):
        raise TypeError(f"references must be a list of models, got {type(references).__name__}")
    for name, given in (("references", bool(references)), ("included", included is not None)):
        if given and not used:
            raise ConfigError(f"attack {attack!r} compares with no reference models: leave out {name}")


def _check_disjoint(members: torch.Tensor, nonmembers: torch.Tensor) -> None:
    """Raise ValueError if an image is on both sides: a sample that the model was trained on is no non-member."""
    # Adding zero turns -0.0 into 0.0, which has other bytes.
    known = {(image + 0.0).numpy().tobytes(): at for at, image in reversed(list(enumerate(members)))}
    if shared := [
        (at, known[key]) for at, image in enumerate(nonmembers) if (key := (image + 0.0).numpy().tobytes()) in known
    ]:
        (at, of), several = (
            shared[0],
            f", and {len(shared) - 1} more of them are members too" if len(shared) > 1 else "",
        )
        raise ValueError(
            f"members and nonmembers must share no image, but nonmembers[{at}] is members[{of}]{several}: give samples "
            "that the model was not trained on as nonmembers"
        )


def _like(network: GivenNetwork, references: Sequence[nn.Module]) -> list[tuple[GivenNetwork, torch.Tensor]]:
    """The reference models as networks of the attacked one's shape, classes and normalisation, with their weights."""
    found = []
    for at, model in enumerate(references):
        one = given_network(model, network.shape, normalisation=network.normalisation, name=f"references[{at}]")
        if one[0].classes != network.classes:
            raise ValueError(f"references[{at}] must have the {network.classes} classes of model, got {one[0].classes}")
        found.append(one)
    return found


def _image_shape(members: Labelled) -> tuple[int, ...]:
    if not isinstance(members, tuple | list) or len(members) != 2:
        raise ValueError(f"members must be a pair (images, labels), got {type(members).__name__}")
    if len(shape := tuple(np.shape(detached(members[0])))) != 4:
        raise ValueError(f"images of members must have shape (m, channels, height, width), got {shape}")
    return shape[1:]


def _bank(
    models: Sequence[tuple[GivenNetwork, torch.Tensor]],
    included: ArrayLike | None,
    order: IntArray,
    shown: Candidates,
    population: tuple[torch.Tensor, torch.Tensor],
) -> ShadowBank:
    """The reference models' logits of the candidates and of the public samples; ``order``: the number of each candidate
    among the samples in the caller's order.
    """
    if not models:
        raise ValueError("this attack compares with reference models: give references=[...], models trained alike")
    size = (len(models), len(shown.labels))
    trained: BoolArray = np.zeros(size, dtype=np.bool_) if included is None else np.asarray(included)
    if trained.dtype != np.bool_ or trained.shape != size:
        raise ValueError(
            f"included must be booleans of shape {size} (references, members then non-members), got "
            f"{trained.shape} of {trained.dtype}"
        )
    return ShadowBank(
        logits=np.stack([true_class_logits(one, weights, shown.images, shown.labels) for one, weights in models]),
        included=trained[:, order],
        population=np.stack([true_class_logits(one, weights, *population) for one, weights in models]),
        ids=np.arange(size[1]),
    )


@dataclass(frozen=True, eq=False)
class LeakedImages:
    """The images that an attack reconstructed from gradients; a notebook displays them.

    Attributes:
        images: (n, channel, height, width) in [0, 1], the images of the first gradient first.
        labels: (n,), the labels that the attack inferred for them; None where it infers none.
        gradients: (n,), the number of the gradient that each image comes from.
    """

    images: FloatArray
    labels: IntArray | None
    gradients: IntArray

    def against(self, originals: ArrayLike) -> "pandas.DataFrame":
        """Compare the images with the originals, ``(n, channel, height, width)`` in [0, 1]: one row per original.

        Images of one gradient are matched to its originals by least total MSE, because a gradient does not reveal their
        order. Columns: ``mse``, ``psnr`` (dB, at most 100), ``ssim``, ``image`` (the matched image's number). Higher
        PSNR and SSIM mean more leakage. Raises ValueError for other shapes, values outside [0, 1] and no numbers.
        """
        import pandas

        truth = scores_or_rows("originals", originals)
        if truth.shape != self.images.shape:
            raise ValueError(f"originals must have the shape {self.images.shape} of the images, got {truth.shape}")
        if not (np.isfinite(truth).all() and truth.min() >= 0 and truth.max() <= 1):
            raise ValueError(f"originals must be finite and in [0, 1], got {truth.min():g} to {truth.max():g}")
        order = np.empty(len(truth), dtype=np.int64)
        for gradient in np.unique(self.gradients):
            own = np.flatnonzero(self.gradients == gradient)
            order[own] = own[match(self.images[own], truth[own])]
        scores = pandas.DataFrame(score_images(self.images[order], truth))
        return scores[["mse", "psnr", "ssim"]].assign(image=order)

    def _repr_html_(self) -> str:
        from PIL import Image

        shown = []
        for image in self.images[:32]:
            grey = image.shape[0] != 3
            pixels = (255 * (image.mean(0) if grey else image.transpose(1, 2, 0))).round().astype(np.uint8)
            buffer = io.BytesIO()
            Image.fromarray(pixels).save(buffer, format="PNG")
            code = base64.b64encode(buffer.getvalue()).decode()
            shown.append(f'<img width="96" style="image-rendering:pixelated" src="data:image/png;base64,{code}">')
        return " ".join(shown)


def attack_gradient(
    model: nn.Module,
    gradient: Gradient,
    *,
    shape: Sequence[int],
    samples: int = 1,
    attack: str | Attack = "inversion",
    law: Law | None = None,
    public: tuple[ArrayLike, ArrayLike] | None = None,
    normalise: dict[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> LeakedImages:
    """Reconstruct the images behind a gradient of your own model, as a server that receives the gradient could.

    Args:
        model: the model at which the gradient was computed: images ``(n, *shape)`` in, logits ``(n, classes)`` out, in
            evaluation mode.
        gradient: of the mean cross-entropy over ``samples`` images: one array per parameter, as ``torch.autograd.grad``
            returns them; or flat, ``(d,)``; or several flat ones, ``(m, d)``.
        shape: (channels, height, width) of an image.
        samples: number of images behind each gradient.
        attack: a gradient attack's name (``fedassay list attacks``), ``package.module:Class`` or an object.
        law: the published noise of the gradient, such as ``GaussianLaw``, for attacks that use it (``map_inversion``).
        public: images ``(m, *shape)`` in [0, 1] and labels ``(m,)`` that the server has, for attacks that use them.
        normalise: ``{"mean": ..., "std": ...}`` if the gradient was computed on normalised images; attacks search for
            images in [0, 1].
        seed: of the attack's random numbers.
        options: fields of a named attack, such as ``iterations=300``.

    Returns:
        the images, ``samples`` for each gradient.

    Raises:
        ConfigError: an unknown attack or option, or an attack that reconstructs no images.
        TypeError, ValueError: a model, gradient, shape or public data that cannot be used, with the reason.
        Undefined: the attack cannot be carried out on this model, for example without a last bias.

    Example:
        ```
        gradient = torch.autograd.grad(cross_entropy(model(image), label), model.parameters())
        leaked = fedassay.attack_gradient(model, gradient, shape=image.shape[1:], iterations=300)
        print(leaked.against(image))
        ```
    """
    chosen = chosen_attack(attack, options)
    if not chosen.reconstructs or chosen.active:
        raise ConfigError(f"attack {attack!r} reconstructs no images from a gradient; see `fedassay list attacks`")
    view, knowledge = _seen(model, gradient, shape, samples, law, public, normalise)
    evidence = chosen.run(view, knowledge, Streams(seed).generator("attack gradient"))
    if not isinstance(evidence, Reconstructions):
        raise ConfigError(f"attack {attack!r} must return Reconstructions, got {type(evidence).__name__}")
    uploads = np.arange(len(evidence.images)) if evidence.uploads is None else evidence.uploads
    return LeakedImages(images=evidence.images, labels=evidence.labels, gradients=uploads)


def attack_labels(
    model: nn.Module,
    gradient: Gradient,
    *,
    shape: Sequence[int],
    samples: int = 1,
    attack: str | Attack = "llg",
    law: Law | None = None,
    public: tuple[ArrayLike, ArrayLike] | None = None,
    normalise: dict[str, Any] | None = None,
    seed: int = 0,
    **options: Any,
) -> FloatArray:
    """Infer how many samples of each label are behind a gradient of your own model; return counts ``(m, classes)``.

    Each row belongs to one gradient and sums to ``samples`` for attacks that know it. The arguments and errors are
    those of ``attack_gradient``; ``attack`` names an attack on labels.
    """
    chosen = chosen_attack(attack, options)
    view, knowledge = _seen(model, gradient, shape, samples, law, public, normalise)
    evidence = chosen.run(view, knowledge, Streams(seed).generator("attack labels"))
    if not isinstance(evidence, LabelCounts):
        raise ConfigError(f"attack {attack!r} infers no labels from a gradient; see `fedassay list attacks`")
    return evidence.counts


class _Missing:
    """Stands for public data that the caller did not give; any use of them is an error that names the argument."""

    def __getattr__(self, name: str) -> Any:
        raise ValueError("this attack needs public images and labels: give public=(images, labels)")

    def __getitem__(self, key: Any) -> Any:
        return self.__getattr__("item")

    def __len__(self) -> int:
        return int(self.__getattr__("len"))


def chosen_attack(attack: str | Attack, options: dict[str, Any]) -> Attack:
    """Return the attack given by a name with options, or as an object. Raises ConfigError as ``build`` does, and if
    options are given for an object.
    """
    if not isinstance(attack, str):
        if options:
            raise ConfigError(
                f"options can be given only with the name of an attack; set {sorted(options)[0]!r} on the attack "
                "object instead"
            )
        return cast(Attack, part_from_instance(attack, "attack").instance)
    return cast(Attack, build("attack", attack, options).instance)


def _seen(
    model: nn.Module,
    gradient: Gradient,
    shape: Sequence[int],
    samples: int,
    law: Law | None,
    public: tuple[ArrayLike, ArrayLike] | None,
    normalise: dict[str, Any] | None,
) -> tuple[View, Knowledge]:
    """The view of a server that receives the gradients as FedSGD uploads, and what it knows."""
    check_count("samples", samples)
    if law is not None and (isinstance(law, type) or not hasattr(law, "log_density")):
        # An attack that uses no law would ignore it without a word.
        shown = law.__name__ if isinstance(law, type) else repr(law)
        raise TypeError(f"law must be a law such as GaussianLaw(...) from fedassay.fl.laws, or None, got {shown:.100}")
    constants = None if normalise is None else normalisation_from(normalise)
    network, weights = given_network(model, shape, normalisation=constants)
    rows = flat_gradients(gradient, model, network.layout)
    public_samples = public_data(public, network.shape, network.classes)
    knowledge = _realistic(network, (samples,) * len(rows), public_samples, law)
    sent = Message(
        values=-rows.unsqueeze(0),
        present=torch.ones(1, len(rows), dtype=torch.bool),
        senders=tuple(range(len(rows))),
    )
    seen = RoundView(round=0, broadcast=weights.unsqueeze(0), reports=sent)
    # After a step of size 1 along the mean gradient.
    after = weights - rows.mean(0)
    return View(observer=UPLOADS, plan=knowledge.plan, rounds=(seen,), final_model=after.unsqueeze(0)), knowledge


def public_data(
    public: tuple[ArrayLike, ArrayLike] | None, shape: tuple[int, int, int], classes: int
) -> tuple[Tensor, Tensor]:
    """Return the caller's labelled images as tensors ``(m, *shape)`` and ``(m,)``; if there are none, return objects
    that raise ValueError when an attack uses them.

    Raises ValueError for other shapes, images outside [0, 1] or unknown classes.
    """
    if public is None:
        missing = cast(Tensor, _Missing())
        return missing, missing
    return labelled_images("public", public, shape, classes)


def labelled_images(
    name: str, given: tuple[ArrayLike, ArrayLike], shape: tuple[int, int, int], classes: int
) -> tuple[Tensor, Tensor]:
    """Return labelled images as tensors ``(m, *shape)`` and ``(m,)``; error messages call the argument ``name``."""
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise ValueError(f"{name} must be a pair (images, labels), got {type(given).__name__}")
    try:
        # Copied: PyTorch warns of arrays that cannot be written, such as those of pandas.
        images, labels = (torch.as_tensor(np.array(detached(part))) for part in given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} must be a pair of arrays of numbers (images, labels): {error}") from None
    if images.ndim != 4 or tuple(images.shape[1:]) != shape or not len(images):
        raise ValueError(
            f"images of {name} must have shape (m, {', '.join(map(str, shape))}), got {tuple(images.shape)}"
        )
    images = images.to(torch.float32)
    if not bool(images.isfinite().all()) or float(images.min()) < 0 or float(images.max()) > 1:
        raise ValueError(
            f"images of {name} must be finite and in [0, 1], got {float(images.min()):g} to {float(images.max()):g}"
        )
    if labels.shape != images.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(
            f"labels of {name} must be {len(images)} whole numbers, got {tuple(labels.shape)} of {labels.dtype}"
        )
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise ValueError(
            f"labels of {name} must be in 0..{classes - 1}, got {int(labels.min())} to {int(labels.max())}"
        )
    return images, labels.to(torch.int64)
