"""The mean loss of each lot is returned beside the noised sums, for a curve that is published.

The correct version returns the loss on public records. Four lots at rate .5 with noise multiplier 2: epsilon 1.63 at
delta 1e-3.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dp_faults import Case, Claim, Program

STEPS, RATE, NOISE, CLIP = 4, 0.5, 2.0, 1.0
PUBLIC = np.random.default_rng(8).normal(size=(30, 4))


def loss(weights, x, y):
    return (x @ weights - y) ** 2 / 2


def clipped(weights, x, y, present):
    rows = jax.vmap(jax.grad(loss), (None, 0, 0))(weights, x, y)
    lengths = jnp.linalg.norm(rows, axis=1)
    return (present * jnp.minimum(1, CLIP / jnp.maximum(lengths, 1e-12))) @ rows


def noise(key, total):
    return total + NOISE * CLIP * jax.random.normal(key, total.shape)


def of_public_records(weights, data, present):
    return loss(weights, PUBLIC[:, :3], PUBLIC[:, 3]).mean()


def of_the_lot(weights, data, present):
    return present @ loss(weights, data[:, :3], data[:, 3]) / jnp.maximum(present.sum(), 1)


def train(data, key, clipped, noise, measured):
    weights, seen = jnp.zeros(3), []
    for one in jax.random.split(key, STEPS):
        of_lot, of_noise = jax.random.split(one)
        present = jax.random.uniform(of_lot, len(data)) < RATE
        noised = noise(of_noise, clipped(weights, data[:, :3], data[:, 3], present))
        seen.append(jnp.append(noised, measured(weights, data, present)))
        weights -= 0.05 * noised / 10
    return jnp.stack(seen)


def program(measured):
    trained = jax.jit(partial(train, clipped=clipped, noise=noise, measured=measured))
    stated = {"noise_multiplier": NOISE, "clip_norm": CLIP, "rate": RATE, "steps": STEPS}
    observer = "whoever receives all noised sums and the curve"
    return Program(
        claim=Claim(epsilon=1.63, delta=1e-3, adjacency="zero_out", observer=observer),
        release=lambda data, rng: np.asarray(trained(data, jax.random.key(rng.integers(2**31))), float),
        parts={"jax": {"train": partial(train, measured=measured), "clipped": clipped, "noise": noise, **stated}},
    )


data = np.random.default_rng(9).normal(size=(20, 4))
data[19] = [0, 0, 0, 100]
CASE = Case(
    fault="protocol",
    correct=program(of_public_records),
    broken=program(of_the_lot),
    neighbours=(data, data * (np.arange(20) < 19)[:, None]),
    source="https://github.com/google-deepmind/jax_privacy/blob/main/docs/sharp_edges_dp_training_pitfalls.md#auxiliary-information",
    ideal="the curve is a function of the private lots that nothing protects",
    event=lambda seen: seen[:, 3].max() > 50,
    proof="a lot with the record has a mean loss of 250 or more, and any other one of less than 10",
    trials=1000,
)
