"""Local training: a client's turn as a plain loop over its lots takes it, whichever way gradients are computed."""

import pytest
import torch
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.engine import run_federation
from fedassay.fl.models.network import Network
from fedassay.fl.models.small_models import build_model
from fedassay.fl.protection import Context, Protection
from fedassay.fl.sampling import FixedSize, Full, Poisson
from fedassay.fl.streams import Streams, normal
from fedassay.fl.training.executors.sequential import Sequential
from fedassay.fl.training.local import Batch
from torch.nn.functional import cross_entropy

CLIENT = 1


class PerSample(Protection):
    """No protection, taken the long way: per-sample gradients and their mean."""

    per_sample = True


def turn(task, plan, *, protection=None, replicas=1, client=CLIENT, number=0, world=0, block=0):
    """One client's turn from a random model, different in each replica: the models and the result."""
    batch = Batch(replicas=replicas, world=world, block=block)
    trainer = Sequential(task=task, protection=protection or Protection(), streams=Streams(0), batch=batch, canary=None)
    rng, shape = Streams(0).generator("models"), (replicas, plan.layout.dim)
    model = 0.1 * normal(rng, shape, dtype=task.images.dtype)
    return model, trainer.train(model, client, Context(plan=plan, round=number, replicas=replicas), {})


def naive_update(task, start, lots, algorithm, client=CLIENT):
    """A module, ``backward`` and a torch optimiser; a step on an empty lot is a step along a zero gradient."""
    module = build_model(task.network.model, shape=task.network.shape, classes=task.network.classes).to(start.dtype)
    torch.nn.utils.vector_to_parameters(start.clone(), module.parameters())  # It would share the memory.
    adam = getattr(algorithm, "optimizer", "sgd") == "adam"
    optimizer = (torch.optim.Adam if adam else torch.optim.SGD)(module.parameters(), lr=algorithm.learning_rate)
    for mask in lots:
        drawn = task.parts[client][mask]
        optimizer.zero_grad()
        (cross_entropy(module(task.images[drawn]), task.labels[drawn], reduction="sum") / max(1, len(drawn))).backward()
        optimizer.step()
    moved = torch.nn.utils.parameters_to_vector(module.parameters()).detach() - start
    return moved / algorithm.learning_rate if isinstance(algorithm, FedSGD) else moved


@pytest.mark.parametrize(
    "algorithm",
    [
        FedSGD(learning_rate=0.5),
        FedAvg(learning_rate=0.2, local_steps=4),
        FedAvg(learning_rate=0.01, local_steps=4, optimizer="adam"),
    ],
    ids=["fedsgd", "fedavg", "adam"],
)
@pytest.mark.parametrize(("model", "side"), [("logistic", 4), ("lenet", 7)])
@pytest.mark.parametrize("lot", [Full(), Poisson(0.2), FixedSize(3)], ids=str)
@pytest.mark.parametrize("replicas", [1, 4])
def test_a_turn_is_the_plain_loop_over_the_same_lots(
    make_task, make_plan, in_double, algorithm, model, side, lot, replicas
):
    task = in_double(make_task(model=model, side=side))
    plan = make_plan(task, algorithm=algorithm, lot=lot)
    models, result = turn(task, plan, replicas=replicas)
    assert len(result.lots) == algorithm.local_steps
    for replica, start in enumerate(models):
        naive = naive_update(task, start, [mask[replica] for mask in result.lots], algorithm)
        # The samples' weights are single precision: 6e-8 of what they weigh.
        torch.testing.assert_close(result.update[replica], naive, rtol=1e-6, atol=1e-6)


class ByFlatVectors(FedAvg):
    """The same algorithm; a subclass could step otherwise, so its steps are taken by the method ``step``."""


@pytest.mark.parametrize("model", ["mlp", "lenet", "lenet_dropout", "lenet_bn"])
def test_steps_layer_by_layer_are_those_of_the_algorithm(make_task, make_plan, monkeypatch, model):
    task = make_task((6, 1, 3, 5), model=model, side=7, inert=2)
    steps, descend = [], Network.descend
    monkeypatch.setattr(Network, "descend", lambda *given: steps.append(1) or descend(*given))
    for client in (0, 1):
        found = []
        for algorithm in (FedAvg, ByFlatVectors):
            plan = make_plan(task, lot=Poisson(0.4), algorithm=algorithm(learning_rate=0.3, local_steps=4))
            found.append(turn(task, plan, client=client)[1])
        assert torch.equal(torch.stack(found[0].lots), torch.stack(found[1].lots))
        torch.testing.assert_close(found[0].update, found[1].update, rtol=1e-4, atol=1e-6)
        # Neither a subclass nor an empty lot takes such a step.
        assert len(steps) == sum(int(mask.any()) for mask in found[0].lots)
        steps.clear()


