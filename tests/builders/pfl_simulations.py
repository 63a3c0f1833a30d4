"""A simulation in pfl, of which tests change a part. Needs pfl."""

from itertools import cycle

import numpy as np
import torch
from fedassay.adapters.pfl import Training
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from pfl.postprocessor.base import Postprocessor
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from torch import nn

USERS, COHORT, STEPS, CLIP, NOISE = 36, 12, 8, 0.2, 1.0
RATE = COHORT / USERS
STATED = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS, "delta": 1e-5}


def points():
    """Users with 2 to 5 points of 6 features each."""
    draws = np.random.default_rng(3)
    x = [draws.normal(size=(2 + user % 4, 6)).astype(np.float32) for user in range(USERS)]
    return [(one, one @ np.ones((6, 2), dtype=np.float32)) for one in x]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))

    def loss(self, x, y, is_eval=False):
        return nn.functional.mse_loss(self(x), y)

    def metrics(self, x, y, is_eval=True):
        return {}


def in_turn(make, count):
    numbers = cycle(range(count))
    return FederatedDataset(make, lambda: next(numbers))


class PoissonCohorts(FederatedDataset):
    """Each user takes part by a coin of its own."""

    def __init__(self, make, count):
        super().__init__(make, user_sampler=None)
        self.count = count

    def get_cohort(self, cohort_size):
        for user in np.flatnonzero(self._random_state.random(self.count) < RATE):
            yield self.make_dataset_fn(user), self._get_seed()


class FixedDivisor(Postprocessor):
    """Averages over the expected number of users."""

    def postprocess_server(self, *, stats, central_context, aggregate_metrics):
        stats.weight = float(COHORT)
        return stats, Metrics()


def central(mechanism):
    return CentrallyAppliedPrivacyMechanism(mechanism)


def parts():
    return [WeightByUser(), central(GaussianMechanism(CLIP, NOISE))]


def simulation(
    parts=parts,
    *,
    cohorts=in_turn,
    begin=lambda: None,
    algorithm=FederatedAveraging,
    server=torch.optim.SGD,
    backend=SimulatedBackend,
    model=Model,
    ids=str,
    callbacks=(),
    returns=lambda model: model,
    **stated,
):
    def train(users):
        begin()
        data = cohorts(lambda user: Dataset(list(users[user]), user_id=ids(user)), len(users))
        module = model()  # before the parts, which may hold it
        trained = algorithm().run(
            NNAlgorithmParams(
                central_num_iterations=STEPS, evaluation_frequency=100, train_cohort_size=COHORT, val_cohort_size=0
            ),
            backend(data, data, postprocessors=parts()),
            PyTorchModel(module, torch.optim.SGD, server(module.parameters(), lr=1.0)),
            NNTrainHyperParams(local_learning_rate=0.1, local_num_epochs=1, local_batch_size=None),
            NNEvalHyperParams(local_batch_size=None),
            callbacks=list(callbacks),
            send_metrics_to_platform=False,
        )
        return returns(trained)

    return Training(train, points(), **(STATED | stated))


def with_fixed_divisor():
    return [FixedDivisor(), *parts()]


def sampled(parts=with_fixed_divisor, **changed):
    """The simulation with Poisson-sampled cohorts."""
    return simulation(parts, **({"cohorts": PoissonCohorts, "rate": RATE} | changed))
