"""A paper's figures beside the run's own: measured, signed, or neither."""

import pytest
from fedassay.audit.claim import Unit
from fedassay.reports.formats.page import html
from fedassay.reports.tables.stated import published_table, published_values


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
