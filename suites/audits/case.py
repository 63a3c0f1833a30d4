"""The federations in which an audit tests one privacy claim of a defense, and the defense as prepared for each of them.

A defense may compute constants from the plan, such as each client's share of the noise. In a smaller federation, or
under a model with one weight more, these constants would be wrong, and an audit would accuse a correct defense. So it
is prepared again for every federation that is run.
"""

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ...attacks.attack import Knowledge, Level
from ...audit.claim import HELD_BY_CLIENTS, Adjacency, Claim, Unit
from ...audit.estimators.release_tests import GaussianRelease
from ...audit.observer import AGGREGATE, FINAL_MODEL, UPLOADS
from ...checks.canaries import check_covered
from ...checks.claim_checks import Fitted
from ...checks.law import law_checks
from ...checks.neighbour_draws import PreparationSetup
from ...defenses.defense import Defense
from ...fl.canary import Canaries, Canary, CanarySet, DataCanary
from ...fl.engine import run_federation
from ...fl.laws import GaussianLaw, Law
from ...fl.plan import Plan
from ...fl.protection import Protection
from ...fl.recorder import View, ViewRecorder
from ...fl.streams import Streams
from ...fl.task import Task
from ...fl.training.local import Batch
from ..config.resolve import audit_task_of, audited, calibrated, executor_of, pipeline_of, plan_of, task_of
from ..config.tables.suite import AuditSpec, FederationSpec, PlanChange

