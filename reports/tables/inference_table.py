"""Tabulate attribute and property inference beside guesses from public records, and the largest success that claims
allow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.evidence import Setting
from ...audit.finding import beyond_all
from ...audit.posterior import group_privacy, right_guesses
from ...suites.results.record import Record
from ..reading.membership import setting_of
from ..reading.pooling import gathered, grouped, mean_over_seeds, shared
from ..reading.run_folder import RunFolder
from . import numerals
from .numerals import NOTHING
from .printed import VERDICTS, namer
from .table import Right, Table, tabulate

_NOTE = (
    "The attack knows a client's record except for one column. Right: the share of these records whose value it "
    "infers; imputed: the same of a regression on public records, which uses nothing of the federation; majority: of "
    "the most common public value. Over imputation: the difference for the same records; what an attack infers no "
    "better than the imputation is a statement about the population, and not about the record. Members over others: "
    "the share right among the clients' records minus that among records that no client trained on (Yeom et al. "
    "2018). At most: what a claim about one sample or one client allows for this last difference. It is between two "
    "data sets that differ in one replaced record: a claim about replaced units bounds it by ε, a claim about added "
    "or removed units by a group of two, so by 2ε. Means over seeds with 95 % t intervals; marked †: one seed, over "
    "records."
)
_SHARES_NOTE = (
    "The attack estimates the share of a group in each client's data. Error: mean absolute error over clients; of the "
    "public share: the same for a guess of the share among public records. Removed: the part of the public share's "
    "squared error that the estimates remove. Right order: pairs of clients whose shares are in the right order, 0.5 "
    "by chance. At most: what a claim about one client allows for the advantage of telling two data sets of a client "
    "apart. A claim about one sample covers no share of a group, because many records change it: OUT OF SCOPE. Means "
    "over seeds with 95 % t intervals; marked †: one seed, over clients."
)
_METRICS = {"attribute_accuracy", "attribute_imputed", "attribute_majority", "attribute_over_imputation"}


@dataclass(frozen=True, kw_only=True)
class Inference:
    """The results of one attack on one column or group against one defense: the rows of all seeds, by metric."""

    federation: str
    defense: str
    control: bool
    attack: str
    setting: Setting
    rows: dict[str, list[Record]]
    claims: tuple[Claim, ...]

    def words(self, metric: str) -> str:
        """Return the mean over seeds with its interval, or the interval of the only seed."""
        rows = self.rows.get(metric, [])
        if not rows:
            return NOTHING
        pooled = mean_over_seeds([row.value or 0.0 for row in rows])
        low, high, mark = pooled.low, pooled.high, ""
        if len(rows) == 1 and rows[0].ci_low is not None:
            low, high, mark = rows[0].ci_low, rows[0].ci_high, "†"
        return f"{numerals.metric_value(metric, pooled.value)}{numerals.interval_words(metric, low, high)}{mark}"

    @property
    def chance(self) -> str:
        """The share of records for which a random guess of the value is right."""
        return self.rows["attribute_accuracy"][0].unit.rpartition(" ")[2]

    def at_most(self) -> str:
        """Return the smallest of the limits that the claims set on an attack's advantage; see ``most_over_others``."""
        bounds = [most_over_others(one) for one in self.claims]
        return numerals.rounded_up(min(bounds)) if bounds else VERDICTS["OUT_OF_SCOPE"]


def most_over_others(claim: Claim) -> float:
    """Return how much more often any attack can be right about members than about others if the claim holds. This is
    the advantage between data sets that differ in a replaced unit.
    """
    epsilon, delta = claim.epsilon, claim.delta
    if claim.adjacency is not Adjacency.REPLACE_ONE:
        epsilon, delta = group_privacy(epsilon, delta, 2)
    return min(1.0, 2 * right_guesses(0.5, epsilon, delta) - 1)


def attribute_table(folder: RunFolder) -> Table:
    """Return a table with one row per defense, observer and attribute inference attack; it has no rows where no attack
    inferred a column.
    """
    rows = _rows(folder, "attribute_", _METRICS, (Unit.SAMPLE, Unit.CLIENT))
    columns = {
        "defense": namer(rows),
        "adversary": lambda row: row.setting.observer.phrase,
        "attack": lambda row: row.attack,
        Right("right"): lambda row: row.words("attribute_accuracy"),
        Right("imputed"): lambda row: row.words("attribute_imputed"),
        Right("majority"): lambda row: row.words("attribute_majority"),
        Right("chance"): lambda row: row.chance,
        Right("over imputation"): lambda row: row.words("attribute_over_imputation"),
        Right("members above others"): lambda row: row.words("attribute_gain"),
        Right("at most"): Inference.at_most,
    }
    return tabulate("Attributes by observer", rows, columns, about=3, note=_NOTE)


def property_table(folder: RunFolder) -> Table:
    """Return a table with one row per defense, observer and property inference attack; it has no rows where no attack
    inferred the share of a group.
    """
    rows = _rows(folder, "property_", {"property_error", "property_public_error"}, (Unit.CLIENT,))
    columns = {
        "defense": namer(rows),
        "adversary": lambda row: row.setting.observer.phrase,
        "attack": lambda row: row.attack,
        Right("error"): lambda row: row.words("property_error"),
        Right("error of the public share"): lambda row: row.words("property_public_error"),
        Right("removed"): lambda row: row.words("property_gain"),
        Right("right order"): lambda row: row.words("property_order"),
        Right("at most"): Inference.at_most,
    }
    return tabulate("Shares of a group in clients' data", rows, columns, about=3, note=_SHARES_NOTE)


def _rows(folder: RunFolder, prefix: str, needed: set[str], units: tuple[Unit, ...]) -> list[Inference]:
    found = [row for row in folder.rows("attack", status="ok") if row.metric.startswith(prefix)]
    groups = grouped(found, "federation", "defense", "observer", "attack")
    return [one for group in groups for one in _of(folder, group, needed, units)]


def _of(folder: RunFolder, group: Sequence[Record], needed: set[str], units: tuple[Unit, ...]) -> list[Inference]:
    first, by_metric = group[0], gathered((row.metric, row) for row in group)
    setting = setting_of(folder.files.arrays(first) or {}, first.observer)
    if setting is None or not by_metric.keys() >= needed:
        return []
    claims = [one.claim for one in folder.claims_on(first.federation, first.defense)]
    return [
        Inference(
            **shared(first, "federation", "defense", "control", "attack"),
            setting=setting,
            rows=by_metric,
            claims=tuple(one for one in claims if _covers(one, setting, units)),
        )
    ]


def _covers(claim: Claim, setting: Setting, units: tuple[Unit, ...]) -> bool:
    """Whether the claim is about one of these units and covers the observer; one about clients covers their samples."""
    alike = replace(setting, unit=claim.unit, adjacency=claim.adjacency)
    return claim.unit in units and not beyond_all(claim, alike)
