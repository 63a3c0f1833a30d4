"""Data files of cells: read where they can be, else told and left out, and the report is made without them."""

import zipfile

import numpy as np
import pytest
from fedassay.reports.formats.markdown import markdown
from fedassay.reports.formats.page import html
from fedassay.reports.formats.terminal import tables
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.regression.gated_run import judge_folder
from fedassay.reports.tables.summary import unread_lines
from page_script import without_marks

ROUNDS = "cells/c1/rounds.csv"


@pytest.fixture
def scored(run_maker):
    """A run of one attack of two seeds with scores beside them; where the first one's lie."""
    for seed in range(2):
        told = {"unit": "sample", "adjacency": "add_remove", "rounds": 1, "design": "independent"}
        artifact = run_maker.arrays(
            f"c{seed}", "scores", member=np.arange(9.0) + seed, nonmember=np.arange(9.0), **told
        )
        run_maker.row(
            cell_id=f"c{seed}", seed=seed, metric="auc", value=0.6 + seed / 10, artifact=artifact, observer="uploads"
        )
    run_maker.manifest["planned_cells"] = 2
    return run_maker.write().path / "cells/c0/scores.npz"


def only(folder):
    (found,) = folder.files.unread(folder.records)
    return found


def test_arrays_of_an_artifact_are_read_back(run_maker):
    artifact = run_maker.arrays("c1", "scores", member=np.array([1.0, 2.0]), word=np.array("x"))
    run_maker.row(value=0.5, artifact=artifact)
    folder = run_maker.write()
    assert folder.files.arrays(folder.records[0], without=["word"])["member"].tolist() == [1.0, 2.0]
    assert folder.files.unread(folder.records) == ()


def test_the_records_alone_are_read_without_complaint_and_the_page_names_what_it_lacks(run_maker):
    run_maker.row(value=0.5, artifact="cells/gone/scores.npz")
    folder = run_maker.write()
    for page in (html(folder), markdown(folder)):
        assert "the folder cells was not copied" in page
        assert "What cannot be read" not in page
    assert "unread" not in "".join([*tables(folder), *judge_folder(folder).outcome.details])
    assert folder.files.arrays(folder.records[0]) is None
    assert folder.files.rounds(folder.records[0]) == []
    assert folder.files.unread(folder.records) == ()


def test_a_link_out_of_the_folder_is_not_followed(run_maker, tmp_path):
    run_maker.row(value=0.5, artifact="cells/c1/scores.npz")
    folder = run_maker.write()
    np.savez(tmp_path / "secret.npz", member=np.zeros(1))
    (folder.path / "cells/c1").mkdir(parents=True)
    (folder.path / "cells/c1/scores.npz").symlink_to(tmp_path / "secret.npz")
    assert folder.files.arrays(folder.records[0]) is None
    assert only(folder).reason == "lies outside the run's folder"


def test_an_array_that_needs_pickle_is_left_out(run_maker):
    artifact = run_maker.arrays("c1", "scores", member=np.array([{"a": 1}], dtype=object))
    run_maker.row(value=0.5, artifact=artifact)
    folder = run_maker.write()
    assert folder.files.arrays(folder.records[0]) is None
    assert "holds Python objects, which are never read" in only(folder).reason


@pytest.mark.parametrize("lost", [lambda path: path.unlink(), lambda path: path.write_text("hi\n")])
def test_lost_scores_are_reported_with_what_the_report_lacks_and_how_to_compute_them_again(scored, lost):
    lost(scored)
    folder = RunFolder.read(scored.parents[2])
    page, judged = without_marks(html(folder)), judge_folder(folder)
    for shown in (page, markdown(folder), "".join(tables(folder)), "".join(judged.outcome.details)):
        for words in ("scores.npz", "lack the ROC curves", "--retry-failed"):
            assert words in shown
        assert "allow_pickle" not in shown
    assert 'id="unread"' in page


def test_a_missing_curve_by_round_is_reported(run_maker):
    run_maker.accuracy_row(cell_id="c1", value=0.5, artifact=run_maker.rounds("c1", [0.4, 0.5]))
    folder = run_maker.write()
    assert folder.files.unread(folder.records) == ()
    (folder.path / ROUNDS).unlink()
    (line,) = unread_lines(RunFolder.read(folder.path))
    assert line.startswith(f"1 file ({ROUNDS}, of cell c1): missing; ")


def test_scores_cut_anywhere_are_reported(scored):
    whole = scored.read_bytes()
    for cut in range(0, len(whole), 97):
        scored.write_bytes(whole[:cut])
        assert only(RunFolder.read(scored.parents[2])).place == "cells/c0/scores.npz"


def test_a_flipped_bit_within_an_array_is_reported_once_it_was_read(scored):
    with zipfile.ZipFile(scored) as archive:
        inside = archive.getinfo("member.npy").header_offset + 200
    damaged = bytearray(scored.read_bytes())
    damaged[inside] ^= 1
    scored.write_bytes(damaged)
    folder = RunFolder.read(scored.parents[2])
    assert folder.files.arrays(folder.records[0]) is None
    assert "CRC" in only(folder).reason


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"round,auc\n1,nan\n", "the column auc must hold numbers, got nan"),
        (b"round,auc\n1,1e400\n", "the column auc must hold numbers, got 1e400"),
        (b"round,auc\n1,half\n", "could not convert"),
        (b"round,auc\n1,.5,.6\n", "a table of numbers"),
        (b"round,auc\n1.5,.5\n", "the column round must hold whole numbers, got 1.5"),
        (b"round,auc\n1e300,.5\n", "the column round must hold whole numbers"),
        (b"round,auc\n-1,.5\n", "the column round must hold whole numbers"),
        (b"auc\n.5\n", "the column round must hold whole numbers, got None"),
        (b"round,auc\n1,\xff\n", "codec can't decode"),
        (b'round,auc\n"' + b"1" * 200_000, "field larger than field limit"),
    ],
)
def test_a_table_of_no_numbers_is_left_out(run_maker, text, says):
    run_maker.row(cell_id="c1", value=0.5)
    folder = run_maker.write()
    (folder.path / ROUNDS).parent.mkdir(parents=True)
    (folder.path / ROUNDS).write_bytes(text)
    assert folder.files.rounds(folder.records[0]) == []
    assert says in only(folder).reason
    (line,) = unread_lines(folder)
    assert line.startswith(f"1 file ({ROUNDS}, of cell c1): cannot be read as a table of numbers: ")
    html(folder)


def test_an_empty_place_of_a_table_is_no_number_and_no_damage(run_maker):
    run_maker.row(cell_id="c1", value=0.5)
    folder = run_maker.write()
    (folder.path / ROUNDS).parent.mkdir(parents=True)
    (folder.path / ROUNDS).write_text("round,auc,loss\n1,0.5,\n2,0.6,0.1\n")
    assert folder.files.rounds(folder.records[0]) == [{"round": 1, "auc": 0.5}, {"round": 2, "auc": 0.6, "loss": 0.1}]
    assert folder.files.unread(folder.records) == ()
