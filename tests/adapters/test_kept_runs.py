"""A training loop as target: judged before it runs, kept run by run, resumed and extended with the same streams."""

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import fedassay
import numpy as np
import pytest
from fedassay.adapters import kept_runs
from fedassay.fl.folder_lock import locked

LOOPS = """\
import os
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


def nothing_but_nan(x, rng):
    rng.normal()
    return np.full(2, np.nan)


def named(x, rng):
    return (rng.normal(), "s")


def labels(x, rng):
    return str(rng.normal())


def few_labels(x, rng):
    return "a" * int(rng.integers(1, 4)) + "b" * (rng.random() < 0.05 + 0.9 * x)


def wider(x, rng):
    return np.zeros(3 + x) + rng.normal()


def a_dictionary(x, rng):
    return {"loss": rng.normal()}


def complex_numbers(x, rng):
    return complex(rng.normal(), 1)


def sentence(x, rng):
    raise RuntimeError("use the other one instead.")


def leaves(x, rng):
    if rng.random() < 0.2:
        try:
            os._exit(7)
        except Exception:
            pass
    return rng.normal()


def crashes(x, rng):
    if rng.random() < 0.05:
        os.kill(os.getpid(), 9)
    return rng.normal()


async def waits(x, rng):
    return rng.normal()


def alone(x):
    return x


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
    assert "no trial was run: at least --trials 16 are needed" in result.stdout
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


def test_a_run_whose_file_was_changed_is_named_and_made_again(say, loops):
    say("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here")
    before, damaged = kept(loops / "here"), loops / "here/input0/run000003.npy"
    assert np.load(damaged).shape == ()
    contents = (damaged.read_bytes().replace(b"\x3f", b"\x3e"), damaged.read_bytes()[:-40], b"")
    for content in contents:
        damaged.write_bytes(content)
        result = say("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here")
        assert "run000003.npy was changed or damaged" in result.stdout
        assert kept(loops / "here") == before
    # Nothing that was kept is lost.
    aside = [damaged.with_suffix(f".changed{number}") for number in ("", 1, 2)]
    assert tuple(one.read_bytes() for one in aside) == contents


def test_a_run_of_another_input_and_one_behind_a_link_are_not_used(say, loops):
    say("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here")
    before, one, other = kept(loops / "here"), *(loops / f"here/input{arm}/run000003.npy" for arm in (0, 1))
    one.write_bytes(other.read_bytes())
    assert "run000003.npy was changed" in say("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here").stdout
    assert kept(loops / "here") == before
    (loops / "here/input1").rename(loops / "outside")
    (loops / "here/input1").symlink_to(loops / "outside")
    other.write_bytes(b"precious")
    result = say("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here")
    assert (result.exit_code, "leads out of the folder" in result.stderr) == (2, True)
    assert other.read_bytes() == b"precious"


def test_a_kept_run_with_a_right_checksum_and_other_content_is_not_used(say, loops):
    training = kept_runs.KeptTraining(target="loops.py:honest", inputs=("0", "1"), seed=0)
    path, again = Path("here/input0/run000003.npy"), ("audit", training.target, *ONE, "--trials", 30, "--keep", "here")
    say(*again)
    for array, words in ((np.array([None]), "is repeated, and"), (np.zeros(2), "000003.npy: float64 of shape (2,)")):
        content = io.BytesIO()
        np.save(content, array)
        path.write_bytes(content.getvalue() + kept_runs._seal(training, path, content.getvalue()))
        said = say(*again).output
        assert (words in said, "pickle" in said) == (True, False), said


def test_another_spelling_of_the_file_is_the_same_loop(say, loops):
    for target in ("loops.py:honest", "./loops.py:honest", loops / "loops.py:honest"):
        result = say("audit", target, *ONE, "--trials", 30, "--keep", "here")
        assert ("runs   60" in result.stdout, result.stderr) == (target == "loops.py:honest", "")
    (loops / "other").mkdir()
    (loops / "other/loops.py").write_text(LOOPS, encoding="utf-8")
    other = say("audit", "other/loops.py:honest", *ONE, "--trials", 30, "--keep", "here")
    assert "another training loop" in other.stderr


@pytest.mark.parametrize("name", ["training.json", "verdicts.json"])
@pytest.mark.parametrize("content", [b"", b"1", b"\xff", b"[" * 10**5, b'["forgotten"]', b'{"verdicts": []}'])
def test_a_damaged_list_of_facts_or_verdicts_is_refused_with_its_name(say, loops, name, content):
    (loops / "here").mkdir()
    (loops / "here/.training.json.77.part").write_text("left by a killed audit")
    say("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here")
    (loops / "here" / name).write_bytes(content)
    result = say("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    said = f"{name} was changed or damaged, so it is unknown to which audit the runs belong: name another folder"
    assert said in result.stderr or (name, content[:1]) == ("training.json", b"{")


def test_runs_whose_verdicts_are_lost_are_refused(say, loops):
    command = ("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here")
    say(*command)
    before = kept(loops / "here")
    (loops / "here/verdicts.json").unlink()
    again = say(*command)
    assert (again.exit_code, kept(loops / "here")) == (2, before)
    assert "verdicts.json is missing, but the folder holds runs" in again.stderr


def test_runs_in_a_folder_that_cannot_be_written_are_judged_again(say, loops, monkeypatch):
    command = ("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here")
    first = say(*command)

    def refused(folder):
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(kept_runs, "locked", refused)
    monkeypatch.setattr(kept_runs, "write_atomically", refused)
    assert say(*command).stdout == first.stdout.replace("runs   60, of which 0 are kept in here\n", "").replace(
        "".join(line for line in first.stdout.splitlines(keepends=True) if line.startswith("run ")), ""
    )


def test_an_interrupted_audit_has_spent_no_level(say, loops, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(kept_runs.KeptRuns, "outputs", Mock(side_effect=KeyboardInterrupt))
        assert say("audit", "loops.py:honest", *ONE, "--trials", 60, "--keep", "here").exit_code == 130
    again = say("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here", "--json")
    assert json.loads(again.stdout)["finding"]["measurement"]["alpha"] == 0.025


def test_a_second_audit_of_one_folder_is_refused_before_it_runs(say, loops):
    (loops / "here").mkdir()
    with locked(loops / "here"):
        second = say("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here")
    assert (second.exit_code, kept(loops / "here")) == (2, {})
    assert "another process is writing here" in second.stderr
    assert say("audit", "loops.py:honest", *ONE, "--trials", 30, "--keep", "here").exit_code != 2


def test_more_runs_extend_the_first_with_the_same_streams_and_share_alpha(say, loops):
    for trials, folder in ((40, "a"), (60, "a"), (60, "b")):
        say("audit", "loops.py:honest", *ONE, "--trials", trials, "--keep", folder)
    assert kept(loops / "a") == kept(loops / "b")
    looks = json.loads((loops / "a" / "verdicts.json").read_text())
    assert [json.loads(look)["trials"] for look in looks["verdicts"]] == [40, 60]
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
        ("fails", 1, "loops.py:fails raised RuntimeError: loss is NaN (loops.py, line 22: raise RuntimeError("),
        ("own_seed", 2, "returned the same output in 3 runs with different generators"),
        ("counts", 2, "returned another output when run 0 was repeated with the same generator"),
        ("grows", 2, "float64 of shape (1,) in run 0 on input 0: all outputs must have one type and shape"),
        ("wider", 2, "float64 of shape (4,) in run 0 on input 1, but float64 of shape (3,) in run 0 on input 0: all"),
        ("empty", 2, "must return numbers or strings, got nothing"),
        ("named", 2, "must return numbers or strings, got tuple of float and str"),
        ("a_dictionary", 2, "must return numbers or strings, got dict"),
        ("complex_numbers", 2, "must return numbers or strings, got complex of complex128"),
        ("nothing_but_nan", 2, "loops.py:nothing_but_nan returned only NaN in the first 16 runs: an audit needs"),
        (
            "labels",
            2,
            "loops.py:labels returned a different text in the first 26 runs: an audit needs outputs that are ",
        ),
        ("sentence", 1, "raised RuntimeError: use the other one instead. (loops.py, line"),
        ("leaves", 1, "loops.py:leaves ended its process by os._exit(7) in run"),
        ("waits", 2, "loops.py:waits is an async function"),
        ("alone", 2, "loops.py:alone must take two arguments"),
    ],
)
def test_a_loop_that_cannot_be_audited_ends_in_one_line(say, loops, name, code, words):
    result = say("audit", f"loops.py:{name}", *ONE, "--trials", 60, "--keep", "here")
    assert (result.exit_code, words in result.stderr, result.stderr.count("\n")) == (code, True, 1), result.output
    # Nothing that could be used after all is thrown away, and few runs are made for nothing.
    made = len(kept(loops / "here"))
    assert made <= 30
    assert not made or "Finished runs are kept in here" in result.stderr or name in ("own_seed", "counts")


def test_texts_that_repeat_are_outputs(say, loops):
    assert say("audit", "loops.py:few_labels", *ONE, "--trials", 60, "--keep", "here").exit_code == 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork processes")
def test_a_process_that_the_loop_forks_itself_ends_as_usual():
    with kept_runs.refused_exit():
        if (child := os.fork()) == 0:
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        with pytest.raises(kept_runs.ExitedProcess, match=r"os._exit\(4\)"):
            os._exit(4)


@pytest.mark.processes
def test_a_worker_process_that_dies_ends_in_one_line_and_keeps_its_runs(loops):
    environment = os.environ | {"PYTHONPATH": str(Path(fedassay.__file__).parents[1])}
    words = ["audit", "loops.py:crashes", *map(str, ONE), "--trials", "60", "--keep", "here", "-j", "2"]
    command = [sys.executable, "-m", "fedassay", *words]
    # By this seed, none of the runs that the command makes in its own process ends it.
    done = subprocess.run(command, cwd=loops, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "a process that ran loops.py:crashes died, perhaps for lack of memory" in done.stderr
    assert "Finished runs are kept in here" in done.stderr
    assert kept(loops / "here")


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
@pytest.mark.long
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
