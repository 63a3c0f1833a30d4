"""Turns: CPU seconds of known work, ratios turn by turn, and ways that end early."""

from functools import partial

import pytest
import turn_ways
from turns import Taken, take_turns


@pytest.mark.processes
@pytest.mark.long
def test_turns_count_the_work_of_a_process_and_of_those_below_it():
    found = take_turns(
        {
            "busy": partial(turn_ways.busy, turns=3, seconds=0.3),
            "below": partial(turn_ways.busy_below, turns=3, seconds=0.3),
            "idle": partial(turn_ways.idle, turns=3),
            "missing": turn_ways.missing,
            "failing": turn_ways.failing,
        },
        turns=2,
    )
    assert found["busy"].result == "ended"
    for name in ("busy", "below"):
        assert len(found[name].seconds) == 2
        assert found[name].seconds == pytest.approx([0.3] * 2, abs=0.1), name
    assert max(found["idle"].seconds) < 0.1
    assert found["missing"].error.startswith("not installed: ")
    assert found["failing"].error == "ZeroDivisionError: at work"


def test_ratios_are_those_of_the_same_turns():
    one, other = Taken(seconds=[1.0, 20.0, 3.0]), Taken(seconds=[2.0, 10.0, 3.0])
    assert one.ratio_to(other) == "1.00 (0.50 to 2.00)"
