"""Rows of one training: utility, spread over classes and clients, and bytes."""

import pytest
from fedassay.fl.recorder import TrafficRecorder
from fedassay.suites.results.store import Store

SUITE = {"clients": 3, "samples": 90, "rounds": 4, "text": "[defenses.none]\n"}


@pytest.fixture
def rows_of(planned, tmp_path):
    """(changes) -> the rows of the suite's one training by metric, in their order."""

    def run(name="run", **changes):
        (job,) = planned(**(SUITE | changes)).trials
        store = Store(tmp_path / name)
        assert job.run(store, frozenset()) == []
        return {row.metric: row for row in store.cell_records(job.training.cell_id)}

    return run


def test_a_training_has_rows_of_utility_spread_and_bytes(rows_of):
    rows = rows_of()
    spread = [f"{group}_accuracy_{part}" for group in ("class", "client") for part in ("worst", "mean", "std")]
    traffic = [f"bytes_{way}_{part}" for way in ("up", "down") for part in ("client", "round", "total")]
    assert list(rows) == ["accuracy", "loss", *spread, *traffic]
    assert {row.status for row in rows.values()} == {"ok"}
    assert rows["class_accuracy_worst"].value <= rows["class_accuracy_mean"].value
    assert rows["client_accuracy_worst"].value <= rows["client_accuracy_mean"].value
    assert (rows["class_accuracy_std"].n, rows["client_accuracy_std"].n) == (10, 3)
    # Every client has the same weight: equal sizes make this the accuracy on all samples.
    assert (rows["accuracy"].direction, rows["loss"].direction) == ("higher_better", "lower_better")
    assert "clients" in rows["client_accuracy_worst"].unit


def test_bytes_of_a_plain_training_are_those_of_its_model(rows_of):
    rows = rows_of()
    one = rows["bytes_up_client"].value
    assert one % 4 == 0
    assert {name: row.value for name, row in rows.items() if name.startswith("bytes")} == {
        f"bytes_{way}_{part}": value
        for way in ("up", "down")
        for part, value in (("client", one), ("round", 3 * one), ("total", 12 * one))
    }
    assert rows["bytes_up_client"].n == 12


def test_a_round_to_which_no_client_comes_counts_nothing(rows_of):
    rows = rows_of(cohort={"poisson": 1e-9})
    assert rows["bytes_up_total"].value == rows["bytes_down_round"].value == 0
    assert (rows["bytes_up_client"].status, rows["bytes_up_client"].value) == ("skipped", None)
    assert rows["bytes_up_client"].reason == "no client took part in any round"


def test_a_training_resumed_without_counts_does_not_print_too_few_bytes(rows_of, monkeypatch):
    monkeypatch.setattr(TrafficRecorder, "watch", lambda self, event: setattr(self, "rounds", event.round))
    row = rows_of()["bytes_up_total"]
    assert (row.status, row.value) == ("skipped", None)
    assert "did not count bytes" in row.reason
