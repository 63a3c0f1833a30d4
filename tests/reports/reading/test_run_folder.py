"""A run's folder is read as data: its order is the suite's, and no text of it breaks a line."""

import json

import pytest
from fedassay.audit.curve import ProfileCurve
from fedassay.reports.formats.markdown import markdown
from fedassay.reports.formats.page import html
from fedassay.reports.formats.terminal import claim_lines, tables
from fedassay.reports.reading.printable import printable
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.regression.gated_run import judge_folder


def test_records_come_in_the_order_of_the_file(run_maker):
    run_maker.row(metric="auc", value=0.5)
    run_maker.row(metric="balanced_accuracy", value=0.6)
    folder = run_maker.write()
    assert [(record.metric, record.value) for record in folder.records] == [("auc", 0.5), ("balanced_accuracy", 0.6)]
    assert folder.skipped == ()


@pytest.mark.parametrize("name", ["manifest.json", "claims.json"])
def test_an_unknown_schema_names_what_was_expected_and_found(run_maker, name):
    run_maker.write()
    path = run_maker.path / name
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": "other-9"}))
    with pytest.raises(ValueError, match=rf"{name}: the schema must be '(manifest|claims)-1', .*'other-9'"):
        RunFolder.read(run_maker.path)


@pytest.mark.parametrize("name", ["manifest.json", "claims.json", "gate.json"])
@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"[]", b"{}", b'{"schema": "claims-1"}'])
def test_a_file_beside_the_rows_that_cannot_be_read_is_an_error_that_names_it(run_maker, name, content):
    run_maker.row(value=0.5)
    run_maker.write()
    (run_maker.path / name).write_bytes(content)
    with pytest.raises(ValueError, match=name):
        RunFolder.read(run_maker.path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epsilon": "4"}, "claims.0.claim.epsilon must be a number"),
        ({"epsilon": -1}, "claims.0.claim.epsilon must be > 0"),
        ({"unit": "person"}, "claims.0.claim.unit"),
        ({"observer": "somebody"}, r"claims\.0\.claim: .*observer must be .*'somebody'"),
        ({"tuned": True}, "claims.0.claim.tuned is an unknown key"),
        ({"curve": {"family": "gaussian"}}, "claims.0.claim.curve.gaussian.mu is missing"),
        ({"curve": {"family": "profile", "epsilons": [1], "delta_add": [], "delta_remove": []}}, ".* equally long"),
    ],
)
def test_a_claim_that_was_changed_to_none_is_an_error_with_its_place(run_maker, make_claim, change, says):
    run_maker.sign("dp_fedavg", make_claim())
    run_maker.claims[0]["claim"] |= change
    with pytest.raises(ValueError, match=rf"claims\.json is not a valid claims file: {says}"):
        run_maker.write()


def test_a_claim_comes_back_as_it_was_stated(run_maker, make_claim):
    curve = ProfileCurve((0.5, 1.0), (0.1, 0.01), (0.1, 0.02))
    parameters = {"whole": 1, "part": 1.0, "yes": True, "name": "x"}
    for signed in (make_claim(), make_claim(mu=0.5), make_claim(curve=curve, parameters=parameters, subjects="some")):
        run_maker.sign("dp_fedavg", signed)
    for entry in run_maker.write().claims:
        assert entry.claim.claim_id == entry.claim_id


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"git": {"commit": 3}}, "is not a valid run manifest: git.commit must be text"),
        ({"git": "main"}, "is not a valid run manifest: git "),
        ({"seeds": ["x"]}, "is not a valid run manifest: seeds.0 "),
    ],
)
def test_a_manifest_that_was_changed_to_none_is_an_error_with_its_place(run_maker, change, says):
    run_maker.manifest |= change
    with pytest.raises(ValueError, match=rf"manifest\.json {says}"):
        run_maker.write()


@pytest.mark.parametrize("rounds", ["x", None, 3.5, True, [], {"a": 1}])
def test_rounds_that_a_hand_has_spoilt_are_not_reported(run_maker, rounds):
    run_maker.manifest["suite"]["federations"] = {"main": {"rounds": rounds, "clients": 10}}
    folder = run_maker.write()
    assert (folder.rounds_of("main"), folder.size_of("main")) == (None, ["10 clients"])


def test_a_folder_that_is_no_run_states_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"holds no run: the file manifest\.json is missing"):
        RunFolder.read(tmp_path)


def test_an_unfinished_run_has_neither_gate_nor_claims_nor_rows(run_maker):
    run_maker.write()
    for name in ("results.jsonl", "claims.json"):
        (run_maker.path / name).unlink()
    folder = RunFolder.read(run_maker.path)
    assert (folder.records, folder.claims, folder.gate) == ((), (), None)


