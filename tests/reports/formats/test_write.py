"""Files are written whole or not at all; a site of ten runs holds the numbers of their records."""

import csv
import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import html5lib
import pytest
from fedassay.audit.claim import Unit
from fedassay.audit.observer import UPLOADS
from fedassay.reports.formats.write import write_report, write_site, write_whole
from fedassay.reports.pack.statement import write_pack
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.tables import numerals
from fedassay.reports.tables.several_runs import claims_of_runs, histories, scoreboards
from page_script import without_script
from toy_claim import toy_claim


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


@pytest.mark.parametrize(
    ("html", "md"),
    [("results.jsonl", None), ("a.html", "a.html"), (None, "manifest.json"), (".", None), ("pipe.html", None)],
)
def test_a_page_never_takes_the_place_of_data_or_of_the_other_page(run_maker, html, md):
    run_maker.row(value=0.6)
    run_maker.write()
    before = (run_maker.path / "results.jsonl").read_bytes()
    os.mkfifo(run_maker.path / "pipe.html")
    paths = {name: run_maker.path / file for name, file in (("html", html), ("md", md)) if file is not None}
    with pytest.raises(ValueError, match="each output must be a separate file"):
        write_report(run_maker.path, **paths)
    assert (run_maker.path / "results.jsonl").read_bytes() == before


@pytest.mark.parametrize("link", ["index.html", "tables", "runs"])
def test_a_link_out_of_the_folder_of_an_output_is_refused(run_maker, tmp_path, link):
    run, place, outside = run_maker.write(), tmp_path / "site", tmp_path / "outside"
    outside.mkdir()
    place.mkdir()
    (place / link).symlink_to(outside / "file" if "." in link else outside)
    (run.path / "report.html").symlink_to(outside / "file")
    (run.path / "figures").symlink_to(outside)
    inside = run.path / "figures"
    writes = [lambda: write_site([run], place), lambda: write_report(run.path)]
    for write in (*writes, lambda: write_report(run.path, html=inside / "a.html"), lambda: write_pack(run, inside)):
        with pytest.raises(ValueError, match=r"is a link that leads out of the folder .*, so nothing is written there"):
            write()
    assert list(outside.iterdir()) == []


def test_files_of_a_user_s_own_are_not_replaced_by_a_site_or_a_pack(run_maker, tmp_path):
    run = run_maker.write()
    (run.path / "gate.json").unlink(missing_ok=True)
    names = {write_site: ("index.html", "tables/records.csv"), write_pack: ("report.html", "run/gate.json")}
    for write, name in ((write, name) for write, group in names.items() for name in group):
        place = tmp_path / write.__name__ / name.partition(".")[0]
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text("mine")
        with pytest.raises(ValueError, match=f"{name} would be replaced, and .* holds no earlier output"):
            write([run] if write is write_site else run, place)
        assert [path.read_text() for path in place.rglob("*.*")] == ["mine"]


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


VERSIONS = (("1" * 40, 0.5), ("2" * 40, 1.25), ("3" * 40, 4.5))


@pytest.fixture
def ten_runs(make_run):
    """Three versions of the defense ``mine`` and seven of other defenses, of which two claim another unit."""
    folders = []
    for number in range(10):
        run = make_run(f"run{number}")
        commit, value = VERSIONS[number] if number < 3 else ("f" * 40, 0.1 * number)
        # The later versions finished earlier: only the time counts.
        run.manifest["finished"] = f"2026-01-{20 - number:02d}T00:00:00Z"
        run.manifest["git"] = {"commit": commit, "dirty": number == 1}
        run.manifest["run_id"] = f"{number}" * 12
        defense = "mine" if number < 3 else f"other{number}"
        claim = toy_claim() if number < 8 else replace(toy_claim(), unit=Unit.SAMPLE, observer=UPLOADS)
        signed = run.sign(defense, replace(claim, epsilon=4.0))
        verdict = "REFUTED" if value > 4 else "NOT_REFUTED"
        run.verdict_row(signed, defense=defense, attack="canary", value=value, detectable=5.0 + number, verdict=verdict)
        for seed in (0, 1):
            run.accuracy_row(defense=defense, value=0.5 + 0.01 * number, seed=seed)
        folders.append(run.write())
    return folders


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.simulations
def test_every_number_of_a_table_is_one_of_a_record(ten_runs, tmp_path):
    front, *_ = write_site(ten_runs, tmp_path / "site")
    seen = []
    for path in sorted((front.parent / "tables").glob("claims-*.csv")):
        for row in rows_of(path):
            folder = next(one for one in ten_runs if one.manifest.name == row["run"])
            (audit,) = [one for one in folder.rows("audit") if one.defense == row["defense"]]
            assert row["measured ε ≥"] == numerals.lower_bound(audit.value)
            assert row["min detectable"] == numerals.epsilon(audit.detectable)
            assert row["verdict"] == audit.verdict.replace("_", " ")
            accuracy = {one.value for one in folder.rows("utility") if one.defense == row["defense"]}
            assert row["utility"] == f"accuracy {next(iter(accuracy)):.3f}"
            assert row["claimed ε"] == "4"
            seen.append(row["run"])
            assert row["measured ε ≥"] in front.read_text(encoding="utf-8")
    assert sorted(seen) == sorted(one.manifest.name for one in ten_runs)


