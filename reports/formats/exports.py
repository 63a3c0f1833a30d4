"""Export result rows as CSV, and privacy claims in the fields of a registry of DP deployments.

A field of a deployment that neither claims, manifest nor results state is "not stated". A likely value there would be
published as a fact.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from ...audit.claim import Claim
from ...audit.observer import AGGREGATE, GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer
from ...suites.results.claims_file import StatedClaim
from ...suites.results.record import Record
from ..reading.claims import ClaimRow, left_unprotected, same_subject, stated_rows
from ..reading.pooling import gathered
from ..reading.run_folder import HORIZONTAL, VERTICAL, RunFolder
from ..tables.several_runs import run_labels

COLUMNS = ("run", *(field.alias or name for name, field in Record.model_fields.items()))
_FORMULA = "=+-@＝＋－＠"


def spreadsheet(folders: Sequence[RunFolder]) -> str:
    """Return all runs' result rows as CSV text, in the order of their files; the first column names the run.

    Text that a spreadsheet would run as a formula gets a leading apostrophe. A missing value is an empty cell.
    """
    # All of them, bookkeeping rows too: this format is for further computation.
    rows = (
        [_cell(label), *map(_cell, record.model_dump().values())]
        for label, folder in zip(run_labels(folders), folders, strict=True)
        for record in folder.records
    )
    return csv_text(COLUMNS, rows)


def csv_text(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the rows as CSV text; ``quiet`` makes sure that no spreadsheet program runs a cell as a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # RFC 4180 requires these line ends.
    writer.writerows((headers, *rows))
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return quiet(value) if isinstance(value, str) else repr(value)


def quiet(text: str) -> str:
    """Return the text such that no spreadsheet program runs it as a formula. An apostrophe is put before texts that
    such programs would read as one, even after blanks or tabs.
    """
    start = text.lstrip()[:1]
    return f"'{text}" if (start and start in _FORMULA) or text[:1] in ("\t", "\r", "\n") else text


SCHEMA = "deployment-1"
NOT_STATED = "not stated"
_SERVERS = (
    (UPLOADS, "not trusted: the claim is stated against a server that observes every report"),
    (SHUFFLED, "not trusted with shuffled reports; nothing is claimed against one that can link reports to clients"),
    (AGGREGATE, "not trusted with the sum; nothing is claimed against one that observes single reports"),
)


def deployments(folders: Sequence[RunFolder]) -> str:
    """Return JSON with one entry per claim of each run, in the suite's order, including the results of the claim's
    audits.
    """
    entries = []
    for label, folder in zip(run_labels(folders), folders, strict=True):
        claims = gathered(((row.federation, row.defense, row.claim.claim_id), row) for row in stated_rows(folder))
        for own in claims.values():
            # Every run of one plan has the same identifier; the digest of its results says which run it was.
            which = {"run": label, "run_id": folder.manifest.run_id, "results_sha256": results_sha256(folder)}
            entries.append(which | _entry(folder, own))
    return json.dumps({"schema": SCHEMA, "claims": entries}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def results_sha256(folder: RunFolder) -> str:
    """Return the SHA-256 of results.jsonl as ``sha256sum`` prints it, or that it is not stated because the run has no
    results yet.
    """
    path = folder.path / "results.jsonl"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else NOT_STATED


def _entry(folder: RunFolder, rows: Sequence[ClaimRow]) -> dict[str, Any]:
    stated = rows[0].stated
    if stated is None:
        raise ValueError(f"defense {rows[0].defense} states no claim, so nothing can be exported for it")
    claim, plan, rounds = stated.claim, _plan(folder, stated), folder.rounds_of(stated.federation)
    return {
        "defense": stated.defense,
        "federation": stated.federation,
        "control": stated.control,
        "variant": stated.variant,
        "claim_id": stated.claim_id,
        "statement": claim.describe(),
        "privacy_loss": _privacy_loss(claim),
        "composition": {
            "rounds_claimed": claim.rounds,
            "rounds_run": rounds if rounds is not None else NOT_STATED,
            "local_steps": _local_steps(plan),
            # A claim covers one run with the parameters that it names, so tuning is never included.
            "hyper_parameter_tuning_included": "no",
        },
        "sampling": {
            "clients": _drawn(plan.get("cohort")),
            "records": _drawn(plan.get("lot")),
            "accountant_assumes": claim.sampling,
        },
        "trust": {
            "as_signed": claim.trust,
            **_trust(claim.observer, refuted=any(row.verdict == "REFUTED" for row in rows)),
            "collusion_threshold": NOT_STATED,
        },
        "setting": {"data": _data(folder, stated), "participants": NOT_STATED},
        "protected_object": _protected(claim),
        "release": claim.observer.phrase,
        "left_unprotected": left_unprotected(claim, rounds, same_subject(folder, stated)),
        "audits": [_audit(row) for row in rows if row.record],
    }


def _trust(observer: Observer, *, refuted: bool) -> dict[str, str]:
    """Parties that observe no more than the claim's observer need not be trusted; all others are trusted."""
    server = next(
        (words for seen, words in _SERVERS if observer.rank >= seen.rank),
        "trusted: nothing is claimed against a server that observes sums or reports",
    )
    reports = observer.rank >= UPLOADS.rank
    masked = " but with masked words" if observer.sees_masked_words else ""
    parties = {
        "server": server,
        "clients": "not trusted: the claim is stated against an adversary that observes every round's model"
        if observer.rank >= GLOBAL_MODELS.rank
        else "trusted: nothing is claimed against an adversary that observes a round's model",
        "channel": "not trusted: the claim is stated against an adversary that observes every report"
        if reports
        else f"trusted{masked}: nothing is claimed against an adversary that observes a report in transit",
    }
    mark = " (claim refuted by this run)" if refuted else ""
    return {party: words + mark * words.startswith("not trusted") for party, words in parties.items()}


