"""Claims in the fields that a registry of deployments asks for: from the claim and the plan in the manifest alone.

What neither says is "not stated". A registry that got a likely value there would print it as a fact.
"""

import json
from collections.abc import Sequence
from typing import Any

from ...audit.claim import Claim
from ...audit.observer import AGGREGATE, GLOBAL_MODELS, SHUFFLED, UPLOADS, Observer
from ...suites.results.claims_file import StatedClaim
from ..reading.claims import ClaimRow, claim_rows
from ..reading.run_folder import RunFolder
from ..reading.unprotected import left_unprotected
from ..tables.run_tables import labels

SCHEMA = "deployment-1"
NOT_STATED = "not stated"
_SERVERS = (
    (UPLOADS, "not trusted: the claim is against one that sees every report"),
    (SHUFFLED, "not trusted with shuffled reports; nothing is claimed against one that sees them named"),
    (AGGREGATE, "not trusted with the sum; nothing is claimed against one that sees single reports"),
)


def deployments(folders: Sequence[RunFolder]) -> str:
    """JSON: one entry a signed claim of each run, in the suite's order, with what audits found beside it."""
    entries = []
    for label, folder in zip(labels(folders), folders, strict=True):
        rows = [row for row in claim_rows(folder) if row.signed]
        for signer in dict.fromkeys(row.signed.key for row in rows if row.signed):
            own = [row for row in rows if row.signed and row.signed.key == signer]
            entries.append({"run": label, "run_id": folder.manifest.run_id, **_entry(folder, own)})
    return json.dumps({"schema": SCHEMA, "claims": entries}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _entry(folder: RunFolder, rows: Sequence[ClaimRow]) -> dict[str, Any]:
    signed = rows[0].signed
    if signed is None:
        raise ValueError(f"defense {rows[0].defense} signs no claim: there is nothing to export")
    claim, plan = signed.claim, _plan(folder, signed)
    return {
        "defense": signed.defense,
        "federation": signed.federation,
        "control": signed.control,
        "variant": signed.variant,
        "claim_id": signed.claim_id,
        "statement": claim.describe(),
        "privacy_loss": _privacy_loss(claim),
        "composition": {
            "rounds_claimed": claim.rounds,
            "rounds_run": plan.get("rounds", NOT_STATED),
            "local_steps": _local_steps(plan),
            # By what a claim is: the mechanism of one run, with the parameters that it names.
            "hyper_parameter_tuning_included": "no",
        },
        "sampling": {
            "clients": _drawn(plan.get("cohort")),
            "records": _drawn(plan.get("lot")),
            "accountant_assumes": claim.sampling,
        },
        "trust": {"as_signed": claim.trust, **_trust(claim.observer), "collusion_threshold": NOT_STATED},
        # The laboratory deals samples with all their features: whatever it runs is horizontal.
        "setting": {"data": "horizontal" if plan else NOT_STATED, "participants": NOT_STATED},
        "protected_object": _protected(claim),
        "release": claim.observer.phrase,
        "left_unprotected": left_unprotected(claim, plan.get("rounds")),
        "audits": [_audit(row) for row in rows if row.record],
    }


def _trust(observer: Observer) -> dict[str, str]:
    """Whom the claim needs not trust: whoever sees no more than its observer. All others it has to."""
    server = next(
        (words for seen, words in _SERVERS if observer.rank >= seen.rank),
        "trusted: nothing is claimed against one that sees sums or reports",
    )
    reports = observer.rank >= UPLOADS.rank
    masked = " but with masked words" if observer.sees_masked_words else ""
    return {
        "server": server,
        "clients": "not trusted: the claim is against whoever sees every round's model"
        if observer.rank >= GLOBAL_MODELS.rank
        else "trusted: nothing is claimed against whoever sees a round's model",
        "channel": "not trusted: the claim is against whoever sees every report"
        if reports
        else f"trusted{masked}: nothing is claimed against whoever sees a report on its way",
    }


def _privacy_loss(claim: Claim) -> dict[str, Any]:
    told = claim.to_dict()
    names = ("epsilon", "delta", "curve", "unit", "adjacency", "observer", "dp_model", "mechanism", "parameters")
    return {name: told[name] for name in (*names, "accountant", "source", "subjects", "part")}


def _plan(folder: RunFolder, signed: StatedClaim) -> dict[str, Any]:
    """The federation as the manifest resolves it, with what the defense changes of it; empty where it is silent."""
    federations = folder.manifest.suite.get("federations")
    spec = federations.get(signed.federation) if isinstance(federations, dict) else None
    if not isinstance(spec, dict):
        return {}
    change = folder.defense_fields(signed.defense).get("plan")
    changes = change if isinstance(change, dict) else {}
    return spec | {name: value for name, value in changes.items() if value is not None}


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
