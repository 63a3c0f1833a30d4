"""The report as one HTML file that needs nothing else: no script, no network, light and dark, printable."""

import json
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ..figures.accuracy_spent import accuracy_spent
from ..figures.by_round import leakage_by_round
from ..figures.claimed_measured import claimed_measured
from ..figures.figure import Figure
from ..figures.gain_by_noise import gain_by_noise
from ..figures.heatmap import heatmap
from ..figures.learning import learning
from ..figures.membership_roc import membership_roc
from ..figures.observers import observers
from ..figures.privacy_utility import privacy_utility
from ..figures.reconstructions import reconstructions
from ..figures.roc import roc
from ..figures.spending import spending
from ..reading.claims import claim_rows
from ..reading.run_folder import RunFolder
from ..tables import numerals, summary
from ..tables.grid import attack_grids
from ..tables.membership_table import membership_table
from ..tables.mutants import mutant_rows, mutant_table
from ..tables.papers import paper_table
from ..tables.printed import ROUTES, VERDICTS, observer_words, omission_table, probe_words
from ..tables.published import published_table, published_values
from ..tables.reconstruction import reconstruction_rows, reconstruction_table
from ..tables.run_tables import labels, overview, tables_of
from ..tables.same_epsilon import same_epsilon_table
from ..tables.tables import omission_rows, pooled_attacks, pooled_utility
from ..tables.trust import trust_table
from ..tables.unread import unread_table

_ROOM = 500_000
"""Bytes of drawings on a page of several runs."""
TEMPLATES = Path(__file__).parents[1] / "templates"


def html(folder: RunFolder) -> str:
    """The whole page. The same folder gives the same bytes."""
    claims = claim_rows(folder)
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            manifest=folder.manifest,
            suite=_suite(folder),
            gate=folder.gate,
            verdict_line=summary.verdict_line(folder),
            exit_words=summary.exit_words(folder),
            claims=claims,
            claims_note=summary.claims_note(claims),
            trust=trust_table(folder),
            same_epsilon=same_epsilon_table(folder),
            figures=figures(folder),
            grids=attack_grids(pooled_attacks(folder)),
            membership=membership_table(folder),
            reconstruction=reconstruction_table(reconstruction_rows(folder)),
            pooling_note=summary.POOLING_NOTE,
            utility=pooled_utility(folder),
            papers=paper_table(claims),
            published=published_table(published_values(folder)),
            mutants=mutant_table(mutant_rows(folder)),
            omissions=omission_table(omission_rows(folder)),
            unread=unread_table(folder),
            many=lambda rows: len({row.federation for row in rows}) > 1,
            provenance=summary.provenance(folder),
            suite_json=json.dumps(folder.manifest.suite, indent=2, ensure_ascii=False),
            reproduce=summary.reproduce(folder),
            git_dirty=folder.manifest.git is not None and folder.manifest.git.dirty,
            numerals=numerals,
            observer_words=observer_words,
            probe_words=probe_words,
            breakable=breakable,
            routes=ROUTES,
            verdicts=VERDICTS,
        )
    )


def html_of_several(folders: Sequence[RunFolder]) -> str:
    """One page of several runs: their verdicts, what compares at a glance, their tables side by side, where each comes
    from.
    """
    drawn, note = _of_each_run(folders)
    return (
        _environment()
        .get_template("several.html.j2")
        .render(
            overview=overview(folders),
            figures=drawn,
            figures_note=note,
            tables=tables_of(folders),
            sources=[
                (name, summary.provenance(folder), summary.reproduce(folder))
                for name, folder in zip(labels(folders), folders, strict=True)
            ],
        )
    )


def _of_each_run(folders: Sequence[RunFolder]) -> tuple[list[Figure], str]:
    """Claims, frontier and heatmap of each run, one kind after the other, for as many runs as the page has room; and in
    words what is left out.
    """
    kept: list[list[tuple[int, Figure]]] = []
    room = _ROOM
    for number, (label, folder) in enumerate(zip(labels(folders), folders, strict=True), start=1):
        kinds = ([claimed_measured(folder)], [privacy_utility(folder)], heatmap(folder))
        every = [(kind, figure) for kind, group in enumerate(kinds) for figure in group if figure is not None]
        own = [(kind, figure.of_run(number, label)) for kind, figure in every]
        room -= sum(len(figure.svg) for _, figure in own)
        if room < 0:
            break
        kept.append(own)
    drawn = [figure for _, figure in sorted(((one for own in kept for one in own)), key=lambda one: one[0])]
    left = len(folders) - len(kept)
    words = "The other figures of each run, and its cells one by one, are in its own report."
    return (
        drawn,
        f"{words} So that the page stays small, figures of the last {left} runs are left out." if left else words,
    )


def figures(folder: RunFolder) -> Sequence[Figure]:
    """Every figure that the run's records allow, in the order of the page."""
    drawn: list[Figure | None] = [
        claimed_measured(folder),
        privacy_utility(folder),
        roc(folder),
        *observers(folder),
        *membership_roc(folder),
        *heatmap(folder),
        *gain_by_noise(folder),
        *reconstructions(folder),
        *leakage_by_round(folder),
        accuracy_spent(folder),
        *learning(folder),
        *spending(folder),
    ]
    return [figure for figure in drawn if figure is not None]


def breakable(label: str) -> Markup:
    """A label that may be broken after its underscores, so that a table of many defenses stays on the page."""
    return Markup("_<wbr>").join(label.split("_"))


def _suite(folder: RunFolder) -> dict[str, str]:
    return {name: str(folder.manifest.suite.get(name, "")) for name in ("name", "version", "description")}


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # The drawings are our own markup, whose texts matplotlib has escaped; nothing else on the page is trusted.
    environment.filters["drawing"] = Markup
    return environment
