"""Reconstruction: what beats the best null attack, how often an image is found, and how often the claim allows it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...audit.binomial import upper_bound
from ...audit.claim import Claim
from ...audit.metrics.reconstruction import beyond_reconstruction, success_bound
from ...audit.observer import Observer
from ..reading.gains import LEVEL, Gain, Image, by_image, gains, psnr_records
from ..reading.run_folder import RunFolder, once_a_run
from . import numerals
from .table import Table

SUCCESS = 20.0
"""PSNR in dB from which an image counts as reconstructed: a mean squared error of .01."""
NOTE = (
    f"An attack beats the best null attack where the {100 * LEVEL:.0f} % interval of its mean gain in PSNR, paired "
    "image by image, averaged by upload and shared by all attacks on that defense (Student's t over uploads, "
    "Bonferroni), lies above zero: it speaks of other samples at these seeds' models. An image counts as reconstructed "
    f"from a PSNR of {SUCCESS:.0f} dB; shown is the attack that reconstructs the most, with a Clopper-Pearson interval "
    "shared likewise where each upload is of one image. The prior success is the largest upper end, of the same level, "
    "over the null attacks of the federation: a better blind guess than these would raise it. From it follows how "
    "often the claim lets anybody reconstruct a sample (Balle, Cherubin, Hayes 2022; Hayes, Mahloujifar, Balle 2023)."
)


@dataclass(frozen=True, kw_only=True)
class Success:
    """``count`` of ``n`` images that ``attack`` reconstructed, with its interval: [0, 1] where uploads hold several."""

    attack: str
    count: int
    n: int
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class ReconstructionRow:
    """One defense on one federation.

    ``prior``: upper bound on what a null attack reconstructs, None without one. ``allowed``: the least that a claim
    allows; None where none speaks about these attacks, and ``beyond`` says why.
    """

    federation: str
    defense: str
    control: bool
    gains: tuple[Gain, ...]
    best: Success
    prior: float | None
    allowed: float | None
    beyond: str

    @property
    def exceeds(self) -> bool:
        """Whether more was reconstructed than the claim allows, if the prior holds."""
        return self.allowed is not None and self.best.low > self.allowed


@once_a_run
def reconstruction_rows(folder: RunFolder) -> list[ReconstructionRow]:
    """One a federation and defense on which an inversion left images, in the suite's order."""
    groups: dict[tuple[str, str], list[Gain]] = {}
    for gain in gains(folder):
        groups.setdefault((gain.federation, gain.defense), []).append(gain)
    priors = {federation: prior_success(folder, federation) for federation, _ in groups}
    return [_row(folder, group, priors[federation]) for (federation, _), group in groups.items()]


def prior_success(folder: RunFolder, federation: str) -> float | None:
    """Upper bound on the chance that the federation's best null attack reconstructs an image; None without one."""
    scores: dict[str, dict[Image, float]] = {}
    for record in psnr_records(folder, "null"):
        if record.federation == federation:
            # What a null attack shows does not hang on the defense: an image counts once.
            scores.setdefault(record.attack, {}).update(by_image([record]))
    alpha = (1 - LEVEL) / max(1, len(scores))
    ends = [
        float(upper_bound(sum(value >= SUCCESS for value in found.values()), len(found), alpha))
        for found in scores.values()
    ]
    return max(ends, default=None)


def _row(folder: RunFolder, group: Sequence[Gain], prior: float | None) -> ReconstructionRow:
    first = group[0]
    allowed, beyond = _allowed(folder, group, prior)
    return ReconstructionRow(
        federation=first.federation,
        defense=first.defense,
        control=first.control,
        gains=tuple(group),
        best=max((_success(gain) for gain in group), key=lambda found: found.count / found.n),
        prior=prior,
        allowed=allowed,
        beyond=beyond,
    )


