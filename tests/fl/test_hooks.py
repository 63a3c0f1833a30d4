"""Hooks: each is called once per round, in order, with the right shapes, state and stream; wrong results are named.

Protection: the hooks without a defense, computed by hand.
"""

from dataclasses import replace

import pytest
import torch
from fedassay.audit.claim import Unit
from fedassay.audit.observer import FINAL_MODEL, GLOBAL_MODELS, UPLOADS
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.canary import Canary
from fedassay.fl.channels import changes_broadcast
from fedassay.fl.engine import run_federation
from fedassay.fl.hooks import overrides
from fedassay.fl.message import Message
from fedassay.fl.protection import Context, Protection
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.sampling import FixedSize, Poisson
from fedassay.fl.streams import Streams, normal
from fedassay.fl.training.local import Batch
from fedassay.fl.vertical.protection import VerticalProtection

REPLICAS, ROUNDS, STEPS, DIM = 5, 3, 2, 51
SIZES = (6, 10, 3, 5)


class Spy(Protection):
    """Writes down every call: the hook, the state's age, the shapes, the first number of its stream."""

    per_sample = True

    def __init__(self):
        self.calls = []
        self.drawn = []

    def note(self, hook, context, state, *shapes, rng=None):
        self.calls.append((hook, context.round, context.senders, state["opened"], state["closed"], *shapes))
        if rng is not None:
            self.drawn.append(rng.random())

    def initial_state(self, plan):
        return {"opened": 0, "closed": 0}

    def open_round(self, context, state):
        self.note("open_round", context, state)
        return {**state, "opened": state["opened"] + 1}

    def participates(self, context, state, rng):
        self.note("participates", context, state, rng=rng)

    def query(self, received, context, state, rng):
        self.note("query", context, state, tuple(received.values.shape), rng=rng)
        return state

    def broadcast(self, model, context, state, rng):
        self.note("broadcast", context, state, tuple(model.shape), rng=rng)
        return model

    def local_step(self, gradients, present, client, context, state, rng):
        lot = gradients.shape[1]
        assert gradients.shape == (REPLICAS, lot, DIM)
        assert present.shape == (REPLICAS, lot)
        self.note(f"local_step {client}", context, state, lot <= SIZES[client], rng=rng)
        return super().local_step(gradients, present, client, context, state, rng)

    def report(self, updates, context, state, rng):
        self.note("report", context, state, tuple(updates.values.shape), updates.senders, rng=rng)
        return updates

    def channel(self, reports, context, state, rng):
        self.note("channel", context, state, tuple(reports.values.shape), reports.senders, rng=rng)
        return reports

    def aggregate(self, received, context, state, rng):
        self.note("aggregate", context, state, tuple(received.values.shape), rng=rng)
        return super().aggregate(received, context, state, rng)

    def close_round(self, aggregate, context, state):
        self.note("close_round", context, state, tuple(aggregate.shape))
        return {**state, "closed": state["closed"] + 1}


def test_every_hook_is_called_once_a_round_in_order_with_the_state_of_the_one_before(trained):
    spy = Spy()
    trained(spy, replicas=REPLICAS)
    everybody, model, rows = (0, 1, 2, 3), (REPLICAS, DIM), (REPLICAS, 4, DIM)
    expected = []
    for number in range(ROUNDS):
        opened = (number + 1, number)
        expected += [("open_round", number, (), number, number), ("participates", number, everybody, *opened)]
        expected += [("broadcast", number, everybody, *opened, model)]
        for client in everybody:
            expected += [(f"local_step {client}", number, everybody, *opened, True)] * STEPS
        expected += [(hook, number, everybody, *opened, rows, everybody) for hook in ("report", "channel")]
        expected += [
            ("aggregate", number, everybody, *opened, rows),
            ("query", number, everybody, *opened, rows),
            ("close_round", number, everybody, *opened, model),
        ]
    # What the last round leaves is published as the next broadcast would be.
    expected += [("broadcast", ROUNDS, (), ROUNDS, ROUNDS, model)]
    assert spy.calls == expected


