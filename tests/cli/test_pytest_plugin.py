"""The plugin in a pytest of its own: what passes, what fails with which words, what is kept, and other processes."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from fedassay.cli import pytest_plugin
from fedassay.reports.formats import write as write_module
from fedassay.suites.config.source import ConfigError

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
def project(tmp_path, tiny):
    """(test code) -> a folder with that test, a small suite, and the same suite without its claim, which is faster."""
    audited = "[defenses.ldp_gaussian]\ndelta = 1e-5\nepsilon = 4.0\n"
    assert audited in tiny
    (tmp_path / "tiny.toml").write_text(tiny, encoding="utf-8")
    (tmp_path / "plain.toml").write_text(tiny.replace(audited, ""), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n", encoding="utf-8")

    def write(code):
        (tmp_path / "test_own.py").write_text(code, encoding="utf-8")
        return tmp_path

    return write


@pytest.fixture
def own_pytest(project, inner_pytest, monkeypatch):
    """(test code, words) -> exit code and output of pytest on it, in this process, without the pages of its runs.

    Drawing them costs more than the runs do; one test below has them drawn.
    """
    monkeypatch.setattr(write_module, "write_report", lambda *arguments, **options: None)
    return lambda code, *words: inner_pytest(project(code), *words)


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize("where", ["here", "in a process of its own"])
def test_a_gate_that_is_fine_passes_and_its_line_is_in_the_summary(inner_pytest, project, python_m, tmp_path, where):
    words = [f"--fedassay-report={tmp_path / 'kept'}", "--strict-markers"]
    code, said = inner_pytest(project(GATED), *words) if where == "here" else python_m(project(GATED), "pytest", *words)
    assert code == 0, said
    assert "test_own.py::test_it: OK: 1 claim NOT REFUTED" in said
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.name.startswith("test_own.py-test_it-")
    assert (kept / "report.html").is_file()


SIGNS = """
import pytest

LONG = "x" * 120


@pytest.mark.parametrize("name", ["a/b", "a:b", "a?b", "A/B", LONG, "y" + LONG])
def test_gate(fedassay_gate, name):
    fedassay_gate("plain.toml", fail_on=["fail"], jobs=1, overrides=["seeds=1"])
"""


def assert_kept_six(kept):
    kept = [path.name for path in kept.iterdir() if (path / "gate.json").is_file()]
    assert len(kept) == len({name.lower() for name in kept}) == 6
    assert not [name for name in kept if re.search(r"\.\d+$", name)], "named by what they are, not by who came first"
    assert all(len(name.encode()) < 130 for name in kept)


@pytest.mark.simulations
def test_tests_whose_names_differ_in_signs_capitals_or_their_beginning_keep_runs_of_their_own(own_pytest, tmp_path):
    code, said = own_pytest(SIGNS, f"--fedassay-report={tmp_path / 'kept'}")
    assert code == 0, said
    assert_kept_six(tmp_path / "kept")


def test_a_folder_that_another_process_has_just_made_is_not_taken(tmp_path, monkeypatch):
    ours, theirs = (pytest_plugin._Folders(tmp_path / "kept", "test_a.py::test[\u4e2d/b]") for _ in range(2))
    first = theirs()
    # Whoever looks first sees nothing, in the moment before the other makes it.
    monkeypatch.setattr(Path, "exists", lambda path: False)
    second = ours()
    assert first.is_dir()
    assert second.is_dir()
    assert second.name == f"{first.name}.2"
    assert ours().name == f"{first.name}-2"


def test_a_file_in_the_way_of_the_reports_is_reported_in_one_sentence(tmp_path):
    (tmp_path / "kept").write_text("mine")
    for place in (tmp_path / "kept", tmp_path / "kept" / "deeper"):
        with pytest.raises(
            ConfigError, match=f"{place} cannot be created as the folder for runs: a part of its path is a file"
        ):
            pytest_plugin._Folders(place, "test_a.py::test")()


@pytest.mark.simulations
def test_a_gate_that_is_not_fine_fails_with_its_reasons_unless_it_is_asked_to_let_them_be(own_pytest):
    weak = GATED.replace("jobs=1", 'jobs=1, overrides=["audit.replicas=4"]')
    code, said = own_pytest(weak)
    assert code == 1
    assert "INCONCLUSIVE: claims that this run cannot judge: ldp_gaussian" in said
    assert "Traceback" not in said
    code, said = own_pytest(weak.replace("jobs=1", 'jobs=1, fail_on=["fail"]'))
    assert code == 0, said
    assert "test_own.py::test_it: OK: no problem of the kinds in fail_on (ignored by fail_on: INCONCLUSIVE: " in said


@pytest.mark.simulations
def test_a_baseline_is_asked_for_accepted_and_then_held_against(own_pytest, tmp_path):
    gated = GATED.replace("tiny", "plain")
    gated = gated.replace("jobs=1", 'jobs=1, seeds=2, fail_on=["fail", "incomplete"], baseline="baselines/main"')
    code, said = own_pytest(gated)
    assert code == 1
    assert "INCOMPLETE: " in said
    assert "--accept" in said
    code, said = own_pytest(gated, "--fedassay-accept")
    assert code == 0, said
    assert (tmp_path / "baselines" / "main.json").is_file()
    code, said = own_pytest(gated)
    assert code == 0, said
    assert "is worse than the baseline by its margin" in said


@pytest.mark.simulations
def test_options_of_the_marker_are_the_defaults_and_unknown_ones_are_reported(own_pytest):
    marked = "import pytest\n\n@pytest.mark.fedassay(seeds=2)" + GATED.replace("tiny", "plain")
    code, said = own_pytest(marked.replace("jobs=1", 'jobs=1, fail_on=["fail"]'), "--strict-markers")
    assert code == 0, said
    code, said = own_pytest(GATED.replace("jobs", "job"))
    assert code == 1
    assert (
        "fedassay_gate accepts only the keyword arguments seeds, seed, jobs, overrides, device and accept_weak, got job"
        in said
    )


@pytest.mark.simulations
def test_of_several_markers_the_nearest_states_and_options_go_by_name_only(own_pytest):
    """A marker's mistake fails the test that has it, and no other: one sentence, no source of anybody's."""
    marked = """
