"""Local training: a client's turn as a plain loop over its lots takes it, whichever way gradients are computed.

Large models: lots are summed from norms, with the same results as from the samples' gradients.

Membership masks: a replica trains on the samples that are in, and on nothing else.

Owners: hooks receive the owner of each row, and a planted user has rows at several clients.
"""

import dataclasses
from dataclasses import dataclass

import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.defenses.controls.clipping import ClipAfterMeanProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.canary import Canary, DataCanary
from fedassay.fl.engine import run_federation
from fedassay.fl.models import network as network_file
from fedassay.fl.models.network import Network
from fedassay.fl.models.small_models import build_model
from fedassay.fl.protection import Context, Protection
from fedassay.fl.sampling import FixedSize, Full, Poisson
from fedassay.fl.streams import Streams, normal, uniform
from fedassay.fl.training.executors.sequential import Sequential
from fedassay.fl.training.local import Batch, sums_by_norm, weighted_sum
from torch.nn.functional import cross_entropy

CLIENT = 1


class PerSample(Protection):
    """No protection, taken the long way: per-sample gradients and their mean."""

    per_sample = True


def turn(task, plan, *, protection=None, replicas=1, client=CLIENT, number=0, arm=0, block=0):
    """One client's turn from a random model, different in each replica: the models and the result."""
    batch = Batch(replicas=replicas, arm=arm, block=block)
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
    if isinstance(lot, Poisson) and replicas == 4 and algorithm.local_steps == 4:
        # Else the padding would not have been tried.
        sizes = torch.stack(result.lots).sum(-1)
        assert int(sizes.min()) == 0 < 2 < int(sizes.max())
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


@pytest.mark.parametrize("fields", [{"replicas": 0}, {"block": -1}, {"arm": 2}])
def test_a_batch_of_nothing_or_of_a_third_arm_is_refused(fields):
    with pytest.raises(ValueError, match="replicas must be >= 1, block >= 0 and arm 0 or 1"):
        Batch(**fields)


def test_adams_moments_stay_with_each_client_and_replica_that_took_part(make_task, trained, in_double):
    """Compared with torch's own optimisers, one per client and replica, each used only in that client's rounds."""
    algorithm = FedAvg(learning_rate=0.05, local_steps=2, optimizer="adam", keep_moments=True)
    task = in_double(make_task((5, 5, 5)))
    done = trained(task=task, seed=3, replicas=2, algorithm=algorithm, rounds=4, cohort=FixedSize(2))
    for replica in range(2):
        model = task.network.initial(Streams(3).generator("init"))
        points = [model.clone().requires_grad_(True) for _ in task.parts]
        optimisers = [torch.optim.Adam([point], lr=0.05) for point in points]
        for event in done.events:
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
        torch.testing.assert_close(done.final[replica], model, rtol=1e-6, atol=1e-6)


CLIP = 0.5
DPSGD = DPSGDProtection(clip_norm=CLIP, noise_multiplier=0.0)
NETWORK = Network(model="lenet", shape=(1, 8, 8), classes=3, inert=4)


@dataclass(frozen=True, kw_only=True)
class PerLayer(Protection):
    """Clips each parameter's gradient to its own norm."""

    per_sample: bool = True

    def local_step(self, gradients, present, client, context, state, rng):
        clipped = [
            gradients[..., part] * CLIP / gradients[..., part].norm(dim=-1, keepdim=True).clamp_min(CLIP)
            for part in parts()
        ]
        return (torch.cat(clipped, -1) * present.unsqueeze(-1)).sum(1)

    def sample_weights(self, norms, client, context, state):
        return CLIP / norms.clamp_min(CLIP)

    def noised_sum(self, total, client, context, state, rng):
        return total


def parts():
    slices = list(NETWORK.layout.slices.values())
    return [*slices[:-2], slice(slices[-2].start, slices[-1].stop)]


