"""Describe what a planned run would do, before it starts."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from scipy.special import ndtri, stdtrit

from ...attacks.labels.label_attack import LabelAttack
from ...attacks.membership.source_attack import SourceAttack
from ...audit.binomial import largest_certifiable_epsilon
from ...audit.evidence import Exposures
from ...audit.metrics import null_area_error
from ...audit.observer import FINAL_MODEL, UPLOADS
from ...audit.supplied.power import certifiable
from ...audit.wording import counted
from ...fl.candidates import PlantedRecords
from ...fl.data.datasets import load_dataset
from ...fl.models.network import WORDS, returns_probabilities
from ...fl.streams import Streams
from ...fl.task import network_of
from ..attacking.jobs import OtherAuditJob, TrainingJob
from ..attacking.trial import TrialJob
from ..audits.audit_method import PlannedAudit
from ..config.other_federations import vertical_task_of
from ..config.resolve import AttackEntry, plan_of, task_of
from ..config.tables.suite import FederationSpec
from ..results.outcome import Trained, other_training
from ..vertical.audit import VerticalAuditJob, why_not
from ..vertical.label_coins import most_in_one_run
from .run_plan import RunPlan

_MOST_AUDITS = 100
"""Audits that are described; to compute what a new claim's audit can show takes up to half a second."""

_NAMED = 3
"""Attacks that a line of the plan names."""


def headline(plan: RunPlan) -> str:
    """Return one line that states how much work the planned run contains."""
    # A suite of mutants alone trains nothing, and a line of zeros would hide what it does.
    if plan.mutants and not plan.trials and not plan.others:
        versions = f"{counted(len(plan.mutants), 'mutant')} with the correct version of each"
        return f"{versions}, {counted(len(plan.mutants[0].seeds), 'seed')}; {counted(len(plan.cells), 'cell')}"
    trainings = _trainings(plan)
    facts = [trial.cells[0].facts for trial in trainings]
    defenses = len(dict.fromkeys(fact["defense"] for fact in facts))
    observing = [cell.facts for job in (*trainings, *plan.shadows) for cell in job.cells]
    attacks = {fact["attack"] for fact in observing if fact["role"] != "utility"}
    shadows = sum(job.count for job in plan.shadows)
    seeds = len({trial.seed for trial in trainings})
    audits = [job for job in plan.others if isinstance(job, OtherAuditJob)]
    replicas = sum(block.runs for block in plan.blocks) + sum(job.runs for job in audits)
    attacked = sum(audit.attacked is not None for audit in plan.audits)
    shadowed = f", {counted(shadows, 'shadow')}" if shadows else ""
    return (
        f"{counted(defenses, 'defense')} x {counted(len(attacks), 'attack')}, {counted(seeds, 'seed')}: "
        f"{counted(len(trainings), 'federation')}{shadowed}; "
        f"{counted(len(plan.audits) + len(audits) - attacked, 'audit')} on {counted(replicas, 'replica')}"
        f"{f', {attacked} by attacks' if attacked else ''}; {counted(len(plan.cells), 'cell')}"
    )


def _trainings(plan: RunPlan) -> list[TrainingJob]:
    return [*plan.trials, *(job for job in plan.others if isinstance(job, TrainingJob))]