import pytest

pytestmark = pytest.mark.fedassay(seeds=2, overrides=["seeds=7"])


@pytest.mark.fedassay(seeds=3)
def test_nearest(request, fedassay_gate):
    assert fedassay_gate.defaults == {"seeds": 3, "overrides": ["seeds=7"]}


@pytest.mark.fedassay("cfg/tiny.toml")
def test_by_place(fedassay_gate):
    fedassay_gate("tiny.toml")


@pytest.mark.fedassay(sedes=2)
def test_unknown(fedassay_gate):
    fedassay_gate("tiny.toml")


"""
    code, said = own_pytest(marked)
    assert code == 1
    assert "1 passed" in said
    assert (
        "@pytest.mark.fedassay takes options by name (seeds, seed, jobs, overrides, device and accept_weak), got 'cfg/"
        in said
    )
    assert "@pytest.mark.fedassay accepts only the keyword arguments seeds, seed, jobs, overrides, device" in said
    assert "pytest_plugin.py" not in said
    assert "resolve.py" not in said


@pytest.mark.simulations
def test_a_mistake_is_reported_in_one_sentence_below_the_tests_own_line(own_pytest, tmp_path):
    mistakes = {
        'fedassay_gate("nix.toml")': "nix.toml",
        'fedassay_gate("tiny.toml", sedes=2)': "got sedes",
        'fedassay_gate("tiny.toml", seeds=0)': "seeds must be a whole number >= 1, got 0",
        'fedassay_gate("tiny.toml", overrides=[2])': "overrides must be a list of strings such as ['audit.",
        'fedassay_gate("tiny.toml", fail_on=["fial"])': "unknown verdict 'fial'",
        'fedassay_gate("tiny.toml", 3)': "defense must be an instance of Defense, VerticalDefense or",
        "fedassay_gate(3)": "a suite file or a fedassay.Suite, got 3",
        'fedassay_gate("tiny.toml", jobs=1, margins={"auk": 0.1})': "auk",
        "fedassay_audit(print, None, trails=2)": "unexpected keyword argument 'trails'",
    }
    tests = [f"def test_{number}(fedassay_gate, fedassay_audit):\n    {call}\n" for number, call in enumerate(mistakes)]
    code, said = own_pytest("\n\n".join(tests), f"--basetemp={tmp_path / 'base'}")
    assert code == 1
    shown = re.split(r"^_+ test_\d+ _+$", said.partition("short test summary")[0], flags=re.MULTILINE)[1:]
    for sentence, text in zip(mistakes.values(), shown, strict=True):
        assert sentence in text
        assert re.findall(r"^(\S+\.py):\d+: ", text, re.MULTILINE) == ["test_own.py"], text
    left = {path.name[:-9] for path in tmp_path.glob("base/*/test_own*")}
    assert left == {"test_own.py-test_7"}, "only the unknown margin is reported after the run"


@pytest.mark.simulations
@pytest.mark.parametrize(("scale", "code", "words"), [(1.1, 0, "NOT REFUTED"), (0.5, 1, "FAIL: claims REFUTED: noisy")])
def test_a_mechanism_is_audited(scale, code, words, own_pytest):
    """Laplace of scale 1.1 keeps epsilon .91; of .5 it keeps 2."""
    found, said = own_pytest(AUDITED.format(scale=scale))
    assert found == code, said
    assert words in said


@pytest.mark.simulations
def test_tests_that_run_federations_can_be_left_out(own_pytest):
    code, said = own_pytest(GATED + "\ndef test_other():\n    pass\n", "-m", "not fedassay")
    assert code == 0
    assert "1 passed, 1 deselected" in said


@pytest.mark.processes
@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_other_processes_print_their_verdicts_and_keep_runs_of_their_own(project, python_m, tmp_path):
    two = (
        SIGNS
        + GATED.replace("jobs=1", 'fail_on=["fail"]')
        + GATED.replace("test_it", "test_too").replace("jobs=1", 'fail_on=["fail"], seed=1')
    )
    code, said = python_m(
        project(two), "pytest", "-n", "2", "-k", "test_gate", f"--fedassay-report={tmp_path / 'kept'}"
    )
    assert code == 0, said
    assert_kept_six(tmp_path / "kept")
    code, said = python_m(tmp_path, "pytest", "-n", "2", "-k", "not test_gate")
    assert code == 0, said
    for name in ("test_it", "test_too"):
        assert f"test_own.py::{name}: OK: 1 claim NOT REFUTED" in said


def test_the_plugin_costs_every_other_pytest_nothing():
    heavy = "[name for name in ('torch', 'numpy', 'pandas', 'matplotlib', 'pydantic') if name in sys.modules]"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, pytest, fedassay.cli.pytest_plugin; print({heavy})"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
