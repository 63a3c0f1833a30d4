"""Canary: through the real hooks its projections and ratios follow the audit's theory, with and without the canary."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.attacks.canary import CanaryProjections, canary_sender, shift_and_centre
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.estimators.release_tests import (
    BrokenRelease,
    GaussianRelease,
    draw_projections,
    release_scores,
)
from fedassay.audit.evidence import Design
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, UPLOADS
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.controls.clipping import NoClipProtection
from fedassay.defenses.controls.noise import NoiseHalvedProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.canary import Canary
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.sampling import Full, Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch
from scipy import stats

CLIP, ROUNDS, REPLICAS = 0.5, 4, 3000
DPSGD_LAW = {"clip_norm": CLIP, "noise_multiplier": 1.1}
CASES = {
    "dp_sgd": (DPSGDProtection(**DPSGD_LAW), Unit.SAMPLE, UPLOADS, {"lot": Poisson(0.4)}),
    "dp_sgd, three steps": (
        DPSGDProtection(**DPSGD_LAW),
        Unit.SAMPLE,
        UPLOADS,
        {"lot": Poisson(0.4), "algorithm": FedAvg(learning_rate=0.3, local_steps=3)},
    ),
    "dp_fedavg, sums": (DPFedAvgProtection(**DPSGD_LAW), Unit.CLIENT, AGGREGATE, {"cohort": Poisson(0.5)}),
    "dp_fedavg, models": (DPFedAvgProtection(**DPSGD_LAW), Unit.CLIENT, GLOBAL_MODELS, {"cohort": Poisson(0.5)}),
    "ldp": (LDPGaussianProtection(clip_norm=CLIP, noise_std=1.4), Unit.REPORT, UPLOADS, {}),
}
SIGMA = {"ldp": 1.4 / (2 * CLIP)}
"""Noise of one step over the sensitivity; 1.1 for the others."""


def planted(unit, plan, norm=10 * CLIP):
    """Ten clip norms along the unused weight; a report's other row points the other way."""
    row = torch.zeros(plan.layout.dim)
    row[-1] = norm
    return Canary(unit=unit, present=row, absent=-row if unit is Unit.REPORT else None)


@pytest.fixture
def seen(toy_task, toy_plan, knowledge_of):
    """(protection, unit, observer, changes, arm) -> projections of a batch of replicas, its plan and canary."""

    def run(protection, unit, observer, changes, arm, *, replicas=REPLICAS, norm=10 * CLIP, seed=0, law=None):
        task = toy_task((2, 3), side=2, inert=1, seed=seed)
        plan = toy_plan(task, **({"rounds": ROUNDS, "algorithm": FedSGD(learning_rate=0.5)} | changes))
        canary = planted(unit, plan, norm)
        recorder = ViewRecorder(observer=observer, coordinates=slice(plan.layout.model_dim, plan.layout.dim))
        batch = Batch(replicas=replicas, block=1, arm=arm)
        final = run_federation(task, plan, protection, Streams(7), batch=batch, canary=canary, recorders=[recorder])
        knowledge = knowledge_of(task, plan, law or protection, canary=canary)
        return CanaryProjections().run(recorder.view(plan, final), knowledge, None), plan, canary

    return run


def release_of(case):
    _, _, _, changes = CASES[case]
    rate = next((changes[rule].probability for rule in ("lot", "cohort") if rule in changes), 1.0)
    steps = changes["algorithm"].local_steps if "algorithm" in changes else 1
    return GaussianRelease(sigma=SIGMA.get(case, 1.1), rate=rate, steps=steps, rounds=ROUNDS)


def agreement(shown, release, arm):
    """p-value of the correct version's ratio scores against the audit's own simulation of the law."""
    runs = draw_projections(release, BrokenRelease(), arm=arm, n=40_000, rng=np.random.default_rng(arm))
    theory = release_scores(runs, release, BrokenRelease())
    return stats.ks_2samp(release_scores(shown.values, release, BrokenRelease(), seen=shown.seen), theory).pvalue


