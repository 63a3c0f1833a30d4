"""Low-rank adapters: a linear layer whose own weights are frozen plus a trained product of two matrices (LoRA).

After Hu et al. 2021.
"""

from collections.abc import Iterable

from torch import Tensor, nn

from ...audit.wording import nearest
from ..fields import check_count, check_positive


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
        check_positive("alpha", alpha)
        self.base, self.scale = base, alpha / rank
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.base(inputs) + self.scale * self.up(self.down(inputs))
        return outputs


def adapt(module: nn.Module, layers: Iterable[str], *, rank: int, alpha: float) -> None:
    """Freeze all parameters of ``module`` and give each of its linear ``layers``, named as paths, an adapter, in place.

    Raises ValueError, and leaves the module as it is, for a single string in place of paths, no path, a path that is no
    linear layer below the module or is named twice, a ``rank`` above a layer's, or an ``alpha`` that is not above 0.
    """
    paths = layers if isinstance(layers, str) else [*layers]
    if isinstance(paths, str) or not paths or len({*paths}) < len(paths):
        raise ValueError(f"layers must be a list of at least one path, and none twice, got {paths!r}")
    adapters = {path: LowRank(_linear(module, path), rank, alpha) for path in paths}
    module.requires_grad_(False)
    for path, adapter in adapters.items():
        parent, _, name = path.rpartition(".")
        setattr(module.get_submodule(parent), name, adapter)


def _linear(module: nn.Module, path: str) -> nn.Linear:
    below = dict(module.named_modules(remove_duplicate=False))
    found = below.get(path)
    # The module itself has no parent in which an adapter could replace it.
    if found is module or not isinstance(found, nn.Linear):
        linear = [name for name, layer in below.items() if name and isinstance(layer, nn.Linear)]
        got = "no layer" if found is None else "the module itself" if found is module else type(found).__name__
        raise ValueError(f"layer {path!r} must be linear to be adapted, got {got}; known: {nearest(str(path), linear)}")
    return found
