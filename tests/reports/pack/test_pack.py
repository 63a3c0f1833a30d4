"""The evidence pack: every word about a run comes from its records, claims and manifest, and empty places say so."""

import hashlib
import re
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest
import yaml
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.curve import ProfileCurve
from fedassay.audit.observer import UPLOADS
from fedassay.reports.pack.crosswalk import EDPB, ISO, NIST, bound_phrase, crosswalk
from fedassay.reports.pack.document import EMPTY, Heading, Points, Signature, markdown_of, pdf_of
from fedassay.reports.pack.statement import (
    LIMITS,
    claims_yaml,
    maximum_risk,
    residual_risks,
    statement,
    words,
    write_pack,
)
from fedassay.reports.reading.claims import claim_rows, left_unprotected, one_row_per_claim
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.tables import numerals
from fedassay.reports.tables.answers import allowed_by, allowed_of_thousand, answers
from fedassay.reports.tables.pooled_rows import omission_rows
from fedassay.reports.tables.table import Table

FILES = {
    "evidence.pdf",
    "statement.md",
    "crosswalk.md",
    "claims.yaml",
    "report.html",
    "records.csv",
    "hashes.txt",
    "run/manifest.json",
    "run/results.jsonl",
    "run/claims.json",
    "run/gate.json",
}
CLAUSES = ["6.2.2", "6.2.3", "7.3.2", "7.3.3", "7.3.4", "8.2.2", "8.2.3", "9.2.2", "9.2.3 to 9.2.5", "9.3.2", "9.4"]


def tables_of(blocks):
    """Each table by the heading above it."""
    found, title = {}, ""
    for block in blocks:
        if isinstance(block, Heading):
            title = block.text
        elif isinstance(block, Table):
            found[title] = block
    return found


def points(folder, framework):
    """(place, point) -> what the run holds."""
    return {row[:2]: row[2] for row in tables_of(crosswalk(folder))[framework].rows}


@pytest.mark.simulations
def test_a_pack_holds_its_files_with_their_hashes_and_is_the_same_twice(quick_folder, tmp_path):
    first, again = tmp_path / "pack", tmp_path / "again"
    written = write_pack(quick_folder, first)
    write_pack(quick_folder, again)
    assert written[0].name == "evidence.pdf"
    assert {str(path.relative_to(first)) for path in written} == FILES
    lines = dict(line.split("  ")[::-1] for line in (first / "hashes.txt").read_text(encoding="utf-8").splitlines())
    assert lines.keys() == FILES - {"hashes.txt"}
    for name, digest in lines.items():
        assert hashlib.sha256((first / name).read_bytes()).hexdigest() == digest
        assert (again / name).read_bytes() == (first / name).read_bytes()
    for name in ("manifest.json", "results.jsonl", "claims.json", "gate.json"):
        assert (first / "run" / name).read_bytes() == (quick_folder.path / name).read_bytes()


def test_the_statement_never_judges(quick_folder):
    text = markdown_of([*statement(quick_folder), *crosswalk(quick_folder)])
    assert LIMITS in text
    judged = re.compile(r"\b(anonym|compl(y|ies|iant)|fulfil|is private|certif)", re.IGNORECASE)
    allowed = (LIMITS, "says where to look, and not that the point is fulfilled")
    for sentence in allowed:
        text = text.replace(sentence, "")
    assert not judged.search(text)


def test_each_name_and_term_of_a_text_is_explained_and_no_other(run_maker):
    known = {"part": "likelihood_ratio", "rest": "known"}
    attacks = {"idlg": {"part": None}, "lr": known, "loss": {"part": None}}
    run_maker.manifest["suite"] |= {"attacks": attacks, "federations": {"main": {}, "other": {}}}
    _, explained = words(run_maker.write(), ["idlg and lr in federation main", "a DeLong interval, remaining losses"])
    starts = (
        "main: a federation",
        "idlg: attack that infers a sample's label",
        "lr: attack that",
        "A DeLong interval is",
    )
    assert len(explained.items) == len(starts)
    assert all(text.startswith(start) for text, start in zip(explained.items, starts, strict=True))
    assert "It knows all data but the one unit." in explained.items[2]


