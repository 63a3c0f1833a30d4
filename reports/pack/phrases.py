"""Phrases that the statement and the crosswalk share: the verdict of a claim, its bound, and what attacks reached."""

from ...audit.claim import Claim
from ...suites.results.record import Record
from ..claim_tables.answers import allowed_of_thousand, allowed_words, weakness
from ..claim_tables.covered import value_words
from ..formats.deployment import results_sha256
from ..reading.claims import ClaimRow
from ..reading.run_folder import RunFolder
from ..tables.numerals import interval_words
from ..tables.pooled_rows import AttackRow
from ..tables.printed import VERDICTS
from ..tables.reconstruction import SUCCESS, rebuilt_counts

COUNTED = f"images reconstructed with a PSNR of {SUCCESS:.0f} dB or more"
"""What the counts of ``images_reconstructed`` count."""


def verdict_phrase(row: ClaimRow) -> str:
    """Return the verdict in words, with a mark of a weak test."""
    words = VERDICTS.get(row.verdict, row.verdict)
    return f"{words} (weak test)" if weakness(row) else words


def bound_phrase(row: ClaimRow, claim: Claim) -> str:
    """Return for how many of 1,000 units the claim lets an attacker be right, and whether that bound can be used."""
    most = allowed_words(claim)
    if row.verdict == "REFUTED":
        return f"claimed: {most}; this run refuted the claim, so that no bound holds"
    return f"if the claim holds (verdict: {verdict_phrase(row)}), {most}"


def bound_number(row: ClaimRow, claim: Claim) -> str:
    """Return the number of ``bound_phrase`` for the cell of a table."""
    most = f"{allowed_of_thousand(claim):,}"
    return f"no bound (claimed: {most})" if row.verdict == "REFUTED" else most


def plan_phrase(folder: RunFolder) -> str:
    """Return which plan was run, and which results this run of it gave."""
    return f"plan {folder.manifest.run_id} (results.jsonl: SHA-256 {results_sha256(folder)})"


def check_phrase(check: Record) -> str:
    """Return a failed implementation check with its numbers, from its reason, or else its name."""
    return check.reason or check.metric.removeprefix("probe_").replace("_", " ")


def images_reconstructed(folder: RunFolder, one: AttackRow) -> str:
    """Return how many images an attack reconstructed, such as ``24 of 24``; empty where their PSNR is not stored."""
    if one.metric != "psnr":
        return ""
    found = rebuilt_counts(folder).get((one.federation, one.defense, one.attack, one.observer))
    return f"{found.count} of {found.n}" if found else ""


def outcome_phrase(folder: RunFolder, one: AttackRow) -> str:
    """Return what an attack reached: a count of reconstructed images where there is one, or else its pooled value."""
    if count := images_reconstructed(folder, one):
        return f"{count} {COUNTED}"
    return f"{value_words(one)} {interval_words(one.metric, one.pooled)}".rstrip()
