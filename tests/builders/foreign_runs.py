"""Recordings of a made-up DP-SGD: Poisson lots, clipped rows, Gaussian noise, an accountant; any part can be broken."""

import numpy as np
import torch
from fedassay.checks.training_record import Release, TrainingRecord
from fedassay.checks.watched_sums import contributions
from fedassay.fl.layout import Layout

LAYOUT = Layout(names=("weight", "bias", "head"), shapes=((8, 12), (8,), (5, 8)))
NOISE, CLIP, RATE, RECORDS = 1.1, 0.7, 0.2, 100


def recording(seed=0, *, steps=12, noise=None, lots=None, sums=None, ledger=None, rows=True):
    """``noise(rng, steps, d)`` in standard deviations; ``lots(rng, steps)``; ``sums(rows)``; each honest by default."""
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal((steps, LAYOUT.dim)) if noise is None else noise(rng, steps, LAYOUT.dim)
    chosen = poisson(rng, steps) if lots is None else lots(rng, steps)
    vectors = rng.standard_normal((RECORDS, LAYOUT.dim)) * rng.lognormal(-2, 1, (RECORDS, 1))
    releases = []
    for step, ids in enumerate(chosen):
        came = torch.from_numpy(vectors[list(ids)]).float()
        total = clipped(came).sum(0) if sums is None else sums(came)
        found = contributions(came, total, CLIP, tensors=LAYOUT.slices)
        released = total + torch.from_numpy(NOISE * CLIP * drawn[step]).float()
        releases.append(
            Release(
                step=step,
                released=released,
                received=total,
                expected=found.expected if rows else None,
                longest=found.longest if rows else None,
                rule=found.rule,
                clip_norm=CLIP,
                noise_multiplier=NOISE,
                rows=len(ids),
                ids=tuple(ids),
            )
        )
    return TrainingRecord(
        layout=LAYOUT,
        releases=tuple(releases),
        ledger=((NOISE, RATE, steps),) if ledger is None else ledger,
        population=RECORDS,
        moved=(),
        steps=steps,
    )


def clipped(rows):
    lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
    return rows * (CLIP / (lengths + 1e-6)).clamp(max=1.0)


def poisson(rng, steps):
    return [tuple(np.flatnonzero(rng.random(RECORDS) < RATE)) for _ in range(steps)]


def shuffled(rng, steps):
    """Lots of a shuffled loader: epochs of permutations, cut into lots of one size."""
    size = int(RATE * RECORDS)
    order = np.concatenate([rng.permutation(RECORDS) for _ in range(-(-steps * size // RECORDS))])
    return [tuple(order[size * n : size * (n + 1)]) for n in range(steps)]
