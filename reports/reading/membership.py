"""Membership: what attacks on candidates reached, by observer and unit, beside the claims that speak about them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import stdtrit

from ...audit.claim import Claim
from ...audit.evidence import Design, Setting
from ...audit.metrics.roc import area, area_interval
from ...audit.metrics.scores_by_run import ScoresByRun
from ...audit.scope import beyond_all
from ...suites.results.record import Record
from .order import Order
from .run_folder import RunFolder, once_a_run

_WORDS = ("unit", "adjacency", "rounds", "design", "observer")
UNSIGNED = "no claim was signed here"


@dataclass(frozen=True, kw_only=True)
class Shadowed:
    """AUC of federations of which each is a target and a reference of the others: mean over targets and seeds.

    ``error``: its standard error by a jackknife, with ``freedom`` degrees of freedom (Satterthwaite over the seeds);
    None where some seed has none. It is about other draws of who is in, and of the training, on these data.
    """

    value: float
    error: float | None
    freedom: float

    def interval(self, level: float) -> tuple[float, float] | None:
        """Two-sided, by Student's t; None without an error."""
        if self.error is None:
            return None
        half = float(stdtrit(self.freedom, 0.5 + level / 2)) * self.error
        return self.value - half, self.value + half


@dataclass(frozen=True, kw_only=True)
class Membership:
    """One attack on one defense: its scores of all seeds. ``alone``: the same of one run as if its noise were given, by
    candidate. ``claims``: those that speak about it; none where ``beyond`` says why. ``candidates``: different
    non-members of all seeds. ``adversary``: what it is given, ``realistic``, ``worst_case`` or ``active``.
    ``shadowed``: where the runs of ``sides`` are references of each other, hence not independent; else None.
    """

    federation: str
    defense: str
    control: bool
    attack: str
    null: bool
    setting: Setting
    sides: ScoresByRun
    alone: ScoresByRun
    claims: tuple[Claim, ...]
    beyond: str
    candidates: int
    adversary: str = "realistic"
    shadowed: Shadowed | None = None

    @cached_property
    def area(self) -> float:
        """The AUC: of all scores together, or the mean over targets."""
        return area(self.sides) if self.shadowed is None else self.shadowed.value

    def interval(self, level: float) -> tuple[float, float] | None:
        """Of the AUC, over runs; of one run alone over its candidates; None where there is none."""
        if self.shadowed is not None:
            return self.shadowed.interval(level)
        found = area_interval(self.alone if self.sides.runs == 1 else self.sides, level)
        return None if found.low is None or found.high is None else (found.low, found.high)

    @property
    def about(self) -> tuple[int, str, str, str, int]:
        """Who looks, from the one who sees most, at what, over how long: attacks that share it share a panel."""
        seen = self.setting
        return -seen.observer.rank, str(seen.observer), str(seen.unit), str(seen.adjacency), seen.rounds


@once_a_run
def memberships(folder: RunFolder) -> list[Membership]:
    """One a federation, defense, observer and attack that left scores and their setting, in the suite's
    order; of one defense the observers who see most first.
    """
    order = Order.of(folder)
    groups: dict[tuple[str, str, str, str], list[Record]] = {}
    for record in folder.rows("attack", "null", status="ok"):
        if record.metric == "auc":
            groups.setdefault((record.federation, record.defense, record.observer, record.attack), []).append(record)
    found = [one for group in groups.values() if (one := _membership(folder, group)) is not None]
    return sorted(
        found,
        key=lambda one: (
            order.federation(one.federation),
            order.defense(one.defense),
            one.about,
            one.null,
            order.attack(one.attack),
        ),
    )


def setting_of(arrays: dict[str, np.ndarray], observer: str) -> Setting | None:
    """What the scores of an artifact are about; None for one that does not tell."""
    if not {"unit", "adjacency", "rounds", "design"} <= arrays.keys():
        return None
    told = {name: str(arrays[name]) for name in ("unit", "adjacency", "design")}
    try:
        return Setting.from_dict(told | {"observer": observer, "rounds": int(arrays["rounds"])})
    except (TypeError, ValueError):  # Written by another version, or by hand.
        return None


