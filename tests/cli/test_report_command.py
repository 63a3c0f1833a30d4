"""The commands report and schema: formats, several runs, damaged runs, and what they end with."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fedassay.reports.formats import write as write_module
from fedassay.suites.results.schemas import KINDS, schema_of
from fedassay.suites.results.store import Store


@pytest.fixture
def again(finished, tmp_path):
    """A run that is the finished one but for its name and its start."""
    folder = shutil.copytree(finished.folder, tmp_path / "again")
    store = Store(folder)
    store.write_manifest(store.manifest() | {"name": "again", "started": "2026-01-05T09:14:02Z"})
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_printed_as_json(say, kind):
    result = say("schema", kind)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == schema_of(kind)


def test_another_kind_of_schema_is_refused(say):
    result = say("schema", "record")
    assert (result.exit_code, result.stderr) == (2, "schema must be result, claim or suite, got 'record'\n")


def test_only_the_formats_that_are_named_are_written(say, again, tmp_path):
    (again / "report.html").unlink()
    names = {"latex": "t.tex", "csv": "r.csv", "claims": "c.json"}
    result = say("report", again, *(word for name, file in names.items() for word in (f"--{name}", file)))
    assert result.exit_code == 0
    assert result.stdout == "open   t.tex\nopen   r.csv\nopen   c.json\n"
    assert not (again / "report.html").exists()
    rows = (again / "results.jsonl").read_bytes().count(b"\n")
    assert (tmp_path / "r.csv").read_bytes().count(b"\r\n") == rows + 1
    assert "% run again, id" in (tmp_path / "t.tex").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "c.json").read_text())["claims"][0]["defense"] == "ldp_gaussian"


def test_several_runs_stand_in_one_report(say, finished, again, tmp_path):
    result = say("report", finished.folder, again, "--html", "both.html", "--md", "both.md")
    assert (result.exit_code, result.stdout) == (0, "open   both.html\nopen   both.md\n")
    assert "2 runs side by side" in (tmp_path / "both.html").read_text(encoding="utf-8")


def test_an_evidence_pack_is_written_of_one_run(say, finished, again, tmp_path):
    (again / "report.html").unlink()
    result = say("report", again, "--pack", "evidence")
    pdf = Path("evidence/evidence.pdf")
    assert (result.exit_code, result.stdout) == (0, f"open   {pdf} (evidence pack, 11 files in evidence)\n")
    assert (tmp_path / "evidence" / "statement.md").is_file()
    assert not (again / "report.html").exists()
    result = say("report", finished.folder, again, "--pack", "evidence")
    assert result.exit_code == 2
    assert "an evidence pack is about one run, got 2" in result.stderr
    (tmp_path / "file").write_text("kept", encoding="utf-8")
    result = say("report", again, "--pack", "file")
    assert result.exit_code == 2
    assert "a part of this path is a file, not a folder" in result.stderr
    assert (tmp_path / "file").read_text(encoding="utf-8") == "kept"


def test_several_runs_without_a_file_or_the_same_twice_are_refused(say, finished, again):
    result = say("report", finished.folder, again)
    assert result.exit_code == 2
    assert result.stderr.startswith(
        "a report of several runs must be written to a file that you name: give one of --html FILE, --md FILE"
    )
    result = say("report", again, again, "--md", "both.md")
    assert result.exit_code == 2
    assert "which hold the same run" in result.stderr


def test_rows_that_cannot_be_read_are_reported_and_the_rest_is_reported(say, again):
    lines = (again / "results.jsonl").read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"result-2", b"result-9")
    (again / "results.jsonl").write_bytes(b"".join(lines) + lines[0][:60])
    result = say("report", again)
    assert result.exit_code == 0
    told = result.stdout.splitlines()
    assert told[0].startswith("unread  1 row of results.jsonl (line 3, of cell ")
    assert told[1] == (
        f"unread  1 row of results.jsonl (line {len(lines) + 1}): the row was cut off while it was written"
    )
    page = (again / "report.html").read_text(encoding="utf-8")
    assert "INCOMPLETE: 2 rows that cannot be read" in page.replace("1 cell missing; ", "")
    assert "ldp_gaussian" in page


@pytest.mark.parametrize(("error", "code"), [(OSError(28, "No space left on device"), 12), (KeyboardInterrupt(), 130)])
def test_a_full_disk_and_an_interrupt_leave_the_old_page_and_no_scraps(say, again, monkeypatch, error, code):
    def stopped(*arguments):
        raise error

    (again / "report.html").write_text("old")
    before = sorted(path.name for path in again.iterdir())
    monkeypatch.setattr(write_module.Path, "replace", stopped)
    result = say("report", again)
    assert result.exit_code == code
    assert code != 12 or f"{again / 'report.html'} cannot be read or written: no space left" in result.stderr
    assert (again / "report.html").read_text() == "old"
    assert sorted(path.name for path in again.iterdir()) == before


@pytest.mark.parametrize("command", ["report", "gate", "resume"])
def test_a_folder_in_the_place_of_the_records_is_named(say, again, command):
    (again / "results.jsonl").unlink()
    (again / "results.jsonl").mkdir()
    result = say(command, again)
    says = f"{again / 'results.jsonl'} cannot be read or written: it is a folder, not a file\n"
    assert (result.exit_code, result.stderr) == (2, says)


@pytest.mark.simulations
def test_the_same_records_give_the_same_bytes_in_another_process(again, tmp_path):
    formats = ("html", "md", "latex", "csv", "claims")
    code = "import sys\nfrom fedassay.reports.formats.write import read_runs, write_files\nfrom pathlib import Path\n"
    code += f"write_files(read_runs([{str(again)!r}]), {{name: Path(sys.argv[1]) / name for name in {formats}}})"
    # Sets have another order there: the seed of this process is random, or the other one.
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "1")], env=environment, check=True)
    write_module.write_files(write_module.read_runs([again]), {name: tmp_path / "2" / name for name in formats})
    for name in formats:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    assert b"<svg" in (tmp_path / "1" / "html").read_bytes()


@pytest.mark.simulations
def test_a_pipe_takes_a_format_and_nothing_else(finished, tmp_path):
    def asked(*words, **options):
        command = [sys.executable, "-m", "fedassay", *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, **options)

    done = asked("report", finished.folder, "--csv", "/dev/stdout", "--md", "/dev/stderr")
    assert done.returncode == 0, done.stderr
    rows = (finished.folder / "results.jsonl").read_bytes().count(b"\n")
    assert len(list(csv.reader(done.stdout.splitlines()))) == rows + 1
    assert done.stderr.startswith("# fedassay: ")
