"""Property inference: the share of a group in each client's data, known answers and null cases."""

import numpy as np
import pytest
import torch
from digits_federation import received
from fedassay.attacks.attack import Knowledge, Undefined
from fedassay.attacks.attributes.property_regression import PropertyRegression
from fedassay.attacks.attributes.random_property import RandomProperty
from fedassay.audit.evidence import PropertyEstimates
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, UPLOADS
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.partitions import IID
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from fedassay.suites.scoring.attribute_rows import score_properties
from toy_federation import toy_plan


def table(seed=0, count=1200):
    """A coin that decides nothing, and five numbers, whose sum decides the label."""
    rng = np.random.default_rng([seed, 8])
    rows = np.hstack([(rng.random((count, 1)) < 0.3), rng.random((count, 5))]).astype(np.float32)
    images = torch.from_numpy(rows).view(count, 1, 1, 6)
    labels = torch.from_numpy((rows[:, 1:].sum(1) > 2.5).astype(np.int64))
    columns = (("coin", 1), *((f"x{number}", 1) for number in range(5)))
    cut = count // 2
    return Dataset.of_parts(
        "table", (images[:cut], labels[:cut]), (images[cut:], labels[cut:]), classes=2, columns=columns
    )


class Kept:
    """A cell and a store that keep what they are given."""

    cell_id = "cell"

    def record(self, **fields):
        return fields

    def save_arrays(self, cell_id, name, arrays):
        return name


def task_of(clients, each, seed):
    return build_task(
        table(seed), model="logistic", partition=IID(), clients=clients, samples=clients * each, streams=Streams(seed)
    )


def estimated(attack, *, clients=20, each=10, seed=0, protection=None, observer=None, view_seed=None, **changes):
    """The estimates of a federation's clients, from its own uploads or from those of other people, and its rows."""
    task = task_of(clients, each, seed)
    plan = toy_plan(task, **({"rounds": 3, "algorithm": FedSGD(learning_rate=1.0)} | changes))
    protection = protection or Protection()
    trained = task if view_seed is None else task_of(clients, each, view_seed)
    view = received(trained, plan, protection, observer=observer or attack.observer, seed=seed)
    found = attack.run(view, Knowledge.of(task, plan, protection), np.random.default_rng(1))
    rows = {row["metric"]: row["value"] for row in score_properties(Kept(), found, task, Kept())}
    truth = np.array([float(task.images[part][:, 0, 0, 0].mean()) for part in task.parts])
    return found.values, truth, rows


HIGH = {"column": "coin", "value": 1}


@pytest.mark.parametrize("algorithm", [FedSGD(learning_rate=1.0), FedAvg(learning_rate=0.2, local_steps=3)])
def test_uploads_reveal_each_clients_share(algorithm):
    found, truth, rows = estimated(PropertyRegression(**HIGH), algorithm=algorithm)
    assert rows["property_gain"] > 0.9
    assert rows["property_order"] > 0.9
    np.testing.assert_allclose(found, truth, atol=0.15)


def test_the_share_of_the_other_value_is_the_rest():
    _, truth, rows = estimated(PropertyRegression(column="coin", value=0))
    assert rows["property_gain"] > 0.9
    assert rows["property_public_error"] == pytest.approx(np.abs(truth - truth.mean()).mean(), abs=0.05)


def test_clients_that_are_absent_from_some_rounds_are_estimated_from_the_others():
    attack = PropertyRegression(**HIGH, simulated=200)
    _, _, rows = estimated(attack, rounds=8, cohort=Poisson(0.6), clients=10)
    assert rows["property_gain"] > 0.8


def test_lots_drawn_by_coins_do_not_lead_the_estimate_astray():
    """The lots' draws hide the share of a coin on which no label depends: the public share remains."""
    attack = PropertyRegression(**HIGH, simulated=200)
    rows = [estimated(attack, seed=seed, each=20, lot=Poisson(0.5))[2] for seed in range(4)]
    assert min(one["property_gain"] for one in rows) > -0.5


def test_uploads_of_other_people_reveal_nothing():
    """The order of 20 clients is right in half of the pairs: its standard deviation is .08, and .025 over ten seeds."""
    attack = PropertyRegression(**HIGH, simulated=200)
    rows = [estimated(attack, seed=seed, view_seed=seed + 50)[2] for seed in range(10)]
    assert np.mean([one["property_order"] for one in rows]) == pytest.approx(0.5, abs=0.1)
    assert max(one["property_gain"] for one in rows) < 0.5
    assert np.mean([one["property_gain"] for one in rows]) < 0


def test_under_noise_the_estimate_is_near_the_public_share():
    loud = LDPGaussianProtection(clip_norm=1.0, noise_std=5.0)
    found = [estimated(PropertyRegression(**HIGH, simulated=200), seed=seed, protection=loud) for seed in range(6)]
    assert np.mean([rows["property_order"] for _, _, rows in found]) == pytest.approx(0.5, abs=0.13)
    assert np.mean([rows["property_error"] - rows["property_public_error"] for _, _, rows in found]) < 0.03


def test_a_random_guess_is_worse_than_the_public_share():
    rows = [estimated(RandomProperty(**HIGH), seed=seed)[2] for seed in range(10)]
    assert max(one["property_gain"] for one in rows) < 0
    assert np.mean([one["property_order"] for one in rows]) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("observer", [AGGREGATE, FINAL_MODEL])
def test_without_named_senders_no_clients_share_is_inferred(observer):
    with pytest.raises(Undefined, match="cannot identify clients"):
        estimated(PropertyRegression(**HIGH), observer=observer)


def test_what_does_not_exist_is_refused_before_training():
    task = task_of(2, 4, 0)
    for fields, reason in (
        ({"column": "coin", "value": 2}, r"value \(of column 'coin'\) must be in 0..1, got 2"),
        ({"column": "coins"}, "unknown column 'coins'; known: coin"),
    ):
        with pytest.raises(ValueError, match=reason):
            PropertyRegression(**fields).plant(task, np.random.default_rng(0))


def test_rows_are_computed_by_hand():
    """Shares of .25, .5 and .75 beside estimates of .25, .75 and .5: two of three pairs are right."""
    task = task_of(3, 4, 0)
    for part, ones in zip(task.parts, (1, 2, 3), strict=True):
        task.images[part, 0, 0, 0] = (torch.arange(4) < ones).float()
    task.test_images[:, 0, 0, 0] = (torch.arange(len(task.test_images)) % 2).float()
    evidence = PropertyEstimates(np.array([0.25, 0.75, 0.5]), setting(), column="coin", value=1)
    rows = {row["metric"]: row["value"] for row in score_properties(Kept(), evidence, task, Kept())}
    assert rows["property_error"] == pytest.approx(1 / 6)
    assert rows["property_public_error"] == pytest.approx(1 / 6)
    assert rows["property_gain"] == pytest.approx(0)
    assert rows["property_order"] == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="one estimate for each of 3 clients"):
        score_properties(Kept(), PropertyEstimates(np.ones(2), setting(), column="coin", value=1), task, Kept())
    with pytest.raises(ValueError, match=r"shares must be in \[0, 1\]"):
        PropertyEstimates(np.array([1.5]), setting(), column="coin", value=1)


def setting():
    from fedassay.audit.claim import Adjacency, Unit
    from fedassay.audit.evidence import Design, Setting

    return Setting(
        unit=Unit.CLIENT, adjacency=Adjacency.REPLACE_ONE, observer=UPLOADS, rounds=1, design=Design.CLUSTERED
    )