def test_a_hook_knows_the_rounds_cohort_and_only_its_rows(trained):
    spy = Spy()
    trained(spy, replicas=REPLICAS, cohort=FixedSize(1))
    assert {call[2] for call in spy.calls if call[0] == "participates"} == {(0, 1, 2, 3)}
    reports = [call for call in spy.calls if call[0] == "report"]
    assert all(call[2] == call[6] and call[5] == (REPLICAS, len(call[2]), DIM) for call in reports)
    assert any(len(call[2]) < 4 for call in reports)
    trained = {(call[1], int(call[0].split()[1])) for call in spy.calls if call[0].startswith("local_step")}
    assert trained == {(call[1], sender) for call in reports for sender in call[2]}


def test_no_two_calls_share_a_stream_in_any_block_or_arm(trained):
    drawn = []
    for block in (0, 1):
        for arm in (0, 1):
            spy = Spy()
            trained(spy, replicas=REPLICAS, block=block, arm=arm)
            drawn += spy.drawn
    assert len(set(drawn)) == len(drawn) == 4 * (ROUNDS * (6 + 4 * STEPS) + 1)


def test_no_stream_is_opened_twice(make_task, make_plan):
    """Neither the engine's own draws (init, cohorts, lots) nor a hook's come from one stream."""
    opened = []

    class Watched(Streams):
        def generator(self, purpose, **numbers):
            opened.append((purpose, *sorted(numbers.items())))
            return super().generator(purpose, **numbers)

    task = make_task(SIZES)
    plan, batch = make_plan(task, lot=Poisson(0.5)), Batch(replicas=REPLICAS, block=2, arm=1)
    run_federation(task, plan, Spy(), Watched(0), batch=batch)
    assert len(set(opened)) == len(opened)
    assert {purpose for purpose, *_ in opened} > {"init", "cohort", "participation", "lot", "local noise", "aggregate"}


def test_the_model_that_clients_train_on_is_the_one_that_was_broadcast(trained):
    class Doubled(Protection):
        def broadcast(self, model, context, state, rng):
            return 2 * model

    done = trained(Doubled(), algorithm=FedSGD(learning_rate=0.5), rounds=2)
    task, (first, second) = done.task, done.events
    initial = task.network.initial(Streams(0).generator("init"))
    assert torch.equal(first.broadcast[0], 2 * initial)
    # The server adds to its own model, not to the one that it sent.
    torch.testing.assert_close(first.model[0], initial + 0.5 * first.aggregate[0])
    assert torch.equal(second.broadcast, 2 * first.model)
    assert torch.equal(done.final, 2 * second.model)
    for client, part in enumerate(task.parts):
        rows = task.network.sample_gradients(first.broadcast, task.images[part][None], task.labels[part][None])
        torch.testing.assert_close(first.reports.values[:, client], -rows.mean(1), rtol=1e-4, atol=1e-6)


def test_who_sees_models_or_only_the_last_sees_what_was_broadcast_after_the_last_round(make_task, make_plan):
    """Otherwise a defense that protects the broadcast would be judged by models that no client received."""

    class Noised(Protection):
        def broadcast(self, model, context, state, rng):
            return model + normal(rng, tuple(model.shape))

    task = make_task()
    plan = make_plan(task, algorithm=FedSGD(learning_rate=0.5))
    watching = [ViewRecorder(observer=observer) for observer in (FINAL_MODEL, GLOBAL_MODELS)]
    final, bare = (
        run_federation(task, plan, protection, Streams(0), recorders=watching if protected else [])
        for protected, protection in ((True, Noised()), (False, Protection()))
    )
    last, every = (recorder.view(plan, final) for recorder in watching)
    assert torch.equal(last.final_model, final)
    assert not torch.equal(last.final_model, bare)
    steps = [plan.algorithm.aggregate_between(seen.broadcast, after) for seen, after in _steps(every)]
    assert all(float(step.std()) > 1.0 for step in steps)


