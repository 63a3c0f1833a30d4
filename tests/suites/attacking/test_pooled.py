"""Attacks from another observer's seat: cells of their own, scored on all clients' samples as one lot."""

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import Design, LabelCounts, Reconstructions, Setting
from fedassay.audit.observer import SHUFFLED, UPLOADS
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.recorder import LotRecorder
from fedassay.fl.sampling import FixedSize, Full
from fedassay.suites.attacking.trial import is_pooled, pooled_evidence, pooled_truth
from fedassay.suites.config.resolve import task_of
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.tables.suite import FederationSpec
from fedassay.suites.scoring.label_rows import true_counts
from suite_text import tables
from toy_federation import toy_plan

SETTING = Setting(
    unit=Unit.SAMPLE, adjacency=Adjacency.REPLACE_ONE, observer=SHUFFLED, rounds=1, design=Design.CLUSTERED
)
ATTACKS = {
    "imprint": {},
    "imprint_of_sum": {"part": "imprint", "observer": "aggregate"},
    "mean_image": {"observer": "aggregate"},
    "llg_plus": {"observer": "aggregate"},
    "equal_counts": {"observer": "aggregate"},
    "row_sum": {"observer": "shuffled"},
    "random_scores": {"count": 8},
}
TABLES = tables(defenses={"none": {}, "distributed_gaussian": {"epsilon": 8.0, "delta": 1e-5}}, attacks=ATTACKS)
SUITE = {"text": TABLES, "model": "imprint", "clients": 4, "samples": 32}


def mask(*drawn):
    return torch.tensor([drawn], dtype=torch.bool)


def pooled_counts(lot, steps, *clients):
    """True counts of a round of three clients with two samples each, pooled and not."""
    spec = FederationSpec(
        model="logistic", clients=3, samples=6, rounds=1, algorithm={"name": "fedsgd", "learning_rate": 1.0}
    )
    task = task_of(spec, 0)
    algorithm = FedSGD(learning_rate=1.0) if steps == 1 else FedAvg(learning_rate=1.0, local_steps=steps)
    plan = toy_plan(task, rounds=1, lot=lot, algorithm=algorithm)
    lots = {client: LotRecorder(client=client, lots=[masks]) for client, masks in enumerate(clients)}
    pool = pooled_truth(task, plan, lots)
    return true_counts(pool.task, plan, pool.lots, 0), true_counts(task, plan, lots, 0)


@pytest.mark.parametrize(
    ("lot", "steps", "clients"),
    [
        (Full(), 1, ([mask(1, 1)], [mask(1, 1)], [mask(1, 1)])),
        # Everything in each of two steps counts once.
        (Full(), 2, ([mask(1, 1)] * 2, [mask(1, 1)] * 2, [mask(1, 1)] * 2)),
        # What was drawn counts anew in each step; the second client was absent.
        (FixedSize(1), 2, ([mask(1, 0), mask(1, 0)], [], [mask(0, 1), mask(1, 0)])),
    ],
    ids=["one step", "full lots", "drawn lots"],
)
def test_the_pooled_truth_is_the_sum_of_the_clients(lot, steps, clients):
    pooled, apart = pooled_counts(lot, steps, *clients)
    np.testing.assert_array_equal(pooled, apart.sum(0, keepdims=True))
    assert pooled.sum() == (4 if isinstance(lot, FixedSize) else 6)


def test_evidence_of_rows_without_senders_is_of_one_lot():
    images = Reconstructions(np.zeros((3, 1, 2, 2)), None, SETTING, np.array([0, 1, 1]))
    assert pooled_evidence(images).uploads.tolist() == [0, 0, 0]
    counts = LabelCounts(np.array([[1.0, 0.0], [0.5, 0.5]]), SETTING)
    assert pooled_evidence(counts).counts.tolist() == [[1.5, 0.5]]
    assert is_pooled(counts)
    named = Setting(unit=Unit.SAMPLE, adjacency=Adjacency.REPLACE_ONE, observer=UPLOADS, rounds=1, design="clustered")
    assert not is_pooled(LabelCounts(np.ones((1, 2)), named))


def test_a_run_scores_each_view_on_what_its_observer_has(assay, suite_file):
    run = assay(suite_file(**SUITE))
    rows = [row for row in run.records if row.role in ("attack", "null")]
    assert not [row for row in rows if row.status == "failed"]
    plain = {}
    for row in rows:
        if row.defense == "none" and row.metric in ("psnr", "label_accuracy"):
            plain.setdefault(row.attack, []).append(row)
    observers = {attack: {row.observer for row in found} for attack, found in plain.items()}
    assert observers == {
        "imprint": {"uploads"},
        "imprint_of_sum": {"aggregate"},
        "mean_image": {"aggregate"},
        "llg_plus": {"aggregate"},
        "equal_counts": {"aggregate"},
        "row_sum": {"shuffled"},
    }
    exact = {attack: sum(row.value > 40 for row in plain[attack]) for attack in ("imprint", "imprint_of_sum")}
    # Lots of 8 images, and one of 32, in 256 bins: all but one, and all but nine, expected.
    assert len(plain["imprint"]) == len(plain["imprint_of_sum"]) == 32
    assert exact["imprint"] >= 28
    assert exact["imprint_of_sum"] >= 22
    assert [row.n for row in plain["llg_plus"]] == [1]
    assert plain["llg_plus"][0].value > plain["equal_counts"][0].value


def test_masked_uploads_and_a_shuffled_sum_are_omitted_with_their_reason(assay, suite_file):
    run = assay(suite_file(**SUITE))
    skipped = {row.attack: row.reason for row in run.records if row.status == "skipped" and row.role == "attack"}
    assert "masked words of a secure sum" in skipped["imprint"]
    assert "not a client's update but 1 rows" in skipped["row_sum"]
    assert "imprint_of_sum" not in skipped


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "count = 8",
            'observer = "aggregate"',
            "only for an attack on client uploads; random_scores attacks what the observer final",
        ),
        ('observer = "shuffled"', 'observer = "final_model"', "observer"),
    ],
)
def test_an_attack_with_an_observer_of_its_own_keeps_its_view(old, new, message, resolved):
    with pytest.raises(ConfigError, match=message):
        resolved(old, new, **SUITE)
