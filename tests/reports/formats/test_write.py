import os
import threading
from pathlib import Path

import pytest
from fedassay.reports.formats.write import write_report, write_whole


def test_both_pages_are_written_beside_the_records(run_maker):
    run_maker.row(value=0.6)
    run_maker.write()
    path = write_report(run_maker.path)
    assert path == run_maker.path / "report.html"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (run_maker.path / "report.md").read_text(encoding="utf-8").startswith("# fedassay: quick")


def test_only_the_paths_that_are_named_are_written(run_maker, tmp_path):
    run_maker.write()
    assert write_report(run_maker.path, md=tmp_path / "new" / "pr.md") == tmp_path / "new" / "pr.md"
    assert not (run_maker.path / "report.html").exists()
    assert write_report(run_maker.path, html=tmp_path / "page.html", md=tmp_path / "pr.md") == tmp_path / "page.html"


def test_no_temporary_file_is_left_and_old_pages_are_replaced(run_maker):
    run_maker.write()
    (run_maker.path / "report.html").write_text("old")
    write_report(run_maker.path)
    assert (run_maker.path / "report.html").read_text(encoding="utf-8") != "old"
    assert [path.name for path in run_maker.path.iterdir() if path.name.startswith(".")] == []


def test_a_report_that_cannot_be_made_leaves_the_old_page_alone(run_maker):
    run_maker.row(value=0.6)
    run_maker.write()
    (run_maker.path / "report.html").write_text("old")
    (run_maker.path / "claims.json").write_text("{broken\n{}\n")
    with pytest.raises(ValueError, match=r"claims\.json is not JSON"):
        write_report(run_maker.path)
    assert (run_maker.path / "report.html").read_text() == "old"


def test_two_reports_of_one_folder_are_equal(run_maker):
    run_maker.row(value=0.6)
    run_maker.write()
    first = write_report(run_maker.path).read_bytes()
    assert write_report(run_maker.path).read_bytes() == first


@pytest.mark.parametrize(
    ("html", "md"), [("results.jsonl", None), ("a.html", "a.html"), (None, "manifest.json"), (".", None)]
)
def test_a_page_never_takes_the_place_of_data_or_of_the_other_page(run_maker, html, md):
    run_maker.row(value=0.6)
    run_maker.write()
    before = (run_maker.path / "results.jsonl").read_bytes()
    paths = {name: run_maker.path / file for name, file in (("html", html), ("md", md)) if file is not None}
    with pytest.raises(ValueError, match="each output must be a separate file"):
        write_report(run_maker.path, **paths)
    assert (run_maker.path / "results.jsonl").read_bytes() == before


def test_a_pipe_without_a_name_is_written_into():
    reading, writing = os.pipe()
    place = Path(f"/dev/fd/{writing}")
    assert write_whole(place, "first\nε\n") == place
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        assert pipe.read() == "first\nε\n"


def test_a_reader_that_has_seen_enough_is_no_failure():
    reading, writing = os.pipe()
    text = "x" * 2**20  # More than a pipe holds: the writer waits for a reader that goes.

    def read_a_little():
        os.read(reading, 10)
        os.close(reading)

    reader = threading.Thread(target=read_a_little)
    reader.start()
    write_whole(Path(f"/dev/fd/{writing}"), text)
    reader.join()
    os.close(writing)


def test_a_device_is_written_into_and_a_folder_refuses(tmp_path):
    assert write_whole(Path("/dev/null"), "x") == Path("/dev/null")
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path, "x")
