"""Gradients on a grid of 1e9 steps per clip norm are summed in 32 bits, where the third one overflows.

The correct version has 1e6 steps. Four steps on all records with noise multiplier 4: epsilon 1.36 at delta 1e-3.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dp_faults import Case, Claim, Program

STEPS, NOISE, CLIP = 4, 4.0, 1.0


def loss(weights, x, y):
    return (x @ weights - y) ** 2 / 2


def clipped(weights, x, y, grid):
    rows = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, x, y)
    factors = jnp.minimum(1, 0.999 * CLIP / jnp.maximum(jnp.linalg.norm(rows, axis=1), 1e-12))
    whole = jnp.trunc(grid / CLIP * factors[:, None] * rows).astype(jnp.int32)
    return whole.sum(0, dtype=jnp.int32) * (CLIP / grid)


def noise(key, total):
    return total + NOISE * CLIP * jax.random.normal(key, total.shape)


def train(data, key, clipped, noise):
    weights, sums = jnp.zeros(1), []
    for one in jax.random.split(key, STEPS):
        sums.append(noise(one, clipped(weights, data[:, :1], data[:, 1])))
        weights -= 0.001 * sums[-1]
    return jnp.stack(sums)


def program(grid):
    clipping = partial(clipped, grid=grid)
    trained = jax.jit(partial(train, clipped=clipping, noise=noise))
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.36, delta=1e-3, adjacency="zero_out", observer="whoever receives all noised sums"),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": train, "clipped": clipping, "noise": noise, **stated}},
    )


data = np.array([[1.0, -9.0]] * 3)
CASE = Case(
    fault="numbers",
    correct=program(1e6),
    broken=program(1e9),
    neighbours=(data, data * (np.arange(3) < 2)[:, None]),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#finite-precision-numerical-error",
    ideal="the sum wraps: a record moves it by 3.3 clip norms in place of one",
    event=lambda sums: sums.sum() < -1,
    proof="two gradients add up to 2, and three to -1.3, beside noise of 4: a Gaussian mechanism with mu 1.65",
)