def lot(replicas=2, samples=5):
    rng = Streams(3).generator("test")
    images = torch.from_numpy(rng.random((replicas, samples, 1, 8, 8), dtype="float32"))
    labels = torch.from_numpy(rng.integers(3, size=(replicas, samples)))
    real = torch.ones(replicas, samples, dtype=torch.bool)
    real[1, 3:] = False
    models = torch.stack([NETWORK.initial(rng) for _ in range(replicas)])
    planted = torch.zeros(2, NETWORK.layout.dim)
    planted[0, -1], planted[1, :7] = 3.0, 0.01
    return models, images, labels, real, planted


@pytest.mark.parametrize("with_canaries", [False, True])
@pytest.mark.parametrize("protection", [DPSGD, PerLayer()])
def test_the_sum_from_norms_is_that_of_clipped_gradients(protection, with_canaries):
    models, images, labels, real, planted = lot()
    drawn = torch.tensor([[True, True], [False, True]])
    rows, present = NETWORK.sample_gradients(models, images, labels), real
    if with_canaries:
        rows = torch.cat([rows, planted.expand(2, -1, -1)], 1)
        present = torch.cat([real, drawn], 1)
    if protection is DPSGD:
        wanted = DPSGD.total(rows, present)
    else:
        wanted = protection.local_step(rows, present, 0, None, {}, None)
    brought = (planted, drawn) if with_canaries else None
    found = weighted_sum(NETWORK, protection, models, (images, labels, real, None), brought, 0, None, {})
    assert torch.allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert found.norm(dim=1).min() > CLIP


def test_only_large_models_and_unchanged_sums_use_norms(monkeypatch):
    class Broken(DPSGDProtection):
        def total(self, gradients, present):
            return gradients.sum(1)

    class Noisier(DPSGDProtection):
        def noised_sum(self, total, client, context, state, rng):
            return total + 1

    class Queried(DPSGDProtection):
        def local_query(self, gradients, present, client, context, state, rng):
            return gradients[:, 0, :1]

    options = {"clip_norm": CLIP, "noise_multiplier": 1.0}
    assert not sums_by_norm(DPSGD, NETWORK)
    monkeypatch.setattr(network_file, "_LARGE", 1)
    assert sums_by_norm(DPSGD, NETWORK)
    assert sums_by_norm(Noisier(**options), NETWORK)
    assert not sums_by_norm(Broken(**options), NETWORK)
    assert not sums_by_norm(Queried(**options), NETWORK)
    assert not sums_by_norm(ClipAfterMeanProtection(**options), NETWORK)
    assert not sums_by_norm(Protection(), NETWORK)


def test_a_wrong_number_of_weights_is_refused():
    class Wrong(PerLayer):
        def sample_weights(self, norms, client, context, state):
            return norms[:1, 0]

    models, images, labels, real, _ = lot()
    with pytest.raises(ValueError, match=r"sample_weights must return one weight per sample, \(5,\).*got \(1,\)"):
        weighted_sum(NETWORK, Wrong(), models, (images, labels, real, None), None, 0, None, {})


SIZES = (6, 10, 4, 8)


class Separate(Protection):
    """No protection, by per-sample gradients."""

    per_sample = True


class Looking(Protection):
    """Uses a client's samples in addition to its lots."""

    def report(self, updates, context, state, rng):
        context.samples(0)
        return updates


