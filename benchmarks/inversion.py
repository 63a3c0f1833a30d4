"""Gradient inversion of one image from one update, without a defense and under DP-SGD, against the best null attack;
and MAP inversion, which knows the noise law.

    python benchmarks/inversion.py [--images 20] [--iterations 100] [--dataset digits] [--seed 0]
    python benchmarks/inversion.py --iterations 500 --total-variation 1e-6 --dataset cifar10
    python benchmarks/inversion.py --curve 0.001 0.01 0.1 1    # noise over the clip norm, per attack

``cifar10`` is read from the folder that FEDASSAY_DATA names.

Prints the median PSNR with a 95 % bootstrap interval, and the one-sided 99 % lower end of the paired difference to
the best null attack (t, one pair per image): at most 0 means that the attack is not shown to beat a guess from public
data. Also CPU seconds.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from fedassay.attacks.attack import Attack, Knowledge, Level
from fedassay.attacks.gradient.class_mean_image import ClassMeanImage
from fedassay.attacks.gradient.inversion import GradientInversion
from fedassay.attacks.gradient.map_inversion import MapInversion
from fedassay.attacks.gradient.mean_image import MeanImage
from fedassay.attacks.gradient.random_image import RandomImage
from fedassay.audit.observer import UPLOADS
from fedassay.defenses.defense import Defense
from fedassay.defenses.sample_level.dp_sgd import DPSGD, DPSGDProtection
from fedassay.defenses.without_dp.none import Undefended
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.partitions import OneSample
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.sampling import Full, Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from fedassay.suites.scoring.images import score_images
from scipy import stats

PUBLIC = 2000
"""Public images that an attacker has."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """PSNR of each image: the attack's and the best null attack's, ``(n,)``."""

    attack: np.ndarray
    null: np.ndarray

    def median(self, rng: np.random.Generator) -> tuple[float, float, float]:
        """Median PSNR of the attack with a 95 % percentile-bootstrap interval over images."""
        draws = np.median(rng.choice(self.attack, size=(4000, len(self.attack))), axis=1)
        return float(np.median(self.attack)), *(float(end) for end in np.quantile(draws, [0.025, 0.975]))

    def lower_end(self, level: float = 0.99) -> float:
        """One-sided lower confidence end of the mean of attack minus null, paired by image."""
        gain = self.attack - self.null
        return float(gain.mean() - stats.t.ppf(level, len(gain) - 1) * gain.std(ddof=1) / len(gain) ** 0.5)


def compare(
    defense: Defense,
    *,
    images: int = 20,
    iterations: int = 100,
    dataset: str = "digits",
    seed: int = 0,
    total_variation: float = 1e-4,
) -> Comparison:
    """Invert one upload per client, each computed on one image; the defense is calibrated on lots of rate .1 over 20
    rounds.
    """
    attack = GradientInversion(iterations=iterations, total_variation=total_variation)
    return trial(defense, [attack], images=images, dataset=dataset, seed=seed)[0]


def trial(
    defense: Defense | Protection, attacks: Sequence[Attack], *, images: int, dataset: str, seed: int
) -> list[Comparison]:
    """One federation, each attack on it; a protection is taken as it is."""
    streams = Streams(seed)
    task = build_task(
        load_dataset(dataset), model="lenet", partition=OneSample(), clients=images, streams=streams, samples=images
    )
    algorithm, layout = FedSGD(learning_rate=1.0), task.network.layout
    calibration = Plan(
        sizes=(120,) * 10, rounds=20, cohort=Full(), lot=Poisson(0.1), algorithm=algorithm, layout=layout
    )
    protection = defense if isinstance(defense, Protection) else defense.prepare(calibration).protection
    plan = Plan(sizes=task.sizes, rounds=1, cohort=Full(), lot=Full(), algorithm=algorithm, layout=layout)
    recorder = ViewRecorder(observer=UPLOADS)
    final = run_federation(task, plan, protection, streams, recorders=[recorder])
    knowledge = Knowledge(
        level=Level.REALISTIC,
        network=task.network,
        plan=plan,
        law=lambda observer, client: protection.law(observer, plan, client),
        public_images=task.test_images[:PUBLIC],
        public_labels=task.test_labels[:PUBLIC],
    )
    truth = task.images[torch.cat(list(task.parts))].numpy()

    def psnr(attack: Attack) -> np.ndarray:
        evidence = attack.run(recorder.view(plan, final), knowledge, streams.generator(type(attack).__name__))
        return np.array([score.psnr for score in score_images(evidence.images, truth)])

    nulls = [psnr(MeanImage()), psnr(RandomImage())]
    null = max(nulls, key=np.mean)
    return [Comparison(attack=psnr(attack), null=null) for attack in attacks]


def curve(noises: Sequence[float], *, images: int, iterations: int, dataset: str, seed: int, weight: float) -> None:
    """Print each attack's mean gain over the best null attack, with its 95 % t interval, at each noise multiplier."""
    attacks = {
        "cosine": GradientInversion(iterations=iterations, total_variation=weight),
        "map": MapInversion(iterations=iterations),
        "map, total variation": MapInversion(iterations=iterations, prior="total_variation"),
        "class mean": ClassMeanImage(),
    }
    for noise in noises:
        protection = DPSGDProtection(clip_norm=1.0, noise_multiplier=noise)
        found = trial(protection, list(attacks.values()), images=images, dataset=dataset, seed=seed)
        for name, comparison in zip(attacks, found, strict=True):
            gain = comparison.attack - comparison.null
            reach = stats.t.ppf(0.975, len(gain) - 1) * gain.std(ddof=1) / len(gain) ** 0.5
            low, high = gain.mean() - reach, gain.mean() + reach
            print(f"noise {noise:<8g}{name:22}gain {gain.mean():+6.1f} dB [{low:+.1f}, {high:+.1f}]", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--total-variation", type=float, default=1e-4)
    parser.add_argument("--curve", type=float, nargs="+", metavar="NOISE")
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--seed", type=int, default=0)
    arguments = vars(parser.parse_args())
    torch.set_num_threads(1)
    noises = arguments.pop("curve")
    if noises:
        curve(noises, weight=arguments.pop("total_variation"), **arguments)
        return
    for name, defense in (("undefended", Undefended()), ("dp_sgd, eps 4", DPSGD(epsilon=4.0))):
        started = time.process_time()
        found = compare(defense, **arguments)
        middle, low, high = found.median(np.random.default_rng(0))
        print(
            f"{name:14} median PSNR {middle:5.1f} dB [{low:.1f}, {high:.1f}], "
            f"best null {np.median(found.null):.1f} dB, 99 % lower end of the gain "
            f"{found.lower_end():+.1f} dB, {time.process_time() - started:.1f} CPU s"
        )


if __name__ == "__main__":
    main()
