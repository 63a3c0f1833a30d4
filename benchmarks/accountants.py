"""Compare accountants, ours and those of installed libraries, with closed forms, enumeration and proved lower bounds.

A number below the truth is wrong. The truth is exact where nothing is sampled (Balle and Wang 2018), and for randomised
response, which is enumerated (Kairouz, Oh, Viswanath 2015). For sampled Gaussian noise it is a proved lower bound; over
more steps than ``_MOST_STEPS`` it would take minutes and is left out. Exit code 1 if ours is not sound, tight and fast.

    python benchmarks/accountants.py
"""

import contextlib
import io
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import dp_accounting
from fedassay.audit.claim import Adjacency
from fedassay.audit.curve import epsilon_from_mu
from fedassay.audit.wording import counted, plain
from fedassay.defenses.accounting.accountant import RELATIONS, epsilon_of, gaussian_steps
from fedassay.defenses.accounting.below import LossPair, composed, gaussian_pair
from fedassay.defenses.accounting.pure import composed_epsilon

_MOST_STEPS = 20_000
_ROUNDING = 1e-6
OURS, LOOSEST, SLOWEST_S = "fedassay", 1.01, 5.0
"""Our accountant; its largest number over the smallest one that is a bound, and its longest CPU time."""
ESTIMATES = ("opacus GDP", "pfl PRV")
"""A limit of infinitely many steps, and the middle of an interval: no bounds."""


class AccountedLaw(NamedTuple):
    """A mechanism to be accounted: ``steps`` Gaussian releases, Poisson-sampled at ``rate``. With noise 0 it is
    ``steps`` randomised bits of epsilon ``rate`` each.
    """

    noise: float
    rate: float
    steps: int
    delta: float

    @property
    def event(self) -> dp_accounting.DpEvent:
        """Return the mechanism as an event, dp-accounting's description of a mechanism."""
        if self.noise:
            return gaussian_steps(sigma=self.noise, rate=self.rate, steps=self.steps)
        return dp_accounting.SelfComposedDpEvent(
            dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.exp(self.rate)), 2), self.steps
        )

    def truth(self) -> float:
        """Return the true epsilon; for sampled noise only a lower bound on it, or 0 if none is known."""
        if not self.noise:
            return composed_epsilon(self.rate, releases=self.steps, delta=self.delta)
        if self.rate == 1:
            return epsilon_from_mu(math.sqrt(self.steps) / self.noise, self.delta)
        if self.steps > _MOST_STEPS:
            return 0.0
        pair = gaussian_pair(1 / self.noise, rate=self.rate)
        both = (LossPair(pair.one, pair.other, self.steps), LossPair(pair.other, pair.one, self.steps))
        return max(composed([one], reach=max(_ours(self), 1e-6)).epsilon(self.delta) for one in both)

    def __str__(self) -> str:
        kind = (
            f"noise {plain(self.noise)}, rate {plain(self.rate)}"
            if self.noise
            else f"bits with probability {plain(self.rate)}"
        )
        return f"{kind}, {counted(self.steps, 'step')}, delta {plain(self.delta)}"


def _adjacency(law: AccountedLaw) -> Adjacency:
    return Adjacency.ADD_REMOVE if law.noise else Adjacency.REPLACE_ONE  # One randomised bit is another.


def _ours(law: AccountedLaw) -> float:
    return epsilon_of(law.event, delta=law.delta, adjacency=_adjacency(law))


def _dp_accounting(kind: Callable[..., Any], law: AccountedLaw) -> Any:
    return kind(neighboring_relation=RELATIONS[_adjacency(law)]).compose(law.event).get_epsilon(law.delta)


def _opacus(kind: str, law: AccountedLaw) -> Any:
    accountant = import_module("opacus.accountants").create_accountant(kind)
    accountant.history = [_gaussian(law)]
    return accountant.get_epsilon(law.delta)


def _prv(law: AccountedLaw) -> Any:
    accountant = import_module("prv_accountant.dpsgd").DPSGDAccountant(*_gaussian(law), delta_error=law.delta / 1000)
    return accountant.compute_epsilon(law.delta, law.steps)[2]


def _pfl(kind: str, law: AccountedLaw) -> Any:
    noise, rate, steps = _gaussian(law)
    of_kind = getattr(import_module("pfl.privacy"), f"{kind}PrivacyAccountant")
    return of_kind(steps, rate, "gaussian", delta=law.delta, noise_parameter=noise).epsilon


