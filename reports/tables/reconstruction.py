"""Compare gradient inversions with guesses that ignore the update, and their success with what the claim allows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...audit.binomial import upper_bound
from ...audit.claim import Claim
from ...audit.observer import Observer
from ...audit.posterior import beyond_reconstruction, success_bound
from ...suites.results.claims_file import StatedClaim
from ...suites.results.record import Record
from ..reading.pooling import LEVEL, gathered, grouped, mean_over_seeds, shared
from ..reading.run_folder import Order, RunFolder, once_per_run
from . import numerals
from .printed import VERDICTS, namer
from .table import Right, Table, tabulate

Image = tuple[int | None, int | None]
"""Seed and record number, which identify an image whatever attack and observer it was reconstructed by."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """The difference in PSNR between one attack on one defense and the best null attack (a guess that ignores the
    update) on the same federation and defense.

    ``null``: label of the null attack, empty where none was run. ``psnr``: (n,), of the attack's images, which come
    from ``uploads`` different uploads. ``mean``: mean over uploads of the difference to the null attack. ``low``,
    ``high``: interval by Student's t over uploads, because images of one upload are not independent, with a Bonferroni
    correction for the ``attacks`` on this defense. The last three are None where they cannot be computed.
    """

    federation: str
    defense: str
    control: bool
    attack: str
    observer: str
    attacks: int
    null: str
    psnr: tuple[float, ...]
    uploads: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def beats_null(self) -> bool:
        """Whether the whole confidence interval of the PSNR gain over the best null attack (a guess that ignores the
        update) lies above zero.
        """
        return self.low is not None and self.low > 0


def gains(folder: RunFolder) -> list[Gain]:
    """Compute PSNR gains over the best null attack (a guess that ignores the update). There is one gain per federation,
    defense and attack that reconstructed images, in the suite's order.
    """
    order = folder.order
    targets = sorted(
        grouped(psnr_records(folder, "attack", "null"), "federation", "defense"),
        key=lambda group: order.place(group[0]),
    )
    return [gain for target in targets for gain in _of_target(target, order)]


def psnr_records(folder: RunFolder, *roles: str) -> list[Record]:
    """Return the result rows that hold the PSNR of one image."""
    return [
        record
        for record in folder.rows(*roles, status="ok")
        if record.metric == "psnr" and record.scope == "record" and record.value is not None
    ]


def by_image(records: Iterable[Record]) -> dict[Image, float]:
    """Return the PSNR of each image, keyed by the image's seed and number."""
    return {(r.seed, r.record): r.value for r in records if r.value is not None}


def _of_target(records: Sequence[Record], order: Order) -> list[Gain]:
    groups = grouped(records, "role", "attack")
    nulls = {group[0].attack: by_image(group) for group in groups if group[0].role == "null"}
    attacks = {group[0].attack: group for group in groups if group[0].role == "attack"}
    # The best null is chosen on the same images. This favours the null, so the gains stay conservative.
    best = max(sorted(nulls), key=lambda name: sum(nulls[name].values()) / len(nulls[name]), default="")
    return [_gain(attacks[name], best, nulls.get(best, {}), len(attacks)) for name in sorted(attacks, key=order.attack)]


def _gain(group: Sequence[Record], null: str, null_psnr: dict[Image, float], attacks: int) -> Gain:
    first = group[0]
    differences = gathered(
        (_upload(record), record.value - reference)
        for record in group
        if (reference := null_psnr.get((record.seed, record.record))) is not None and record.value is not None
    )
    # One value per upload: images of one upload share its gradient, so they are not independent samples.
    uploads = sorted(sum(one) / len(one) for one in differences.values())
    # Bonferroni over the attacks on this defense.
    pooled = mean_over_seeds(uploads, level=1 - (1 - LEVEL) / attacks) if uploads else None
    return Gain(
        **shared(first, "federation", "defense", "control", "attack", "observer"),
        attacks=attacks,
        null=null,
        psnr=tuple(sorted(by_image(group).values())),
        uploads=len({_upload(record) for record in group}),
        mean=pooled.value if pooled else None,
        low=pooled.low if pooled else None,
        high=pooled.high if pooled else None,
    )


def _upload(record: Record) -> tuple[int | None, int | None]:
    """The upload that an image belongs to; an image without a client counts as an upload of its own."""
    return record.seed, record.record if record.client is None else record.client


