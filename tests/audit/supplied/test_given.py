"""What a caller in Python hands over as scores, directions and numbers is read as it is meant, or refused."""

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.audit.supplied.given import scores_or_rows
from fedassay.audit.supplied.scores import audit_one_run, audit_scores

CLAIM = Claim.stated(1.0, 1e-5)
RNG = np.random.default_rng(0)
MEMBER, NONMEMBER = RNG.normal(size=200), RNG.normal(size=200)
RUNS = np.arange(200)


class Tensor:
    """A tensor that requires gradients: it becomes an array only once it is detached."""

    def __init__(self, values, detached=False):
        self.values, self.detached = values, detached

    def detach(self):
        return Tensor(self.values, detached=True)

    def cpu(self):
        return self

    def is_floating_point(self):
        return np.asarray(self.values).dtype.kind == "f"

    def double(self):
        return self

    def __array__(self, dtype=None, copy=None):
        if not self.detached:
            raise RuntimeError("requires grad")
        return np.asarray(self.values, dtype=dtype)


@pytest.mark.parametrize(
    "given", [[1.0, 2.0], (1, 2), np.array([[1.0], [2.0]]), Tensor([1.0, 2.0]), [Tensor(1.0), Tensor(2.0)]]
)
def test_lists_columns_and_tensors_are_scores(given):
    assert scores_or_rows("member", given).tolist() == [1.0, 2.0]


def test_rows_of_several_columns_stay_rows():
    assert scores_or_rows("member", [[1.0, 2.0]]).shape == (1, 2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.array([1 + 1j, 2]), "member must be real numbers, got complex128"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "member must be real numbers, got datetime64"),
        (np.ma.array([1.0, 2.0], mask=[True, False]), "member must hold no masked values"),
        (["True", "False"], "member must be an array of numbers, got"),
        (Tensor([2**53 + 1]), "float64 holds exactly"),
        ((x for x in MEMBER), "member must be an array of numbers, got <generator"),
    ],
)
def test_what_is_no_real_number_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        audit_scores(given, NONMEMBER, CLAIM, design="independent")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"higher_is_member": "False"}, "higher_is_member must be True, False or None, got 'False'"),
        ({"higher_is_member": 0}, "higher_is_member must be True, False or None, got 0"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"estimator": 3}, "estimator must be a name, a table, a function or a list of them, got 3"),
        (
            {"design": "clustered", "clusters": RUNS},
            r"clusters must be two arrays, of members and of non-members, got array\(\[",
        ),
        ({"design": "clustered", "clusters": ([None] * 200, RUNS)}, "a missing name"),
        ({"design": "clustered", "clusters": (RUNS, [np.nan] * 200)}, "a missing name"),
    ],
)
def test_options_of_other_types_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        audit_scores(MEMBER, NONMEMBER, CLAIM, **{"design": "independent"} | options)


def test_a_direction_may_be_a_boolean_of_numpy():
    # Losses of members are lower: read as high scores they would be refused.
    finding = audit_scores(MEMBER - 9, NONMEMBER, CLAIM, design="independent", higher_is_member=np.False_)
    assert finding.verdict is Verdict.REFUTED


@pytest.mark.parametrize(
    ("guesses", "words"), [(0, "from 1 to 400, got 0"), (401, "from 1 to 400, got 401"), (1.5, "a whole number")]
)
def test_a_number_of_guesses_that_cannot_be_made_is_refused(guesses, words):
    scores, coins = np.concatenate([MEMBER, NONMEMBER]), np.arange(400) < 200
    with pytest.raises(ValueError, match=f"guesses must be {words}"):
        audit_one_run(scores, coins, CLAIM, higher_is_member=True, guesses=guesses)
    column = audit_one_run(scores[:, None], coins[:, None], CLAIM, higher_is_member=True)
    assert column == audit_one_run(scores, coins, CLAIM, higher_is_member=True)


def test_constant_scores_may_differ_by_rounding():
    sides = 1 + 1e-16 * MEMBER, 1 + 1e-16 * NONMEMBER
    assert len(np.unique(np.concatenate(sides))) > 1
    assert audit_scores(*sides, CLAIM, design="independent").verdict is Verdict.UNDERPOWERED
