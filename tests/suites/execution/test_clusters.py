"""Runs on local Dask and Ray clusters of two workers: the records of a run in one process, whatever happens there."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import fedassay
import pytest
from fedassay.suites.config.source import ConfigError
from fedassay.suites.execution.backend import ClusterError
from fedassay.suites.results.store import Store
from run_files import results

pytestmark = pytest.mark.processes
BACKENDS = ("dask", "ray")
ONCE = """if {condition}:
            seen = Path(os.environ['FEDASSAY_SEEN'])
            seen.with_name(f'{{seen.name}}.{{os.getpid()}}').touch()
            {deed}"""
"""What a part of the test's own does in each round: it notes the process, and may end or stop it."""


@pytest.fixture(params=BACKENDS)
def backend(request):
    module = {"dask": "distributed", "ray": "ray"}[request.param]
    pytest.importorskip(module, reason=f"the extra is not installed: pip install 'fedassay[{request.param}]'")
    return request.param


@pytest.fixture
def seen(tmp_path, monkeypatch):
    """() -> the processes in which the part of the test's own has run."""
    monkeypatch.setenv("FEDASSAY_SEEN", str(tmp_path / "seen"))
    return lambda: {int(path.suffix[1:]) for path in tmp_path.glob("seen.*")}


def test_a_cluster_gives_the_records_of_one_process_and_the_manifest_names_it(
    assay, suite_file, finished, timeless, backend
):
    run = assay(suite_file(), backend=backend, jobs=2)
    assert timeless(run.records) == timeless(finished.records)
    assert run.verdict == finished.verdict
    assert json.loads((run.folder / "manifest.json").read_text())["backends"] == [backend]
    assert not (run.folder / ".session").exists()


def test_a_worker_that_is_killed_loses_its_cell_only_and_that_is_run_again(
    assay, suite_file, own_defense, timeless, backend, seen, tmp_path
):
    """The first process that trains with the part ends in the middle of it; so each cell is computed all the same."""
    body = ONCE.format(
        condition="not Path(os.environ['FEDASSAY_SEEN']).exists()", deed="seen.touch(); os.kill(os.getpid(), 9)"
    )
    module = own_defense(body)
    run = assay(suite_file(), defenses=[f"{module}:Mine"], backend=backend, jobs=2)
    assert (tmp_path / "seen").exists(), "no worker was killed"
    assert len(seen()) == 1
    assert run.verdict.exit_code == 0
    (tmp_path / "seen").touch()
    here = assay(suite_file(), defenses=[f"{module}:Mine"])
    assert timeless(run.records) == timeless(here.records)
    assert len(results(run.folder)) == len(set(results(run.folder)))


def test_a_cell_that_kills_every_worker_stops_no_other_and_is_left_for_resume_on_another_backend(
    suite_file, own_defense, finished, timeless, backend, seen, tmp_path
):
    body = ONCE.format(condition="not Path(os.environ['FEDASSAY_SEEN']).exists()", deed="os.kill(os.getpid(), 9)")
    module = own_defense(body)
    folder = tmp_path / "run"
    with pytest.raises(ClusterError, match="every worker that tried a cell died"):
        fedassay.run(str(suite_file()), defenses=[f"{module}:Mine"], backend=backend, jobs=2, folder=folder)
    assert len(seen()) == 4  # The first try and three more.
    done = {row.cell_id for row in Store(folder).records()}
    (tmp_path / "seen").touch()
    run = fedassay.resume(folder, jobs=1, report=False)
    assert run.verdict.exit_code == 0
    rest = {row.attack for row in run.records if row.defense == "Mine" and row.cell_id not in done}
    assert rest == {"training", "loss", "random_scores"}
    others = [row for row in run.records if row.defense != "Mine" and row.cell_id in done]
    known = timeless(finished.records)
    assert [row["value"] for row in timeless(others)] == [row["value"] for row in known if row["cell_id"] in done]
    assert json.loads((folder / "manifest.json").read_text())["backends"] == [backend, "local"]


@pytest.fixture
def running(backend):
    """The options of a run on a worker that runs already, and goes on after the run."""
    if backend == "dask":
        from distributed import LocalCluster

        with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
            yield {"backend": backend, "address": cluster.scheduler_address}
            assert len(cluster.scheduler.workers) == 1
    else:
        import ray

        ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
        yield {"backend": backend}
        assert ray.is_initialized()
        ray.shutdown()


def test_workers_that_run_already_serve_several_runs_but_none_with_a_part_that_changed_after_they_loaded_it(
    assay, suite_file, own_source, own_module, finished, timeless, running
):
    module = own_module(own_source("None"))
    first = assay(suite_file(), defenses=[f"{module}:Mine"], jobs=None, **running)
    assert first.verdict.exit_code == 0
    assert timeless(assay(suite_file(), jobs=None, **running).records) == timeless(finished.records)
    own_module(own_source("aggregate = 2 * aggregate"), name=module)
    with pytest.raises(ClusterError, match=f"has loaded {module}, which has changed since"):
        assay(suite_file(), defenses=[f"{module}:Mine"], jobs=None, **running)


@pytest.mark.parametrize("scheme", ["", "nonsense://"])
def test_an_address_at_which_no_cluster_answers_is_a_mistake_before_the_folder_is_made(
    suite_file, tmp_path, backend, scheme
):
    with ExitStack() as opened:
        if backend == "dask":
            import dask

            opened.enter_context(dask.config.set({"distributed.comm.timeouts.connect": "2s"}))
        unused = opened.enter_context(socket.socket())  # Bound, and never listening.
        unused.bind(("127.0.0.1", 0))
        address = f"{scheme}127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"no .* answers at {address}"):
            fedassay.run(str(suite_file()), backend=backend, address=address, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_workers_and_the_run_goes_on_upon_another_backend(
    suite_file, own_source, tmp_path, backend, seen, number, code
):
    hang = ONCE.format(condition="not Path('go').exists()", deed="time.sleep(600)")
    (tmp_path / "own_sleeping.py").write_text(own_source(hang))
    words = [sys.executable, "-m", "fedassay"]
    options = {"cwd": tmp_path, "env": {**os.environ, "OMP_NUM_THREADS": "1"}, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(
        [*words, "run", str(suite_file()), "-d", "own_sleeping:Mine", "-o", "run", "--backend", backend, "-j", "2"],
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )
    try:
        _wait(lambda: seen() or process.poll() is not None)
        # A terminal sends Ctrl-C to the workers too.
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        _, said = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == code, said
    assert "go on with: fedassay resume run" in said
    _wait(lambda: not any(Path(f"/proc/{worker}").exists() for worker in seen()))
    kept = Store(tmp_path / "run").finished()
    (tmp_path / "go").touch()
    other = next(one for one in ("local", *BACKENDS) if one != backend)
    resume = [*words, "resume", "run", "-j", "1", "--backend", other]
    again = subprocess.run(resume, check=False, timeout=240, **options)
    assert again.returncode == 0, again.stderr
    assert kept <= {row.cell_id for row in Store(tmp_path / "run").records()}


def _wait(condition):
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
