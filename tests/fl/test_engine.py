"""Engine: the round loop against a plain one, replica by replica, and every hook in its place."""

import copy
import random

import numpy as np
import pytest
import torch
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.engine import run_federation
from fedassay.fl.models.small_models import build_model
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import FixedSize, Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.training.executor_choice import executor_named
from torch.nn.functional import cross_entropy

DP_SGD = DPSGDProtection(clip_norm=0.5, noise_multiplier=0.8)
DP_FEDAVG = DPFedAvgProtection(clip_norm=0.5, noise_multiplier=0.8)
LDP = LDPGaussianProtection(clip_norm=0.5, noise_std=0.3)


def naive_module(task, seed):
    """The model with the initial weights that the engine's ``init`` stream gives."""
    network = task.network
    module = build_model(network.model, shape=network.shape, classes=network.classes)
    torch.nn.utils.vector_to_parameters(network.initial(Streams(seed).generator("init")), module.parameters())
    return module


def flat(module):
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach()


@pytest.mark.parametrize(("model", "side"), [("logistic", 4), ("lenet", 7)])
def test_fedavg_is_the_plain_loop_of_the_paper(make_task, trained, model, side):
    task = make_task(model=model, side=side)
    server = naive_module(task, seed=5)
    for _ in range(4):
        mean = torch.zeros_like(flat(server))
        for part in task.parts:
            client = copy.deepcopy(server)
            optimizer = torch.optim.SGD(client.parameters(), lr=0.3)
            for _ in range(3):
                optimizer.zero_grad()
                cross_entropy(client(task.images[part]), task.labels[part]).backward()
                optimizer.step()
            mean += flat(client) * len(part) / sum(task.sizes)
        torch.nn.utils.vector_to_parameters(mean, server.parameters())
    final = trained(task=task, seed=5, rounds=4, algorithm=FedAvg(learning_rate=0.3, local_steps=3)).final
    torch.testing.assert_close(final[0], flat(server), rtol=0, atol=1e-5)
    assert float((final[0] - flat(naive_module(task, seed=5))).abs().max()) > 0.1


def test_fedsgd_with_poisson_lots_and_cohorts_is_the_plain_loop_on_the_same_draws(trained):
    changes = {"cohort": Poisson(0.6), "lot": Poisson(0.3), "algorithm": FedSGD(learning_rate=0.7)}
    done = trained(seed=5, replicas=3, rounds=6, **changes)
    task = done.task
    for replica in range(3):
        server = naive_module(task, seed=5)
        for event in done.events:
            present = event.reports.present[replica].tolist()
            cohort = [k for k, here in zip(event.reports.senders, present, strict=True) if here]
            total = torch.zeros_like(flat(server))
            for client in cohort:
                drawn = task.parts[client][event.lots[client][0][replica]]
                if len(drawn):
                    server.zero_grad()
                    cross_entropy(server(task.images[drawn]), task.labels[drawn]).backward()
                    gradient = torch.cat([weights.grad.flatten() for weights in server.parameters()])
                    total += gradient * task.sizes[client] / sum(task.sizes[k] for k in cohort)
            torch.nn.utils.vector_to_parameters(flat(server) - 0.7 * total, server.parameters())
        torch.testing.assert_close(done.final[replica], flat(server), rtol=0, atol=1e-5)


@pytest.mark.parametrize("executor", ["sequential", "batched"])
def test_an_algorithm_that_steps_in_place_is_refused(make_task, make_plan, executor):
    class InPlace(FedAvg):
        def step(self, local, direction, state):
            local -= self.learning_rate * direction
            return local, state

    task = make_task()
    plan = make_plan(task, algorithm=InPlace(learning_rate=0.3, local_steps=2))
    with pytest.raises(ValueError, match="InPlace or Protection changed in place the model that clients receive"):
        run_federation(task, plan, Protection(), Streams(0), executor=executor_named(executor))


@pytest.mark.parametrize(
    ("protection", "changes"),
    [
        (DP_SGD, {}),
        (DP_FEDAVG, {}),
        (LDP, {}),
        (Protection(), {"lot": Poisson(0.5)}),
        (Protection(), {"cohort": FixedSize(2)}),
    ],
    ids=["dp_sgd", "dp_fedavg", "ldp", "lots", "cohorts"],
)
def test_replicas_blocks_and_arms_share_no_chance(trained, protection, changes):
    finals = [
        trained(protection, seed=1, replicas=3, block=block, arm=arm, **changes).final
        for block in (0, 1)
        for arm in (0, 1)
    ]
    models = torch.cat(finals)
    distances = torch.cdist(models, models) + torch.eye(12)
    assert float(distances.min()) > 1e-3


def test_all_replicas_of_all_blocks_and_arms_start_from_one_model(trained):
    for block, arm in ((0, 0), (3, 0), (0, 1)):
        done = trained(DP_SGD, seed=1, replicas=2, block=block, arm=arm)
        initial = done.task.network.initial(Streams(1).generator("init"))
        assert torch.equal(done.events[0].broadcast, initial.expand(2, -1))


