"""JAX trainings that are run, watched and judged: correct ones pass, faults are found, and wrong use is named."""

import numpy as np
import pytest
import torch

pytest.importorskip("jax", reason="JAX is not installed: pip install 'fedassay[jax]'")
pytest.importorskip("jax_privacy", reason="jax_privacy is not installed: pip install 'fedassay[jax]'")

import jax
import jax.numpy as jnp
import jax_privacy
import optax
from fedassay.adapters.jax import Training
from fedassay.adapters.replicas import audit_replicas, plan_replicas
from fedassay.adapters.target import is_runner
from fedassay.adapters.unwatchable import Unwatchable
from fedassay.checks.training_record import Plant, equal_releases
from jax_privacy.matrix_factorization.toeplitz import inverse_as_streaming_matrix
from jax_privacy.noise_addition import gaussian_privatizer, matrix_factorization_privatizer
from jax_trainings import DIM, RATE, RECORDS, STATED, STEPS, clipped, gaussian, loss, poisson, records, start, training


def failed(found):
    assert not found.unexplained
    return [one.name for one in found.failed]


def clips(**changed):
    return lambda loss: jax_privacy.clipped_grad(loss, **({"l2_clip_norm": 1.0} | changed))


def noise_of(stddev):
    return lambda seed: gaussian_privatizer(stddev=stddev, prng_key=seed)


def same_steps(train_step):
    """A training in eager mode, with lots of any size; ``train_step(params, lot, key)`` returns the next parameters."""

    def train(data, watch):
        params, seed = start(), watch.seed
        watch = watch(params)
        step = train_step(watch)
        for number, lot in enumerate(poisson(RECORDS, seed)):
            key = jax.random.fold_in(jax.random.key(seed), number)
            params = step(params, watch.lot(lot, (data[0][lot], data[1][lot])), key)
        return params

    return Training(train, records(), **STATED)


def added(total, key):
    keys = dict(zip(total, jax.random.split(key, len(total)), strict=True))
    return {name: one + jax.random.normal(keys[name], one.shape) for name, one in total.items()}


def moved(params, noised):
    return jax.tree.map(lambda one, by: one - 0.005 * by, params, noised)


def with_dropout(watch):
    def dropped(params, batch, key):
        x, y = batch
        return loss(params, (x * jax.random.bernoulli(key, 0.5, x.shape), y))

    grad = jax_privacy.clipped_grad(watch.loss(dropped), l2_clip_norm=1.0, prng_argnum=2)
    noise = watch.noise(added)
    return lambda params, lot, key: moved(params, noise(grad(params, lot, jax.random.fold_in(key, 1)), key))


def of_one_loop(data, watch):
    """All steps in one compiled scan over all records, of which those outside of a lot are padding."""
    x, y = map(jnp.asarray, data)
    key, watch = jax.random.key(watch.seed), watch(start())
    grad, noise = clipped(watch.loss(loss)), watch.noise(added)

    def step(params, key):
        drawn, noises = jax.random.split(key)
        absent = jax.random.uniform(drawn, (len(x),)) >= RATE
        lot = watch.lot(jnp.where(absent, -1, jnp.arange(len(x))), (x, y))
        return moved(params, noise(grad(params, lot, is_padding_example=absent), noises)), None

    return jax.jit(lambda: jax.lax.scan(step, start(), jax.random.split(key, STEPS))[0])()


def in_two_passes(loss):
    """Gradients for their lengths alone, and then the gradient of the weighted sum of all losses."""
    losses = jax.vmap(loss, in_axes=(None, 0))

    def grad(params, lot, is_padding_example):
        lot = jax.tree.map(lambda one: one[:, None], lot)
        rows = jax.vmap(jax.grad(loss), in_axes=(None, 0))(params, lot)
        lengths = jnp.sqrt(rows["b"] ** 2 + (rows["w"] ** 2).sum(1))
        weights = ~is_padding_example * jnp.minimum(1, 1 / jnp.maximum(lengths, 1e-9))
        return jax.grad(lambda held: (weights * losses(held, lot)).sum())(params)

    return grad


