"""Models as a user writes them: functions ``(shape, classes) -> nn.Module``."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Through(nn.Module):
    """A module from the layers of a model and the function that runs them."""

    def __init__(self, run, **layers):
        super().__init__()
        self.run = run
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, images):
        return self.run(self, images)


def attentive(shape, classes):
    """Attention by PyTorch's fused function."""

    def run(m, x):
        h = m.inside(x.flatten(2).transpose(1, 2))
        return m.output(F.scaled_dot_product_attention(h, h, h).mean(1))

    return Through(run, inside=nn.Linear(shape[0], 6), output=nn.Linear(6, classes))


def recurrent(shape, classes):
    """A recurrent cell over the rows of an image."""

    def run(m, x):
        state = None  # The cell's own zeros, which know nothing of a function transform.
        for row in x.flatten(1, 2).unbind(1):
            state = m.cell(row, state)
        return m.output(state)

    return Through(run, cell=nn.GRUCell(shape[2], 5), output=nn.Linear(5, classes))


def dropping(shape, classes):
    """Dropout in two places, one of which drops whole channels."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 4, 3, padding=1),
        nn.Dropout2d(0.3),
        nn.Tanh(),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(4 * math.prod(shape[1:]), classes),
    )


def half_frozen(shape, classes):
    """A fixed first layer and a constant buffer."""
    model = Through(
        lambda m, x: m.output(torch.tanh(m.fixed(x.flatten(1)))) + m.shift,
        fixed=nn.Linear(math.prod(shape), 6),
        output=nn.Linear(6, classes),
    )
    model.fixed.requires_grad_(False)
    model.register_buffer("shift", torch.ones(classes))
    return model


def branching(shape, classes):
    """Python decides by the image's values, which function transforms refuse."""

    def run(m, x):
        return torch.stack([(m.even if float(one.sum()) > one.numel() / 2 else m.odd)(one.flatten()) for one in x])

    size = math.prod(shape)
    return Through(run, even=nn.Linear(size, classes), odd=nn.Linear(size, classes))


def group_normed(shape, classes):
    """A convolution with group norm."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(),
        nn.Linear(4 * math.prod(shape[1:]), classes),
    )  # fmt: skip


def batch_normed(shape, classes):
    """Batch norm with running statistics, as torchvision's models have it."""
    output = nn.Linear(4 * math.prod(shape), classes)
    return nn.Sequential(nn.Conv2d(shape[0], 4, 3, padding=1), nn.BatchNorm2d(4), nn.Flatten(), output)


def batch_statistics(shape, classes):
    """Batch norm of the lot at hand."""
    size = math.prod(shape)
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(size, track_running_stats=False), nn.Linear(size, classes))
