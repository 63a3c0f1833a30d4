"""Attacks on rounds in a suite: every seat, every kind of row, and a reason where there is nothing to see."""

import pytest
import torch
from fedassay.fl.data.dataset import Dataset
from suite_text import suite_text, tables

DP = ("dp_sgd", "dp_fedavg", "ldp_gaussian", "distributed_gaussian")
ATTACKS = {
    "random_scores": {"count": 8, "client": "all"},
    "gradient_dot": {"count": 8, "client": "all"},
    "cosine_of_sum": {"part": "gradient_cosine", "observer": "aggregate", "count": 8},
    "ratio_of_models": {
        "part": "likelihood_ratio",
        "observer": "global_models",
        "rest": "known",
        "client": "all",
        "count": 8,
    },
    "ratio": {"part": "likelihood_ratio", "rest": "known", "count": 8},
    "fedmia_loss": {"count": 8},
    "loss_series": {"count": 8},
    "source": {"count": 8},
    "random_source": {"count": 8},
    "client_membership": {},
    "clients_of_uploads": {"part": "client_membership", "observer": "uploads"},
    "writer_membership": {},
    "random_people": {},
}
TABLES = tables(defenses={"none": {}} | {name: {"epsilon": 4.0, "delta": 1e-5} for name in DP}, attacks=ATTACKS)
FEDERATION = {"clients": 4, "held_out": 3, "rounds": 2}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    import fedassay

    place = tmp_path_factory.mktemp("rounds")
    (place / "rounds.toml").write_text(suite_text(TABLES, alpha=0.05, samples=140, **FEDERATION))
    return fedassay.run(str(place / "rounds.toml"), jobs=1, report=False, folder=place / "run").records


def found(rows, attack, metric):
    """The value of every defense."""
    return {row.defense: row for row in rows if (row.attack, row.metric) == (attack, metric)}


def test_every_attack_has_rows_or_states_why_not(rows):
    assert not [(row.attack, row.reason) for row in rows if row.status == "failed"]
    skipped = {(row.defense, row.attack): row.reason for row in rows if row.status == "skipped"}
    expected = {("distributed_gaussian", name) for name in ("gradient_dot", "fedmia_loss", "source", "ratio")}
    expected |= {(defense, "ratio") for defense in ("none", "dp_fedavg")}
    # Of the secure sum's clients one may drop out: what is left is no known sum.
    expected |= {(defense, "ratio_of_models") for defense in ("none", "ldp_gaussian", "distributed_gaussian")}
    expected |= {(row.defense, name) for row in rows for name in ("clients_of_uploads", "writer_membership")}
    assert set(skipped) == expected
    assert "observes which clients take part" in skipped["none", "clients_of_uploads"]
    assert "the exact ratio is not defined" in skipped["none", "ratio"]


def test_of_whole_writers_samples_are_an_omission_and_writers_and_sources_are_measured(tmp_path, monkeypatch):
    import fedassay
    from fedassay.suites.config import resolve

    digits = resolve.load_dataset("digits")
    kept = ("train_images", "train_labels", "test_images", "test_labels", "classes")
    owned = Dataset(
        name="digits", **{name: getattr(digits, name) for name in kept}, train_owners=torch.arange(1347) // 10
    )
    monkeypatch.setattr(resolve, "load_dataset", lambda name: owned)
    asked = ["gradient_dot", "random_scores", "writer_membership", "client_membership", "source"]
    text = tables(defenses={"none": {}}, attacks={name: {"count": 3} for name in asked})
    (tmp_path / "owners.toml").write_text(suite_text(text, alpha=0.05, partition="by_owner", **FEDERATION))
    rows = fedassay.run(str(tmp_path / "owners.toml"), jobs=1, report=False, folder=tmp_path / "run").records
    assert not [(row.attack, row.reason) for row in rows if row.status == "failed"]
    skipped = {row.attack: row.reason for row in rows if row.status == "skipped"}
    reason = (
        "under the partition by_owner no sample outside of training is comparable to a client's samples; "
        "use the attack writer_membership"
    )
    assert skipped == dict.fromkeys(["gradient_dot", "random_scores"], reason)
    assert {row.attack for row in rows if row.metric in ("auc", "source_accuracy")} == set(asked) - set(skipped)


def test_all_clients_are_asked_about_all_candidates_and_outsiders_at_each(rows):
    # 8 members of each of 4 clients, and 32 outsiders at each of 4.
    assert found(rows, "gradient_dot", "auc")["none"].n == 32 + 4 * 32
    assert found(rows, "random_scores", "auc")["none"].n == 64


def test_source_rows_stand_beside_chance_and_have_an_interval(rows):
    for attack, role in (("source", "attack"), ("random_source", "null")):
        row, over = (found(rows, attack, f"source_{name}")["none"] for name in ("accuracy", "advantage"))
        assert row.role == role
        assert row.ci_low <= row.value <= row.ci_high
        assert over.value == pytest.approx((row.value - 0.25) / 0.75)
        assert (row.n, row.unit) == (32, "share of samples, chance 0.25")
