"""Ctrl-C at any time, and cells whose own files were damaged: the run says so, and going on mends it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fedassay.__main__ import main
from fedassay.cli import errors as signals_module
from fedassay.cli.app import app
from fedassay.suites.execution import backend as local_module
from fedassay.suites.results import store as store_module
from fedassay.suites.results.store import Store
from typer.testing import CliRunner


def is_running(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def hears_ctrl_c():
    """Whoever starts the tests in the background of a script has them ignore it, and all that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until_it_hangs(process, place):
    """Return once the part of the run's own sleeps, of which the file ``hang`` holds the process."""
    deadline = time.monotonic() + 120
    while not (place / "hang").exists() or not (place / "hang").read_text():
        assert process.poll() is None, "the run ended before it could be stopped"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ends(worker):
    """A worker that computed on would write at the same time as the resumed run."""
    deadline = time.monotonic() + 30
    while is_running(worker):
        assert time.monotonic() < deadline, "a worker outlives its run"
        time.sleep(0.1)


def say(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize("left", [9, 27, *(pytest.param(left, marks=pytest.mark.simulations) for left in (2, 19))])
def test_ctrl_c_at_any_write_ends_with_130_and_the_run_can_go_on(
    suite_file, finished, monkeypatch, tmp_path, timeless, left
):
    folder, writes = tmp_path / "run", iter(range(1000))
    with monkeypatch.context() as patched:
        for owner, name, real in (
            (store_module, "_write_atomically", store_module._write_atomically),
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


LOADING = """import os, sys, time
from pathlib import Path
if "Loky" in " ".join(sys.orig_argv):
    Path("hang").write_text(str(os.getpid()))
    time.sleep(120)
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("busy", "jobs"),
    [
        ("working", 1),
        pytest.param("working", 2, marks=pytest.mark.processes),
        pytest.param("loading", 2, marks=pytest.mark.processes),
    ],
)
def test_ctrl_c_at_a_terminal_ends_the_run_and_its_workers(suite_file, tmp_path, own_source, busy, jobs):
    hang = "(Path('hang').write_text(str(os.getpid())), time.sleep(120)) if True else None"
    (tmp_path / "own_sleeping.py").write_text(own_source(hang if busy == "working" else "None"))
    if busy == "loading":
        (tmp_path / "sitecustomize.py").write_text(LOADING)
    words = ["run", str(suite_file()), "-j", str(jobs), "-d", "own_sleeping:Mine", "-o", "run"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fedassay", *words],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        start_new_session=True,
        preexec_fn=hears_ctrl_c,
    )
    try:
        wait_until_it_hangs(process, tmp_path)
        # A terminal sends it to the run and to its workers alike.
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, said
    assert said == "interrupted. Finished cells are kept; go on with: fedassay resume run\n"
    assert not (tmp_path / "run" / "gate.json").exists()
    worker = int((tmp_path / "hang").read_text())
    assert (worker == process.pid) == (jobs == 1)
    ends(worker)


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
    options = {
        "cwd": tmp_path,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "env": {**os.environ, "OMP_NUM_THREADS": "1"},
    }
    words = ["run", str(suite_file()), "-j", str(jobs), "-d", "own_sleeping:Mine", "-o", "run"]
    process = subprocess.Popen([*command, *words], start_new_session=True, preexec_fn=hears_ctrl_c, **options)
    try:
        wait_until_it_hangs(process, tmp_path)
        for number in signals:
            (os.killpg if group else os.kill)(process.pid, number)
            time.sleep(0.1)
        _, said = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, said) == (
        code,
        f"{word}. Finished cells are kept; go on with: fedassay resume run\n",
    )
    worker = int((tmp_path / "hang").read_text())
    ends(worker)
    kept = Store(tmp_path / "run").finished()
    (tmp_path / "go").touch()
    again = subprocess.run([*command, "resume", "run", "-j", "1"], check=False, timeout=120, **options)
    assert again.returncode == 0, again.stderr
    rows = Store(tmp_path / "run").records()
    assert not any(row.status == "failed" for row in rows)
    assert kept <= {row.cell_id for row in rows}


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
    options = {"cwd": tmp_path, "env": {**os.environ, "OMP_NUM_THREADS": "1"}, "stderr": subprocess.PIPE, "text": True}
    words = [sys.executable, "program.py", str(suite_file()), str(jobs), ending]
    process = subprocess.Popen(words, start_new_session=True, preexec_fn=hears_ctrl_c, **options)
    try:
        wait_until_it_hangs(process, tmp_path)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == code, said
    ends(int((tmp_path / "hang").read_text()))
    kept = Store(tmp_path / "run").finished()
    assert kept
    (tmp_path / "go").touch()
    resume = "import fedassay\nif __name__ == '__main__': fedassay.resume('run', jobs=1).gate().raise_for_status()"
    again = subprocess.run([sys.executable, "-c", resume], check=False, timeout=120, **options)
    assert again.returncode == 0, again.stderr
    rows = Store(tmp_path / "run").records()
    assert not any(row.status == "failed" for row in rows)
    assert kept < {row.cell_id for row in rows}


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
