"""Read from the tables of a suite of which kind each federation is, who takes part, and how long it trains."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...audit.wording import counted


@dataclass(frozen=True, kw_only=True, eq=False)
class FederationKind:
    """A kind of federation.

    Args:
        name: as the field calls it.
        table: its table of a suite file.
        rounds: the key that holds the number of its rounds; empty likewise.
        round_word: one round; empty where all is released at once.
        sizes: the whole numbers that describe its size, by key, each with its word.
        audit: what an audit of its claims does, in a sentence.
        arms: the two arms of its audits.
    """

    name: str
    table: str
    rounds: str
    round_word: str
    sizes: Mapping[str, str]
    audit: str
    arms: str

    def span(self, rounds: int) -> str:
        """Return over what a claim about this kind of federation holds, given its number of rounds."""
        return f"over {counted(rounds, self.round_word)}" if self.round_word else "over all queries together"


HORIZONTAL = FederationKind(
    name="horizontal",
    table="federations",
    rounds="rounds",
    round_word="round",
    sizes={"clients": "client", "rounds": "round"},
    audit="An audit runs the federation many times with and many times without a planted unit (the canary), and an "
    "attack guesses which runs contained it.",
    arms="the number of runs with the canary, and as many without",
)
VERTICAL = FederationKind(
    name="vertical",
    table="vertical",
    rounds="epochs",
    round_word="epoch",
    sizes={"people": "person", "epochs": "epoch"},
    audit="An audit of a vertical federation trains a small one many times with either of two labels, or of two rows, "
    "of one person, and a score guesses which it was; or it guesses the labels of one training.",
    arms="the number of runs with one of the two labels or rows, and as many with the other",
)
TRANSFER = FederationKind(
    name="transfer",
    table="transfer",
    rounds="",
    round_word="",
    sizes={"teachers": "teacher", "queries": "query", "students": "student per seed"},
    audit="An audit of a transfer runs the mechanism of the votes many times on either of two neighbouring inputs, and "
    "a score guesses which it was.",
    arms="the number of runs on one of the two neighbouring inputs, and as many on the other",
)
KINDS = (HORIZONTAL, VERTICAL, TRANSFER)
_PLURALS = {"person": "people", "query": "queries", "student per seed": "students per seed"}


def federation_tables(suite: Mapping[str, Any]) -> dict[str, tuple[FederationKind, Mapping[str, Any]]]:
    """Return the kind and the table of each federation of a manifest's suite, by name, in the suite's order."""
    found: dict[str, tuple[FederationKind, Mapping[str, Any]]] = {}
    for kind in KINDS:
        tables = suite.get(kind.table)
        # A folder of another version may list the names alone.
        named = tables.items() if isinstance(tables, Mapping) else ()
        found |= {name: (kind, table) for name, table in named if isinstance(table, Mapping)}
    return found


def whole_number(table: Mapping[str, Any], key: str) -> int | None:
    """Return the whole number that a table holds; None if it holds none."""
    found = table.get(key)
    # Not isinstance: True is an int in Python, and a hand-edited manifest may hold it.
    return found if type(found) is int else None


def size_words(kind: FederationKind, table: Mapping[str, Any]) -> list[str]:
    """Return who takes part in a federation and how long it trains, such as ``25 teachers``; what the table does not
    state is left out.
    """
    sizes = [(whole_number(table, key), word) for key, word in kind.sizes.items()]
    parties = [_parties(table)] if kind is VERTICAL else []
    return [*filter(None, parties), *(_counted(number, word) for number, word in sizes if number is not None)]


def _counted(number: int, word: str) -> str:
    return f"{number:,} {_PLURALS[word]}" if word in _PLURALS and number != 1 else counted(number, word)


def _parties(table: Mapping[str, Any]) -> str:
    """The parties in words: how many there are, and how many of them hold columns."""
    columns = table.get("columns")
    holders = len(columns) if isinstance(columns, list | tuple) else whole_number(table, "columns")
    if holders is None:
        return ""
    held = f"{holders} {'party' if holders == 1 else 'parties'} with columns"
    return f"{held}, one of them with the labels" if table.get("active") is True else f"{held} and one with the labels"
