"""Drawings in fewer letters: every path still goes through the same points."""

import re

from fedassay.reports.figures.sheet import shorter
from hypothesis import given
from hypothesis import strategies as st

NUMBER = st.sampled_from(["0", "1", "12.5", "-3.25", "100", "0.01"])
POINT = st.tuples(NUMBER, NUMBER)
SEGMENT = st.one_of(
    st.tuples(st.sampled_from("ML"), st.tuples(POINT)),
    st.tuples(st.just("Q"), st.tuples(POINT, POINT)),
    st.tuples(st.just("C"), st.tuples(POINT, POINT, POINT)),
    st.just(("z", ())),
)


def visited(path):
    """(command, points) of each segment, a line along an axis as the line that it is."""
    found, at = [], ("", "")
    for command, numbers in re.findall(r"([MLHVQCz])([^MLHVQCz]*)", path):
        values = numbers.split()
        if command == "H":
            command, values = "L", [values[0], at[1]]
        elif command == "V":
            command, values = "L", [at[0], values[0]]
        found.append((command, tuple(zip(values[::2], values[1::2], strict=True))))
        at = tuple(values[-2:]) if values else ("", "")
    return found


@given(st.lists(SEGMENT))
def test_a_shorter_path_goes_through_the_same_points(segments):
    path = " ".join(
        " ".join([command, *(number for point in points for number in point)]) for command, points in segments
    )
    short = shorter(path)
    assert visited(short) == [(command, points) for command, points in segments]
    assert len(short) <= len(path)


def test_every_path_of_a_page_is_short_and_whole(quick_page):
    paths = re.findall(r'<path (?:[^>]*? )?d="([^"]*)"', quick_page)
    assert len(paths) > 100
    for path in paths:
        assert shorter("".join(f"{command} {' '.join(sum(points, ()))} " for command, points in visited(path))) == path
