"""Tabulate what privacy claims state: protection and trust, beliefs of an attacker, coverage of checks, and what papers
published.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...audit.check import NOT_CLAIMED
from ...audit.claim import NOT_PROVABLE, PROVABLE, Claim
from ...audit.curve import Curve
from ...audit.posterior import group_privacy, posterior_bounds, right_guesses
from ...audit.wording import at_least, at_most, counted, plain
from ...suites.results.claims_file import StatedClaim
from ..reading.claims import ClaimRow, left_unprotected, same_subject, stated_rows
from ..reading.pooling import Pooled, gathered
from ..reading.run_folder import RunFolder
from . import numerals
from .numerals import NOTHING
from .pooled_rows import pooled_attacks, pooled_utility
from .printed import VERDICTS, namer, neighbours_of
from .table import Right, Table, tabulate

MODELS = {
    "central": "central",
    "distributed": "distributed, secure sum",
    "local": "local",
    "shuffle": "shuffle",
}
_OBSERVED = "against "


def trust_table(folder: RunFolder) -> Table:
    """Return a table with one row per kind of claim; defenses whose claims differ only in epsilon share a row, and
    controls (deliberately broken defenses) are left out.

    Its columns follow Table 2 of the survey of Fu et al. 2024: model, neighbourhood, server, clients, protected object.
    """
    groups = gathered((_kind(folder, one), one.defense) for one in _whole_claims(folder))
    return Table(
        title="Protection and trust",
        headers=("DP model", "neighbours", "adversary", "trusted", "participants", "not protected against", "defenses"),
        rows=tuple((*kind, ", ".join(dict.fromkeys(names))) for kind, names in groups.items()),
        about=2,
        note="Taken from the claims as stated. Equal epsilons of two rows are not equal protection, because the rows "
        "differ in the neighbouring datasets, the adversary or the trusted parties.",
    )


def _kind(folder: RunFolder, stated: StatedClaim) -> tuple[str, ...]:
    """All that a claim states except epsilon, so that noise levels of one mechanism share a row."""
    claim = stated.claim
    return (
        MODELS.get(claim.dp_model, claim.dp_model),
        f"one {claim.unit} ({claim.adjacency.phrase})",
        claim.observer.phrase,
        claim.trust,
        next(iter(folder.size_of(stated.federation)), NOTHING),
        _unprotected(folder, stated),
    )


def _unprotected(folder: RunFolder, stated: StatedClaim) -> str:
    """The adversaries that no claim of the defense about the same unit covers."""
    left = left_unprotected(stated.claim, folder.rounds_of(stated.federation), same_subject(folder, stated))
    return "; ".join(words.removeprefix(_OBSERVED) for words in left if words.startswith(_OBSERVED)) or NOTHING


EVEN = 0.5
"""The belief before the release for which the table is printed."""


def belief_table(folder: RunFolder) -> Table:
    """Return a table with one row per claim about a whole release, without the claims of controls. Each row states the
    largest belief that an attacker with a belief of 1/2 before the release can hold after it, the share of right
    guesses, and the epsilon and delta that the claim implies for a group of two units.
    """
    rows = [(one.defense, *_bounds(one.claim)) for one in _whole_claims(folder)]
    return Table(
        title="Beliefs under each claim",
        headers=(
            *("defense", "claim", "ε", "belief after 0.5"),
            *("right guesses by ε and δ alone", "by the trade-off curve", "two units: ε", "two units: δ"),
        ),
        rows=tuple(dict.fromkeys(rows)),
        numeric=frozenset(range(2, 8)),
        about=2,
        note="What the claim allows if it holds, not what an attack reached. Belief: the largest probability that an "
        "adversary who finds both of two neighbouring data sets equally likely gives to one of them after the release "
        "(Bayes' rule; none at δ > 0, where a rare release may give certainty). Right guesses: the largest share of "
        "right decisions between the two, by ε and δ alone, and by the trade-off curve where the claim states one. Two "
        "units: what the claim implies for a group of two.",
    )


def _whole_claims(folder: RunFolder) -> list[StatedClaim]:
    """The claims in the suite's order, without those of controls, which are false on purpose, and about single layers,
    which repeat the joint claim.
    """
    return [
        one for one in sorted(folder.claims, key=folder.order.place) if one.claim.part == "joint" and not one.control
    ]


def _bounds(claim: Claim) -> tuple[str, ...]:
    epsilon, delta = group_privacy(claim.epsilon, claim.delta, 2)
    belief = numerals.rounded_up(posterior_bounds(EVEN, claim.epsilon)[1]) if claim.delta == 0 else NOTHING
    right = numerals.rounded_up(right_guesses(EVEN, claim.epsilon, claim.delta))
    curve = NOTHING if claim.curve is None else numerals.rounded_up(_right_by_curve(claim.curve))
    return neighbours_of(claim), plain(claim.epsilon), belief, right, curve, plain(epsilon), plain(delta)


def _right_by_curve(curve: Curve) -> float:
    """The largest share of right guesses that a trade-off curve allows, too large by 0.0001 at most."""
    rates = np.linspace(0.0, 1.0, 5001)
    # The false negatives fall, so that those at the right end of a step are too few for the rest of it.
    return EVEN * min(2.0, float((2 - rates[:-1] - curve.fnr(rates[1:])).max()))


def coverage_table(rows: Sequence[ClaimRow]) -> Table:
    """Return a table of what each claim's implementation checks examined, and what they did not."""
    return tabulate(
        "Coverage of the implementation checks",
        [row for row in rows if row.looked_at or row.not_looked_at],
        {
            "defense": namer(rows, controls=False),
            "claim": lambda row: row.claim_text,
            "looked at": lambda row: "; ".join(row.looked_at),
            "not looked at": lambda row: "; ".join(row.not_looked_at),
        },
        about=2,
    )