def test_a_sentence_for_a_privacy_notice_stands_only_where_no_violation_was_found(run_maker, make_claim):
    claim = run_maker.sign("fine", make_claim(epsilon=4.0, trust="the server"))
    run_maker.verdict_row(claim, defense="fine", attack="canary", verdict="NOT_REFUTED", not_looked_at=["text: none"])
    claim = run_maker.sign("broken", make_claim(epsilon=3.0))
    run_maker.verdict_row(claim, defense="broken", attack="canary", verdict="REFUTED", value=9.0)
    run_maker.accuracy_row(defense="fine", value=0.75, n=100)
    run_maker.accuracy_row(defense="fine", value=0.125, n=10, metric="class_accuracy_worst")
    run_maker.gate = {"verdict_line": "a line", "exit_code": 10}
    run_maker.manifest["planned_cells"] = len({line["cell_id"] for line in run_maker.lines})
    folder = run_maker.write()
    said = {one.defense: one.notice for one in answers(folder)}
    assert "designed to limit" not in said["broken"]
    for part in (
        f"any one {claim.unit}",
        claim.observer.phrase,
        "epsilon 4 at delta",
        "this is no proof",
        "simulation",
    ):
        assert part in said["fine"]
    for beside in ("trusted: the server", "several clients at once", "not looked at: text", "fedassay audit mine.py",
        "accuracy 0.750", "worst class 0.125", "tuning",
    ):  # fmt: skip
        assert beside in said["fine"]
    assert said["fine"] in statement(folder)


def test_the_claims_in_a_pack_are_those_of_no_control_without_the_points_of_curves(run_maker, make_claim):
    curve = ProfileCurve(tuple(np.linspace(0, 8, 107)), (0.1,) * 107, (0.1,) * 107)
    for name in ("fine", "control"):
        run_maker.sign(name, replace(make_claim(), curve=curve), control=name == "control")
    folder = run_maker.write()
    text = claims_yaml(folder)
    (entry,) = yaml.safe_load(text)["claims"]
    assert entry["defense"] == "fine"
    assert entry["privacy_loss"]["curve"]["family"] == "profile"
    assert len(text.splitlines()) < 100
    assert folder.claims[0].claim.curve == curve


def test_the_maximum_risk_is_that_of_claims_and_audits(quick_folder):
    rows = [row for row in one_row_per_claim(claim_rows(quick_folder)) if row.stated and not row.control]
    assert [row.defense for row in rows] == ["dp_fedavg", "dp_sgd", "ldp_gaussian"]
    for row, cells in zip(rows, maximum_risk(rows).rows, strict=True):
        assert cells[:2] == (row.defense, row.claim_text)
        assert cells[2] == f"{allowed_of_thousand(row.stated.claim)} ({allowed_by(row.stated.claim)})"
        assert float(cells[3].removeprefix("≥ ")) <= row.epsilon_low
        assert cells[4] == numerals.epsilon(row.detectable)
        assert cells[5] == row.verdict.replace("_", " ")


def test_each_risk_that_is_left_is_named(quick_folder, run_maker, make_claim):
    rows = [row for row in one_row_per_claim(claim_rows(quick_folder)) if row.stated and not row.control]
    (said,) = [block.items for block in statement(quick_folder) if isinstance(block, Points)][:1]
    for row in rows:
        left = "; ".join(left_unprotected(row.stated.claim, row.rounds_run))
        assert f"{row.defense}: the claim does not protect {left}." in said
    assert "ldp_gaussian: not decided." in said
    omitted = len(omission_rows(quick_folder))
    assert f"{omitted} omissions: attacks or measurements without a result (see the report)." in said
    claim = run_maker.sign("dp", make_claim())
    run_maker.verdict_row(claim, defense="dp", attack="canary", verdict="REFUTED", value=9.0)
    run_maker.gate = {"verdict_line": "FAIL", "exit_code": 10}
    folder = run_maker.write()
    assert residual_risks(folder, answers(folder))[0] == "dp: violated."
    assert "dp: violated." in next(block.items for block in statement(folder) if isinstance(block, Points))


def test_the_crosswalk_has_the_named_clauses_and_no_empty_cell(quick_folder):
    blocks = crosswalk(quick_folder)
    tables = tables_of(blocks)
    assert tuple(tables) == (NIST, ISO, EDPB)
    assert [row[0] for row in tables[ISO].rows] == CLAUSES
    for table in tables.values():
        for _, _, held, where in table.rows:
            assert held
            assert where in ((numerals.NOTHING,) if held.startswith(EMPTY) else {*FILES, numerals.NOTHING})


