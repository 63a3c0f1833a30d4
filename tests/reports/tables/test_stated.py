"""What claims state: who is trusted, what may be believed, what checks looked at, and what papers published."""

import math

import pytest
from fedassay.audit.check import NOT_CLAIMED
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import GaussianCurve
from fedassay.audit.observer import UPLOADS
from fedassay.reports.formats.markdown import markdown
from fedassay.reports.formats.page import html
from fedassay.reports.reading.claims import claim_rows
from fedassay.reports.regression.gated_run import judge_folder
from fedassay.reports.tables.sections import run_tables
from fedassay.reports.tables.stated import (
    belief_table,
    coverage_lines,
    coverage_table,
    paper_table,
    published_table,
    published_values,
    scope_lines,
    trust_table,
)

LOCAL = {"unit": Unit.REPORT, "adjacency": Adjacency.REPLACE_ONE, "observer": UPLOADS, "dp_model": "local"}


def test_a_pure_claim_bounds_beliefs_and_one_with_delta_only_guesses(run_maker, make_claim):
    run_maker.sign("pure", make_claim(**LOCAL, epsilon=4.0, delta=0.0))
    run_maker.sign("approximate", make_claim(epsilon=4.0, delta=0.01))
    folder = run_maker.write()
    rows = {row[0]: row[3:] for row in belief_table(folder).rows}
    # 1 / (1 + e^-4) = .98201, and 1 - .99 / (1 + e^4) = .98219, both rounded up.
    assert rows["pure"] == ("0.983", "0.983", "–", "8", "0")
    assert rows["approximate"][:4] == ("–", "0.983", "–", "8")
    assert float(rows["approximate"][4]) == pytest.approx(0.01 * (1 + math.exp(4)), abs=1e-6)
    assert belief_table(folder).title in {table.title for table in run_tables(folder)}


def test_a_trade_off_curve_bounds_guesses_more_tightly_than_epsilon_and_delta(run_maker, make_claim):
    run_maker.sign("dp", make_claim(epsilon=4.37717, delta=1e-5, curve=GaussianCurve(1.0)))
    ((*_, alone, curve, _, _),) = belief_table(run_maker.write()).rows
    # 1 - (1 - delta) / (1 + e^epsilon) = .98760, and Phi(1 / 2) = .69146, both rounded up.
    assert (alone, curve) == ("0.988", "0.692")


def test_controls_and_single_layers_have_no_row(run_maker, make_claim):
    run_maker.sign("noise_halved", make_claim(), control=True)
    run_maker.sign("ldp", make_claim(**LOCAL, part="layer 1"))
    assert belief_table(run_maker.write()).rows == ()


def test_equal_claims_of_one_defense_share_a_row_and_other_epsilons_have_their_own(run_maker, make_claim):
    run_maker.sign("ldp", make_claim(**LOCAL, epsilon=1.0, delta=0.0))
    run_maker.sign("ldp", make_claim(**LOCAL, epsilon=1.0, delta=0.0, trust="nobody"))
    run_maker.sign("ldp", make_claim(**LOCAL, epsilon=8.0, delta=0.0))
    assert [row[2] for row in belief_table(run_maker.write()).rows] == ["1", "8"]


def test_one_line_for_equal_statements_and_a_table_with_the_reasons(run_maker, make_claim):
    claim = make_claim()
    for label in ("one", "two"):
        run_maker.sign(label, claim)
        seen = {"looked_at": ["noise scale"], "not_looked_at": ["timing: no check measures it"]}
        run_maker.verdict_row(claim, cell_id=label, defense=label, verdict="NOT_REFUTED", **seen)
    folder = run_maker.write()
    line = "checks one, two: 1 item looked at; not looked at: timing"
    assert coverage_lines(folder) == [line]
    assert line in judge_folder(folder).outcome.details
    (first, _) = coverage_table(claim_rows(folder)).rows
    assert first[2:] == ("noise scale", "timing: no check measures it")
    assert scope_lines(folder) == []
    assert "timing: no check measures it" in markdown(folder)


def test_what_claims_are_not_about_is_a_line_with_its_reason(run_maker, make_claim):
    claim, words = (
        make_claim(),
        f"rounds from 1 on: they also release something about each unit, but {NOT_CLAIMED} 1 of 5 rounds",
    )
    run_maker.sign("one", claim)
    run_maker.verdict_row(claim, defense="one", verdict="NOT_REFUTED", looked_at=["noise scale"], not_looked_at=[words])
    assert scope_lines(run_maker.write()) == [f"scope  one: {words}"]


@pytest.fixture
def tried(run_maker, make_claim):
    """One paper whose claim falls and one whose claim stands, and the corrected form of the first."""

    def sign(label, verdict, low, *, variant, provable):
        parameters = {} if provable is None else {"provable_epsilon": provable}
        claim = make_claim(epsilon=10.0, unit=Unit.REPORT, parameters=parameters)
        run_maker.sign(label, claim, variant=variant)
        run_maker.verdict_row(
            claim,
            cell_id=label,
            defense=label,
            value=low,
            verdict=verdict,
            route="eps_low",
            variant=variant,
            artifact=run_maker.arrays(label, "scores", fpr_high=0.0207, fnr_high=0.035),
            reason="eps >= 12 > 10; witness: two rows; implementation check: sensitivity: moves 2; in `law`: x (a)",
        )

    sign("fedre", "NOT_REFUTED", 3.0, variant="corrected", provable=None)
    sign("fedre_as_published", "REFUTED", 12.0, variant="as_published", provable=25.8)
    sign("apes_as_published", "NOT_REFUTED", 1.0, variant="as_published", provable=None)
    return run_maker.write()


