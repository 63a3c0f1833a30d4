"""Define the types of the keys of a suite file, with their JSON Schemas: numbers, labels, and parts.

A part is given by its name, as a table, or as an object.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import partial
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, WithJsonSchema

from ....audit.parts import Spec, find_outside, is_path, label, name_and_options, points, written
from ....audit.wording import nearest
from ....checks.canaries import CANARIES
from ....fl.algorithms import KNOWN_ALGORITHMS, algorithm_from
from ....fl.data.datasets import KNOWN_DATASETS
from ....fl.data.files.lookup import DataFile, is_object, keep, names_a_file
from ....fl.models.layers import normalisation_from
from ....fl.models.small_models import known_models
from ....fl.partitions import KNOWN_PARTITIONS, partition_from
from ....fl.preparation import preparation_from
from ....fl.sampling import cohort_from, sampling_from
from ....fl.training.executor_choice import known_executors
from ..part_files import texts_of

Shape = dict[str, Any]


def one_of_shape(names: Iterable[str]) -> Shape:
    """Return the JSON Schema of a text that must be one of several words."""
    return {"type": "string", "enum": list(names)}


def part_of_shape(names: Iterable[str]) -> Shape:
    """Return the JSON Schema of a part: a name of the catalogue, the path of a part from outside the package, or a
    table.
    """
    return {"anyOf": [one_of_shape(names), {"type": "string"}, _OUTSIDE]}


_OUTSIDE: Shape = {"type": "object", "properties": {"part": {"type": "string"}}, "required": ["part"]}
"""A part from outside with its options, which only its own code knows."""


def _table(fixed: Shape, part: type) -> Shape:
    """A table with the ``fixed`` keys and the fields of a part; fields without a default are required."""
    # From the part itself, so that the schema always has its present fields.
    own = [field for field in fields(part) if field.init]
    needed = [field.name for field in own if field.default is MISSING and field.default_factory is MISSING]
    return {
        "type": "object",
        "properties": {**fixed, **{field.name: {} for field in own}},
        "required": [*fixed, *needed],
        "additionalProperties": False,
    }


def _single(key: str, amount: Shape) -> Shape:
    return {"type": "object", "properties": {key: amount}, "required": [key], "additionalProperties": False}


_PATH: Shape = {"type": "string", "pattern": ":"}
"""``package.module:Name`` or ``file.py:Name``."""
_RULES = [
    {"const": "full"},
    _single("poisson", {"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
    _single("fixed_size", {"type": "integer", "minimum": 1}),
]
_EPOCH: Shape = {
    "type": "object",
    "properties": {
        "epoch": {"type": "integer", "minimum": 1},
        "same": {"type": "boolean"},
        "probability": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    },
    "required": ["epoch"],
    "additionalProperties": False,
}
LOT_SHAPE: Shape = {
    "description": "The samples of a local step: all of them, each with the same probability, or a fixed number.",
    "anyOf": [*_RULES, _PATH, _OUTSIDE],
}
COHORT_SHAPE: Shape = {
    "description": "The clients of a round: all of them, each with the same probability, a fixed number, or the next "
    "ones of a pass over all clients.",
    "anyOf": [*_RULES, _PATH, _OUTSIDE, _EPOCH],
}
PARTITION_SHAPE: Shape = {
    "description": "How samples are distributed over clients: a partition's name, or a table of its kind and options.",
    "anyOf": [
        one_of_shape(kind for kind, part in KNOWN_PARTITIONS.items() if not fields(part)),
        *(_table({"kind": {"const": kind}}, part) for kind, part in KNOWN_PARTITIONS.items()),
        _PATH,
        _OUTSIDE,
    ],
}
_CONSTANTS: Shape = {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}, "minItems": 1}]}
NORMALISE_SHAPE: Shape = {
    "description": "Mean and standard deviation by which the model scales its input: one number each, or one "
    "number per channel.",
    "type": "object",
    "properties": {"mean": _CONSTANTS, "std": _CONSTANTS},
    "required": ["mean", "std"],
    "additionalProperties": False,
}
PREPARATION_SHAPE: Shape = {
    "description": "How the records are prepared before the training: a path (package.module:Name), or a "
    "table with the path as key part, and options.",
    "anyOf": [_PATH, _OUTSIDE],
}
ALGORITHM_SHAPE: Shape = {
    "description": "How a client computes its update and the server applies the updates.",
    "anyOf": [
        *(_table({"name": {"const": name}}, part) for name, part in KNOWN_ALGORITHMS.items()),
        _PATH,
        _OUTSIDE,
    ],
}


Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\-]{1,40}$")]


def _parsed_by(parser: Callable[[Any], object], kind: str = "") -> AfterValidator:
    """Check a value with its parser, but keep it as written: the manifest must hold the user's own text."""

    def check(value: Any) -> Any:
        if kind and is_path(kind, value):  # Imported later, when the suite's folder is on the import path.
            return value
        try:
            parser(value)
        except TypeError as error:  # A number or a list in place of a name or a table.
            raise ValueError(f"the value cannot be read, got {value!r} ({error})") from None
        return value

    return AfterValidator(check)


def _given(kind: str) -> BeforeValidator:
    """Write a part that Python code gives as an object as a suite file would name it."""
    return BeforeValidator(_kept_dataset if kind == "dataset" else partial(written, kind))


def _kept_dataset(value: Any) -> Any:
    return keep(value) if is_object(value) else written("dataset", value)


