"""Ctrl-C at any time, and cells whose own files were damaged: the run says so, and going on mends it."""

import os
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from fedassay.__main__ import main
from fedassay.cli import errors as signals_module
from fedassay.cli.app import app
from fedassay.suites.execution import backend as local_module
from fedassay.suites.results import store as store_module
from fedassay.suites.results.store import Store
from run_files import is_running
from typer.testing import CliRunner

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def hears_ctrl_c():
    """Whoever starts the tests in the background of a script has them ignore it, and all that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def stopped_by(command, place, numbers, *, group=False, path=""):
    """Starts a program in a folder, sends it signals once a part of the test's own hangs there, in the process that the
    file ``hang`` names, and waits for the end of both. Returns the program's exit code and what it said.
    """
    process = subprocess.Popen(
        command,
        cwd=place,
        env=ONE_THREAD | ({"PYTHONPATH": path} if path else {}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=hears_ctrl_c,
    )
    try:
        waits_for(lambda: (place / "hang").exists() and (place / "hang").read_text(), process)
        for number in numbers:
            # A terminal sends it to the run and to its workers alike.
            (os.killpg if group else os.kill)(process.pid, number)
            time.sleep(0.1)
        _, said = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    # A worker that computed on would write at the same time as the resumed run.
    worker = int((place / "hang").read_text())
    waits_for(lambda: not is_running(worker))
    return process.returncode, said


def waits_for(condition, process=None):
    deadline = time.monotonic() + 120
    while not condition():
        assert process is None or process.poll() is None, "the run ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def goes_on(command, place):
    """The run is resumed and ends well, with all that was finished before."""
    kept = Store(place / "run").finished()
    (place / "go").touch()
    again = subprocess.run(command, check=False, timeout=300, cwd=place, env=ONE_THREAD, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    rows = Store(place / "run").records()
    assert not any(row.status == "failed" for row in rows)
    assert kept
    assert kept <= {row.cell_id for row in rows}


def say(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("left", [9, 27, *(pytest.param(left, marks=pytest.mark.simulations) for left in (2, 19))])
def test_ctrl_c_at_any_write_ends_with_130_and_the_run_can_go_on(
    suite_file, finished, monkeypatch, tmp_path, timeless, left
):
    folder, writes = tmp_path / "run", iter(range(1000))
    with monkeypatch.context() as patched:
        for owner, name, real in (
            (store_module, "write_atomically", store_module.write_atomically),
            (Store, "append", Store.append),
        ):

            def interrupted(*arguments, real=real):
                if next(writes) == left:
                    raise KeyboardInterrupt
                return real(*arguments)

            patched.setattr(owner, name, interrupted)
        stopped = say("run", suite_file(), "-j", 1, "-o", folder)
    assert stopped.exit_code == 130
    assert f"interrupted. Finished cells are kept; go on with: fedassay resume {folder}" in stopped.stderr
    assert not any(row.status == "failed" for row in Store(folder).records())
    resumed = say("resume", folder, "-j", 1)
    assert resumed.exit_code == 0, resumed.output
    assert timeless(Store(folder).records()) == timeless(finished.records)


LOADING = """import os, sys, threading, time
from pathlib import Path
if "Loky" in " ".join(sys.orig_argv):
    Path("hang").write_text(str(os.getpid()))
    time.sleep(120)
# A run of several threads is not copied: its workers load everything themselves.
threading.Thread(target=time.sleep, args=(120,), daemon=True).start()
"""


@pytest.mark.processes
def test_ctrl_c_while_workers_load_ends_the_run_and_its_workers(suite_file, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(LOADING)
    command = [sys.executable, "-m", "fedassay", "run", str(suite_file()), "-j", "2", "-o", "run"]
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    code, said = stopped_by(command, tmp_path, [signal.SIGINT], group=True, path=path)
    assert (code, said) == (130, "interrupted. Finished cells are kept; go on with: fedassay resume run\n")
    assert not (tmp_path / "run" / "gate.json").exists()


def test_a_worker_ends_when_its_run_dies_and_not_before(monkeypatch):
    """Its parent's id is that of the run until the run dies; it may have died already, while the worker loaded."""
    ended = threading.Event()
    parents = iter([5, 5, 5, 1])
    seen = []

    def getppid():
        seen.append(next(parents))
        return seen[-1]

    monkeypatch.setattr(local_module, "time", SimpleNamespace(sleep=lambda seconds: None))
    for run, looks in ((5, [5, 5, 5, 1]), (7, [5])):
        parents, codes = iter([5, 5, 5, 1]), []
        seen.clear()
        ended.clear()
        monkeypatch.setattr(
            local_module,
            "os",
            SimpleNamespace(getppid=getppid, _exit=lambda code, codes=codes: (codes.append(code), ended.set())),
        )
        local_module._end_with.__wrapped__(run)
        assert ended.wait(timeout=30)
        assert (codes, seen) == ([1], looks)


