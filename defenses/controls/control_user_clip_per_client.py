"""This broken user-level DP-FedSGD lets every client clip a user to the whole bound.

The real bug: clients take a user's samples for all that the user has, although the user has samples at k of them. The
user moves the sum by k times what the noise is scaled to.
"""

from dataclasses import dataclass
from typing import ClassVar

from ...fl.protection import Protection
from ..client_level.user_level import UserLevel, UserLevelProtection
from .control import Control


@dataclass(frozen=True, kw_only=True)
class UserClipPerClientProtection(UserLevelProtection):
    """A broken protection in which each client clips a user to the whole bound, not to one of k shares of it."""

    @property
    def share(self) -> float:
        return self.clip_norm


@dataclass(frozen=True, kw_only=True)
class ControlUserClipPerClient(Control, UserLevel):
    """A deliberately broken defense (control) that states the claim of user-level DP-FedSGD but violates it, so an
    audit must refute it.
    """

    broken: ClassVar[type[Protection]] = UserClipPerClientProtection
