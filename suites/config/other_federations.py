"""What vertical federations and transfers have in common in a suite: which parts run on them, and their calibration."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...attacks.attack import AttackPart
from ...audit.claim import Claim
from ...defenses.defense import DefensePart
from .resolve import AttackEntry, DefenseEntry, ResolvedSuite
from .source import ConfigError
from .tables.suite import PlanChange


@dataclass(frozen=True, kw_only=True)
class Prepares:
    """What ``prepare(plan)`` of a kind of defenses must return.

    Args:
        prepared: its class, with fields ``protection`` and ``claims``.
        protection: the base class of its protection.
        mappings: its fields that are dictionaries.
    """

    prepared: type[Any]
    protection: type[Any]
    mappings: tuple[str, ...] = ()

    def is_sound(self, found: object) -> bool:
        """Return whether ``found`` is of these classes, with a tuple of claims."""
        if not isinstance(found, self.prepared):
            return False
        claims, mappings = found.claims, (getattr(found, name) for name in self.mappings)
        return (
            isinstance(found.protection, self.protection)
            and isinstance(claims, tuple | list)
            and all(isinstance(claim, Claim) for claim in claims)
            and all(isinstance(one, Mapping) for one in mappings)
        )


def defenses_on(suite: ResolvedSuite, federation: str, base: type[DefensePart]) -> list[DefenseEntry]:
    """Return the defenses of a kind that run on a federation: those whose settings name it; if there are none, those
    whose settings name no federation.
    """
    entries = [entry for entry in suite.defenses if isinstance(entry.part.instance, base)]
    for entry in entries:
        _check_settings(suite, entry)
    chosen = [entry for entry in entries if entry.federation == federation]
    return chosen or [entry for entry in entries if entry.federation is None]


def _check_settings(suite: ResolvedSuite, entry: DefenseEntry) -> None:
    """Raise ConfigError for settings that only federations of clients have."""
    given = {"plan": entry.change != PlanChange(), "replicas": entry.replicas is not None}
    for key in [key for key, is_given in given.items() if is_given]:
        place = suite.source.where(("defenses", entry.label, key))
        raise ConfigError(
            f"{place}: defenses.{entry.label}.{key} changes federations of clients, and this defense runs on another "
            "kind, whose own table holds such settings"
        )


def attacks_on(suite: ResolvedSuite, federation: str, base: type[AttackPart]) -> list[AttackEntry]:
    """Return the attacks of a kind that run on a federation."""
    return [
        entry for entry in suite.attacks if isinstance(entry.part.instance, base) and federation in entry.federations
    ]


def calibrated_for(suite: ResolvedSuite, entry: DefenseEntry, federation: str, plan: Any, returns: Prepares) -> Any:
    """Calibrate a defense for a federation's plan.

    Raises:
        ConfigError: if the plan breaks an assumption of the defense, or the defense returns no valid claims.
    """
    try:
        prepared = entry.part.instance.prepare(plan)
    except Exception as error:  # A user's part may raise anything; nothing has run yet, so one message is enough.
        words = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        place = suite.source.where(("defenses", entry.label))
        raise ConfigError(
            f"{place}: defense {entry.label} cannot be prepared for federation {federation}: {words}"
        ) from error
    if not returns.is_sound(prepared):
        raise ConfigError(
            f"defense {entry.label}: prepare(plan) must return {returns.prepared.__name__}(protection, claims), "
            f"got {prepared!r}"
        )
    return prepared
