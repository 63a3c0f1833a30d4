"""Faults of shufflers, which let the analyser know whose report is whose, and an unusual correct one."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.observer import SHUFFLED
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, State
from ...fl.streams import uniform
from ..accounting.pld import many_curve, many_epsilon
from ..defense import Prepared
from ..shuffling.claims import largest_scale
from ..shuffling.cldp_sgd import CLDPSGDProtection, client_pair
from .case import At, Fault, ProtectionCase, ReportCase


@dataclass(frozen=True, kw_only=True)
class _Shuffled(ProtectionCase, CLDPSGDProtection):
    """One-bit reports of whole updates. It claims one client (replace-one) against the analyser behind the shuffler."""

    radius: float = 0.1
    local_epsilon: float = 1.0

    def tagged(self, order: Tensor, rng: np.random.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the order of the rows, and the arrays that travel with them."""
        return order, {}

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        keys = uniform(rng, tuple(reports.present.shape), dtype=torch.float64)
        order, side = self.tagged(keys.masked_fill(~reports.present, 2.0).argsort(dim=1), rng)
        here = torch.arange(len(order)).unsqueeze(1)
        values, present = reports.values[here, order], reports.present[here, order]
        return replace(reports, values=values, present=present, senders=None, side=side)

    @classmethod
    def prepare(cls, plan: Plan) -> Prepared:
        def cost(local: float) -> float:
            return many_epsilon(client_pair(plan, local), releases=plan.rounds, delta=cls.delta)

        local = largest_scale(cost, cls.epsilon)
        curve = many_curve(client_pair(plan, local), releases=plan.rounds, reach=cls.epsilon)
        claim = cls.stated(plan, Unit.CLIENT, Adjacency.REPLACE_ONE, SHUFFLED, curve=curve, clip_norm=cls.radius)
        return Prepared(protection=cls(local_epsilon=local), claims=(claim,))


class _NumberBeside(_Shuffled):
    def tagged(self, order: Tensor, rng: np.random.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return order, {"id": torch.zeros_like(order)}


class TaggedReports(Fault, _NumberBeside):
    """Rows are shuffled, and carry an identifier of their connection, which is the client's number."""

    def tagged(self, order: Tensor, rng: np.random.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return order, {"id": order}


class _NewPseudonyms(_Shuffled):
    """Each report carries a random number, under which its client can ask for a receipt."""

    def kept_or_new(self, drawn: Tensor) -> Tensor:
        """Return the numbers that clients use in this round, of those drawn in it."""
        return drawn

    def tagged(self, order: Tensor, rng: np.random.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        drawn = self.kept_or_new(uniform(rng, tuple(order.shape), dtype=torch.float64))
        return order, {"receipt": drawn.gather(1, order)}


class KeptPseudonyms(Fault, _NewPseudonyms):
    """A client keeps its random number for all rounds, so that the analyser can put its reports together."""

    def kept_or_new(self, drawn: Tensor) -> Tensor:
        self.memory.setdefault(drawn.shape, drawn)
        return self.memory[drawn.shape]


class _OneBatch(_Shuffled):
    def tagged(self, order: Tensor, rng: np.random.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        return order, {"batch": torch.zeros_like(order)}


class BatchesOfTwo(Fault, _OneBatch):
    """The shuffler works on batches of two clients, and forwards the number of the batch."""

    def tagged(self, order: Tensor, rng: np.random.Generator) -> tuple[Tensor, dict[str, Tensor]]:
        batch = (torch.arange(order.shape[1]) // 2).expand_as(order)
        mixed = (batch + 0.5 * uniform(rng, tuple(order.shape), dtype=torch.float64)).argsort(dim=1)
        return mixed, {"batch": batch.gather(1, mixed)}


class PersonalScale(Fault, _Shuffled):
    """A broken protection: each client scales its reports by its own calibration factor, by which the analyser can
    identify it.
    """

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        sent = super().report(updates, context, state, rng)
        scales = torch.tensor([1 + 1e-3 * (client + 1) for client in updates.senders or ()])
        return sent.with_values(sent.values * scales.view(1, -1, 1))


class ShuffledColumns(ReportCase):
    """Every coordinate of noised reports is shuffled on its own, and no amplification is claimed."""

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        keys = At(context=context, state=state, rng=rng).uniform(*reports.values.shape)
        order = keys.masked_fill(~reports.present.unsqueeze(-1), 2.0).argsort(dim=1)
        present = reports.present.sort(dim=1, descending=True, stable=True).values
        return Message(values=reports.values.gather(1, order), present=present, senders=None)

    @classmethod
    def claims_of(cls, plan: Plan) -> tuple[Claim, ...]:
        (uploads,) = super().claims_of(plan)
        return (cls.stated(plan, Unit.REPORT, Adjacency.REPLACE_ONE, SHUFFLED, curve=uploads.curve, clip_norm=1.0),)
