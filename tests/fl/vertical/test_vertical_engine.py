"""The vertical engine against centralised training, autograd, and itself one replica at a time."""

from dataclasses import replace

import pytest
import torch
from fedassay.audit.observer import ACTIVE_PARTY, FINAL_MODEL, PASSIVE_PARTY, UPLOADS
from fedassay.fl.streams import Runs, Streams, normal
from fedassay.fl.vertical.engine import Planted, run_vertical
from fedassay.fl.vertical.network import Stack, VerticalNetwork, row_norms, weighted_sum
from fedassay.fl.vertical.protection import VerticalPlan, VerticalProtection
from fedassay.fl.vertical.task import People, VerticalTask, column_groups, predicted
from fedassay.fl.vertical.view import VerticalRecorder
from torch import nn

STREAMS = Streams(7)


def people(n: int, widths: tuple[int, ...], classes: int, purpose: str) -> People:
    rng = STREAMS.generator(purpose)
    labels = torch.from_numpy(rng.integers(classes, size=n))
    centres = normal(STREAMS.generator("centres"), (classes, sum(widths)))
    rows = centres[labels] + 0.3 * normal(rng, (n, sum(widths)))
    return People(columns=tuple(torch.split(rows, list(widths), dim=1)), labels=labels)


def small(network: VerticalNetwork, n: int = 20, **plan: object) -> tuple[VerticalTask, VerticalPlan]:
    groups, start = [], 0
    for width in network.widths:
        groups.append(tuple(range(start, start + width)))
        start += width
    task = VerticalTask(
        network=network,
        people=people(n, network.widths, network.classes, "people"),
        public=people(10, network.widths, network.classes, "public"),
        test=people(200, network.widths, network.classes, "test"),
        groups=tuple(groups),
        shape=(1, 1, start),
    )
    settings = {"epochs": 2, "batch": 8, "learning_rate": 0.5} | plan
    return task, VerticalPlan(people=n, network=network, **settings)  # type: ignore[arg-type]


LOGISTIC = VerticalNetwork(widths=(3, 2), classes=3, embedding=3, summed=True)
SPLIT = VerticalNetwork(widths=(3, 4, 0), classes=3, embedding=2, hidden=(5,), top_hidden=(6,))


class Noise(VerticalProtection):
    def embeddings(self, values, party, context, rng):
        return values + normal(rng, tuple(values.shape))

    def gradients(self, values, party, context, rng):
        return values + normal(rng, tuple(values.shape))


def test_vertical_logistic_regression_is_the_centralised_one():
    task, plan = small(LOGISTIC)
    final = run_vertical(task, plan, VerticalProtection(), STREAMS)
    rows = torch.cat(task.people.columns, dim=1)
    start = LOGISTIC.initial(STREAMS)
    weight = torch.cat([layers[0][0, :-1] for layers in start.bottoms]).clone().requires_grad_()
    bias = torch.zeros(3, requires_grad=True)
    for epoch in range(2):
        order = torch.from_numpy(STREAMS.generator("order", round=epoch).permutation(20))
        for batch in torch.split(order, 8):
            loss = nn.functional.cross_entropy(rows[batch] @ weight + bias, task.people.labels[batch])
            by_weight, by_bias = torch.autograd.grad(loss, (weight, bias))
            with torch.no_grad():
                # Each of the two parties has a bias of its own, and both move by the same gradient.
                weight -= 0.5 * by_weight
                bias -= 2 * 0.5 * by_bias
    found = torch.cat([layers[0][0, :-1] for layers in final.bottoms])
    torch.testing.assert_close(found, weight.detach())
    torch.testing.assert_close(sum(layers[0][0, -1] for layers in final.bottoms), bias.detach())


