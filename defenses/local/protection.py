"""Randomise every client's report at the client, and average the reports at the server."""

from dataclasses import dataclass

import numpy as np

from ...audit.observer import UPLOADS, Observer
from ...fl.laws import ReportLaw
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State


@dataclass(frozen=True, kw_only=True)
class LocalProtection(Protection):
    """A protection in which each client randomises its own report; no other step changes reports.

    Args:
        release: the law of one row's report, for any length.
    """

    release: ReportLaw

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return updates.with_values(self.release.sample(updates.values, rng))

    def law(self, observer: Observer, plan: Plan, client: int) -> ReportLaw | None:
        """Return the distribution of one client's report as the server observes it."""
        # Observers below see aggregates, whose law depends on all clients.
        return self.release if observer.rank >= UPLOADS.rank else None
