"""Pool the scores of each membership attack, find the claims that cover it, and the best attack for each observer and
attacked unit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import stdtrit

from ...audit.claim import Claim, Unit
from ...audit.evidence import Design, Setting
from ...audit.finding import beyond_all
from ...audit.metrics import ScoresByRun, area, area_interval
from ...audit.observer import Observer
from ...suites.results.record import Record
from .pooling import LEVEL, grouped, shared
from .run_folder import RunFolder, once_per_run

_SETTING_WORDS = ("unit", "adjacency", "rounds", "design", "observer")
Question = tuple[Observer, Unit]
"""What an attack tries to infer: the observer that it has, and the unit whose membership it guesses."""
NOTHING_STATED = "no claim is stated on this federation"


@dataclass(frozen=True, kw_only=True)
class Shadowed:
    """The AUC of an attack on shadow federations, averaged over targets and seeds. Each federation is the target in
    turn, with the others as its reference models.

    ``error``: its standard error by a jackknife, with ``freedom`` degrees of freedom (Satterthwaite over the seeds);
    None if a seed has none. It covers other draws of the membership and of the training, on the same data.
    """

    value: float
    error: float | None
    freedom: float

    def interval(self, level: float) -> tuple[float, float] | None:
        """Return the two-sided confidence interval of the AUC by Student's t; None if the AUC has no standard error."""
        if self.error is None:
            return None
        half = float(stdtrit(self.freedom, 0.5 + level / 2)) * self.error
        return self.value - half, self.value + half


@dataclass(frozen=True, kw_only=True)
class Membership:
    """The pooled scores of one membership attack on one defense.

    ``sides``: its scores of all seeds, members and non-members. ``alone``: the scores of a single run by candidate,
    which gives intervals conditional on that run; None if there are several runs. ``claims``: the claims that cover
    the attack's setting; if there is none, ``beyond`` states the reason. ``candidates``: number of distinct non-members
    over all seeds. ``adversary``: ``realistic``, ``worst_case`` or ``active``. ``shadowed``: the AUC where the runs of
    ``sides`` are references for each other and therefore not independent; else None.
    """

    federation: str
    defense: str
    control: bool
    attack: str
    null: bool
    setting: Setting
    sides: ScoresByRun
    alone: ScoresByRun | None
    claims: tuple[Claim, ...]
    beyond: str
    candidates: int
    adversary: str = "realistic"
    shadowed: Shadowed | None = None

    @cached_property
    def area(self) -> float:
        """The AUC of all scores together; for shadow federations, the mean AUC over those that were attacked."""
        return area(self.sides) if self.shadowed is None else self.shadowed.value

    def interval(self, level: float) -> tuple[float, float] | None:
        """Return the confidence interval of the AUC over several runs, or over the candidates if there is a single run;
        None if there is none.
        """
        if self.shadowed is not None:
            return self.shadowed.interval(level)
        if self.two_seeds:
            return None
        # A single run gives no variance over runs, so its interval is over candidates.
        found = area_interval(self.alone or self.sides, level)
        return None if found.low is None or found.high is None else (found.low, found.high)

    @property
    def two_seeds(self) -> bool:
        """Whether the scores come from two independent runs, which are too few for an informative interval."""
        return self.shadowed is None and self.sides.runs == 2

    @property
    def question(self) -> Question:
        return self.setting.observer, self.setting.unit

    @property
    def over(self) -> str:
        """A phrase that says over which random draws the confidence interval ``interval`` holds."""
        if self.shadowed is not None:
            return "other draws of who takes part"
        return "the candidates of one run" if self.sides.runs == 1 else f"{self.sides.runs} independent runs"

    @property
    def about(self) -> tuple[int, str, str, str, int]:
        """A sort key that puts the strongest observer first; attacks with equal keys have the same observer and
        attacked unit and share a panel.
        """
        seen = self.setting
        # Ties are broken by text so that the order does not depend on the order of the rows.
        return -seen.observer.rank, str(seen.observer), str(seen.unit), str(seen.adjacency), seen.rounds


@once_per_run
def memberships(folder: RunFolder) -> list[Membership]:
    """Pool scores over seeds for each federation, defense, observer and membership attack, in the suite's order; for
    each defense, stronger observers come first.
    """
    order = folder.order
    scored = (record for record in folder.rows("attack", "null", status="ok") if record.metric == "auc")
    groups = grouped(scored, "federation", "defense", "observer", "attack")
    found = [one for group in groups if (one := _membership(folder, group)) is not None]
    return sorted(found, key=lambda one: (order.place(one), one.about, one.null, order.attack(one.attack)))


def setting_of(arrays: dict[str, np.ndarray], observer: str) -> Setting | None:
    """Return the unit, adjacency, observer and rounds to which stored scores apply; None if the file does not state
    them.
    """
    if not {"unit", "adjacency", "rounds", "design"} <= arrays.keys():
        return None
    stored = {name: str(arrays[name]) for name in ("unit", "adjacency", "design")}
    try:
        return Setting.from_dict(stored | {"observer": observer, "rounds": int(arrays["rounds"])})
    except (TypeError, ValueError):  # Written by another version, or edited by hand.
        return None


