"""Shadows in a suite: trained once for all attacks, every federation a target, what cannot be measured a FAILED row."""

import dataclasses

import numpy as np
import pytest
import torch
from fedassay.attacks.membership.calibrated_loss import CalibratedLoss
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import CandidateScores, Design, MembershipScores, Setting
from fedassay.audit.observer import FINAL_MODEL
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Full
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch
from fedassay.reports.reading.membership import memberships
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.suites.attacking import shadows as shadows_module
from fedassay.suites.attacking.shadows import draw_membership, train_shadows
from fedassay.suites.config.resolve import plan_of, task_of
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.tables.suite import FederationSpec, PlanChange
from fedassay.suites.execution.run import relaunch
from fedassay.suites.scoring.membership_rows import groups, over_targets, score_shadows
from suite_text import tables

FEDERATION = {"model": "logistic", "clients": 3, "samples": 120, "rounds": 3, "lot": {"poisson": 0.5}}
FEDERATION |= {"algorithm": {"name": "fedsgd", "learning_rate": 1.0}}
SHADOWED = ("loss", "lira_online", "quantile_regression", "random_scores")
ATTACKS = {name: {"shadows": 8} for name in SHADOWED} | {"lonely": {"part": "loss", "count": 5}}
TABLES = tables(defenses={"none": {}, "dp_sgd": {"epsilon": 8.0, "delta": 1e-5}}, attacks=ATTACKS)
SUITE = {"text": TABLES, **FEDERATION}
SPEC = FederationSpec(**FEDERATION)
SETTING = Setting(
    unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=FINAL_MODEL, rounds=3, design=Design.CLUSTERED
)


def small(count=8, protection=None, seed=0):
    task = task_of(SPEC, seed)
    plan = plan_of(SPEC, PlanChange(), task)
    return train_shadows(task, plan, protection or Protection(), Streams(seed), count=count)


def rows(run, attack, defense="none"):
    return {one.metric: one for one in run.records if (one.attack, one.defense) == (attack, defense)}


@pytest.mark.simulations
def test_every_attack_has_rows_with_intervals_and_the_null_attack_finds_chance(assay, suite_file):
    run = assay(suite_file(**SUITE))
    assert not [record for record in run.records if record.status != "ok"]
    for defense in ("none", "dp_sgd"):
        for attack in SHADOWED:
            found = rows(run, attack, defense)
            assert {"auc", "balanced_accuracy", "references"} <= set(found)
            area = found["auc"]
            assert area.ci_low < area.value < area.ci_high
            assert (area.n, area.ci_level, area.direction) == (8, 0.95, "higher_leaks")
            assert found["references"].value == 6
        assert rows(run, "lonely", defense)["auc"].n == 10
        null = rows(run, "random_scores", defense)["auc"]
        assert null.role == "null"
        assert null.ci_low < 0.5 < null.ci_high


@pytest.mark.simulations
def test_what_is_kept_gives_the_rows_own_interval_and_states_what_it_is_about(assay, suite_file):
    run = assay(suite_file(**SUITE))
    found = {(one.defense, one.attack): one for one in memberships(RunFolder.read(run.folder))}
    for defense in ("none", "dp_sgd"):
        row, one = rows(run, "loss", defense)["auc"], found[defense, "loss"]
        assert one.setting == SETTING
        assert one.area == row.value
        assert one.shadowed.interval(0.95) == pytest.approx((row.ci_low, row.ci_high))
    assert found["none", "lonely"].shadowed is None


@pytest.mark.simulations
def test_federations_are_trained_once_for_all_attacks_and_not_again_for_what_is_finished(
    assay, suite_file, monkeypatch
):
    trained = []
    real = shadows_module.train_shadows
    monkeypatch.setattr(shadows_module, "train_shadows", lambda *a, **k: trained.append(k) or real(*a, **k))
    run = assay(suite_file(**SUITE))
    assert [one["count"] for one in trained] == [8, 8]
    done = frozenset(record.cell_id for record in run.records)
    for job in relaunch(run.folder).plan.shadows:
        assert job.run(None, done) == []
    assert len(trained) == 2


