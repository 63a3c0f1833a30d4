"""States before an audit what so many scores, canaries or trials can show at best."""

from ..binomial import largest_certifiable_epsilon
from ..claim import Claim
from ..estimators.guess_odds import fits_coins, odds_low
from ..estimators.one_run import epsilon_from_guesses
from ..estimators.one_run_claim import guesses_on
from ..evidence import Design
from ..power.trials_needed import fewest_trials
from ..wording import plain


def reach(
    claim: Claim, design: Design, members: int, nonmembers: int, *, alpha: float, fixed: bool, named: bool
) -> str:
    """Return in words the largest epsilon that these numbers of scores can certify by the default estimator.

    ``fixed``: whether the threshold was fixed before, so that no half of the scores only chooses it; ``named``: whether
    other estimators were named, for which no largest epsilon is computed.
    """
    if named:
        return f"{nonmembers} + {members} scores"
    if design is Design.ONE_RUN:
        canaries = members + nonmembers
        if canaries < 2:
            return f"{canaries} canary can certify no epsilon"
        planned = guesses_on(claim, canaries, alpha=alpha)
        made, share = planned["one_run"], alpha / len(planned)
        best = epsilon_from_guesses(made, made, canaries, delta=claim.delta, alpha=share)
        return f"{canaries} canaries of one run, {made} guesses: max certifiable {plain(round(best, 2))}"
    counted = (members, nonmembers)
    if not fixed:
        counted = members - round(members / 2), nonmembers - round(nonmembers / 2)
    if design is Design.CLUSTERED:
        return f"{members} + {nonmembers} scores, of which one of each cluster counts"
    best = largest_certifiable_epsilon(max(1, counted[1]), max(1, counted[0]), claim.delta, alpha)
    half = "" if fixed else ", of which one half chooses a threshold"
    least = fewest_to_refute(claim, alpha=alpha)
    needed = ""
    if least is not None and least > min(counted):
        needed = f"; {least if fixed else 2 * least:,} per arm are needed to refute the claim"
    return f"{nonmembers} + {members} scores{half}: max certifiable {plain(round(best, 2))}{needed}"


def fewest_to_refute(claim: Claim, *, alpha: float) -> int | None:
    """Return the fewest counted trials with which errorless guesses refute the claim, by epsilon or by its curve.

    They are trials with the canary, and as many without; None if no number suffices.
    """
    levels = {"epsilon": claim.epsilon, "delta": claim.delta, "alpha": alpha}
    found = [fewest_trials(curve=curve, **levels) for curve in {None, claim.curve}]
    return min((n for n in found if n is not None), default=None)


def too_few_scores(claim: Claim, members: int, nonmembers: int, *, alpha: float) -> str:
    """Return why a side with a single score judges nothing where one half of each side only chooses the threshold; an
    empty string where both have more.
    """
    if min(members, nonmembers) > 1:
        return ""
    least = fewest_to_refute(claim, alpha=alpha)
    needed = "" if least is None else f": at least {2 * least:,} of each are needed to refute the claim"
    return (
        f"nothing was measured, because one half of {members:,} + {nonmembers:,} scores of members and non-members "
        f"would choose the threshold and the other half be counted{needed}"
    )


def trials_text(claim: Claim, counted: int, *, alpha: float, learning: int = 0, coins: bool = False) -> str:
    """Return in words what so many counted trials of each input can certify; ``learning`` more are not counted.

    ``coins``: whether coins choose the inputs of the trials where the claim has neither delta nor curve.
    """
    best = _errorless(claim, counted, alpha=alpha, coins=coins)
    only = f" ({learning} more of each only learn an event)" if learning else ""
    return f"{counted} + {counted} counted trials{only}: max certifiable {plain(round(best, 2))}"


def too_few_trials(claim: Claim, counted: int, *, alpha: float, factor: int = 1, coins: bool = False) -> str:
    """Return why so many counted trials of each input can judge nothing; an empty string where they can.

    ``factor``: trials per counted trial, for the number of trials that the message names; ``coins`` as in
    ``trials_text``.
    """
    least = fewest_to_refute(claim, alpha=alpha)
    if counted < 1 or least is None or counted >= least:
        return ""
    if _errorless(claim, counted, alpha=alpha, coins=coins) > claim.epsilon:
        return ""
    return (
        f"no trial was run, because {counted} + {counted} counted trials without an error would not refute the claim: "
        f"at least --trials {factor * least:,} are needed"
    )


def _errorless(claim: Claim, counted: int, *, alpha: float, coins: bool) -> float:
    """The bound from so many trials of each input without an error."""
    if coins and fits_coins(delta=claim.delta, curve=claim.curve, trials=counted):
        return odds_low(2 * counted, 0, alpha)
    return largest_certifiable_epsilon(max(1, counted), max(1, counted), claim.delta, alpha)
