"""Reports behind a shuffler."""

import numpy as np

from ....audit.claim import Adjacency, Claim, Unit
from ....audit.observer import SHUFFLED
from ....fl.message import Message
from ....fl.plan import Plan
from ....fl.protection import Context, State
from ..case import At, ReportCase


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
