"""The Python API: run, resume, and read the results."""

import json
import subprocess
import sys

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
    assert stated.endswith(": NOT REFUTED")


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


def test_a_call_with_defaults_is_recorded_without_arguments(finished, suite_file, assay):
    path = suite_file()
    manifest = json.loads((assay(path).folder / "manifest.json").read_text())
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


def test_the_package_and_its_lists_of_parts_load_no_torch():
    code = "import sys, fedassay\nfrom fedassay.cli.list_command import listing\n"
    code += "for kind in ('defenses', 'attacks', 'mutants', 'suites', 'metrics'):\n    assert listing(kind)\n"
    code += "print([name for name in ('torch', 'scipy', 'pandas', 'pydantic') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
