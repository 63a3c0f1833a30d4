"""The DP-FL toy: what membership attacks find in the final model, and in what the server sees every round.

    python benchmarks/dp_fl_toy.py [--seeds 6] [--outsiders 30]

10 clients of 10 digits, MLP 64-256-10, 60 rounds, everybody in every round, one step on the sum of all gradients
clipped to 1 with noise of std 4 (over the lot of 10: the server's learning rate is 1). Prints the AUC of each attack,
members against outsiders, pooled over seeds, beside the ceiling of mu-GDP, mu = sqrt(60) / 4. Each outsider is asked
about once, at one client. 6 seeds with 300 outsiders take about 100 CPU seconds.
"""

import argparse
import math
import time

import numpy as np
import torch
from fedassay.attacks.attack import Knowledge, Level
from fedassay.attacks.membership.likelihood_ratio import LikelihoodRatio
from fedassay.attacks.membership.loss import LossThreshold
from fedassay.audit.evidence import MembershipScores
from fedassay.audit.observer import FINAL_MODEL, UPLOADS, Observer
from fedassay.defenses.dp_sgd import DPSGDProtection
from fedassay.fl.algorithm import FedSGD
from fedassay.fl.datasets import load_dataset
from fedassay.fl.engine import run_federation
from fedassay.fl.law import GaussianLaw
from fedassay.fl.network import Network
from fedassay.fl.plan import Plan
from fedassay.fl.probe import CandidateProbe, Candidates
from fedassay.fl.recorder import LotRecorder, ViewRecorder
from fedassay.fl.sampling import Full
from fedassay.fl.streams import Streams
from fedassay.fl.task import Task
from fedassay.suites.scoring.membership import auc
from fedassay.suites.worst_case import known_rest
from scipy.stats import norm

CLIENTS, OWN, ROUNDS, NOISE = 10, 10, 60, 4.0
ATTACKS = {
    "loss of the final model": LossThreshold,
    "likelihood ratio, rest estimated": LikelihoodRatio,
    "likelihood ratio, all but one bit known": lambda client: LikelihoodRatio(client=client, rest="known"),
}


def scores(seed: int, *, outsiders: int = 30) -> dict[str, MembershipScores]:
    """One federation: for each attack the scores of 100 members and of ``outsiders`` outsiders a client."""
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
    observers = {observer: ViewRecorder(observer=observer) for observer in (UPLOADS, FINAL_MODEL)}
    lots = [LotRecorder(client=client) for client in range(CLIENTS)]
    final = run_federation(task, plan, protection, streams, recorders=[*observers.values(), *lots])
    views = {observer: recorder.view(plan, final) for observer, recorder in observers.items()}

    def law(observer: Observer, client: int) -> GaussianLaw | None:
        return protection.law(observer, plan, client)

    found: dict[str, list[MembershipScores]] = {name: [] for name in ATTACKS}
    for client in range(CLIENTS):
        probe = ask(task, client, outsiders)
        knowledge = Knowledge(
            level=Level.WORST_CASE,
            network=task.network,
            plan=plan,
            law=law,
            public_images=task.test_images,
            public_labels=task.test_labels,
            candidates=probe.shown,
            rest=known_rest(task, plan, protection, lots[client], views[UPLOADS], probe),
        )
        for name, attack_on in ATTACKS.items():
            attack = attack_on(client=client)
            evidence = attack.run(views[attack.observer], knowledge, streams.generator(f"attack {name}"))
            found[name].append(evidence.against(probe.member))
    return {name: pooled(each) for name, each in found.items()}


def deal(streams: Streams, outsiders: int) -> Task:
    """Digits dealt at random: 10 a client, then ``outsiders`` a client whom nobody trains on."""
    digits = load_dataset("digits")
    images = torch.cat([digits.train_images, digits.test_images])
    labels = torch.cat([digits.train_labels, digits.test_labels])
    held, asked = CLIENTS * OWN, CLIENTS * outsiders
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


def ask(task: Task, client: int, outsiders: int) -> CandidateProbe:
    """The client's own samples and its share of the outsiders."""
    part, share = task.parts[client], slice(client * outsiders, (client + 1) * outsiders)
    shown = Candidates(
        images=torch.cat([task.images[part], task.outsider_images[share]]),
        labels=torch.cat([task.labels[part], task.outsider_labels[share]]),
        client=client,
    )
    return CandidateProbe(shown=shown, sample=np.r_[np.arange(OWN), np.full(outsiders, -1)])


def pooled(each: list[MembershipScores]) -> MembershipScores:
    """All scores of one attack together."""
    member, nonmember = (np.concatenate([getattr(one, side) for one in each]) for side in ("member", "nonmember"))
    return MembershipScores(member, nonmember, each[0].setting)


def ceiling() -> float:
    """AUC of the best test between N(0, 1) and N(mu, 1): no attack on this mechanism has more."""
    return float(norm.cdf(math.sqrt(ROUNDS) / NOISE / math.sqrt(2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--outsiders", type=int, default=30, help="a client")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.process_time()
    runs = [scores(seed, outsiders=arguments.outsiders) for seed in range(arguments.seeds)]
    for name in ATTACKS:
        each = [auc(run[name]) for run in runs]
        together = auc(pooled([run[name] for run in runs]))
        print(f"{name:42} {together:.3f}   seeds {min(each):.3f} to {max(each):.3f}")
    print(f"{'ceiling, mu-GDP':42} {ceiling():.3f}")
    print(f"{arguments.seeds} seeds, {time.process_time() - begun:.0f} CPU s")


if __name__ == "__main__":
    main()
