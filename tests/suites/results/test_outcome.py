"""One verdict line, and an exit code that always agrees with it."""

import itertools
import subprocess
import sys

import pytest
from fedassay.suites.results.outcome import (
    FAIL,
    INCOMPLETE,
    INCONCLUSIVE,
    NO_CONTROL,
    OK,
    Outcome,
    accepting_weak,
    judge_run,
)
from fedassay.suites.results.record import Record
from fedassay.suites.results.rows import read_rows, skipped_counts
from row_facts import FACTS

WORDS = {OK: "OK", FAIL: "FAIL", INCONCLUSIVE: "INCONCLUSIVE", INCOMPLETE: "INCOMPLETE"}


def row(**changes):
    fields = FACTS | {"cell_id": "c", "defense": "d", "metric": "auc", "value": 0.5}
    return Record(**(fields | changes))


def audit(verdict, **changes):
    return row(**({"role": "audit", "verdict": verdict, "metric": "epsilon_low"} | changes))


def by_attacks(verdict, **changes):
    return audit(verdict, **({"role": "evidence", "attack": "membership"} | changes))


def failed(**changes):
    return row(**({"status": "failed", "value": None, "metric": "none", "reason": "x"} | changes))


@pytest.mark.parametrize(
    ("used", "words"),
    [
        ({"model": "resnet", "dataset": "scans"}, ""),
        ({"model": "logistic", "dataset": "scans"}, "; audited on scans with logistic, not resnet"),
        ({"model": "resnet", "dataset": "digits"}, "; audited on digits with resnet, not scans with resnet"),
        ({"model": "logistic", "dataset": "digits"}, "; audited on digits with logistic, not scans with resnet"),
    ],
)
def test_the_line_names_the_model_that_was_audited_where_the_federation_trains_another(used, words):
    own = row(role="utility", dataset="scans", model="resnet")
    other = row(role="utility", federation="other", dataset="digits", model="logistic")
    line = judge_run([own, other, audit("NOT_REFUTED", **used), audit("NOT_REFUTED", **used)]).verdict_line
    assert line == f"OK: 2 claims NOT REFUTED; {NO_CONTROL}{words}"


@pytest.mark.parametrize(
    ("records", "missing", "code", "line"),
    [
        ([], 0, OK, "OK: no claim was audited"),
        ([row(), row(role="utility")], 0, OK, "OK: no claim was audited"),
        ([audit("NOT_REFUTED")], 0, OK, f"OK: 1 claim NOT REFUTED; {NO_CONTROL}"),
        (
            [audit("NOT_REFUTED"), audit("REFUTED", control=True)],
            0,
            OK,
            "OK: 1 claim NOT REFUTED, 1 control REFUTED as intended",
        ),
        (
            [audit("NOT_REFUTED"), audit("REFUTED", variant="as_published"), audit("", variant="as_published")],
            0,
            OK,
            f"OK: 1 claim NOT REFUTED, 1 of 2 claims of papers, as published, REFUTED; {NO_CONTROL}",
        ),
        ([failed(role="audit", variant="as_published")], 0, INCOMPLETE, "INCOMPLETE: 1 cell FAILED (d)"),
        ([audit("REFUTED", defense="mine")], 0, FAIL, "FAIL: claims REFUTED: mine"),
        ([audit("UNDERPOWERED")], 0, INCONCLUSIVE, "INCONCLUSIVE: claims that this run cannot judge: d"),
        ([failed()], 0, INCOMPLETE, "INCOMPLETE: 1 cell FAILED (d)"),
        ([row()], 2, INCOMPLETE, "INCOMPLETE: 2 cells missing"),
        ([audit("NOT_REFUTED", control=True)], 0, INCOMPLETE, "INCOMPLETE: controls not refuted: d"),
        (
            [audit("UNDERPOWERED", control=True), row(role="check", verdict="FAILED", control=True)],
            0,
            INCOMPLETE,
            "INCOMPLETE: controls not refuted: d (found by its checks, not by its runs)",
        ),
        ([row(status="skipped", value=None), row(status="unavailable", value=None)], 0, OK, "OK: no claim was audited"),
    ],
)
def test_each_outcome_has_its_code_and_its_line(records, missing, code, line):
    assert judge_run(records, missing=missing) == Outcome(verdict_line=line, exit_code=code)


