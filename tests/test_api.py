"""The Python API: run, resume, and read the results.

Suites as dictionaries and objects, a choice of their tables, and finished runs that are opened again.
"""

import json
import pathlib
import re
import tomllib
from html import unescape

import fedassay
import pytest
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.suites.config.source import ConfigError
from fedassay.suites.results.record import Record


def test_a_run_gives_folder_gate_rows_and_lines(finished):
    assert finished.verdict.exit_code == 0
    assert (finished.folder / "report.html").is_file()
    assert all(isinstance(record, Record) for record in finished.records)
    (stated,) = [line for line in finished.lines() if "ldp_gaussian" in line]
    assert stated.startswith("claim  ldp_gaussian  eps 4, delta 1e-5, one report (replace-one)")
    assert stated.partition("; not looked at: ")[0].endswith(": NOT REFUTED")


def test_the_table_holds_every_row_under_the_records_own_names(finished):
    table = finished.frame()
    assert len(table) == len(finished.records)
    assert list(table.columns)[:3] == ["schema", "run_id", "cell_id"]
    utility = table[table.metric == "accuracy"].set_index("defense").value
    assert utility["none"] > utility["ldp_gaussian"]


@pytest.mark.simulations
def test_defenses_are_added_by_name_and_built(assay, suite_file):
    run = assay(suite_file(), defenses=["none", LDPGaussian(epsilon=1.0, clip_norm=0.5)])
    assert list(dict.fromkeys(run.frame().defense)) == ["ldp_gaussian", "ldp_gaussian_2", "none", "none_2"]
    claims = json.loads((run.folder / "claims.json").read_text())["claims"]
    assert {claim["defense"]: claim["claim"]["epsilon"] for claim in claims} == {
        "ldp_gaussian": 4.0,
        "ldp_gaussian_2": 1.0,
    }


@pytest.mark.simulations
def test_the_manifest_holds_the_call_that_repeats_the_run(assay, suite_file):
    path = suite_file()
    run = assay(path, defenses=[LDPGaussian(epsilon=1.0), "none"], seed=3, seeds=2, overrides=["audit.replicas=10"])
    command = json.loads((run.folder / "manifest.json").read_text())["command"]
    again = eval(command, {"fedassay": type("Stub", (), {"run": lambda *a, **k: (a, k)}), "LDPGaussian": LDPGaussian})
    assert again == (
        (str(path),),
        {
            "defenses": [LDPGaussian(epsilon=1.0), "none"],
            "seed": 3,
            "overrides": ["audit.replicas=10", "seeds=2"],
        },
    )


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"defenses": "dp_sgd"}, r"defenses must be a list of names .* such as \['dp_sgd'\], got 'dp_sgd'"),
        ({"defenses": 5}, "defenses must be a list of names .*, got 5"),
        ({"defenses": LDPGaussian(epsilon=1.0)}, "defenses must be a list of names .*, got LDPGaussian"),
        ({"folder": 3}, "folder must be the path of a run's folder, got 3"),
        ({"folder": "a\0b"}, r"folder must be the path of a run's folder, got 'a\\x00b': embedded null byte"),
        ({"folder": "a" * 300}, "folder must be the path of a run's folder, got 'aaa.*: File name too long"),
        ({"folder": "/proc/x"}, "the folder /proc/x cannot be made or written: no such file or directory"),
        ({"folder": __file__}, "test_api.py is a file: name a folder for the run"),
        ({"preset": 3}, "preset must be a name such as 'smoke', got 3"),
    ],
)
def test_an_argument_of_the_wrong_type_is_named(options, says):
    with pytest.raises(ConfigError, match=says):
        fedassay.run("quick", **options)


def test_a_folder_to_resume_must_be_a_path():
    with pytest.raises(ConfigError, match="folder must be the path of a run's folder, got None"):
        fedassay.resume(None)


def test_a_call_with_defaults_is_recorded_without_arguments(suite_file, assay):
    path = suite_file()
    # Eight candidates in one seed are too few to tell an attack from guessing.
    with pytest.warns(UserWarning, match="cannot be distinguished from guessing; 4 seeds or 11"):
        folder = assay(path).folder
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["command"] == f"fedassay.run({str(path)!r})"


@pytest.mark.simulations
def test_resume_keeps_the_options_of_the_first_call(assay, suite_file):
    run = assay(suite_file(), seed=1, seeds=2, overrides=["audit.replicas=10"])
    resumed = fedassay.resume(run.folder, jobs=1)
    assert resumed.records == run.records
    assert (run.folder / "report.html").is_file()


def test_progress_reports_every_cell_once(assay, suite_file):
    class Recorder:
        def __init__(self):
            self.titles, self.failed, self.calls = [], [], []

        def start(self, total, cached):
            self.calls.append((total, cached))

        def advance(self, titles, failed):
            self.titles += titles
            self.failed += failed

        def close(self):
            self.calls.append("closed")

    progress = Recorder()
    assay(suite_file(), progress=progress)
    assert progress.calls == [(8, 0), "closed"]
    assert len(progress.titles) == len(set(progress.titles)) == 8
    assert progress.failed == []


