"""Answer in plain words, for each claim of a run: what was found, what that means for people, and what to do next."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.metrics.low_rate import counted_runs, lowest_rate, tpr_at
from ...audit.metrics.reconstruction import success_bound
from ...audit.wording import at_least, counted, plain
from ..reading.claims import ClaimRow, claim_rows, left_unprotected, one_row_per_claim
from ..reading.membership import Membership, memberships
from ..reading.pooling import LEVEL
from ..reading.run_folder import RunFolder
from ..tables import numerals
from ..tables.pooled_rows import AttackRow, pooled_attacks, pooled_utility, undefended
from .covered import outside_attacks, uncovered_attacks, value_words

WEAK = 3.0
"""An audit is called a weak test where it finds only violations of more than this many times the claimed epsilon."""
FALSE_ALARMS = 0.01
"""Share of false alarms at which the consequences for people are stated."""
_PEOPLE, _STEPS = 1000, 2000
_NAMED = 3
"""Failed checks that the first screen names."""
_GUESSED = round(_PEOPLE * FALSE_ALARMS)
_UNITS = {
    Unit.SAMPLE: "one record of the data",
    Unit.CLIENT: "one participant with all its data",
    Unit.USER: "one person with all records",
    Unit.REPORT: "all that one participant sends",
    Unit.COORDINATE: "one number of a message",
    Unit.LABEL: "the label of one record",
}
_SHOWN = {
    "auc": "distinguished participants from others",
    "psnr": "rebuilt images",
    "ssim": "rebuilt images",
    "label_accuracy": "named the labels of the data",
    "label_over_chance": "named the labels of the data",
    "source_advantage": "named the holder of a record",
}
"""What an attack showed that did better than guessing."""
_CHANCE = {"auc": 0.5, "label_over_chance": 0.0, "source_advantage": 0.0}
_FOUND = {
    "REFUTED": "Violated",
    "NOT_REFUTED": "No violation found",
    "UNDERPOWERED": "Not decided",
    "OUT_OF_SCOPE": "Not tested",
    "NOT_AUDITED": "Not tested",
    "NO_CLAIM": "No claim",
    "FAILED": "The test failed",
}
_NEXT = {
    "REFUTED": "Do not rely on this claim. Mend the defense or state a larger ε, and run the suite again.",
    "NOT_REFUTED": "Keep this run as a baseline (fedassay gate). Test again when code, data, model or rounds change.",
    "UNDERPOWERED": "Do not rely on this test. Raise audit.replicas in the suite: fedassay plan prints how many runs "
    "find half of the noise missing.",
    "OUT_OF_SCOPE": "No audit method covers this claim. State it for what an adversary receives.",
    "NOT_AUDITED": "Add an audit to the suite.",
    "FAILED": "Mend the error that the table of claims shows, and continue with fedassay resume --retry-failed.",
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a report answers about one claim, each field in whole sentences; empty where there is nothing to say.

    Args:
        defense: its label, with the federation where the run has several.
        verdict: of the claim's row.
        found: two or three words, such as No violation found.
        weak: why the test counts as weak.
        promise: the claim in plain words.
        power: what the test could have shown.
        quality: how good the model is under the defense, and without one.
        people: what the claim allows an attacker to learn about people, and what the best attack of this run learnt.
        uncovered: the adversaries that the claim does not cover, and what attacks showed to them.
        unseen: what was not tested.
        next_step: what to do.
    """

    defense: str
    verdict: str
    found: str
    weak: str
    promise: str
    power: str
    quality: str
    people: str
    uncovered: str
    unseen: str
    next_step: str


def answers(folder: RunFolder) -> list[Answer]:
    """Return one answer per claim of the run, claims that need attention first, without controls."""
    rows = [row for row in one_row_per_claim(claim_rows(folder)) if row.stated and not row.control]
    many = len({row.federation for row in rows}) > 1
    ordered = sorted(rows, key=lambda row: not row.needs_attention)
    return [_answer(folder, row, row.stated.claim, many) for row in ordered if row.stated]


