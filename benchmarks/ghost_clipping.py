"""DP-SGD on ResNet-18 with group norm: CPU seconds per step and peak memory, from norms, with Opacus and from rows.

    python benchmarks/ghost_clipping.py [--lot 64] [--side 32] [--width 64] [--repeats 7] [--rows 16]

11.2 million parameters, lots of 64 images of 3x32x32, clip norm 1. A step is the clipped sum, noise and an update of
the weights. Four columns in one process: without privacy; `clipped_gradients` of this package; ghost clipping of Opacus
(pip install opacus; left out where it is not installed); and clipped rows of the samples' gradients, 16 samples at a
time. The columns take turns, so that the load of the machine is shared: medians of CPU seconds, and of each turn's
ratio to this package. Memory is the peak of the process so far, after the first step of each column,
in this order.
"""

import argparse
import importlib.util
import resource
import statistics
import sys
import time
from collections.abc import Callable

import torch
from fedassay.fl.laws import clipped_sum
from fedassay.fl.models.network import Network
from fedassay.fl.streams import Streams, normal
from torch import Tensor, nn

CLIP, NOISE, RATE = 1.0, 1.0, 0.1
OURS = "from norms"
Step = Callable[[], Tensor]
"""Takes a step and returns the sum of clipped gradients, ``(d,)``."""


def columns(network: Network, images: Tensor, labels: Tensor, rows: int) -> dict[str, Step]:
    """The columns that can be measured here, in the order of the table."""
    start = network.initial(Streams(0).generator("init"))
    rng = Streams(0).generator("local noise")

    def moved(total: Tensor) -> Tensor:
        # The weights of every step are the first ones: the time does not depend on them, but the sums can be compared.
        _ = start - RATE * (total + NOISE * CLIP * normal(rng, tuple(total.shape))) / len(images)
        return total

    def plain() -> Tensor:
        weights = torch.full((1, len(images)), 1.0)
        total = network.gradient(start[None], images[None], labels[None], weights)[0]
        _ = start - RATE * total / len(images)
        return total

    def weigh(norms: Tensor) -> Tensor:
        return CLIP / torch.linalg.vector_norm(norms, dim=1).clamp_min(CLIP)

    def from_norms() -> Tensor:
        return moved(network.clipped_gradients(start, images, labels, weigh))

    def from_rows() -> Tensor:
        total = torch.zeros_like(start)
        for part, wanted in zip(images.split(rows), labels.split(rows), strict=True):
            held = network.sample_gradients(start[None], part[None], wanted[None])
            total += clipped_sum(held, torch.ones(1, len(part), dtype=torch.bool), CLIP)[0]
        return moved(total)

    found: dict[str, Step] = {"without privacy": plain, OURS: from_norms}
    if importlib.util.find_spec("opacus"):
        found["Opacus, ghost clipping"] = with_opacus(network, start, images, labels)
    return found | {f"from rows, {rows} at a time": from_rows}


def with_opacus(network: Network, start: Tensor, images: Tensor, labels: Tensor) -> Step:
    """A step of Opacus' ghost clipping on the same model and data."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    module = Network(model=network.model, shape=network.shape, classes=network.classes, options=network.options).module
    module.load_state_dict(network.layout.unflatten(start))
    watched = GradSampleModuleFastGradientClipping(module, max_grad_norm=CLIP, use_ghost_clipping=True)
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(watched.parameters(), lr=0.0),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        expected_batch_size=len(images),
    )
    loss_of = DPLossFastGradientClipping(watched, optimizer, nn.CrossEntropyLoss())

    def step() -> Tensor:
        optimizer.zero_grad()
        loss_of(watched(images), labels).backward()
        optimizer.step()
        # The noised sum is in `grad`; the sum itself stays in `summed_grad`.
        return torch.cat([parameter.summed_grad.flatten() for parameter in module.parameters()])

    return step


def peak() -> float:
    """Return the process's peak memory in GiB."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / 2**30 if sys.platform == "darwin" else used / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("lot", 64), ("side", 32), ("width", 64), ("repeats", 7), ("rows", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    network = Network(model="resnet18", shape=(3, given.side, given.side), classes=10, options={"width": given.width})
    draw = Streams(1).generator("images")
    images = torch.from_numpy(draw.random((given.lot, *network.shape), dtype="float32"))
    labels = torch.from_numpy(draw.integers(10, size=given.lot))
    steps = columns(network, images, labels, given.rows)
    print(f"{network.layout.dim:,} parameters, lots of {given.lot}, {torch.get_num_threads()} threads")
    print(f"peak memory before the first step: {peak():.2f} GiB")
    sums, peaks = dict[str, Tensor](), dict[str, float]()
    for name, step in steps.items():
        sums[name], peaks[name] = step().clone(), peak()
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(given.repeats):
        for name, step in steps.items():
            before = time.process_time()
            step()
            taken[name].append(time.process_time() - before)
    for name, seconds in taken.items():
        ratios = [one / ours for one, ours in zip(seconds, taken[OURS], strict=True)]
        apart = (
            ""
            if name in (OURS, "without privacy")
            else (f", sum differs from {OURS} by {float((sums[name] - sums[OURS]).norm() / sums[OURS].norm()):.1e}")
        )
        print(
            f"{name:26} {statistics.median(seconds):6.2f} CPU s a step, {statistics.median(ratios):5.2f} of {OURS} "
            f"({min(ratios):.2f} to {max(ratios):.2f}), peak so far {peaks[name]:.2f} GiB{apart}"
        )


if __name__ == "__main__":
    main()
