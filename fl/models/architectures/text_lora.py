"""The small transformer on texts with frozen weights, of which low-rank adapters of attention are trained (LoRA)."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ..layers import adapt
from .text_transformer import text_transformer

_WEIGHTS = Path(__file__).with_suffix(".npz")


def text_lora(shape: tuple[int, int, int], classes: int, *, rank: int = 8, alpha: float = 16.0) -> nn.Module:
    """Build a `text_transformer` with frozen weights and one adapter per attention layer (Hu et al. 2021).

    Queries, keys and values are one linear layer, which has one adapter of the given ``rank``, scaled by
    ``alpha / rank``. Only adapters are trained: they are the parameter vector. The frozen weights are public: those of
    a `text_transformer` of default size that was trained on the text of all but the 40 speakers with the longest parts
    in Shakespeare's plays (``benchmarks/text_base.py``). They stay public only where clients hold no text of those
    speakers, such as in data set ``shakespeare_secrets``.

    Inputs are those of `text_transformer`: at most 32 places, of 65 tokens in the order of data set ``shakespeare``.
    Raises ValueError for others, and for a ``rank`` above 64.
    """
    frozen = _weights()
    places, (tokens, _) = len(frozen["positions"]), frozen["tokens.weight"].shape
    if shape[2] > places or classes != tokens:
        raise ValueError(
            f"its frozen weights are for texts of at most {places} positions and {tokens} tokens, got {shape[2]} "
            f"positions and {classes} tokens"
        )
    model = text_transformer((*shape[:2], places), classes)
    if model.get_parameter("positions").device.type != "meta":
        model.load_state_dict(frozen)
    attention = [name for name, _ in model.named_modules() if name.rpartition(".")[2] == "attention"]
    adapt(model, attention, rank=rank, alpha=alpha)
    return model


@cache
def _weights() -> dict[str, Tensor]:
    # Half precision halves the file; the weights are whatever they are rounded to.
    with np.load(_WEIGHTS, allow_pickle=False) as stored:
        return {name: torch.from_numpy(stored[name]).float() for name in stored.files}
