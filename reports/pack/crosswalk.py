"""A crosswalk: a document that maps points of three published frameworks to the parts of a run's report, with their
content.

The points are named in short words of our own, with the place where each framework treats them:

- NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (Near, Darais, Lefkovitz, Howarth; March
  2025): the factors and hazards of its pyramid, by topic.
- ISO/IEC 27559:2022, Privacy enhancing data de-identification framework: clauses 6.2, 7.3, 8.2 and 9.
- EDPB Opinion 28/2024 on AI models (17 December 2024), section 3.2: what a supervisory authority looks at when someone
  calls a model anonymous.

A row says where to look. It never says that a point is fulfilled.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...audit.wording import counted
from ...suites.results.record import Record
from ..formats.exports import results_sha256
from ..reading.claims import ClaimRow, claims_under_test
from ..reading.membership import memberships
from ..reading.pooling import gathered
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.answers import allowed_by, allowed_of_thousand, allowed_words, item_in_plain_words, item_phrase, weakness
from ..tables.covered import rebuilt_images, value_words
from ..tables.numerals import NOTHING, interval_words
from ..tables.pooled_rows import AttackRow, pooled_attacks, pooled_utility
from ..tables.printed import VERDICTS, namer, pooled_words
from ..tables.reconstruction import SUCCESS
from ..tables.table import Table, tabulate
from .document import EMPTY, Block, Heading

NIST = "NIST SP 800-226 (March 2025): factors and hazards"
ISO = "ISO/IEC 27559:2022"
EDPB = "EDPB Opinion 28/2024, section 3.2: elements of an assessment"
_ORGANISATION = f"{EMPTY}: a matter of the organisation, not of a run"
_TRIGGERS = "a list of changes that call for a new test; the real system is not monitored by a run"
_SHOWN = 6
_MEMBERSHIP, _LABELS, _IMAGES = ("auc",), ("label_accuracy",), ("psnr", "ssim", "mse")
_REPORT, _STATEMENT, _CLAIMS = "report.html", "statement.md", "claims.yaml"


COUNTED = f"images reconstructed with a PSNR of {SUCCESS:.0f} dB or more"
"""What the counts of ``images_reconstructed`` count."""


def verdict_phrase(row: ClaimRow) -> str:
    """Return the verdict in words, marked if the test was weak."""
    words = VERDICTS.get(row.verdict, row.verdict)
    return f"{words} (weak test)" if weakness(row) else words


def bound_phrase(row: ClaimRow) -> str:
    """Return a phrase that says how many of 1,000 units the claim lets an attacker find, and whether one can rely on
    this limit.
    """
    most = allowed_words(row.claim)
    if row.verdict == "REFUTED":
        return f"claimed: {most}; this run refuted the claim, so that no bound holds"
    return f"if the claim holds (verdict: {verdict_phrase(row)}), {most}"


def bound_number(row: ClaimRow) -> str:
    """Return, for the cell of a table, only the number of units that ``bound_phrase`` states, and what it follows
    from.
    """
    most, why = f"{allowed_of_thousand(row.claim):,}", allowed_by(row.claim)
    return f"no bound (claimed: {most}, {why})" if row.verdict == "REFUTED" else f"{most} ({why})"


def plan_phrase(folder: RunFolder) -> str:
    """Return a phrase that names the plan that was run, with the digest of its results."""
    return f"plan {folder.manifest.run_id} (results.jsonl: SHA-256 {results_sha256(folder)})"


def check_phrase(check: Record) -> str:
    """Return a failed implementation check with its measured numbers, taken from its reason; if there are none, its
    name.
    """
    return check.reason or check.metric.removeprefix("check_").replace("_", " ")


def images_reconstructed(folder: RunFolder, one: AttackRow) -> str:
    """Return how many images an attack reconstructed, such as ``24 of 24``; empty if their PSNR is not stored."""
    found = rebuilt_images(folder, one)
    return f"{found.count} of {found.n}" if found else ""


def outcome_phrase(folder: RunFolder, one: AttackRow) -> str:
    """Return what an attack achieved: the number of reconstructed images if it is known, otherwise the pooled value of
    its metric.
    """
    if count := images_reconstructed(folder, one):
        return f"{count} {COUNTED}"
    interval = interval_words(one.metric, one.pooled.low, one.pooled.high) if one.pooled else ""
    return f"{value_words(one)}{interval}"


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What the rows of the crosswalk are read from."""

    folder: RunFolder
    rows: Sequence[ClaimRow]

    def of_claims(self, words: Callable[[ClaimRow], str]) -> str:
        """Different words about the claims, with the defenses that they are about; empty if there are none at all."""
        name = namer(self.rows, controls=False)
        found = gathered((words(row) or EMPTY, name(row)) for row in self.rows)
        if set(found) <= {EMPTY}:
            return ""
        return "; ".join(f"{_few(list(dict.fromkeys(names)))}: {said}" for said, names in found.items())

    def of_audits(self, words: Callable[[ClaimRow], str]) -> str:
        """The same, where the run has the result of an audit."""
        return self.of_claims(words) if any(row.record for row in self.rows) else ""

    def measured(self, metrics: Sequence[str], *, null: bool = False) -> list[AttackRow]:
        """The attacks with a measured metric: those on defenses with a claim, where there are any."""
        claimed = {row.defense for row in self.rows}
        return [
            one
            for one in pooled_attacks(self.folder)
            if one.metric in metrics
            and one.pooled is not None
            and one.null == null
            and (one.defense in claimed if claimed else not one.control)
        ]

    def nulls(self, metrics: Sequence[str]) -> str:
        """The measured null attacks by name."""
        return _few(list(dict.fromkeys(one.attack for one in self.measured(metrics, null=True))))

    def outcomes(self, metrics: Sequence[str]) -> str:
        """What each attack reached under each defense, by the first of the metrics that it has."""
        found = gathered((one.attack, one) for one in self.measured(metrics))
        return "; ".join(f"{attack}: {self._outcome(rows, metrics)}" for attack, rows in found.items())

    def _outcome(self, rows: Sequence[AttackRow], metrics: Sequence[str]) -> str:
        first = min((row.metric for row in rows), key=list(metrics).index)
        rows = [row for row in rows if row.metric == first]
        what, words = COUNTED, [images_reconstructed(self.folder, row) for row in rows]
        if not all(words):
            what, words = numerals.metric(first).label, [pooled_words(first, row.pooled) for row in rows]
        name = namer(rows, controls=False)
        reached = (
            f"{word} under {name(row)}{' (OUT OF SCOPE)' * row.beyond}" for word, row in zip(words, rows, strict=True)
        )
        return f"{', '.join(reached)} ({what})"

    def utility(self, wanted: Callable[[str], bool]) -> str:
        """The pooled values of metrics of utility, by metric and defense, without controls."""
        rows = [row for row in pooled_utility(self.folder) if wanted(row.metric) and not row.control]
        name = namer(rows, controls=False)
        found = gathered(
            (row.metric, f"{name(row)} {pooled_words(row.metric, row.pooled) if row.pooled else EMPTY}") for row in rows
        )
        measured = {row.metric for row in rows if row.pooled}
        return "; ".join(
            f"{numerals.metric(key).label}: {', '.join(values)}" for key, values in found.items() if key in measured
        )

    def looked(self, *words: str) -> str:
        """What the implementation checks looked at of a topic, with the defenses, and what of it they did not."""
        topic = re.compile("|".join(words))

        def items(row: ClaimRow) -> tuple[list[str], list[str]]:
            unseen = [_with_reason(item) for item in row.not_looked_at if topic.search(item)]
            return [item_phrase(item) for item in row.looked_at if topic.search(item)], unseen

        def of(row: ClaimRow) -> str:
            seen, unseen = items(row)
            parts = [f"looked at {_few(seen)}" if seen else "", f"{EMPTY}: {_few(unseen)}" if unseen else ""]
            return ", ".join(filter(None, parts))

        if any(items(row)[0] for row in self.rows):
            return self.of_claims(of)
        unseen = [item for row in self.rows for item in items(row)[1]]
        return f"{EMPTY}: {_few(list(dict.fromkeys(unseen)))}" if unseen else ""


