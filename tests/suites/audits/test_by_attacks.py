"""Audits by attacks: which coins are guessed, how alpha is shared, what is refuted, and what gives no verdict."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from fedassay.attacks.membership.lira_online import LiRAOnline
from fedassay.attacks.membership.shadow_attack import ShadowAttack
from fedassay.audit.claim import Claim
from fedassay.audit.evidence import Design, MembershipScores, Setting
from fedassay.audit.finding import Verdict, judge
from fedassay.fl.protection import Protection
from fedassay.fl.streams import Streams
from fedassay.suites.attacking.shadows import draw_membership, train_shadows
from fedassay.suites.audits.audit_method import AttackedFederation, PlannedAudit
from fedassay.suites.audits.by_attacks import TARGET, measure_attack, measure_attacks, scores_of
from fedassay.suites.config.resolve import plan_of, task_of
from fedassay.suites.config.tables.suite import FederationSpec, PlanChange
from fedassay.suites.planning.plan_text import headline, plan_lines
from fedassay.suites.results.store import Store
from known_parts import parts_by_name
from suite_text import tables

# Labels are noise, and a linear model has room for all of them: whoever trains without noise knows them by heart.
FEDERATION = {"clients": 2, "samples": 100, "label_noise": 1.0, "rounds": 20, "alpha": 0.05}
FEDERATION |= {"algorithm": {"name": "fedavg", "learning_rate": 1.0, "local_steps": 5}}
ATTACKS = {name: {"shadows": 8} for name in ("loss", "lira_online", "random_scores")}
TABLES = tables(defenses={"dp_sgd": {"epsilon": 1.0, "delta": 1e-5}}, attacks=ATTACKS)
SUITE = {"text": TABLES, **FEDERATION}
SILENT = """\
from dataclasses import dataclass
from fedassay.defenses.defense import Prepared
from fedassay.defenses.sample_level.dp_sgd import DPSGD
from fedassay.fl.protection import Protection

@dataclass(frozen=True, kw_only=True)
class Silent(DPSGD):
    def prepare(self, plan):
        return Prepared(protection=Protection(), claims=super().prepare(plan).claims)
