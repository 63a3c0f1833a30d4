"""Shadow bank: whom it leaves out, what it hands on of a target, and what it refuses."""

import dataclasses

import numpy as np
import pytest
import torch
from fedassay.attacks.membership.attack_r import AttackR
from fedassay.attacks.membership.calibrated_loss import CalibratedLoss
from fedassay.attacks.membership.lira_offline import LiRAOffline
from fedassay.attacks.membership.lira_online import LiRAOnline
from fedassay.attacks.membership.rmia import RMIA
from fedassay.attacks.shadow_bank import ShadowBank, of_true_class, true_class_logits

MODELS, CANDIDATES = 12, 30


def bank(*, models=MODELS, candidates=CANDIDATES, seed=0, paired=True, **changes):
    rng = np.random.default_rng(seed)
    halves = rng.random((models // 2, candidates)) < 0.5
    fields = {
        "logits": rng.standard_normal((models, candidates)),
        "included": np.stack([halves, ~halves], axis=1).reshape(models, candidates),
        "population": rng.standard_normal((models, 7)),
        "ids": np.arange(candidates) + 100,
        "paired": paired,
    }
    return ShadowBank(**(fields | changes))


def with_opposite_truth(whole, target):
    """The same bank with the opposite truth about the target; pairs stay complementary."""
    included = whole.included.copy()
    rows = [target - target % 2, target - target % 2 + 1]
    included[rows] = ~included[rows]
    return dataclasses.replace(whole, included=included)


def test_the_references_are_without_the_target_and_its_pair():
    whole = bank()
    for target in (0, 1, 6, 7, 11):
        left = [model for model in range(MODELS) if model // 2 != target // 2]
        references = whole.references(target)
        np.testing.assert_array_equal(references.logits, whole.logits[left])
        np.testing.assert_array_equal(references.included, whole.included[left])
        np.testing.assert_array_equal(references.population, whole.population[left])
        np.testing.assert_array_equal(references.ids, whole.ids)


def test_models_that_are_no_pairs_leave_the_target_alone_out():
    whole = bank(paired=False)
    np.testing.assert_array_equal(whole.references(3).logits, np.delete(whole.logits, 3, axis=0))


@pytest.mark.parametrize(
    "attack",
    [
        CalibratedLoss(),
        AttackR(),
        LiRAOffline(),
        LiRAOnline(),
        LiRAOnline(variance="pooled"),
        RMIA(),
        RMIA(online=True),
    ],
    ids=repr,
)
def test_another_truth_about_the_target_changes_no_score(attack):
    whole = bank()
    for target in (0, 5):
        scores, other = (
            attack.scores(one.references(target), one.model_logits(target))
            for one in (whole, with_opposite_truth(whole, target))
        )
        np.testing.assert_array_equal(scores, other)


def test_the_targets_pair_left_in_would_reveal_everything():
    """Counting the references with a candidate reveals nothing; with the target's pair it gives the target's row."""
    whole = bank()
    for target in range(MODELS):
        assert len(set(whole.references(target).included.sum(0).tolist())) == 1
        leaky = dataclasses.replace(whole, paired=False).references(target)
        np.testing.assert_array_equal(leaky.included.sum(0) == MODELS // 2 - 1, whole.included[target])


def test_moments_are_those_of_a_plain_loop():
    whole = bank(models=10, candidates=6)
    for included in (True, False):
        found, squares, counts = whole.moments(included=included), 0.0, 0
        for candidate in range(6):
            own = [whole.logits[m, candidate] for m in range(10) if whole.included[m, candidate] == included]
            assert found.count[candidate] == len(own)
            assert found.mean[candidate] == pytest.approx(np.mean(own))
            assert found.variance[candidate] == pytest.approx(np.var(own, ddof=1))
            squares, counts = squares + np.var(own) * len(own), counts + len(own) - 1
        assert found.pooled_variance == pytest.approx(squares / counts)


def test_the_true_classes_logit_is_that_of_its_probability():
    logits = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 4)))
    labels = torch.tensor([0, 3, 1, 2, 2])
    p = logits.softmax(-1).gather(1, labels.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(of_true_class(logits, labels), (p / (1 - p)).log())


def test_a_probability_that_rounds_to_one_has_a_finite_logit(toy_task):
    task = toy_task()
    model = torch.zeros(task.network.layout.dim)
    model[-3] = 200.0  # The first class's bias: exp(-200) is no number of single precision.
    found = true_class_logits(task.network, model, task.images[:1], torch.tensor([0]))
    assert found == pytest.approx(200 - np.log(2))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"logits": np.full((MODELS, CANDIDATES), np.nan)}, "logits must be finite, got 360 of 360 NaN or infinite"),
        ({"population": np.full((MODELS, 1), np.inf)}, "population must be finite"),
        ({"logits": np.zeros(5)}, r"logits must have 2 dimension\(s\)"),
        ({"population": np.zeros((3, 2))}, "population .*must have a row for each of 12 models, got 3"),
        (
            {"included": np.zeros((2, 3), dtype=bool)},
            r"included .*must have the shape \(12, 30\) of the logits, got \(2, 3\)",
        ),
        ({"included": np.zeros((MODELS, CANDIDATES))}, "must be of type bool, got float64"),
        ({"included": np.zeros((MODELS, CANDIDATES), dtype=bool)}, "paired shadow models must be even in number"),
        ({"ids": np.zeros(CANDIDATES, dtype=np.int64)}, "ids .*must be 30 different numbers"),
    ],
)
def test_a_bank_that_does_not_fit_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        bank(**changes)


