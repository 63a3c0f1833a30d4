"""Attacks on final models of digits, compared with the AUC that each is known to reach here.

    python benchmarks/digits_anchor.py [--models 64] [--epochs 40] [--seed 0]

scikit-learn's digits in their own order; 15 % of the labels are redrawn uniformly; the first 1,400 are the pool, the
rest the population. 64 models (MLP 64-64-10, ReLU; SGD with momentum .9, learning rate .1, lots of 50, 40 epochs) in
complementary pairs, each trained on half of the pool: all in one batch, with the gradient written out. The first 16
are targets in turn; the references are all others except its complement. Intervals: 95 %, by leaving out pairs of the
16 targets, as targets and as references. About 6 CPU seconds.
"""

import argparse
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from fedassay.attacks.membership.attack_r import AttackR
from fedassay.attacks.membership.calibrated_loss import CalibratedLoss
from fedassay.attacks.membership.lira_offline import LiRAOffline
from fedassay.attacks.membership.lira_online import LiRAOnline
from fedassay.attacks.membership.quantile_regression import conditional_deviations
from fedassay.attacks.membership.rmia import RMIA
from fedassay.attacks.membership.shadow_attack import ShadowAttack
from fedassay.attacks.shadow_bank import ModelLogits, ShadowBank, of_true_class, rank_among
from fedassay.audit.arrays import FloatArray
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import Design, MembershipScores, Setting
from fedassay.audit.metrics import tpr_at
from fedassay.audit.observer import FINAL_MODEL
from fedassay.suites.scoring.membership_rows import auc, groups, joined, over_targets
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn.functional import one_hot

POOL, TARGETS, HIDDEN, CLASSES = 1400, 16, 64, 10
SETTING = Setting(
    unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=FINAL_MODEL, rounds=1, design=Design.CLUSTERED
)
KNOWN = {
    "loss": (0.585, 0.014),
    "calibrated loss, x - mu_out": (0.664, 0.125),
    "LiRA offline, one-sided": (0.662, 0.091),
    "LiRA offline, two-sided (wrong)": (0.540, None),
    "LiRA online, per-example variance": (0.702, 0.146),
    "LiRA online, pooled variance": (0.706, 0.154),
    "RMIA offline": (0.665, 0.078),
    "RMIA online": (None, None),
    "attack P": (None, None),
    "attack R": (None, None),
    "quantile regression": (None, None),
}
"""AUC and TPR at FPR 1 % where they are known from elsewhere."""


@dataclass(frozen=True, kw_only=True)
class TwoSided(ShadowAttack):
    """How unlikely the logit is without the candidate, too low or too high: what public code takes for the test."""

    def scores(self, references: ShadowBank, target: ModelLogits) -> FloatArray:
        out = references.moments(included=False)
        return (target.candidates - out.mean) ** 2 / (2 * out.variance) + 0.5 * np.log(out.variance)


SHADOW_ATTACKS = {
    "calibrated loss, x - mu_out": CalibratedLoss(),
    "LiRA offline, one-sided": LiRAOffline(),
    "LiRA offline, two-sided (wrong)": TwoSided(),
    "LiRA online, per-example variance": LiRAOnline(),
    "LiRA online, pooled variance": LiRAOnline(variance="pooled"),
    "RMIA offline": RMIA(),
    "RMIA online": RMIA(online=True),
    "attack R": AttackR(),
}


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """The trained bank, and the pixels and labels, ``(points, 74)``, of its candidates and population."""

    bank: ShadowBank
    features: FloatArray
    population_features: FloatArray


