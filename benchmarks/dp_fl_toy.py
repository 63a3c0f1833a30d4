"""Membership attacks on a small DP federation: by the final model, and by what each observer receives every round.

    python benchmarks/dp_fl_toy.py [--seeds 20] [--outsiders 300]

10 clients of 10 digits, MLP 64-256-10, 60 rounds, all clients in every round, one step on the sum of all gradients
clipped to 1 with noise of std 4 (over the lot of 10: the server's learning rate is 1). The candidates are every sample
of every client, and the same non-members at every client; all candidates of a federation are pooled. Prints the mean
AUC over seeds with its 95 % t interval, next to the largest AUC under mu-GDP, mu = sqrt(60) / 4.
"""

import argparse
import math
import time

import numpy as np
import torch
from fedassay.attacks.attack import Attack, Knowledge
from fedassay.attacks.membership.confidence_series import ConfidenceSeries
from fedassay.attacks.membership.fedmia_cosine import FedMIACosine
from fedassay.attacks.membership.fedmia_loss import FedMIALoss
from fedassay.attacks.membership.gradient_cosine import GradientCosine
from fedassay.attacks.membership.gradient_dot import GradientDot
from fedassay.attacks.membership.likelihood_ratio import LikelihoodRatio
from fedassay.attacks.membership.loss import LossThreshold
from fedassay.attacks.membership.loss_series import LossSeries
from fedassay.attacks.membership.random_scores import RandomScores
from fedassay.audit.metrics import area
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, UPLOADS, Observer
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.candidates import Candidates, PlantedCandidates
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.models.network import Network
from fedassay.fl.plan import Plan
from fedassay.fl.recorder import LotRecorder, ViewRecorder
from fedassay.fl.sampling import Full
from fedassay.fl.streams import Streams
from fedassay.fl.task import Task
from fedassay.suites.attacking.worst_case import worst_case_hypotheses
from fedassay.suites.scoring.membership_rows import counted_scores
from scipy import stats

CLIENTS, OWN, ROUNDS, NOISE = 10, 10, 60, 4.0
ATTACKS: dict[str, tuple[Attack, Observer, float | None]] = {
    "random scores (null)": (RandomScores(client="all"), FINAL_MODEL, 0.5),
    "loss of the final model": (LossThreshold(client="all"), FINAL_MODEL, 0.547),
    "loss series": (LossSeries(client="all"), GLOBAL_MODELS, None),
    "confidence series": (ConfidenceSeries(client="all"), GLOBAL_MODELS, None),
    "<u, g> of the sum": (GradientDot(client="all"), AGGREGATE, None),
    "cosine of the sum": (GradientCosine(client="all"), AGGREGATE, None),
    "FedMIA, loss": (FedMIALoss(client="all"), UPLOADS, 0.708),
    "FedMIA, cosine": (FedMIACosine(client="all"), UPLOADS, 0.770),
    "mean cosine": (GradientCosine(client="all"), UPLOADS, 0.784),
    "<u, g>": (GradientDot(client="all"), UPLOADS, 0.80),
    "likelihood ratio, rest estimated": (LikelihoodRatio(client="all"), UPLOADS, None),
    "likelihood ratio, all but one bit known": (LikelihoodRatio(client="all", rest="known"), UPLOADS, 0.889),
    "the same of the sum": (LikelihoodRatio(client="all", rest="known"), AGGREGATE, None),
}
"""Name -> attack, observer (what the adversary receives) and the reference's AUC over 6 seeds, None if it has none."""


def areas(seed: int, *, outsiders: int = 300, named: tuple[str, ...] = tuple(ATTACKS)) -> dict[str, float]:
    """One federation: the AUC of each attack, all clients' questions pooled."""
    streams, protection = Streams(seed), DPSGDProtection(clip_norm=1.0, noise_multiplier=NOISE)
    task = deal(streams, outsiders)
    plan = Plan(
        sizes=task.sizes,
        rounds=ROUNDS,
        cohort=Full(),
        lot=Full(),
        algorithm=FedSGD(learning_rate=1.0),
        layout=task.network.layout,
    )
    recorders = {observer: ViewRecorder(observer=observer) for observer in {ATTACKS[name][1] for name in named}}
    lots = {client: LotRecorder(client=client) for client in range(CLIENTS)}
    final = run_federation(task, plan, protection, streams, recorders=[*recorders.values(), *lots.values()])
    planted, found = ask(task), {}
    for name in named:
        attack, observer, _ = ATTACKS[name]
        view = recorders[observer].view(plan, final)
        hypotheses = worst_case_hypotheses(task, plan, protection, lots, view, planted)
        knowledge = Knowledge.of(
            task, plan, protection, level=attack.level, candidates=planted.shown, hypotheses=hypotheses
        )
        evidence = attack.run(view, knowledge, streams.generator(f"attack {name}"))
        found[name] = area(counted_scores(evidence, planted).given_the_run)
    return found


def deal(streams: Streams, outsiders: int) -> Task:
    """Digits dealt at random: 10 a client, then ``outsiders`` whom nobody trains on."""
    digits = load_dataset("digits")
    images = torch.cat([digits.train_images, digits.test_images])
    labels = torch.cat([digits.train_labels, digits.test_labels])
    held, asked = CLIENTS * OWN, outsiders
    order = torch.from_numpy(streams.generator("dp-fl toy").permutation(len(labels)))
    inside, outside, public = order[:held], order[held : held + asked], order[held + asked :]
    return Task(
        network=Network(model="mlp", shape=(1, 8, 8), classes=10),
        images=images[inside],
        labels=labels[inside],
        parts=torch.arange(held).split(OWN),
        outsider_images=images[outside],
        outsider_labels=labels[outside],
        test_images=images[public],
        test_labels=labels[public],
    )


def ask(task: Task) -> PlantedCandidates:
    """All samples of all clients, and all outsiders."""
    nobody = np.full(len(task.outsider_labels), -1)
    shown = Candidates(
        images=torch.cat([task.images, task.outsider_images]),
        labels=torch.cat([task.labels, task.outsider_labels]),
        clients=tuple(range(CLIENTS)),
    )
    return PlantedCandidates(
        shown=shown,
        holder=np.concatenate([np.repeat(np.arange(CLIENTS), OWN), nobody]),
        sample=np.concatenate([np.tile(np.arange(OWN), CLIENTS), nobody]),
    )


def ceiling() -> float:
    """AUC of the best test between N(0, 1) and N(mu, 1): no attack on this mechanism has more."""
    return float(stats.norm.cdf(math.sqrt(ROUNDS) / NOISE / math.sqrt(2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--outsiders", type=int, default=300)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.process_time()
    runs = [areas(seed, outsiders=arguments.outsiders) for seed in range(arguments.seeds)]
    print(f"{'attack':42} {'observer':14} {'AUC':5} {'95 % of the mean':16} reference")
    for name, (_, observer, known) in ATTACKS.items():
        each = [run[name] for run in runs]
        half = stats.t.ppf(0.975, len(each) - 1) * stats.sem(each) if len(each) > 1 else math.nan
        mean, said = np.mean(each), "" if known is None else f"{known:.3f}"
        print(f"{name:42} {observer!s:14} {mean:.3f} {mean - half:.3f} to {mean + half:.3f}   {said}")
    print(f"{'ceiling, mu-GDP':57} {ceiling():.3f}")
    print(f"{arguments.seeds} seeds, {time.process_time() - begun:.0f} CPU s")


if __name__ == "__main__":
    main()
