"""A recording is data only: what is written is read back, and a damaged or unfit one is refused with its place."""

import json

import numpy as np
import pytest
import torch
from fedassay.audit.output_file import with_checksum
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.layout import Layout
from fedassay.fl.plan import Plan
from fedassay.fl.recording import MessageRecorder, MessageRecording, record_rows
from fedassay.fl.sampling import Full
from torch import nn

FEDAVG = {"name": "fedavg", "learning_rate": 0.5, "local_steps": 2}
FEDSGD = {"name": "fedsgd", "learning_rate": 0.5}


def net():
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


def tensors(fill, **changed):
    return {name: torch.full_like(one, fill) for name, one in net().state_dict().items()} | changed


def recorded(folder, rounds=2, **options):
    recorder = MessageRecorder(folder, net(), algorithm=FEDAVG, **options)
    for number in range(rounds):
        sent = {"b": tensors(number + 3), "a": tensors(number + 2)}
        recorder.round(
            tensors(number), sent, tensors(number + 1), samples={"a": 4, "b": 5}, metrics={"a": {"loss": 0.5}}
        )
    return recorder


def plan(network_layout, sizes=(5, 4), algorithm=None, rounds=2):
    algorithm = algorithm or FedAvg(learning_rate=0.5, local_steps=2)
    return Plan(sizes=sizes, rounds=rounds, cohort=Full(), lot=Full(), algorithm=algorithm, layout=network_layout)


def layout():
    named = dict(net().named_parameters())
    return Layout(names=tuple(named), shapes=tuple(tuple(one.shape) for one in named.values()))


def test_what_is_written_is_read_back_as_the_updates_that_the_server_adds(tmp_path):
    recorded(tmp_path / "r")
    found = MessageRecording.read(tmp_path / "r")
    assert found.clients == ("b", "a")
    assert (found.truth, found.sizes, found.cohort) == (None, (5, 4), "full")
    first, second = found.events(plan(layout()))
    assert first.reports.senders == second.reports.senders == (0, 1)
    # Client b sent 3 for a model of 0, client a 2; the server moved by 1.
    assert torch.equal(first.reports.values[0], torch.tensor([[3.0], [2.0]]).expand(2, layout().dim))
    assert torch.equal(second.broadcast, torch.ones(1, layout().dim))
    assert torch.equal(second.aggregate, torch.ones(1, layout().dim))
    assert [mask.shape for mask in first.lots[1]] == [(1, 4)] * 2
    assert set(found.unused(layout())) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert [one.metrics for one in found.rounds()] == [{"a": {"loss": 0.5}}] * 2


@pytest.mark.parametrize(("sends", "update"), [("updates", 2.0), ("gradients", -2.0)])
def test_updates_are_kept_and_gradients_change_their_sign(tmp_path, sends, update):
    algorithm = FEDSGD if sends == "gradients" else FEDAVG
    recorder = MessageRecorder(tmp_path, net(), algorithm=algorithm, sends=sends)
    recorder.round(tensors(7), {"a": tensors(2)}, tensors(8), samples={"a": 4})
    built = FedSGD(learning_rate=0.5) if sends == "gradients" else None
    (event,) = MessageRecording.read(tmp_path).events(plan(layout(), (4,), built, 1))
    assert set(event.reports.values.flatten().tolist()) == {update}


def test_tensors_in_the_order_of_the_model_are_as_good_as_tensors_by_name(tmp_path):
    recorder = MessageRecorder(tmp_path, net(), algorithm=FEDAVG)
    ordered = [one.numpy() for one in tensors(2).values()]
    recorder.round(ordered, {"a": ordered}, ordered, samples={"a": 1})
    (one,) = MessageRecording.read(tmp_path).rounds()
    assert set(one.messages.flatten().tolist()) == {2.0}


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (
            {name: one for name, one in tensors(1).items() if name != "0.bias"},
            "of a in round 0 lacks the tensor 0.bias",
        ),
        (tensors(1, **{"0.bias": torch.zeros(3)}), r"tensor 0.bias must have shape \(2,\), got \(3,\)"),
        (tensors(1, **{"0.bias": torch.tensor([1.0, float("nan")])}), "tensor 0.bias must be finite"),
        (tensors(1, **{"0.bias": torch.tensor([1e39, 1.0], dtype=torch.float64)}), "tensor 0.bias must be finite"),
        (tensors(1, other=torch.zeros(1)), "'other', which is no tensor of the model"),
        ([np.zeros(2)], "must hold 7 tensors"),
    ],
    ids=["missing", "shape", "NaN", "beyond single precision", "unknown", "count"],
)
def test_a_message_that_does_not_fit_is_refused_with_client_round_and_tensor(tmp_path, message, error):
    recorder = MessageRecorder(tmp_path, net(), algorithm=FEDAVG)
    with pytest.raises(ValueError, match=error):
        recorder.round(tensors(0), {"a": message}, tensors(1), samples={"a": 4})
    with pytest.raises(ValueError, match="holds no round"):
        MessageRecording.read(tmp_path)


