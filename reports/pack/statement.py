"""Write an evidence pack. It holds a statement of what was tested, the answers, the threat model, the risks and what is
left of them, and with it the page, crosswalk, claims, records and hashes of the run.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import yaml

from ...audit.wording import at_least, counted
from ...suites.config.part_files import own_parts
from ..formats import page
from ..formats.exports import deployments, results_sha256, spreadsheet
from ..formats.templates import TERMS
from ..formats.write import check_replaced, check_targets, write_whole
from ..reading.claims import ClaimRow, left_unprotected, same_subject
from ..reading.run_folder import RunFolder
from ..tables import numerals, summary
from ..tables.answers import (
    ClaimAnswer,
    answers,
    headline,
    item_in_plain_words,
    what_was_tested,
)
from ..tables.covered import outside_attacks, uncovered_attacks
from ..tables.membership_table import membership_table
from ..tables.pooled_rows import omission_rows
from ..tables.printed import namer, omission_table
from ..tables.reconstruction import reconstruction_rows, reconstruction_table
from ..tables.stated import trust_table
from ..tables.summary import unread_lines
from ..tables.table import Right, Table, tabulate
from .crosswalk import bound_number, check_phrase, crosswalk, outcome_phrase, verdict_phrase
from .document import Block, Heading, Points, Signature, filled, markdown_of, pdf_of

LIMITS = (
    "This pack states what one run measured. It does not state that a system is private or anonymous, or that it "
    "complies with a law or a standard: that is a judgement of people. “No violation found” says that the test found "
    "none; it is no proof that the claim holds. NOT REFUTED is no proof of a claim."
)
TRIGGERS = (
    "The code of the defense, of the training or of the accounting changes, or a library that draws noise or samples "
    "(compare commit and packages below).",
    "The data change: other people, other features, more records of one person (compare the hashes below).",
    "The model, the number of rounds, the number of participants or the share of them in a round changes.",
    "Someone receives more than the claim's adversary: sums, single messages, who takes part, logs, metrics.",
    "A stronger attack is published, or a new version of the attacks and checks used here.",
    "An implementation check fails in the regression test (fedassay gate), or an incident is reported.",
    "The date of review that the signatories agree on has passed.",
)
_SIGNED = ("Name and role", "Residual risk accepted (yes / no)", "Review again by", "Date and signature")


def statement(folder: RunFolder) -> list[Block]:
    """Return the statement as blocks of text; all of it comes from the run's records, claims and manifest."""
    found = answers(folder)
    said: list[Block] = [
        Heading(text=f"Evidence pack: {folder.manifest.suite.get('name', folder.manifest.name)}", level=1),
        f"{headline(folder)}.",
        LIMITS,
        "The section Words explains the terms and names of this statement.",
        Heading(text="What was tested"),
        *what_was_tested(folder),
        f"Outcome: {summary.verdict_line(folder)} ({summary.exit_words(folder)}).",
        Heading(text="Answers, claim by claim"),
        *_answers(found),
        Heading(text="Threat model"),
        "Each claim names an adversary by what it receives. Whoever receives more is trusted not to use it.",
        trust_table(folder),
        Heading(text="Maximum risk"),
        "The largest risk for any one unit, whatever its data are and whatever else the adversary knows: what each "
        "claim allows, and what the audit of the claim measured. An attacker who raises one false alarm in a hundred "
        "and only guesses is right for 10 of 1,000.",
        maximum_risk([one.row for one in found]),
        Heading(text="Average risk"),
        "What the attacks of this run reached on average over the candidates that they were tried on. Other people and "
        "other attacks can have a higher risk.",
        *_average(folder),
        Heading(text="Residual risk"),
        "Of these risks the run leaves the following to be accepted or mended:",
        Points(items=tuple(residual_risks(folder, found))),
        Heading(text="When to test again"),
        Points(items=TRIGGERS),
    ]
    return [*said, *words(folder, said), Heading(text="Signatures"), *_signatures(folder)]


def words(folder: RunFolder, said: Sequence[Block]) -> list[Block]:
    """Return the section that explains the names of federations and attacks, and the terms, that ``said`` uses."""
    text, attacks = markdown_of(said).replace("\\", ""), folder.manifest.suite.get("attacks")
    parts, stated = own_parts("attack"), dict(attacks) if isinstance(attacks, dict) else {}
    named = dict.fromkeys(folder.federations, "a federation of this run, by the name that its suite gives it.")
    for name, table in stated.items():
        fields = table if isinstance(table, dict) else {}
        part = str(fields.get("part") or name)
        known = " It knows all data but the one unit." if fields.get("rest") == "known" else ""
        named[name] = (parts[part].summary if part in parts else f"Attack {part}.") + known
    used = [f"{name}: {meaning[0].lower()}{meaning[1:]}" for name, meaning in named.items() if _stands(text, name)]
    used += [one.meaning for one in TERMS if any(_stands(text, name) for name in one.printed)]
    return [Heading(text="Words"), Points(items=tuple(used))] if used else []


