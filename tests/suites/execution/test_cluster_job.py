"""What a worker of a cluster checks before it does a job, without a cluster: the job is done in this process."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import pytest
from fedassay.suites.config.source import ConfigError
from fedassay.suites.execution import clusters as cluster_job
from fedassay.suites.execution.backend import ClusterError, Done
from fedassay.suites.execution.clusters import chosen_backend
from fedassay.suites.results.store import SESSION, Store, UnwritableRunFolder


@dataclass(frozen=True)
class Job:
    """A job of a test: a function of the store, without cells."""

    work: Callable[[Store], list[str]]
    cells = ()

    def run(self, store, finished):
        return self.work(store)


def writes(store):
    store.save_text("cell", "log.txt", "written")
    return ["a failure"]


def fails(store):
    raise UnwritableRunFolder(28, "No space left on device", str(store.folder))


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path).session() as shared:
        yield shared


@pytest.fixture(autouse=True)
def fresh_worker(monkeypatch):
    """A worker that has loaded nothing, whose import path is restored."""
    monkeypatch.setattr(cluster_job, "_LOADED", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    cluster_job._begun.cache_clear()


def sent(store, job=writes, **changes):
    return replace(cluster_job.packed([Job(job)], store)[0], **changes)


def test_a_job_is_done_with_the_senders_import_path_first_and_returns_its_failures(store, tmp_path):
    sys.path.insert(0, "relative")
    packed = sent(store)
    sys.path[:] = ["/of/the/worker"]
    done = cluster_job.do(packed)
    assert isinstance(done, Done), done
    assert (done.index, done.failed) == (0, ["a failure"])
    assert done.worker.startswith(f"{os.getpid()} on ")
    assert sys.path == [*packed.imports, "/of/the/worker"]
    assert sys.path[0] == str(Path("relative").absolute())
    assert (tmp_path / "cells" / "cell" / "log.txt").read_text() == "written"


def test_an_error_that_stops_the_run_comes_back_as_a_result(store):
    error = cluster_job.do(sent(store, fails))
    assert isinstance(error, UnwritableRunFolder)
    assert error.errno == 28


def test_a_worker_that_does_not_see_the_folder_or_whose_session_has_ended_refuses(tmp_path):
    with Store(tmp_path).session() as store:
        packed = sent(store)
        (tmp_path / SESSION).rename(tmp_path / "elsewhere")
        assert isinstance(unseen := cluster_job.do(packed), ClusterError)
    with Store(tmp_path).session():
        assert isinstance(late := cluster_job.do(packed), ClusterError)
    assert all("does not see the run's folder" in str(error) for error in (unseen, late))
    assert not (tmp_path / "cells").exists()


def test_a_worker_that_outlives_its_session_can_write_no_more(tmp_path):
    with Store(tmp_path).session() as first:
        first.save_text("cell", "log.txt", "first")
    with Store(tmp_path).session() as second:
        for write, what in ((first.finish, [[]]), (first.discard, ["log.txt"]), (first.save_text, ["log.txt", "late"])):
            with pytest.raises(UnwritableRunFolder, match="has ended"):
                write("cell", *what)
        second.save_text("cell", "log.txt", "second")
    assert (tmp_path / "cells" / "cell" / "log.txt").read_text() == "second"
    assert not (tmp_path / SESSION).exists()


def test_a_worker_with_other_versions_refuses_and_names_them(store):
    packed = sent(store)
    other = cluster_job.do(sent(store, versions={**packed.versions, "torch": "0.1"}))
    assert isinstance(other, ClusterError)
    assert "torch" in str(other)
    assert "0.1" in str(other)
    assert isinstance(cluster_job.do(packed), Done)


SOURCE = "def count(store):\n    return ['{word}']\n"


@pytest.mark.parametrize("place", ["the same file", "another file"])
def test_a_worker_that_has_loaded_other_code_under_the_same_name_refuses(store, own_module, tmp_path, place):
    name = own_module(SOURCE.format(word="old"))
    old = sys.modules[name] = __import__(name)
    assert cluster_job.do(sent(store, old.count)).failed == ["old"]
    file = tmp_path / "own" / f"{name}.py"
    if place == "another file":
        (tmp_path / "other").mkdir()
        file = tmp_path / "other" / f"{name}.py"
        old.__file__ = str(file)
    file.write_text(SOURCE.format(word="newer"))
    error = cluster_job.do(sent(store, old.count))
    assert isinstance(error, ClusterError)
    assert name in str(error)


def test_a_worker_that_loaded_a_changed_module_which_the_sender_never_loads_refuses(own_module, tmp_path):
    """A part may import it when it runs: the first run loads it on the worker, and it changes before the second."""
    name = own_module("WORD = 'old'\n")
    for word, expected in (("old", Done), ("newer", ClusterError)):
        (tmp_path / "own" / f"{name}.py").write_text(f"WORD = '{word}'\n")
        sys.modules.pop(name, None)
        with Store(tmp_path).session() as store:
            packed = sent(store)
            __import__(name)
            assert isinstance(cluster_job.do(packed), expected)


@pytest.mark.simulations
@pytest.mark.parametrize("name", ["__main__", "__mp_main__"])
def test_the_program_of_a_worker_may_be_another_than_that_of_the_run(store, monkeypatch, tmp_path, name):
    for file in ("run.py", "worker.py"):
        (tmp_path / file).write_text(f"NAME = {file!r}\n")
    packed = []
    for file in ("run.py", "worker.py"):
        program = ModuleType(name)
        program.__file__ = str(tmp_path / file)
        monkeypatch.setitem(sys.modules, name, program)
        packed = packed or [sent(store)]
    assert isinstance(cluster_job.do(packed[0]), Done)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("dusk", {}, "unknown backend 'dusk'; known: dask"),
        ("local", {"address": "tcp://here:1"}, "address must be"),
        ("dask", {"address": ""}, "address must be"),
        ("dask", {"address": "tcp://here:1", "jobs": 2}, "with the address of a cluster, which has its own"),
    ],
)
def test_a_backend_that_cannot_be_chosen_is_refused(name, given, words):
    with pytest.raises(ConfigError, match=words):
        chosen_backend(name, **given)


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_without_the_extra_the_error_names_the_command_that_installs_it(say, suite_file, monkeypatch, tmp_path, name):
    monkeypatch.setattr("fedassay.suites.execution.clusters.find_spec", lambda module: None)
    out = say("run", suite_file(), "--backend", name, "-o", tmp_path / "run")
    assert out.exit_code == 2
    assert f'pip install "fedassay[{name}]"' in out.stderr.replace("\n", " ")
    assert not (tmp_path / "run").exists()