def _answer(folder: RunFolder, row: ClaimRow, claim: Claim, many: bool) -> Answer:
    weak = weakness(row)
    step = _NEXT.get(row.verdict, "")
    if row.failed_checks and row.verdict == "REFUTED":
        named = "; ".join(check.reason.partition(" (")[0] for check in row.failed_checks[:_NAMED])
        step = (
            f"Do not rely on this claim. Mend what the failed {_checks(row)} found ({named}), and run the suite again."
        )
    elif row.failed_checks:
        step = f"Read which implementation {_checks(row)} failed: each names a difference from what the claim assumes."
    elif weak and row.verdict == "NOT_REFUTED":
        step = _NEXT["UNDERPOWERED"]
    if folder.gate is None and row.verdict == "NOT_AUDITED":
        step = f"Finish the run: fedassay resume {folder.path}."
    return Answer(
        defense=f"{row.federation}/{row.label}" if many else row.label,
        verdict=row.verdict,
        found=_found(row),
        weak=weak,
        promise=_promise(claim),
        power=_power(row, claim),
        quality=_quality(folder, row),
        people=_people(folder, row, claim),
        uncovered=_uncovered(folder, row, claim),
        unseen=_unseen(row),
        next_step=step,
    )


def _found(row: ClaimRow) -> str:
    words = _FOUND.get(row.verdict, row.verdict)
    if row.failed_checks and row.verdict != "REFUTED":
        return f"{words}, but {len(row.failed_checks)} implementation {_checks(row)} failed"
    return words


def _checks(row: ClaimRow) -> str:
    return "check" if len(row.failed_checks) == 1 else "checks"


def _quality(folder: RunFolder, row: ClaimRow) -> str:
    """The first metric of utility of the defense in the claim's federation, and without a defense."""
    rows = [
        one for one in pooled_utility(folder) if one.federation == row.federation and numerals.is_quality(one.metric)
    ]
    own = next((one for one in rows if one.defense == row.defense and one.pooled), None)
    if own is None or own.pooled is None:
        return ""
    label = undefended(one.defense for one in rows)
    without = next((one.pooled for one in rows if (one.defense, one.metric) == (label, own.metric)), None)
    name, value = numerals.metric(own.metric).label, numerals.metric_value(own.metric, own.pooled.value)
    compared = f", and {numerals.metric_value(own.metric, without.value)} without a defense" if without else ""
    return f"The model under this defense: {name} {value}{compared}."


def _promise(claim: Claim) -> str:
    return (
        f"Claim: what {claim.observer.phrase} can learn about any one {claim.unit}, which is {_UNITS[claim.unit]}, is "
        f"limited to ε = {plain(claim.epsilon)} (δ = {plain(claim.delta)}, {claim.adjacency.phrase}, over "
        f"{counted(claim.rounds, 'round')})."
    )


def weakness(row: ClaimRow) -> str:
    """Return why the test that did not refute a claim counts as weak; empty if it does not, or has another verdict."""
    if row.verdict != "NOT_REFUTED" or row.stated is None:
        return ""
    claim = row.stated.claim
    if row.detectable is None:
        return "how large a violation it would find is not known"
    if row.detectable > WEAK * claim.epsilon:
        return f"it may miss a true ε that is {row.detectable / claim.epsilon:.0f} times the claimed one"
    return ""


def _power(row: ClaimRow, claim: Claim) -> str:
    if row.verdict in ("NOT_AUDITED", "OUT_OF_SCOPE", "NO_CLAIM", "FAILED"):
        return ""
    if row.verdict == "REFUTED":
        return " ".join(filter(None, (_violation(row, claim), _false_alarm(row))))
    if row.detectable is None:
        return "How large a violation this test would find is not known."
    found = numerals.epsilon(row.detectable)
    between = f"; between ε {plain(claim.epsilon)} and {found} it may miss it" if row.detectable > claim.epsilon else ""
    return (
        f"If the noise is so small that the true ε is {found} (claimed: {plain(claim.epsilon)}), this test finds it in "
        f"9 of 10 cases{between}."
    )


