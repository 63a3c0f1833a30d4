"""Needs: what an attack asks of the federations that it looks at, checked before anything runs."""

from collections.abc import Iterable

from ...attacks.attack import Attack
from ...fl.data.datasets import load_dataset
from ...fl.models.models import SEGMENTERS
from .source import ConfigError
from .suite import SuiteSpec

LEAST_SIDE = 3
"""Pixels per side below which SSIM has no window: rows of a table are not images."""


def check_federations(attack: Attack, path: str, federations: Iterable[str], spec: SuiteSpec, where: str) -> None:
    """Whether ``attack``, the part at ``path``, can look at these federations of ``spec``.

    Raises:
        ConfigError: for an attack that reconstructs images where there are none (no image score reads a table's rows),
            or one that needs a label an image where a segmenter has one a pixel; it begins with ``where``.
    """
    for name in federations:
        federation = spec.federations[name]
        _, height, width = load_dataset(federation.dataset).shape
        if attack.reconstructs and min(height, width) < LEAST_SIDE:
            raise ConfigError(
                f"{where}: {path} reconstructs images of at least {LEAST_SIDE}x{LEAST_SIDE} pixels; "
                f"{federation.dataset}, of federation {name}, has {height}x{width}: name federations of images, or "
                "leave the attack out"
            )
        if federation.model in SEGMENTERS and not attack.pixelwise:
            raise ConfigError(
                f"{where}: {path} needs a label an image; federation {name} trains {federation.model}, whose labels "
                "are one a pixel: name federations of classifiers, or leave the attack out"
            )


def check_audit(spec: SuiteSpec, where: str) -> None:
    """Raise ConfigError for an audit whose canary has a label an image where its model has one a pixel."""
    audit = spec.audit
    if audit is not None and audit.model in SEGMENTERS and audit.canary in ("mislabelled", "crafted"):
        raise ConfigError(f"{where}: canary {audit.canary!r} has a label an image, {audit.model} has one a pixel")
