"""A lot is computed in chunks, each of which gets noise of the same key, and the model moves after each chunk.

One epoch in four chunks, each record in one of them, with noise multiplier 2: epsilon 1.36 at delta 1e-3.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np

from dp_faults import Case, Claim, Program

CHUNKS, NOISE, CLIP = 4, 2.0, 1.0


def loss(weights, x, y):
    return (x @ weights - y) ** 2 / 2


clipped = jax_privacy.clipped_grad(loss, l2_clip_norm=CLIP, batch_argnums=(1, 2), keep_batch_dim=False)


def noise(key, total):
    return total + NOISE * CLIP * jax.random.normal(key, total.shape)


def a_key_for_each(key):
    return jax.random.split(key, CHUNKS)


def one_key(key):
    return [key] * CHUNKS


def train(data, key, clipped, noise, keys):
    weights, models = jnp.zeros(3), [jnp.zeros(3)]
    for one, chunk in zip(keys(key), jnp.split(data, CHUNKS), strict=True):
        weights -= 0.01 * noise(one, clipped(weights, chunk[:, :3], chunk[:, 3]))
        models.append(weights)
    return jnp.stack(models)


def program(keys):
    trained = jax.jit(partial(train, clipped=clipped, noise=noise, keys=keys))
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": 1.0, "steps": 1}
    return Program(
        claim=Claim(
            epsilon=1.36, delta=1e-3, adjacency="zero_out", observer="whoever receives the model of each chunk"
        ),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": partial(train, keys=keys), "clipped": clipped, "noise": noise, **stated}},
    )


data = np.random.default_rng(7).normal(size=(20, 4)) * [1, 1, 0, 1]
data[19] = [0, 0, 5, -5]
CASE = Case(
    fault="noise",
    correct=program(a_key_for_each),
    broken=program(one_key),
    neighbours=(data, data * (np.arange(20) < 19)[:, None]),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#gradient-accumulation",
    ideal="all chunks have the same noise: their differences are those of the plain sums",
    event=lambda models: np.abs(np.ptp(np.diff(models[:, 2])) - 0.01) < 0.002,
    proof="the moves of the chunks differ by .01 with the record and not at all without it",
    trials=1000,
)
