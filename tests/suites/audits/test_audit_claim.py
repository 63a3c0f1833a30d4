"""Audits of blocks written by hand: what is true of the replicas decides, and what is missing is FAILED."""

from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.binomial import upper_bound
from fedassay.audit.estimators.release_tests import BrokenRelease
from fedassay.audit.evidence import Design
from fedassay.audit.observer import Observer
from fedassay.defenses.controls.noise import ControlSeedShared
from fedassay.suites.audits.canary_replicas import canary_for
from fedassay.suites.audits.power import designed_tests
from fedassay.suites.results.store import Store
from written_blocks import write_block

REPLICAS = 1000


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "run", {}, [])


@pytest.fixture
def audit_of(planned):
    """(overrides) -> the one audit of the small suite, with a thousand replicas."""

    return lambda *overrides: planned("replicas = 40", f"replicas = {REPLICAS}", overrides=overrides).audits[0]


def judged(store, audit):
    failed = audit.run(store, frozenset())
    row, *checks = store.cell_records(audit.cell.cell_id)
    assert {check.role for check in checks} <= {"check"}
    assert bool(failed) == (row.status == "failed")
    return row


def test_a_claim_at_its_boundary_is_not_refuted(store, audit_of):
    # The mechanism leaks exactly what is claimed: refuted with chance below alpha = .05, and here at a fixed seed.
    audit = audit_of()
    write_block(store, audit.blocks[0], BrokenRelease())
    row = judged(store, audit)
    assert (row.verdict, row.status, row.route) == ("NOT_REFUTED", "ok", "curve")
    assert 0 < row.value < audit.claim.epsilon < row.ceiling


@pytest.mark.simulations
@pytest.mark.parametrize("truth", [BrokenRelease(noise=0.5), BrokenRelease(noise=0.1), BrokenRelease(row=10.0)])
def test_a_broken_mechanism_is_refuted(store, audit_of, truth):
    audit = audit_of()
    write_block(store, audit.blocks[0], truth)
    row = judged(store, audit)
    assert (row.verdict, row.route) == ("REFUTED", "curve")
    assert row.reason.startswith("error rates below the stated trade-off curve (FPR <= ")


@pytest.mark.simulations
def test_a_row_of_a_canary_that_did_not_arrive_has_no_detectable_epsilon(store, audit_of, tmp_path):
    audit, other = audit_of(), Store.create(tmp_path / "other", {}, [])
    write_block(other, audit.blocks[0], BrokenRelease())
    assert judged(other, audit).detectable > audit.claim.epsilon
    # A millionth of the canary: both arms are noise, and the designed power is that of a release with the canary.
    write_block(store, audit.blocks[0], BrokenRelease(row=1e-6))
    row = judged(store, audit)
    assert row.reason.startswith("the canary hardly reached the release (canary arrives")
    assert (row.verdict, row.detectable) == ("UNDERPOWERED", None)
    assert row.ceiling > audit.claim.epsilon


def test_the_row_states_what_was_measured_and_how(store, audit_of):
    audit = audit_of()
    write_block(store, audit.blocks[0], BrokenRelease(noise=0.5))
    row = judged(store, audit)
    assert (row.metric, row.unit, row.role, row.claim_id) == ("epsilon_low", "epsilon", "audit", audit.claim.claim_id)
    assert (row.n, row.ci_level, row.ci_low) == (REPLICAS, 0.95, row.value)
    assert row.ci_method == "clopper_pearson, one-sided, bonferroni(k=2)"
    arrays = store.load_arrays(row.artifact)
    assert {name: array.shape for name, array in arrays.items()} == {
        "member": (REPLICAS,),
        "nonmember": (REPLICAS,),
        "threshold": (),
        "fpr_high": (),
        "fnr_high": (),
        "refuted_fpr": (),
        "refuted_fnr": (),
        "alpha": (),
    }
    assert (arrays["refuted_fpr"], arrays["refuted_fnr"]) == (arrays["fpr_high"], arrays["fnr_high"])
    # The joint point that the row reports is that of the arrays beside it.
    errors = np.count_nonzero(arrays["nonmember"] > arrays["threshold"])
    share = float(arrays["alpha"]) / 2 / 2  # Two tests, two rates.
    assert float(arrays["fpr_high"]) == pytest.approx(float(upper_bound(errors, REPLICAS, share)))


