"""Algorithms: steps computed by hand, Adam as PyTorch takes it, and the signs of updates and gradients.

SCAFFOLD in the engine: equal to a naive version with two uploads; which observers see the server's control.
"""

import pytest
import torch
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS
from fedassay.fl.algorithms import BoundedUpdate, FedAvg, FedProx, FedSGD, Scaffold, algorithm_from
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.sampling import FixedSize
from fedassay.fl.streams import Streams, normal

MODEL = torch.tensor([[1.0, -2.0], [0.5, 4.0]])
DIRECTION = torch.tensor([[0.5, 1.0], [-2.0, 0.0]])


def turn(algorithm, model, directions):
    """A client's turn: what it uploads after steps along the given directions."""
    local, state = model, algorithm.start(model)
    for direction in directions:
        local, state = algorithm.step(local, direction, state)
    return algorithm.update(model, local)


def test_fedsgd_uploads_minus_the_gradient_and_the_server_takes_the_step():
    algorithm = FedSGD(learning_rate=0.1)
    update = turn(algorithm, MODEL, [DIRECTION])
    assert update.tolist() == [[-0.5, -1.0], [2.0, 0.0]]
    torch.testing.assert_close(algorithm.combine(MODEL, update), torch.tensor([[0.95, -2.1], [0.7, 4.0]]))


def test_fedsgd_uploads_gradients_far_below_the_weights_last_digit_exactly():
    tiny = torch.tensor([[1e-12, -3e-9], [7e-20, 1.0]])
    assert torch.equal(turn(FedSGD(learning_rate=0.1), MODEL, [tiny]), -tiny)


def test_fedavg_uploads_the_difference_of_weights_after_its_steps():
    algorithm = FedAvg(learning_rate=0.5, local_steps=2, server_learning_rate=2.0)
    update = turn(algorithm, MODEL, [DIRECTION, 3 * DIRECTION])
    assert update.tolist() == [[-1.0, -2.0], [4.0, 0.0]]
    after = algorithm.combine(MODEL, update)
    assert after.tolist() == [[-1.0, -6.0], [8.5, 4.0]]
    assert torch.equal(algorithm.aggregate_between(MODEL, after), update)


@pytest.mark.parametrize(
    "algorithm", [FedSGD(learning_rate=0.3), FedAvg(learning_rate=0.2, local_steps=4)], ids=["fedsgd", "fedavg"]
)
def test_gradient_reads_an_upload_with_the_sign_and_scale_of_the_mean_direction(algorithm):
    update = turn(algorithm, MODEL, [DIRECTION] * algorithm.local_steps)
    torch.testing.assert_close(algorithm.gradient(update), DIRECTION)


def test_fedprox_pulls_each_step_back_to_the_model_it_began_at():
    """By hand: the first step is -.5 d; the second starts .5 |d| away, so its direction is d + 2 (-.5 d) = 0."""
    algorithm = FedProx(learning_rate=0.5, local_steps=2, mu=2.0, server_learning_rate=3.0)
    update = turn(algorithm, MODEL, [DIRECTION, DIRECTION])
    assert update.tolist() == [[-0.25, -0.5], [1.0, 0.0]]
    assert algorithm.combine(MODEL, update).tolist() == [[0.25, -3.5], [3.5, 4.0]]
    assert algorithm.linear_scale is None


def test_a_bounded_update_is_pulled_back_only_from_beyond_its_radius():
    """Along (3, 4), radius 2: a step to length 5 stays free; from there mu .1 pulls (5 - 2) back by .3 a step."""
    algorithm = BoundedUpdate(learning_rate=1.0, local_steps=2, mu=0.1, radius=2.0)
    away = torch.tensor([[-3.0, -4.0], [-0.6, -0.8]])
    first = turn(algorithm, torch.zeros(2, 2), [away])
    torch.testing.assert_close(first, -away)
    second = turn(algorithm, torch.zeros(2, 2), [away, torch.zeros(2, 2)])
    torch.testing.assert_close(second, torch.tensor([[3.0, 4.0], [0.6, 0.8]]) * torch.tensor([[4.7 / 5], [1.0]]))


