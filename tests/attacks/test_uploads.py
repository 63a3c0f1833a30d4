"""Reduced views: attacks on uploads use a round's sum or shuffled reports, or are refused with the reason."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from digits_federation import received
from fedassay.attacks.attack import Undefined
from fedassay.attacks.gradient.analytic_linear import AnalyticLinear
from fedassay.attacks.labels.idlg import IDLG
from fedassay.attacks.labels.ilrg import ILRG
from fedassay.attacks.uploads import read_uploads, reduce_view
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.shuffling.cldp_sgd import OneBitLaw
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.laws import GaussianLaw, Mixing
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import FixedSize, Poisson


@pytest.fixture
def observed(toy_task, toy_plan, knowledge_of):
    def run(observer, sizes=(2, 3, 4), *, model="mlp", **changes):
        task = toy_task(sizes, model=model)
        plan = toy_plan(task, **({"rounds": 1} | changes))
        return task, received(task, plan, observer=observer, seed=1), knowledge_of(task, plan, Protection())

    return run


def test_the_sum_is_the_gradient_of_all_clients_samples_as_one_lot(observed):
    task, view, knowledge = observed(AGGREGATE)
    reduced = reduce_view(view, knowledge)
    uploads = read_uploads(reduced.view, reduced.knowledge, 0)
    rows = task.network.sample_gradients(uploads.model[None], task.images[None], task.labels[None])[0]
    torch.testing.assert_close(uploads.gradients[0], rows.mean(0), atol=1e-6, rtol=1e-4)
    assert reduced.knowledge.plan.sizes == reduced.view.plan.sizes == (9,)
    assert reduced.view.observer == AGGREGATE


def test_label_counts_of_the_sum_are_those_of_one_client_that_holds_all(observed):
    """Equivalent: the same nine samples at a single client whose upload is seen."""
    counts = []
    for observer, sizes in ((AGGREGATE, (2, 3, 4)), (UPLOADS, (9,))):
        _, view, knowledge = observed(observer, sizes)
        reduced = reduce_view(view, knowledge)
        found = ILRG().run(reduced.view, reduced.knowledge, np.random.default_rng(0))
        assert found.setting.observer == observer
        counts.append(found.counts)
    assert counts[0].shape == (1, 3)
    np.testing.assert_array_equal(*counts)


def test_shuffled_reports_of_one_sample_give_the_same_images_and_labels_as_uploads(observed):
    """In another order: who is who is all that a shuffler hides."""
    sizes = (1, 1, 1, 1)
    task, view, knowledge = observed(SHUFFLED, sizes)
    reduced = reduce_view(view, knowledge)
    images = AnalyticLinear().run(reduced.view, reduced.knowledge, np.random.default_rng(0)).images
    nearest = np.abs(images[:, None] - task.images.numpy()).max((2, 3, 4))
    assert sorted(nearest.argmin(1)) == [0, 1, 2, 3]
    assert nearest.min(1).max() < 1e-4
    counts = IDLG().run(reduced.view, reduced.knowledge, np.random.default_rng(0)).counts
    assert counts.sum(0).tolist() == np.bincount(task.labels, minlength=3).tolist()


def test_absent_clients_are_no_shuffled_row(observed):
    _, view, knowledge = observed(SHUFFLED, (2,) * 6, cohort=Poisson(0.5))
    reduced = reduce_view(view, knowledge)
    present = int(view.rounds[0].reports.present.sum())
    assert 0 < present < 6
    assert read_uploads(reduced.view, reduced.knowledge, 0).senders == tuple(range(present))


@pytest.mark.parametrize(
    ("observer", "changes", "reason"),
    [
        (AGGREGATE, {"cohort": Poisson(0.9)}, "only if every client takes part in every round"),
        (
            AGGREGATE,
            {"algorithm": FedAvg(learning_rate=0.1, local_steps=2)},
            "with several local steps the clients' models differ",
        ),
        (AGGREGATE, {"lot": FixedSize(2)}, "their sum weighs samples unequally"),
        (SHUFFLED, {}, "shuffled reports hide their senders, and clients hold 2 to 4 samples"),
        (GLOBAL_MODELS, {}, "observes models only, but attacks on uploads need at least the sum of a round's updates"),
        (FINAL_MODEL, {}, "observes models only, but attacks on uploads need at least the sum of a round's updates"),
    ],
    ids=str,
)
def test_what_is_no_clients_upload_is_refused(observer, changes, reason, observed):
    _, view, knowledge = observed(observer, **changes)
    with pytest.raises(Undefined, match=reason):
        reduce_view(view, knowledge)


def test_lots_of_one_size_add_up(observed):
    _, view, knowledge = observed(AGGREGATE, (4, 4, 4), lot=FixedSize(2))
    assert reduce_view(view, knowledge).knowledge.plan.expected_lot(0) == pytest.approx(6)


def law_of(law, *, behind_shuffler=None):
    return lambda observer, client: law if observer != SHUFFLED else behind_shuffler


def test_a_law_of_samples_is_that_of_the_sum_and_a_law_of_reports_is_not(observed):
    _, view, knowledge = observed(AGGREGATE)
    for scale, kept in ((-0.1, True), (0.1, False)):
        law = GaussianLaw(clip_norm=1.0, scale=scale, noise_std=0.1)
        reduced = reduce_view(view, replace(knowledge, law=law_of(law)))
        assert reduced.knowledge.law(AGGREGATE, 0) == (law if kept else None)


def test_rows_that_a_shuffler_took_apart_are_refused(observed):
    _, view, knowledge = observed(SHUFFLED, (2, 2, 2))
    apart = OneBitLaw(radius=1.0, local_epsilon=1.0, mixing=Mixing.COORDINATES)
    with pytest.raises(Undefined, match="each coordinate is shuffled separately"):
        reduce_view(view, replace(knowledge, law=law_of(apart, behind_shuffler=apart)))
    whole = replace(apart, mixing=Mixing.NONE)
    with pytest.raises(Undefined, match="not of a shuffled one, so a received vector may not be one client's report"):
        reduce_view(view, replace(knowledge, law=law_of(whole)))


def test_a_shuffled_sum_of_integers_is_refused(observed):
    _, view, knowledge = observed(SHUFFLED, (2, 2, 2))
    (seen,) = view.rounds
    words = replace(seen.reports, values=seen.reports.values[:, :1].long(), present=seen.reports.present[:, :1])
    with pytest.raises(Undefined, match=r"what arrived is not a client's update but 1 rows of \d+ int64s"):
        reduce_view(replace(view, rounds=(replace(seen, reports=words),)), knowledge)
