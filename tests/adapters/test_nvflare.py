"""Rounds of NVFlare that are watched and judged: correct filters pass, faults are found, and wrong use is named."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="NVFlare is not installed: pip install nvflare")

from fedassay.adapters.nvflare import Training
from fedassay.adapters.replicas import audit_replicas, plan_replicas
from fedassay.adapters.unwatchable import Unwatchable
from fedassay.checks.training_record import Plant, equal_releases
from fedassay.cli.system_run import judge_watched
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.app_common.abstract.fl_model import ParamsType
from nvflare.app_common.filters.exclude_vars import ExcludeVars
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_common.filters.svt_privacy import SVTPrivacy
from nvflare.app_common.workflows.base_fedavg import BaseFedAvg
from nvflare_rounds import CLIENTS, CLIP, NOISE, ROUNDS, START, STATED, ClipAndNoise, fit, points, training


class _ClipsOneTensor(ClipAndNoise):
    def clipped(self, data):
        return {**super().clipped(data), "bias": data["bias"]}


class _ClipsEachTensor(ClipAndNoise):
    def clipped(self, data):
        return {name: super(_ClipsEachTensor, self).clipped({name: one})[name] for name, one in data.items()}


class _HalfTheNoise(ClipAndNoise):
    std = ClipAndNoise.std / 2


class _NoiseOfTheMean(ClipAndNoise):
    std = NOISE * CLIP / CLIENTS


class _NoiseByClipTwice(ClipAndNoise):
    std = ClipAndNoise.std * CLIP


class _OneTensorWithoutNoise(ClipAndNoise):
    def noise(self, name, shape):
        return 0.0 if name == "bias" else super().noise(name, shape)


class _SameNoise(ClipAndNoise):
    def noise(self, name, shape):
        return np.random.default_rng(5).normal(0.0, NOISE * CLIP / CLIENTS, shape)


class _NoiseOfTheSystem(ClipAndNoise):
    def noise(self, name, shape):
        return np.random.default_rng().normal(0.0, self.std, shape)


class _NoFilter(DXOFilter):
    def __init__(self):
        super().__init__(None, None)

    def process_dxo(self, dxo, shareable, fl_ctx):
        return dxo


class _OnlyNoise(ClipAndNoise):
    def clipped(self, data):
        return data


class _OnlyClip(ClipAndNoise):
    std = 0.0


def _noised_at_the_server(results, *, std=NOISE * CLIP / CLIENTS):
    found = BaseFedAvg.aggregate_fn(results)
    found.params = {
        name: one + np.random.normal(0.0, std, one.shape)  # noqa: NPY002
        for name, one in found.params.items()
    }
    return found


def _clipped_in_training(model, data):
    found = fit(model, data)
    found.params = ClipAndNoise().clipped(found.params)
    return found


def _noised_in_training(model, data):
    found = _clipped_in_training(model, data)
    found.params = {name: one + ClipAndNoise().noise(name, one.shape) for name, one in found.params.items()}
    return found


def _steps(x):
    return {"NUM_STEPS_CURRENT_ROUND": len(x)}


FAULTS = {
    "one tensor is not clipped": ({"kind": _ClipsOneTensor}, "sum of clipped rows"),
    "each tensor is clipped alone": ({"kind": _ClipsEachTensor}, "sum of clipped rows"),
    "half of the noise": ({"kind": _HalfTheNoise}, "noise scale"),
    "noise of the mean in the sum": ({"kind": _NoiseOfTheMean}, "noise scale"),
    "noise times clip norm twice": ({"kind": _NoiseByClipTwice}, "noise scale"),
    "one tensor without noise": ({"kind": _OneTensorWithoutNoise}, "noise present"),
    "the same noise in all clients and rounds": ({"kind": _SameNoise}, "noise fresh"),
    "weights by the number of points": ({"fit": partial(fit, meta=_steps)}, "sum of clipped rows"),
    "too few rounds accounted": ({"steps": ROUNDS - 1}, "steps accounted"),
    "too small an epsilon": ({"epsilon": 5.0}, "epsilon accounted"),
    "percentiles without noise": ({"kind": PercentilePrivacy}, "noise present"),
}
CORRECT = {
    "noise in filters": {},
    "noise at the server": {"kind": _OnlyClip, "aggregate": _noised_at_the_server},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found_by_watch(fault):
    changed, check = FAULTS[fault]
    assert check in [one.name for one in training(**changed).watch().failed]


@pytest.mark.parametrize("name", CORRECT)
def test_correct_rounds_are_not_accused(name):
    found = training(**CORRECT[name]).watch()
    assert ([one.name for one in found.failed], found.blind) == ([], "")


@pytest.mark.simulations
def test_none_of_forty_correct_runs_is_accused():
    system = training()
    assert [seed for seed in range(40) if judge_watched(system.watch(seed)).exit_code] == []


@pytest.mark.simulations
def test_replicas_refute_half_of_the_noise_and_not_the_correct_filter():
    right = training()
    plan, seen = plan_replicas(right), right.watch()
    verdicts = [audit_replicas(one, plan=plan, seen=seen).verdict.name for one in (training(_HalfTheNoise), right)]
    assert verdicts == ["REFUTED", "NOT_REFUTED"]


def test_a_planted_client_passes_through_the_filters_and_equal_seeds_give_equal_runs():
    system, plant = training(), Plant(weight=10.0)
    within, out = (system.run(member, 3, plant=plant) for member in (True, False))
    moved = within.releases[0].received - out.releases[0].received
    assert np.allclose(moved, CLIP * plant.direction(within.layout), atol=1e-5)
    assert equal_releases(within, system.run(True, 3, plant=plant))


def test_a_clip_inside_of_the_training_leaves_the_verdict_open():
    found = training(_OnlyNoise, fit=_clipped_in_training).watch()
    assert (found.failed, judge_watched(found).exit_code) == ((), 11)


def test_noise_inside_of_the_training_is_refused():
    with pytest.raises(Unwatchable, match="move clip and noise into a filter"):
        Training(_noised_in_training, points(), START, **STATED).watch()


def test_whole_models_are_read_as_their_change():
    whole, change = (training(_NoFilter, fit=partial(fit, kind=kind)) for kind in (ParamsType.FULL, ParamsType.DIFF))
    for one, other in zip(whole.run().releases, change.run().releases, strict=True):
        assert np.allclose(one.received, other.received, atol=1e-5)


class _Momentum:
    past = 0.0

    def __call__(self, results):
        found = BaseFedAvg.aggregate_fn(results)
        found.params = {name: one + self.past for name, one in found.params.items()}
        self.past += 0.5
        return found


def test_weights_that_no_sum_shows_leave_the_verdict_open():
    stated = STATED | {"noise_multiplier": NOISE * 2**0.5}
    many = Training(
        partial(fit, meta=_steps), [*points(), *points()], START, filters=lambda: [ClipAndNoise()], **stated
    )
    assert judge_watched(many.watch()).exit_code == 11


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (SVTPrivacy, "its noise is not Gaussian"),
        (_NoiseOfTheSystem, "cannot be seeded"),
        (lambda: ExcludeVars(["bias"]), "names and shapes"),
    ],
    ids=["SVTPrivacy", "noise of the operating system", "excluded tensors"],
)
def test_what_cannot_be_watched_is_refused_with_the_reason(kind, message):
    with pytest.raises(Unwatchable, match=message):
        training(kind).watch()


def test_wrong_use_is_refused():
    with pytest.raises(Unwatchable, match="keeps a state"):
        training(aggregate=_Momentum()).watch()
    with pytest.raises(ValueError, match="zero_out or replace_one, got add_remove"):
        training(adjacency="add_remove")
    with pytest.raises(TypeError, match="filters and aggregate must be functions"):
        Training(fit, points(), START, filters=[ClipAndNoise()], **STATED)
    with pytest.raises(TypeError, match="two arguments, model and data"):
        Training(lambda model: None, points(), START, **STATED)
