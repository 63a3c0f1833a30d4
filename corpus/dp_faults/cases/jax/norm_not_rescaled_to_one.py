"""Gradients are clipped to norm 5, and the noise is made for sums of gradients that are rescaled to norm 1.

Four steps on all records with noise multiplier 8: epsilon .6 at delta 1e-3.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np

from dp_faults import Case, Claim, Program

STEPS, NOISE, CLIP = 4, 8.0, 5.0


def loss(weights, x, y):
    return (x @ weights - y) ** 2 / 2


def clipping(rescaled):
    return jax_privacy.clipped_grad(
        loss, l2_clip_norm=CLIP, rescale_to_unit_norm=rescaled, batch_argnums=(1, 2), keep_batch_dim=False
    )


def noise(key, total):
    return total + NOISE * jax.random.normal(key, total.shape)


def train(data, key, clipped, noise):
    weights, sums = jnp.zeros(3), []
    for one in jax.random.split(key, STEPS):
        sums.append(noise(one, clipped(weights, data[:, :3], data[:, 3])))
        weights -= 0.005 * sums[-1] / 20
    return jnp.stack(sums)


def program(clipped):
    trained = jax.jit(partial(train, clipped=clipped, noise=noise))
    stated = {"noise_multiplier": NOISE, "clip_norm": 1.0, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=0.6, delta=1e-3, adjacency="zero_out", observer="whoever receives all noised sums"),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": train, "clipped": clipped, "noise": noise, **stated}},
    )


data = np.random.default_rng(2).normal(size=(20, 4)) * [1, 1, 0, 1]
data[19] = [0, 0, 5, -5]
CASE = Case(
    fault="clip",
    correct=program(clipping(rescaled=True)),
    broken=program(clipping(rescaled=False)),
    neighbours=(data, data * (np.arange(20) < 19)[:, None]),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#sensitivity-alignment",
    ideal="the sum moves by 5 where the noise is made for 1",
    event=lambda sums: sums[:, 2].sum() > 30,
    proof="four sums that a record moves by 5, beside noise of 8: a Gaussian mechanism with mu 1.25",
)
