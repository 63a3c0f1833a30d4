"""Pair a run with a baseline metric by metric, and list the settings in which the two differ."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...suites.config.tables.margins import margins_with
from .baseline import Baseline, Instrument
from .cells import CellKey, Series
from .paired import CellOutcome, Change, holm, paired_change

_WHOLE = ("margins", "audit")
"""Tables of the instrument in which a key that only one run has counts as a difference."""


@dataclass(frozen=True, kw_only=True)
class PairedCell:
    """A metric that both runs measured; ``reached`` is True if the changes between the runs can have affected it (see
    ``compare_runs``).
    """

    key: CellKey
    reached: bool
    direction: str
    margin: float
    change: Change

    @property
    def outcome(self) -> CellOutcome:
        return self.change.outcome(self.margin)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs with their paired metrics and the differences between their settings.

    ``obstacles``: reasons why the two are not fully comparable, one sentence each. ``notes``: changes that are the
    purpose of the comparison (a defense) or harmless (a package). ``missing``, ``new``: cells that only the baseline or
    only the run has, with the seeds where the cell is common but some seeds are not.
    """

    base: Baseline
    run: Baseline
    cells: tuple[PairedCell, ...]
    missing: tuple[str, ...]
    new: tuple[str, ...]
    obstacles: tuple[str, ...]
    notes: tuple[str, ...]

    @cached_property
    def correlation(self) -> float | None:
        """The correlation of the two runs over seeds, averaged over metrics that vary in both; it shows how much
        pairing by seed helps.
        """
        found = [cell.change.correlation for cell in self.cells if cell.change.correlation is not None]
        return sum(found) / len(found) if found else None

    @property
    def family(self) -> int:
        """The number of compared metrics that share the error rate alpha."""
        return sum(cell.reached for cell in self.cells)

    def having(self, outcome: CellOutcome) -> list[PairedCell]:
        """Return the compared metrics with this outcome, the largest worsening (as a multiple of the metric's margin)
        first.
        """
        found = [cell for cell in self.cells if cell.outcome is outcome]
        return sorted(found, key=lambda cell: -cell.change.worse / cell.margin)


def compare_runs(base: Baseline, run: Baseline, *, margins: Mapping[str, float] | None = None) -> Comparison:
    """Pair the values of two runs by federation, defense, attack, observer, metric and seed.

    Common cells are compared even where something else has changed: the outcome is then INCOMPLETE, but the numbers
    are useful. Raises ValueError for a bad margin.

    Alpha is shared by the family of cells that the change can have affected: those whose identity differs. A cell of
    equal identity was computed from the same configuration and code and is not tested. This selection does not depend
    on the values. (Leaving out cells with equal values would select by the outcome, and inflate the false positive rate
    for metrics in coarse steps.) If a cell of equal identity has different values after all, code outside the
    identities has changed. Identities are then useless, and every cell is tested.
    """
    # Keys are sorted, so that equal runs give an equal report whatever the order of their rows.
    allowed, before, after = margins_with(margins), base.series(), run.series()
    pairs = {key: _shared(before[key], after[key]) for key in sorted(before.keys() & after.keys())}
    common = {key: seeds for key, seeds in pairs.items() if seeds}
    reached = _reached({key: (before[key], after[key]) for key in common})
    changes = {key: _change(before[key], after[key], seeds) for key, seeds in common.items()}
    # Holm's correction comes after the selection: cells that the change cannot reach must not use up alpha.
    changes |= dict(zip(reached, holm([changes[key] for key in reached]), strict=True))
    cells = tuple(
        PairedCell(
            key=key,
            reached=key in reached,
            # A direction that differs between the runs is listed as an obstacle; the present one is used here.
            direction=after[key].direction,
            margin=allowed[key.metric],
            change=change,
        )
        for key, change in changes.items()
    )
    return Comparison(
        base=base,
        run=run,
        cells=cells,
        missing=tuple(_alone(before, after)),
        new=tuple(_alone(after, before)),
        obstacles=tuple(_obstacles(base, run)),
        notes=tuple(_notes(base, run)),
    )