def test_a_control_and_its_correct_version_state_one_claim_and_are_kept_apart(run_maker, make_claim):
    run_maker.sign("dp_fedavg", make_claim())
    run_maker.sign("noise_halved", make_claim(), control=True)
    row = {"role": "audit", "claim_id": make_claim().claim_id, "metric": "epsilon_low", "seed": None}
    run_maker.row(**row, defense="dp_fedavg", value=0.9)
    run_maker.row(**row, defense="noise_halved", value=2.2)
    folder = run_maker.write()
    assert folder.claims[0].claim_id == folder.claims[1].claim_id
    assert [folder.claim_of(record).control for record in folder.records] == [False, True]


def test_a_gate_that_the_records_no_longer_bear_is_not_repeated(run_maker):
    run_maker.row(value=0.5)
    run_maker.gate = {"verdict_line": "OK: all is well", "exit_code": 0}
    run_maker.manifest["planned_cells"] = 3
    gate = run_maker.write().gate
    assert gate.exit_code == 12
    assert gate.verdict_line == "INCOMPLETE: 2 cells missing (the outcome when the run finished: OK: all is well)"


def test_a_gate_that_did_not_see_a_row_that_cannot_be_read_is_not_repeated(run_maker):
    run_maker.row(value=0.5)
    run_maker.gate = {"verdict_line": "OK: no claim was audited", "exit_code": 0}
    run_maker.manifest["planned_cells"] = 1
    assert run_maker.write().gate.exit_code == 0
    run_maker.row(value=0.5, schema="result-9")
    gate = run_maker.write().gate
    assert gate.exit_code == 12
    assert gate.verdict_line.startswith("INCOMPLETE: 1 row that cannot be read (the outcome when the run finished: OK:")


@pytest.mark.parametrize("depth", [600, 900, 100_000])
def test_a_manifest_that_is_nested_too_deeply_is_an_error_that_names_the_run(run_maker, depth):
    folder = run_maker.write().path
    text = (
        (folder / "manifest.json")
        .read_text()
        .replace('"description"', f'"own": {"[" * depth}{"]" * depth}, "description"')
    )
    (folder / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match=r"run.*(nested too deeply|recursion)"):
        RunFolder.read(folder)


def ordered(made, suite, labels):
    made.manifest["suite"] = suite
    for label in labels:
        made.row(defense=label)
    return made.write().order.defenses


def test_a_suite_named_like_a_defense_does_not_move_it(run_maker):
    suite = {"name": "mine", "defenses": {"none": {}, "mine": {"part": "my_defense:Mine"}}}
    assert ordered(run_maker, suite, ["mine", "none"]) == ("none", "mine")


def test_a_part_that_another_label_uses_does_not_move_it(run_maker):
    suite = {"name": "x", "defenses": {"other": {"part": "none"}, "first": {}, "none": {}}}
    assert ordered(run_maker, suite, ["none", "first", "other"]) == ("other", "first", "none")


def test_labels_that_the_suite_does_not_name_come_last(run_maker):
    assert ordered(run_maker, {"name": "x", "defenses": {"b": {}}}, ["a", "c", "b"]) == ("b", "a", "c")


EVIL = "a\x1b]0;title\x07\nOK: forged\x85\u202eb"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\nb", "a b"), ("a\r\n\tb", "a b"), ("a\x1bb", "a\ufffdb"), ("\u202e", "\ufffd"), ("a\u2028b", "a b")],
)
def test_a_line_end_is_a_blank_and_another_control_character_is_replaced(text, shown):
    assert printable(text) == shown


def test_no_output_of_a_run_holds_a_control_character_of_its_names(run_maker, make_claim):
    signed = make_claim()
    run_maker.sign(EVIL, signed)
    row = {"role": "audit", "claim_id": signed.claim_id, "metric": "epsilon_low", "seed": None, "verdict": "REFUTED"}
    run_maker.row(**row, defense=EVIL, value=9.0, reason=EVIL)
    run_maker.row(defense=EVIL, attack=EVIL, metric="auc", value=0.5)
    run_maker.row(defense=EVIL, attack=EVIL, metric="none", status="failed", reason=EVIL)
    run_maker.manifest["suite"]["description"] = EVIL
    run_maker.gate = {"verdict_line": EVIL, "exit_code": 0}
    folder = run_maker.write()
    judged = judge_folder(folder).outcome
    pages = [html(folder), markdown(folder), "\n".join(judged.details), *claim_lines(folder), *tables(folder)]
    for page in pages:
        assert not {"\x1b", "\x07", "\x85", "\u202e"} & set(page)
        assert "\nOK: forged" not in page
    assert len(judged.verdict_line.splitlines()) == len(folder.gate.verdict_line.splitlines()) == 1


def test_claims_still_find_their_rows(run_maker, make_claim):
    signed = make_claim()
    run_maker.sign(EVIL, signed)
    run_maker.row(defense=EVIL, role="audit", claim_id=signed.claim_id, metric="epsilon_low", value=0.1)
    folder = run_maker.write()
    assert json.loads((folder.path / "claims.json").read_text())["claims"][0]["defense"] == EVIL
    assert RunFolder.read(folder.path).claim_of(folder.records[0]).defense == printable(EVIL)
