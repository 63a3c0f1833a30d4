"""List federations, defenses and attacks in a report in the order of the suite file."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .run_folder import RunFolder, once_per_run


@dataclass(frozen=True, kw_only=True)
class Order:
    """A sort order of labels, needed because a parallel run writes its result rows in no fixed order."""

    federations: tuple[str, ...]
    defenses: tuple[str, ...]
    attacks: tuple[str, ...]

    @classmethod
    def of(cls, folder: RunFolder) -> "Order":
        """Return the suite's order of labels; labels that the suite does not name follow alphabetically."""
        return _order(folder)

    def federation(self, label: str) -> int:
        return self.federations.index(label)

    def defense(self, label: str) -> int:
        return self.defenses.index(label)

    def attack(self, label: str) -> int:
        return self.attacks.index(label)


@once_per_run
def _order(folder: RunFolder) -> Order:
    suite, records = folder.manifest.suite, folder.rows()
    # A federation may have the name of a defense, so the table of the label's own kind comes first.
    texts = list(_texts(suite))
    federations, defenses, attacks = (
        [*_labels(suite.get(kind)), *texts] for kind in ("federations", "defenses", "attacks")
    )
    return Order(
        federations=_ranked(federations, (r.federation for r in records), (c.federation for c in folder.claims)),
        defenses=_ranked(defenses, (r.defense for r in records), (c.defense for c in folder.claims)),
        attacks=_ranked(attacks, (r.attack for r in records)),
    )


def _labels(table: Any) -> list[str]:
    return list(table) if isinstance(table, dict) else []


def _texts(node: Any) -> Iterator[str]:
    """Every key and text of a nested suite in reading order, whatever its schema."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for key, child in node.items():
            yield str(key)
            yield from _texts(child)
    elif isinstance(node, list | tuple):
        for child in node:
            yield from _texts(child)


def _ranked(named: Sequence[str], *labels: Iterable[str]) -> tuple[str, ...]:
    present = {label for group in labels for label in group}
    # Reversed, so that the first occurrence of a repeated label gives its position.
    positions = {label: place for place, label in reversed(list(enumerate(named)))}
    return tuple(sorted(present, key=lambda label: (positions.get(label, len(named)), label)))
