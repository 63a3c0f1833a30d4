import copy
import json
import pickle

import numpy as np
import pytest
from fedassay.audit.claim import Adjacency, Claim, Parameters, Unit
from fedassay.audit.curve import GaussianCurve, ProfileCurve
from fedassay.audit.observer import UPLOADS


@pytest.mark.parametrize("curve", [None, GaussianCurve(0.925), ProfileCurve((0.0, 1.0), (0.2, 0.1), (0.2, 0.1))])
def test_a_claim_survives_json_copies_and_pickles(claim_of, curve):
    claim = claim_of(curve=curve)
    again = Claim.from_dict(json.loads(json.dumps(claim.to_dict(), allow_nan=False)))
    assert again == claim
    assert again.claim_id == claim.claim_id
    assert hash(again) == hash(claim)
    assert copy.deepcopy(claim) == pickle.loads(pickle.dumps(claim)) == claim


def test_the_identity_does_not_hang_on_number_types_or_the_order_of_parameters(claim_of):
    plain = claim_of(epsilon=4.0, parameters={"a": 1, "b": 2.5})
    odd = claim_of(epsilon=np.float64(4), unit="client", rounds=np.int64(20), parameters={"b": 2.5, "a": np.int64(1)})
    assert plain == odd
    assert plain.claim_id == odd.claim_id
    assert len(plain.claim_id) == 12


def test_every_field_is_part_of_the_identity(claim_of):
    changes = {
        "epsilon": 5.0,
        "delta": 1e-6,
        "unit": Unit.SAMPLE,
        "adjacency": Adjacency.ZERO_OUT,
        "observer": UPLOADS,
        "rounds": 21,
        "dp_model": "local",
        "mechanism": "laplace",
        "parameters": {"scale": 1.0},
        "accountant": "hand",
        "sampling": "poisson",
        "trust": "none",
        "source": "a theorem",
        "subjects": "some",
        "part": "layer",
        "curve": GaussianCurve(1.0),
    }
    identities = {claim_of(**{name: value}).claim_id for name, value in changes.items()}
    assert set(changes) == set(claim_of().to_dict())
    assert len(identities | {claim_of().claim_id}) == len(changes) + 1


def test_the_identity_is_pinned(claim_of):
    # A change here orphans every recorded claim: change it on purpose only.
    assert claim_of().claim_id == "4a5f9ed05adb"


def test_parameters_cannot_be_changed(claim_of):
    claim = claim_of(parameters={"b": 2, "a": "x", "c": True})
    assert isinstance(claim.parameters, Parameters)
    assert list(claim.parameters) == ["a", "b", "c"]
    assert claim.parameters == {"a": "x", "b": 2, "c": True}
    with pytest.raises(TypeError):
        claim.parameters["a"] = "y"
    with pytest.raises(KeyError):
        claim.parameters["d"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epsilon": 0.0}, "epsilon must be > 0 and finite, got 0.0"),
        ({"delta": -1e-5}, r"delta must lie in \[0, 1\), got -1e-05"),
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0"),
        ({"mechanism": 3}, "mechanism must be text, got 3"),
        ({"curve": "gaussian"}, "curve must be a GaussianCurve, a ProfileCurve or None, got 'gaussian'"),
        ({"parameters": 3}, "parameters must be a mapping from names to values, got 3"),
        ({"unit": "clients"}, "unit must be client, .*, got 'clients'"),
        ({"adjacency": "replace"}, "adjacency must be replace_one, .*, got 'replace'"),
        ({"dp_model": "centrall"}, "dp_model must be central, .*, got 'centrall'"),
        ({"parameters": {"clip": float("inf")}}, r"parameters\['clip'\] must be finite, got inf"),
    ],
)
def test_a_wrong_field_is_named_with_its_value(claim_of, change, says):
    with pytest.raises(ValueError, match=says):
        claim_of(**change)


def test_an_unknown_field_is_refused(claim_of):
    with pytest.raises(ValueError, match=r"field of a claim must be epsilon, .*, got 'epsilonn'"):
        Claim.from_dict(claim_of().to_dict() | {"epsilonn": 1})


def test_a_stated_claim_has_the_numbers_and_states_what_was_not_stated():
    claim = Claim.stated(1.0)
    server = "the server that observes individual updates and who takes part"
    assert claim.describe() == f"eps 1, delta 0, one report (replace-one), adversary: {server}"
    assert (claim.mechanism, claim.trust, claim.source) == ("not stated",) * 3
    assert (claim.rounds, claim.curve, claim.dp_model) == (1, None, "local")
    other = Claim.stated(2, 1e-6, unit="client", adjacency="add_remove", observer="final_model", rounds=5)
    assert (other.unit, other.adjacency, other.rounds, other.dp_model) == (
        Unit.CLIENT,
        Adjacency.ADD_REMOVE,
        5,
        "central",
    )


def test_a_stated_mu_states_its_curve_and_gives_its_epsilon():
    claim = Claim.stated(delta=1e-5, mu=1.0)
    assert claim.epsilon == pytest.approx(4.3772, abs=1e-4)
    assert claim.curve == GaussianCurve(1.0)
    assert Claim.stated(4.4, 1e-5, mu=1.0).epsilon == 4.4


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({}, "a claim must state epsilon or mu, got neither"),
        ({"mu": 1.0}, r"a claim of mu without epsilon needs a delta in \(0, 1\) at which to compute epsilon, got 0"),
        ({"mu": 0.0, "delta": 1e-5}, "epsilon must be > 0 and finite, got 0"),
        ({"epsilon": 1.0, "delta": 1e-5, "mu": 1.0}, "mu 1.0 does not imply epsilon 1.0 at delta 1e-05"),
        ({"epsilon": 1.0, "mu": 1.0}, "mu 1.0 does not imply epsilon 1.0 at delta 0"),
        ({"epsilon": float("nan")}, "epsilon must be > 0 and finite, got nan"),
        ({"epsilon": 1.0, "observer": "upload"}, "observer must be uploads"),
        ({"epsilon": 1.0, "observer": 3}, "observer must be an Observer or a text such as 'uploads', got 3"),
        ({"epsilon": "a"}, "epsilon must be a number, got 'a'"),
        ({"epsilon": 1.0, "delta": "a"}, "delta must be a number, got 'a'"),
        ({"mu": "a"}, "mu must be a number, got 'a'"),
        ({"epsilon": 1.0, "rounds": "a"}, "rounds must be a number, got 'a'"),
    ],
)
def test_a_stated_claim_that_contradicts_itself_is_refused(fields, says):
    with pytest.raises(ValueError, match=says):
        Claim.stated(**fields)


def test_a_claim_describes_itself_with_unit_adjacency_observer_and_delta(claim_of):
    assert claim_of().describe() == (
        "eps 4, delta 1e-5, one client (add/remove), adversary: other clients (every round's model)"
    )
    other = claim_of(
        epsilon=0.5,
        delta=0.0,
        unit="report",
        adjacency="replace_one",
        observer=UPLOADS,
        subjects="users of budget 0.5",
        part="layer fc1",
    )
    assert other.describe() == (
        "eps 0.5, delta 0, one report (replace-one), adversary: the server that observes individual updates and who "
        "takes part, for users of budget 0.5, layer fc1 alone"
    )
