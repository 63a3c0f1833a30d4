"""A warm start trains the initial model on the server's public data before the first round, at no cost in privacy.

Every claim about a federation holds for whatever model it starts from, as long as that model does not depend on the
clients' data. The public images belong to the server: no client, no held-out client and no non-member has one of them
(nor, in a data set with owners, another image of the same owner), and none of them is a test image.
"""

import hashlib
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .algorithms.algorithm import FedAvg
from .data.dataset import Dataset
from .fields import check_count
from .models.network import Network
from .streams import Streams

Indices = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class WarmStartRule:
    """How the server trains the initial model on its public data.

    Args:
        samples: number of public images.
        steps: number of training steps.
        lot: number of public images in each step, drawn without replacement within the step.
        optimizer, learning_rate: of these steps ("sgd" or "adam", as in ``FedAvg``).
    """

    samples: int
    steps: int
    learning_rate: float
    lot: int = 16
    optimizer: Literal["sgd", "adam"] = "adam"

    def __post_init__(self) -> None:
        check_count("warm_start.samples", self.samples)
        check_count("warm_start.lot", self.lot)
        if self.lot > self.samples:
            raise ValueError(f"warm_start.lot must be at most warm_start.samples, {self.samples}, got {self.lot}")
        try:
            self.training()
        except ValueError as error:
            # The messages of FedAvg name its own fields: local_steps are the steps here.
            raise ValueError(f"warm_start.{str(error).removeprefix('local_')}") from None

    def training(self) -> FedAvg:
        """Return the algorithm of the steps, which is that of one client that trains alone."""
        return FedAvg(learning_rate=self.learning_rate, local_steps=self.steps, optimizer=self.optimizer)


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """The server's public data with the rule by which it trains the initial model on them.

    ``images (n, c, h, w)`` and ``labels (n,)``, for a segmentation model ``(n, h, w)``. Two warm starts are equal if
    rule and data are.
    """

    rule: WarmStartRule
    images: Tensor = field(compare=False)
    labels: Tensor = field(compare=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        content = hashlib.sha256(self.images.contiguous().numpy().data)
        content.update(self.labels.contiguous().numpy().data)
        object.__setattr__(self, "digest", content.hexdigest())

    def model(self, network: Network, streams: Streams) -> Tensor:
        """Return the trained initial model as one flat vector ``(d,)``; unused weights (see ``Layout``) are zero.

        The same streams always give the same model. A process trains it once per seed, for all defenses and for both
        arms of an audit.
        """
        # Without the unused weights: an audit's federation then shares the training, whatever its canaries.
        trained = _trained(self, replace(network, inert=0), streams)
        return torch.cat([trained, trained.new_zeros(network.inert)])


@lru_cache(maxsize=32)
def _trained(start: WarmStart, network: Network, streams: Streams) -> Tensor:
    algorithm, rule = start.rule.training(), start.rule
    model = network.initial(streams.generator("init")).unsqueeze(0)
    state, weights = algorithm.start(model), torch.full((1, rule.lot), 1 / rule.lot)
    for step in range(rule.steps):
        rng = streams.generator("warm start", step=step)
        chosen = torch.from_numpy(rng.permutation(len(start.images))[: rule.lot])
        dropout = network.draw_dropout(streams.generator("warm start dropout", step=step), (1, rule.lot))
        lot = start.images[chosen].unsqueeze(0), start.labels[chosen].unsqueeze(0)
        model, state = algorithm.step(model, network.gradient(model, *lot, weights, dropout), state)
    return model[0]


def public_part(dataset: Dataset, order: Indices, samples: int) -> tuple[Indices, Indices]:
    """Choose the server's public images among the training images; return their indices, and the indices of all images
    that clients and non-members must then leave alone.

    ``order``: the indices that clients may hold, in the order in which they are dealt. Public images come from its end,
    so that clients hold the same images with and without a warm start wherever enough are left. In a data set with
    owners whole owners are taken, with all their images.

    Raises:
        ValueError: if clients would be left without an image.
    """
    owners = np.arange(len(dataset.train_labels)) if dataset.train_owners is None else dataset.train_owners.numpy()
    last = owners[order[::-1]]
    # From the end of the order: each owner where it appears first.
    found = last[np.sort(np.unique(last, return_index=True)[1])]
    held = np.bincount(owners)[found].cumsum()
    taken = found[: int(np.searchsorted(held, samples)) + 1]
    withdrawn = np.flatnonzero(np.isin(owners, taken))
    if samples > len(withdrawn) or not np.isin(order, withdrawn, invert=True).any():
        raise ValueError(
            f"warm_start.samples must leave images of {dataset.name} for the clients, which share {len(order)} with "
            f"the server, got {samples}"
        )
    return withdrawn[:samples], withdrawn
