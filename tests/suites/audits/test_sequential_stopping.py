"""Sequential audits by blocks written by hand: they stop when the verdict is certain, and never change it."""

import pytest
from fedassay.audit.estimators.release_tests import BrokenRelease
from fedassay.audit.finding import refutes
from fedassay.suites.audits import planted_canary
from fedassay.suites.audits.audit_method import (
    MADE_ALL,
    omitted_row,
    stop_reason,
    where_stopped,
)
from fedassay.suites.results.store import Store
from written_blocks import write_block

REPLICAS = 400


@pytest.fixture
def audit_of(planned):
    """(overrides) -> the one audit of the small suite, with looks."""

    def build(*overrides, replicas=REPLICAS):
        changes = ("replicas = 40", f"replicas = {replicas}\nsequential = true")
        return planned(*changes, overrides=overrides).audits[0]

    return build


@pytest.fixture
def carried_out(tmp_path):
    """(audit, truth) -> the audit's row, and the runs per arm that were made: the stages one after another.

    ``checked`` False: whether it is refuted instead of the row, without implementation checks, which take a second.
    """
    count = iter(range(10_000))

    def run(audit, truth, *, stream=0, checked=True):
        store = Store.create(tmp_path / f"run{next(count)}", {}, [])
        made = 0
        for stage in range(len(audit.looks)):
            reason = stop_reason(audit, stage - 1, store) if stage else ""
            for block in (block for block in audit.blocks if block.stage == stage):
                if reason:
                    store.finish(block.cell.cell_id, [omitted_row(block, reason)])
                else:
                    write_block(store, block, truth, stream=stream)
                    made += block.replicas
        if not checked:
            seen, words = where_stopped(audit, store)
            found = audit.method.reading(seen, store).measurement
            assert words
            return refutes(audit.claim, found), made
        audit.run(store, frozenset())
        return store.cell_records(audit.cell.cell_id)[0], made

    return run


@pytest.mark.simulations
def test_a_defense_with_half_of_its_noise_is_refuted_by_a_fraction_of_the_runs(audit_of, carried_out):
    row, made = carried_out(audit_of("alpha=0.01"), BrokenRelease(noise=0.5))
    assert row.verdict == "REFUTED"
    assert made == row.n <= REPLICAS // 2
    assert "the claim is refuted" in row.stopped
    assert f"after {made} of at most {REPLICAS} runs per arm" in row.stopped


@pytest.mark.simulations
def test_a_correct_defense_is_not_refuted_and_its_bound_holds_at_the_level_of_all_looks(audit_of, carried_out):
    audit = audit_of("alpha=0.01")
    row, made = carried_out(audit, BrokenRelease())
    assert row.verdict == "NOT_REFUTED"
    assert made == row.n
    assert row.ci_level == 1 - audit.alpha
    assert made < REPLICAS or MADE_ALL in row.stopped


@pytest.mark.simulations
def test_an_audit_that_cannot_refute_any_more_stops_and_says_so(audit_of, carried_out):
    # A mechanism that reveals nothing errs in every second run: the last runs cannot make up for it.
    audit = audit_of("alpha=0.01")
    row, made = carried_out(audit, BrokenRelease(noise=50.0))
    assert row.verdict == "NOT_REFUTED"
    assert made < REPLICAS
    assert "no result of the remaining runs could have refuted the claim" in row.stopped
    # Its power is that of the design: what it could have refuted does not depend on where it stopped.
    full, _ = carried_out(audit, BrokenRelease(noise=0.95))
    assert row.detectable == full.detectable
    assert row.ceiling == full.ceiling


@pytest.mark.simulations
def test_stopping_never_changes_a_verdict_that_all_runs_would_give(audit_of, carried_out, monkeypatch):
    audit = audit_of("alpha=0.2")
    truths = [(BrokenRelease(noise=noise), stream) for noise in (0.7, 1.0, 3.0) for stream in range(4)]
    stopped = [carried_out(audit, truth, stream=stream, checked=False) for truth, stream in truths]
    monkeypatch.setattr(planted_canary.PlantedCanary, "could_refute", lambda *_: True)
    run_on = [carried_out(audit, truth, stream=stream, checked=False) for truth, stream in truths]
    assert [refuted for refuted, _ in stopped] == [refuted for refuted, _ in run_on]
    assert {refuted for refuted, _ in run_on} == {True, False}
    assert sum(made for _, made in stopped) < sum(made for _, made in run_on)
    assert all(made == REPLICAS for refuted, made in run_on if not refuted)


@pytest.mark.simulations
def test_a_claim_that_is_exactly_true_is_refuted_no_oftener_than_alpha(audit_of, carried_out):
    # alpha .2: of 20 audits more than 9 would be refuted once in 400 batches, and the seeds are fixed.
    audit = audit_of("alpha=0.2")
    refuted = [carried_out(audit, BrokenRelease(), stream=stream, checked=False)[0] for stream in range(20)]
    assert sum(refuted) <= 9


def test_stages_have_cells_and_draws_of_their_own(audit_of):
    audit = audit_of()
    assert sum(block.replicas for block in audit.blocks) == REPLICAS
    assert len({block.cell.cell_id for block in audit.blocks}) == len(audit.blocks)
    assert len({(block.seed, block.first_batch) for block in audit.blocks}) == len(audit.blocks)
    assert max(block.stage for block in audit.blocks) == len(audit.looks) - 1


def test_an_audit_of_one_look_keeps_its_identity(planned):
    (plain,), (said,) = (planned(overrides=overrides).audits for overrides in ((), ("audit.sequential=false",)))
    assert plain.cell.cell_id == said.cell.cell_id
    assert plain.looks == ()


def test_a_failed_stage_stops_nothing_and_fails_the_audit_as_ever(audit_of, tmp_path):
    audit = audit_of()
    store = Store.create(tmp_path / "run", {}, [])
    first = next(block for block in audit.blocks if block.stage == 0)
    for block in audit.blocks:
        row = block.cell.record(metric="none", status="failed" if block is first else "ok", reason="boom")
        store.finish(block.cell.cell_id, [row])
    assert stop_reason(audit, 0, store) == ""
    assert audit.run(store, frozenset())
    assert "boom" in store.cell_records(audit.cell.cell_id)[0].reason


def test_one_run_audits_cannot_be_sequential(planned):
    from fedassay.suites.config.source import ConfigError

    with pytest.raises(ConfigError, match=r"one_run.*cannot be stopped early"):
        planned(overrides=('audit.design="one_run"', "audit.canaries=50", "audit.sequential=true"))
