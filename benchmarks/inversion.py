"""How well gradient inversion recovers one digit from one upload: undefended, and under DP-SGD, each against the best
null attack.

    python benchmarks/inversion.py [--images 20] [--iterations 100] [--dataset digits] [--seed 0]

Prints the median PSNR with a 95 % bootstrap interval, and the one-sided 99 % lower end of the paired difference to
the best null attack (t, one pair an image): at most 0 means that the attack is not shown to beat a look at public
data. Also CPU seconds.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
from fedassay.attacks.attack import Attack, Knowledge, Level
from fedassay.attacks.gradient.inversion import GradientInversion
from fedassay.attacks.gradient.mean_image import MeanImage
from fedassay.attacks.gradient.random_image import RandomImage
from fedassay.audit.observer import UPLOADS
from fedassay.defenses.defense import Defense
from fedassay.defenses.dp_sgd import DPSGD
from fedassay.defenses.none import Undefended
from fedassay.fl.algorithm import FedSGD
from fedassay.fl.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.partitions import OneSample
from fedassay.fl.plan import Plan
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.sampling import Full, Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from fedassay.suites.scoring.images import score_images
from scipy import stats


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
    defense: Defense, *, images: int = 20, iterations: int = 100, dataset: str = "digits", seed: int = 0
) -> Comparison:
    """Invert one upload per client, each computed on one image; the defense is calibrated on lots of rate .1 over 20
    rounds.
    """
    streams = Streams(seed)
    task = build_task(
        load_dataset(dataset), model="lenet", partition=OneSample(), clients=images, streams=streams, samples=images
    )
    algorithm, layout = FedSGD(learning_rate=1.0), task.network.layout
    calibration = Plan(
        sizes=(120,) * 10, rounds=20, cohort=Full(), lot=Poisson(0.1), algorithm=algorithm, layout=layout
    )
    protection = defense.prepare(calibration).protection
    plan = Plan(sizes=task.sizes, rounds=1, cohort=Full(), lot=Full(), algorithm=algorithm, layout=layout)
    recorder = ViewRecorder(observer=UPLOADS)
    final = run_federation(task, plan, protection, streams, recorders=[recorder])
    knowledge = Knowledge(
        level=Level.REALISTIC,
        network=task.network,
        plan=plan,
        law=lambda observer, client: protection.law(observer, plan, client),
        public_images=task.test_images,
        public_labels=task.test_labels,
    )
    truth = task.images[torch.cat(list(task.parts))].numpy()

    def psnr(attack: Attack) -> np.ndarray:
        evidence = attack.run(recorder.view(plan, final), knowledge, streams.generator(type(attack).__name__))
        return np.array([score.psnr for score in score_images(evidence.images, truth)])

    nulls = [psnr(MeanImage()), psnr(RandomImage())]
    return Comparison(attack=psnr(GradientInversion(iterations=iterations)), null=max(nulls, key=np.mean))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--seed", type=int, default=0)
    arguments = vars(parser.parse_args())
    torch.set_num_threads(1)
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