def test_each_paper_has_a_row_and_the_corrected_form_has_none(tried):
    rows = {row[0]: row[2:] for row in paper_table(claim_rows(tried)).rows}
    assert set(rows) == {"fedre_as_published", "apes_as_published"}
    assert rows["fedre_as_published"] == ("10.0", "25.8", "12", "REFUTED", "two rows; FPR <= .021, FNR <= .035")
    assert rows["apes_as_published"] == ("10.0", "–", "1", "NOT REFUTED", "")


@pytest.mark.parametrize("name", ["witness", "evidence"])
@pytest.mark.parametrize("end", ["", "; implementation check: broken"])
def test_reasons_of_every_version_give_the_evidence_of_a_refutation(run_maker, make_claim, name, end):
    claim = make_claim(epsilon=10.0)
    run_maker.sign("fedre", claim, variant="as_published")
    reason = f"eps >= 12 > 10; {name}: two rows; one event{end}"
    run_maker.verdict_row(claim, defense="fedre", value=12.0, verdict="REFUTED", variant="as_published", reason=reason)
    assert paper_table(claim_rows(run_maker.write())).rows[0][-1] == "two rows; one event"


def test_where_nothing_is_provable_the_table_gives_none(run_maker, make_claim):
    claim = make_claim(parameters={"provable": "none: the noise depends on the data"})
    run_maker.sign("fedre", claim, variant="as_published")
    ((_, _, _, provable, *_),) = paper_table(claim_rows(run_maker.write())).rows
    assert provable == "none"


def figure(defense, metric, value, **more):
    return {"federation": "main", "defense": defense, "metric": metric, "value": value, "source": "Table 3", **more}


@pytest.fixture
def compared(run_maker, make_claim):
    for seed, value in enumerate((0.70, 0.72, 0.74)):
        run_maker.accuracy_row(defense="apes", value=value, seed=seed)
        run_maker.row(attack="loss", metric="auc", defense="apes", value=0.5 + value / 10, seed=seed)
    for epsilon in (20.0, 57.5):
        run_maker.sign("apes", make_claim(epsilon=epsilon, unit=Unit.CLIENT))
    run_maker.manifest["suite"]["published"] = [
        figure("apes", "accuracy", 0.7967),
        figure("apes", "auc", 0.55, attack="loss"),
        figure("apes", "epsilon", 57.6, unit="client"),
        figure("apes", "epsilon", 0.057, unit="coordinate"),
        figure("unis", "accuracy", 0.7754),
    ]
    return run_maker.write()


def test_each_figure_stands_beside_its_own(compared):
    rows = published_table(published_values(compared)).rows
    assert rows[0] == ("apes", "accuracy", "0.797", "0.720 [0.670, 0.770]", "−0.077", "3", "Table 3")
    assert rows[1][1:3] == ("loss: AUC", "0.550")
    assert rows[1][3].startswith("0.572 [")
    assert rows[2][1:5] == ("ε of a client", "57.6", "57.5", "−0.100")


def test_what_was_not_measured_is_no_number(compared):
    rows = published_table(published_values(compared)).rows
    assert rows[3][2:6] == ("0.0570", "not stated", "–", "–")
    assert rows[4][2:6] == ("0.775", "not measured", "–", "–")


@pytest.mark.parametrize("edited", ["x", {}, [3], [{}], [figure("apes", "accuracy", "x")], [{"value": 1}], [None]])
def test_figures_that_a_hand_has_spoilt_spoil_no_page(run_maker, edited):
    run_maker.accuracy_row(value=0.9)
    run_maker.manifest["suite"]["published"] = edited
    assert "0.900" in html(run_maker.write())


@pytest.fixture
def rows(run_maker, make_claim):
    report = {"unit": Unit.REPORT, "adjacency": Adjacency.REPLACE_ONE, "observer": UPLOADS, "dp_model": "local"}
    run_maker.sign("dp_fedavg", make_claim())
    run_maker.sign("dp_fedavg_8", make_claim(epsilon=8.0))
    run_maker.sign("noise_halved", make_claim(), control=True)
    run_maker.sign("ldp", make_claim(**report, trust="nobody"))
    run_maker.sign("ldp", make_claim(**report, part="layer 1"))
    run_maker.manifest["suite"]["federations"] = {"main": {"clients": 10, "rounds": 20}}
    return trust_table(run_maker.write()).rows


def test_claims_that_differ_in_size_alone_share_a_row_and_controls_have_none(rows):
    assert [row[-1] for row in rows] == ["dp_fedavg, dp_fedavg_8", "ldp"]


def test_a_row_states_model_neighbours_observer_trust_and_clients(rows):
    assert rows[0][:5] == (
        "central",
        "one client (add/remove)",
        "other clients (every round's model)",
        "the server is trusted",
        "10 clients",
    )
    assert rows[1][0] == "local"
    assert rows[1][3] == "nobody"
