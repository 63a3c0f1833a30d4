"""Attribute inference: known answers, null cases, and not beyond what a claim allows."""

import numpy as np
import pytest
import torch
from digits_federation import received
from fedassay.attacks.attack import Knowledge, Undefined
from fedassay.attacks.attributes.attribute_attack import imputed
from fedassay.attacks.attributes.attribute_likelihood import AttributeLikelihood
from fedassay.attacks.attributes.attribute_loss import AttributeLoss
from fedassay.attacks.attributes.imputed_attribute import ImputedAttribute
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.sample_level.dp_sgd import DPSGD
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.candidates import Column
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.partitions import IID, ByOwner
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from fedassay.suites.scoring.label_rows import hits
from scipy.stats import multivariate_normal
from toy_federation import toy_plan

COLUMNS = (("group", 3), ("coin", 1), ("kin", 1), *((f"x{number}", 1) for number in range(5)))


def table(count=900, seed=0):
    """Rows whose group decides the label, whose kin is the group's sign, and whose coin depends on nothing."""
    rng = np.random.default_rng([seed, 5])
    group, numbers = rng.integers(3, size=count), rng.random((count, 5))
    kin, coin = (group > 0) ^ (rng.random(count) < 0.1), rng.random(count) < 0.5
    rows = np.hstack([np.eye(3)[group], coin[:, None], kin[:, None], numbers])
    labels = torch.from_numpy(((group == 2) ^ (rng.random(count) < 0.1)).astype(np.int64))
    images = torch.from_numpy(rows.astype(np.float32)).view(count, 1, 1, -1)
    cut = 2 * count // 3
    return Dataset.of_parts(
        "table", (images[:cut], labels[:cut]), (images[cut:], labels[cut:]), classes=2, columns=COLUMNS
    )


def attacked(attack, *, clients=10, each=1, protection=None, seed=0, observer=None, view_seed=None, **changes):
    """What the attack scores, and the truth: (scores, value, holder, view)."""
    data = table(seed=seed)
    task = build_task(
        data, model="logistic", partition=IID(), clients=clients, samples=clients * each, streams=Streams(seed)
    )
    plan = toy_plan(task, **({"rounds": 1, "algorithm": FedSGD(learning_rate=1.0)} | changes))
    protection = Protection() if protection is None else protection.prepare(plan).protection
    planted = attack.plant(task, np.random.default_rng(seed))
    trained = task
    if view_seed is not None:  # The model of other people.
        trained = build_task(
            table(seed=view_seed),
            model="logistic",
            partition=IID(),
            clients=clients,
            samples=clients * each,
            streams=Streams(seed),
        )
    view = received(trained, plan, protection, observer=observer or attack.observer, seed=seed)
    knowledge = Knowledge.of(task, plan, protection, candidates=planted.shown)
    found = attack.run(view, knowledge, np.random.default_rng(0)).values
    return found, planted, view, knowledge


