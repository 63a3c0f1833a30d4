"""Anytime-valid lower bound on epsilon by betting against the whole claim: the audit may stop after any pair of runs.

Before each pair of runs (one with, one without the canary), a mixture of bets on guesses (``audit.betting``) is chosen
that would have grown most on the pairs before it. Neither thresholds nor held-out runs are needed: cuts, directions,
and the tangents of the claim's curve on which most is staked follow from earlier runs. Of rows with several columns the
score is learnt in the same way, by a classifier and by the witness of a Gaussian kernel (the function in which the mean
embeddings of both arms differ; Gretton et al. 2012), as in the sequential tests of Gonzalez et al. (2025) of
(epsilon, delta) and of Kutta et al. (2026) of trade-off curves.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from ..arrays import FloatArray
from ..betting import KEPT, allowed, best_mixture, payments, pays, tangents_of
from ..binomial import check_epsilon
from ..bisection import crossing
from ..curve import Curve, Tangent
from ..evidence import Setting
from ..measurement import INDEPENDENT_TRIALS, Measurement
from ..power import forbidden_curve
from .hockey_stick import MechanismOutputs, fit
from .joint_point import check_independent_trials

_MONEY_KEPT = np.array([0.5, 2.0, 8.0])
"""Pseudo-counts of money kept, one share of the capital each: few for large violations, many for small ones."""
_BLOCK, _EVEN, _FEWEST = 1.15, 5, 8
"""Growth of the number of pairs after which the mixture is chosen anew; evenly spaced cuts; scores beyond a cut."""
_EXPECTED = 10.0
"""Pairs of runs as which expected scores count."""
_RUNG, _RUNGS = 0.25, 8
"""Smallest step of epsilon for which bets are tuned; most steps up to the claimed epsilon."""
_LARGEST = 300.0
"""The largest epsilon to bet against."""
_CURVE_SHARE = 0.9
"""The share of alpha that tests the curve, where one is stated; the rest bounds epsilon."""
_TO_LEARN, _COLUMNS, _REMEMBERED = 4, 64, 512
"""Pairs before scores are learnt; most columns of a classifier; most pairs that a kernel's witness compares."""
Arms = tuple[FloatArray, FloatArray]
"""Scores (n,) or rows (n, d) of runs with the canary, and without it."""


@dataclass(frozen=True, eq=False)
class Capital:
    """The capital of several bettors against a claim, who share an initial capital of 1 equally.

    ``log``: (bettors, n) logarithm of what each made of 1 after each pair; ``staked``: (bettors, n, k) the shares
    staked on each of ``tangents`` before it.
    """

    log: FloatArray
    staked: FloatArray
    tangents: tuple[Tangent, ...]

    def path(self) -> FloatArray:
        """Return the logarithm of the total capital after each pair of runs, (n,)."""
        return np.asarray(np.logaddexp.reduce(self.log, axis=0) - math.log(len(self.log)), dtype=np.float64)

    def against(self, epsilon: float, delta: float) -> FloatArray:
        """Return a lower bound on ``path`` for bets against another (``epsilon``, ``delta``) claim; the bound falls
        with epsilon.
        """
        most = allowed(self.staked, pays(self.tangents), epsilon, delta)
        return Capital(self.log - 2 * np.cumsum(np.log(most), axis=-1), self.staked, self.tangents).path()

    @property
    def mostly(self) -> Tangent:
        """The tangent that received the largest stakes of the most successful bettor."""
        best = int(np.argmax(self.log[:, -1]))
        return self.tangents[int(np.argmax(self.staked[best].sum(axis=0)))]


def capital(
    scores: Sequence[Arms], tangents: tuple[Tangent, ...], *, expected: Sequence[Arms | None] | None = None
) -> Capital:
    """Bet against a claim on each of several ``scores`` of the same pairs of runs; a score is a pair of arrays (n,).

    ``expected``: for each score values of both arms that were simulated beforehand, on which bets are based before the
    first pair; None bets from the second pair on.
    """
    each = [
        list(_blocks(member, nonmember, pays(tangents), known))
        for (member, nonmember), known in zip(scores, expected or [None] * len(scores), strict=True)
    ]
    log = np.concatenate([np.concatenate([won for won, _ in blocks], axis=1) for blocks in each])
    staked = np.concatenate([np.concatenate([on for _, on in blocks], axis=1) for blocks in each])
    return Capital(np.cumsum(log, axis=1), staked, tangents)


