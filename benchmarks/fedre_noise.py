"""How FedRE's noise compares with its signal from a warm start, in both readings of its equation 7, and at which
epsilon learning starts; how many clients PDA-PAM averages. Synthetic receipts, the federation of papers/fedre_warm.

    python benchmarks/fedre_noise.py [--seed 0] [--learning-rate 0.1]

About two CPU minutes. Noise and signal are lengths of vectors over all weights, in the mean over the clients of one
round; the signal is that mean without noise, at the initial model.
"""

import argparse
import math
from dataclasses import dataclass, replace

import torch
from fedassay.audit.curve import epsilon_from_mu
from fedassay.defenses.layers.budget import JointBudget
from fedassay.defenses.layers.fedre import FedRE, FedREProtection
from fedassay.defenses.layers.fedre_per_sample import FedREPerSample
from fedassay.defenses.layers.scored_layers import client_weights, model_scores, relative_scores
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.engine import run_federation
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Context, Protection
from fedassay.fl.recorder import RoundEvent
from fedassay.fl.streams import Streams
from fedassay.fl.task import Task
from fedassay.suites.config.resolve import plan_of, prepare, resolve, task_of
from fedassay.suites.config.suite_file import load_suite

EPSILONS = (10.0, 50.0, 500.0, 5e3, 5e4, 5e5)
FEDERATION = "main"


@dataclass(frozen=True, kw_only=True)
class AnyBudget(JointBudget):
    """A budget without the upper limit that keeps a calibrated noise meaningful."""

    @property
    def mu(self) -> float:
        low, high = 1e-3, 1e4
        for _ in range(100):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if epsilon_from_mu(middle, self.delta) < self.epsilon else (low, middle)
        return low


@dataclass(kw_only=True)
class First:
    """Keeps the aggregate of the first round."""

    aggregate: torch.Tensor | None = None

    def watch(self, event: RoundEvent) -> None:
        if self.aggregate is None:
            self.aggregate = event.aggregate[0]


@dataclass(kw_only=True)
class Effective:
    """The effective number of clients of raw and of relative scores, for weight tensors and for biases."""

    task: Task
    plan: Plan
    protection: FedREProtection

    def watch(self, event: RoundEvent) -> None:
        if event.round not in (0, self.plan.rounds - 1):
            return
        model = event.broadcast
        context = Context(plan=self.plan, round=0, replicas=1, samples=lambda c: self.task.samples(model, c))
        scores = model_scores(event.received, context, self.protection.scorers)
        present = event.received.present
        for name, rows in (("raw", scores), ("relative", relative_scores(scores, present))):
            shares = client_weights(rows, present)[0]
            # The number of clients for equal weights, and 1 if one client has all the weight.
            found = shares.sum(0).square() / shares.square().sum(0)
            weights, biases = (f"{part.min():.2f} to {part.max():.2f}" for part in (found[::2], found[1::2]))
            print(f"| {event.round + 1} | {name} | {weights} | {biases} |", flush=True)


def protections(plan: Plan, epsilon: float) -> dict[str, FedREProtection]:
    """Both readings with equal scores, so that each layer has the same share, and mean aggregation."""
    given = {"clip_norms": (0.2,), "scores": (1.0,) * len(plan.layout.names), "aggregation": "mean"}
    found = {}
    for name, part in (("report", FedRE(**given)), ("sample", FedREPerSample(**given))):
        protection = part.prepare(plan).protection
        budget = AnyBudget(
            epsilon=epsilon, delta=1e-5, rounds=protection.budget.rounds, adjacency=protection.budget.adjacency
        )
        found[name] = replace(protection, budget=budget)
    return found


def noise_length(protection: FedREProtection, plan: Plan, reading: str) -> float:
    stds = protection.noise(torch.tensor(protection.scores))
    sizes = torch.tensor([math.prod(shape) for shape in plan.layout.shapes])
    one = float((stds.square() * sizes).sum().sqrt())
    return one / math.sqrt(plan.clients) / (plan.expected_lot(0) if reading == "sample" else 1)


def utility(task: Task, model: torch.Tensor) -> str:
    found = {row.metric: row.value for row in task.utility(model)}
    return " | ".join("–" if found[name] is None else f"{found[name]:.3f}" for name in ("iou", "f_score", "loss"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    suite = resolve(*load_suite("papers/fedre_warm"), seed=arguments.seed)
    spec, streams = suite.spec.federations[FEDERATION], Streams(arguments.seed)
    task = task_of(spec, arguments.seed)
    entries = {entry.label: entry for entry in suite.defenses}
    plan = replace(plan_of(spec, entries["none"].change, task), algorithm=FedSGD(learning_rate=arguments.learning_rate))
    print("| epsilon | reading | noise / signal | IoU | F | test loss |\n|---|---|---|---|---|---|")
    print(f"| warm start | | | {utility(task, task.initial(streams))} |", flush=True)
    first = First()
    plain = run_federation(task, plan, Protection(), streams, recorders=[first])[0]
    print(f"| no defense | | 0 | {utility(task, plain)} |", flush=True)
    signal = float(torch.linalg.vector_norm(first.aggregate))
    for epsilon in EPSILONS:
        for reading, protection in protections(plan, epsilon).items():
            ratio = noise_length(protection, plan, reading) / signal
            model = run_federation(task, plan, protection, streams)[0]
            print(f"| {epsilon:g} | {reading} | {ratio:.3g} | {utility(task, model)} |", flush=True)
    print("\n| round | scores | effective clients, weights | biases |\n|---|---|---|---|")
    protection = prepare(suite, entries["sample_50"], FEDERATION, arguments.seed).protection
    run_federation(task, plan, protection, streams, recorders=[Effective(task=task, plan=plan, protection=protection)])


if __name__ == "__main__":
    main()