TROUBLES = {
    "failed": ([failed(defense="f")], 0, INCOMPLETE),
    "missing": ([], 3, INCOMPLETE),
    "blind": ([audit("NOT_REFUTED", control=True, defense="b")], 0, INCOMPLETE),
    "refuted": ([audit("REFUTED", defense="r")], 0, FAIL),
    "weak": ([audit("UNDERPOWERED", defense="w")], 0, INCONCLUSIVE),
    "fine": ([audit("NOT_REFUTED"), audit("REFUTED", control=True), row()], 0, OK),
}


@pytest.mark.parametrize("names", [names for k in range(1, 7) for names in itertools.combinations(TROUBLES, k)])
def test_incomplete_beats_refuted_beats_inconclusive_and_nothing_is_left_unsaid(names):
    records = [record for name in names for record in TROUBLES[name][0]]
    gate = judge_run(records, missing=sum(TROUBLES[name][1] for name in names))
    codes = {TROUBLES[name][2] for name in names}
    assert gate.exit_code == next(code for code in (INCOMPLETE, FAIL, INCONCLUSIVE, OK) if code in codes)
    assert gate.verdict_line.startswith(f"{WORDS[gate.exit_code]}: ")
    said = {"failed": "FAILED (f)", "missing": "3 cells missing", "blind": "not refuted: b", "refuted": "REFUTED: r"}
    said["weak"] = "cannot judge: w"
    for name in set(names) - {"fine"}:
        assert said[name] in gate.verdict_line


@pytest.mark.parametrize("verdict", ["NOT_REFUTED", "UNDERPOWERED", "OUT_OF_SCOPE"])
@pytest.mark.parametrize("audits", [[], [audit("NOT_REFUTED"), audit("REFUTED", control=True)]])
def test_attacks_that_refute_nothing_change_no_verdict(verdict, audits):
    gate = judge_run([*audits, by_attacks(verdict), by_attacks(verdict, control=True, defense="c")])
    told = judge_run(audits)
    could = "" if verdict == "NOT_REFUTED" else " (for 1 of them the attacks could not have refuted the claim)"
    assert gate == Outcome(verdict_line=f"{told.verdict_line}, attacks refuted none of 1 claim{could}", exit_code=OK)


def test_attacks_that_refute_a_correct_claim_fail_the_run():
    gate = judge_run([audit("NOT_REFUTED"), by_attacks("REFUTED", defense="mine")])
    assert (gate.exit_code, gate.verdict_line) == (FAIL, "FAIL: claims REFUTED by attacks: mine")


@pytest.mark.parametrize("changes", [{"control": True}, {"variant": "as_published"}])
def test_attacks_may_refute_what_is_on_trial_or_broken_on_purpose(changes):
    assert judge_run([audit("NOT_REFUTED"), by_attacks("REFUTED", **changes)]).exit_code == OK


def test_a_control_that_only_attacks_refute_was_not_refuted_by_its_audit():
    records = [audit("NOT_REFUTED", control=True, defense="c"), by_attacks("REFUTED", control=True, defense="c")]
    assert judge_run(records).verdict_line == "INCOMPLETE: controls not refuted: c"


def test_the_order_of_the_rows_does_not_count():
    records = [record for trouble in TROUBLES.values() for record in trouble[0]]
    assert len({judge_run(order, missing=1) for order in itertools.permutations(records[:5])}) == 1


def test_raise_for_status_raises_unless_all_is_fine():
    judge_run([]).raise_for_status()
    with pytest.raises(RuntimeError, match=r"^FAIL: claims REFUTED: d$"):
        judge_run([audit("REFUTED")]).raise_for_status()


