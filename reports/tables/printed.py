"""The typed rows as printed tables: what the terminal, the markdown page and the data behind figures show."""

from collections.abc import Sequence

from ...audit.claim import Claim
from ...audit.observer import Observer
from ...audit.wording import plain
from ...suites.results.record import Record
from ..reading.claims import ClaimRow
from ..reading.pooling import Pooled
from . import numerals
from .grid import AttackGrid, GridLine
from .table import Table
from .tables import OmissionRow, UtilityRow

VERDICTS = {
    "REFUTED": "REFUTED",
    "NOT_REFUTED": "NOT REFUTED",
    "UNDERPOWERED": "UNDERPOWERED",
    "OUT_OF_SCOPE": "OUT OF SCOPE",
    "NO_CLAIM": "NO CLAIM",
    "FAILED": "FAILED",
    "NOT_AUDITED": "NOT AUDITED",
}
ROUTES = {"curve": "signed curve", "eps_low": "bound on ε", "probe": "probe", "": numerals.NOTHING}


def verdict_words(row: ClaimRow) -> str:
    """The verdict, and beside a control's what it has to be."""
    words = VERDICTS.get(row.verdict, row.verdict)
    if row.published:
        return f"{words} (as published)"
    return f"{words} (control: it must be REFUTED)" if row.must_fall else words


def probe_words(row: ClaimRow) -> str:
    """``5 probes kept``; broken ones first, with their numbers; empty where there are none."""
    broken = [f"probe broken: {probe.reason.partition(' (')[0]}" for probe in row.broken]
    kept = sum(probe.verdict == "KEPT" for probe in row.probes)
    unknown = sum(probe.status != "ok" for probe in row.probes)
    counts = ((kept, "kept"), (unknown, "not possible"))
    return ", ".join([*broken, *(f"{count} probe{'s' * (count > 1)} {what}" for count, what in counts if count)])


def claim_table(rows: Sequence[ClaimRow]) -> Table:
    """Claims beside what was measured about them, each epsilon in its claim's own terms."""
    many = len({row.federation for row in rows}) > 1
    return Table(
        title="Claims",
        headers=(
            "defense",
            "claim",
            "measured ε ≥",
            "ceiling",
            "detectable from",
            "trials per world",
            "route",
            "verdict",
        ),
        rows=tuple(
            (
                f"{row.federation}/{row.defense}" if many else row.defense,
                row.says,
                numerals.lower_bound(row.epsilon_low),
                numerals.epsilon(row.ceiling),
                numerals.epsilon(row.detectable),
                _trials(row.record),
                ROUTES.get(row.record.route if row.record else "", numerals.NOTHING),
                "; ".join(filter(None, (verdict_words(row), probe_words(row)))),
            )
            for row in rows
        ),
        numeric=frozenset({2, 3, 4, 5}),
        about=2,
    )


def _trials(record: Record | None) -> str:
    """Replicas a world; canaries, or samples that attacks guessed, where all stood in one run."""
    count = numerals.count(record.n if record else None)
    if record and record.role == "evidence" and record.n is not None:
        return f"{count} samples, one run, by attacks"
    return f"{count} canaries, one run" if record and record.attack == "one_run" else count


def attack_table(grid: AttackGrid, lines: Sequence[GridLine], intervals: bool = True) -> Table:
    """Attack by defense: pooled values, with their intervals if asked for."""
    return Table(
        title=f"Attacks on federation {grid.federation}",
        headers=("attack", "metric", *grid.defenses, "n"),
        rows=tuple(
            (
                f"{line.attack} (null attack)" if line.null else line.attack,
                metric_words(line.metric, line.direction),
                *(pooled_words(line.metric, cell.pooled if cell else None, intervals) for cell in line.cells),
                line.sizes,
            )
            for line in lines
        ),
        numeric=frozenset(range(2, len(grid.defenses) + 3)),
        about=2,
    )


def utility_table(rows: Sequence[UtilityRow], intervals: bool = True) -> Table:
    """What each defense costs, with the paired change to the undefended federation."""
    many = len({row.federation for row in rows}) > 1
    return Table(
        title="Utility",
        headers=("defense", "metric", "value", "change to undefended", "seeds"),
        rows=tuple(
            (
                f"{row.federation}/{row.defense}" if many else row.defense,
                metric_words(row.metric, "higher_better"),
                pooled_words(row.metric, row.pooled, intervals),
                pooled_words(row.metric, row.change, intervals, signed=True),
                str(row.pooled.n if row.pooled else 0),
            )
            for row in rows
        ),
        numeric=frozenset({2, 3, 4}),
        about=2,
    )


def omission_table(rows: Sequence[OmissionRow]) -> Table:
    """What was not measured, and why."""
    return Table(
        title="Not measured",
        headers=("status", "attack", "metric", "defenses", "rows", "reason"),
        rows=tuple(
            (
                row.status,
                row.attack,
                numerals.metric(row.metric).name,
                row.where,
                numerals.count(row.rows),
                row.reason,
            )
            for row in rows
        ),
        numeric=frozenset({4}),
        about=4,
    )


def metric_words(key: str, direction: str) -> str:
    """A metric's name and unit, and what a higher value of it means."""
    return " ".join(filter(None, (numerals.metric(key).label, numerals.DIRECTIONS.get(direction, ""))))


def pooled_words(key: str, pooled: Pooled | None, intervals: bool, signed: bool = False) -> str:
    """``0.912 [0.887, 0.937]``; a dash where nothing was measured."""
    if pooled is None:
        return numerals.NOTHING
    value = numerals.metric_value(key, pooled.value)
    sign = "+" if signed and pooled.value > 0 else ""
    return f"{sign}{value} {numerals.interval_words(key, pooled) if intervals else ''}".rstrip()


def neighbours_words(row: ClaimRow) -> str:
    """What an epsilon of this row is about: unit, adjacency and delta. Only rows that share it may share an axis."""
    if row.signed is None:
        raise ValueError(f"the row of {row.defense} has no claim, so its epsilon has no unit")
    return neighbours_of(row.signed.claim)


def neighbours_of(claim: Claim) -> str:
    """``one client (add/remove), δ = 1e-5``."""
    return f"one {claim.unit} ({claim.adjacency.phrase}), δ = {plain(claim.delta)}"


def terms_words(row: ClaimRow) -> str:
    """All that an epsilon of this row is about: unit, adjacency, delta and who looks."""
    seen = f", adversary: {row.signed.claim.observer.phrase}" if row.signed else ""
    return neighbours_words(row) + seen


def observer_words(observer: str) -> str:
    """``other clients (every round's model)``; an observer that the court does not know keeps its own name."""
    try:
        return Observer.parse(observer).phrase
    except ValueError:
        return observer or "nobody"
