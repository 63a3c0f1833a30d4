"""These broken bits of embeddings each get the whole epsilon of a release.

The real bug: the budget is taken for that of a message, and the randomiser is applied number by number.
"""

from dataclasses import dataclass

from ....fl.vertical.plan import VerticalPlan
from ...vertical.channel import response_channel
from ...vertical.columns.embedding_bits import EmbeddingBits
from ...vertical.columns.protection import embedding_releases
from ...vertical.defense import VerticalPrepared
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class ControlBitsInFull(VerticalControl, EmbeddingBits):
    """A deliberately broken defense (control) that states the claim of randomised signs, which an audit must refute:
    the epsilons of all numbers of an embedding add up. With embeddings of one number it is correct.
    """

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        each = self.each_of(embedding_releases(plan, sends_once=self.sends_once))
        return {"channel": response_channel(each, 2)}
