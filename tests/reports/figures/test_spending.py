"""Spending: accuracy, noise and clip norms against what was spent, as the training's own files tell them."""

from xml.etree import ElementTree

import pytest
from fedassay.reports.figures.spent import spending


@pytest.fixture
def trained(run_maker):
    """(defense, seed, numbers.csv) -> the row of a training of three rounds with these public numbers."""

    def add(defense, seed, numbers):
        artifact = run_maker.rounds(f"{defense}{seed}", [0.1, 0.5, 0.7], loss=[2.0, 1.0, 0.9])
        (run_maker.path / artifact).with_name("numbers.csv").write_text(numbers)
        run_maker.accuracy_row(defense=defense, seed=seed, value=0.7, artifact=artifact)

    return add


def test_accuracy_stands_beside_the_epsilon_that_the_same_rounds_cost(run_maker, trained):
    """Rounds 0 and 2 are told: what one round cost lies between; noise is that of the next round."""
    trained("shrinking", 0, "round,noise_multiplier,epsilon,clip_norm_0\n0,6.0,0.0,1.0\n2,5.0,1.0,1.0\n4,3.0,2.0,1.0\n")
    trained("shrinking", 1, "round,noise_multiplier,epsilon,clip_norm_0\n0,60.0,0.0,1.0\n2,50.0,1.0,1.0\n")
    (figure,) = spending(run_maker.write())
    assert figure.table.rows == (
        ("shrinking", "1", "0.50", "0.100", "2.000", "5.50"),
        ("shrinking", "2", "1.00", "0.500", "1.000", "5.00"),
        ("shrinking", "3", "1.50", "0.700", "0.900", "4.00"),
    )
    ElementTree.fromstring(figure.svg)
    assert "First seed" in figure.description


def test_a_run_without_losses_keeps_its_two_panels(run_maker):
    artifact = run_maker.rounds("c0", [0.1, 0.2])
    (run_maker.path / artifact).with_name("numbers.csv").write_text("round,noise_multiplier,epsilon\n0,6,0\n2,6,1\n")
    run_maker.accuracy_row(value=0.2, artifact=artifact)
    (figure,) = spending(run_maker.write())
    assert [row[4] for row in figure.table.rows] == ["–", "–"]
    assert "test loss" not in figure.svg


def test_clip_norms_are_drawn_where_they_move(run_maker, trained):
    rows = ["0,6.0,0.0,1.0,1.0", "1,6.0,0.9,0.5,0.25", "2,6.0,1.0,1e-3,0.2"]
    trained("adaptive", 0, "\n".join(["round,noise_multiplier,epsilon,clip_norm_0,clip_norm_1", *rows]) + "\n")
    trained("constant", 0, "round,noise_multiplier,epsilon,clip_norm_0\n0,6.0,0.0,1.0\n2,6.0,1.0,1.0\n")
    bought, norms = spending(run_maker.write())
    assert {row[0] for row in bought.table.rows} == {"adaptive", "constant"}
    assert [row[:2] for row in norms.table.rows] == [("adaptive", "0"), ("adaptive", "1"), ("adaptive", "2")]
    assert [float(value) for value in norms.table.rows[1][2:]] == pytest.approx([0.25, 0.375, 0.5])
    ElementTree.fromstring(norms.svg)
    assert [figure.svg for figure in spending(run_maker.write())] == [bought.svg, norms.svg]


def test_a_training_without_public_numbers_of_a_budget_has_no_figure(run_maker, trained):
    run_maker.accuracy_row(value=0.7, artifact=run_maker.rounds("c0", [0.7]))
    trained("other", 0, "round,temperature\n0,1.0\n")
    assert spending(run_maker.write()) == ()


def test_a_segmentation_has_no_accuracy_to_stand_beside_its_budget(run_maker):
    artifact = run_maker.rounds("c0", [0.1, 0.2], "iou")
    numbers = "round,noise_multiplier,epsilon\n0,6.0,0.0\n2,6.0,1.0\n"
    (run_maker.path / artifact).with_name("numbers.csv").write_text(numbers)
    run_maker.row(role="utility", attack="training", metric="iou", value=0.2, artifact=artifact)
    assert spending(run_maker.write()) == ()
