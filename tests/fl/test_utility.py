"""Utility: metrics of known predictions, by hand."""

import math
from dataclasses import replace

import pytest
import torch
from fedassay.fl.models.network import pixel_losses
from fedassay.fl.streams import Streams
from fedassay.fl.utility import Outcomes, utility_of
from torch.nn.functional import binary_cross_entropy_with_logits

LN3 = math.log(3)


def values(outcomes):
    return {one.metric: one.value for one in utility_of(outcomes)}


def outcomes(found, wanted, losses=None):
    found, wanted = torch.tensor(found), torch.tensor(wanted)
    return Outcomes(found=found, wanted=wanted, losses=torch.ones(len(wanted)) if losses is None else losses)


def test_a_model_that_favours_no_class_has_the_logarithm_of_their_number_as_loss(make_task):
    """Three classes at equal logits: log 3. Twice the logit ln 3 on the right class of all: log(5/3)."""
    task = make_task()
    assert values(task.outcomes(torch.zeros(51), task.test_images, task.test_labels))["loss"] == pytest.approx(LN3)
    always_zero = torch.zeros(51)
    always_zero[48] = LN3  # The bias of class 0: probability 3/5 for class 0, 1/5 for each other.
    zeros = torch.zeros_like(task.test_labels)
    found = {one.metric: one for one in replace(task, test_labels=zeros).utility(always_zero)}
    assert found["loss"].value == pytest.approx(math.log(5 / 3))
    assert (found["loss"].direction, found["accuracy"].direction) == ("lower_better", "higher_better")
    assert found["loss"].n == found["accuracy"].n == len(zeros)


def test_one_pass_gives_the_losses_and_predictions_of_the_network(make_task):
    task = make_task()
    model = task.network.initial(Streams(0).generator("init"))
    found = task.outcomes(model, task.test_images, task.test_labels)
    torch.testing.assert_close(found.losses, task.network.losses(model, task.test_images, task.test_labels))
    assert torch.equal(found.found, task.network.logits(model, task.test_images).argmax(-1))


def test_a_loss_that_is_no_number_has_a_reason_and_no_value():
    found = utility_of(outcomes([0, 1], [0, 0], torch.tensor([0.0, math.inf])))
    assert [(one.metric, one.value) for one in found] == [("accuracy", 0.5), ("loss", None)]
    assert "not a finite number" in found[1].reason


def test_the_loss_of_pixels_is_their_mean(make_task):
    logits, wanted = torch.randn(3, 2, 4), torch.rand(3, 2, 4) > 0.5
    each = binary_cross_entropy_with_logits(logits, wanted.float())
    assert float(pixel_losses(logits, wanted).mean()) == pytest.approx(float(each))
    assert pixel_losses(torch.zeros(3, 2, 4), wanted).tolist() == pytest.approx([math.log(2)] * 3)


def test_outcomes_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match=r"found \(predictions\) must have the shape \(2,\)"):
        outcomes([0], [0, 0])
    with pytest.raises(ValueError, match=r"losses must have shape \(2,\), got \(3,\)"):
        outcomes([0, 0], [0, 0], torch.zeros(3))
