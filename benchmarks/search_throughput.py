"""Restarts per CPU second of gradient search, compared with the published loops of two public attacks, on one thread.

    python benchmarks/search_throughput.py [--models lenet:3x32x32] [--restarts 1 8 32] [--steps 10]

One upload of one image, cosine distance and total variation, signed Adam in [0, 1] from the same starting images.

- ``ours``: ``Search`` on the ``Cosine`` of all restarts in one batch, as a suite runs it.
- ``inverting``: the loop of invertinggradients (Geiping et al. 2020, section 3 and its documentation): one restart
  after the other; each step a double backward pass, the gradient's sign, Adam, a schedule, a clamp.
- ``breaching``: the loop of its successor: total variation by a convolution, and in each step the least objective so
  far is kept with its image, and the objective is tested for being finite.

The loops are written here from the publications; both use a plain PyTorch module. All ways take turns in one process:
a repeat runs a short search of ``--steps`` steps by each way. The loops run at most four restarts, because their
restarts cost the same. Printed are medians: CPU ms per restart and step, restarts of a hundred steps per CPU second,
and the ratio of a loop's time to ours in the same turn, with its range.
"""

import argparse
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from fedassay.attacks.gradient.search import Cosine, Search, slopes
from fedassay.fl.models.network import Network
from fedassay.fl.streams import uniform
from fedassay.suites.execution.backend import keep_freed_memory
from torch import Tensor, nn
from torch.nn.functional import conv2d, cross_entropy

MODELS = ("lenet:1x28x28", "lenet:3x32x32", "cnn26k:1x28x28", "mlp:1x28x28", "logistic:1x28x28")
WEIGHT, LABEL, LEARNING_RATE = 1e-4, 3, 0.1
LOOPED = 4
"""Restarts that a loop runs at most."""
Way = Callable[[int], Tensor]
"""Steps -> the images ``(n, c, h, w)`` that a search of so many steps ends with."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One upload, and the images ``(restarts, c, h, w)`` at which its restarts start."""

    network: Network
    model: Tensor
    upload: Tensor
    images: Tensor

    @classmethod
    def of(cls, name: str, restarts: int) -> "Case":
        model, size = name.split(":")
        channels, height, width = map(int, size.split("x"))
        network = Network(model=model, shape=(channels, height, width), classes=10)
        rng = np.random.default_rng(0)
        weights, truth = network.initial(rng), uniform(rng, (1, 1, *network.shape))
        upload = network.sample_gradients(weights[None], truth, torch.tensor([[LABEL]]))[0, 0]
        return cls(network=network, model=weights, upload=upload, images=uniform(rng, (restarts, *network.shape)))

    @property
    def cosine(self) -> Cosine:
        """The objective of ``GradientInversion``, of all restarts."""
        n = len(self.images)
        labels = torch.eye(10)[LABEL].expand(n, 1, 10)
        upload = self.upload.expand(n, -1)
        return Cosine(network=self.network, model=self.model, gradients=upload, labels=labels, total_variation=WEIGHT)

    def module(self) -> nn.Module:
        """A plain PyTorch module at the upload's weights."""
        module = deepcopy(self.network.module)
        module.load_state_dict(self.network.layout.unflatten(self.model))
        return module.requires_grad_(True)


def ours(case: Case) -> Way:
    values = case.cosine.values

    def search(steps: int) -> Tensor:
        adam = Search(iterations=steps, learning_rate=LEARNING_RATE, signed=True)
        return adam.run(values, case.images.unsqueeze(1))[:, 0]

    return search


def inverting(case: Case) -> Way:
    """invertinggradients: cosine over all layers, anisotropic total variation, the restarts in sequence."""
    module, label = case.module(), torch.tensor([LABEL])
    target = list(case.network.layout.unflatten(case.upload).values())

    def one(start: Tensor, steps: int) -> Tensor:
        image = start.unsqueeze(0).clone().requires_grad_(True)
        optimizer, schedule = scheduled(image, steps)
        for _ in range(steps):
            optimizer.zero_grad()
            gradient = own_gradient(module, image, label)
            across = (image[..., 1:] - image[..., :-1]).abs().mean()
            down = (image[..., 1:, :] - image[..., :-1, :]).abs().mean()
            (cosine_distance(gradient, target) + WEIGHT * (across + down)).backward(inputs=[image])
            stepped(image, optimizer, schedule)
        return image.detach()

    return lambda steps: torch.cat([one(start, steps) for start in case.images[:LOOPED]])


