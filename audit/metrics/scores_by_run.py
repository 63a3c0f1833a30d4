"""Membership scores grouped by run, because scores of one training run share its noise."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import FloatArray, IntArray
from ..evidence import Design, MembershipScores, checked_scores, whole_numbers


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoresByRun:
    """Membership scores of members and non-members, each with the number of the training run that it comes from.

    ``member``: (n1,), ``nonmember``: (n0,) finite scores, higher means member.

    ``member_runs``, ``nonmember_runs``: whole numbers of the same lengths, equal where scores come from one run (one
    noise draw). Runs are independent of each other, scores of one run are not.
    """

    member: FloatArray
    nonmember: FloatArray
    member_runs: IntArray
    nonmember_runs: IntArray

    @classmethod
    def of(
        cls,
        member: ArrayLike,
        nonmember: ArrayLike,
        member_runs: ArrayLike | None = None,
        nonmember_runs: ArrayLike | None = None,
    ) -> "ScoresByRun":
        """Group members' and non-members' scores by the number of the training run that each comes from.

        Without run numbers, each score is a run of its own: independent trials.

        Raises ValueError for a side that is empty or not finite, for runs that are not one whole number per score, and
        for runs of one side only.
        """
        inside, outside = checked_scores("member", member), checked_scores("nonmember", nonmember)
        if (member_runs is None) != (nonmember_runs is None):
            raise ValueError("member_runs and nonmember_runs must be given both or not at all, got one of them")
        if member_runs is None or nonmember_runs is None:
            numbers = np.arange(len(inside) + len(outside))
            member_runs, nonmember_runs = numbers[: len(inside)], numbers[len(inside) :]
        return cls(
            member=inside,
            nonmember=outside,
            member_runs=whole_numbers("member_runs", member_runs, len(inside)),
            nonmember_runs=whole_numbers("nonmember_runs", nonmember_runs, len(outside)),
        )

    @classmethod
    def of_evidence(cls, scores: MembershipScores) -> "ScoresByRun":
        """Group an attack's membership scores by the run that they come from.

        Clustered scores without run numbers all belong to one run.
        """
        if scores.setting.design is Design.INDEPENDENT:
            return cls.of(scores.member, scores.nonmember)
        if scores.member_runs is None or scores.nonmember_runs is None:
            # One common run is the cautious choice: unknown dependence must not narrow an interval.
            zeros = [np.zeros(len(side), dtype=np.int64) for side in (scores.member, scores.nonmember)]
            return cls.of(scores.member, scores.nonmember, *zeros)
        return cls.of(scores.member, scores.nonmember, scores.member_runs, scores.nonmember_runs)

    @property
    def given_the_runs(self) -> "ScoresByRun":
        """Return the same scores, each treated as a separate run; a confidence interval from them holds only for the
        noise that the runs drew.

        Results then hold for these runs and for no others.
        """
        return ScoresByRun.of(self.member, self.nonmember)

    @cached_property
    def runs(self) -> int:
        """The number of independent training runs that the scores come from."""
        return len(np.union1d(self.member_runs, self.nonmember_runs))

    @cached_property
    def has_mixed_runs(self) -> bool:
        """Return whether some run has scores of members and of non-members."""
        return bool(np.isin(self.member_runs, self.nonmember_runs).any())

    @cached_property
    def one_side_per_run(self) -> "ScoresByRun | None":
        """Keep only the members' or only the non-members' scores of each run, so that the two groups are independent.

        None where a group is left without any run.

        Runs with scores on both sides contribute their non-members and their members in turn, in the order of their
        numbers, so that the choice depends on no score.
        """
        both = np.intersect1d(self.member_runs, self.nonmember_runs)
        inside = ~np.isin(self.member_runs, both[0::2])
        outside = ~np.isin(self.nonmember_runs, both[1::2])
        if not inside.any() or not outside.any():
            return None
        return ScoresByRun.of(
            self.member[inside], self.nonmember[outside], self.member_runs[inside], self.nonmember_runs[outside]
        )


def run_weights(runs: IntArray) -> FloatArray:
    """Return a weight for each score such that the weights of every run sum to 1.

    ``runs``: (n,) run numbers; the result has the same shape.
    """
    _, place, sizes = np.unique(runs, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / sizes[place], dtype=np.float64)
