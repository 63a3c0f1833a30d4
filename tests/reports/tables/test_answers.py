"""Answers in plain words: known consequences for people, and every kind of verdict."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.claim import Unit
from fedassay.audit.curve import GaussianCurve
from fedassay.audit.observer import GLOBAL_MODELS, PASSIVE_PARTY, UPLOADS
from fedassay.audit.supplied.scores import audit_scores
from fedassay.reports.formats.page import html
from fedassay.reports.formats.terminal import tables
from fedassay.reports.pack.statement import residual_risks
from fedassay.reports.reading.claims import claim_rows
from fedassay.reports.tables import first_screen
from fedassay.reports.tables.answers import (
    _TOO_FEW,
    Recognised,
    _percent,
    allowed_by,
    allowed_of_thousand,
    allowed_words,
    answers,
    controls_sentence,
    headline,
)
from fedassay.reports.tables.covered import better_than_guessing, did_words
from fedassay.reports.tables.pooled_rows import pooled_attacks
from fedassay.reports.tables.several_runs import claims_of_runs, scoreboards
from toy_claim import toy_claim

GATE = {"verdict_line": "a line", "exit_code": 0}


@pytest.mark.parametrize(
    ("epsilon", "delta", "curve", "found"),
    [
        # e^4 / 100 = 0.54598, and the other side of the region, 1 - 0.99 / e^4 = 0.98187, is larger.
        (4.0, 0.0, None, 546),
        (4.0, 1e-3, None, 547),
        # e^6 / 100 > 1: 1 - 0.99 / e^6 = 0.99755.
        (6.0, 0.0, None, 998),
        # Phi(Phi^-1(0.01) + 1) = Phi(-1.32635) = 0.09236.
        (4.0, 1e-5, GaussianCurve(1.0), 93),
        # A curve that allows more than epsilon and delta do not.
        (0.01, 0.0, GaussianCurve(0.001), 11),
    ],
)
def test_what_a_claim_allows_of_a_thousand_people(epsilon, delta, curve, found):
    claim = replace(toy_claim(), epsilon=epsilon, delta=delta, curve=None)
    stated = claim if curve is None else replace(claim, curve=curve)
    assert allowed_of_thousand(stated) == found
    # Each number names what it follows from, and what epsilon and delta allow where that is more.
    alone = {93: "ε and δ alone allow 546"}.get(found, "by ε and δ alone")
    assert alone in allowed_by(stated)
    # Another mechanism or another rate of sampling with this epsilon allows another number.
    sampled = [allowed_by(replace(stated, parameters={"rate": rate})) for rate in (0.5, 1)]
    assert (stated.mechanism in sampled[0]) == (sampled[0] != sampled[1]) == (found == 93)
    drawn = first_screen.people(first_screen.Tested(claim=stated, verdict="NOT_REFUTED"))
    assert allowed_by(stated) in drawn.words[-1][1]
    assert allowed_by(stated) in allowed_words(stated)


@pytest.fixture
def one_claim(run_maker):
    """(fields of the verdict, fields of the claim) -> the run of one claim."""

    def build(claim=None, gate=GATE, **fields):
        signed = run_maker.sign("mine", claim or replace(toy_claim(), epsilon=4.0))
        run_maker.verdict_row(signed, **({"defense": "mine", "attack": "canary", "verdict": "NOT_REFUTED"} | fields))
        run_maker.gate = gate
        run_maker.manifest["planned_cells"] = len({line["cell_id"] for line in run_maker.lines})
        return run_maker.write()

    return build


def test_no_violation_is_stated_with_what_the_test_would_have_found(one_claim):
    folder = one_claim(
        replace(toy_claim(), epsilon=4.0), detectable=7.0, ceiling=4.8, not_looked_at=["text: none sent"]
    )
    (one,) = answers(folder)
    assert (one.found, one.weak) == ("No violation found", "")
    assert "the true ε is 7.00 (claimed: 4), this test finds it in 9 of 10 cases; between ε 4 and 7.00" in one.power
    assert one.unseen == "Not looked at (1): text. The first was not looked at for this reason: none sent."
    assert "(guessing: 10; by ε and δ alone)" in one.people
    assert headline(folder) == "No violation found in 1 privacy claim"


def test_an_accepted_test_of_small_power_is_called_weak_and_has_its_own_advice(one_claim):
    folder = one_claim(replace(toy_claim(), epsilon=4.0), detectable=20.1, weak=True)
    (one,) = answers(folder)
    assert one.weak == "it may miss a true ε below 20.10, which the user accepted"
    assert one.owner.startswith("Do not report this claim as tested")
    # A test counts as weak above twice the claimed epsilon.
    assert "is at most 8." in one.engineer
    assert "weak test" in html(folder)
    assert (headline(folder), one.found) == ("Not decided: the test is weak", "Not decided: the test is weak")


@pytest.mark.parametrize(
    ("verdict", "fields", "found", "owner", "engineer"),
    [
        ("REFUTED", {"value": 5.123}, "Violated", "Do not rely on this claim", "Mend the defense"),
        ("UNDERPOWERED", {}, "Not decided", "Do not rely on this test", "Make more runs"),
        (
            "OUT_OF_SCOPE",
            {"value": None},
            "Not decided: out of scope of every test",
            "Do not report",
            "No audit method",
        ),
        (
            "OUT_OF_SCOPE",
            {"value": None, "reason": "the defense cannot be prepared for the audit's federation (2 clients): x"},
            "Not decided: out of scope of every test",
            "Do not report",
            "The defense does not state this claim for the audit's federation",
        ),
        (
            "",
            {"value": None, "status": "failed", "reason": "boom"},
            "Not decided: the test failed",
            "Do not report",
            "Mend the error",
        ),
    ],
)
def test_every_verdict_has_its_words_and_a_next_step(one_claim, verdict, fields, found, owner, engineer):
    folder = one_claim(replace(toy_claim(), epsilon=4.0), verdict=verdict, **fields)
    (one,) = answers(folder)
    assert one.found == found
    assert (one.owner.startswith(owner), one.engineer.startswith(engineer)) == (True, True)
    if verdict == "REFUTED":
        assert one.power == "The true ε is at least 5.12, and the claimed one is 4."
        assert one.people.endswith("The claim does not hold, so do not count on this limit.")
        assert headline(folder) == "The privacy claim is violated: mine"
    elif fields.get("status") == "failed":
        assert headline(folder) == "Not decided: the run is incomplete, so 1 privacy claim cannot be judged"
    else:
        assert headline(folder) == "The privacy claim is not decided"


def test_a_failed_check_takes_away_the_word_that_nothing_was_found(one_claim, run_maker):
    signed = toy_claim()
    run_maker.row(
        role="check", attack="replay", metric="check_sensitivity", defense="mine", verdict="FAILED", seed=None,
        claim_id=signed.claim_id, cell_id="judged", reason="sensitivity: moves 2; in `law`: x (a)",
    )  # fmt: skip
    (one,) = answers(folder := one_claim(signed, cell_id="judged", detectable=signed.epsilon))
    assert one.found == "Not decided: 1 implementation check failed"
    assert "implementation check failed" in one.engineer
    assert headline(folder) == "The privacy claim is not decided"


def test_what_a_claim_does_not_cover_stands_beside_what_attacks_showed_there(one_claim, run_maker):
    for seed in (0, 1):
        run_maker.row(
            role="attack", attack="inverting_gradients", metric="psnr", observer="uploads", defense="mine", value=31.0,
            direction="higher_leaks", seed=seed,
        )  # fmt: skip
    folder = one_claim(replace(toy_claim(), observer=GLOBAL_MODELS, unit=Unit.CLIENT))
    (one,) = answers(folder)
    assert "the server that observes individual updates and who takes part" in one.uncovered
    assert "inverting_gradients in federation main (PSNR 31.0 dB; not compared with guessing" in one.outside


def test_an_attack_that_seems_to_succeed_among_many_is_compared_with_guessing_jointly(run_maker):
    """Three of nine federations whose AUC was noise were named on the band of a page."""
    for number in range(9):
        run_maker.sign(f"mine-{number}", replace(toy_claim(), observer=GLOBAL_MODELS, epsilon=1.0 + number))
        for seed, value in enumerate([0.535, 0.541, 0.55]):
            run_maker.row(
                role="attack", attack="loss", metric="auc", observer="uploads", defense=f"mine-{number}", value=value,
                direction="higher_leaks", seed=seed,
            )  # fmt: skip
    run_maker.gate = GATE
    run_maker.manifest["planned_cells"] = len({line["cell_id"] for line in run_maker.lines})
    folder = run_maker.write()
    assert "outside the claims" not in headline(folder)
    # Alone, the interval of 3 seeds is 0.523 to 0.561.
    assert "95 % interval over 3 seeds, joint for 9 attacks" in answers(folder)[0].uncovered


def test_controls_say_whether_the_audits_find_violations(quick_folder):
    assert re.search(r"\(controls\)\. \d of 2 ", controls_sentence(claim_rows(quick_folder)))
    assert controls_sentence([]) == ""


def test_an_epsilon_at_another_delta_is_not_printed_beside_the_claimed_one(one_claim, run_maker):
    claim = replace(toy_claim(), epsilon=4.0)
    run_maker.row(
        role="check", attack="replay", metric="check_all_that_is_received", defense="mine", verdict="FAILED", seed=None,
        unit="epsilon at delta 0.334", value=0.13, claim_id=claim.claim_id, cell_id="judged", reason="x: epsilon 0.13",
    )  # fmt: skip
    (one,) = answers(one_claim(verdict="REFUTED", cell_id="judged"))
    assert one.evidence.startswith("Failed check: runs with the unit can be distinguished from runs without it")


@pytest.mark.parametrize("by_checks", [False, True])
def test_a_planted_fault_that_only_checks_found_is_not_one_that_was_missed(one_claim, run_maker, by_checks):
    broken = replace(toy_claim(), epsilon=4.0, mechanism="half")
    run_maker.sign("half", broken, control=True)
    run_maker.verdict_row(broken, defense="half", control=True, verdict="UNDERPOWERED", cell_id="half", attack="canary")
    if by_checks:
        run_maker.row(
            role="check", attack="replay", metric="check_noise_scale", defense="half", control=True, verdict="FAILED",
            seed=None, claim_id=broken.claim_id, cell_id="half", reason="noise scale: half",
        )  # fmt: skip
    run_maker.manifest["suite"]["audit"] = {"design": "independent", "replicas": 60, "clients": 2}
    folder = one_claim(detectable=4.5, ceiling=2.0, gate={"verdict_line": "INCOMPLETE: x", "exit_code": 12})
    (one,) = answers(folder)
    said = (headline(folder), one.owner, controls_sentence(claim_rows(folder)))
    assert one.found == "Not decided: the runs missed a planted fault"
    assert "more runs (audit.replicas, now 60), until the audits refute the planted faults (half)" in one.engineer
    # What the test finds in 9 of 10 cases is not stated of tests that missed a fault altogether.
    assert (one.missed, "9 of 10" in one.power) == (not by_checks, by_checks)
    if by_checks:
        assert said == (
            "Not decided: too few runs to find 1 planted fault",
            "Do not rely on this run: its runs missed a fault that was planted to test them; only checks found it.",
            "1 defense of this run is broken on purpose (controls). 0 of 1 were found by runs, 1 by checks of the code "
            "alone: the runs are too few to find such errors.",
        )
    else:
        assert "missed 1 planted fault" in said[0]
        assert "missed a fault" in said[1]
        assert "miss violations" in said[2]


def showed(run_maker, folder_of, metric, values, null=()):
    """What the answer says of an attack with these values over seeds, and of a null attack with others."""
    for role, attack, several in (("attack", "tried", values), ("null", "guess", null)):
        for seed, value in enumerate(several):
            run_maker.row(
                role=role, attack=attack, metric=metric, observer="uploads", defense="mine", value=value,
                direction="higher_leaks", seed=seed,
            )  # fmt: skip
    (one,) = answers(folder_of(replace(toy_claim(), observer=GLOBAL_MODELS)))
    return f"{one.outside} {one.uncovered}"


@pytest.mark.parametrize(
    ("metric", "values", "null", "words"),
    [
        (
            "auc",
            (0.90, 0.92, 0.91),
            (),
            "recognised data that were trained on (right in 91.0 % of pairs; guessing: 50.0 %)",
        ),
        (
            "auc",
            (0.40, 0.52, 0.65),
            (),
            "could not be distinguished from guessing: tried in federation main (right in 52.3 % of pairs, 95 % "
            "interval over 3 seeds: 21.3 % to 83.4 %; guessing: 50.0 %)",
        ),
        (
            "auc",
            (0.9,),
            (),
            "tried in federation main (right in 90.0 % of pairs; guessing: 50.0 %; not compared with guessing",
        ),
        (
            "auc",
            (0.9, 0.9),
            (),
            "guessing: 50.0 %; not compared with guessing: all seeds have the same value, so there is no interval)",
        ),
        ("psnr", (30.0, 31.0, 32.0), (10.0, 11.0, 12.0), "rebuilt images (PSNR 31.0 dB; guessing: 11.0)"),
        ("psnr", (9.0, 11.0, 14.0), (10.0, 11.0, 12.0), "from guessing: tried in federation main (PSNR 11.3 dB"),
        ("psnr", (30.0, 31.0, 32.0), (), "PSNR 31.0 dB; not compared with guessing: the run has no null attack"),
        ("label_over_chance", (0.5, 0.6, 0.7), (), "tried in federation main named labels"),
    ],
)
def test_an_attack_that_reaches_no_more_than_guessing_is_no_success(one_claim, run_maker, metric, values, null, words):
    assert words in showed(run_maker, one_claim, metric, values, null)


def test_attacks_on_another_unit_than_the_claims_are_named_as_not_covered(one_claim, run_maker, add_membership):
    add_membership(run_maker, "mine")
    claim = replace(toy_claim(), unit=Unit.REPORT, observer=UPLOADS, adjacency="replace_one")
    (one,) = answers(one_claim(claim))
    assert (
        "relation or number of rounds than the claim's: loss in federation main (right in 50.0 % of pairs"
        in one.outside
    )
    assert one.reached == ""


def test_attacks_on_a_federation_without_the_claim_are_named_although_their_adversary_is_covered(one_claim, run_maker):
    run_maker.row(attack="tried", federation="other", observer="uploads", defense="mine", value=0.9)
    (one,) = answers(one_claim(replace(toy_claim(), observer=UPLOADS)))
    assert "On other, for which no claim is stated: tried in federation other (right in 90.0 % of pairs" in one.outside


def test_bounds_in_per_cent_are_rounded_to_the_side_on_which_they_hold():
    assert (_percent(0.440418, math.ceil), _percent(0.622, math.floor), _percent(0.6229, math.floor)) == (
        "44.1 %",
        "62.2 %",
        "62.2 %",
    )


def test_what_guessing_rebuilds_at_most_is_rounded_up(one_claim, run_maker):
    # None of 24 null images succeeds: the upper bound 1 - 0.05^(1/24) = 0.11735 is above 11.7 %.
    images(run_maker, [30.0 + n for n in range(24)], [10.0 + 0.1 * n for n in range(24)])
    (one,) = answers(one_claim(replace(toy_claim(), observer=GLOBAL_MODELS)))
    assert "guessing: at most 11.8 % of images" in one.outside


def test_a_violation_is_stated_as_what_the_test_found_against_what_the_claim_allows(one_claim, run_maker):
    claim = replace(toy_claim(), epsilon=4.0, curve=GaussianCurve(1.0))
    bounds = run_maker.arrays("c", "scores", fpr_high=0.1, fnr_high=0.44)
    (one,) = answers(one_claim(claim, verdict="REFUTED", value=1.6, cell_id="c", artifact=bounds))
    # Phi(Phi^-1(0.1) + 1) = Phi(-0.28155) = 0.38914, rounded up; 1 - 0.44 = 0.56.
    assert "at least 56 of 100 of those with the client, with at most 10 in 100 false alarms" in one.power
    assert "the claim allows at most 39 of 100" in one.power


def test_runs_without_the_unit_are_recognised_where_that_raises_fewer_false_alarms():
    # GaussianCurve(1) is symmetric: the error rates may change places, and 0.38914 stays.
    claim = replace(toy_claim(), epsilon=4.0, curve=GaussianCurve(1.0))
    one = Recognised.beyond(claim, 0.44, 0.1)
    assert (one.arm, one.found, one.alarms) == ("without", 0.56, 0.1)
    assert one.allowed == pytest.approx(0.38914, abs=1e-5)
    assert Recognised.beyond(claim, 0.62, 0.1) is None
    assert Recognised.beyond(claim, 0.605, 0.1).words == ("395 of 1,000", "390 of 1,000", "100 in 1,000")


def test_a_run_whose_audits_miss_a_planted_fault_decides_nothing(one_claim, run_maker):
    broken = run_maker.sign("control_broken", toy_claim(epsilon=3.0), control=True)
    run_maker.verdict_row(broken, defense="control_broken", attack="canary", verdict="NOT_REFUTED", control=True)
    folder = one_claim(replace(toy_claim(), epsilon=4.0), detectable=4.5)
    one = next(one for one in answers(folder) if one.row.defense == "mine")
    assert headline(folder) == "Not decided: the audits missed 1 planted fault"
    assert ("missed a fault" in one.owner, "control_broken" in one.engineer) == (True, True)
    page = html(folder)
    assert '<div class="band open">' in page
    assert one.found == "Not decided: the runs missed a planted fault"
    assert any("not decided: the runs missed a planted fault" in risk for risk in residual_risks(folder, [one]))
    assert "? not decided" in page


def test_a_refuted_claim_names_the_checks_that_failed(one_claim, run_maker):
    run_maker.row(
        role="check", attack="replay", metric="check_sensitivity", defense="mine", verdict="FAILED", seed=None,
        claim_id=toy_claim().claim_id, cell_id="judged", reason="sensitivity: moves 2; in `law`: x (a)",
    )  # fmt: skip
    (one,) = answers(one_claim(toy_claim(), cell_id="judged", verdict="REFUTED", value=9.0))
    assert one.evidence == "Failed check: how far one privacy unit changes the result: moves 2."
    assert one.engineer.startswith("Mend what the failed check found")


def labels(run_maker, attack, role, right, units=8):
    """Rows of one seed each: so many of ``units`` labels right."""
    for seed, count in enumerate(right):
        value, method = count / units, "95 % Clopper-Pearson over uploads"
        run_maker.row(
            role=role, attack=attack, metric="label_accuracy", observer="uploads", defense="mine", value=value,
            seed=seed, n=units, ci_method=method, direction="higher_leaks", unit="share of uploads, chance 0.1",
        )  # fmt: skip


def test_the_next_step_names_attacks_outside_the_claim_and_a_model_of_no_use_first(one_claim, run_maker):
    (plain,) = answers(one_claim(replace(toy_claim(), observer=GLOBAL_MODELS, epsilon=4.0), detectable=7.0))
    assert plain.engineer.startswith("Keep this run as a baseline")
    labels(run_maker, "idlg", "attack", (8, 8, 8))
    labels(run_maker, "coin", "null", (0, 1, 1))
    for defense, value in (("none", 0.9), ("mine", 0.101)):
        run_maker.accuracy_row(defense=defense, value=value, n=450)
        run_maker.accuracy_row(defense=defense, value=value, n=10, metric="class_accuracy_mean")
    (one,) = answers(run_maker.write())
    assert one.outside
    assert one.owner.startswith("Decide whether the attacks outside this claim matter")
    assert re.match(r"The model is of no use: change the settings", one.engineer)


def test_an_attack_that_finds_all_labels_is_compared_with_the_chance_that_its_rows_state_and_not_with_one_draw(
    one_claim, run_maker
):
    labels(run_maker, "idlg", "attack", (8, 8, 8))
    labels(run_maker, "coin", "null", (0, 1, 1))
    folder = one_claim(replace(toy_claim(), observer=GLOBAL_MODELS), detectable=20.0, weak=True)
    (one,) = answers(folder)
    assert "idlg in federation main named labels (24 of 24 uploads; guessing: 10.0 %)" in one.outside
    assert headline(folder).endswith(
        "the test is weak; outside the claims, attacks named labels (mine; in the federation “main”)"
    )
    assert "Outside the claims, attacks named labels" in html(folder)


def test_few_equal_counts_prove_nothing_although_one_draw_of_guesses_found_none(one_claim, run_maker):
    # 1 of 8 in all seeds: at least 2.7 % of labels; guessing finds 10 %.
    labels(run_maker, "idlg", "attack", (1, 1, 1))
    labels(run_maker, "coin", "null", (0, 0, 0))
    folder = one_claim(replace(toy_claim(), observer=GLOBAL_MODELS))
    (one,) = answers(folder)
    assert one.outside == ""
    assert (
        "idlg in federation main (3 of 24 uploads, 95 % interval over 24 uploads of all seeds: 2.7 % to 32.4 %"
        in one.uncovered
    )
    assert "outside the claims" not in headline(folder)


def images(run_maker, psnr, null):
    for role, attack, values in (("attack", "inversion", psnr), ("null", "mean_image", null)):
        for record, value in enumerate(values):
            run_maker.row(
                role=role, attack=attack, metric="psnr", observer="uploads", defense="mine", value=value,
                scope="record", record=record, direction="higher_leaks",
            )  # fmt: skip


@pytest.mark.parametrize(
    ("psnr", "words", "success"),
    [
        ([30.0 + n for n in range(12)], "rebuilt images (12 of 12 images to a PSNR of 20 dB or more", True),
        # Closer than the guess, but no image can be recognised.
        ([14.0 + 0.1 * n for n in range(12)], "did better than guessing (0 of 12 images", False),
        ([9.0 + 0.1 * n for n in range(12)], "from guessing: inversion in federation main (0 of 12 images", False),
    ],
)
def test_rebuilt_images_are_counted_and_none_is_no_success(one_claim, run_maker, psnr, words, success):
    images(run_maker, psnr, [10.0 + 0.1 * n for n in range(12)])
    folder = one_claim(replace(toy_claim(), observer=GLOBAL_MODELS))
    (one,) = answers(folder)
    assert words in f"{one.outside} {one.uncovered}"
    assert (
        "outside the claims, attacks rebuilt images (mine; in the federation “main”)" in headline(folder)
    ) == success
    ((*_, shown),) = scoreboards(claims_of_runs([folder]))[0].rows
    assert shown == ("inversion: 12 of 12 images to a PSNR of 20 dB or more" if success else "–")


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            "even without any error, 10 + 12 trials would not refute the claim; "
            "about 1,400 counted runs per arm would be enough "
            "to find a true eps of 8",
            "after 12 runs with the unit and 10 without it, even an attack that never errs would not show a violation; "
            "about 1,400 of each would be enough to find a true eps of 8.",
        ),
        ("even without any error, 5 + 5 trials would not refute the claim; evidence: x", "would not show a violation."),
        ("the canary did not arrive; evidence: x", "nothing for or against the claim: the canary did not arrive."),
        ("", "nothing for or against the claim."),
    ],
)
def test_an_audit_that_cannot_decide_says_why(one_claim, reason, words):
    (one,) = answers(one_claim(verdict="UNDERPOWERED", reason=reason))
    assert one.power.endswith(words)


@pytest.mark.parametrize(
    ("counted", "setting"),
    # Of 1,750 runs, a fifth chooses the threshold, and 1,400 count.
    [(60, "audit.replicas=1400 (now 60)"), (48, "audit.replicas=1750 (now 60)"), (0, "audit.replicas, now 60")],
)
def test_an_audit_with_too_few_runs_states_the_setting_and_the_number_that_would_do(
    one_claim, run_maker, counted, setting
):
    run_maker.manifest["suite"]["audit"] = {"design": "independent", "replicas": 60}
    reason = "weak test: x; about 1,400 counted runs per arm would be enough" if counted else "weak test: x"
    (one,) = answers(one_claim(verdict="UNDERPOWERED", n=counted, reason=reason))
    assert setting in one.engineer


@pytest.mark.parametrize(
    ("part", "variant", "who"),
    [
        (None, "", "by fedassay's code dp_sgd for the settings of this run"),
        ("mine.py:Mine", "", "by mine.py:Mine, code that is no part of fedassay"),
        (None, "as_published", "by a paper, as published"),
    ],
)
def test_a_card_says_who_states_its_claim_and_that_a_simulation_was_tested(run_maker, part, variant, who):
    claim = run_maker.sign("dp_sgd", toy_claim(), variant=variant)
    run_maker.verdict_row(claim, defense="dp_sgd", attack="canary", verdict="NOT_REFUTED", variant=variant)
    run_maker.manifest["suite"]["defenses"] = {"dp_sgd": {"part": part, "epsilon": 4.0}}
    (one,) = answers(folder := run_maker.write())
    assert who in one.stated_by
    assert "tested in a simulation, not in a deployed system" in one.stated_by
    assert one.stated_by.replace("'", "&#39;") in html(folder)


def test_the_reason_of_too_few_runs_is_that_of_the_audit():
    rng = np.random.default_rng(0)
    member, nonmember = rng.normal(size=3), rng.normal(size=2)
    finding = audit_scores(
        member, nonmember, toy_claim(mu=0.5), design="independent", higher_is_member=True, threshold=0.0
    )
    found = _TOO_FEW.fullmatch(finding.reason.partition(";")[0])
    assert (found["absent"], found["present"]) == ("2", "3")


@pytest.mark.parametrize(("ends", "better"), [((0.3, 0.6), True), ((0.7, 1.2), False), ((1.3, 1.5), False)])
def test_an_error_of_columns_below_that_of_the_best_null_attack_is_better_than_guessing(run_maker, ends, better):
    shared = {"metric": "column_error", "observer": "active_party", "direction": "lower_leaks"}
    for attack, value, low, high in (("imputed", 0.9, 0.85, 0.95), ("mean", 1.0, 0.99, 1.01)):
        run_maker.row(role="null", attack=attack, defense="mine", value=value, ci_low=low, ci_high=high, **shared)
    run_maker.row(
        role="attack",
        attack="inversion",
        defense="mine",
        value=sum(ends) / 2,
        ci_low=ends[0],
        ci_high=ends[1],
        **shared,
    )
    run_maker.sign("mine", replace(toy_claim(), observer=PASSIVE_PARTY, unit=Unit.LABEL))
    folder = run_maker.write()
    (one,) = [row for row in pooled_attacks(folder) if row.attack == "inversion"]
    assert better_than_guessing(folder, one) is better
    assert ("reconstructed columns" in did_words(folder, one)) is better
    # The terminal shows one line for each attack.
    assert any("inversion" in line for line in tables(folder))
