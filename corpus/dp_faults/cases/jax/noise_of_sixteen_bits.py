"""The noise is drawn in bfloat16 and added to a sum of 32 bits, whose low bits it never touches.

The correct version adds noise of 32 bits and rounds the noised sum. Four lots at rate .5 with noise multiplier 2:
epsilon 1.63 at delta 1e-3.
"""

from functools import partial

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np

from dp_faults import Case, Claim, Program

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def loss(weights, x, y):
    return (x @ weights - y) ** 2 / 2


clipped = jax_privacy.clipped_grad(loss, l2_clip_norm=CLIP, batch_argnums=(1, 2), keep_batch_dim=False)


def noised_sum_rounded(key, total):
    return (total + NOISE * CLIP * jax.random.normal(key, total.shape)).astype(jnp.bfloat16).astype(jnp.float32)


def noise_rounded(key, total):
    return total + (NOISE * CLIP * jax.random.normal(key, total.shape, jnp.bfloat16)).astype(jnp.float32)


def train(data, key, clipped, noise):
    weights, sums = jnp.zeros(3), []
    for one in jax.random.split(key, STEPS):
        of_lot, of_noise = jax.random.split(one)
        absent = jax.random.uniform(of_lot, len(data)) >= RATE
        sums.append(noise(of_noise, clipped(weights, data[:, :3], data[:, 3], is_padding_example=absent)))
        weights -= 0.05 * sums[-1] / 10
    return jnp.stack(sums)


def program(noise):
    trained = jax.jit(partial(train, clipped=clipped, noise=noise))
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="zero_out", observer="whoever receives all noised sums"),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": train, "clipped": clipped, "noise": noise, **stated}},
    )


def has_low_bits(numbers):
    return (numbers.astype(np.float32).view(np.uint32) & 0xFFFF).any()


data = np.random.default_rng(11).normal(size=(20, 4)) * [1, 1, 0, 1]
data[19] = [0, 0, 0.7, -0.7]
CASE = Case(
    fault="numbers",
    correct=program(noised_sum_rounded),
    broken=program(noise_rounded),
    neighbours=(data, data * (np.arange(20) < 19)[:, None]),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#floating-point-robustness",
    ideal="the low bits of the noised sum are those of the plain sum",
    event=lambda sums: has_low_bits(np.ascontiguousarray(sums[:, 2])),
    proof="without the record the third sum is 0 and has the sixteen bits of the noise; with it, more",
    trials=1000,
)
