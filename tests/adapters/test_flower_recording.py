"""A strategy of either interface records what its server receives, and the recording can be attacked."""

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedassay[flower]'")

import flower_apps as newer
import numpy as np
import older_flower_apps as older
import torch
from fedassay.adapters.flower import App
from fedassay.adapters.flower_recording import record
from fedassay.api import attack_recording
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.recording import MessageRecorder, MessageRecording, record_rows
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp, strategy

SHAPES = {name: np.zeros(shape) for name, shape in newer.SHAPES.items()}
FEDAVG = {"name": "fedavg", "learning_rate": 0.1, "local_steps": 1}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # Of few candidates.


def run(apps, make_strategy, folder, observer="uploads"):
    def recording():
        return record(make_strategy(), MessageRecorder(folder, SHAPES, algorithm=FEDAVG, observer=observer))

    App(apps.server(recording, rounds=2), apps.client(examples=lambda node: node)).run(seed=1)
    return list(MessageRecording.read(folder).rounds())


@pytest.mark.parametrize(
    ("apps", "plain", "noised"),
    [(newer, newer.quiet, newer.fixed), (older, older.average, older.fixed)],
    ids=["newer", "older"],
)
def test_what_arrives_is_recorded_before_the_server_clips_and_adds_noise(tmp_path, apps, plain, noised):
    first, second = run(apps, plain, tmp_path / "plain")
    assert len(first.clients) == newer.CLIENTS
    examples = torch.tensor(first.samples, dtype=torch.float32)
    assert sorted(first.samples) == list(range(1, newer.CLIENTS + 1))
    # FedAvg is the mean weighted by examples.
    torch.testing.assert_close(first.after, (examples @ first.messages) / examples.sum(), rtol=1e-4, atol=1e-5)
    assert torch.equal(second.before, first.after)
    wrapped, _ = run(apps, noised, tmp_path / "noised")
    assert float((wrapped.messages - wrapped.before).norm(dim=1).min()) > 2 * newer.CLIP
    assert not torch.allclose(wrapped.after, first.after, atol=0.01)


def test_an_observer_of_models_gets_no_message_and_knows_who_took_part(tmp_path):
    first, _ = run(newer, newer.quiet, tmp_path, observer="global_models")
    assert first.messages is None
    assert len(first.clients) == newer.CLIENTS


def test_a_client_that_states_no_number_of_samples_is_named(tmp_path):
    recorder = MessageRecorder(tmp_path, SHAPES, algorithm=FEDAVG)
    app = App(newer.server(lambda: record(newer.quiet(), recorder, examples="images"), rounds=1), newer.client())
    with pytest.raises(ValueError, match=r"client \d+ must state its number of samples as the metric 'images'"):
        app.run()


def apps_on_digits(folder, make_strategy):
    data = load_dataset("digits")

    def net():
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

    def make_server_app():
        app = ServerApp()

        @app.main()
        def main(grid, context):
            recorder = MessageRecorder(folder, net(), algorithm=FEDAVG)
            record(make_strategy(), recorder).start(grid, ArrayRecord(net().state_dict()), num_rounds=2)

        return app

    def make_client_app():
        app = ClientApp()

        @app.train()
        def train(message, context):
            model, row = net(), int(context.node_config["partition-id"])
            model.load_state_dict(message.content["arrays"].to_torch_state_dict())
            record_rows(folder, str(context.node_id), [row])
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            torch.nn.functional.cross_entropy(model(data.train_images[[row]]), data.train_labels[[row]]).backward()
            optimizer.step()
            records = {
                "arrays": ArrayRecord(model.state_dict()),
                "metrics": MetricRecord({"num-examples": 1, "loss": 2.0}),
            }
            return Message(RecordDict(records), reply_to=message)

        return app

    return App(make_server_app, make_client_app, nodes=6)


@pytest.mark.parametrize(("share", "came"), [(1.0, 6), (0.5, 3)])
def test_a_flower_run_reveals_images_labels_and_members(tmp_path, monkeypatch, share, came):
    (tmp_path / "recorded_net.py").write_text(
        "from torch import nn\n\n\ndef net(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    average = lambda: strategy.FedAvg(fraction_train=share, fraction_evaluate=0.0)  # noqa: E731
    apps_on_digits("recording", average).run(seed=3)
    said = []
    attacks = ["analytic_linear", "idlg", "gradient_cosine"]
    options = {"folder": tmp_path / "run", "jobs": 1, "report": False, "show": said.append}
    found = attack_recording("recording", model="recorded_net.py:net", attacks=attacks, **options)
    values = {
        name: [one.value for one in found.records if one.metric == name] for name in ("psnr", "label_accuracy", "auc")
    }
    assert len(values["psnr"]) == came
    assert min(values["psnr"]) > 60
    assert values["label_accuracy"] == [1.0]
    if share == 1:
        assert values["auc"] == [1.0]
    assert any("not looked at: numbers that came with the messages, loss" in line for line in said)
