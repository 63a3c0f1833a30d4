"""Estimate the noise distribution (law) of a defense that publishes none: its form from runs of the defense's hooks,
and its size from the claim.

Where a release is seen to be a sum and Gaussian noise of one size in all rounds, runs show the noise, and the claim
says how far one unit may move a release of such noise. Every check that needs a law can then be made. A release of
another form has no such law: whatever an honest defense does with it afterwards is left to the checks that need none.

Most runs decide on the form, so that what a defense does in a few of them alone does not hide them from the checks.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..audit.claim import Claim
from ..audit.observer import SHUFFLED
from ..fl.laws import GaussianLaw
from ..fl.layout import Layout
from ..fl.plan import Plan
from ..fl.protection import Protection
from .law import NotCheckable, law_check, law_of_all_rounds
from .measured import rate_of, states_gaussian, steps_of
from .setup import SUM, SeenLaws

_MOST = 0.9
"""Share of runs that must have the form."""
_CLIENTS, _VECTORS = 64, 1280
"""Clients and noise vectors that are compared with each other, at most."""
_ERRORS = 6.0
"""Standard errors that chance may add to any difference: what the checks of a law can see is seen here too."""
_PARALLEL = 1e-3
"""Sine of the angle between a row and the move along it, up to which they count as parallel."""
_KURTOSIS = 0.1
"""Excess kurtosis up to which noise that no claim states to be Gaussian counts as Gaussian."""
_CANCELS = 1e-3
"""Share of the noise that may be left in the difference of two runs with equal draws."""
_LARGEST, _HALVINGS = 2.0**12, 12
"""Shift over noise at most that a claim is asked for, and steps of the search, each a root of the last factor."""
_CENTRED = 8
"""Runs from which what all of them have in common is seen."""
_MARGIN = 1.02
"""Factor of the largest shift that a claim covers: of the search's last step, and of the error of the noise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Shown:
    """Measurements of one release from runs with a planted unit: its noise, and how far the unit moves it.

    Args:
        noise: releases where all rows are zero, ``(R, T, clients, d)``, or ``(R, T, 1, d)`` of a sum.
        moved: how the unit moved each release, ``(R, T, d)``.
        again: the same under other noise.
        own: releases of the unit's client, or the sum, where all rows are zero, ``(R, T, d)``.
        rows: the unit's rows ``(R, T, d)``.
        opposite: how the unit's opposite rows moved it, where a claim replaces a row by another one; else None.
        alone: ``(R,)``, whether the rows of all others are zero, so that nothing but the unit's rows can move.
        parts: a slice of coordinates per round, in which the unit's row of this round lies.
        rounded: whether the numbers take the values of a grid.
    """

    noise: Tensor
    moved: Tensor
    again: Tensor
    own: Tensor
    rows: Tensor
    opposite: Tensor | None
    alone: Tensor
    parts: tuple[slice, ...]
    rounded: bool


def seen_laws(shown: Shown, claim: Claim, plan: Plan, protection: Protection, *, clip_norm: float) -> SeenLaws:
    """Return the estimated law of each client's release, or of the sum; none if runs show no sum with Gaussian noise.

    Args:
        clip_norm: in which the rows of runs are counted.
    """
    shown = replace(shown, noise=_without_constants(shown.noise))
    if not has_form(shown, plan.layout, stated=states_gaussian(claim)):
        return SeenLaws()
    try:
        rate, steps = rate_of(claim, plan, protection), steps_of(claim, plan, protection)
        covered = covered_shift(claim, plan, protection, rate=rate, steps=steps)
    except NotCheckable:
        return SeenLaws()
    if covered is None:
        return SeenLaws()
    stds = (_least_share(shown.noise) * _sizes(shown.noise, (0, 1, 3))).tolist()
    numbers = (SUM,) if claim.observer.rank < SHUFFLED.rank else range(plan.clients)
    laws = {
        number: GaussianLaw(
            clip_norm=clip_norm,
            scale=_MARGIN * covered * std / steps / clip_norm,
            noise_std=std,
            rate=rate,
            steps=steps,
        )
        for number, std in zip(numbers, stds, strict=True)
        if std > 0
    }
    return SeenLaws(laws=laws)


