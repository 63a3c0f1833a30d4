"""Membership attacks on a student: they run as they are, find what plain labels leak, and nothing under much noise."""

import numpy as np
import pytest
from fedassay.attacks.membership.attack_p import AttackP
from fedassay.attacks.membership.lira_offline import LiRAOffline
from fedassay.attacks.membership.lira_online import LiRAOnline
from fedassay.attacks.membership.loss import LossThreshold
from fedassay.attacks.membership.random_scores import RandomScores
from fedassay.attacks.membership.rmia import RMIA
from fedassay.attacks.transfer.shadow_students import shadow_students, shadow_teachers
from fedassay.audit.claim import Unit
from fedassay.audit.observer import FINAL_MODEL
from fedassay.defenses.transfer.gnmax import GNMax
from fedassay.defenses.transfer.plain_votes import PlainVotes
from fedassay.fl.streams import Streams
from fedassay.fl.task import TrainingRule
from fedassay.fl.transfer.task import TransferTask
from sklearn.metrics import roc_auc_score
from toy_federation import toy_task

RULE = TrainingRule(steps=60, learning_rate=0.05)
ATTACKS = {
    "attack_p": AttackP,
    "lira_offline": LiRAOffline,
    "lira_online": LiRAOnline,
    "rmia": RMIA,
    "loss": LossThreshold,
    "random": RandomScores,
}


@pytest.fixture(scope="module")
def data():
    """One teacher, whose labels are random: its answer on an image that it holds is the image's own label, and queries
    look like its samples. Nothing leaks more.
    """
    task = toy_task((24,), side=6, outsiders=24)
    return TransferTask(task=task, public_images=(task.images + 0.01).clamp(0, 1), public_labels=task.labels)


def areas(data, defense, count=16):
    """For each attack the area under the curve over all students, members against non-members."""
    plan = data.plan(teacher=RULE, student=RULE)
    shadows = shadow_students(
        data, plan, defense.prepare(plan).protection, Streams(0), shadow_teachers(data, plan, Streams(0), count=count)
    )
    found = {}
    for name, attack in ATTACKS.items():
        scores, truth = [], []
        for target in range(count):
            rng = np.random.default_rng(target)
            result = attack().run(shadows.view(target), shadows.knowledge(target), rng)
            assert (result.setting.observer, result.setting.unit) == (FINAL_MODEL, Unit.SAMPLE)
            scores.append(result.values)
            truth.append(shadows.bank.included[target])
        found[name] = roc_auc_score(np.concatenate(truth), np.concatenate(scores))
    return found, shadows


def test_shadow_attacks_find_members_through_plain_labels_and_not_through_noise(data):
    """384 scores of two sides: the area of a coin has a standard error of .03."""
    plain, _ = areas(data, PlainVotes())
    assert min(plain["lira_online"], plain["lira_offline"], plain["rmia"], plain["loss"]) > 0.65
    assert plain["lira_online"] > 0.75
    noisy, _ = areas(data, GNMax(epsilon=0.1))
    assert all(abs(area - 0.5) < 0.15 for area in noisy.values())
    assert abs(plain["random"] - 0.5) < 0.15


def test_pairs_hold_complementary_halves_and_no_attack_sees_the_other_half(data):
    _, shadows = areas(data, PlainVotes(), count=6)
    for first in range(0, 6, 2):
        assert np.array_equal(shadows.bank.included[first], ~shadows.bank.included[first + 1])
        known = shadows.knowledge(first)
        assert known.shadows.models == 4
        # Neither the target nor its pair is among the references.
        assert not any((row == shadows.bank.logits[first]).all() for row in known.shadows.logits)
        assert not any((row == shadows.bank.logits[first + 1]).all() for row in known.shadows.logits)
    assert len(shadows.models.unique(dim=0)) == 6
    with pytest.raises(ValueError, match="even"):
        shadow_teachers(data, shadows.plan, Streams(0), count=3)
