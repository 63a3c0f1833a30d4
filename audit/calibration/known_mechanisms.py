"""Mechanisms whose privacy is known exactly, and attack scores drawn from them to calibrate estimators.

All evidence is built from scores drawn with and without the canary, so that one law serves all estimators.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..claim import Adjacency, Unit
from ..curve import GaussianCurve
from ..estimators.catalogue import Estimator
from ..estimators.hockey_stick import MechanismOutputs
from ..estimators.one_run import guess
from ..estimators.pairwise_event import EventCounts
from ..estimators.release_tests import BrokenRelease, GaussianRelease, design_test
from ..evidence import CandidateScores, Design, Guesses, MembershipScores, Projections, Setting
from ..gaussian import epsilon_from_mu
from ..nearest import nearest
from ..observer import UPLOADS
from ..power.threshold import FixedThreshold

MU, EPSILON = 1.0, 1.0
DIMENSION = 10_000
REVEALED = 20.0
"""The score of a canary whose membership is revealed outright; it lies beyond all other scores."""


@dataclass(frozen=True, kw_only=True)
class KnownMechanism:
    """A mechanism that is exactly (``epsilon``, ``delta``)-DP, observed through one score per trial.

    Gaussian: N(0, 1) against N(MU, 1), exactly MU-GDP. Otherwise membership is revealed with chance delta, and else the
    score is Laplace of scale 1 about 0 or EPSILON. Its hockey-stick divergence is delta at every cut beyond both
    centres, so that every such cut meets the claim exactly, and choosing the luckiest cut becomes visible.
    """

    gaussian: bool
    epsilon: float
    delta: float

    @property
    def threshold(self) -> float:
        """The score above which a trial of this mechanism counts as a guess of "member"; it is fixed before any score
        is drawn.

        It is halfway between both means for a Gaussian, else at the edge of the region in which every threshold meets
        the claim exactly.
        """
        return MU / 2 if self.gaussian else EPSILON

    def draw(self, world: int, n: int, rng: np.random.Generator, *, leak: float = 1.0) -> FloatArray:
        """Draw the scores of ``n`` trials with the canary (``world`` 1) or without it (``world`` 0), as an array of
        shape ``(n,)``.

        ``leak`` sets how much the scores reveal: 0 nothing, 1 as much as the claim allows, 2 as with half the noise.
        """
        # A leak above 1 lowers the noise and moves no centre, as the usual bug does.
        noise = 1 / max(leak, 1.0)
        if self.gaussian:
            return rng.normal(MU * world * (leak > 0), noise, n)
        scores = rng.laplace(EPSILON * world * (leak > 0), noise, n)
        revealed = rng.random(n) < self.delta * (leak > 0)
        return np.asarray(np.where(revealed, REVEALED if world else -REVEALED, scores), dtype=np.float64)


def known_mechanism_for(evidence: type[Any], *, gaussian: bool) -> KnownMechanism:
    """Return the mechanism of known privacy on which an estimator that takes this type of evidence is calibrated.

    ``gaussian``: whether the estimator or the evidence assumes a Gaussian mechanism.
    """
    if gaussian or evidence in (Projections, CandidateScores):
        return KnownMechanism(gaussian=True, epsilon=epsilon_from_mu(MU, 1e-5), delta=1e-5)
    # Trials tolerate a large delta, which a one-run theorem multiplies by twice the number of canaries.
    return KnownMechanism(gaussian=False, epsilon=EPSILON, delta=1e-5 if evidence is Guesses else 0.1)


def setting(trials: Design) -> Setting:
    """Return the setting of the calibration's trials: one round, observed by a server that receives
    individual updates.
    """
    return Setting(unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=UPLOADS, rounds=1, design=trials)


def evidence_of(
    estimator: Estimator, member: Any, nonmember: Any, law: KnownMechanism, *, rng: np.random.Generator, trials: Design
) -> tuple[Any, ...]:
    """Convert scores drawn with and without the canary to the type of evidence that the estimator takes, such as
    guesses.

    Raises TypeError for an unknown type of evidence.
    """
    makers: dict[type[Any], Callable[[], tuple[Any, ...]]] = {
        MembershipScores: lambda: (MembershipScores(member, nonmember, setting(trials)),),
        MechanismOutputs: lambda: (MechanismOutputs(_column(member), _column(nonmember), setting(trials)),),
        EventCounts: lambda: (_counts(member, nonmember, law, setting(trials)),),
        Projections: lambda: (_projections(member, trials), _projections(nonmember, trials)),
        Guesses: lambda: (_guesses(member, nonmember, rng, setting(trials)),),
        CandidateScores: lambda: (
            CandidateScores(np.asarray(member, dtype=np.float64) / math.sqrt(DIMENSION), setting(trials)),
        ),
    }
    if estimator.evidence not in makers:
        known = nearest(estimator.evidence.__name__, [kind.__name__ for kind in makers])
        raise TypeError(
            f"estimator {estimator.name} takes evidence of type {estimator.evidence.__name__}, which the "
            f"calibration cannot simulate; known types: {known}"
        )
    return makers[estimator.evidence]()


def levels_of(
    estimator: Estimator, law: KnownMechanism, *, alpha: float, null: bool = False, curve: bool = False
) -> dict[str, Any]:
    """Return the keyword arguments (such as alpha, delta and epsilon) with which the calibration calls an estimator.

    They are those of a true claim, or of a mechanism without any leak (``null``).

    ``curve``: also the stated curve. Raises TypeError for a keyword without a known value.
    """
    known: dict[str, Callable[[], Any]] = {
        "delta": lambda: law.delta,
        "alpha": lambda: alpha,
        "threshold": lambda: FixedThreshold(law.threshold),
        "curve": lambda: GaussianCurve(0.0 if null else MU) if law.gaussian else None,
        "epsilon": lambda: 0.0 if null else law.epsilon,
        "sigma": lambda: 1 / MU,
        "rate": lambda: 1.0,
        "steps": lambda: 1,
        "rounds": lambda: 1,
        "dimension": lambda: DIMENSION,
        "release": lambda: _release(),
        "tests": lambda: [_test_of_half_the_noise(law)],
    }
    wanted = estimator.required | ({"curve"} if curve else set())
    for name in wanted - set(known):
        raise TypeError(
            f"estimator {estimator.name} requires argument {name!r}, for which the calibration has no value; "
            f"known: {nearest(name, known)}"
        )
    return {name: known[name]() for name in wanted}


def _release() -> GaussianRelease:
    return GaussianRelease(sigma=1 / MU)


def _test_of_half_the_noise(law: KnownMechanism) -> Any:
    # A seed of its own: the test must be fixed before any counted score is drawn.
    broken, rng = BrokenRelease(noise=0.5), np.random.default_rng(0)
    return design_test(
        _release(), broken, n=500, delta=law.delta, curve=GaussianCurve(MU), epsilon=law.epsilon, rng=rng
    )


def _column(values: Any) -> FloatArray:
    return np.asarray(values, dtype=np.float64)[:, np.newaxis]


def _projections(scores: Any, trials: Design) -> Projections:
    values = _column(scores) / MU
    return Projections(values, np.ones(values.shape, dtype=np.bool_), setting(trials))


def _counts(member: Any, nonmember: Any, law: KnownMechanism, of: Setting) -> EventCounts:
    # A NaN is never above a threshold: counted, it would be a miss instead of an error.
    hits = [
        int(np.count_nonzero(side > law.threshold)) if np.isfinite(side).all() else math.nan
        for side in (np.asarray(member), np.asarray(nonmember))
    ]
    return EventCounts(hits_in=hits[0], n1=len(member), hits_out=hits[1], n0=len(nonmember), setting=of)  # type: ignore[arg-type]


def _guesses(member: Any, nonmember: Any, rng: np.random.Generator, of: Setting) -> Guesses:
    scores = CandidateScores(np.r_[member, nonmember], of)
    truth = np.r_[np.ones(len(member), dtype=np.bool_), np.zeros(len(nonmember), dtype=np.bool_)]
    # The number depends on the canaries alone, because the theorem needs it fixed before any score.
    side = max(1, len(truth) // 10)
    return guess(scores, truth, highest=side, lowest=side, rng=rng)
