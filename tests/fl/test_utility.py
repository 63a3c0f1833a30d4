"""Utility: metrics of known predictions, by hand."""

import math
from dataclasses import replace

import pytest
import torch
from fedassay.fl.models.network import Network
from fedassay.fl.objective import OBJECTIVES
from fedassay.fl.streams import Streams
from fedassay.fl.utility import Outcomes, by_class, by_group, spread_of, utility_of
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
    losses = OBJECTIVES["segmentation"].losses
    each = binary_cross_entropy_with_logits(logits, wanted.float())
    assert float(losses(logits, wanted).mean()) == pytest.approx(float(each))
    assert losses(torch.zeros(3, 2, 4), wanted).tolist() == pytest.approx([math.log(2)] * 3)


def test_outcomes_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match=r"found \(predictions\) must have the shape \(2,\)"):
        outcomes([0], [0, 0])
    with pytest.raises(ValueError, match=r"losses must have shape \(2,\), got \(3,\)"):
        outcomes([0, 0], [0, 0], torch.zeros(3))


def test_the_spread_over_classes_by_hand():
    """Class 0: 2 of 2, class 1: 1 of 2, class 2: 0 of 1, class 3: no image."""
    found = by_class(outcomes([0, 0, 1, 0, 1], [0, 0, 1, 1, 2]), 4)
    assert found[:3].tolist() == [1.0, 0.5, 0.0]
    assert found[3].isnan()
    spread = spread_of(found)
    assert (spread.worst, spread.mean, spread.groups) == (0.0, 0.5, 3)
    assert spread.std == pytest.approx(math.sqrt((0.25 + 0 + 0.25) / 3))
    assert spread_of(torch.full((2,), math.nan)) is None


def test_the_worst_tenth_is_rounded_up_and_equal_groups_have_no_spread():
    values = torch.arange(20).double().flip(0) / 20
    assert spread_of(values, 0.1).worst == pytest.approx((0 + 1) / 2 / 20)
    assert spread_of(values[:9], 0.1).worst == pytest.approx(11 / 20)
    assert spread_of(torch.full((5,), 0.3)).std == pytest.approx(0)


def test_pixels_by_class_and_by_group_by_hand():
    """The IoU of the pixels to find is 1/3, that of the others 1/3; the second image has no pixel at all."""
    wanted = torch.tensor([[[1, 1, 0, 0]], [[0, 0, 0, 0]]]).bool()[:, :, :]
    found = torch.tensor([[[1, 0, 1, 0]], [[0, 0, 0, 0]]]).bool()
    both = Outcomes(found=found, wanted=wanted, losses=torch.zeros(2), task="segmentation")
    first = Outcomes(found=found[:1], wanted=wanted[:1], losses=torch.zeros(1), task="segmentation")
    assert by_class(first, 2).tolist() == pytest.approx([1 / 3, 1 / 3])
    assert by_class(both, 2).tolist() == pytest.approx([1 / 3, 5 / 7])
    each = by_group(both, torch.tensor([0, 1]), 2)
    assert each[0] == pytest.approx(1 / 3)
    assert each[1].isnan()


@pytest.mark.parametrize("model", ["logistic", "lenet_bn"])
def test_each_client_is_measured_on_its_own_samples_alone(make_task, model):
    """A naive evaluation, client by client; batch norm would mix clients that are evaluated together."""
    task = make_task(model=model, side=13) if model != "logistic" else make_task()
    params = task.network.initial(Streams(3).generator("init"))
    naive = [
        task.outcomes(params, task.images[part], task.labels[part]).found.eq(task.labels[part]).double().mean()
        for part in task.parts
    ]
    assert task.utility_by_client(params).tolist() == pytest.approx([float(one) for one in naive])


def test_ten_thousand_clients_are_measured_at_once(make_task, monkeypatch):
    task = make_task((1,) * 10_000)
    calls, real = [], Network.evaluated
    monkeypatch.setattr(Network, "evaluated", lambda self, *given: calls.append(1) or real(self, *given))
    assert task.utility_by_client(torch.zeros(51)).shape == (10_000,)
    assert len(calls) <= 5