def test_a_failed_check_of_a_correct_claim_is_inconclusive_and_of_a_control_is_not():
    check = {"role": "check", "metric": "check_noise_scale", "verdict": "FAILED"}
    kept = audit("NOT_REFUTED", defense="d")
    lawless = kept.model_copy(update=check)
    gate = judge_run([kept, lawless])
    assert (gate.exit_code, gate.verdict_line) == (
        INCONCLUSIVE,
        "INCONCLUSIVE: implementation checks failed: d",
    )
    refuted = audit("REFUTED", defense="c", control=True)
    assert judge_run([kept, refuted, refuted.model_copy(update=check)]).exit_code == OK


def test_a_row_that_cannot_be_read_leaves_the_run_incomplete_whatever_the_others_say():
    gate = judge_run([audit("NOT_REFUTED")], unread=2)
    assert gate == Outcome(verdict_line="INCOMPLETE: 2 rows that cannot be read", exit_code=INCOMPLETE)
    assert judge_run([audit("REFUTED")], unread=1).exit_code == INCOMPLETE


def test_repeated_rows_are_counted_apart_from_rows_that_cannot_be_read(tmp_path):
    line = audit("NOT_REFUTED").to_line().encode()
    (tmp_path / "results.jsonl").write_bytes(line * 2 + b"{")
    counts = skipped_counts(read_rows(tmp_path / "results.jsonl").skipped)
    gate = judge_run([audit("NOT_REFUTED")], **counts)
    assert gate.verdict_line == "INCOMPLETE: 1 row that cannot be read; 1 repeated row"


def test_an_accepted_weak_test_is_no_problem_and_the_line_says_so():
    records = [
        audit("UNDERPOWERED", defense="one", weak=True),
        audit("UNDERPOWERED", defense="paper", weak=True, variant="as_published"),
        audit("NOT_REFUTED", defense="strong"),
        audit("REFUTED", control=True, defense="broken"),
    ]
    assert judge_run(records).verdict_line == "INCONCLUSIVE: claims that this run cannot judge: one"
    found = judge_run(accepting_weak(records))
    assert found.exit_code == OK
    assert "2 claims NOT REFUTED, 1 of them by a weak test, accepted (one)" in found.verdict_line
    # Nothing else is accepted.
    for verdict in ("UNDERPOWERED", "OUT_OF_SCOPE"):
        assert judge_run(accepting_weak([audit(verdict)])).exit_code == INCONCLUSIVE


def test_the_line_counts_what_was_not_looked_at_and_names_the_first_in_any_order_of_rows():
    records = [
        audit("NOT_REFUTED", defense="b", not_looked_at=["weights: too many", "timing"]),
        audit("NOT_REFUTED", defense="a", not_looked_at=["lots: no runs", "timing"]),
        audit("REFUTED", control=True, defense="broken", not_looked_at=["noise: none"]),
    ]
    for order in itertools.permutations(records):
        assert judge_run(order).verdict_line.endswith("; not looked at: 3 items, such as lots (no runs)")


CODE = """
import signal, sys, types

def memory():
    return types.SimpleNamespace(peak_wset=3 * 2**20)

for name in ("fcntl", "resource"):
    sys.modules[name] = None
sys.modules["psutil"] = types.SimpleNamespace(Process=lambda: types.SimpleNamespace(memory_info=memory))
del signal.pthread_sigmask

import fedassay
from fedassay.suites.config.source import ConfigError
from fedassay.suites.results.store import Store

run = fedassay.run(sys.argv[1], jobs=1, folder=sys.argv[2], report=False)
store = Store(run.folder)
with store.locked():
    try:
        fedassay.resume(run.folder, jobs=1)
    except ConfigError as error:
        print(error)
print(run.verdict.exit_code, {record.peak_mem_mb for record in run.records if record.peak_mem_mb})
"""


@pytest.mark.processes
def test_a_run_needs_no_unix_module(suite_file, tmp_path):
    words = [sys.executable, "-W", "ignore", "-c", CODE, str(suite_file()), str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    refused, finished = done.stdout.splitlines()
    assert refused.startswith("another process is writing")
    assert finished == "0 {3.0}"
    assert not (tmp_path / "run" / ".lock").exists()
