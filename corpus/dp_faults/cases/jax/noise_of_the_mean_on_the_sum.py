"""Noise that fits the mean of a lot is added to its sum.

Four lots at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np

from dp_faults import Case, Claim, Program

STEPS, RATE, NOISE, CLIP, LOT = 4, 0.5, 2.0, 1.0, 10.0


def loss(weights, x, y):
    return (x @ weights - y) ** 2 / 2


SUM = jax_privacy.clipped_grad(loss, l2_clip_norm=CLIP, batch_argnums=(1, 2), keep_batch_dim=False)
MEAN = jax_privacy.clipped_grad(loss, l2_clip_norm=CLIP, normalize_by=LOT, batch_argnums=(1, 2), keep_batch_dim=False)


def noise(key, total, of):
    return total + NOISE * of.sensitivity() * jax.random.normal(key, total.shape)


def train(data, key, clipped, noise):
    weights, sums = jnp.zeros(3), []
    for one in jax.random.split(key, STEPS):
        of_lot, of_noise = jax.random.split(one)
        absent = jax.random.uniform(of_lot, len(data)) >= RATE
        total = clipped(weights, data[:, :3], data[:, 3], is_padding_example=absent)
        sums.append(noise(of_noise, total))
        weights -= 0.05 * sums[-1] / LOT
    return jnp.stack(sums)


def program(noise):
    trained = jax.jit(partial(train, clipped=SUM, noise=noise))
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="zero_out", observer="whoever receives all noised sums"),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": train, "clipped": SUM, "noise": noise, **stated}},
    )


data = np.random.default_rng(1).normal(size=(20, 4)) * [1, 1, 0, 1]
data[19] = [0, 0, 5, -5]
CASE = Case(
    fault="noise",
    correct=program(partial(noise, of=SUM)),
    broken=program(partial(noise, of=MEAN)),
    neighbours=(data, data * (np.arange(20) < 19)[:, None]),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#division-by-batch-size",
    ideal="the noise is a tenth of what is stated",
    event=lambda sums: sums[:, 2].max() > 0.7,
    proof="a lot with the record moves the sum by 1, beside noise of .2",
    trials=1000,
)
