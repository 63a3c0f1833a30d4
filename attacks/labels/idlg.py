"""Attack that infers a sample's label: the class whose last-layer gradient opposes all others' (Zhao et al. 2020)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...audit.evidence import LabelCounts
from ...fl.layout import Layout
from ...fl.recorder import View
from ..attack import Knowledge
from ..uploads import read_uploads, upload_setting
from .label_attack import LabelAttack


def inferred_labels(gradients: Tensor, layout: Layout) -> Tensor:
    """Infer the label behind each gradient ``(n, d)`` of the loss (not an update), as class numbers ``(n,)``.

    The last layer's bias gradient is softmax minus one-hot: for one sample under cross-entropy its only negative entry
    is the label, for any model. Without a bias, each row of the last weight's gradient is that number times the
    features, and the label's row is the one without a positive inner product with another row (for at least three
    classes). For several samples it returns the one label with the strongest signal.
    """
    last = list(layout.unflatten(gradients).values())[-1]
    # A bias gradient is (n, classes), a weight gradient (n, classes, features).
    if last.ndim == 2:
        return last.argmin(1)
    rows = last.flatten(2)
    products = rows @ rows.transpose(1, 2)
    # A row's product with itself is always positive.
    products.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    return products.amax(2).argmin(1)


@dataclass(frozen=True, kw_only=True)
class IDLG(LabelAttack):
    """An attack that infers one label for each client's upload of one round.

    Exact on an undefended one-sample upload. For a larger lot it still returns only one label. Clipping does not change
    the result, noise does.
    """

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> LabelCounts:
        """Return the inferred labels as one-hot counts ``(n, classes)``. Raises ValueError for a zero or non-finite
        upload.
        """
        uploads = read_uploads(view, knowledge, self.round)
        labels = inferred_labels(uploads.gradients, knowledge.network.layout)
        return LabelCounts(one_hot(labels, knowledge.network.classes).numpy(), upload_setting(view), round=self.round)
