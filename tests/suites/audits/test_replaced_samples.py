"""Replaced samples: an honest claim stands, a broken one and NbAFL's published one fall."""

import pytest

TABLES = """\
{defenses}
[audit]
canary = "{canary}"
clients = 2
samples_per_client = 4
replicas = {replicas}
batch = 250
noise_shares = [0.5]
"""
FEDERATION = {"clients": 3, "samples": 60, "rounds": 2, "alpha": 0.05}
FEDSGD = {"name": "fedsgd", "learning_rate": 0.5}
FEDAVG = {"name": "fedavg", "learning_rate": 0.1, "local_steps": 2}
OWN = """\
import math
from dataclasses import dataclass, replace

from fedassay.audit.claim import Adjacency
from fedassay.audit.curve import GaussianCurve
from fedassay.defenses.accounting.gaussian import gaussian_noise
from fedassay.defenses.defense import Prepared
from fedassay.defenses.sample_level.dp_sgd import DPSGD


@dataclass(frozen=True, kw_only=True)
class Honest(DPSGD):
    # Whole lots, twice the noise: a replaced sample moves the sum by twice the clip norm.
    reach: float = 2.0

    def prepare(self, plan):
        added = super().prepare(plan)
        noise = gaussian_noise(epsilon=self.epsilon, delta=self.delta, releases=plan.steps)
        protection = replace(added.protection, noise_multiplier=self.reach * noise)
        curve = GaussianCurve(mu=math.sqrt(plan.steps) / noise)
        (claim,) = (replace(one, adjacency=Adjacency.REPLACE_ONE, curve=curve) for one in added.claims)
        return Prepared(protection=protection, claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class Broken(Honest):
    reach: float = 0.8
"""


@pytest.fixture
def audits(suite_file, assay):
    """(defenses' tables, changes) -> its audits' rows by label."""

    def go(defenses, *, canary="dirac", replicas=250, algorithm=FEDSGD):
        tables = TABLES.format(defenses=defenses, canary=canary, replicas=replicas)
        run = assay(suite_file(text=tables, algorithm=algorithm, **FEDERATION))
        return [row for row in run.records if row.role == "audit"]

    return go


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize("canary", ["dirac", "crafted"])
def test_a_correct_claim_of_a_replaced_sample_stands_and_a_broken_one_falls(canary, audits, own_module):
    module = own_module(OWN)
    tables = "".join(f'[defenses.{name.lower()}]\npart = "{module}:{name}"\n' for name in ("Honest", "Broken"))
    rows = audits(tables, canary=canary, replicas=500)
    found = {row.defense: row.verdict for row in rows}
    assert found["honest"] in ("NOT_REFUTED", "UNDERPOWERED")
    assert found["broken"] == "REFUTED" or canary == "crafted"
    assert found["honest"] == "NOT_REFUTED" or canary == "crafted"


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize("algorithm", [FEDSGD, FEDAVG], ids=["fedsgd", "fedavg"])
def test_nbafl_as_published_is_refuted_on_both_ways(algorithm, audits):
    tables = '[defenses.nbafl]\nvariant = "as_published"\nepsilon = 1.0\n'
    rows = audits(tables, replicas=2000, algorithm=algorithm)
    assert {row.observer: row.verdict for row in rows} == {"uploads": "REFUTED", "global_models": "REFUTED"}


def test_replaced_samples_are_tried_among_as_many_as_the_claim_was_made_for(planned):
    """NbAFL's noise is made for clients of 20 samples: among 4 it would fall short for no fault of its clip."""
    tables = '[defenses.nbafl]\nvariant = "as_published"\n[defenses.dp_sgd]\n'
    plan = planned(text=TABLES.format(defenses=tables, canary="dirac", replicas=2), **FEDERATION)
    sizes = {block.cell.facts["defense"]: block.small[1].sizes for block in plan.blocks}
    assert sizes == {"nbafl": (20, 20), "dp_sgd": (4, 4)}