def test_what_the_crosswalk_says_of_a_run_is_in_its_records(quick_folder):
    nist, iso, edpb = (points(quick_folder, framework) for framework in (NIST, ISO, EDPB))
    parameters = nist["privacy parameters", "ε and δ, and what they allow"]
    rows = [row for row in one_row_per_claim(claim_rows(quick_folder)) if row.stated and not row.control]
    verdicts = ("NOT REFUTED", "NOT REFUTED", "UNDERPOWERED")
    assert parameters == "; ".join(
        f"{row.defense}: {row.claim_text} (verdict: {verdict})" for row, verdict in zip(rows, verdicts, strict=True)
    )
    assert iso["7.3.4", "privacy models of the data"] == parameters
    assert "dp_sgd: one sample (add/remove)" in nist[next(key for key in nist if key[0] == "unit of privacy")]
    assert edpb["design", "choices in training meant to protect people (claimed, not proved)"] == parameters
    composed = nist[next(key for key in nist if key[0] == "composition")]
    assert composed == "dp_fedavg, dp_sgd, ldp_gaussian: claimed over 20 rounds"
    for row in rows:
        low, verdict = numerals.lower_bound(row.epsilon_low), row.verdict.replace("_", " ")
        assert f"{row.claim_text}: {verdict}, measured ε ≥ {low}" in iso["8.2.2", "quantified identifiability"]
    tested = iso["8.2.3", "adversarial testing"]
    members = edpb["testing", "membership inference"]
    assert tested.startswith(f"membership: {members}; labels: llg: ")
    for attack in ("loss", "alignment"):
        assert re.search(rf"{attack}: 0\.\d+ \[0\.\d+, 0\.\d+\] under dp_fedavg", members)
    assert "under ldp_gaussian (AUC)" in members
    labels = edpb["testing", "inference of attributes"]
    assert labels.startswith("labels only: llg: 0.")
    # The attack on the labels was skipped under dp_fedavg.
    assert "dp_fedavg" not in labels
    assert labels.endswith(" under ldp_gaussian (label accuracy)")
    images = (
        "inverting_gradients: 0 of 24 under dp_fedavg (OUT OF SCOPE), 0 of 24 under dp_sgd (OUT OF SCOPE), "
        "0 of 24 under ldp_gaussian (images"
    )
    assert edpb["testing", "model inversion, reconstruction"].startswith(images)
    assert f"reconstruction: {images}" in tested
    nulls = edpb["testing (our own point)", "what an attacker achieves without the model"]
    assert set(nulls.partition(": ")[2].split(", ")) == {"mean_image", "coin"}
    # Controls break their claims on purpose: nothing about them is evidence.
    assert "no_clip" not in str([nist, iso, edpb])


def test_what_a_run_does_not_hold_is_not_measured(run_maker):
    folder = run_maker.write()
    for framework in (NIST, ISO, EDPB):
        held = points(folder, framework)
        attacks = [words for (place, _), words in held.items() if place in ("testing", "8.2.3", "7.3.2", "algorithms")]
        assert attacks
        assert set(attacks) == {EMPTY}
    text = markdown_of(statement(folder))
    assert "The run states no claim, so nothing was tested against one." in text
    assert "This run is not finished." in text
    assert "Not measured: the run has no attack that finds members or rebuilds data." in text


def test_federations_and_claims_of_one_defense_are_told_apart(run_maker, make_claim):
    for federation, verdict in (("A", "REFUTED"), ("B", "NOT_REFUTED")):
        claim = run_maker.sign("dp", make_claim(), federation=federation)
        run_maker.verdict_row(claim, defense="dp", federation=federation, attack="canary", verdict=verdict, value=1.0)
    other = run_maker.sign("dp", replace(make_claim(), unit=Unit.SAMPLE, observer=UPLOADS), federation="B")
    run_maker.verdict_row(other, defense="dp", federation="B", attack="canary", verdict="UNDERPOWERED", value=1.0)
    run_maker.gate = {"verdict_line": "FAIL", "exit_code": 10}
    folder = run_maker.write()
    said = residual_risks(folder, answers(folder))
    assert "A/dp: violated." in said
    assert [line for line in said if line.endswith("not decided.")] == [
        f"B/dp ({one.row.claim_text}): not decided." for one in answers(folder) if one.row.claim.unit is Unit.SAMPLE
    ]
    assert not any("no violation" in line for line in said)
    assert {row[0] for row in maximum_risk([one.row for one in answers(folder)]).rows} == {"A/dp", "B/dp"}


@pytest.mark.simulations
def test_records_of_an_earlier_pack_do_not_stay(quick_folder, run_maker, tmp_path):
    write_pack(quick_folder, tmp_path / "pack")
    folder = run_maker.write()
    (folder.path / "gate.json").unlink(missing_ok=True)
    write_pack(RunFolder.read(folder.path), tmp_path / "pack")
    assert not (tmp_path / "pack" / "run" / "gate.json").exists()