def _steps(view):
    """Each round with the model that was published after it."""
    return zip(view.rounds, [*(seen.broadcast for seen in view.rounds[1:]), view.final_model], strict=True)


def test_a_clients_query_results_are_sent_with_its_report(trained):
    """Two steps of two numbers each; a client that stayed away sends zeros."""

    class Asking(Protection):
        per_sample = True

        def local_query(self, gradients, present, client, context, state, rng):
            return torch.stack([present.sum(1).float(), torch.full((len(gradients),), client + 1.0)], dim=1)

    for event in trained(Asking(), replicas=REPLICAS, cohort=Poisson(0.5)).events:
        asked, there = event.reports.side["query"], event.reports.present
        wanted = torch.tensor([[float(SIZES[k]), k + 1.0] for k in event.reports.senders])
        assert asked.shape == (REPLICAS, len(event.reports.senders), STEPS, 2)
        assert torch.equal(asked, (wanted * there.unsqueeze(-1)).unsqueeze(2).expand_as(asked))


def test_a_round_opens_with_the_public_loss_of_its_model(trained):
    losses = []

    class Watching(Protection):
        def open_round(self, context, state):
            losses.append(context.public_loss())
            return state

    done = trained(Watching(), replicas=2)
    task = done.task
    for loss, event in zip(losses, done.events, strict=True):
        per_image = task.network.losses(event.broadcast[1], task.test_images, task.test_labels)
        torch.testing.assert_close(loss[1], per_image.mean())


def test_what_a_hook_changes_reaches_the_next_one(trained):
    class Doubling(Protection):
        def report(self, updates, context, state, rng):
            return updates.with_values(torch.ones_like(updates.values))

        def channel(self, reports, context, state, rng):
            return replace(reports.with_values(2 * reports.values), senders=None)

        def aggregate(self, received, context, state, rng):
            return received.values.sum(1)

    done = trained(Doubling(), algorithm=FedSGD(learning_rate=0.5), rounds=1)
    (event,) = done.events
    assert (event.reports.values == 1).all()
    assert (event.received.values == 2).all()
    assert event.received.senders is None
    assert (event.aggregate == 8).all()
    torch.testing.assert_close(done.final, event.broadcast + 4)


class Wrong(Protection):
    """Returns the given thing at one hook."""

    def __init__(self, **answers):
        for hook, answer in answers.items():
            setattr(self, hook, lambda *_, answer=answer: answer)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"aggregate": torch.zeros(DIM)}, r"hook aggregate must return .* shape \(2, 51\), .* got .* \(51,\)"),
        ({"aggregate": torch.zeros(1, DIM)}, r"aggregate must return .* got .* \(1, 51\)"),
        ({"broadcast": torch.zeros(2, 1)}, r"broadcast must return .* got .* \(2, 1\)"),
        (
            {"participates": torch.ones(4, dtype=torch.bool)},
            r"participates must return booleans .* = \(2, 4\), got \(4,\)",
        ),
        ({"participates": torch.ones(2, 4)}, "participates must return booleans of shape .* of torch.float32"),
    ],
)
def test_a_hook_that_answers_in_another_shape_is_named(trained, answers, message):
    with pytest.raises(ValueError, match=message):
        trained(Wrong(**answers), replicas=2)


def test_a_local_step_that_would_never_be_called_is_refused(trained):
    class Forgetful(Protection):
        def local_step(self, gradients, present, client, context, state, rng):
            return torch.zeros_like(gradients[:, 0])

    with pytest.raises(ValueError, match="Forgetful overrides local_step, so it must set per_sample = True"):
        trained(Forgetful())


