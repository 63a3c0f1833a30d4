"""Null test of membership attacks: with no members, 95 % of the intervals must contain AUC 1/2.

    python benchmarks/membership_null.py [--repeats 200]

Each repeat trains a tiny federation under DP-SGD and runs every attack on 240 samples (or 48 clients) that no client
trained on, half of which are labelled members at random. Prints for each attack how many of the intervals of its AUC
(of its accuracy, for sources) contain a half (a quarter), of which at least 90 % must, and how often the joint
statement of its true-positive rate, at the lowest false-positive rate that the candidates allow, claims to beat
chance, which at most 9.5 % may.
"""

import argparse
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from fedassay.attacks.attack import Attack, Knowledge
from fedassay.attacks.membership.client_loss import ClientLoss
from fedassay.attacks.membership.client_membership import ClientMembership
from fedassay.attacks.membership.confidence_series import ConfidenceSeries
from fedassay.attacks.membership.fedmia_cosine import FedMIACosine
from fedassay.attacks.membership.fedmia_loss import FedMIALoss
from fedassay.attacks.membership.gradient_cosine import GradientCosine
from fedassay.attacks.membership.gradient_dot import GradientDot
from fedassay.attacks.membership.likelihood_ratio import LikelihoodRatio
from fedassay.attacks.membership.loss import LossThreshold
from fedassay.attacks.membership.loss_series import LossSeries
from fedassay.attacks.membership.random_people import RandomPeople
from fedassay.attacks.membership.random_scores import RandomScores
from fedassay.attacks.membership.random_source import RandomSource
from fedassay.attacks.membership.source import SourceInferenceAttack
from fedassay.attacks.membership.writer_membership import WriterMembership
from fedassay.audit.evidence import CandidateScores, SourceScores
from fedassay.audit.metrics import area_interval, counted_runs, joint_statement, lowest_rate
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.candidates import Candidates, PlantedCandidates, PlantedOwners, plant_clients, plant_users
from fedassay.fl.engine import run_federation
from fedassay.fl.models.network import Network
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import LotRecorder, ViewRecorder
from fedassay.fl.sampling import Full
from fedassay.fl.streams import Streams, uniform
from fedassay.fl.task import Task
from fedassay.suites.attacking.worst_case import worst_case_hypotheses
from fedassay.suites.scoring.label_rows import hits
from fedassay.suites.scoring.membership_rows import all_scores, counted_scores, wilson