def _success(gain: Gain) -> Success:
    count, n = sum(value >= SUCCESS for value in gain.psnr), len(gain.psnr)
    if gain.uploads < n:  # Images of one upload are no independent trials.
        return Success(attack=gain.attack, count=count, n=n, low=0.0, high=1.0)
    alpha = (1 - LEVEL) / gain.attacks / 2
    return Success(
        attack=gain.attack,
        count=count,
        n=n,
        low=1 - float(upper_bound(n - count, n, alpha)),
        high=float(upper_bound(count, n, alpha)),
    )


def _allowed(folder: RunFolder, group: Sequence[Gain], prior: float | None) -> tuple[float | None, str]:
    """The least that a claim of this defense allows all of these attacks, or why none speaks about them."""
    first = group[0]
    own = [s.claim for s in folder.claims if (s.federation, s.defense) == (first.federation, first.defense)]
    if not own:
        return None, "no claim was signed here"
    if prior is None:
        return None, "no null attack tells the prior success"
    rounds = folder.rounds_of(first.federation)
    said = [(claim, _beyond(claim, group, rounds)) for claim in own]
    speaking = [claim for claim, beyond in said if not beyond]
    if not speaking:
        return None, said[0][1]
    bounds = (success_bound(prior, epsilon=one.epsilon, delta=one.delta, curve=one.curve) for one in speaking)
    return min(bounds), ""


def _beyond(claim: Claim, group: Sequence[Gain], rounds: int | None) -> str:
    reasons = (
        beyond_reconstruction(claim, observer=Observer.parse(gain.observer), rounds=rounds or 1) for gain in group
    )
    return next(filter(None, reasons), "")


def reconstruction_table(rows: Sequence[ReconstructionRow]) -> Table:
    """Measured beside allowed; where no attack beats the null, it says so."""
    many = len({row.federation for row in rows}) > 1
    return Table(
        title="Reconstruction",
        headers=(
            "defense",
            "best null attack",
            "beaten by, mean gain in dB",
            f"reconstructed (≥ {SUCCESS:.0f} dB)",
            "prior success ≤",
            "the claim allows",
        ),
        rows=tuple(
            (
                _name(row, many),
                row.gains[0].null or numerals.NOTHING,
                _winners(row),
                _best(row.best),
                numerals.NOTHING if row.prior is None else _rounded_up(row.prior),
                _allowance(row),
            )
            for row in rows
        ),
        numeric=frozenset({4}),
        note=NOTE,
    )


def _name(row: ReconstructionRow, many: bool) -> str:
    name = f"{row.federation}/{row.defense}" if many else row.defense
    return f"{name} (control)" if row.control else name


def _best(success: Success) -> str:
    words = f"{success.count} of {success.n}"
    if (success.low, success.high) != (0.0, 1.0):
        words += f" [{success.low:.2f}, {success.high:.2f}]"
    return f"{words} by {success.attack}" if success.count else words


def _winners(row: ReconstructionRow) -> str:
    if not row.gains[0].null:
        return "no null attack was run"
    winners = [gain for gain in row.gains if gain.beats_null]
    words = [f"{one.attack} {gain_words(one)}" for one in winners]
    return "; ".join(words) or f"none of {len(row.gains)}"


def gain_words(gain: Gain) -> str:
    """``+3.2 [1.1, 5.3]``; a dash where there was no null attack."""
    if gain.mean is None:
        return numerals.NOTHING
    value = f"{gain.mean:+.1f}"
    interval = "" if gain.low is None or gain.high is None else f" [{gain.low:.1f}, {gain.high:.1f}]"
    return (value + interval).replace("-", "−")


def _allowance(row: ReconstructionRow) -> str:
    if row.allowed is None:
        return f"{numerals.NOTHING} ({row.beyond})"
    return f"at most {_rounded_up(row.allowed)}" + (": EXCEEDED" if row.exceeds else "")


def _rounded_up(chance: float) -> str:
    return f"{min(1.0, math.ceil(round(chance * 1000, 6)) / 1000):.3f}"