def anchor(*, models: int = 64, epochs: int = 40, seed: int = 0) -> Anchor:
    """Train the models and ask each about all points."""
    rng = np.random.default_rng(seed)
    digits = load_digits()
    images = torch.from_numpy(digits.data.astype(np.float32) / 16)
    labels = digits.target.astype(np.int64)
    redrawn = rng.random(len(labels)) < 0.15
    labels = torch.from_numpy(np.where(redrawn, rng.integers(CLASSES, size=len(labels)), labels))
    halves = np.stack([rng.permutation(POOL) < POOL // 2 for _ in range(models // 2)])
    included = np.stack([halves, ~halves], axis=1).reshape(models, POOL)
    logits = of_true_class(trained(images, labels, included, epochs, rng).double(), labels.expand(models, -1)).numpy()
    features = np.concatenate([images.numpy(), one_hot(labels, CLASSES).numpy()], axis=1).astype(np.float64)
    bank = ShadowBank(
        logits=logits[:, :POOL],
        included=included,
        population=logits[:, POOL:],
        ids=np.arange(POOL),
        paired=True,
    )
    return Anchor(bank=bank, features=features[:POOL], population_features=features[POOL:])


def trained(images: Tensor, labels: Tensor, included: np.ndarray, epochs: int, rng: np.random.Generator) -> Tensor:
    """Logits ``(models, points, classes)`` of the models at all points."""
    models, targets = len(included), one_hot(labels, CLASSES).float()
    weights = [initial(rng, models, images.shape[1], HIDDEN), initial(rng, models, HIDDEN, CLASSES)]
    speeds = [torch.zeros_like(weight) for weight in weights]
    held = torch.from_numpy(np.stack([row.nonzero()[0] for row in included]))
    for _ in range(epochs):
        order = torch.from_numpy(rng.random(held.shape).argsort(axis=1))
        for lot in held.gather(1, order).split(50, dim=1):
            for weight, speed, slope in zip(weights, speeds, slopes(weights, images[lot], targets[lot]), strict=True):
                speed.mul_(0.9).add_(slope)
                weight.sub_(speed, alpha=0.1)
    return with_one(torch.relu(with_one(images.expand(models, -1, -1)) @ weights[0])) @ weights[1]


def initial(rng: np.random.Generator, models: int, wide: int, out: int) -> Tensor:
    """PyTorch's default of a linear layer, the bias as its last row: ``(models, wide + 1, out)``."""
    return torch.from_numpy(rng.uniform(-1, 1, (models, wide + 1, out)).astype(np.float32)) / wide**0.5


def slopes(weights: list[Tensor], images: Tensor, targets: Tensor) -> list[Tensor]:
    """Gradients of the mean cross-entropy of a lot of each model."""
    outer = with_one(images)
    inner = with_one(torch.relu(outer @ weights[0]))
    residual = ((inner @ weights[1]).softmax(-1) - targets) / images.shape[1]
    back = (residual @ weights[1].transpose(1, 2))[..., :-1] * (inner[..., :-1] > 0)
    return [outer.transpose(1, 2) @ back, inner.transpose(1, 2) @ residual]


def with_one(rows: Tensor) -> Tensor:
    """A last column of ones."""
    return torch.cat([rows, rows.new_ones(*rows.shape[:-1], 1)], dim=-1)


def attacked_in_turn(found: Anchor, targets: int) -> list[dict[str, MembershipScores]]:
    """The first so many models, one after the other."""
    return [attacked(found, target) for target in range(targets)]


def attacked(found: Anchor, target: int) -> dict[str, MembershipScores]:
    """Every attack's scores of one target, beside the truth."""
    said, references = found.bank.model_logits(target), found.bank.references(target)
    scores = {"loss": said.candidates, "attack P": rank_among(said.candidates, said.population)}
    scores["quantile regression"] = conditional_deviations(
        found.features, said.candidates, found.population_features, said.population
    )
    scores |= {name: attack.scores(references, said) for name, attack in SHADOW_ATTACKS.items()}
    member = found.bank.included[target]
    return {name: MembershipScores(each[member], each[~member], SETTING) for name, each in scores.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.process_time()
    found = anchor(models=arguments.models, epochs=arguments.epochs, seed=arguments.seed)
    training = time.process_time() - begun
    targets = min(TARGETS, found.bank.models)
    runs, without = (
        attacked_in_turn(found, targets),
        [
            attacked_in_turn(replace(found, bank=found.bank.without(group)), targets - len(group))
            for group in groups(targets)
        ],
    )
    print(f"{'attack':36} {'AUC':>5}  {'95 % interval':14}  {'known':>5}  {'TPR at FPR 1 %':>14}  {'known':>5}")
    for name, known in KNOWN.items():
        each = [run[name] for run in runs]
        mean = over_targets([auc(one) for one in each], [[auc(run[name]) for run in left] for left in without])
        together = joined(each)
        tpr = tpr_at(together.member, together.nonmember, 0.01)
        words = [f"{value:.3f}" if value is not None else "" for value in known]
        interval = f"{mean.low:.3f} to {mean.high:.3f}"
        print(f"{name:36} {mean.value:.3f}  {interval:14}  {words[0]:>5}  {tpr:14.3f}  {words[1]:>5}")
    print(f"training {training:.1f} CPU s, together {time.process_time() - begun:.1f} CPU s")


if __name__ == "__main__":
    main()