def _gaussian(law: AccountedLaw) -> tuple[float, float, int]:
    return law.noise / bool(law.noise), law.rate, law.steps  # Randomised bits are refused by a division by 0.


Accountants = Mapping[str, Callable[[AccountedLaw], Any]]
ACCOUNTANTS: Accountants = {
    OURS: _ours,
    "dp-accounting PLD": partial(_dp_accounting, dp_accounting.pld.PLDAccountant),
    "dp-accounting RDP": partial(_dp_accounting, dp_accounting.rdp.RdpAccountant),
    "opacus RDP": partial(_opacus, "rdp"),
    "opacus PRV": partial(_opacus, "prv"),
    "opacus GDP": partial(_opacus, "gdp"),
    "prv-accountant": _prv,
    "pfl PLD": partial(_pfl, "PLD"),
    "pfl PRV": partial(_pfl, "PRV"),
}
_NUMBERS = """1 1 1 1e-5, 10 1 100 1e-9, 1 1 1 1e-15, 50 1 1 .05, 1 .01 1 .9, 1.1 .01 1000 1e-5, .5 .001 10000 1e-6,
.7 .1 50 1e-5, 3 .2 50 2e-5, 0 .1 100 1e-5, 0 1 20 1e-5, 4 .01 100000 1e-6, 10 .001 10000000 1e-7"""
GRID = tuple(AccountedLaw(float(z), float(q), int(n), float(d)) for z, q, n, d in map(str.split, _NUMBERS.split(",")))


def compared(grid: Sequence[AccountedLaw] = GRID, accountants: Accountants = ACCOUNTANTS) -> tuple[list[str], bool]:
    """Compare accountants; return a line for each mechanism and for each accountant, and whether this package's
    accountant is sound, tight and fast.

    A library that is not installed is named. A number that an accountant refuses counts as none.
    """
    missing = [name for name in accountants if find_spec(name.partition(" ")[0].replace("-", "_")) is None]
    found = {name: [_timed(one, law) for law in grid] for name, one in accountants.items() if name not in missing}
    truths, lines = [law.truth() for law in grid], [f"{name}: not installed" for name in missing]
    best, sound = list[float](), False
    for place, (law, truth) in enumerate(zip(grid, truths, strict=True)):
        here = {name: rows[place][0] for name, rows in found.items()}
        lines.append(
            f"{law}: truth {'>=' if law.noise and law.rate < 1 else '='} {truth:.5g}; "
            + ", ".join(f"{name} {here[name]:.5g}" for name in here)
        )
        bounds = [one for name, one in here.items() if name not in ESTIMATES and one >= truth * (1 - _ROUNDING)]
        best.append(min(bounds, default=math.inf))
    for name, rows in found.items():
        numbers, seconds = zip(*rows, strict=True)
        below = sum(one < truth * (1 - _ROUNDING) for one, truth in zip(numbers, truths, strict=True))
        none = sum(not math.isfinite(one) for one in numbers)
        ratios = ((one + _ROUNDING) / (least + _ROUNDING) for one, least in zip(numbers, best, strict=True))
        loose = max([1.0, *(ratio for ratio in ratios if ratio < math.inf)])
        if name == OURS:
            sound = not (below or none) and loose <= LOOSEST and max(seconds) <= SLOWEST_S
        lines.append(
            f"{name}: {below} results below the truth ({sum(one < 0 for one in numbers)} negative), {none} without "
            f"a number, at most {loose:.4g} times the best bound and {max(seconds):.2g} CPU s each"
        )
    return lines, sound


def _timed(accountant: Callable[[AccountedLaw], Any], law: AccountedLaw) -> tuple[float, float]:
    """Epsilon, not a number where it is refused, and CPU seconds. What a library prints is dropped."""
    begun, nothing = time.process_time(), io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):
        warnings.simplefilter("ignore")
        try:
            epsilon = float(accountant(law))
        except Exception:  # Whatever a library raises.
            epsilon = math.nan
    return epsilon, time.process_time() - begun


if __name__ == "__main__":
    compared_lines, ours_is_sound = compared()
    print(*compared_lines, sep="\n")
    raise SystemExit(not ours_is_sound)