class _Point(NamedTuple):
    """One point of a framework: its place, what it asks, where the pack treats it, and what the run holds."""

    place: str
    asks: str
    where: str
    holds: Callable[[_Run], str]


def crosswalk(folder: RunFolder) -> list[Block]:
    """Return the crosswalk, which maps points of published frameworks to results of the run, as a document; points for
    which the run holds nothing say so.
    """
    run = _Run(folder=folder, rows=claims_under_test(folder))
    return [
        Heading(text="Crosswalk to published frameworks", level=1),
        "Each row names a point of a framework, what this run holds about it, and the file of this pack to read. A row "
        f"says where to look, and not that the point is fulfilled. “{EMPTY}” stands where a run holds nothing. "
        "NOT REFUTED is no proof of a claim.",
        *(block for framework in _POINTS for block in (Heading(text=framework), _table(framework, run))),
    ]


def _table(framework: str, run: _Run) -> Table:
    return tabulate(
        "",
        [(one, one.holds(run)) for one in _POINTS[framework]],
        {
            "place": lambda one: one[0].place,
            "point": lambda one: one[0].asks,
            "what this run holds": lambda one: one[1] or EMPTY,
            # A file that holds no measurement of the point is no place to look.
            "file": lambda one: NOTHING if not one[1] or one[1].startswith(EMPTY) else one[0].where or NOTHING,
        },
        about=2,
    )


