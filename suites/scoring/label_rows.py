"""Compare guessed labels, tokens, votes and people's data with the truth, as result rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from scipy.special import stdtrit
from torch import Tensor

from ...attacks.labels.label_attack import whole_counts
from ...audit.arrays import BoolArray, FloatArray, IntArray
from ...audit.binomial import upper_bound
from ...audit.evidence import LabelCounts, PersonColumns, PersonLabels, TokenGuesses, VoteScores
from ...audit.metrics import ScoresByRun, area_interval
from ...fl.plan import Plan
from ...fl.recorder import LotRecorder
from ...fl.task import Task
from ...fl.vertical.task import People
from ..results.cell import Cell
from ..results.record import Record


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A value with its confidence interval; both ends are None if there is none."""

    value: float
    low: float | None = None
    high: float | None = None
    method: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The value and its interval as fields of a result row."""
        ends = {"ci_low": self.low, "ci_high": self.high, "ci_level": None if self.low is None else 0.95}
        return {"value": self.value, **ends, "ci_method": self.method}

    def row(self, cell: Cell, metric: str, *, n: int, unit: str, direction: str = "higher_leaks") -> Record:
        """Return the result row of this value; ``n``: how many updates, people or runs it is a mean over."""
        return cell.record(metric=metric, **self.fields, n=n, unit=unit, direction=direction)

    def over_chance(self, chance: float) -> "Interval":
        """Return this accuracy rescaled, so that ``chance`` scores 0 and a perfect attack 1."""
        low, high = (None if end is None else (end - chance) / (1 - chance) for end in (self.low, self.high))
        return replace(self, value=(self.value - chance) / (1 - chance), low=low, high=high)


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelScores:
    """The scores of a label attack, as arrays with one entry per client update; properties pool them over all updates.

    Args:
        accuracy: (n,), multiset accuracy: labels counted correctly, divided by the number of labels (or of guesses, if
            larger).
        chance: (n,), the accuracy of the reference, by default equal counts for all classes: 1/classes for one sample.
        total_variation: (n,), distance of the two class distributions, in [0, 1]; 0 is correct.
        exact: (n,), true where every class's count is correct; for one-sample uploads, where the label is.
        count_error: (n,), absolute error of a class's count in samples, on average over the classes.
        existence: (n,), class-existence accuracy: share of classes correctly guessed as present or absent.
        counted: (n,), label-count accuracy (Ma et al. 2023): share of classes with a correct count. It includes absent
            classes with a count of zero, which are most of ten classes in small lots.
        sizes: (n,), samples behind each upload.
    """

    accuracy: FloatArray
    chance: FloatArray
    total_variation: FloatArray
    exact: BoolArray
    count_error: FloatArray
    existence: FloatArray
    counted: FloatArray
    sizes: FloatArray

    @property
    def chance_accuracy(self) -> float:
        """The fraction of labels that the reference counts correctly, by default equal counts for all classes."""
        return float(np.average(self.chance, weights=self.sizes))

    @property
    def over_chance(self) -> Interval | None:
        """The accuracy of label counts with its confidence interval, rescaled so that the reference scores 0 and a
        perfect attack 1. The reference is by default a guess of equal counts for all classes; worse guesses have
        negative scores.

        None where the reference is the truth: then there is nothing to infer.
        """
        if np.isclose(self.chance_accuracy, 1):
            return None
        weights = self.sizes * (1 - self.chance)
        # Weighted by the possible gain: the weighted mean of these ratios is then the ratio of the means.
        gains = np.divide(self.accuracy - self.chance, 1 - self.chance, out=np.zeros(len(weights)), where=weights > 0)
        return mean_interval(gains, weights)


def mean_interval(values: ArrayLike, weights: ArrayLike | None = None, *, over: str = "uploads") -> Interval:
    """Compute the mean of ``values (n,)``, weighted by ``weights (n,)``, with a 95 % t interval over the n values. The
    values belong to different client updates, or to what ``over`` names.

    The variance of a weighted mean is that of its linear approximation. The interval is not truncated to the metric's
    range. There is none for a single value, or for equal ones.
    """
    sample = np.asarray(values, dtype=np.float64)
    share = np.ones(len(sample)) if weights is None else np.asarray(weights, dtype=np.float64)
    mean = float(np.average(sample, weights=share))
    # Equal values would give an interval of width zero, which would claim certainty.
    if len(sample) < 2 or np.ptp(sample) == 0:
        return Interval(value=mean)
    error = float((share / share.mean() * (sample - mean)).std(ddof=1)) / len(sample) ** 0.5
    half = float(stdtrit(len(sample) - 1, 0.975)) * error
    return Interval(value=mean, low=mean - half, high=mean + half, method=f"95 % t over {over}")


def rate_interval(right: ArrayLike, *, over: str = "uploads") -> Interval:
    """Compute the fraction of True values in ``right (n,)``, with a two-sided 95 % Clopper-Pearson interval."""
    given = np.asarray(right, dtype=bool)
    n, k = len(given), int(given.sum())
    # The lower bound on successes is the complement of the upper bound on failures.
    low, high = 1 - float(upper_bound(n - k, n, 0.025)), float(upper_bound(k, n, 0.025))
    return Interval(value=k / n, low=low, high=high, method=f"95 % Clopper-Pearson over {over}")


def csv_by_round(rows: Mapping[int, Mapping[str, float | None]]) -> str:
    """Return values by round and name as CSV; a value that is missing, or None, is an empty cell."""
    names = list(dict.fromkeys(name for values in rows.values() for name in values))
    lines = [["round", *names]]
    for number, values in rows.items():
        # repr gives the shortest digits that read back as the same number.
        found = (values.get(name) for name in names)
        lines.append([str(number), *("" if value is None else repr(value) for value in found)])
    return "\n".join(map(",".join, lines)) + "\n"


def score_labels(counts: ArrayLike, truth: ArrayLike, reference: ArrayLike | None = None) -> LabelScores:
    """Compare guessed label counts with the true ones for each of n client updates. Both are arrays ``(n, classes)`` of
    numbers of samples per class; true counts are integers, and guessed counts may be fractions.

    ``reference``: (n, classes), the counts that an adversary without any information guesses; None: equal ones.

    Guessed counts may be fractions. A guess of more labels than there are is divided by the number of guesses, because
    otherwise guessing many of every class would be perfect. Raises ValueError for unequal shapes, negative numbers, or
    a row of zeros.
    """
    guessed, true = _checked_counts("counts", counts), _checked_counts("truth", truth)
    if guessed.shape != true.shape:
        raise ValueError(f"counts and truth must have the same shape, got {guessed.shape} and {true.shape}")
    if not np.array_equal(true, np.rint(true)):
        raise ValueError(
            "truth must hold whole numbers, the number of samples of each class, got "
            f"{true[true != np.rint(true)][0]:g}"
        )
    named, sizes = guessed.sum(1, keepdims=True), true.sum(1, keepdims=True)
    uninformed = sizes / true.shape[1] if reference is None else np.asarray(reference, dtype=np.float64)
    return LabelScores(
        accuracy=(np.minimum(guessed, true).sum(1, keepdims=True) / np.maximum(named, sizes))[:, 0],
        chance=(np.minimum(uninformed, true).sum(1, keepdims=True) / sizes)[:, 0],
        total_variation=np.abs(guessed / named - true / sizes).sum(1) / 2,
        exact=(guessed == true).all(1),
        count_error=np.abs(guessed - true).mean(1),
        existence=((guessed > 0) == (true > 0)).mean(1),
        counted=(guessed == true).mean(1),
        sizes=sizes[:, 0],
    )


def _checked_counts(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"{name} must have shape (n, classes), got shape {array.shape}")
    if not (np.isfinite(array).all() and array.min() >= 0):
        raise ValueError(f"{name} must be finite and >= 0, got {array.min()} to {array.max()}")
    # Scores divide by the number of labels.
    empty = np.flatnonzero(array.sum(1) == 0)
    if len(empty):
        raise ValueError(
            f"{name} must count at least one label for every client update, got none for updates {empty.tolist()}"
        )
    return array


def score_label_counts(
    cell: Cell, evidence: LabelCounts, task: Task, plan: Plan, lots: Mapping[int, LotRecorder]
) -> list[Record]:
    """Build the result rows of one label attack on one round, with confidence intervals over the round's client
    updates.

    One-sample uploads have one row only: all other scores follow from the share of right labels. The chance in the unit
    of ``label_accuracy`` is that of the best constant guess; for larger lots, that of equal counts. Raises ValueError
    where there are not as many guesses as uploads.
    """
    truth = true_counts(task, plan, lots, evidence.round)
    # Shapes are compared with the truth, because a part of the user may return anything.
    if truth.shape != evidence.counts.shape:
        raise ValueError(
            f"the attack's label counts must have shape {truth.shape}, with one row per client "
            f"update, got {evidence.counts.shape}"
        )
    scores = score_labels(evidence.counts, truth)
    return [
        found.row(
            cell, metric, n=len(truth), unit=unit, direction="lower_leaks" if metric in _LOWER else "higher_leaks"
        )
        for metric, (found, unit) in _rows_of_counts(scores, best_constant_guess(task)).items()
    ]


_LOWER = ("label_count_error", "label_total_variation")


def true_counts(task: Task, plan: Plan, lots: Mapping[int, LotRecorder], round: int) -> FloatArray:
    """Count the true labels of the samples behind each client update of ``round``; array ``(n, classes)`` in the order
    of the n clients that took part; see `lots_of_round`.
    """
    classes = task.network.classes
    rows = [torch.bincount(task.labels[drawn], minlength=classes) for drawn in lots_of_round(task, plan, lots, round)]
    return np.asarray(torch.stack(rows).numpy(), dtype=np.float64)


def lots_of_round(task: Task, plan: Plan, lots: Mapping[int, LotRecorder], round: int) -> list[Tensor]:
    """Return the indices of the samples behind each client update of ``round``, one tensor per client that took part.

    A full lot is the same in each local step and counts once; any other lot counts anew in each step.
    """
    found = []
    for client, part in enumerate(task.parts):
        masks = lots[client].lots[round]
        if masks:  # A client without masks took no part in this round and has no upload.
            steps = masks[:1] if plan.lot.rate(len(part)) == 1 else masks
            # A federation of one replica: the masks of a trial have a leading axis of length one.
            found.append(torch.cat([part[mask[0]] for mask in steps]))
    return found


_OF_GAIN = "share of the largest possible gain above chance"


def best_constant_guess(task: Task) -> float:
    """Return the probability that a sample has the most frequent label of the public data, which is the success rate of
    a guess without any observation.
    """
    return float(torch.bincount(task.test_labels).max()) / len(task.test_labels)


def _rows_of_counts(scores: LabelScores, guess: float) -> dict[str, tuple[Interval, str]]:
    if bool((scores.sizes == 1).all()):
        return {"label_accuracy": (rate_interval(scores.exact), f"share of uploads, chance {guess:.3g}")}
    corrected = scores.over_chance
    return {
        **({} if corrected is None else {"label_over_chance": (corrected, _OF_GAIN)}),
        "label_accuracy": (
            mean_interval(scores.accuracy, scores.sizes),
            f"share of labels, chance {scores.chance_accuracy:.3g}",
        ),
        "label_exact_rate": (rate_interval(scores.exact), "share of uploads"),
        "label_count_error": (mean_interval(scores.count_error), "samples"),
        "label_total_variation": (mean_interval(scores.total_variation), "probability"),
        "label_class_existence": (mean_interval(scores.existence), "share of classes"),
        "label_count_accuracy": (mean_interval(scores.counted), "share of classes"),
    }


def score_tokens(
    cell: Cell, evidence: TokenGuesses, task: Task, plan: Plan, lots: Mapping[int, LotRecorder]
) -> list[Record]:
    """Build the result rows of one attack on the tokens behind each client update of one round.

    Intervals are over the round's client updates, those of whole texts over texts. The reference of
    ``token_over_chance`` is a guess of the public texts' frequencies. Raises ValueError for evidence of another shape.
    """
    truth = true_texts(task, plan, lots, evidence.round)
    tokens = task.network.classes
    counts = np.stack([np.bincount(texts.ravel(), minlength=tokens) for texts in truth]).astype(np.float64)
    if counts.shape != evidence.counts.shape:
        raise ValueError(
            f"the attack's token counts must have shape {counts.shape}, with one row per client update, got "
            f"{evidence.counts.shape}"
        )
    public = np.bincount(task.test_images.long().flatten().numpy(), minlength=tokens)
    # Whole numbers: fractions of a token, of which each is too few, would be a weaker reference.
    uninformed = whole_counts(np.tile(public, (len(counts), 1)), counts.sum(1))
    rows = _count_rows(evidence.counts, counts, uninformed)
    if evidence.texts is not None:
        rows |= _text_rows(evidence.texts, truth)
    return [found.row(cell, metric, n=n, unit=unit) for metric, (found, unit, n) in rows.items()]


def true_texts(task: Task, plan: Plan, lots: Mapping[int, LotRecorder], round: int) -> list[IntArray]:
    """Return the texts ``(k, length)`` behind each client update of ``round``, in the order of the clients that took
    part.
    """
    return [
        np.asarray(task.images[drawn].flatten(1).long().numpy(), dtype=np.int64)
        for drawn in lots_of_round(task, plan, lots, round)
    ]


def _count_rows(guessed: FloatArray, truth: FloatArray, reference: ArrayLike) -> dict[str, tuple[Interval, str, int]]:
    """Shares of the multiset of tokens and F1 of the set, over updates; all three arrays are ``(n, tokens)``."""
    scores, n = score_labels(guessed, truth, reference), len(truth)
    shared = ((guessed > 0) & (truth > 0)).sum(1)
    f1 = 2 * shared / ((guessed > 0).sum(1) + (truth > 0).sum(1))
    corrected = scores.over_chance
    return {
        **({} if corrected is None else {"token_over_chance": (corrected, _OF_GAIN, n)}),
        "token_accuracy": (mean_interval(scores.accuracy, scores.sizes), "share of tokens", n),
        "token_set_f1": (mean_interval(f1), "F1 of the tokens that occur", n),
    }


def _text_rows(guessed: Sequence[IntArray], truth: Sequence[IntArray]) -> dict[str, tuple[Interval, str, int]]:
    """The share of places with the right token, over updates, and of texts that are right as a whole."""
    right = [matched(ours, wanted) for ours, wanted in zip(guessed, truth, strict=True)]
    shares, sizes = [one.mean() for one in right], [len(one) for one in right]
    whole = np.concatenate([one.all(1) for one in right])
    return {
        "token_places": (mean_interval(shares, sizes), "share of positions", len(right)),
        "token_exact_rate": (rate_interval(whole), "share of texts", len(whole)),
    }


def matched(guessed: ArrayLike, truth: ArrayLike) -> BoolArray:
    """Return which places of the true texts ``(k, length)`` are guessed correctly, if each true text is matched with
    the guessed text that fits it best.

    A gradient does not reveal the order of a lot's texts. ``guessed (m, length)``: a true text without one counts as
    wrong at every place. Raises ValueError for texts of another length.
    """
    ours, wanted = np.asarray(guessed, dtype=np.int64), np.asarray(truth, dtype=np.int64)
    if ours.shape[1:] != wanted.shape[1:]:
        raise ValueError(f"guessed texts must have {wanted.shape[1]} tokens, got {ours.shape[1]}")
    equal = wanted[:, None] == ours[None]
    places = linear_sum_assignment(-equal.sum(2))
    right = np.zeros(wanted.shape, dtype=np.bool_)
    right[places[0]] = equal[places]
    return right


def score_votes(cell: Cell, evidence: Sequence[VoteScores], votes: IntArray) -> list[Record]:
    """Build the result rows of an attack on one teacher's votes ``(runs, queries)``, which were drawn uniformly.

    ``label_accuracy`` is the share of votes that have the highest score, of equal scores a part; ``label_over_chance``
    is the same, rescaled so that a guess without information scores 0 on average and a perfect attack 1. The interval
    is over runs, each with noise and votes of its own, for the same other teachers.
    """
    right = np.array([hits(one.values, true).mean() for one, true in zip(evidence, votes, strict=True)])
    chance = 1 / evidence[0].values.shape[1]
    found = mean_interval(right, over="runs with the same other teachers")
    rows = {
        "label_over_chance": (found.over_chance(chance), _OF_GAIN),
        "label_accuracy": (found, "share of queries"),
    }
    return [one.row(cell, metric, n=len(votes), unit=unit) for metric, (one, unit) in rows.items()]


def hits(scores: FloatArray, truth: IntArray) -> FloatArray:
    """Return a number for each row of ``scores (n, choices)``: 1 if the true choice alone has the highest score, 1/m if
    it is one of m choices with the highest score, else 0; ``truth (n,)``: the true choices.
    """
    if scores.shape[0] != len(truth) or truth.max() >= scores.shape[1]:
        raise ValueError(f"scores must have a row per query and a column per class, got {scores.shape}")
    best = scores == scores.max(1, keepdims=True)
    return np.asarray(best[np.arange(len(truth)), truth] / best.sum(1))


_PEOPLE = "people of one training"


def score_person_labels(cell: Cell, evidence: PersonLabels, people: People) -> list[Record]:
    """Build the result rows of an attack on labels, with intervals over the people of the training, given its noise.

    ``label_accuracy`` is the share of people whose label has the highest score; ``label_over_chance`` the mean of the
    classes' shares, rescaled so that a guess without information scores 0 and a perfect attack 1; ``label_auc``, of
    two classes, the area under the ROC curve of the second class. Raises ValueError for other people or classes.
    """
    if evidence.people.min() < 0 or evidence.people.max() >= len(people):
        raise ValueError(
            f"people must be in 0..{len(people) - 1}, got {evidence.people.min()}..{evidence.people.max()}"
        )
    truth, scores = people.labels.numpy()[evidence.people], evidence.scores
    if truth.max() >= scores.shape[1]:
        raise ValueError(f"scores must have one column per class, got {scores.shape[1]} for class {truth.max()}")
    right = scores.argmax(1) == truth
    rows = {
        "label_over_chance": (_over_chance(right, truth), _OF_GAIN),
        "label_accuracy": (rate_interval(right, over=_PEOPLE), "share of people"),
    }
    if scores.shape[1] == 2 and len(np.unique(truth)) == 2:
        margin = scores[:, 1] - scores[:, 0]
        found = area_interval(ScoresByRun.of(margin[truth == 1], margin[truth == 0]))
        method = found.method and f"{found.method}, over the people of one training"
        rows["label_auc"] = (Interval(value=found.value, low=found.low, high=found.high, method=method), "")
    return [one.row(cell, metric, n=len(truth), unit=unit) for metric, (one, unit) in rows.items()]


def _over_chance(right: np.ndarray, truth: np.ndarray) -> Interval:
    """The balanced accuracy, rescaled; each person weighs as much as all people of its class have in common."""
    classes, counts = np.unique(truth, return_counts=True)
    if len(classes) < 2:
        return Interval(value=0.0, method="all people of one training have one label, so there is nothing to infer")
    weights = 1 / counts[np.searchsorted(classes, truth)]
    return mean_interval(right.astype(np.float64), weights, over=_PEOPLE).over_chance(1 / len(classes))


def score_person_columns(cell: Cell, evidence: PersonColumns, people: People) -> list[Record]:
    """Build the result rows of an attack on columns. ``column_mse`` is the mean squared error over all columns.
    ``column_error`` is this error divided by the error of guessing each column's true mean over the people, so that
    this guess scores 1.

    Raises ValueError for another party, other people or another number of columns.
    """
    if not 0 <= evidence.party < len(people.columns):
        raise ValueError(f"party must be in 0..{len(people.columns) - 1}, got {evidence.party}")
    truth = people.columns[evidence.party].numpy()[evidence.people]
    if truth.shape != evidence.rows.shape:
        raise ValueError(f"rows must have shape {truth.shape}, got {evidence.rows.shape}")
    errors = np.square(evidence.rows - truth).mean(1)
    spread = float(np.square(truth - truth.mean(0)).mean())
    rows = {"column_mse": (errors, "squared unit of the columns")}
    if spread > 0:
        rows = {"column_error": (errors / spread, "share of the columns' variance"), **rows}
    return [
        mean_interval(each, over=_PEOPLE).row(cell, metric, n=len(truth), unit=unit, direction="lower_leaks")
        for metric, (each, unit) in rows.items()
    ]
