"""The table of findings, its pages and its scripts agree, and each script prints the verdict of its row today."""

import importlib.util
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import fedassay
import pytest

FINDINGS = Path(fedassay.__file__).resolve().parent / "docs" / "findings"
ROW = re.compile(r"^\| (.+) \| (.+) \| (.+) \| (.+) \| \[\w+\]\(([\w/]+)\.(md|py)\) \|$", re.MULTILINE)
PARTS = ("**What happens.**", "**The other reading.**", "**A correct version.**", "**How to mend it.**")

pytestmark = pytest.mark.skipif(not FINDINGS.is_dir(), reason="an installed wheel has no docs")


@dataclass(frozen=True)
class Row:
    mechanism: str
    claim: str
    verdict: str
    name: str
    is_finding: bool


def rows():
    text = (FINDINGS / "index.md").read_text(encoding="utf-8") if FINDINGS.is_dir() else ""
    return [Row(row[0], row[1], row[3], row[4].removeprefix("scripts/"), row[5] == "md") for row in ROW.findall(text)]


def page(name):
    return (FINDINGS / f"{name}.md").read_text(encoding="utf-8")


@cache
def runner():
    spec = importlib.util.spec_from_file_location("findings_run", FINDINGS / "run.py")
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up.
    __import__("sys").modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def outcome(name):
    return runner().run(FINDINGS / "scripts" / f"{name}.py")


def test_every_script_and_page_is_in_the_table_and_no_row_lacks_either():
    assert {row.name for row in rows()} == {script.stem for script in runner().scripts()}
    assert {row.name for row in rows() if row.is_finding} == {p.stem for p in FINDINGS.glob("*.md")} - {"index"}


@pytest.mark.parametrize("name", ["diffprivlib", "dp-accounting", "flwr", "nvflare", "opacus", "pfl"])
def test_the_text_for_maintainers_has_every_finding_with_all_code_and_no_link_to_our_files(name):
    text = runner().text(name)
    own = [row.name for row in rows() if row.is_finding and runner().library(script_of(row.name))[0] == name]
    assert own
    assert "](" not in re.sub(r"^```.*?^```$|]\(https?:", "", text, flags=re.DOTALL | re.MULTILINE)
    for finding in own:
        code = script_of(finding).read_text(encoding="utf-8")
        assert code.partition('"""\n\n')[2].strip() in text
        for helper in map(script_of, re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE)):
            assert not helper.exists() or helper.read_text(encoding="utf-8") in text


def script_of(name):
    return FINDINGS / "scripts" / f"{name}.py"


def test_every_page_states_claim_verdict_other_reading_and_shows_its_whole_script():
    for row in rows():
        if row.is_finding:
            text = page(row.name)
            assert f"| verdict | {row.verdict} |" in text, row
            assert re.search(r"^\| claim \| .*\".+\".*`", text, re.MULTILINE), row
            assert "| known upstream | " in text, row
            assert [part for part in PARTS if part not in text] == []
            script = (FINDINGS / "scripts" / f"{row.name}.py").read_text(encoding="utf-8")
            assert script.split('"""\n', 1)[1].strip() in text, row


def test_a_script_without_its_library_is_skipped_with_the_reason(tmp_path):
    script = tmp_path / "absent.py"
    script.write_text('"""Nothing.\n\nLibrary: no-such-library==1.0.\n"""\n', encoding="utf-8")
    assert "needs no-such-library 1.0" in runner().run(script).skipped


@pytest.mark.findings
@pytest.mark.parametrize("name", sorted({row.name for row in rows()}))
def test_each_script_prints_the_verdicts_of_its_rows(name):
    done = outcome(name)
    if done.skipped:
        pytest.skip(done.skipped)
    for row in rows():
        if row.name == name:
            wanted = row.verdict if row.is_finding else f"{row.mechanism}: {row.verdict}"
            assert wanted in done.verdicts
