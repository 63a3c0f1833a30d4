"""The noise is made for the sensitivity of add/remove, and the claim is one of replace-one, which doubles it.

Four steps on all records with noise multiplier 4 over the sensitivity: epsilon 1.36 at delta 1e-3.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np

from dp_faults import Case, Claim, Program

STEPS, NOISE, CLIP = 4, 4.0, 1.0


def loss(weights, x, y):
    return (x @ weights - y) ** 2 / 2


clipped = jax_privacy.clipped_grad(loss, l2_clip_norm=CLIP, batch_argnums=(1, 2), keep_batch_dim=False)


def noise(key, total, sensitivity):
    return total + NOISE * sensitivity * jax.random.normal(key, total.shape)


def train(data, key, clipped, noise):
    weights, sums = jnp.zeros(3), []
    for one in jax.random.split(key, STEPS):
        sums.append(noise(one, clipped(weights, data[:, :3], data[:, 3])))
        weights -= 0.02 * sums[-1] / 20
    return jnp.stack(sums)


def program(sensitivity):
    adding = partial(noise, sensitivity=sensitivity)
    trained = jax.jit(partial(train, clipped=clipped, noise=adding))
    stated = {"noise_multiplier": NOISE * sensitivity / CLIP, "clip_norm": CLIP, "rate": 1.0, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.36, delta=1e-3, adjacency="replace_one", observer="whoever receives all noised sums"),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": train, "clipped": clipped, "noise": adding, **stated}},
    )


others = np.random.default_rng(5).normal(size=(20, 4)) * [1, 1, 0, 1]
CASE = Case(
    fault="accounting",
    correct=program(2 * clipped.sensitivity()),
    broken=program(clipped.sensitivity()),
    neighbours=(np.vstack([others, [0, 0, 5, -5]]), np.vstack([others, [0, 0, 5, 5]])),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#neighboring-relation-clarity",
    ideal="under replace-one a record moves the sum by 2 clip norms",
    event=lambda sums: sums[:, 2].sum() > 13.6,
    proof="a Gaussian mechanism with mu 1: epsilon 3.13 at delta 1e-3",
    trials=8000,
)
