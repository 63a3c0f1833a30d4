"""Format claims, attacks, utility and omissions as tables of text."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...audit.check import explained_words, short_words
from ...audit.claim import Claim
from ...audit.finding import ACCEPTED
from ...audit.observer import Observer
from ...audit.wording import plain
from ..reading.claims import ClaimRow
from ..reading.pooling import TWO_SEEDS, Pooled, gathered
from ..reading.run_folder import OfDefense
from . import numerals
from .pooled_rows import AttackGrid, AttackRow, GridLine, OmissionRow, UtilityRow
from .table import Right, Table, tabulate

_WORDS = {
    "REFUTED": ("REFUTED", "Violated"),
    "NOT_REFUTED": ("NOT REFUTED", "No violation found"),
    "UNDERPOWERED": ("UNDERPOWERED", "Not decided"),
    "OUT_OF_SCOPE": ("OUT OF SCOPE", "Not decided: out of scope of every test"),
    "NO_CLAIM": ("NO CLAIM", "No claim"),
    "FAILED": ("FAILED", "Not decided: the test failed"),
    "NOT_AUDITED": ("NOT TESTED", "Not decided: not tested"),
}
VERDICTS = {verdict: word for verdict, (word, _) in _WORDS.items()}
"""The word of a verdict in every table and in the pack."""
ANSWERS = {verdict: words for verdict, (_, words) in _WORDS.items()}
"""The words of a verdict on the first screen, for readers without the field's terms."""
_BEYOND = "*"
"""The mark of an attack that no claim covers; the note of the table explains it."""
OF_NO_USE = "of no use"
"""The mark of a model that is no better than an answer which ignores its input."""
ROUTES = {
    "curve": "stated trade-off curve",
    "eps_low": "bound on ε",
    "check": "implementation check",
    "": numerals.NOTHING,
}


def defense_words(defense: str, control: bool, federation: str = "") -> str:
    """Format a defense as ``FEDERATION/LABEL``, or as its label alone if ``federation`` is empty; ``(control)`` is
    appended to a deliberately broken defense.
    """
    name = f"{federation}/{defense}" if federation else defense
    return f"{name} (control)" if control else name


def namer(rows: Iterable[OfDefense], *, controls: bool = True) -> Callable[[OfDefense], str]:
    """Return a function that names the defense of one of these rows, with its federation if the rows have several; it
    marks controls unless ``controls`` is False.
    """
    many = len({row.federation for row in rows}) > 1
    return lambda row: defense_words(row.defense, controls and row.control, row.federation if many else "")


def verdict_words(row: ClaimRow) -> str:
    """Format the verdict; for a control (a deliberately broken defense), add that REFUTED is intended."""
    words = VERDICTS.get(row.verdict, row.verdict)
    # A paper's claim is under test, so that REFUTED is a result and not a failure of this run.
    if row.published:
        return f"{words} (as published)"
    if not row.should_be_refuted:
        return f"{words} {ACCEPTED}" if row.accepted else words
    return f"{words} (control, as intended)" if row.verdict == "REFUTED" else f"{words} (control: should be REFUTED)"


def check_words(row: ClaimRow, most: int | None = None) -> str:
    """Format implementation checks: failed ones with their numbers, then a count such as ``5 implementation checks
    passed``; empty without checks. ``most``: how many failed checks are named; by default all.
    """
    failed = [short_words(check.reason) for check in row.failed_checks]
    if failed and not row.should_be_refuted:
        # The row of each check keeps what it says in full.
        failed[0] = explained_words(row.failed_checks[0].reason)
    more = [f"and {len(failed) - most} more"] if most and len(failed) > most else []
    return _counts(row, f"failed ({'; '.join([*failed[:most], *more])})")


def check_counts(row: ClaimRow) -> str:
    """Format the counts of implementation checks that failed, passed and could not be made; empty without checks."""
    return _counts(row, "failed")


def _counts(row: ClaimRow, failed: str) -> str:
    passed = sum(check.verdict == "PASSED" for check in row.checks)
    unknown = sum(check.status != "ok" for check in row.checks)
    counts = ((len(row.failed_checks), failed), (passed, "passed"), (unknown, "not possible"))
    words = [(count, what) for count, what in counts if count]
    # Only the first count names what is counted, to keep the cell short.
    kind = [f" implementation check{'s' * (words[0][0] > 1)}", *[""] * len(words)] if words else []
    return ", ".join(f"{count}{named} {what}" for (count, what), named in zip(words, kind, strict=False))


def claim_table(rows: Sequence[ClaimRow], note: str = "") -> Table:
    """Return a table of the privacy claims and their measured epsilons, each in the unit and adjacency of its own
    claim.
    """
    return tabulate(
        "Claims",
        rows,
        {
            "defense": namer(rows, controls=False),
            "claim": lambda row: row.claim_text,
            Right("measured ε ≥"): lambda row: numerals.lower_bound(row.epsilon_low),
            Right("max certifiable"): lambda row: numerals.epsilon(row.ceiling),
            Right("min detectable"): lambda row: numerals.epsilon(row.detectable),
            Right("runs per arm"): _sample_size,
            "route": lambda row: ROUTES.get(row.record.route if row.record else "", numerals.NOTHING),
            "verdict": lambda row: "; ".join(filter(None, (verdict_words(row), check_words(row)))),
        },
        about=2,
        note=note,
    )


