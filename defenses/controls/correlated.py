"""Faults of noise that is correlated over rounds: a wrong sensitivity, and tree nodes whose noise is drawn again."""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...fl.plan import Plan
from ..accounting.correlated import CorrelatedNoise, Kind, Participation, correlated_noise
from ..client_level.dp_ftrl import DPFTRL, DPFTRLProtection, participation
from ..defense import Prepared
from .fault import Control


class WrongNoiseProtection(DPFTRLProtection):
    """A protection that runs as DP-FTRL does, with the numbers of a wrong calculation."""


class _Miscounted(Control, DPFTRL):
    """Noise for a sensitivity that is too small."""

    broken = WrongNoiseProtection

    def bug(self, correct: Prepared, plan: Plan) -> dict[str, object]:
        protection: Any = correct.protection
        schema, noise = participation(plan), protection.noise
        share = min(1.0, self.counted(noise, schema) / noise.sensitivity(schema))
        return {"noise_multiplier": protection.noise_multiplier * share}

    @abstractmethod
    def counted(self, noise: CorrelatedNoise, schema: Participation) -> float:
        """Return the sensitivity that is calibrated to, of contributions of norm 1 under noise of scale 1."""


class ControlOneParticipation(_Miscounted):
    """The sensitivity is that of a client who takes part in a single round, and clients take part in several.

    Real bug: no public report is known to us.
    """

    def counted(self, noise: CorrelatedNoise, schema: Participation) -> float:
        return noise.sensitivity(Participation(period=noise.rounds))


class ControlCloserParticipations(_Miscounted):
    """A broken protection: clients take part twice as often as the sensitivity assumes.

    Real bug: no public report is known to us.
    """

    def counted(self, noise: CorrelatedNoise, schema: Participation) -> float:
        return noise.sensitivity(replace(schema, period=2 * schema.period))


class ControlShortHorizon(_Miscounted):
    """A broken protection: its sensitivity is that of a training with half as many rounds.

    Real bug: no public report is known to us.
    """

    def counted(self, noise: CorrelatedNoise, schema: Participation) -> float:
        return noise.sensitivity(schema, max(1, noise.rounds // 2))


@dataclass(frozen=True, kw_only=True)
class ControlRestartUnpaid(_Miscounted):
    """The tree begins anew every second round, and only one of the trees is counted.

    Real bug: no public report is known to us.
    """

    restart: int = 2

    def counted(self, noise: CorrelatedNoise, schema: Participation) -> float:
        return noise.sensitivity(schema, min(self.restart, noise.rounds))


@dataclass(frozen=True, kw_only=True)
class ControlColumnsNotNormalised(_Miscounted):
    """Columns of the strategy count as 1 and as orthogonal, and are longer.

    Real bug: no public report is known to us.
    """

    kind: Kind = "banded_square_root"
    bands: int = 4

    def counted(self, noise: CorrelatedNoise, schema: Participation) -> float:
        return math.sqrt(schema.most(noise.rounds))


class ControlNodesRedrawn(Control, DPFTRL):
    """Each prefix sum draws the noise of its nodes again, instead of the noise that earlier sums have had.

    Real bug: no public report is known to us.
    """

    broken = WrongNoiseProtection

    def bug(self, correct: Prepared, plan: Plan) -> dict[str, object]:
        tree = np.cumsum(correlated_noise("tree", plan.rounds).weights, axis=0)
        fresh = np.diag(np.sqrt(np.square(tree).sum(axis=1)))
        return {"noise": CorrelatedNoise(np.diff(fresh, axis=0, prepend=0.0))}
