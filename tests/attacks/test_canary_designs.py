"""Canaries on weights that others use, seen from every rung: projections computed by hand, one unit of the canary."""

import numpy as np
import pytest
import torch
from fedassay.attacks.canary import CanaryProjections, shift_and_centre
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.canary import Canary, DataCanary
from fedassay.fl.engine import run_federation
from fedassay.fl.laws import clip
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch

LADDER = (UPLOADS, SHUFFLED, AGGREGATE, GLOBAL_MODELS, FINAL_MODEL)
IMAGE = torch.linspace(0, 1, 9).reshape(1, 1, 3, 3)
SILENT = {"clip_norm": 0.5, "noise_multiplier": 0.0}


@pytest.fixture
def seen(toy_task, toy_plan, knowledge_of):
    """(protection, canary of a plan, observer, arm, changes) -> projections, view and task."""

    def run(protection, plant, observer, arm, *, replicas=1, stop_after=None, inert=0, **changes):
        task = toy_task((4, 6), inert=inert)
        plan = toy_plan(task, **changes)
        canary, recorder = plant(plan), ViewRecorder(observer=observer)
        batch = Batch(replicas=replicas, block=1, arm=arm)
        streams = Streams(7)
        final = run_federation(
            task, plan, protection, streams, batch=batch, canary=canary, recorders=[recorder], stop_after=stop_after
        )
        view = recorder.view(plan, final)
        initial = task.network.initial(streams.generator("init"))
        known = knowledge_of(task, plan, protection, canary=canary, initial=initial)
        return CanaryProjections().run(view, known, None), view, task

    return run


def random_row(unit, *, replaced=False):
    def plant(plan):
        row = torch.from_numpy(np.random.default_rng(1).normal(size=plan.layout.dim)).float()
        row *= 5.0 / row.norm()
        return Canary(unit=unit, present=row, absent=-row if replaced else None)

    return plant


def inert_row(unit, *, replaced=False):
    def plant(plan):
        row = torch.zeros(plan.layout.dim)
        row[-1] = 5.0
        return Canary(unit=unit, present=row, absent=-row if replaced else None)

    return plant


def sample(unit, *, replaced=False):
    absent = torch.tensor([0]) if replaced else None
    return lambda plan: DataCanary(unit=unit, images=IMAGE, present=torch.tensor([2]), absent=absent)


