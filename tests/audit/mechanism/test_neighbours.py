"""Pairs of inputs on a ball: lengths, distances, what each adjacency allows."""

import numpy as np
import pytest
from fedassay.audit.mechanism.mechanism import ball_neighbours


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize(("adjacency", "count"), [("replace_one", 10), ("add_remove", 5), ("zero_out", 5)])
def test_vectors_lie_on_the_ball_and_zero_stands_for_what_is_away(norm, adjacency, count):
    pairs = ball_neighbours(7, radius=3.0, norm=norm, adjacency=adjacency)
    assert len(pairs) == count
    for x0, x1 in pairs:
        assert np.linalg.norm(x1, norm) == pytest.approx(3)
        assert np.array_equal(x0, -x1) or not x0.any()
    assert sum(x0.any() for x0, _ in pairs) == (5 if adjacency == "replace_one" else 0)


def test_the_directions_by_hand():
    pairs = ball_neighbours(4, radius=2.0, norm=1, adjacency="add_remove", directions=0)
    np.testing.assert_array_equal([x1 for _, x1 in pairs], [[2, 0, 0, 0], [0, 0, 0, 2], [0.5] * 4])
    np.testing.assert_array_equal(ball_neighbours(1, radius=2.0), [([0], [2]), ([-2], [2])])


def test_random_directions_come_from_the_seed():
    one, again, other = (ball_neighbours(5, radius=1.0, seed=seed)[4][1] for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, other)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"dimension": 0}, "dimension must be >= 1"),
        ({"radius": 0.0}, "radius must be > 0 and finite, got 0.0"),
        ({"radius": float("nan")}, "radius must be > 0 and finite, got nan"),
        ({"dimension": "a"}, "dimension must be a number, got 'a'"),
        ({"radius": "a"}, "radius must be a number, got 'a'"),
        ({"norm": 3}, r"norm must be 1 \(for L1\) or 2 \(for L2\), got 3"),
        ({"directions": -1}, "random directions >= 0, got 3 and -1"),
        ({"adjacency": "replace"}, "adjacency must be replace_one"),
    ],
)
def test_balls_that_there_are_not_are_refused(fields, says):
    with pytest.raises(ValueError, match=says):
        ball_neighbours(**({"dimension": 3, "radius": 1.0} | fields))
