"""Low-rank adapters: a linear layer whose own weights are frozen plus a trained product of two matrices (LoRA).

After Hu et al. 2021.
"""

from collections.abc import Iterable

from torch import Tensor, nn

from ..fields import check_count


class LowRank(nn.Module):
    """A frozen linear layer with an adapter: ``base(x) + alpha / rank * up(down(x))``.

    ``down`` holds A ``(rank, inputs)``, drawn as PyTorch draws linear layers, and ``up`` B ``(outputs, rank)``, which
    starts at zero, so that the adapted layer starts as the frozen one. Inputs are ``(..., inputs)``.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        check_count("rank", rank)
        if rank > min(base.in_features, base.out_features):
            raise ValueError(
                f"rank must be at most {min(base.in_features, base.out_features)}, the rank of the adapted layer, "
                f"got {rank}"
            )
        if not alpha > 0:
            raise ValueError(f"alpha must be > 0, got {alpha}")
        self.base, self.scale = base, alpha / rank
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.base(inputs) + self.scale * self.up(self.down(inputs))
        return outputs


def adapt(module: nn.Module, layers: Iterable[str], *, rank: int, alpha: float) -> None:
    """Freeze all parameters of ``module`` and give each of its linear ``layers``, named as paths, an adapter, in place.

    Raises ValueError for a path that is no linear layer, a ``rank`` above a layer's, or ``alpha`` of at most 0.
    """
    module.requires_grad_(False)
    for path in layers:
        layer = module.get_submodule(path)
        if not isinstance(layer, nn.Linear):
            raise ValueError(f"layer {path} must be linear to be adapted, got {type(layer).__name__}")
        parent, _, name = path.rpartition(".")
        setattr(module.get_submodule(parent), name, LowRank(layer, rank, alpha))
