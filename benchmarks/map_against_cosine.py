"""Whether MAP inversion, which knows the defense's law, is anywhere worse than cosine inversion, which does not.

    python benchmarks/map_against_cosine.py --dataset digits --seed 11
    python benchmarks/map_against_cosine.py --dataset fashion_mnist --seed 11 --cases fedre ldp_gaussian

For each defense whose law of one upload has a density that can be descended, one federation of ``targets`` clients of
one image each; LeNet, one FedSGD round. Once at epsilon 8 (delta 1e-5), calibrated for that round, and once at a noise
where something leaks, below what the calibration signs: as a share of the clip norm, FedRE's least layer at that share
and its layers' noise in the proportions of fixed scores 1, 2, 1, ... Both attacks make the same restarts and iterations
on the same uploads, without the other's help. ``fashion_mnist`` is read from the folder that FEDASSAY_DATA names.

Prints of each case the median PSNR of both, the mean difference MAP - cosine paired by target with its one-sided 95 %
lower end (t), and the p-values, Holm-adjusted over all cases, of two hypotheses (t; a sign-flip permutation test beside
it): that the mean difference is at most -.3 dB (rejected: MAP is not inferior), and that MAP gains at most 0 dB over
the best null attack (rejected: it is superior to a look at public data). The best null is the one of largest mean PSNR
on these targets, which favours it.

The tests take targets for independent draws; they share one model. Defenses of one law, differing in who signs what,
are run once: nbafl's and clipped plain_noise's uploads are ldp_gaussian's; apes', unis' and pldp's are ldp_min's, at
other budgets. Missing are laws whose density is no function of torch (most ldp_*), s_apes (its density takes d^2
steps), and secure sums, whose law is of reports and not of one lot.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from fedassay.attacks.attack import Knowledge
from fedassay.attacks.gradient.class_mean_image import ClassMeanImage
from fedassay.attacks.gradient.inversion import GradientInversion
from fedassay.attacks.gradient.map_inversion import MapInversion
from fedassay.attacks.gradient.mean_image import MeanImage
from fedassay.attacks.gradient.random_image import RandomImage
from fedassay.audit.observer import UPLOADS
from fedassay.defenses.defense import Defense
from fedassay.defenses.layers.fedre import FedRE
from fedassay.defenses.layers.protection import LayeredProtection
from fedassay.defenses.layers.uniform_layers import UniformLayers
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGD, DPSGDProtection
from fedassay.defenses.shuffling.cldp_sgd import CLDPSGD
from fedassay.defenses.shuffling.ldp_min import LDPMin
from fedassay.defenses.shuffling.mechanisms.budgeted import BudgetedReports
from fedassay.fl.algorithms.algorithm import FedSGD
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.laws.law import Law
from fedassay.fl.laws.layered_law import LayeredGaussianLaw
from fedassay.fl.partitions.partitions import OneSample
from fedassay.fl.partitions.sampling import Full
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.streams import Streams
from fedassay.fl.task import Task, build_task
from fedassay.suites.execution.memory import keep_freed_memory
from fedassay.suites.scoring.images import score_images
from scipy import stats

MARGIN = 0.3
"""dB that do not count."""
ALPHA = 0.05
PUBLIC = 2000
"""Public images that an attacker has."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """PSNR of each target, ``(n,)``, in dB: of both attacks and of the best null attack; CPU seconds of each attack."""

    map: np.ndarray
    cosine: np.ndarray
    null: np.ndarray
    seconds: tuple[float, float]


def cases(plan: Plan) -> Mapping[str, Callable[[], Protection]]:
    """Name and noise -> the protection, calibrated for ``plan``."""

    def of(defense: Defense) -> Callable[[], Protection]:
        return lambda: defense.prepare(plan).protection

    def dp_sgd(noise: float) -> Callable[[], Protection]:
        return lambda: DPSGDProtection(clip_norm=1.0, noise_multiplier=noise)

    layers = len(plan.layout.names)
    fedre = FedRE(epsilon=8.0, scores=tuple(float(1 + number % 2) for number in range(layers)))
    return {
        "dp_sgd, noise 1e-4": dp_sgd(1e-4),
        "dp_sgd, noise 1e-3": dp_sgd(1e-3),
        "dp_sgd, noise 1e-2": dp_sgd(1e-2),
        "dp_sgd, eps 8": of(DPSGD(epsilon=8.0)),
        "ldp_gaussian, noise 5e-3": lambda: LDPGaussianProtection(clip_norm=1.0, noise_std=5e-3),
        "ldp_gaussian, eps 8": of(LDPGaussian(epsilon=8.0)),
        "uniform_layers, noise 1e-2": lambda: LayeredProtection(
            clip_norms=(1.0,) * layers, noise_stds=(1e-2,) * layers
        ),
        "uniform_layers, eps 8": of(UniformLayers(epsilon=8.0)),
        "fedre, noise 1e-2": lambda: scaled(fedre.prepare(plan).protection.law(UPLOADS, plan, 0), 1e-2),
        "fedre, eps 8": of(fedre),
        "ldp_min, eps 20 a number": lambda: BudgetedReports(radius=0.1, budgets=(20.0,) * plan.clients, shuffled=False),
        "ldp_min, eps 8": of(LDPMin(epsilon=8.0)),
        "cldp_sgd, eps 8": of(CLDPSGD(epsilon=8.0)),
    }


def scaled(law: Law | None, least: float) -> Protection:
    """Reports by a layered law, all its noise in proportion, the least of it ``least`` clip norms."""
    assert isinstance(law, LayeredGaussianLaw)
    shares = [std / norm for std, norm in zip(law.noise_stds, law.clip_norms, strict=True)]
    stds = tuple(std * least / min(shares) for std in law.noise_stds)
    return LayeredProtection(clip_norms=law.clip_norms, noise_stds=stds)


@dataclass(frozen=True, kw_only=True)
class Federation:
    """One-image clients and their plan."""

    task: Task
    plan: Plan


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One federation of one-image clients; attacks of so many restarts and iterations."""

    dataset: str
    seed: int
    targets: int
    restarts: int
    iterations: int

    def federation(self) -> "Federation":
        """The same in every case."""
        task = build_task(
            load_dataset(self.dataset),
            model="lenet",
            partition=OneSample(),
            clients=self.targets,
            samples=self.targets,
            streams=Streams(self.seed),
        )
        plan = Plan(
            sizes=task.sizes,
            rounds=1,
            cohort=Full(),
            lot=Full(),
            algorithm=FedSGD(learning_rate=1.0),
            layout=task.network.layout,
        )
        return Federation(task=task, plan=plan)

    def measure(self, name: str) -> Case:
        """Both attacks and the nulls on the uploads of one case."""
        federation, streams = self.federation(), Streams(self.seed)
        task, plan = federation.task, federation.plan
        protection, recorder = cases(plan)[name](), ViewRecorder(observer=UPLOADS)
        view = recorder.view(plan, run_federation(task, plan, protection, streams, recorders=[recorder]))
        known = Knowledge.of(task, plan, protection)
        known = replace(known, public_images=known.public_images[:PUBLIC], public_labels=known.public_labels[:PUBLIC])
        truth = task.images[torch.cat(list(task.parts))].numpy()

        def psnr(attack: GradientInversion | MapInversion | MeanImage | ClassMeanImage | RandomImage) -> np.ndarray:
            evidence = attack.run(view, known, streams.generator(type(attack).__name__))
            return np.array([score.psnr for score in score_images(evidence.images, truth)])

        clock = [time.process_time()]
        found = []
        for attack in (MapInversion, GradientInversion):
            found.append(psnr(attack(restarts=self.restarts, iterations=self.iterations)))
            clock.append(time.process_time())
        nulls = [psnr(null) for null in (MeanImage(), ClassMeanImage(), RandomImage())]
        ours, cosine = np.diff(clock)
        return Case(map=found[0], cosine=found[1], null=max(nulls, key=np.mean), seconds=(ours, cosine))


