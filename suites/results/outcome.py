"""Summarise a run, or one audited claim, as one verdict line and the matching exit code."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...audit.claim import AS_PUBLISHED
from ...audit.finding import ACCEPTED, Finding, Verdict
from ...audit.wording import counted, listed, nearest
from ..config.source import ConfigError
from .record import Record

OK, FAIL, INCONCLUSIVE, INCOMPLETE = 0, 10, 11, 12
PRECEDENCE = (INCOMPLETE, FAIL, INCONCLUSIVE)
"""The run takes the exit code of the first of these that occurs: what was not measured may hide something worse."""
WORDS = {OK: "OK", FAIL: "FAIL", INCONCLUSIVE: "INCONCLUSIVE", INCOMPLETE: "INCOMPLETE"}

EVERYTHING = ("fail", "incomplete", "inconclusive")
"""The problems that end with a non-zero exit code, unless the caller names fewer."""
_ONLY_CHECKS = " (found by its checks, not by its runs)"
NO_CONTROL = "no control ran, so the run does not show that its tests find violations"
_CODES = {"fail": FAIL, "incomplete": INCOMPLETE, "inconclusive": INCONCLUSIVE}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The verdict line and exit code of a run or of one audited claim. ``details`` holds further lines, one per problem
    with its remedy.
    """

    verdict_line: str
    exit_code: int
    details: tuple[str, ...] = ()

    def raise_for_status(self) -> None:
        """Raise RuntimeError with the verdict line and its details, unless the exit code is 0."""
        if self.exit_code != OK:
            raise RuntimeError("\n".join([self.verdict_line, *self.details]))


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A reason why a run does not end with exit code 0, with the exit code that it causes."""

    exit_code: int
    text: str


def row_exit_code(row: Record) -> int:
    """Return the exit code that one result row causes: OK, FAIL, INCONCLUSIVE or INCOMPLETE.

    - A control breaks its claim on purpose, so its audit should end as REFUTED. Any other verdict makes the run
      incomplete, because the audit did not detect what was planted for it.
    - A claim ``as_published`` is a paper's claim under test, so every verdict about it is acceptable.
    - A failed implementation check (role ``check``, verdict FAILED) of any other claim is inconclusive: the claim may
      be true although the published noise law is not.
    - Attacks on final models (role ``evidence``) count when they refute a claim. Their other verdicts cause nothing,
      because these attacks were not designed to refute.
    """
    if row.status == "failed":
        return INCOMPLETE
    under_test = row.variant == AS_PUBLISHED
    if row.role == "check" and row.verdict == "FAILED":
        return OK if row.control or under_test else INCONCLUSIVE
    if row.role == "evidence":
        return FAIL if row.verdict == "REFUTED" and not row.control and not under_test else OK
    if row.role != "audit" or row.status != "ok":
        return OK
    if row.control:
        return OK if row.verdict == "REFUTED" else INCOMPLETE
    if under_test or row.verdict == "NOT_REFUTED":
        return OK
    return FAIL if row.verdict == "REFUTED" else INCONCLUSIVE


def problems(
    records: Sequence[Record], *, missing: int = 0, unread: int = 0, repeated: int = 0, changed: Sequence[str] = ()
) -> list[Problem]:
    """Return every reason why these result rows do not give exit code 0.

    Args:
        missing: number of planned cells without a row.
        unread: number of rows that could not be read.
        repeated: number of rows about what an earlier row has measured; they are not used.
        changed: files that differ from what the finished run recorded about them.
    """
    # The order of this list is the order in the verdict line.
    troubled = [(row, code) for row in records if (code := row_exit_code(row)) != OK]
    failed = [row.defense for row, _ in troubled if row.status == "failed"]

    caught = {row.cell_id for row in records if row.role == "check" and row.verdict == "FAILED"}

    def names(role: str, code: int) -> list[str]:
        rows = [row for row, own in troubled if (row.role, own, row.status) == (role, code, "ok")]
        return [f"{row.defense}{_ONLY_CHECKS if row.control and row.cell_id in caught else ''}" for row in rows]

    found = [
        (INCOMPLETE, missing, f"{counted(missing, 'cell')} missing"),
        (INCOMPLETE, unread, f"{counted(unread, 'row')} that cannot be read"),
        (INCOMPLETE, repeated, counted(repeated, "repeated row")),
        (INCOMPLETE, len(changed), f"files changed since the run was finished: {', '.join(changed)}"),
        (INCOMPLETE, len(failed), f"{counted(len(failed), 'cell')} FAILED ({listed(failed)})"),
        *(
            (code, len(named := names(role, code)), f"{words}: {listed(named)}")
            for role, code, words in (
                ("audit", INCOMPLETE, "controls not refuted"),
                ("audit", FAIL, "claims REFUTED"),
                ("evidence", FAIL, "claims REFUTED by attacks"),
                ("audit", INCONCLUSIVE, "claims that this run cannot judge"),
                ("check", INCONCLUSIVE, "implementation checks failed"),
            )
        ),
    ]
    return [Problem(exit_code=code, text=text) for code, count, text in found if count]


def fine_line(records: Sequence[Record]) -> str:
    """Return the verdict line of a run without problems: a summary of its audited claims, and what it does not
    show.
    """
    audits = [row for row in records if row.role == "audit" and row.status == "ok"]
    own = own_training(records)
    # The line is often read alone: NOT REFUTED must not seem to be about a model that no audit trained.
    elsewhere = [words for row in audits if (words := audited_on(row, own))]
    counts = ", ".join([*_counts(audits), *_attacked(records)])
    shown = any(row.control for row in audits) or not audits
    notes = [] if shown else [NO_CONTROL]
    unseen = _unseen(_neither_control_nor_paper(audits))
    return "; ".join([counts, *notes, *([listed(elsewhere)] if elsewhere else []), *unseen])


def _counts(audits: Sequence[Record]) -> Iterator[str]:
    """The audited claims by their verdicts: the user's own, controls, and those of papers."""
    if not audits:
        yield "no claim was audited"
        return
    claims = _neither_control_nor_paper(audits)
    yield f"{counted(len(claims), 'claim')} NOT REFUTED"
    if weak := [row.defense for row in claims if row.weak]:
        yield f"{len(weak)} of them {ACCEPTED} ({listed(weak)})"
    if controls := sum(row.control for row in audits):
        yield f"{counted(controls, 'control')} REFUTED as intended"
    # Papers' claims are counted apart: their refutation is a result, and no defense of the user failed.
    if papers := [row for row in audits if row.variant == AS_PUBLISHED]:
        refuted = sum(row.verdict == "REFUTED" for row in papers)
        yield f"{refuted} of {counted(len(papers), 'claim')} of papers, as published, REFUTED"


