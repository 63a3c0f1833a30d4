"""The corpus of faults: its cases show what they state, its frozen half stays, and its runner counts what tools say."""

import ast
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dp_faults import Case, Claim, Program, Subject, Verdict, frozen, outputs, runner, scores, table, trials, verdict
from dp_faults import case as corpus
from dp_faults.binomial import epsilon_low, lower, upper

CORPUS = Path(__file__).resolve().parents[2] / "corpus"
LEVEL = 1e-4
"""Largest probability that the event of a correct version shows a violation, of each case."""
OWN = {"numpy", "torch", "dp_faults", "opacus", "flwr", "jax", "jax_privacy", "optax"}


def loaded(kind, name):
    try:
        return corpus.load(kind, name)
    except ModuleNotFoundError as absent:
        if (absent.name or "").startswith("dp_faults"):
            raise
        pytest.skip(f"{absent.name} is not installed")


def shown(case, program):
    """The lower bound on epsilon by the event or its complement, in either direction."""
    rng, number = np.random.default_rng(0), case.trials
    first, second = (
        sum(bool(case.event(program.release(data, rng))) for _ in range(number)) for data in case.neighbours
    )
    pairs = [(first, second), (second, first), (number - first, number - second), (number - second, number - first)]
    return max(epsilon_low(one, (number, number), delta=program.claim.delta, alpha=LEVEL / 4) for one in pairs)


@pytest.mark.parametrize(("kind", "name"), corpus.names())
def test_every_case_loads_and_imports_only_its_own_libraries(kind, name):
    case = loaded(kind, name)
    assert kind in corpus.KINDS
    tree = ast.parse(corpus.path(kind, name).read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    found = {one.module for one in ast.walk(tree) if isinstance(one, ast.ImportFrom) and not one.level}
    found |= {alias.name for one in ast.walk(tree) if isinstance(one, ast.Import) for alias in one.names}
    outside = {one.split(".")[0] for one in found if one} - OWN - set(sys.stdlib_module_names)
    assert outside == set()
    assert case.source == "own" or case.source.startswith("http")
    for program in (case.correct, case.broken):
        first, again = (_released(program, case.neighbours[0], of_process=one) for one in (1, 2))
        assert first.size
        np.testing.assert_array_equal(first, again)  # All randomness is from rng.


def _released(program, data, *, of_process):
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(of_process)
    return np.asarray(program.release(data, np.random.default_rng(0)), dtype=float)


@pytest.mark.simulations
@pytest.mark.parametrize(("kind", "name"), corpus.names())
def test_the_event_shows_the_violation_of_the_broken_version_alone(kind, name):
    case = loaded(kind, name)
    if case.event is None:
        pytest.skip("no event of few runs shows it; see its proof")
    assert shown(case, case.broken) > case.broken.claim.epsilon
    assert shown(case, case.correct) <= case.correct.claim.epsilon


def test_the_frozen_half_is_as_it_was_when_it_was_frozen():
    assert frozen.changes() == []
    assert set(json.loads(frozen.FILE.read_text(encoding="utf-8"))) == set(frozen.digests())


def test_a_change_of_a_frozen_case_is_noticed_and_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    monkeypatch.setattr(frozen, "FILE", tmp_path / "frozen.json")
    (tmp_path / "functions").mkdir()
    for number in range(8):
        (tmp_path / "functions" / f"case_{number}.py").write_text("CASE = None\n")
    held = [name for _, name in corpus.names() if corpus.half("functions", name) == "frozen"]
    assert 0 < len(held) < 8
    (tmp_path / "functions" / "_shared.py").write_text("")
    monkeypatch.setattr(frozen, "SHARED", ())
    assert frozen.freeze() == len(held) + 1
    (tmp_path / "functions" / f"{held[0]}.py").write_text("CASE = 1\n")
    assert frozen.changes() == [f"functions/{held[0]}"]
    with pytest.raises(ValueError, match=held[0]):
        frozen.freeze()


def test_the_corpus_needs_neither_fedassay_nor_torch():
    code = (
        "import sys; sys.modules['torch'] = sys.modules['fedassay'] = sys.modules['scipy'] = None\n"
        "from dp_faults import cases, Subject\n"
        "import dp_faults.runner, dp_faults.table, dp_faults.__main__\n"
        "assert len(list(cases('functions'))) >= 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(CORPUS)})


CLAIM = Claim(epsilon=1.0)
PROGRAM = Program(claim=CLAIM, release=lambda data, rng: np.array([data + rng.laplace()]))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"fault": "colour"}, "fault must be one of clip, noise"),
        ({"source": ""}, "source must be stated"),
        ({"proof": ""}, "proof must be stated"),
    ],
)
def test_a_case_that_lacks_something_is_refused(changed, words):
    fields = {"fault": "noise", "source": "own", "ideal": "x", "proof": "x", "event": None, "neighbours": (0, 1)}
    with pytest.raises(ValueError, match=words):
        Case(correct=PROGRAM, broken=PROGRAM, **fields | changed)


