"""Checkpoint: a training that was stopped goes on to the same bits; what cannot be read is told of and left aside."""

import json

import numpy as np
import pytest
import torch
from fedassay.fl.engine import ResumeState
from fedassay.suites.attacking import checkpoint as checkpoint_module
from fedassay.suites.attacking import trial as trial_module
from fedassay.suites.attacking.checkpoint import Checkpoint
from fedassay.suites.results.store import Store
from toy_federation import flat_plan

ADAM = {"name": "fedavg", "learning_rate": 0.05, "local_steps": 2, "optimizer": "adam", "keep_moments": True}
SUITE = {"clients": 3, "samples": 90, "rounds": 8, "cohort": {"poisson": 0.7}, "lot": {"poisson": 0.5}}
SUITE |= {"text": "[defenses.adap_dp_fl]\nepsilon = 4.0\nnoise_multiplier = 2.0\ndecay = 0.5\n", "algorithm": ADAM}
CHANGES = {
    "adam and filter": {},
    "scaffold": {"algorithm": {"name": "scaffold", "learning_rate": 0.2, "local_steps": 2}},
    "adaptive clip": {"text": "[defenses.quantile_clipping]\n", "lot": "full"},
}


class Killed(BaseException):
    """Nothing in the package catches this."""


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """A checkpoint every round."""
    monkeypatch.setattr(checkpoint_module, "EVERY_S", 0.0)


@pytest.fixture
def job(planned):
    """(changes) -> the one training of the suite."""
    return lambda **changes: planned(**(SUITE | changes)).trials[0]


def files(store, job):
    return {path.name for path in store.cell_folder(job.training.cell_id).iterdir()}


def killed_after(job, store, rounds, monkeypatch):
    """Train, and be killed as soon as the checkpoint of that many rounds is written."""
    real, written = Store.save_arrays, []

    def save(store, cell_id, name, arrays):
        real(store, cell_id, name, arrays)
        written.append(name)
        if len(written) == rounds:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):  # noqa: PT012
        patch.setattr(Store, "save_arrays", save)
        job.run(store, frozenset())


@pytest.mark.simulations
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("rounds", [1, 5])
def test_stopped_and_resumed_is_uninterrupted_to_the_last_bit(job, tmp_path, monkeypatch, timeless, changes, rounds):
    whole, halves, finals = Store(tmp_path / "whole"), Store(tmp_path / "halves"), []
    one = job(**changes)
    real = trial_module.run_federation
    monkeypatch.setattr(
        trial_module, "run_federation", lambda *given, **more: finals.append(real(*given, **more)) or finals[-1]
    )
    one.run(whole, frozenset())
    killed_after(one, halves, rounds, monkeypatch)
    assert "checkpoint.npz" in files(halves, one)
    assert "records.jsonl" not in files(halves, one)
    assert one.run(halves, frozenset()) == []
    assert len(finals) == 2
    assert torch.equal(*finals)
    cell = one.training.cell_id
    assert timeless(halves.cell_records(cell)) == timeless(whole.cell_records(cell))
    assert files(whole, one) == files(halves, one) >= {"records.jsonl", "rounds.csv"}
    assert "checkpoint.npz" not in files(whole, one)
    for name in files(whole, one) - {"records.jsonl"}:
        assert (whole.cell_folder(cell) / name).read_bytes() == (halves.cell_folder(cell) / name).read_bytes()


def test_a_resumed_cells_time_is_that_of_both_sessions(job, tmp_path, monkeypatch):
    one, store = job(), Store(tmp_path)
    killed_after(one, store, 4, monkeypatch)
    arrays = store.load_arrays(f"cells/{one.training.cell_id}/checkpoint.npz")
    cpu_s = json.loads(arrays["header"].tobytes())["cpu_s"]
    text = arrays["header"].tobytes().replace(f'"cpu_s": {cpu_s}'.encode(), b'"cpu_s": 1000.0')
    store.save_arrays(one.training.cell_id, "checkpoint", arrays | {"header": np.frombuffer(text, dtype=np.uint8)})
    one.run(store, frozenset())
    assert 1000 < store.cell_records(one.training.cell_id)[0].cpu_s < 1100


