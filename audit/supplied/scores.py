"""Audits a claim with scores that the user supplies: of independent runs, of runs that each gave several scores, or of
many canaries of one run, each of which a fair coin included (Steinke et al. 2023).
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, binomtest

from ..arrays import BoolArray, FloatArray
from ..claim import Claim, check_claim
from ..estimators.catalogue import Estimator
from ..estimators.hockey_stick import MechanismOutputs
from ..estimators.one_run_claim import enough_canaries, one_run_estimators
from ..evidence import CanaryScores, CandidateScores, Design, Guesses, Setting, checked_scores
from ..finding import Finding, Verdict, not_audited, not_run, weak_beyond
from ..measurement import Measurement
from ..wording import plain, shortened
from .chosen import (
    Choice,
    EstimatorOptions,
    check_used,
    chosen,
    default_estimators,
    is_directed,
    measure_canaries,
    measure_runs,
    measured_by,
    splits,
)
from .given import (
    ONE_PER_CLUSTER,
    check_alpha,
    check_copies,
    check_direction,
    check_whole,
    cluster_numbers,
    column,
    direction,
    one_score_per_cluster,
    remark,
    scores_or_rows,
)
from .power import Assignment, judged_by_assignments, too_few_scores

_FIXED = (
    "the members of one model are a fixed split, which no independent coins decided, so that no lower bound on "
    "epsilon holds: a bound needs scores of independent runs (--independent-runs) or of canaries included by fair "
    "coins (--one-run)"
)


def audit_scores(
    member: ArrayLike,
    nonmember: ArrayLike,
    claim: Claim,
    *,
    design: Design | str | None = None,
    higher_is_member: bool | None = None,
    clusters: tuple[ArrayLike, ArrayLike] | None = None,
    estimator: Choice | Sequence[Choice] | None = None,
    alpha: float = 0.05,
    threshold: float | None = None,
    deviation: float | None = None,
    sigma: float | None = None,
    rate: float | None = None,
    steps: int | None = None,
    seed: int = 0,
) -> Finding:
    """Judge a claim by membership scores that the user supplies.

    ``member`` (n1,) and ``nonmember`` (n0,): one finite score per trial. Estimators of whole outputs (``hockey_stick``)
    and of projections (``release_tests``) also take rows, (n1, d) and (n0, d).

    ``design`` must be stated. ``"independent"``: each score is of a run of its own, with its own noise; scores of many
    records in one trained model are not. ``"clustered"``: several scores share a run; ``clusters`` holds the number or
    name of the run of each score, for members and for non-members, and one score of each run is drawn at random.
    ``"one_run"``: the scores are of canaries of one run, which fair coins included (``member``) or not; see
    ``audit_one_run``. ``"fixed_split"``: the scores are of samples of one model whose members no coin chose; the claim
    is OUT_OF_SCOPE, and ``fedassay.MembershipResult`` measures the attack.

    ``higher_is_member``: whether a high score means member (False for losses). None tests it where a part of the scores
    only chooses the threshold; a direction that these contradict is refused, whether or not it was stated.

    ``threshold``: fixed before the scores were seen; None chooses it on a random fifth of each side (by ``seed``) and
    counts errors on the others.

    ``estimator``: a name of ``fedassay list estimators``, by default that of ``default_estimators``; several share
    alpha, because the best of them is reported. ``deviation``, ``sigma``, ``rate``, ``steps``: what some estimators
    need, see ``EstimatorOptions``.

    The stated curve of the claim is tested where there is one. The finding holds with probability 1 - ``alpha``. It is
    UNDERPOWERED where no violation, or only one of more than ten times the claimed epsilon, would be refuted with 90 %
    power, where a side has a single score and no threshold was fixed, and where all or nearly all scores are equal, so
    that no assignment of them to members and non-members would refute the claim.

    Raises ValueError for a design that is not stated, a direction that is not known, an estimator that does not cover
    the design, an option that is out of range or that no estimator uses, scores that are empty or not finite, scores
    that members and non-members share or that are all repeated, and alpha outside (0, 0.5]; TypeError for a claim that
    is not a Claim.
    """
    check_claim(claim)
    check_alpha(alpha)
    check_whole("seed", seed, least=0)
    higher_is_member = direction(higher_is_member)
    stated = _design(design)
    options = EstimatorOptions(threshold=threshold, deviation=deviation, sigma=sigma, rate=rate, steps=steps, seed=seed)
    if (clusters is not None) != (stated is Design.CLUSTERED):
        raise ValueError("clusters must be given if the design is clustered, and only then")
    sides = scores_or_rows("member", member), scores_or_rows("nonmember", nonmember)
    if stated is Design.ONE_RUN:
        check_used(chosen(estimator, Design.ONE_RUN, one_run_estimators(claim)), options)
        scores, coins = _of_one_run(sides, threshold)
        return audit_one_run(
            scores,
            coins,
            claim,
            higher_is_member=higher_is_member,
            estimator=estimator,
            alpha=alpha,
            seed=seed,
            ordered=False,
        )
    if stated is Design.FIXED_SPLIT:
        return not_audited(claim, _FIXED)
    counts = (np.size(sides[0]), np.size(sides[1]))
    found = chosen(estimator, Design.INDEPENDENT, default_estimators(claim, *counts, threshold=threshold))
    check_used(found, options)
    witness = "scores supplied by the user"
    if clusters is not None:
        sides = _reduced(sides, clusters, seed)
        witness += f"; {ONE_PER_CLUSTER}"
    return _judged(found, sides, claim, options, higher_is_member=higher_is_member, alpha=alpha, witness=witness)


def _judged(
    found: Sequence[Estimator],
    sides: tuple[FloatArray, FloatArray],
    claim: Claim,
    options: EstimatorOptions,
    *,
    higher_is_member: bool | None,
    alpha: float,
    witness: str,
) -> Finding:
    """Judge the claim by one score or row of each run, with the estimators ``found``."""
    directed, tested = any(map(is_directed, found)), any(splits(one, options) for one in found)
    if directed:
        sides = checked_scores("member", sides[0]), checked_scores("nonmember", sides[1])
    check_copies(*sides, design=Design.INDEPENDENT)
    halved = tested or any(one.evidence is MechanismOutputs for one in found)
    if halved and (hopeless := too_few_scores(claim, *map(len, sides), alpha=alpha)):
        return not_run(claim, hopeless)
    if directed:
        check_direction(*sides, higher_is_member=higher_is_member, tested=tested, seed=options.seed)
    threshold = options.threshold
    if higher_is_member is False:
        sides, threshold = (-sides[0], -sides[1]), None if threshold is None else -threshold
    shown, setting = Assignment(member=sides[0], nonmember=sides[1], threshold=threshold), Setting.claimed(claim)
    words = witness + remark(*sides)

    def measured(given: Assignment) -> Measurement:
        used = replace(options, threshold=given.threshold)

        def measure(one: Estimator, share: float) -> Measurement:
            sides = given.member, given.nonmember
            return measure_runs(one, *sides, setting, claim, alpha=share, options=used, witness=words)

        return measured_by(found, measure, claim, alpha)

    return judged_by_assignments(claim, shown, measured, seed=options.seed)


def _design(design: Design | str | None) -> Design:
    if design is None:
        raise ValueError(
            "state how the scores depend on each other: independent runs, each with its own noise "
            '(--independent-runs, in Python design="independent"), canaries of one run that fair coins included '
            '(--one-run, design="one_run"), several scores of each run (--clusters COLUMN, design="clustered"), or '
            'samples of one model that no coin chose (--fixed-split, design="fixed_split")'
        )
    return Design(design)


def _of_one_run(sides: tuple[FloatArray, FloatArray], threshold: float | None) -> tuple[FloatArray, BoolArray]:
    """The scores of all canaries of one run, and which of them it included."""
    within, out = checked_scores("member", sides[0]), checked_scores("nonmember", sides[1])
    if threshold is not None:
        raise ValueError(
            "an audit of one run makes guesses on the highest and lowest scores and uses no threshold: "
            "leave threshold out"
        )
    return np.concatenate([within, out]), np.arange(len(within) + len(out)) < len(within)


def _reduced(
    sides: tuple[FloatArray, FloatArray], clusters: tuple[ArrayLike, ArrayLike], seed: int
) -> tuple[FloatArray, FloatArray]:
    within, out = checked_scores("member", sides[0]), checked_scores("nonmember", sides[1])
    if not hasattr(clusters, "__len__") or len(clusters) != 2:
        raise ValueError(f"clusters must be two arrays, of members and of non-members, got {shortened(clusters)}")
    names = [column(np.asarray(part)) for part in clusters]
    if [part.shape for part in names] != [within.shape, out.shape]:
        raise ValueError(
            f"clusters must hold one name per score, of shapes {within.shape} and {out.shape}, "
            f"got {names[0].shape} and {names[1].shape}"
        )
    reduced = one_score_per_cluster(
        np.concatenate([within, out]),
        np.arange(len(within) + len(out)) < len(within),
        np.concatenate(names),
        seed=seed,
    )
    for side, scores in zip(("members", "non-members"), reduced, strict=True):
        if not len(scores):
            raise ValueError(f"the drawn scores, one per cluster, contain none of {side}: there are too few clusters")
    return reduced


_UNFAIR = 1e-6
"""Probability below which a number of included canaries contradicts fair coins."""


def audit_one_run(
    scores: ArrayLike | Mapping[Hashable, float],
    included: ArrayLike | Mapping[Hashable, bool],
    claim: Claim,
    *,
    higher_is_member: bool | None = None,
    estimator: Choice | Sequence[Choice] | None = None,
    guesses: int | None = None,
    dimension: int | None = None,
    alpha: float = 0.05,
    seed: int = 0,
    ordered: bool = True,
    runs: ArrayLike | None = None,
) -> Finding:
    """Judge a claim by the scores of many canaries of one training run, or of several.

    ``scores``: (m,) one finite score per canary; ``included``: (m,) booleans, whether the run contained it. Both may be
    mappings from the canaries' identifiers instead, which are joined, in the order of ``included``: coins and scores in
    two orders would make the test blind.

    ``runs``: (m,) numbers or names of the runs, where there are several. Each coin moves one run alone, and runs share
    no noise, so that all runs together are one mechanism with the claimed privacy of each coin, and the theorem counts
    all of their scores. It takes coins of their own in each run: equal numbers of included canaries are refused.

    The theorem assumes that an independent fair coin decided for each canary, and that the scores were computed from
    the run's output without the coins. The canaries may share the run's noise. ``higher_is_member`` must be stated,
    because all scores are counted: whether a high score means "included" (False for losses). A direction that the
    scores contradict is refused. ``guesses``: their number, fixed before the scores were seen; None plans it from the
    claim and m. ``seed``: breaks ties.

    ``estimator``: ``one_run``; for a claim with a Gaussian curve also ``one_run_fdp`` and ``one_run_rates`` (scores
    that are independent given the coins); or ``one_shot`` (cosines of canaries that were all included, with the
    ``dimension`` of the model; an estimate that never refutes). By default the first two where the claim allows both,
    at half of alpha each: they assume least.

    ``ordered``: whether the canaries stand in the order in which their coins were thrown; a fixed split is then refused
    (``check_split``). False for scores that were sorted.

    The finding is UNDERPOWERED where all or nearly all scores are equal. Raises ValueError for scores and coins of
    different shapes or identifiers, coins that cannot have been fair, a direction that is not stated, scores that are
    all repeated, an estimator of another design, and ``dimension`` or ``guesses`` where no estimator uses them;
    TypeError for a claim that is not a Claim.
    """
    check_claim(claim)
    check_alpha(alpha)
    check_whole("seed", seed, least=0)
    higher_is_member = direction(higher_is_member)
    setting = replace(Setting.claimed(claim), design=Design.ONE_RUN)
    if isinstance(scores, Mapping) or isinstance(included, Mapping):
        scores, included = _joined(scores, included)
    candidates = CandidateScores(checked_scores("scores", scores_or_rows("scores", scores)), setting)
    coins = _booleans(included, len(candidates.values))
    if ordered:
        check_split(coins)
    if guesses is not None:
        check_whole("guesses", guesses, least=1, most=len(coins))
    witness = "scores of canaries supplied by the user"
    found = chosen(estimator, Design.ONE_RUN, one_run_estimators(claim))
    options = EstimatorOptions(dimension=dimension, seed=seed)
    check_used(found, options)
    guessing = any(one.evidence is Guesses for one in found)
    if guesses is not None and not guessing:
        raise ValueError(f"{found[0].name} makes no guesses: leave out the option guesses")
    if guessing or any(one.evidence is CanaryScores for one in found):
        witness += _checked(candidates.values, coins, higher_is_member, seed)
        if runs is not None:
            witness += _checked_runs(coins, runs)
    if higher_is_member is False:
        candidates = CandidateScores(-candidates.values, setting)

    own = Assignment(member=candidates.values[coins], nonmember=candidates.values[~coins])

    def measured(given: Assignment) -> Measurement:
        shown, truth = candidates, coins
        if given is not own:
            shown = CandidateScores(np.concatenate([given.member, given.nonmember]), setting)
            truth = np.arange(len(coins)) < len(given.member)
        used: dict[str, Any] = {"options": options, "guesses": guesses, "witness": witness}

        def measure(one: Estimator, share: float) -> Measurement:
            return measure_canaries(one, shown, truth, claim, alpha=share, **used)

        return measured_by(found, measure, claim, alpha)

    finding = judged_by_assignments(claim, own, measured, seed=seed)
    return finding if estimator is not None or guesses is not None else _naming_enough(finding, claim, alpha)


def _naming_enough(finding: Finding, claim: Claim, alpha: float) -> Finding:
    """The finding; of a weak test its reason also states how many canaries would do."""
    reached = None if finding.measurement is None else finding.measurement.ceiling
    few = finding.weak or (reached is not None and reached <= claim.epsilon)
    if not few or finding.verdict is not Verdict.UNDERPOWERED:
        return finding
    enough = enough_canaries(claim, weak_beyond(claim.epsilon), alpha=alpha)
    return replace(finding, reason=f"{finding.reason}; {enough}")


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


def _joined(
    scores: ArrayLike | Mapping[Hashable, float], included: ArrayLike | Mapping[Hashable, bool]
) -> tuple[list[float], list[bool]]:
    """Scores and coins of the same canaries, in the order of ``included``."""
    if not (isinstance(scores, Mapping) and isinstance(included, Mapping)):
        raise ValueError(
            "scores and included must both be mappings from canary identifiers, or both arrays in the same order"
        )
    for what, one, other in (("score", included, scores), ("coin", scores, included)):
        if missing := [name for name in one if name not in other]:
            raise ValueError(f"every canary must have a {what}, got none for {len(missing)}, such as {missing[0]!r}")
    return [scores[name] for name in included], list(included.values())


def _booleans(included: ArrayLike, canaries: int) -> BoolArray:
    coins = column(np.asarray(included))
    if coins.dtype.kind in "iuf" and np.isin(coins, (0, 1)).all():
        coins = coins.astype(np.bool_)
    if coins.dtype != np.bool_ or coins.shape != (canaries,):
        raise ValueError(
            f"included must be booleans of shape ({canaries},), one per canary, got {coins.dtype} of {coins.shape}"
        )
    return coins


def check_split(included: BoolArray) -> None:
    """Raise ValueError if ``included`` (m,) looks like a fixed split and not like coin flips: the first half of the
    canaries, the last half, or every other canary.

    Fair coins are refused with probability 1e-6 at most.
    """
    changes = int((included[1:] != included[:-1]).sum())
    halves = changes == 1 and 2 * int(included.sum()) == len(included)
    if 4 * 2.0 ** -len(included) < _UNFAIR and (halves or changes == len(included) - 1):
        which = "the first or the second half of the canaries" if halves else "every other canary"
        raise ValueError(
            f"{which} was included, which is a fixed split and not a fair coin for each canary; if you sorted the "
            "rows, give them "
            "in the order of the coins, or as two columns of scores"
        )


def _check_coins(coins: BoolArray) -> None:
    """Refuse coins that cannot have been fair; fair ones are refused with probability 1e-6 at most."""
    taken = int(coins.sum())
    p = float(binomtest(taken, len(coins), 0.5).pvalue)
    if p < _UNFAIR:
        raise ValueError(
            f"{taken} of {len(coins)} canaries were included, which independent fair coins give with probability "
            f"{plain(p)}: an audit of one run needs a fair coin for each canary"
        )


def _checked_runs(coins: BoolArray, runs: ArrayLike) -> str:
    """Refuse runs that all included the same number of canaries, and return in words how many there are; fair coins of
    each run are refused with probability 1e-6 at most.
    """
    places = cluster_numbers(runs, len(coins))
    sizes, taken = np.bincount(places), np.bincount(places, weights=coins)
    equal = np.ptp(sizes) == np.ptp(taken) == 0
    if equal and binom.pmf(sizes[0] // 2, sizes[0], 0.5) ** (len(sizes) - 1) < _UNFAIR:
        raise ValueError(
            f"each of {len(sizes)} runs included exactly {taken[0]:.0f} of {sizes[0]} canaries, which is a fixed "
            "number and not what independent fair coins give"
        )
    return f"; they come from {len(sizes)} runs, which count as one mechanism"
