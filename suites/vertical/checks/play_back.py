"""Play a defense's randomised outputs back to a federation in which one person's data differ, and find what else
changes.

A run is recorded with everything that the hooks with randomness returned. The same run is made again with one label, or
one row, changed, and the hooks return the recorded outputs, except for numbers that are no noise. What the observer
receives must then be the same: else it depends on the raw data in a way that no noise covers. What the hooks were given
in the second run shows how far the change moves the inputs of the noise: in the person's own row, and in rows of other
people.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor

from ....audit.check import RELEASED, CheckResult
from ....audit.claim import Claim, Unit
from ....audit.ledger import SUITE
from ....audit.observer import ACTIVE_PARTY, PASSIVE_PARTY
from ....checks.results import worst_results
from ....fl.hooks import overrides
from ....fl.vertical.protection import VerticalContext
from ..case import VerticalCase
from ..pairs import PersonPair, labels_of
from .label_channel import channel_check
from .noise_move import move_checks
from .tape import Call, Constants, Taped

HOOKS = {Unit.LABEL: ("targets", "residuals", "gradients"), Unit.SAMPLE: ("columns", "embeddings", "bottom_sum")}
"""The hooks through which a defense may randomise what depends on the unit."""
SEEN = {ACTIVE_PARTY: "embeddings", PASSIVE_PARTY: "gradients"}
"""The hook whose outputs an observer receives themselves."""


def vertical_checks(case: VerticalCase) -> tuple[CheckResult, ...]:
    """Return the results of all implementation checks of a claim about a vertical federation."""
    checks = play_back_checks(case, case.pairs)
    if case.claim.unit is not Unit.LABEL or case.why_no_pair:
        return checks
    labels = labels_of(case.task, case.streams)
    return (*checks, channel_check(case, labels, alpha=SUITE.level("released labels")))


def play_back_checks(case: VerticalCase, pairs: Sequence[PersonPair]) -> tuple[CheckResult, ...]:
    """Return the results of all checks of a claim about one label, or about one person's columns at a passive party.
    Each result is the worst over all pairs of data sets that differ as the claim's adjacency says, in the epochs that
    the claim covers.
    """
    if case.why_no_pair:
        return (RELEASED.skipped(case.why_no_pair),)
    by_party: dict[int, list[tuple[CheckResult, ...]]] = {}
    known: dict[str, tuple[CheckResult, ...]] = {}
    for pair in case.covered(pairs):
        by_party.setdefault(pair.party, []).append(_of_pair(case, pair, known))
    parties = list(by_party.values())
    worst = worst_results(chain(*chain(*parties)), "pairs", required=RELEASED)
    return tuple(_with_least_power(result, parties) for result in worst)


def _with_least_power(result: CheckResult, parties: Sequence[Sequence[Sequence[CheckResult]]]) -> CheckResult:
    """A result that passed, with the power at the party where the check is weakest; none where one has no power.

    At each party the pair counts that moves most, and finds the smallest violation.
    """
    if not result.passed:
        return result
    powers: list[float | None] = []
    for pairs in parties:
        same = [one.detects for one in chain(*pairs) if one.name == result.name and one.passed]
        powers.append(min((power for power in same if power is not None), default=None))
    known = [power for power in powers if power is not None]
    return replace(result, detects=max(known) if len(known) == len(powers) else None)


def _of_pair(
    case: VerticalCase, pair: PersonPair, known: dict[str, tuple[CheckResult, ...]]
) -> tuple[CheckResult, ...]:
    """The results of one pair; ``known``: by what differs, the results about noised messages that are the same for all
    parties.
    """
    claim, protection = case.claim, case.protection
    names = tuple(hook for hook in HOOKS.get(claim.unit, HOOKS[Unit.SAMPLE]) if overrides(protection, hook))
    # Copies: what one run leaves in an object must not reach another.
    first = Taped(inner=deepcopy(protection), names=names)
    one = case.received(pair, 0, protection=first)[-1][0]
    fixed = Constants(claim=claim, protection=protection, seen=SEEN.get(claim.observer))
    second = Taped(inner=deepcopy(protection), names=names, tape=first.calls, fixed=fixed)
    other = case.received(pair, 1, protection=second)[-1][0]
    calls = [both for both in zip(first.calls, second.calls, strict=True) if _is_seen(claim, pair, both[0])]
    released = _released(claim, pair, names, one, other, calls)
    # What was not looked at, and which rows a defense failed at, belong to the result.
    released = replace(released, witness="; ".join([released.witness, *sorted(fixed.left)]))
    # Another label moves the same messages for every party, unless the defense changes what each party is sent.
    same = claim.unit is Unit.LABEL and "gradients" not in names
    moves = known.get(pair.words) if same else None
    if moves is None:
        moves = known[pair.words] = move_checks(case, calls, brief=pair.brief)
    return (released, *(_with_pair(result, claim, pair) for result in moves))


def _with_pair(result: CheckResult, claim: Claim, pair: PersonPair) -> CheckResult:
    """A failed result with the pair of data sets that shows it."""
    return replace(result, witness=f"{result.witness}; {pair.witness(claim)}") if result.passed is False else result


def _is_seen(claim: Claim, pair: PersonPair, call: Call) -> bool:
    """Whether a call's output may reach the observer; gradients of other parties are theirs alone."""
    return not (call.hook == "gradients" and claim.observer == PASSIVE_PARTY and call.rest[0] != pair.party)


def _released(
    claim: Claim, pair: PersonPair, names: tuple[str, ...], one: Tensor, other: Tensor, calls: list[tuple[Call, Call]]
) -> CheckResult:
    """Compare what the observer received in both runs, whose released outputs are the same."""
    seen, difference = SEEN.get(claim.observer), _difference(one, other)
    if not difference and seen in names and any(_others_move(first, second, pair.person) for first, second in calls):
        # Equal by construction: the observer receives the played outputs themselves, and their inputs are what counts.
        words = (
            f"the adversary receives the outputs of the hook {seen}, whose inputs for other people also depend on "
            "this person"
        )
        return RELEASED.skipped(words)
    return RELEASED.at_most(
        difference,
        0.0,
        unit="largest difference",
        witness=f"{pair.witness(claim)}; both runs have the same noise in the outputs of "
        f"{', '.join(names) or 'no hook'}",
    )


def _others_move(one: Call, other: Call, person: int) -> bool:
    """Whether the inputs of a call differ in rows of other people."""
    people = next((fact.people for fact in one.rest if isinstance(fact, VerticalContext)), None)
    if one.hook == "bottom_sum" or people is None:
        return False
    return bool((one.values != other.values)[:, people != person].any())


def _difference(one: Tensor, other: Tensor) -> float:
    """The largest difference, 0 where two numbers are equal or both not finite."""
    same = (one == other) | (~torch.isfinite(one) & ~torch.isfinite(other))
    return 0.0 if bool(same.all()) else float(torch.nan_to_num(one - other).abs()[~same].max().clamp_min(1e-30))