def _without_constants(noise: Tensor) -> Tensor:
    """Releases less what they have in common in all runs, such as public offsets of a client and a round, which are no
    noise; they keep the size of their noise.
    """
    sent = (noise != 0).any(-1, keepdim=True)
    count = sent.sum(0, keepdim=True)
    centre = noise.sum(0, keepdim=True) / count.clamp_min(1)
    size = (count / (count - 1).clamp_min(1)).sqrt()
    return torch.where(sent & (count >= _CENTRED), (noise - centre) * size, noise)


def covered_shift(claim: Claim, plan: Plan, protection: Protection, *, rate: float, steps: int) -> float | None:
    """Return the largest distance, in standard deviations of the noise, by which a unit may move each round's release
    under the claim; None if the claim allows no distance, or every distance.
    """
    # Rounds may have shares of their own of the budget: then one round may have all of it.
    rounds = 1 if law_of_all_rounds(protection, plan) else None

    def covers(shift: float) -> bool:
        law = GaussianLaw(clip_norm=shift / steps, scale=1.0, noise_std=1.0, rate=rate, steps=steps, additive=False)
        found = law_check(law, claim, plan, rounds=rounds)
        if found[0].passed is None:
            raise NotCheckable(found[0].witness)
        return all(one.passed is not False for one in found)

    low, high = 1 / _LARGEST, _LARGEST
    if not covers(low) or covers(high):
        return None
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if covers(middle) else (low, middle)
    return high


def has_form(shown: Shown, layout: Layout, *, stated: bool) -> bool:
    """Whether releases are a sum plus noise of one size.

    Args:
        stated: whether the claim states Gaussian noise, so that its shape is to be checked and not to be seen.
    """
    sent = (shown.noise != 0).any(-1)
    whole = (shown.noise != 0).all(-1)
    if shown.rounded or not bool(sent.any()) or float(whole[sent].double().mean()) < _MOST:
        return False
    size = float(shown.noise[whole].square().mean().sqrt())
    moves = (shown.moved != 0).any(-1)
    if not bool(moves.any()):
        return False
    # Equal draws cancel, and where a row takes another one's place, the release moves by what both of them add.
    pairs = [(shown.moved, shown.again), *([] if shown.opposite is None else [(shown.moved, -shown.opposite)])]
    return (
        all(_equal(*pair, moves, size) for pair in pairs)
        and _forgets(shown)
        and _independent(shown.noise, shown.own)
        and _steady(shown.noise)
        and _alike(shown.noise, layout)
        and (_even(shown.noise) or _parallel(shown, layout))
        and (stated or _gaussian(shown.noise))
    )


def _equal(one: Tensor, other: Tensor, moves: Tensor, size: float) -> bool:
    """Whether two moves of releases are the same, as far as noise of a size would show."""
    left = torch.linalg.vector_norm(one - other, dim=-1) / one.shape[-1] ** 0.5
    rounding = 2.0**-20 * torch.linalg.vector_norm(one, dim=-1)
    return float((left <= _CANCELS * size + rounding)[moves].double().mean()) >= _MOST


def _forgets(shown: Shown) -> bool:
    """Whether the row of a round does not show in later ones."""
    for turn in range(shown.moved.shape[1]):
        used = (shown.moved[:, turn, shown.parts[turn]] != 0).any(-1) & shown.alone
        later = (shown.moved[:, turn + 1 :, shown.parts[turn]] != 0).flatten(1).any(1)
        if bool(used.any()) and float((~later)[used].double().mean()) < _MOST:
            return False
    return True


def _independent(noise: Tensor, own: Tensor) -> bool:
    """Whether the noise of different numbers, of clients and of rounds is independent, as far as second moments show.

    Args:
        noise: ``(R, T, clients, d)``; own: that of one client in each run, ``(R, T, d)``.
    """
    runs, rounds, _, dim = noise.shape
    several = noise[:, :, :_CLIENTS]
    unit = several / _sizes(several, (0, 1, 3)).clamp_min(1e-300).view(1, 1, -1, 1)
    shared = torch.einsum("rtid,rtjd->ij", unit, unit) / (runs * rounds * dim)
    if float(shared.fill_diagonal_(0).abs().max()) > _ERRORS / (runs * rounds * dim) ** 0.5:
        return False
    whitened = own / _sizes(own, (0, 1)).clamp_min(1e-300)
    vectors = whitened / torch.linalg.vector_norm(whitened, dim=-1, keepdim=True).clamp_min(1e-300)
    for lag in range(1, rounds):
        cosines = (vectors[:, lag:] * vectors[:, :-lag]).sum(-1)
        if abs(float(cosines.mean())) > _ERRORS / (cosines.numel() * dim) ** 0.5:
            return False
    # The squared cosine of two vectors of independent numbers is 1 / d on average, with a deviation of sqrt(2) / d.
    flat = vectors.flatten(0, 1)[:_VECTORS]
    squares = (flat @ flat.T).square()
    pairs = len(flat) * (len(flat) - 1)
    mean = float(squares.sum() - squares.diagonal().sum()) / pairs
    return bool(mean * dim <= 1 + _ERRORS * 2 / pairs**0.5)


