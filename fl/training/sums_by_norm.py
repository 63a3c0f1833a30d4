"""Sums a lot's clipped gradients from their norms, for models whose sample gradients take too much memory together."""

from functools import partial
from inspect import isfunction

import torch
from torch import Tensor

from ..hooks import overrides
from ..layout import Layout
from ..models.network import Network
from ..protection import Context, Protection, State

# A subclass may change these and still have the weights of its base class.
_FREE = ("sample_weights", "noised_sum", "law")


def sums_by_norm(protection: Protection, network: Network) -> bool:
    """Return whether steps under a protection can use norms, and the model is so large that they should.

    A subclass that changes another method of the class that defines ``sample_weights``, such as ``local_step``, may no
    longer be the sum that the weights describe: it gets the gradients themselves.
    """
    if not network.large or overrides(protection, "local_query"):
        return False
    above = list[type]()
    for kind in type(protection).__mro__:
        if "sample_weights" in vars(kind):
            own = {name for name, member in vars(kind).items() if isfunction(member) and not name.startswith("__")}
            changed = {name for later in above for name in vars(later)} & ({*own, "local_step"} - set(_FREE))
            return kind is not Protection and not changed
        above.append(kind)
    return False


def weighted_sum(
    network: Network,
    protection: Protection,
    local: Tensor,
    lot: tuple[Tensor, Tensor, Tensor, Tensor | None],
    planted: tuple[Tensor, Tensor] | None,
    client: int,
    context: Context,
    state: State,
) -> Tensor:
    """Return the weighted sums of a lot's gradients, shape ``(R, d)`` with one row per replica (independent run).

    ``local (R, d)``: the models; ``lot``: images ``(R, n, ...)``, labels, which samples are ``real (R, n)``, and
    dropout; ``planted``: rows ``(k, d)`` of canaries, and in which replicas they were drawn, ``(R, k)``.
    """
    weigh = partial(_weights, protection, client=client, context=context, state=state)
    images, labels, real, dropout = lot
    totals = list[Tensor]()
    for run, point in enumerate(local):
        there = real[run].bool()
        masks = None if dropout is None else dropout[run][there]
        total = network.clipped_gradients(point, images[run][there], labels[run][there], weigh, masks)
        if planted is not None:
            rows = planted[0].to(total)[planted[1][run]]
            weights = weigh(_row_norms(rows, network.layout))
            total = total + (_spread(weights, network.layout) * rows).sum(0)
        totals.append(total)
    return torch.stack(totals)


def _weights(protection: Protection, norms: Tensor, *, client: int, context: Context, state: State) -> Tensor:
    weights = protection.sample_weights(norms, client, context, state)
    if weights is None or weights.shape not in (norms.shape, norms.shape[:1]):
        got = None if weights is None else tuple(weights.shape)
        raise ValueError(
            f"hook sample_weights must return one weight per sample, {tuple(norms.shape[:1])}, or per sample and "
            f"parameter, {tuple(norms.shape)}, got {got}"
        )
    return weights


def _sizes(layout: Layout) -> Tensor:
    """Coordinates by parameter; unused weights belong to the last one, as where layers are clipped."""
    sizes = [part.stop - part.start for name, part in layout.slices.items() if name in layout.names]
    return torch.tensor([*sizes[:-1], sizes[-1] + layout.inert])


def _row_norms(rows: Tensor, layout: Layout) -> Tensor:
    parts = torch.split(rows, _sizes(layout).tolist(), dim=1)
    return torch.stack([torch.linalg.vector_norm(part, dim=1) for part in parts], dim=1)


def _spread(weights: Tensor, layout: Layout) -> Tensor:
    """Weights by coordinate, ``(k, d)`` or ``(k, 1)``."""
    return weights.unsqueeze(1) if weights.ndim == 1 else weights.repeat_interleave(_sizes(layout), dim=1)
