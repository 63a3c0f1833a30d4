"""Per-sample gradients by layers beside a gradient function mapped over samples, in one process.

    python benchmarks/sample_gradients.py

CPU milliseconds a sample, the least of seven tries; both on the same images.
"""

import time

import torch
from fedassay.fl.models.network import Network
from fedassay.fl.streams import Streams, uniform
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy

CASES = (
    ("cnn26k", (1, 28, 28), 1, 78),
    ("cnn26k", (1, 28, 28), 8, 8),
    ("lenet", (1, 28, 28), 1, 78),
    ("lenet", (1, 8, 8), 1, 78),
    ("lenet_dropout", (1, 8, 8), 1, 78),
    ("mlp", (1, 8, 8), 1, 78),
    ("mlp", (1, 8, 8), 250, 4),
)


def mapped(network: Network, params, images, labels, *dropout):
    """The naive twin."""

    def loss(point, image, label, *factors):
        logits = network.logits(point, image.unsqueeze(0), *(part.unsqueeze(0) for part in factors))
        return cross_entropy(logits[0], label)

    inner = vmap(grad(loss), in_dims=(None, *[0] * (2 + len(dropout))))
    return vmap(inner)(params, images, labels, *dropout)


def seconds(work, samples: int) -> float:
    """CPU milliseconds a sample."""
    tries = []
    for _ in range(7):
        begun = time.process_time()
        work()
        tries.append(time.process_time() - begun)
    return 1000 * min(tries) / samples


def main() -> None:
    torch.set_num_threads(1)
    print(f"{'model':16}{'image':>8}{'replicas':>10}{'lot':>6}{'mapped':>10}{'by layers':>11}{'furthest apart':>16}")
    for model, shape, replicas, lot in CASES:
        network, rng = Network(model=model, shape=shape, classes=10), Streams(0).generator("benchmark")
        params = torch.stack([network.initial(rng) for _ in range(replicas)])
        cases = [uniform(rng, (replicas, lot, *shape)), torch.from_numpy(rng.integers(10, size=(replicas, lot)))]
        dropout = network.draw_dropout(rng, (replicas, lot))
        cases += [] if dropout is None else [dropout]
        apart = (network.sample_gradients(params, *cases) - mapped(network, params, *cases)).abs().max()
        slow = seconds(lambda: mapped(network, params, *cases), replicas * lot)  # noqa: B023
        fast = seconds(lambda: network.sample_gradients(params, *cases), replicas * lot)  # noqa: B023
        print(f"{model:16}{shape[1]:>5}x{shape[2]}{replicas:10}{lot:6}{slow:10.3f}{fast:11.3f}{float(apart):16.1e}")


if __name__ == "__main__":
    main()
