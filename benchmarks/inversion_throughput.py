"""Cost of one step of one restart of gradient inversion on one thread, compared with two loops over restarts.

    python benchmarks/inversion_throughput.py [--restarts 32] [--repeats 15]

LeNet of 15.8 thousand parameters, 3x32x32, cosine and total variation. ``ours`` is the objective of
``attacks/gradient/objectives/cosine.py`` on all restarts in one batch; ``autograd.grad`` a lean loop of double backward
over restarts; ``torch.func`` the same attack as a loop of grad(grad). Medians of CPU milliseconds per restart and step,
taken in turns in one process. Targets: ours at most .6 ms, the loops at least 3 and 5 times that.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from fedassay.attacks.gradient.objectives.cosine import Cosine
from fedassay.attacks.gradient.objectives.search import slopes, total_variation
from fedassay.fl.models.network import Network
from fedassay.fl.streams import uniform
from fedassay.suites.execution.memory import keep_freed_memory
from torch import Tensor
from torch.func import grad

WEIGHT, LABEL = 1e-6, 3


def contestants(restarts: int) -> dict[str, Callable[[], Tensor]]:
    """By name: slopes ``(n, 3, 32, 32)`` of the same restarts; the loops stop after the first four."""
    network, rng = Network(model="lenet", shape=(3, 32, 32), classes=10), np.random.default_rng(0)
    model, images = network.initial(rng), uniform(rng, (restarts, 3, 32, 32))
    target = network.sample_gradients(model[None], uniform(rng, (1, 1, 3, 32, 32)), torch.tensor([[LABEL]]))[0, 0]
    labels = torch.eye(10)[LABEL].expand(restarts, 1, 10)
    cosine = Cosine(
        network=network, model=model, gradients=target.expand(restarts, -1), labels=labels, total_variation=WEIGHT
    )

    def distance(gradient: Tensor, image: Tensor) -> Tensor:
        tv = WEIGHT * total_variation(image.unsqueeze(0))[0]
        return 1 - torch.cosine_similarity(gradient, target, dim=0) + tv

    def ours() -> Tensor:
        return slopes(cosine.values, images.unsqueeze(1))[:, 0]

    def lean() -> Tensor:
        found = []
        for image in images[:4]:
            weights, point = model.clone().requires_grad_(True), image.clone().requires_grad_(True)
            loss = network.losses(weights, point.unsqueeze(0), torch.tensor([LABEL])).sum()
            (gradient,) = torch.autograd.grad(loss, weights, create_graph=True)
            found.append(torch.autograd.grad(distance(gradient, point), point)[0])
        return torch.stack(found)

    def loss_of(weights: Tensor, image: Tensor) -> Tensor:
        return -network.logits(weights, image.unsqueeze(0)).log_softmax(-1)[0, LABEL]

    slope = grad(lambda image: distance(grad(loss_of)(model, image), image))

    def unbatched() -> Tensor:
        return torch.stack([slope(image) for image in images[:4]])

    return {"ours": ours, "autograd.grad": lean, "torch.func": unbatched}


def measured(loops: dict[str, Callable[[], Tensor]], repeats: int) -> dict[str, float]:
    """Median CPU milliseconds per restart and step; each repeat takes all in turn, so that a busy machine slows all."""
    taken: dict[str, list[float]] = {name: [] for name in loops}
    for repeat in range(repeats + 2):
        for name, loop in loops.items():
            started = time.process_time()
            found = loop()
            if repeat >= 2:  # The first two warm up.
                taken[name].append(1000 * (time.process_time() - started) / len(found))
    return {name: float(np.median(times)) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--restarts", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # As a run's workers do.
    loops = contestants(arguments.restarts)
    ours = loops["ours"]()
    for name, loop in loops.items():
        found = loop()
        apart = float((found - ours[: len(found)]).abs().max() / ours.abs().max())
        assert apart < 1e-3, f"{name} must give the same slopes, they differ by {apart:.1e} of the largest"
    times = measured(loops, arguments.repeats)
    for name, milliseconds in times.items():
        print(f"{name:14}{milliseconds:6.2f} CPU ms per restart and step{milliseconds / times['ours']:7.1f} times ours")


if __name__ == "__main__":
    main()
