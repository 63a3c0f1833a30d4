"""Audit one claim: run its trials, bound epsilon from below, check the implementation and give the verdict."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...audit.check import CheckResult
from ...audit.finding import Verdict, judge, not_audited, refutes, with_evidence
from ...audit.measurement import Measurement
from ...checks.coverage import Coverage
from ...checks.law import law_checks
from ..attacking.finished_cells import Clock, failures_as_rows, finish_cell
from ..jobs.block_job import AuditRequest, BlockJob
from ..jobs.planned_audit import PlannedAudit
from ..jobs.verdict_rows import check_rows, verdict_row, verdict_rows
from ..results.record import Record
from ..results.store import Store
from .audit_method import Reading
from .audited_federation import federation_of
from .known_methods import audit_methods, block_method
from .sequential_stopping import of_all_looks, where_stopped


def run_block(job: BlockJob, store: Store, finished: frozenset[str]) -> list[str]:
    """Run one seed's share of the trials (with and without the canary) of a claim's audit, and write their result row;
    return a description of each failure.

    Raises:
        UnwritableRunFolder: if the folder cannot be written.
    """
    return finish_cell(job.cell, store, finished, lambda: [job.cell.record(**block_method(job.method).run(job, store))])


def audit_claim(audit: PlannedAudit, store: Store) -> list[str]:
    """Give the verdict on one claim from the finished runs of its audit and write the result rows; return a description
    of each failure.
    """
    clock = Clock()
    if audit.out_of_scope:
        finding = not_audited(audit.claim, audit.out_of_scope)
        checks = () if audit.request is None else _without_runs(audit.request)
        store.finish(audit.cell.cell_id, verdict_rows(audit.cell, finding, checks))
        return []
    with failures_as_rows([audit.cell], store, clock) as failed:
        method, planned = audit_methods()[audit.method], audit
        audit, stopped = where_stopped(planned, store)
        reading = of_all_looks(method.reading(audit, store), planned)
        checks = method.checks(audit, store)
        # They cost seconds, and a claim that its own runs refute needs no more evidence.
        if not refutes(audit.claim, reading.measurement):
            checks += method.trials_of_view(audit)
        # A check may show why statistics found nothing, such as a canary that never arrived: so checks come first.
        weakness = method.weakness(audit, reading.measurement, checks)
        if audit.blocks and audit.blocks[0].audit.estimator is not None:
            # No detectable epsilon may only mean that this estimator computes none.
            weakness = replace(weakness, no_power="", unknown_power=weakness.unknown_power or weakness.no_power)
        coverage = method.coverage(audit, checks)
        weakness = replace(weakness, unknown_power=weakness.unknown_power or coverage.half_blind)
        finding = judge(audit.claim, reading.measurement, weakness=weakness)
        # Only where it is needed: composing a law once more may take seconds.
        if finding.verdict is Verdict.UNDERPOWERED:
            power = method.check_power(audit, () if coverage.half_blind else checks)
            finding = judge(audit.claim, reading.measurement, weakness=weakness, checked=power)
        finding = with_evidence(finding, [check.evidence for check in checks if check.evidence is not None])
        # The finding's own measurement: judging removes numbers that turned out not to be known.
        measured = finding.measurement or reading.measurement
        scores = store.save_arrays(audit.cell.cell_id, "scores", _arrays(measured, reading))
        verdict = verdict_row(audit.cell, replace(finding, measurement=measured), checks, scores)
        rows = [verdict.model_copy(update=_added(verdict, coverage, checks, stopped)), *check_rows(audit.cell, checks)]
        store.finish(audit.cell.cell_id, [row.model_copy(update=clock.fields()) for row in rows])
    return failed


def _added(verdict: Record, coverage: Coverage, checks: Sequence[CheckResult], stopped: str) -> dict[str, Any]:
    """Fields of the verdict's row: what its checks looked at, and where a sequential audit stopped."""
    # Without checks, as for attacks on final models, there is nothing to state.
    seen = {"looked_at": list(coverage.looked_at), "not_looked_at": list(coverage.not_looked_at)} if checks else {}
    return seen | ({"stopped": stopped, "reason": f"{verdict.reason}; {stopped}"} if stopped else {})


def _without_runs(request: AuditRequest) -> tuple[CheckResult, ...]:
    """The checks that need no runs, for a claim that no method audits."""
    return law_checks(request.protection, request.claim, federation_of(request)[1])


def _arrays(measured: Measurement, reading: Reading) -> dict[str, NDArray[Any]]:
    """Scores without and with the canary, and the numbers that reports draw together with them."""
    counted = ("threshold", "fpr_high", "fnr_high", "alpha", "made", "right")
    known = {name: getattr(measured, name) for name in counted}
    arrays = {"member": reading.scores.member, "nonmember": reading.scores.nonmember}
    return arrays | {name: np.array(value) for name, value in known.items() if value is not None}
