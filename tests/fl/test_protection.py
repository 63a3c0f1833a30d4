"""Protection: the hooks without a defense, computed by hand."""

import pytest
import torch
from fedassay.audit.observer import UPLOADS
from fedassay.fl.hooks import check_returned
from fedassay.fl.message import Message
from fedassay.fl.protection import Context, Protection
from fedassay.fl.streams import Streams


@pytest.fixture
def plan(make_task, make_plan):
    return make_plan(make_task((2, 6, 4)))


def rng():
    return Streams(0).generator("station")


def received(values, present, senders):
    values, present = torch.tensor(values).unsqueeze(-1), torch.tensor(present)
    return Message(values=values, present=present, senders=senders)


def test_the_local_step_is_the_mean_of_the_samples_that_were_drawn(plan):
    gradients = torch.tensor([[[2.0, 4.0], [6.0, 0.0], [100.0, 100.0]], [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]])
    present = torch.tensor([[True, True, False], [False, False, False]])
    context = Context(plan=plan, round=0, replicas=2)
    direction = Protection().local_step(gradients, present, 0, context, {}, rng())
    assert direction.tolist() == [[4.0, 2.0], [0.0, 0.0]]


def test_the_aggregate_weighs_each_client_present_by_its_samples(plan):
    message = received([[1.0, 10.0], [1.0, 0.0], [0.0, 0.0]], [[True, True], [True, False], [False, False]], (0, 1))
    context = Context(plan=plan, round=0, replicas=3, senders=(0, 1))
    aggregate = Protection().aggregate(message, context, {}, rng())
    assert aggregate.flatten().tolist() == pytest.approx([(2 * 1 + 6 * 10) / 8, 1.0, 0.0])


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_reports_of_other_numbers_have_an_aggregate_of_the_models_precision(plan, kind):
    message = received([[1.0, 10.0]], [[True, True]], (0, 1))
    message = message.with_values(message.values.to(kind))
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1))
    aggregate = Protection().aggregate(message, context, {}, rng())
    assert aggregate.dtype is torch.float32
    assert aggregate.item() == pytest.approx((2 * 1 + 6 * 10) / 8)


def test_a_canary_client_weighs_as_the_mean_client(plan):
    message = received([[1.0, 10.0]], [[True, True]], (1, 3))
    context = Context(plan=plan, round=0, replicas=1, senders=(1, 3))
    assert Protection().aggregate(message, context, {}, rng()).item() == pytest.approx((6 * 1 + 4 * 10) / 10)


def test_rows_whose_senders_a_shuffler_hid_weigh_the_same(plan):
    message = received([[1.0, 10.0, 0.0]], [[True, True, False]], None)
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1, 2))
    assert Protection().aggregate(message, context, {}, rng()).item() == pytest.approx(5.5)


def test_rows_that_a_channel_put_in_another_order_keep_their_weights(plan):
    message = received([[10.0, 1.0]], [[True, True]], (1, 0))
    context = Context(plan=plan, round=0, replicas=1, senders=(0, 1))
    assert Protection().aggregate(message, context, {}, rng()).item() == pytest.approx((2 * 1 + 6 * 10) / 8)


def test_the_other_hooks_hand_on_what_they_get(plan):
    protection, context = Protection(), Context(plan=plan, round=0, replicas=1, senders=(0,))
    message, model, state = received([[1.0]], [[True]], (0,)), torch.ones(1, 3), {"bound": 1.0}
    assert protection.report(message, context, state, rng()) is message
    assert protection.channel(message, context, state, rng()) is message
    assert protection.broadcast(model, context, state, rng()) is model
    assert protection.open_round(context, state) is state
    assert protection.close_round(model, context, state) is state
    assert protection.participates(context, state, rng()) is None
    assert protection.initial_state(plan) == {}
    assert protection.law(UPLOADS, plan, 0) is None
    assert not protection.per_sample


@pytest.mark.parametrize("shape", [(3,), (1, 3), (2, 4), (2, 1, 3)])
def test_a_hook_that_returns_other_than_a_row_a_replica_is_named(shape):
    like = torch.zeros(2, 3)
    assert check_returned("aggregate", like, like) is like
    with pytest.raises(ValueError, match=r"hook aggregate must return .* shape \(2, 3\), one row per replica, got"):
        check_returned("aggregate", torch.zeros(shape), like)


@pytest.mark.parametrize(
    ("slip", "hook"), [("reports", "report"), ("local_steps", "local_step"), ("agregate", "aggregate")]
)
def test_a_method_that_is_nearly_named_like_a_hook_is_refused(slip, hook):
    with pytest.raises(TypeError, match=rf"Mine\.{slip} overrides no hook: did you mean {hook}\?"):
        type("Mine", (Protection,), {slip: lambda self, updates, context, state, rng: updates})


def test_methods_of_a_protection_s_own_and_overrides_of_them_are_none():
    theirs = type("Theirs", (Protection,), {"total": lambda self: 1, "_report": lambda self: 1, "reports": ()})
    assert type("Mine", (theirs,), {"total": lambda self: 2})().total() == 2