@pytest.mark.parametrize("arm", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_ratios_of_the_real_hooks_follow_the_audits_simulation(case, arm, seen):
    """Kolmogorov-Smirnov, 3,000 replicas of 4 rounds; a right engine fails at one seed in 1,000."""
    shown, *_ = seen(*CASES[case], arm)
    assert agreement(shown, release_of(case), arm) > 1e-3
    assert agreement(shown, release_of(case), 1 - arm) < 1e-12


def test_that_comparison_sees_halved_noise_and_a_missing_clip(seen):
    halved = (NoiseHalvedProtection(**DPSGD_LAW), *CASES["dp_fedavg, models"][1:])
    for arm in (0, 1):
        assert agreement(seen(*halved, arm)[0], release_of("dp_fedavg, models"), arm) < 1e-12
    unclipped = (NoClipProtection(**DPSGD_LAW), *CASES["dp_sgd"][1:])
    assert agreement(seen(*unclipped, 1)[0], release_of("dp_sgd"), 1) < 1e-12


@pytest.mark.parametrize("case", CASES)
def test_other_clients_data_leave_no_trace_in_the_projections(case, seen):
    """Other images and labels, the same streams: the rest of the release is zero along the unused weight."""
    shown, other = (seen(*CASES[case], 1, replicas=20, seed=seed)[0] for seed in (0, 1))
    np.testing.assert_allclose(shown.values, other.values, atol=2e-5)


@pytest.mark.parametrize("case", CASES)
def test_the_setting_is_that_of_the_claim_it_is_held_against(case, seen):
    _, unit, observer, _ = CASES[case]
    setting = seen(*CASES[case], 1, replicas=2)[0].setting
    assert (setting.unit, setting.observer, setting.rounds) == (unit, observer, ROUNDS)
    assert setting.adjacency is (Adjacency.REPLACE_ONE if case == "ldp" else Adjacency.ADD_REMOVE)
    assert setting.design is Design.INDEPENDENT


@pytest.mark.parametrize("case", ["dp_sgd", "ldp"])
def test_a_round_without_the_sender_is_marked_unseen(case, seen):
    """3,000 replicas of 4 rounds at rate .3, five standard errors."""
    protection, unit, observer, changes = CASES[case]
    shown, *_ = seen(protection, unit, observer, changes | {"cohort": Poisson(0.3)}, 1)
    assert abs(shown.seen.mean() - 0.3) < 5 * (0.21 / 12_000) ** 0.5
    # Absent, the server received a row of zeros: nothing of the noise, only the centre that is subtracted.
    assert len(np.unique(shown.values[~shown.seen])) == 1
    assert len(np.unique(shown.values[shown.seen])) > 1000


def test_an_observer_that_sees_sums_sees_every_round(seen):
    assert seen(*CASES["dp_fedavg, models"], 1, replicas=50)[0].seen.all()


def test_replicas_and_rounds_are_independent_trials(seen):
    """3,000 replicas: six correlations of rounds, and of neighbouring replicas, under five standard errors."""
    values = seen(*CASES["dp_sgd"], 1)[0].values
    assert np.abs(np.corrcoef(values.T) - np.eye(ROUNDS)).max() < 5 / REPLICAS**0.5
    assert abs(np.corrcoef(values[:-1].ravel(), values[1:].ravel())[0, 1]) < 5 / values.size**0.5


def test_models_give_the_same_projections_as_the_aggregate(seen):
    """FedSGD at server rate .5: differences of models over .5."""
    sums, models = (seen(*CASES[f"dp_fedavg, {what}"], 1, replicas=50)[0].values for what in ("sums", "models"))
    np.testing.assert_allclose(sums, models, atol=1e-4)


def test_shift_and_centre_by_hand(toy_task, toy_plan):
    """LDP: from minus to plus the clip norm. DP-SGD: minus a clipped row over the expected lot of 2."""
    task = toy_task((4, 6), inert=1)
    plan = toy_plan(task, lot=Poisson(0.5))
    public = {"plan": plan, "network": task.network, "model": torch.zeros(1, plan.layout.dim)}
    local = LDPGaussianProtection(clip_norm=CLIP, noise_std=1.0).law(UPLOADS, plan, plan.clients)
    shift, centre = shift_and_centre(planted(Unit.REPORT, plan), local, coordinates=slice(-1, None), **public)
    assert (shift.tolist(), centre.tolist()) == ([[2 * CLIP]], [[-CLIP]])
    sampled = DPSGDProtection(**DPSGD_LAW).law(UPLOADS, plan, 0)
    shift, centre = shift_and_centre(planted(Unit.SAMPLE, plan), sampled, coordinates=slice(-1, None), **public)
    assert (shift.tolist(), centre.tolist()) == ([[-CLIP / 2]], [[0.0]])


def test_without_a_law_projections_are_on_the_raw_row_as_it_enters_an_update(seen):
    """Undefended mean of three rows, one of them the canary in arm 1: a third. Higher means "in"."""
    for arm, share in ((0, 0.0), (1, 1 / 3)):
        shown, *_ = seen(Protection(), Unit.SAMPLE, UPLOADS, {"lot": Full()}, arm, replicas=2)
        np.testing.assert_allclose(shown.values, share, atol=1e-5)


def test_a_sample_canary_is_sent_by_its_holder_and_a_client_canary_by_itself(toy_task, toy_plan):
    plan = toy_plan(toy_task((4, 6), inert=1))
    assert canary_sender(replace(planted(Unit.SAMPLE, plan), client=1), plan) == 1
    assert canary_sender(planted(Unit.CLIENT, plan), plan) == canary_sender(planted(Unit.REPORT, plan), plan) == 2


def test_who_knows_no_initial_model_or_has_no_canary_is_refused(toy_task, toy_plan, knowledge_of, seen):
    protection, unit, _, changes = CASES["dp_fedavg, models"]
    with pytest.raises(
        ValueError, match="final_model does not observe rounds, so the projection needs the public initial model"
    ):
        seen(protection, unit, FINAL_MODEL, changes, 1, replicas=2)
    task = toy_task()
    with pytest.raises(ValueError, match="needs a canary that was planted"):
        CanaryProjections().run(None, knowledge_of(task, toy_plan(task), protection), None)
