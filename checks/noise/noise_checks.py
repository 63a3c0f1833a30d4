"""Compare runs that differ only in the defense's random draws, so that the difference between them is the noise."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...audit.check_result import CheckResult
from ...fl.laws.law import GaussianLaw
from ...fl.replay import Recording

PRESENT, BETWEEN_CLIENTS, BETWEEN_ROUNDS, SCALE = (
    "noise present",
    "noise fresh between clients",
    "noise fresh between rounds",
    "noise scale",
)
_SHARED = 0.99999
"""Cosine from which two noise vectors count as one draw. Noise that adds up over the rounds, as under momentum or in a
running sum, comes near 1; noise used twice gives 1 up to rounding.
"""
_LEVELS = 32
"""Distinct numbers of all releases together up to which they count as coins or levels."""
_FEWEST, _FEWEST_DRAWN = 10, 50
"""Numbers that both noise vectors must move before they are compared; coins are equal by chance, Gaussians never."""


def noise_checks(
    draws: Sequence[Recording],
    laws: Sequence[GaussianLaw] | None,
    layers: Mapping[str, slice],
    *,
    drawn: bool = False,
    rounded: bool = False,
    reason: str = "",
    constant: Collection[int] = (),
) -> list[CheckResult]:
    """Check that noise is present and fresh between clients and between rounds; how large it is needs more draws.

    Args:
        draws: at least two recordings with equal data, cohorts and lots.
        laws: one per row of a release; None where the defense publishes no Gaussian law.
        rounded: whether the released numbers are rounded, so that other noise may leave a number as it was.
        reason: why no law can be compared, where ``laws`` is None.
        layers: coordinates of each layer.
        drawn: whether reports are drawn from a law of their own, such as coins.
        constant: rounds whose releases no unit moved. They need no noise, unless a law publishes some.
    """
    releases = torch.stack([torch.stack(draw.releases) for draw in draws])
    # A release of zeros, as in a round that is skipped, tells nothing.
    sent = present = torch.stack(draws[0].present) & (releases != 0).any(0).any(-1)
    senders = draws[0].senders
    if not laws:
        present = sent.clone()
        present[[turn for turn in constant if turn < len(present)]] = False
    if drawn:
        found = [_any_presence(releases, present)]
    else:
        places = layers if laws and not rounded else {"release": slice(None)}
        found = [_presence(releases, present, places, senders, gaussian=bool(laws) and not rounded)]
        if not laws and found[0].passed is False and _few_values(releases[:, present]):
            reason = "its numbers take few values, which other noise may leave as they are"
            found = [CheckResult(name=PRESENT, passed=None, witness=reason)]
    # Data, cohorts and lots cancel in the difference of two draws.
    found += freshness_checks(releases[0] - releases[1], present, senders, drawn=drawn)
    if not bool(present.any()):
        none = "no unit was seen to move a release" if bool(sent.any()) else "only zeros were released"
        found = [replace(one, witness=none) for one in found]
    if laws is None:
        found.append(CheckResult(name=SCALE, passed=None, witness=reason))
    return found


def freshness_checks(
    noise: Tensor, present: Tensor, senders: tuple[int, ...] | None, *, drawn: bool = False
) -> list[CheckResult]:
    """Check that no two clients of a round, and no two rounds of a client, share their noise.

    Noise in one direction only has this direction everywhere: it has to be compared over several independent draws. Of
    five draws of one number, two have a cosine above ``_SHARED`` by chance once in 10^9.

    Args:
        noise: ``(rounds, rows, n)``, the numbers of all draws of a row after each other.
        present: ``(rounds, rows)``, whether a row was sent.
        drawn: whether reports are drawn from a law of their own, such as coins.
    """
    fewest = _FEWEST_DRAWN if drawn else _FEWEST
    noise = noise.masked_fill(~present.unsqueeze(-1), 0)
    rounds, found = [f"round {t}" for t in range(len(noise))], []
    if senders is not None and len(senders) > 1:
        found.append(_freshness(BETWEEN_CLIENTS, noise, rounds, _names(senders), fewest))
    if len(noise) > 1:
        found.append(_freshness(BETWEEN_ROUNDS, noise.transpose(0, 1), _names(senders), rounds, fewest))
    return found


def same_state(recording: Recording, number: int) -> bool:
    """Return whether a round started from the same public state as the first round, for which the noise distribution is
    published.
    """
    return equal_states(recording.states[0], recording.states[number])


def equal_states(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Return whether two public states hold the same numbers; a number that is not one equals itself."""
    return one.keys() == other.keys() and all(_equal(one[name], other[name]) for name in one)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def _names(senders: tuple[int, ...] | None) -> list[str]:
    return ["the sum"] if senders is None else [f"client {sender}" for sender in senders]