def _stands(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _signatures(folder: RunFolder) -> list[Block]:
    if folder.gate is None:
        return ["Not to be signed: the run is unfinished."]
    return [
        "Test carried out by:",
        Signature(lines=("Name and role", "Date and signature")),
        "Person responsible for the system:",
        Signature(lines=_SIGNED),
        "Data-protection officer or independent reviewer:",
        Signature(lines=_SIGNED),
    ]


def maximum_risk(rows: Sequence[ClaimRow]) -> Table:
    """Return a table with the largest risk that each claim allows, and what the claim's audit measured."""
    table = tabulate(
        "What each claim allows at most, and what its audit measured",
        rows,
        {
            "defense": namer(rows, controls=False),
            "claim": lambda row: row.claim_text,
            Right("right for at most, of 1,000"): bound_number,
            Right("measured ε"): lambda row: "" if row.epsilon_low is None else f"≥ {at_least(row.epsilon_low)}",
            Right("minimum detectable ε"): lambda row: "" if row.detectable is None else f"{row.detectable:.2f}",
            "verdict": verdict_phrase,
        },
        note="Right for at most: of 1,000 units of the claim that took part, those that an attacker with one false "
        "alarm in a hundred finds if the claim holds; for a replace-one claim, which hides the content and not who "
        "took part, those for which it rightly decides which of two contents they were made from. A refuted claim "
        "gives no bound. One report is all that one participant sends in the rounds of the claim. "
        "Measured ε: a lower bound with the confidence level of the run. Minimum detectable ε: the "
        "smallest true ε at which the audit refutes the claim with 90 % power.",
        about=2,
    )
    return filled(table)


def _average(folder: RunFolder) -> list[Block]:
    tables = [membership_table(folder), reconstruction_table(reconstruction_rows(folder))]
    shown: list[Block] = [table for table in tables if table.rows]
    return shown or ["Not measured: the run has no attack that finds members or rebuilds data."]


def _answers(answered: Sequence[ClaimAnswer]) -> list[Block]:
    if not answered:
        return ["The run states no claim, so nothing was tested against one."]
    blocks: list[Block] = []
    for one in answered:
        weak = one.weak and f"Weak test: {one.weak}."
        learnt = (one.people, one.reached, one.quality, one.outside)
        parts = (weak, one.promise, one.stated_by, one.power, *learnt, one.uncovered, one.unseen, one.notice)
        blocks += [Heading(text=f"{one.defense}: {one.found}", level=3), *filter(None, parts)]
        blocks += [f"Next, for the owner: {one.owner}", f"Next, for the engineer: {one.engineer}"]
        failed = "; ".join(map(check_phrase, one.row.failed_checks))
        blocks += [f"Failed implementation checks: {failed}."] if failed else []
    return blocks


def residual_risks(folder: RunFolder, answered: Sequence[ClaimAnswer]) -> list[str]:
    """Return one sentence for each risk that the run leaves open, from its claims, audits, checks and omissions."""
    names = [answer.defense for answer in answered]
    named = [(_name(answer, names), answer) for answer in answered]
    said = []
    for name, answer in named:
        if answer.kind in ("broken", "open"):
            said.append(f"{name}: {answer.found.lower()}{f' ({answer.weak})' if answer.weak else ''}.")
    for name, answer in named:
        row = answer.row
        left = left_unprotected(row.claim, row.rounds_run, same_subject(folder, row))
        said.append(f"{name}: the claim does not protect {'; '.join(left)}.")
        said += _beyond(folder, row.defense)
        if row.not_looked_at:
            items = ", ".join(dict.fromkeys(map(item_in_plain_words, row.not_looked_at)))
            said.append(f"{name}: the implementation checks did not look at {items}.")
    if folder.missing:
        planned = numerals.count(folder.manifest.planned_cells)
        said.append(f"{numerals.count(folder.missing)} of {planned} planned cells have no result.")
    omitted = omission_table(omission_rows(folder))
    if omitted.rows:
        said.append(
            f"{counted(len(omitted.rows), 'omission')}: attacks or measurements without a result (see the report)."
        )
    said += [f"{line}." for line in unread_lines(folder)]
    said.append("The run was a simulation: people, data and operation of the real system were not measured.")
    return list(dict.fromkeys(said))


def _beyond(folder: RunFolder, defense: str) -> list[str]:
    """What attacks reached that no claim of the defense covers, by the reason."""
    more = {"against adversaries that no claim of it covers": uncovered_attacks(folder, defense)}
    found = {
        reason: "; ".join(f"{one.attack} in federation {one.federation} {outcome_phrase(folder, one)}" for one in rows)
        for reason, rows in (more | outside_attacks(folder, defense)).items()
    }
    return [f"{defense}: {reason}, attacks of this run reached: {said}." for reason, said in found.items() if said]


def _name(answer: ClaimAnswer, names: Sequence[str]) -> str:
    """The defense, with its claim where it states several."""
    return answer.defense if names.count(answer.defense) == 1 else f"{answer.defense} ({answer.row.claim_text})"


HASHES = "hashes.txt"
_RECORDS = ("manifest.json", "results.jsonl", "claims.json", "gate.json")
_UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)


