"""A run's folder: whatever moment a run is killed in, nothing is lost, torn or written twice."""

import errno
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import fedassay
import numpy as np
import pytest
from fedassay.fl import folder_lock
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.regression.gated_run import judge_folder
from fedassay.suites.config.source import ConfigError
from fedassay.suites.results import store as store_module
from fedassay.suites.results.record import Record
from fedassay.suites.results.store import MANIFEST, RESULTS, Store, UnwritableRunFolder
from hypothesis import given, settings
from hypothesis import strategies as st
from row_facts import UTILITY
from suite_text import suite_text, tables


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "run", {"schema": "manifest-1"}, [])


def row(cell_id="a", **changes):
    return Record(cell_id=cell_id, **(UTILITY | changes))


def rows(cell_id, count):
    return [row(cell_id, record=number) for number in range(count)]


def found(store):
    """(cell, record) of all rows in results.jsonl, in order."""
    return [(record.cell_id, record.record) for record in store.records()]


def full_disk(*arguments, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_run_that_cannot_be_begun_leaves_what_was_there(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    real = store_module.write_atomically
    monkeypatch.setattr(
        store_module,
        "write_atomically",
        lambda path, content: (full_disk if path.name == MANIFEST else real)(path, content),
    )
    for place in ("mine/deep/run", "mine"):
        with pytest.raises(UnwritableRunFolder, match=f"{place}/{MANIFEST}"):
            Store.create(tmp_path / place, {}, [])
        assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_a_finished_cell_is_appended_once_however_often_it_is_collected(store):
    store.finish("b", rows("b", 2))
    store.finish("a", rows("a", 1))
    for _ in range(3):
        assert store.collect() == {"a", "b"}
    assert found(store) == [("a", 0), ("b", 0), ("b", 1)]


@settings(max_examples=40)
@given(st.data())
def test_results_cut_at_any_byte_and_written_on_come_out_whole(tmp_path_factory, data):
    place = Store.create(tmp_path_factory.mktemp("cut") / "run", {}, [])
    for cell_id, count in (("a", 1), ("b", 3), ("c", 2)):
        place.finish(cell_id, rows(cell_id, count))
        place.append(cell_id)
    results = place.folder / RESULTS
    whole = results.read_bytes()
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    # Also where a later, careless writer went on behind the torn line.
    behind = data.draw(st.sampled_from([b"", row("a", record=0).to_line().encode(), b"\x00\x00\n", b"\n"]))
    results.write_bytes(cut + behind)
    assert place.collect() == {"a", "b", "c"}
    assert sorted(found(place)) == [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("c", 0), ("c", 1)]


@pytest.mark.parametrize(
    "change",
    [(b"0.5", b"0.9"), (b'"value":0.5', b'"value":"x"'), (b"result-2", b"result-9"), (b"0.5", b"[" * 100_000)],
)
def test_a_row_that_a_hand_changed_is_put_back_as_it_was_measured(store, change):
    for cell_id in "ab":
        store.finish(cell_id, rows(cell_id, 2))
        store.append(cell_id)
    results = store.folder / RESULTS
    results.write_bytes(results.read_bytes().replace(*change, 1))
    assert store.collect() == {"a", "b"}
    assert sorted(found(store)) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert {record.value for record in store.records()} == {0.5}


@pytest.mark.parametrize("left", [0, 1, 50])
def test_a_cell_whose_own_file_is_damaged_is_no_evidence_and_is_run_again(store, left):
    for cell_id in "ab":
        store.finish(cell_id, rows(cell_id, 1))
    damaged = store.cell_folder("a") / "records.jsonl"
    damaged.write_bytes(damaged.read_bytes()[:left])
    assert store.finished() == {"b"}
    if left:
        with pytest.raises(ValueError, match=r"cells/a/records\.jsonl:1: "):
            store.cell_records("a")


def test_rows_of_another_cell_finish_none(store):
    store.finish("a", rows("b", 1))
    assert store.finished() == set()


def test_a_cell_whose_arrays_are_damaged_is_run_again_on_request(store):
    path = store.save_arrays("a", "projections", {"x": np.zeros(3)})
    store.finish("a", [row("a", artifact=path)])
    assert store.forget_failed() == 0
    (store.folder / path).write_bytes(b"PK")
    with pytest.raises(
        ValueError, match=r"cells/a/projections\.npz cannot be read .*; resume the run with --retry-failed"
    ):
        store.load_arrays(path)
    assert store.forget_failed() == 1
    assert store.finished() == set()


@pytest.mark.parametrize("name", ["projections.npz", "rounds.csv"])
def test_a_cell_whose_data_file_is_missing_is_run_again_on_request(store, name):
    store.finish("a", [row("a", artifact=f"cells/a/{name}")])
    assert store.forget_failed() == 1
    assert store.finished() == set()


def test_whole_results_are_not_rewritten(store):
    store.finish("a", rows("a", 2))
    store.collect()
    before = (store.folder / RESULTS).stat()
    store.collect()
    after = (store.folder / RESULTS).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.parametrize(
    "reason", ["line\u2028end", "next\x85line", "two\nlines\r\n", "tab\t\x1c\x00", '"quoted" \\ ü 🙂']
)
def test_any_reason_is_one_line_and_comes_back_as_it_was(store, reason):
    store.finish("a", [row("a", reason=reason, status="failed")])
    assert store.collect() == {"a"}
    assert [record.reason for record in store.records()] == [reason]
    assert (store.folder / RESULTS).read_bytes().count(b"\n") == 1


def test_arrays_come_back_as_they_were(store):
    arrays = {"a": np.arange(3.0), "b": np.array([True, False]), "c": np.float64(0.5)}
    path = store.save_arrays("a", "scores", arrays)
    assert path == "cells/a/scores.npz"
    back = store.load_arrays(path)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == np.asarray(array).dtype


@pytest.mark.parametrize("array", [np.array([object()]), np.array(["a", None], dtype=object), [[1], [2, {}]]])
def test_objects_are_not_saved_for_only_pickle_could_hold_them(store, array):
    with pytest.raises(ValueError, match=r"array 'x' of scores must hold plain numbers|inhomogeneous"):
        store.save_arrays("a", "scores", {"x": array})
    assert not list(store.folder.glob("cells/**/*.npz"))


def test_a_pickled_array_that_somebody_put_there_is_not_loaded(store, tmp_path):
    store.cell_folder("a").mkdir(parents=True)
    np.savez(store.cell_folder("a") / "scores.npz", x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="x holds Python objects, which are never read"):
        store.load_arrays("cells/a/scores.npz")


def test_the_same_arrays_give_the_same_bytes(store):
    one, two = (store.save_arrays(cell, "scores", {"x": np.arange(9)}) for cell in "ab")
    assert (store.folder / one).read_bytes() == (store.folder / two).read_bytes()


def test_a_manifest_that_json_cannot_hold_is_refused(store):
    with pytest.raises(ValueError, match="JSON"):
        store.write_json("gate.json", {"epsilon": float("inf")})


def test_a_folder_that_holds_a_run_is_not_started_in(store):
    with pytest.raises(ConfigError, match="already holds a run; resume it, or name another folder"):
        Store.create(store.folder, {}, [])


@pytest.mark.parametrize("left", ["cells", RESULTS])
def test_a_folder_that_holds_the_rest_of_a_run_is_not_started_in(store, left):
    store.finish("old", rows("old", 1))
    store.collect()
    for name in {"cells", RESULTS, MANIFEST} - {left}:
        path = store.folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(ConfigError, match=f"holds files left over from a run \\({left}\\); name another folder"):
        Store.create(store.folder, {}, [])


@pytest.mark.parametrize("below", [".", "run", "deep/run"])
def test_a_file_is_no_folder_for_a_run(tmp_path, below):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file is a file: name a folder for the run"):
        Store.create(tmp_path / "file" / below, {}, [])


def test_a_run_may_start_in_a_folder_that_holds_other_files(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    Store.create(tmp_path, {"schema": "manifest-1"}, [])
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert Store.open(tmp_path).manifest()["schema"] == "manifest-1"


def test_the_claims_stand_there_before_the_manifest_does(tmp_path, monkeypatch):
    written = []
    real = store_module.write_atomically
    monkeypatch.setattr(
        store_module, "write_atomically", lambda path, content: (written.append(path.name), real(path, content))
    )
    Store.create(tmp_path / "run", {}, [])
    assert written == ["claims.json", "manifest.json"]


def test_a_folder_without_a_manifest_holds_no_run(tmp_path):
    with pytest.raises(ConfigError, match=r"holds no run: the file manifest\.json is missing"):
        Store.open(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b"3"])
def test_a_manifest_that_cannot_be_read_is_reported(store, content):
    (store.folder / MANIFEST).write_bytes(content)
    with pytest.raises(ConfigError, match=r"manifest\.json"):
        store.manifest()


@pytest.mark.parametrize("name", [RESULTS, MANIFEST, ".session", ".lock", "cells", "cells/a", "report.html"])
def test_nothing_is_written_through_a_link_out_of_the_folder(store, tmp_path, name):
    store.finish("a", rows("a", 1))
    outside = shutil.copytree(store.folder, tmp_path / "outside")
    place = store.folder / name
    shutil.rmtree(place) if place.is_dir() else place.unlink(missing_ok=True)
    place.symlink_to(outside / name)
    with pytest.raises(ConfigError, match=f"{name} is a link that leads out of the folder"), store.locked():
        pytest.fail("the folder can be written")


def test_a_second_writer_of_one_run_is_refused(tmp_path):
    store = Store.create(tmp_path / "run", {"schema": "manifest-1"}, [])
    with store.locked(), pytest.raises(ConfigError, match="another process is writing"), Store(store.folder).locked():
        pass
    with store.locked():
        pass


def test_a_folder_that_cannot_be_locked_is_a_mistake_that_names_it(store, monkeypatch):
    monkeypatch.setattr(folder_lock.FileLock, "acquire", lambda lock: os.strerror(os.open("/none", os.O_WRONLY)))
    with pytest.raises(ConfigError, match=f"the folder {store.folder} cannot be made or written: "), store.locked():
        pytest.fail("it is locked")


def test_however_many_start_in_one_folder_at_once_one_of_them_has_it(tmp_path):
    def start(name):
        gate.wait()
        try:
            Store.create(tmp_path / "run", {"name": name}, [])
        except ConfigError:
            return None
        return name

    gate = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        begun = [name for name in pool.map(start, range(8)) if name is not None]
    assert begun == [Store.open(tmp_path / "run").manifest()["name"]]


def test_what_a_killed_process_left_half_written_is_no_result_and_is_removed(store):
    whole = "".join(record.to_line() for record in rows("a", 2))
    store.save_text("a", "rounds.csv", "round,accuracy\n")
    own = store.cell_folder("a") / ".notes.7"
    left = [store.cell_folder("a") / ".records.jsonl.999.part", store.cell_folder("a") / ".scores.npz.12.part"]
    left += [
        store.folder / ".results.jsonl.999.part",
        store.folder / ".manifest.json.31.part",
        store.folder / ".gate.json.4.part",
    ]
    for path in left:
        path.write_text(whole)
    own.write_text("of the user")
    assert store.finished() == set()
    assert store.collect() == set()
    assert [path for path in left if path.exists()] == []
    assert own.exists()
    assert (store.cell_folder("a") / "rounds.csv").exists()
    assert store.records() == []


TABLES = tables(defenses={"none": {}}, attacks={name: {"count": 3} for name in ("loss", "random_scores")})


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    place = tmp_path_factory.mktemp("sealed") / "run"
    suite = place.with_suffix(".toml")
    suite.write_text(suite_text(TABLES, clients=3, samples=30))
    return fedassay.run(str(suite), jobs=1, folder=place, report=False).folder


@pytest.fixture
def copy(sealed, tmp_path):
    return shutil.copytree(sealed, tmp_path / "copy")


def verdicts(folder):
    """Lines and exit codes of the report and of the gate."""
    run = RunFolder.read(folder)
    judged = judge_folder(run).outcome
    return {run.gate.verdict_line, judged.verdict_line}, {run.gate.exit_code, judged.exit_code}


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_an_untouched_run_is_fine(copy):
    assert verdicts(copy) == ({"OK: no claim was audited"}, {0})


def test_line_ends_and_order_are_no_change(copy):
    lines = (copy / "results.jsonl").read_bytes().splitlines()
    (copy / "results.jsonl").write_bytes(b"\r\n".join(reversed(lines)) + b"\r\n\r\n")
    assert verdicts(copy)[1] == {0}


@pytest.mark.parametrize("cut", [1, 3])
def test_a_row_lost_at_a_line_end_is_reported(copy, cut):
    lines = (copy / "results.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "results.jsonl").write_bytes(b"".join(lines[:-cut]))
    said, codes = verdicts(copy)
    assert codes == {12}
    assert all("changed since the run was finished: results.jsonl" in line for line in said)


def test_claims_that_are_gone_are_reported_and_another_layout_of_them_is_none(copy):
    edit(copy / "claims.json")
    assert verdicts(copy)[1] == {0}
    (copy / "claims.json").unlink()
    said, codes = verdicts(copy)
    assert codes == {12}
    assert "INCOMPLETE: files changed since the run was finished: claims.json" in said


def test_a_changed_run_is_no_baseline(copy, sealed):
    (copy / "claims.json").unlink()
    with pytest.raises(ConfigError, match=r"copy: these files changed since the run was finished: claims\.json"):
        judge_folder(RunFolder.read(sealed), copy)


def test_a_resumed_run_is_mended_and_sealed_anew(copy):
    (copy / "claims.json").write_text("{")
    lines = (copy / "results.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "results.jsonl").write_bytes(b"".join(lines[:-1]))
    emptied = next((copy / "cells").glob("*/records.jsonl"))
    emptied.write_bytes(b"")
    fedassay.resume(copy, jobs=1)
    assert verdicts(copy) == ({"OK: no claim was audited"}, {0})
    assert len((copy / "results.jsonl").read_bytes().splitlines()) == len(lines)


def test_a_gate_that_its_rows_do_not_bear_is_not_repeated(copy):
    edit(copy / "gate.json", verdict_line="FAIL: all is lost", exit_code=10)
    line = "OK: no claim was audited (the outcome when the run finished: FAIL: all is lost)"
    assert RunFolder.read(copy).gate.verdict_line == line
    edit(copy / "gate.json", exit_code=True)
    with pytest.raises(ValueError, match=r"gate\.json must hold the fields verdict_line \(text\) and exit_code"):
        RunFolder.read(copy)


@pytest.mark.parametrize("change", [{"seed": "x"}, {"suite": [1]}, {"run_id": 3}])
def test_a_manifest_of_other_things_is_not_resumed(copy, change):
    Store(copy).write_manifest(Store(copy).manifest() | change)
    with pytest.raises(ConfigError, match=f"lacks {next(iter(change))}, or has values of a wrong type for them"):
        fedassay.resume(copy, jobs=1)