def unseen_words(items: Sequence[str]) -> str:
    """Return in words how many things were not looked at, and one of them with its reason, if it has one."""
    name, _, why = items[0].partition(": ")
    return f"{counted(len(items), 'item')}, such as {name}{f' ({why})' * bool(why)}"


def _unseen(claims: Sequence[Record]) -> Iterator[str]:
    """How many things were not looked at, and one of them."""
    # Rows are written in any order.
    ordered = sorted(claims, key=lambda row: (row.federation, row.defense, row.claim_id))
    if items := list(dict.fromkeys(item for row in ordered for item in row.not_looked_at)):
        yield f"not looked at: {unseen_words(items)}"


def _attacked(records: Sequence[Record]) -> Iterator[str]:
    attacked = [row for row in records if row.role == "evidence" and row.status == "ok"]
    if tested := _neither_control_nor_paper(attacked):
        powerless = sum(row.verdict != "NOT_REFUTED" for row in tested)
        without = f" (for {powerless} of them the attacks could not have refuted the claim)" if powerless else ""
        yield f"attacks refuted none of {counted(len(tested), 'claim')}{without}"


def _neither_control_nor_paper(rows: Sequence[Record]) -> list[Record]:
    return [row for row in rows if not row.control and row.variant != AS_PUBLISHED]


