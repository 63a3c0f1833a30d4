"""This broken label DP adds noise to the gradients that are sent, and trains the top model on raw labels.

The real bug: only messages are thought to be released; but the top model learns the labels, and later messages about
all people are computed from it.
"""

from dataclasses import dataclass
from typing import ClassVar

from ....fl.vertical.law import Noise
from ....fl.vertical.plan import VerticalPlan
from ....fl.vertical.protection import VerticalProtection
from ...vertical.defense import VerticalPrepared
from ...vertical.labels.label_gradient_noise import ONE_LABEL, GradientNoiseProtection, LabelGradientNoise
from .vertical_control import VerticalControl


@dataclass(frozen=True, kw_only=True)
class ControlTopOnRawLabels(VerticalControl, LabelGradientNoise):
    """A deliberately broken defense (control) that states the claims of noise on residuals, which an audit must refute.
    A person's own gradients are clipped, so that the noise covers them; those of other people, and the final models,
    are not covered.
    """

    broken: ClassVar[type[VerticalProtection] | None] = GradientNoiseProtection

    def bug(self, correct: VerticalPrepared, plan: VerticalPlan) -> dict[str, object]:
        return {"clip_norm": ONE_LABEL[Noise(self.noise)] / 2}
