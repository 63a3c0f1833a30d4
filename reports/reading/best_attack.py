"""BestAttack attack: of all that look from one place with one question, the one with the largest AUC."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...audit.claim import Unit
from ...audit.observer import Observer
from .membership import Membership

ADVERSARIES = ("realistic", "worst_case", "active")
LEVEL = 0.95
"""Of the intervals of all attacks on one place together."""
Level = tuple[Observer, Unit]
"""A place: who looks, and for what."""


@dataclass(frozen=True, kw_only=True)
class BestAttack:
    """The best attack of one kind of adversary at one place; ``ends``: its interval, for all attacks there at once."""

    one: Membership
    ends: tuple[float, float] | None

    @property
    def level(self) -> Level:
        """Its place."""
        return self.one.setting.observer, self.one.setting.unit


def best_attacks(found: Sequence[Membership]) -> list[BestAttack]:
    """The largest AUC of each defense, place and kind of adversary, in the order in which they are found."""
    places: dict[tuple[str, Level], list[Membership]] = {}
    for one in found:
        places.setdefault((one.defense, (one.setting.observer, one.setting.unit)), []).append(one)
    chosen = []
    for here in places.values():
        for kind in ADVERSARIES:
            if alike := [one for one in here if one.adversary == kind]:
                best = max(alike, key=lambda one: one.area)
                chosen.append(BestAttack(one=best, ends=best.interval(1 - (1 - LEVEL) / len(here))))
    return chosen


def in_order(levels: Sequence[Level]) -> list[Level]:
    """Places once each, those who see most first."""
    return sorted(set(levels), key=lambda level: (-level[0].rank, str(level[0]), level[1]))