def test_one_step_of_split_learning_is_autograds():
    task, plan = small(SPLIT, n=8, epochs=1)
    final = run_vertical(task, plan, VerticalProtection(), STREAMS)
    start = SPLIT.initial(STREAMS)
    flat = [layer[0].clone().requires_grad_() for layers in (*start.bottoms, start.top) for layer in layers]

    def stack(layers, rows):
        for number, layer in enumerate(layers):
            rows = torch.relu(rows) if number else rows
            rows = torch.cat([rows, torch.ones(len(rows), 1)], dim=1) @ layer
        return rows

    order = torch.from_numpy(STREAMS.generator("order", round=0).permutation(8))
    outputs = [stack(flat[2 * party : 2 * party + 2], task.people.columns[party][order]) for party in range(3)]
    loss = nn.functional.cross_entropy(stack(flat[6:], torch.cat(outputs, dim=1)), task.people.labels[order])
    loss.backward()
    wanted = [layer.detach() - 0.5 * layer.grad for layer in flat]
    found = [layer[0] for layers in (*final.bottoms, final.top) for layer in layers]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_norms_and_weighted_sums_are_those_of_each_rows_own_gradient():
    one, rng = Stack((3, 4, 2)), STREAMS.generator("x")
    layers, rows = one.initial(rng), normal(rng, (1, 5, 3))
    outputs, held = one.forward(layers, rows)
    back = normal(rng, tuple(outputs.shape))
    gradients, _ = one.backward(layers, held, back)
    own = []
    for row in range(5):
        only = torch.zeros(1, 5)
        only[0, row] = 1
        own.append(weighted_sum(held, gradients, only)[0])
    assert len(own[0]) == one.dim
    torch.testing.assert_close(row_norms(held, gradients)[0], torch.stack(own).norm(dim=1))
    weights = torch.tensor([[0.5, 0, 1, 2, -1]])
    torch.testing.assert_close(weighted_sum(held, gradients, weights)[0], weights[0] @ torch.stack(own))


@pytest.mark.parametrize("network", [LOGISTIC, SPLIT])
def test_replicas_of_planted_labels_are_runs_of_their_own(network):
    task, plan = small(network)
    other = task.people.labels.clone()
    other[4] = (other[4] + 1) % 3
    both = run_vertical(
        task,
        plan,
        VerticalProtection(),
        STREAMS,
        runs=Runs(replicas=2),
        planted=Planted(labels=torch.stack([task.people.labels, other])),
    )
    for replica, labels in enumerate((task.people.labels, other)):
        alone = replace(task, people=replace(task.people, labels=labels))
        one = run_vertical(alone, plan, VerticalProtection(), STREAMS)
        for found, wanted in zip(both.bottoms[0], one.bottoms[0], strict=True):
            torch.testing.assert_close(found[replica], wanted[0])


def test_planted_rows_are_one_persons_columns_of_one_party():
    task, plan = small(SPLIT)
    crafted = torch.full((1, 4), 3.0)
    found = run_vertical(task, plan, VerticalProtection(), STREAMS, planted=Planted(person=4, rows={1: crafted}))
    columns = [block.clone() for block in task.people.columns]
    columns[1][4] = 3.0
    alone = replace(task, people=replace(task.people, columns=tuple(columns)))
    wanted = run_vertical(alone, plan, VerticalProtection(), STREAMS)
    torch.testing.assert_close(found.top, wanted.top)


def test_each_observer_sees_its_own_messages_and_no_more():
    task, plan = small(SPLIT, epochs=1)
    kept = {seen.name: VerticalRecorder(observer=seen) for seen in (PASSIVE_PARTY, ACTIVE_PARTY, FINAL_MODEL)}
    final = run_vertical(task, plan, VerticalProtection(), STREAMS, recorders=list(kept.values()))
    known = {"columns": task.people.columns, "labels": task.people.labels}
    passive, active, public = (one.view(plan, final, **known) for one in kept.values())
    assert (passive.labels, passive.final, len(passive.steps)) == (None, None, 3)
    assert all(step.gradients is not None and not step.embeddings and step.top is None for step in passive.steps)
    assert all(len(step.embeddings) == 2 and step.gradients is None and step.bottom is None for step in active.steps)
    assert public.final is final
    assert (public.steps, public.columns, public.labels) == ((), None, None)
    with pytest.raises(ValueError, match="passive_party, active_party or final_model"):
        VerticalRecorder(observer=UPLOADS)


def test_gradients_sent_are_those_of_each_persons_own_loss():
    task, plan = small(LOGISTIC, epochs=1)
    seen = VerticalRecorder(observer=PASSIVE_PARTY)
    final = run_vertical(task, plan, VerticalProtection(), STREAMS, recorders=[seen])
    step = seen.view(plan, final, columns=task.people.columns, labels=task.people.labels).steps[0]
    at_label = step.gradients[0].gather(1, task.people.labels[step.people].unsqueeze(1))
    assert (at_label < 0).all()
    assert ((step.gradients[0] < 0).sum(1) == 1).all()