@pytest.mark.parametrize(
    ("changes", "attack", "reason"),
    [
        (
            ("poisson = 0.5", "fixed_size = 5"),
            "loss",
            "ValueError: included (which samples take part) needs full or Poisson sampling of batches",
        ),
        (("learning_rate = 1.0", "learning_rate = 1e38"), "loss", "FloatingPointError: training diverged"),
    ],
)
def test_what_cannot_be_measured_is_a_failed_row_with_its_reason(assay, suite_file, changes, attack, reason):
    run = assay(suite_file("[defenses.dp_sgd]\nepsilon = 8.0\ndelta = 1e-05\n\n", "", *changes, **SUITE))
    row = rows(run, attack)["none"]
    assert (row.status, row.value) == ("failed", None)
    assert row.reason.startswith(reason)


def test_an_attack_that_states_nan_fails_and_no_other_does(assay, suite_file, own_module):
    module = own_module("""
from dataclasses import dataclass
import numpy as np
from fedassay.attacks.membership.shadow_attack import ShadowAttack

@dataclass(frozen=True, kw_only=True)
class Nowhere(ShadowAttack):
    def scores(self, references, target):
        return np.full(len(target.candidates), np.nan)
""")
    nowhere = f'[attacks.nowhere]\npart = "{module}:Nowhere"\nshadows = 8\n\n[attacks.lonely]'
    run = assay(suite_file("[attacks.lonely]", nowhere, **SUITE))
    failed = {record.attack: record.reason for record in run.records if record.status == "failed"}
    # With it fails the audit that it was registered for: it may have been the one that refutes.
    assert set(failed) == {"nowhere", "membership"}
    assert "values must be finite, got 120 of 120 NaN or infinite" in failed["nowhere"]


def test_shadows_of_an_attack_on_uploads_are_refused_with_their_line(assay, suite_file):
    path = suite_file("[attacks.lonely]", "[attacks.likelihood_ratio]\nshadows = 8\n\n[attacks.lonely]", **SUITE)
    with pytest.raises(
        ConfigError, match=r"line \d+: the key shadows can be set only for a membership attack on the final model"
    ):
        assay(path)


def test_who_is_in_is_a_fair_coin_and_its_correct_version_opposite():
    included = draw_membership(Streams(0), 200, 300)
    assert torch.equal(included[0::2], ~included[1::2])
    # 30,000 coins: five standard deviations.
    assert abs(float(included[0::2].double().mean()) - 0.5) < 5 * 0.5 / 30_000**0.5
    assert not torch.equal(included[0], included[2])


def test_the_bank_states_what_federations_give_that_are_trained_one_by_one():
    whole = small(count=4)
    task, plan = whole.task, whole.plan
    included = draw_membership(Streams(0), 4, len(task.labels))
    full = dataclasses.replace(plan, lot=Full())
    models = train_shadows(task, full, Protection(), Streams(0), count=4).models
    for number in range(4):
        alone = run_federation(
            task, full, Protection(), Streams(0), batch=Batch(included=included[number : number + 1])
        )
        torch.testing.assert_close(models[number], alone[0], atol=1e-5, rtol=0)
    p = task.network.logits(whole.models[2], task.images).double().softmax(-1)
    own = p[torch.arange(len(p)), task.labels].detach().numpy()[whole.bank.ids]
    np.testing.assert_allclose(whole.bank.logits[2], np.log(own / (1 - own)), rtol=1e-9)
    np.testing.assert_array_equal(whole.bank.included, included.numpy()[:, whole.bank.ids])


def test_an_attacker_is_shown_neither_its_target_nor_the_other_half_nor_who_is_in_them():
    whole = small()
    for target in (0, 3):
        knowledge, view = whole.knowledge(target), whole.view(target)
        assert knowledge.shadows.models == 6
        first = target - target % 2
        for row in whole.bank.logits[[first, first + 1]]:
            assert not (knowledge.shadows.logits == row).all(axis=1).any()
        assert torch.equal(view.final_model[0], whole.models[target])
        assert all(seen.broadcast is None and seen.reports is None for seen in view.rounds)
        said = whole.bank.model_logits(target)
        ours = CalibratedLoss().run(view, knowledge, np.random.default_rng(0)).values
        np.testing.assert_array_equal(ours, CalibratedLoss().scores(knowledge.shadows, said))


