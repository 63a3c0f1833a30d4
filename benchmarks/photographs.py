"""How well cosine inversion recovers photographs from one gradient each, undefended: the known answers of public codes
are 12.07 dB (LeNet) and 21.24 dB (ConvNet) on one photograph.

    python benchmarks/photographs.py [--model convnet] [--seeds 5] [--images 20] [--iterations 500]

First scikit-image's astronaut at 32x32, at ``seeds`` initial models; then, where FEDASSAY_DATA names a folder that has
it, as many ``images`` of CIFAR-10, each at a model of its own. One restart, total variation 1e-6, learning rate .025:
the codes' .1 counts in standard deviations of pixels, which are about 1/4. Prints the PSNR of each beside that of its
own mean colour, then medians with a 95 % bootstrap interval. One image on the ConvNet takes 3 CPU minutes.
"""

import argparse
import os
import time
from collections.abc import Iterator

import numpy as np
import torch
from fedassay.attacks.gradient.objectives.cosine import Cosine
from fedassay.attacks.gradient.objectives.search import Search
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.models.network import Network
from fedassay.fl.streams import Streams, uniform
from fedassay.suites.scoring.images import score_images
from skimage.data import astronaut
from skimage.transform import resize
from torch import Tensor
from torch.nn.functional import one_hot


def photograph(side: int = 32) -> Tensor:
    """``(3, side, side)`` in [0, 1], whole picture, smoothed as it shrinks."""
    small = resize(astronaut(), (side, side), anti_aliasing=True)
    return torch.from_numpy(small.transpose(2, 0, 1)).float()


def inverted(network: Network, image: Tensor, label: int, streams: Streams, iterations: int) -> Tensor:
    """The image ``(c, h, w)`` that is found from the gradient of ``image`` with its label, which is given."""
    model = network.initial(streams.generator("init"))
    labels = one_hot(torch.tensor([[label]]), network.classes).float()
    gradient = network.lot_gradients(model, image[None, None], labels)
    cosine = Cosine(network=network, model=model, gradients=gradient, labels=labels, total_variation=1e-6)
    start = uniform(streams.generator("attack"), (1, 1, *network.shape))
    search = Search(iterations=iterations, learning_rate=0.025, signed=True)
    return search.run(cosine.values, start)[0, 0]


def cases(seeds: int, images: int) -> Iterator[tuple[str, int, Tensor, int]]:
    """Name of the set, seed, image, label (the astronaut's is drawn, as no class is hers)."""
    for seed in range(seeds):
        yield "astronaut", seed, photograph(), int(Streams(seed).generator("label").integers(10))
    if not os.environ.get("FEDASSAY_DATA"):
        print("FEDASSAY_DATA is not set: no CIFAR-10", flush=True)
        return
    dataset = load_dataset("cifar10")
    chosen = Streams(0).generator("images").permutation(len(dataset.train_labels))[:images]
    for seed, which in enumerate(chosen.tolist()):
        yield "cifar10", seed, dataset.train_images[which], int(dataset.train_labels[which])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="convnet")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=500)
    given = parser.parse_args()
    torch.set_num_threads(1)
    network, found = Network(model=given.model, shape=(3, 32, 32), classes=10), dict[str, list[float]]()
    for name, seed, image, label in cases(given.seeds, given.images):
        started = time.process_time()
        rebuilt = inverted(network, image, label, Streams(seed), given.iterations)
        (score,) = score_images(rebuilt[None].numpy(), image[None].numpy())
        (null,) = score_images(image.mean((1, 2), keepdim=True).expand_as(image)[None].numpy(), image[None].numpy())
        print(
            f"{name} {seed}: {score.psnr:.2f} dB (its own mean colour {null.psnr:.2f}), "
            f"{time.process_time() - started:.0f} CPU s",
            flush=True,
        )
        found.setdefault(name, []).append(score.psnr)
    for name, values in found.items():
        draws = np.median(np.random.default_rng(0).choice(values, size=(4000, len(values))), axis=1)
        low, high = np.quantile(draws, [0.025, 0.975])
        print(f"{given.model}, {name}: median {np.median(values):.2f} dB [{low:.2f}, {high:.2f}] of {len(values)}")


if __name__ == "__main__":
    main()
