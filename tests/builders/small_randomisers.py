"""Find all randomisers by file name, and build small instances whose possible reports can all be enumerated."""

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any

import numpy as np
from fedassay.defenses import randomisers as package
from fedassay.defenses.randomisers.randomiser import Randomiser

_RANGE: Mapping[str, Any] = {"radius": 1.0}
_DOMAIN: Mapping[str, Any] = {"domain": 10}
# Suffix of the name -> fields; a randomiser of one number needs its range alone.
_VARIANTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "clipped_laplace": {"": _RANGE, " reach 2": {**_RANGE, "reach": 2.0}},
    "condensed": {"": {**_RANGE, "steps": 10}},
    "em_mds": {"": {"dimension": 6, "top": 2, "chosen": 2}},
    "exponential": {"": {"candidates": 10, "sensitivity": 1.0}},
    "fedsel": {
        " sampling": {**_RANGE, "dimension": 8, "top": 3},
        " ranking": {**_RANGE, "dimension": 8, "rule": "ranking"},
    },
    "gaussian": {"": {**_RANGE, "delta": 1e-5}},
    "grr": {"": _DOMAIN},
    "local_hashing": {"": _DOMAIN},
    "rappor": {"": _DOMAIN},
    "subset_selection": {"": _DOMAIN},
    "unary": {" symmetric": {"domain": 6, "encoding": "symmetric"}, " optimised": {"domain": 6}},
}


def randomisers() -> dict[str, type[Randomiser]]:
    """Return a dictionary from file name to randomiser class, with all randomisers."""
    found = {}
    for entry in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(entry.name)
        for held in vars(module).values():
            if not inspect.isclass(held) or held.__module__ != module.__name__:
                continue
            # A base that several randomisers share names no source.
            if issubclass(held, Randomiser) and hasattr(held, "source"):
                found[entry.name.rpartition(".")[2]] = held
    return found


def small_randomisers(epsilon: float) -> dict[str, Randomiser]:
    """Return a dictionary with one small instance at ``epsilon`` of each randomiser and each of its variants; a key
    names randomiser and variant.
    """
    return {
        f"{name}{ending}": build(epsilon=epsilon, **fields)
        for name, build in randomisers().items()
        for ending, fields in _VARIANTS.get(name, {"": _RANGE}).items()
    }


def moments(randomiser: Randomiser, value: Any) -> tuple[Any, Any]:
    """Return mean and variance of the server's estimate from one report about ``value``, by its density."""
    outputs = randomiser.outputs(value)
    masses = outputs.weights * np.exp(randomiser.log_density(outputs.reports, value))
    estimates = randomiser.estimate(outputs.reports)
    mean = np.tensordot(masses, estimates, (0, 0))
    return mean, np.tensordot(masses, (estimates - mean) ** 2, (0, 0))