def _with_reason(item: str) -> str:
    name, _, reason = item_phrase(item).partition(": ")
    return f"{name} ({reason})" if reason else name


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _organisation(run: _Run) -> str:
    return _ORGANISATION


def _parameters(run: _Run) -> str:
    # An epsilon is stated with its unit, neighbours, adversary and delta.
    return run.of_claims(lambda row: f"{row.claim_text} (verdict: {verdict_phrase(row)})")


def _rounds(row: ClaimRow) -> str:
    claimed = f"claimed over {counted(row.claim.rounds, 'round')}"
    return claimed + (f" of {row.rounds_run}" if row.rounds_run else "")


def _adversaries(run: _Run) -> str:
    return run.of_claims(lambda row: row.claim.observer.phrase)


def _capacity(run: _Run) -> str:
    received = _adversaries(run)
    return f"capacity, by what is received: {received}; motives: {EMPTY}" if received else ""


def _found_by_checks(row: ClaimRow) -> str:
    """What the implementation checks found, and at what they did not look; empty without checks."""
    kept, unknown = sum(one.verdict == "PASSED" for one in row.checks), sum(one.status != "ok" for one in row.checks)
    failed = ", ".join(check.metric.removeprefix("check_").replace("_", " ") for check in row.failed_checks)
    said = [f"{counted(len(row.failed_checks), 'check')} failed: {failed}"] if failed else []
    said += [f"{counted(kept, 'check')} found no difference"] if kept else []
    said += [f"{counted(unknown, 'check')} not possible"] if unknown else []
    unseen = list(dict.fromkeys(map(item_in_plain_words, row.not_looked_at)))
    said += [f"not looked at: {_few(unseen)}"] if said and unseen else []
    return "; ".join(said)


def _quantified(row: ClaimRow) -> str:
    low = "" if row.epsilon_low is None else f", measured ε ≥ {numerals.lower_bound(row.epsilon_low)}"
    return f"{row.claim_text}: {verdict_phrase(row)}{low}"


def _maximum(run: _Run) -> str:
    return run.of_claims(bound_phrase)


def _both_risks(run: _Run) -> str:
    most, average = _maximum(run), run.outcomes(_MEMBERSHIP)
    return "; ".join(
        filter(None, (most and f"maximum: {most}", average and f"average over candidates, by the attacks: {average}"))
    )


def _candidates(run: _Run) -> str:
    found = [one for one in memberships(run.folder) if not one.null]
    if not found:
        return ""
    most = max(one.candidates for one in found)
    return (
        "membership attacks, in which the attacker knows a candidate and not whether it is in the data "
        f"(at most {most:,} candidates outside the data per attack, over all seeds)"
    )


def _adversarial(run: _Run) -> str:
    found = {
        "membership": run.outcomes(_MEMBERSHIP),
        "labels": run.outcomes(_LABELS),
        "reconstruction": run.outcomes(_IMAGES),
        "audits of claims": run.of_audits(verdict_phrase),
    }
    return "; ".join(f"{kind}: {said or EMPTY}" for kind, said in found.items()) if any(found.values()) else ""


def _nulls(run: _Run) -> str:
    names = run.nulls((*_MEMBERSHIP, *_LABELS, *_IMAGES))
    return f"attacks that use nothing, for comparison: {names}" if names else ""


def _tests(run: _Run) -> str:
    manifest = run.folder.manifest
    when, signed = manifest.finished or manifest.started or "", "to be signed"
    if run.folder.gate is None:
        done = f"{manifest.planned_cells - run.folder.missing:,} of {manifest.planned_cells:,} cells"
        when, signed = f"started {manifest.started or EMPTY}, not finished ({done})", "not to be signed"
    return f"{plan_phrase(run.folder)}, {when}; by whom: {signed}; repeat with: {manifest.command}"


def _data(run: _Run) -> str:
    names = _few([f"{name} (SHA-256 in {_STATEMENT})" for name in sorted(run.folder.manifest.data)])
    return f"{names}; how they were chosen: {EMPTY}" if names else ""


def _residual(run: _Run) -> str:
    if run.folder.gate is None:
        return f"{EMPTY}: the run is unfinished, and not to be signed"
    return "lines for signatures, to be filled in"


