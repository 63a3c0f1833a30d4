"""Train shadow federations, each on a random half of the samples, and attack the final model of each in turn."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ...attacks.attack import Attack
from ...attacks.membership.shadow_attack import ShadowAttack
from ...attacks.shadow_bank import ShadowBank
from ...attacks.shadow_models import ShadowModels
from ...audit.claim import Claim
from ...audit.evidence import CandidateScores, MembershipScores
from ...audit.wording import counted
from ...fl.engine import run_federation
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.streams import Streams, uniform
from ...fl.task import Task
from ...fl.training.local import Batch, LocalTrainer
from ..config.resolve import executor_of, plan_of, task_of
from ..config.tables.suite import FederationSpec, PlanChange
from ..results.record import Record
from ..results.store import Store
from ..scoring.membership_rows import groups, score_shadows
from .finished_cells import AttackCell, Clock
from .jobs import TrainingJob


@dataclass(frozen=True, kw_only=True)
class ShadowJob(TrainingJob):
    """A job that trains shadow federations on random halves of the samples and attacks each of them in turn.

    Args:
        claims: the claims that the defense states about this plan.
        count: number of federations.
        device: where they are trained.
    """

    # Attacks share one job because training is the cost: a bank of federations is trained once for all of them.

    federation: FederationSpec
    change: PlanChange
    protection: Protection
    claims: tuple[Claim, ...]
    count: int
    device: str = "cpu"

    @property
    def words(self) -> str:
        return counted(self.count, "shadow")

    def trained(self, store: Store, clock: Clock) -> ShadowModels:
        task = task_of(self.federation, self.seed)
        return train_shadows(
            task,
            plan_of(self.federation, self.change, task),
            self.protection,
            Streams(self.seed),
            count=self.count,
            executor=executor_of(self.federation),
            device=self.device,
        )

    def attacked(self, item: AttackCell, trained: ShadowModels, store: Store) -> list[Record]:
        return rows_of_attack(item, self.seed, trained, store)


_FIRST_BLOCK = 2**29
"""First number of the batches of shadows, chosen so that they share no random draw with a trial or an audit's runs."""
_BATCH_BYTES = 2**25
"""Largest size of the gradients of one client's lot in all federations of a batch; larger batches take four times as
long, because of page faults.
"""


def train_shadows(
    task: Task,
    plan: Plan,
    protection: Protection,
    streams: Streams,
    *,
    count: int,
    executor: type[LocalTrainer] | None = None,
    device: str = "cpu",
) -> ShadowModels:
    """Train ``count`` shadow federations in pairs: a fair coin per sample decides which federation of a pair includes
    it.

    They share all public facts, including the initial model; each has its own cohorts, lots and noise.

    Raises:
        ValueError: if the count is odd, or the plan or protection does not allow leaving samples out.
        FloatingPointError: if training diverged.
    """
    if count < 2 or count % 2:
        raise ValueError(
            f"the number of shadow federations must be even and >= 2, because they are trained in pairs, got {count}"
        )
    included = draw_membership(streams, count, len(task.labels))
    size = _batch(task, plan)
    batches = [included[start : start + size] for start in range(0, count, size)]
    models = torch.cat(
        [
            run_federation(
                task,
                plan,
                protection,
                streams,
                batch=Batch(replicas=len(masks), block=_FIRST_BLOCK + number, included=masks),
                executor=executor,
                device=device,
            )
            for number, masks in enumerate(batches)
        ]
    )
    if not bool(torch.isfinite(models).all()):
        raise FloatingPointError("training diverged: a final model holds NaN or infinity")
    return ShadowModels.of(task, plan, protection, models=models, included=included)


def draw_membership(streams: Streams, count: int, pool: int) -> Tensor:
    """Draw which samples each shadow federation includes: a boolean array ``(count, pool)`` with one row per federation
    and one column per sample. The two federations of a pair include complementary halves.
    """
    # Complementary pairs give every sample exactly count / 2 models with it and as many without it.
    halves = uniform(streams.generator("membership"), (count // 2, pool)) < 0.5
    return torch.stack([halves, ~halves], dim=1).flatten(0, 1)


def _batch(task: Task, plan: Plan) -> int:
    """Number of federations that are trained together."""
    # 1.5: a random lot may be larger than expected, and the batch must hold the largest one.
    rows = max(plan.clients, *(1.5 * plan.expected_lot(client) for client in range(plan.clients)))
    return max(2, int(_BATCH_BYTES / (4 * rows * plan.layout.dim)))


def rows_of_attack(item: AttackCell, seed: int, shadows: ShadowModels, store: Store) -> list[Record]:
    """Build the result rows of one attack on every model in turn, with the others as its references."""
    scored, attack, bank, streams = [], item.entry.attack, shadows.bank, Streams(seed)
    for target in range(bank.models):
        # One stream per target: the result for a target does not depend on how many others there are.
        rng = streams.generator(f"attack {item.entry.label}", replicate=target)
        evidence = attack.run(shadows.view(target), shadows.knowledge(target), rng)
        if not isinstance(evidence, CandidateScores):
            raise TypeError(
                f"an attack on shadow federations must return CandidateScores, got {type(evidence).__name__}"
            )
        scored.append(evidence.against(bank.included[target]))
    without = [_without(group, attack, bank, scored) for group in groups(bank.models)]
    return score_shadows(item.cell, scored, without, bank.references(0).models, store)


def _without(
    group: list[int], attack: Attack, bank: ShadowBank, scored: list[MembershipScores]
) -> list[MembershipScores]:
    """The attack's scores of the other targets when none of the group is a reference model."""
    if not isinstance(attack, ShadowAttack):  # Without reference models the scores do not change.
        return [scores for target, scores in enumerate(scored) if target not in group]
    left, setting = bank.without(group), scored[0].setting
    return [
        CandidateScores(attack.scores(left.references(target), left.model_logits(target)), setting).against(truth)
        for target, truth in enumerate(left.included)
    ]
