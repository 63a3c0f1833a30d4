"""What the pages say in words around their tables: the verdict, what needs a look, where the numbers come from."""

from collections.abc import Sequence

from ...audit.wording import plain
from ..reading.claims import ClaimRow
from ..reading.run_folder import RunFolder
from . import numerals

POOLING_NOTE = (
    "Rows per image (PSNR, MSE, SSIM): median over all images and seeds with a 95 % percentile bootstrap, which treats "
    "them as independent. Other rows: mean over seeds with a 95 % t interval; one seed keeps the interval that it was "
    "measured with, if any; seeds that agree to the last digit give none. Null attacks never see what they attack: "
    "what scores no better has learnt nothing."
)
_BY_ATTACKS = (
    " By attacks: what all attacks on final models said of one federation, each of whose samples was in or out by a "
    "fair coin, read as guesses of one run (Steinke, Nasr, Jagielski 2023) that share alpha. They are made to find "
    "members, not to refute: that they do not refute a claim says little, and what they could detect is not known."
)
EXIT_WORDS = {
    0: "exit code 0: of what was audited, no honest claim was refuted and every control was",
    10: "exit code 10: an honest claim was refuted, or a defense got worse than its baseline",
    11: "exit code 11: inconclusive, the data allow neither answer, or a probe found a published law broken",
    12: (
        "exit code 12: incomplete, a cell is missing or failed, a row cannot be read, rows or claims changed, or a "
        "control was not refuted"
    ),
}


def verdict_line(folder: RunFolder) -> str:
    """The gate's line; for a run that has none yet, how far it came."""
    if folder.gate is not None:
        return folder.gate.verdict_line
    unread = f"; {len(folder.skipped)} rows that cannot be read" if folder.skipped else ""
    return f"UNFINISHED: {cells(folder)}; the gate has not judged this run{unread}"


def exit_words(folder: RunFolder) -> str:
    if folder.gate is None:
        return "no exit code yet"
    return EXIT_WORDS.get(folder.gate.exit_code, f"exit code {folder.gate.exit_code}")


def claims_note(rows: Sequence[ClaimRow]) -> str:
    """At which level the bounds hold, and what the columns mean, in one line below the claim table."""
    levels = sorted({row.record.ci_level for row in rows if row.record and row.record.ci_level is not None})
    words = " and ".join(f"{100 * level:.6g} %" for level in levels)
    level = f"Lower bounds hold at level {words}, each for its own claim. " if levels else ""
    return (
        f"{level}Each ε is in the terms of its claim: the unit, the neighbours, the observer and the δ beside it. A "
        "control breaks its claim on purpose: an audit that cannot refute it could not have refuted anybody."
        + (_BY_ATTACKS if any(row.by_attacks for row in rows) else "")
    )


def provenance(folder: RunFolder) -> list[tuple[str, str]]:
    """Name and text of everything that a reader needs to know where the numbers come from."""
    manifest = folder.manifest
    federations = dict.fromkeys((r.federation, r.dataset, r.model) for r in folder.rows())
    hardware = manifest.hardware
    rows = [
        ("run", f"{manifest.name} ({manifest.run_id})"),
        ("suite", f"{manifest.suite.get('name', '')}, version {manifest.suite.get('version', '')}"),
        ("federations", "; ".join(f"{name}: {dataset}, {model}" for name, dataset, model in sorted(federations))),
        ("seeds", ", ".join(str(seed) for seed in manifest.seeds)),
        ("alpha", _alpha(folder)),
        ("cells", cells(folder)),
        ("started, finished", f"{manifest.started or numerals.NOTHING}, {manifest.finished or 'not finished'}"),
        ("git", _git(folder)),
        ("machine", ", ".join(_hardware_words(name, value) for name, value in hardware.items())),
        ("python", manifest.python),
        ("packages", ", ".join(f"{name} {version}" for name, version in sorted(manifest.versions.items()))),
        ("data (SHA-256)", ", ".join(f"{name} {digest}" for name, digest in sorted(manifest.data.items()))),
    ]
    return [(name, text) for name, text in rows if text]


def reproduce(folder: RunFolder) -> str:
    """The lines that run it again."""
    git = folder.manifest.git
    checkout = f"git checkout {git.commit}\n" if git and git.commit else ""
    return checkout + folder.manifest.command


def cells(folder: RunFolder) -> str:
    """How far the run came."""
    done = len({record.cell_id for record in folder.records})
    return f"{numerals.count(done)} of {numerals.count(folder.manifest.planned_cells)} planned cells on record"


def _alpha(folder: RunFolder) -> str:
    alpha = folder.manifest.suite.get("alpha")
    return f"{plain(float(alpha))} over all claims" if isinstance(alpha, int | float) else ""


def _git(folder: RunFolder) -> str:
    git = folder.manifest.git
    if not git:
        return "not in a git repository"
    return f"{git.commit}{', with uncommitted changes' if git.dirty else ''}"


def _hardware_words(name: str, value: object) -> str:
    if name == "memory_gb" and isinstance(value, int | float):
        return f"{value:.3g} GB memory"
    return f"{value} {name}" if isinstance(value, int | float) else str(value)
