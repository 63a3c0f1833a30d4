"""Null attack that guesses the share of a group in each client's data at random, without using the view."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...audit.arrays import FloatArray
from ...audit.observer import FINAL_MODEL, Observer
from ...fl.candidates import Column
from ...fl.recorder import View
from ..attack import Knowledge
from .property_attack import PropertyAttack


@dataclass(frozen=True, kw_only=True)
class RandomProperty(PropertyAttack):
    """A null attack that draws each client's share uniformly; the baseline of the estimation error is the public
    share.
    """

    null: ClassVar[bool] = True
    observer: ClassVar[Observer] = FINAL_MODEL

    def shares(self, view: View, knowledge: Knowledge, column: Column, rng: np.random.Generator) -> FloatArray:
        return rng.random(view.plan.clients)
