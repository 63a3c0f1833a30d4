"""This broken noise on logits clips nothing.

The real bug: logits are taken to lie within the clip bound, because those of an untrained model do.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....fl.protection import State
from ....fl.streams import normal
from ....fl.transfer.protection import TransferContext, TransferProtection
from ...transfer.gaussian_logits import GaussianLogits, NoisyLogits
from .control import TransferControl


@dataclass(frozen=True, kw_only=True)
class NoClipLogits(NoisyLogits):
    """A broken protection that adds noise to logits of any size."""

    def teacher_answers(
        self, logits: Tensor, context: TransferContext, state: State, rng: np.random.Generator
    ) -> Tensor:
        return logits + self.noise_std * normal(rng, tuple(logits.shape))


@dataclass(frozen=True, kw_only=True)
class ControlVotesNoClip(TransferControl, GaussianLogits):
    """A deliberately broken defense (control) that states the claim of noise on clipped logits but violates it."""

    broken: ClassVar[type[TransferProtection]] = NoClipLogits