def _violation(row: ClaimRow, claim: Claim) -> str:
    if row.epsilon_low is not None and row.epsilon_low > claim.epsilon:
        return f"The true ε is at least {at_least(row.epsilon_low)}, and the claimed one is {plain(claim.epsilon)}."
    if row.fpr_high is None or row.fnr_high is None or claim.curve is None:
        return "The evidence contradicts the trade-off curve that the claim states."
    least = 1 - _most_found(claim, row.fpr_high)
    return (
        f"The test found the {claim.unit} in too many runs: it missed at most {_percent(row.fnr_high, math.ceil)} of "
        f"them, with at most {_percent(row.fpr_high, math.ceil)} false alarms; under the claim every attack with so "
        f"few false alarms misses at least {_percent(least, math.floor)}."
    )


def _percent(share: float, towards: Callable[[float], int]) -> str:
    """A share in per cent with one decimal, rounded up or down so that it states no more than was shown."""
    return f"{towards(round(1000 * share, 6)) / 10:g} %"


def _false_alarm(row: ClaimRow) -> str:
    level = row.record.ci_level if row.record else None
    return (
        ""
        if level is None
        else f"A correct defense is refuted with probability {_percent(1 - level, math.ceil)} at most."
    )


def allowed_of_thousand(claim: Claim) -> int:
    """Return how many of 1,000 units that took part the claim lets an attacker find who raises one false alarm in a
    hundred, rounded up.

    From epsilon and delta (Wasserman and Zhou 2010, Theorem 2.4; Kairouz et al. 2015), and the trade-off curve where
    one is stated.
    """
    # The inner rounding removes binary errors such as 0.29 * 1000 > 290.
    return math.ceil(round(_PEOPLE * _most_found(claim, FALSE_ALARMS), 6))


def allowed_words(claim: Claim) -> str:
    """Return what the claim lets an attacker find, in words; a claim of replacement hides contents alone."""
    most = f"{allowed_of_thousand(claim):,} of 1,000"
    if claim.adjacency is Adjacency.REPLACE_ONE:
        return (
            f"an attacker who decides which of two contents a {claim.unit} had, with 1 false alarm in 100, finds the "
            f"second in at most {most} cases (guessing: {_GUESSED})"
        )
    return (
        f"an attacker who raises 1 false alarm in 100 finds at most {most} {claim.unit}s that took part (guessing: "
        f"{_GUESSED})"
    )


def _most_found(claim: Claim, rate: float) -> float:
    """The largest true-positive rate that the claim allows at a false-positive rate."""
    return success_bound(rate, epsilon=claim.epsilon, delta=claim.delta, curve=claim.curve)


def _people(folder: RunFolder, row: ClaimRow, claim: Claim) -> str:
    limit = allowed_words(claim)
    refuted = row.verdict == "REFUTED"
    said = f"The claim says that {limit}. It does not hold" if refuted else f"If the claim holds, {limit}"
    own = [
        one
        for one in memberships(folder)
        if (one.federation, one.defense) == (row.federation, row.defense) and not one.null and claim in one.claims
    ]
    if not own:
        return f"{said}."
    best = max(own, key=lambda one: one.area)
    knows = " (which knows everything else, as differential privacy assumes)" if best.adversary == "worst_case" else ""
    reached = _reached(best, claim, len(own))
    return f"{said}. The best attack of this run that the claim covers, {best.attack}{knows}, {reached}."


def _reached(best: Membership, claim: Claim, of: int) -> str:
    """What the best of ``of`` attacks reached; its interval holds for all of them jointly."""
    ends, allowed = best.interval(1 - (1 - LEVEL) / of), _allowed_area(claim)
    area = f"AUC {numerals.metric_value('auc', best.area)}"
    if ends is not None:
        low, high = (numerals.metric_value("auc", end) for end in ends)
        area += f", with a 95 % interval from {low} to {high}{f', jointly for {of} attacks' if of > 1 else ''}"
    agrees = (
        " (above it, but the interval reaches below: no proof of a violation)"
        if ends and ends[0] <= allowed < best.area
        else ""
    )
    reached = f"{area}; guessing reaches 0.5, and the claim allows {allowed:.3f}{agrees}"
    rate = None if best.shadowed is not None else lowest_rate(counted_runs(best.sides))
    # Candidates of few runs share their noise: a rate of false alarms among them says nothing about other runs.
    if rate is None or rate > FALSE_ALARMS:
        return f"reached {reached}"
    found = tpr_at(best.sides.member, best.sides.nonmember, FALSE_ALARMS)
    return f"found {round(_PEOPLE * found):,} of 1,000 and reached {reached}"


