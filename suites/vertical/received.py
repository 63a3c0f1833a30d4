"""What an observer of a vertical federation receives: recorders of the numbers, and what a check of them shows."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.check import CheckResult
from ...audit.claim import Claim
from ...audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY, Observer
from ...fl.vertical.engine import StepEvent
from ...fl.vertical.network import VerticalModels


@dataclass(kw_only=True)
class Received:
    """A recorder that keeps all numbers that a passive party receives, or that the active party receives from it.

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


class GradientsByPerson:
    """A recorder of the gradients that one passive party is sent about each person, epoch by epoch."""

    def __init__(self, people: int, party: int = 0) -> None:
        self.party = party
        self.found: list[list[Tensor]] = [[] for _ in range(people)]

    def watch(self, event: StepEvent) -> None:
        """Record a finished step."""
        for place, person in enumerate(event.people.tolist()):
            self.found[person].append(event.gradients[self.party][0, place])

    def rows(self) -> FloatArray:
        """Return (people, numbers), each person's gradients of all epochs in a row."""
        return torch.stack([torch.cat(parts) for parts in self.found]).double().numpy()


def all_numbers(final: VerticalModels) -> Tensor:
    """Return the parameters of all parties' models, flat: (R, numbers)."""
    return torch.cat([layer.flatten(1) for layers in (*final.bottoms, final.top) for layer in layers], dim=1)


def held_against(claim: Claim, result: CheckResult, what: str) -> CheckResult:
    """Return the result of a check of messages or labels, which ``what`` names. It is no failure of a claim about the
    final model that these exceed it: what the public receives shows less.
    """
    if claim.observer != FINAL_MODEL or result.passed is not False:
        return result
    words = f"the {what} exceed the claim, and the public does not receive them"
    return CheckResult(name=result.name, passed=None, witness=words)