CORRECT = {
    "as it is": {},
    "adam": {"move": optax.adam(0.01)},
    "two passes": {"grad": in_two_passes},
    "microbatches": {"grad": clips(microbatch_size=16)},
    "mean of the lot": {"grad": clips(normalize_by=20.0), "noise": noise_of(1 / 20), "bound": 1 / 20},
    "unit norm": {"grad": clips(l2_clip_norm=0.5, rescale_to_unit_norm=True), "bound": 1.0, "clip_norm": 0.5},
}


@pytest.mark.parametrize("changed", CORRECT.values(), ids=CORRECT)
def test_correct_trainings_are_not_accused(changed):
    assert failed(training(**changed).watch()) == []


@pytest.mark.parametrize(
    "system",
    [Training(of_one_loop, records(), **STATED), same_steps(with_dropout)],
    ids=["one compiled loop", "dropout"],
)
def test_compiled_loops_and_random_losses_are_not_accused(system):
    assert failed(system.watch()) == []


@pytest.mark.simulations
def test_none_of_forty_correct_runs_is_accused():
    system = training()
    assert [seed for seed in range(40) if failed(system.watch(seed))] == []


def without_noise_in_one_tensor(seed):
    whole = gaussian(seed)

    def update(total, state, params=None):
        noised, state = whole.update(total, state)
        return noised | {"b": total["b"]}, state

    return whole._replace(update=update)


def with_equal_noise(seed):
    whole = gaussian(seed)
    return whole._replace(update=lambda total, state, params=None: (whole.update(total, state)[0], state))


def clipped_as_a_whole(gradients):
    clip = optax.clip_by_global_norm(1.0)
    return clip.update(gradients, clip.init(gradients))[0]


def clips_the_sum(loss):
    rows_of = jax.vmap(jax.grad(loss), in_axes=(None, 0))

    def grad(params, lot, is_padding_example):
        rows = rows_of(params, jax.tree.map(lambda one: one[:, None], lot))
        return clipped_as_a_whole(jax.tree.map(lambda one: (one.T * ~is_padding_example).T.sum(0), rows))

    return grad


def clips_the_gradient_of_a_lot(loss):
    return lambda params, lot, is_padding_example: clipped_as_a_whole(jax.grad(loss)(params, lot))


def shuffled(count, seed):
    draws, size = np.random.default_rng(seed), int(count * RATE)
    order = np.concatenate([draws.permutation(count) for _ in range(3)])
    return [order[size * step : size * (step + 1)] for step in range(STEPS)]