def test_adam_steps_are_those_of_torch_and_start_afresh_each_round():
    algorithm = FedAvg(learning_rate=0.05, local_steps=7, optimizer="adam")
    directions = normal(Streams(1).generator("directions"), (7, 2, 2)) * torch.tensor([1e-3, 10.0])
    reference = MODEL.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([reference], lr=0.05)
    for direction in directions:
        reference.grad = direction.clone()
        optimizer.step()
    for _ in range(2):
        update = turn(algorithm, MODEL, directions)
        torch.testing.assert_close(update, reference.detach() - MODEL, rtol=1e-5, atol=1e-6)


def test_kept_moments_go_on_where_the_clients_last_round_left_them():
    """Two rounds of two steps are four steps of torch's Adam, each round on the server's own model."""
    algorithm = FedAvg(learning_rate=0.05, local_steps=2, optimizer="adam", keep_moments=True)
    directions = normal(Streams(1).generator("directions"), (4, 2, 2)) * torch.tensor([1e-3, 10.0])
    reference = MODEL.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([reference], lr=0.05)
    kept: dict[str, torch.Tensor] = {}
    for pair in (directions[:2], directions[2:]):
        local, state = MODEL, algorithm.start(MODEL, {}, kept)
        with torch.no_grad():
            reference.copy_(MODEL)
        for direction in pair:
            local, state = algorithm.step(local, direction, state)
            reference.grad = direction.clone()
            optimizer.step()
        kept = algorithm.keep(MODEL, local, state)
        torch.testing.assert_close(local, reference.detach(), rtol=1e-5, atol=1e-6)
    fresh = FedAvg(learning_rate=0.05, local_steps=2, optimizer="adam")
    assert fresh.keep(MODEL, MODEL, state) == {}


def test_a_suite_file_names_algorithms():
    assert algorithm_from({"name": "fedsgd", "learning_rate": 0.5}) == FedSGD(learning_rate=0.5)
    spec = {"name": "fedavg", "learning_rate": 1, "local_steps": 5, "optimizer": "adam"}
    assert algorithm_from(spec) == FedAvg(learning_rate=1, local_steps=5, optimizer="adam")
    assert spec["name"] == "fedavg"
    assert algorithm_from(spec | {"keep_moments": True}).keep_moments
    for wrong in ({"keep_moments": 1}, {"keep_moments": True, "optimizer": "sgd"}):
        with pytest.raises(ValueError, match="keep_moments"):
            algorithm_from(spec | wrong)
    prox = {"name": "fedprox", "learning_rate": 0.5, "local_steps": 2, "mu": 0.1}
    assert algorithm_from(prox) == FedProx(learning_rate=0.5, local_steps=2, mu=0.1)
    bounded = BoundedUpdate(learning_rate=0.5, local_steps=2, mu=0.1, radius=3.0)
    assert algorithm_from(prox | {"name": "bounded_update", "radius": 3.0}) == bounded
    scaffold = {"name": "scaffold", "learning_rate": 0.5, "local_steps": 2}
    assert algorithm_from(scaffold) == Scaffold(learning_rate=0.5, local_steps=2)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"name": "fedsdg", "learning_rate": 0.5}, "unknown algorithm 'fedsdg'; known: fedsgd, "),
        ({"learning_rate": 0.5}, "needs a name as its key name, got {'learning_rate': 0.5}"),
        ({"name": ["fedavg"]}, "needs a name as its key name"),
        ({"name": "fedavg", "learning_rate": 0.5}, "fedavg needs a value for local_steps"),
        ({"name": "fedavg", "learning_rate": 0.5, "local_steps": 1, "momentum": 0.9}, "momentum"),
        ({"name": "fedavg", "learning_rate": 0.5, "local_steps": 0}, "local_steps must be a whole number >= 1, got 0"),
        ({"name": "fedavg", "learning_rate": 0.5, "local_steps": 1, "optimizer": "sdg"}, "got 'sdg'"),
        ({"name": "fedavg", "learning_rate": 1.0, "local_steps": 1, "server_learning_rate": -1}, "got -1"),
        ({"name": "fedsgd", "learning_rate": 0.5, "local_steps": 2}, "FedSGD takes one local step"),
        ({"name": "fedsgd", "learning_rate": 0}, "learning_rate must be a number > 0, got 0"),
        ({"name": "fedprox", "learning_rate": 0.5, "local_steps": 2}, "fedprox needs a value for mu"),
        ({"name": "fedprox", "learning_rate": 0.5, "local_steps": 2, "mu": 0}, "mu must be a number > 0, got 0"),
        (
            {"name": "bounded_update", "learning_rate": 1, "local_steps": 1, "mu": 1, "radius": -1},
            "radius must be a number > 0, got -1",
        ),
        ({"name": "scaffold", "learning_rate": 0.5, "local_steps": 1, "mu": 1.0}, "mu"),
        # Noise laws are built on it: a suite file must not be able to set it.
        ({"name": "fedsgd", "learning_rate": 0.5, "linear_scale": 2.0}, "linear_scale"),
    ],
)
def test_a_bad_algorithm_is_refused_with_what_was_given(spec, message):
    with pytest.raises(ValueError, match=message):
        algorithm_from(spec)