def right_of_members(attack, **setting):
    """Of each member the credit of the guess at its own client."""
    found, planted, _, _ = attacked(attack, **setting)
    count, holder = len(planted.value), planted.records.holder
    credit = hits(found, np.tile(planted.value, len(found) // count)).reshape(-1, count)
    rows = holder[holder >= 0] if len(credit) > 1 else 0
    return credit[rows, np.flatnonzero(holder >= 0)]


@pytest.mark.parametrize("column", ["group", "coin", 4])
@pytest.mark.parametrize("prior", ["uniform", "imputed"])
@pytest.mark.parametrize("algorithm", [FedSGD(learning_rate=1.0), FedAvg(learning_rate=0.1, local_steps=1)])
def test_one_upload_of_one_sample_reveals_the_column_exactly(column, prior, algorithm):
    attack = AttributeLikelihood(column=column, count=1, client="all", prior=prior)
    assert right_of_members(attack, clients=40, algorithm=algorithm).tolist() == [1.0] * 40


def test_a_sum_of_two_samples_reveals_more_than_a_coin_and_less_than_all():
    attack = AttributeLikelihood(column="coin", count=1, client="all", prior="uniform")
    found = np.concatenate(
        [right_of_members(attack, clients=2, observer=AGGREGATE, seed=seed) for seed in range(60)]
    ).mean()
    assert 0.65 < found < 1


def _blocks(cov, rounds):
    size = len(cov) // rounds
    return [cov[start:, start:][:size, :size] for start in range(0, len(cov), size)]


@pytest.mark.parametrize("observer", [UPLOADS, AGGREGATE, GLOBAL_MODELS])
@pytest.mark.parametrize("rounds", [1, 3])
def test_the_likelihood_is_that_of_a_gaussian_with_the_public_moments(observer, rounds):
    """Written out in double precision for one client of four, with lots drawn by coins."""
    attack = AttributeLikelihood(column="group", count=2, client="all", prior="uniform", samples=150)
    setting = {"clients": 4, "each": 6, "observer": observer, "rounds": rounds, "lot": Poisson(0.5)}
    found, planted, view, knowledge = attacked(attack, **setting)
    size, summed = 6 if observer == UPLOADS else 24, observer != UPLOADS
    network, k = knowledge.network, 3
    means = []
    for images, labels in (
        (knowledge.public_images[:150], knowledge.public_labels[:150]),
        (planted.shown.images, planted.shown.labels),
    ):
        each = [
            network.sample_gradients(seen.broadcast, images.unsqueeze(0), labels.unsqueeze(0))[0].double().numpy()
            for seen in view.rounds
        ]
        means.append(np.hstack(each) / size)
    others, records = means
    models = [seen.broadcast[0] for seen in view.rounds] + [view.final_model[0]]
    seen = [
        ((before - after).double().numpy() if summed else -one.reports.values[0, 2].double().numpy())
        for one, before, after in zip(view.rounds, models, models[1:], strict=False)
    ]
    fixed, dim = (size - 1) * np.cov(others.T, bias=True), others.shape[1] // rounds
    drawn = np.kron(np.eye(rounds), np.ones((dim, dim))) * size * (others.T @ others) / 150
    spread = np.repeat([np.trace(one[:dim, :dim]) for one in _blocks(fixed + drawn, rounds)], dim) / dim
    cov = fixed + drawn + 0.01 * np.diag(spread)
    point = np.concatenate(seen) - (size - 1) * others.mean(0)
    naive = np.array([multivariate_normal(record, cov).logpdf(point) for record in records]).reshape(-1, k)
    ours = found.reshape(-1, len(naive), k)[0 if summed else 2]
    np.testing.assert_allclose(ours - ours[:, :1], naive - naive[:, :1], rtol=1e-3, atol=1e-3)


def test_the_loss_is_the_models_probability_of_the_label_times_the_prior():
    attack = AttributeLoss(column="group", count=3)
    found, planted, view, knowledge = attacked(attack, each=5, rounds=4)
    shown = planted.shown
    logits = knowledge.network.logits(view.final_model[0], shown.images).double()
    fit = logits.log_softmax(1).gather(1, shown.labels[:, None]).view(-1, 3).detach().numpy()
    prior = imputed(shown, knowledge.public_images, knowledge.public_labels, classes=0)
    np.testing.assert_allclose(found, fit + prior, rtol=1e-4)
    of_rounds, *_ = attacked(attack, each=5, rounds=4, observer=GLOBAL_MODELS)
    assert not np.allclose(found, of_rounds)


ALL = {"count": 4, "client": "all"}


@pytest.mark.parametrize(
    ("attack", "observer"),
    [
        (AttributeLikelihood(column="coin", **ALL), UPLOADS),
        (AttributeLikelihood(column="coin", prior="uniform", **ALL), UPLOADS),
        (AttributeLikelihood(column="coin", **ALL), SHUFFLED),
        (AttributeLoss(column="coin", **ALL), FINAL_MODEL),
        (AttributeLoss(column="coin", **ALL), GLOBAL_MODELS),
        (ImputedAttribute(column="coin", **ALL), FINAL_MODEL),
    ],
)
def test_of_models_of_other_people_a_coin_is_right_in_one_of_two(attack, observer):
    """480 records: .5 +- .023; four standard errors allowed."""
    found = [
        right_of_members(attack, each=4, observer=observer, seed=seed, view_seed=seed + 100, clients=10, rounds=2)
        for seed in range(12)
    ]
    assert np.concatenate(found).mean() == pytest.approx(0.5, abs=0.092)


def test_without_the_record_no_attack_is_above_the_imputation():
    """Of models of other people: in each of ten seeds the difference is within three standard errors, or negative."""
    for seed in range(10):
        setting = {"each": 8, "seed": seed, "view_seed": seed + 100, "rounds": 2}
        many = {"column": "kin", "count": 8, "client": "all"}
        base = right_of_members(ImputedAttribute(**many), observer=FINAL_MODEL, **setting)
        for attack in (AttributeLikelihood(**many), AttributeLoss(**many)):
            gain = right_of_members(attack, **setting) - base
            assert gain.mean() <= 3 * gain.std() / len(gain) ** 0.5 + 1e-12, (seed, attack)


def test_uploads_of_few_samples_are_above_the_imputation():
    many = {"column": "coin", "count": 3, "client": "all"}
    found = [right_of_members(AttributeLikelihood(**many), each=3, seed=seed, clients=20) for seed in range(6)]
    assert np.concatenate(found).mean() > 0.7  # 360 records; a coin: .5 +- .026.


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_under_dp_sgd_even_a_lot_of_one_record_stays_below_the_claims_bound(epsilon):
    """A claim about added or removed samples bounds the odds of two values of one record by exp(2 epsilon).

    The record is alone in its lot, so that the attack knows all else; 1,600 coins, four standard errors of .0125.
    """
    attack = AttributeLikelihood(column="coin", count=1, client="all", prior="uniform")
    found = [
        right_of_members(attack, clients=200, protection=DPSGD(epsilon=epsilon, delta=1e-5), seed=seed)
        for seed in range(8)
    ]
    assert np.concatenate(found).mean() <= 1 / (1 + np.exp(-2 * epsilon)) + 0.05


def test_the_imputation_learns_what_public_records_say():
    _, planted, _, knowledge = attacked(ImputedAttribute(column="kin", **ALL), each=4)
    for images, labels in ((knowledge.public_images, knowledge.public_labels),):
        found = imputed(planted.shown, images, labels, classes=2)
        np.testing.assert_allclose(np.exp(found).sum(1), 1)
        assert (found.argmax(1) == planted.value).mean() > 0.8
        # No public record with kin: it keeps a small probability.
        none = images[..., 4].flatten() == 0
        found = imputed(planted.shown, images[none], labels[none], classes=2)
        assert np.exp(found[:, 1]).max() < 0.01


def test_a_column_is_hidden_in_all_its_features_and_a_number_is_high_or_low():
    data = table()
    task = build_task(data, model="logistic", partition=IID(), clients=2, streams=Streams(0))
    group, number = Column.of(task.test_images, task.columns, "group"), Column.of(task.test_images, task.columns, "x0")
    assert group.completed(task.images[:2]).shape == (6, 1, 1, 10)
    assert torch.equal(group.completed(task.images[:2])[:3, 0, 0, :3], torch.eye(3))
    assert torch.equal(group.of_records(group.completed(task.images[:5])), torch.arange(3).repeat(5))
    assert group.others(task.images).shape[1] == 7
    halves = (task.images[:, 0, 0, 5] > task.test_images[..., 5].mean()).float()
    assert (number.of_records(task.images) == halves).float().mean() > 0.97


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("groups", "unknown column 'groups'; known: group"),
        (10, "column must be in 0..9"),
        ("1", "column must be a whole number >= 0 or a column's name, got '1'"),
    ],
)
def test_a_column_that_does_not_exist_is_refused(column, reason):
    with pytest.raises(ValueError, match=reason):
        attacked(AttributeLoss(column=column, count=1))


def test_a_column_of_one_value_and_whole_owners_are_refused():
    digits = load_dataset("digits")
    task = build_task(digits, model="logistic", partition=IID(), clients=2, streams=Streams(0))
    with pytest.raises(ValueError, match="column 0 has the same value in all public records"):
        AttributeLoss(column=0).plant(task, np.random.default_rng(0))
    kept = ("train_images", "train_labels", "test_images", "test_labels", "classes")
    owners = torch.arange(len(digits.train_labels)) // 9
    owned = Dataset(name="owned", **{name: getattr(digits, name) for name in kept}, train_owners=owners)
    task = build_task(owned, model="logistic", partition=ByOwner(), clients=4, streams=Streams(0))
    with pytest.raises(Undefined, match="by_owner"):
        AttributeLoss(column=20).plant(task, np.random.default_rng(0))


def test_a_client_that_never_came_has_no_score():
    with pytest.raises(Undefined, match="took part in no round"):
        attacked(AttributeLikelihood(column="coin", count=1, client="all"), clients=20, cohort=Poisson(0.2))
