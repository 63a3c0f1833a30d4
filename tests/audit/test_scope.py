"""A claim speaks about evidence of its own observer or a weaker one, its unit, its neighbours, and its rounds."""

from dataclasses import replace

import pytest
from fedassay.audit.claim import Adjacency, Claim, Unit
from fedassay.audit.evidence import Setting
from fedassay.audit.finding import beyond_all, beyond_scope
from fedassay.audit.observer import FINAL_MODEL, GLOBAL_MODELS, UPLOADS

CLAIM = Claim.stated(4.0, 1e-5, unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=GLOBAL_MODELS, rounds=10)
OWN = Setting.claimed(CLAIM)


@pytest.mark.parametrize("changes", [{}, {"observer": FINAL_MODEL}, {"rounds": 3}])
def test_less_than_was_claimed_is_covered(changes):
    assert beyond_scope(CLAIM, replace(OWN, **changes)) == ""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"observer": UPLOADS},
            "the evidence is of the server that observes individual updates, the claim covers other clients",
        ),
        ({"unit": Unit.CLIENT}, "the evidence is of one client, the claim of one sample"),
        ({"adjacency": Adjacency.REPLACE_ONE}, "of replace-one neighbours, the claim of add/remove"),
        ({"rounds": 11}, "the evidence is of 11 rounds, the claim covers 10"),
    ],
)
def test_anything_else_is_beyond_it_and_reported(changes, says):
    assert says in beyond_scope(CLAIM, replace(OWN, **changes))


@pytest.mark.parametrize(
    ("field", "value"),
    [("part", "layer 1"), ("part", "a person's columns at one party"), ("subjects", "users of budget 2")],
)
def test_a_claim_of_a_part_is_silent_about_the_whole(field, value):
    limited = replace(CLAIM, **{field: value})
    assert beyond_scope(limited, OWN) == ""
    assert beyond_all(limited, OWN).endswith(f"{value} alone")
    assert beyond_all(CLAIM, OWN) == ""
