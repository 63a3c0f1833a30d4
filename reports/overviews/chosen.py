"""Build one table with the columns that a reader chose: one row per defense, for a paper or a slide."""

from collections.abc import Callable, Sequence

from ...audit.wording import nearest, plain
from ..reading.claims import ClaimRow, claim_rows
from ..reading.order import Order
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.pooled_rows import AttackRow, UtilityRow, pooled_attacks, pooled_utility
from ..tables.printed import VERDICTS, metric_words, pooled_words
from ..tables.table import Table
from .several_runs import run_labels

_CLAIM_COLUMNS: dict[str, tuple[str, Callable[[ClaimRow], str]]] = {
    "epsilon": ("claimed ε", lambda row: plain(row.stated.claim.epsilon) if row.stated else numerals.NOTHING),
    "delta": ("δ", lambda row: plain(row.stated.claim.delta) if row.stated else numerals.NOTHING),
    "unit": ("unit", lambda row: row.stated.claim.unit.value if row.stated else numerals.NOTHING),
    "observer": ("adversary", lambda row: str(row.stated.claim.observer) if row.stated else numerals.NOTHING),
    "verdict": ("verdict", lambda row: VERDICTS.get(row.verdict, row.verdict)),
    "epsilon_low": ("measured ε ≥", lambda row: _number(row.epsilon_low)),
    "detectable": ("min. detectable ε", lambda row: _number(row.detectable)),
}
_NAMES = ("run", "federation", "defense")


def chosen_table(
    folders: Sequence[RunFolder], *, columns: Sequence[str] = (), metrics: Sequence[str] = (), intervals: bool = True
) -> Table:
    """Return one table of the runs, with one row per defense (and federation and run, where there are several).

    Args:
        columns: in the order wanted: ``run``, ``federation``, ``defense``, a column of the claim (``epsilon``,
            ``delta``, ``unit``, ``observer``, ``verdict``, ``epsilon_low``, ``detectable``), a metric of the utility
            such as ``accuracy``, or ``ATTACK.METRIC`` such as ``loss.auc``. Several claims of one defense share a
            cell. None: the names, the claimed epsilon, the verdict, the measured bound and every metric of ``metrics``.
        metrics: names of metrics, of utility or of any attack; each adds its columns after ``columns``.
        intervals: whether values are printed with their intervals.

    Raises:
        ValueError: for a column or metric that no run has; the message lists the nearest that it has.
    """
    values = [_Values(folder) for folder in folders]
    known = list(dict.fromkeys(name for each in values for name in each.columns))
    wanted = list(columns) or [*_names(folders), "epsilon", "verdict", "epsilon_low"]
    for metric in metrics:
        found = [name for name in known if name == metric or name.endswith(f".{metric}")]
        if not found:
            own = dict.fromkeys(name.rpartition(".")[2] for name in known)
            raise ValueError(f"no run has the metric {metric!r}; the runs have: {nearest(metric, list(own))}")
        wanted += [name for name in found if name not in wanted]
    for name in wanted:
        if name not in (*_NAMES, *_CLAIM_COLUMNS, *known):
            every = [*_NAMES, *_CLAIM_COLUMNS, *known]
            raise ValueError(f"no run has the column {name!r}; known columns: {nearest(name, every)}")
    rows = [
        tuple(each.cell(name, label, federation, defense, intervals) for name in wanted)
        for label, each in zip(run_labels(folders), values, strict=True)
        for federation, defense in each.rows
    ]
    headers = tuple(next((head for each in values if (head := each.header(name))), name) for name in wanted)
    numeric = frozenset(
        i for i, name in enumerate(wanted) if name in known or name in ("epsilon", "delta", "epsilon_low")
    )
    return Table(
        title=" and ".join(run_labels(folders)),
        headers=headers,
        rows=tuple(rows),
        numeric=numeric,
        about=max(1, sum(name in _NAMES for name in wanted)),
    )


class _Values:
    """The values of one run by column, federation and defense."""

    def __init__(self, folder: RunFolder) -> None:
        order = Order.of(folder)
        self.claims = claim_rows(folder)
        self.utility = pooled_utility(folder)
        self.attacks = [row for row in pooled_attacks(folder) if row.pooled]
        rows: list[ClaimRow | AttackRow | UtilityRow] = [*self.claims, *self.utility, *self.attacks]
        pairs = {(row.federation, row.defense) for row in rows}
        self.rows = sorted(pairs, key=lambda pair: (order.federation(pair[0]), order.defense(pair[1])))
        self._metrics: dict[str, dict[tuple[str, str], AttackRow | UtilityRow]] = {}
        measured: list[AttackRow | UtilityRow] = [*self.utility, *self.attacks]
        for row in measured:
            name = f"{row.attack}.{row.metric}" if isinstance(row, AttackRow) else row.metric
            self._metrics.setdefault(name, {})[row.federation, row.defense] = row

    @property
    def columns(self) -> list[str]:
        return list(self._metrics)

    def header(self, name: str) -> str:
        if name in _CLAIM_COLUMNS:
            return _CLAIM_COLUMNS[name][0]
        if name not in self._metrics:
            return ""
        row = next(iter(self._metrics[name].values()))
        words = metric_words(row.metric, row.direction)
        return f"{row.attack}: {words}" if isinstance(row, AttackRow) else words

    def cell(self, name: str, run: str, federation: str, defense: str, intervals: bool) -> str:
        if name in _NAMES:
            return {"run": run, "federation": federation, "defense": defense}[name]
        if name in _CLAIM_COLUMNS:
            own = [row for row in self.claims if (row.federation, row.defense) == (federation, defense)]
            return "; ".join(dict.fromkeys(_CLAIM_COLUMNS[name][1](row) for row in own)) or numerals.NOTHING
        row = self._metrics.get(name, {}).get((federation, defense))
        return pooled_words(row.metric, row.pooled, intervals) if row else numerals.NOTHING


def _names(folders: Sequence[RunFolder]) -> list[str]:
    """The names that identify a row: the run and the federation only where there are several."""
    federations = {record.federation for folder in folders for record in folder.records}
    return [*(["run"] if len(folders) > 1 else []), *(["federation"] if len(federations) > 1 else []), "defense"]


def _number(value: float | None) -> str:
    return numerals.NOTHING if value is None else f"{value:.2f}"
