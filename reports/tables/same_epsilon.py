"""Tabulate each defense's utility, audits and attacks, sorted by claimed epsilon (Fu et al. 2024).

Section 6.3 of that survey proposes this comparison of trust models at one epsilon.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from functools import partial

from ...audit.claim import Unit
from ...audit.observer import Observer
from ...audit.wording import at_least, plain
from ..reading.claims import ClaimRow, covers, one_row_per_claim, stated_rows
from ..reading.membership import BestAttack, Question, best_attacks, in_order, memberships
from ..reading.run_folder import RunFolder
from . import numerals
from .covered import guess_of
from .membership_table import SourceInference, source_inferences
from .pooled_rows import WHOLE_CELL, AttackRow, pooled_attacks, pooled_utility
from .printed import VERDICTS, pooled_words
from .reconstruction import Gain, gains
from .table import Table, tabulate

_BEYOND = "*"
_HOLD_A_SAMPLE = frozenset({Unit.SAMPLE, Unit.CLIENT, Unit.USER, Unit.REPORT})
_HOLD_A_LABEL = _HOLD_A_SAMPLE | {Unit.LABEL}
LABELS = "label_accuracy"
TITLE = "The same ε in different trust models"
NOTE = (
    "Audit: the lower bound on ε and the largest ε that the sample size can certify. Each attack column shows the "
    "best realistic attack; worst-case adversaries and active servers are left out. Membership of a sample or a "
    "client: AUC; 0.5 is guessing. Client of a sample, and labels: the share that the attack names correctly. Images: "
    "gain in PSNR over the best null attack, in dB. Intervals of membership and images hold at 95 % jointly for all "
    f"attacks on the cell, the others for the one attack. {_BEYOND}: OUT OF SCOPE, no claim of the row covers "
    "this unit and adversary on this federation, so the number neither supports nor refutes it."
)


@dataclass
class _Reasons:
    """The reasons for empty cells, numbered in the order of their first use; the note lists them."""

    numbers: dict[str, int] = field(default_factory=dict)

    def mark(self, reason: str) -> str:
        number = self.numbers.setdefault(reason, len(self.numbers) + 1)
        return f"{numerals.NOTHING} ({number})"

    @property
    def words(self) -> str:
        return "".join(f" ({number}) {reason}." for reason, number in self.numbers.items())


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The results of a run that the columns show."""

    folder: RunFolder
    best: list[BestAttack]
    named: list[SourceInference]
    images: list[Gain]
    claims: list[ClaimRow]
    reasons: _Reasons


def same_epsilon_table(folder: RunFolder) -> Table:
    """Return a table with one row per defense, sorted by the epsilon of its first claim and then in the suite's order.

    There are no rows unless the run attacks defenses whose claims, controls apart, concern two different units or
    observers.
    """
    found = _Found(
        folder=folder,
        best=best_attacks([one for one in memberships(folder) if not one.null]),
        named=source_inferences(folder),
        images=gains(folder),
        claims=one_row_per_claim(stated_rows(folder)),
        reasons=_Reasons(),
    )
    # The table compares trust models: with a single unit and observer there is nothing to compare.
    stated = [one for one in folder.claims if not one.control]
    if len({(one.claim.unit, one.claim.observer) for one in stated}) < 2 or not (found.best or found.images):
        return Table(title=TITLE, headers=("ε",), rows=())
    questions = in_order([best.one.question for best in found.best if best.one.adversary == "realistic"])
    observers = sorted({one.observer for one in found.named}, key=lambda observer: (-observer.rank, str(observer)))
    columns: dict[str, Callable[[str], str]] = {
        "defense": str,
        "ε claimed": partial(_claimed, found),
        "utility": partial(_utility, found),
        "audit": partial(_measured, found),
        **{
            f"membership of a {unit}, {_short(observer)}": partial(_membership, found, (observer, unit))
            for observer, unit in questions
        },
        **{f"client of a sample, {_short(observer)}": partial(_source, found, observer) for observer in observers},
        "labels of an update": partial(_labels, found),
        "images of an update": partial(_images, found),
    }
    table = tabulate(TITLE, _defenses(folder), columns, about=2)
    # The cells number the reasons.
    return replace(table, note=NOTE + found.reasons.words)


def _defenses(folder: RunFolder) -> list[str]:
    """Sorted by claimed epsilon, those without a claim first. Controls are left out: their epsilon is false."""
    order = folder.order
    # From utility rows, because every trained defense has them, with or without attacks.
    names = {record.defense for record in folder.rows("utility") if not record.control}
    return sorted(names, key=lambda name: (_epsilon(folder, name) or 0.0, order.defense(name)))


def _epsilon(folder: RunFolder, defense: str) -> float | None:
    """The epsilon of the defense's first claim."""
    own = [one.claim.epsilon for one in folder.claims if one.defense == defense]
    return own[0] if own else None


def _short(observer: Observer) -> str:
    return {"global_models": "all models", "final_model": "final model"}.get(observer.name, observer.name)


def _claimed(found: _Found, defense: str) -> str:
    return numerals.optional(_epsilon(found.folder, defense), lambda epsilon: plain(float(f"{epsilon:.3g}")))


