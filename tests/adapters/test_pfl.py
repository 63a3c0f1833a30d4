"""pfl simulations that are run, watched and judged: correct ones pass, faults are found, and wrong use is named."""

import logging

import numpy as np
import pytest
import torch

pytest.importorskip("pfl", reason="pfl is not installed: pip install pfl")

from fedassay import MessageRecorder
from fedassay.adapters.pfl import RecordsMessages, Training
from fedassay.adapters.replicas import audit_replicas, plan_replicas
from fedassay.adapters.unwatchable import Unwatchable
from fedassay.checks.training_record import Plant, equal_releases
from fedassay.cli.system_run import judge_watched
from fedassay.fl.recording import MessageRecording
from pfl.aggregate.weighting import WeightByDatapoints, WeightByUser
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.metrics import Metrics, StringMetricName
from pfl.postprocessor.base import Postprocessor
from pfl.privacy.adaptive_clipping import AdaptiveClippingGaussianMechanism
from pfl.privacy.ftrl_mechanism import BandedMatrixFactorizationMechanism
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.laplace_mechanism import LaplaceMechanism
from pfl.privacy.privacy_accountant import RDPPrivacyAccountant
from pfl.privacy.privacy_mechanism import NormClippingOnly
from pfl_simulations import (
    CLIP,
    COHORT,
    NOISE,
    RATE,
    STATED,
    STEPS,
    FixedDivisor,
    Model,
    central,
    in_turn,
    points,
    sampled,
    simulation,
)

logging.getLogger("pfl").setLevel(logging.ERROR)


class _ClipsAllButOneTensor(GaussianMechanism):
    def constrain_sensitivity(self, statistics, *args, **named):
        left = statistics["second.bias"]
        clipped, metrics = super().constrain_sensitivity(statistics, *args, **named)
        clipped["second.bias"] = 10 * left
        return clipped, metrics


class _OneTensorWithoutNoise(GaussianMechanism):
    def add_noise(self, statistics, cohort_size, *args, **named):
        kept = statistics["second.bias"].clone()
        noised, metrics = super().add_noise(statistics, cohort_size, *args, **named)
        noised["second.bias"] = kept
        return noised, metrics


class _OneSeed(GaussianMechanism):
    def add_noise(self, statistics, cohort_size, name_formatting_fn=StringMetricName, seed=None):
        return super().add_noise(statistics, cohort_size, name_formatting_fn, seed=42)


class _NoiseOfUsers(Postprocessor):
    """Each user adds its part of the noise, ``std``, drawn from a global generator."""

    def __init__(self, std):
        self.std = std

    def postprocess_one_user(self, *, stats, user_context):
        return stats.apply_elementwise(lambda one: one + self.std * torch.randn(one.shape)), Metrics()


class _NoiseOfTheSystem(Postprocessor):
    def postprocess_one_user(self, *, stats, user_context):
        return stats.apply_elementwise(lambda one: one + np.random.default_rng().normal()), Metrics()


class _DividesByPoints(FederatedAveraging):
    """The step follows the number of points in the cohort, which is released without noise."""

    def process_aggregated_statistics(self, central_context, aggregate_metrics, model, statistics):
        found = {str(name): value for name, value in aggregate_metrics}
        points = next(value for name, value in found.items() if "number of data points" in name)
        statistics.weight = float(points.overall_value)
        return super().process_aggregated_statistics(central_context, aggregate_metrics, model, statistics)


def _of(kind):
    return lambda: [WeightByUser(), central(kind(CLIP, NOISE))]


def _noised(multiplier):
    return lambda: [WeightByUser(), central(GaussianMechanism(CLIP, multiplier))]


def _scaled_by_the_accountant():
    accountant = RDPPrivacyAccountant(STEPS, 1.0, "gaussian", noise_parameter=NOISE, delta=1e-5, noise_scale=0.5)
    return [WeightByUser(), central(GaussianMechanism.from_privacy_accountant(accountant, CLIP))]


def _by_users(std):
    return lambda: [WeightByUser(), central(NormClippingOnly(2, CLIP)), _NoiseOfUsers(std)]


def _with_replacement(make, count):
    return FederatedDataset(make, get_user_sampler("random", list(range(count))))