ALGORITHM = Scaffold(learning_rate=0.2, local_steps=3, server_learning_rate=0.9)


def by_hand(task, model, cohorts):
    """Algorithm 1 of the paper for one replica, clients of equal size: both uploads, the actual share of clients."""
    control, own = torch.zeros_like(model), [torch.zeros_like(model) for _ in task.parts]
    for cohort in cohorts:
        moves, changes = [], []
        for client in cohort:
            part, local = task.parts[client], model
            for _ in range(ALGORITHM.local_steps):
                rows = task.network.sample_gradients(local[None], task.images[part][None], task.labels[part][None])
                local = local - 0.2 * (rows[0].mean(0) - own[client] + control)
            fresh = own[client] - control + (model - local) / (3 * 0.2)
            moves.append(local - model)
            changes.append(fresh - own[client])
            own[client] = fresh
        model = model + 0.9 * torch.stack(moves).mean(0)
        control = control + len(cohort) / len(task.parts) * torch.stack(changes).mean(0)
    return model, control


def test_every_replica_is_the_papers_algorithm_on_its_own_cohorts(trained):
    done = trained(sizes=(5,) * 4, seed=3, replicas=3, algorithm=ALGORITHM, rounds=5, cohort=FixedSize(2))
    task, final, tape = done.task, done.final, done.tape
    initial = task.network.initial(Streams(3).generator("init"))
    for replica in range(3):
        there = [(event.reports.present[replica], event.reports.senders) for event in tape.events]
        cohorts = [[k for k, came in zip(senders, row, strict=True) if came] for row, senders in there]
        model, _ = by_hand(task, initial, cohorts)
        torch.testing.assert_close(final[replica], model, rtol=1e-4, atol=1e-5)
        _, control = by_hand(task, initial, cohorts[:-1])
        torch.testing.assert_close(tape.events[-1].shared["control"][replica], control, rtol=1e-4, atol=1e-5)


def test_only_observers_of_the_models_get_the_servers_control(trained):
    watching = {o: ViewRecorder(observer=o, coordinates=slice(0, 4)) for o in (AGGREGATE, GLOBAL_MODELS, FINAL_MODEL)}
    done = trained(algorithm=ALGORITHM, recorders=watching.values())
    for observer, recorder in watching.items():
        shared = [seen.shared for seen in recorder.view(done.plan, done.final).rounds]
        assert all(("control" in seen) == (observer is not FINAL_MODEL) for seen in shared)
        assert observer is FINAL_MODEL or shared[1]["control"].shape == (1, 4)