@pytest.mark.parametrize("protection", [DP_SGD, DP_FEDAVG, LDP], ids=["dp_sgd", "dp_fedavg", "ldp"])
def test_a_defense_shifts_neither_init_nor_cohorts_nor_lots(trained, protection):
    changes = {"cohort": Poisson(0.7), "lot": Poisson(0.5), "rounds": 4}
    undefended, defended = (trained(one, seed=7, replicas=3, **changes).tape for one in (None, protection))
    assert defended.masks() == undefended.masks()
    assert torch.equal(defended.events[0].broadcast, undefended.events[0].broadcast)
    assert not torch.equal(defended.events[1].broadcast, undefended.events[1].broadcast)


def test_cohorts_are_drawn_at_their_rate_anew_in_every_round(trained):
    done = trained(sizes=(1, 1, 1), seed=2, replicas=2000, cohort=Poisson(0.3), algorithm=FedSGD(learning_rate=0.1))
    present = torch.stack([event.reports.present for event in done.events]).double()
    assert present.shape == (3, 2000, 3)
    # Nine rates of 2,000 draws each, five standard errors; so are the correlations between rounds and between clients.
    assert float((present.mean(1) - 0.3).abs().max()) < 5 * (0.3 * 0.7 / 2000) ** 0.5
    correlations = torch.corrcoef(present.permute(0, 2, 1).reshape(9, 2000)) - torch.eye(9)
    assert float(correlations.abs().max()) < 5 / 2000**0.5


@pytest.mark.parametrize("changes", [{"lot": Poisson(1e-9)}, {"cohort": Poisson(1e-9)}], ids=["lots", "cohorts"])
def test_with_an_empty_cohort_an_undefended_model_stays_and_a_noisy_one_moves_by_noise_alone(trained, changes):
    still, moved = (trained(protection, seed=1, replicas=2, **changes) for protection in (None, DP_FEDAVG))
    initial = still.task.network.initial(Streams(1).generator("init"))
    assert torch.equal(still.final, initial.expand(2, -1))
    assert all(event.aggregate.shape == (2, 51) and not event.aggregate.any() for event in still.events)
    assert [len(event.reports.senders) for event in still.events] == [0 if "cohort" in changes else 4] * 3
    step = 0.8 * 0.5 / still.plan.expected_cohort * 3**0.5
    # 102 numbers: their deviation is known to 7%; five of these are allowed.
    assert float((moved.final - initial).std()) == pytest.approx(step, rel=0.35)


def test_a_client_that_diverges_spoils_no_replica_that_it_is_absent_from(trained):
    class Diverging(Protection):
        per_sample = True

        def local_step(self, gradients, present, client, context, state, rng):
            return torch.full_like(gradients[:, 0], torch.inf)

    done = trained(Diverging(), sizes=(4, 3), seed=3, replicas=40, cohort=Poisson(0.4), rounds=1)
    assert torch.equal(done.final.isfinite().all(1), ~done.events[0].reports.present.any(1))


class Thinning(Protection):
    """Client 0 is never let in, and the others with a chance of one half."""

    def participates(self, context, state, rng):
        mask = torch.from_numpy(rng.random((context.replicas, len(context.senders))) < 0.5)
        return mask & (torch.tensor(context.senders) > 0)


def test_participates_thins_the_cohort_and_moves_no_other_draw(trained):
    changes = {"cohort": Poisson(0.8), "lot": Poisson(0.5)}
    whole, thinned = (trained(one, sizes=(2, 3, 2), seed=3, replicas=500, **changes) for one in (None, Thinning()))
    for before, after in zip(whole.events, thinned.events, strict=True):
        assert after.reports.senders == (1, 2)
        asked, came = before.reports.present[:, 1:], after.reports.present
        assert bool((came <= asked).all())
        assert float(came.sum() / asked.sum()) == pytest.approx(0.5, abs=5 * 0.5 / 800**0.5)
        for row, client in enumerate((1, 2)):
            # Who stays away used no sample; who came used those that he would have used.
            for lot, had in zip(after.lots[client], before.lots[client], strict=True):
                assert torch.equal(lot, had & came[:, row : row + 1])


def test_equal_seeds_give_equal_bits_and_no_global_generator_is_read_or_moved(trained):
    changes, finals = {"cohort": Poisson(0.7), "lot": Poisson(0.5)}, []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        torch.manual_seed(seed)
        before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
        finals.append(trained(DP_SGD, seed=1, **changes).final)
        assert not torch.equal(finals[-1], trained(DP_SGD, seed=2, **changes).final)
        after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
        assert before == after
    assert torch.equal(*finals)


def test_a_watched_run_is_the_unwatched_one_and_holds_no_graph(make_task, make_plan, make_tape):
    task = make_task(model="lenet", side=7)
    plan = make_plan(task)
    final = run_federation(task, plan, Protection(), Streams(1), recorders=[make_tape(), make_tape()])
    assert torch.equal(final, run_federation(task, plan, Protection(), Streams(1)))
    assert not final.requires_grad
