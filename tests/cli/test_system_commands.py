"""``fedassay watch`` and ``fedassay audit`` on systems, and the fixture ``fedassay_system``."""

import json
import re
from contextlib import suppress
from dataclasses import replace
from unittest.mock import Mock

import pytest
from fedassay.adapters import replicas
from fedassay.audit.check import EFFECTIVE, PRESENT, REPLAYED, SCALE
from fedassay.audit.finite import finite_result
from fedassay.checks.watched_run import Watched
from fedassay.cli.pytest_plugin import SystemFixture
from fedassay.cli.system_run import judge_watched
from fedassay.fl.folder_lock import locked
from fedassay.reports.formats.page import html_of_finding
from fedassay.suites.results.outcome import Outcome
from foreign_runner import GaussianRunner
from joblib.externals.loky.process_executor import TerminatedWorkerError

PASSED = REPLAYED.passes("equal")
SYSTEMS = """\
from dataclasses import replace

import torch
from fedassay.adapters.play_back import PlayBack, Step
from foreign_runner import LAYOUT, GaussianRunner

correct, halved, fails = GaussianRunner(), GaussianRunner(share=0.5), GaussianRunner(fails=0)
quiet = GaussianRunner(share=0.1)
number = 3


class Empty(GaussianRunner):
    def run(self, member=False, seed=0, *, plant=None):
        return replace(super().run(member, seed), releases=())


empty = Empty()


class Accounted(Empty):
    def run(self, member=False, seed=0, *, plant=None):
        return replace(super().run(member, seed), ledger=((1.0, 0.3, 5),))


accounted = Accounted()


class Untyped(Empty):
    def run(self, member=False, seed=0, *, plant=None):
        return replace(super().run(member, seed), layout=())


untyped = Untyped()


class Half:
    law = replayable = None

    def run(self, member, seed, *, plant=None):
        pass


half = Half()


class Silent(GaussianRunner):
    def run(self, member=False, seed=0, *, plant=None):
        pass


silent = Silent()


class Passing(GaussianRunner):
    def play_back(self, seed):
        def call(rows, seed):
            noise = torch.randn(6, generator=torch.Generator().manual_seed(seed))
            return (rows * (1 / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0) + noise

        return PlayBack(Step(call=call, layout=LAYOUT, clip_norm=1.0, noise_multiplier=1.0), seed)


passing = Passing()


def unread():
    raise OSError("no data")


def refusing():
    raise ValueError("no records")


def made():
    return GaussianRunner()


def nothing():
    return None


def mechanism(x, rng):
    return x
"""


@pytest.fixture
def target(tmp_path):
    (tmp_path / "systems.py").write_text(SYSTEMS, encoding="utf-8")
    return lambda name: f"{tmp_path / 'systems.py'}:{name}"


def test_lots_clip_and_accounting_that_were_not_looked_at_are_never_ok_and_a_tenth_of_the_noise_fails(say, target):
    passed = say("watch", target("correct"))
    assert passed.exit_code == 11
    assert "FAILED" not in passed.output
    for subject in ("how lots and cohorts are sampled (", "how far one privacy unit changes a release (", "accounting"):
        assert subject in passed.output.partition("gate   INCONCLUSIVE: not looked at: ")[2]
    failed = say("watch", target("quiet"))
    assert failed.exit_code == 10
    assert "FAILED: noise scale" in failed.output
    assert "gate   FAIL: implementation checks failed: noise scale" in failed.output
    assert say("watch", target("made")).exit_code == 11


