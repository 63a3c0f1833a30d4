"""Label counts of an undefended lot: accuracy of each rule on untrained models, next to the published tables.

    python benchmarks/labels.py [--tries 400] [--models 20] [--seed 0]

First iLRG and the row-sum rule on MNIST (skipped with a reason if it is missing) and a fully connected network
784-300-300-10 with ReLU, images standardised by MNIST's mean and deviation, lots drawn without replacement, next to the
figures that Ma et al. 2023 logged: 50 tries on ONE initial model. Here ``--tries`` are spread over ``--models``, and
initial models differ by more than tries do: "one model" is where 95 % of such figures would fall, while the interval
of a logged figure is over its tries alone. Then iDLG on single
images and an untrained LeNet. Label-count accuracy: share of the ten classes whose count is correct; class-existence
accuracy: share of the ten classes whose presence is inferred correctly.
"""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from fedassay.attacks.attack import Attack, Knowledge, Level
from fedassay.attacks.labels.idlg import IDLG
from fedassay.attacks.labels.ilrg import ILRG
from fedassay.attacks.labels.row_sum import RowSum
from fedassay.audit.observer import UPLOADS
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.data.dataset import Dataset, DatasetMissing
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.message import Message
from fedassay.fl.models.network import Network
from fedassay.fl.plan import Plan
from fedassay.fl.recorder import RoundView, View
from fedassay.fl.sampling import Full
from fedassay.fl.streams import Streams
from fedassay.suites.scoring.label_rows import rate_interval, score_labels
from scipy import stats
from torch import Tensor, nn

PUBLISHED = {
    ("ilrg", 4): 1.000,
    ("ilrg", 8): 1.000,
    ("ilrg", 16): 1.000,
    ("ilrg", 32): 0.804,
    ("ilrg", 64): 0.598,
    ("row_sum", 8): 0.964,
    ("row_sum", 128): 0.470,
}
"""Mean label-count accuracy of iLRG and class-existence accuracy of "iDLG" on batches, by lot size."""
LOGGED_TRIES = 50


class Standardised(nn.Module):
    """MNIST's own mean and deviation; no parameters."""

    def forward(self, images: Tensor) -> Tensor:
        return (images - 0.1307) / 0.3081


@dataclass(frozen=True, kw_only=True)
class FullyConnected(Network):
    """784-300-300-10 with ReLU: the "FCN-3" of Ma et al. 2023."""

    @cached_property
    def module(self) -> nn.Module:
        with torch.no_grad():
            return nn.Sequential(
                Standardised(),
                nn.Flatten(),
                nn.Linear(784, 300),
                nn.ReLU(),
                nn.Linear(300, 300),
                nn.ReLU(),
                nn.Linear(300, self.classes),
            )


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """``tries``: (models, tries a model), one score each."""

    tries: np.ndarray

    @property
    def mean(self) -> float:
        """Over all."""
        return float(self.tries.mean())

    def half_width(self) -> float:
        """Of the mean's 95 % t interval, models being the independent trials."""
        models = len(self.tries)
        return float(stats.t.ppf(0.975, models - 1) * self.tries.mean(1).std(ddof=1) / models**0.5)

    def one_model(self, tries: int = LOGGED_TRIES) -> tuple[float, float]:
        """Where the mean of that many tries on one new model falls with 95 % probability, taken as normal."""
        within, own = self.tries.var(1, ddof=1).mean(), self.tries.shape[1]
        between = max(0.0, self.tries.mean(1).var(ddof=1) - within / own)
        half = stats.t.ppf(0.975, len(self.tries) - 1) * (between + within / tries) ** 0.5
        return max(0.0, self.mean - half), min(1.0, self.mean + half)

    def logged(self) -> float:
        """Half width of a logged figure's own 95 % interval over its tries, by the scatter of these."""
        return float(1.96 * (self.tries.var(1, ddof=1).mean() / LOGGED_TRIES) ** 0.5)

    def words(self, figure: float) -> str:
        """The mean beside a logged figure, each with its interval."""
        low, high = self.one_model()
        return (
            f"{self.mean:.3f} +- {self.half_width():.3f}   logged {figure:.3f} +- {self.logged():.3f}   "
            f"one model {low:.3f} to {high:.3f}"
        )


