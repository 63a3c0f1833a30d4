"""Claims stated by a noise law instead of epsilon: DP-SGD by its noise, sampling rate and steps, the history of an
accountant, and rho-zCDP.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import dp_accounting

from ...audit.claim import Adjacency, Claim, Unit
from ...audit.curve import Curve
from ...audit.supplied.given import check_whole
from ...fl.fields import check_positive
from ..defense import check_delta
from .accountant import ACCOUNTANT, Method, epsilon_from_zcdp, epsilon_of, gaussian_steps
from .gaussian import SampledGaussian, gaussian_curve, profile_of

_SLACK = 1e-6


def claim_from_noise(
    noise_multiplier: float,
    *,
    delta: float,
    sampling_rate: float = 1.0,
    steps: int = 1,
    epsilon: float | None = None,
    unit: Unit | str = Unit.SAMPLE,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    **setting: Any,
) -> Claim:
    """Build the claim of DP-SGD: ``steps`` Gaussian releases, each on a Poisson sample drawn at ``sampling_rate``.

    ``noise_multiplier``: noise standard deviation over the clip norm, > 0. ``sampling_rate``: in (0, 1], 1 for all
    samples in every step. ``steps``: >= 1, those of the whole training. Epsilon at ``delta`` in (0, 1) is computed
    by privacy-loss distributions, and the trade-off curve is stated too, except for sampled releases under replace-one.
    ``epsilon``: the claimed one, if it is larger than that. ``setting``: ``observer`` and ``rounds`` of
    ``Claim.stated``.

    Raises ValueError for an argument out of range, a law that the accountant does not support, and an ``epsilon`` that
    the law does not imply.
    """
    check_positive("noise_multiplier", noise_multiplier)
    check_positive("sampling_rate", sampling_rate)
    if sampling_rate > 1:
        raise ValueError(f"sampling_rate must be in (0, 1], got {sampling_rate}")
    check_whole("steps", steps, least=1)
    check_delta(delta)
    neighbours = Adjacency(adjacency)
    mechanism = SampledGaussian(sigma=noise_multiplier, rate=sampling_rate, steps=steps)
    # Under replace-one two clipped rows differ by twice the clip norm.
    share = 0.5 if neighbours is Adjacency.REPLACE_ONE else 1.0
    if share == 1.0:
        implied = mechanism.epsilon(delta)
    else:
        event = gaussian_steps(sigma=share * noise_multiplier, rate=sampling_rate, steps=steps)
        implied = epsilon_of(event, delta=delta, adjacency=neighbours, method=Method.PLD)
    claimed = _claimed(epsilon, implied, delta, f"noise multiplier {noise_multiplier}")
    claim = Claim.stated(claimed, delta, unit=unit, adjacency=neighbours, **setting)
    curve: Curve | None = None
    if sampling_rate == 1:
        curve = gaussian_curve(noise=share * noise_multiplier, releases=steps)
    elif neighbours is not Adjacency.REPLACE_ONE:
        curve = mechanism.curve(claimed)
    return replace(
        claim,
        curve=curve,
        mechanism="sampled Gaussian" if sampling_rate < 1 else "Gaussian",
        parameters={"noise_multiplier": noise_multiplier, "sampling_rate": sampling_rate, "steps": steps},
        accountant=ACCOUNTANT,
        sampling=f"Poisson, rate {sampling_rate:g}" if sampling_rate < 1 else "all samples in all steps",
    )


def claim_from_accountant(
    accountant: Any,
    *,
    delta: float,
    epsilon: float | None = None,
    unit: Unit | str = Unit.SAMPLE,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    **setting: Any,
) -> Claim:
    """Build the claim that an accountant's history implies, with its trade-off curve.

    ``adjacency``: ``add_remove``, or ``zero_out``, under which a sum of clipped rows has the same guarantee;
    ``replace_one`` for a history of one noise multiplier and rate.

    ``accountant``: an object with ``history``, a list of (noise multiplier, sampling rate, steps) as Opacus keeps it;
    an accountant of dp-accounting (its ``ledger``); or an event of dp-accounting. The accountant's own epsilon is not
    read: epsilon at ``delta`` in (0, 1) is computed again by privacy-loss distributions. ``epsilon``: the claimed one,
    if it is larger than that, as that of a Renyi accountant. ``setting``: as in ``claim_from_noise``.

    Raises TypeError for an object without a history, ValueError for an empty or impossible one, for an event that the
    accounting does not support, and for an ``epsilon`` that the history does not imply.
    """
    check_delta(delta)
    history = list(getattr(accountant, "history", None) or ())
    if history or hasattr(accountant, "history"):
        event = event_of(history)
        if len(history) == 1:
            noise, rate, steps = history[0]
            law: dict[str, Any] = {"sampling_rate": float(rate), "steps": int(steps), "epsilon": epsilon}
            return claim_from_noise(float(noise), delta=delta, unit=unit, adjacency=adjacency, **law, **setting)
    else:
        event = _ledger_of(accountant)
    if Adjacency(adjacency) is Adjacency.REPLACE_ONE:
        raise ValueError("replace_one needs a history with a single noise multiplier and a single sampling rate")
    implied = epsilon_of(event, delta=delta, adjacency=Adjacency.ADD_REMOVE, interval=1e-3)
    claimed = _claimed(epsilon, implied, delta, "the accountant's history")
    return replace(
        Claim.stated(claimed, delta, unit=unit, adjacency=adjacency, **setting),
        curve=profile_of(event, claimed),
        mechanism="composition of an accountant's history",
        parameters={"steps": sum(int(steps) for _, _, steps in history)} if history else {},
        accountant=ACCOUNTANT,
        sampling="Poisson, rates of the accountant's history" if history else "as in the accountant's history",
    )


def reported_claim(law: Callable[..., Claim], *arguments: Any, epsilon: float | None, **setting: Any) -> Claim:
    """Build the claim of a system that reports ``epsilon``, from its noise or its accountant.

    ``law``: ``claim_from_noise`` or ``claim_from_accountant``, with its arguments. An ``epsilon`` below the one that is
    implied is a claim too, a false one: it is stated as it was reported, without the trade-off curve of the noise.
    """
    implied = law(*arguments, **setting)
    if epsilon is None or implied.epsilon <= epsilon * (1 + _SLACK):
        return implied if epsilon is None else law(*arguments, epsilon=epsilon, **setting)
    return replace(implied, epsilon=epsilon, curve=None)


def event_of(history: Iterable[Any]) -> dp_accounting.DpEvent:
    """Return the event of dp-accounting that an accountant's history of (noise multiplier, sampling rate, steps) means.

    Raises ValueError for an empty history and for numbers out of range.
    """
    events = []
    for entry in history:
        try:
            noise, rate, steps = entry
        except (TypeError, ValueError):
            raise ValueError(f"history must hold (noise multiplier, sampling rate, steps), got {entry!r}") from None
        check_positive("noise multiplier of the history", noise)
        if not (isinstance(rate, int | float) and 0 < rate <= 1):
            raise ValueError(f"sampling rate of the history must be in (0, 1], got {rate!r}")
        check_whole("steps of the history", steps, least=1)
        events.append(gaussian_steps(sigma=float(noise), rate=float(rate), steps=int(steps)))
    if not events:
        raise ValueError("the accountant's history is empty: no step was accounted, so nothing is claimed")
    return events[0] if len(events) == 1 else dp_accounting.ComposedDpEvent(events)


def _ledger_of(accountant: Any) -> dp_accounting.DpEvent:
    event = getattr(accountant, "ledger", accountant)
    if not isinstance(event, dp_accounting.DpEvent):
        raise TypeError(
            "accountant must have a history of (noise multiplier, sampling rate, steps), or be an accountant or event "
            f"of dp-accounting, got {type(accountant).__name__}"
        )
    return event


def claim_from_rho(rho: float, *, delta: float, epsilon: float | None = None, **setting: Any) -> Claim:
    """Build the claim of a rho-zCDP mechanism, with epsilon at ``delta`` in (0, 1) at the best Renyi order.

    ``setting``: ``unit``, ``adjacency``, ``observer`` and ``rounds`` of ``Claim.stated``. Raises ValueError for
    rho <= 0 and for an ``epsilon`` that rho does not imply.
    """
    check_positive("rho", rho)
    check_delta(delta)
    claimed = _claimed(epsilon, epsilon_from_zcdp(rho, delta), delta, f"rho {rho}")
    return replace(
        Claim.stated(claimed, delta, **setting), parameters={"rho": rho}, accountant="zCDP to (epsilon, delta)"
    )


def _claimed(epsilon: float | None, implied: float, delta: float, law: str) -> float:
    if epsilon is None:
        return implied
    check_positive("epsilon", epsilon)
    if implied > epsilon * (1 + _SLACK):
        raise ValueError(
            f"{law} implies epsilon {implied:.6g} at delta {delta:g}, which is more than the stated {epsilon:g}: state "
            "values that agree, or one of them"
        )
    return epsilon
