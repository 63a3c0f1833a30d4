"""What is wrong before anything runs is exit code 2 and leaves nothing; plan, list and doctor write nothing at all."""

import json
import shutil

import pytest
from fedassay import __version__
from fedassay.cli.app import app
from fedassay.fl.data.dataset import DatasetMissing
from fedassay.fl.data.datasets import KNOWN_DATASETS, load_dataset
from fedassay.suites.config import resolve as resolve_module
from fedassay.suites.execution import run as run_module
from fedassay.suites.results.environment import threads
from typer.testing import CliRunner


def lines(result, first):
    return [line for line in result.stdout.splitlines() if line.startswith(first)]


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "no suite 'nothing': it is neither a file nor a bundled suite"),
        (["{suite}", "--set", "seeds=0"], "--set seeds: seeds must be >= 1"),
        (["{suite}", "--seeds", "0"], "--seeds"),
        (["{suite}", "--set", "seeds"], "--set must have the form key.sub=value, got 'seeds'"),
        (["{suite}", "-d", "dp_sdg"], "unknown defense 'dp_sdg'; known: dp_sgd"),
        (["{suite}", "-d", "no.such:Thing"], "cannot import no.such: ModuleNotFoundError"),
        (["{suite}", "-d", "loss"], "unknown defense 'loss'"),
        (["{suite}", "--set", "defenses.ldp_gaussian.epsilon=-1"], "epsilon must be a number > 0, got -1"),
        (
            ["{suite}", "--set", "federations.main.samples=1"],
            "federation main cannot be set up: each client needs at least one sample: clients must be at most 1",
        ),
        (["{suite}", "--set", "federations.main.clients=100"], "federation main cannot be set up"),
        (
            ["quick", "--set", "federations.single_sample.samples=7"],
            "federation single_sample cannot be set up: each client needs at least one sample: clients must be at",
        ),
    ],
)
def test_what_is_wrong_before_anything_runs_is_usage_and_leaves_nothing(
    say, suite_file, tmp_path, command, words, says
):
    path = suite_file()
    before = set(tmp_path.iterdir())
    result = say(command, *[word.format(suite=path) for word in words])
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "error",
    [DatasetMissing("mnist is not on this machine"), ValueError("train-images.gz must have the SHA-256 sum 1f")],
)
def test_data_that_are_not_there_or_not_whole_are_reported(say, suite_file, monkeypatch, error):
    def load(name):
        raise error

    monkeypatch.setattr(resolve_module, "load_dataset", load)
    result = say("run", suite_file(), "-o", "out")
    assert result.exit_code == 2
    assert result.stderr.replace("\n", " ").endswith(f"{error} ")


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["run", "quick", "-j", "0"],
        ["run", "quick", "--seed", "-1"],
        ["run", "quick", "--sed", "1"],
        ["fly"],
        [],
    ],
)
def test_wrong_usage_is_exit_code_2(say, tmp_path, words):
    assert say(*words).exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_a_run_is_not_written_to(say, finished, suite_file):
    before = sorted((finished.folder).rglob("*"))
    result = say("run", suite_file(), "-o", finished.folder)
    assert result.exit_code == 2
    assert "already holds a run; resume it, or name another folder" in result.stderr
    assert sorted((finished.folder).rglob("*")) == before


@pytest.mark.parametrize("place", ["empty", "absent", "file"])
def test_a_folder_that_is_no_run_is_not_resumed(say, tmp_path, place):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    result = say("resume", place)
    assert result.exit_code == 2
    assert result.stderr == f"{place} holds no run: the file manifest.json is missing\n"


def test_a_run_of_other_code_is_not_resumed(say, finished, monkeypatch):
    from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian

    monkeypatch.setattr(LDPGaussian, "version", "2")
    result = say("resume", finished.folder)
    assert result.exit_code == 2
    assert (
        "cannot be resumed: the suite, a data set, or the code of a defense or attack changed since the run began"
        in result.stderr
    )