def test_a_hook_is_overridden_by_a_class_or_on_the_object_and_by_nothing_else():
    class Base(Protection):
        def report(self, *given):
            return given[0]

    class Derived(Base):
        pass

    changed = Derived()
    changed.broadcast = lambda model, *facts: model
    names = {"report", "broadcast", "aggregate"}
    found = [{name for name in names if overrides(one, name)} for one in (Protection(), Base(), Derived(), changed)]
    assert found == [set(), {"report"}, {"report"}, {"report", "broadcast"}]
    assert changes_broadcast(changed)
    of_columns = type("OfColumns", (VerticalProtection,), {"columns": lambda self, values, *facts: values})()
    assert overrides(of_columns, "columns")
    assert not overrides(VerticalProtection(), "columns")


def test_a_plan_of_another_task_is_refused(make_task, make_plan):
    task = make_task()
    for other in (task.with_inert(1), task.restricted(clients=2, samples=3), make_task((6, 10, 3, 6))):
        with pytest.raises(ValueError, match="plan must have the task's sizes and layout"):
            run_federation(other, make_plan(task), Protection(), Streams(0))


@pytest.mark.parametrize("arm", [0, 1])
def test_a_canary_that_does_not_fit_is_refused_in_both_arms(trained, arm):
    for canary in (
        Canary(unit=Unit.SAMPLE, present=torch.ones(DIM), client=4),
        Canary(unit=Unit.CLIENT, present=torch.ones(1)),
    ):
        with pytest.raises(ValueError, match="canary's"):
            trained(canary=canary, arm=arm)


def test_lots_are_padded_with_samples_that_are_marked_absent(trained):
    """A protection gets (replicas, longest lot): the mask, not a zero, decides which rows count."""
    shapes = []

    class Counting(Protection):
        per_sample = True

        def local_step(self, gradients, present, client, context, state, rng):
            shapes.append((gradients.shape[1], present.sum(1)))
            return super().local_step(gradients, present, client, context, state, rng)

    trained(Counting(), sizes=(12,), replicas=6, lot=Poisson(0.4))
    assert all(width == int(counts.max()) for width, counts in shapes)
    assert any(int(counts.min()) < width for width, counts in shapes)


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


@pytest.mark.parametrize(
    ("values", "present", "senders", "expected"),
    [
        (
            [[1.0, 10.0], [1.0, 0.0], [0.0, 0.0]],
            [[True, True], [True, False], [False, False]],
            (0, 1),
            [(2 * 1 + 6 * 10) / 8, 1.0, 0.0],
        ),
        # A canary client weighs as the mean client.
        ([[1.0, 10.0]], [[True, True]], (1, 3), [(6 * 1 + 4 * 10) / 10]),
        # A shuffler hid the senders; a channel put them in another order.
        ([[1.0, 10.0, 0.0]], [[True, True, False]], None, [5.5]),
        ([[10.0, 1.0]], [[True, True]], (1, 0), [(2 * 1 + 6 * 10) / 8]),
    ],
)
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_the_aggregate_weighs_each_client_present_by_its_samples(plan, values, present, senders, expected, kind):
    message = received(values, present, senders)
    context = Context(plan=plan, round=0, replicas=len(values), senders=senders or (0, 1, 2))
    found = Protection().aggregate(message.with_values(message.values.to(kind)), context, {}, rng())
    assert found.dtype is torch.float32
    assert found.flatten().tolist() == pytest.approx(expected)


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


@pytest.mark.parametrize(
    ("base", "slip", "hook"),
    [
        (Protection, "reports", "report"),
        (Protection, "local_steps", "local_step"),
        (Protection, "agregate", "aggregate"),
        (VerticalProtection, "embedings", "embeddings"),
    ],
)
def test_a_method_that_is_nearly_named_like_a_hook_is_refused(base, slip, hook):
    with pytest.raises(TypeError, match=rf"Mine\.{slip} overrides no hook: did you mean {hook}\?"):
        type("Mine", (base,), {slip: lambda self, updates, context, state, rng: updates})


def test_methods_of_a_protection_s_own_and_overrides_of_them_are_none():
    theirs = type("Theirs", (Protection,), {"total": lambda self: 1, "_report": lambda self: 1, "reports": ()})
    assert type("Mine", (theirs,), {"total": lambda self: 2})().total() == 2
