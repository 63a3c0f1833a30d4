"""Reads the arrays and options that a user supplies to an audit, from NumPy, pandas or PyTorch, and checks them.

Scores are refused that are copies: one set of scores given twice, or every row of a file repeated. A test of whether
high or low scores mean "member" keeps losses from being mistaken for scores. It is exact: if members score at least as
high as non-members, the number of members among the highest scores is at least hypergeometric (Fisher 1935). It is made
at seven cuts of the pooled scores and corrected for their number.

Scores of one run share its noise and are no independent trials, while scores of different runs are: scores that share
runs are reduced to one of each run (cluster), drawn at random.
"""

import hashlib
import math
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln
from scipy.stats import hypergeom

from ..arrays import BoolArray, FloatArray, IntArray, as_floats
from ..binomial import check_number
from ..evidence import Design
from ..threshold import CHOOSING, SplitThreshold
from ..wording import plain, shortened

MOST_ALPHA = 0.5
"""The largest level of an audit: with a larger one, more than every second true claim may be refuted."""


def scores_or_rows(name: str, values: Any) -> FloatArray:
    """Return scores as float64: (n,), also if they are given as one column (n, 1), or rows (n, d).

    Raises ValueError for anything else than real numbers, such as booleans and texts, and for masked ones.
    """
    if np.ma.is_masked(values):
        raise ValueError(f"{name} must hold no masked values of NumPy: leave these out")
    try:
        given = detached(values)
        # NumPy would drop the imaginary parts, and would turn dates, booleans and texts such as 1_000 into numbers.
        kind = given.dtype.kind if isinstance(given, np.ndarray) else np.asarray(given).dtype.kind
        array = as_floats(name, given) if kind in "iufO" else None
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"{name} cannot become an array of numbers: {error}") from None
    except ValueError as error:
        if name in str(error):
            raise
        raise ValueError(f"{name} must be an array of numbers, got {shortened(values)}") from None
    if array is None:
        raise ValueError(f"{name} must be real numbers, got {np.asarray(given).dtype}")
    array.flags.writeable = False
    return column(array)


def column(array: NDArray[Any]) -> NDArray[Any]:
    """Return one column (n, 1) as (n,), and any other array as it is."""
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def direction(higher_is_member: Any) -> bool | None:
    """Return the stated direction. Raises ValueError unless it is True, False or None."""
    if higher_is_member is None or isinstance(higher_is_member, bool | np.bool_):
        return None if higher_is_member is None else bool(higher_is_member)
    raise ValueError(f"higher_is_member must be True, False or None, got {higher_is_member!r}")


def check_whole(name: str, value: Any, *, least: int, most: int | None = None) -> None:
    """Raise ValueError unless ``value`` is a whole number from ``least`` to ``most``."""
    try:
        number = index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number, got {value!r}") from None
    if number < least or (most is not None and number > most):
        bound = f">= {least}" if most is None else f"from {least} to {most:,}"
        raise ValueError(f"{name} must be {bound}, got {number}")


def check_alpha(alpha: float) -> None:
    """Raise ValueError unless alpha lies in (0, 0.5]."""
    check_number("alpha", alpha)
    if not 0 < alpha <= MOST_ALPHA:
        raise ValueError(f"alpha (probability of a false refutation) must lie in (0, {MOST_ALPHA}], got {alpha}")


def detached(values: Any) -> Any:
    """Return tensors (also those that require gradients), and lists of tensors, as arrays; other values are
    unchanged.
    """
    # A tensor that requires gradients or lies on an accelerator cannot become an array of itself.
    if isinstance(values, list | tuple):
        return [detached(value) for value in values] if any(hasattr(one, "detach") for one in values) else values
    if hasattr(values, "detach") and hasattr(values, "cpu"):
        values = values.detach().cpu()
        # NumPy has no 16-bit brain floats; whole numbers are left as they are, because a float may not hold them.
        values = values.double() if values.is_floating_point() else values
    return np.asarray(values) if hasattr(values, "__array__") else values


_CHANCE = math.log(1e-6)
"""Log probability below which independent trials are taken not to have given such equal scores."""
_OTHERS = {
    Design.INDEPENDENT: "as scores of non-members give those of other runs, without the canary",
    Design.ONE_RUN: "as scores of non-members give those of the canaries that were left out",
}
_ONCE = {
    Design.INDEPENDENT: "give one row per run, or name the run of each row (--clusters COLUMN, in Python "
    'design="clustered")',
    Design.ONE_RUN: "give one row per canary",
}


