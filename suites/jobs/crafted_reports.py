"""Crafted reports: independent trials of a defense's own hooks on the rows that differ most; nothing is trained.

A claim about what a client sends holds for every update that it might send, so also for these: one client's row is the
present or the absent one of a pair, everybody else's is the absent one, and the observer knows all of them.
"""

from dataclasses import dataclass

import numpy as np
import torch

from ...audit.arrays import BoolArray, FloatArray
from ...audit.claim import Claim, Unit
from ...audit.evidence import Projections, Setting
from ...audit.observer import SHUFFLED
from ...fl.laws.law import Mixing, ReportLaw
from ...fl.partitions.sampling import FixedSize
from ...fl.plan import Plan
from ...fl.task import Task
from ..config.canaries import JOINT
from ..config.resolve import plan_of, task_of
from ..config.suite import AuditSpec
from .cells import BlockJob
from .crafted_trial import COORDINATE, Trial, check_noise, rows_that_differ, seen_in_rounds

NARROW = 30
"""How many times as often a claim about one coordinate is tried: only that coordinate is drawn."""
_NUMBERS = 2**22
"""Numbers that a call of the hooks holds at most."""


@dataclass(frozen=True, eq=False)
class CraftedBatch:
    """Independent trials of one world.

    Args:
        ratios: for each trial and round the log-likelihood ratio of what the observer saw.
        place: (n,), behind a shuffler, how much what arrived in the sender's own place looks like the present row, in
            [0, 1], over the rounds; zeros elsewhere.
        odd: (n,), whether a report came that its own row cannot give by the law.
    """

    ratios: Projections
    place: FloatArray
    odd: BoolArray


def report_law(job: BlockJob) -> ReportLaw | None:
    """The law of one client's report, where the defense publishes one to the claim's observer and that sees reports.

    Raises:
        ValueError: for a law that cannot be asked, or a claim of a client or a rate that there is not.
    """
    if job.claim.observer.rank < SHUFFLED.rank:
        return None
    _, plan = federation_of(job)
    try:
        law = job.protection.law(job.claim.observer, plan, subject(job.claim, plan))
        of_reports = law if isinstance(law, ReportLaw) else None
    except ValueError:
        raise
    except Exception as error:  # Whatever a part raises is told to the user.
        raise ValueError(f"its law cannot be asked: {type(error).__name__}: {error}") from error
    if of_reports is not None:
        rate_of(job.claim)
    return of_reports


def untried(job: BlockJob) -> str:
    """Why crafted reports are no evidence of this claim, though there is a law; empty where they are."""
    unit, part = job.claim.unit, job.claim.part
    if unit in (Unit.REPORT, Unit.CLIENT) or (unit is Unit.COORDINATE and part == COORDINATE):
        return ""
    if unit is Unit.SAMPLE and "rate" in job.claim.parameters and federation_of(job)[1].lot == FixedSize(1):
        return ""
    return f"no report is crafted for one {unit}, {part}: this claim is not audited"


def subject(claim: Claim, plan: Plan) -> int:
    """The client whose report differs: one of those that the claim speaks of. ValueError where there is no such one."""
    who = claim.parameters.get("client", 0)
    if isinstance(who, bool) or not isinstance(who, int) or not 0 <= who < plan.clients:
        raise ValueError(f"a claim's client must be a whole number in 0..{plan.clients - 1}, got {who!r}")
    return who


def rate_of(claim: Claim) -> float:
    """Chance that the report is of the record in question."""
    rate = claim.parameters.get("rate", 1.0) if claim.unit is Unit.SAMPLE else 1.0
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1:
        raise ValueError(f"a claim's rate must be in (0, 1], got {rate!r}")
    return float(rate)


def crafted_evidence(job: BlockJob, law: ReportLaw) -> tuple[list[CraftedBatch], list[CraftedBatch]]:
    """``job.replicas`` trials of world 0, and of world 1.

    Raises:
        ValueError: for a law or hooks that give no numbers of the right shape, for replicas that share their noise,
            and for noise that the streams do not move.
    """
    task, plan = federation_of(job)
    trial = _trial(job, law, plan)
    check_noise(job, trial, task, plan)
    most = _NUMBERS // (len(trial.senders) * len(trial.present))
    size = max(1, min(most, job.audit.batch, job.replicas))
    whole, rest = divmod(job.replicas, size)
    sizes = list(enumerate([size] * whole + ([rest] if rest else [])))
    out, within = ([_trials(job, trial, task, plan, world, n, number) for number, n in sizes] for world in (0, 1))
    return out, within


def spent_on(claim: Claim, audit: AuditSpec) -> AuditSpec:
    """The audit with as many trials of one coordinate as cost no more than those of all."""
    narrow = claim.part == COORDINATE and audit.design != "one_run"
    return audit.model_copy(update={"replicas": audit.replicas * NARROW}) if narrow else audit


def witness(claim: Claim, law: ReportLaw) -> str:
    """What was tried, in words."""
    where = {Mixing.NONE: "", Mixing.ROWS: ", rows shuffled", Mixing.COORDINATES: ", each coordinate shuffled"}
    what = "" if claim.part == JOINT else f" in {claim.part}"
    mixed = where[law.mixing] if claim.observer.rank == SHUFFLED.rank else ""
    return f"reports on the two rows that differ most{what}{mixed}, scored by their log-likelihood ratio"


def federation_of(job: BlockJob) -> tuple[Task, Plan]:
    """The claim's own: how many clients there are is part of what a shuffler promises."""
    task = task_of(job.federation, job.seed)
    return task, plan_of(job.federation, job.change, task)


def _trial(job: BlockJob, law: ReportLaw, plan: Plan) -> Trial:
    claim, who = job.claim, subject(job.claim, plan)
    shuffled = claim.observer.rank == SHUFFLED.rank
    if shuffled and law.mixing is Mixing.NONE:
        raise ValueError("a claim behind a shuffler needs a law that says what is shuffled, rows or coordinates")
    # Who can tell the reports apart learns nothing of one from the others.
    senders = tuple(range(plan.clients)) if shuffled else (who,)
    absent, present = rows_that_differ(claim, law, plan)
    if claim.part == COORDINATE and shuffled and law.mixing is Mixing.COORDINATES:
        # Coordinates that are noised and shuffled apart are the same whether others are drawn or not.
        absent, present = absent[:1], present[:1]
    return Trial(
        law=law,
        shuffled=shuffled,
        senders=senders,
        row=senders.index(who),
        absent=absent,
        present=present,
        rate=rate_of(claim),
    )


def _trials(
    job: BlockJob, trial: Trial, task: Task, plan: Plan, world: int, replicas: int, number: int
) -> CraftedBatch:
    """One call of the hooks in each round that the claim covers."""
    begun = seen_in_rounds(job, trial, task, plan, world, replicas, number)
    rounds = [trial.read(seen, world) for seen in begun]
    values = torch.stack([one.ratio for one in rounds], dim=1).double().numpy()
    ratios = Projections(values, np.ones(values.shape, dtype=np.bool_), Setting.claimed(job.claim))
    place = torch.stack([one.place for one in rounds]).double().mean(0).numpy()
    return CraftedBatch(ratios, place, torch.stack([one.odd for one in rounds]).any(0).numpy())
