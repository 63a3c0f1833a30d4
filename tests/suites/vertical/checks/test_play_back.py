"""The worst result of several pairs of data sets has the power of the weakest party, and names what it assumes."""

from dataclasses import replace

import pytest
import torch
from fedassay.audit.check import PERSON_MOVE, RELEASED
from fedassay.fl.laws import clip
from fedassay.fl.streams import normal
from fedassay.fl.vertical.protection import Noise, Noised, VerticalLaw, VerticalProtection
from fedassay.suites.vertical.checks import tape
from fedassay.suites.vertical.checks.play_back import play_back_checks
from toy_vertical import SPLIT, row_case, toy_vertical

FEDERATION = toy_vertical(SPLIT, frozen=True)
LAW = VerticalLaw(noised=Noised.EMBEDDINGS, noise=Noise.GAUSSIAN, scale=1.0, releases=2)
CASE = row_case(VerticalProtection(), epsilon=2.0, delta=1e-5, federation=FEDERATION, law=LAW)


class Embeddings(VerticalProtection):
    """Embeddings cut to a norm, with noise of another size at each party."""

    def __init__(self, *scales, most=1.0):
        self.scales, self.most = scales, most

    def embeddings(self, values, party, context, rng):
        return clip(values, self.most) + self.scales[party] * normal(rng, tuple(values.shape))


def checks(protection, pairs=CASE.pairs):
    found = play_back_checks(replace(CASE, protection=protection), pairs)
    return {check.name: check for check in found}


@pytest.mark.simulations
def test_the_power_is_that_of_the_party_with_the_most_noise():
    each = [
        checks(Embeddings(6.0, 12.0), [pair for pair in CASE.pairs if pair.party == party])[PERSON_MOVE]
        for party in (0, 1)
    ]
    both = checks(Embeddings(6.0, 12.0))[PERSON_MOVE]
    assert each[0].detects < each[1].detects
    assert (both.measured, both.detects) == (each[0].measured, each[1].detects)


@pytest.mark.simulations
def test_a_party_without_a_result_leaves_no_power():
    class Silent(Embeddings):
        def embeddings(self, values, party, context, rng):
            return super().embeddings(torch.zeros_like(values) if party else values, party, context, rng)

    found = checks(Silent(6.0, 6.0))[PERSON_MOVE]
    assert found.passed
    assert found.detects is None
    assert "no result for 3 of 6 pairs" in found.witness


@pytest.mark.simulations
def test_a_failure_names_the_rows_and_what_they_assume():
    found = checks(Embeddings(4.0, 4.0, most=1e9))[PERSON_MOVE]
    assert found.passed is False
    assert "must clip to it" in found.witness
    assert "at passive party" in found.witness


@pytest.mark.simulations
@pytest.mark.parametrize(("most", "looked"), [(10_000_000, True), (1, False)])
def test_messages_that_are_too_large_for_constants_are_named(monkeypatch, most, looked):
    monkeypatch.setattr(tape, "_MOST", most)
    # Without noise: where all numbers differ in a few draws, no more are needed.
    assert ("constants were not looked for" not in checks(Embeddings(0.0, 0.0))[RELEASED].witness) is looked
    assert "constants were not looked for" not in checks(Embeddings(4.0, 4.0))[RELEASED].witness


def test_the_length_is_that_of_the_rows_that_are_long():
    words = {pair.words for pair in CASE.pairs}
    assert "a row, 100 times as long as the others, or zeros" in words


def test_a_hook_that_returns_doubles_is_named_where_its_calls_are_recorded():
    class Doubles(VerticalProtection):
        def embeddings(self, values, party, context, rng):
            return values.double()

    with pytest.raises(ValueError, match=r"hook embeddings must return .* torch.float32 .*, got .* torch.float64"):
        checks(Doubles())