def check_copies(member: NDArray[Any], nonmember: NDArray[Any], *, design: Design) -> None:
    """Raise ValueError if members and non-members have the same scores, or if each score is repeated.

    ``member``: (n1,) or (n1, ...), ``nonmember``: (n0,) or (n0, ...), numbers or texts. Ties are allowed, as scores on
    a grid have them:
    exchangeable trials are refused with probability of about 1e-6 at most per test.
    """
    if member.shape[1:] != nonmember.shape[1:]:
        raise ValueError(
            f"member and nonmember must have the same number of columns, got shapes {member.shape} and "
            f"{nonmember.shape}"
        )
    sides = _keys(member), _keys(nonmember)
    # Each side alone, because both together would take several times the memory.
    (values, within), (others, out) = (np.unique(side, return_counts=True) for side in sides)
    same = np.array_equal(values, others, equal_nan=values.dtype.kind == "f") and np.array_equal(within, out)
    if same and _equal_by_chance(*sides, within, ordered=member.ndim == 1) < _CHANCE:
        raise ValueError(
            f"members and non-members have the same {len(member):,} scores, so there is nothing to compare: "
            f"{_OTHERS[design]}"
        )
    common = len(np.intersect1d(values, others, assume_unique=True)) if max(within.max(), out.max()) == 1 else 0
    # Of c tied pairs, exchangeable trials split each with probability 2^c / C(2c, c), about 2^-c sqrt(pi c).
    if common * math.log(0.5) + math.log(math.pi * max(common, 1)) / 2 < _CHANCE:
        raise ValueError(
            f"{common:,} scores of members are exactly those of non-members, while no score occurs twice among either: "
            "either these are copies, or pairs of runs share their noise; each run needs independent noise"
        )
    for name, kept in (("members", within), ("non-members", out)):
        times = int(np.gcd.reduce(kept))
        # A count is a multiple of k by chance with probability of about 1 / k.
        if times > 1 and -len(kept) * math.log(times) < _CHANCE:
            raise ValueError(
                f"every score of {name} occurs {times} times, or a multiple of it ({len(kept):,} different scores in "
                f"{int(kept.sum()):,} rows): repeated rows are not independent trials; {_ONCE[design]}"
            )


def _keys(rows: NDArray[Any]) -> NDArray[Any]:
    """The scores or texts themselves, and the digests of rows, which may be whole models, too large to be sorted."""
    return rows if rows.ndim == 1 else np.array([hashlib.sha256(row.tobytes()).hexdigest() for row in rows])


def remark(member: FloatArray, nonmember: FloatArray) -> str:
    """Return a remark if only two values separate the scores of members from those of non-members; otherwise an empty
    string.

    An attack that finds its canary in every run has such scores, and so has a column of the truth.
    """
    if not all((side == side[0]).all() for side in (member, nonmember)) or np.array_equal(member[0], nonmember[0]):
        return ""
    return (
        "; all members have one score and all non-members another: make sure that the scores were computed "
        "without knowledge of membership"
    )


def _equal_by_chance(member: NDArray[Any], nonmember: NDArray[Any], counts: IntArray, *, ordered: bool) -> float:
    """The log probability that exchangeable trials have the same scores ``counts`` times on both sides, in the order
    that they have; rows are not ``ordered``, so that a sorted file of them is not noticed.
    """
    n = len(member)
    chance = float((gammaln(2 * counts + 1) - 2 * gammaln(counts + 1)).sum() - gammaln(2 * n + 1) + 2 * gammaln(n + 1))
    steps = np.diff(np.unique(member, return_inverse=True)[1])
    in_order = bool((steps >= 0).all() or (steps <= 0).all())
    # Scores in the same order are one more coincidence, unless both sides were sorted.
    if ordered and not in_order and np.array_equal(member, nonmember):
        chance += float(gammaln(counts + 1).sum() - gammaln(n + 1))
    return chance


FALSE_ALARM = 0.001
"""Largest probability that the test finds the other direction although members score at least as high."""
_CUTS = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)


@dataclass(frozen=True, kw_only=True)
class DirectionTest:
    """A test of which group scores higher: the AUC if high scores mean "member", and a p-value for each direction.

    A small ``p_lower`` is evidence that members score lower, so that high scores do not mean "member". Both p-values
    are corrected for the number of cuts.
    """

    auc: float
    p_higher: float
    p_lower: float

    @property
    def reversed(self) -> bool:
        """Whether members score lower than non-members: significantly, and with more evidence than for the other
        direction.
        """
        # A member's scores may only spread wider; then both p-values are small, and the AUC decides.
        return self.p_lower <= FALSE_ALARM and self.p_lower <= self.p_higher and self.auc < 0.5


