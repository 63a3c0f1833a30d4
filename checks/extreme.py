"""Send rows to a defense's hooks that training should not give: huge, infinite, no number, denormal, out of the radius.

A claim holds for every row that a client may hold. Runs of equal draws are compared with one whose row is zero: what is
received must stay finite, and within what the law allows; without a law no number may become a million times as large
as the numbers of ordinary rows. These comparisons need no statistics. Only the last check draws: a local randomiser
must not give one and the same output to a row outside its radius. Its false-alarm probability is at most 1e-9.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ..audit.check import EXTREME, CheckResult
from ..audit.claim import HELD_BY_CLIENTS, Claim, Unit
from ..audit.ledger import SUITE
from ..audit.observer import AGGREGATE, FINAL_MODEL, UPLOADS
from ..fl.canary import AnyRow, Canary
from ..fl.channels import Channels, changes_broadcast
from ..fl.laws import GaussianLaw
from ..fl.plan import Plan
from ..fl.protection import Protection
from ..fl.replay import Recording
from ..fl.rounds import Rounds, given_rows
from ..fl.streams import Runs, Streams
from .noise_sample import spacing

_BEYOND = 1e6
"""Factor by which an extreme row may enlarge the largest number; also the tails of heavy noise stay far below it."""
_DRAWS, _NUMBERS = 1024, 2**22
"""Draws of one report, and numbers drawn at most."""
_SLACK, _ROUNDING = 1e-3, 2.0**-22
Run = Callable[[Canary, int], Recording]
"""Runs the federation with the canary in a arm (1: present, 0: a row of zeros)."""


@dataclass(frozen=True, kw_only=True)
class ExtremeProbe:
    """What the extreme rows of one claim are compared with.

    Args:
        clip_norm: length of an ordinary row.
        law: Gaussian law of the client's release; None without one.
        client: the client that holds the row, or in whose place it is.
        run: runs the frozen federation over the first round, or over all where the adversary receives none of them.
        clients: each of the first so many clients holds the row, if it is a user's; 1 for other units.
    """

    claim: Claim
    plan: Plan
    protection: Protection
    clip_norm: float
    law: GaussianLaw | None
    client: int
    run: Run
    clients: int = 1

    def result(self) -> CheckResult:
        """Return the check's result; it names the first row that fails."""
        try:
            self._run(torch.zeros(self.plan.layout.dim), 0)
        except Exception as problem:  # A hook of a foreign defense may raise anything.
            reason = f"the defense does not run with a row of zeros at client {self.client} ({type(problem).__name__})"
            return EXTREME.skipped(reason)
        count, biggest = 0, 0.0
        zero = torch.zeros(self.plan.layout.dim)
        usual = self.clip_norm * torch.ones_like(zero) / math.sqrt(len(zero))
        before = self._run(zero, 0)
        common = self._run(usual, 1)
        ordinary = max(_largest(before), _largest(common), torch.finfo(torch.float32).tiny)
        # What is not finite whatever the row, such as a constant of the public state, is no matter of the row.
        odd = {*self._not_finite(common)}
        if words := next((one for one in self._not_finite(before) if one not in odd), ""):
            return self._failed(1.0, 0.0, f"a row of zeros at client {self.client}: {words}")
        of_user = self.claim.unit is Unit.USER
        at = f"client {self.client}" if self.clients == 1 else f"each of {self.clients} clients"
        for name, row in extreme_rows(len(zero)):
            if of_user and not bool(row.isfinite().all()):
                continue
            after = self._run(row, 1)
            witness = f"a row {name} at {at}"
            count += 1
            if words := next((one for one in self._not_finite(after) if one not in odd), ""):
                return self._failed(1.0, 0.0, f"{witness}: {words}")
            grown = _largest(after) / ordinary
            biggest = max(biggest, grown)
            if grown > _BEYOND:
                return self._failed(grown, _BEYOND, f"{witness}: a number of this many times its usual size")
            moved, allowed = self._moved(before, after)
            if moved > allowed:
                return self._failed(moved, allowed, f"{witness}, from a row of zeros", unit="L2 norm")
        if words := self._stuck():
            return self._failed(1.0, 0.0, words)
        if biggest == 0:
            return EXTREME.skipped("not looked at: all numbers received are zero")
        witness = f"{count} rows at {at}, against a row of zeros and equal draws"
        found = EXTREME.at_most(biggest, _BEYOND, unit="times the usual size", witness=witness)
        return replace(found, not_compared=("rows of a user with entries that are not finite",) if of_user else ())

    def _run(self, row: Tensor, arm: int) -> Recording:
        # Rows of samples and of clients stay in the federation: their numbers are the same in all runs.
        canary = AnyRow(
            unit=self.claim.unit,
            present=row,
            absent=torch.zeros_like(row),
            client=self.client,
            place=None if self.claim.unit in HELD_BY_CLIENTS else self.client,
            clients=self.clients,
        )
        return self.run(canary, arm)

    @property
    def _sees_releases(self) -> bool:
        """Whether the adversary receives each round's release, and not models that were noised after it."""
        rank = self.claim.observer.rank
        return rank >= AGGREGATE.rank or (rank > FINAL_MODEL.rank and not changes_broadcast(self.protection))

    def _not_finite(self, recording: Recording) -> Iterator[str]:
        """What holds an infinite number or one that is no number, in words."""
        if self._sees_releases and not all(bool(release.isfinite().all()) for release in recording.releases):
            yield "the release is not finite"
        for place, channels in _received(recording):
            for name, value in channels.items():
                if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not np.isfinite(value).all():
                    yield f"{name} is not finite, {place}"

    def _failed(self, measured: float, allowed: float, witness: str, *, unit: str = "see witness") -> CheckResult:
        return EXTREME.failed(witness, measured, allowed, unit=unit)

    def _moved(self, before: Recording, after: Recording) -> tuple[float, float]:
        if self.law is None or not self.law.additive or not self._sees_releases:
            return 0.0, math.inf
        one, other = before.releases[0], after.releases[0]
        allowed = abs(self.law.scale) * self.law.clip_norm * self.law.steps
        slack = _SLACK * allowed + _ROUNDING * float(torch.linalg.vector_norm(one))
        moved = float(torch.linalg.vector_norm(other - one))
        if moved > allowed + slack and not self.law.grid:
            # Numbers that are rounded after the noise was added move by one step more.
            changed = int(torch.count_nonzero(other - one))
            slack += max(spacing(row.numpy()) for row in (*one, *other)) * changed**0.5
        return moved, allowed + slack

    def _stuck(self) -> str:
        """Why a report on a row outside the radius is no longer random; empty where it is, or cannot be compared."""
        claim = self.claim
        if claim.unit not in (Unit.REPORT, Unit.CLIENT) or claim.observer.rank < UPLOADS.rank or claim.delta > 0:
            return ""
        dim = self.plan.layout.dim
        ramp = torch.linspace(1.0, 2.0, dim) * torch.tensor([1.0, -1.0]).repeat(dim)[:dim]
        try:
            usual = _reports(self, self.clip_norm * ramp / (4 * dim), 0)
            wide = [_reports(self, length * self.clip_norm * ramp, 1) for length in (1.0, 3.0, 1e4)]
        except Exception:  # Without a federation a hook of a foreign defense may raise anything.
            return ""
        for name, ordinary in usual.items():
            for length, found in zip((1, 3, 10000), wide, strict=True):
                values = found.get(name)
                if values is None or values.shape != ordinary.shape:
                    continue
                # Numbers that are equal in all draws: a correct randomiser gives others as often as exp(-eps) allows.
                constant = (values == values[:1]).all(0)
                # Half of the share seen: an ordinary row's own share is only estimated.
                others = (ordinary != values[:1]).double().mean(0) / 2
                chance = torch.log1p(-math.exp(-min(claim.epsilon, 700.0)) * others) * len(values)
                sure = constant & (chance + math.log(len(chance.flatten())) <= math.log(SUITE.level("extreme rows")))
                if bool(sure.any()):
                    where = int(sure.flatten().nonzero()[0]) + 1
                    size = f"entries {length} to {2 * length} clip norms"
                    return f"a row of unequal {size}: number {where} of {name} is the same in {len(values)} draws"
        return ""