def _presence(
    releases: Tensor, present: Tensor, layers: Mapping[str, slice], senders: tuple[int, ...] | None, *, gaussian: bool
) -> CheckResult:
    """Check the least share of a layer's numbers that other noise moves.

    Under a Gaussian law all of them must move, under another law at least one number of a release.
    """
    # Layer by layer: one small layer without noise would hardly change the share of the whole release.
    moved = (releases[1:] != releases[:1]).any(0)
    names, least, where, allowed = _names(senders), math.inf, "", 1.0
    for number, row in present.nonzero().tolist():
        for layer, place in layers.items():
            share = float(moved[number, row, place].double().mean())
            if share < least:
                least, where = share, f"{names[row]}, round {number}, {layer}"
    if not gaussian:
        allowed = 1 / releases.shape[-1]
    if math.isinf(least):
        return CheckResult(name=PRESENT, passed=None, witness=where)
    none = ": no noise, or noise that no stream moves, as from a seed of its own" if least == 0 else ""
    return CheckResult.at_least(PRESENT, least, allowed, unit="share of numbers", witness=where + none)


def _few_values(rows: Tensor) -> bool:
    """Whether the numbers of ``rows (draws, n, d)`` are as coins or levels, of which there are few."""
    return len(np.unique(rows[0].numpy())) <= _LEVELS


def _any_presence(releases: Tensor, present: Tensor) -> CheckResult:
    """Check that other draws move any number of all reports: a single report may be drawn twice by chance."""
    moved = (releases[1:] != releases[:1]).any(0)[present]
    if len(moved) < _FEWEST:
        return CheckResult(name=PRESENT, passed=None, witness=f"fewer than {_FEWEST} reports were sent")
    share = float(moved.double().mean())
    return CheckResult(
        name=PRESENT,
        passed=share > 0,
        measured=share,
        allowed=1 / moved.numel(),
        relation=">=",
        unit="share of numbers",
        witness=f"{len(moved)} reports together",
    )


def _freshness(name: str, noise: Tensor, groups: Sequence[str], members: Sequence[str], fewest: int) -> CheckResult:
    """Check the largest absolute cosine between the noise of two members of a group: noise used twice gives 1.

    Args:
        noise: (groups, members, d).
        fewest: numbers that both members' noise must move at least; other pairs are not compared.
    """
    lengths = torch.linalg.vector_norm(noise, dim=-1, keepdim=True)
    unit = noise / lengths.clamp_min(torch.finfo(noise.dtype).tiny)
    # Rounded: the last digit must not decide which of several equal pairs is named.
    cosines = (unit @ unit.transpose(1, 2)).abs().tril(-1).round(decimals=6)
    moved = (noise != 0).to(noise.dtype)
    compared = (moved @ moved.transpose(1, 2)).tril(-1) >= fewest
    # Below every cosine, so that a pair that is not compared is never the largest.
    cosines = cosines.masked_fill(~compared, -1.0)
    if not bool(compared.any()):
        return CheckResult(name=name, passed=None, witness="no two releases carry noise that the streams move")
    group, one, other = torch.unravel_index(cosines.argmax(), cosines.shape)
    measured = float(cosines.max())
    return CheckResult(
        name=name,
        passed=measured < _SHARED,
        measured=measured,
        allowed=_SHARED,
        unit="cosine",
        witness=f"{members[int(other)]} and {members[int(one)]}, {groups[int(group)]}",
    )