def breaching(case: Case) -> Way:
    """breaching: as ``inverting``, with total variation by one convolution, and the best image of all steps kept."""
    module, label = case.module(), torch.tensor([LABEL])
    target = list(case.network.layout.unflatten(case.upload).values())
    channels = case.images.shape[1]
    kernel = torch.zeros(2, 1, 3, 3)
    kernel[:, 0, 1, 1] = -1
    kernel[0, 0, 1, 2] = kernel[1, 0, 2, 1] = 1
    kernel = kernel.repeat(channels, 1, 1, 1)

    def one(start: Tensor, steps: int) -> Tensor:
        image = start.unsqueeze(0).clone().requires_grad_(True)
        optimizer, schedule = scheduled(image, steps)
        least, best = torch.tensor(torch.inf), image.detach().clone()
        for _ in range(steps):
            optimizer.zero_grad()
            gradient = own_gradient(module, image, label)
            variation = conv2d(image, kernel, padding=1, groups=channels).abs().mean()
            objective = cosine_distance(gradient, target) + WEIGHT * variation
            objective.backward(inputs=[image])
            stepped(image, optimizer, schedule)
            with torch.no_grad():
                if objective < least:
                    least, best = objective.detach(), image.detach().clone()
                if not torch.isfinite(objective):
                    break
        return best

    return lambda steps: torch.cat([one(start, steps) for start in case.images[:LOOPED]])


def own_gradient(module: nn.Module, image: Tensor, label: Tensor) -> tuple[Tensor, ...]:
    loss = cross_entropy(module(image), label)
    return torch.autograd.grad(loss, list(module.parameters()), create_graph=True)


def cosine_distance(gradient: tuple[Tensor, ...], target: list[Tensor]) -> Tensor:
    product = torch.stack([(own * other).sum() for own, other in zip(gradient, target, strict=True)]).sum()
    lengths = [torch.stack([part.square().sum() for part in parts]).sum().sqrt() for parts in (gradient, target)]
    return 1 - product / (lengths[0] * lengths[1])


def scheduled(image: Tensor, steps: int) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    optimizer = torch.optim.Adam([image], lr=LEARNING_RATE)
    milestones = [int(share * steps) for share in (3 / 8, 5 / 8, 7 / 8)]
    return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, gamma=0.1)


def stepped(image: Tensor, optimizer: torch.optim.Optimizer, schedule: torch.optim.lr_scheduler.LRScheduler) -> None:
    with torch.no_grad():
        assert image.grad is not None
        image.grad.sign_()
        optimizer.step()
        schedule.step()
        image.clamp_(0, 1)


WAYS: dict[str, Callable[[Case], Way]] = {"ours": ours, "inverting": inverting, "breaching": breaching}


def check_equal(case: Case, ways: dict[str, Way]) -> None:
    """Raise RuntimeError unless the first step of each loop leads to our images, but for slopes that are nearly 0."""
    slope = slopes(case.cosine.values, case.images.unsqueeze(1))[:, 0]
    for name in ways:
        found = ways[name](1)
        n = len(found)
        # ``breaching`` returns the image after the step with the least objective, here the only one.
        clear = slope[:n].abs() > 1e-3 * slope.abs().mean()
        apart = ((found - ways["ours"](1)[:n]).abs() > 5e-5) & clear
        # The two total variations differ at the border of an image.
        if float(apart.float().mean()) > 0.05:
            raise RuntimeError(f"{name} must take our first step, but {apart.float().mean():.1%} of pixels differ")


def measured(ways: dict[str, Way], *, steps: int, repeats: int) -> dict[str, np.ndarray]:
    """CPU milliseconds per restart and step, ``(repeats,)``; each repeat takes all in turn, so a busy machine slows
    all.
    """
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(repeats + 2):
        for name, search in ways.items():
            started = time.process_time()
            found = search(steps)
            if repeat >= 2:  # The first two warm up.
                taken[name].append(1000 * (time.process_time() - started) / (len(found) * steps))
    return {name: np.array(times) for name, times in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS, help="name:shape")
    parser.add_argument("--restarts", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # As a run's workers do.
    print("| model | restarts | way | CPU ms per restart and step | restarts per CPU second | times ours (range) |")
    print("|---|---|---|---|---|---|")
    for model in arguments.models:
        for restarts in arguments.restarts:
            case = Case.of(model, restarts)
            ways = {name: way(case) for name, way in WAYS.items()}
            check_equal(case, ways)
            times = measured(ways, steps=arguments.steps, repeats=arguments.repeats)
            for name, taken in times.items():
                ratio, middle = taken / times["ours"], float(np.median(taken))
                print(
                    f"| `{model}` | {restarts} | {name} | {middle:.3f} | {10 / middle:.1f} | "
                    f"{np.median(ratio):.2f} ({ratio.min():.2f} to {ratio.max():.2f}) |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
