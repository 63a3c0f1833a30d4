"""Describe in one line each the parts that a federation's table can name, for ``fedassay list``."""

import inspect
from collections.abc import Callable
from typing import Any

from ...audit.parts import load, points
from ...checks.canaries import CANARIES
from ...fl.algorithms.algorithm import KNOWN_ALGORITHMS
from ...fl.models.small_models import find_model, known_models
from ...fl.partitions.partitions import KNOWN_PARTITIONS
from ...fl.partitions.sampling import Epoch, FixedSize, Full, Poisson
from ..config.source import ConfigError


def summaries_of(kind: str) -> dict[str, str]:
    """Return the first docstring line of every model, algorithm, partition, sampling rule or canary by its name, those
    of entry points included.

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
