"""Stop a sequential audit at one of its planned looks: when its claim is refuted, or when no further run could do so.

Whether the runs of a later stage are made is a function of the stored runs of earlier stages alone, so that a resumed
run, or one on another backend, makes the same ones. The bounds of all looks hold at once (``audit.power``).
Stopping because nothing can be refuted any more needs no alpha: it only replaces a look by its known result.
"""

from dataclasses import replace

from ...audit.finding import refutes
from ..jobs.block_job import BlockJob
from ..jobs.planned_audit import PlannedAudit
from ..results.record import Record
from ..results.store import Store
from .audit_method import Reading
from .known_methods import block_method

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
