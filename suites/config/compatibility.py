"""Check before a run that attacks and audits fit the data and the model of their federations."""

from collections.abc import Iterable

from ...attacks.attack import Attack
from ...audit.outside import Spec, label
from ...fl.data.datasets import load_dataset
from ...fl.data.files.lookup import DataFile
from ...fl.task import network_of
from .canaries import canary_kind
from .source import ConfigError
from .suite import Suite

LEAST_SIDE = 3
"""Pixels per side. Smaller inputs, such as the rows of a table, are not scored as images: SSIM has no window there."""


def check_federations(attack: Attack, path: str, federations: Iterable[str], spec: Suite, where: str) -> None:
    """Raise ConfigError if the attack named ``path`` cannot run on one of ``federations``, which the suite ``spec``
    defines.

    Raises:
        ConfigError: for an attack that reconstructs images where the data are rows of a table, or one that needs one
            label per image where the model has one per pixel; the message starts with ``where``.
    """
    for name in federations:
        federation = spec.federations[name]
        data, model = label("dataset", federation.dataset), label("model", federation.model)
        _, height, width = load_dataset(federation.data).shape
        # Found before the run: the error of SSIM could come after hours of training and searching.
        if attack.reconstructs and min(height, width) < LEAST_SIDE:
            raise ConfigError(
                f"{where}: {path} reconstructs images of at least {LEAST_SIDE}x{LEAST_SIDE} pixels, but data set "
                f"{data} of federation {name} has {height}x{width}: run the attack only on federations "
                "with such images, or remove it"
            )
        if not attack.pixelwise and segments(federation.model, federation.data):
            raise ConfigError(
                f"{where}: {path} needs one label per image, but model {model} of federation {name} has one "
                "label per pixel: run the attack only on federations that train classifiers, or remove it"
            )


def segments(model: Spec, dataset: Spec | DataFile) -> bool:
    """Return whether a model has one output per pixel of the data set's images; False where it cannot be built, which
    is reported when its federation is set up.
    """
    try:
        return network_of(load_dataset(dataset), model, None).segments
    except ValueError:
        return False


def check_audit(spec: Suite, where: str) -> None:
    """Raise ConfigError if the audit adds an image with a single label as its canary, but trains a model that predicts
    one label per pixel.
    """
    audit = spec.audit
    # A canary that is an update has no label, so it fits every model.
    if audit is None or not canary_kind(audit.canary).image:
        return
    federation = spec.federations[audit.federation]
    used = federation.model_copy(update={"dataset": audit.dataset or federation.dataset})
    if segments(audit.model, used.data):
        raise ConfigError(
            f"{where}: canary {audit.canary!r} is an image with one label, but the model "
            f"{label('model', audit.model)} predicts one label per pixel"
        )