FAULTS = {
    "one tensor is not clipped": (simulation, {"parts": _of(_ClipsAllButOneTensor)}, "sum of clipped rows"),
    "noise times clip norm twice": (simulation, {"parts": _noised(NOISE * CLIP)}, "noise scale"),
    "half of the noise": (simulation, {"parts": _noised(NOISE / 2)}, "noise scale"),
    "a noise scale of the accountant": (simulation, {"parts": _scaled_by_the_accountant}, "noise scale"),
    "one tensor without noise": (simulation, {"parts": _of(_OneTensorWithoutNoise)}, "noise present"),
    "users' noise for the mean in a sum": (simulation, {"parts": _by_users(NOISE * CLIP / COHORT)}, "noise scale"),
    "one seed of the noise": (simulation, {"parts": _of(_OneSeed)}, "noise fresh"),
    "too low a rate": (sampled, {"rate": RATE / 3}, "sampling rate"),
    "cohorts in turn at a rate": (sampled, {"cohorts": in_turn}, "neighbouring records"),
    "a user twice in a cohort": (simulation, {"cohorts": _with_replacement}, "records once in a lot"),
    "too few steps": (simulation, {"steps": STEPS // 2}, "steps accounted"),
    "too small an epsilon": (simulation, {"epsilon": 5.0}, "epsilon accounted"),
    "weights by points after the clip": (
        simulation,
        {"parts": lambda: [central(GaussianMechanism(CLIP, NOISE)), WeightByDatapoints()]},
        "sum of clipped rows",
    ),
    "weights by points before the clip": (
        simulation,
        {"parts": lambda: [WeightByDatapoints(), central(GaussianMechanism(CLIP, NOISE))]},
        "state without noise",
    ),
    "divides by points": (simulation, {"algorithm": _DividesByPoints}, "state without noise"),
    "divides by the sampled number": (
        sampled,
        {"parts": lambda: [WeightByUser(), central(GaussianMechanism(CLIP, NOISE))]},
        "state without noise",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found_by_watch(fault):
    make, changed, check = FAULTS[fault]
    assert check in [one.name for one in make(**changed).watch().failed]


CORRECT = {
    "cohorts in turn": (simulation, {}),
    "Poisson cohorts": (sampled, {}),
    "noise of users for a sum": (simulation, {"parts": _by_users(1.05 * NOISE * CLIP / COHORT**0.5)}),
    "Adam at the server": (simulation, {"server": torch.optim.Adam}),
}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_simulations_are_not_accused(name):
    make, changed = CORRECT[name]
    found = make(**changed).watch()
    assert ([one.name for one in found.failed], found.blind) == ([], "")


@pytest.mark.simulations
@pytest.mark.parametrize("make", [simulation, sampled])
def test_none_of_forty_correct_runs_is_accused(make):
    system = make()
    seen = [system.watch(seed) for seed in range(40)]
    assert [seed for seed, one in enumerate(seen) if judge_watched(one).exit_code] == []


def test_noise_of_a_seed_that_the_simulation_sets_leaves_the_verdict_open():
    found = simulation(begin=lambda: np.random.seed(0)).watch()  # noqa: NPY002
    assert "same in runs with two seeds" in found.unexplained


def test_a_planted_user_passes_through_the_clip_and_equal_seeds_give_equal_runs():
    system = simulation()
    within, out = (system.run(member, 3, plant=Plant(weight=10.0)) for member in (True, False))
    moves = [one.received - other.received for one, other in zip(within.releases, out.releases, strict=True)]
    # The last of the users is in the third cohort; from then on the models differ.
    assert [float(one.norm()) for one in moves[:2]] == [0.0, 0.0]
    assert torch.allclose(moves[2].double(), CLIP * Plant().direction(within.layout), atol=1e-5)
    assert equal_releases(within, system.run(True, 3, plant=Plant(weight=10.0)))


@pytest.mark.simulations
def test_replicas_refute_half_of_the_noise():
    right, half = sampled(), sampled(lambda: [FixedDivisor(), *_noised(NOISE / 2)()])
    found = audit_replicas(half, plan=plan_replicas(right), seen=right.watch())
    assert found.verdict.name == "REFUTED"


class _CorrelatedNoise(BandedMatrixFactorizationMechanism):
    """Without the search for its matrix."""

    def __init__(self):
        pass


def _adaptive():
    return AdaptiveClippingGaussianMechanism(lambda bound: GaussianMechanism(bound, NOISE), CLIP, 5.0, 0.5)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"parts": lambda: [central(LaplaceMechanism(CLIP, 1.0))]}, "its noise is not Gaussian"),
        (
            {"parts": lambda: [central(_CorrelatedNoise())]},
            "correlated between steps",
        ),
        ({"parts": lambda: [_NoiseOfTheSystem()]}, "cannot be seeded"),
        ({"parts": lambda: [_adaptive()]}, "differs from them by adaptive_clipping/clipping_indicator"),
        ({"ids": "user {}".format}, "must be the user's index in the data, got 'user 0'"),
        ({"ids": lambda user: str(user + 1)}, "user_id of a Dataset is 1, and its data are those of user 0"),
    ],
    ids=[
        "Laplace noise",
        "correlated noise",
        "noise of the operating system",
        "adaptive clip",
        "names of users",
        "other users",
    ],
)
def test_what_cannot_be_watched_is_refused_with_the_reason(changed, message):
    with pytest.raises(Unwatchable, match=message):
        simulation(**changed).watch()


def test_a_recording_holds_what_each_user_sent_and_the_models(tmp_path):
    made = []

    def model():
        module = Model()
        facts = {"name": "fedavg", "learning_rate": 0.1, "local_steps": 1}
        recorder = MessageRecorder(tmp_path / "recording", module, algorithm=facts, sends="updates")
        made.append(RecordsMessages(recorder, module))
        return module

    ends = []
    system = simulation(
        lambda: [WeightByUser(), made[-1]], model=model, callbacks=made, returns=lambda one: ends.append(one) or one
    )
    system.run()
    rounds = list(MessageRecording.read(tmp_path / "recording").rounds())
    assert [one.clients for one in rounds[:2]] == [
        tuple(f"user_{n}" for n in turn) for turn in (range(12), range(12, 24))
    ]
    assert rounds[0].samples == tuple(2 + user % 4 for user in range(12))
    # The server moves the model by the mean of what users sent.
    assert torch.allclose(rounds[0].after - rounds[0].before, rounds[0].messages.mean(0), atol=1e-6)
    assert torch.equal(rounds[1].before, rounds[0].after)
    assert torch.equal(rounds[-1].after, torch.nn.utils.parameters_to_vector(ends[0].pytorch_model.parameters()))


def test_wrong_use_is_refused():
    with pytest.raises(ValueError, match="zero_out or replace_one where rate is 1"):
        simulation(adjacency="add_remove")
    with pytest.raises(TypeError, match=r"one argument, the users"):
        Training(lambda: None, points(), **STATED)
    with pytest.raises(Unwatchable, match="no cohort was trained"):
        Training(lambda users: None, points(), **STATED).run()
