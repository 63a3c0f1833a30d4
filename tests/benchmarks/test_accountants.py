"""The comparison of accountants: ours is sound, and a number below the truth or a library that is absent is named."""

import math

import pytest
from accountants import ACCOUNTANTS, GRID, OURS, AccountedLaw, compared
from fedassay.defenses.accounting.accountant import Adjacency, epsilon_of

FEW = (
    AccountedLaw(1, 1, 1, 1e-5),
    AccountedLaw(3, 0.2, 50, 1e-5),
    AccountedLaw(0, 0.1, 100, 1e-5),
    AccountedLaw(50, 1, 1, 0.05),
)


def test_ours_is_sound_and_the_library_counts_repeated_randomised_response_once():
    lines, sound = compared(FEW, {name: ACCOUNTANTS[name] for name in (OURS, "dp-accounting PLD")})
    assert sound
    assert any(line.startswith("dp-accounting PLD: 1 results below the truth") for line in lines)


def test_what_is_below_the_truth_negative_without_a_number_or_absent_is_counted():
    fake = {OURS: lambda law: -1.0, "no-such-library X": lambda law: 0.0, "dp-accounting none": lambda law: 1 / 0}
    lines, sound = compared(FEW[:1], fake)
    assert not sound
    assert lines[0] == "no-such-library X: not installed"
    assert lines[-2].startswith("fedassay: 1 results below the truth (1 negative), 0 without a number")
    assert lines[-1].startswith("dp-accounting none: 0 results below the truth (0 negative), 1 without a number")


@pytest.mark.parametrize("law", [law for law in GRID if law.noise == 0], ids=str)
def test_our_number_of_repeated_randomised_response_is_that_of_its_enumeration(law):
    found = epsilon_of(law.event, delta=law.delta, adjacency=Adjacency.REPLACE_ONE)
    assert law.truth() <= found * (1 + 1e-6) < 1.01 * law.truth() < math.inf