@pytest.mark.simulations
@pytest.mark.parametrize(
    "name", ["<script>", "a|b", "x" * 3000, "名前 😀", "](javascript:1)", "\u202e\ud800", "**\n# h"]
)
def test_hostile_names_stay_text_and_a_pdf_is_made(name, run_maker, make_claim, tmp_path):
    claim = run_maker.sign(name, make_claim())
    run_maker.verdict_row(claim, defense=name, attack=name, verdict="NOT_REFUTED")
    run_maker.manifest["suite"]["name"] = run_maker.manifest["command"] = name
    run_maker.manifest["finished"] = name
    folder = run_maker.write()
    pdf, *_ = write_pack(folder, tmp_path / "pack")
    assert pdf.read_bytes().startswith(b"%PDF")
    text = (tmp_path / "pack" / "statement.md").read_text(encoding="utf-8")
    assert "<script>" not in text
    assert not re.search(r"(?<!\\)\]\(javascript", text)
    assert "\n# h" not in text


@pytest.mark.simulations
def test_long_and_many_cells_fit_on_pages():
    table = Table(title="t", headers=("a", "b"), rows=tuple((f"{n}", "word " * 400) for n in range(30)))
    unbroken = Table(title="", headers=("a", "b", "c"), rows=(("x" * 500, "y", "z"), ("", "", "")))
    many = Table(title="", headers=tuple("abcdefghijklmn"), rows=((("word " * 4000),) * 14, ("x" * 9000,) * 14))
    made = pdf_of([Heading(text="h"), table, unbroken, many], title="t" * 500, made=datetime(2026, 1, 1))
    assert made.startswith(b"%PDF")


@pytest.mark.simulations
def test_a_run_s_own_data_is_never_replaced(quick_folder):
    with pytest.raises(ValueError, match="neither a folder nor part of a run's data"):
        write_pack(quick_folder, quick_folder.path / "cells")


def point_of(folder, framework, word):
    """What the run holds about the one point that ``word`` names."""
    (held,) = [words for key, words in points(folder, framework).items() if word in str(key)]
    return held


def test_a_refuted_claim_is_never_printed_without_its_verdict_and_gives_no_bound(run_maker, make_claim):
    claim = run_maker.sign("dp", make_claim())
    run_maker.verdict_row(claim, defense="dp", attack="canary", verdict="REFUTED", value=9.0)
    folder = run_maker.write()
    most = allowed_of_thousand(claim)
    no_bound = (
        f"dp: claimed: an attacker who raises 1 false alarm in 100 finds at most {most} of 1,000 clients that took "
        "part (guessing: 10; by ε and δ alone); this run refuted the claim, so that no bound holds"
    )
    assert point_of(folder, ISO, "7.3.2") == f"maximum: {no_bound}"
    assert point_of(folder, EDPB, "resistance") == no_bound
    ((_, text, found, _, _, verdict),) = maximum_risk([one.row for one in answers(folder)]).rows
    assert (found, verdict) == (f"no bound (claimed: {most}, by ε and δ alone)", "REFUTED")
    for framework, word in ((NIST, "privacy parameters"), (ISO, "7.3.4"), (EDPB, "choices in training")):
        assert point_of(folder, framework, word) == f"dp: {text} (verdict: REFUTED)"
    for _, _, held, _ in (row for table in tables_of(crosswalk(folder)).values() for row in table.rows):
        assert held.count(text) <= held.count("REFUTED")
        assert "if the claim holds" not in held


def test_what_attacks_showed_to_adversaries_without_a_claim_is_a_residual_risk(run_maker, make_claim):
    claim = run_maker.sign("dp", make_claim())
    run_maker.verdict_row(claim, defense="dp", attack="canary", verdict="NOT_REFUTED")
    strong = run_maker.sign("local", replace(make_claim(), unit=Unit.REPORT, observer=UPLOADS))
    run_maker.verdict_row(strong, defense="local", attack="canary", verdict="NOT_REFUTED")
    for defense, psnr in (("dp", (31.0, 20.0, 19.9)), ("local", (5.0, 6.0, 7.0))):
        common = {"federation": "one", "defense": defense, "role": "attack", "observer": "uploads"}
        for record, value in enumerate(psnr):
            one = {**common, "attack": "inversion", "scope": "record", "record": record}
            run_maker.row(**one, cell_id=f"i_{defense}", metric="psnr", value=value)
        run_maker.row(**common, attack="idlg", metric="label_accuracy", value=1.0)
    folder = run_maker.write()
    said = [line for line in residual_risks(folder, answers(folder)) if "reached" in line]
    # Adversaries who receive uploads are covered by the claim of the other defense, but it is stated elsewhere.
    assert said[1:] == [
        "local: on one, for which no claim is stated, attacks of this run reached: idlg in federation one "
        "label accuracy 1.000; inversion in federation one 0 of 3 images reconstructed with a PSNR of 20 dB or more."
    ]
    assert said[0].startswith("dp: against adversaries that no claim of it covers")
    assert "inversion in federation one 2 of 3 images reconstructed" in said[0]
    assert "idlg in federation one label accuracy 1.000" in said[0]
    assert said[0] in next(block.items for block in statement(folder) if isinstance(block, Points))
    for framework, word in ((EDPB, "reconstruction"), (ISO, "8.2.3")):
        images = "inversion: 2 of 3 under dp (OUT OF SCOPE), 0 of 3 under local (OUT OF SCOPE) (images"
        assert images in point_of(folder, framework, word)