"""
AUDIT = "[audit]\nreplicas = 40\nbatch = 16\nsamples_per_client = 4\nnoise_shares = [0.5]\n"


def stated(epsilon):
    return Claim.stated(epsilon, 1e-5, unit="sample", adjacency="add_remove", observer="final_model", rounds=20)


def setting(design=Design.ONE_RUN):
    return dataclasses.replace(Setting.claimed(stated(1.0)), design=design)


def evidence(run):
    return {row.defense: row for row in run.records if row.role == "evidence"}


@pytest.fixture
def planned(planned):
    """(changes, more tables) -> the run plan."""
    return lambda *changes, more="": planned(*changes, text=TABLES + more, **FEDERATION)


@pytest.mark.simulations
def test_a_claim_without_its_noise_is_refuted_and_its_correct_version_is_not(assay, suite_file, own_module):
    silent = f'[defenses.silent]\npart = "{own_module(SILENT)}:Silent"\nepsilon = 1.0\n'
    run = assay(suite_file(text=TABLES + silent, **FEDERATION))
    found = evidence(run)
    assert (found["silent"].verdict, found["silent"].route) == ("REFUTED", "eps_low")
    assert found["silent"].value > 1.0
    assert (found["silent"].n, found["silent"].observer, found["silent"].detectable) == (100, "final_model", None)
    assert (
        "on shadow federation 0 of seed 0, which included each of 100 samples by a fair coin: "
        in found["silent"].reason
    )
    assert found["dp_sgd"].verdict != "REFUTED"
    assert run.verdict.exit_code == 10
    assert run.verdict.verdict_line == "FAIL: claims REFUTED by attacks: silent"


@pytest.mark.simulations
def test_attacks_that_show_nothing_make_no_run_inconclusive(assay, suite_file):
    run = assay(suite_file(**SUITE))
    (row,) = evidence(run).values()
    assert (row.verdict, row.value) == ("UNDERPOWERED", 0.0)
    assert row.reason.startswith("no attack refuted the claim")
    # Two attacks, each read by one estimator: the curve that is signed is no Gaussian's.
    assert (row.ci_level, row.ci_method) == (0.95, "one_run, one-sided, bonferroni(k=2)")
    assert (run.verdict.exit_code, run.verdict.verdict_line) == (
        0,
        "OK: no claim was audited, attacks refuted none of 1 claim "
        "(for 1 of them the attacks could not have refuted the claim)",
    )


def audit_of(claim, attacks=2, candidates=200, alpha=0.05):
    attacked = AttackedFederation(setting=setting(), attacks=(None,) * attacks, candidates=candidates, seed=0)
    return PlannedAudit(cell=None, method="by_attacks", claim=claim, alpha=alpha, attacked=attacked)


def attack_audits(plan):
    return tuple(audit for audit in plan.audits if audit.attacked is not None)


def test_the_attack_with_the_largest_bound_is_the_witness_and_each_has_its_share():
    rng = np.random.default_rng(0)
    weak, strong = (MembershipScores(rng.normal(shift, 1, 100), rng.normal(0, 1, 100), setting()) for shift in (0, 4))
    measured, label = measure_attacks(audit_of(stated(1.0), attacks=2), {"weak": weak, "strong": strong})
    assert label == "strong"
    assert measured.witness.startswith(
        "attack strong on shadow federation 0 of seed 0, which included each of 200 samples"
    )
    rng = Streams(0).generator("guess ties strong")
    alone = measure_attack(stated(1.0), strong, alpha=0.025, rng=rng, witness="")
    assert measured.epsilon_low == alone.epsilon_low > 1.0


def test_a_stated_gaussian_curve_gives_each_attack_a_second_reading():
    settings = {"unit": "sample", "adjacency": "add_remove", "observer": "final_model", "rounds": 20}
    claim = Claim.stated(delta=1e-5, mu=0.3, **settings)
    rng = np.random.default_rng(0)
    scores = MembershipScores(rng.normal(1.5, 1, 200), rng.normal(0, 1, 200), setting())
    measured, _ = measure_attacks(audit_of(claim, candidates=400), {"a": scores, "b": scores})
    assert (measured.comparisons, measured.alpha) == (4, 0.05)
    assert measured.estimator == "one_run_fdp"
    assert judge(claim, measured).verdict is Verdict.REFUTED


def test_attacks_left_out_keep_their_share():
    """Registered is registered: who answers may depend on what was seen."""
    strong = MembershipScores(np.arange(100.0) + 60, np.arange(100.0), setting())
    two, three = (measure_attacks(audit_of(stated(1.0), attacks=n), {"strong": strong})[0] for n in (2, 3))
    assert two.epsilon_low > three.epsilon_low
    assert two.alpha == three.alpha == 0.05


def test_a_claim_that_is_audited_and_attacked_is_tested_twice_and_spends_alpha_once(planned):
    both, alone = planned(more=AUDIT), planned()
    assert [audit.alpha for audit in both.audits] == [0.025, 0.025]
    assert [audit.alpha for audit in alone.audits] == [0.05]
    assert ", 1 by attacks; " in headline(alone)
    (line,) = [line for line in plan_lines(alone) if line.startswith("audit")]
    assert "100 samples in one run, by attacks (loss, lira_online), " in line


def test_registered_are_all_attacks_on_shadows_but_null_ones_on_the_first_seed(planned):
    more = "[attacks.alone]\npart = 'loss'\n[attacks.more]\npart = 'rmia'\nshadows = 16\n"
    (audit,) = attack_audits(planned("seeds = 1", "seeds = 2", more=more))
    assert [item.entry.label for item in audit.attacked.attacks] == ["loss", "lira_online", "more"]
    assert {item.cell.facts["seed"] for item in audit.attacked.attacks} == {audit.attacked.seed} == {0}
    assert audit.attacked.candidates == 100
    assert audit.attacked.setting == setting()


@pytest.mark.parametrize("defense", ["dp_fedavg", "ldp_gaussian", "none"])
def test_a_claim_of_another_unit_is_not_audited_by_attacks(planned, defense):
    changes = ("[defenses.dp_sgd]\nepsilon = 1.0\ndelta = 1e-05", f"[defenses.{defense}]")
    plan = planned(*changes)
    assert attack_audits(plan) == ()
    assert len(plan.claims) == (defense != "none")


def test_a_federation_that_borrows_its_calibration_is_not_judged(planned):
    shown = "\n[federations.shown]\ncalibrated_on = 'main'\nclients = 2\nsamples = 100\nrounds = 1\n"
    shown += "algorithm = { name = 'fedsgd', learning_rate = 1.0 }\n"
    plan = planned("[attacks.loss]", "[attacks.loss]\nfederation = ['main', 'shown']", more=shown)
    assert [audit.cell.facts["federation"] for audit in attack_audits(plan)] == ["main"]


def test_an_attack_that_failed_fails_the_audit_with_its_reason(assay, suite_file, monkeypatch):
    def scores(self, references, target):
        raise ValueError("not today")

    monkeypatch.setattr(LiRAOnline, "scores", scores)
    run = assay(suite_file(**SUITE))
    (row,) = evidence(run).values()
    assert (row.status, row.verdict) == ("failed", "")
    assert row.reason.startswith(
        "ValueError: attack lira_online on the shadow federations of seed 0 failed: ValueError: not today"
    )
    assert run.verdict.exit_code == 12


def test_what_is_guessed_are_the_coins_of_the_first_federation(assay, suite_file, planned, resolved):
    run = assay(suite_file(**SUITE))
    (audit,) = attack_audits(planned())
    store = Store.open(run.folder)
    rows = {row.attack: row for row in run.records if row.metric == "auc"}
    item = SimpleNamespace(cell=SimpleNamespace(cell_id=rows["loss"].cell_id), entry=audit.attacked.attacks[0].entry)
    scores = scores_of(item, audit.attacked, store)
    coins = draw_membership(Streams(0), 8, len(task_of(resolved(**SUITE).spec.federations["main"], 0).labels))
    assert (len(scores.member), len(scores.nonmember)) == (int(coins[TARGET].sum()), int((~coins[TARGET]).sum()))
    assert scores.setting.design is Design.ONE_RUN
    kept = store.load_arrays(rows["loss"].artifact)
    assert str(kept["design"]) == "clustered"
    np.testing.assert_array_equal(scores.member, kept["member"][: len(scores.member)])


def test_scores_of_the_guessed_federation_depend_neither_on_its_coins_nor_on_the_opposite_federation():
    """Both rows of coins are turned round and what the federation said is held fixed: no bit of any attack changes."""
    spec = FederationSpec(
        model="logistic", clients=2, samples=60, rounds=2, algorithm={"name": "fedsgd", "learning_rate": 1.0}
    )
    task = task_of(spec, 0)
    plan = plan_of(spec, PlanChange(), task)
    told = train_shadows(task, plan, Protection(), Streams(0), count=16)
    included, logits = told.bank.included.copy(), told.bank.logits.copy()
    included[[TARGET, TARGET + 1]] = included[[TARGET + 1, TARGET]]
    logits[TARGET + 1] += 1.0
    turned = dataclasses.replace(told, bank=dataclasses.replace(told.bank, included=included, logits=logits))
    attacks = [part for part in parts_by_name("attack").values() if issubclass(part, ShadowAttack)]
    assert len(attacks) >= 4
    for part in attacks:
        said = [
            part().run(one.view(TARGET), one.knowledge(TARGET), np.random.default_rng(0)).values
            for one in (told, turned)
        ]
        np.testing.assert_array_equal(*said)
