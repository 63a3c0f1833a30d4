"""Random labels: a uniform guess for each upload, without looking, which label inference has to beat."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.evidence import LabelCounts
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..uploads import check_round, count_uploads, upload_setting


@dataclass(frozen=True, kw_only=True)
class RandomLabels(Attack):
    """One uniform label an upload of ``round``: right on one in ``classes``."""

    null: ClassVar[bool] = True
    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Counts ``(n, classes)``, one-hot rows."""
        classes = knowledge.network.classes
        labels = rng.integers(classes, size=count_uploads(view, self.round))
        return LabelCounts(np.eye(classes)[labels], upload_setting(view))
