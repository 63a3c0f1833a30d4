"""What fails is a row with its reason and a log; nothing else is touched by it."""

import fedassay
import pytest
from fedassay.cli.app import app
from run_files import results
from typer.testing import CliRunner


def failures(run):
    return {(record.defense, record.attack): record for record in run.records if record.status == "failed"}


# Without its audited defense the small suite takes a third of the time.
UNDEFENDED = ("[defenses.ldp_gaussian]\ndelta = 1e-5\nepsilon = 4.0\n", "")


def values(run, defense="none"):
    """The rows of one defense, of which other parts of the run change nothing."""
    rows = [record for record in run.records if record.defense == defense]
    return {(row.cell_id, row.attack, row.metric): (row.value, row.reason) for row in rows}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("if context.round == 1: raise RuntimeError('out of budget')", "RuntimeError: out of budget"),
        ("if context.round == 1: raise OSError(28, 'No space left on device')", "OSError: [Errno 28] No space left"),
        ("if context.round == 1: sys.exit(0)", "SystemExit: 0"),
        ("aggregate = aggregate * float('nan')", "FloatingPointError: training diverged: the final model holds NaN"),
        ("aggregate = aggregate[:, :-1]", "ValueError: hook aggregate must return a torch.Tensor of shape"),
        ("raise ValueError('\\ud800 \\u2028 x')", "ValueError: \\ud800 x"),
    ],
)
def test_a_defense_that_fails_in_the_second_round_fails_its_own_cells_alone(
    assay, suite_file, own_defense, finished, body, reason
):
    module = own_defense(body)
    run = assay(suite_file(*UNDEFENDED), defenses=[f"{module}:Mine"])
    found = failures(run)
    assert set(found) == {("Mine", "training"), ("Mine", "loss"), ("Mine", "random_scores")}
    for record in found.values():
        assert record.reason.startswith(reason)
        assert (record.metric, record.value) == ("none", None)
        log = (run.folder / "cells" / record.cell_id / "log.txt").read_text()
        assert "Traceback (most recent call last)" in log
    assert run.verdict.exit_code == 12
    assert run.verdict.verdict_line == "INCOMPLETE: 3 cells FAILED (Mine)"
    assert {record.defense for record in run.records} == {"Mine", "none"}
    assert values(run) == values(finished)


@pytest.mark.simulations
def test_a_claim_whose_replicas_failed_is_a_failed_row_with_their_reason(assay, suite_file, own_defense):
    module = own_defense("raise RuntimeError('out of budget')")
    run = assay(suite_file(), defenses=[f"{module}:Signing"])
    found = failures(run)
    assert found[("Signing", "canary")].reason.startswith("RuntimeError: out of budget (")
    audit = found[("Signing", "likelihood_ratio")]
    assert audit.reason.startswith("ValueError: the audit runs of seed 0 failed: RuntimeError: out of budget (")
    assert (audit.verdict, audit.value) == ("", None)
    assert run.verdict.exit_code == 12


