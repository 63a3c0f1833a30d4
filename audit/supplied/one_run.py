"""Audits a claim with scores of many canaries of one run, each of which a fair coin included (Steinke et al. 2023)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binomtest

from ..arrays import BoolArray, FloatArray
from ..claim import Claim, check_claim
from ..estimators.catalogue import Estimator
from ..estimators.one_run_claim import one_run_estimators
from ..evidence import CandidateScores, Design, Guesses, Setting, checked_scores
from ..finding import Finding
from ..measurement import Measurement
from ..wording import plain
from .assignment import Assignment, judged_with_power
from .chosen import Choice, EstimatorOptions, check_used, chosen, measure_canaries, measured_by
from .copies import check_copies, remark
from .direction import check_direction
from .given import check_alpha, check_whole, column, direction, scores_or_rows

_UNFAIR = 1e-6
"""Probability below which a number of included canaries contradicts fair coins."""


def audit_one_run(
    scores: ArrayLike,
    included: ArrayLike,
    claim: Claim,
    *,
    higher_is_member: bool | None = None,
    estimator: Choice | Sequence[Choice] | None = None,
    guesses: int | None = None,
    dimension: int | None = None,
    alpha: float = 0.05,
    seed: int = 0,
) -> Finding:
    """Judge a claim by the scores of many canaries of one training run.

    ``scores``: (m,) one finite score per canary; ``included``: (m,) booleans, whether the run contained it.

    The theorem assumes that an independent fair coin decided for each canary, and that the scores were computed from
    the run's output without the coins. The canaries may share the run's noise. ``higher_is_member`` must be stated,
    because all scores are counted: whether a high score means "included" (False for losses). A direction that the
    scores contradict is refused. ``guesses``: their number, fixed before the scores were seen; None plans it from the
    claim and m. ``seed``: breaks ties.

    ``estimator``: ``one_run``, ``one_run_fdp`` (for a claim with a Gaussian curve), or ``one_shot`` (cosines of
    canaries that were all included, with the ``dimension`` of the model; an estimate that never refutes). By default
    the first two where the claim allows both, at half of alpha each.

    The finding is UNDERPOWERED where all or nearly all scores are equal. Raises ValueError for scores and coins of
    different shapes, coins that cannot have been fair, a direction that is not stated, scores that are all repeated,
    an estimator of another design, and ``dimension`` or ``guesses`` where no estimator uses them; TypeError for a claim
    that is not a Claim.
    """
    check_claim(claim)
    check_alpha(alpha)
    check_whole("seed", seed, least=0)
    higher_is_member = direction(higher_is_member)
    setting = Setting(
        unit=claim.unit,
        adjacency=claim.adjacency,
        observer=claim.observer,
        rounds=claim.rounds,
        design=Design.ONE_RUN,
    )
    candidates = CandidateScores(checked_scores("scores", scores_or_rows("scores", scores)), setting)
    coins = _booleans(included, len(candidates.values))
    if guesses is not None:
        check_whole("guesses", guesses, least=1, most=len(coins))
    witness = "scores of canaries supplied by the user"
    found = chosen(estimator, Design.ONE_RUN, one_run_estimators(claim))
    options = EstimatorOptions(dimension=dimension, seed=seed)
    check_used(found, options)
    guessing = any(one.evidence is Guesses for one in found)
    if guesses is not None and not guessing:
        raise ValueError(f"{found[0].name} makes no guesses: leave guesses out")
    if guessing:
        witness += _checked(candidates.values, coins, higher_is_member, seed)
    if higher_is_member is False:
        candidates = CandidateScores(-candidates.values, setting)

    def measured(shown: CandidateScores, truth: BoolArray) -> Measurement:
        def measure(one: Estimator, share: float) -> Measurement:
            return measure_canaries(
                one,
                shown,
                truth,
                claim,
                alpha=share,
                options=options,
                guesses=guesses,
                witness=witness,
            )

        return measured_by(found, measure, claim, alpha)

    def assigned(shown: Assignment) -> Measurement:
        values = CandidateScores(np.concatenate([shown.member, shown.nonmember]), setting)
        return measured(values, np.arange(len(coins)) < len(shown.member))

    own = Assignment(member=candidates.values[coins], nonmember=candidates.values[~coins])
    return judged_with_power(claim, measured(candidates, coins), own, assigned, seed=seed)


def _checked(scores: FloatArray, coins: BoolArray, higher_is_member: bool | None, seed: int) -> str:
    """Refuse coins, scores and a direction from which no guess can be made; return a remark on the scores."""
    _check_coins(coins)
    sides = scores[coins], scores[~coins]
    both = all(map(len, sides))
    if both:
        check_copies(*sides, design=Design.ONE_RUN)
    if both or higher_is_member is None:
        check_direction(*sides, higher_is_member=higher_is_member, tested=False, seed=seed)
    return remark(*sides) if both else ""


def _booleans(included: ArrayLike, canaries: int) -> BoolArray:
    coins = column(np.asarray(included))
    if coins.dtype.kind in "iuf" and np.isin(coins, (0, 1)).all():
        coins = coins.astype(np.bool_)
    if coins.dtype != np.bool_ or coins.shape != (canaries,):
        raise ValueError(
            f"included must be booleans of shape ({canaries},), one per canary, got {coins.dtype} of {coins.shape}"
        )
    return coins


def _check_coins(coins: BoolArray) -> None:
    """Refuse coins that cannot have been fair; fair ones are refused with probability 1e-6 at most."""
    taken = int(coins.sum())
    p = float(binomtest(taken, len(coins), 0.5).pvalue)
    if p < _UNFAIR:
        raise ValueError(
            f"{taken} of {len(coins)} canaries were included, which independent fair coins give with probability "
            f"{plain(p)}: an audit of one run needs a fair coin for each canary"
        )