def plan_lines(plan: RunPlan) -> list[str]:
    """Return lines that state what is trained on each federation, and what the audit of each claim and the attacks
    can show."""
    lines, own = [], dict[str, Trained]()
    for name, jobs in _by_federation(plan).items():
        own[name] = _trained(jobs[0].cells[0].facts)
        lines.append(f"train  {name}: {', '.join(own[name])}, {jobs[0].words}, {counted(len(jobs), 'federation')}")
        if isinstance(spec := jobs[0].federation, FederationSpec):
            data = load_dataset(spec.data)
            lines += [f"data   {own[name][0]}: {note}" for note in data.notes]
            if returns_probabilities(network_of(data, spec.model, None)):
                lines.append(f"model  {own[name][1]}: {WORDS}")
    for audit in plan.others:
        if isinstance(audit, OtherAuditJob):
            words = f"audit  {audit.cell.facts['defense']}: {audit.claim.describe()}"
            power = _vertical_power(audit) if isinstance(audit, VerticalAuditJob) else _power(audit)
            lines.append(f"{words}: {power}")
    lines += [f"mutant {job.name}: {job.correct.facts['federation']}" for job in plan.mutants]
    lines += [line for audit in plan.audits[:_MOST_AUDITS] for line in _audit_lines(audit, own)]
    if (more := len(plan.audits) - _MOST_AUDITS) > 0:
        lines.append(f"audit  {more} more audits are not shown: select their defenses by --only to see them")
    return [*lines, *(f"attack {power.words(names)}" for power, names in _attack_powers(plan).items())]


def weak_attacks(plan: RunPlan) -> str:
    """Return which attacks the run cannot distinguish from guessing, and what would help; empty if it can distinguish
    all.
    """
    return "; ".join(power.words(names) for power, names in _attack_powers(plan).items() if power.weak)


@dataclass(frozen=True)
class AttackPower:
    """The result of guessing, for attacks on one federation that score equally many units in equally many seeds.

    Args:
        units: members and non-members, of an AUC; else the number of guesses, each right or wrong.
        chance: what guessing reaches on average.
    """

    federation: str
    units: tuple[int, ...]
    chance: float
    seeds: int

    @property
    def half_width(self) -> float:
        """Half the expected width of the 95 % interval of a guess: over seeds, or over the units if there is a single
        seed.
        """
        binomial = math.sqrt(self.chance * (1 - self.chance) / self.units[0])
        error = binomial if len(self.units) == 1 else null_area_error(*self.units)
        quantile = stdtrit(self.seeds - 1, 0.975) if self.seeds > 1 else ndtri(0.975)
        return float(quantile * error / math.sqrt(self.seeds))

    @property
    def weak(self) -> bool:
        """Whether an attack halfway between guessing and an attack without error could not be distinguished from
        guessing. This is so with two seeds, whose results have no interval.
        """
        return self.seeds == 2 or self.half_width > (1 - self.chance) / 2

    @property
    def _size(self) -> str:
        return f"{' + '.join(map(str, self.units))} {'guesses' if len(self.units) == 1 else 'candidates'}"

    def words(self, attacks: list[str]) -> str:
        """Describe the interval and, if it is too wide, the number of seeds or units that would suffice."""
        more = f" and {len(attacks) - _NAMED} more" if len(attacks) > _NAMED else ""
        who = f"{', '.join(attacks[:_NAMED])}{more} on {self.federation}: {self._size}, {counted(self.seeds, 'seed')}"
        metric = "accuracy" if len(self.units) == 1 else "AUC"
        reached = f"{who}: an attack that only guesses gives {metric} {self.chance:.2f} ± {self.half_width:.2f}"
        if not self.weak:
            return reached
        seeds = next(n for n in count(3) if not replace(self, seeds=n).weak)
        if self.seeds == 2:
            return f"{who}: two seeds give no confidence interval; {seeds} seeds would be enough"
        alike = (replace(self, units=(n,) * len(self.units)) for n in count(1))
        least = next(one for one in alike if not one.weak)
        halfway = f"{metric} {(1 + self.chance) / 2:.2f} cannot be distinguished from guessing"
        return f"{reached}, so {halfway}; {seeds} seeds or {least._size} would be enough"


def _attack_powers(plan: RunPlan) -> dict[AttackPower, list[str]]:
    """The labels of attacks by their power; where defenses have different numbers of seeds, the widest interval is
    taken.
    """
    cells = [(item.cell.facts, job, item.entry) for job in plan.trials for item in job.attacks]
    seeds = Counter((facts["federation"], facts["attack"], facts["defense"]) for facts, _, _ in cells)
    places = {(facts["federation"], facts["attack"]): (job, entry) for facts, job, entry in cells}
    found: dict[AttackPower, list[str]] = {}
    for place, (job, entry) in places.items():
        if scored := _scored(job, entry):
            powers = (AttackPower(place[0], *scored, n) for here, n in seeds.items() if here[:2] == place)
            found.setdefault(max(powers, key=lambda power: power.half_width), []).append(place[1])
    return found


