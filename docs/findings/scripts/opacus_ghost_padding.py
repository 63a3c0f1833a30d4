"""Norms of convolutions are computed as if the padding were zeros; the gradient that is summed uses the true one.

Library: opacus==1.6.0.
"""

import torch
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import nn


class Model(nn.Module):
    def __init__(self, padding):
        super().__init__()
        self.layer = nn.Conv1d(1, 1, 3, padding=1, padding_mode=padding, bias=False)

    def forward(self, x):
        return self.layer(x)[:, 0, :1]


def summed_norm(padding, record):  # of one record, at clip norm 1
    model = GradSampleModuleFastGradientClipping(Model(padding), max_grad_norm=1.0, loss_reduction="sum")
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), 1.0),
        noise_multiplier=0.0,
        max_grad_norm=1.0,
        expected_batch_size=1,
        loss_reduction="sum",
    )
    loss = nn.L1Loss(reduction="sum")
    DPLossFastGradientClipping(model, optimizer, loss, "sum")(model(record), torch.full((1, 1), -1e6)).backward()
    optimizer.accumulate()
    return optimizer.params[0].summed_grad.norm().item()


record = torch.tensor([[[0.0, 0.001, 0.0, 1000.0]]])
norms = {padding: summed_norm(padding, record) for padding in ("zeros", "circular")}
norms |= {padding: summed_norm(padding, torch.tensor([[[1e3, 1e3, 0, 0]]])) for padding in ("reflect", "replicate")}
print("norm after clipping to 1:", {padding: round(norm, 3) for padding, norm in norms.items()})
ratio = 1 / norms["circular"]
print(f"verdict: REFUTED, effective noise multiplier {ratio:.3f} of the stated one (padding_mode circular)")
