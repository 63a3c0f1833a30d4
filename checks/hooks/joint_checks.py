"""Hold all noised vectors that travel together against the claim, where a law describes only one of them.

A second copy with noise of its own, or a partial sum with its share of the noise, hides what the law says of neither
alone; together they show more. The shift of all vectors by one unit is compared with their common noise.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from ...audit.check_result import CheckResult
from ...audit.observer import SHUFFLED, UPLOADS
from ...fl.laws.law import GaussianLaw
from ..law_check import law_check, rounds_alike
from .hook_run import HookRun
from .sampled_checks import Sampled

TOGETHER = "arrays together"
_ERRORS, _MARGIN = 6.0, 1.1
"""Standard errors by which a shift is lowered, and share by which all vectors together may exceed the law."""
_LEAST, _ROWS = 8, 4
"""Runs of long rows at least; rows of one array at most."""


def joint_checks(sampled: Sampled) -> Iterator[CheckResult]:
    """Check the shift over the noise of a release together with all arrays of its length; none without such arrays."""
    setup, laws, around = sampled.setup, sampled.laws, sampled.around
    arrays = [side_arrays(sampled, run) for run in sampled.runs]
    if laws is None or not arrays[0] or not all(law.noise_std > 0 for law in laws):
        return
    stds = torch.tensor([law.noise_std for law in laws], dtype=torch.float64).view(-1, 1, 1)
    within, without, alone, empty = ({**one, "": sampled.releases[place]} for place, one in enumerate(arrays))
    moved = torch.stack([(within[name] - without[name] - alone[name] + empty[name]) / stds for name in within])
    noise = torch.stack([alone[name] / stds for name in within])
    noisy = noise.square().mean((1, 2, 3)) > 0
    first = torch.tensor(sampled.runs[0].first_state)
    lengths = torch.linalg.vector_norm(around.units, dim=-1)
    counted = around.long.unsqueeze(1) & first
    towards = (around.units / lengths.unsqueeze(-1).clamp_min(1e-300)).double()
    # The last array is the release itself.
    if int(noisy.sum()) < 2 or not bool(noisy[-1]):
        return
    rows = noise[noisy][:, :, first].flatten(1)
    inverse = torch.linalg.pinv(rows @ rows.T / rows.shape[1], rtol=1e-6, hermitian=True)
    # (arrays, runs of long rows); a unit that was not drawn, or is in another part, moves other arrays.
    along, seen = (moved[noisy] * towards).sum(-1)[:, counted], 0.0
    kinds, which = torch.unique(along != 0, dim=1, return_inverse=True)
    for kind in range(kinds.shape[1]):
        shifts = along[:, which == kind]
        if shifts.shape[1] < _LEAST:
            continue
        mean, error = shifts.mean(1), shifts.std(1) / math.sqrt(shifts.shape[1])
        lowest = mean.sign() * (mean.abs() - _ERRORS * error).clamp_min(0)
        seen = max(seen, math.sqrt(max(0.0, float(lowest @ inverse @ lowest))))
    law = laws[0]
    stated = abs(law.scale) * law.clip_norm * law.steps / law.noise_std
    names = ", ".join(sorted({name.partition(" row")[0] for name in within} - {""}))
    words = f"one {setup.claim.unit} moves the release and {names} by {seen:.4g} standard deviations of their noise"
    if seen <= _MARGIN * stated:
        yield CheckResult.at_most(TOGETHER, seen, stated, unit="noise", witness=words, slack=(_MARGIN - 1) * stated)
        return
    # What the law does not cover may still be within the claim.
    rounds, why = rounds_alike(setup.protection, setup.claim, setup.plan)
    whole = GaussianLaw(
        clip_norm=seen / law.steps, scale=1.0, noise_std=1.0, rate=law.rate, steps=law.steps, additive=False
    )
    found = law_check(whole, setup.claim, setup.plan, rounds=rounds, remark=why)[0]
    yield replace(found, name=TOGETHER, witness=f"{words}: {found.witness}")


def side_arrays(sampled: Sampled, run: HookRun) -> Mapping[str, Tensor]:
    """Return the arrays of the release's length that the adversary receives with it, ``(R, T, d)`` by name."""
    claim, around = sampled.setup.claim, sampled.around
    uploads = claim.observer.rank >= UPLOADS.rank
    masked = claim.observer.sees_masked_words and claim.observer.rank < SHUFFLED.rank
    if not (uploads or masked):
        return {}
    messages, dim = run.reports if uploads else run.received, sampled.setup.plan.layout.dim
    replicas, found = torch.arange(around.replicas), dict[str, Tensor]()
    for name, array in messages[0].side.items():
        if name in messages[0].unsent or array.ndim != 3 or array.shape[-1] != dim or not array.is_floating_point():
            continue
        rounds = [message.side[name].double() for message in messages]
        if uploads:
            places = torch.tensor([(messages[0].senders or ()).index(one) for one in around.holders.tolist()])
            found[name] = torch.stack([one[replicas, places] for one in rounds], dim=1)
        else:
            rows = range(min(array.shape[1], _ROWS))
            found |= {f"{name} row {row}": torch.stack([one[:, row] for one in rounds], dim=1) for row in rows}
    return found
