"""Canary set: each canary of one run is scored along its own weight; the scores follow the law and use no coin."""

import numpy as np
import pytest
import torch
from fedassay.attacks.canary import CanarySetProjections
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import Design
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.canary import CanarySet
from fedassay.fl.engine import run_federation
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch

M, CLIP, NOISE = 400, 0.5, 1.1
LAW = {"clip_norm": CLIP, "noise_multiplier": NOISE}
CASES = {
    "samples, uploads": (DPSGDProtection(**LAW), Unit.SAMPLE, UPLOADS),
    "clients, sums": (DPFedAvgProtection(**LAW), Unit.CLIENT, AGGREGATE),
    "clients, models": (DPFedAvgProtection(**LAW), Unit.CLIENT, GLOBAL_MODELS),
    "reports, uploads": (LDPGaussianProtection(clip_norm=CLIP, noise_std=NOISE * 2 * CLIP), Unit.REPORT, UPLOADS),
}


@pytest.fixture
def seen(toy_task, toy_plan, knowledge_of):
    """(protection, unit, observer, changes) -> projections and the coins."""

    def run(protection, unit, observer, *, shown=True, replicas=1, **changes):
        task = toy_task((4, 6), inert=M)
        plan = toy_plan(task, **changes)
        coins = torch.from_numpy(np.random.default_rng(3).integers(2, size=M) == 1)
        replaced = unit is Unit.REPORT
        canaries = CanarySet(unit=unit, length=10 * CLIP, dim=plan.layout.dim, coins=coins, replaced=replaced)
        recorder = ViewRecorder(observer=observer)
        batch = Batch(replicas=replicas, block=1, arm=1)
        final = run_federation(task, plan, protection, Streams(7), batch=batch, canary=canaries, recorders=[recorder])
        initial = task.network.initial(Streams(7).generator("init"))
        known = knowledge_of(task, plan, protection, canary=canaries.shown if shown else canaries, initial=initial)
        return CanarySetProjections().run(recorder.view(plan, final), known, None), coins.numpy()

    return run


@pytest.mark.parametrize("case", CASES)
def test_projections_are_the_coins_and_the_laws_noise(case, seen):
    """1 for included canaries, 0 for the others, noise of 1.1 sensitivities: 200 per side, 3 rounds, five errors."""
    shown, coins = seen(*CASES[case])
    assert shown.values.shape == (M, 3)
    for side, centre in ((coins, 1.0), (~coins, 0.0)):
        values = shown.values[side][shown.seen[side]]
        if len(values):
            assert abs(values.mean() - centre) < 5 * NOISE / len(values) ** 0.5
            assert values.std() == pytest.approx(NOISE, rel=0.15)
    assert shown.setting.design is Design.ONE_RUN
    assert shown.setting.adjacency is (Adjacency.REPLACE_ONE if case.startswith("reports") else Adjacency.ADD_REMOVE)


@pytest.mark.parametrize("observer", [SHUFFLED, FINAL_MODEL], ids=str)
def test_without_noise_the_weaker_observers_read_every_coin(observer, seen):
    silent = LDPGaussianProtection(clip_norm=CLIP, noise_std=0.0)
    shown, coins = seen(silent, Unit.REPORT, observer)
    values = shown.values.sum(1)
    assert values[coins].min() > values[~coins].max()


def test_scores_are_the_same_whether_or_not_the_adversary_knows_the_coins(seen):
    with_coins, without = (seen(*CASES["clients, sums"], shown=shown)[0].values for shown in (False, True))
    np.testing.assert_array_equal(with_coins, without)


def test_a_canary_that_did_not_come_is_unseen(seen):
    protection, unit, observer = CASES["reports, uploads"]
    shown, _ = seen(protection, unit, observer, cohort=Poisson(0.3))
    assert abs(shown.seen.mean() - 0.3) < 5 * (0.21 / shown.seen.size) ** 0.5


def test_a_canary_set_is_one_run_and_no_single_canary(seen, toy_task, toy_plan, knowledge_of):
    with pytest.raises(ValueError, match="a set of canaries must be audited in a single run, got 2 replicas"):
        seen(*CASES["clients, sums"], replicas=2)
    task = toy_task()
    with pytest.raises(ValueError, match="needs a set of canaries"):
        CanarySetProjections().run(None, knowledge_of(task, toy_plan(task), DPSGDProtection(**LAW)), None)
