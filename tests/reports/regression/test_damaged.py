"""Random damage to a baseline or to a run: the gate never says OK where the content is not what it was."""

import json
import random
import shutil

import pytest
from fedassay.audit.output_file import with_checksum
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.regression.baseline import Baseline
from fedassay.reports.regression.gated_run import judge_folder
from fedassay.suites.config.source import ConfigError
from fedassay.suites.results.outcome import INCOMPLETE, OK

TRIES = 200


def flipped(content, dice):
    place = dice.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << dice.randrange(8)]) + content[place + 1 :]


def without_a_line(content, dice):
    lines = content.splitlines(keepends=True)
    del lines[dice.randrange(len(lines))]
    return b"".join(lines)


def cut(content, dice):
    return content[: dice.randrange(len(content))]


def other_digit(content, dice):
    digits = [place for place, letter in enumerate(content) if chr(letter).isdigit()]
    place = dice.choice(digits)
    return content[:place] + str(dice.randrange(10)).encode() + content[place + 1 :]


def tables_in(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [
        *([value] if value and isinstance(value, dict | list) else []),
        *(t for one in inner for t in tables_in(one)),
    ]


def without_a_key(content, dice):
    rows = (
        [json.loads(line) for line in content.splitlines()] if content.count(b'"schema"') > 1 else [json.loads(content)]
    )
    table = dice.choice(tables_in(rows))
    del table[dice.choice(list(table)) if isinstance(table, dict) else dice.randrange(len(table))]
    return b"\n".join(json.dumps(row).encode() for row in rows)


DAMAGES = [flipped, without_a_line, cut, other_digit, without_a_key]


@pytest.fixture
def runs(craft, scatter):
    """(baseline's run, run to judge): the same values."""
    found = []
    for name in ("base", "run"):
        run = craft(name).cell(scatter()).audit("NOT_REFUTED")
        run.cell(scatter(1), role="utility", attack="training", metric="accuracy", observer="")
        found.append(run.write())
    return found


def outcome(run, baseline):
    """The exit code of the gate: 2 for an error that names a file."""
    try:
        return judge_folder(RunFolder.read(run), baseline).outcome.exit_code
    except (ConfigError, ValueError, FileNotFoundError):
        return 2


def test_no_damaged_baseline_file_is_accepted(runs, tmp_path):
    path = Baseline.of(RunFolder.read(runs[0])).write(tmp_path / "b.json")
    content, whole = path.read_bytes(), Baseline.read(path)
    assert outcome(runs[1], path) == OK
    for number in range(TRIES):
        dice = random.Random(number)
        path.write_bytes(dice.choice(DAMAGES)(content, dice))
        if outcome(runs[1], path) == OK:
            assert Baseline.read(path) == whole, f"damage {number} is accepted"


@pytest.mark.simulations
@pytest.mark.parametrize("damaged", ["base", "run"])
def test_no_damaged_run_is_accepted(runs, tmp_path, damaged):
    place = tmp_path / damaged
    whole = RunFolder.read(place)
    files = {
        name: (place / name).read_bytes() for name in ("manifest.json", "results.jsonl", "claims.json", "gate.json")
    }
    assert outcome(runs[1], runs[0]) == OK
    for number in range(TRIES):
        dice = random.Random(number)
        name = dice.choice(list(files))
        if dice.random() < 0.1:
            (place / name).unlink()
        else:
            (place / name).write_bytes(dice.choice(DAMAGES)(files[name], dice))
        if outcome(runs[1], runs[0]) == OK:
            now = RunFolder.read(place)
            # The gate's own line is computed again from the rows; the time of finishing decides nothing.
            same = (Baseline.of(now), now.claims, now.missing) == (Baseline.of(whole), whole.claims, whole.missing)
            assert same, f"damage {number} to {name} is accepted"
        (place / name).write_bytes(files[name])


def test_a_baseline_without_its_checksum_says_what_to_do(runs, tmp_path):
    path = Baseline.of(RunFolder.read(runs[0])).write(tmp_path / "b.json")
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "sha256"}))
    with pytest.raises(ConfigError, match=r"b\.json has no checksum \(key sha256\).*--accept"):
        Baseline.read(path)


def test_a_run_without_its_gate_is_incomplete_and_no_baseline(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "copy")
    (tmp_path / "copy" / "gate.json").unlink()
    judged = judge_folder(RunFolder.read(tmp_path / "copy"), runs[1])
    assert judged.outcome.exit_code == INCOMPLETE
    assert "gate.json is missing" in judged.outcome.verdict_line
    assert f"fedassay resume {tmp_path / 'copy'}" in judged.outcome.verdict_line
    with pytest.raises(ConfigError, match=r"copy: gate\.json is missing.*fedassay resume"):
        judge_folder(RunFolder.read(runs[1]), tmp_path / "copy")


@pytest.mark.parametrize("key", ["rows_sha256", "claims_sha256", "manifest_sha256"])
def test_a_gate_without_one_of_its_checksums_counts_as_changed(runs, key):
    path = runs[0] / "gate.json"
    path.write_text(json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != key}))
    assert RunFolder.read(runs[0]).changed == ("gate.json",)


def test_a_manifest_that_plans_fewer_cells_than_it_did_is_reported(runs):
    path = runs[0] / "manifest.json"
    manifest = json.loads(path.read_text())
    # The run itself writes the time when it finished after its checksums, and evidence packs are dated by it.
    path.write_text(json.dumps(with_checksum(manifest | {"finished": "2027-01-05T09:14:50Z", "cpu_s": 3.0}), indent=1))
    assert RunFolder.read(runs[0]).changed == ()
    for change in ({"finished": "2020-01-05T09:14:50Z"}, {"cpu_s": 1.0}, {"planned_cells": 1}, {"sha256": None}):
        path.write_text(json.dumps(manifest | change))
        assert RunFolder.read(runs[0]).changed == ("manifest.json",)
