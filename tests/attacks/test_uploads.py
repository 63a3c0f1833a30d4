"""Reduced views: attacks on uploads use a round's sum or shuffled reports, or are refused with the reason.

Null attacks of gradients and labels: their results do not depend on the view.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from digits_federation import received
from fedassay.attacks.attack import Knowledge, Level, Undefined
from fedassay.attacks.gradient.analytic_linear import AnalyticLinear
from fedassay.attacks.gradient.mean_image import MeanImage
from fedassay.attacks.gradient.noise_image import NoiseImage
from fedassay.attacks.gradient.random_image import RandomImage
from fedassay.attacks.labels.idlg import IDLG
from fedassay.attacks.labels.ilrg import ILRG
from fedassay.attacks.labels.random_labels import RandomLabels
from fedassay.attacks.uploads import read_uploads, reduce_view
from fedassay.audit.evidence import LabelCounts, Reconstructions
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.shuffling.cldp_sgd import OneBitLaw
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.laws import GaussianLaw, Mixing
from fedassay.fl.message import Message
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import RoundView, View
from fedassay.fl.sampling import FixedSize, Poisson
from toy_federation import flat_plan


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


NETWORK = Network(model="logistic", shape=(1, 3, 3), classes=4)
RNG = np.random.default_rng(5)
PUBLIC = torch.from_numpy(RNG.random((30, 1, 3, 3), dtype=np.float32))


def seen(values, sizes=None):
    clients = len(values)
    fields = {"algorithm": FedSGD(learning_rate=0.1), "layout": NETWORK.layout}
    plan = flat_plan(clients, sizes=sizes or (1,) * clients, **fields)
    reports = Message(values=values[None], present=torch.ones(1, clients).bool(), senders=tuple(range(clients)))
    model = torch.zeros(1, NETWORK.layout.dim)
    view = View(
        observer=UPLOADS,
        plan=plan,
        rounds=(RoundView(round=0, broadcast=model, reports=reports),),
        final_model=model,
    )
    knowledge = Knowledge(
        level=Level.REALISTIC,
        network=NETWORK,
        plan=plan,
        law=lambda observer, client: None,
        public_images=PUBLIC,
        public_labels=torch.arange(30) % 4,
    )
    return view, knowledge


def run_null(null, values, seed=0):
    evidence = null.run(*seen(values), np.random.default_rng(seed))
    if isinstance(evidence, LabelCounts):
        return [evidence.counts]
    assert isinstance(evidence, Reconstructions)
    return [evidence.images, np.zeros(0) if evidence.labels is None else evidence.labels]


@pytest.mark.parametrize("null", [MeanImage(), RandomImage(), NoiseImage()], ids=lambda null: type(null).__name__)
def test_each_sample_of_a_lot_gets_an_image(null):
    view, knowledge = seen(torch.ones(3, NETWORK.layout.dim), sizes=(2, 1, 3))
    evidence = null.run(view, knowledge, np.random.default_rng(0))
    assert isinstance(evidence, Reconstructions)
    assert evidence.uploads.tolist() == [0, 0, 1, 2, 2, 2]
    assert len(evidence.images) == 6


def test_the_mean_image_is_the_mean_of_the_public_images():
    images = run_null(MeanImage(), torch.ones(2, NETWORK.layout.dim))[0]
    np.testing.assert_allclose(images[0], PUBLIC.numpy().mean(0), atol=1e-6)
    np.testing.assert_array_equal(images[0], images[1])


def test_a_random_image_is_a_public_one_with_its_own_label():
    images, labels = run_null(RandomImage(), torch.ones(25, NETWORK.layout.dim))
    for image, label in zip(images, labels, strict=True):
        equal = (PUBLIC.numpy() == image.astype(np.float32)).all((1, 2, 3))
        assert equal.sum() == 1
        assert equal.argmax() % 4 == label


def test_random_labels_are_uniform():
    """4,000 draws over 4 classes: each count within 5 standard deviations (137) of 1,000."""
    counts = run_null(RandomLabels(), torch.ones(4000, NETWORK.layout.dim))[0]
    assert (counts.sum(1) == 1).all()
    assert (np.abs(counts.sum(0) - 1000) < 137).all()