def test_noise_differs_between_replicas_steps_parties_and_blocks():
    task, plan = small(SPLIT, epochs=1)
    events = []

    class Keep:
        def watch(self, event):
            events.append(event)

    for block in (0, 1):
        run_vertical(task, plan, Noise(), STREAMS, runs=Runs(replicas=2, block=block), recorders=[Keep()])
    first = [values for event in events for values in (*event.embeddings, *event.gradients)]
    flat = torch.stack([one[replica, 0] for one in first if one.shape[1] == 8 for replica in (0, 1)])
    assert len({tuple(row.tolist()) for row in flat}) == len(flat)


def test_embeddings_sent_once_are_drawn_once():
    class Once(Noise):
        sends_once = True

    task, plan = small(SPLIT, epochs=2, frozen=True)
    kept = VerticalRecorder(observer=ACTIVE_PARTY)
    run_vertical(task, plan, Once(), STREAMS, recorders=[kept])
    assert [bool(step.embeddings) for step in kept._steps] == [True] * 3 + [False] * 3
    with pytest.raises(ValueError, match="frozen = true"):
        run_vertical(task, replace(plan, frozen=False), Once(), STREAMS)


def test_the_gradient_passes_through_a_clip_and_past_a_randomiser():
    class Clip(VerticalProtection):
        def embeddings(self, values, party, context, rng):
            return values * (0.1 / values.norm(dim=-1, keepdim=True)).clamp(max=1)

    class Signs(VerticalProtection):
        def embeddings(self, values, party, context, rng):
            return torch.sign(values).detach()

    task, plan = small(SPLIT, n=8, epochs=1)
    plain = run_vertical(task, plan, VerticalProtection(), STREAMS)
    for one in (Clip(), Signs()):
        found = run_vertical(task, plan, one, STREAMS)
        assert not torch.equal(found.bottoms[0][0], SPLIT.initial(STREAMS).bottoms[0][0])
        assert not torch.equal(found.bottoms[0][0], plain.bottoms[0][0])


def test_a_frozen_bottom_keeps_its_initial_parameters():
    task, plan = small(SPLIT, frozen=True)
    found, start = run_vertical(task, plan, VerticalProtection(), STREAMS), SPLIT.initial(STREAMS)
    assert torch.equal(found.bottoms[1][0], start.bottoms[1][0])
    assert not torch.equal(found.top[0], start.top[0])


@pytest.mark.parametrize(
    ("columns", "active", "words"),
    [
        (1, True, "in 2..4"),
        (5, False, "in 1..4"),
        (((0, 1), (1, 2)), False, "twice"),
        (((0, 9),), False, "0..7"),
        (((0,), ()), False, "at least one column"),
    ],
)
def test_wrong_columns_are_refused(columns, active, words):
    with pytest.raises(ValueError, match=words):
        column_groups((1, 2, 4), columns, active=active)


NAMED = (("age", 1), ("job", 4), ("income", 1), ("city", 2))


@pytest.mark.parametrize(
    ("columns", "groups"),
    [
        (3, [[0], range(1, 5), range(5, 8)]),
        (2, [range(5), range(5, 8)]),
        (4, [[0], range(1, 5), [5], [6, 7]]),
        ((("income", "age"), ("job",)), [[5, 0], range(1, 5)]),
        (((0, "city"), (3,)), [[0, 6, 7], [3]]),
    ],
)
def test_columns_of_a_table_are_held_whole_and_by_name(columns, groups):
    held = tuple(tuple(group) for group in groups)
    assert column_groups((1, 1, 8), columns, active=True, named=NAMED) == held


def test_every_party_holds_a_column_however_wide_the_first_one_is():
    groups = column_groups((1, 1, 12), 3, active=True, named=(("city", 10), ("age", 1), ("income", 1)))
    assert groups == (tuple(range(10)), (10,), (11,))


@pytest.mark.parametrize(
    ("columns", "named", "words"),
    [
        (5, NAMED, r"in 1\.\.4"),
        ((("aeg",),), NAMED, "unknown column 'aeg'; known: age"),
        ((("age",),), (), "have no names"),
        ((("job",), (2,)), NAMED, r"columns: .* twice: \['job'\]"),
        ((("age", "city"), ("city", "age")), NAMED, r"columns: .* twice: \['age', 'city'\]"),
    ],
)
def test_unknown_names_of_columns_are_refused(columns, named, words):
    with pytest.raises(ValueError, match=words):
        column_groups((1, 1, 8), columns, active=False, named=named)


