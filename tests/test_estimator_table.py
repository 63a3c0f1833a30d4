"""The table of estimators on the page: it names every estimator, and each of its lines runs."""

import re
from pathlib import Path

import fedassay
import pytest
from fedassay.audit.estimators.catalogue import estimators

PAGE = Path(fedassay.__file__).resolve().parent / "docs" / "estimators.md"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="an installed wheel has no docs")


def rows():
    """(estimator, command, lines of the audit table, Python) of each row of the page's table."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    found = [re.findall(r"`([^`]+)`", line) for line in text.splitlines() if re.match(r"\| `\w+` \|", line)]
    return [(row[0], row[1], row[2:-1], row[-1]) for row in found]


def block(title):
    return re.search(rf'```\w+ title="{title}"\n(.*?)```', PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]


def test_the_table_names_every_estimator_once():
    assert [row[0] for row in rows()] == sorted(estimators())
    assert all(f"--estimator {name}" in command for name, command, _, _ in rows())
    assert all(f'estimator = "{name}"' in keys for name, _, keys, _ in rows())
    assert all(f'estimator="{name}"' in python for name, _, _, python in rows())


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """The folder with the page's files, and the names that its code defines."""
    folder, names = tmp_path_factory.mktemp("evidence"), {}
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        exec(block("evidence.py"), names)
    return folder, names


@pytest.mark.simulations
@pytest.mark.parametrize("name", sorted(estimators()))
def test_command_and_python_give_one_measurement_by_this_estimator(evidence, monkeypatch, name):
    import json
    import shlex

    from fedassay.cli.app import app
    from typer.testing import CliRunner

    folder, names = evidence
    monkeypatch.chdir(folder)
    _, command, _, python = next(row for row in rows() if row[0] == name)
    printed = CliRunner().invoke(app, [*shlex.split(command)[1:], "--json"])
    assert printed.exit_code in (0, 10, 11), printed.output
    shown = json.loads(printed.stdout)["finding"]
    called = eval(python, names)
    assert shown["measurement"]["estimator"] == called.measurement.estimator == name
    if "noise-multiplier" not in command:  # There the command computes epsilon by the accountant, and not exactly.
        assert shown["measurement"]["epsilon_low"] == called.measurement.epsilon_low
    assert shown["verdict"] == called.verdict.value


@pytest.mark.documents
@pytest.mark.parametrize("name", sorted(estimators()))
def test_the_suite_measures_by_this_estimator(tmp_path, name):
    _, _, keys, _ = next(row for row in rows() if row[0] == name)
    lines = [line for line in keys if line != f"`{name}`"]
    text = block("audited.toml").replace("replicas = 100", "\n".join(["replicas = 100", *lines]))
    (tmp_path / "audited.toml").write_text(text, encoding="utf-8")
    run = fedassay.run(tmp_path / "audited.toml", folder=tmp_path / "run", jobs=1, report=False)
    (row,) = [record for record in run.records if record.metric == "epsilon_low"]
    assert row.status == "ok", row.reason
    assert row.ci_method.startswith(f"{name},")
