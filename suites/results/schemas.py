"""Give the JSON Schema (2020-12) of the files that a run writes and reads: result rows, claims and suites."""

from typing import Any

from .claims_file import SCHEMA as CLAIMS
from .claims_file import ClaimsFile
from .record import SCHEMA as RESULT
from .record import Record

DIALECT = "https://json-schema.org/draft/2020-12/schema"
KINDS = ("result", "claim", "suite")
_SUITE = "suite-1"


def schema_of(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a line of results.jsonl (``result``), of claims.json (``claim``) or of a suite file
    (``suite``).

    A schema cannot express rules over several fields, such as that a name is a federation of the suite, or that a curve
    is as long as its epsilons: ``fedassay plan`` and the readers check these. Raises ValueError for another kind.
    """
    if kind == "result":
        return _result()
    if kind == "claim":
        return _headed(ClaimsFile.model_json_schema(), CLAIMS, "claims.json of a run of fedassay")
    if kind == "suite":
        return _suite()
    raise ValueError(f"schema must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {kind!r}")


def _result() -> dict[str, Any]:
    schema = Record.model_json_schema()
    # A written row always names its schema; only Python callers may rely on the default.
    schema["required"] = ["schema", *schema["required"]]
    return _headed(schema, RESULT, "A row of results.jsonl of a run of fedassay")


def _suite() -> dict[str, Any]:
    from ..config.source import FEDERATION_TABLES
    from ..config.tables.suite import Suite

    schema = Suite.model_json_schema()
    schema["required"] = [name for name in schema["required"] if name != "defenses"]
    for tables in (*FEDERATION_TABLES, "defenses", "attacks"):
        # Without this a label that the pattern refuses would be accepted as an additional property.
        schema["properties"][tables]["additionalProperties"] = False
    needed = (*([table, "defenses"] for table in FEDERATION_TABLES), ["mutants"])
    schema["anyOf"] = [{"required": names} for names in needed]
    return _headed(schema, _SUITE, "A suite file of fedassay")


def _headed(schema: dict[str, Any], name: str, title: str) -> dict[str, Any]:
    """The same schema, with its identifier and title first."""
    head = {"$schema": DIALECT, "$id": f"urn:fedassay:{name}", "title": title}
    return head | {key: value for key, value in schema.items() if key not in head}