def write_pack(folder: RunFolder, place: Path) -> list[Path]:
    """Write the pack of one run to the folder ``place`` and return the paths of its files, the PDF first.

    The same run gives the same bytes. Files of an earlier pack are replaced; others are left alone, but for its
    records. Raises ValueError for a folder that belongs to the run's data or holds files of these names from elsewhere,
    and OSError for one that cannot be written.
    """
    stated, crossed, sources = statement(folder), crosswalk(folder), provenance(folder)
    name = f"Evidence pack of {folder.manifest.name}"
    files: dict[str, str | bytes] = {
        "evidence.pdf": pdf_of([*stated, *sources, *crossed], title=name, made=_made(folder)),
        "statement.md": markdown_of([*stated, *sources]),
        "crosswalk.md": markdown_of(crossed),
        "claims.yaml": claims_yaml(folder),
        "report.html": page.html(folder),
        "records.csv": spreadsheet([folder]),
    }
    files |= {f"run/{name}": (folder.path / name).read_bytes() for name in _RECORDS if (folder.path / name).is_file()}
    files[HASHES] = hashes(files)
    targets = {place / name: content for name, content in files.items()}
    check_targets(targets, [folder.path], within=place)
    check_replaced(place, [*targets, *(place / "run" / name for name in _RECORDS)], HASHES, b"  evidence.pdf")
    # First, as the mark of a pack.
    write_whole(place / HASHES, files[HASHES])
    for name in _RECORDS:
        # An earlier pack of another run may have held a file that this run lacks.
        if f"run/{name}" not in files:
            (place / "run" / name).unlink(missing_ok=True)
    return [write_whole(path, content) for path, content in targets.items()]


def provenance(folder: RunFolder) -> list[Block]:
    """Return where the numbers come from: commit, packages, machine, hashes of the data, and how to repeat the run."""
    manifest = folder.manifest
    # Every run of one plan has the same identifier; only the digest says which run it was.
    rows = [("run", manifest.name), ("plan", manifest.run_id), ("results.jsonl (SHA-256)", results_sha256(folder))]
    rows += [(name, text) for name, text in summary.provenance(folder) if name != "run"]
    rows += [("repeat with", " && ".join(summary.reproduce(folder).splitlines()))]
    rows += [("changed since the run", ", ".join(folder.changed))] if folder.changed else []
    table = Table(title="Provenance", headers=("fact", "value"), rows=tuple(rows))
    return [Heading(text="Code, data and records"), filled(table), f"Hashes of all files of this pack: {HASHES}."]


def claims_yaml(folder: RunFolder) -> str:
    """Return the claims in the fields of a registry of deployments as YAML, without those of controls (deliberately
    broken defenses), and without the points of trade-off curves, which the pack holds in ``run/claims.json``.
    """
    entries = json.loads(deployments([folder]))
    entries["claims"] = [one for one in entries["claims"] if not one["control"]]
    for one in entries["claims"]:
        if curve := one["privacy_loss"]["curve"]:
            points = {name: "see run/claims.json" for name, value in curve.items() if isinstance(value, list)}
            one["privacy_loss"]["curve"] = curve | points
    text: str = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=110)
    return text


def hashes(files: dict[str, str | bytes]) -> str:
    """Return the SHA-256 of each file, as ``sha256sum --check`` reads them."""
    lines = []
    for name, content in files.items():
        data = content.encode() if isinstance(content, str) else content
        lines.append(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
    return "".join(lines)


def _made(folder: RunFolder) -> datetime:
    """When the run ended, or else began; a manifest may hold any text."""
    for text in (folder.manifest.finished, folder.manifest.started):
        try:
            return datetime.fromisoformat(text or "")
        except ValueError:
            continue
    return _UNKNOWN
