"""Second derivatives through mapped gradients: those of finite differences, also where PyTorch's own are wrong."""

import pytest
import torch
from fedassay.fl.models.gradients import differentiable_twice
from torch.func import grad, vmap
from torch.nn import functional as F

OPERATIONS = {
    "layer norm": lambda w, x: F.layer_norm(x * w, (4,), w, w),
    "layer norm without weights": lambda w, x: F.layer_norm(x * w, (4,)),
    "instance norm": lambda w, x: F.instance_norm((x * w).T[None], weight=w, bias=w),
    "batch norm": lambda w, x: F.batch_norm(x * w, None, None, w, w, True),
    "group norm": lambda w, x: F.group_norm((x * w).T[None], 2, w, w),
    "weight norm": lambda w, x: torch._weight_norm(w.expand(2, 4) * x[:2], w[:2, None], 0),
    "attention": lambda w, x: F.scaled_dot_product_attention((x * w)[None], (x * w * w)[None], x[None] * w),
}


def half_square(operation, weights, samples):
    def loss(w, x):
        return operation(w, x).pow(3).sum()

    return vmap(grad(loss), in_dims=(None, 0))(weights, samples).square().sum() / 2


def agree(operation):
    draw = torch.Generator().manual_seed(0)
    weights, along = (torch.rand(shape, generator=draw, dtype=torch.float64) for shape in ((4,), (2, 3, 4)))
    samples = torch.rand(2, 3, 4, generator=draw, dtype=torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(half_square(operation, weights, samples), samples)
    step = 1e-6
    up, down = (float(half_square(operation, weights, samples.detach() + sign * step * along)) for sign in (1, -1))
    return float((slope * along).sum()) == pytest.approx((up - down) / (2 * step), rel=1e-5)


@pytest.mark.parametrize("name", OPERATIONS)
def test_second_derivatives_are_right(name):
    def inside(w, x):
        with differentiable_twice():
            return OPERATIONS[name](w, x)

    assert agree(inside)


@pytest.mark.parametrize("name", [name for name in OPERATIONS if "norm" in name])
def test_values_are_those_of_pytorch(name):
    weights, samples = torch.rand(4), torch.rand(3, 4)
    with differentiable_twice():
        found = OPERATIONS[name](weights, samples)
    assert torch.allclose(found, OPERATIONS[name](weights, samples), atol=1e-6)


def test_the_replacement_is_still_needed():
    """If this fails, PyTorch has been mended, and its own layer norm can be used again."""
    assert not agree(OPERATIONS["layer norm"])
