"""This broken noise on embeddings is that of one release, and embeddings are sent in every epoch, each with new noise.

The real bug: the budget is computed per message, and the training loop asks for the embeddings once per epoch.
"""

from dataclasses import dataclass

from ....fl.vertical.plan import VerticalPlan
from ...vertical.columns.embedding_gaussian import EmbeddingGaussian
from ...vertical.defense import VerticalPrepared
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class ControlEmbeddingResent(VerticalControl, EmbeddingGaussian):
    """A deliberately broken defense (control) that states the claim of embeddings that are sent once, which an audit
    over several epochs must refute. In one epoch it is correct.
    """

    sends_once: bool = True

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"sends_once": False}