def tries(
    network: Network, data: Dataset, size: int, *, models: int, each: int, seed: int
) -> Iterator[tuple[int, View, Knowledge, np.ndarray]]:
    """(number of the model, what the server sees of one lot's upload, what it knows, the lot's counts)."""
    for number in range(models):
        streams = Streams(seed)
        model = network.initial(streams.generator("init", replicate=number))
        for attempt in range(each):
            rng = streams.generator("lot", replicate=number, step=attempt, round=size)
            drawn = torch.from_numpy(rng.choice(len(data.train_labels), size=size, replace=False))
            view, knowledge = shown(network, model, data.train_images[drawn], data.train_labels[drawn], data)
            yield number, view, knowledge, torch.bincount(data.train_labels[drawn], minlength=10)[None].numpy()


def shown(network: Network, model: Tensor, images: Tensor, labels: Tensor, data: Dataset) -> tuple[View, Knowledge]:
    """One client's undefended FedSGD upload of one lot."""
    plan = Plan(
        sizes=(len(labels),),
        rounds=1,
        cohort=Full(),
        lot=Full(),
        algorithm=FedSGD(learning_rate=1.0),
        layout=network.layout,
    )
    mean = network.gradient(model[None], images[None], labels[None], torch.full((1, len(labels)), 1 / len(labels)))
    reports = Message(values=-mean[None], present=torch.ones(1, 1).bool(), senders=(0,))
    seen = RoundView(round=0, broadcast=model[None], reports=reports)
    knowledge = Knowledge(
        level=Level.REALISTIC,
        network=network,
        plan=plan,
        law=lambda observer, client: None,
        public_images=data.test_images,
        public_labels=data.test_labels,
    )
    return View(observer=UPLOADS, plan=plan, rounds=(seen,), final_model=model[None]), knowledge


def agreement(attack: Attack, data: Dataset, size: int, *, models: int, each: int, seed: int) -> Agreement:
    """Label-count accuracy of iLRG, class-existence accuracy of a sign rule, on lots of ``size``."""
    network, found = FullyConnected(model="mlp", shape=(1, 28, 28), classes=10), np.zeros((models, each))
    for place, (number, view, knowledge, truth) in enumerate(
        tries(network, data, size, models=models, each=each, seed=seed)
    ):
        scores = score_labels(attack.run(view, knowledge, np.random.default_rng(0)).counts, truth)
        found[number, place % each] = (scores.counted if isinstance(attack, ILRG) else scores.existence)[0]
    return Agreement(tries=found)


def single_images(data: Dataset, *, images: int, seed: int) -> np.ndarray:
    """Whether iDLG names the label of each of so many images, each under its own untrained LeNet."""
    network = Network(model="lenet", shape=data.shape, classes=10)
    each = tries(network, data, 1, models=images, each=1, seed=seed)
    return np.array(
        [
            (IDLG().run(view, knowledge, np.random.default_rng(0)).counts == truth).all()
            for _, view, knowledge, truth in each
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=400)
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.process_time()
    try:
        mnist = load_dataset("mnist")
    except DatasetMissing as reason:
        print(f"skipped: {reason}")
    else:
        print(f"{told.tries} tries on {told.models} models")
        for (name, size), figure in PUBLISHED.items():
            attack = ILRG() if name == "ilrg" else RowSum()
            found = agreement(attack, mnist, size, models=told.models, each=told.tries // told.models, seed=told.seed)
            print(f"{name:8} lot {size:4}   {found.words(figure)}")
    right = rate_interval(single_images(load_dataset("digits"), images=200, seed=told.seed))
    print(f"idlg     lot    1   {right.value:.3f} [{right.low:.3f}, {right.high:.3f}]   200 digits, untrained LeNets")
    print(f"{time.process_time() - begun:.0f} CPU s")


if __name__ == "__main__":
    main()