def coverage_lines(folder: RunFolder) -> list[str]:
    """Return one line for each item that the implementation checks of claims did not examine, with the defenses that
    state these claims.
    """
    found = gathered((words, row.defense) for row in stated_rows(folder) if (words := _words(row)))
    return [f"checks {', '.join(dict.fromkeys(labels))}: {words}" for words, labels in found.items()]


def scope_lines(folder: RunFolder) -> list[str]:
    """Return one line for each statement about what claims do not cover although the data of units affect it, with the
    defenses that state these claims.
    """
    found = gathered(
        (words, row.defense) for row in stated_rows(folder) for words in row.not_looked_at if NOT_CLAIMED in words
    )
    return [f"scope  {', '.join(dict.fromkeys(labels))}: {words}" for words, labels in found.items()]


def _words(row: ClaimRow) -> str:
    """Format what the checks of a claim did not look at, without the reasons; empty where no checks ran."""
    without = [item.partition(":")[0] for item in row.not_looked_at]
    return f"{counted(len(row.looked_at), 'item')} looked at; not looked at: {', '.join(without)}" if without else ""


_EVIDENCE = re.compile("; (?:witness|evidence): (.*?)(?:; implementation check: |$)")


def paper_table(rows: Sequence[ClaimRow]) -> Table:
    """Return a table of claims as papers publish them; for a refuted claim, the table shows the distinguishing event
    and its error rates.
    """
    return tabulate(
        "Claims as published",
        [row for row in rows if row.published],
        {
            "defense": lambda row: row.defense,
            "claim": lambda row: row.claim_text,
            Right("published ε"): lambda row: numerals.significant(row.claim.epsilon),
            Right("provable ε"): _provable,
            Right("measured ε ≥"): lambda row: numerals.optional(row.epsilon_low, at_least),
            "verdict": lambda row: VERDICTS.get(row.verdict, row.verdict),
            "evidence": _evidence,
        },
        about=2,
        note="The provable ε belongs to the mechanism as published, at the same δ, by the theorem that its erratum "
        "names; where no theorem applies there is none. A measured ε above the published one refutes the claim.",
    )


def _provable(row: ClaimRow) -> str:
    value, words = row.claim.parameters.get(PROVABLE), str(row.claim.parameters.get(NOT_PROVABLE, ""))
    return words.partition(":")[0] or numerals.significant(float(value) if isinstance(value, int | float) else None)


def _evidence(row: ClaimRow) -> str:
    """The runs or event that refuted the claim, taken from the recorded reason, and the bounds on the error rates."""
    if row.verdict != "REFUTED" or row.record is None:
        return ""
    # The reason goes on with the implementation checks. The names of both parts differ between versions of fedassay.
    found = _EVIDENCE.search(row.record.reason)
    words = found[1] if found else ""
    if row.fpr_high is None or row.fnr_high is None:
        return words
    # Both rates are upper confidence bounds, so they are rounded up.
    rates = f"FPR <= {at_most(row.fpr_high)}, FNR <= {at_most(row.fnr_high)}"
    return f"{words}; {rates}" if words else rates


