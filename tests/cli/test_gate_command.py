"""The commands compare and gate on real runs: a run against itself, noise halved, and everything that can be wrong."""

import json
import shutil
from xml.etree import ElementTree

import fedassay
import pytest
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.regression.gated_run import judge_folder
from fedassay.suites.results.outcome import Outcome
from suite_text import suite_text, tables

ATTACKS = {"likelihood_ratio": {"count": 24, "rest": "known"}, "random_scores": {"count": 24}}
TABLES = tables(attacks=ATTACKS, defenses={"Mine": {"part": "own_defense_to_gate:Mine"}})
MINE = """\
from dataclasses import dataclass

from fedassay.defenses.without_dp.plain_noise import PlainNoise


@dataclass(frozen=True, kw_only=True)
class Mine(PlainNoise):
    noise_std: float = {noise}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A defense of one's own, run twice as it is and once with half its noise: three folders. Read them only."""
    import sys

    place = tmp_path_factory.mktemp("gated")
    (place / "mine.toml").write_text(suite_text(TABLES, seeds=5, clients=2, samples=100), encoding="utf-8")
    folders = {}
    sys.path.insert(0, str(place))
    try:
        for name, noise in (("base", 0.1), ("same", 0.1), ("half", 0.05)):
            (place / "own_defense_to_gate.py").write_text(MINE.format(noise=noise), encoding="utf-8")
            shutil.rmtree(place / "__pycache__", ignore_errors=True)
            sys.modules.pop("own_defense_to_gate", None)
            words = "fedassay run mine.toml"
            run = fedassay.run(str(place / "mine.toml"), jobs=1, report=False, folder=place / name, command=words)
            folders[name] = run.folder
    finally:
        sys.path.remove(str(place))
        sys.modules.pop("own_defense_to_gate", None)
    return folders


def last(result):
    return result.stdout.splitlines()[-1]


def test_a_run_against_itself_passes(say, runs):
    result = say("gate", runs["same"], "--baseline", runs["base"])
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "pairing correlation 1.00 (mean of 2 cells); 0 of 2 cells are tested and share alpha",
        "gate   OK: no claim was audited; none of 2 cells is worse than the baseline by its margin (exit code 0)",
    ]


def test_half_the_noise_fails_and_the_message_states_where_and_how_to_see_it_again(say, runs):
    result = say("gate", runs["half"], "--baseline", runs["base"])
    assert result.exit_code == 10
    lines = result.stdout.splitlines()
    (worse,) = [line for line in lines if line.startswith("worse")]
    assert worse.startswith("worse  main/Mine/likelihood_ratio (uploads) AUC (↑ leaks more): 0.")
    for words in (
        " in the baseline, ",
        " now, worse by 0.",
        "] over 5 seeds, p ",
        " within its family of tests, margin 0.05",
    ):
        assert words in worse
    assert lines[lines.index(worse) + 1] == "again  fedassay run mine.toml"
    assert last(result) == (
        "gate   FAIL: 1 of 2 cells worse than the baseline: main/Mine/likelihood_ratio (uploads) auc (exit code 10)"
    )
    # The null attack saw nothing of it, and the defense's own change is no obstacle.
    assert "random_scores" not in result.stdout
    assert any(line.startswith("note   defense Mine version 1+") for line in lines)


def test_doubled_noise_passes(say, runs):
    assert say("gate", runs["base"], "--baseline", runs["half"], "--margin", "accuracy=0.2").exit_code == 0


def test_the_first_baseline_is_accepted_and_kept_as_a_file(say, runs, tmp_path):
    result = say("gate", runs["base"], "--baseline", "baselines/main")
    assert result.exit_code == 12
    assert "--baseline baselines/main.json --accept creates it" in last(result)
    result = say("gate", runs["base"], "--baseline", "baselines/main", "--accept")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "accept baselines/main.json")
    assert (tmp_path / "baselines" / "main.json").stat().st_size < 5000
    assert say("gate", runs["same"], "--baseline", "baselines/main").exit_code == 0
    assert say("gate", runs["half"], "--baseline", "baselines/main.json").exit_code == 10
    assert say("gate", runs["half"], "--baseline", "baselines/main", "--accept").exit_code == 0
    assert say("gate", runs["half"], "--baseline", "baselines/main").exit_code == 0


def test_what_is_not_failed_on_is_reported_and_exits_with_0(say, runs):
    result = say("gate", runs["half"], "--baseline", runs["base"], "--fail-on", "incomplete, inconclusive")
    assert result.exit_code == 0
    assert last(result).startswith("gate   OK: ")
    assert "(ignored by fail_on: FAIL: 1 of 2 cells worse" in last(result)
    assert last(result).endswith("(exit code 0)")


