"""This broken noise on embeddings comes with bottom models that are trained on raw columns.

The real bug: only embeddings are thought to be released; but the bottom model learns from each person's columns, and
later embeddings of all people are computed from it.
"""

from dataclasses import dataclass

from ....fl.vertical.plan import VerticalPlan
from ...vertical.columns.embedding_gaussian import EmbeddingGaussian
from ...vertical.defense import VerticalPrepared
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class ControlBottomUnpaid(VerticalControl, EmbeddingGaussian):
    """A deliberately broken defense (control) that states the claim of noised embeddings with bottom models by DP-SGD,
    which an audit must refute. Where the bottom models are frozen it is correct.
    """

    bottom_clip: float | None = 1.0

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"bottom_clip": None}