@pytest.mark.simulations
def test_the_threshold_is_known_before_any_score_is(store, audit_of, tmp_path):
    audit = audit_of()
    release = audit.blocks[0].release
    known = {test.threshold for test in designed_tests(audit.claim, release, audit.blocks[0].audit, n=REPLICAS)}
    for number, (truth, shift) in enumerate(
        [(BrokenRelease(), 0.0), (BrokenRelease(noise=0.5), 0.3), (BrokenRelease(), -5.0), (BrokenRelease(), 1e3)]
    ):
        place = Store.create(tmp_path / f"other{number}", {}, [])
        write_block(place, audit.blocks[0], truth, shift=shift)
        row = judged(place, audit)
        assert float(place.load_arrays(row.artifact)["threshold"]) in known


def test_replicas_of_all_seeds_are_pooled(store, audit_of):
    audit = audit_of("seeds=3")
    assert len(audit.blocks) == 3
    for block in audit.blocks:
        write_block(store, block, BrokenRelease(noise=0.5))
    row = judged(store, audit)
    assert (row.n, row.verdict) == (REPLICAS, "REFUTED")
    arrays = store.load_arrays(row.artifact)
    assert len(np.unique(arrays["member"])) == REPLICAS


def test_a_failed_block_fails_the_audit_with_its_reason(store, audit_of):
    audit = audit_of("seeds=2")
    write_block(store, audit.blocks[0], BrokenRelease())
    broken = audit.blocks[1].cell
    store.finish(broken.cell_id, [broken.record(metric="none", status="failed", reason="MemoryError: none left")])
    row = judged(store, audit)
    assert (row.status, row.verdict, row.value) == ("failed", "", None)
    assert row.reason == "ValueError: the audit runs of seed 1 failed: MemoryError: none left"


@pytest.mark.simulations
def test_evidence_of_another_setting_is_out_of_scope_however_damning(store, audit_of):
    audit = audit_of()
    write_block(store, audit.blocks[0], BrokenRelease(noise=0.1), rounds=3)
    row = judged(store, audit)
    assert row.verdict == "OUT_OF_SCOPE"
    assert "the evidence is from 3 rounds, but the claim covers 2" in row.reason


def test_the_law_of_a_claim_out_of_scope_is_still_held_against_it(store, audit_of):
    audit = audit_of()
    block = audit.blocks[0]
    halved = replace(block.protection, noise_std=block.protection.noise_std / 2)
    request = replace(block, protection=halved, defense=None)
    assert not replace(audit, out_of_scope="no canary", blocks=(), request=request).run(store, frozenset())
    row, *checks = store.cell_records(audit.cell.cell_id)
    assert row.verdict == "OUT_OF_SCOPE"
    assert row.reason.startswith("no canary; implementation check: epsilon of the law")
    assert [(check.metric, check.verdict) for check in checks] == [
        ("check_epsilon_of_the_law", "FAILED"),
        ("check_curve_of_the_law", "FAILED"),
    ]


def test_evidence_of_a_weaker_observer_counts(store, audit_of):
    audit = audit_of()
    write_block(store, audit.blocks[0], BrokenRelease(noise=0.1), observer=Observer("shuffled"))
    assert judged(store, audit).verdict == "REFUTED"


def test_trials_that_share_their_noise_are_refused(store, audit_of):
    audit = audit_of()
    write_block(store, audit.blocks[0], BrokenRelease(noise=0.1), design=Design.CLUSTERED)
    row = judged(store, audit)
    assert row.status == "failed"
    assert "needs independent trials" in row.reason


