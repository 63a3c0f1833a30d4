"""Conformance checks of partitions."""

import numpy as np

from ...fl.partitions.partitions import Partition
from .check import Check, Fault, Subject, built, can_be_sent, equal, no_global_randomness, require

_CLIENTS = 5


def deals(subject: Subject) -> str | None:
    """It deals every client its own samples: ascending, disjoint, none empty."""
    labels = _labels()
    with no_global_randomness():
        hands = subject.make().split(labels, _CLIENTS, np.random.default_rng(0))
    require(len(hands) == _CLIENTS, f"it dealt {len(hands)} hands to {_CLIENTS} clients")
    for hand in map(np.asarray, hands):
        require(hand.ndim == 1 and hand.dtype.kind == "i", f"a hand must hold indices, got {hand.dtype} {hand.shape}")
        require(len(hand), "a client got no sample")
        require((np.diff(hand) > 0).all(), "the indices of a client are not ascending")
        require(hand[0] >= 0 and hand[-1] < len(labels), f"an index is outside 0..{len(labels) - 1}")
    everything = np.concatenate(hands)
    require(len(np.unique(everything)) == len(everything), "two clients hold the same sample")
    return f"{len(everything)} of {len(labels)} samples dealt"


def deterministic(subject: Subject) -> str | None:
    """Equal seeds give equal hands, and the labels stay as they were."""
    labels, partition = _labels(), subject.make()
    first, again = (partition.split(labels, _CLIENTS, np.random.default_rng(0)) for _ in range(2))
    require(equal(tuple(first), tuple(again)), "equal seeds give other hands: it keeps state or draws elsewhere")
    require(equal(labels, _labels()), "it changed the labels")
    return None


def refuses_too_many(subject: Subject) -> str | None:
    """It refuses more clients than samples with a ValueError."""
    partition: Partition = subject.make()
    try:
        partition.split(_labels()[:3], 4, np.random.default_rng(0))
    except ValueError:
        return None
    raise Fault("it dealt 3 samples to 4 clients: raise ValueError, because a client without a sample cannot train")


def _labels() -> np.ndarray:
    # Owners in the case of by_owner: many of each value.
    return np.repeat(np.arange(10), 8)


CHECKS: tuple[Check, ...] = (built, deals, deterministic, refuses_too_many, can_be_sent)
