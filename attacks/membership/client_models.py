"""Client models: the model of each client if the server combined its upload alone."""

import torch
from torch import Tensor

from ...fl.probe import Candidates
from ...fl.view import View
from ..attack import Knowledge
from .alignment import RoundRows


def client_model_losses(rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> Tensor:
    """Cross-entropy of each candidate under each row's model, ``(m, n)``, double precision."""
    models = view.plan.algorithm.combine(rows.model, rows.values)
    with torch.no_grad():
        return torch.stack([knowledge.network.losses(one, shown.images, shown.labels) for one in models]).double()