def test_poisson_lots_of_four_replicas_hold_an_empty_one_and_unequal_ones(make_task, make_plan):
    """What the comparison above covered: without these cases the padding would not have been tested."""
    task = make_task()
    plan = make_plan(task, lot=Poisson(0.2), algorithm=FedAvg(learning_rate=0.5, local_steps=4))
    sizes = torch.stack(turn(task, plan, replicas=4)[1].lots).sum(-1)
    assert int(sizes.min()) == 0
    assert int(sizes.max()) > 2


@pytest.mark.parametrize(("model", "side"), [("logistic", 4), ("mlp", 4), ("lenet", 7)])
@pytest.mark.parametrize("replicas", [1, 3])
def test_per_sample_gradients_and_plain_sums_lead_to_the_same_update(make_task, make_plan, model, side, replicas):
    task = make_task(model=model, side=side, inert=1)
    plan = make_plan(task, lot=Poisson(0.4))
    _, short = turn(task, plan, replicas=replicas)
    _, long = turn(task, plan, replicas=replicas, protection=PerSample())
    torch.testing.assert_close(short.update, long.update, rtol=1e-4, atol=1e-6)
    assert short.update.abs().max() > 1e-3
    assert not short.update[:, -1].any()


def test_one_sample_alone_uploads_minus_its_gradient_to_the_last_digit(make_task, make_plan):
    task = make_task((1, 1))
    plan = make_plan(task, algorithm=FedSGD(learning_rate=0.5))
    models, result = turn(task, plan)
    sample = task.parts[CLIENT]
    gradient = task.network.sample_gradients(models, task.images[sample][None], task.labels[sample][None])
    torch.testing.assert_close(result.update, -gradient[:, 0], rtol=1e-6, atol=0)


def test_every_step_round_client_block_and_arm_draws_its_own_lot(make_task, make_plan):
    task = make_task((64, 64))
    plan = make_plan(task, lot=Poisson(0.5))
    lots = [
        mask
        for client in (0, 1)
        for number in (0, 1)
        for block in (0, 1)
        for world in (0, 1)
        for mask in turn(task, plan, client=client, number=number, block=block, world=world)[1].lots
    ]
    assert len({tuple(mask[0].tolist()) for mask in lots}) == len(lots) == 32


def test_without_a_canary_a_lot_is_of_the_clients_own_samples_only(make_task, make_plan):
    task = make_task()
    lots = turn(task, make_plan(task, lot=FixedSize(3)), replicas=200)[1].lots
    assert [tuple(mask.shape) for mask in lots] == [(200, task.sizes[CLIENT])] * 2
    assert all(bool((mask.sum(1) == 3).all()) for mask in lots)


def test_a_clients_lots_do_not_depend_on_who_else_there_is(make_task, make_plan):
    few, many = make_task((6, 10)), make_task((6, 10, 30, 5))
    lots = [turn(task, make_plan(task, lot=Poisson(0.5)))[1].lots for task in (few, many)]
    assert all(torch.equal(*pair) for pair in zip(*lots, strict=True))


def test_a_local_step_that_mixes_replicas_up_is_refused(make_task, make_plan):
    class OneForAll(PerSample):
        def local_step(self, gradients, present, client, context, state, rng):
            return gradients.mean((0, 1))

    task = make_task()
    with pytest.raises(ValueError, match=r"hook local_step must return .* shape \(3, 51\), one row per replica, got"):
        turn(task, make_plan(task), replicas=3, protection=OneForAll())


@pytest.mark.parametrize("fields", [{"replicas": 0}, {"block": -1}, {"world": 2}])
def test_a_batch_of_nothing_or_of_a_third_arm_is_refused(fields):
    with pytest.raises(ValueError, match="replicas must be >= 1, block >= 0 and world 0 or 1"):
        Batch(**fields)


def test_adams_moments_stay_with_each_client_and_replica_that_took_part(make_task, make_plan, make_tape, in_double):
    """Compared with torch's own optimisers, one per client and replica, each used only in that client's rounds."""
    task, tape = in_double(make_task((5, 5, 5))), make_tape()
    algorithm = FedAvg(learning_rate=0.05, local_steps=2, optimizer="adam", keep_moments=True)
    plan = make_plan(task, algorithm=algorithm, rounds=4, cohort=FixedSize(2))
    final = run_federation(task, plan, Protection(), Streams(3), batch=Batch(replicas=2), recorders=[tape])
    for replica in range(2):
        model = task.network.initial(Streams(3).generator("init"))
        points = [model.clone().requires_grad_(True) for _ in task.parts]
        optimisers = [torch.optim.Adam([point], lr=0.05) for point in points]
        for event in tape.events:
            locals_ = []
            there = zip(event.reports.senders, event.reports.present[replica], strict=True)
            for client in [sender for sender, came in there if came]:
                part, point = task.parts[client], points[client]
                point.data = model.clone()
                for _ in range(2):
                    lot = task.images[part][None], task.labels[part][None]
                    rows = task.network.sample_gradients(point.detach()[None], *lot)
                    point.grad = rows[0].mean(0)
                    optimisers[client].step()
                locals_.append(point.detach().clone())
            model = torch.stack(locals_).mean(0)
        torch.testing.assert_close(final[replica], model, rtol=1e-6, atol=1e-6)