def part_table(kind: str) -> BeforeValidator:
    """Write a defense or attack that Python code gives as a class or object, or as the ``part`` of a table."""

    def table(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {**value, "part": written(kind, value["part"])} if "part" in value else value
        if isinstance(value, str | BaseModel):
            return value
        given = written(kind, value)
        return {"part": given} if isinstance(given, str) else given

    return BeforeValidator(table)


def _part(kind: str, known: Iterable[str]) -> AfterValidator:
    """Check the name of a part; its options are checked where it is built."""
    own = tuple(known)

    def check(value: Any) -> Any:
        name, _ = name_and_options(kind, value)
        if kind == "dataset" and names_a_file(name):  # Read later, when the suite's folder is known.
            return value
        if name not in own and ":" not in name and name not in points(kind):
            find_outside(kind, name, own)
        return value

    return AfterValidator(check)


def _one_of(what: str, known: tuple[str, ...]) -> AfterValidator:
    def check(value: str) -> str:
        if value not in known:
            raise ValueError(f"unknown {what} {value!r}; known: {nearest(value, known)}")
        return value

    return AfterValidator(check)


# Read from the text of the audit methods, which are above this folder: a new method brings the design that chooses it.
DESIGNS = tuple(dict.fromkeys(texts_of("design", "suites.audits")))
Whole = Annotated[int, Field(strict=True)]
Number = Annotated[float, Field(strict=True)]
"""Strict, so that neither ``"0.05"`` nor ``true`` counts as a number."""
YesOrNo = Annotated[bool, Field(strict=True)]
"""Strict, so that neither ``0`` nor ``"yes"`` counts as ``true`` or ``false``."""
Cohort = Annotated[
    Any, _given("sampling"), _parsed_by(partial(cohort_from, clients=1), "sampling"), WithJsonSchema(COHORT_SHAPE)
]
Lot = Annotated[Any, _given("sampling"), _parsed_by(sampling_from, "sampling"), WithJsonSchema(LOT_SHAPE)]
Partition = Annotated[
    Any, _given("partition"), _parsed_by(partition_from, "partition"), WithJsonSchema(PARTITION_SHAPE)
]
PreparationPart = Annotated[
    Any, _given("preparation"), _parsed_by(preparation_from, "preparation"), WithJsonSchema(PREPARATION_SHAPE)
]
Normalise = Annotated[dict[str, Any], _parsed_by(normalisation_from), WithJsonSchema(NORMALISE_SHAPE)]
Algorithm = Annotated[
    Any, _given("algorithm"), _parsed_by(algorithm_from, "algorithm"), WithJsonSchema(ALGORITHM_SHAPE)
]
DatasetPart = Annotated[
    Any, _given("dataset"), _part("dataset", KNOWN_DATASETS), WithJsonSchema(part_of_shape(KNOWN_DATASETS))
]
ModelPart = Annotated[
    Any, _given("model"), _part("model", known_models()), WithJsonSchema(part_of_shape(known_models()))
]
EstimatorPart = Annotated[Any, _given("estimator"), WithJsonSchema(part_of_shape(()))]
CanaryPart = Annotated[Any, _given("canary"), _part("canary", CANARIES), WithJsonSchema(part_of_shape(CANARIES))]
KNOWN_DEVICES = ("cpu", "cuda")
DeviceName = Annotated[str, _one_of("device", KNOWN_DEVICES), WithJsonSchema(one_of_shape(KNOWN_DEVICES))]
ExecutorName = Annotated[str, _one_of("executor", known_executors()), WithJsonSchema(one_of_shape(known_executors()))]
DesignName = Annotated[str, _one_of("design", DESIGNS), WithJsonSchema(one_of_shape(DESIGNS))]


def is_absent(value: object) -> bool:
    """Whether a setting is absent. An absent setting does not enter the hash of the configuration, so that older suites
    keep their hash.
    """
    return value is None


def is_empty(value: dict[str, Any]) -> bool:
    """Return whether a table has no entry. An empty table does not enter the hash of the configuration, so that older
    suites keep their hash.
    """
    return not value


class SuiteTable(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class WithData(SuiteTable):
    """Settings with a data set, which may be a file that is read from the suite's folder."""

    dataset: DatasetPart = "digits"
    """Name of a data set (``fedassay list datasets``), a file, or a table of its ``part`` and options."""
    _folder: str = PrivateAttr(default="")
    _digests: dict[str, str] = PrivateAttr(default_factory=dict)

    def reading(self, folder: str, digests: dict[str, str]) -> Self:
        """Return the same settings for reading data files. ``folder``: where relative paths begin; ``digests``: the
        required digests, keyed by the data set's label. Neither belongs to the settings themselves.
        """
        found = self.model_copy()
        found._folder, found._digests = folder, digests
        return found

    def reading_alone(self, folder: str, digest: str) -> Self:
        """Return the same settings for reading a single data file in ``folder`` that has this digest."""
        return self.reading(folder, {label("dataset", self.dataset): digest})

    @property
    def data(self) -> Spec | DataFile:
        """The data set to load; for a file, with its folder."""
        name, options = name_and_options("dataset", self.dataset)
        if not names_a_file(name):
            given: Spec = self.dataset
            return given
        return DataFile.of(name, options, self._folder, self.digest)

    @property
    def folder(self) -> str:
        """The folder to which a relative path of the data set refers."""
        return self._folder

    @property
    def digest(self) -> str:
        """The required digest of the data; empty if it is not known."""
        return self._digests.get(label("dataset", self.dataset), "")
