"""Gate: one verdict line and the exit code that always agrees with it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...audit.claim import AS_PUBLISHED
from ...audit.finding import Finding, Verdict
from ...audit.nearest import nearest
from ..config.source import ConfigError
from .record import Record

OK, CRASH, USAGE, FAIL, INCONCLUSIVE, INCOMPLETE, INTERRUPTED = 0, 1, 2, 10, 11, 12, 130
PRECEDENCE = (INCOMPLETE, FAIL, INCONCLUSIVE)
"""Of several problems the first of these is the run's: what was not measured may hide what is worse."""
WORDS = {OK: "OK", FAIL: "FAIL", INCONCLUSIVE: "INCONCLUSIVE", INCOMPLETE: "INCOMPLETE"}

EVERYTHING = ("fail", "incomplete", "inconclusive")
"""What a gate fails on unless told otherwise."""
_CODES = {"fail": FAIL, "incomplete": INCOMPLETE, "inconclusive": INCONCLUSIVE}


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What a run comes to."""

    verdict_line: str
    exit_code: int

    def raise_for_status(self) -> None:
        """Raise RuntimeError with the verdict line unless the run is fine."""
        if self.exit_code != OK:
            raise RuntimeError(self.verdict_line)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that keeps a run from being fine: the exit code that it asks for, and what it is."""

    exit_code: int
    text: str


def outcome(row: Record) -> int:
    """What one row asks for: OK, FAIL, INCONCLUSIVE or INCOMPLETE.

    A control that is REFUTED is as it must be; one that is not makes the run incomplete: its audit could not see what
    it was planted to see. A paper's claim, ``as_published``, is on trial: any verdict will do. A broken probe of an
    honest claim is no verdict, for a claim may outlive its published law, but the run is not fine with it. What attacks
    on final models say of a claim (role ``evidence``) is as good a refutation as an audit's, and its absence means
    nothing: no other verdict of theirs makes a run weak, nor does a control that they do not refute.
    """
    if row.status == "failed":
        return INCOMPLETE
    on_trial = row.variant == AS_PUBLISHED
    if row.role == "probe" and row.verdict == "BROKEN":
        return OK if row.control or on_trial else INCONCLUSIVE
    if row.role == "evidence":
        return FAIL if row.verdict == "REFUTED" and not row.control and not on_trial else OK
    if row.role != "audit" or row.status != "ok":
        return OK
    if row.control:
        return OK if row.verdict == "REFUTED" else INCOMPLETE
    if on_trial or row.verdict == "NOT_REFUTED":
        return OK
    return FAIL if row.verdict == "REFUTED" else INCONCLUSIVE


def problems(
    records: Sequence[Record], *, missing: int = 0, unread: int = 0, changed: Sequence[str] = ()
) -> list[Problem]:
    """All that keeps these rows from being fine. ``missing``: planned cells without a row; ``unread``: rows that could
    not be read; ``changed``: files that are not as they were when the run was finished.
    """
    troubled = [(row, code) for row in records if (code := outcome(row)) != OK]
    failed = [row.defense for row, _ in troubled if row.status == "failed"]

    def names(role: str, code: int) -> list[str]:
        return [row.defense for row, own in troubled if (row.role, own, row.status) == (role, code, "ok")]

    found = [
        (INCOMPLETE, missing, f"{missing} cells missing"),
        (INCOMPLETE, unread, f"{unread} rows that cannot be read"),
        (INCOMPLETE, len(changed), f"changed since the run was finished: {', '.join(changed)}"),
        (INCOMPLETE, len(failed), f"{len(failed)} cells FAILED ({several(failed)})"),
        *(
            (code, len(named := names(role, code)), f"{words}: {several(named)}")
            for role, code, words in (
                ("audit", INCOMPLETE, "controls not refuted"),
                ("audit", FAIL, "claims REFUTED"),
                ("evidence", FAIL, "claims REFUTED by attacks"),
                ("audit", INCONCLUSIVE, "claims that this run cannot judge"),
                ("probe", INCONCLUSIVE, "published laws that a probe found broken"),
            )
        ),
    ]
    return [Problem(exit_code=code, text=text) for code, count, text in found if count]


def fine_line(records: Sequence[Record]) -> str:
    """What is said of claims where there is no problem."""
    audits, attacked = (
        [row for row in records if row.role == role and row.status == "ok"] for role in ("audit", "evidence")
    )
    papers = [row for row in audits if row.variant == AS_PUBLISHED]
    line = "no claim was audited"
    if audits:
        controls = sum(row.control for row in audits)
        line = f"{len(_honest(audits))} claims NOT REFUTED, {controls} controls REFUTED as they must be"
    if papers:
        line += f", {sum(row.verdict == 'REFUTED' for row in papers)} of {len(papers)} claims as published REFUTED"
    if honest := _honest(attacked):
        line += f", attacks refuted none of {len(honest)} claims"
        if weak := sum(row.verdict != "NOT_REFUTED" for row in honest):
            line += f" ({weak} of which they could not have)"
    return line


def _honest(rows: Sequence[Record]) -> list[Record]:
    return [row for row in rows if not row.control and row.variant != AS_PUBLISHED]


def gate_of(found: Sequence[Problem], fine: str) -> Gate:
    """12 incomplete beats 10 refuted beats 11 inconclusive, and nothing is left unsaid; without a problem, ``fine``."""
    for code in PRECEDENCE:
        if any(problem.exit_code == code for problem in found):
            return Gate(verdict_line=f"{WORDS[code]}: {'; '.join(one.text for one in found)}", exit_code=code)
    return Gate(verdict_line=f"{WORDS[OK]}: {fine}", exit_code=OK)


def failing(words: Iterable[str]) -> frozenset[int]:
    """The exit codes behind such words; ConfigError for an unknown one."""
    asked = [word.strip().lower() for word in words]
    for word in asked:
        if word not in _CODES:
            raise ConfigError(f"fail on: unknown verdict {word!r}; known: {nearest(word, _CODES)}")
    return frozenset(_CODES[word] for word in asked)


def judge_run(records: Sequence[Record], *, missing: int = 0, unread: int = 0, changed: Sequence[str] = ()) -> Gate:
    """Every audited claim, and every cell, without a baseline; as ``problems``."""
    return gate_of(problems(records, missing=missing, unread=unread, changed=changed), fine_line(records))


def judge_finding(name: str, finding: Finding) -> Gate:
    """One claim that was audited by itself: refuted, not refuted, or not to be judged so."""
    if finding.verdict is Verdict.REFUTED:
        return Gate(verdict_line=f"FAIL: claims REFUTED: {name}", exit_code=FAIL)
    if finding.verdict is Verdict.NOT_REFUTED:
        return Gate(verdict_line="OK: 1 claims NOT REFUTED", exit_code=OK)
    word = finding.verdict.value.replace("_", " ")
    return Gate(verdict_line=f"INCONCLUSIVE: {word}: {finding.reason}", exit_code=INCONCLUSIVE)


def several(labels: Sequence[str]) -> str:
    """The labels, each once, the first four of many."""
    unique = list(dict.fromkeys(labels))
    return ", ".join(unique[:4]) + (f" and {len(unique) - 4} more" if len(unique) > 4 else "")
