"""The accountant in arrays: bit for bit the library's numbers, and for mixtures of Gaussians to six digits."""

import pytest
from dp_accounting.dp_event import (
    ComposedDpEvent,
    GaussianDpEvent,
    MixtureOfGaussiansDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from fedassay.defenses.accounting.pld import ArrayPLDAccountant

INTERVAL = 1e-3
DELTAS = (1e-12, 1e-5, 0.1)
EPSILONS = (0.0, 0.1, 1.0, 5.0)


def sampled(sigma, rate, steps):
    return SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), steps)


def numbers(kind, event, relation):
    accountant = kind(relation, INTERVAL).compose(event)
    return [accountant.get_epsilon(delta) for delta in DELTAS] + [accountant.get_delta(e) for e in EPSILONS]


@pytest.mark.parametrize(
    "event",
    [
        sampled(0.3, 0.1, 8),
        sampled(0.83, 0.013, 200),
        sampled(1.5, 0.5, 20),
        sampled(6.0, 0.2, 1),
        sampled(4.0, 0.999, 3),
        sampled(1.0, 1e-4, 1000),
        sampled(1.0, 1.0, 3),
        ComposedDpEvent([sampled(1.5, 0.5, 2), GaussianDpEvent(2.0), sampled(2.0, 0.1, 3)]),
    ],
    ids=str,
)
def test_its_numbers_are_the_librarys_to_the_last_bit(event):
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    assert numbers(ArrayPLDAccountant, event, relation) == numbers(PLDAccountant, event, relation)


@pytest.mark.parametrize("relation", [NeighboringRelation.REPLACE_ONE, NeighboringRelation.REPLACE_SPECIAL])
def test_other_neighbours_are_the_librarys_too(relation):
    event = sampled(1.5, 0.5, 2)
    assert numbers(ArrayPLDAccountant, event, relation) == numbers(PLDAccountant, event, relation)


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("sigma", "moved", "chances"),
    [
        (1.5, (0.0, 0.5, 1.0), (0.25, 0.5, 0.25)),
        (0.8, (0.0, 0.25, 0.5, 0.75, 1.0), (0.6561, 0.2916, 0.0486, 0.0036, 0.0001)),
        (3.0, (0.0, 1.0), (0.7, 0.3)),
        (5.0, (0.5, 1.0), (0.5, 0.5)),
    ],
    ids=["two parts", "four parts, little noise", "one part", "always some part: left to the library"],
)
def test_the_numbers_of_a_mixture_are_the_librarys(sigma, moved, chances):
    event = SelfComposedDpEvent(MixtureOfGaussiansDpEvent(sigma, moved, chances), 5)
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    ours, theirs = (numbers(kind, event, relation) for kind in (ArrayPLDAccountant, PLDAccountant))
    assert ours[1:] == pytest.approx(theirs[1:], rel=1e-6)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-4)