@pytest.mark.parametrize("field", [{"epsilon": 0}, {"epsilon": 1, "delta": 1}, {"epsilon": 1, "adjacency": "near"}])
def test_a_claim_out_of_range_is_refused_with_the_value(field):
    name, value = list(field.items())[-1]
    with pytest.raises(ValueError, match=f"{name} must be .*{value}"):
        Claim(**field)


def test_a_file_without_a_case_and_an_unknown_kind_are_named(tmp_path, monkeypatch):
    module = type(sys)("dp_faults.cases.functions.empty")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(TypeError, match=r"functions/empty.py must end with CASE = Case"):
        corpus.load("functions", "empty")
    with pytest.raises(ValueError, match="kind must be one of functions"):
        corpus.names("colours")


TOOL = """
import time
from dp_faults import Verdict
NAME, PURPOSE, KINDS = "made up", "a test", {kinds}
def judge(subject, seed):
    {body}
"""


@pytest.mark.parametrize(
    ("body", "outcome", "reason"),
    [
        ("return Verdict(outcome='found')", "found", ""),
        ("return Verdict(outcome='silent', epsilon_low=0.5)", "silent", ""),
        ("return Verdict(outcome='could not run', words='no such data')", "could not run", "refused"),
        ("raise OSError('boom')", "could not run", "error"),
        ("return True", "could not run", "error"),
        ("import no_such_library", "could not run", "library absent"),
        ("\n    while True: pass", "could not run", "timeout"),
        ("import os; os._exit(3)", "could not run", "error"),
    ],
    ids=["finds", "silent", "refuses", "raises", "wrong", "absent", "hangs", "dies"],
)
def test_the_runner_counts_what_a_tool_says_and_how_it_ends(tmp_path, body, outcome, reason):
    mine = tmp_path / "mine.py"
    mine.write_text(TOOL.format(kinds=("functions",), body=body))
    where = {"kind": "functions", "case": "laplace_noise_of_half_the_scale", "out": tmp_path / "rows.jsonl"}
    rows = list(runner.run(str(mine), seconds=1, **where))
    assert [(row.version, row.outcome, row.reason) for row in rows] == [
        ("correct", outcome, reason),
        ("broken", outcome, reason),
    ]
    assert runner.read(where["out"]) == rows
    assert list(runner.run(str(mine), seconds=1, **where)) == []