_POINTS: dict[str, tuple[_Point, ...]] = {
    NIST: (
        _Point("privacy parameters", "ε and δ, and what they allow", _STATEMENT, _parameters),
        _Point(
            "unit of privacy",
            "whose data a neighbouring dataset differs in; hazard: people with several records",
            _STATEMENT,
            lambda run: run.of_claims(lambda row: f"one {row.claim.unit} ({row.claim.adjacency.phrase})"),
        ),
        _Point(
            "composition",
            "all releases together; hazard: releases not counted",
            _CLAIMS,
            lambda run: run.of_claims(_rounds),
        ),
        _Point(
            "tuning",
            "hazard: parameters chosen on the private data",
            _CLAIMS,
            lambda run: "not included in any claim of this run",
        ),
        _Point(
            "algorithms",
            "whether the mechanism that ran is the one in the proof",
            _REPORT,
            lambda run: run.of_claims(_found_by_checks),
        ),
        _Point("utility", "what the noise costs", _REPORT, lambda run: run.utility(numerals.is_quality)),
        _Point(
            "bias",
            "for whom the noise lowers accuracy most",
            _REPORT,
            lambda run: run.utility(lambda metric: "worst" in metric),
        ),
        _Point("bias", "systemic and human bias", "", _organisation),
        _Point(
            "threat model",
            "who is trusted with what",
            _STATEMENT,
            lambda run: run.of_claims(lambda row: row.claim.trust),
        ),
        _Point(
            "implementation: floating point",
            "hazard: the lowest bits of noised numbers reveal data",
            _REPORT,
            lambda run: run.looked("floating", "zero bits"),
        ),
        _Point(
            "implementation: timing and other side channels",
            "hazard: other values that leave with the release",
            _REPORT,
            lambda run: run.looked(r"\btiming", r"\btext", r"\barray", r"\bsize", r"\bmetric"),
        ),
        _Point("security and access control", "who can reach raw data", "", _organisation),
        _Point("data collection exposure", "what is collected, and for how long", "", _organisation),
    ),
    ISO: (
        _Point("6.2.2", "security and privacy practices", "", _organisation),
        _Point("6.2.3", "motives and capacity of an attacker", _STATEMENT, _capacity),
        _Point("7.3.2", "maximum or average risk", _STATEMENT, _both_risks),
        _Point("7.3.3", "whether an attack is on a population or on a sample", _REPORT, _candidates),
        _Point("7.3.4", "privacy models of the data", _CLAIMS, _parameters),
        _Point("8.2.2", "quantified identifiability", _STATEMENT, lambda run: run.of_audits(_quantified)),
        _Point("8.2.3", "adversarial testing", _REPORT, _adversarial),
        _Point("9.2.2", "roles and responsibilities", _STATEMENT, _residual),
        _Point("9.2.3 to 9.2.5", "policies, disclosure, stakeholders", "", _organisation),
        _Point("9.3.2", "monitoring after release", _STATEMENT, lambda run: _TRIGGERS),
        _Point("9.4", "incidents", "", _organisation),
    ),
    EDPB: (
        _Point("design", "choice of sources", _STATEMENT, _data),
        _Point("design", "preparation and minimisation of data", "", _organisation),
        _Point("design", "choices in training meant to protect people (claimed, not proved)", _CLAIMS, _parameters),
        _Point("design", "measures on outputs of the model", "", lambda run: ""),
        _Point(
            "analysis", "whether the code does what was designed", _REPORT, lambda run: run.of_claims(_found_by_checks)
        ),
        _Point("testing", "membership inference", _REPORT, lambda run: run.outcomes(_MEMBERSHIP)),
        _Point(
            "testing",
            "inference of attributes",
            _REPORT,
            lambda run: f"labels only: {said}" if (said := run.outcomes(_LABELS)) else "",
        ),
        _Point("testing", "exfiltration, regurgitation of training data", "", lambda run: ""),
        _Point("testing", "model inversion, reconstruction", _REPORT, lambda run: run.outcomes(_IMAGES)),
        _Point("testing (our own point)", "what an attacker achieves without the model", _REPORT, _nulls),
        _Point("documentation", "impact assessment, advice of the officer", "", _organisation),
        _Point("documentation", "threat model and assessment of risks", _STATEMENT, _adversaries),
        _Point("documentation", "resistance in theory, with its metrics", _STATEMENT, _maximum),
        _Point("documentation", "tests: by whom, when, how, how far", _STATEMENT, _tests),
        _Point("documentation", "what those who use the model receive", "", _organisation),
    ),
}
