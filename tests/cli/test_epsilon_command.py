"""The command ``epsilon``: lines, JSON, an accountant's saved state as data, and what is refused with exit code 2."""

import json
import os

import pytest
import torch

STATE = {"history": [(3.0, 0.2, 50), (1.0, 0.01, 10)], "mechanism": "rdp"}
FROM = ("epsilon", "--delta", "1e-5", "--history")


class Code:
    def __reduce__(self):
        return os.mkdir, ("made_by_the_file",)


def test_lines_state_the_guarantee_and_json_has_the_same_numbers(say):
    words = (
        "epsilon",
        "--noise-multiplier",
        1.2,
        "--delta",
        "1e-5",
        "--rounds",
        100,
        "--clients",
        3383,
        "--cohort",
        120,
    )
    said = say(*words).stdout.splitlines()
    assert said[0].startswith("eps 1.70754, delta 1e-5, one client (add/remove), adversary: other clients")
    assert any(line.startswith("eps 1.98611 (above it, times 1.16) Renyi: ") for line in said)
    data = json.loads(say(*words, "--json").stdout)
    assert data["counts"][0]["epsilon"] == pytest.approx(1.70754, abs=5e-6)


def test_a_state_of_opacus_is_read_from_json_from_its_own_file_and_from_a_checkpoint(say, tmp_path):
    (tmp_path / "state.json").write_text(json.dumps(STATE))
    torch.save(STATE, tmp_path / "state.pt")
    weights = torch.nn.Linear(2, 2).state_dict()
    torch.save({"module_state_dict": weights, "privacy_accountant_state_dict": STATE}, tmp_path / "all.pt")
    said = {say(*FROM, tmp_path / name).stdout for name in ("state.json", "state.pt", "all.pt")}
    assert len(said) == 1
    assert "60 steps in 2 stages" in said.pop()


def test_a_file_that_is_no_history_is_refused_and_code_in_it_never_runs(say, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"history": [Code()]}, "code.pt")
    (tmp_path / "text").write_text("history")
    (tmp_path / "empty").write_text("[]")
    (tmp_path / "rate").write_text("[[1, 2, 3]]")
    reasons = {
        "code.pt": "holds data alone",
        "text": "must be JSON",
        "empty": "is empty",
        "rate": "from 1e-09 to 1, got 2",
    }
    for name, words in reasons.items():
        result = say(*FROM, name)
        assert (result.exit_code, words in result.stderr) == (2, True), result.output
        assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "made_by_the_file").exists()
