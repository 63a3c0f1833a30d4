"""Pair a run with a baseline metric by metric, test each change over seeds, and list the settings in which they differ.

For a given seed both runs use the same data, partition, initial model, sampling, noise and attack. So the differences
by seed vary less than the runs do, and a t test on them detects small changes with a few seeds. The test assumes normal
differences: for few seeds of a metric in coarse steps its level is approximate.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from ...suites.config.tables.margins import margins_with
from .baseline import Baseline, CellKey, Instrument, StoredCell

ALPHA = 0.05
"""Probability that any cell of a family fails although none got worse; and that a given upper end is too low."""
_EQUAL = 1e-9
"""Differences that vary less than this, relative to the values, count as equal: rounding is not a tiny variance."""


class CellOutcome(StrEnum):
    """The outcome for one compared metric. PASS means that the metric is no worse than the margin allows, not that it
    is as private as before.

    Only the tests for FAIL are corrected for their number. A run needs PASS in every cell, so a cell that is worse by
    its margin passes with probability 5 % at most, whatever the number of cells.
    """

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, kw_only=True)
class Change:
    """The change of one metric between two runs, in the metric's unit; a positive change is a worsening.

    ``low`` and ``high``: one-sided 95 % bounds (together a 90 % interval), None where the seeds allow none. ``p``: of
    the hypothesis that the cell did not get worse; ``p_family``: after Holm's correction. ``correlation``: of the two
    runs over seeds, None where one does not vary. ``reason``: for a missing interval, else empty.
    """

    seeds: int
    base: float
    new: float
    worse: float
    low: float | None
    high: float | None
    p: float
    p_family: float = 1.0
    correlation: float | None
    reason: str = ""

    def outcome(self, margin: float) -> CellOutcome:
        """Return FAIL if the metric is significantly worse and by more than half the margin, PASS if the upper bound of
        the change is below the margin, else INCONCLUSIVE.
        """
        # With many seeds a tiny change is significant; half the margin keeps it from failing the run.
        if self.p_family <= ALPHA and self.worse > margin / 2:
            return CellOutcome.FAIL
        return CellOutcome.PASS if self.high is not None and self.high < margin else CellOutcome.INCONCLUSIVE

    def why(self, margin: float) -> str:
        """Return why the comparison of a metric is INCONCLUSIVE."""
        if self.high is None:
            return self.reason
        return f"it may have got worse by {self.high:.3g}, which is not below the margin of {margin:g}"


def paired_change(base: Sequence[float], new: Sequence[float], *, sign: int) -> Change:
    """Compute the change of one metric between two runs from its values by seed; a positive change is a worsening.

    Args:
        base, new: (n,), one value per seed, in the same order.
        sign: 1 where a higher value is worse, -1 where a lower one is.

    Raises:
        ValueError: different lengths, no value, a value that is not finite, another sign.
    """
    one, two = np.asarray(base, dtype=np.float64), np.asarray(new, dtype=np.float64)
    if sign not in (1, -1):
        raise ValueError(f"sign must be 1 if a higher value is worse, or -1 if a lower value is worse, got {sign!r}")
    if one.shape != two.shape or one.ndim != 1 or one.size == 0:
        raise ValueError(
            f"base and new must be one-dimensional arrays of the same length >= 1, got {one.shape} and {two.shape}"
        )
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        raise ValueError(f"base and new must be finite numbers, got {base!r} and {new!r}")
    differences = sign * (two - one)
    # At least 1: values near zero would otherwise make any rounding error look like a change.
    scale = max(1.0, float(np.abs(one).max()), float(np.abs(two).max()))
    alone = Change(
        seeds=len(one),
        base=float(one.mean()),
        new=float(two.mean()),
        worse=float(differences.mean()),
        low=None,
        high=None,
        p=1.0,
        correlation=_correlation(one, two, _EQUAL * scale),
    )
    if len(one) == 1:
        return replace(alone, reason="there is one seed only: without variation over seeds, a change cannot be tested")
    if float(np.ptp(differences)) <= _EQUAL * scale:
        return _equal(alone, _EQUAL * scale)
    return _t(alone, float(differences.std(ddof=1)) / math.sqrt(len(one)))


def _t(change: Change, error: float) -> Change:
    freedom = change.seeds - 1
    half = float(stdtrit(freedom, 1 - ALPHA)) * error
    p = float(stdtr(freedom, -change.worse / error))
    return replace(change, low=change.worse - half, high=change.worse + half, p=p)


def _equal(change: Change, tolerance: float) -> Change:
    """The same difference in every seed, for which a t test would report certainty.

    For a metric in coarse steps (labels of eight uploads come in eighths) equal differences are not rare. A sign test
    needs no variance: if worse and better are equally likely, n equal signs have probability 2^-n. A difference of zero
    in two or more seeds counts as no change.
    """
    if abs(change.worse) <= tolerance:
        return replace(change, low=0.0, high=0.0)
    chance = 0.5**change.seeds
    p = chance if change.worse > 0 else 1.0
    if chance > ALPHA:
        words = (
            f"all {change.seeds} seeds changed by the same amount: without variation over seeds, a bound needs at "
            "least 5 seeds"
        )
        return replace(change, p=p, reason=words)
    return replace(change, low=change.worse, high=change.worse, p=p)


def _correlation(one: np.ndarray, two: np.ndarray, tolerance: float) -> float | None:
    # Two points always correlate perfectly, and a constant has no correlation.
    if len(one) < 3 or min(float(np.ptp(one)), float(np.ptp(two))) <= tolerance:
        return None
    one, two = one - one.mean(), two - two.mean()
    return float(one @ two / math.sqrt((one @ one) * (two @ two)))


def holm(changes: Sequence[Change]) -> list[Change]:
    """Return the changes with p values corrected for the number of metrics (Holm 1979): the probability of any false
    FAIL is at most alpha.
    """
    adjusted, least = [1.0] * len(changes), 0.0
    for rank, place in enumerate(sorted(range(len(changes)), key=lambda place: changes[place].p)):
        # The running maximum keeps the corrected values in the order of the p values.
        least = max(least, min(1.0, (len(changes) - rank) * changes[place].p))
        adjusted[place] = least
    return [replace(change, p_family=p) for change, p in zip(changes, adjusted, strict=True)]


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
        """The correlation of the two runs' values over seeds, averaged over the metrics that vary in both runs; it
        shows how much pairing by seed helps.
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


def _reached(pairs: Mapping[CellKey, tuple[StoredCell, StoredCell]]) -> list[CellKey]:
    same = {key for key, (then, now) in pairs.items() if then.identity == now.identity}
    # Equal identities with different values can only come from code that the identities do not cover.
    if any(pairs[key][0].values != pairs[key][1].values for key in same):
        return list(pairs)
    return [key for key in pairs if key not in same]


def _shared(before: StoredCell, after: StoredCell) -> list[int]:
    return sorted(before.values.keys() & after.values.keys())


def _change(before: StoredCell, after: StoredCell, seeds: list[int]) -> Change:
    one, two = ([series.values[seed] for seed in seeds] for series in (before, after))
    return paired_change(one, two, sign=after.sign)


def _alone(these: Mapping[CellKey, StoredCell], those: Mapping[CellKey, StoredCell]) -> Iterator[str]:
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


def _attacks(then: Mapping[CellKey, StoredCell], now: Mapping[CellKey, StoredCell]) -> list[str]:
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