def test_a_second_recording_in_one_folder_is_refused_and_rows_may_come_first(tmp_path):
    record_rows(tmp_path, "a", [0, 1])
    recorded(tmp_path)
    with pytest.raises(ValueError, match="never written over"):
        recorded(tmp_path)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"algorithm": FEDAVG, "sends": "gradients"}, "clients of fedsgd send gradients"),
        ({"algorithm": FEDSGD}, "clients of fedsgd send gradients"),
        ({"algorithm": {"name": "fedavg"}}, "learning_rate"),
        ({"algorithm": FEDAVG, "observer": "everyone"}, "observer must be one of uploads, aggregate, global_models"),
        ({"algorithm": FEDAVG, "sends": "words"}, "sends must be one of models, updates, gradients"),
    ],
)
def test_facts_that_do_not_fit_together_are_refused(tmp_path, options, error):
    with pytest.raises(ValueError, match=error):
        MessageRecorder(tmp_path, net(), **options)


def test_messages_are_those_that_the_observer_receives(tmp_path):
    recorder = MessageRecorder(tmp_path, net(), algorithm=FEDAVG, observer="aggregate")
    with pytest.raises(ValueError, match="must have messages if the observer receives uploads"):
        recorder.round(tensors(0), {"a": tensors(1)}, tensors(1), samples={"a": 4})
    recorder.round(tensors(0), {}, tensors(1))
    for client, rows in (("b", [4]), ("a", [0, 1])):
        record_rows(tmp_path, client, rows)
    found = MessageRecording.read(tmp_path)
    assert (found.clients, found.sizes, found.cohort) == (("a", "b"), (2, 1), "full")
    (event,) = found.events(plan(layout(), (2, 1), rounds=1))
    assert event.reports.values.shape == (1, 0, layout().dim)
    assert set(event.aggregate.flatten().tolist()) == {1.0}


def test_a_message_needs_its_number_of_samples_and_a_client_a_plain_name(tmp_path):
    recorder = MessageRecorder(tmp_path, net(), algorithm=FEDAVG)
    with pytest.raises(ValueError, match="samples of client a in round 0 must be a number >= 1, got None"):
        recorder.round(tensors(0), {"a": tensors(1)}, tensors(1))
    for name in ("../a", "", "a/b", "a" * 65):
        with pytest.raises(ValueError, match="a client's name must be"):
            recorder.round(tensors(0), {name: tensors(1)}, tensors(1), samples={name: 4})
        with pytest.raises(ValueError, match="a client's name must be"):
            record_rows(tmp_path, name, [0])


def test_rows_are_kept_once_and_must_agree_with_the_messages(tmp_path):
    recorded(tmp_path)
    record_rows(tmp_path, "a", range(4))
    with pytest.raises(ValueError, match="must name the rows of every client of the recording, but lacks b"):
        MessageRecording.read(tmp_path)
    record_rows(tmp_path, "b", range(4, 9))
    record_rows(tmp_path, "b", range(4, 9))
    found = MessageRecording.read(tmp_path)
    assert [rows.tolist() for rows in found.truth] == [[4, 5, 6, 7, 8], [0, 1, 2, 3]]
    with pytest.raises(ValueError, match="holds other rows of client b"):
        record_rows(tmp_path, "b", range(5, 10))
    for wrong in ([], [-1], [2, 2]):
        with pytest.raises(ValueError, match="must be different indices >= 0"):
            record_rows(tmp_path, "c", wrong)
    (tmp_path / "truth" / "a.json").write_text(
        json.dumps(with_checksum({"schema": "recording-1", "client": "a", "rows": [0, 1]}))
    )
    changed = MessageRecording.read(tmp_path)
    assert changed.digest != found.digest
    with pytest.raises(ValueError, match="from 4 samples, but its truth names 2"):
        _ = changed.sizes


def test_a_client_has_one_number_of_samples(tmp_path):
    recorder = MessageRecorder(tmp_path, net(), algorithm=FEDAVG)
    for count in (4, 5):
        recorder.round(tensors(0), {"a": tensors(1)}, tensors(1), samples={"a": count})
    with pytest.raises(ValueError, match="in round 1 is from 5 samples, but an earlier one is from 4"):
        _ = MessageRecording.read(tmp_path).sizes


def rewritten(folder, **changes):
    path = folder / "recording.json"
    path.write_text(json.dumps(with_checksum(json.loads(path.read_text()) | changes)))


def resealed(folder, **changes):
    """The first round with other arrays, whose checksum is right again; an array of None is left out."""
    import hashlib

    path = folder / "round000000.npz"
    arrays = {name: one for name, one in ({**np.load(path)} | changes).items() if one is not None}
    np.savez(path, **arrays)
    facts = json.loads((folder / "recording.json").read_text())
    rewritten(folder, rounds=[hashlib.sha256(path.read_bytes()).hexdigest(), *facts["rounds"][1:]])