SUCCESS = 20.0
"""PSNR in dB from which an image counts as reconstructed; 20 dB is a mean squared error of .01."""
NOTE = (
    "An attack beats the best null attack where the interval of its mean gain in PSNR over that null attack lies above "
    "zero. The gain is paired by image and averaged by upload. The "
    f"{100 * LEVEL:.0f} % interval (Student's t over uploads) holds jointly for all attacks on that defense "
    "(Bonferroni); it shows how the gain varies with the samples, but not how it varies with the seeds of training. "
    f"An image counts as reconstructed from a PSNR of {SUCCESS:.0f} dB. The column of reconstructed images shows the "
    "attack that reconstructs most, with a Clopper-Pearson interval, also joint, if each upload holds one image. Prior "
    "success bounds from above, at the same level, the share of images that any null attack of the federation "
    "reconstructs; a better guess without the update would raise it. The claim and the prior success determine how "
    "often any attack may reconstruct a sample (Balle, Cherubin, Hayes 2022; Hayes, Mahloujifar, Balle 2023). OUT OF "
    "SCOPE: the defense states a claim, but none that covers these attacks on this federation, so the result neither "
    "supports nor refutes it."
)


@dataclass(frozen=True, kw_only=True)
class Success:
    """The success of one attack, which reconstructed ``count`` of ``n`` images. If client updates hold several images,
    the confidence interval of the rate is [0, 1].
    """

    attack: str
    count: int
    n: int
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class ReconstructionRow:
    """A table row: the reconstruction results of one defense on one federation.

    ``prior``: upper bound on the success rate of the null attacks, None without one. ``allowed``: the smallest success
    rate that a claim allows, None where there is none; ``beyond`` then states the reason. ``out_of_scope``: whether the
    defense states claims in the run, but none that covers these attacks on this federation.
    """

    federation: str
    defense: str
    control: bool
    gains: tuple[Gain, ...]
    best: Success
    prior: float | None
    allowed: float | None
    beyond: str
    out_of_scope: bool

    @property
    def exceeds(self) -> bool:
        """Whether more images were reconstructed than the claim allows, assuming that a guess without the update
        succeeds no more often than ``prior_success`` states.
        """
        return self.allowed is not None and self.best.low > self.allowed


@once_per_run
def rebuilt_counts(folder: RunFolder) -> dict[tuple[str, str, str, str], Success]:
    """Return for each federation, defense, attack and observer how many images were reconstructed."""
    return {(gain.federation, gain.defense, gain.attack, gain.observer): _success(gain) for gain in gains(folder)}


@once_per_run
def reconstruction_rows(folder: RunFolder) -> list[ReconstructionRow]:
    """Return one row per federation and defense on which a gradient inversion stored images, in the suite's order."""
    return [
        _row(folder, group, priors(folder)[group[0].federation])
        for group in grouped(gains(folder), "federation", "defense")
    ]


@once_per_run
def priors(folder: RunFolder) -> dict[str, float | None]:
    """Return ``prior_success`` of each federation on which images were reconstructed."""
    places = sorted({gain.federation for gain in gains(folder)})
    return {federation: prior_success(folder, federation) for federation in places}


def prior_success(folder: RunFolder, federation: str) -> float | None:
    """Return an upper bound on the probability that the federation's best null attack (a guess that ignores the update)
    reconstructs an image; None without a null attack.
    """
    scores: dict[str, dict[Image, float]] = {}
    for record in psnr_records(folder, "null"):
        if record.federation == federation:
            # The result of a null attack does not depend on the defense, so each image counts once.
            scores.setdefault(record.attack, {}).update(by_image([record]))
    # Bonferroni over the null attacks, because the largest of their bounds is used.
    alpha = (1 - LEVEL) / max(1, len(scores))
    ends = [
        float(upper_bound(sum(value >= SUCCESS for value in found.values()), len(found), alpha))
        for found in scores.values()
    ]
    return max(ends, default=None)


def _row(folder: RunFolder, group: Sequence[Gain], prior: float | None) -> ReconstructionRow:
    first = group[0]
    outside = _outside(folder, group)
    allowed, beyond = (None, outside) if outside else _allowed(folder, group, prior)
    return ReconstructionRow(
        **shared(first, "federation", "defense", "control"),
        gains=tuple(group),
        best=max((_success(gain) for gain in group), key=lambda found: found.count / found.n),
        prior=prior,
        allowed=allowed,
        beyond=beyond,
        out_of_scope=bool(outside and _stated(folder, first.defense)),
    )