def test_a_mistake_is_a_config_error(assay):
    with pytest.raises(ConfigError, match="no suite 'quack'"):
        assay("quack")
    assert issubclass(ConfigError, ValueError)


@pytest.mark.simulations
def test_a_refuted_claim_raises_for_status(assay, suite_file, own_module):
    source = """\
from dataclasses import dataclass

from fedassay import Prepared, Protection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian


@dataclass(frozen=True, kw_only=True)
class Careless(LDPGaussian):
    def prepare(self, plan):
        return Prepared(protection=Protection(), claims=super().prepare(plan).claims)
"""
    run = assay(
        suite_file(), defenses=[f"{own_module(source)}:Careless"], overrides=["audit.replicas=200", "audit.batch=200"]
    )
    with pytest.raises(RuntimeError, match=r"^FAIL: claims REFUTED: Careless; implementation checks failed: Careless$"):
        run.verdict.raise_for_status()


def test_the_root_lists_its_names_and_refuses_others():
    assert set(dir(fedassay)) == {*fedassay.__all__, "__version__"}
    with pytest.raises(AttributeError, match="module 'fedassay' has no attribute 'rum'"):
        fedassay.rum  # noqa: B018


def test_the_docstring_of_the_package_lists_every_public_name_with_one_line():
    listed = [line.split()[0] for line in (fedassay.__doc__ or "").splitlines() if line.startswith("    ")]
    assert sorted(listed) == sorted(fedassay.__all__)
    assert all((getattr(fedassay, name).__doc__ or "").strip() for name in fedassay.__all__)


@pytest.fixture(scope="module")
def opened(finished):
    return fedassay.open(finished.folder)


@pytest.mark.simulations
def test_a_dictionary_and_an_object_give_the_rows_of_the_suite_file(assay, tiny, finished, timeless):
    tree = tomllib.loads(tiny)
    by_dict, by_object = assay(tree), assay(fedassay.Suite.model_validate(tree))
    assert timeless(by_dict.records) == timeless(by_object.records) == timeless(finished.records)


@pytest.mark.simulations
def test_a_run_of_a_dictionary_is_resumed_and_leaves_the_dictionary_unchanged(assay, tiny):
    tree = tomllib.loads(tiny)
    run = assay(tree, overrides=["audit.replicas=10"])
    assert tree == tomllib.loads(tiny)
    assert fedassay.resume(run.folder, jobs=1).records == run.records


def test_a_mistake_in_a_dictionary_is_named_by_its_key(assay, tiny):
    tree = tomllib.loads(tiny)
    tree["federations"]["main"]["model"] = "lenett"
    with pytest.raises(ConfigError, match=r"the suite's dictionary: federations.main.model.*unknown model 'lenett'"):
        assay(tree)


@pytest.mark.simulations
def test_an_added_defense_runs_alone(assay, suite_file):
    run = assay(suite_file(), defenses=[LDPGaussian(epsilon=1.0)], only=["defenses", "attacks.loss"])
    frame = run.frame()
    assert set(frame.defense) == {"ldp_gaussian"}
    assert set(frame[frame.role == "attack"].attack) == {"loss"}
    assert [claim.stated.claim.epsilon for claim in run.claims] == [1.0]
    assert fedassay.resume(run.folder, jobs=1).records == run.records


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"only": "defenses"}, "only must be a list of strings"),
        ({"only": ["defenses"]}, "give those that run in defenses="),
        ({"only": ["defenses", "defenses.a"], "defenses": ["dp_sgd"]}, "removes all defenses .*, also 'defenses.a'"),
        ({"only": ["attacks.lose"]}, "only: .*: the suite has no table 'attacks.lose'; known: attacks.loss"),
        ({"only": ["attack"]}, "the suite has no table 'attack'"),
    ],
)
def test_a_choice_that_leaves_nothing_or_names_nothing_is_refused(assay, suite_file, options, says):
    with pytest.raises(ConfigError, match=says):
        assay(suite_file(), **options)


def test_an_opened_run_has_the_verdict_claims_and_rows_of_the_run(opened, finished):
    assert opened.verdict.verdict_line == finished.verdict.verdict_line
    assert opened.records == finished.records
    (claim,) = opened.claims
    assert (claim.defense, claim.verdict, claim.stated.claim.epsilon) == ("ldp_gaussian", "NOT_REFUTED", 4.0)


@pytest.mark.parametrize(("place", "says"), [("nothing", "no run"), (None, "must be the path of a run's folder")])
def test_a_folder_without_a_run_cannot_be_opened(tmp_path, place, says):
    with pytest.raises(ConfigError, match=says):
        fedassay.open(place if place is None else tmp_path / place)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"baseline": 3}, "baseline must be a file such as .*, got 3"),
        ({"baseline": "x" * 300}, "baseline must be a file .*: File name too long"),
        ({"margins": 3}, "margins must be a table such as .*, got 3"),
        ({"fail_on": "fail"}, r"fail_on must be a list of strings such as \['fail'\], got 'fail'"),
    ],
)
def test_a_gate_names_the_argument_at_fault(opened, options, says):
    with pytest.raises(ConfigError, match=says):
        opened.gate(**options)