def half_of_each(task, replicas):
    """Masks that leave each client as many samples, so that a mean over clients weighs them as the plan does."""
    rng = Streams(7).generator("halves")
    included = torch.zeros(replicas, len(task.labels), dtype=torch.bool)
    for replica in range(replicas):
        for part in task.parts:
            chosen = torch.from_numpy(rng.permutation(len(part))[: len(part) // 2])
            included[replica, part[chosen]] = True
    return included


def restricted(task, included):
    """The task of those alone who are in."""
    return dataclasses.replace(task, parts=tuple(part[included[part]] for part in task.parts))


@pytest.mark.parametrize("protection", [Protection(), Separate()], ids=["mean", "per sample"])
@pytest.mark.parametrize(
    "algorithm", [FedSGD(learning_rate=0.5), FedAvg(learning_rate=0.3, local_steps=3)], ids=["fedsgd", "fedavg"]
)
@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_a_replica_is_the_federation_of_those_who_are_in(make_task, trained, model, algorithm, protection):
    task = make_task(SIZES, model=model)
    included = half_of_each(task, 3)
    found = trained(protection, task=task, replicas=3, included=included, algorithm=algorithm).final
    for replica in range(3):
        alone = restricted(task, included[replica])
        expected = trained(protection, task=alone, algorithm=algorithm).final
        torch.testing.assert_close(found[replica], expected[0], atol=1e-5, rtol=0)
    assert not torch.allclose(found[0], found[1], atol=1e-3)


@pytest.mark.parametrize(
    "protection",
    [
        Protection(),
        DPSGDProtection(clip_norm=1.0, noise_multiplier=0.5),
        LDPGaussianProtection(clip_norm=1.0, noise_std=0.1),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("lot", [Full(), Poisson(0.4)], ids=str)
def test_what_is_out_can_be_anything(make_task, trained, protection, lot):
    """Not a bit of a replica moves where another image and label stand in for one that is out of it."""
    task = make_task(SIZES)
    included = uniform(Streams(1).generator("coins"), (4, len(task.labels))) < 0.5
    given = {"replicas": 4, "included": included, "lot": lot}
    found = trained(protection, task=task, **given).final
    for replica in range(4):
        images, labels = task.images.clone(), task.labels.clone()
        images[~included[replica]], labels[~included[replica]] = 0.77, 2
        other = dataclasses.replace(task, images=images, labels=labels)
        again = trained(protection, task=other, **given).final
        assert torch.equal(found[replica], again[replica])


def test_a_mask_of_all_samples_changes_nothing_and_one_of_none_leaves_the_model(trained):
    whole = trained(sizes=SIZES, replicas=2, lot=Poisson(0.4))
    everybody = torch.ones(2, sum(SIZES), dtype=torch.bool)
    assert torch.equal(trained(sizes=SIZES, replicas=2, included=everybody, lot=Poisson(0.4)).final, whole.final)
    nobody = trained(sizes=SIZES, replicas=2, included=~everybody).final
    torch.testing.assert_close(nobody[0], whole.task.network.initial(Streams(0).generator("init")))


def test_lots_are_those_of_the_plan_less_who_is_out(make_task, trained):
    """The same draws: leaving one sample out changes no other sample's draw."""
    task, drawn = make_task(SIZES), []
    included = half_of_each(task, 2)
    for mask in (included, None):
        done = trained(task=task, replicas=2, included=mask, lot=Poisson(0.5))
        drawn.append(torch.stack([step for event in done.events for step in event.lots[1]]))
    assert torch.equal(drawn[0], drawn[1] & included[:, task.parts[1]])


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (torch.ones(2, 28, dtype=torch.bool), r"booleans of shape \(replicas, samples\) with 1 rows, got \(2, 28\)"),
        (torch.ones(1, 28), "got .* of torch.float32"),
        (torch.ones(28, dtype=torch.bool), r"got \(28,\)"),
        (torch.ones(1, 27, dtype=torch.bool), "included .*must have a column for each of the 28 samples, got 27"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(trained, mask, words):
    with pytest.raises(ValueError, match=words):
        trained(sizes=SIZES, included=mask)


def test_lots_of_one_size_and_looks_at_more_than_lots_are_refused_under_a_mask(trained):
    trained(Looking(), sizes=SIZES)
    everybody = torch.ones(1, sum(SIZES), dtype=torch.bool)
    for changes, words in (
        ({"lot": FixedSize(3)}, "needs full or Poisson sampling"),
        ({}, "all of a client's samples"),
    ):
        with pytest.raises(ValueError, match=words):
            trained(Looking(), sizes=SIZES, included=everybody, **changes)


IMAGES = torch.linspace(0, 1, 32).reshape(2, 1, 4, 4)


class Spy(Protection):
    """No protection; keeps what each call of ``local_step`` receives."""

    per_sample = True

    def __init__(self):
        self.calls = []

    def local_step(self, gradients, present, client, context, state, rng):
        self.calls.append((client, gradients.clone(), present.clone(), context.owners))
        return super().local_step(gradients, present, client, context, state, rng)


@pytest.fixture
def run(make_task, trained):
    """(protection, planted, arm) -> the task; one round of FedSGD at two clients with 3 and 5 samples."""

    def go(protection, planted=None, *, arm=1, owners=True, **changes):
        task = make_task((3, 5))
        task = task if owners else dataclasses.replace(task, owners=None)
        options = {"algorithm": FedSGD(learning_rate=0.5), "rounds": 1} | changes
        return trained(protection, task=task, seed=9, arm=arm, canary=planted, **options).task

    return go


def test_every_row_of_a_sampled_lot_comes_with_its_owner(run):
    spy = Spy()
    task = run(spy, replicas=20, lot=Poisson(0.5))
    assert len(spy.calls) == 2
    model = task.initial(Streams(9)).expand(1, -1)
    for client, gradients, present, owners in spy.calls:
        part = task.parts[client]
        own = task.network.sample_gradients(model, task.images[part][None], task.labels[part][None])[0]
        for row, owner in zip(gradients[present], owners[present], strict=True):
            (place,) = torch.isclose(own, row, atol=1e-6).all(1).nonzero().flatten().tolist()
            assert owner == task.owners[part][place]


def test_without_known_owners_hooks_receive_none(run):
    spy = Spy()
    assert run(spy, owners=False).clients_per_user is None
    assert [owners for _, _, _, owners in spy.calls] == [None, None]


def test_a_planted_user_has_equal_rows_at_its_clients_alone_and_is_an_owner_of_its_own(run):
    row = torch.arange(51.0)
    planted = Canary(unit=Unit.USER, present=row, clients=1, copies=3)
    assert (planted.holders, planted.adjacency) == ((0,), Adjacency.ADD_REMOVE)
    with_it, without = Spy(), Spy()
    run(with_it, planted)
    run(without, planted, arm=0)
    (_, gradients, present, owners), (_, _, _, others) = with_it.calls
    assert gradients[0, -3:].tolist() == [row.tolist()] * 3
    assert (present.shape, owners[0, -3:].tolist(), int(others.min())) == ((1, 6), [-1, -1, -1], 0)
    assert [gradients.shape[1] for _, gradients, _, _ in without.calls] == [3, 5]


def test_a_planted_user_of_data_equals_its_gradients_given_as_rows(run):
    labels = torch.tensor([2, 0])
    data = DataCanary(unit=Unit.USER, images=IMAGES, present=labels, clients=2)
    spy = Spy()
    task = run(spy, data)
    model = task.initial(Streams(9)).expand(1, -1)
    rows = task.network.sample_gradients(model, IMAGES[None], labels[None])[0]
    for _, gradients, _, owners in spy.calls:
        torch.testing.assert_close(gradients[0, -2:], rows)
        assert owners[0, -2:].tolist() == [-1, -1]
        assert int(owners[0, :-2].min()) >= 0


def test_the_plan_knows_at_how_many_clients_one_user_has_samples(make_task, make_plan):
    task = dataclasses.replace(make_task((2, 2, 2)), owners=torch.tensor([7, 7, 7, 8, 9, 9]))
    task = dataclasses.replace(task, parts=tuple(torch.tensor(part) for part in ([0, 3], [1, 4], [2, 5])))
    assert task.clients_per_user == 3
    assert task.restricted(clients=2, samples=1).clients_per_user == 2
    plan = make_plan(task, lot=Full())
    assert (plan.clients_per_user, plan.resized((5,)).clients_per_user) == (3, None)
    with pytest.raises(ValueError, match="a user has samples at 3 clients of the task, and at 2 at most by the plan"):
        run_federation(task, dataclasses.replace(plan, clients_per_user=2), Protection(), Streams(0))
    with pytest.raises(ValueError, match=r"clients_per_user must be in 1\.\.3"):
        dataclasses.replace(plan, clients_per_user=4)
