"""Send updates to a defense's hooks that training should not give: huge, infinite, NaN, denormal or outside the radius.

A claim holds for every row that a client may hold. Runs of equal draws are compared with one whose row is zero: what is
received must stay finite, and within what the law allows; without a law no number may become a million times as large
as the numbers of ordinary rows. These comparisons need no statistics.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..audit.check import EXTREME, IN_WITNESS, CheckResult
from ..audit.claim import HELD_BY_CLIENTS, Unit
from ..audit.finite import finite_result
from ..audit.observer import AGGREGATE, FINAL_MODEL
from ..fl.canary import AnyRow
from ..fl.channels import Channels, changes_broadcast
from ..fl.laws import GaussianLaw
from ..fl.replay import Recording
from .canaries import clients_of_user
from .neighbours import PLANTED, Inputs, ReplaySetup, distance

_BEYOND = 1e6
"""Factor by which an extreme row may enlarge the largest number; also the tails of heavy noise stay far below it."""


def extreme_checks(setup: ReplaySetup) -> Iterator[CheckResult]:
    """Check extreme rows at the largest client, or at the first clients if the unit is a user. The result names the
    first row that fails. A separate result reports the effect of rows with NaN or infinite entries on a release
    (``audit.finite``).
    """
    if setup.claim.unit in (*PLANTED, Unit.USER):
        yield from _ExtremeRows(setup=setup).results()


@dataclass(frozen=True, kw_only=True)
class _ExtremeRows:
    """Extreme rows at a client of a federation."""

    setup: ReplaySetup

    @property
    def client(self) -> int:
        """The client that holds the row, or in whose place it is."""
        return 0 if self.setup.claim.unit is Unit.USER else self.setup.checked_clients[0]

    @property
    def clients(self) -> int:
        """Number of clients that hold the vector, if the unit is a user; 1 for other units."""
        return clients_of_user(self.setup.claim, self.setup.plan)

    @cached_property
    def law(self) -> GaussianLaw | None:
        """The law with which moves of the client's release are compared; None without one."""
        if not self.sees_releases or (self.setup.claim.unit is Unit.USER and self.setup.several_reports):
            return None
        law = self.setup.law(self.client)
        return law if law is not None and law.additive else None

    @property
    def sees_releases(self) -> bool:
        """Whether the adversary receives each round's release, and not models that were noised after it."""
        rank = self.setup.claim.observer.rank
        return rank >= AGGREGATE.rank or (rank > FINAL_MODEL.rank and not changes_broadcast(self.setup.protection))

    def results(self) -> Iterator[CheckResult]:
        """Yield the check's result, which names the first row that fails, and that of rows of NaN or infinite entries
        where some are let through.
        """
        let_through: list[str] = []
        yield self._result(let_through)
        if let_through:
            whom = "records" if self.setup.claim.unit in HELD_BY_CLIENTS else "clients"
            yield finite_result(let_through, let_through, whom=whom)

    def _result(self, let_through: list[str]) -> CheckResult:
        """The result on rows; those of NaN or infinite entries that make something no number go to ``let_through``."""
        zero = torch.zeros(self.setup.plan.layout.dim)
        try:
            before = self._run(zero, 0)
        except Exception as problem:  # A hook of a foreign defense may raise anything.
            reason = (
                f"the defense raised an error for a vector of zeros at client {self.client} ({type(problem).__name__})"
            )
            return EXTREME.skipped(reason)
        common = self._run(self.setup.length * torch.ones_like(zero) / math.sqrt(len(zero)), 1)
        ordinary = max(_largest(before), _largest(common), torch.finfo(torch.float32).tiny)
        # What is not finite whatever the row, such as a constant of the public state, is no matter of the row.
        odd = {*self._not_finite(common)}
        if words := next((one for one in self._not_finite(before) if one not in odd), ""):
            return EXTREME.failed(f"a vector of zeros at client {self.client}: {words}", 1.0, 0.0, unit=IN_WITNESS)
        of_user = self.setup.claim.unit is Unit.USER
        at = f"client {self.client}" if self.clients == 1 else f"each of {self.clients} clients"
        rows = [one for one in extreme_rows(len(zero)) if not of_user or bool(one[1].isfinite().all())]
        biggest = 0.0
        for name, row in rows:
            after = self._run(row, 1)
            grown = _largest(after) / ordinary
            words = next((one for one in self._not_finite(after) if one not in odd), "")
            if words and not bool(row.isfinite().all()):
                let_through.append(f"a vector {name} at {at}: {words}")
                continue
            biggest = max(biggest, grown)
            if (found := self._failed(before, after, odd, grown, f"a vector {name} at {at}")) is not None:
                return found
        if biggest == 0:
            return EXTREME.skipped("not looked at: all numbers that the adversary receives are zero")
        witness = f"{len(rows)} extreme vectors at {at}, each compared with a vector of zeros under equal random draws"
        found = EXTREME.at_most(biggest, _BEYOND, unit="times the usual size", witness=witness)
        return replace(found, not_compared=("users whose samples have entries that are not finite",) if of_user else ())

    def _run(self, row: Tensor, arm: int) -> Recording:
        # Rows of samples and of clients stay in the federation: their numbers are the same in all runs.
        canary = AnyRow(
            unit=self.setup.claim.unit,
            present=row,
            absent=torch.zeros_like(row),
            client=self.client,
            place=None if self.setup.claim.unit in HELD_BY_CLIENTS else self.client,
            clients=self.clients,
        )
        # One round: the first one, for which the law is published. A final model may be protected in the last one.
        return self.setup.run(Inputs(canary=canary, arm=arm), rounds=self.setup.brief and 1)

    def _failed(
        self, before: Recording, after: Recording, odd: set[str], grown: float, witness: str
    ) -> CheckResult | None:
        """The failed check of a row, from which numbers grew by a factor; None where it is as it should be."""
        if words := next((one for one in self._not_finite(after) if one not in odd), ""):
            return EXTREME.failed(f"{witness}: {words}", 1.0, 0.0, unit=IN_WITNESS)
        if grown > _BEYOND:
            words = (
                f"{witness}: the largest number that the adversary receives is {grown:.3g} times that of a usual run"
            )
            return EXTREME.failed(words, grown, _BEYOND, unit=IN_WITNESS)
        if self.law is not None:
            allowed = abs(self.law.scale) * self.law.clip_norm * self.law.steps
            moved, slack = distance(before.releases[0], after.releases[0], allowed)
            if moved > allowed + slack:
                return EXTREME.failed(
                    f"{witness}, compared with a vector of zeros", moved, allowed + slack, unit="L2 norm"
                )
        return None

    def _not_finite(self, recording: Recording) -> Iterator[str]:
        """What holds an infinite number or one that is no number, in words."""
        if self.sees_releases and not all(bool(release.isfinite().all()) for release in recording.releases):
            yield "the release is not finite"
        for place, channels in _received(recording):
            for name, value in channels.items():
                if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not np.isfinite(value).all():
                    yield f"{name} is not finite, {place}"


