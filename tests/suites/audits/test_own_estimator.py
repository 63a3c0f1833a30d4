"""An estimator of the user's own measures the audits of a suite: named in the suite file, or given as a function."""

import importlib
import sys
import tomllib

import fedassay
import pytest
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.execution.run import launch

SOURCE = """\
import dataclasses

from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.evidence import Guesses, MembershipScores
from fedassay.audit.measurement import Measurement


def known(scores: MembershipScores, *, delta: float, alpha: float, threshold, bound: float = 0.125) -> Measurement:
    sound = clopper_pearson(scores, delta=delta, alpha=alpha, threshold=threshold)
    return dataclasses.replace(sound, epsilon_low=bound)


def of_one_run(guesses: Guesses, *, delta: float, alpha: float) -> Measurement: ...


def of_anything(scores): ...
"""


def text(tiny, estimator):
    return tiny + f"estimator = {estimator}\n"


def measured(run):
    (row,) = (record for record in run.records if record.metric == "epsilon_low")
    return row.value, row.ci_method.partition(",")[0]


@pytest.mark.simulations
def test_a_file_next_to_the_suite_is_found_from_elsewhere_and_its_bound_is_recorded(
    assay, suite_file, tiny, tmp_path, monkeypatch
):
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "own_estimator.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir("/")
    run = assay(suite_file(text=text(tiny, '{ part = "own_estimator.py:known", bound = 0.375 }')))
    assert measured(run) == (0.375, "known")
    again = fedassay.resume(run.folder, jobs=1, report=False)
    assert measured(again) == (0.375, "known")


@pytest.mark.simulations
def test_python_code_may_give_the_function_itself(assay, tiny, own_module):
    own = importlib.import_module(own_module(SOURCE))
    suite = tomllib.loads(tiny)
    suite["audit"]["estimator"] = own.known
    assert measured(assay(suite)) == (0.125, "known")


def audit_ids(suite, folder):
    spec, source = load_suite(str(suite))
    return {audit.cell.cell_id for audit in launch(spec, source, folder=folder).plan.audits}


def test_the_source_and_the_options_of_an_estimator_change_the_ids_of_its_audits(
    suite_file, tiny, own_module, tmp_path
):
    name = own_module(SOURCE)
    named = suite_file(text=text(tiny, f'"{name}:known"'))
    other = suite_file(text=text(tiny, f'{{ part = "{name}:known", bound = 0.25 }}'))
    first, optional = audit_ids(named, tmp_path / "a"), audit_ids(other, tmp_path / "b")
    own_module(SOURCE + "\n# edited", name=name)
    edited = audit_ids(named, tmp_path / "c")
    assert len(first | optional | edited) == 3


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        ('"MODULE:none_such"', "estimator 'MODULE:none_such': MODULE has no 'none_such'"),
        ('"MODULE:of_anything"', "an estimator must be a function of one evidence type"),
        (
            '"MODULE:of_one_run"',
            "of_one_run covers evidence of the design one_run, and this evidence has the design independent",
        ),
        ('{ part = "MODULE:known", bond = 1 }', "estimator known has no option 'bond'; it has: bound"),
        ('{ part = "MODULE:known", alpha = 0.5 }', "has no option 'alpha' that you can set"),
        ('{ part = "z_test", deviation = 0.1 }', "estimator z_test has no option 'deviation' that you can set"),
        ('"z_tset"', "unknown estimator 'z_tset'; known: z_test"),
        ("3", "estimator must be a name or a table with the key part, got '3'"),
    ],
)
def test_a_bad_estimator_is_refused_before_anything_runs_with_its_line(
    assay, suite_file, tiny, own_module, estimator, message
):
    name = own_module(SOURCE)
    suite = suite_file(text=text(tiny, estimator.replace("MODULE", name)))
    line = len(tiny.splitlines()) + 1
    with pytest.raises(ConfigError, match=message.replace("MODULE", name)) as refused:
        assay(suite)
    assert f"line {line}: " in str(refused.value)
