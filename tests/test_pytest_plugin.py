"""The plugin in a pytest of its own: what passes, what fails with which words, what is kept, and other processes."""

import importlib.util
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import fedassay
import pytest

PLUGIN = "fedassay.pytest_plugin"
GATED = """
def test_it(fedassay_gate):
    fedassay_gate("tiny.toml", jobs=1)
"""
AUDITED = """
import fedassay

CLAIM = fedassay.Claim.stated(epsilon=1.0, unit="report", adjacency="replace_one")


def noisy(x, rng):
    return x + {scale} * rng.laplace(size=x.shape)


def test_it(fedassay_audit):
    finding = fedassay_audit(noisy, CLAIM, inputs=(0.0, 1.0), trials=20_000, batched=True)
    assert finding.measurement.epsilon_low > 0.5
"""


@pytest.fixture
def pytest_of_ones_own(tmp_path, tiny):
    """(test code, words) -> exit code and output of pytest in a folder with a small suite."""
    (tmp_path / "tiny.toml").write_text(tiny, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n", encoding="utf-8")
    installed = any(point.value == PLUGIN for point in entry_points(group="pytest11"))

    def run(code, *words):
        (tmp_path / "test_own.py").write_text(code, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *([] if installed else ["-p", PLUGIN])]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
        environment |= {"PYTHONPATH": str(Path(fedassay.__file__).parents[1])}
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_a_gate_that_is_fine_passes_and_its_line_is_in_the_summary(pytest_of_ones_own, tmp_path):
    code, said = pytest_of_ones_own(GATED, f"--fedassay-report={tmp_path / 'kept'}", "--strict-markers")
    assert code == 0, said
    assert "test_own.py::test_it: OK: 1 claims NOT REFUTED" in said
    (kept,) = (tmp_path / "kept").iterdir()
    assert (kept / "report.html").is_file()


def test_a_gate_that_is_not_fine_fails_with_its_reasons_unless_it_is_told_to_let_them_be(pytest_of_ones_own):
    weak = GATED.replace("jobs=1", 'jobs=1, overrides=["audit.replicas=4"]')
    code, said = pytest_of_ones_own(weak)
    assert code == 1
    assert "INCONCLUSIVE: claims that this run cannot judge: ldp_gaussian" in said
    assert "Traceback" not in said
    code, said = pytest_of_ones_own(weak.replace("jobs=1", 'jobs=1, fail_on=["fail"]'))
    assert code == 0, said
    assert "test_own.py::test_it: OK: nothing that is failed on (not failed on: INCONCLUSIVE: " in said


def test_a_baseline_is_asked_for_accepted_and_then_held_against(pytest_of_ones_own, tmp_path):
    gated = GATED.replace("jobs=1", 'jobs=1, seeds=2, fail_on=["fail", "incomplete"], baseline="baselines/main"')
    code, said = pytest_of_ones_own(gated)
    assert code == 1
    assert "INCOMPLETE: " in said
    assert "--accept" in said
    code, said = pytest_of_ones_own(gated, "--fedassay-accept")
    assert code == 0, said
    assert (tmp_path / "baselines" / "main.json").is_file()
    code, said = pytest_of_ones_own(gated)
    assert code == 0, said
    assert "cells worse than the baseline" in said


def test_options_of_the_marker_are_the_defaults_and_unknown_ones_are_told(pytest_of_ones_own):
    marked = "import pytest\n\n@pytest.mark.fedassay(seeds=2)" + GATED
    code, said = pytest_of_ones_own(marked.replace("jobs=1", 'jobs=1, fail_on=["fail"]'), "--strict-markers")
    assert code == 0, said
    code, said = pytest_of_ones_own(GATED.replace("jobs", "job"))
    assert code == 1
    assert "fedassay_gate knows seeds, seed, jobs, overrides and device, got job" in said


def test_a_mistake_is_told_in_one_sentence_below_the_tests_own_line(pytest_of_ones_own):
    mistakes = {
        'fedassay_gate("nix.toml")': "nix.toml",
        'fedassay_gate("tiny.toml", sedes=2)': "got sedes",
        'fedassay_gate("tiny.toml", seeds=0)': "seeds",
        'fedassay_gate("tiny.toml", jobs=1, margins={"auk": 0.1})': "auk",
        "fedassay_audit(print, None, trails=2)": "unexpected keyword argument 'trails'",
    }
    tests = [f"def test_{number}(fedassay_gate, fedassay_audit):\n    {call}\n" for number, call in enumerate(mistakes)]
    code, said = pytest_of_ones_own("\n\n".join(tests))
    assert code == 1
    shown = re.split(r"^_+ test_\d _+$", said.partition("short test summary")[0], flags=re.MULTILINE)[1:]
    for sentence, text in zip(mistakes.values(), shown, strict=True):
        assert sentence in text
        assert re.findall(r"^(\S+\.py):\d+: ", text, re.MULTILINE) == ["test_own.py"], text


@pytest.mark.parametrize(("scale", "code", "words"), [(1.1, 0, "NOT REFUTED"), (0.5, 1, "FAIL: claims REFUTED: noisy")])
def test_a_mechanism_is_audited(scale, code, words, pytest_of_ones_own):
    """Laplace of scale 1.1 keeps epsilon .91; of .5 it keeps 2."""
    found, said = pytest_of_ones_own(AUDITED.format(scale=scale))
    assert found == code, said
    assert words in said


def test_tests_that_run_federations_can_be_left_out(pytest_of_ones_own):
    code, said = pytest_of_ones_own(GATED + "\ndef test_other():\n    pass\n", "-m", "not fedassay")
    assert code == 0
    assert "1 passed, 1 deselected" in said


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_other_processes_tell_the_same(pytest_of_ones_own):
    two = GATED.replace("jobs=1", 'fail_on=["fail"]') + GATED.replace("test_it", "test_too").replace(
        "jobs=1", 'fail_on=["fail"], seed=1'
    )
    code, said = pytest_of_ones_own(two, "-n", "2")
    assert code == 0, said
    for name in ("test_it", "test_too"):
        assert f"test_own.py::{name}: OK: 1 claims NOT REFUTED" in said


def test_the_plugin_costs_every_other_pytest_nothing():
    heavy = "[name for name in ('torch', 'numpy', 'pandas', 'matplotlib', 'pydantic') if name in sys.modules]"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, pytest, fedassay.pytest_plugin; print({heavy})"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
