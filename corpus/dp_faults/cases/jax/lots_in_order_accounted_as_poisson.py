"""Lots are taken from the file one after the other and are accounted as Poisson-sampled.

Four lots at rate .02 with noise multiplier 1: epsilon .17 at delta 1e-3.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dp_faults import Case, Claim, Program

STEPS, RATE, NOISE, CLIP, RECORDS = 4, 0.02, 1.0, 1.0, 100


def loss(weights, x, y):
    return (x @ weights - y) ** 2 / 2


def clipped(weights, x, y, present):
    rows = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, x, y)
    lengths = jnp.linalg.norm(rows, axis=1)
    return (present * jnp.minimum(1, CLIP / jnp.maximum(lengths, 1e-12))) @ rows


def noise(key, total):
    return total + NOISE * CLIP * jax.random.normal(key, total.shape)


def poisson(key, step):
    return jax.random.uniform(key, RECORDS) < RATE


def in_order(key, step):
    return jnp.arange(RECORDS) // round(RATE * RECORDS) == step


def train(data, key, clipped, noise, lot):
    weights, sums = jnp.zeros(3), []
    for step, one in enumerate(jax.random.split(key, STEPS)):
        of_lot, of_noise = jax.random.split(one)
        total = clipped(weights, data[:, :3], data[:, 3], lot(of_lot, step))
        sums.append(noise(of_noise, total))
        weights -= 0.05 * sums[-1] / 2
    return jnp.stack(sums)


def program(lot):
    trained = jax.jit(partial(train, clipped=clipped, noise=noise, lot=lot))
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=0.17, delta=1e-3, adjacency="zero_out", observer="whoever receives all noised sums"),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": partial(train, lot=lot), "clipped": clipped, "noise": noise, **stated}},
    )


data = np.random.default_rng(3).normal(size=(RECORDS, 4)) * [1, 1, 0, 1]
data[0] = [0, 0, 5, -5]
CASE = Case(
    fault="sampling",
    correct=program(poisson),
    broken=program(in_order),
    neighbours=(data, data * (np.arange(RECORDS) > 0)[:, None]),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#accounting-and-batch-selection-mismatch",
    ideal="everybody knows in which lot a record is, and chance does not hide it",
    event=lambda sums: sums[0, 2] > 1.5,
    proof="the first lot holds the record for certain: a Gaussian mechanism with mu 1, epsilon 3.13 at delta 1e-3",
    trials=1000,
)
