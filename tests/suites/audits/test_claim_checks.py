"""All implementation checks of a claim: audits and mutants make the same ones, and one rule judges every move."""

from dataclasses import dataclass, replace

import pytest
from fedassay.audit.check import AS_SAMPLED, NUMBERS, SENSITIVITY, VECTORS, VIEW
from fedassay.audit.claim import Adjacency, Claim, Unit
from fedassay.audit.observer import AGGREGATE
from fedassay.defenses.defense import Defense, Prepared
from fedassay.fl.laws import GaussianLaw, clip
from fedassay.fl.protection import Protection
from fedassay.fl.streams import normal
from fedassay.suites.audits.audit_method import BlockMethod
from fedassay.suites.mutation.versions import FederatedVersions

TRIALS = (VIEW, VECTORS, NUMBERS)


@dataclass(frozen=True, kw_only=True)
class TwoUnits(Protection):
    """A sum of clipped updates; its law is that of a unit half as long as the clip norm."""

    def report(self, updates, context, state, rng):
        return updates.with_values(clip(updates.values, 1.0))

    def aggregate(self, received, context, state, rng):
        total = received.values.sum(1)
        return total + 2.0 * normal(rng, tuple(total.shape))

    def law(self, observer, plan, client):
        return GaussianLaw(clip_norm=0.5, scale=1.0, noise_std=2.0) if observer.rank <= AGGREGATE.rank else None


@dataclass(frozen=True, kw_only=True)
class Loose(Defense):
    """States ``epsilon`` for a client's whole update."""

    epsilon: float = 20.0

    def prepare(self, plan):
        claim = Claim.stated(
            epsilon=self.epsilon,
            delta=1e-5,
            unit=Unit.CLIENT,
            adjacency=Adjacency.ADD_REMOVE,
            observer=AGGREGATE,
            rounds=plan.rounds,
        )
        return Prepared(protection=TwoUnits(), claims=(claim,))


@pytest.fixture
def by_both(planned):
    """(epsilon) -> the checks of a claim by an audit and by the suite of mutants, by name, in the same federation."""

    def build(epsilon):
        plan = planned(extra=(Loose(epsilon=epsilon),), overrides=("seeds=1",))
        (audit,) = (one for one in plan.audits if one.cell.facts["defense"].startswith("Loose"))
        block = replace(audit.blocks[0], seed=0)
        audit = replace(audit, blocks=(block,))
        # Methods add checks of their own runs to these.
        own = BlockMethod.checks(block.method, audit, None)
        task, federation = block.checked
        given = block.fitted(federation)
        prepared = Prepared(protection=given.protection, claims=(given.claim,))
        versions = FederatedVersions(
            name="loose",
            task=task,
            plan=federation,
            correct=prepared,
            broken=None,
            prepare_correct=lambda plan: prepared,
            prepare_broken=lambda plan: prepared,
        )
        return own, versions.checks(broken=False, trials=True)

    return build


@pytest.mark.simulations
@pytest.mark.parametrize(("epsilon", "accused"), [(20.0, False), (1.0, True)])
def test_audits_and_mutants_make_the_same_checks(by_both, epsilon, accused):
    own, of_mutants = by_both(epsilon)
    # Audits run the trials of what is received by themselves, where their own runs do not refute the claim.
    assert [(one.name, one.passed) for one in own] == [
        (one.name, one.passed) for one in of_mutants if one.name not in TRIALS
    ]
    by_name = {one.name: one for one in of_mutants}
    # Both checks see twice the law's bound; it contradicts the claim only where the claim does not cover it.
    for name in (SENSITIVITY, AS_SAMPLED):
        assert by_name[name].measured == pytest.approx(1.0, rel=1e-3)
        assert by_name[name].allowed == pytest.approx(0.5)
        assert by_name[name].passed is (False if accused else None)
