"""Printable: no text of a run's files breaks a line, a page or a terminal."""

import json

import pytest
from fedassay.reports.formats.markdown import markdown
from fedassay.reports.formats.page import html
from fedassay.reports.formats.terminal import claim_lines, tables
from fedassay.reports.reading.printable import printable
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.regression.gated_run import judge_folder

EVIL = "a\x1b]0;title\x07\nOK: forged\x85\u202eb"


@pytest.mark.parametrize("text", ["", "plain", "ü 🙂 ∞", "a  b", "－"])
def test_a_plain_text_stays_as_it_is(text):
    assert printable(text) is text


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\nb", "a b"), ("a\r\n\tb", "a b"), ("a\x1bb", "a\ufffdb"), ("\u202e", "\ufffd"), ("a\u2028b", "a b")],
)
def test_a_line_end_is_a_blank_and_another_control_character_is_replaced(text, shown):
    assert printable(text) == shown


def test_no_output_of_a_run_holds_a_control_character_of_its_names(run_maker, make_claim):
    signed = make_claim()
    run_maker.sign(EVIL, signed)
    row = {"role": "audit", "claim_id": signed.claim_id, "metric": "epsilon_low", "seed": None, "verdict": "REFUTED"}
    run_maker.row(**row, defense=EVIL, value=9.0, reason=EVIL)
    run_maker.row(defense=EVIL, attack=EVIL, metric="auc", value=0.5)
    run_maker.row(defense=EVIL, attack=EVIL, metric="none", status="failed", reason=EVIL)
    run_maker.manifest["suite"]["description"] = EVIL
    run_maker.gate = {"verdict_line": EVIL, "exit_code": 0}
    folder = run_maker.write()
    judged = judge_folder(folder).outcome
    pages = [html(folder), markdown(folder), "\n".join(judged.details), *claim_lines(folder), *tables(folder)]
    for page in pages:
        assert not {"\x1b", "\x07", "\x85", "\u202e"} & set(page)
        assert "\nOK: forged" not in page
    assert len(judged.verdict_line.splitlines()) == len(folder.gate.verdict_line.splitlines()) == 1


def test_claims_still_find_their_rows(run_maker, make_claim):
    signed = make_claim()
    run_maker.sign(EVIL, signed)
    run_maker.row(defense=EVIL, role="audit", claim_id=signed.claim_id, metric="epsilon_low", value=0.1)
    folder = run_maker.write()
    assert json.loads((folder.path / "claims.json").read_text())["claims"][0]["defense"] == EVIL
    assert RunFolder.read(folder.path).claim_of(folder.records[0]).defense == printable(EVIL)


def test_half_of_a_surrogate_pair_is_shown_as_its_escape(run_maker):
    assert printable("a\udcff\ud800") == "a\\udcff\\ud800"
    run_maker.manifest["command"] = "fedassay run \udcff"
    run_maker.row(value=0.5, dataset="\udcff.npz", looked_at=["a\nb", "\ud800"])
    folder = run_maker.write()
    assert folder.manifest.command == "fedassay run \\udcff"
    assert folder.records[0].dataset == "\\udcff.npz"
    assert folder.records[0].looked_at == ["a b", "\\ud800"]
    for text in (markdown(folder), html(folder)):
        text.encode()
