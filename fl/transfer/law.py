"""Laws of a transfer: public distributions of a teacher's answer and of a released label, which attacks use."""

from typing import Protocol

from ...audit.arrays import FloatArray


class AnswerLaw(Protocol):
    """The interface of the distribution of one teacher's answer to one query, given the teacher's vote."""

    def log_likelihoods(self, answers: FloatArray) -> FloatArray:
        """Return the log density of each answer under each vote: ``answers (..., m)`` give ``(..., classes)``.

        It may be relative to any measure that does not depend on the vote: only ratios are used.
        """
        ...


class LabelLaw(Protocol):
    """The interface of the distribution of one query's released label, given the votes of all teachers.

    The labels of different queries are independent, given the votes.
    """

    def log_probabilities(self, counts: FloatArray) -> FloatArray:
        """Return the log probability of each label, and last of no label: vote ``counts (..., classes)`` give
        ``(..., classes + 1)``.
        """
        ...
