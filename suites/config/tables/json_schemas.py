"""Define JSON Schemas of the keys sampling, partition and algorithm of a suite; each takes a word or a table."""

from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any

from ....fl.algorithms.algorithm import KNOWN_ALGORITHMS
from ....fl.partitions.partitions import KNOWN_PARTITIONS

Shape = dict[str, Any]


def one_of(names: Iterable[str]) -> Shape:
    """Return the JSON Schema of a text that must be one of the given words."""
    return {"type": "string", "enum": list(names)}


def part_of(names: Iterable[str]) -> Shape:
    """Return the JSON Schema of a part: a name of the catalogue, the path of a part from outside, or a table."""
    return {"anyOf": [one_of(names), {"type": "string"}, _OUTSIDE]}


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
LOT: Shape = {
    "description": "The samples of a local step: all of them, each with the same probability, or a fixed number.",
    "anyOf": [*_RULES, _PATH, _OUTSIDE],
}
COHORT: Shape = {
    "description": "The clients of a round: all of them, each with the same probability, a fixed number, or the next "
    "ones of a pass over all clients.",
    "anyOf": [*_RULES, _PATH, _OUTSIDE, _single("epoch", {"type": "integer", "minimum": 1})],
}
PARTITION: Shape = {
    "description": "How samples are distributed over clients: a word, or a table with its kind and fields.",
    "anyOf": [
        one_of(kind for kind, part in KNOWN_PARTITIONS.items() if not fields(part)),
        *(_table({"kind": {"const": kind}}, part) for kind, part in KNOWN_PARTITIONS.items()),
        _PATH,
        _OUTSIDE,
    ],
}
_CONSTANTS: Shape = {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}, "minItems": 1}]}
NORMALISE: Shape = {
    "description": "Mean and standard deviation by which the model scales its input, for all channels or for each.",
    "type": "object",
    "properties": {"mean": _CONSTANTS, "std": _CONSTANTS},
    "required": ["mean", "std"],
    "additionalProperties": False,
}
ALGORITHM: Shape = {
    "description": "How a client computes its update and the server applies the updates.",
    "anyOf": [
        *(_table({"name": {"const": name}}, part) for name, part in KNOWN_ALGORITHMS.items()),
        _PATH,
        _OUTSIDE,
    ],
}
