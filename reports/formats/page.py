"""Write HTML pages that need no network: of one run, of several runs, of a site over many runs, and of a notebook."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace

from jinja2 import Environment
from markupsafe import Markup

from ...audit.check import ACCOUNTED, MULTIPLIER, RATE, SCALE, STEPS, short_words
from ...audit.claim import Claim
from ...audit.estimators.guess_odds import runs_for_coins
from ...audit.finding import Finding, Verdict
from ...audit.metrics import MembershipResult
from ...audit.threshold import scores_of
from ...audit.wording import plain
from ...suites.results.outcome import FAIL, INCOMPLETE, OK
from ..figures.claims import claimed_measured, privacy_utility
from ..figures.curves import accuracy_spent, leakage_by_round, learning
from ..figures.frame import Figure
from ..figures.images import reconstructions, three_pictures
from ..figures.roc import membership_roc, roc, roc_of_scores
from ..reading.claims import claim_rows, stated_rows
from ..reading.run_folder import RunFolder
from ..tables import first_screen, numerals, printed, summary
from ..tables.answers import (
    NOT_TESTED,
    OWNER,
    PEOPLE,
    WEAK_OWNER,
    answers,
    audited_size,
    controls_sentence,
    enough_runs,
    headline,
    system_tested,
    what_was_tested,
)
from ..tables.first_screen import Tested
from ..tables.pooled_rows import attack_grids, pooled_attacks, pooled_utility
from ..tables.printed import attack_table, claim_table, utility_table
from ..tables.sections import by_defense, how_to_read, sections
from ..tables.several_runs import all_rows, by_run, overview, run_labels
from .templates import environment

_ROOM = 500_000
"""Bytes of drawings at most on a page of several runs."""


def html(folder: RunFolder) -> str:
    """Return the HTML report of one run; the same run folder always gives the same bytes."""
    claims = claim_rows(folder)
    # Before the sections, the last of which lists the files that proved unreadable.
    drawn, answered = figures(folder), answers(folder)
    finished = folder.gate is not None and folder.gate.exit_code != INCOMPLETE
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            run=folder,
            headline=headline(folder),
            tested=what_was_tested(folder),
            answers=answered,
            first=first_screen,
            band=first_screen.band(answered, finished=finished),
            pictures={one.row.defense: three_pictures(folder, one.row.defense) for one in answered},
            reached={one.row.defense: first_screen.reached(folder, one.row.defense) for one in answered},
            controls_words=controls_sentence(claims),
            system=system_tested(folder),
            audited_size=audited_size(folder) if folder.gate is not None else "",
            verdict_line=summary.verdict_line(folder),
            exit_words=summary.exit_words(folder),
            sections=sections(folder),
            claims=claims,
            defenses=by_defense(folder),
            figures=drawn,
            grids=attack_grids(pooled_attacks(folder)),
            utility=[row for row in pooled_utility(folder) if numerals.is_quality(row.metric)],
            pooling_note=summary.POOLING_NOTE,
            reading=how_to_read(folder),
            many=lambda rows: len({row.federation for row in rows}) > 1,
            provenance=summary.provenance(folder),
            suite_json=json.dumps(folder.manifest.suite, indent=2, ensure_ascii=False),
            reproduce=summary.reproduce(folder),
            numerals=numerals,
            printed=printed,
            breakable=breakable,
            plain=plain,
            width=first_screen.WIDTH,
        )
    )


def html_of_finding(
    target: str,
    claim: Claim | None,
    verdict: str,
    *,
    code: int,
    finding: Finding | None = None,
    attack: tuple[MembershipResult, Sequence[str]] | None = None,
    checks: Sequence[tuple[str, bool | None, str]] = (),
    lines: Sequence[str] = (),
    stated_by: str = "",
    rests: str = "",
) -> str:
    """Return an HTML page about one audit, or one watched run, of a user's own system.

    Args:
        target: the system's name. claim: what it claims; None of scores alone. verdict: one line. code: the exit code
        of the command. finding: of an audit; None of a watched run. attack: how well scores distinguish members, and
        of what its intervals are. checks: names, outcomes (None: not looked at) and words.
        lines: what the command printed. stated_by: who states the claim, and what was tested.
        rests: what the verdict assumes of the evidence.
    """
    tested = None if claim is None else Tested(claim=claim, verdict="REFUTED" if code == FAIL else "UNDERPOWERED")
    if finding is not None and claim is not None:
        tested = Tested.of(claim, finding)
    weak = finding is not None and finding.weak and finding.verdict is Verdict.NOT_REFUTED
    kind = "none" if claim is None else "open" if weak else {OK: "fine", FAIL: "broken"}.get(code, "open")
    rate = None if attack is None else attack[0].rows[1]["value"]
    bounding = [] if claim is None or tested is None or tested.verdict == "OUT_OF_SCOPE" else [claim]
    return (
        _environment()
        .get_template("finding.html.j2")
        .render(
            target=target,
            claim=claim,
            verdict=verdict,
            code=code,
            finding=finding,
            tested=tested,
            attack=attack and (attack[0].line(), *attack[1]),
            figure=attack and roc_of_scores(attack[0], bounding),
            checks=checks,
            lines=lines,
            stated_by=stated_by,
            rests=rests,
            first=first_screen,
            kind=kind,
            weak=weak,
            why=_why(kind, finding, checks),
            owner=_owner(kind, tested, audited=finding is not None),
            engineer=_more(finding, scores=attack is not None) or _engineer(_case(kind, finding, attack), checks),
            found=None if rate is None else round(PEOPLE * rate),
            plain=plain,
            width=first_screen.WIDTH,
        )
    )


_ENGINEER = {
    "fine": "Test again when code, data, model or rounds change.",
    "broken": "Mend what was found, or state a larger ε, and test again.",
    "open": "Audit again with more runs (--trials), until the test can decide.",
    "scores": "Audit again with more scores, until the test can decide.",
    "beyond": "State a claim that covers this evidence, or make evidence of what the claim covers.",
    "split": "No number of these scores will do, because no bound follows from their design: make scores of "
    "independent runs (--independent-runs), or of canaries (records that are inserted to measure leakage), each of "
    "which a fair coin includes in the run (--one-run).",
    "watched": "Mend what kept the checks below from running, and watch again.",
    "none": "State a claim (--epsilon, --delta). Scores test one if they are of independent runs (--independent-runs), "
    "or of canaries (inserted records) that fair coins include (--one-run); members of one model cannot.",
}
"""What an engineer should do next, by what the page found."""
_LARGER = (SCALE, ACCOUNTED, MULTIPLIER, STEPS, RATE)
"""Checks of which a larger epsilon covers a failure: no epsilon covers, for one, a row that is not clipped."""


def _engineer(kind: str, checks: Sequence[tuple[str, bool | None, str]]) -> str:
    mend = any(passed is False and name.partition(", ")[0] not in _LARGER for name, passed, _ in checks)
    return "Mend what was found, and test again." if kind == "broken" and mend else _ENGINEER[kind]


def _case(kind: str, finding: Finding | None, scores: object) -> str:
    """The key of ``_ENGINEER`` for what was found."""
    if kind != "open" or finding is None:
        return "watched" if kind == "open" else kind
    if finding.verdict is Verdict.OUT_OF_SCOPE:
        # Scores that are not even measured are those of a fixed split.
        return "split" if scores and finding.measurement is None else "beyond"
    return "scores" if scores else "open"


_CANARIES = re.compile(r"(?:about|even) ([\d,]+) canaries of one run would (not )?be enough")


def _more(finding: Finding | None, *, scores: bool) -> str:
    """The number of trials or scores that would do, where the finding of an audit that decided nothing states it."""
    decided = finding is None or not (finding.verdict is Verdict.UNDERPOWERED or finding.weak)
    if finding is None or decided:
        return ""
    if found := _CANARIES.search(finding.reason):
        if found[2]:
            return f"Make scores of independent runs (--independent-runs): {found[1]} canaries of one run are too few."
        return f"Audit again with about {found[1]} canaries in one run, which are enough if the test is the best one."
    if (enough := enough_runs(finding.reason)) is None:
        return ""
    if scores:
        coins = finding.measurement is not None and finding.measurement.estimator == "guess_odds"
        kept, chosen = (runs_for_coins(enough), " or are left out by coins") if coins else (enough, "")
        least = f"{scores_of(kept):,} scores of members and as many of non-members"
        return (
            f"Audit again with more scores: with the best attack, about {least} are enough, because the others only "
            f"choose the threshold{chosen}, and about {enough:,} of each are counted."
        )
    return f"Audit again with --trials {enough}, which is about enough if the test is the best one."


def _owner(kind: str, tested: Tested | None, *, audited: bool) -> str:
    if tested is None:
        return "Do not take these numbers as a proof of privacy: they show one attack, and no claim was tested."
    if kind == "fine" and not audited:
        return "Have the claim audited as well: this run shows faults of the code, and no bound on ε."
    return WEAK_OWNER if kind == "open" and tested.verdict == "NOT_REFUTED" else OWNER.get(tested.verdict, NOT_TESTED)


def _why(kind: str, finding: Finding | None, checks: Sequence[tuple[str, bool | None, str]]) -> str:
    """What stands behind the verdict: failed checks, or why none was reached, or how many checks passed."""
    if failed := [short_words(words) for _, passed, words in checks if passed is False]:
        more = f"; and {len(failed) - 2} more" if len(failed) > 2 else ""
        return f"Failed: {'; '.join(failed[:2])}{more}."
    if kind == "open" and finding is not None and finding.claim is not None:
        return f"Why: {finding.reason}."
    return f"{sum(passed is True for _, passed, _ in checks)} of {len(checks)} checks passed." if checks else ""


def html_of_several(folders: Sequence[RunFolder]) -> str:
    """Return one HTML report of several runs: their verdicts, their results with one column per run, some figures of
    each run, all result rows, and provenance.
    """
    drawn, note = _of_each_run(folders)
    return (
        _environment()
        .get_template("several.html.j2")
        .render(
            heading=_heading(folders),
            overview=overview(folders),
            figures=drawn,
            figures_note=note,
            compared=by_run(folders, run_labels(folders)),
            tables=all_rows(folders),
            sources=[
                (name, summary.provenance(folder), summary.reproduce(folder))
                for name, folder in zip(run_labels(folders), folders, strict=True)
            ],
        )
    )


def _heading(folders: Sequence[RunFolder]) -> str:
    """The answer of several runs in one line."""
    violated = sum(
        any(row.verdict == "REFUTED" and not row.control and not row.published for row in claim_rows(folder))
        for folder in folders
    )
    if not violated:
        return f"{len(folders)} runs side by side"
    return f"{violated} of {len(folders)} runs found a violated claim"


def _of_each_run(folders: Sequence[RunFolder]) -> tuple[list[Figure], str]:
    """Claims and frontier of each run, one kind after the other, for as many runs as the page has room; and a sentence
    about the figures that are left out.
    """
    kept: list[list[tuple[int, Figure]]] = []
    room = _ROOM
    for number, (label, folder) in enumerate(zip(run_labels(folders), folders, strict=True), start=1):
        kinds = claimed_measured(folder), privacy_utility(folder)
        every = [(kind, figure) for kind, figure in enumerate(kinds) if figure is not None]
        # Ids must be unique on a page, and each run has the same figures; a kind is described once.
        known = {kind for group in kept for kind, _ in group}
        own = [
            (kind, replace(figure.of_run(number, label), description="" if kind in known else figure.description))
            for kind, figure in every
        ]
        room -= sum(len(figure.svg) for _, figure in own)
        if room < 0:
            break
        kept.append(own)
    drawn = [figure for _, figure in sorted(((one for own in kept for one in own)), key=lambda one: one[0])]
    left = len(folders) - len(kept)
    words = "The report of each run has further figures and the details of its cells."
    return (
        drawn,
        f"{words} To keep the page small, the figures of the last {left} runs are left out." if left else words,
    )


def figures(folder: RunFolder) -> Sequence[Figure]:
    """Draw every figure for which the run has data, in the order of the page."""
    drawn: list[Figure | None] = [
        claimed_measured(folder),
        privacy_utility(folder),
        roc(folder),
        *membership_roc(folder),
        *reconstructions(folder),
        *leakage_by_round(folder),
        accuracy_spent(folder),
        *learning(folder),
    ]
    return [figure for figure in drawn if figure is not None]


def breakable(label: str) -> Markup:
    """Return a label that HTML may break after underscores, so that a table of many defenses fits the width of the
    page.
    """
    return Markup("_<wbr>").join(label.split("_"))


def _environment() -> Environment:
    own = environment(autoescape=True)
    # Only the drawings are inserted as markup: matplotlib has escaped their texts. Everything else is escaped here.
    own.filters["drawing"] = Markup
    return own


def notebook_html(folder: RunFolder) -> str:
    """Return the verdict of a run and its tables of claims, attacks (primary metrics) and utility as HTML."""
    tables = [claim_table(stated_rows(folder))]
    tables += [attack_table(grid, grid.primary) for grid in attack_grids(pooled_attacks(folder))]
    tables += [utility_table(pooled_utility(folder))]
    return (
        environment(autoescape=True)
        .get_template("notebook.html.j2")
        .render(
            verdict=summary.verdict_line(folder),
            exit_words=summary.exit_words(folder),
            place=folder.path / "report.html",
            tables=[table for table in tables if table.rows],
        )
    )
