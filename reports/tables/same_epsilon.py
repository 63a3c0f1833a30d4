"""The same epsilon in every trust model: what it costs, what each family of attacks still gets from every seat, what an
audit measured; the comparison that Fu et al. 2024 ask for in their section 6.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...audit.observer import Observer
from ...audit.wording import at_least, plain
from ..reading.best_attack import BestAttack, Level, best_attacks, in_order
from ..reading.claims import ClaimRow, claim_rows, once
from ..reading.gains import Gain, gains
from ..reading.membership import memberships
from ..reading.order import Order
from ..reading.run_folder import RunFolder
from . import numerals
from .printed import VERDICTS, pooled_words
from .source_inference import SourceInference, source_inferences
from .table import Table
from .tables import WHOLE_CELL, pooled_attacks, pooled_utility

_BEYOND = "*"
LABELS = "label_accuracy"
NOTE = (
    "Of each family and observer the realistic attack that got most, those that know all but one bit and servers that "
    "attack apart. Samples and clients: AUC, .5 is a coin. Whose sample, labels: share named rightly, beside guessing. "
    "Images: PSNR over the best look at public data, in dB. Intervals of AUC and images hold at 95 % for all attacks "
    f"on that cell at once, others for the one attack. {_BEYOND}: OUT OF SCOPE, no claim of the row is about this unit "
    "before this observer: the number can neither hold nor break it. Measured: what audits prove at least, of at most "
    "what they could (ceiling)."
)


@dataclass
class _Reasons:
    """Why cells are empty, numbered as they come."""

    numbers: dict[str, int] = field(default_factory=dict)

    def mark(self, reason: str) -> str:
        number = self.numbers.setdefault(reason, len(self.numbers) + 1)
        return f"{numerals.NOTHING} ({number})"

    @property
    def words(self) -> str:
        return "".join(f" ({number}) {reason}." for reason, number in self.numbers.items())


@dataclass(frozen=True, kw_only=True)
class _Found:
    """All that was found in a run, by what the columns ask."""

    folder: RunFolder
    best: list[BestAttack]
    named: list[SourceInference]
    images: list[Gain]
    claims: list[ClaimRow]
    reasons: _Reasons


def same_epsilon_table(folder: RunFolder) -> Table:
    """One row a defense: by the epsilon of its first claim, in the suite's order within one epsilon.

    No rows unless honest defenses of a run sign for two different units or observers, and attacks looked at them.
    """
    found = _Found(
        folder=folder,
        best=best_attacks([one for one in memberships(folder) if not one.null]),
        named=source_inferences(folder),
        images=gains(folder),
        claims=once(claim_rows(folder)),
        reasons=_Reasons(),
    )
    signed = [one for one in folder.claims if not one.control]
    if len({(one.claim.unit, one.claim.observer) for one in signed}) < 2 or not (found.best or found.images):
        return Table(title="The same ε in every trust model", headers=("ε",), rows=())
    levels = in_order([best.level for best in found.best if best.one.adversary == "realistic"])
    seats = sorted({one.observer for one in found.named}, key=lambda seat: (-seat.rank, str(seat)))
    lines = tuple(_line(found, defense, levels, seats) for defense in _defenses(folder))
    return Table(
        title="The same ε in every trust model",
        headers=(
            "defense",
            "ε claimed",
            "utility",
            "measured",
            *(f"a {unit}, {_seat(seat)}" for seat, unit in levels),
            *(f"whose sample, {_seat(seat)}" for seat in seats),
            "labels of an upload",
            "images of an upload",
        ),
        rows=lines,
        note=NOTE + found.reasons.words,
        about=2,
    )


def _defenses(folder: RunFolder) -> list[str]:
    """By claimed epsilon, those without a claim first; controls are no trust model."""
    order = Order.of(folder)
    names = {record.defense for record in folder.rows("utility") if not record.control}
    return sorted(names, key=lambda name: (_epsilon(folder, name) or 0.0, order.defense(name)))


def _epsilon(folder: RunFolder, defense: str) -> float | None:
    """What the defense was built for: the epsilon of its first claim."""
    own = [one.claim.epsilon for one in folder.claims if one.defense == defense]
    return own[0] if own else None


def _seat(seat: Observer) -> str:
    return {"global_models": "models", "final_model": "last model"}.get(seat.name, seat.name)


def _line(found: _Found, defense: str, levels: Sequence[Level], seats: Sequence[Observer]) -> tuple[str, ...]:
    epsilon = _epsilon(found.folder, defense)
    return (
        defense,
        numerals.NOTHING if epsilon is None else plain(float(f"{epsilon:.3g}")),
        _utility(found, defense),
        _measured(found, defense),
        *(_membership(found, defense, level) for level in levels),
        *(_source(found, defense, seat) for seat in seats),
        _labels(found, defense),
        _images(found, defense),
    )


def _utility(found: _Found, defense: str) -> str:
    rows = [row for row in pooled_utility(found.folder) if row.defense == defense and row.metric in numerals.HEADLINES]
    own = {one.federation for one in found.folder.claims if one.defense == defense}
    signed = [row for row in rows if row.federation in own] or rows
    # A defense may run on several federations: on which, each number says.
    words = [
        pooled_words(row.metric, row.pooled, intervals=True) + (f" ({row.federation})" if len(signed) > 1 else "")
        for row in signed
        if row.pooled is not None
    ]
    return "; ".join(words) or found.reasons.mark("no utility was measured")


def _measured(found: _Found, defense: str) -> str:
    own = [row for row in found.claims if row.defense == defense and row.signed]
    if not own:
        return VERDICTS["NO_CLAIM"]
    return "; ".join(_verdict(row, alone=len(own) == 1) for row in own)


def _verdict(row: ClaimRow, *, alone: bool) -> str:
    verdict, of = VERDICTS.get(row.verdict, row.verdict), ""
    if row.signed is not None and not alone:
        claim = row.signed.claim
        of = f"one {claim.unit}: " if claim.part == "joint" else f"{claim.part}: "
    if row.epsilon_low is None:
        return f"{of}{verdict}"
    most = "" if row.ceiling is None else f" of {numerals.epsilon(row.ceiling)}"
    return f"{of}≥ {at_least(row.epsilon_low)}{most}, {verdict}"


def _membership(found: _Found, defense: str, level: Level) -> str:
    here = [best for best in found.best if best.one.defense == defense and best.level == level]
    real = next((best for best in here if best.one.adversary == "realistic"), None)
    if real is None:
        attacks = {best.one.attack for best in found.best if best.level == level}
        return _missing(found, defense, attacks, str(level[0]))
    words = numerals.metric_value("auc", real.one.area) + _ends("auc", real.ends)
    return words + ("" if real.one.claims or _epsilon(found.folder, defense) is None else _BEYOND)


def _source(found: _Found, defense: str, seat: Observer) -> str:
    here = [one for one in found.named if one.defense == defense and one.observer == seat]
    if not here:
        return _missing(found, defense, {one.attack for one in found.named}, str(seat))
    best = max(here, key=lambda one: one.value)
    words = best.words().removeprefix("right ").rpartition("; ")[0]
    return words + ("" if best.claims or _epsilon(found.folder, defense) is None else _BEYOND)


def _labels(found: _Found, defense: str) -> str:
    rows = [row for row in pooled_attacks(found.folder) if row.metric == LABELS and row.pooled is not None]
    shares = {null: [row for row in rows if row.defense == defense and row.null is null] for null in (False, True)}
    if not shares[False]:
        return _missing(found, defense, {row.attack for row in rows if not row.null}, "")
    best, guessed = (
        max((row.pooled.value for row in shares[null] if row.pooled), default=None) for null in (False, True)
    )
    own = next(row for row in shares[False] if row.pooled and row.pooled.value == best)
    words = f"{numerals.metric_value(LABELS, best)} {numerals.interval_words(LABELS, own.pooled)}".strip()
    return words if guessed is None else f"{words}, guessing {numerals.metric_value(LABELS, guessed)}"


def _images(found: _Found, defense: str) -> str:
    own = [gain for gain in found.images if gain.defense == defense and gain.mean is not None]
    if not own:
        return _missing(found, defense, {gain.attack for gain in found.images}, "")
    best = max(own, key=lambda gain: gain.mean or 0.0)
    ends = None if best.low is None or best.high is None else (best.low, best.high)
    return numerals.metric_value("psnr", best.mean) + _ends("psnr", ends)


def _ends(metric: str, ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f" [{', '.join(numerals.metric_value(metric, end) for end in ends)}]"


def _missing(found: _Found, defense: str, attacks: set[str], observer: str) -> str:
    """Why nothing stands here: what the attacks that ask this elsewhere said of this defense."""
    reasons = [
        f"{record.status}: {record.reason}"
        for record in found.folder.rows("attack")
        if (record.defense, record.metric) == (defense, WHOLE_CELL)
        and record.attack in attacks
        and observer in ("", record.observer)
    ]
    return found.reasons.mark(min(reasons) if reasons else "no such attack was run on this defense")