def _allowed_area(claim: Claim) -> float:
    """The largest AUC of an attack under the claim, rounded up to three decimals."""
    # The true-positive rate rises, so that the right ends of its steps give no smaller an AUC.
    most = sum(_most_found(claim, step / _STEPS) for step in range(1, _STEPS + 1)) / _STEPS
    return math.ceil(round(1000 * most, 6)) / 1000


def _uncovered(folder: RunFolder, row: ClaimRow, claim: Claim) -> str:
    """What the claim leaves unprotected, with the attack results on this defense that no claim covers."""
    left = [words.removeprefix("against ") for words in left_unprotected(claim, row.rounds_run)]
    said = [f"Not covered by this claim: {', '.join(left)}."] if left else []
    shown = [_showed(folder, one) for one in uncovered_attacks(folder, row.defense)]
    said += [f"For adversaries who receive more, this run shows: {'; '.join(shown)}."] if shown else []
    for reason, rows in outside_attacks(folder, row.defense).items():
        named = [_showed(folder, one) for one in rows if _better(folder, one) is not False]
        rest = len(rows) - len(named)
        least = [f"{counted(rest, 'attack')} could not be distinguished from guessing"] if rest else []
        said.append(f"{reason}: {'; '.join(named + least)}.")
    return " ".join(said)


def _showed(folder: RunFolder, one: AttackRow) -> str:
    """What an attack did, in words that its interval and guessing allow."""
    guess, did = _guess(folder, one), _better(folder, one)
    about = f"{one.attack} on {one.federation}"
    if guess is None or did is None:
        return f"{about} reached {value_words(one)}"
    words = numerals.metric_value(one.metric, guess)
    if did:
        return f"{about} {_SHOWN.get(one.metric, 'did better than guessing')} ({value_words(one)}; guessing {words})"
    interval = numerals.interval_words(one.metric, one.pooled)
    return f"{about} could not be distinguished from guessing ({value_words(one)} {interval}; guessing {words})"


def _better(folder: RunFolder, one: AttackRow) -> bool | None:
    """Whether an attack did better than guessing; None without an interval or a null attack, which show chance."""
    guess, low = _guess(folder, one), one.pooled.low if one.pooled else None
    return None if guess is None or low is None else low > guess


def _guess(folder: RunFolder, one: AttackRow) -> float | None:
    """What an attack reaches that uses nothing: a constant for some metrics, else the best null attack of the
    federation; None without one.
    """
    if one.metric in _CHANCE:
        return _CHANCE[one.metric]
    nulls = (
        row.pooled.value
        for row in pooled_attacks(folder)
        if row.null and row.pooled and (row.federation, row.metric) == (one.federation, one.metric)
    )
    return max(nulls, default=None)


def _unseen(row: ClaimRow) -> str:
    names = list(dict.fromkeys(item.partition(":")[0] for item in row.not_looked_at))
    return f"Not looked at: {', '.join(names)}." if names else ""


def headline(folder: RunFolder) -> str:
    """Return one sentence that answers what a run found about the claims under test."""
    rows = [row for row in one_row_per_claim(claim_rows(folder)) if row.stated and not row.control]
    if folder.gate is None:
        return "This run is not finished"
    if not rows:
        return str(folder.manifest.suite.get("name", "")) or "A run without claims"
    broken = sum(row.verdict == "REFUTED" for row in rows)
    total = counted(len(rows), "privacy claim")
    if broken:
        return "The privacy claim is violated" if len(rows) == 1 else f"{broken} of {total} violated"
    if folder.gate.exit_code == 12:
        return f"Incomplete: {total} cannot be judged yet"
    open_ = sum(row.verdict != "NOT_REFUTED" or bool(row.failed_checks) for row in rows)
    if open_:
        return f"{open_} of {total} not decided" if open_ > 1 or len(rows) > 1 else "The privacy claim is not decided"
    weak = sum(bool(weakness(row)) for row in rows)
    if not weak:
        return f"No violation found in {total}"
    tests = "the test is" if len(rows) == 1 else f"{weak} of {len(rows)} tests {'is' if weak == 1 else 'are'}"
    return f"No violation found in {total}, but {tests} weak"


