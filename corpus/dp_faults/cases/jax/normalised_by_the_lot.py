"""Features are centred by the mean of the lot before the gradients of single records are taken.

The correct version centres each record by itself. Four lots at rate .5 with noise multiplier 2: epsilon 1.63 at delta
1e-3.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dp_faults import Case, Claim, Program

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0


def loss(weights, x, y):
    return (x @ weights - y) ** 2 / 2


def by_record(x, present):
    return x - x.mean(1, keepdims=True)


def by_lot(x, present):
    return x - (present @ x) / jnp.maximum(present.sum(), 1)


def clipped(weights, x, y, present, centred):
    rows = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, centred(x, present), y)
    lengths = jnp.linalg.norm(rows, axis=1)
    return (present * jnp.minimum(1, CLIP / jnp.maximum(lengths, 1e-12))) @ rows


def noise(key, total):
    return total + NOISE * CLIP * jax.random.normal(key, total.shape)


def train(data, key, clipped, noise):
    weights, sums = jnp.zeros(2), []
    for one in jax.random.split(key, STEPS):
        of_lot, of_noise = jax.random.split(one)
        present = jax.random.uniform(of_lot, len(data)) < RATE
        sums.append(noise(of_noise, clipped(weights, data[:, :2], data[:, 2], present)))
        weights -= 0.0005 * sums[-1]
    return jnp.stack(sums)


def program(centred):
    clipping = partial(clipped, centred=centred)
    trained = jax.jit(partial(train, clipped=clipping, noise=noise))
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="zero_out", observer="whoever receives all noised sums"),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": train, "clipped": clipping, "noise": noise, **stated}},
    )


data = np.array([[0.0, 0.0, -6.0]] * 19 + [[0.0, 2100.0, 0.0]])
CASE = Case(
    fault="clip",
    correct=program(by_record),
    broken=program(by_lot),
    neighbours=(data, data * (np.arange(20) < 19)[:, None]),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#cross-example-operations-incl-batch-normalization-and-moe-routing",
    ideal="one record moves the gradients of all records of its lot",
    event=lambda sums: sums[:, 1].min() < -5.5,
    proof="a lot with the record has nine gradients of one clip norm, and any other one none",
    trials=1000,
)
