"""The noised sum is divided by the number of records in the lot: an empty lot gives no number.

The correct version divides by the expected number. Two lots at rate .5 with noise multiplier 2: epsilon 1.13 at delta
1e-3.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dp_faults import Case, Claim, Program

STEPS, RATE, NOISE, CLIP = 2, 0.5, 2.0, 1.0


def loss(weights, x, y):
    return (x @ weights - y) ** 2 / 2


def clipped(weights, x, y, present):
    rows = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, x, y)
    lengths = jnp.linalg.norm(rows, axis=1)
    return (present * jnp.minimum(1, CLIP / jnp.maximum(lengths, 1e-12))) @ rows


def noise(key, total):
    return total + NOISE * CLIP * jax.random.normal(key, total.shape)


def expected(present):
    return 1


def counted(present):
    return present.sum()


def train(data, key, clipped, noise, divisor):
    weights, models = jnp.zeros(3), []
    for one in jax.random.split(key, STEPS):
        of_lot, of_noise = jax.random.split(one)
        present = jax.random.uniform(of_lot, len(data)) < RATE
        weights -= 0.05 * noise(of_noise, clipped(weights, data[:, :3], data[:, 3], present)) / divisor(present)
        models.append(weights)
    return jnp.stack(models)


def program(divisor):
    trained = jax.jit(partial(train, clipped=clipped, noise=noise, divisor=divisor))
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(
            epsilon=1.13, delta=1e-3, adjacency="add_remove", observer="whoever receives the model of each step"
        ),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": partial(train, divisor=divisor), "clipped": clipped, "noise": noise, **stated}},
    )


CASE = Case(
    fault="protocol",
    correct=program(expected),
    broken=program(counted),
    neighbours=(np.array([[0.0, 0.0, 1.0, 1.0]]), np.zeros((0, 4))),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#zero-sized-batches-and-non-finite-gradients",
    ideal="the size of a lot decides whether the model is a number",
    event=lambda models: np.isfinite(models).all(),
    proof="with one record both lots hold it with probability .25, and without it both are empty",
    trials=1000,
)