def _reached(pairs: Mapping[CellKey, tuple[Series, Series]]) -> list[CellKey]:
    same = {key for key, (then, now) in pairs.items() if then.identity == now.identity}
    # Equal identities with different values can only come from code that the identities do not cover.
    if any(pairs[key][0].values != pairs[key][1].values for key in same):
        return list(pairs)
    return [key for key in pairs if key not in same]


def _shared(before: Series, after: Series) -> list[int]:
    return sorted(before.values.keys() & after.values.keys())


def _change(before: Series, after: Series, seeds: list[int]) -> Change:
    one, two = ([series.values[seed] for seed in seeds] for series in (before, after))
    return paired_change(one, two, sign=after.sign)


def _alone(these: Mapping[CellKey, Series], those: Mapping[CellKey, Series]) -> Iterator[str]:
    for key, series in these.items():
        if key not in those:
            yield str(key)
        elif left := sorted(series.values.keys() - those[key].values.keys()):
            yield f"{key} seed{'s' * (len(left) > 1)} {', '.join(map(str, left))}"


def _obstacles(base: Baseline, run: Baseline) -> Iterator[str]:
    """Differences in the measurement, and claims that are weaker or less audited than before."""
    yield from _instrument(base.instrument, run.instrument)
    yield from _attacks(base.series(), run.series())
    for label in sorted(base.defenses.keys() & run.defenses.keys()):
        then, now = base.defenses[label], run.defenses[label]
        yield from _differences(f"defense {label} claims", then.claims, now.claims)
        # If the claims themselves changed, their audits and terms differ anyway and would only repeat it.
        if then.claims == now.claims:
            yield from _differences(f"defense {label} audited for", then.audited, now.audited)
            for claim in now.claims:
                terms = (one.terms.get(claim, {}) for one in (then, now))
                yield from _differences(f"defense {label} claims {claim}", *terms)
        # Fewer runs in an audit lower its power, so this key is an obstacle although it stands in the defense's table.
        yield from _differences(f"defense {label}: replicas", then.table.get("replicas"), now.table.get("replicas"))


def _instrument(then: Instrument, now: Instrument) -> Iterator[str]:
    for name in Instrument.model_fields:
        words, one, two = name.replace("_", " "), getattr(then, name), getattr(now, name)
        if name in _WHOLE or not isinstance(one, dict):
            yield from _differences(words, one, two)
            continue
        # A federation or an attack that only one run has appears as missing or new cells.
        for label in sorted(one.keys() & two.keys()):
            yield from _differences(f"{words.rstrip('s')} {label}", one[label], two[label])


def _attacks(then: Mapping[CellKey, Series], now: Mapping[CellKey, Series]) -> list[str]:
    changed = {
        f"attack {key.attack}: {words} {one} then, {two} now"
        for key in then.keys() & now.keys()
        for words, field in (("version", "attack_version"), ("direction", "direction"))
        if (one := getattr(then[key], field)) != (two := getattr(now[key], field))
    }
    return sorted(changed)


def _notes(base: Baseline, run: Baseline) -> Iterator[str]:
    for label in sorted(base.defenses.keys() & run.defenses.keys()):
        then, now = base.defenses[label], run.defenses[label]
        yield from _differences(f"defense {label} version", then.version, now.version)
        tables = ({key: value for key, value in one.table.items() if key != "replicas"} for one in (then, now))
        yield from _differences(f"defense {label}", *tables)
    for name in sorted(base.packages.keys() | run.packages.keys()):
        yield from _differences(f"package {name}", base.packages.get(name), run.packages.get(name))


def _differences(what: str, then: Any, now: Any) -> Iterator[str]:
    """One sentence for each key that differs."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then.keys() | now.keys()):
            yield from _differences(f"{what}: {key}", then.get(key), now.get(key))
    elif then != now:
        yield f"{what} {_shown(then)} then, {_shown(now)} now"


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "nothing" if value is None or value == "" else str(value)