EPSILON = "epsilon"


@dataclass(frozen=True, kw_only=True)
class PublishedValue:
    """A table row for one published result: ``paper`` is the value printed in the paper at ``source``, and ``ours`` the
    run's value, None if not measured.
    """

    federation: str
    defense: str
    metric: str
    unit: str
    attack: str
    paper: float
    ours: Pooled | None
    source: str


def published_values(folder: RunFolder) -> list[PublishedValue]:
    """Return one row for each published value in the suite, in its order."""
    named = folder.manifest.suite.get("published")
    # Most suites compare with no paper.
    if not isinstance(named, list):
        return []
    return [_compared(folder, row) for row in named if isinstance(row, dict) and _is_number(row.get("value"))]


def published_table(rows: list[PublishedValue]) -> Table:
    """Return a table of a paper's values and the run's values, with their differences."""
    several = len({row.federation for row in rows}) > 1
    where: dict[str, Callable[[PublishedValue], str]] = {"federation": lambda row: row.federation} if several else {}
    return tabulate(
        "Compared with the paper",
        rows,
        {
            **where,
            "defense": lambda row: row.defense,
            "quantity": _what,
            Right("paper"): lambda row: _number(row, row.paper),
            Right("ours"): _ours,
            Right("ours − paper"): lambda row: numerals.optional(
                row.ours, lambda ours: _number(row, ours.value - row.paper)
            ),
            Right("n"): lambda row: numerals.optional(row.ours, lambda ours: str(ours.n)),
            "where": lambda row: row.source,
        },
        about=2 + several,
        note="The paper's value is the printed one, mostly from one run of its own code. Ours is a mean over seeds "
        "with a 95 % interval, or the epsilon that a claim states. If the interval excludes the paper's value, the "
        "two differ; this does not show which one is wrong.",
    )


def _is_number(value: object) -> bool:
    """Suite files are validated, but a manifest may have been edited by hand."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _compared(folder: RunFolder, row: Mapping[str, Any]) -> PublishedValue:
    metric, unit, attack = (str(row.get(field) or "") for field in ("metric", "unit", "attack"))
    federation, defense = str(row.get("federation", "")), str(row.get("defense", ""))
    return PublishedValue(
        federation=federation,
        defense=defense,
        metric=metric,
        unit=unit,
        attack=attack,
        paper=float(row["value"]),
        ours=_stated(folder, federation, defense, unit)
        if metric == EPSILON
        else _measured(folder, federation, defense, metric, attack),
        source=str(row.get("source", "")),
    )


def _stated(folder: RunFolder, federation: str, defense: str, unit: str) -> Pooled | None:
    """The largest epsilon that the defense states about this unit: of several claims the one that covers all users."""
    stated = [
        one.claim.epsilon
        for one in folder.claims
        if (one.federation, one.defense, str(one.claim.unit)) == (federation, defense, unit)
    ]
    if not stated:
        return None
    # A claim is computed and not measured, so it has no interval.
    return Pooled(value=max(stated), low=None, high=None, n=len(stated), method="stated")


def _measured(folder: RunFolder, federation: str, defense: str, metric: str, attack: str) -> Pooled | None:
    place = federation, defense, metric
    if not attack:
        # Without an attack the paper's value is a metric of the utility, such as accuracy.
        own = [row.pooled for row in pooled_utility(folder) if (row.federation, row.defense, row.metric) == place]
    else:
        own = [
            row.pooled
            for row in pooled_attacks(folder)
            if (row.federation, row.defense, row.metric) == place and row.attack == attack
        ]
    return own[0] if own else None


def _what(row: PublishedValue) -> str:
    if row.metric == EPSILON:
        return f"ε of a {row.unit}"
    name = numerals.metric(row.metric).label
    return f"{row.attack}: {name}" if row.attack else name


def _number(row: PublishedValue, value: float) -> str:
    if row.metric == EPSILON:
        # The difference of two epsilons may be negative, and the number itself is printed with a true minus sign.
        return ("−" if value < 0 else "") + numerals.significant(abs(value))
    return numerals.metric_value(row.metric, value)


def _ours(row: PublishedValue) -> str:
    if row.ours is None:
        return "not stated" if row.metric == EPSILON else "not measured"
    return _number(row, row.ours.value) + numerals.interval_words(row.metric, row.ours.low, row.ours.high)
