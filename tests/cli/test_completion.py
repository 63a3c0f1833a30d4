"""What a shell offers after the first letters of a command, a suite or a defense."""

import pytest
from fedassay.cli.app import app
from typer.testing import CliRunner


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fedassay re", {"report", "resume"}),
        ("fedassay run qu", {"quick"}),
        ("fedassay run mi", {"mine.toml"}),
        ("fedassay run quick -d dp_f", {"dp_fedavg", "dp_fedsgd"}),
    ],
)
def test_a_shell_offers_names(line, offered, tmp_path, monkeypatch):
    (tmp_path / "mine.toml").touch()
    (tmp_path / "mine.txt").touch()
    monkeypatch.chdir(tmp_path)
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_FEDASSAY_COMPLETE": "complete_bash"}
    result = CliRunner().invoke(app, [], env=words, prog_name="fedassay")
    assert set(result.output.split()) >= offered
    assert "mine.txt" not in result.output