@pytest.mark.simulations
@pytest.mark.parametrize("harm", ["torn", "empty", "pickled", "foreign", "older", "other model"])
def test_what_cannot_be_read_is_reported_of_and_training_starts_over(job, tmp_path, monkeypatch, timeless, harm):
    one, whole, store = job(), Store(tmp_path / "whole"), Store(tmp_path / "halves")
    cell = one.training.cell_id
    one.run(whole, frozenset())
    killed_after(one, store, 5, monkeypatch)
    path = store.cell_folder(cell) / "checkpoint.npz"
    arrays = store.load_arrays(f"cells/{cell}/checkpoint.npz")
    if harm in ("torn", "empty"):
        path.write_bytes(path.read_bytes()[:-2000] if harm == "torn" else b"")
    elif harm == "pickled":
        np.savez(path, header=np.array([{"schema": "checkpoint-2"}], dtype=object))
    elif harm == "other model":
        store.save_arrays(cell, "checkpoint", arrays | {"tensor0": arrays["tensor0"][:, :-1]})
    else:
        old, new = (cell, "0" * 16) if harm == "foreign" else ("checkpoint-2", "checkpoint-0")
        text = arrays["header"].tobytes().replace(old.encode(), new.encode())
        store.save_arrays(cell, "checkpoint", arrays | {"header": np.frombuffer(text, dtype=np.uint8)})
    with pytest.warns(RuntimeWarning, match=r"checkpoint\.npz is not used, and the training starts again"):
        assert one.run(store, frozenset()) == []
    assert timeless(store.cell_records(cell)) == timeless(whole.cell_records(cell))


def test_a_training_that_attacks_watch_has_none(planned, tmp_path, monkeypatch):
    trials = planned().trials
    monkeypatch.setattr(Store, "save_arrays", lambda *given: pytest.fail(f"wrote {given[2]}"))
    for one in trials:
        assert one._checkpoint(Store(tmp_path)) is None


def test_every_kind_of_plain_data_comes_back_as_it_was_and_nothing_else_is_written(tmp_path):
    store = Store(tmp_path)
    state = {
        "by client": {0: torch.tensor([0.1]).double(), 7: torch.tensor([True])},
        "list": [1, 0.1, "a", None, (torch.zeros(1, 0), float("inf"))],
        "nan": torch.tensor([float("nan"), -0.0]),
    }
    resume_state = ResumeState(
        round=3, model=torch.full((1, 2), 1 / 3), state=state, shared={}, kept={5: {"count": torch.ones(1, 1)}}
    )
    Checkpoint(store=store, cell_id="cell").save_if_due(resume_state, recorded=[(1, 0.5)], cpu_s=1.0, wall_s=2.0)
    plan = flat_plan(1, 2, size=4, rounds=5)
    found = Checkpoint(store=store, cell_id="cell").load(plan)
    assert found.recorded == [(1, 0.5)]
    assert repr(found.resume_state) == repr(resume_state)
    assert found.resume_state.state["by client"][0].dtype == torch.float64
    assert torch.equal(found.resume_state.model, resume_state.model)
    odd = ResumeState(round=3, model=torch.zeros(1, 1), state={"odd": object()}, shared={}, kept={})
    Checkpoint(store=store, cell_id="other").save_if_due(odd, recorded=[], cpu_s=1.0, wall_s=2.0)
    assert Checkpoint(store=store, cell_id="other").load(plan) is None
    assert list(tmp_path.rglob("*.npz")) == [tmp_path / "cells" / "cell" / "checkpoint.npz"]


def test_none_is_written_before_its_time(job, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_module, "EVERY_S", 60.0)
    monkeypatch.setattr(Store, "save_arrays", lambda *given: pytest.fail("wrote"))
    assert job().run(Store(tmp_path), frozenset()) == []
