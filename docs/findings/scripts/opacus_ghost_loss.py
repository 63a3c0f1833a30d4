"""Ghost clipping of a loss of shape (batch, 1): the factors of all records are multiplied with the loss of each.

Library: opacus==1.6.0.
"""

import warnings

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")


def moved(shape, gap):  # how far one of eight records moves the sum without noise, at clip norm 1
    sums = []
    for last in (gap, 0.0):
        torch.manual_seed(0)
        x, y = torch.ones(8, 1), torch.zeros(8, *shape)
        y[-1] = last
        model = nn.Sequential(nn.Linear(1, 1, bias=False), *([] if shape else [nn.Flatten(0)]))
        nn.init.zeros_(model[0].weight)
        model, optimizer, loss, _ = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), 1.0),
            data_loader=DataLoader(TensorDataset(x, y), batch_size=8),
            criterion=nn.MSELoss(),
            noise_multiplier=0.0,
            max_grad_norm=1.0,
            poisson_sampling=False,
            grad_sample_mode="ghost",
        )
        loss(model(x), y).backward()
        optimizer.accumulate()
        sums.append(optimizer.params[0].summed_grad.clone())
    return (sums[0] - sums[1]).norm().item()


apart = {shape: moved(shape, 500.0) for shape in ((1,), ())}
print(
    "moved by one record, in clip norms:", {f"loss of shape (8, *{key})": round(one, 3) for key, one in apart.items()}
)
print(f"verdict: REFUTED, effective noise multiplier {1 / apart[(1,)]:.5f} of the stated one (MSELoss of one output)")
