"""The pictures of the first screen: known places on the axis, and what they say of each verdict."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
from fedassay.audit.claim import Unit
from fedassay.audit.curve import GaussianCurve
from fedassay.audit.finding import BY_CHECKS
from fedassay.audit.observer import GLOBAL_MODELS
from fedassay.reports.formats.page import html
from fedassay.reports.reading.pooling import Pooled
from fedassay.reports.tables import first_screen
from fedassay.reports.tables.answers import SIGNS, answers
from fedassay.reports.tables.first_screen import (
    LABELS,
    WIDTH,
    ValueBar,
    Watcher,
    band,
    by_status,
    interval_words,
    people,
    reached,
    ruler,
    use,
    watchers,
)
from toy_claim import toy_claim


@pytest.fixture
def answer(run_maker):
    """(fields of the verdict, claim) -> the answer about the one claim of a finished run."""

    def build(claim=None, **fields):
        signed = run_maker.sign("mine", claim or replace(toy_claim(), epsilon=4.0))
        run_maker.verdict_row(signed, **({"defense": "mine", "attack": "canary", "verdict": "NOT_REFUTED"} | fields))
        run_maker.gate = {"verdict_line": "a line", "exit_code": 0}
        run_maker.manifest["planned_cells"] = len({line["cell_id"] for line in run_maker.lines})
        (one,) = answers(run_maker.write())
        return one

    return build


def ruler_of(one):
    return ruler(one.row)


def places(drawn):
    return {mark.kind.value: mark.at for mark in drawn.marks}


def test_the_marks_of_a_claim_stand_at_their_values(answer):
    drawn = ruler_of(answer(value=1.0, detectable=6.0, ceiling=8.0))
    # The axis ends 15 % behind the largest value.
    values = {"proved": 1.0, "claim": 4.0, "seen": 6.0, "most": 8.0}
    assert places(drawn) == pytest.approx({kind: WIDTH * value / 9.2 for kind, value in values.items()})
    assert drawn.broken is False
    assert drawn.sentence.startswith("Axis of ε: proved: the true ε is at least 1.00; claimed: ε is at most 4; too")


def test_the_smallest_violation_that_a_test_finds_names_runs_or_checks(answer):
    """An epsilon of 4.04 that is found, beside 2.03 that can be proved, contradict each other otherwise."""
    detected = f"{BY_CHECKS} 4.036 if its noise is 0.99 of the law's; the runs alone would not be enough: x"
    one = answer(value=0.0, detectable=4.036, ceiling=2.03, reason=detected)
    assert "4.04 or more): checks of the code, and not the runs, find it in 9 of 10 tests" in ruler_of(one).sentence
    assert "and 4.04 they may miss it" in one.power
    by_runs = replace(one.row, record=one.row.record.model_copy(update={"reason": "x"}))
    assert "or more): the runs find it" in ruler(by_runs).sentence
    assert "not decided" in ruler(by_runs, undecided=True).sentence
    assert places(ruler(one.row, missed=True)).keys() == {"claim", "most"}


def test_each_of_several_claims_is_linked_below_the_band_and_a_single_one_is_not(quick_folder, answer):
    page = html(quick_folder)
    listed = page.partition('<ul class="verdicts"')[2].partition("</ul>")[0]
    places = re.findall('href="#([^"]*)"', listed)
    assert len(places) == len(answers(quick_folder)) > 1
    assert all(page.count(f'id="{place}"') == 1 for place in places)
    assert all(f"{one.defense}: {one.found}" in listed for one in answers(quick_folder))
    assert '<ul class="verdicts"' not in html(answer().folder)


def test_what_each_claim_shows_before_its_fold_answers_what_was_found_who_sees_what_and_what_is_next(quick_folder):
    """A narrow screen shows no more of a card than this."""
    cards = re.findall(r"<article.*?</article>", html(quick_folder), re.DOTALL)
    for one, card in zip(answers(quick_folder), cards, strict=True):
        head, fold, rest = card.partition('<details class="rest">')
        said = unescape(head)
        assert fold
        assert one.engineer in unescape(rest)
        assert one.found in said
        assert one.owner in said
        assert all(LABELS[seen.status] in said and seen.sees in said for seen in watchers(one))


def test_adversaries_of_one_status_share_a_line_in_their_order():
    seen = [
        Watcher(name=name, sees=sees, status=status)
        for name, sees, status in (("a", "x", "covered"), ("b", "y", "open"), ("b", "z", "open"), ("a", "w", "open"))
    ]
    assert by_status(seen) == {"covered": "a: x", "open": "b: y, z; a: w"}


def test_what_lies_far_beyond_the_claim_stands_at_the_end_and_what_is_not_known_nowhere(answer):
    drawn = ruler_of(answer(value=0.0, detectable=500.0, ceiling=800.0))
    assert places(drawn) == pytest.approx({"claim": WIDTH / 3, "seen": WIDTH, "most": WIDTH})


def test_a_claim_that_its_epsilon_refuted_is_drawn_on_the_axis_of_epsilon(answer):
    drawn = ruler_of(answer(value=5.0, verdict="REFUTED", detectable=6.0, ceiling=8.0))
    assert drawn.broken
    assert places(drawn)["proved"] > places(drawn)["claim"]
    assert len(drawn.marks) == 2


def test_a_failed_check_that_computes_epsilon_stands_on_the_axis_of_epsilon(answer, run_maker):
    run_maker.row(
        role="check", attack="replay", metric="check_epsilon_of_the_law", defense="mine", verdict="FAILED", seed=None,
        unit="epsilon", value=10.0, claim_id=replace(toy_claim(), epsilon=4.0).claim_id, cell_id="judged", reason="x",
    )  # fmt: skip
    drawn = ruler_of(answer(value=1.0, verdict="REFUTED", cell_id="judged"))
    assert [mark.words for mark in drawn.marks] == ["a failed check gives ε = 10.00", "claimed: ε is at most 4"]
    assert drawn.broken


def test_a_claim_that_its_curve_refuted_is_drawn_on_an_axis_of_runs(answer, run_maker):
    bounds = run_maker.arrays("c", "bounds", fpr_high=np.array(0.1), fnr_high=np.array(0.44))
    claim = replace(toy_claim(), epsilon=4.0, delta=1e-5, curve=GaussianCurve(1.0))
    drawn = ruler_of(answer(claim, value=1.6, verdict="REFUTED", cell_id="c", artifact=bounds))
    # Phi(Phi^-1(0.1) + 1) = 0.38914.
    assert places(drawn) == pytest.approx({"proved": WIDTH * 0.56, "claim": WIDTH * 0.38914}, rel=1e-4)
    assert drawn.sentence == (
        f"Axis of runs with the {claim.unit} that are recognised, at 10 in 100 false alarms: recognised: at least 56 "
        "of 100; the claim allows: at most 39 of 100."
    )


def test_a_bound_below_a_violated_claim_is_not_drawn(answer):
    """It would read as agreement with the claim, which another test refuted."""
    drawn = ruler_of(answer(value=1.89, verdict="REFUTED", ceiling=5.8))
    assert places(drawn).keys() == {"claim"}
    assert "another test" in drawn.sentence


def test_shares_that_refuted_a_claim_are_never_printed_in_the_wrong_order(answer, run_maker):
    """Rounded to whole numbers, 38.95 and 38.914 would read as 38 found where 39 are allowed."""
    bounds = run_maker.arrays("c", "bounds", fpr_high=np.array(0.1), fnr_high=np.array(0.6105))
    claim = replace(toy_claim(), epsilon=4.0, delta=1e-5, curve=GaussianCurve(1.0))
    drawn = ruler_of(answer(claim, value=1.6, verdict="REFUTED", cell_id="c", artifact=bounds))
    assert drawn.sentence.endswith("recognised: at least 3,894 of 10,000; the claim allows: at most 3,892 of 10,000.")


@pytest.mark.parametrize(
    ("verdict", "below", "own"),
    [("NOT_REFUTED", "covered", "covered"), ("UNDERPOWERED", "claimed", "claimed"), ("REFUTED", "in-doubt", "broken")],
)
def test_who_sees_what_follows_the_verdict(answer, verdict, below, own):
    one = answer(replace(toy_claim(), observer=GLOBAL_MODELS, unit=Unit.CLIENT), verdict=verdict, value=9.0)
    assert [(f"{each.name}: {each.sees}", each.status) for each in watchers(one)] == [
        ("public: the final model", below),
        ("other clients: the model of every round", own),
        ("server: sums of updates only", "open"),
        ("server: shuffled updates", "open"),
        ("server: each client's update", "open"),
    ]


def test_an_attack_that_succeeded_outside_the_claim_is_named_at_its_adversary(answer, run_maker):
    for attack, role, right in (("idlg", "attack", 8), ("coin", "null", 1)):
        for seed in range(3):
            run_maker.row(
                role=role, attack=attack, metric="label_accuracy", observer="uploads", defense="mine", value=right / 8,
                seed=seed, n=8, ci_method="95 % Clopper-Pearson over uploads", direction="higher_leaks",
            )  # fmt: skip
    one = answer(replace(toy_claim(), observer=GLOBAL_MODELS))
    assert [each.status for each in watchers(one)] == ["covered", "covered", "open", "open", "attacked"]
    assert band([one], finished=True) == ("!", "mixed")


def test_people_and_use_are_those_of_the_answer(answer, run_maker):
    for defense, value in (("none", 0.9), ("mine", 0.25)):
        run_maker.accuracy_row(defense=defense, value=value, n=450)
    one = answer(replace(toy_claim(), epsilon=4.0, delta=1e-5, curve=GaussianCurve(1.0)))
    drawn = people(one.row, one.found_of_thousand)
    assert (drawn.guessed, drawn.allowed, drawn.found) == (10, 93, None)
    assert [(bar.name, bar.value, bar.length) for bar in use(one)] == [
        ("mine", "0.250", 0.25),
        ("without a defense", "0.900", 0.9),
    ]


def test_without_an_undefended_model_the_accuracy_of_guessing_stands_beside(answer, run_maker):
    run_maker.accuracy_row(defense="mine", value=0.25, n=450)
    run_maker.accuracy_row(defense="mine", value=0.25, n=10, metric="class_accuracy_mean")
    assert [(bar.name, bar.value) for bar in use(answer())] == [("mine", "0.250"), ("guessing", "0.100")]


def test_a_bar_shows_its_interval_as_far_as_the_axis_goes():
    bar = ValueBar.of("mine", "accuracy", 0.5, Pooled(value=0.5, low=-0.1, high=1.7, n=3, over="3 seeds", method="t"))
    assert (bar.length, bar.ends) == (0.5, (0.0, 1.0))
    assert interval_words([bar]) == "Line on a bar: 95 % interval over 3 seeds."
    assert ValueBar.of("mine", "accuracy", 2.0, None, (0.0, 4.0)).length == 0.5
    # An AUC of 0.75 is halfway from guessing to no error.
    assert ValueBar.of("mine", "auc", 0.75, None, (0.5, 1.0)).length == 0.5


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, "fine"),
        ({"detectable": 20.0, "weak": True}, "open"),
        ({"verdict": "UNDERPOWERED"}, "open"),
        ({"verdict": "REFUTED", "value": 9.0}, "broken"),
    ],
)
def test_the_band_has_one_kind_per_outcome_and_only_a_tested_run_is_fine(answer, fields, kind):
    one = answer(**({"detectable": 4.5} | fields))
    assert band([one], finished=True)[1] == kind
    assert f'<div class="band {kind}">' in html(one.folder)
    assert band([], finished=True) == ("–", "none")
    assert band([one], finished=False)[1] in (kind, "open") != "fine"


def test_an_outcome_has_one_sign_and_one_colour_and_an_adversary_the_same_sign():
    css = (Path(first_screen.__file__).parents[1] / "templates" / "report.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"^\.band\.(\w+) \{ background: var\(--(\w+)\); \}$", css, re.MULTILINE))
    assert colours == {"broken": "red", "open": "amber", "mixed": "violet", "none": "muted"}
    assert "background: var(--blue)" in css.partition(".band {")[2].partition("}")[0]
    assert len(set(SIGNS.values())) == len(SIGNS)
    meant = {"covered": "fine", "broken": "broken", "in-doubt": "open", "claimed": "open", "attacked": "mixed"}
    assert all(LABELS[status].startswith(SIGNS[kind]) for status, kind in meant.items())
    assert len({label for label in LABELS.values() if label[0] != SIGNS["none"]}) == len(set(meant.values()))


def test_the_three_pictures_show_one_image_without_and_with_the_defense(answer, run_maker):
    rng = np.random.default_rng(0)
    pixels = rng.random((3, 1, 8, 8))
    for defense, psnr in (("none", [9.0, 30.0, 7.0]), ("mine", [8.0, 9.0, 20.0])):
        artifact = run_maker.arrays(
            defense, "images", originals=pixels, reconstructions=1 - pixels, psnr=np.array(psnr)
        )
        run_maker.row(
            attack="inversion", defense=defense, metric="psnr", scope="record", record=0, value=9.0, artifact=artifact,
            observer="uploads",
        )  # fmt: skip
    page = html(answer().folder)
    assert page.count('<img src="data:image/png;base64,') == 3
    assert "By the server that observes individual updates and who takes part, by inversion on main." in page


@pytest.mark.parametrize(("bare", "shown"), [(0.9, True), (0.1, False)])
def test_without_images_the_values_of_the_best_attack_stand_beside_guessing(answer, run_maker, bare, shown):
    values = {("none", "tried"): bare, ("mine", "tried"): 0.3, ("none", "guess"): 0.2}
    for (defense, attack), value in values.items():
        for seed in (0, 1):
            run_maker.row(
                role="null" if attack == "guess" else "attack", attack=attack, metric="label_accuracy", value=value,
                observer="uploads", defense=defense, direction="higher_leaks", seed=seed,
            )  # fmt: skip
    answer()
    found = reached(run_maker.write(), "mine")
    if not shown:
        assert found is None
        return
    assert [round(bar.length, 6) for bar in found[1]] == [0.9, 0.3, 0.2]
    assert found[1][2].ends is None
    assert "by tried on main" in found[0]
