"""Find out on which data set and model a claim was audited, where these are not those of the federation itself."""

from collections.abc import Iterable, Mapping

from .record import Record

Trained = tuple[str, str]
"""A data set and a model."""


def own_training(records: Iterable[Record]) -> dict[str, Trained]:
    """Return the data set and model that each federation trains, by its name, from the rows about its training."""
    return {row.federation: (row.dataset, row.model) for row in records if row.role in ("utility", "attack", "null")}


def audited_on(row: Record, own: Mapping[str, Trained]) -> str:
    """Return in words what the audit of this row trained; empty where it is what the federation trains."""
    return other_training((row.dataset, row.model), own.get(row.federation))


def other_training(used: Trained, own: Trained | None) -> str:
    """Return in words that an audit trained ``used`` and not ``own``; empty where they are equal."""
    if own is None or used == own:
        return ""
    if used[0] == own[0]:
        return f"audited on {used[0]} with {used[1]}, not {own[1]}"
    return f"audited on {used[0]} with {used[1]}, not {own[0]} with {own[1]}"
