"""Conformance checks of sampling rules."""

import numpy as np
import torch

from .check import Check, Subject, built, can_be_sent, equal, no_global_randomness, require

_REPLICAS, _ITEMS, _TURNS = 400, 12, 12


def draws_masks(subject: Subject) -> str | None:
    """It draws a mask (replicas, items) of booleans, without a global generator."""
    rule = subject.make()
    with no_global_randomness():
        mask = rule.draw(np.random.default_rng(0), 3, _ITEMS)
    require(isinstance(mask, torch.Tensor), f"draw must return a tensor, got {type(mask).__name__}")
    require(mask.dtype == torch.bool, f"the mask must hold booleans, got {mask.dtype}")
    require(tuple(mask.shape) == (3, _ITEMS), f"the mask must have shape (3, {_ITEMS}), got {tuple(mask.shape)}")
    require(int(mask.sum(1).max()) <= rule.most(_ITEMS), f"it drew more than most({_ITEMS}) = {rule.most(_ITEMS)}")
    return None


def deterministic(subject: Subject) -> str | None:
    """Equal generators give equal draws."""
    rule = subject.make()
    first, again = (rule.draw(np.random.default_rng(3), 3, _ITEMS) for _ in range(2))
    require(equal(first, again), "equal generators give other draws: it keeps state")
    return None


def rate(subject: Subject) -> str | None:
    """The mean share that it draws is the rate that it states."""
    rule = subject.make()
    stated = rule.rate(_ITEMS)
    require(0 < stated <= 1, f"rate({_ITEMS}) must be in (0, 1], got {stated}")
    # One generator per pass: a pass may cut one random order into several turns.
    shares = [
        rule.draw(np.random.default_rng(rule.pass_start(turn)), _REPLICAS, _ITEMS, turn - rule.pass_start(turn))
        for turn in range(_TURNS)
    ]
    found = float(torch.stack(shares).double().mean())
    # Five standard deviations of independent draws, the largest spread of any rule.
    slack = 5 * (stated * (1 - stated) / (_REPLICAS * _ITEMS)) ** 0.5 + 1e-9
    require(abs(found - stated) <= slack, f"it states {stated:.4g} and drew {found:.4g} of {_REPLICAS} replicas")
    return f"stated {stated:.4g}, drawn {found:.4g}"


CHECKS: tuple[Check, ...] = (built, draws_masks, deterministic, rate, can_be_sent)
