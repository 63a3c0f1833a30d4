"""Evidence is what an attack returns (scores, guesses, images), with the circumstances in which it was collected."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .arrays import BoolArray, FloatArray, IntArray, as_floats
from .claim import Adjacency, Claim, Unit
from .observer import Observer
from .wording import NamedEnum


class Design(NamedEnum):
    """How the trials of an audit depend on each other: independent runs, canaries of one run, scores that share runs,
    or a fixed split of the samples of one model, which no theorem covers.

    Theorems differ in the design that they cover, and an estimator refuses a design that its theorem does not cover.
    """

    INDEPENDENT = "independent"
    ONE_RUN = "one_run"
    CLUSTERED = "clustered"
    FIXED_SPLIT = "fixed_split"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The circumstances in which evidence was collected: the unit, the adjacency, the observer and the rounds.

    ``unit`` and ``adjacency`` describe the neighbouring datasets; ``rounds`` is the number of rounds that the observer
    saw.

    ``design``: ``independent`` (every trial has its own noise draw), ``one_run`` (many canaries in one run) or
    ``clustered`` (several scores share a run). Raises ValueError for unknown names and for rounds < 1.
    """

    unit: Unit
    adjacency: Adjacency
    observer: Observer
    rounds: int
    design: Design

    def __post_init__(self) -> None:
        if self.rounds < 1 or int(self.rounds) != self.rounds:
            raise ValueError(f"rounds must be a whole number >= 1, got {self.rounds}")
        object.__setattr__(self, "rounds", int(self.rounds))
        object.__setattr__(self, "unit", Unit(self.unit))
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))
        object.__setattr__(self, "design", Design(self.design))

    @classmethod
    def claimed(cls, claim: Claim) -> "Setting":
        """Return the setting of independent trials with the unit, adjacency, adversary and rounds of a given claim.

        Assumes that the trials are independent and that their inputs are neighbours in the claim's adjacency.
        """
        return cls(
            unit=claim.unit,
            adjacency=claim.adjacency,
            observer=claim.observer,
            rounds=claim.rounds,
            design=Design.INDEPENDENT,
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Setting":
        """Build a setting from a dictionary that ``to_dict`` returned. Raises ValueError for an unknown value, such as
        an unknown unit.
        """
        return cls(**{**values, "observer": Observer.parse(values["observer"])})

    def to_dict(self) -> dict[str, str | int]:
        """Return the setting as a dictionary of JSON values."""
        return {
            "unit": self.unit.value,
            "adjacency": self.adjacency.value,
            "observer": str(self.observer),
            "rounds": self.rounds,
            "design": self.design.value,
        }


@dataclass(frozen=True, eq=False)
class MembershipScores:
    """Scores of an attack in trials with the canary and in trials without it; a higher score means member.

    ``member``: (n1,) with the canary; ``nonmember``: (n0,) without it.

    ``member_runs``: (n1,), ``nonmember_runs``: (n0,), the number of the run (one noise draw) that each score comes
    from. Both are given or neither. Without them independent trials are one run each, and trials of any other design
    are all of one run. Raises ValueError for scores that are empty or not finite and for runs that contradict the
    design.
    """

    member: FloatArray
    nonmember: FloatArray
    setting: Setting
    member_runs: IntArray | None = None
    nonmember_runs: IntArray | None = None

    def __post_init__(self) -> None:
        for side in ("member", "nonmember"):
            scores = checked_scores(side, getattr(self, side))
            object.__setattr__(self, side, scores)
            object.__setattr__(self, f"{side}_runs", _runs(f"{side}_runs", getattr(self, f"{side}_runs"), scores))
        if (self.member_runs is None) != (self.nonmember_runs is None):
            raise ValueError("member_runs and nonmember_runs must be given together, got only one of them")
        if self.setting.design is Design.INDEPENDENT and self.member_runs is not None:
            numbers = np.r_[self.member_runs, self.nonmember_runs]
            if len(np.unique(numbers)) < len(numbers):
                raise ValueError("each independent trial must come from another run, got several scores of one run")

    @classmethod
    def one_per_run(
        cls, member: Sequence["CandidateScores"], nonmember: Sequence["CandidateScores"]
    ) -> "MembershipScores":
        """Build membership scores from many independent runs, each of which gives one score.

        The candidate took part in n1 of the runs and not in the other n0.

        Assumes that the runs differ in the candidate and in their random draws only, and share no draw. Raises
        ValueError for a side without runs, a run that has not exactly one score, and runs of different settings.
        """
        for side, runs in (("member", member), ("nonmember", nonmember)):
            if not runs:
                raise ValueError(f"{side} must hold at least one run, got none")
            for number, run in enumerate(runs):
                if len(run.values) != 1:
                    raise ValueError(
                        f"{side} must hold one score per run, because scores of one run share its noise; "
                        f"got {len(run.values)} from run {number}"
                    )
        settings = {run.setting for run in (*member, *nonmember)}
        if len(settings) != 1:
            raise ValueError(
                f"all runs must have one setting (unit, adjacency, observer, rounds), "
                f"got {len(settings)} different ones"
            )
        inside, outside = (np.concatenate([run.values for run in side]) for side in (member, nonmember))
        return cls(inside, outside, replace(settings.pop(), design=Design.INDEPENDENT))


@dataclass(frozen=True, eq=False)
class CandidateScores:
    """One membership score for each candidate (a possible member), from an attack that does not know which are members.

    ``values``: (n,); higher means member.

    ``runs``: (n,), the number of the run (one noise draw) that each score comes from; None: all of one run.
    ``history``: pairs (rounds, scores (n,)) for attacks that score round by round. It is reported and enters no
    verdict.
    """

    values: FloatArray
    setting: Setting
    runs: IntArray | None = None
    history: tuple[tuple[int, FloatArray], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", checked_scores("values", self.values))
        object.__setattr__(self, "runs", _runs("runs", self.runs, self.values))
        object.__setattr__(self, "history", tuple(self._checked_point(*point) for point in self.history))
        if any(after <= before for (before, _), (after, _) in pairwise(self.history)):
            raise ValueError(
                "history (earlier scores) must be in ascending order of rounds, "
                f"got {[rounds for rounds, _ in self.history]}"
            )

    def _checked_point(self, rounds: int, values: FloatArray) -> tuple[int, FloatArray]:
        scores = checked_scores(f"history after {rounds} rounds", values)
        if scores.shape != self.values.shape or not 1 <= rounds <= self.setting.rounds:
            raise ValueError(
                f"history (earlier scores) must hold arrays of shape {self.values.shape} after 1 to "
                f"{self.setting.rounds} rounds, "
                f"got shape {scores.shape} after {rounds} rounds"
            )
        return int(rounds), scores

    def against(self, member: ArrayLike) -> MembershipScores:
        """Split the candidates' scores into those of members and of non-members, by the true membership.

        ``member``: (n,) booleans. Raises ValueError when one side is empty.
        """
        truth = np.asarray(member)
        if truth.dtype != np.bool_ or truth.shape != self.values.shape:
            raise ValueError(
                f"member (which candidates are members) must be booleans of shape {self.values.shape}, "
                f"got {truth.shape} of {truth.dtype}"
            )
        runs = (None, None) if self.runs is None else (self.runs[truth], self.runs[~truth])
        return MembershipScores(self.values[truth], self.values[~truth], self.setting, *runs)


@dataclass(frozen=True, eq=False)
class CanaryScores:
    """The scores of the canaries of one run, and which of these canaries were included by fair coins.

    ``values``: (m,), higher means included. ``included``: (m,) booleans. Raises ValueError for another shape or type of
    ``included``, and for another design than ``one_run``.
    """

    values: FloatArray
    included: BoolArray
    setting: Setting

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", checked_scores("values", self.values))
        truth = np.asarray(self.included)
        if truth.dtype != np.bool_ or truth.shape != self.values.shape:
            raise ValueError(
                f"included must be booleans of shape {self.values.shape}, got {truth.shape} of {truth.dtype}"
            )
        object.__setattr__(self, "included", truth)
        if self.setting.design is not Design.ONE_RUN:
            raise ValueError(
                "canary scores need one run in which a fair coin decides whether each canary is included, got evidence "
                f"of dependence type (design) {self.setting.design.value}"
            )

    def sides(self) -> tuple[FloatArray, FloatArray]:
        """Return the scores of the included canaries and of the excluded ones; either may be empty."""
        return self.values[self.included], self.values[~self.included]


@dataclass(frozen=True, eq=False)
class SourceScores:
    """Scores of an attack that guesses which client holds each sample; the client with the highest score is the guess.

    ``values``: (n, clients), one score per sample and client.
    """

    values: FloatArray
    setting: Setting

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", finite_array("values", self.values, dimensions=2))


@dataclass(frozen=True, eq=False)
class AttributeScores:
    """Scores of an attack that guesses one column of records; the value with the highest score is the guess.

    ``values``: (n, k), one score per record and value of the column; or (clients * n, k), client by client, where an
    attack scores each record at each client in question.
    """

    values: FloatArray
    setting: Setting

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", finite_array("values", self.values, dimensions=2))


@dataclass(frozen=True, eq=False)
class PropertyEstimates:
    """Estimates of the share of records with one value of a column in each client's data.

    ``values``: (clients,) in [0, 1]; ``column``: its name or the number of its feature; ``value``: the value's number.
    """

    values: FloatArray
    setting: Setting
    column: int | str
    value: int

    def __post_init__(self) -> None:
        shares = checked_scores("values", self.values)
        if shares.min() < 0 or shares.max() > 1:
            raise ValueError(f"shares must be in [0, 1], got {shares.min()} to {shares.max()}")
        object.__setattr__(self, "values", shares)


@dataclass(frozen=True, eq=False)
class VoteScores:
    """Scores of an attack that guesses a teacher's vote on each query; the class with the highest score is the guess.

    ``values``: (queries, classes), finite; equal scores of all classes if the attack learned nothing.
    """

    values: FloatArray
    setting: Setting

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", finite_array("values", self.values, dimensions=2))


@dataclass(frozen=True)
class Guesses:
    """The number of correct guesses about which canaries were included in one run.

    ``right`` of ``made`` guesses were correct; each of ``canaries`` canaries was included by an independent fair coin.
    """

    right: int
    made: int
    canaries: int
    setting: Setting

    def __post_init__(self) -> None:
        check_counts(self.right, self.made, self.canaries)
        for name in ("right", "made", "canaries"):
            object.__setattr__(self, name, int(getattr(self, name)))


@dataclass(frozen=True, eq=False)
class Reconstructions:
    """Images that an attack reconstructed, with the labels that it guessed for them.

    ``images``: (n, channel, height, width) in [0, 1]; ``labels``: (n,) whole numbers, None where not guessed.

    ``uploads``: (n,), the number of the upload that each image was reconstructed from; None: image i from upload i.
    """

    images: FloatArray
    labels: IntArray | None
    setting: Setting
    uploads: IntArray | None = None

    def __post_init__(self) -> None:
        images = finite_array("images", self.images, dimensions=4)
        if images.min() < 0 or images.max() > 1:
            raise ValueError(f"images must lie in [0, 1], got {images.min()} to {images.max()}")
        object.__setattr__(self, "images", images)
        if self.labels is not None:
            object.__setattr__(self, "labels", whole_numbers("labels", self.labels, len(images)))
        if self.uploads is not None:
            object.__setattr__(self, "uploads", whole_numbers("uploads", self.uploads, len(images)))


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """An attack's estimates of how many samples of each class a client used in one round.

    ``counts``: (n, classes) >= 0, for each of n observations of ``round``.
    """

    counts: FloatArray
    setting: Setting
    round: int = 0

    def __post_init__(self) -> None:
        counts = finite_array("counts", self.counts, dimensions=2)
        if counts.min() < 0:
            raise ValueError(f"label counts must be >= 0, got {counts.min()}")
        object.__setattr__(self, "counts", counts)


@dataclass(frozen=True, eq=False)
class TokenGuesses:
    """An attack's guesses of the tokens of the texts that a client used in one round.

    ``counts``: (n, tokens) >= 0, how often each token occurs, for each of n observations of ``round``. ``texts``: for
    each observation the texts themselves, whole numbers ``(k, length)`` in any order of the texts; None where not
    guessed.
    """

    counts: FloatArray
    setting: Setting
    texts: tuple[IntArray, ...] | None = None
    round: int = 0

    def __post_init__(self) -> None:
        counts = finite_array("counts", self.counts, dimensions=2)
        if counts.min() < 0:
            raise ValueError(f"token counts must be >= 0, got {counts.min()}")
        object.__setattr__(self, "counts", counts)
        if self.texts is not None:
            if len(self.texts) != len(counts):
                raise ValueError(f"texts must be given for each of {len(counts)} observations, got {len(self.texts)}")
            object.__setattr__(self, "texts", tuple(_text(one) for one in self.texts))


@dataclass(frozen=True, eq=False)
class Exposures:
    """A model's exposure of each of n secrets: log2(number of words) - log2(rank of the secret among them).

    ``values``: (n,) bits, at most log2(words + 1), where ``words`` random ones were compared with each secret.
    """

    values: FloatArray
    setting: Setting
    words: int

    def __post_init__(self) -> None:
        values = checked_scores("values", self.values)
        if not 0 <= values.min() <= values.max() <= math.log2(self.words + 1):
            raise ValueError(
                f"exposures must lie between 0 and log2({self.words} + 1), got {values.min()} to {values.max()}"
            )
        object.__setattr__(self, "values", values)


@dataclass(frozen=True, eq=False)
class PersonLabels:
    """Scores that an attack gave to the possible labels of some people of a vertical federation.

    ``scores``: (n, classes), higher means more likely; ``people``: (n,) their numbers, each once.
    """

    scores: FloatArray
    people: IntArray
    setting: Setting

    def __post_init__(self) -> None:
        object.__setattr__(self, "scores", finite_array("scores", self.scores, dimensions=2))
        object.__setattr__(self, "people", _people(self.people, len(self.scores)))


@dataclass(frozen=True, eq=False)
class PersonColumns:
    """A passive party's columns of some people, as an attack reconstructed them.

    ``rows``: (n, width); ``party``: whose columns; ``people``: (n,) the people's numbers, each once.
    """

    rows: FloatArray
    party: int
    people: IntArray
    setting: Setting

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", finite_array("rows", self.rows, dimensions=2))
        object.__setattr__(self, "people", _people(self.people, len(self.rows)))


@dataclass(frozen=True, eq=False)
class Projections:
    """What a worst-case adversary observes in each run and round, reduced to one number: the projection on the canary.

    ``values``: (n, rounds), <canary, release minus the known rest> / sensitivity^2.

    Apart from the noise it is 0 without the canary, and with it the number of times that the canary was sampled.
    ``seen``: (n, rounds), false where the observer received nothing from the canary's client. For a Gaussian release
    this projection is a sufficient statistic.
    """

    values: FloatArray
    seen: BoolArray
    setting: Setting

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", finite_array("values", self.values, dimensions=2))
        seen = np.array(self.seen)
        seen.flags.writeable = False
        object.__setattr__(self, "seen", seen)


Evidence = (
    CandidateScores
    | SourceScores
    | AttributeScores
    | PropertyEstimates
    | MembershipScores
    | Guesses
    | Reconstructions
    | LabelCounts
    | TokenGuesses
    | Exposures
    | PersonLabels
    | PersonColumns
    | Projections
)


def _text(tokens: IntArray) -> IntArray:
    given = np.asarray(tokens)
    if given.ndim != 2 or not np.issubdtype(given.dtype, np.integer):
        raise ValueError(f"texts must be whole numbers of shape (k, length), got {given.shape} of {given.dtype}")
    kept = given.astype(np.int64)
    kept.flags.writeable = False
    return kept


def _people(numbers: IntArray, count: int) -> IntArray:
    people = whole_numbers("people", numbers, count)
    if len(np.unique(people)) < len(people):
        raise ValueError("people must name each person at most once")
    return people


def whole(name: str, count: float) -> int:
    """Return a count as an integer. Raises ValueError for a number that is not whole."""
    if not (math.isfinite(count) and int(count) == count):
        raise ValueError(f"{name} must be a whole number, got {count}")
    return int(count)


def check_counts(right: float, made: float, canaries: float) -> None:
    """Raise ValueError unless the counts are whole, 0 <= ``right`` <= ``made`` <= ``canaries`` and ``canaries`` >=
    1.
    """
    if not 0 <= right <= made <= canaries or canaries < 1:
        counts = f"{right} right, {made} made, {canaries} canaries"
        raise ValueError(
            f"numbers of guesses must satisfy 0 <= right <= made <= canaries and canaries >= 1, got {counts}"
        )
    for name, count in (("right", right), ("made", made), ("canaries", canaries)):
        whole(name, count)


def checked_scores(name: str, values: ArrayLike) -> FloatArray:
    """Return the scores as a read-only array of shape ``(n,)`` of finite numbers, n >= 1.

    Raises ValueError for anything else.
    """
    return finite_array(name, values, dimensions=1)


def _runs(name: str, runs: ArrayLike | None, scores: FloatArray) -> IntArray | None:
    return None if runs is None else whole_numbers(name, runs, len(scores))


def finite_array(name: str, values: ArrayLike, dimensions: int) -> FloatArray:
    """Return a read-only copy as finite numbers, because evidence must not change after it was collected.

    Raises ValueError for another number of ``dimensions``, an empty array, and anything else than finite numbers.
    """
    array = as_floats(name, values)
    if array.ndim != dimensions:
        raise ValueError(f"{name} must have {dimensions} dimension(s), got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    bad = int(np.count_nonzero(~np.isfinite(array)))
    if bad:
        raise ValueError(f"{name} must be finite, got {bad} of {array.size} NaN or infinite")
    array.flags.writeable = False
    return array


def whole_numbers(name: str, values: ArrayLike, count: int) -> IntArray:
    """Return ``values`` as a read-only array of ``count`` whole numbers. Raises ValueError for anything else."""
    given = np.asarray(values)
    if given.shape != (count,) or not np.issubdtype(given.dtype, np.integer):
        raise ValueError(f"{name} must hold {count} whole numbers, got shape {given.shape} of {given.dtype}")
    numbers = given.astype(np.int64)
    numbers.flags.writeable = False
    return numbers