def _steady(noise: Tensor) -> bool:
    """Whether most vectors of noise have one size: with a size that is drawn anew, numbers of one vector depend."""
    squares = noise.square().mean(-1)
    squares = squares[squares > 0]
    share = squares / squares.median()
    apart = torch.maximum(share, 1 / share) - 1
    # Squares of independent Gaussian numbers scatter by the root of 2 / d, and those of longer tails by more.
    return float((apart <= 2 * _ERRORS * (2 / noise.shape[-1]) ** 0.5).double().mean()) >= _MOST


def _alike(noise: Tensor, layout: Layout) -> bool:
    """Whether the noise of all rounds has one size, and that of all layers, but for a few numbers of each."""
    # Of each run alone, since the size may change from run to run.
    runs = noise.square().mean((2, 3))
    apart = runs - runs.mean(1, keepdim=True)
    if bool((apart.mean(0).abs() > _ERRORS * apart.std(0) / len(runs) ** 0.5).any()):
        return False
    means, errors = _squares(noise)
    for place in layout.slices.values():
        # The median of n numbers has an error of 1.25 of one number's over the root of n.
        error = 1.25 * float(errors.median()) / len(means[place]) ** 0.5
        if abs(float(means[place].median() - means.median())) > 2 * _ERRORS * error:
            return False
    return True


def _least_share(noise: Tensor) -> float:
    """The size of the numbers with the least noise, as a share of that of all: more noise on others is no fault."""
    means, errors = _squares(noise)
    if _even(noise):
        return 1.0
    least = int(means.argmin())
    quiet = means <= means[least] + 2 * _ERRORS * errors[least]
    return float((means[quiet].mean() / means.mean()).sqrt())


def _even(noise: Tensor) -> bool:
    """Whether the noise of all single numbers has one size."""
    means, errors = _squares(noise)
    return bool(((means - means.mean()).abs() <= _ERRORS * errors).all())


def _squares(noise: Tensor) -> tuple[Tensor, Tensor]:
    """The mean square of each number's noise, ``(d,)``, and its standard error."""
    squares = noise.flatten(0, 2).square()
    return squares.mean(0), squares.std(0) / len(squares) ** 0.5


def _parallel(shown: Shown, layout: Layout) -> bool:
    """Whether moves are along the rows, in each layer, so that nothing scales single numbers."""
    straight = list[Tensor]()
    for turn in range(shown.moved.shape[1]):
        for place in layout.slices.values():
            moves, rows = shown.moved[:, turn, place], shown.rows[:, turn, place].double()
            lengths = [torch.linalg.vector_norm(one, dim=-1) for one in (moves, rows)]
            there = (lengths[0] > 0) & (lengths[1] > 0)
            cosines = ((moves * rows).sum(-1) / (lengths[0] * lengths[1]).clamp_min(1e-300))[there].abs()
            straight.append(cosines >= 1 - _PARALLEL**2 / 2 - 1e-5)
    found = torch.cat(straight)
    return bool(len(found)) and float(found.double().mean()) >= _MOST


def _gaussian(noise: Tensor) -> bool:
    scaled = noise / _sizes(noise, (0, 1, 3)).clamp_min(1e-300).view(1, 1, -1, 1)
    values = scaled[noise != 0]
    return abs(float(values.pow(4).mean()) / 3 - 1) <= (_KURTOSIS + _ERRORS * math.sqrt(24 / len(values))) / 3


def _sizes(noise: Tensor, over: tuple[int, ...] | None = None) -> Tensor:
    """The root of the mean square of the numbers that have noise."""
    over = tuple(range(noise.dim())) if over is None else over
    sizes: Tensor = (noise.square().sum(over) / (noise != 0).sum(over).clamp_min(1)).sqrt()
    return sizes
