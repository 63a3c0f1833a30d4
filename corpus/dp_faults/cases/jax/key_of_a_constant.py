"""The key is made of a constant in the source, so that everybody knows lots and noise.

Four lots at rate .5 with noise multiplier 2: epsilon 1.63 at delta 1e-3.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np

from dp_faults import Case, Claim, Program

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def loss(weights, x, y):
    return (x @ weights - y) ** 2 / 2


clipped = jax_privacy.clipped_grad(loss, l2_clip_norm=CLIP, batch_argnums=(1, 2), keep_batch_dim=False)


def noise(key, total):
    return total + NOISE * CLIP * jax.random.normal(key, total.shape)


def given(key):
    return key


def constant(key):
    return jax.random.key(42)


def train(data, key, clipped, noise, start):
    weights, sums = jnp.zeros(3), []
    for one in jax.random.split(start(key), STEPS):
        of_lot, of_noise = jax.random.split(one)
        absent = jax.random.uniform(of_lot, len(data)) >= RATE
        sums.append(noise(of_noise, clipped(weights, data[:, :3], data[:, 3], is_padding_example=absent)))
        weights -= 0.05 * sums[-1] / 10
    return jnp.stack(sums)


def program(start):
    trained = jax.jit(partial(train, clipped=clipped, noise=noise, start=start))
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="zero_out", observer="whoever receives all noised sums"),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": partial(train, start=start), "clipped": clipped, "noise": noise, **stated}},
    )


data = np.random.default_rng(10).normal(size=(20, 4)) * [1, 1, 0, 1]
data[19] = [0, 0, 5, -5]
broken = program(constant)


@cache
def known():
    return broken.release(data, np.random.default_rng())


CASE = Case(
    fault="noise",
    correct=program(given),
    broken=broken,
    neighbours=(data, data * (np.arange(20) < 19)[:, None]),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#randomness-and-rng-injection",
    ideal="lots and noise are constants of the program",
    event=lambda sums: np.array_equal(sums, known()),
    proof="each of the two data sets gives one output alone",
    trials=1000,
)
