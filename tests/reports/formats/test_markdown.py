from itertools import pairwise

import pytest
from fedassay.reports.formats.markdown import CUT, LIMIT, cell, markdown, markdown_of_several
from fedassay.reports.formats.page import html


def test_failures_come_first(quick_folder):
    text = markdown(quick_folder)
    places = [text.index(part) for part in ("**INCOMPLETE", "## Problems", "**failed** alignment", "## Claims")]
    assert places == sorted(places)
    assert text.index("## Claims") < text.index("## Attacks on federation main") < text.index("## Not measured")


def test_a_refuted_correct_claim_and_a_blind_control_are_among_them(run_maker, make_claim):
    row = {"role": "audit", "metric": "epsilon_low", "claim_id": make_claim().claim_id, "seed": None, "value": 1.0}
    run_maker.sign("dp_fedavg", make_claim())
    run_maker.sign("noise_halved", make_claim(), control=True)
    run_maker.row(**row, defense="dp_fedavg", verdict="REFUTED", reason="eps >= 5 > 4")
    run_maker.row(**row, defense="noise_halved", verdict="NOT_REFUTED")
    lines = markdown(run_maker.write()).split("## Problems\n\n")[1].splitlines()
    assert lines[0].startswith("- **REFUTED** dp_fedavg: eps 4, delta 1e-5, one client")
    assert lines[0].endswith("; eps &gt;= 5 &gt; 4")
    assert lines[1].startswith("- **NOT REFUTED** noise_halved (control: should be REFUTED): eps 4")


def test_it_names_where_each_sequential_audit_stopped_as_the_page_does(run_maker, make_claim):
    early, late = (
        f"the audit stopped at interim look {look} of 6, after {runs} of at most 1,000 runs per arm"
        for look, runs in ((1, 125), (6, 1))
    )
    claim = make_claim()
    for defense, words in (("dp_fedavg", early), ("dp_sgd", early), ("ldp_gaussian", late), ("none", "")):
        run_maker.sign(defense, claim)
        run_maker.verdict_row(claim, defense=defense, verdict="NOT_REFUTED", stopped=words, reason=words)
    folder = run_maker.write()
    lines = markdown(folder).split("## Sequential audits\n\n")[1].split("\n\n")[0].splitlines()
    assert [line.split(": ")[-1] for line in lines] == [early, late]
    assert all(name in lines[0] for name in ("dp_fedavg (eps 4", "dp_sgd (eps 4"))
    assert "ldp_gaussian (eps 4" in lines[1]
    page, several = html(folder), markdown_of_several([folder])
    assert all(words in page and words in several for words in (early, late))


def test_every_table_row_has_as_many_cells_as_its_header(quick_folder):
    lines = markdown(quick_folder).splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert len(tables) > 25
    for above, below in pairwise(lines):
        if above.startswith("|") and below.startswith("|"):
            assert above.replace("\\|", "").count("|") == below.replace("\\|", "").count("|")


@pytest.mark.simulations
def test_it_is_cut_at_sixty_kibibytes_on_a_whole_line_with_the_failures_kept(run_maker):
    for number in range(900):
        run_maker.row(metric=f"metric_{number}", status="skipped", reason=f"reason {number} " + "é" * 60)
    run_maker.row(metric="auc", status="failed", reason="the one that matters")
    text = markdown(run_maker.write())
    assert LIMIT - 400 < len(text.encode()) <= LIMIT
    assert text.endswith("|\n" + CUT)
    assert "**failed** loss: AUC, on none: the one that matters" in text


def test_text_cannot_become_markup_a_link_or_a_mention():
    assert cell("a|b\nc") == "a\\|b c"
    assert cell("<script>") == "&lt;script&gt;"
    assert cell("*x* `y` [t](u) dp_fedavg _z_") == "\\*x\\* \\`y\\` [t]\\(u) dp_fedavg \\_z\\_"
    assert cell("@team") == "@\u200bteam"
    assert cell("[0.1, 0.2]") == "[0.1, 0.2]"