def _success(gain: Gain) -> Success:
    count, n = sum(value >= SUCCESS for value in gain.psnr), len(gain.psnr)
    if gain.uploads < n:  # Images of one upload are not independent trials, which Clopper-Pearson assumes.
        return Success(attack=gain.attack, count=count, n=n, low=0.0, high=1.0)
    # Half for each end; divided by the attacks, because the best of them is shown.
    alpha = (1 - LEVEL) / gain.attacks / 2
    return Success(
        attack=gain.attack,
        count=count,
        n=n,
        low=1 - float(upper_bound(n - count, n, alpha)),
        high=float(upper_bound(count, n, alpha)),
    )


def _stated(folder: RunFolder, defense: str) -> list[StatedClaim]:
    return [one for one in folder.claims if one.defense == defense]


def _covering(folder: RunFolder, group: Sequence[Gain]) -> list[Claim]:
    """The claims of this defense on this federation that cover the attacks."""
    own = [one.claim for one in _stated(folder, group[0].defense) if one.federation == group[0].federation]
    return [claim for claim in own if not _beyond(folder, claim, group)]


def _outside(folder: RunFolder, group: Sequence[Gain]) -> str:
    """The reason why no claim covers the attacks; empty if one does."""
    first = group[0]
    stated = _stated(folder, first.defense)
    if not stated:
        return "the defense states no claim"
    if _covering(folder, group):
        return ""
    here = [one for one in stated if one.federation == first.federation]
    if here:
        return _beyond(folder, here[0].claim, group)
    places = ", ".join(dict.fromkeys(one.federation for one in stated))
    reason = f"the defense states its claim on federation {places}, not on {first.federation}"
    # That its claim covers no such adversary anywhere says more about the defense than the place does.
    reasons = [_beyond(folder, one.claim, group) for one in stated]
    return f"{reason}; {reasons[0]}" if all(reasons) else reason


def _allowed(folder: RunFolder, group: Sequence[Gain], prior: float | None) -> tuple[float | None, str]:
    """The smallest success rate that a covering claim allows, or the reason why there is none."""
    if prior is None:
        return None, "without a null attack the prior success is unknown"
    bounds = (
        success_bound(prior, epsilon=one.epsilon, delta=one.delta, curve=one.curve) for one in _covering(folder, group)
    )
    # Each claim must hold, so the strictest one is the limit.
    return min(bounds), ""


def _beyond(folder: RunFolder, claim: Claim, group: Sequence[Gain]) -> str:
    rounds = folder.rounds_of(group[0].federation) or 1
    # The claim must cover all attacks of the group, because the best of them is compared with it.
    reasons = (beyond_reconstruction(claim, observer=Observer.parse(gain.observer), rounds=rounds) for gain in group)
    return next(filter(None, reasons), "")


def reconstruction_table(rows: Sequence[ReconstructionRow]) -> Table:
    """Return a table of measured reconstruction success rates and of the rates that the claims allow."""
    return tabulate(
        "Reconstruction",
        rows,
        {
            "defense": namer(rows),
            "best null attack": lambda row: row.gains[0].null or numerals.NOTHING,
            "attacks that beat it, mean gain in dB": _winners,
            f"reconstructed (≥ {SUCCESS:.0f} dB)": lambda row: _best(row.best),
            Right("prior success ≤"): lambda row: numerals.optional(row.prior, numerals.rounded_up),
            "allowed by the claim": _allowance,
        },
        note=NOTE,
    )


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
    """Format the PSNR gain over the best guess without the update (null attack) as ``+3.2 [1.1, 5.3]``; a dash without
    such a guess.
    """
    if gain.mean is None:
        return numerals.NOTHING
    value = f"{gain.mean:+.1f}"
    interval = "" if gain.low is None or gain.high is None else f" [{gain.low:.1f}, {gain.high:.1f}]"
    return (value + interval).replace("-", "−")


def _allowance(row: ReconstructionRow) -> str:
    if row.allowed is None:
        return f"{VERDICTS['OUT_OF_SCOPE'] if row.out_of_scope else numerals.NOTHING} ({row.beyond})"
    return f"at most {numerals.rounded_up(row.allowed)}" + (": EXCEEDED" if row.exceeds else "")