def test_a_crash_is_no_usage_error(suite_file, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "judge_run", lambda *arguments, **options: 1 / 0)
    result = CliRunner().invoke(app, ["run", str(suite_file()), "-j", "1", "-o", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert isinstance(result.exception, ZeroDivisionError)


def test_a_plan_states_what_would_run_and_writes_nothing(say, suite_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = suite_file()
    before = set(tmp_path.iterdir())
    result = say("plan", path, "--seeds", 2, "-d", "none")
    assert result.exit_code == 0
    plan, time, train = result.stdout.splitlines()[:3]
    assert plan == "plan   3 defenses x 2 attacks, 2 seeds: 6 federations; 1 audit on 80 replicas; 21 cells"
    assert time.startswith("time   about ")
    assert train == "train  main: digits, logistic, 2 clients, 2 rounds, 6 federations"
    assert len(lines(result, "audit  ldp_gaussian")) == 1
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("kind", "some"),
    [
        ("defenses", {"none", "dp_sgd", "control_no_clip"}),
        ("attacks", {"loss", "idlg", "inversion", "random_scores"}),
        ("estimators", {"clopper_pearson", "likelihood_ratio"}),
        ("mutants", {"fixed_lots", "control_no_clip"}),
        ("suites", {"quick", "membership_final", "mutants"}),
        ("datasets", {"digits", "mnist", "qmnist", "cifar10", "sroie"}),
        ("metrics", {"accuracy", "auc", "psnr", "epsilon_low"}),
    ],
)
def test_a_list_names_every_part_with_words_and_is_the_same_as_json(say, kind, some):
    plain, as_json = say("list", kind), say("list", kind, "--json")
    assert plain.exit_code == as_json.exit_code == 0
    listed = json.loads(as_json.stdout)
    assert some <= set(listed)
    assert all(words.strip() for words in listed.values())
    width = max(map(len, listed))
    assert plain.stdout.splitlines() == [f"{name:{width}}  {words}" for name, words in listed.items()]


def test_the_errata_of_defenses_stand_a_line_each_behind_their_names_and_no_other_has_any(say):
    told, as_json = say("list", "defenses", "--errata"), say("list", "defenses", "--errata", "--json")
    listed = {name: words.splitlines() for name, words in json.loads(as_json.stdout).items()}
    assert listed.keys() >= {"adap_dp_fl", "nbafl"}
    assert "dp_sgd" not in listed
    assert [len(items) for items in (listed["adap_dp_fl"], listed["nbafl"])] == [6, 3]
    assert listed["nbafl"][0].startswith("False as restated in a summary: section III")
    assert told.stdout.splitlines()[0].split("  ")[-1] == listed["adap_dp_fl"][0]
    assert len(told.stdout.splitlines()) == sum(map(len, listed.values()))
    refused = say("list", "attacks", "--errata")
    assert (refused.exit_code, refused.stderr.strip()) == (2, "--errata can be given only with defenses, got 'attacks'")


def test_an_unknown_kind_is_reported_with_the_nearest_one(say):
    result = say("list", "defences")
    assert result.exit_code == 2
    assert result.stderr.startswith("cannot list 'defences'; kinds that can be listed: defenses, ")


def test_the_doctor_states_what_the_machine_has(say):
    result = say("doctor")
    assert result.exit_code == 0
    said = result.stdout.splitlines()
    assert said[0].startswith("cores     ")
    assert f"version   fedassay {__version__}" in said
    assert "data set  digits: bundled" in said
    assert len([line for line in said if line.startswith("data set  ")]) == len(KNOWN_DATASETS)
    assert said[-1].startswith("lpips     ")
    assert [line.split()[0] for line in said[:3]] == ["cores", "threads", "gpu"]


def test_the_doctor_reads_data_sets_for_their_digests_where_asked(say, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path))
    monkeypatch.delenv("FEDASSAY_DATA", raising=False)
    said = say("doctor", "--digests").stdout.splitlines()
    assert f"data set  digits: bundled, SHA-256 {load_dataset('digits').digest}" in said
    assert "data set  mnist: would be downloaded" in said


@pytest.mark.parametrize(("told", "words"), [("1", "OMP_NUM_THREADS=1"), ("4", "OMP_NUM_THREADS=4"), (None, "not set")])
def test_the_doctor_states_with_how_many_threads_a_process_computes(told, words, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if told is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", told)
    assert words in threads()


def test_a_manifest_of_which_something_lacks_is_reported_in_a_line(say, finished, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished.folder, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["run_id"], manifest["name"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    result = say("report", str(folder))
    assert result.exit_code == 2
    assert result.stderr.strip().endswith("manifest.json is not a valid run manifest: run_id is missing, and 1 more")


def test_the_version_is_reported(say):
    result = say("--version")
    assert (result.exit_code, result.stdout) == (0, f"fedassay {__version__}\n")