def extreme_rows(dim: int) -> Iterator[tuple[str, Tensor]]:
    """Yield rows ``(d,)`` that training should not give, with their words."""
    signs = torch.tensor([1.0, -1.0]).repeat(dim)[:dim]
    first = torch.zeros(dim)
    first[0] = 1.0
    yield "of entries of 1e-42, which are denormal", 1e-42 * torch.ones(dim)
    yield "of entries of 1e5, which overflow in half precision", 1e5 * signs
    yield "of entries of 1e8", 1e8 * signs
    yield "of entries of 1e20, with a norm that overflows", 1e20 * torch.linspace(0.5, 1.0, dim)
    yield "with one entry of 3e38", torch.where(first > 0, 3e38, 0.0)
    yield "with one infinite entry", torch.where(first > 0, math.inf, 0.0)
    yield "of infinite entries of both signs", math.inf * signs
    yield "with one entry that is no number", torch.where(first > 0, math.nan, 0.0)
    yield "of entries that are no number", torch.full((dim,), math.nan)
    # A length that is no number or infinite decides a clip, and what decided it may be zeroed afterwards.
    for odd, words in ((math.nan, "no number"), (math.inf, "infinite")):
        yield f"with one entry that is {words}, and others of 1e12", torch.where(first > 0, odd, 1e12 * signs)


def _received(recording: Recording) -> Iterator[tuple[str, Channels]]:
    yield "round 0", recording.channels[0]
    yield "after the last round", recording.ending


def _largest(recording: Recording) -> float:
    largest = 0.0
    for _, channels in _received(recording):
        for value in channels.values():
            if isinstance(value, np.ndarray) and value.dtype.kind in "fiu" and value.size:
                finite = np.abs(value.astype(np.float64))
                largest = max(largest, float(finite[np.isfinite(finite)].max(initial=0.0)))
    return largest


def _reports(probe: ExtremeProbe, row: Tensor, block: int) -> Mapping[str, Tensor]:
    """Values and further arrays of many reports of one client on one row, by name."""
    draws = max(2, min(_DRAWS, _NUMBERS // len(row)))
    there = torch.ones(draws, 1, dtype=torch.bool)
    rounds = Rounds(
        plan=probe.plan,
        protection=probe.protection,
        streams=Streams(0),
        rows=given_rows(row, there),
        runs=Runs(replicas=draws, block=block),
        candidates=(probe.client,),
        all_rows=True,
        closes=False,
    )
    (only,) = rounds.each(1)
    sent = only.reports
    side = {f"array {name}": array[:, 0] for name, array in sent.side.items() if name not in sent.unsent}
    return {"the report": sent.values[:, 0], **side}
