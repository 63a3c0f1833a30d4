"""A vertical federation about which a defense states a claim, and what the claim's observer receives in runs of it."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from ...audit.check import CheckResult
from ...audit.claim import Claim
from ...audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY, Observer
from ...checks.results import same_claim
from ...defenses.vertical.defense import VerticalPrepared
from ...fl.hooks import Recorder
from ...fl.streams import Runs, Streams
from ...fl.vertical.engine import StepEvent, run_vertical
from ...fl.vertical.network import VerticalModels
from ...fl.vertical.protection import VerticalLaw, VerticalPlan, VerticalProtection
from ...fl.vertical.task import VerticalTask
from .pairs import PersonPair, covered, pairs_of_claim, why_no_pair


@dataclass(frozen=True, kw_only=True, eq=False)
class VerticalCase:
    """A claim about one vertical federation, and the prepared defense that states it.

    Args:
        law: the public description of the noise, where the defense publishes one.
        streams: of all draws.
    """

    claim: Claim
    task: VerticalTask
    plan: VerticalPlan
    protection: VerticalProtection
    law: VerticalLaw | None = None
    streams: Streams = field(default_factory=lambda: Streams(0))

    @classmethod
    def stated(
        cls, prepared: VerticalPrepared, claim: Claim, task: VerticalTask, plan: VerticalPlan, streams: Streams
    ) -> Self | None:
        """Return the case of a claim about the federation for which a defense is prepared; None if the defense states a
        different claim about this federation.
        """
        same = next((one for one in prepared.claims if same_claim(one, claim)), None)
        if same is None:
            return None
        law = prepared.laws.get(same.claim_id)
        return cls(claim=claim, task=task, plan=plan, protection=prepared.protection, law=law, streams=streams)

    @property
    def epochs(self) -> int:
        """The epochs of the training that the claim covers."""
        return min(self.claim.rounds, self.plan.epochs)

    @cached_property
    def pairs(self) -> tuple[PersonPair, ...]:
        """Pairs of data sets that differ in the claim's unit."""
        return pairs_of_claim(self.claim, self.task, self.streams)

    @property
    def why_no_pair(self) -> str:
        """Why no pair of data sets differs as the claim's adjacency says; empty string if some do."""
        return why_no_pair(self.claim, frozen=self.plan.frozen)

    def covered(self, pairs: Sequence[PersonPair]) -> tuple[PersonPair, ...]:
        """Return the pairs of data sets that differ as the claim's adjacency says."""
        return () if self.why_no_pair else covered(self.claim, pairs)

    def trained(
        self, recorders: Sequence[Recorder[StepEvent]], *, protection: VerticalProtection | None = None, **run: Any
    ) -> VerticalModels:
        """Train for the epochs that the claim covers.

        ``protection``: in place of a copy of the defense's own, in which no run leaves anything for another. ``run``:
        further arguments of ``run_vertical``.
        """
        used = deepcopy(self.protection) if protection is None else protection
        return run_vertical(
            self.task, self.plan, used, self.streams, recorders=recorders, stop_after=self.epochs, **run
        )

    def received(
        self, pair: PersonPair, arm: int, *, runs: Runs | None = None, protection: VerticalProtection | None = None
    ) -> list[Tensor]:
        """Return all numbers (runs, numbers) that the observer receives if one data set of a pair is used. There are
        two parts, the messages about the person and all messages; for published models there is one part, all
        parameters.
        """
        seen, runs = Received(observer=self.claim.observer, person=pair.person, party=pair.party), runs or Runs()
        final = self.trained([seen], protection=protection, runs=runs, planted=pair.plant(arm, runs.replicas))
        if self.claim.observer == FINAL_MODEL:
            return [all_numbers(final)]
        return [torch.cat(numbers, dim=1) for numbers in (seen.own, seen.everything) if numbers]

    def judged(self, result: CheckResult, what: str) -> CheckResult:
        """Return the result of a check of the messages or labels that ``what`` names. A claim about the final model
        does not fail the check if the messages exceed it, because what the public receives reveals less.
        """
        if self.claim.observer != FINAL_MODEL or result.passed is not False:
            return result
        words = (
            f"the {what} exceed the claim, but the claim is about the final model, and the public does not receive them"
        )
        return CheckResult(name=result.name, passed=None, witness=words)


@dataclass(kw_only=True)
class Received:
    """A recorder that keeps all numbers that a passive party receives from the active party, or the active party from
    that passive party.

    Args:
        person: the one whose data differ.
        party: number of the passive party.
        own: (R, numbers) of each step, the messages about this person.
        everything: (R, numbers) of each step, all messages.
    """

    observer: Observer
    person: int
    party: int
    own: list[Tensor] = field(default_factory=list)
    everything: list[Tensor] = field(default_factory=list)

    def watch(self, event: StepEvent) -> None:
        """Record a finished step."""
        messages: tuple[Tensor, ...] = ()
        if self.observer == PASSIVE_PARTY:
            messages = (event.gradients[self.party],)
        elif self.observer == ACTIVE_PARTY and event.sent:
            messages = (event.embeddings[self.party],)
        here = event.people == self.person
        for values in messages:
            self.everything.append(values.flatten(1))
            if bool(here.any()):
                self.own.append(values[:, here].flatten(1))


def all_numbers(final: VerticalModels) -> Tensor:
    """Return the parameters of all parties' models, flat: (R, numbers)."""
    return torch.cat([layer.flatten(1) for layers in (*final.bottoms, final.top) for layer in layers], dim=1)