ATTACK = """\
from dataclasses import dataclass

from fedassay.attacks.membership.loss import LossThreshold


@dataclass(frozen=True, kw_only=True)
class Mine(LossThreshold):
    count: int = 8

    {body}
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("def plant(self, task, rng): raise RuntimeError('no such client')", "RuntimeError: no such client"),
        ("def plant(self, task, rng): return None", "ValueError: Mine needs candidates"),
        ("def run(self, view, knowledge, rng): raise RuntimeError('lost')", "RuntimeError: lost"),
        ("def run(self, view, knowledge, rng): return [1.0]", "TypeError: an attack must return CandidateScores"),
    ],
)
def test_an_attack_that_fails_fails_its_own_cells_alone(assay, suite_file, own_module, finished, body, reason):
    module = own_module(ATTACK.format(body=body))
    mine = f'[attacks.mine]\npart = "{module}:Mine"\n\n[attacks.loss]\n'
    run = assay(suite_file("[attacks.loss]\n", mine, *UNDEFENDED))
    found = failures(run)
    assert set(found) == {("none", "mine")}
    assert found["none", "mine"].reason.startswith(reason)
    assert values(finished).items() <= values(run).items()


@pytest.mark.simulations
def test_an_attack_that_a_defense_leaves_undefined_is_an_omission_and_no_failure(assay, suite_file):
    run = assay(
        suite_file(
            "[attacks.loss]\n",
            '[attacks.known]\npart = "likelihood_ratio"\nrest = "known"\ncount = 8\n\n[attacks.loss]\n',
        )
    )
    omitted = {record.defense: record for record in run.records if record.attack == "known"}
    assert omitted["none"].status == "skipped"
    assert "exact ratio is not defined" in omitted["none"].reason
    assert run.verdict.exit_code == 0


def test_every_metric_of_a_run_is_in_the_list_of_metrics(finished):
    from fedassay.cli.list_command import metrics

    assert {record.metric for record in finished.records} - {"replicas"} <= set(metrics())


@pytest.mark.processes
def test_a_worker_that_dies_leaves_a_run_that_can_be_resumed(suite_file, tmp_path, own_defense, monkeypatch):
    body = "os.kill(os.getpid(), 9) if Path(os.environ['FEDASSAY_DIE']).exists() else None"
    module = own_defense(body)
    mark = tmp_path / "die"
    mark.touch()
    monkeypatch.setenv("FEDASSAY_DIE", str(mark))
    out = CliRunner().invoke(
        app, ["run", str(suite_file()), "-j", "2", "-d", f"{module}:Mine", "-o", str(tmp_path / "run")]
    )
    assert out.exit_code == 12, out.output
    assert "INCOMPLETE: a worker process died, perhaps for lack of memory." in out.output
    assert f"fedassay resume {tmp_path / 'run'}" in out.output
    mark.unlink()
    resumed = fedassay.resume(tmp_path / "run", jobs=1, report=False)
    assert resumed.verdict.exit_code == 0
    assert len(results(resumed.folder)) == len(set(results(resumed.folder)))


@pytest.mark.simulations
def test_only_the_worst_case_is_given_the_rest_and_nobody_the_answer(assay, suite_file, own_module):
    body = """from fedassay.audit.observer import UPLOADS as observer

    def run(self, view, knowledge, rng):
        given = [name for name in ("hypotheses", "canary") if getattr(knowledge, name) is not None]
        raise RuntimeError(f"{knowledge.level} {given} {sorted(vars(knowledge.candidates))}")"""
    module = own_module(ATTACK.format(body=body) + WORST)
    tables = "".join(f'[attacks.{name}]\npart = "{module}:{name}"\n\n' for name in ("Mine", "Worst"))
    run = assay(suite_file("[attacks.loss]\n", tables + "[attacks.loss]\n", "[defenses.none]", "[defenses.dp_sgd]"))
    found = failures(run)
    shown = "['clients', 'images', 'labels']"
    assert found[("dp_sgd", "Mine")].reason.startswith(f"RuntimeError: realistic [] {shown} (")
    assert found[("dp_sgd", "Worst")].reason.startswith(f"RuntimeError: worst_case ['hypotheses'] {shown} (")


WORST = """

class Worst(Mine):
    @property
    def level(self):
        from fedassay.attacks.attack import Level

        return Level.WORST_CASE
"""


@pytest.mark.simulations
def test_a_failed_cell_is_finished_and_resuming_prints_the_same(assay, suite_file, own_defense):
    module = own_defense("raise RuntimeError('always')")
    run = assay(suite_file(), defenses=[f"{module}:Mine"])
    resumed = fedassay.resume(run.folder, jobs=1, report=False)
    assert resumed.records == run.records
    assert resumed.verdict.exit_code == 12


@pytest.mark.simulations
def test_two_attacks_may_ask_about_two_clients(assay, suite_file):
    extra = '[attacks.second]\npart = "likelihood_ratio"\nrest = "known"\nclient = 1\ncount = 8\n\n'
    first = extra.replace("second", "first").replace("client = 1", "client = 0")
    changes = (
        "[attacks.loss]\n",
        extra + first + "[attacks.loss]\n",
        "epsilon = 4.0\n",
        "epsilon = 4.0\n\n[defenses.dp_sgd]\n",
    )
    run = assay(suite_file(*changes))
    scored = {record.attack: record for record in run.records if record.defense == "dp_sgd" and record.metric == "auc"}
    assert set(scored) == {"first", "second", "loss", "random_scores"}
    assert not failures(run)
