"""The ROC of membership attacks: which panels, which lines, and where a claim forbids anything."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from fedassay.audit.claim import Unit
from fedassay.audit.observer import FINAL_MODEL, UPLOADS
from fedassay.reports.figures.roc import claim_words, membership_roc
from fedassay.reports.reading.membership import memberships


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]


def hatched(svg):
    """Areas filled with a hatch, less the legend's own."""
    return len(re.findall(r"fill: url\(#h", svg)) - 1


@pytest.fixture
def signed(run_maker, make_claim, add_membership):
    """A sample-level claim against the server, together with an attack that it covers."""
    claim = make_claim(8.0, mu=1.5, unit=Unit.SAMPLE, observer=UPLOADS)
    run_maker.sign("dp_sgd", claim)
    add_membership(run_maker, "dp_sgd", member=np.arange(50.0), nonmember=np.arange(60.0))
    return run_maker


def test_a_claim_of_this_observer_and_unit_is_hatched_and_named(signed):
    (figure,) = membership_roc(signed.write())
    assert hatched(figure.svg) == 1
    assert (
        "one sample, adversary: the server that observes individual updates and who takes part; ε\u00a08"
        in " ".join(texts(figure.svg))
    )
    assert figure.table.rows[0][-1] == "ε\u00a08, δ\u00a01e-5"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"unit": "client"},
            "not covered by a claim: the evidence is about one client, but the claim is about one sample",
        ),
        (
            {"observer": "uploads+participation"},
            "not covered by a claim: the evidence is what the server that observes individual updates and who takes",
        ),
    ],
)
def test_where_unit_neighbours_rounds_or_observer_differ_nothing_is_hatched(
    run_maker, make_claim, add_membership, changes, why
):
    run_maker.sign("dp_sgd", make_claim(8.0, unit=Unit.SAMPLE, observer=UPLOADS))
    add_membership(run_maker, "dp_sgd", **changes)
    (figure,) = membership_roc(run_maker.write())
    assert hatched(figure.svg) == 0
    assert figure.table.rows[0][-1].startswith(why)


def test_a_claim_against_a_stronger_observer_is_hatched_for_a_weaker_one(signed, add_membership):
    add_membership(signed, "dp_sgd", "final", observer="final_model")
    found = memberships(signed.write())
    assert [str(one.setting.observer) for one in found] == ["uploads", "final_model"]
    assert [len(one.claims) for one in found] == [1, 1]


def test_of_two_claims_both_are_reported_and_one_region_is_hatched(signed, make_claim):
    signed.sign("dp_sgd", make_claim(2.0, unit=Unit.SAMPLE, observer=UPLOADS, delta=1e-3))
    signed.sign("dp_sgd", make_claim(1.0, unit=Unit.CLIENT, observer=UPLOADS))
    (one,) = memberships(signed.write())
    assert claim_words(one) == "ε\u00a08, δ\u00a01e-5 and ε\u00a02, δ\u00a00.001"
    assert hatched(membership_roc(signed.write())[0].svg) == 1


def test_attacks_of_one_observer_and_unit_share_a_panel_and_others_do_not(signed, add_membership):
    add_membership(signed, "dp_sgd", "alignment")
    add_membership(signed, "dp_sgd", "coin", role="null")
    add_membership(signed, "dp_sgd", "who", unit="client")
    (figure,) = membership_roc(signed.write())
    words = texts(figure.svg)
    assert words.count("dp_sgd") == 2
    assert {"loss", "alignment", "coin", "who", "chance", "stated trade-off curve"} <= set(words)
    assert [row[3] for row in figure.table.rows] == ["who", "loss", "alignment", "coin (null attack)"]


def test_the_scores_of_all_seeds_are_pooled_and_their_runs_kept_apart(run_maker, add_membership):
    for seed in (0, 1):
        runs = {"member_runs": [0, 1], "nonmember_runs": [0, 1]} if seed else {}
        add_membership(run_maker, "none", seed=seed, **runs)
    (one,) = memberships(run_maker.write())
    assert len(one.sides.member) == 4
    # One run of the first seed, two of the second.
    assert one.sides.member_runs.tolist() == [0, 0, 1, 2]
    assert one.sides.runs == 3


def test_independent_trials_are_runs_of_their_own(run_maker, add_membership):
    add_membership(run_maker, "none", design="independent")
    (one,) = memberships(run_maker.write())
    assert one.sides.runs == 4


def test_scores_that_do_not_tell_their_setting_are_not_drawn(run_maker):
    artifact = run_maker.arrays("c", "scores", member=np.zeros(3), nonmember=np.ones(3))
    run_maker.row(metric="auc", value=0.5, observer=str(FINAL_MODEL), artifact=artifact)
    assert membership_roc(run_maker.write()) == ()


def test_shadow_federations_give_one_line_and_are_reported_from_independent_runs(run_maker, add_membership):
    of = {"member_run": [0, 1], "nonmember_run": [0, 1], "auc": 0.8, "auc_error": 0.1, "auc_freedom": 3}
    add_membership(run_maker, "none", **of)
    (figure,) = membership_roc(run_maker.write())
    assert figure.table.rows[0][4:8] == ("2", "2", "2 shadows", "0.875")
    assert "Shadow federations" in figure.description


def test_one_score_a_side_and_ties_are_drawn(run_maker, add_membership):
    add_membership(run_maker, "none", member=[1.0], nonmember=[1.0])
    (figure,) = membership_roc(run_maker.write())
    assert figure.table.rows[0][4:8] == ("1", "1", "1", "0.500")