CASES = {
    "dp_sgd, random row": (DPSGDProtection(**SILENT), random_row(Unit.SAMPLE), UPLOADS),
    "dp_sgd, sample": (DPSGDProtection(**SILENT), sample(Unit.SAMPLE), UPLOADS),
    "dp_fedavg, random row": (DPFedAvgProtection(**SILENT), random_row(Unit.CLIENT), GLOBAL_MODELS),
    "dp_fedavg, client": (DPFedAvgProtection(**SILENT), sample(Unit.CLIENT), AGGREGATE),
    "ldp, random row": (
        LDPGaussianProtection(clip_norm=0.5, noise_std=0.0),
        random_row(Unit.REPORT, replaced=True),
        UPLOADS,
    ),
    "ldp, client": (LDPGaussianProtection(clip_norm=0.5, noise_std=0.0), sample(Unit.REPORT, replaced=True), UPLOADS),
    "ldp, client behind a shuffler": (
        LDPGaussianProtection(clip_norm=100.0, noise_std=0.0),
        sample(Unit.REPORT, replaced=True),
        SHUFFLED,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_without_noise_the_first_release_moves_by_one_unit_of_the_canary(case, seen):
    """Both arms start from one model with all clients: only the canary differs, clipped as the law states."""
    protection, plant, observer = CASES[case]
    within, out = (seen(protection, plant, observer, arm)[0].values[0, 0] for arm in (1, 0))
    assert within - out == pytest.approx(1.0, abs=1e-5)


def test_an_upload_is_projected_on_the_clipped_gradient_at_each_rounds_model(seen):
    """<upload, c_t> / |c_0|^2 with c_t = -clip(gradient at the t-th model) over the four samples of an expected lot."""
    protection = DPSGDProtection(clip_norm=0.5, noise_multiplier=0.3)
    shown, view, task = seen(protection, sample(Unit.SAMPLE), UPLOADS, 1, replicas=3)
    units = []
    for number, round_view in enumerate(view.rounds):
        images, labels = IMAGE.expand(3, 1, 1, 3, 3), torch.full((3, 1), 2)
        rows = -clip(task.network.sample_gradients(round_view.broadcast, images, labels)[:, 0], 0.5) / 4
        units.append(float(rows[0].double().square().sum()))
        expected = (round_view.reports.values[:, 0] * rows).sum(-1) / units[0]
        np.testing.assert_allclose(shown.values[:, number], expected.numpy(), rtol=1e-5)


def test_a_client_of_data_contributes_the_update_that_it_trains(toy_task, toy_plan):
    task = toy_task((4, 6))
    plan = toy_plan(task, algorithm=FedAvg(learning_rate=0.3, local_steps=2))
    start = task.network.initial(Streams(7).generator("init")).unsqueeze(0)
    local = start
    for _ in range(2):
        local = local - 0.3 * task.network.sample_gradients(local, IMAGE[None], torch.tensor([[2]]))[:, 0]
    shift, centre = shift_and_centre(sample(Unit.CLIENT)(plan), None, plan, task.network, start)
    torch.testing.assert_close(shift, local - start)
    assert not centre.any()


@pytest.mark.parametrize("observer", LADDER, ids=str)
@pytest.mark.parametrize("plant", [inert_row, random_row, sample], ids=["dirac", "random", "sample"])
def test_every_observer_of_the_ladder_is_scored(plant, observer, seen):
    """Undefended, replace-one: for every observer the canary's arm is separate."""
    inert = int(plant is inert_row)
    within, out = (
        seen(Protection(), plant(Unit.REPORT, replaced=True), observer, arm, replicas=2, inert=inert)[0]
        for arm in (1, 0)
    )
    assert within.setting.observer == out.setting.observer == observer
    assert (within.setting.rounds, within.setting.adjacency) == (3, Adjacency.REPLACE_ONE)
    assert within.values.shape == (2, 1 if observer is FINAL_MODEL else 3)
    assert within.values.sum(1).min() > out.values.sum(1).max()


def test_behind_a_shuffler_the_multiset_counts_by_its_sum(seen):
    """Only the sum of the multiset is used: the order of the rows could reveal no sender."""
    local = LDPGaussianProtection(clip_norm=0.5, noise_std=0.2)
    shown, view, _ = seen(local, inert_row(Unit.REPORT, replaced=True), SHUFFLED, 1, inert=1, replicas=5)
    reports = torch.stack([one.reports.values[..., -1].sum(1) for one in view.rounds], 1).double()
    # No law for what a shuffler hands on: units are the raw row's, from -5 (0) to 5 (1).
    np.testing.assert_allclose(shown.values, (reports + 5).numpy() / 10, rtol=1e-5)
    assert all(one.reports.senders is None for one in view.rounds)


@pytest.mark.parametrize("algorithm", [FedSGD(learning_rate=0.5), FedAvg(learning_rate=0.3, local_steps=2)], ids=repr)
def test_the_final_model_shows_the_sum_of_what_the_rounds_models_show(algorithm, seen):
    """A row's direction is the same in all rounds; neither is a law of one round published for an undefended mean."""
    options = {"algorithm": algorithm, "replicas": 4, "lot": Poisson(0.5), "inert": 1}
    models, final = (
        seen(Protection(), inert_row(Unit.SAMPLE), observer, 1, **options)[0].values
        for observer in (GLOBAL_MODELS, FINAL_MODEL)
    )
    np.testing.assert_allclose(final[:, 0], models.sum(1), atol=1e-5)


def test_evidence_of_a_federation_cut_short_is_of_the_rounds_that_ran(seen):
    for observer in (GLOBAL_MODELS, FINAL_MODEL):
        shown, *_ = seen(DPFedAvgProtection(**SILENT), random_row(Unit.CLIENT), observer, 1, stop_after=2)
        assert shown.setting.rounds == 2


def test_a_canary_that_moves_nothing_is_refused(seen):
    with pytest.raises(ValueError, match="the canary does not change any update at the initial model"):
        seen(Protection(), lambda plan: Canary(unit=Unit.CLIENT, present=torch.zeros(plan.layout.dim)), AGGREGATE, 1)