def test_claims_without_an_audit_are_not_measured(run_maker, make_claim, add_membership):
    run_maker.sign("dp", make_claim())
    folder = run_maker.write()
    assert point_of(folder, ISO, "8.2.2") == EMPTY
    assert point_of(folder, ISO, "8.2.3") == EMPTY
    assert point_of(folder, NIST, "algorithms") == EMPTY
    assert "if the claim holds (verdict: NOT TESTED), an attacker who" in point_of(folder, ISO, "7.3.2")
    (cells,) = maximum_risk([one.row for one in answers(folder)]).rows
    assert cells[3:] == (EMPTY, EMPTY, "NOT TESTED")
    add_membership(run_maker, "dp")
    other = run_maker.sign("other", make_claim())
    run_maker.verdict_row(other, defense="other", attack="canary", verdict="", status="failed", reason="x", value=None)
    folder = run_maker.write()
    tested = point_of(folder, ISO, "8.2.3")
    assert tested == (
        "membership: loss: 0.500 under dp (OUT OF SCOPE) (AUC); labels: not measured; reconstruction: not measured; "
        "audits of claims: dp: NOT TESTED; other: FAILED"
    )
    text = markdown_of([*crosswalk(folder), maximum_risk([one.row for one in answers(folder)])])
    assert "AUDITED" not in text


@pytest.mark.parametrize(
    ("adjacency", "unit", "start"),
    [
        (Adjacency.REPLACE_ONE, Unit.REPORT, "which of two contents a report had"),
        (Adjacency.REPLACE_ONE, Unit.SAMPLE, "which of two contents a sample had"),
        (Adjacency.ADD_REMOVE, Unit.CLIENT, "clients that took part"),
        (Adjacency.ZERO_OUT, Unit.REPORT, "reports that took part"),
    ],
)
def test_a_replace_one_claim_bounds_guesses_of_content_and_not_of_participation(
    run_maker, make_claim, adjacency, unit, start
):
    claim = run_maker.sign("dp", make_claim(unit=unit, adjacency=adjacency))
    (answer,) = answers(run_maker.write())
    said = bound_phrase(answer.row)
    assert start in said
    assert f"at most {allowed_of_thousand(claim):,} of 1,000" in said
    assert ("took part" in said) == (adjacency is not Adjacency.REPLACE_ONE)


def test_an_unfinished_run_is_not_signed_and_its_open_cells_are_counted(run_maker, make_claim):
    run_maker.sign("dp", make_claim())
    run_maker.accuracy_row(value=0.5)
    run_maker.manifest |= {"planned_cells": 4, "finished": None}
    unfinished = run_maker.write()
    blocks = statement(unfinished)
    assert not any(isinstance(block, Signature) for block in blocks)
    assert blocks[-1] == "Not to be signed: the run is unfinished."
    assert "3 of 4 planned cells have no result." in residual_risks(unfinished, answers(unfinished))
    assert "started 2026-01-05T09:14:02Z, not finished (1 of 4 cells); by whom: not to be signed" in point_of(
        unfinished, EDPB, "by whom"
    )
    assert point_of(unfinished, ISO, "9.2.2").startswith(EMPTY)
    run_maker.manifest |= {"planned_cells": 1, "finished": "2026-01-05T09:14:50Z"}
    run_maker.gate = {"verdict_line": "PASS", "exit_code": 0}
    finished = run_maker.write()
    assert sum(isinstance(block, Signature) for block in statement(finished)) == 3
    assert not any("planned cells" in line for line in residual_risks(finished, answers(finished)))
    assert "2026-01-05T09:14:50Z; by whom: to be signed" in point_of(finished, EDPB, "by whom")