def _membership(folder: RunFolder, group: Sequence[Record]) -> Membership | None:
    first = group[0]
    arrays: list[dict[str, np.ndarray]] = []
    for record in sorted(group, key=lambda record: record.seed or 0):
        # Of all but one seed the numbers alone: to open the words of a setting too takes twice as long.
        one = folder.files.arrays(record, _WORDS if arrays else ())
        if one is not None and _scored(one):
            arrays.append(one)
    setting = setting_of(arrays[0], first.observer) if arrays else None
    if setting is None:
        return None
    claims, beyond = speaking(folder, first.federation, first.defense, setting)
    return Membership(
        federation=first.federation,
        defense=first.defense,
        control=first.control,
        attack=first.attack,
        null=first.role == "null",
        setting=setting,
        sides=(sides := _pooled(arrays, setting.design)),
        alone=_alone(arrays[0], sides),
        claims=claims,
        beyond=beyond,
        candidates=sum(map(_candidates, arrays)),
        adversary=str(arrays[0].get("adversary", "realistic")),
        shadowed=_shadowed(arrays),
    )


def _scored(one: dict[str, np.ndarray]) -> bool:
    """Whether finite scores of both sides are there, as membership attacks give them."""
    return all(side in one and one[side].ndim == 1 and np.isfinite(one[side]).all() for side in ("member", "nonmember"))


def _shadowed(arrays: Sequence[dict[str, np.ndarray]]) -> Shadowed | None:
    """Seeds share no federation and no coin: the squares of their errors add up."""
    if not all("auc" in one for one in arrays):
        return None
    value = float(np.mean([float(one["auc"]) for one in arrays]))
    if not all("auc_error" in one for one in arrays):
        return Shadowed(value=value, error=None, freedom=0.0)
    squares = np.array([float(one["auc_error"]) for one in arrays]) ** 2
    freedoms = np.array([float(one["auc_freedom"]) for one in arrays])
    freedom = float(squares.sum() ** 2 / (squares**2 / freedoms).sum())
    return Shadowed(value=value, error=float(np.sqrt(squares.sum())) / len(arrays), freedom=freedom)


def _pooled(arrays: Sequence[dict[str, np.ndarray]], design: Design) -> ScoresByRun:
    """The scores of all seeds; runs of two seeds are two runs."""
    member, nonmember = (np.concatenate([one[side] for one in arrays]) for side in ("member", "nonmember"))
    if design is Design.INDEPENDENT:
        return ScoresByRun.of(member, nonmember)
    runs: list[tuple[np.ndarray, np.ndarray]] = []
    begun = 0
    for one in arrays:
        inside, outside = _runs(one, "member"), _runs(one, "nonmember")
        named, place = np.unique(np.concatenate([inside, outside]), return_inverse=True)
        runs.append((begun + place[: len(inside)], begun + place[len(inside) :]))
        begun += len(named)
    return ScoresByRun.of(member, nonmember, *(np.concatenate(side) for side in zip(*runs, strict=True)))


def _candidates(one: dict[str, np.ndarray]) -> int:
    """Different non-members: one that is asked about at ten clients, or at ten shadow federations, is one."""
    if "nonmember_candidates" in one:
        return len(np.unique(one["nonmember_candidates"]))
    if "nonmember_run" in one:
        return int(np.bincount(one["nonmember_run"]).max())
    return len(one["nonmember"])


def _runs(one: dict[str, np.ndarray], side: str) -> np.ndarray:
    """Which run each score is of: independent ones, shadow federations, or the only one."""
    told = one.get(f"{side}_runs", one.get(f"{side}_run"))
    return np.zeros(len(one[side]), dtype=np.int64) if told is None else told


def _alone(one: dict[str, np.ndarray], sides: ScoresByRun) -> ScoresByRun:
    if sides.runs > 1 or "member_candidates" not in one:
        return sides.given_the_runs
    return ScoresByRun.of(one["member"], one["nonmember"], one["member_candidates"], one["nonmember_candidates"])


def speaking(folder: RunFolder, federation: str, defense: str, setting: Setting) -> tuple[tuple[Claim, ...], str]:
    """The defense's claims that speak about such evidence; where none does, why."""
    own = [one.claim for one in folder.claims if (one.federation, one.defense) == (federation, defense)]
    reasons = [beyond_all(claim, setting) for claim in own]
    claims = tuple(claim for claim, reason in zip(own, reasons, strict=True) if not reason)
    if claims:
        return claims, ""
    return (), reasons[0] if reasons else UNSIGNED