def outcome_of(found: Sequence[Problem], fine: str) -> Outcome:
    """Combine problems into one outcome: exit code 12 (incomplete) outranks 10 (refuted), and 10 outranks 11
    (inconclusive).

    The verdict line names every problem.

    ``fine``: the rest of the verdict line where there is no problem.
    """
    # The line starts with the word of the exit code, but names all problems, so that one run shows them all.
    for code in PRECEDENCE:
        if any(problem.exit_code == code for problem in found):
            return Outcome(verdict_line=f"{WORDS[code]}: {'; '.join(one.text for one in found)}", exit_code=code)
    return Outcome(verdict_line=f"{WORDS[OK]}: {fine}", exit_code=OK)


def failing_codes(words: Iterable[str]) -> frozenset[int]:
    """Return the exit codes for these words (``fail``, ``incomplete``, ``inconclusive``); raise ConfigError for any
    other.
    """
    names = [word.strip().lower() for word in words]
    for name in names:
        if name not in _CODES:
            raise ConfigError(f"fail_on (--fail-on) names an unknown verdict {name!r}; known: {nearest(name, _CODES)}")
    return frozenset(_CODES[name] for name in names)


def judge_run(
    records: Sequence[Record],
    *,
    missing: int = 0,
    unread: int = 0,
    repeated: int = 0,
    changed: Sequence[str] = (),
) -> Outcome:
    """Return the outcome of a run by itself, without a comparison with a baseline; the functions ``problems`` and
    ``fine_line`` explain the arguments.
    """
    found = problems(records, missing=missing, unread=unread, repeated=repeated, changed=changed)
    return outcome_of(found, fine_line(records))


def judge_finding(name: str, finding: Finding) -> Outcome:
    """Return the outcome of one claim that was audited outside a run; ``name`` names the audited mechanism."""
    if finding.verdict is Verdict.REFUTED:
        return Outcome(verdict_line=f"FAIL: claims REFUTED: {name}", exit_code=FAIL)
    if finding.verdict is Verdict.NOT_REFUTED:
        weak = f" {ACCEPTED}: {finding.reason}" if finding.weak else ""
        return Outcome(verdict_line=f"OK: 1 claim NOT REFUTED{weak}", exit_code=OK)
    if finding.verdict is Verdict.NO_CLAIM:
        return Outcome(verdict_line=f"NO CLAIM: {finding.reason}", exit_code=OK)
    word = finding.verdict.value.replace("_", " ")
    return Outcome(verdict_line=f"INCONCLUSIVE: {word}: {finding.reason}", exit_code=INCONCLUSIVE)


def accepting_weak(records: Iterable[Record]) -> list[Record]:
    """Return the result rows after the user accepted weak tests: a claim that is UNDERPOWERED only because its test is
    weak gets the verdict NOT_REFUTED.
    """
    return [row.model_copy(update={"verdict": "NOT_REFUTED"}) if row.weak else row for row in records]


Trained = tuple[str, str]
"""A data set and a model."""


def own_training(records: Iterable[Record]) -> dict[str, Trained]:
    """Return the data set and model that each federation trains, keyed by the federation's name, from the rows about
    its training.
    """
    return {row.federation: (row.dataset, row.model) for row in records if row.role in ("utility", "attack", "null")}


def audited_on(row: Record, own: Mapping[str, Trained]) -> str:
    """Describe the data set and model that the audit of this row trained; empty if the federation itself trains the
    same ones.
    """
    return other_training((row.dataset, row.model), own.get(row.federation))


def other_training(used: Trained, own: Trained | None) -> str:
    """Return words that say that an audit trained the data set and model ``used`` and not ``own``; empty if they are
    equal.
    """
    if own is None or used == own:
        return ""
    if used[0] == own[0]:
        return f"audited on {used[0]} with {used[1]}, not {own[1]}"
    return f"audited on {used[0]} with {used[1]}, not {own[0]} with {own[1]}"