def test_a_step_that_lets_nan_through_is_named_in_line_and_page_and_fails_nothing(say, target, tmp_path):
    watched = say("watch", target("passing"))
    assert (
        "limited: finite for all rows: a gradient with a NaN entry makes the release NaN or infinite" in watched.output
    )
    assert "FAILED" not in watched.output
    audited = say("audit", target("passing"))
    assert audited.exit_code == 0
    lines = audited.output.splitlines()
    say("watch", target("passing"), "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    (limit,) = [one for one in lines if one.startswith("limit  ")]
    assert limit.endswith("the claim holds for records that cannot cause such values")
    assert limit in page
    assert lines[lines.index(limit) - 1].startswith("gate   OK")


@pytest.mark.parametrize("system", ["empty", "accounted"])
def test_a_run_in_which_no_check_could_look_is_not_ok(say, target, system):
    done = say("watch", target(system))
    assert done.exit_code == 11
    assert "INCONCLUSIVE: no check was possible" in done.output


def test_the_results_of_a_watched_run_as_json(say, target):
    facts = json.loads(say("watch", target("quiet"), "--json").output)
    assert facts["exit_code"] == 10
    assert [one["name"] for one in facts["checks"] if one["passed"] is False] == ["noise scale"]


def test_an_audit_of_a_system_takes_its_claim_and_the_planned_runs(say, target, tmp_path):
    found = say("audit", target("made"), "--keep", tmp_path / "kept")
    assert found.exit_code == 0
    assert "runs per arm refute the claim with probability 0.9" in found.output
    assert "NOT REFUTED" in found.output
    assert (tmp_path / "kept" / "replicas.jsonl").is_file()
    refuted = say("audit", target("halved"), "--json")
    assert refuted.exit_code == 10
    assert json.loads(refuted.output)["finding"]["verdict"] == "REFUTED"


@pytest.mark.parametrize(
    ("system", "words", "kind", "said"),
    [
        ("quiet", ("watch",), "broken", "The privacy claim is violated"),
        ("halved", ("audit", "--trials", "300"), "broken", "The privacy claim is violated"),
        ("correct", ("audit", "--trials", "20"), "open", "Not decided"),
    ],
)
def test_a_page_shows_the_result_and_its_checks(say, target, tmp_path, system, words, kind, said):
    done = say(words[0], target(system), *words[1:], "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert done.output.rstrip().endswith("page.html")
    assert f'<div class="band {kind}">' in page
    assert said in page
    assert f"Tested: {target(system)}" in page
    assert ("claimed: ε is at most" in page) == (system == "halved")
    assert ("Failed: 1 of" in page) == (system == "quiet")
    assert ("Mend what was found, or state a larger" in page) == (kind == "broken")


def test_no_larger_epsilon_is_offered_for_a_row_that_is_not_clipped():
    claim, checks = GaussianRunner().claim, [("sum of clipped rows", False, "sum of clipped rows: 5")]
    page = html_of_finding("mine", claim, "FAIL", code=10, checks=checks)
    assert ("Mend what was found, and test again." in page, "state a larger" in page) == (True, False)


def test_a_page_replaces_no_folder_and_json_stays_json(say, target, tmp_path):
    (tmp_path / "folder").mkdir()
    refused = say("watch", target("correct"), "--html", tmp_path / "folder")
    assert (refused.exit_code, "neither a folder" in " ".join(refused.output.split())) == (2, True)
    assert (
        json.loads(say("watch", target("correct"), "--json", "--html", tmp_path / "a.html").stdout)["exit_code"] == 11
    )
    assert (tmp_path / "a.html").is_file()


def folder_of(output):
    (line,) = [line for line in output.splitlines() if line.startswith("runs ")]
    return line.partition("are kept in ")[2]


def test_an_interrupted_audit_keeps_its_runs_and_the_same_command_goes_on(say, target, tmp_path, monkeypatch):
    made, each = replicas._made, []

    def stopped(*given):
        for one in made(*given):
            if len(each) == 50:
                raise KeyboardInterrupt
            each.append(one)
            yield one

    with monkeypatch.context() as patched:
        patched.setattr(replicas, "_made", stopped)
        stopped_at = say("audit", target("correct"))
        other = say("audit", target("correct"), "--trials", "100")
    assert (stopped_at.exit_code, other.exit_code) == (130, 130)
    # No verdict was seen, so that none is paid for.
    assert "alpha  0.025 of 0.05, so that runs can be added after the verdict" in other.output
    assert re.search(r"^time   about .* \(.* runs of .* s each\)", stopped_at.output, re.MULTILINE)
    folder = folder_of(stopped_at.output)
    assert f"runs are done and kept in {folder}; go on with: fedassay audit" in " ".join(stopped_at.output.split())
    assert re.search(r"^interrupted. 50 of at most \d+ runs", " ".join(stopped_at.stderr.split()))
    assert folder.startswith("runs/audit-correct-")
    again = say("audit", target("correct"))
    assert f"of which 50 are kept in {folder}" in again.output
    resumed = say("resume", folder)
    assert (resumed.exit_code, "repeat that command" in resumed.output) == (2, True)
    whole = say("audit", target("correct"), "--keep", tmp_path / "other")
    # The same runs and levels give the same finding.
    assert again.output.rpartition("claim  ")[2] == whole.output.rpartition("claim  ")[2]


def test_more_runs_are_added_to_the_kept_ones_at_a_level_of_their_own(say, target):
    first = say("audit", target("correct"), "--trials", "100")
    assert "alpha 0.025 in all" in first.output
    assert "of which 0 are kept" in first.output
    words = (
        r"^weak   --trials (\d+) ends with OK after this verdict \(--trials \d+ in place of it\), if nothing refutes"
    )
    enough = re.search(words, first.output, re.M)
    assert 100 < int(enough[1]) < 500
    assert f"; about {enough[1]} counted runs per arm would be enough (exit" in first.output.partition("gate   ")[2]
    assert first.output.index("weak   --trials") < first.output.index("run    ")
    more = say("audit", target("correct"), "--trials", "150")
    assert "alpha 0.0125 in all" in more.output
    assert "because 1 verdict on these runs came before; an audit that is stopped before its verdict" in more.output
    # The first audit ended where no further run could refute the claim.
    kept = int(re.search(r"at most 300, of which (\d+) are kept", more.output)[1])
    assert 100 < kept <= 200
    # Looking again at what was seen spends nothing.
    assert "alpha 0.025 in all" in say("audit", target("correct"), "--trials", "100").output


def test_runs_without_their_verdicts_or_in_another_process_are_refused(say, target, tmp_path):
    command = ("audit", target("correct"), "--trials", "100", "--keep", tmp_path / "kept")
    say(*command)
    with locked(tmp_path / "kept"):
        second = say(*command)
    assert (second.exit_code, "another process is writing" in " ".join(second.output.split())) == (2, True)
    (tmp_path / "kept/replicas.verdicts.json").unlink()
    lost = say(*command)
    assert (lost.exit_code, "is missing, but the folder holds runs" in " ".join(lost.output.split())) == (2, True)


def test_runs_of_a_system_that_was_changed_are_never_mixed(say, target, tmp_path):
    kept = folder_of(say("audit", target("correct"), "--trials", "100").output)
    code = SYSTEMS.replace("correct, halved", "other, halved") + "\ncorrect = GaussianRunner(share=0.99)\n"
    (tmp_path / "systems.py").write_text(code, encoding="utf-8")
    refused = say("audit", target("correct"), "--trials", "100", "--keep", tmp_path / kept)
    assert refused.exit_code == 2
    words = " ".join(refused.output.split())
    assert (
        "the system has changed since), which must not be mixed with these: name another file, or remove this one"
        in words
    )
    fresh = say("audit", target("correct"), "--trials", "100")
    assert "at most 200, of which 0 are kept in" in fresh.output
    assert f"not used, because they are of another version or seed: {kept}" in fresh.output
    other = say("audit", target("correct"), "--trials", "100", "--seed", "1", "--keep", tmp_path / kept)
    assert "seed 0, now 1" in " ".join(other.output.split())


def test_a_system_whose_runs_cannot_be_repeated_is_known_by_its_file(say, target, tmp_path):
    code = SYSTEMS + "\nloose = GaussianRunner(replayable=False)\n"
    (tmp_path / "systems.py").write_text(code, encoding="utf-8")
    kept = folder_of(say("audit", target("loose"), "--trials", "20").output)
    (tmp_path / "systems.py").write_text(code + "# changed\n", encoding="utf-8")
    refused = say("audit", target("loose"), "--trials", "20", "--keep", tmp_path / kept)
    assert (refused.exit_code, "the system has changed" in " ".join(refused.output.split())) == (2, True)


def test_an_exception_in_the_middle_says_where_the_runs_are(say, target, monkeypatch):
    def raises(*given):
        error = RuntimeError("out of memory")
        error.add_note("raised in run 3")
        raise error

    monkeypatch.setattr(replicas, "_made", raises)
    failed = say("audit", target("correct"))
    assert failed.exit_code == 1
    assert "RuntimeError: out of memory" in failed.output
    assert "runs are done and kept in runs/audit-correct-" in failed.output


def test_a_worker_process_that_dies_ends_in_one_line(say, target, tmp_path, monkeypatch):
    monkeypatch.setattr(replicas, "_made", Mock(side_effect=TerminatedWorkerError))
    done = say("audit", target("correct"), "--keep", tmp_path, "-j", 2)
    assert (done.exit_code, "correct died, perhaps for lack of memory" in done.stderr) == (1, True)


def test_wrong_targets_and_options_are_told(say, target):
    for words, message in (
        (("watch", target("number")), "must be a system with run, claim, law and replayable"),
        (("watch", target("nothing")), "must be a system with run, claim, law and replayable"),
        (("watch", target("missing")), "has no function or system 'missing'; it has: "),
        (("watch", target("silent")), "run of Silent must return a TrainingRecord, got NoneType"),
        (("audit", target("silent")), "run of Silent must return a TrainingRecord, got NoneType"),
        (("watch", target("untyped")), "layout must be a Layout, got ()"),
        (("audit", target("untyped")), "layout must be a Layout, got ()"),
        (("watch", target("half")), "has a method run, and is no system: it lacks claim"),
        (("audit", target("half")), "has a method run, and is no system: it lacks claim"),
        (("audit", target("Half")), "is no system: it is a class: make an object of it"),
        (("audit", target("missing"), "--epsilon", "1"), "has no function or system 'missing'; it has: "),
        (("audit", target("mechanism"), "--epsilon", "1"), "needs --inputs X0 X1"),
        (("watch", "nowhere"), "cannot watch 'nowhere'"),
        (("audit", target("correct"), "--trials", "0"), "runs must be >= 1, got 0"),
        (("audit", target("correct"), "--low-bits"), "--low-bits can be given only with a mechanism"),
        (("audit", target("correct"), "--unit", "client"), "--unit can be given only with a file of scores or"),
        (("audit", target("correct"), "--delta", "0.1"), "leave out --delta"),
        (("audit", target("correct"), "--epsilon", "1", "--inputs", "0", "1"), "must be a function"),
        (("audit", target("mechanism"), "--inputs", "0", "1"), "a claim must state epsilon or mu"),
    ):
        refused = say(*words)
        assert refused.exit_code == 2
        assert message in " ".join(refused.output.split())


def test_an_exception_of_the_system_names_the_run(say, target):
    refused = say("audit", target("fails"))
    assert refused.exit_code == 1
    assert "RuntimeError: out of memory" in refused.output
    assert "raised in the watched run" in refused.output
    watched = say("watch", target("fails"))
    assert watched.exit_code == 1
    assert "RuntimeError: out of memory" in watched.output
    assert "raised in the watched run" in watched.output


def test_the_fixture_names_the_choice_before_any_run_that_could_not_end_with_ok(monkeypatch):
    weak = replace(replicas.plan_replicas(GaussianRunner(), runs=20), enough=(300, 340))
    monkeypatch.setattr(replicas, "plan_replicas", lambda *given, **options: weak)
    monkeypatch.setattr(replicas, "audit_replicas", Mock(side_effect=AssertionError))
    fine = Outcome(verdict_line="OK", exit_code=0)
    monkeypatch.setattr("fedassay.cli.system_run.judge_watched", lambda found: fine)
    with pytest.raises(pytest.fail.Exception, match=r"choose replicas=False .* or accept_weak=True .*runs=300"):
        SystemFixture(note_verdict=print)(GaussianRunner())


def test_the_fixture_prints_the_limits_of_what_was_watched(monkeypatch):
    seen = Watched(results=(PASSED, finite_result(["a row"], ["a row"], whom="records")))
    monkeypatch.setattr("fedassay.adapters.runner.watch", lambda *_, **__: seen)
    monkeypatch.setattr("fedassay.cli.system_run.judge_watched", lambda _: Outcome(verdict_line="OK", exit_code=0))
    noted = []
    assert SystemFixture(note_verdict=noted.append)(GaussianRunner(), replicas=False) is None
    assert noted[0] == "OK"
    assert [one.startswith("limit  a row") for one in noted[1:]] == [True]


def test_the_fixture_writes_the_page_of_a_system_that_fails_and_of_one_that_passes(monkeypatch, tmp_path):
    def band(gate):
        monkeypatch.setattr("fedassay.cli.system_run.judge_watched", lambda found: gate)
        judged = SystemFixture(test="test_mine.py::test_it", folder=lambda: tmp_path, note_verdict=print)
        with suppress(pytest.fail.Exception):
            judged(GaussianRunner(), replicas=False)
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "test_mine.py::test_it" in page
        return page.partition('<div class="band ')[2].partition('"')[0]

    assert band(Outcome(verdict_line="FAIL: noise", exit_code=10)) == "broken"
    assert band(Outcome(verdict_line="OK", exit_code=0)) == "fine"


def test_equal_reasons_and_failures_of_one_check_stand_in_one_line():
    cases = [EFFECTIVE.of(words).at_least(1.0, 3.0, unit="sensitivities", witness="a unit") for words in ("a", "b")]
    lines = Watched(results=(*cases, SCALE.skipped("few"), PRESENT.skipped("few"), PASSED)).lines()
    assert len(lines) == 3
    assert lines[0].startswith("FAILED: effective noise multiplier, a: ")
    assert lines[0].endswith("; so does effective noise multiplier (b)")
    assert lines[2] == "not checked: noise scale, noise present: few"
    assert "failed: effective noise multiplier (a; b)" in judge_watched(Watched(results=tuple(cases))).verdict_line


@pytest.mark.simulations
def test_the_fixture_fails_a_test_unless_checks_pass_and_the_claim_is_not_refuted(inner_pytest, tmp_path):
    code = SYSTEMS + "\n\ndef test_one(fedassay_system):\n    assert fedassay_system(correct).measurement.n0 > 60\n"
    code += "\n\ndef test_two(fedassay_system):\n    fedassay_system(quiet)\n"
    code += "\n\ndef test_three(fedassay_system):\n    assert fedassay_system(correct, replicas=False) is None\n"
    (tmp_path / "test_own.py").write_text(code, encoding="utf-8")
    exit_code, output = inner_pytest(tmp_path, f"--fedassay-report={tmp_path / 'kept'}")
    assert exit_code == 1
    assert len(list((tmp_path / "kept").glob("*/report.html"))) == 3
    assert "FAILED: noise scale" in output
    # What this system shows of its lots, rows and accountant is nothing.
    assert "INCONCLUSIVE: not looked at" in output


def test_the_systems_of_a_module_are_listed_and_its_numbers_are_not(say, target):
    printed = say("watch", target("corect"))
    assert printed.exit_code == 2
    assert "it has: correct, " in printed.output
    assert "empty" in printed.output
    assert "number" not in printed.output.split("it has")[1]


@pytest.mark.parametrize("command", ["watch", "audit"])
def test_an_error_of_the_operating_system_in_a_factory_is_one_of_the_users_code(say, target, command):
    printed = say(command, target("unread"))
    assert printed.exit_code == 1
    assert "systems.py:unread, because it raised an exception" in " ".join(printed.output.split())
    assert "OSError: no data" in printed.output
    assert say(command, target("refusing")).exit_code == 2


def test_runs_that_are_too_few_to_refute_anything_name_no_cause_and_cost_later_audits_nothing(say, target):
    one = say("audit", target("correct"), "--trials", "1")
    assert (one.exit_code, "all gave the same numbers" in one.output) == (11, False)
    assert "alpha  not used" in one.output
    assert "after this verdict" not in one.output
    assert "alpha 0.025 in all" in say("audit", target("correct"), "--trials", "100").output
