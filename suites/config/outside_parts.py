"""Lists the parts from outside that a suite names, with their versions, which enter the identity of its cells."""

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel

from ...audit.parts import KINDS, Spec, find_outside, label, name_and_options, points, version_of
from ...checks.canaries import CANARIES
from ...fl.algorithms.algorithm import KNOWN_ALGORITHMS
from ...fl.data.datasets import KNOWN_DATASETS
from ...fl.models.small_models import known_models
from ...fl.partitions.partitions import KNOWN_PARTITIONS

KEYS = {
    "dataset": "dataset",
    "model": "model",
    "partition": "partition",
    "cohort": "sampling",
    "lot": "sampling",
    "algorithm": "algorithm",
    "canary": "canary",
    "estimator": "estimator",
}
"""The keys of a suite's tables that name parts, with the kind of each."""


def parts_in(table: BaseModel | None) -> Iterator[tuple[str, str, Spec]]:
    """Yield the key, the kind and the value of each part that a table of a suite names."""
    for key, kind in KEYS.items():
        value = getattr(table, key, None)
        if isinstance(value, str) or (isinstance(value, dict) and _is_named(kind, value)):
            yield key, kind, value


def outside_versions(tables: Iterable[BaseModel | None]) -> dict[str, str]:
    """Return the version of each part from outside that the tables name, with a digest of its source; the package's own
    parts have no entry, so that they leave the identity of a cell as it is.
    """
    found: dict[str, str] = {}
    for _, kind, value in (part for table in tables for part in parts_in(table)):
        name, _ = name_and_options(kind, value)
        if is_outside(kind, name):
            found[f"{kind} {label(kind, value)}"] = version_of(find_outside(kind, name), name)
    return found


def is_outside(kind: str, name: str) -> bool:
    """Return whether a name is that of a part from outside: a path, or an entry point that no own part hides."""
    return ":" in name or (name not in own_names(kind) and name in points(kind))


def own_names(kind: str) -> tuple[str, ...]:
    """Return the names of the package's own data sets, models, algorithms, partitions, sampling rules, canaries or
    estimators.
    """
    if kind == "estimator":
        # Imported here, because estimators load scipy, which most suites do not need in order to be read.
        from ...audit.estimators.catalogue import estimators

        return tuple(estimators())
    known: dict[str, Iterable[str]] = {
        "dataset": KNOWN_DATASETS,
        "model": known_models(),
        "algorithm": KNOWN_ALGORITHMS,
        "partition": KNOWN_PARTITIONS,
        "sampling": ("full", "poisson", "fixed_size", "epoch"),
        "canary": CANARIES,
    }
    return tuple(known[kind])


def _is_named(kind: str, table: dict[str, Any]) -> bool:
    try:
        name_and_options(kind, table)
    except ValueError:
        return False
    return kind in KINDS