def test_the_test_report_and_the_summary_are_written(say, runs, tmp_path, monkeypatch):
    words = (
        "gate",
        runs["half"],
        "--baseline",
        runs["base"],
        "--junit",
        "out/junit.xml",
        "--summary",
        "out/summary.md",
    )
    assert say(*words).exit_code == 10
    cases = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert {case.get("name") for case in cases.iter("testcase") if case.find("failure") is not None} == {
        "verdict",
        "main/Mine/likelihood_ratio (uploads) auc",
    }
    summary = (tmp_path / "out" / "summary.md").read_text()
    assert summary.startswith("## fedassay gate: mine\n\n**FAIL: 1 of 2 cells worse")
    say(*words)
    assert (tmp_path / "out" / "summary.md").read_text() == summary
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "out/summary.md")
    say(*words)
    assert (tmp_path / "out" / "summary.md").read_text() == 2 * summary


def test_two_runs_side_by_side(say, runs):
    result = say("compare", runs["base"], runs["half"])
    assert result.exit_code == 0
    assert "base (base) and half (new), paired by seed" in result.stdout
    (row,) = [line for line in result.stdout.splitlines() if "likelihood_ratio" in line]
    assert row.split()[-2:] == ["5", "FAIL"]
    assert "pairing correlation " in result.stdout


def test_the_comparison_as_json_states_what_the_table_states(say, runs):
    found = json.loads(say("compare", runs["base"], runs["half"], "--json").stdout)
    by_attack = {cell["attack"]: cell for cell in found["cells"]}
    assert set(by_attack) == {"likelihood_ratio", "training"}
    cell = by_attack["likelihood_ratio"]
    assert cell["outcome"] == "FAIL"
    assert cell["worse"] == pytest.approx(cell["new"] - cell["base"])
    assert cell["low"] > cell["margin"] / 2
    assert (found["changed"], found["missing_cells"], found["new_cells"]) == ([], [], [])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("gate nowhere", "nowhere holds no run: the file manifest.json is missing"),
        ("compare nowhere {base}", "no baseline nowhere: it is neither a baseline file nor a run's folder"),
        ("compare {base} {base} --margin auc", "--margin must have the form metric=value, got 'auc'"),
        ("gate {base} --baseline {half} --margin auk=1", "a margin is set for an unknown metric 'auk'; known: auc"),
        ("gate {base} --fail-on fial", "names an unknown verdict 'fial'; known: fail"),
        ("gate {base} --accept", "--accept needs --baseline FILE"),
        ("gate {base} --baseline {half} --accept", "is a folder: name a file for the baseline"),
        (
            "gate {base} --baseline text.json",
            "text.json is not a baseline: the file cannot be read (text.json is not JSON",
        ),
        (
            "gate {base} --baseline newer.json",
            "the schema must be 'baseline-1', which this version of fedassay reads, got 'baseline-2'",
        ),
        ("gate {base} --baseline edited.json", "edited.json was changed since it was written"),
        ("gate {base} --junit {base}", "must be a separate file"),
        ("gate {base} --junit {base}/results.jsonl", "nor part of a run's data"),
        ("gate {base} --junit {base}/report.html", "nor part of a run's data"),
        ("gate {base} --summary {base}/cells/x/rounds.csv", "nor part of a run's data"),
        ("gate {base} --baseline {half} --junit {half}/results.jsonl", "nor part of a run's data"),
        ("gate {base} --baseline edited.json --junit edited.json", "nor part of a run's data"),
        ("gate {base} --baseline edited --accept --summary edited.json", "nor part of a run's data"),
    ],
)
def test_what_is_wrong_is_usage_and_one_paragraph(say, runs, tmp_path, words, says):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text.json").write_text("auc = 0.5")
    (tmp_path / "newer.json").write_text('{"schema": "baseline-2"}')
    say("gate", runs["base"], "--baseline", "edited.json", "--accept")
    edited = (tmp_path / "edited.json").read_text()
    (tmp_path / "edited.json").write_text(edited.replace('"count": 24', '"count": 25', 1))
    result = say(*[word.format(**runs) for word in words.split()])
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "new.json").exists()
    assert not (tmp_path / "folder.json").exists()


def test_from_python(runs):
    run = fedassay.Run(folder=runs["half"], verdict=Outcome(verdict_line="OK", exit_code=0))
    run.gate().raise_for_status()
    assert run.gate(runs["base"], fail_on=["incomplete"]).exit_code == 0
    with pytest.raises(
        RuntimeError, match=r"^FAIL: 1 of 2 cells worse[^\n]*\nworse  main/Mine[^\n]*\nagain  fedassay run"
    ):
        run.gate(runs["base"]).raise_for_status()
    assert run.gate(runs["base"], margins={"auc": 0.5}).exit_code == 0
    assert run.gate().verdict_line == judge_folder(RunFolder.read(runs["half"])).outcome.verdict_line