@pytest.mark.simulations
def test_a_cell_whose_own_rows_are_damaged_leaves_the_run_incomplete_until_it_is_run_again(
    assay, suite_file, finished, timeless
):
    folder = assay(suite_file()).folder
    store = Store(folder)
    cell = next(row.cell_id for row in store.records() if row.role == "utility")
    damaged = store.cell_folder(cell) / "records.jsonl"
    damaged.write_bytes(damaged.read_bytes().replace(b"result-2", b"result-9"))
    told = say("resume", folder, "-j", 1)
    assert told.exit_code == 12
    rows = len(damaged.read_bytes().splitlines())
    assert f"gate   INCOMPLETE: 1 cell missing; {rows} rows that cannot be read (exit code 12)" in told.output
    assert f"of cell {cell}): " in told.output
    assert "'result-2'" in told.output
    assert "'result-9'" in told.output
    mended = say("resume", folder, "--retry-failed", "-j", 1)
    assert mended.exit_code == 0, mended.output
    assert timeless(store.records()) == timeless(finished.records)


@pytest.fixture
def own_handlers():
    """The handlers of signals that a test sets are those of the tests again afterwards."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    # Tests that run in the background of a script inherit an ignored Ctrl-C.
    for number, handler in zip(numbers, (signal.default_int_handler, signal.SIG_DFL), strict=True):
        signal.signal(number, handler)
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_handlers")
def test_ctrl_c_while_modules_load_is_one_word(monkeypatch, capsys):
    def find_spec(name, path=None, target=None):
        if name == "fedassay.cli.app":
            raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "fedassay.cli.app")
    monkeypatch.setattr(sys, "meta_path", [SimpleNamespace(find_spec=find_spec), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


SLEEPING = """(Path('hang').write_text(str(os.getpid())), time.sleep(120)) if not Path('go').exists() else None"""


@pytest.mark.processes
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    ("signals", "group", "code", "word"),
    [
        ([signal.SIGTERM], False, 143, "terminated"),
        ([signal.SIGTERM], True, 143, "terminated"),
        ([signal.SIGINT] * 5, True, 130, "interrupted"),
        ([signal.SIGTERM, signal.SIGINT, signal.SIGTERM], False, 143, "terminated"),
    ],
)
def test_a_run_that_is_stopped_by_signals_says_one_line_and_goes_on_later(
    suite_file, tmp_path, own_source, jobs, signals, group, code, word
):
    (tmp_path / "own_sleeping.py").write_text(own_source(SLEEPING))
    command = [sys.executable, "-m", "fedassay"]
    words = ["run", str(suite_file()), "-j", str(jobs), "-d", "own_sleeping:Mine", "-o", "run"]
    found = stopped_by([*command, *words], tmp_path, signals, group=group)
    assert found == (code, f"{word}. Finished cells are kept; go on with: fedassay resume run\n")
    goes_on([*command, "resume", "run", "-j", "1"], tmp_path)


PROGRAM = """import signal, sys
import fedassay

if __name__ == "__main__":
    suite, jobs, ending = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if ending == "exit":
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
    fedassay.run(suite, defenses=["own_sleeping:Mine"], jobs=jobs, folder="run")
"""


@pytest.mark.processes
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    ("number", "ending", "code"),
    [(signal.SIGTERM, "kill", -signal.SIGTERM), (signal.SIGTERM, "exit", 7), (signal.SIGINT, "kill", -signal.SIGINT)],
)
def test_a_program_that_calls_run_keeps_its_own_signals_and_every_finished_row(
    suite_file, tmp_path, own_source, jobs, number, ending, code
):
    (tmp_path / "own_sleeping.py").write_text(own_source(SLEEPING))
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [sys.executable, "program.py", str(suite_file()), str(jobs), ending]
    found, said = stopped_by(words, tmp_path, [number])
    assert found == code, said
    resume = "import fedassay\nif __name__ == '__main__': fedassay.resume('run', jobs=1).gate().raise_for_status()"
    goes_on([sys.executable, "-c", resume], tmp_path)


@pytest.mark.usefixtures("own_handlers")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_is_repeated_while_the_command_stops_is_ignored_and_later_not(monkeypatch, number, code):
    clock = iter([100.0, 100.5, 105.0, 120.0])
    monkeypatch.setattr(signals_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_DFL)
    signals_module.stop_once()
    stopped = []
    for _ in range(4):
        try:
            signal.raise_signal(number)
            stopped.append(None)
        except KeyboardInterrupt as error:
            stopped.append(signals_module.exit_code(error))
    assert stopped == [code, None, None, code]


@pytest.mark.usefixtures("own_handlers")
def test_signals_let_pythons_own_end_finish_and_end_it_where_it_hangs(monkeypatch):
    clock, ended = iter([100.0, 100.5, 105.0, 120.0]), []
    monkeypatch.setattr(signals_module, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(signals_module.os, "_exit", ended.append)
    signals_module.leave(SystemExit(130))
    counts = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
        signal.raise_signal(number)
        counts.append(len(ended))
    assert (counts, ended) == ([0, 0, 1], [130])
