"""Votes as a mechanism for ``audit_mechanism``: a function from one vote histogram or one teacher's logits, and a
generator, to what an observer receives. The neighbouring inputs are those whose outputs are easiest to distinguish.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.observer import ANSWERS, UPLOADS
from ...fl.hooks import overrides
from ...fl.transfer.protection import ReleasedLabels, TransferContext, TransferProtection, released_labels, sent_answers
from ...fl.transfer.task import TransferPlan

Mechanism = Callable[[NDArray[Any], np.random.Generator], NDArray[Any]]
Pair = tuple[FloatArray, FloatArray]
_SIZE = 100.0
"""The largest logit of a teacher: so large that clipping and soft labels make votes of it."""
_LOGITS = 2**24
"""Logits of all teachers in one call of the hooks."""
_PACKAGE = __name__.removesuffix("defenses.transfer.worst_votes")


def mechanism_of(
    claim: Claim, protection: TransferProtection, plan: TransferPlan, votes: NDArray[Any] | None = None
) -> tuple[Mechanism, list[Pair]] | None:
    """Return a mechanism, which computes what a claim's observer receives from one input, and pairs of inputs that are
    neighbours under the claim's adjacency; None if none are known.

    ``votes``: (teachers, all queries, classes) one-hot, those of real teachers, of which a further pair is made.
    """
    if claim.observer == UPLOADS and claim.unit is Unit.REPORT and claim.adjacency is Adjacency.REPLACE_ONE:
        return answer_mechanism(protection, plan), neighbouring_logits(plan)
    if claim.observer != ANSWERS or not _changes_one_teacher(claim):
        return None
    removed = claim.unit is Unit.CLIENT and claim.adjacency is Adjacency.ADD_REMOVE
    summed = sums_votes(protection)
    # What an own aggregator does with the number of teachers is not known, so that none is taken away.
    if removed and not summed:
        return None
    pairs = neighbouring_counts(plan, threshold=_threshold_of(claim, plan), removed=removed)
    own = [] if votes is None else [neighbours_of(votes, plan.queries, removed=removed)]
    if summed:
        return label_mechanism(protection, plan), [*pairs, *own]
    return teachers_mechanism(protection, plan), [one_teacher_apart(pair) for pair in (*pairs, *own)]


def sums_votes(protection: TransferProtection) -> bool:
    """Return whether a protection is known to use only the sum of the votes: its teachers send plain votes, and its
    ``aggregate_votes`` is one of this package, all of which sum the votes first.
    """
    hook = protection.aggregate_votes
    module = str(getattr(getattr(hook, "__func__", hook), "__module__", ""))
    return not overrides(protection, "teacher_answers") and module.startswith(_PACKAGE)


def _changes_one_teacher(claim: Claim) -> bool:
    """Whether inputs that differ in the unit are known: votes of a teacher that change, or that are not there."""
    # A sample that is added, removed or replaced may change all votes of its teacher.
    if claim.unit is Unit.CLIENT:
        return claim.adjacency in (Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE)
    return claim.unit is Unit.SAMPLE


def _threshold_of(claim: Claim, plan: TransferPlan) -> float | None:
    """The votes that a label needs to be released, if the claim states a number that labels can have."""
    stated = claim.parameters.get("threshold")
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return None
    return float(stated) if 0 < stated <= plan.teachers else None


def label_mechanism(protection: TransferProtection, plan: TransferPlan) -> Mechanism:
    """Return the function from vote counts to what the student receives: ``(n, queries, classes)`` for n runs become
    ``(n, queries + numbers)``, the labels followed by the values that are published with them.

    Its inputs are the sums of one-hot votes, which is enough for a protection that ``sums_votes``; any other has
    ``teachers_mechanism``. The mechanism raises ValueError where a training would refuse what a hook returns.
    """

    def mechanism(counts: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        # One row of counts stands for all teachers, because the aggregator sums the votes first.
        answers = torch.from_numpy(np.array(counts, dtype=np.float64)).unsqueeze(1)
        context = TransferContext(plan=plan, replicas=len(answers))
        return _published(released_labels(protection, answers, context, protection.initial_state(plan), rng))

    return mechanism


def answer_mechanism(protection: TransferProtection, plan: TransferPlan) -> Mechanism:
    """Return the function from one teacher's logits to everything that it sends: ``(n, queries, classes)`` for n runs
    become ``(n, queries * m)``.
    """

    def mechanism(logits: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        own = torch.from_numpy(np.array(logits, dtype=np.float32)).unsqueeze(1)
        context = TransferContext(plan=plan, replicas=len(own))
        answers = sent_answers(protection, own, context, protection.initial_state(plan), rng)
        return answers.flatten(1).double().numpy()

    return mechanism


def _published(released: ReleasedLabels) -> NDArray[Any]:
    numbers = (number for _, number in sorted(released.numbers.items()))
    columns = [released.labels, *(number.reshape(len(number), -1) for number in numbers)]
    return torch.cat([column.double() for column in columns], dim=1).numpy()


def teachers_mechanism(protection: TransferProtection, plan: TransferPlan) -> Mechanism:
    """Return the function from logits to what the student receives if the training's hooks run with the plan's number
    of teachers: ``(n, 2, queries, classes)`` for n runs become ``(n, queries + numbers)``.

    An input holds the logits of the first teacher, and then the vote counts of all others (``one_teacher_apart``).
    """
    # At least 64 runs in a call: noise that they share by mistake must show in the audit's calls of 64.
    most = max(64, _LOGITS // (plan.teachers * plan.queries * plan.classes))

    def published(logits: Tensor, rng: np.random.Generator) -> NDArray[Any]:
        context, state = TransferContext(plan=plan, replicas=len(logits)), protection.initial_state(plan)
        answers = sent_answers(protection, logits, context, state, rng)
        return _published(released_labels(protection, answers, context, state, rng))

    def mechanism(inputs: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        rows = np.asarray(inputs, dtype=np.float64)
        same = bool((rows == rows[:1]).all())
        parts = [rows[start : start + most] for start in range(0, len(rows), most)]
        logits = (teachers_logits(part[:1] if same else part, plan.teachers) for part in parts)
        return np.concatenate(
            [published(one.expand(len(part), -1, -1, -1), rng) for one, part in zip(logits, parts, strict=True)]
        )

    return mechanism


def teachers_logits(inputs: FloatArray, teachers: int) -> Tensor:
    """Return the logits of all teachers, ``(n, teachers, queries, classes)``, given inputs of ``teachers_mechanism``.

    All others vote in the order of the labels, with a largest logit of 100.
    """
    first, others = inputs[:, 0], inputs[:, 1]
    place = np.arange(teachers - 1)[:, np.newaxis, np.newaxis]
    last = others.cumsum(-1)[:, np.newaxis]
    votes = (last - others[:, np.newaxis] <= place) & (place < last)
    return torch.from_numpy(np.concatenate([first[:, np.newaxis], _SIZE * votes], axis=1).astype(np.float32))


def one_teacher_apart(pair: Pair) -> Pair:
    """Return a pair of inputs of ``teachers_mechanism``, ``(2, queries, classes)``, built from a pair of vote counts;
    the two inputs differ only in the first teacher's logits.

    Where its vote moves, its logits are as far apart as clipping allows: 100 for one label and -100 for the other.
    """
    rows = np.arange(len(pair[0]))
    moves = (pair[0] != pair[1]).any(-1)
    # A teacher whose vote does not move votes for the most frequent label.
    voted = [np.where(moves, (one - other).argmax(-1), one.argmax(-1)) for one, other in (pair, pair[::-1])]
    found = []
    for counts, own, other in zip(pair, voted, voted[::-1], strict=True):
        vote = np.zeros_like(counts)
        vote[rows, own] = 1
        logits = _SIZE * vote
        logits[rows[moves], other[moves]] = -_SIZE
        found.append(np.stack([logits, counts - vote]))
    return found[0], found[1]


def neighbouring_counts(plan: TransferPlan, *, threshold: float | None = None, removed: bool = False) -> list[Pair]:
    """Return pairs of vote counts ``(queries, classes)`` between which one teacher changes all or some of its votes;
    with ``removed``, the teacher is absent instead, so that every query has one vote fewer.

    - The first two labels share the votes, with a tie before or after the vote moves, or a lead of some size, in all
      queries; the largest lead is that of all teachers.
    - Every second query has the same votes in both, and leads of 0, 2, 4, ... show what noise that is not fresh was.
    - All labels share the votes, and the vote moves between two labels that are not ahead.
    - With a ``threshold``: the largest count reaches it, or lacks one vote.

    A vote that would move is removed; in a query with the same votes in both, one for the second label is.
    """
    leads = sorted({0, 1, *(round(plan.teachers * share) for share in (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1))})
    found = [(_split(plan, [lead] * plan.queries), _moved(plan, [lead] * plan.queries)) for lead in leads]
    stairs = [2 * (number // 2 - plan.queries // 4) for number in range(plan.queries)]
    here, there = _split(plan, stairs), _moved(plan, stairs)
    there[1::2] = here[1::2]
    found.append((here, there))
    if 2 < plan.classes <= plan.teachers:
        found.append(_shared(plan))
    if threshold is not None:
        found.append(_around(plan, math.ceil(threshold)))
    return [(_without(member, nonmember) if removed else nonmember, member) for member, nonmember in found]


def neighbouring_logits(plan: TransferPlan, *, size: float = _SIZE) -> list[Pair]:
    """Return a pair of logits ``(queries, classes)`` of one teacher, which votes for the second label or for the first
    one in all queries; the largest entry is ``size``.
    """
    one, other = (np.zeros((plan.queries, plan.classes)) for _ in range(2))
    # The opposite directions of the first two labels are as far apart as clipping allows.
    one[:, 0], one[:, 1] = size, -size
    other[:, 0], other[:, 1] = -size, size
    return [(other, one)]


def neighbours_of(votes: NDArray[Any], queries: int, *, removed: bool = False) -> Pair:
    """Return the vote counts of the ``queries`` queries on which the given teachers agree least, and the counts in
    which one teacher votes differently or, with ``removed``, is absent.

    ``votes``: (teachers, all queries, classes) one-hot. The first teacher that voted for the most frequent label of the
    closest query votes for the second one instead, wherever it voted for the first.
    """
    counts = votes.sum(0)
    first, second = np.argsort(-counts, axis=-1, kind="stable")[:, :2].T
    every = np.arange(len(counts))
    asked = np.sort(np.argsort(counts[every, first] - counts[every, second], kind="stable")[:queries])
    teacher = int(votes[:, asked[0], first[asked[0]]].argmax())
    if removed:
        return (counts - votes[teacher])[asked].astype(np.float64), counts[asked].astype(np.float64)
    moved = votes[teacher, asked, first[asked]] > 0
    one, other, rows = counts[asked].astype(np.float64), counts[asked].astype(np.float64), np.arange(len(asked))
    other[rows, first[asked]] -= moved
    other[rows, second[asked]] += moved
    return other, one


def _split(plan: TransferPlan, leads: list[int]) -> FloatArray:
    """All votes on the first two labels, the first one ahead by each lead (or one more where votes are odd)."""
    counts = np.zeros((plan.queries, plan.classes))
    counts[:, 0] = [min(plan.teachers, max(1, (plan.teachers + lead + 1) // 2)) for lead in leads]
    counts[:, 1] = plan.teachers - counts[:, 0]
    return counts


def _moved(plan: TransferPlan, leads: list[int]) -> FloatArray:
    counts = _split(plan, leads)
    counts[:, 0] -= 1
    counts[:, 1] += 1
    return counts


def _without(counts: FloatArray, moved: FloatArray) -> FloatArray:
    """The counts without the votes of a teacher that voted where a vote moves, elsewhere for the second label, or for
    the first one if the second has no vote.
    """
    fewer = np.minimum(counts, moved)
    same = np.flatnonzero((counts == moved).all(1))
    fewer[same, np.where(counts[same, 1] > 0, 1, 0)] -= 1
    return fewer


def _shared(plan: TransferPlan) -> Pair:
    """Counts that are as equal as can be, the first one largest, and a vote of the last label moved to the second."""
    counts = np.full((plan.queries, plan.classes), float(plan.teachers // plan.classes))
    counts[:, 0] += plan.teachers % plan.classes
    moved = counts.copy()
    moved[:, 1] += 1
    moved[:, -1] -= 1
    return counts, moved


def _around(plan: TransferPlan, votes: int) -> Pair:
    """Counts whose largest is ``votes`` in every query, and one less; the other labels share the rest."""
    counts = np.zeros((plan.queries, plan.classes))
    counts[:, 0] = votes
    rest, others = plan.teachers - votes, plan.classes - 1
    counts[:, 1:] = [rest // others + (number < rest % others) for number in range(others)]
    fewer = counts.copy()
    fewer[:, 0] -= 1
    fewer[:, -1] += 1
    return counts, fewer