def test_a_bank_is_not_changed_by_who_holds_its_arrays():
    logits = np.zeros((MODELS, CANDIDATES))
    whole = bank(logits=logits)
    logits[:] = 1.0
    assert not whole.logits.any()
    with pytest.raises(ValueError, match="read-only"):
        whole.included[0, 0] = True


def test_targets_that_are_not_there_and_banks_that_nothing_is_left_of_are_refused():
    with pytest.raises(ValueError, match=r"target .*must be in 0\.\.11, got 12"):
        bank().references(12)
    with pytest.raises(
        ValueError, match="more than 2 shadow models are needed, because the attack leaves 2 of them out, got 2"
    ):
        bank(models=2).references(0)


@pytest.mark.parametrize(
    ("attack", "models", "words"),
    [
        (LiRAOffline(), 4, "must be out of 2 or more of their training sets, candidate 100 is out of 1 of 2"),
        (LiRAOnline(), 4, "must be out of 2 or more of their training sets, candidate 100 is out of 1 of 2"),
    ],
    ids=repr,
)
def test_fewer_references_than_a_variance_takes_are_refused(attack, models, words):
    whole = bank(models=models)
    with pytest.raises(ValueError, match=words):
        attack.scores(whole.references(0), whole.model_logits(0))


@pytest.mark.parametrize("attack", [CalibratedLoss(), AttackR(), RMIA(), LiRAOnline()], ids=repr)
def test_a_candidate_that_every_reference_holds_is_refused(attack):
    included = bank(paired=False).included.copy()
    included[:, 4] = True
    whole = bank(paired=False, included=included)
    with pytest.raises(
        ValueError, match=r"must be out of \d or more of their training sets, candidate 104 is out of 0 of 11"
    ):
        attack.scores(whole.references(0), whole.model_logits(0))


@pytest.mark.parametrize("attack", [LiRAOnline(), RMIA(online=True)], ids=repr)
def test_a_candidate_that_no_reference_holds_is_refused_where_one_has_to(attack):
    included = bank(paired=False).included.copy()
    included[:, 4] = False
    whole = bank(paired=False, included=included)
    with pytest.raises(ValueError, match=r"must be in \d or more of their training sets, candidate 104 is in 0 of 11"):
        attack.scores(whole.references(0), whole.model_logits(0))
    CalibratedLoss().scores(whole.references(0), whole.model_logits(0))
