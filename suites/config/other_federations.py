"""What vertical federations and transfers have in common in a suite: which parts run on them, and their calibration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        mappings: its fields that are dictionaries by ``claim_id``, and the class of their values.
    """

    prepared: type[Any]
    protection: type[Any]
    mappings: Mapping[str, Any] = field(default_factory=dict)

    def why_not(self, found: object) -> str:
        """Return which field of ``found`` is wrong, and what it was; empty string if all are of these classes."""
        if not isinstance(found, self.prepared):
            return f"got {_shown(found)}"
        if not isinstance(found.protection, self.protection):
            return f"protection must be a {self.protection.__name__}, got {_shown(found.protection)}"
        if not isinstance(found.claims, tuple | list):
            return f"claims must be a tuple of Claim, got {_shown(found.claims)}"
        wrong = [claim for claim in found.claims if not isinstance(claim, Claim)]
        if wrong:
            return f"claims must be a tuple of Claim, got {_shown(wrong[0])} in it"
        each = (_why_no_mapping(name, getattr(found, name), kind) for name, kind in self.mappings.items())
        return next((words for words in each if words), "")


def _why_no_mapping(name: str, found: object, kind: Any) -> str:
    wanted = f"{name} must be a dictionary of {kind.__name__} by claim_id"
    if not isinstance(found, Mapping):
        return f"{wanted}, got {_shown(found)}"
    wrong = [f"{_shown(key)}: {_shown(value)}" for key, value in found.items() if not isinstance(value, kind)]
    return f"{wanted}, got {wrong[0]} in it" if wrong else ""


def _shown(value: object) -> str:
    """A number or a text as it is, and the type of any other object, whose own words may be its address."""
    plain = value is None or isinstance(value, bool | int | float | str)
    return f"{value!r:.80}" if plain else f"an object of type {type(value).__name__}"


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
    why = returns.why_not(prepared)
    if why:
        wanted = f"{returns.prepared.__name__}(protection, claims)"
        raise ConfigError(f"defense {entry.label}: prepare(plan) must return {wanted}: {why}")
    return prepared