def test_strips_of_an_image_are_its_left_and_right_half():
    assert column_groups((1, 2, 4), 2, active=True) == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert column_groups((1, 2, 4), 2, active=False)[-1] == ()


HOOKS = ("columns", "targets", "embeddings", "residuals", "gradients", "bottom_weights", "bottom_sum")
RETURNED = {
    "double": (lambda values: values.double(), "got torch.Tensor of torch.float64 and shape"),
    "array": (lambda values: values.detach().numpy(), "got numpy.ndarray of float32 and shape"),
    "nothing": (lambda values: None, "got None"),
    "number": (lambda values: 3.0, "got 3.0 .float"),
    "one row": (lambda values: values[:1], "got torch.Tensor of torch.float32 and shape"),
}


def returning(hook, change):
    return type("Returning", (VerticalProtection,), {hook: lambda self, values, *rest: change(values)})()


@pytest.mark.parametrize("found", RETURNED)
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_returns_another_type_or_shape_is_named(hook, found):
    task, plan = small(SPLIT)
    change, words = RETURNED[found]
    if (hook, found) == ("bottom_weights", "nothing"):
        run_vertical(task, plan, returning(hook, change), STREAMS)
        return
    with pytest.raises(ValueError, match=f"hook {hook} must return a torch.Tensor of torch.float32 .*, {words}"):
        run_vertical(task, plan, returning(hook, change), STREAMS, runs=Runs(replicas=2))


@pytest.mark.parametrize("found", RETURNED)
@pytest.mark.parametrize("hook", ["columns", "evaluated"])
def test_a_hook_for_new_people_that_returns_another_type_or_shape_is_named(hook, found):
    task, plan = small(SPLIT)
    models = run_vertical(task, plan, VerticalProtection(), STREAMS, runs=Runs(replicas=2))
    change, words = RETURNED[found]
    with pytest.raises(ValueError, match=f"hook {hook} must return a torch.Tensor of torch.float32 .*, {words}"):
        predicted(models, task.test, plan, returning(hook, change), STREAMS)


@pytest.mark.parametrize("hook", ["columns", "evaluated"])
def test_numbers_of_new_people_that_are_not_finite_are_the_hooks(hook):
    task, plan = small(SPLIT)
    models = run_vertical(task, plan, VerticalProtection(), STREAMS)
    with pytest.raises(FloatingPointError, match=f"hook {hook} returned NaN or infinity"):
        predicted(models, task.test, plan, returning(hook, lambda values: values * float("nan")), STREAMS)


def test_a_speed_is_a_factor_on_the_learning_rate_of_one_passive_party():
    task, plan = small(SPLIT, n=8, epochs=1)
    start = SPLIT.initial(STREAMS)
    plain, fast = (run_vertical(task, plan, VerticalProtection(), STREAMS, speeds=speeds) for speeds in ({}, {1: 3.0}))
    for one, other, layer in zip(plain.bottoms[1], fast.bottoms[1], start.bottoms[1], strict=True):
        torch.testing.assert_close(other - layer, 3 * (one - layer))
    assert torch.equal(plain.bottoms[0][0], fast.bottoms[0][0])
    assert torch.equal(plain.top[0], fast.top[0])


@pytest.mark.parametrize(("speeds", "words"), [({2: 2.0}, "0..1"), ({0: 0.0}, "speed must be a number > 0")])
def test_wrong_speeds_are_refused(speeds, words):
    task, plan = small(SPLIT)
    with pytest.raises(ValueError, match=words):
        run_vertical(task, plan, VerticalProtection(), STREAMS, speeds=speeds)


def test_the_active_party_sees_the_gradients_that_it_sends_and_each_party_its_own_final_model():
    task, plan = small(SPLIT, epochs=1)
    recorders = [VerticalRecorder(observer=PASSIVE_PARTY, party=1), VerticalRecorder(observer=ACTIVE_PARTY)]
    final = run_vertical(task, plan, Noise(), STREAMS, recorders=recorders)
    passive, active = (
        one.view(plan, final, columns=task.people.columns, labels=task.people.labels) for one in recorders
    )
    for received, sent in zip(passive.steps, active.steps, strict=True):
        assert torch.equal(received.gradients, sent.returned[1])
    assert passive.own is final.bottoms[1]
    assert active.own is final.bottoms[2]
