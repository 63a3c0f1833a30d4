"""Computes the model that the server would have if it aggregated one client's upload alone."""

import torch
from torch import Tensor

from ...fl.probe import Candidates
from ...fl.view import View
from ..attack import Knowledge
from .alignment import RoundRows


def client_model_losses(rows: RoundRows, view: View, knowledge: Knowledge, shown: Candidates) -> Tensor:
    """Compute the cross-entropy of each candidate under each client's model, shape ``(m, n)``, in double precision."""
    models = view.plan.algorithm.combine(rows.model, rows.values)
    with torch.no_grad():
        return torch.stack([knowledge.network.losses(one, shown.images, shown.labels) for one in models]).double()
