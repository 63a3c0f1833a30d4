"""iDLG: the label of a sample is the class whose last-layer gradient points against the others (Zhao et al. 2020)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...audit.evidence import LabelCounts
from ...fl.layout import Layout
from ...fl.view import View
from ..attack import Attack, Knowledge
from ..uploads import check_round, read_uploads, upload_setting


def inferred_labels(gradients: Tensor, layout: Layout) -> Tensor:
    """The label behind each gradient ``(n, d)`` (of the loss, not an update), as ``(n,)`` class numbers.

    The last layer's bias gradient is softmax minus one-hot: for one sample under cross-entropy its one negative entry
    is the label, whatever the model. Without a bias, each row of the last weight's gradient is that number times the
    features, and the label's row is the one with no positive inner product with another (three classes at least).
    Of several samples it names the one label that it is surest of.
    """
    last = list(layout.unflatten(gradients).values())[-1]
    if last.ndim == 2:
        return last.argmin(1)
    rows = last.flatten(2)
    products = rows @ rows.transpose(1, 2)
    products.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    return products.amax(2).argmin(1)


@dataclass(frozen=True, kw_only=True)
class IDLG(Attack):
    """One label an upload, of the uploads of ``round``.

    Exact on an undefended one-sample upload. Of a larger lot it still names one label only. Clipping does not move the
    answer, noise does.
    """

    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Counts ``(n, classes)``, one-hot rows. Raises ValueError for a zero or non-finite upload."""
        uploads = read_uploads(view, knowledge, self.round)
        labels = inferred_labels(uploads.gradients, knowledge.network.layout)
        return LabelCounts(one_hot(labels, knowledge.network.classes).numpy(), upload_setting(view), round=self.round)