class Noise(Protection):
    """A step of noise alone."""

    def aggregate(self, received, context, state, rng):
        return torch.from_numpy(rng.standard_normal(received.values[:, 0].shape)).float()


def test_a_group_that_is_left_out_is_no_reference_either():
    """Each target of the others is scored as by a bank in which the group never was, whatever the group says."""
    whole, attack, group = small(count=16).bank, CalibratedLoss(), [2, 3, 8, 9]
    said = [
        CandidateScores(attack.scores(whole.references(t), whole.model_logits(t)), SETTING).against(whole.included[t])
        for t in range(16)
    ]
    left = shadows_module._without(group, attack, whole, said)
    alone = whole.without(group)
    assert len(left) == alone.models == 12
    for target, scores in enumerate(left):
        expected = attack.scores(alone.references(target), alone.model_logits(target))
        np.testing.assert_array_equal(scores.member, expected[alone.included[target]])
    kept = [t for t in range(16) if t not in group]
    assert not np.allclose(left[0].member, said[kept[0]].member)


def test_no_two_federations_share_noise_whatever_batches_they_run_in(monkeypatch):
    monkeypatch.setattr(shadows_module, "_batch", lambda task, plan: 4)
    whole = small(count=8, protection=Noise())
    trial = run_federation(whole.task, whole.plan, Noise(), Streams(0))
    ends = torch.cat([whole.models, trial]).numpy()
    assert len(np.unique(ends[:, 0])) == 9
    assert np.abs(np.corrcoef(ends - ends.mean(0))[np.triu_indices(9, 1)]).max() < 0.35


def test_intervals_by_hand():
    """Four pairs, a mean of .5 to .8: the jackknife of a plain mean is its standard error over the pairs."""
    values = [0.4, 0.6, 0.5, 0.7, 0.6, 0.8, 0.7, 0.9]
    parts = groups(8)
    assert parts == [[0, 1], [2, 3], [4, 5], [6, 7]]
    found = over_targets(values, [[v for t, v in enumerate(values) if t not in part] for part in parts])
    half = 3.182446 * np.std([0.5, 0.6, 0.7, 0.8], ddof=1) / 2
    assert found.value == pytest.approx(0.65)
    assert (found.low, found.high) == pytest.approx((0.65 - half, 0.65 + half), rel=1e-6)


def test_equal_values_and_few_federations_have_no_interval():
    assert groups(6) == []
    assert [len(part) for part in groups(64)] == [8] * 8
    assert over_targets([0.5] * 8, [[0.5] * 6] * 4).low is None
    assert over_targets([0.4, 0.7], []).method == "mean over 2 federations, no interval"


class Kept:
    def save_arrays(self, *_):
        return "scores.npz"


class Row:
    cell_id = "cell"

    def record(self, **measured):
        return measured


def test_targets_with_enough_nonmembers_have_thresholds_of_their_own_and_an_interval_over_them():
    """One threshold for all would find every member of the targets whose scores lie higher, and none of the others."""

    rng = np.random.default_rng(0)
    shares = rng.random(8)
    each = [
        MembershipScores(np.where(np.arange(1000) < 1000 * share, 2.0, 0.0) + place, rng.random(2000) + place, SETTING)
        for place, share in enumerate(shares)
    ]
    without = [each[:place] + each[place + 2 :] for place in range(0, 8, 2)]
    found = {row["metric"]: row for row in score_shadows(Row(), each, without, 6, Kept())}
    row = found["tpr_at_fpr_0.01_estimate"]
    assert row["value"] == pytest.approx(shares.mean(), abs=1e-3)
    assert row["ci_low"] < shares.mean() < row["ci_high"]
    assert "tpr_at_fpr_0.001_estimate" in found
    assert "ci_low" not in found["tpr_at_fpr_0.001_estimate"]