def test_claims_about_other_units_or_adversaries_stand_in_other_tables(ten_runs):
    boards = scoreboards(claims_of_runs(ten_runs))
    assert [len(board.rows) for board in boards] == [8, 2]
    assert "one client" in boards[0].title
    assert "one sample" in boards[1].title


def test_the_history_of_a_defense_follows_the_time_and_names_its_commits(ten_runs):
    (history,) = histories(claims_of_runs(ten_runs))
    assert history.title == "History of mine in quick, federation main"
    commits = ["333333333333", "222222222222 + changes", "111111111111"]
    assert [row[4] for row in history.rows] == [f"0.1.0, {commit}" for commit in commits]
    assert [row[3] for row in history.rows] == [f"2026-01-{day} 00:00" for day in (18, 19, 20)]
    assert [row[-3] for row in history.rows] == ["REFUTED", "NOT REFUTED", "NOT REFUTED"]


@pytest.fixture
def mine(make_run):
    """(name, changes) -> a run of the defense ``mine``, audited unless ``verdict`` is empty."""

    def build(name, part=None, verdict="NOT_REFUTED", detectable=5.0, control=False, finished="2026-01-20T00:00:00Z"):
        run = make_run(name)
        run.manifest |= {"git": None, "finished": finished}
        run.manifest["suite"]["defenses"] = {"mine": {"part": part, "seeds": None, "epsilon": 4.0, "clip": 2}}
        signed = run.sign("mine", toy_claim(), control=control)
        if verdict:
            run.verdict_row(signed, defense="mine", verdict=verdict, detectable=detectable, control=control)
        return run.write()

    return build


def test_one_label_for_two_parts_is_two_defenses(mine):
    claims = claims_of_runs([mine("a", "broken:MyDefense"), mine("b", "my:MyDefense"), mine("c", "my:MyDefense")])
    (board,), (history,) = scoreboards(claims), histories(claims)
    assert [row[0] for row in board.rows] == [f"mine ({part}:MyDefense, clip 2)" for part in ("broken", "my", "my")]
    assert history.title == "History of mine (my:MyDefense) in quick, federation main"
    assert [row[2] for row in history.rows] == ["b", "c"]


@pytest.mark.simulations
def test_the_site_is_strict_html_without_outside_references_and_every_link_has_a_target(ten_runs, tmp_path):
    files = write_site(ten_runs, tmp_path / "site")
    assert len(files) == len(set(files)) == 1 + 10 + 2 + 1 + 1
    text = files[0].read_text(encoding="utf-8")
    html5lib.HTMLParser(strict=True).parse(text)
    assert "//" not in without_script(text)
    for link in re.findall(r'href="([^"]+)"', text):
        assert (files[0].parent / link).is_file() if not link.startswith("#") else f'id="{link[1:]}"' in text


@pytest.mark.simulations
def test_the_same_runs_give_the_same_bytes_and_other_files_stay(ten_runs, tmp_path):
    place = tmp_path / "site"
    first = {path: path.read_bytes() for path in write_site(ten_runs[:2], place)}
    (place / "CNAME").write_text("example.org")
    again = write_site([RunFolder.read(one.path) for one in ten_runs[:2]], place)
    assert {path: path.read_bytes() for path in again} == first
    assert (place / "CNAME").read_text() == "example.org"


def test_no_run_and_a_place_within_a_run_are_refused(ten_runs):
    with pytest.raises(ValueError, match="at least one run"):
        write_site([], ten_runs[0].path)
    for place in (ten_runs[0].path / "cells", ten_runs[0].path, ten_runs[1].path / "new" / "site"):
        with pytest.raises(ValueError, match=f"{place} is part of the run's data in "):
            write_site(ten_runs[:1], place)


def test_the_command_writes_the_site_and_says_where(say, ten_runs, tmp_path):
    done = say("site", *(one.path for one in ten_runs[:2]), "-o", tmp_path / "site")
    assert done.exit_code == 0, done.output
    assert "index.html" in done.output
    assert (tmp_path / "site" / "index.html").is_file()
    same = say("site", ten_runs[0].path, ten_runs[0].path, "-o", tmp_path / "site")
    assert same.exit_code == 2
    assert "only once" in same.output
