"""This broken randomised response with a prior takes the shares of the classes from the labels that it protects.

The real bug: the prior is "what one knows about the classes", and a histogram of the training labels is at hand.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor
from torch.nn.functional import one_hot as one_hot_of

from ....fl.vertical.plan import VerticalPlan
from ....fl.vertical.protection import VerticalContext, VerticalProtection
from ...vertical.channel import ChannelProtection, through
from ...vertical.defense import VerticalPrepared
from ...vertical.labels.label_rr_with_prior import LabelRRWithPrior, likely_classes, top_k_channel
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True, eq=False)
class PriorOfLabelsProtection(ChannelProtection):
    """A broken protection that draws labels among the likeliest classes of the labels themselves."""

    epsilon: float

    def targets(self, one_hot: Tensor, context: VerticalContext, rng: np.random.Generator) -> Tensor:
        classes, drawn = one_hot.shape[-1], one_hot.argmax(-1)
        # Replicas mostly hold equal labels, and one channel serves all of them.
        shares, which = one_hot.double().mean(1).unique(dim=0, return_inverse=True)  # type: ignore[no-untyped-call]
        for number, prior in enumerate(shares.tolist()):
            channel = top_k_channel(likely_classes(prior, self.epsilon), self.epsilon, classes)
            drawn[which == number] = through(channel, drawn[which == number], rng)
        return one_hot_of(drawn, classes).to(one_hot.dtype)


@dataclass(frozen=True, kw_only=True)
class ControlPriorOfLabels(VerticalControl, LabelRRWithPrior):
    """A deliberately broken defense (control) that states the claims of randomised response with a public prior, which
    an audit must refute: where one label decides which classes are drawn at all, a class shows it for certain.
    """

    broken: ClassVar[type[VerticalProtection] | None] = PriorOfLabelsProtection

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"epsilon": self.epsilon}