def _privacy_loss(claim: Claim) -> dict[str, Any]:
    fields = claim.to_dict()
    names = ("epsilon", "delta", "curve", "unit", "adjacency", "observer", "dp_model", "mechanism", "parameters")
    return {name: fields[name] for name in (*names, "accountant", "source", "subjects", "part")}


def _data(folder: RunFolder, stated: StatedClaim) -> str:
    """How the data lie with the participants; the teachers of a transfer hold samples with all their features."""
    kind, table = folder.federations.get(stated.federation, (HORIZONTAL, {}))
    if not table:
        return NOT_STATED
    return "vertical" if kind is VERTICAL else "horizontal"


def _plan(folder: RunFolder, stated: StatedClaim) -> dict[str, Any]:
    """The plan in the manifest of a federation of clients, with the defense's changes to it; else empty."""
    kind, spec = folder.federations.get(stated.federation, (HORIZONTAL, {}))
    if kind is not HORIZONTAL or not spec:
        return {}
    change = folder.defense_fields(stated.defense).get("plan")
    changes = change if isinstance(change, dict) else {}
    return {**spec, **{name: value for name, value in changes.items() if value is not None}}


def _local_steps(plan: dict[str, Any]) -> int | str:
    algorithm = plan.get("algorithm")
    if not isinstance(algorithm, dict):
        return NOT_STATED
    steps = algorithm.get("local_steps", 1 if algorithm.get("name") == "fedsgd" else None)  # FedSGD takes no other.
    return steps if isinstance(steps, int) else NOT_STATED


def _drawn(rule: object) -> str:
    """A sampling rule of the suite in words."""
    if rule == "full":
        return "all, every time"
    kind, amount = next(iter(rule.items())) if isinstance(rule, dict) and len(rule) == 1 else ("", None)
    if kind == "poisson" and isinstance(amount, int | float):
        return f"each with probability {amount:g}, independently"
    if kind == "epoch":
        return f"at most {amount} at a time, each once in a pass over all, in an order drawn anew for every pass"
    return f"{amount} at a time, drawn uniformly without replacement" if kind == "fixed_size" else NOT_STATED


def _protected(claim: Claim) -> str:
    who = "" if claim.subjects == "all" else f", for {claim.subjects}"
    what = "" if claim.part == "joint" else f", {claim.part} alone"
    return f"one {claim.unit} ({claim.adjacency.phrase}){who}{what}"


def _audit(row: ClaimRow) -> dict[str, Any]:
    record = row.record
    return {
        "estimator": record.attack if record else NOT_STATED,
        "verdict": row.verdict,
        "epsilon_at_least": row.epsilon_low,
        "level": record.ci_level if record else None,
        "ceiling": row.ceiling,
        "trials": record.n if record else None,
        "reason": record.reason if record else "",
    }
