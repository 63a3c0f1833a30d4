"""Tasks of models: losses, slopes and metrics by hand, and sample gradients by every way against a loop."""

import math

import numpy as np
import pytest
import torch
from fedassay.fl.models.network import Network
from fedassay.fl.objective import OBJECTIVES, TASKS, objective_of
from fedassay.fl.utility import Outcomes, by_class, by_group, utility_of
from torch import nn

SHAPE, OUTPUTS = (1, 8, 8), 3
NAIVE = {"regression": nn.functional.mse_loss, "multilabel": nn.functional.binary_cross_entropy_with_logits}


LENGTH = 4
"""Places of a text."""
SIZES = {"classification": (), "next_token": (LENGTH,)}


def labels_for(task, count, rng=None):
    rng = rng or np.random.default_rng(1)
    return OBJECTIVES[task].drawn(rng, (count, *SIZES.get(task, (OUTPUTS,))), OUTPUTS)


def outputs_for(task, count):
    shape = objective_of(task).output_shape((1, 1, LENGTH), OUTPUTS)
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(0))


def found_by(task, found, wanted, **more):
    return {
        one.metric: one.value
        for one in utility_of(Outcomes(found=found, wanted=wanted, losses=torch.zeros(len(wanted)), task=task, **more))
    }


def test_losses_by_hand():
    numbers = objective_of("regression").losses(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 5.0]]))
    assert numbers.tolist() == [(1 + 9) / 2]
    flags = objective_of("multilabel").losses(torch.tensor([[0.0, math.log(3)]]), torch.tensor([[True, False]]))
    assert flags.tolist() == pytest.approx([(math.log(2) + math.log(4)) / 2])
    tokens = objective_of("next_token").losses(torch.tensor([[[0.0, 0.0], [0.0, math.log(3)]]]), torch.tensor([[0, 1]]))
    assert tokens.tolist() == pytest.approx([(math.log(2) + math.log(4 / 3)) / 2])


def test_a_text_has_the_share_of_its_next_tokens_and_no_classes():
    wanted = torch.tensor([[0, 1, 2, 3], [3, 3, 3, 3]])
    found = torch.tensor([[0, 1, 2, 0], [0, 0, 0, 0]])
    every = Outcomes(found=found, wanted=wanted, losses=torch.zeros(2), task="next_token")
    assert found_by("next_token", found, wanted)["accuracy"] == pytest.approx(3 / 8)
    assert by_group(every, torch.tensor([0, 1]), 2).tolist() == pytest.approx([3 / 4, 0])
    assert len(by_class(every, 4)) == 0


@pytest.mark.parametrize(
    ("labels", "images", "says"),
    [
        (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 1, 1, 4), "n, length"),
        (torch.zeros(2, 4), torch.zeros(2, 1, 1, 4), "int64"),
        (torch.zeros(2, 4, dtype=torch.int64), torch.full((2, 1, 1, 4), 0.5), "the inputs of a text must be whole"),
        (torch.full((2, 4), 3), torch.zeros(2, 1, 1, 4), r"labels must be whole numbers in \[0, 3\)"),
    ],
)
def test_what_is_no_text_is_refused(labels, images, says):
    with pytest.raises(ValueError, match=says):
        objective_of("next_token").check("labels", labels, images, 3)


@pytest.mark.parametrize("task", TASKS)
def test_slopes_are_the_derivative_of_the_loss_and_others_are_other_labels(task):
    objective, labels = objective_of(task), labels_for(task, 5)
    outputs = outputs_for(task, 5).requires_grad_(True)
    (slopes,) = torch.autograd.grad(objective.losses(outputs, labels).sum(), outputs)
    torch.testing.assert_close(objective.slopes(outputs.detach(), labels), slopes)
    assert not (objective.others(labels, OUTPUTS) == labels).any()


@pytest.mark.parametrize("task", TASKS)
def test_the_soft_loss_of_true_labels_is_the_mean_loss(task):
    objective, labels = objective_of(task), labels_for(task, 4)
    outputs = outputs_for(task, 4)
    soft = nn.functional.one_hot(labels, OUTPUTS).float() if task in SIZES else labels.float()
    torch.testing.assert_close(objective.soft_loss(outputs, soft), objective.losses(outputs, labels).mean())