@pytest.mark.simulations
def test_a_run_whose_folder_is_gone_raises_and_gives_no_empty_results(opened, tmp_path):
    gone = fedassay.Run(folder=tmp_path / "gone", verdict=opened.verdict)
    for read in (lambda: gone.records, lambda: gone.claims, gone.gate, lambda: gone.figure("roc"), gone._repr_html_):
        with pytest.raises(ConfigError, match=r"gone holds no run: the file manifest\.json is missing"):
            read()
    with pytest.raises(ConfigError, match=r"has no figure \[\]; it has: "):
        opened.figure([])


def test_a_folder_that_cannot_be_read_is_named(opened, monkeypatch):
    def refused(path, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(path))

    # Not by the rights of a folder: an administrator reads every folder.
    monkeypatch.setattr(pathlib.Path, "read_text", refused)
    monkeypatch.setattr(pathlib.Path, "read_bytes", refused)
    with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
        fedassay.open(opened.folder)


def test_an_unfinished_run_is_not_opened(finished, tmp_path):
    for name in ("manifest.json", "claims.json", "results.jsonl"):
        (tmp_path / name).write_bytes((finished.folder / name).read_bytes())
    with pytest.raises(ConfigError, match=r"not finished; finish it with fedassay.resume"):
        fedassay.open(tmp_path)


@pytest.mark.simulations
def test_a_figure_is_drawn_by_name_and_saved(opened, tmp_path):
    assert "claimed-measured" in opened.figures
    figure = opened.figure("claimed-measured")
    svg, pdf = figure.save(tmp_path / "a.svg"), figure.save(tmp_path / "a.pdf")
    assert svg.read_text().startswith("<svg ")
    assert pdf.read_bytes().startswith(b"%PDF")
    assert pdf.read_bytes() == figure.pdf()
    assert "<svg" in figure._repr_html_()
    with pytest.raises(ValueError, match=r"must end in .svg or .pdf"):
        figure.save(tmp_path / "a.png")
    with pytest.raises(ConfigError, match=r"has no figure 'claimed'; it has: .*claimed-measured"):
        opened.figure("claimed")


def test_a_notebook_shows_verdict_claims_and_attacks(opened):
    shown = opened._repr_html_()
    assert opened.verdict.verdict_line in unescape(shown)
    assert "ldp_gaussian" in shown
    assert "<script" not in shown


@pytest.mark.simulations
def test_the_report_writes_every_figure_of_one_or_two_runs(opened, say, tmp_path, assay, suite_file):
    one, two = tmp_path / "one", tmp_path / "two"
    assert say("report", opened.folder, "--figures", one).exit_code == 0
    names = {f"{name}{suffix}" for name in opened.figures for suffix in (".svg", ".pdf")}
    assert {path.name for path in one.iterdir()} == names
    other = assay(suite_file(), seed=1)
    assert say("report", opened.folder, other.folder, "--figures", two).exit_code == 0
    assert {path.name for path in two.iterdir()} >= {f"run-1-{name}" for name in names}


def test_one_latex_table_has_the_chosen_columns_and_metrics(opened, say, tmp_path):
    path = tmp_path / "one.tex"
    result = say("report", opened.folder, "--latex", path, "--metric", "auc", "--label", "tab:main")
    assert result.exit_code == 0, result.output
    text = path.read_text()
    assert text.count(r"\begin{table}") == 1
    assert r"\label{tab:main}" in text
    assert r"ldp\_gaussian" in text or r"ldp\_\allowbreak{}gaussian" in text
    assert "random" in text
    assert say("report", opened.folder, "--latex", path, "--column", "defense", "--column", "accuracy").exit_code == 0
    assert "AUC" not in path.read_text()
    assert "accuracy" in path.read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--latex", "a.tex", "--metric", "acu"], "no run has the metric 'acu'; the runs have: auc"),
        (["--latex", "a.tex", "--column", "epsilom"], "no run has the column 'epsilom'; known columns: epsilon"),
        (["--latex", "a.tex", "--column", "defense", "--label", "a b"], "label .* must consist of letters"),
        (["--metric", "auc"], "give --latex FILE"),
        (["--latex", "a.tex", "--label", "a"], "give --latex FILE, and --column or --metric"),
    ],
)
def test_a_table_that_cannot_be_chosen_is_refused_and_no_file_is_written(opened, say, tmp_path, words, says):
    result = say("report", opened.folder, *words)
    assert result.exit_code == 2
    assert re.search(says, " ".join(result.output.split()))
    assert not list(tmp_path.glob("**/a.tex"))
