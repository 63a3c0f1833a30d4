"""Gate: one verdict line and the exit code that always agrees with it."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..audit.claim import AS_PUBLISHED
from ..audit.finding import Finding, Verdict
from .record import Record

OK, CRASH, USAGE, FAIL, INCONCLUSIVE, INCOMPLETE, INTERRUPTED = 0, 1, 2, 10, 11, 12, 130


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What a run comes to."""

    verdict_line: str
    exit_code: int

    def raise_for_status(self) -> None:
        """Raise RuntimeError with the verdict line unless the run is fine."""
        if self.exit_code != OK:
            raise RuntimeError(self.verdict_line)


def judge_run(records: Sequence[Record], *, missing: int = 0, unread: int = 0) -> Gate:
    """Every audited claim, and every cell: 12 incomplete beats 10 refuted beats 11 underpowered.

    A control that is REFUTED is as it must be; one that is not makes the run incomplete: its audit could not see what
    it was planted to see. A paper's claim, ``as_published``, is on trial: any verdict will do. A broken probe of an
    honest claim is no verdict, for a claim may outlive its published law, but the run is not fine with it. What attacks
    on final models say of a claim (role ``evidence``) is as good a refutation as an audit's, and its absence means
    nothing: no other verdict of theirs makes a run weak, nor does a control that they do not refute. ``missing``:
    planned cells without a row; ``unread``: rows that could not be read.
    """
    failed = [row for row in records if row.status == "failed"]
    audits = [row for row in records if row.role == "audit" and row.status == "ok"]
    papers = [row for row in audits if row.variant == AS_PUBLISHED]
    honest = [row for row in audits if not row.control and row.variant != AS_PUBLISHED]
    refuted = [row.defense for row in honest if row.verdict == "REFUTED"]
    weak = [row.defense for row in honest if row.verdict not in ("REFUTED", "NOT_REFUTED")]
    blind = [row.defense for row in audits if row.control and row.verdict != "REFUTED"]
    evidence = [row for row in records if row.role == "evidence" and row.status == "ok"]
    attacked = [row for row in evidence if not row.control and row.variant != AS_PUBLISHED]
    caught = [row.defense for row in attacked if row.verdict == "REFUTED"]
    broken = [row for row in records if row.role == "probe" and row.verdict == "BROKEN"]
    lawless = [row.defense for row in broken if not row.control and row.variant != AS_PUBLISHED]
    controls = sum(row.control for row in audits)
    problems = [
        (INCOMPLETE, missing, f"{missing} cells missing"),
        (INCOMPLETE, unread, f"{unread} rows that cannot be read"),
        (INCOMPLETE, len(failed), f"{len(failed)} cells FAILED ({_names([row.defense for row in failed])})"),
        (INCOMPLETE, len(blind), f"controls not refuted: {_names(blind)}"),
        (FAIL, len(refuted), f"claims REFUTED: {_names(refuted)}"),
        (FAIL, len(caught), f"claims REFUTED by attacks: {_names(caught)}"),
        (INCONCLUSIVE, len(weak), f"claims that this run cannot judge: {_names(weak)}"),
        (INCONCLUSIVE, len(lawless), f"published laws that a probe found broken: {_names(lawless)}"),
    ]
    found = [(code, text) for code, count, text in problems if count]
    for code, word in ((INCOMPLETE, "INCOMPLETE"), (FAIL, "FAIL"), (INCONCLUSIVE, "INCONCLUSIVE")):
        if any(code == other for other, _ in found):
            return Gate(verdict_line=f"{word}: {'; '.join(text for _, text in found)}", exit_code=code)
    kept = sum(row.verdict == "NOT_REFUTED" for row in honest)
    line = (
        f"OK: {kept} claims NOT REFUTED, {controls} controls REFUTED as they must be"
        if audits
        else "OK: no claim was audited"
    )
    if papers:
        line += f", {sum(row.verdict == 'REFUTED' for row in papers)} of {len(papers)} claims as published REFUTED"
    if attacked:
        line += f", attacks refuted none of {len(attacked)} claims"
    return Gate(verdict_line=line, exit_code=OK)


def judge_finding(name: str, finding: Finding) -> Gate:
    """One claim that was audited by itself: refuted, not refuted, or not to be judged so."""
    if finding.verdict is Verdict.REFUTED:
        return Gate(verdict_line=f"FAIL: claims REFUTED: {name}", exit_code=FAIL)
    if finding.verdict is Verdict.NOT_REFUTED:
        return Gate(verdict_line="OK: 1 claims NOT REFUTED", exit_code=OK)
    word = finding.verdict.value.replace("_", " ")
    return Gate(verdict_line=f"INCONCLUSIVE: {word}: {finding.reason}", exit_code=INCONCLUSIVE)


def _names(labels: Sequence[str]) -> str:
    unique = list(dict.fromkeys(labels))
    return ", ".join(unique[:4]) + (f" and {len(unique) - 4} more" if len(unique) > 4 else "")