def test_numbers_have_r2_and_errors_in_their_own_unit_by_hand():
    wanted, found = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[0.0], [2.0], [2.0]])
    own = found_by("regression", found, wanted, scale=(10.0,))
    assert own["r2"] == pytest.approx(1 - 1 / 2)
    assert (own["mean_absolute_error"], own["mean_squared_error"]) == pytest.approx((10 / 3, 100 / 3))
    assert found_by("regression", wanted, wanted)["r2"] == 1
    assert found_by("regression", torch.ones(3, 1), wanted)["r2"] == pytest.approx(0)


def test_r2_of_groups_is_that_of_each_group_alone_and_is_not_defined_for_equal_labels():
    rng = torch.Generator().manual_seed(0)
    wanted = 1000 + torch.randn(12, 2, generator=rng)
    wanted[8:] = 1000.1
    found = wanted + 0.3 * torch.randn(12, 2, generator=rng)
    every = Outcomes(found=found, wanted=wanted, losses=torch.zeros(12), task="regression")
    groups = torch.tensor([0] * 3 + [1] * 5 + [2] * 4)
    each = by_group(every, groups, 4)
    assert each[0] == pytest.approx(found_by("regression", found[:3], wanted[:3])["r2"])
    assert each[1] == pytest.approx(found_by("regression", found[3:8], wanted[3:8])["r2"])
    assert each[2:].isnan().all()
    assert len(by_class(every, 2)) == 0
    (r2, *_, loss) = utility_of(Outcomes(found=found[8:], wanted=wanted[8:], losses=torch.zeros(4), task="regression"))
    assert (r2.value, r2.reason, loss.value) == (None, "the labels of all test samples are equal", 0)


def test_predictions_that_are_no_numbers_have_a_reason():
    found = utility_of(
        Outcomes(
            found=torch.tensor([[math.inf], [0.0]]),
            wanted=torch.tensor([[0.0], [1.0]]),
            losses=torch.zeros(2),
            task="regression",
        )
    )
    assert [one.value for one in found[:3]] == [None] * 3
    assert all("not a finite number" in one.reason for one in found[:3])


def test_several_labels_have_macro_f1_and_subset_accuracy_by_hand():
    """F1 is 1 of the first label, 2/3 of the second; the third neither holds nor is predicted and does not count."""
    wanted = torch.tensor([[1, 1, 0], [0, 1, 0], [1, 0, 0]]).bool()
    found = torch.tensor([[1, 1, 0], [0, 0, 0], [1, 0, 0]]).bool()
    values = found_by("multilabel", found, wanted)
    assert values["macro_f1"] == pytest.approx((1 + 2 / 3) / 2)
    assert values["subset_accuracy"] == pytest.approx(2 / 3)
    outcomes = Outcomes(found=found, wanted=wanted, losses=torch.zeros(3), task="multilabel")
    assert by_class(outcomes, 3).tolist()[:2] == pytest.approx([1, 2 / 3])
    assert by_class(outcomes, 3)[2].isnan()
    assert by_group(outcomes, torch.tensor([0, 1, 0]), 2).tolist() == pytest.approx([1, 0])
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    assert found_by("multilabel", nothing, nothing)["macro_f1"] is None


def test_labels_of_another_form_are_refused():
    images = torch.zeros(2, 1, 1, 4)
    for task, labels, words in (
        ("regression", torch.zeros(2), r"float32 of shape \(2, 3\)"),
        ("regression", torch.full((2, 3), math.nan), "finite numbers"),
        ("multilabel", torch.zeros(2, 3), r"booleans of shape \(2, 3\)"),
        ("classification", torch.tensor([0, 3]), r"in \[0, 3\)"),
    ):
        with pytest.raises(ValueError, match=words):
            objective_of(task).check("labels", labels, images, 3)
    with pytest.raises(ValueError, match="task must be one of"):
        objective_of("segmentation")


def test_a_model_that_does_not_give_one_number_per_label_is_refused():
    with pytest.raises(ValueError, match="numbers as labels"):
        Network(model="unet", shape=(1, 32, 32), classes=2, task="regression").objective  # noqa: B018
    with pytest.raises(ValueError, match="classes must be >= 2"):
        Network(model="mlp", shape=SHAPE, classes=1)
