"""The evidence pack: every word about a run comes from its records, claims and manifest, and empty places say so."""

import hashlib
import json
import re
from dataclasses import replace
from datetime import datetime

import pytest
import yaml
from fedassay.audit.claim import Unit
from fedassay.audit.observer import UPLOADS
from fedassay.reports.claim_tables.answers import allowed_of_thousand
from fedassay.reports.formats.deployment import deployments
from fedassay.reports.pack.crosswalk import EDPB, ISO, NIST, crosswalk
from fedassay.reports.pack.document import EMPTY, Heading, Points, markdown_of
from fedassay.reports.pack.pdf import pdf_of
from fedassay.reports.pack.statement import LIMITS, answered, maximum_risk, residual_risks, statement
from fedassay.reports.pack.write_pack import claims_yaml, write_pack
from fedassay.reports.reading.claims import claim_rows, left_unprotected, one_row_per_claim
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.tables import numerals
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


def test_the_maximum_risk_is_that_of_claims_and_audits(quick_folder):
    rows = [row for row in one_row_per_claim(claim_rows(quick_folder)) if row.stated and not row.control]
    assert [row.defense for row in rows] == ["dp_fedavg", "dp_sgd", "ldp_gaussian"]
    for row, cells in zip(rows, maximum_risk(quick_folder, rows).rows, strict=True):
        assert cells[:2] == (row.defense, row.claim_text)
        assert int(cells[2]) == allowed_of_thousand(row.stated.claim)
        assert float(cells[3].removeprefix("≥ ")) <= row.epsilon_low
        assert cells[4] == numerals.epsilon(row.detectable)
        assert cells[5] == row.verdict.replace("_", " ")


def test_each_risk_that_is_left_is_named(quick_folder, run_maker, make_claim):
    rows = [row for row in one_row_per_claim(claim_rows(quick_folder)) if row.stated and not row.control]
    (said,) = [block.items for block in statement(quick_folder) if isinstance(block, Points)][:1]
    for row in rows:
        left = "; ".join(left_unprotected(row.stated.claim, row.rounds_run))
        assert f"{row.label}: the claim does not protect {left}." in said
    assert "ldp_gaussian: not decided." in said
    omitted = len(omission_rows(quick_folder))
    assert f"{omitted} omissions: attacks or measurements without a result (see the report)." in said
    claim = run_maker.sign("dp", make_claim())
    run_maker.verdict_row(claim, defense="dp", attack="canary", verdict="REFUTED", value=9.0)
    run_maker.gate = {"verdict_line": "FAIL", "exit_code": 10}
    folder = run_maker.write()
    assert residual_risks(folder, answered(folder))[0] == "dp: violated."
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
    assert parameters == "; ".join(f"{row.defense}: {row.claim_text}" for row in rows)
    assert iso["7.3.4", "privacy models of the data"] == parameters
    assert "dp_sgd: one sample (add/remove)" in nist[next(key for key in nist if key[0] == "unit of privacy")]
    assert "ldp_gaussian: claimed for each report alone" in nist[next(key for key in nist if key[0] == "composition")]
    for row in rows:
        low, verdict = numerals.lower_bound(row.epsilon_low), row.verdict.replace("_", " ")
        assert f"{row.claim_text}: {verdict}, measured ε ≥ {low}" in iso["8.2.2", "quantified identifiability"]
    tested = iso["8.2.3", "adversarial testing"]
    assert tested.startswith("membership: loss, alignment; labels: llg; reconstruction: inverting_gradients; audits")
    assert edpb["testing", "membership inference"] == "loss, alignment"
    assert edpb["testing", "inference of attributes"] == "labels only: llg"
    assert edpb["testing", "model inversion, reconstruction"] == "inverting_gradients"
    nulls = edpb["testing (our own point)", "what an attack reaches without the model"]
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
    said = residual_risks(folder, answered(folder))
    assert "A/dp: violated." in said
    assert [line for line in said if "not decided" in line] == [
        f"B/dp ({row.claim_text}): not decided." for row, _ in answered(folder) if row.stated.claim.unit is Unit.SAMPLE
    ]
    assert not any("no violation" in line for line in said)
    assert {row[0] for row in maximum_risk(folder, [row for row, _ in answered(folder)]).rows} == {"A/dp", "B/dp"}


def test_records_of_an_earlier_pack_do_not_stay(quick_folder, run_maker, tmp_path):
    write_pack(quick_folder, tmp_path / "pack")
    folder = run_maker.write()
    (folder.path / "gate.json").unlink(missing_ok=True)
    write_pack(RunFolder.read(folder.path), tmp_path / "pack")
    assert not (tmp_path / "pack" / "run" / "gate.json").exists()


def test_the_claims_are_those_of_the_registry_s_fields(quick_folder):
    assert yaml.safe_load(claims_yaml(quick_folder)) == json.loads(deployments([quick_folder]))


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


def test_long_and_many_cells_fit_on_pages():
    table = Table(title="t", headers=("a", "b"), rows=tuple((f"{n}", "word " * 400) for n in range(30)))
    unbroken = Table(title="", headers=("a", "b", "c"), rows=(("x" * 500, "y", "z"), ("", "", "")))
    many = Table(title="", headers=tuple("abcdefghijklmn"), rows=((("word " * 4000),) * 14, ("x" * 9000,) * 14))
    made = pdf_of([Heading(text="h"), table, unbroken, many], title="t" * 500, made=datetime(2026, 1, 1))
    assert made.startswith(b"%PDF")


def test_a_run_s_own_data_is_never_replaced(quick_folder):
    with pytest.raises(ValueError, match="neither a folder nor part of a run's data"):
        write_pack(quick_folder, quick_folder.path / "cells")


def test_a_claim_of_reports_has_no_rounds(run_maker, make_claim):
    run_maker.sign("dp", replace(make_claim(), unit=Unit.REPORT))
    folder = run_maker.write()
    assert "over" not in points(folder, NIST)["composition", "all releases together; hazard: releases not counted"]
