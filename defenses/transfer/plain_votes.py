"""No protection: the label with most votes is released for every query."""

from dataclasses import dataclass

import numpy as np

from ...audit.arrays import FloatArray
from ...fl.transfer.protection import TransferProtection
from ...fl.transfer.task import TransferPlan
from .defense import PreparedTransfer, TransferDefense


class PlainVotes(TransferDefense):
    """A baseline that releases every query's most voted label without noise and claims nothing."""

    def prepare(self, plan: TransferPlan) -> PreparedTransfer:
        return PreparedTransfer(protection=PlainVotesProtection(), claims=())


class PlainVotesProtection(TransferProtection):
    """A protection that changes nothing; its published law says that a released label follows from the votes."""

    def label_law(self, plan: TransferPlan) -> "MostVotes":
        return MostVotes()


@dataclass(frozen=True)
class MostVotes:
    """The law of a label that is always the one with most votes; among equal counts, the first one."""

    def log_probabilities(self, counts: FloatArray) -> FloatArray:
        """Return 0 for the released label and minus infinity for all others: ``counts (..., classes)`` become ``(...,
        classes + 1)``.
        """
        classes = np.shape(counts)[-1]
        released = np.argmax(counts, axis=-1)
        return np.where(np.arange(classes + 1) == released[..., np.newaxis], 0.0, -np.inf)