def _utility(found: _Found, defense: str) -> str:
    rows = [row for row in pooled_utility(found.folder) if row.defense == defense and row.metric in numerals.HEADLINES]
    own = {one.federation for one in found.folder.claims if one.defense == defense}
    # The utility belongs to the federation whose plan the claim was calibrated on.
    stated = [row for row in rows if row.federation in own] or rows
    words = [
        pooled_words(row.metric, row.pooled) + (f" ({row.federation})" if len(stated) > 1 else "")
        for row in stated
        if row.pooled is not None
    ]
    return "; ".join(words) or found.reasons.mark("no utility was measured")


def _measured(found: _Found, defense: str) -> str:
    own = [row for row in found.claims if row.defense == defense]
    if not own:
        return VERDICTS["NO_CLAIM"]
    return "; ".join(_verdict(row, alone=len(own) == 1) for row in own)


def _verdict(row: ClaimRow, *, alone: bool) -> str:
    verdict, of = VERDICTS.get(row.verdict, row.verdict), ""
    if not alone:
        of = f"one {row.claim.unit}: " if row.claim.part == "joint" else f"{row.claim.part}: "
    if row.epsilon_low is None:
        return f"{of}{verdict}"
    most = "" if row.ceiling is None else f" of {numerals.epsilon(row.ceiling)}"
    return f"{of}≥ {at_least(row.epsilon_low)}{most}, {verdict}"


def _membership(found: _Found, question: Question, defense: str) -> str:
    here = [best for best in found.best if best.one.defense == defense and best.one.question == question]
    # Only realistic adversaries: those with other knowledge would hide the difference between trust models.
    real = next((best for best in here if best.one.adversary == "realistic"), None)
    if real is None:
        attacks = {best.one.attack for best in found.best if best.one.question == question}
        return _missing(found, defense, attacks, str(question[0]))
    words = numerals.metric_value("auc", real.one.area) + numerals.interval_words("auc", *(real.ends or (None, None)))
    return words + ("" if real.one.claims or _epsilon(found.folder, defense) is None else _BEYOND)


def _source(found: _Found, observer: Observer, defense: str) -> str:
    here = [one for one in found.named if one.defense == defense and one.observer == observer]
    if not here:
        return _missing(found, defense, {one.attack for one in found.named}, str(observer))
    best = max(here, key=lambda one: one.value)
    # The header already contains the word, and the attack's name would make the column too wide.
    words = best.words().removeprefix("correct ").rpartition("; ")[0]
    return words + ("" if best.claims or _epsilon(found.folder, defense) is None else _BEYOND)


def _labels(found: _Found, defense: str) -> str:
    rows = [row for row in pooled_attacks(found.folder) if row.metric == LABELS and row.pooled is not None]
    own = [row for row in rows if row.defense == defense and not row.null]
    if not own:
        return _missing(found, defense, {row.attack for row in rows if not row.null}, "")
    best = max(own, key=lambda row: row.pooled.value if row.pooled else 0.0)
    words = pooled_words(LABELS, best.pooled) + _mark(found, best, _HOLD_A_LABEL)
    # Guessing is shown with the result: the share that it names correctly depends on the labels.
    guess = guess_of(found.folder, best)
    return words if guess is None else f"{words}, guessing {numerals.metric_value(LABELS, guess)}"


def _images(found: _Found, defense: str) -> str:
    own = [gain for gain in found.images if gain.defense == defense and gain.mean is not None]
    if not own:
        return _missing(found, defense, {gain.attack for gain in found.images}, "")
    best = max(own, key=lambda gain: gain.mean or 0.0)
    words = numerals.metric_value("psnr", best.mean) + numerals.interval_words("psnr", best.low, best.high)
    return words + _mark(found, best, _HOLD_A_SAMPLE)


def _mark(found: _Found, one: AttackRow | Gain, units: Set[Unit]) -> str:
    """The mark of a result on an update, if the defense states claims, but none on this federation covers the attack's
    adversary, and all rounds of one of these units.
    """
    folder = found.folder
    own = [stated for stated in folder.claims if stated.defense == one.defense]
    here = [stated.claim for stated in own if stated.federation == one.federation]
    # As for reconstructions: the adversary may use the update of any round.
    rounds = folder.rounds_of(one.federation) or 1
    covered = any(
        claim.unit in units
        and (claim.part, claim.subjects) == ("joint", "all")
        and claim.rounds >= rounds
        and covers(claim.observer, one.observer)
        for claim in here
    )
    return _BEYOND if own and not covered else ""


def _missing(found: _Found, defense: str, attacks: set[str], observer: str) -> str:
    """The reason why a cell is empty, from the rows of the attacks that fill this column for other defenses."""
    reasons = [
        f"{record.status}: {record.reason}"
        for record in found.folder.rows("attack")
        if (record.defense, record.metric) == (defense, WHOLE_CELL)
        and record.attack in attacks
        and observer in ("", record.observer)
    ]
    return found.reasons.mark(min(reasons) if reasons else "no such attack was run on this defense")
