"""Audits of claims about transfers: every control is refuted, no correct defense is, and what has no inputs is said."""

from dataclasses import replace

import pytest
from fedassay.audit.claim import Adjacency, Claim, Unit
from fedassay.audit.finding import Verdict
from fedassay.audit.observer import ANSWERS, FINAL_MODEL, UPLOADS
from fedassay.defenses.transfer.defense import LaplaceMax, NoisyVotes, PreparedTransfer
from fedassay.suites.config.catalogue import build
from fedassay.suites.config.other_federations import transfer_plan_of, transfer_task_of
from fedassay.suites.config.tables.other_federations import TransferSpec
from fedassay.suites.results.cell import Cell
from fedassay.suites.transfer import TransferAuditJob
from known_parts import transfer_parts

RULE = {"steps": 10, "learning_rate": 0.05}
SPEC = TransferSpec(
    dataset="digits", teachers=50, queries=40, teacher=RULE, student=RULE, audit={"trials": 20_000, "queries": (1, 10)}
)
FOUND_BY_MORE = {"control_votes_epsilon_published", "control_votes_late_bare", "control_votes_unanimous_bare"}
"""Controls whose bug shows only where teachers agree, with many of them, or to a check of all answers."""


def job_of(name, spec=SPEC, seed=0, alpha=0.01, **options):
    defense = build("defense", name, options).instance
    plan = transfer_plan_of(spec, transfer_task_of(spec, seed))
    claim = defense.prepare(plan).claims[0]
    cell = Cell(cell_id="c", facts={})
    return TransferAuditJob(federation=spec, defense=defense, claim=claim, seed=seed, alpha=alpha, cell=cell)


PARTS = transfer_parts("defense")


def cases(names, quick):
    """The ``quick`` ones; the others run with the simulations."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.simulations) for name in names]


CONTROLS = [name for name, part in PARTS.items() if part.control and name not in FOUND_BY_MORE]
CORRECT = [name for name, part in PARTS.items() if not part.control and name != "plain_votes"]


@pytest.mark.simulations
@pytest.mark.parametrize("name", cases(CONTROLS, ("control_votes_scale_halved", "control_votes_check_unpaid")))
def test_a_control_is_refuted(name):
    assert job_of(name, epsilon=2.0).found()[0].verdict is Verdict.REFUTED


@pytest.mark.long
@pytest.mark.simulations
def test_a_published_epsilon_is_refuted_where_teachers_agree():
    rule = {"steps": 60, "learning_rate": 0.05}
    spec = SPEC.model_copy(update={"teachers": 250, "teacher": SPEC.teacher.model_copy(update=rule)})
    assert job_of("control_votes_epsilon_published", spec).found()[0].verdict is Verdict.REFUTED


@pytest.mark.simulations
@pytest.mark.parametrize("name", cases(CORRECT, ("gnmax", "confident_gnmax")))
def test_a_correct_defense_is_not_refuted(name):
    found = job_of(name, epsilon=2.0).found()[0]
    assert found.verdict in (Verdict.NOT_REFUTED, Verdict.UNDERPOWERED)
    assert "queries" in found.reason
    assert 0 <= found.measurement.epsilon_low < 2.0


@pytest.mark.simulations
@pytest.mark.long
def test_claims_that_hold_are_refuted_no_oftener_than_alpha():
    """Of 40 audits at error .05: more than 7 happen with probability .002."""
    spec = SPEC.model_copy(update={"audit": SPEC.audit.model_copy(update={"trials": 1000})})
    refuted = sum(
        job_of(name, spec, seed=seed, alpha=0.05, epsilon=1.0).found()[0].verdict is Verdict.REFUTED
        for name in ("gnmax", "grr_votes")
        for seed in range(20)
    )
    assert refuted <= 7


def test_sizes_beyond_the_transfers_queries_become_its_own_and_none_counts_twice():
    job = job_of("gnmax", SPEC.model_copy(update={"queries": 5}))
    assert job.sizes == (1, 5)
    assert (job.replicas, job.tested, job.runs) == (40_000, 20_000, 120_000)


def test_a_claim_against_an_observer_without_known_inputs_is_out_of_scope():
    job = job_of("gnmax")
    found = replace(job, claim=replace(job.claim, observer=FINAL_MODEL), defense=Weaker()).found()[0]
    assert found.verdict is Verdict.OUT_OF_SCOPE
    assert "no neighbouring inputs" in found.reason
    other = replace(job, claim=replace(job.claim, epsilon=9.0)).found()[0]
    assert (other.verdict, "for a transfer of 1 queries, the defense states another claim" in other.reason) == (
        Verdict.OUT_OF_SCOPE,
        True,
    )


@pytest.mark.parametrize(("noise", "verdict"), [(1.0, Verdict.NOT_REFUTED), (0.4, Verdict.REFUTED)])
def test_a_client_that_is_added_takes_its_votes_along(noise, verdict):
    """One more vote raises one count by 1, so that noise of scale 1 / epsilon gives epsilon-DP (Dwork and Roth 2014,
    claim 3.9); a vote that moves would need twice as much.
    """
    job = job_of("gnmax", SPEC.model_copy(update={"audit": SPEC.audit.model_copy(update={"queries": (1,)})}))
    own = Added(noise=noise)
    found = replace(job, defense=own, claim=own.claim).found()[0]
    assert found.verdict is verdict
    assert found.measurement.setting.adjacency is Adjacency.ADD_REMOVE


@pytest.mark.parametrize(
    "change",
    [
        {"adjacency": Adjacency.ZERO_OUT},
        {"unit": Unit.REPORT, "observer": UPLOADS, "adjacency": Adjacency.ADD_REMOVE},
    ],
)
def test_an_adjacency_without_known_inputs_is_out_of_scope(change):
    job, own = job_of("gnmax"), Added(change=change)
    found = replace(job, defense=own, claim=own.claim).found()[0]
    assert found.verdict is Verdict.OUT_OF_SCOPE
    assert own.claim.adjacency.phrase in found.reason


class Added:
    """A user's own defense: the largest count with Laplace noise, and a claim about a client that is added."""

    def __init__(self, noise=1.0, change=()):
        stated = Claim.stated(1.0, 0.0, unit="client", adjacency="add_remove", observer=ANSWERS)
        self.noise, self.claim = noise, replace(stated, **dict(change))

    def prepare(self, plan):
        return PreparedTransfer(
            protection=NoisyVotes(noise=LaplaceMax(self.noise * plan.queries)), claims=(self.claim,)
        )


class Weaker:
    """GNMax with a claim about the student alone."""

    def prepare(self, plan):
        right = build("defense", "gnmax", {}).instance.prepare(plan)
        return replace(right, claims=tuple(replace(claim, observer=FINAL_MODEL) for claim in right.claims))
