"""Correct defenses whose numbers come from the plan: an audit of a smaller federation does not refute them."""

import itertools
import math
from dataclasses import dataclass, replace

import pytest
import torch
from fedassay.audit.claim import Adjacency, Claim, Unit
from fedassay.audit.observer import AGGREGATE
from fedassay.defenses.accounting.gaussian import gaussian_curve, gaussian_noise
from fedassay.defenses.defense import Defense, Prepared
from fedassay.fl.laws import GaussianLaw, clip
from fedassay.fl.protection import Protection
from fedassay.fl.streams import normal
from fedassay.suites.audits.case import implies
from fedassay.suites.results.store import Store
from thinned import thinned
from toy_federation import toy_plan, toy_task

DELTA, REPLICAS = 1e-5, 400
UNITS = {
    "zero-out": (Unit.CLIENT, Adjacency.ZERO_OUT),
    "replace-one": (Unit.REPORT, Adjacency.REPLACE_ONE),
    "add-remove": (Unit.CLIENT, Adjacency.ADD_REMOVE),
}


@dataclass(frozen=True, kw_only=True)
class Shares(Protection):
    """Every client adds its share of the noise of the sum; one share for all clients, or one for each of the plan's."""

    shares: tuple[float, ...]
    total: float
    listed: bool
    hidden: bool = False

    def report(self, updates, context, state, rng):
        shares = torch.tensor([self.shares[k if self.listed else 0] for k in updates.senders])
        rows = clip(updates.values, 1.0)
        return updates.with_values(rows + shares[:, None] * normal(rng, tuple(rows.shape)))

    def aggregate(self, received, context, state, rng):
        return received.values.sum(1)

    def law(self, observer, plan, client):
        if observer.rank != AGGREGATE.rank or self.hidden:
            return None
        return GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=self.total)


