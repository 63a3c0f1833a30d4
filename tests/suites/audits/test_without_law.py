"""Audits of defenses that hide their noise law: as strict as with it, and silent where nothing could be compared."""

from dataclasses import replace

import numpy as np
import pytest
from fedassay.audit.check import Check, CheckResult
from fedassay.suites.audits.audit_method import unknown_power
from fedassay.suites.audits.planted_canary import METHOD, stated_release
from fedassay.suites.results.outcome import judge_run
from fedassay.suites.results.store import Store
from known_parts import parts_by_name
from open_defenses import without_law

# The data of these suites have no owners, which defenses of users need.
USERS = parts_by_name("defense")["user_level"]
CONTROLS = {
    name: part for name, part in parts_by_name("defense").items() if part.control and not issubclass(part, USERS)
}
STATED = {
    "ldp_gaussian": "",
    "dp_sgd": "",
    "dp_fedavg": "plan = { cohort = { poisson = 0.5 } }",
}
"""Correct defenses with a law, and their plans."""


@pytest.fixture
def audits(planned):
    """(name, replicas) -> the audits of this defense's claims; two rounds, lots of half of the samples."""

    def build(name, replicas=40):
        table = f"[defenses.{name}]\nepsilon = 4.0\ndelta = 1e-5\n{STATED.get(name, '')}\n"
        old = "[defenses.ldp_gaussian]\ndelta = 1e-5\nepsilon = 4.0\n"
        lots = ("rounds = 2", "rounds = 2\nlot = { poisson = 0.5 }")
        return planned(old, table, *lots, "replicas = 40", f"replicas = {replicas}").audits

    return build


def hidden(block):
    return replace(block, protection=without_law(block.protection), defense=None)


@pytest.mark.parametrize("name", STATED)
def test_the_noise_that_a_claim_states_is_that_of_its_law(name, audits):
    block = audits(name)[0].blocks[0]
    published, stated = block.release, stated_release(hidden(block))
    assert stated.sigma == pytest.approx(published.sigma)
    assert (stated.rate, stated.steps, stated.rounds) == (published.rate, published.steps, published.rounds)
    assert stated_release(block) is None


@pytest.mark.parametrize("name", STATED)
def test_trials_without_the_law_give_the_scores_of_those_with_it(name, audits):
    block = audits(name)[0].blocks[0]
    with_law, without = (METHOD.trials(one)[0] for one in (block, hidden(block)))
    for one, other in zip(with_law, without, strict=True):
        for batch, alike in zip(one, other, strict=True):
            np.testing.assert_allclose(alike.values, batch.values, rtol=1e-3, atol=1e-4)


def test_sensitivity_and_noise_that_could_not_be_compared_are_part_of_the_reason():
    unknown = [
        CheckResult(name="sensitivity", passed=None, witness="no law"),
        CheckResult(name="epsilon of the releases", passed=None, witness="no noise is stated"),
    ]
    assert unknown_power(unknown) == (
        "the power of these runs is not known, because the defense publishes no distribution of its noise, and no "
        "check could measure its sensitivity and noise instead (no law; no noise is stated)"
    )
    made = [Check(one.name).passes("") for one in unknown]
    assert (
        unknown_power(made)
        == "the power of these runs is not known, because the defense publishes no distribution of its noise"
    )


def judged(audit, folder, **changes):
    """The row of the audit's claim with these changes, with the law hidden."""
    claim = replace(audit.claim, **changes)
    block = audit.blocks[0]
    # So much noise that no canary shows.
    loud = replace(block.protection, noise_std=30 * block.protection.noise_std)
    block = replace(hidden(replace(block, protection=loud)), claim=claim)
    store = Store.create(folder, {}, [])
    assert not block.run(store, frozenset())
    assert not replace(audit, claim=claim, blocks=(block,)).run(store, frozenset())
    return store.cell_records(audit.cell.cell_id)[0]


@pytest.mark.long
@pytest.mark.parametrize("changes", [{}, {"parameters": {"releases": 2}, "curve": None}], ids=["stated", "silent"])
def test_noise_that_hides_the_canary_is_measured_whether_or_not_the_claim_states_it(changes, audits, tmp_path):
    (audit,) = audits("ldp_gaussian", replicas=500)
    row = judged(audit, tmp_path / "run", **changes)
    # The measured noise over the measured move of a unit is evidence, whose power is stated.
    assert row.verdict == "NOT_REFUTED"
    assert audit.claim.epsilon <= row.detectable < 30 * audit.claim.epsilon
    assert row.reason.startswith("the implementation checks fail with probability 0.9 if the true eps is at least ")


OWN = """\
from dataclasses import dataclass, replace

from {module} import {name}


@dataclass(frozen=True, kw_only=True)
class Shown({name}):
    control = False


@dataclass(frozen=True, kw_only=True)
class Hidden(Shown):
    def prepare(self, plan):
        prepared = super().prepare(plan)
        kind = type(prepared.protection)
        hidden = type("Hidden" + kind.__name__, (kind,), {{"law": lambda self, observer, plan, client: None}})
        return replace(prepared, protection=hidden(**vars(prepared.protection)))
"""
SUITE = """\
name = "hidden"
description = "A defense and the same one without its law."
alpha = 0.006
seeds = 1

[federations.main]
dataset = "digits"
model = "logistic"
clients = 10
rounds = 20
lot = {{ poisson = 0.1 }}
algorithm = {{ name = "fedsgd", learning_rate = 1.0 }}

[defenses.shown]
part = "{module}:Shown"
epsilon = 4.0
delta = 1e-5
{plan}

[defenses.hidden]
part = "{module}:Hidden"
epsilon = 4.0
delta = 1e-5
{plan}

[audit]
clients = 2
samples_per_client = 32
replicas = 1000
batch = 334
noise_shares = [0.8, 0.5, 0.1]
"""
SEVERITY = {10: 0, 11: 1, 12: 2, 0: 3}


@pytest.mark.long
@pytest.mark.parametrize("name", [*CONTROLS, *STATED])
def test_no_version_fares_better_or_worse_by_hiding_its_law(name, own_module, assay, tmp_path):
    """Exit codes of each control, and of correct defenses, with and without the law."""
    part = parts_by_name("defense")[name]
    module = own_module(OWN.format(module=part.__module__, name=part.__name__))
    plan = STATED.get(name, STATED["dp_fedavg"] if issubclass(part, parts_by_name("defense")["dp_fedavg"]) else "")
    path = tmp_path / "suite.toml"
    path.write_text(SUITE.format(module=module, plan=plan), encoding="utf-8")
    records = assay(path).records
    shown, silent = (
        judge_run([row for row in records if row.defense == label]).exit_code for label in ("shown", "hidden")
    )
    if name in CONTROLS:
        assert SEVERITY[silent] <= SEVERITY[shown] < SEVERITY[0]
    else:
        assert (shown, silent) == (0, 0)
