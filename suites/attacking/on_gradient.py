"""Attack one gradient of the caller's own model: reconstruct its images, or infer its labels."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ...attacks.attack import Attack, Knowledge, Level
from ...audit.arrays import FloatArray, IntArray
from ...audit.evidence import LabelCounts, Reconstructions
from ...audit.observer import UPLOADS
from ...audit.supplied.given import detached, scores_or_rows
from ...fl.algorithms.algorithm import FedSGD
from ...fl.fields import check_count
from ...fl.laws.law import Law
from ...fl.message import Message
from ...fl.models.normalise import normalisation_from
from ...fl.partitions.sampling import Full
from ...fl.plan import Plan
from ...fl.streams import Streams
from ...fl.view import RoundView, View
from ..config.catalogue import build, part_from_instance
from ..config.source import ConfigError
from ..scoring.images import match, score_images
from .given_model import Gradient, flat_gradients, given_network

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class LeakedImages:
    """The images that an attack reconstructed from gradients; a notebook shows them.

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
        scores = score_images(self.images[order], truth)
        rows = [{"mse": one.mse, "psnr": one.psnr, "ssim": one.ssim} for one in scores]
        return pandas.DataFrame(rows).assign(image=order)

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
    """Return the attack that a name with options, or an object, stands for. Raises ConfigError as ``build``, and for
    options of an object.
    """
    if not isinstance(attack, str):
        if options:
            raise ConfigError(f"options belong to a named attack; set {sorted(options)[0]!r} on the object instead")
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
    plan = Plan(
        sizes=(samples,) * len(rows),
        rounds=1,
        cohort=Full(),
        lot=Full(),
        algorithm=FedSGD(learning_rate=1.0),
        layout=network.layout,
    )
    sent = Message(
        values=-rows.unsqueeze(0),
        present=torch.ones(1, len(rows), dtype=torch.bool),
        senders=tuple(range(len(rows))),
    )
    seen = RoundView(round=0, broadcast=weights.unsqueeze(0), reports=sent)
    images, labels = public_data(public, network.shape, network.classes)
    knowledge = Knowledge(
        level=Level.REALISTIC,
        network=network,
        plan=plan,
        law=lambda observer, client: law,
        public_images=images,
        public_labels=labels,
    )
    # After a step of size 1 along the mean gradient.
    after = weights - rows.mean(0)
    return View(observer=UPLOADS, plan=plan, rounds=(seen,), final_model=after.unsqueeze(0)), knowledge


def public_data(
    public: tuple[ArrayLike, ArrayLike] | None, shape: tuple[int, int, int], classes: int
) -> tuple[Tensor, Tensor]:
    """Return the caller's labelled images as tensors ``(m, *shape)`` and ``(m,)``; without them, objects that raise
    ValueError when an attack uses them.

    Raises ValueError for other shapes, images outside [0, 1] or unknown classes.
    """
    if public is None:
        missing = cast(Tensor, _Missing())
        return missing, missing
    return labelled_images("public", public, shape, classes)


def labelled_images(
    name: str, given: tuple[ArrayLike, ArrayLike], shape: tuple[int, int, int], classes: int
) -> tuple[Tensor, Tensor]:
    """Return labelled images as tensors ``(m, *shape)`` and ``(m,)``; the error names the argument ``name``."""
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