def extreme_rows(dim: int) -> Iterator[tuple[str, Tensor]]:
    """Yield extreme rows ``(d,)`` that training should not produce, each with its description."""
    signs = torch.tensor([1.0, -1.0]).repeat(dim)[:dim]
    first = torch.zeros(dim)
    first[0] = 1.0
    yield "of entries 1e-42, which are denormal", 1e-42 * torch.ones(dim)
    yield "of entries 1e5, which overflow in half precision", 1e5 * signs
    yield "of entries of 1e8", 1e8 * signs
    yield "of entries near 1e20, whose norm overflows", 1e20 * torch.linspace(0.5, 1.0, dim)
    yield "with one entry of 3e38", torch.where(first > 0, 3e38, 0.0)
    yield "with one infinite entry", torch.where(first > 0, math.inf, 0.0)
    yield "of infinite entries of both signs", math.inf * signs
    yield "with one entry that is NaN", torch.where(first > 0, math.nan, 0.0)
    yield "of entries that are NaN", torch.full((dim,), math.nan)
    # A length that is no number or infinite decides a clip, and what decided it may be zeroed afterwards.
    for odd, words in ((math.nan, "no number"), (math.inf, "infinite")):
        yield f"with one entry that is {words} and other entries of 1e12", torch.where(first > 0, odd, 1e12 * signs)


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