_CLIENTS, _WORK = 16, 2**25
"""Clients of a federation that is checked as a whole at most, and per-sample gradients of one run in numbers."""
_SAMPLES, _NUMBERS = 4, 2**22
"""Samples of each client for checks of the claim's own model, and per-sample gradients of one round in numbers: larger
models are not checked.
"""
_GROWTH, _REPORTS = 8, 2**22
"""By how much the audit's federation grows where its claim rests on more clients, and the numbers that all of them send
in a round at most.
"""
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Case:
    """A privacy claim to audit on one seed, with the federations in which the defense is tested. Each federation, and
    each preparation of the defense, is made only once, when it is first needed.

    Args:
        audit: the suite's audit table, with the defense's own federation and number of replicas.
        protection: prepared for the plan of this federation and seed, or for that of the small federation of a block.
        defense: prepares a protection for another plan, such as that of a smaller federation; None where the
            protection is used for every plan.
        inert: number of weights added to the model that no data moves, one for each canary planted along one.
        place: the client whose place a canary that is a client takes; None: it is one more client.
        device: where its federations are trained.
    """

    federation: FederationSpec
    change: PlanChange
    audit: AuditSpec
    protection: Protection
    claim: Claim
    seed: int
    defense: Defense | None = None
    inert: int = 0
    place: int | None = None
    device: str = "cpu"

    def __getstate__(self) -> dict[str, Any]:
        # A worker builds the federations again: their data are large, and it has them on disk.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def changed(self, *, protection: Protection | None = None, **changes: Any) -> Self:
        """Return the same claim and federations with another protection, another place of the canary, or another number
        of rounds.
        """
        other = replace(self, protection=protection or self.protection, **changes)
        other.__dict__.update({name: self.__dict__[name] for name in ("own", "small") if name in self.__dict__})
        return other

    @cached_property
    def own(self) -> tuple[Task, Plan]:
        """The claim's own federation at full size. The size matters because a guarantee with a shuffler depends on the
        number of clients, and numbers of the protection may depend on the plan.
        """
        return self._planned(task_of(self.federation, self.seed))

    @cached_property
    def small(self) -> tuple[Task, Plan]:
        """The audit's federation: the first clients of the claim's federation, a few samples each, and a model with
        extra weights that no data changes.

        A claim holds for every data set and model, so also for this small one; rounds, sampling, algorithm and
        protection are the claim's own. Where a sample is replaced the number of samples is public and stays, and a
        claim may rest on it: clients then keep theirs.
        """
        small = self._small(self.inert)
        if self.defense is None:
            return small
        every, clients = self._audited().clients, small[1].clients
        # A guarantee may rest on the number of clients, such as one behind a shuffler: the first that suffices.
        tried = small
        while self.fitted(tried[1]).reason:
            clients = min(every, _GROWTH * clients)
            if tried[1].clients == every or clients * small[1].layout.dim > _REPORTS:
                return small
            tried = self._small(self.inert, clients=clients)
        return tried

    def _small(self, inert: int, clients: int | None = None) -> tuple[Task, Plan]:
        task = self._audited()
        samples = max(task.sizes) if self._replaced else self.audit.samples_per_client
        return self._planned(task.restricted(clients=clients or self.audit.clients, samples=samples).with_inert(inert))

    @cached_property
    def checked(self) -> tuple[Task, Plan]:
        """The federation of the implementation checks: all clients with their own sizes, or a seeded sample of them
        with the largest and the smallest.

        Where there are too many samples, each client keeps the same share.
        """
        # The replays need a weight that no data moves; the defense is prepared for it like for any other.
        task = self._audited().with_inert(max(1, self.inert))
        if task.clients > _CLIENTS:
            order = sorted(range(task.clients), key=lambda client: (task.sizes[client], client))
            drawn = Streams(self.seed).generator("checked clients").permutation(order[1:-1])[: _CLIENTS - 2]
            task = replace(task, parts=tuple(task.parts[k] for k in sorted([order[0], order[-1], *drawn.tolist()])))
        task, plan = self._planned(task)
        work = sum(plan.sizes) * plan.layout.dim * self.claim.rounds * plan.algorithm.local_steps
        if work <= _WORK:
            return task, plan
        # A replaced sample leaves the number of samples public, so that a claim may rest on it.
        if self._replaced:
            return self._small(max(1, self.inert))
        parts = tuple(part[: max(2, math.ceil(len(part) * _WORK / work))] for part in task.parts)
        return self._planned(replace(task, parts=parts))

    @cached_property
    def own_model(self) -> tuple[Task, Plan] | None:
        """A few clients of the claim's federation, with a few samples each and the claim's own model and data; None if
        the checks run this model anyway, or if it is too large or mixes the samples of a batch.
        """
        if self.audit.model == self.federation.model:
            return None
        task = task_of(self.federation, self.seed)
        if task.network.mixes:
            return None
        task = task.with_inert(max(1, self.inert))
        order = sorted(range(task.clients), key=lambda client: (-task.sizes[client], client))
        # The largest and the smallest client, and one between them.
        chosen = sorted({order[0], order[-1], order[len(order) // 2]})
        largest = task.sizes[order[0]]
        # Sizes keep their proportions, on which weights depend.
        parts = tuple(task.parts[k][: max(2, math.ceil(_SAMPLES * task.sizes[k] / largest))] for k in chosen)
        task, plan = self._planned(replace(task, parts=parts))
        work = sum(plan.sizes) * plan.layout.dim * plan.algorithm.local_steps
        return None if work > _NUMBERS else (task, plan)

    @property
    def preparation(self) -> PreparationSetup | None:
        """The setup for the checks of the federation's data preparation: the claim's own records, and a training of the
        audit's clients and samples; None without a preparation.
        """
        federation, audit = audited(self.federation, self.audit), self.audit
        pipeline = pipeline_of(federation, self.seed)
        if pipeline is None:
            return None

        def protection(plan: Plan) -> Protection | str:
            found = self.fitted(plan)
            return found.reason or found.protection

        return PreparationSetup(
            pipeline=replace(pipeline, own_model=audit.model == self.federation.model),
            plan=lambda task: plan_of(self.federation, self.change, task),
            protection=protection,
            claim=self.claim,
            clients=audit.clients,
            samples=max(self.own[0].sizes) if self._replaced else audit.samples_per_client,
            most=audit.trials,
            seed=self.seed,
        )

    def _audited(self) -> Task:
        return audit_task_of(self.federation, self.audit, self.seed)

    def _planned(self, task: Task) -> tuple[Task, Plan]:
        return task, plan_of(self.federation, self.change, task)

    @property
    def _replaced(self) -> bool:
        return (self.claim.unit, self.claim.adjacency) == (Unit.SAMPLE, Adjacency.REPLACE_ONE)

    @property
    def inseparable(self) -> str:
        """Why no canary can be added: the audit's model mixes the samples of a batch. Empty if a canary can be
        added.
        """
        if not (self.protection.per_sample or self.claim.unit is Unit.SAMPLE):
            return ""
        network = self._audited().network
        return f"this claim is not audited on this model: {network.mixture}" if network.mixes else ""

    @property
    def law(self) -> Law | None:
        """The noise distribution that the defense publishes for what the claim's observer receives from the canary's
        client in the small federation.
        """
        plan = self.small[1]
        # A canary that is a client is numbered after the plan's clients, unless it takes the place of one.
        holder = plan.clients if self.place is None else self.place
        return self.protection.law(self.claim.observer, plan, 0 if self.claim.unit in HELD_BY_CLIENTS else holder)

    @property
    def length(self) -> float:
        """The canary's norm, which is ``canary_norm`` times the clip norm. The clip norm is taken from the published
        noise distribution, else from the claim, and is 1 if neither states it.
        """
        if isinstance(law := self.law, GaussianLaw):
            return self.audit.canary_norm * law.clip_norm
        published = self.claim.parameters.get("clip_norm", 1.0)
        return self.audit.canary_norm * (float(published) if isinstance(published, int | float) else 1.0)

    @property
    def release(self) -> GaussianRelease | None:
        """The claimed noise distribution of what the canary's client releases, in units of the sensitivity to the
        canary.

        None where no Gaussian law of a round is published or observed, where the others' contributions are not zero
        along the canary, or where the canary's client takes part in fewer rounds than the release has: scores of that
        law would be no likelihood ratios.
        """
        check_covered(self.claim)
        plan, law = self.small[1], self.law
        # A final model shows no single round that a law could score.
        if (
            not self.inert
            or not isinstance(law, GaussianLaw)
            or law.then
            or self.claim.observer.rank == FINAL_MODEL.rank
        ):
            return None
        if law.noise_std == 0:
            # Without noise there is no likelihood to compare; the law's epsilon says what that means.
            return None
        if plan.cohort.participations(self.claim.rounds) < self.claim.rounds:
            return None
        row = torch.zeros(plan.layout.dim)
        # Inert weights are the last ones of the model.
        row[-1] = self.length
        replaced = self.claim.adjacency is Adjacency.REPLACE_ONE
        return release_of(law, row, replaced=replaced, rounds=self.claim.rounds)

    def observed(self, canary: Canaries, batch: Batch, *, senders: tuple[int, ...]) -> View:
        """Run a batch of small federations over the rounds that the claim covers; return what the claim's observer
        receives.

        With canaries along inert (unused) weights the view contains these weights only, and of uploads only those of
        ``senders``.
        """
        task, plan = self.small
        # Whole models of hundreds of replicas would not fit into memory.
        kept = slice(plan.layout.model_dim, plan.layout.dim) if self.inert else None
        recorder = ViewRecorder(observer=self.claim.observer, coordinates=kept, senders=senders)
        final = run_federation(
            task,
            plan,
            self.protection,
            Streams(self.seed),
            batch=batch,
            canary=canary,
            recorders=[recorder],
            stop_after=self.claim.rounds,
            executor=executor_of(self.federation),
            device=self.device,
        )
        return recorder.view(plan, final)

    def knowledge(self, canary: Canary | DataCanary | CanarySet) -> Knowledge:
        """Return what the worst-case (DP) adversary knows: everything except whether the canary is present."""
        task, plan = self.small
        initial = task.initial(Streams(self.seed))
        return Knowledge.of(task, plan, self.protection, level=Level.WORST_CASE, canary=canary, initial=initial)

    def fitted(self, plan: Plan) -> Fitted:
        """Return the defense as prepared for ``plan``.

        Runs under the plan are evidence about the audited claim where the defense states it for the plan too, or a
        stronger one: a run that contradicts the audited claim then contradicts what is stated for the run.
        """
        if self.defense is None:
            return Fitted(protection=self.protection, claim=self.claim)
        size = f"{plan.clients} clients with {_sizes(plan)} samples each, {plan.layout.dim} weights"
        what = f"the audit's federation ({size})"
        try:
            prepared = calibrated(self.defense, plan)
        except Exception as error:  # A user's own part may raise anything; no audit may then accuse it.
            reason = f"the defense cannot be prepared for {what}: {type(error).__name__}: {error}"
            return Fitted(protection=self.protection, claim=self.claim, reason=reason, unprepared=True)
        same = [claim for claim in prepared.claims if _about(claim) == _about(self.claim)]
        if not same:
            reason = f"the defense states no claim of the same unit and adversary for {what}"
            return Fitted(protection=prepared.protection, claim=self.claim, reason=reason, unprepared=True)
        # Of claims about several groups of clients the weakest holds for all of them.
        stated = self.claim if self.claim in same else max(same, key=lambda claim: claim.epsilon)
        reason = (
            "" if implies(stated, self.claim) else f"for {what} the defense states a weaker claim: {stated.describe()}"
        )
        return Fitted(protection=prepared.protection, claim=stated, reason=reason, again=True)


def release_of(law: GaussianLaw, row: Tensor, *, replaced: bool, rounds: int) -> GaussianRelease:
    """Return the noise distribution rescaled so that the canary, array ``row (d,)``, has sensitivity 1.

    The canary is present or absent (or zero), or with ``replaced`` it is the row or its negative.
    """
    # Both rows pass the law's own clipping: the sensitivity is what is left of the canary, not its length.
    shift = law.contribution(row) - (law.contribution(-row) if replaced else 0)
    sigma = law.noise_std / (float(torch.linalg.vector_norm(shift)) * law.steps**0.5)
    return GaussianRelease(sigma=sigma, rate=law.rate, steps=law.steps, rounds=rounds)


def implies(stated: Claim, other: Claim) -> bool:
    """Return whether the claim ``stated`` is at least as strong as another claim about the same unit and adversary."""
    if _about(stated) != _about(other) or (stated.rounds, stated.subjects) != (other.rounds, other.subjects):
        return False
    if stated.epsilon > other.epsilon * (1 + _ROUNDING) or stated.delta > other.delta * (1 + _ROUNDING):
        return False
    if other.curve is None or stated.curve == other.curve:
        return True
    rates = np.logspace(-9, 0, 200)
    return stated.curve is not None and bool((stated.curve.fnr(rates) >= other.curve.fnr(rates) - _ROUNDING).all())


def stronger_claims(given: Fitted, plan: Plan) -> list[Claim]:
    """Return the same claim against each stronger adversary, which sees more, unless the published distribution of the
    noise contradicts the claim there.

    Such a claim implies the given one. It need not hold: clients may hide their updates from the server alone.
    """
    stronger = [replace(given.claim, observer=one) for one in (AGGREGATE, UPLOADS) if one != given.claim.observer]
    implying = [claim for claim in stronger if claim.observer.covers(given.claim.observer)]
    return [claim for claim in implying if law_checks(given.protection, claim, plan)[0].passed is not False]


def _about(claim: Claim) -> tuple[object, ...]:
    return claim.unit, claim.adjacency, claim.observer, claim.part


def _sizes(plan: Plan) -> str:
    least, most = min(plan.sizes), max(plan.sizes)
    return str(least) if least == most else f"{least} to {most}"