def _blocks(
    member: FloatArray, nonmember: FloatArray, paid: FloatArray, expected: Arms | None
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """For each block of pairs what they won (bettors, pairs), and what was staked (bettors, pairs, tangents)."""
    start = end = 0
    prior = np.zeros((2, 1))
    cuts = np.zeros(0) if expected is None else _cuts(np.concatenate(expected))
    if expected is not None:
        prior = np.stack([_EXPECTED * _counts(side, cuts) / len(side) for side in expected])
    while start < len(member):
        end = min(len(member), max(start + 1, int(start * _BLOCK)))
        past = member[:start], nonmember[:start]
        if expected is None and start:
            cuts = _cuts(np.concatenate(past))
        counts = np.stack([_counts(side, cuts) for side in past]) + prior
        shares, logs = _mixture(counts.tobytes(), len(cuts) + 1, paid.tobytes())
        within, out = (np.searchsorted(cuts, side[start:end]) for side in (member, nonmember))
        staked = shares[KEPT:].reshape(-1, len(paid), shares.shape[1]).sum(axis=0).T
        yield (logs[0, within] + logs[1, out]).T, np.repeat(staked[:, np.newaxis], end - start, axis=1)
        start = end


# Cached, because an audit that looks after every run chooses the mixtures of earlier runs again.
@lru_cache(maxsize=4096)
def _mixture(counts: bytes, cells: int, paid: bytes) -> tuple[FloatArray, FloatArray]:
    """The best mixtures (stakes, bettors), and the logarithms of what they pay (2, cells, bettors)."""
    pay = payments(cells, np.frombuffer(paid).reshape(-1, 2))
    shares = best_mixture(np.frombuffer(counts).reshape(2, cells), pay, _MONEY_KEPT)
    return shares, np.log(pay @ shares)


def _cuts(pooled: FloatArray) -> FloatArray:
    """Cuts midway between scores: evenly spaced ones, and ever denser ones towards both ends, but the outermost."""
    levels = np.unique(pooled)
    last = len(levels) - 2
    if last < 0:
        return np.zeros(0)
    # Few runs do not tell rare events from chance.
    tail = _FEWEST * 3 ** np.arange(max(1, int(last).bit_length())) - 1
    tail = tail[tail <= last // 2]
    chosen = np.unique(np.concatenate([tail, last - tail, np.linspace(0, last, _EVEN + 2).astype(int)[1:-1]]))
    return np.asarray(levels[chosen] / 2 + levels[chosen + 1] / 2, dtype=np.float64)


def _counts(scores: FloatArray, cuts: FloatArray) -> FloatArray:
    return np.bincount(np.searchsorted(cuts, scores), minlength=len(cuts) + 1).astype(np.float64)


def learned_scores(member: FloatArray, nonmember: FloatArray) -> list[Arms]:
    """Return scores of rows (n, d); each row's score is learned from earlier pairs only. A single column is used as it
    is.
    """
    if member.shape[1] == 1:
        return [(member[:, 0], nonmember[:, 0])]
    learners = [_witness] if member.shape[1] > _COLUMNS else [_classifier, _witness]
    found = [(np.zeros(len(member)), np.zeros(len(member))) for _ in learners]
    start = _TO_LEARN
    while start < len(member):
        end = max(start + 1, int(start * _BLOCK))
        for learner, scores in zip(learners, found, strict=True):
            new = learner(member[:start], nonmember[:start], (member[start:end], nonmember[start:end]))
            for side, values in zip(scores, new, strict=True):
                side[start:end] = values
        start = end
    return found


def _classifier(member: FloatArray, nonmember: FloatArray, rows: Arms) -> Arms:
    learnt = fit(member, nonmember)
    return learnt.score(rows[0]), learnt.score(rows[1])


def _witness(member: FloatArray, nonmember: FloatArray, rows: Arms) -> Arms:
    """The mean Gaussian kernel with earlier runs with the canary, less that with earlier runs without it."""
    both = np.concatenate([member[-_REMEMBERED:], nonmember[-_REMEMBERED:]])
    centre = both.mean(axis=0)
    spread = np.abs(both - centre).mean(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    within, out = (np.clip((side[-_REMEMBERED:] - centre) / spread, -10, 10) for side in (member, nonmember))
    # The kernel's width is the median distance (of the squares, as they are).
    width = float(np.median(_squares(within, out))) or 1.0

    def witness(values: FloatArray) -> FloatArray:
        scaled = np.clip((values - centre) / spread, -10, 10)
        near = [np.exp(-_squares(scaled, side) / width).mean(axis=1) for side in (within, out)]
        return np.asarray(near[0] - near[1], dtype=np.float64)

    return witness(rows[0]), witness(rows[1])


def _squares(one: FloatArray, other: FloatArray) -> FloatArray:
    sums = (one**2).sum(axis=1)[:, np.newaxis] + (other**2).sum(axis=1)
    return np.asarray(np.maximum(sums - 2 * one @ other.T, 0.0), dtype=np.float64)


def anytime_bound(
    scores: Sequence[Arms],
    *,
    delta: float,
    alpha: float,
    epsilon: float | None = None,
    expected: Sequence[Arms | None] | None = None,
) -> float:
    """Return a lower bound on epsilon that is valid even if the audit stops after any pair of runs (anytime-valid).

    It holds for all n at once with probability 1 - ``alpha``; ``scores``, ``expected``: as for ``capital``.

    The values of epsilon are tested in rungs that are fixed beforehand, the claimed ``epsilon`` among them. Every rung
    has bets of its own, and the search stops at the first that is not refuted. A bound above the true epsilon requires
    that the capital on the rung of the true one has reached 1 / alpha.
    """
    low, step = 0.0, max(_RUNG, (epsilon or 0.0) / _RUNGS)
    if epsilon:
        step = epsilon / math.ceil(epsilon / step)
    while True:
        top = low + (step if epsilon and low < epsilon * (1 - 1e-9) else _RUNG)
        # Up to the claim, bets are to refute the whole rung; beyond it, to come near the truth inside one.
        aim = low if epsilon is None or low >= epsilon * (1 - 1e-9) else top
        bets = capital(scores, tangents_of(forbidden_curve(None, aim, delta)), expected=expected)

        def refuted(against: float, bets: Capital = bets) -> bool:
            # The maximum, not the last value: the capital may reach 1 / alpha at any time.
            return bool(bets.against(against, delta).max() >= -math.log(alpha))

        if not refuted(top):
            return crossing(refuted, low, top, relative=0.0, absolute=1e-6)[0]
        if top >= _LARGEST:
            return top
        low = top


def sequential(
    outputs: MechanismOutputs,
    *,
    delta: float,
    alpha: float,
    curve: Curve | None = None,
    epsilon: float | None = None,
    witness: str = "",
) -> Measurement:
    """Compute an anytime-valid lower bound on epsilon at ``delta`` from the runs so far, in the order of running them.

    It may be called again after every run. ``curve``, ``epsilon``: the claimed ones. The curve is tested as a whole, at
    nine tenths of ``alpha``; without one the bound on epsilon has all of it. One column of outputs is a score, of any
    direction; of several a score is learnt. Raises ValueError for sides of unequal length (runs are paired), and for
    runs that are not independent.
    """
    _check(outputs, delta, alpha, epsilon)
    scores = learned_scores(outputs.member, outputs.nonmember)
    return measured_bets(
        scores, outputs.setting, delta=delta, alpha=alpha, curve=curve, epsilon=epsilon, witness=witness
    )


def measured_bets(
    scores: Sequence[Arms],
    setting: Setting,
    *,
    delta: float,
    alpha: float,
    curve: Curve | None,
    epsilon: float | None,
    witness: str,
    expected: Sequence[Arms | None] | None = None,
) -> Measurement:
    """Compute the same measurement as ``sequential`` from several scores of the same pairs of runs, given as for
    ``capital``.
    """
    n = len(scores[0][0])
    share = alpha if curve is None else alpha * (1 - _CURVE_SHARE)
    bound = partial(anytime_bound, delta=delta, alpha=share, epsilon=epsilon)
    bets = None if curve is None else capital(scores, tangents_of(curve), expected=expected)
    return Measurement(
        estimator="sequential",
        assumption=INDEPENDENT_TRIALS,
        alpha=alpha,
        n0=n,
        n1=n,
        delta=delta,
        threshold_policy="learnt from earlier runs",
        epsilon_low=bound(scores, expected=expected),
        estimate=None,
        ceiling=bound([(np.ones(n), np.zeros(n))]),
        witness=witness,
        setting=setting,
        below_curve=None if bets is None else bool(bets.path().max() >= -math.log(alpha * _CURVE_SHARE)),
        tangent=None if bets is None else bets.mostly,
    )


def _check(outputs: MechanismOutputs, delta: float, alpha: float, epsilon: float | None) -> None:
    check_independent_trials(outputs.setting, "sequential", delta, alpha)
    if len(outputs.member) != len(outputs.nonmember):
        sides = f"{len(outputs.member)} and {len(outputs.nonmember)}"
        raise ValueError(f"sequential needs equally many trials with and without the canary, got {sides}")
    check_epsilon(epsilon)
    if epsilon is not None and epsilon > _LARGEST:
        raise ValueError(f"epsilon must be at most {_LARGEST:g}, because larger ones overflow, got {epsilon}")
