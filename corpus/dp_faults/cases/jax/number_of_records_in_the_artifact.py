"""The file that is published with the model holds the true number of records, under add/remove.

The correct version publishes the rate and the number of steps. Four steps on all records with noise multiplier 4:
epsilon 1.36 at delta 1e-3.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dp_faults import Case, Claim, Program

STEPS, NOISE, CLIP = 4, 4.0, 1.0


def loss(weights, x, y):
    return (x @ weights - y) ** 2 / 2


def clipped(weights, x, y):
    rows = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, x, y)
    return jnp.minimum(1, CLIP / jnp.maximum(jnp.linalg.norm(rows, axis=1), 1e-12)) @ rows


def noise(key, total):
    return total + NOISE * CLIP * jax.random.normal(key, total.shape)


def settings(data):
    return jnp.array([1.0, STEPS])


def settings_and_size(data):
    return jnp.array([len(data), STEPS])


def train(data, key, clipped, noise, artifact):
    weights = jnp.zeros(3)
    for one in jax.random.split(key, STEPS):
        weights -= 0.05 * noise(one, clipped(weights, data[:, :3], data[:, 3])) / 20
    return jnp.concatenate([weights, artifact(data)])


def program(artifact):
    trained = jax.jit(partial(train, clipped=clipped, noise=noise, artifact=artifact))
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.36, delta=1e-3, adjacency="add_remove", observer="whoever receives the published file"),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": partial(train, artifact=artifact), "clipped": clipped, "noise": noise, **stated}},
    )


others = np.random.default_rng(4).normal(size=(20, 4))
CASE = Case(
    fault="protocol",
    correct=program(settings),
    broken=program(settings_and_size),
    neighbours=(np.vstack([others, [0, 0, 0, 1]]), others),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#public-vs-private-metadata",
    ideal="the number of records is private under add/remove, and is published as it is",
    event=lambda published: published[3] == 21,
    proof="the published number is 21 with the record and 20 without it",
    trials=500,
)
