"""Check that a part, of the catalogue or from outside, does what its kind requires."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...attacks.attack import AttackPart
from ...attacks.transfer.vote_attack import VoteAttack
from ...attacks.vertical.attack import VerticalAttack
from ...audit.estimators.catalogue import Estimator, describe, estimators
from ...audit.parts import build, find_outside, points
from ...audit.wording import nearest
from ...checks.canaries import canary_kind
from ...defenses.defense import DefensePart
from ...defenses.transfer.defense import TransferDefense
from ...defenses.vertical.defense import VerticalDefense
from ...fl.algorithms import KNOWN_ALGORITHMS, Algorithm, algorithm_from
from ...fl.data.dataset import Dataset
from ...fl.data.datasets import KNOWN_DATASETS, load_dataset
from ...fl.data.files.lookup import dataset_from, names_a_file
from ...fl.partitions import KNOWN_PARTITIONS, Partition, partition_from
from ...fl.sampling import Sampling, cohort_from
from ..config.catalogue import build as build_class
from ..config.catalogue import find as find_class
from ..config.catalogue import own_names
from ..config.part_files import own_parts
from ..config.source import ConfigError
from .attack import ATTACK_CHECKS, TRANSFER_ATTACK_CHECKS, VERTICAL_ATTACK_CHECKS
from .audit_parts import CANARY_CHECKS, ESTIMATOR_CHECKS
from .check import LIMIT, CheckedPart, CheckOutcome, ConformanceCheck, run_checks
from .defense import DEFENSE_CHECKS, TRANSFER_DEFENSE_CHECKS, VERTICAL_DEFENSE_CHECKS
from .federation_parts import ALGORITHM_CHECKS, DATASET_CHECKS, MODEL_CHECKS, PARTITION_CHECKS, SAMPLING_CHECKS
from .toys import usual_values

SAMPLING: dict[str, Any] = {
    "full": "full",
    "poisson": {"poisson": 0.25},
    "fixed_size": {"fixed_size": 3},
    "epoch": {"epoch": 4},
}
"""The catalogue's sampling rules with the amounts at which they are checked."""
_CHECKS: dict[str, tuple[ConformanceCheck, ...]] = {
    "dataset": DATASET_CHECKS,
    "model": MODEL_CHECKS,
    "algorithm": ALGORITHM_CHECKS,
    "partition": PARTITION_CHECKS,
    "sampling": SAMPLING_CHECKS,
    "canary": CANARY_CHECKS,
    "estimator": ESTIMATOR_CHECKS,
    "defense": DEFENSE_CHECKS,
    "attack": ATTACK_CHECKS,
}


def known_parts(kind: str) -> tuple[str, ...]:
    """Return the names of the catalogue's parts of one kind."""
    return tuple(own_parts(kind)) if kind in ("attack", "defense") else own_names(kind)  # type: ignore[arg-type]


def check_part(
    name: str, *, kind: str | None = None, options: Mapping[str, Any] | None = None, limit: float = LIMIT
) -> Iterator[CheckOutcome]:
    """Run the conformance checks of a part and yield the outcome of each.

    Args:
        name: of the catalogue or of an entry point, ``package.module:Name`` or ``file.py:Name``.
        kind: of the part, such as ``model``; by default it is found out from the part.
        options: of the part.
        limit: seconds that one check may take.

    Raises:
        ConfigError: if the part cannot be found, or is not of the kind.
    """
    checks, subject = checks_and_subject(name, kind=kind, options=options)
    yield from run_checks(checks, subject, limit=limit)


def checks_and_subject(
    name: str, *, kind: str | None = None, options: Mapping[str, Any] | None = None
) -> tuple[tuple[ConformanceCheck, ...], CheckedPart]:
    """Return the conformance checks for a part's kind, and the object to which they apply.

    Raises:
        ConfigError: as ``check_part``.
    """
    if kind is None:
        kind = kind_of(name)
    elif kind not in _CHECKS:
        raise ConfigError(f"unknown kind of part {kind!r}; known: {nearest(kind, _CHECKS)}")
    found, given = kind, dict(options or {})
    _find(found, name)
    subject = CheckedPart(kind=found, name=name, options=given, make=lambda: _make(found, name, given))
    return _of_other_federations(found, name) or _CHECKS[found], subject