def _membership(folder: RunFolder, group: Sequence[Record]) -> Membership | None:
    first = group[0]
    arrays: list[dict[str, np.ndarray]] = []
    for record in sorted(group, key=lambda record: record.seed or 0):
        # The setting is the same for all seeds; reading its texts from each file would double the time.
        one = folder.files.arrays(record, _SETTING_WORDS if arrays else ())
        if one is not None and _scored(one):
            arrays.append(one)
    setting = setting_of(arrays[0], first.observer) if arrays else None
    if setting is None:
        return None
    claims, beyond = covering_claims(folder, first.federation, first.defense, setting)
    return Membership(
        **shared(first, "federation", "defense", "control", "attack"),
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
    """Whether the arrays hold finite scores of members and of non-members."""
    return all(side in one and one[side].ndim == 1 and np.isfinite(one[side]).all() for side in ("member", "nonmember"))


def _shadowed(arrays: Sequence[dict[str, np.ndarray]]) -> Shadowed | None:
    """Seeds are independent of each other, so the squares of their standard errors add up."""
    # Only attacks on shadow federations store their AUC; all others have it computed from the scores.
    if not all("auc" in one for one in arrays):
        return None
    value = float(np.mean([float(one["auc"]) for one in arrays]))
    if not all("auc_error" in one for one in arrays):
        return Shadowed(value=value, error=None, freedom=0.0)
    squares = np.array([float(one["auc_error"]) for one in arrays]) ** 2
    freedoms = np.array([float(one["auc_freedom"]) for one in arrays])
    # Satterthwaite: a seed with a large error dominates the sum and also its degrees of freedom.
    freedom = float(squares.sum() ** 2 / (squares**2 / freedoms).sum())
    return Shadowed(value=value, error=float(np.sqrt(squares.sum())) / len(arrays), freedom=freedom)


def _pooled(arrays: Sequence[dict[str, np.ndarray]], design: Design) -> ScoresByRun:
    """The scores of all seeds together. Run numbers restart with each seed, so they are renumbered here."""
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
    """Number of distinct non-members: one that is scored in ten clients or ten shadow federations counts once."""
    if "nonmember_candidates" in one:
        return len(np.unique(one["nonmember_candidates"]))
    if "nonmember_run" in one:
        return int(np.bincount(one["nonmember_run"]).max())
    return len(one["nonmember"])


def _runs(one: dict[str, np.ndarray], side: str) -> np.ndarray:
    """(n,), the run of each score: an independent run, a shadow federation, or 0 for the only run."""
    stored = one.get(f"{side}_runs", one.get(f"{side}_run"))
    return np.zeros(len(one[side]), dtype=np.int64) if stored is None else stored


def _alone(one: dict[str, np.ndarray], sides: ScoresByRun) -> ScoresByRun | None:
    if sides.runs > 1:  # Scores of thousands of seeds fill the memory once, not twice.
        return None
    if "member_candidates" not in one:
        return sides.given_the_runs
    return ScoresByRun.of(one["member"], one["nonmember"], one["member_candidates"], one["nonmember_candidates"])


def covering_claims(
    folder: RunFolder, federation: str, defense: str, setting: Setting
) -> tuple[tuple[Claim, ...], str]:
    """Return the defense's claims that apply to evidence of this unit, adjacency, observer and rounds; if none does,
    also return why.
    """
    own = [one.claim for one in folder.claims_on(federation, defense)]
    reasons = [beyond_all(claim, setting) for claim in own]
    claims = tuple(claim for claim, reason in zip(own, reasons, strict=True) if not reason)
    if claims:
        return claims, ""
    return (), reasons[0] if reasons else NOTHING_STATED


ADVERSARIES = ("realistic", "worst_case", "active")


@dataclass(frozen=True, kw_only=True)
class BestAttack:
    """The attack with the largest AUC for one observer, attacked unit and kind of adversary (realistic, worst-case or
    active). ``ends`` is the confidence interval of the AUC, corrected for the number of attacks compared.
    """

    one: Membership
    ends: tuple[float, float] | None


def best_attacks(found: Sequence[Membership]) -> list[BestAttack]:
    """Find the attack with the largest AUC for each defense, observer, attacked unit and kind of adversary (realistic,
    worst-case or active). The result has the order of the given attacks ``found``.
    """
    chosen = []
    for here in grouped(found, "defense", "question"):
        # Adversaries with different knowledge are kept apart: a worst-case attack would hide every realistic one.
        for kind in ADVERSARIES:
            if alike := [one for one in here if one.adversary == kind]:
                best = max(alike, key=lambda one: one.area)
                # Choosing the best of several would inflate its bound: Bonferroni over all that could have been chosen.
                chosen.append(BestAttack(one=best, ends=best.interval(1 - (1 - LEVEL) / len(here))))
    return chosen


def in_order(questions: Sequence[Question]) -> list[Question]:
    """Return the distinct pairs of observer and attacked unit, with the strongest observer first."""
    return sorted(set(questions), key=lambda question: (-question[0].rank, str(question[0]), question[1]))