def test_blocks_of_two_settings_are_not_pooled(store, audit_of):
    audit = audit_of("seeds=2")
    write_block(store, audit.blocks[0], BrokenRelease())
    write_block(store, audit.blocks[1], BrokenRelease(), observer=Observer("shuffled"))
    assert "must have the same unit, adjacency" in judged(store, audit).reason


def test_a_score_that_is_no_number_is_refused(store, audit_of):
    audit = audit_of()
    write_block(store, audit.blocks[0], BrokenRelease())
    cell = audit.blocks[0].cell
    arrays = store.load_arrays(store.cell_records(cell.cell_id)[0].artifact)
    arrays["member"][0, 0] = np.nan
    store.save_arrays(cell.cell_id, "projections", arrays)
    row = judged(store, audit)
    assert row.status == "failed"
    assert "must be finite, got 1 of" in row.reason


def test_the_claimed_release_of_local_noise_is_the_mechanisms_own(audit_of):
    # Two clipped reports are up to twice the clip norm apart; sigma is the noise over that.
    block = audit_of().blocks[0]
    release = block.release
    parameters = block.claim.parameters
    assert release.sigma == pytest.approx(parameters["noise_std"] / (2 * parameters["clip_norm"]))
    assert (release.rate, release.steps, release.rounds) == (1.0, 1, 2)


def test_the_canary_of_a_report_stands_at_both_ends_of_the_unused_weight(audit_of):
    block = audit_of().blocks[0]
    task, plan = block.small
    canary = canary_for(block)
    length = block.audit.canary_norm * block.claim.parameters["clip_norm"]
    assert canary.present[-1] == length == -canary.absent[-1]
    assert canary.present[:-1].abs().sum() == canary.absent[:-1].abs().sum() == 0
    assert plan.layout.inert == 1
    assert task.sizes == (4, 4)


@pytest.mark.simulations
def test_a_defense_without_noise_and_without_a_law_is_refuted_by_the_noise_that_it_states(
    assay, suite_file, own_defense
):
    module = own_defense("pass")
    changes = ("replicas = 40", "replicas = 200", "batch = 16", "batch = 200")
    run = assay(suite_file(*changes), defenses=[f"{module}:Signing"])
    (row,) = [row for row in run.records if row.role == "audit" and row.defense == "Signing"]
    assert (row.verdict, row.n, row.detectable) == ("REFUTED", 200, None)
    assert row.ci_method == "clopper_pearson, one-sided, bonferroni(k=2)"
    assert run.verdict.exit_code == 10
    assert run.verdict.verdict_line == ("FAIL: claims REFUTED: Signing; implementation checks failed: Signing")


def broken_audit(audit, part):
    """The audit as it would be of a broken version that states the same claim."""
    block = audit.blocks[0]
    _, plan = block.small
    (claim,) = part().prepare(plan).claims
    assert claim == audit.claim
    return replace(audit, blocks=(replace(block, protection=part().prepare(plan).protection, defense=None),))