def _of_other_federations(kind: str, name: str) -> tuple[ConformanceCheck, ...]:
    """The checks of a part of vertical federations or of transfers; empty for other parts."""
    if kind not in ("attack", "defense"):
        return ()
    part = find_class(kind, name)  # type: ignore[arg-type]
    found = {
        VerticalDefense: VERTICAL_DEFENSE_CHECKS,
        VerticalAttack: VERTICAL_ATTACK_CHECKS,
        TransferDefense: TRANSFER_DEFENSE_CHECKS,
        VoteAttack: TRANSFER_ATTACK_CHECKS,
    }
    return next((checks for base, checks in found.items() if issubclass(part, base)), ())


def kind_of(name: str) -> str:
    """Return the kind of a part, found among the catalogue's names or from the object that the name refers to.

    Raises:
        ConfigError: if it cannot be found, or may be of several kinds or of none.
    """
    if ":" not in name:
        kinds = [kind for kind in _CHECKS if name in known_parts(kind) or name in points(kind)]
        if not kinds and names_a_file(name):
            return "dataset"
        if len(kinds) == 1:
            return kinds[0]
        if kinds:
            raise ConfigError(f"{name!r} is the name of several parts: give --kind {' or --kind '.join(kinds)}")
        known = [part for kind in _CHECKS for part in known_parts(kind)]
        raise ConfigError(
            f"unknown part {name!r}; known: {nearest(name, known)}; name one of your own as package.module:Name or "
            "file.py:Name"
        )
    try:
        part = find_outside("model", name)
    except ValueError as error:
        raise ConfigError(str(error).replace("model ", "part ", 1)) from error
    found = _guessed(part)
    if found is None:
        raise ConfigError(
            f"the kind of the part {name!r} does not follow from {part!r:.80}: give --kind, one of {', '.join(_CHECKS)}"
        )
    return found


def _guessed(part: Any) -> str | None:
    """The kind of an object: by its base class, its members, or the arguments of a function."""
    owner = part if isinstance(part, type) else type(part)
    bases = {"defense": DefensePart, "attack": AttackPart, "sampling": Sampling, "dataset": Dataset}
    for kind, base in bases.items():
        if issubclass(owner, base):
            return kind
    for kind, interface in (("algorithm", Algorithm), ("partition", Partition)):
        if all(hasattr(part, name) for name in vars(interface) if not name.startswith("_") and name != "exchangeable"):
            return kind
    if not inspect.isroutine(part):
        return None
    taken = [one.name for one in inspect.signature(part).parameters.values() if one.default is one.empty]
    returned = str(getattr(part, "__annotations__", {}).get("return", ""))
    if "Measurement" in returned:
        return "estimator"
    if "Canary" in returned or taken[:1] == ["inputs"]:
        return "canary"
    if taken[:2] == ["shape", "classes"] or "Module" in returned:
        return "model"
    return "dataset" if not taken or "Dataset" in returned else None


def _find(kind: str, name: str) -> None:
    """Raise ConfigError if there is no such part."""
    if name in known_parts(kind) or (kind == "dataset" and names_a_file(name)):
        return
    try:
        find_outside(kind, name, known_parts(kind))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _make(kind: str, name: str, options: dict[str, Any]) -> Any:
    """The part, built from its options and, in the catalogue, from usual values of what has no default."""
    if kind in ("attack", "defense"):
        return build_class(kind, name, options).instance  # type: ignore[arg-type]
    if kind == "estimator":
        return _estimator(name)
    if kind == "sampling" and name in SAMPLING:
        return cohort_from(SAMPLING[name], 12)
    if kind == "dataset" and name not in KNOWN_DATASETS and not names_a_file(name):
        # Not cached: every call has to build it anew.
        return dataset_from(build("dataset", {"part": name, **options}, {}), name)
    spec = {"part": name, **_usual(kind, name), **options}
    makers: dict[str, Callable[[Any], Any]] = {
        "dataset": load_dataset,
        "algorithm": algorithm_from,
        "partition": partition_from,
        "sampling": lambda given: cohort_from(given, 12),
        "canary": canary_kind,
    }
    return makers[kind](spec)


def _usual(kind: str, name: str) -> dict[str, Any]:
    """Usual values of the fields of an algorithm or partition that have no default."""
    known: dict[str, Any] = {**KNOWN_ALGORITHMS, **KNOWN_PARTITIONS}
    part = known.get(name) or (find_outside(kind, name) if kind == "algorithm" else None)
    return usual_values(part) if callable(part) else {}


def _estimator(name: str) -> Estimator:
    own = estimators()
    if name in own:
        return own[name]
    found = describe(name, find_outside("estimator", name, own))
    if found is None:
        raise ValueError(
            "an estimator must be a function whose first argument is annotated with a class of evidence, such as "
            "MembershipScores, and whose return annotation is Measurement"
        )
    return found
