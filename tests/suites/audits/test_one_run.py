"""One federation with many canaries: what it may refute, what it may not, and that the coins are not known before."""

import json
from dataclasses import replace

import numpy as np
import pytest
from fedassay.suites.audits.one_run import canary_set_for, guesses_planned
from fedassay.suites.audits.replicas import SETTING
from fedassay.suites.planning.plan_text import headline, plan_lines
from fedassay.suites.results.store import Store
from suite_text import tables

AUDIT = {"design": "one_run", "canaries": 300, "samples_per_client": 4}
TABLES = tables(defenses={"ldp_gaussian": {"epsilon": 1.0}}, audit=AUDIT)
SUITE = {"text": TABLES, "alpha": 0.05, "clients": 4, "samples": 40, "rounds": 4, "lot": {"poisson": 0.5}}
LDP = "[defenses.ldp_gaussian]\nepsilon = 1.0\n"
TWINS = "[defenses.dp_sgd]\nepsilon = 1.0\n[defenses.control_no_clip]\nepsilon = 1.0\n"


@pytest.fixture
def planned(planned):
    """(changes, seed) -> the run plan."""
    return lambda *changes, seed=0: planned(*changes, seed=seed, **SUITE)


@pytest.fixture
def judged(tmp_path):
    """(audit) -> its row, after its one run."""

    def judge(audit, name="run"):
        store = Store.create(tmp_path / name, {}, [])
        assert audit.blocks[0].run(store, frozenset()) == []
        assert audit.run(store, frozenset()) == []
        return store.cell_records(audit.cell.cell_id)[0], store

    return judge


@pytest.mark.long
def test_a_missing_clip_is_refuted_from_one_run_and_its_correct_version_is_not(suite_file, assay):
    run = assay(suite_file(LDP, TWINS, **SUITE))
    rows = {row.defense: row for row in run.records if row.role == "audit"}
    assert (rows["control_no_clip"].verdict, rows["control_no_clip"].route) == ("REFUTED", "eps_low")
    assert rows["dp_sgd"].verdict == "NOT_REFUTED"
    assert {row.attack for row in rows.values()} == {"one_run"}
    assert {row.metric for row in run.records if row.role == "replicas"} == {"canaries"}


@pytest.mark.long
@pytest.mark.simulations
def test_no_noise_at_all_is_refuted_and_the_curve_is_read_where_it_is_stated(suite_file, assay, own_defense):
    module = own_defense("pass")
    run = assay(suite_file(**SUITE), defenses=[f"{module}:Signing"])
    rows = {row.defense: row for row in run.records if row.role == "audit"}
    assert (rows["Signing"].verdict, rows["Signing"].n) == ("REFUTED", 300)
    assert rows["ldp_gaussian"].verdict == "NOT_REFUTED"
    assert rows["ldp_gaussian"].ci_method == "one_run_gaussian, one-sided, bonferroni(k=3)"
    assert rows["ldp_gaussian"].detectable > 1.0
    assert run.verdict.exit_code == 10


@pytest.mark.simulations
def test_the_coins_are_fair_and_have_a_stream_of_their_own(planned):
    plans = [planned("canaries = 300", "canaries = 2000", seed=seed) for seed in (0, 0, 1)]
    coins = []
    for plan in plans:
        block = plan.blocks[0]
        coins.append(canary_set_for(block).coins.numpy())
    assert np.array_equal(coins[0], coins[1])
    # 2,000 coins: five standard errors of a half.
    assert abs(coins[0].mean() - 0.5) < 5 * 0.5 / 2000**0.5
    assert abs((coins[0] == coins[2]).mean() - 0.5) < 5 * 0.5 / 2000**0.5


@pytest.mark.simulations
@pytest.mark.long
def test_what_is_kept_is_one_run_of_300_canaries(planned, judged):
    (audit,) = planned().audits
    row, store = judged(audit)
    (block,) = audit.blocks
    arrays = store.load_arrays(store.cell_records(block.cell.cell_id)[0].artifact)
    assert arrays["values"].shape == arrays["seen"].shape == (300, 4)
    setting = json.loads((store.cell_folder(block.cell.cell_id) / SETTING).read_text())
    assert (setting["design"], setting["rounds"]) == ("one_run", 4)
    shown = store.load_arrays(row.artifact)
    assert len(shown["member"]) + len(shown["nonmember"]) == 300
    assert len(shown["member"]) == arrays["member"].sum()
    assert "made" not in shown


def test_what_is_counted_is_known_before_the_run(planned):
    (audit,) = planned().audits
    assert set(guesses_planned(audit)) == {"one_run", "one_run_fdp"}
    (line,) = [line for line in plan_lines(planned()) if line.startswith("audit")]
    assert (
        "300 canaries in one run, scored by their mean shift under the published Gaussian noise, min detectable 2."
    ) in line


def test_one_run_is_that_of_the_first_seed(planned):
    plan = planned("seeds = 1", "seeds = 3")
    assert [(block.seed, block.runs) for block in plan.blocks] == [(0, 1)]
    assert "1 audit on 1 replica" in headline(plan)


@pytest.mark.simulations
def test_a_claim_over_the_first_rounds_is_judged_by_them(planned, judged):
    (audit,) = planned().audits
    claim = replace(audit.claim, rounds=2)
    block = replace(audit.blocks[0], claim=claim)
    row, _ = judged(replace(audit, claim=claim, blocks=(block,)))
    assert row.verdict in ("NOT_REFUTED", "UNDERPOWERED")
