"""This broken user-level DP-FedSGD clips each sample's gradient to the bound of a user.

The real bug: a DP-SGD library that clips samples is used as it is, and its epsilon is reported for users. A user with m
samples moves the sum by m times what the noise is scaled to.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from ...fl.laws.law import clipped_sum
from ...fl.protection import Protection
from ..client_level.user_level import UserLevel, UserLevelProtection
from .control import Control


@dataclass(frozen=True, kw_only=True)
class UserClipPerSampleProtection(UserLevelProtection):
    """A broken protection that clips the gradient of each sample, not the sum of a user's gradients."""

    def total(self, gradients: Tensor, present: Tensor, owners: Tensor) -> Tensor:
        return clipped_sum(gradients, present, self.share)


@dataclass(frozen=True, kw_only=True)
class ControlUserClipPerSample(Control, UserLevel):
    """A deliberately broken defense (control) that states the claim of user-level DP-FedSGD but violates it, so an
    audit must refute it.
    """

    broken: ClassVar[type[Protection]] = UserClipPerSampleProtection
