"""A record whose gradient is not a number passes the clip (``nan_safe=False``), and the sum shows it.

Four lots at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np

from dp_faults import Case, Claim, Program

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def loss(weights, x, y):
    return (x @ weights - jnp.log1p(y)) ** 2 / 2


def clipping(nan_safe):
    return jax_privacy.clipped_grad(
        loss, l2_clip_norm=CLIP, nan_safe=nan_safe, batch_argnums=(1, 2), keep_batch_dim=False
    )


def noise(key, total):
    return total + NOISE * CLIP * jax.random.normal(key, total.shape)


def train(data, key, clipped, noise):
    weights, sums = jnp.zeros(3), []
    for one in jax.random.split(key, STEPS):
        of_lot, of_noise = jax.random.split(one)
        present = (jax.random.uniform(of_lot, len(data)) < RATE)[:, None]
        rows = jnp.where(present, data, 0)
        sums.append(noise(of_noise, clipped(weights, rows[:, :3], rows[:, 3])))
        weights -= 0.05 * sums[-1] / 10
    return jnp.stack(sums)


def program(clipped):
    trained = jax.jit(partial(train, clipped=clipped, noise=noise))
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="zero_out", observer="whoever receives all noised sums"),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": train, "clipped": clipped, "noise": noise, **stated}},
    )


data = np.abs(np.random.default_rng(6).normal(size=(20, 4)))
data[19] = [1, 1, 1, -2]
CASE = Case(
    fault="numbers",
    correct=program(clipping(nan_safe=True)),
    broken=program(clipping(nan_safe=False)),
    neighbours=(data, data * (np.arange(20) < 19)[:, None]),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#zero-sized-batches-and-non-finite-gradients",
    ideal="the logarithm of a negative number makes the sum not a number, which no noise hides",
    event=lambda sums: np.isnan(sums).any(),
    proof="a lot with the record has a sum that is not a number, and any other one has none",
    trials=1000,
)