def _sample_size(row: ClaimRow) -> str:
    """Runs per arm; for audits of a single run the number of canaries, or of samples that attacks guessed."""
    if row.record is None or row.record.n is None:
        return numerals.NOTHING
    count = numerals.count(row.record.n)
    # The number alone would be read as runs per arm.
    if row.by_attacks:
        return f"{count} samples, one run, by attacks"
    return f"{count} canaries, one run" if row.single_run else count


def attack_table(grid: AttackGrid, lines: Sequence[GridLine], intervals: bool = True, note: str = "") -> Table:
    """Return a table of pooled attack results by defense, with confidence intervals unless ``intervals`` is False."""
    return Table(
        title=f"Attacks on federation {grid.federation}",
        headers=("attack", "metric", *grid.titles, "n"),
        rows=tuple(
            (line.first.name, line.first.words, *(_attack_cell(cell, intervals) for cell in line.cells), line.sizes)
            for line in lines
        ),
        numeric=frozenset(range(2, len(grid.defenses) + 3)),
        about=2,
        note=" ".join(filter(None, (_scope_note(grid.federation, lines), note))),
    )


def _scope_note(federation: str, lines: Sequence[GridLine]) -> str:
    """What the mark of an attack that no claim covers means, and which claim would cover it; empty without a mark."""
    marked = [cell for line in lines for cell in line.cells if cell and cell.pooled and cell.beyond]
    if not marked:
        return ""
    seen = " or ".join(dict.fromkeys(observer_words(cell.observer) for cell in marked))
    return (
        f"{_BEYOND}: OUT OF SCOPE, the defense states claims, but none covers this attack, so that the value neither "
        f"supports nor refutes one. In scope would be a claim about federation {federation}, all its rounds and the "
        f"unit that is attacked, against the attack's adversary or a stronger one (here: {seen})."
    )


def _attack_cell(cell: AttackRow | None, intervals: bool) -> str:
    return attack_words(cell, intervals) if cell and cell.pooled else numerals.NOTHING


def attack_words(cell: AttackRow, intervals: bool = True) -> str:
    """Format the pooled value of an attack, with a mark if no claim of the defense covers it."""
    return pooled_words(cell.metric, cell.pooled, intervals) + (_BEYOND if cell.beyond else "")


def utility_table(rows: Sequence[UtilityRow]) -> Table:
    """Return a table of the utility of each defense on all test data, with its paired difference from the federation
    without a defense.
    """
    rows = [row for row in rows if numerals.is_quality(row.metric)]
    return tabulate(
        "Utility",
        rows,
        {
            "defense": namer(rows, controls=False),
            "metric": lambda row: numerals.metric_words(row.metric, row.direction),
            Right("value"): quality_words,
            Right("change from undefended"): lambda row: pooled_words(row.metric, row.change, signed=True),
            Right("seeds"): lambda row: str(row.pooled.n if row.pooled else 0),
        },
        about=2,
        note=useless_note(rows),
    )


def quality_words(row: UtilityRow) -> str:
    """Format a pooled value of utility, with a mark if the model is of no use."""
    value = pooled_words(row.metric, row.pooled)
    return f"{value} ({OF_NO_USE})" if row.useless else value


def useless_note(rows: Sequence[UtilityRow]) -> str:
    """Return why models are of no use, one sentence per reason; empty if all are useful."""
    named = gathered((row.useless, row.defense) for row in rows if row.useless)
    return " ".join(f"{', '.join(dict.fromkeys(defenses))}: {OF_NO_USE}, {why}." for why, defenses in named.items())


def omission_table(rows: Sequence[OmissionRow]) -> Table:
    """Return a table of what was not measured, with the reasons."""
    return tabulate(
        "Not measured",
        rows,
        {
            "status": lambda row: row.status,
            "attack": lambda row: ", ".join(row.attacks),
            "metric": lambda row: row.metric_names,
            "defenses": lambda row: row.where,
            Right("values"): lambda row: numerals.count(row.rows),
            "reason": lambda row: row.reason,
        },
        about=4,
    )


def pooled_words(key: str, pooled: Pooled | None, intervals: bool = True, signed: bool = False) -> str:
    """Format a pooled value as ``0.912 [0.887, 0.937]``, or with the values of two seeds; a dash if nothing was
    measured.
    """
    if pooled is None:
        return numerals.NOTHING
    # A change without a sign would look like a value.
    mean, *both = (
        ("+" if signed and one > 0 else "") + numerals.metric_value(key, one) for one in (pooled.value, *pooled.both)
    )
    if both and intervals:
        return f"{mean} ({TWO_SEEDS}: {', '.join(both)})"
    return mean + (numerals.interval_words(key, pooled.low, pooled.high) if intervals else "")