@dataclass(frozen=True, kw_only=True)
class FromClients(Defense):
    """The noise of the sum is spread over the number of clients of the plan."""

    epsilon: float = 2.0
    unit: str = "zero-out"
    hidden: bool = False
    listed: bool = False
    strength: float = 1.0

    def variances(self, plan):
        return [1 / plan.clients] * (plan.clients if self.listed else 1)

    def prepare(self, plan):
        unit, adjacency = UNITS[self.unit]
        noise = gaussian_noise(epsilon=self.epsilon, delta=DELTA, releases=plan.rounds)
        total = noise * (2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0)
        shares = tuple(self.strength * total * math.sqrt(each) for each in self.variances(plan))
        claim = Claim(
            epsilon=self.epsilon,
            delta=DELTA,
            unit=unit,
            adjacency=adjacency,
            observer=AGGREGATE,
            rounds=plan.rounds,
            dp_model="distributed",
            mechanism="Gaussian",
            parameters={"clip_norm": 1.0},
            accountant="analytic Gaussian",
            sampling="none assumed",
            trust="secure sum",
            source="this test",
            curve=gaussian_curve(noise=noise, releases=plan.rounds),
        )
        protection = Shares(shares=shares, total=total, listed=self.listed, hidden=self.hidden)
        return Prepared(protection=protection, claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class FromWeights(FromClients):
    """Each client of the plan adds noise in proportion to its weight: a list that no other client is in."""

    listed: bool = True

    def variances(self, plan):
        weights = [plan.weight(client) for client in range(plan.clients)]
        return [weight / sum(weights) for weight in weights]


METHODS = {
    "planted": ('audit.canary="dirac"',),
    "planted without a law": ('audit.canary="dirac"',),
    "random direction": ('audit.canary="random"',),
    "wrong label": ('audit.canary="mislabelled"',),
    "one run": ('audit.design="one_run"', "audit.canaries=200"),
}


@pytest.fixture
def audits(planned, tmp_path):
    """(defense, overrides) -> the planned audit, and its rows after it has run; ``change``: of its blocks."""

    numbers = itertools.count()

    def build(defense, *overrides, change=lambda block: block):
        few = (
            ("audit.batch=200",)
            if any("one_run" in one for one in overrides)
            else ("audit.batch=200", f"audit.replicas={REPLICAS}")
        )
        plan = planned(
            "clients = 2\nsamples = 60",
            "clients = 10\nsamples = 100",
            "count = 8",
            "count = 4",
            extra=(defense,),
            overrides=("seeds=1", *few, *overrides),
        )
        (audit,) = (one for one in plan.audits if one.cell.facts["defense"].startswith("From"))
        audit = replace(audit, blocks=tuple(map(change, audit.blocks)))
        store = Store.create(tmp_path / f"run{next(numbers)}", {}, [])
        for block in audit.blocks:
            block.run(store, frozenset())
        audit.run(store, frozenset())
        return audit, store.cell_records(audit.cell.cell_id)

    return build


SHARES = (
    (FromClients, "replace-one"),
    (FromWeights, "zero-out"),
    (FromWeights, "replace-one"),
    (FromClients, "add-remove"),
)


@pytest.mark.long
@pytest.mark.parametrize(("method", "shares"), thinned(METHODS, SHARES))
def test_noise_shares_of_the_plan_are_not_refuted_by_a_smaller_federation(audits, method, shares):
    kind, unit = shares
    if unit == "zero-out" and method in ("wrong label", "one run"):
        pytest.skip("no such canary under zero-out")
    hidden = method in ("planted without a law", "random direction")
    _, (verdict, *checks) = audits(kind(unit=unit, hidden=hidden), *METHODS[method])
    assert verdict.verdict in ("NOT_REFUTED", "UNDERPOWERED", "OUT_OF_SCOPE"), verdict.reason
    assert [check.reason for check in checks if check.verdict == "FAILED"] == []
    # The canaries of one run are as many clients more, for which this defense has no noise.
    needs_more_clients = method == "one run" and kind is FromWeights
    assert (verdict.verdict == "OUT_OF_SCOPE") == needs_more_clients
    assert ("does not run with 200 clients more" in verdict.reason) == needs_more_clients


@pytest.mark.simulations
def test_without_being_prepared_again_the_same_defense_would_be_refuted(audits):
    # The audit cuts ten clients to two, of which each adds a tenth of the noise.
    def as_before(block):
        whole = block.defense.prepare(replace(block.small[1], sizes=(10,) * 10))
        return replace(block, defense=None, protection=whole.protection, place=None)

    _, (verdict, *_) = audits(FromClients(), 'audit.canary="dirac"', change=as_before)
    assert verdict.verdict == "REFUTED", verdict.reason


@pytest.mark.simulations
def test_noise_that_is_missing_is_refuted_in_the_smaller_federation_too(audits):
    _, (verdict, *_) = audits(FromWeights(strength=0.3), 'audit.canary="dirac"')
    assert verdict.verdict == "REFUTED", verdict.reason


@pytest.mark.simulations
def test_a_client_for_which_nothing_was_prepared_gives_way_to_one_of_the_plan(audits):
    audit, (verdict, *checks) = audits(FromWeights())
    assert [block.opened().place for block in audit.blocks] == [1]
    assert (verdict.status, verdict.verdict) == ("ok", "NOT_REFUTED"), verdict.reason
    (message,) = (check for check in checks if check.metric == "check_whole_message")
    assert "an additional client" in message.reason
    assert [block.opened().place for block in audits(FromClients())[0].blocks] == [None]


@dataclass(frozen=True, kw_only=True)
class FromManyClients(FromClients):
    """Needs a crowd, or states less for a few clients."""

    least: int = 5
    refuses: bool = False

    def prepare(self, plan):
        if plan.clients >= self.least:
            return super().prepare(plan)
        if self.refuses:
            raise ValueError("a crowd of five clients at least")
        return replace(self, epsilon=2 * self.epsilon, least=0).prepare(plan)


@pytest.mark.parametrize("refuses", [False, True])
def test_a_defense_that_states_less_for_a_few_clients_is_audited_with_all_of_them(audits, refuses):
    audit, (verdict, *_) = audits(FromManyClients(refuses=refuses))
    assert (verdict.verdict, verdict.status) == ("NOT_REFUTED", "ok"), verdict.reason
    small, own = audit.blocks[0].small[1], audit.blocks[0].own[1]
    assert small.clients == own.clients > 2


def test_a_claim_implies_weaker_ones_about_the_same_alone():
    plan = toy_plan(toy_task((3, 3)))
    (one,) = FromClients().prepare(plan).claims
    (weaker,) = FromClients(epsilon=3.0).prepare(plan).claims
    stronger = [(one, one), (one, weaker), (one, replace(weaker, curve=None))]
    assert all(implies(*pair) for pair in stronger)
    assert not implies(weaker, one)
    assert not implies(replace(one, curve=None), weaker)
    assert not implies(one, replace(weaker, rounds=one.rounds + 1))
    assert not implies(one, replace(weaker, adjacency=Adjacency.REPLACE_ONE))
    assert not implies(replace(one, delta=2 * DELTA), one)
