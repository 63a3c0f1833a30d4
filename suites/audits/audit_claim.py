"""Audit one claim: run its trials, bound epsilon from below, check the implementation and give the verdict.

A sequential audit stops at one of its planned looks: when its claim is refuted, or when no further run could do so.
Whether the runs of a later stage are made is a function of the stored runs of earlier stages alone, so that a resumed
run, or one on another backend, makes the same ones. The bounds of all looks hold at once (``audit.power.looks``).
Stopping because nothing can be refuted any more needs no alpha: it only replaces a look by its known result.
"""

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
from ..results.cell import check_rows, verdict_row, verdict_rows
from ..results.record import Record
from ..results.store import Store
from .audit_method import Reading, audit_methods, block_method
from .case import federation_of
from .planned_audit import AuditRequest, BlockJob, PlannedAudit


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


MADE_ALL = "all planned runs were made"
OUT_OF_TIME = "the budget of time was spent"


def at_look(audit: PlannedAudit, number: int) -> PlannedAudit:
    """Return the audit as it stands at one of its looks: with the runs made by then, and that look's level."""
    blocks = tuple(block for block in audit.blocks if block.stage <= number)
    return replace(audit, blocks=blocks, alpha=audit.looks[number].alpha)


def stop_reason(audit: PlannedAudit, number: int, store: Store) -> str:
    """Return why the audit ends at look ``number``, or ended at an earlier one; empty if further runs are to be made.

    The runs of all stages up to this look are finished. An audit that cannot be measured there is not stopped, so that
    its verdict fails for the same reason as that of an audit with a single look.
    """
    if earlier := _stopped_before(audit, number, store):
        return earlier
    seen = at_look(audit, number)
    method = block_method(audit.method)
    try:
        if refutes(audit.claim, method.reading(seen, store).measurement):
            return f"{_look_words(audit, number)}: the claim is refuted"
        if number + 1 < len(audit.looks) and not method.could_refute(seen, store):
            return f"{_look_words(audit, number)}: no result of the other runs could refute the claim"
    except Exception:  # A user's own law or estimator may raise anything; the audit's own row records it.
        return ""
    return ""


def out_of_time(audit: PlannedAudit, number: int) -> str:
    """Return the reason for an audit that ends at look ``number`` because the time of the run is over.

    The time depends on no score, so the bound of that look holds as it would have; what later looks might have shown is
    not known.
    """
    return f"{_look_words(audit, number)}: {OUT_OF_TIME}"


def omitted_row(block: BlockJob, reason: str) -> Record:
    """Return the row of runs that were not made because their audit had stopped, for ``reason``."""
    return block.cell.record(metric="replicas", status="skipped", n=0, reason=f"not made: {reason}", stopped=reason)


def where_stopped(audit: PlannedAudit, store: Store) -> tuple[PlannedAudit, str]:
    """Return the audit as it stands at the look at which it stopped, by the stored rows of its runs, and at which look
    that was and why; an audit without looks as it is, and no words.
    """
    if not audit.looks:
        return audit, ""
    last = len(audit.looks) - 1
    stopped = _stopped_before(audit, last, store)
    if not stopped:
        return at_look(audit, last), f"{_look_words(audit, last)}: {MADE_ALL}"
    made = min(block.stage for block in audit.blocks if _omitted(block, store)) - 1
    if OUT_OF_TIME in stopped:
        # The looks that were not reached would have had power that this audit has not.
        audit = replace(audit, looks=audit.looks[: made + 1])
    return at_look(audit, made), stopped


def of_all_looks(reading: Reading, audit: PlannedAudit) -> Reading:
    """Return a reading at one look with the level at which it holds wherever the audit stops: that of all looks."""
    return replace(reading, measurement=replace(reading.measurement, alpha=audit.alpha)) if audit.looks else reading


def _stopped_before(audit: PlannedAudit, number: int, store: Store) -> str:
    """Why the audit stopped before look ``number``; empty if it had not."""
    blocks = (block for block in audit.blocks if block.stage <= number)
    return next((words for block in blocks if (words := _omitted(block, store))), "")


def _omitted(block: BlockJob, store: Store) -> str:
    if not block.stage or not store.is_finished(block.cell.cell_id):
        return ""
    return store.cell_records(block.cell.cell_id)[0].stopped


def _look_words(audit: PlannedAudit, number: int) -> str:
    runs, most = audit.looks[number].replicas, audit.looks[-1].replicas
    return f"stopped at look {number + 1} of {len(audit.looks)}, after {runs:,} of {most:,} runs per arm"