def neighbours_of(claim: Claim) -> str:
    """Format unit, adjacency and delta as ``one client (add/remove), δ = 1e-5``."""
    return f"one {claim.unit} ({claim.adjacency.phrase}), δ = {plain(claim.delta)}"


def observer_words(observer: str) -> str:
    """Format an observer as ``other clients (every round's model)``; an unknown observer is printed under its
    own name.
    """
    # Rows of other versions may name observers that this one does not have.
    try:
        return Observer.parse(observer).phrase
    except ValueError:
        return observer or "no observer"


_SPREAD_NOTE = (
    "{metric} of the final model: of classes, on the test images of each class{pixels}; of clients, on the samples "
    "with which each client trains. The auditor measures the values of clients from the clients' private data: "
    "they are not released, and no claim covers them. Worst clients: mean over the 10 % of the clients with the lowest "
    "values, rounded up (q-FFL, Li et al. 2020). Std: standard deviation over all classes or clients, each with equal "
    "weight. Means over seeds{intervals}."
)
_TRAFFIC_NOTE = (
    "Payload without transport overhead, means over seeds; 1 kB is 1,000 bytes. A client's report counts in the "
    "shortest of three plain encodings: every number at the size of its data type (at its word size in a secure sum); "
    "each number other than zero with an index of 4 bytes; or one bit per number, if the report takes two values only. "
    "Keys and shares of a secure sum and public numbers of a defense are not counted. Per client: of one client in one "
    "round. Per round: of all clients that take part in a round; empty rounds count 0 bytes in the mean."
)
_CLASSES = {
    "iou": "; for IoU of the pixels to find and of all others",
    "r2": "; a regression has no classes",
    "macro_f1": "; for macro F1 the F1 of each label",
}
_SPREAD = {
    "class": {"worst": "worst class", "mean": "mean of classes", "std": "std of classes"},
    "client": {"worst": "worst 10 % of clients", "mean": "mean of clients", "std": "std of clients"},
}
_TRAFFIC = {
    f"bytes_{way}_{part}": f"{verb} {words}"
    for way, verb in (("up", "sent"), ("down", "received"))
    for part, words in (("client", "per client"), ("round", "per round"), ("total", "in total"))
}


def spread_table(rows: Sequence[UtilityRow], intervals: bool = True) -> Table:
    """Return a table of the worst, the mean and the deviation of utility over classes and over clients."""
    known = {row.metric for row in rows}
    metrics = [name for name in numerals.HEADLINES if known & {f"class_{name}_mean", f"client_{name}_mean"}]
    columns = [(group, part) for group, parts in _SPREAD.items() for part in parts]

    def cells(found: Mapping[str, Pooled | None]) -> list[list[str]]:
        named = [[(f"{group}_{name}_{part}") for group, part in columns] for name in metrics]
        # A federation has one of the metrics, by its task.
        return [
            [numerals.metric(name).name, *(pooled_words(key, found.get(key), intervals) for key in keys)]
            for name, keys in zip(metrics, named, strict=True)
            if any(key in found for key in keys)
        ]

    headers = ("defense", "metric", *(_SPREAD[group][part] for group, part in columns))
    note = _SPREAD_NOTE.format(
        metric=" or ".join(numerals.metric(name).name for name in metrics).replace("accuracy", "Accuracy"),
        pixels="".join(words for name, words in _CLASSES.items() if name in metrics),
        intervals=" with 95 % t intervals" if intervals else "",
    )
    return Table(
        title="Utility by class and by client",
        headers=headers,
        rows=_by_defense(rows, cells),
        numeric=frozenset(range(2, len(headers))),
        about=2,
        note=note,
    )


def traffic_table(rows: Sequence[UtilityRow]) -> Table:
    """Return a table of the bytes that clients send and receive, per client and round, per round and in total."""

    def cells(found: Mapping[str, Pooled | None]) -> list[list[str]]:
        texts = [numerals.data_size(one.value if (one := found.get(key)) else None) for key in _TRAFFIC]
        return [texts] if found.keys() & _TRAFFIC.keys() else []

    return Table(
        title="Communication",
        headers=("defense", *_TRAFFIC.values()),
        rows=_by_defense(rows, cells),
        numeric=frozenset(range(1, len(_TRAFFIC) + 1)),
        note=_TRAFFIC_NOTE,
    )


def _by_defense(
    rows: Sequence[UtilityRow], cells: Callable[[Mapping[str, Pooled | None]], list[list[str]]]
) -> tuple[tuple[str, ...], ...]:
    """The cells of each defense, computed from its values by metric, behind its label."""
    name, groups = namer(rows), dict[str, dict[str, Pooled | None]]()
    for row in rows:
        groups.setdefault(name(row), {})[row.metric] = row.pooled
    return tuple((defense, *line) for defense, found in groups.items() for line in cells(found))