CLIENTS, OWN, ROUNDS, ASKED, PEOPLE = 4, 4, 3, 240, 48
NOISY = DPSGDProtection(clip_norm=0.5, noise_multiplier=1.0)
ATTACKS: dict[str, tuple[Attack, Observer]] = {
    "random_scores": (RandomScores(), FINAL_MODEL),
    "loss": (LossThreshold(), FINAL_MODEL),
    "loss_series": (LossSeries(), GLOBAL_MODELS),
    "confidence_series": (ConfidenceSeries(), GLOBAL_MODELS),
    "gradient_dot": (GradientDot(client="all"), UPLOADS),
    "gradient_dot, multiset": (GradientDot(), SHUFFLED),
    "gradient_dot, sum": (GradientDot(), AGGREGATE),
    "gradient_cosine": (GradientCosine(client="all"), UPLOADS),
    "gradient_cosine, models": (GradientCosine(), GLOBAL_MODELS),
    "fedmia_loss": (FedMIALoss(client="all"), UPLOADS),
    "fedmia_cosine": (FedMIACosine(client="all"), UPLOADS),
    "likelihood_ratio": (LikelihoodRatio(client="all"), UPLOADS),
    "likelihood_ratio, sum": (LikelihoodRatio(), AGGREGATE),
    "likelihood_ratio, known": (LikelihoodRatio(client="all", rest="known"), UPLOADS),
    "likelihood_ratio, known, sum": (LikelihoodRatio(client="all", rest="known"), AGGREGATE),
    "client_membership": (ClientMembership(), AGGREGATE),
    "client_membership, models": (ClientMembership(), GLOBAL_MODELS),
    "client_loss": (ClientLoss(), FINAL_MODEL),
    "writer_membership": (WriterMembership(), UPLOADS),
    "random_people": (RandomPeople(), FINAL_MODEL),
    "source, loss": (SourceInferenceAttack(), UPLOADS),
    "source, cosine": (SourceInferenceAttack(by="cosine"), UPLOADS),
    "random_source": (RandomSource(), FINAL_MODEL),
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Whether an interval contains what chance has, and whether a joint statement says that chance is beaten."""

    holds: bool
    fires: bool = False


def repeat(seed: int) -> dict[str, Outcome]:
    """Result of one repeat for each attack."""
    streams = Streams(seed)
    task, coin = _task(streams), streams.generator("coin")
    plan = Plan(
        sizes=task.sizes,
        rounds=ROUNDS,
        cohort=Full(),
        lot=Full(),
        algorithm=FedSGD(learning_rate=0.5),
        layout=task.network.layout,
    )
    lots = {client: LotRecorder(client=client) for client in range(CLIENTS)}
    recorders = {observer: ViewRecorder(observer=observer) for _, observer in ATTACKS.values()}
    final = run_federation(task, plan, NOISY, streams, recorders=[*recorders.values(), *lots.values()])
    samples, people = _samples(task), _people(task, coin)
    found = {}
    for name, (attack, observer) in ATTACKS.items():
        # Shuffled reports have no law of their own: read them as those of an undefended run.
        protection = Protection() if observer == SHUFFLED else NOISY
        view = recorders[observer].view(plan, final)
        hypotheses = worst_case_hypotheses(task, plan, protection, lots, view, samples)
        planted = people.get(name.split(",")[0], samples)
        knowledge = Knowledge.of(task, plan, protection, candidates=planted.shown, hypotheses=hypotheses)
        evidence = attack.run(view, knowledge, streams.generator(f"attack {name}"))
        found[name] = _outcome(evidence, planted, coin)
    return found


def _task(streams: Streams) -> Task:
    """Random images of three classes, with 48 further clients that do not train."""
    rng = streams.generator("null")
    sizes = [OWN] * CLIENTS + [3] * PEOPLE
    hands = torch.arange(sum(sizes)).split(sizes)

    def data(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        return uniform(rng, (n, 1, 3, 3)), torch.from_numpy(rng.integers(3, size=n))

    (images, labels), (outside, outside_labels), (test, test_labels) = data(sum(sizes)), data(ASKED), data(9)
    return Task(
        network=Network(model="logistic", shape=(1, 3, 3), classes=3),
        images=images,
        labels=labels,
        parts=hands[:CLIENTS],
        held_out=hands[CLIENTS:],
        owners=torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)),
        outsider_images=outside,
        outsider_labels=outside_labels,
        test_images=test,
        test_labels=test_labels,
    )


def _samples(task: Task) -> PlantedCandidates:
    """Every non-member as a candidate at every client."""
    shown = Candidates(images=task.outsider_images, labels=task.outsider_labels, clients=tuple(range(CLIENTS)))
    no_owner = np.full(ASKED, -1)
    return PlantedCandidates(shown=shown, holder=no_owner, sample=no_owner)


def _people(task: Task, rng: np.random.Generator) -> dict[str, PlantedOwners]:
    """All 48 who never take part: half of them stand in for those who do."""
    half = PEOPLE // 2
    null = replace(task, parts=task.held_out[:half], held_out=task.held_out[half:])
    clients, writers = (plant(null, count=half, rng=rng) for plant in (plant_clients, plant_users))
    return {
        "client_membership": clients,
        "client_loss": clients,
        "random_people": clients,
        "writer_membership": writers,
    }


def _outcome(evidence: object, planted: PlantedCandidates | PlantedOwners, coin: np.random.Generator) -> Outcome:
    if isinstance(evidence, SourceScores):
        worth = hits(evidence.values, coin.integers(CLIENTS, size=ASKED))
        low, high = wilson(float(worth.mean()), len(worth))
        return Outcome(holds=low <= 1 / CLIENTS <= high)
    assert isinstance(evidence, CandidateScores)
    if isinstance(planted, PlantedOwners):
        found = all_scores(evidence, planted.member)
    else:
        called = np.where(coin.permutation(ASKED) < ASKED // 2, coin.integers(CLIENTS, size=ASKED), -1)
        found = counted_scores(evidence, replace(planted, holder=called, sample=np.minimum(called, 0)))
    sides = found.given_the_run
    rate = lowest_rate(counted_runs(sides))
    assert rate is not None
    area = area_interval(sides)
    # Scores that are all equal have no interval; their AUC is 1/2.
    tied = area.value == 0.5 and (area.low is None or area.high is None)
    holds = tied or (area.low is not None and area.high is not None and area.low <= 0.5 <= area.high)
    return Outcome(holds=holds, fires=joint_statement(sides, rate).exceeds(lambda fpr: fpr))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.process_time()
    runs = [repeat(seed) for seed in range(arguments.repeats)]
    print(f"{'attack':30} intervals that hold  statements that fire, of {len(runs)}")
    for name in ATTACKS:
        print(f"{name:30} {sum(run[name].holds for run in runs):19}  {sum(run[name].fires for run in runs):19}")
    print(f"{time.process_time() - begun:.0f} CPU s")


if __name__ == "__main__":
    main()