def direction_test(member: FloatArray, nonmember: FloatArray) -> DirectionTest:
    """Compare scores ``member`` (n1,) with ``nonmember`` (n0,) at seven cuts of the pooled scores."""
    member, ordered = np.sort(member), np.sort(nonmember)  # In their order they are searched much faster.
    pooled = np.sort(np.concatenate([member, ordered]))
    cuts = np.unique(np.quantile(pooled, _CUTS, method="lower"))
    above_in = np.array([np.count_nonzero(member > cut) for cut in cuts])
    above = len(pooled) - np.searchsorted(pooled, cuts, side="right")
    law = hypergeom(len(pooled), above, len(member))
    below = np.searchsorted(ordered, member, side="left") + np.searchsorted(ordered, member, side="right")
    return DirectionTest(
        auc=float(below.mean() / (2 * len(nonmember))),
        p_higher=min(1.0, float(len(cuts) * law.sf(above_in - 1).min())),
        p_lower=min(1.0, float(len(cuts) * law.cdf(above_in).min())),
    )


def check_direction(
    member: FloatArray, nonmember: FloatArray, *, higher_is_member: bool | None, tested: bool, seed: int
) -> None:
    """Raise ValueError if the direction of the scores is neither stated nor testable, or if the scores contradict the
    stated one.

    ``higher_is_member``: None where it was not stated; ``tested``: whether the part of the scores that only chooses the
    threshold is left over for the test. The test looks at that part alone, so a direction that is corrected after the
    error does not bias the bound, which counts the others.
    """
    if higher_is_member is None and not tested:
        raise ValueError(
            "state whether high or low scores mean member (--higher-is-member or --lower-is-member, in Python "
            "higher_is_member=True or False): all of these scores are counted, so that none are left to find this out"
        )
    sides = (member, nonmember)
    if min(map(len, sides)) > 1:
        sides = SplitThreshold(CHOOSING, seed).halves(member, nonmember)[0]
    lower = higher_is_member is False
    found = direction_test(*(-side if lower else side for side in sides))
    if not found.reversed:
        return
    stated, meant = ("low", "--higher-is-member") if lower else ("high", "--lower-is-member")
    python = "higher_is_member=True" if lower else "higher_is_member=False"
    auc = 1 - found.auc if lower else found.auc
    p = plain(max(found.p_lower, 1e-300))
    raise ValueError(
        f"members score {'higher' if lower else 'lower'} than non-members (AUC {auc:.3f}, exact test p <= {p}, false "
        f"alarms at most {plain(FALSE_ALARM)}), so that {stated} scores cannot mean member: state {meant} (in Python "
        f"{python})"
    )


ONE_PER_CLUSTER = (
    "one score per cluster, drawn at random; this assumes that clusters share no noise and that an independent coin "
    "decided the membership of each record"
)


def one_score_per_cluster(
    scores: FloatArray, member: BoolArray, clusters: ArrayLike, *, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return the scores of members and of non-members after drawing one score of each cluster at random.

    ``scores``: (n,), ``member``: (n,) booleans, ``clusters``: (n,) numbers or names of the runs, by ``seed``.

    Raises ValueError where several scores of every cluster are all of members or all of non-members: then the runs
    differ in several records, which no claim about one record covers.
    """
    groups = cluster_numbers(clusters, len(scores))
    sizes, taken = np.bincount(groups), np.bincount(groups, weights=member)
    several = sizes > 1
    if len(sizes) == 1:
        raise ValueError(
            "all scores are of one cluster, so there are no independent trials: an audit of one run needs fair coins "
            "(--one-run, in Python audit_one_run)"
        )
    if several.any() and not ((taken > 0) & (taken < sizes))[several].any():
        raise ValueError(
            "every cluster with several scores holds only members or only non-members, so that runs differ in more "
            "than one record: reduce the scores of a run to one number and state independent runs, or decide the "
            "membership of each record by an independent coin"
        )
    drawn = _one_of_each(groups, np.random.default_rng(seed))
    kept, inside = scores[drawn], member[drawn]
    return kept[inside], kept[~inside]


def cluster_numbers(clusters: ArrayLike, scores: int) -> NDArray[np.int64]:
    """Return the run of each of ``scores`` scores as a number from 0, given the runs' numbers or names.

    Raises ValueError for another number of names, missing ones, and numbers among texts.
    """
    names = column(np.asarray(clusters))
    if names.shape != (scores,):
        raise ValueError(f"clusters must hold one name per score, shape {(scores,)}, got shape {names.shape}")
    # By inequality with itself, because names may be of any type.
    if any(name is None or name != name for name in names.tolist()):
        raise ValueError("clusters must hold the name of a run for every score, got a missing name (None or NaN)")
    if names.dtype.kind == "O" and len(kinds := {type(one) for one in names.tolist()}) > 1:
        kind = ", ".join(sorted(one.__name__ for one in kinds))
        raise ValueError(f"clusters must be all numbers or all texts, got {kind}")
    return np.unique(names, return_inverse=True)[1]


def _one_of_each(groups: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """The place of one score of each cluster."""
    order = rng.permutation(len(groups))
    return order[np.unique(groups[order], return_index=True)[1]]
