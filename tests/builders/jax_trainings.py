"""DP-SGD of a linear model by jax_privacy and optax, of which tests change a part. Needs JAX."""

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import optax
from fedassay.adapters.jax import Training
from jax_privacy.batch_selection import CyclicPoissonSampling
from jax_privacy.noise_addition import gaussian_privatizer

RECORDS, DIM, RATE, STEPS, ROOM = 100, 12, 0.2, 12, 64
STATED = {"noise_multiplier": 1.0, "clip_norm": 1.0, "rate": RATE, "steps": STEPS, "delta": 1e-5}


def records():
    draws = np.random.default_rng(5)
    x = draws.normal(size=(RECORDS, DIM)).astype(np.float32)
    return x, (x.sum(1) + draws.normal(size=RECORDS)).astype(np.float32)


def start():
    return {"w": jnp.zeros(DIM), "b": jnp.zeros(())}


def loss(params, batch):
    x, y = batch
    return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


def clipped(loss):
    return jax_privacy.clipped_grad(loss, l2_clip_norm=1.0)


def gaussian(seed):
    return gaussian_privatizer(stddev=1.0, prng_key=seed)


def poisson(records, seed):
    return CyclicPoissonSampling(sampling_prob=RATE, iterations=STEPS).batch_iterator(records, seed)


def training(
    *,
    loss=loss,
    grad=clipped,
    noise=gaussian,
    lots=poisson,
    used=lambda total, noised: noised,
    prepared=lambda batch: batch,
    masked=lambda padding: padding,
    seed_of=lambda seed: seed,
    move=None,
    returns=lambda params, totals: params,
    bound=None,
    **stated,
):
    """A training that pads its lots, so that its step is compiled once."""

    def train(data, watch):
        params, seed, moves = start(), seed_of(watch.seed), move or optax.sgd(0.005)
        watch = watch(params, bound=bound)
        clipped_sum, addition = grad(watch.loss(loss)), watch.noise(noise(seed))
        state, moments, totals = addition.init(params), moves.init(params), []

        @jax.jit
        def step(params, state, moments, lot, padding):
            total = clipped_sum(params, lot, is_padding_example=padding)
            noised, state = addition.update(total, state)
            moved, moments = moves.update(used(total, noised), moments)
            return optax.apply_updates(params, moved), state, moments, total

        for lot in lots(len(data[0]), seed):
            lot = np.concatenate([lot, np.full(ROOM - len(lot), -1)])
            batch = prepared((data[0][lot], data[1][lot]))
            params, state, moments, total = step(
                params, state, moments, watch.lot(lot, batch), masked(jnp.asarray(lot < 0))
            )
            totals.append(float(total["b"]))
        return returns(params, totals)

    return Training(train, records(), **(STATED | stated))