FAULTS = {
    "half of the noise": ({"noise": noise_of(0.5)}, "noise scale"),
    "a tensor without noise": ({"noise": without_noise_in_one_tensor}, "noise present"),
    "the same noise in every step": ({"noise": with_equal_noise}, "noise fresh"),
    "no clip": ({"grad": clips(l2_clip_norm=float("inf"))}, "sum of clipped rows"),
    "clip of the sum": ({"grad": clips_the_sum}, "sums on neighbouring data"),
    "clip of the gradient of a lot": ({"grad": clips_the_gradient_of_a_lot}, "sums on neighbouring data"),
    "padding that is not masked": ({"masked": jnp.zeros_like}, "sum of clipped rows"),
    "shuffled lots": ({"lots": shuffled}, "sizes of lots"),
    "half of the steps accounted": ({"steps": STEPS // 2}, "steps accounted"),
    "mean of the batch": (
        {"prepared": lambda batch: (batch[0] - batch[0].mean(0), batch[1])},
        "sums on neighbouring data",
    ),
    "sum in place of the noised sum": ({"used": lambda total, noised: total}, "state without noise"),
    "step size by the sum": (
        {"used": lambda total, noised: jax.tree.map(lambda one: one / (1 + abs(total["b"])), noised)},
        "state without noise",
    ),
}


@pytest.mark.parametrize(("changed", "check"), FAULTS.values(), ids=FAULTS)
def test_faults_are_found_by_watch(changed, check):
    assert check in failed(training(**changed).watch())


def averaged_by_optax(size):
    def step_of(watch):
        rows_of = jax.vmap(jax.grad(watch.loss(loss)), in_axes=(None, 0))
        mean = watch.noise(optax.contrib.differentially_private_aggregate(1.0, 1.0, 0))

        def step(params, lot, key):
            rows = rows_of(params, jax.tree.map(lambda one: one[:, None], lot))
            missing = 0 if size is None else size - len(rows["b"])
            rows = jax.tree.map(lambda one: jnp.pad(one, [(0, missing)] + [(0, 0)] * (one.ndim - 1)), rows)
            state = mean.init(params)._replace(rng_key=key)
            return moved(params, jax.tree.map(lambda one: 20 * one, mean.update(rows, state)[0]))

        return step

    return same_steps(step_of)


def test_the_mean_of_optax_is_found_to_show_the_size_of_the_lot_unless_lots_are_padded():
    assert failed(averaged_by_optax(None).watch()) == ["state without noise"]
    assert failed(averaged_by_optax(64).watch()) == []


def test_a_seed_of_the_trainings_own_leaves_the_verdict_open():
    assert "same in runs with two seeds" in training(seed_of=lambda seed: 7).watch().unexplained


def test_what_train_returns_beside_the_parameters_is_named_and_refutes_nothing():
    found = training(returns=lambda params, totals: (params, totals)).watch()
    assert failed(found) == []
    assert any("what train returns depends on the data" in line for line in found.lines())


def test_a_planted_unit_passes_through_the_clip_of_the_training():
    system = training(lots=lambda count, seed: [np.arange(count - 50, count)] * STEPS)
    assert is_runner(system)
    assert system.replayable
    within, out = (system.run(member, 3, plant=Plant(weight=10.0)) for member in (True, False))
    moves = [one.released - other.released for one, other in zip(within.releases, out.releases, strict=True)]
    assert float(moves[0].norm()) == pytest.approx(1.0, rel=1e-3)
    assert torch.allclose(moves[0].double(), Plant().direction(within.layout), atol=1e-3)
    assert equal_releases(within, system.run(True, 3, plant=Plant(weight=10.0)))


@pytest.mark.simulations
def test_replicas_refute_half_of_the_noise():
    def system(noise):
        def step_of(watch):
            grad = clipped(watch.loss(loss))
            noised = watch.noise(
                lambda total, key: jax.tree.map(lambda one, by: one + noise * (by - one), total, added(total, key))
            )
            return lambda params, lot, key: moved(params, noised(grad(params, lot), key))

        return same_steps(step_of)

    right = system(1.0)
    plan = plan_replicas(right)
    verdicts = [audit_replicas(one, plan=plan, seen=right.watch()).verdict.name for one in (system(0.5), right)]
    assert verdicts == ["REFUTED", "NOT_REFUTED"]


def test_wrong_use_is_refused_in_one_sentence():
    def run(body):
        Training(lambda data, watch: body(data, watch(start())), records(), **STATED).run()

    with pytest.raises(ValueError, match=r"without indices: pass their batch through watch\.lot"):
        run(lambda data, watch: clipped(watch.loss(loss))(start(), data))
    with pytest.raises(ValueError, match="ids must be whole numbers"):
        run(lambda data, watch: watch.lot(np.ones(RECORDS, dtype=bool), data))
    with pytest.raises(ValueError, match="ids must be indices of the 100 records, got 104"):
        run(lambda data, watch: clipped(watch.loss(loss))(start(), watch.lot(np.arange(5, 105), data)))
    with pytest.raises(Unwatchable, match="no gradient was reported"):
        run(lambda data, watch: clipped(loss)(start(), data))
    correlated = matrix_factorization_privatizer(
        inverse_as_streaming_matrix(np.array([1.0, 0.5])), stddev=1.0, prng_key=0
    )
    with pytest.raises(Unwatchable, match="independent between steps"):
        run(lambda data, watch: watch.noise(correlated).init(start()))
    with pytest.raises(TypeError, match="data must be arrays with one entry for each record, got str"):
        Training(lambda data, watch: None, "data", **STATED)
    with pytest.raises(ValueError, match=r"arrays of one length, got \[99, 100\]"):
        Training(lambda data, watch: None, (np.zeros((100, DIM)), np.zeros(99)), **STATED)
