"""This broken DP-SGD does not clip gradients.

The real bug: the clip is applied to a copy, or to the mean of the batch, so that one sample can move the sum without a
bound.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...fl.laws.law import lot_sum
from ...fl.protection import Protection
from ..sample_level.dp_sgd import DPSGD, DPSGDProtection
from .control import Control


@dataclass(frozen=True, kw_only=True)
class NoClipProtection(DPSGDProtection):
    """A broken protection that sums the gradients without clipping them."""

    def total(self, gradients: Tensor, present: Tensor) -> Tensor:
        return lot_sum(gradients, present)


@dataclass(frozen=True, kw_only=True)
class ControlNoClip(Control, DPSGD):
    """A deliberately broken defense (control) that states the claim of DP-SGD but violates it, so an audit must refute
    it.
    """

    broken: ClassVar[type[Protection]] = NoClipProtection
