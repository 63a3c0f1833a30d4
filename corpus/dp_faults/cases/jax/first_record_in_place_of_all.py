"""A vectorised gradient of one's own takes the gradient of the first record and repeats it for all.

Four steps on all records with noise multiplier 4: epsilon 1.36 at delta 1e-3.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dp_faults import Case, Claim, Program

STEPS, NOISE, CLIP = 4, 4.0, 1.0


def loss(weights, x, y):
    return (x @ weights - y) ** 2 / 2


def of_each(weights, x, y):
    return jax.vmap(jax.grad(loss), (None, 0, 0))(weights, x, y)


def of_the_first(weights, x, y):
    return jnp.broadcast_to(jax.grad(loss)(weights, x[0], y[0]), x.shape)


def clipped(weights, x, y, gradients):
    rows = gradients(weights, x, y)
    return jnp.minimum(1, CLIP / jnp.maximum(jnp.linalg.norm(rows, axis=1), 1e-12)) @ rows


def noise(key, total):
    return total + NOISE * CLIP * jax.random.normal(key, total.shape)


def train(data, key, clipped, noise):
    weights, sums = jnp.zeros(3), []
    for one in jax.random.split(key, STEPS):
        sums.append(noise(one, clipped(weights, data[:, :3], data[:, 3])))
        weights -= 0.01 * sums[-1] / 20
    return jnp.stack(sums)


def program(gradients):
    clipping = partial(clipped, gradients=gradients)
    trained = jax.jit(partial(train, clipped=clipping, noise=noise))
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.36, delta=1e-3, adjacency="zero_out", observer="whoever receives all noised sums"),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": train, "clipped": clipping, "noise": noise, **stated}},
    )


data = np.random.default_rng(12).normal(size=(20, 4)) * [1, 1, 0, 1]
data[0] = [0, 0, 5, -5]
CASE = Case(
    fault="clip",
    correct=program(of_each),
    broken=program(of_the_first),
    neighbours=(data, data * (np.arange(20) > 0)[:, None]),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#the-vmap-design-decision",
    ideal="the first record moves the sum by 20 clip norms",
    event=lambda sums: sums[:, 2].mean() > 10,
    proof="the sum is twenty times the gradient of the first record, beside noise of 4",
    trials=1000,
)
