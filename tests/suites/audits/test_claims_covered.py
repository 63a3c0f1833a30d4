"""Every claim that a defense may sign is judged: any observer, fewer rounds than the plan's, delta 0."""

import json

import pytest
from fedassay.suites.audits.replicas import SETTING
from fedassay.suites.config.source import ConfigError
from fedassay.suites.results.store import Store
from thinned import every

OWN = """\
from dataclasses import dataclass, replace

from fedassay.audit.observer import Observer
from fedassay.defenses.defense import Prepared
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.fl.protection import Protection


@dataclass(frozen=True, kw_only=True)
class Honest(LDPGaussian):
    observer: str = "uploads"
    rounds: int = 0  # How many rounds the claim covers and the noise is calibrated for; 0: all.
    pure: bool = False

    def prepare(self, plan):
        covered = super().prepare(replace(plan, rounds=self.rounds or plan.rounds))
        (claim,) = covered.claims
        changes = {"delta": 0.0, "curve": None} if self.pure else {}
        claim = replace(claim, observer=Observer.parse(self.observer), **changes)
        return Prepared(protection=covered.protection, claims=(claim,))


@dataclass(frozen=True, kw_only=True)
class Broken(Honest):
    def prepare(self, plan):
        return Prepared(protection=Protection(), claims=super().prepare(plan).claims)


@dataclass(frozen=True, kw_only=True)
class SpentOnce(LDPGaussian):
    # Noise for one round behind a claim over all of them.
    def prepare(self, plan):
        single = super().prepare(replace(plan, rounds=1))
        return Prepared(protection=single.protection, claims=super().prepare(plan).claims)


@dataclass(frozen=True, kw_only=True)
class Boastful(LDPGaussian):
    def prepare(self, plan):
        return super().prepare(replace(plan, rounds=plan.rounds + 7))
"""
OBSERVERS = ("uploads", "shuffled", "aggregate", "global_models", "final_model", "uploads+participation")


@pytest.fixture
def audit(own_module, suite_file, assay):
    """({label: class}, fields, changes of the suite) -> the run and its audits' rows by label."""

    def go(classes, *changes, **fields):
        module = own_module(OWN)
        written = "\n".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
        tables = "\n".join(
            f'[defenses.{label}]\npart = "{module}:{part}"\n{written}' for label, part in classes.items()
        )
        ldp = "[defenses.ldp_gaussian]\ndelta = 1e-5\nepsilon = 4.0\n"
        sized = ("replicas = 40", "replicas = 400", "batch = 16", "batch = 400")
        run = assay(suite_file(ldp, tables, *sized, *changes))
        return run, {row.defense: row for row in run.records if row.role == "audit"}

    return go


SEEN = [*((observer, "dirac") for observer in OBSERVERS), ("shuffled", "crafted"), ("final_model", "crafted")]


@pytest.mark.long
@pytest.mark.parametrize(("observer", "canary"), every(3, SEEN))
def test_a_claim_to_any_observer_is_judged(observer, canary, audit):
    """The honest noise stands, no noise at all does not: neither FAILED nor out of scope on any rung."""
    changes = ("replicas = 400", f'canary = "{canary}"\nreplicas = 400')
    _, rows = audit({"honest": "Honest", "broken": "Broken"}, *changes, observer=observer)
    assert {row.observer for row in rows.values()} == {observer}
    assert rows["honest"].verdict in ("NOT_REFUTED", "UNDERPOWERED")
    assert rows["broken"].verdict == "REFUTED"


@pytest.mark.simulations
def test_a_claim_over_one_round_is_judged_by_that_round_alone(audit):
    run, rows = audit({"honest": "Honest", "broken": "Broken"}, "rounds = 2", "rounds = 12", rounds=1)
    assert (rows["honest"].verdict, rows["broken"].verdict) == ("NOT_REFUTED", "REFUTED")
    store = Store(run.folder)
    for row in (row for row in run.records if row.role == "replicas"):
        assert store.load_arrays(row.artifact)["member"].shape == (400, 1)
        assert json.loads((store.cell_folder(row.cell_id) / SETTING).read_text())["rounds"] == 1


@pytest.mark.simulations
def test_noise_for_one_round_does_not_keep_a_claim_over_twelve(audit):
    _, rows = audit({"spent": "SpentOnce"}, "rounds = 2", "rounds = 12")
    assert (rows["spent"].verdict, rows["spent"].route) == ("REFUTED", "curve")


def test_a_claim_over_more_rounds_than_are_run_is_refused_before_anything_runs(audit):
    with pytest.raises(
        ConfigError,
        match="defense vain states a claim over 9 rounds, but federation main is calibrated on a plan of 2",
    ):
        audit({"vain": "Boastful"})


@pytest.mark.simulations
@pytest.mark.long
@pytest.mark.parametrize("canary", ["dirac", "random"])
def test_a_claim_at_delta_0_is_judged(canary, audit):
    """Gaussian noise keeps no pure epsilon, but 400 replicas that err as at (4, 1e-5) do not refute a pure 4."""
    changes = ("replicas = 400", f'canary = "{canary}"\nreplicas = 400')
    _, rows = audit({"honest": "Honest", "broken": "Broken"}, *changes, pure=True)
    assert {row.status for row in rows.values()} == {"ok"}
    assert rows["honest"].verdict in ("NOT_REFUTED", "UNDERPOWERED")
    assert rows["broken"].value > 3
    assert rows["broken"].value > 2 * rows["honest"].value


def test_the_plan_text_of_a_claim_at_delta_0_states_what_could_be_detected(own_module, planned):
    from fedassay.suites.planning.plan_text import plan_lines

    module = own_module(OWN)
    table = f'[defenses.own]\npart = "{module}:Honest"\npure = true\n'
    plan = planned("[defenses.none]", table, "replicas = 40", "replicas = 2000")
    line = next(line for line in plan_lines(plan) if line.startswith("audit  own"))
    assert "delta 0" in line
    words = ("max certifiable ", "min detectable ")
    certified, found = (float(line.split(word)[1].split()[0].rstrip(",")) for word in words)
    assert 4 < found < certified