def test_every_claim_is_checked_and_each_check_is_a_row_of_the_audits_cell(store, audit_of):
    audit = audit_of()
    write_block(store, audit.blocks[0], BrokenRelease())
    row = judged(store, audit)
    checks = store.cell_records(audit.cell.cell_id)[1:]
    assert [(check.metric, check.verdict, check.status) for check in checks] == [
        ("check_sensitivity", "PASSED", "ok"),
        ("check_noise_present", "PASSED", "ok"),
        ("check_noise_fresh_between_clients", "PASSED", "ok"),
        ("check_noise_fresh_between_rounds", "PASSED", "ok"),
        ("check_noise_scale", "PASSED", "ok"),
        ("check_noise_in_every_direction", "PASSED", "ok"),
        ("check_noise_given_other_clients", "PASSED", "ok"),
        ("check_noise_given_other_rounds", "PASSED", "ok"),
        ("check_noise_distribution", "PASSED", "ok"),
        ("check_noise_under_other_data", "PASSED", "ok"),
        ("check_noise_of_its_own_in_every_run", "PASSED", "ok"),
        ("check_noise_where_a_unit_moves_the_release", "PASSED", "ok"),
        ("check_whole_message", "PASSED", "ok"),
        ("check_extreme_rows", "PASSED", "ok"),
        ("check_epsilon_of_the_law", "PASSED", "ok"),
        ("check_curve_of_the_law", "PASSED", "ok"),
        ("check_sensitivity_as_sampled", "PASSED", "ok"),
        ("check_rows_used_once", "PASSED", "ok"),
        ("check_noise_of_its_own_in_every_number_and_round", "PASSED", "ok"),
        ("check_noise_of_its_own_in_every_replica", "PASSED", "ok"),
        ("check_noise_scale_in_every_round", "PASSED", "ok"),
        ("check_canary_arrives", "PASSED", "ok"),
        ("check_all_that_is_received", "", "skipped"),
    ]
    assert {(check.role, check.attack, check.claim_id) for check in checks} == {
        ("check", "replay", audit.claim.claim_id)
    }
    assert checks[0].value == pytest.approx(2.0, rel=1e-3)
    assert checks[0].reason.startswith("sensitivity 2 <= 2 allowed (")
    assert "; implementation check: " not in row.reason
    assert {"sensitivity", "noise scale", "whole message", "epsilon of the law"} <= {*row.looked_at}
    assert (
        "all that is received: the audit allows 0 runs per arm (audit.trials), and 2048 are needed" in row.not_looked_at
    )
    assert any(item.startswith("the timing of messages: ") for item in row.not_looked_at)
    # What follows from something else comes last.
    assert "it follows" in row.not_looked_at[-1]


@pytest.mark.simulations
def test_what_is_received_refutes_a_claim_that_the_canary_alone_does_not(store, audit_of):
    """One noise for all clients: each report by itself is as claimed, and two together have no noise."""
    audit = broken_audit(audit_of("audit.trials=32768"), ControlSeedShared)
    write_block(store, audit.blocks[0], BrokenRelease())
    row = judged(store, audit)
    assert row.verdict == "REFUTED"
    assert "evidence: everything that the adversary receives" in row.reason
    assert "; implementation check: noise fresh between clients: noise of two clients in one round has" in row.reason
    assert "draw noise in the shape of all updates" in row.reason
    verdicts = {check.metric: check.verdict for check in store.cell_records(audit.cell.cell_id)[1:]}
    broken = [metric for metric, verdict in verdicts.items() if verdict == "FAILED"]
    assert broken[0] == "check_noise_fresh_between_clients"
    assert "check_noise_given_other_clients" in broken


@pytest.mark.long
@pytest.mark.simulations
def test_the_bound_of_a_claim_is_the_larger_one_of_its_runs_and_of_the_trials_of_its_checks(store, audit_of):
    audit = audit_of("audit.trials=8192")
    # Runs of so much noise show little; the trials run the defense itself.
    write_block(store, audit.blocks[0], BrokenRelease(noise=20.0))
    row = judged(store, audit)
    (trials,) = [one for one in store.cell_records(audit.cell.cell_id) if one.metric == "check_all_that_is_received"]
    assert (row.verdict, row.value) == ("NOT_REFUTED", trials.value)
    assert row.value > 0.3
    assert "evidence: everything that the adversary receives" in row.reason
    assert row.ci_level < 1 - audit.alpha


@pytest.mark.simulations
def test_a_check_that_is_not_possible_is_skipped_with_its_reason(assay, suite_file, own_defense):
    module = own_defense("pass")
    run = assay(suite_file(), defenses=[f"{module}:Signing"])
    checks = {row.metric: row for row in run.records if row.role == "check" and row.defense == "Signing"}
    assert checks["check_sensitivity"].status == "skipped"
    assert (
        checks["check_sensitivity"].reason == "the defense publishes no Gaussian noise distribution for this adversary"
    )
    assert checks["check_noise_present"].verdict == "FAILED"
    assert not [row for row in run.records if row.status == "failed"]