def lower_end(gains: np.ndarray) -> float:
    """One-sided ``1 - ALPHA`` lower confidence end of the mean, t."""
    return float(gains.mean() - stats.t.ppf(1 - ALPHA, len(gains) - 1) * gains.std(ddof=1) / len(gains) ** 0.5)


def t_test(gains: np.ndarray, least: float) -> float:
    """p-value of: the mean is at most ``least``."""
    return float(stats.ttest_1samp(gains, least, alternative="greater").pvalue)


def sign_flips(gains: np.ndarray, least: float, draws: int = 9999) -> float:
    """The same by flipping signs about ``least``; exact where gains are symmetric about their mean."""
    away = gains - least
    flipped = np.random.default_rng(0).choice([-1.0, 1.0], size=(draws, len(away))) @ away
    return float((1 + (flipped >= away.sum()).sum()) / (1 + draws))


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Adjusted p-values (Holm 1979), in the order given."""
    order = np.argsort(p_values)
    steps = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def report(found: Mapping[str, Case]) -> None:
    """The table: a row a case."""
    gains = {name: case.map - case.cosine for name, case in found.items()}
    over = {name: case.map - case.null for name, case in found.items()}
    tests = [(gains, -MARGIN, t_test), (gains, -MARGIN, sign_flips), (over, 0.0, t_test), (over, 0.0, sign_flips)]
    adjusted = [holm([test(values, least) for values in by.values()]) for by, least, test in tests]
    print(
        f"{'case':27}{'median MAP':>11}{'cosine':>8}{'null':>7}   {'MAP - cosine':>12}{'low':>7}{'p t':>8}{'p flip':>8}"
        f"  {'verdict':18}{'MAP - null':>10}{'low':>7}{'p t':>8}{'p flip':>8}  verdict"
    )
    for row, (name, case) in enumerate(found.items()):
        p, flip, p_null, flip_null = (column[row] for column in adjusted)
        print(
            f"{name:27}{np.median(case.map):11.2f}{np.median(case.cosine):8.2f}{np.median(case.null):7.2f}   "
            f"{gains[name].mean():+12.2f}{lower_end(gains[name]):+7.2f}{p:8.4f}{flip:8.4f}  "
            f"{'non-inferior' if p <= ALPHA else 'not shown':18}"
            f"{over[name].mean():+10.2f}{lower_end(over[name]):+7.2f}{p_null:8.4f}{flip_null:8.4f}  "
            f"{'superior' if p_null <= ALPHA else 'not shown'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--targets", type=int, default=50)
    parser.add_argument("--restarts", type=int, default=8)
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--cases", nargs="+", metavar="START", default=[""], help="those whose names start so")
    arguments = vars(parser.parse_args())
    torch.set_num_threads(1)
    keep_freed_memory()
    starts = tuple(arguments.pop("cases"))
    setting, found = Setting(**arguments), dict[str, Case]()
    for name in cases(setting.federation().plan):
        if name.startswith(starts):
            case = found[name] = setting.measure(name)
            gains, (ours, cosine) = case.map - case.cosine, case.seconds
            print(
                f"{name}: MAP {np.median(case.map):.2f} dB, {ours:.0f} CPU s; cosine {np.median(case.cosine):.2f} dB, "
                f"{cosine:.0f} CPU s; mean difference {gains.mean():+.2f}, lower end {lower_end(gains):+.2f}",
                flush=True,
            )
    print(f"\n{setting}")
    report(found)
    print(f"{time.process_time():.0f} CPU s in all")


if __name__ == "__main__":
    main()