def controls_sentence(rows: Sequence[ClaimRow]) -> str:
    """Return what the controls show about the audits of a run; empty without controls."""
    controls = [row for row in rows if row.should_be_refuted]
    if not controls and any(row.record is not None and row.stated for row in rows):
        return "This run has no control, a defense that is broken on purpose and shows that its audits find violations."
    if not controls:
        return ""
    tested = [row for row in controls if row.verdict not in ("NOT_AUDITED", "FAILED")]
    found = sum(row.verdict == "REFUTED" for row in tested)
    about = (
        f"{counted(len(controls), 'defense')} of this run {'is' if len(controls) == 1 else 'are'} broken on purpose "
        "(controls)."
    )
    open_ = len(controls) - len(tested)
    rest = f" {open_} of {len(controls)} {'is' if open_ == 1 else 'are'} not tested yet." if open_ else ""
    if not tested:
        return about + rest
    shows = (
        "so these audits do find such errors"
        if found == len(tested)
        else "so these audits miss violations, and their other answers say little"
    )
    return f"{about} {found} of {len(tested)} {'was' if found == 1 else 'were'} found, {shows}.{rest}"


def what_was_tested(folder: RunFolder) -> list[str]:
    """Return what was tested: suite, data, model, federation, and the size of the audit."""
    trained = dict.fromkeys((row.federation, row.dataset, row.model) for row in folder.rows())
    said = []
    # What an unfinished run has no row of yet stands in its suite.
    planned = folder.manifest.suite.get("federations")
    for name, table in planned.items() if isinstance(planned, dict) else ():
        if name not in {federation for federation, _, _ in trained} and isinstance(table, dict):
            trained[name, str(table.get("dataset", "")), str(table.get("model", ""))] = None
    for federation, dataset, model in sorted(trained):
        clients, rounds = folder.clients_of(federation), folder.rounds_of(federation)
        size = [counted(count, what) for count, what in ((clients, "client"), (rounds, "round")) if count is not None]
        said.append(f"{federation}: the model {model} on the data {dataset}{''.join(', ' + words for words in size)}")
    tested = "Tested" if folder.gate is not None else "To be tested"
    about = (
        f"{tested} in simulated federations, not in a running system: the defenses of the suite "
        f"“{folder.manifest.suite.get('name', '')}”"
    )
    audited = dict.fromkeys(row.audited_on for row in claim_rows(folder) if row.audited_on)
    extra = [f"Their claims were {words}." for words in audited]
    sized = _audit_size(folder)
    return [f"{about} ({'; '.join(said)}).{sized}" if said else f"{about}.{sized}", *extra]


def _audit_size(folder: RunFolder) -> str:
    """The federations and the number of runs of audits by independent runs, which may be smaller than the suite's."""
    audit = folder.manifest.suite.get("audit")
    runs = [row.record.n for row in claim_rows(folder) if row.record and row.record.n and not row.by_attacks]
    if not isinstance(audit, dict) or audit.get("design") != "independent" or not runs:
        return ""
    clients, samples = audit.get("clients"), audit.get("samples_per_client")
    if not isinstance(clients, int) or not isinstance(samples, int):
        return ""
    number = f"{min(runs):,}" if min(runs) == max(runs) else f"{min(runs):,} to {max(runs):,}"
    return (
        f" Each claim was audited in {number} small trainings with the unit and as many without it, of "
        f"{counted(clients, 'client')} with at most {counted(samples, 'record')} each."
    )