def test_kinds_outside_of_the_purpose_of_a_tool_are_no_silence(tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(TOOL.format(kinds=("jax",), body="return Verdict(outcome='silent')"))
    rows = list(runner.run(str(mine), kind="functions", out=tmp_path / "rows.jsonl"))
    assert {row.reason for row in rows} == {"outside its purpose"}
    assert "made up |" not in table.table(rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [("NAME = 'x'", "must define PURPOSE"), (TOOL.format(kinds=("songs",), body="pass"), "kinds of the corpus")],
)
def test_a_tool_that_lacks_something_is_refused(tmp_path, text, words):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises((AttributeError, ValueError), match=words):
        verdict.tool(str(tmp_path / "mine.py"))
    with pytest.raises(ValueError, match=r"tool must be one of .*, got 'nobody'"):
        verdict.tool("nobody")


def test_the_table_counts_by_hand_counted_rows():
    def row(version, outcome, number):
        place = {"tool": "ours", "kind": "loops", "name": f"case {number}", "half": "frozen"}
        return runner.Row(**place, version=version, outcome=outcome, seconds=2.0)

    rows = [row("broken", "found", k) for k in range(3)] + [row("broken", "silent", 3)]
    rows += [row("correct", "silent", k) for k in range(3)] + [row("correct", "could not run", 3)]
    found = table.table(rows)
    # 3 of 4 has the exact interval 19.4 to 99.4 %, 0 of 3 the interval 0 to 70.8 %.
    assert "| ours | 3 of 4 (19 to 99 %) | 1 | 0 + 1 | 0 of 3 (0 to 71 %) | 2.0 |" in found
    assert "development half" not in found


def test_bounds_on_a_probability_have_their_known_values():
    # Of 0 in 20 the upper bound is 1 - alpha^(1/20).
    assert upper(0, 20, 0.05) == pytest.approx(1 - 0.05 ** (1 / 20), abs=1e-9)
    assert lower(20, 20, 0.05) == pytest.approx(0.05 ** (1 / 20), abs=1e-9)
    assert (lower(0, 20, 0.05), upper(20, 20, 0.05)) == (0, 1)
    expected = np.log(lower(900, 1000, 0.025) / upper(100, 1000, 0.025))
    assert epsilon_low((900, 100), (1000, 1000), delta=0, alpha=0.05) == pytest.approx(expected)
    with pytest.raises(ValueError, match="5 of 4"):
        upper(5, 4, 0.05)


def test_runs_of_unequal_lengths_are_filled_and_trials_follow_the_seconds():
    sizes = Program(claim=CLAIM, release=lambda data, rng: np.ones(data))
    first, second = outputs(Subject(kind="functions", neighbours=(2, 3), program=sizes), 0, 4)
    assert first.shape == second.shape == (4, 7)
    assert np.array_equal(first[0], [2, 1, 1, *[np.nan] * 4], equal_nan=True)
    assert second[0, 0] == 3
    subject = Subject(kind="functions", neighbours=(0, 1), program=PROGRAM, seconds=1e-6)
    assert trials(subject) == 256


def test_learnt_log_odds_separate_what_differs_and_nothing_else():
    rng = np.random.default_rng(0)
    first, second = scores.log_odds(rng.normal(size=(2000, 3)), rng.normal([2, 0, 0], size=(2000, 3)))
    # The best test of N(0, 1) against N(2, 1) at the middle is right with probability .841.
    right = ((first[1000:] < 0).mean() + (second[1000:] > 0).mean()) / 2
    assert right == pytest.approx(0.841, abs=0.03)
    equal = scores.log_odds(np.full((100, 1), np.nan), np.full((100, 1), np.nan))
    assert np.ptp(np.concatenate(equal)) == 0
    assert Verdict.of_bound(1.0, CLAIM).outcome == "silent"
    assert Verdict.of_bound(1.01, CLAIM).outcome == "found"


def test_the_case_and_the_tool_of_the_page_work_as_they_are(tmp_path):
    page = (CORPUS.parent / "docs" / "corpus.md").read_text(encoding="utf-8")
    files = dict(re.findall(r'^```python title="(.+?)"\n(.*?)^```$', page, re.MULTILINE | re.DOTALL))
    names = {}
    exec(files["count_with_noise_of_half_the_scale.py"], names)
    case = names["CASE"]
    assert shown(case, case.broken) > 1 >= shown(case, case.correct)
    (tmp_path / "mine.py").write_text(files["mine.py"])
    mine = verdict.tool(str(tmp_path / "mine.py"))
    assert [mine.judge(case.subject(broken=one), 0).outcome for one in (False, True)] == ["silent", "found"]