def _scored(job: TrialJob, entry: AttackEntry) -> tuple[tuple[int, ...], float] | None:
    """The units that an attack scores, and what guessing reaches; None where the interval is not predicted."""
    attack, task = entry.attack, task_of(job.federation, job.seed)
    if isinstance(attack, LabelAttack) and entry.observer.rank >= UPLOADS.rank:
        uploads = max(1, round(plan_of(job.federation, job.change, task).expected_cohort))
        return (uploads,), 1 / task.network.classes
    try:
        planted = attack.plant(task, Streams(job.seed).generator("candidates"))
    except Exception:  # A user's attack may raise anything: its rows record the reason.
        return None
    # Exposures have no AUC.
    if planted is None or type(attack).run.__annotations__.get("return") in (Exposures, Exposures.__name__):
        return None
    inside, outside = int(planted.member.sum()), int((~planted.member).sum())
    if isinstance(planted, PlantedRecords):
        values = len(planted.shown.column)
        return (inside // values,), 1 / values
    if isinstance(attack, SourceAttack):
        return ((inside,), 1 / task.clients) if task.clients > 1 else None
    return ((inside, outside), 0.5) if inside and outside else None


def _by_federation(plan: RunPlan) -> dict[str, list[TrainingJob]]:
    found: dict[str, list[TrainingJob]] = {}
    for job in _trainings(plan):
        found.setdefault(job.cells[0].facts["federation"], []).append(job)
    return found


def _power(audit: OtherAuditJob) -> str:
    best = largest_certifiable_epsilon(audit.tested, audit.tested, audit.claim.delta, audit.alpha / 2)
    return f"{counted(audit.replicas, 'run')} per arm, max certifiable {best:.2f}"


def _vertical_power(audit: VerticalAuditJob) -> str:
    """How many runs the audit of a claim makes, and what it can show."""
    assert audit.federation.audit is not None
    outside = why_not(audit.claim, audit.federation.audit.design, frozen=audit.federation.frozen)
    if outside:
        return f"OUT OF SCOPE: {outside}"
    if audit.one_run:
        task = vertical_task_of(audit.federation, audit.seed)
        people = len(task.people)
        most = most_in_one_run(audit.claim, people, task.network.passive, alpha=audit.alpha)
        return f"1 run in which a coin draws each of {counted(people, 'label')}, max certifiable {most:.2f}"
    # A party's messages are read by two scores, which share alpha; final models are read by one.
    share = audit.alpha if audit.claim.observer == FINAL_MODEL else audit.alpha / 2
    best = certifiable(audit.claim, audit.replicas, audit.replicas, alpha=share)
    return f"{counted(audit.replicas, 'run')} per arm, max certifiable {best:.2f}"


def _trained(facts: Mapping[str, Any]) -> Trained:
    return facts["dataset"], facts["model"]


def _audit_lines(audit: PlannedAudit, own: Mapping[str, Trained]) -> list[str]:
    """Lines of one audit: what it can show, described by its method, or why it is out of scope or will fail."""
    facts = audit.cell.facts
    where = other_training(_trained(facts), own.get(facts["federation"]))
    claim = f"audit  {facts['defense']}: {audit.claim.describe()}{f', {where}' if where else ''}"
    if audit.out_of_scope:
        return [f"{claim}: OUT OF SCOPE: {audit.out_of_scope}"]
    try:
        first, *more = audit.method.plan_text(audit)
    # Printed, not raised: one audit that will fail must not hide the plan of all others.
    except ValueError as error:
        return [f"{claim}: FAILS: {error}"]
    return [f"{claim}: {first}", *(f"       {line}" for line in more)]
