"""A training loop as target: judged before it runs, kept run by run, resumed and extended with the same streams."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import fedassay
import numpy as np
import pytest
from fedassay.cli import kept_runs

LOOPS = """\
import random
import time

import numpy as np


def leaky(x, rng):
    return np.array([rng.normal(), rng.normal() + 8 * x])


def honest(x, rng):
    return rng.laplace() + x


def by_global_generators(x, rng):
    return random.gauss(0, 1) + np.random.normal() + 9 * x


def fails(x, rng):
    if x and rng.random() < 0.5:
        raise RuntimeError("loss is NaN")
    return rng.normal()


def own_seed(x, rng):
    return np.random.default_rng(0).normal() + x


def counts(x, rng, calls=[0]):
    calls[0] += 1
    return rng.normal() + calls[0]


def grows(x, rng):
    return np.zeros(1 + (rng.random() < 0.3)) + rng.normal()


def empty(x, rng):
    pass


def diverges(x, rng):
    return float("nan") if rng.random() < 0.5 + 0.5 * x else rng.normal()


def slow(x, rng):
    time.sleep(0.05)
    return rng.normal() + 8 * x
"""
CLAIM = ("--epsilon", 1, "--delta", 1e-5, "--unit", "sample", "--adjacency", "add_remove", "--observer", "final_model")
ONE = ("--inputs", 0, 1, *CLAIM)


@pytest.fixture
def loops(tmp_path):
    (tmp_path / "loops.py").write_text(LOOPS, encoding="utf-8")
    kept_runs._function.cache_clear()
    yield tmp_path
    sys.modules.pop("loops", None)


def kept(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.glob("input?/*.npy"))}


@pytest.mark.simulations
def test_too_few_runs_are_named_before_the_first(say, loops):
    result = say("audit", "loops.py:leaky", *ONE, "--trials", 8, "--keep", "here")
    assert result.exit_code == 11
    assert "no trial was run, because at least --trials 16 are needed" in result.stdout
    result = say("audit", "loops.py:leaky", "--inputs", 0, 1, "--epsilon", 4, "--trials", 40, "--keep", "here")
    assert result.exit_code == 11
    least = int(result.stdout.partition("at least --trials ")[2].partition(" ")[0].replace(",", ""))
    assert not (loops / "here").exists()
    enough = say("audit", "loops.py:leaky", "--inputs", 0, 1, "--epsilon", 4, "--trials", least, "--keep", "here")
    assert "at least" not in enough.stdout


def test_a_leak_is_refuted_and_every_run_is_kept(say, loops):
    result = say("audit", "loops.py:leaky", *ONE, "--trials", 60)
    assert result.exit_code == 10, result.output
    (folder,) = (loops / "runs").iterdir()
    assert len(kept(folder)) == 120
    assert "alpha 0.025" in result.stdout
    first = kept(folder)
    assert (
        say("audit", "loops.py:leaky", *ONE, "--trials", 60).stdout.splitlines()[-1] == result.stdout.splitlines()[-1]
    )
    assert kept(folder) == first


def test_more_runs_extend_the_first_with_the_same_streams_and_share_alpha(say, loops):
    for trials, folder in ((40, "a"), (60, "a"), (60, "b")):
        say("audit", "loops.py:honest", *ONE, "--trials", trials, "--keep", folder)
    assert kept(loops / "a") == kept(loops / "b")
    looks = json.loads((loops / "a" / "verdicts.json").read_text())
    assert [json.loads(look)["trials"] for look in looks] == [40, 60]
    again = say("audit", "loops.py:honest", *ONE, "--trials", 60, "--keep", "a", "--json")
    assert json.loads(again.stdout)["finding"]["measurement"]["alpha"] == 0.0125


def test_global_generators_are_seeded_and_restored(say, loops):
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    for folder in "ab":
        assert say("audit", "loops.py:by_global_generators", *ONE, "--trials", 60, "--keep", folder).exit_code == 10
    assert kept(loops / "a") == kept(loops / "b")
    assert len(set(kept(loops / "a").values())) == 120
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("fails", 1, "loops.py:fails raised RuntimeError: loss is NaN (loops.py, line 21: raise RuntimeError("),
        ("own_seed", 2, "returned the same output in 3 runs with different generators"),
        ("counts", 2, "returned another output when run 0 was repeated with the same generator"),
        ("grows", 1, "in run 0 (all outputs must have one type and shape)"),
        ("empty", 1, "must return numbers or strings, got nothing"),
    ],
)
def test_a_loop_that_cannot_be_audited_ends_in_one_line(say, loops, name, code, words):
    result = say("audit", f"loops.py:{name}", *ONE, "--trials", 60, "--keep", "here")
    assert (result.exit_code, words in result.stderr, result.stderr.count("\n")) == (code, True, 1), result.output


def test_outputs_that_are_not_finite_are_outputs(say, loops):
    assert say("audit", "loops.py:diverges", *ONE, "--trials", 200, "--keep", "here").exit_code == 10


def test_runs_of_other_code_are_not_mixed(say, loops):
    say("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here")
    (loops / "loops.py").write_text(LOOPS.replace("rng.laplace()", "2 * rng.laplace()"), encoding="utf-8")
    sys.modules.pop("loops", None)
    kept_runs._function.cache_clear()
    result = say("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here")
    assert (result.exit_code, "here holds runs of another training loop (source_sha256" in result.stderr) == (2, True)
    result = say("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", ".")
    assert (result.exit_code, "is not empty and holds no runs of a training loop" in result.stderr) == (2, True)


@pytest.mark.processes
def test_a_killed_audit_goes_on_and_two_processes_give_the_same_runs(loops):
    environment = os.environ | {"PYTHONPATH": str(Path(fedassay.__file__).parents[1])}
    words = [*map(str, ONE), "--trials", "60", "--keep"]

    def command(*more):
        return [sys.executable, "-m", "fedassay", "audit", "loops.py:slow", *words, *more]

    begun = subprocess.Popen(command("a"), cwd=loops, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while len(kept(loops / "a")) < 10 and time.monotonic() < deadline:
        time.sleep(0.1)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    before = kept(loops / "a")
    assert 10 <= len(before) < 120
    assert subprocess.run(command("a"), cwd=loops, env=environment, check=False).returncode == 10
    assert subprocess.run(command("b", "-j", "2"), cwd=loops, env=environment, check=False).returncode == 10
    after = kept(loops / "a")
    assert {name: after[name] for name in before} == before
    assert after == kept(loops / "b")
