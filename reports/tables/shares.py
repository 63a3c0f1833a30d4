"""Show how unequally utility falls on classes and clients, and what a training costs in communication."""

from collections.abc import Callable, Mapping, Sequence

from ..reading.pooling import Pooled
from . import numerals
from .pooled_rows import UtilityRow
from .printed import defense_words, pooled_words
from .table import Table

_SPREAD_NOTE = (
    "{metric} of the final model. Classes: on the test images of each class{pixels}. Clients: on the samples with "
    "which each client trains. The auditor measures the values of clients from the clients' private data: they are not "
    "released, and no claim covers them. Worst clients: mean over the 10 % of the clients with the lowest values, "
    "rounded up (q-FFL, Li et al. 2020). Std: standard deviation over all classes or clients, each with equal weight. "
    "Means over seeds{intervals}."
)
_TRAFFIC_NOTE = (
    "Payload without transport overhead, means over seeds; 1 kB is 1,000 bytes. A client's report counts in the "
    "shortest of three plain encodings: every number at the size of its data type (at its word size in a secure sum); "
    "each number other than zero with an index of 4 bytes; or one bit per number, if the report takes two values only. "
    "Keys and shares of a secure sum and public numbers of a defense are not counted. Per client: of one client in one "
    "round. Per round: of all clients that take part in a round; empty rounds count 0 bytes in the mean."
)
_CLASSES = {
    "iou": "; for IoU of the pixels to find and of all others",
    "r2": "; a regression has no classes",
    "macro_f1": "; for macro F1 the F1 of each label",
}
_SPREAD = {
    "class": {"worst": "worst class", "mean": "mean of classes", "std": "std of classes"},
    "client": {"worst": "worst 10 % of clients", "mean": "mean of clients", "std": "std of clients"},
}
_TRAFFIC = {
    f"bytes_{way}_{part}": f"{verb} {words}"
    for way, verb in (("up", "sent"), ("down", "received"))
    for part, words in (("client", "per client"), ("round", "per round"), ("total", "in total"))
}


def spread_table(rows: Sequence[UtilityRow], intervals: bool = True) -> Table:
    """Return a table of the worst, the mean and the deviation of utility over classes and over clients."""
    known = {row.metric for row in rows}
    metrics = [name for name in numerals.HEADLINES if known & {f"class_{name}_mean", f"client_{name}_mean"}]
    columns = [(group, part) for group, parts in _SPREAD.items() for part in parts]

    def cells(found: Mapping[str, Pooled | None]) -> list[list[str]]:
        named = [[(f"{group}_{name}_{part}") for group, part in columns] for name in metrics]
        # A federation has one of the metrics, by its task.
        return [
            [numerals.metric(name).name, *(pooled_words(key, found.get(key), intervals) for key in keys)]
            for name, keys in zip(metrics, named, strict=True)
            if any(key in found for key in keys)
        ]

    headers = ("defense", "metric", *(_SPREAD[group][part] for group, part in columns))
    note = _SPREAD_NOTE.format(
        metric=" or ".join(numerals.metric(name).name for name in metrics).replace("accuracy", "Accuracy"),
        pixels="".join(words for name, words in _CLASSES.items() if name in metrics),
        intervals=" with 95 % t intervals" if intervals else "",
    )
    return Table(
        title="Utility by class and by client",
        headers=headers,
        rows=_by_defense(rows, cells),
        numeric=frozenset(range(2, len(headers))),
        about=2,
        note=note,
    )


def traffic_table(rows: Sequence[UtilityRow]) -> Table:
    """Return a table of the bytes that clients send and receive, per client and round, per round and in total."""

    def cells(found: Mapping[str, Pooled | None]) -> list[list[str]]:
        texts = [numerals.data_size(one.value if (one := found.get(key)) else None) for key in _TRAFFIC]
        return [texts] if found.keys() & _TRAFFIC.keys() else []

    return Table(
        title="Communication",
        headers=("defense", *_TRAFFIC.values()),
        rows=_by_defense(rows, cells),
        numeric=frozenset(range(1, len(_TRAFFIC) + 1)),
        note=_TRAFFIC_NOTE,
    )


def _by_defense(
    rows: Sequence[UtilityRow], cells: Callable[[Mapping[str, Pooled | None]], list[list[str]]]
) -> tuple[tuple[str, ...], ...]:
    """The cells of each defense, computed from its values by metric, behind its label."""
    many = len({row.federation for row in rows}) > 1
    groups: dict[tuple[str, str, bool], dict[str, Pooled | None]] = {}
    for row in rows:
        groups.setdefault((row.federation, row.defense, row.control), {})[row.metric] = row.pooled
    return tuple(
        (defense_words(defense, control, federation if many else ""), *line)
        for (federation, defense, control), found in groups.items()
        for line in cells(found)
    )
