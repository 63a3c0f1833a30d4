"""Find the attack with the largest AUC among all attacks with the same observer and the same attacked unit."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...audit.claim import Unit
from ...audit.observer import Observer
from .membership import Membership
from .pooling import LEVEL

ADVERSARIES = ("realistic", "worst_case", "active")
Question = tuple[Observer, Unit]
"""What an attack tries to infer: the observer that it has, and the unit whose membership it guesses."""


@dataclass(frozen=True, kw_only=True)
class BestAttack:
    """The attack with the largest AUC for one observer, attacked unit and kind of adversary (realistic, worst-case or
    active). ``ends`` is the confidence interval of the AUC, corrected for the number of attacks compared.
    """

    one: Membership
    ends: tuple[float, float] | None

    @property
    def question(self) -> Question:
        return self.one.setting.observer, self.one.setting.unit


def best_attacks(found: Sequence[Membership]) -> list[BestAttack]:
    """Find the attack with the largest AUC for each defense, observer, attacked unit and kind of adversary (realistic,
    worst-case or active), in the order of the given attacks ``found``.
    """
    places: dict[tuple[str, Question], list[Membership]] = {}
    for one in found:
        # Adversaries with different knowledge are kept apart below: a worst-case attack would hide every realistic one.
        places.setdefault((one.defense, (one.setting.observer, one.setting.unit)), []).append(one)
    chosen = []
    for here in places.values():
        for kind in ADVERSARIES:
            if alike := [one for one in here if one.adversary == kind]:
                best = max(alike, key=lambda one: one.area)
                # Choosing the best of several would inflate its bound: Bonferroni over all that could have been chosen.
                chosen.append(BestAttack(one=best, ends=best.interval(1 - (1 - LEVEL) / len(here))))
    return chosen


def in_order(questions: Sequence[Question]) -> list[Question]:
    """Return the distinct pairs of observer and attacked unit, those with the strongest observer first."""
    return sorted(set(questions), key=lambda question: (-question[0].rank, str(question[0]), question[1]))