DIM = sum(one.numel() for one in net().state_dict().values())
DAMAGES = {
    "no header": (lambda f: (f / "recording.json").unlink(), "recording.json is missing"),
    "no JSON": (lambda f: (f / "recording.json").write_text("{"), "is not JSON"),
    "a list": (lambda f: (f / "recording.json").write_text("[]"), "must hold a JSON object"),
    "another version": (lambda f: rewritten(f, schema="recording-2"), "has schema 'recording-2'"),
    "changed facts": (
        lambda f: (f / "recording.json").write_text((f / "recording.json").read_text().replace("models", "updates")),
        "differs from its checksum",
    ),
    "wrong fact": (lambda f: rewritten(f, clients="a"), "clients is missing or has a wrong type"),
    "wrong shape": (lambda f: rewritten(f, tensors={"a": [1.5]}), "must hold a shape of whole numbers"),
    "wrong tensor": (lambda f: rewritten(f, sent=["a"]), "sent must name tensors of the model"),
    "code": (lambda f: rewritten(f, algorithm={"part": "os:system"}), "algorithm must be one of fedsgd, fedavg"),
    "missing round": (lambda f: (f / "round000001.npz").unlink(), "round000001.npz is missing"),
    "cut off": (
        lambda f: (f / "round000001.npz").write_bytes((f / "round000001.npz").read_bytes()[:-9]),
        "round000001.npz differs from its checksum: it was changed, damaged or cut off",
    ),
    "lacks an array": (lambda f: resealed(f, after=None), "must hold the array after"),
    "another shape": (lambda f: resealed(f, before=np.zeros(DIM - 1)), "array before must hold finite numbers"),
    "NaN": (lambda f: resealed(f, messages=np.full((2, DIM), np.nan)), "array messages must hold finite numbers"),
    "Python objects": (lambda f: resealed(f, metrics=np.array([{}], dtype=object)), "round000000.npz"),
    "unknown client": (lambda f: resealed(f, clients=np.array(["a", "z"])), "names the client z"),
}


@pytest.mark.parametrize(("damage", "error"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_recording_is_refused_with_the_file_and_the_fault(tmp_path, damage, error):
    recorded(tmp_path)
    damage(tmp_path)
    with pytest.raises(ValueError, match=error):
        list(MessageRecording.read(tmp_path).events(plan(layout())))


def test_a_model_that_was_not_recorded_is_refused_with_its_tensor(tmp_path):
    recorded(tmp_path)
    found = MessageRecording.read(tmp_path)
    with pytest.raises(
        ValueError, match=r"tensor 0.weight has shape .4, 3., and messages of the recording have .2, 3."
    ):
        found.unused(Layout(names=("0.weight",), shapes=((4, 3),)))
    with pytest.raises(ValueError, match=r"tensor head has shape .2,., and messages .* no tensor of this name"):
        found.unused(Layout(names=("head",), shapes=((2,),)))


def test_the_cohort_is_that_of_the_rounds(tmp_path):
    recorder = MessageRecorder(tmp_path, net(), algorithm=FEDAVG)
    for names in ("ab", "bc"):
        recorder.round(tensors(0), {one: tensors(1) for one in names}, tensors(1), samples=dict.fromkeys(names, 4))
    assert MessageRecording.read(tmp_path).cohort == {"fixed_size": 2}
    recorder.round(tensors(0), {"a": tensors(1)}, tensors(1), samples={"a": 4})
    assert MessageRecording.read(tmp_path).cohort == {"poisson": pytest.approx(5 / 9)}
    first, second, _ = MessageRecording.read(tmp_path).events(plan(layout(), (4, 4, 4), rounds=3))
    assert first.cohort.tolist() == [[True, True, False]]
    assert second.reports.senders == tuple(second.lots) == (1, 2)


def test_who_took_part_can_be_known_without_messages(tmp_path):
    recorder = MessageRecorder(tmp_path, net(), algorithm=FEDAVG, observer="aggregate")
    for names in ("ab", "bc"):
        recorder.round(tensors(0), {}, tensors(1), samples=dict.fromkeys(names, 4))
    found = MessageRecording.read(tmp_path)
    assert (found.clients, found.sizes, found.cohort) == (("a", "b", "c"), (4, 4, 4), {"fixed_size": 2})
    _, second = found.events(plan(layout(), (4, 4, 4)))
    assert second.cohort.tolist() == [[False, True, True]]
    assert second.reports.senders == ()


def test_nothing_is_written_through_a_link_out_of_the_folder(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "truth").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is a link that leads out of the folder"):
        record_rows(tmp_path / "r", "a", [0])
    assert not list((tmp_path / "elsewhere").iterdir())
