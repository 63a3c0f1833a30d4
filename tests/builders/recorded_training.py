"""A federation in plain PyTorch whose messages are recorded, as a deployment would record them."""

import numpy as np
import torch
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.models.network import Network
from fedassay.fl.recording import MessageRecorder, record_rows
from torch.nn.functional import cross_entropy


def record(
    folder,
    model="mlp",
    *,
    data=None,
    clients=4,
    samples=1,
    rounds=1,
    steps=1,
    rate=0.1,
    noise=0.0,
    observer="uploads",
    truth=True,
    present=lambda turn, client: True,
):
    """Train with plain gradient descent on consecutive rows of a data set, and record it into ``folder``.

    ``noise``: standard deviation of each number of a client's model; ``present``: who takes part in a round.
    """
    data = data or load_dataset("digits")
    network = Network(model=model, shape=data.shape, classes=data.classes)
    rng = np.random.default_rng(0)
    point = network.layout.unflatten(network.initial(rng))
    facts = {"name": "fedavg", "learning_rate": rate, "local_steps": steps}
    recorder = MessageRecorder(folder, point, algorithm=facts, observer=observer)
    rows = {f"client_{one}": torch.arange(one * samples, (one + 1) * samples) for one in range(clients)}
    if truth:
        for client, held in rows.items():
            record_rows(folder, client, held.tolist())
    for turn in range(rounds):
        sent = {}
        for client, held in rows.items():
            if present(turn, client):
                local = network.layout.flatten(point)
                for _ in range(steps):
                    local = local - rate * slope(network, local, data.train_images[held], data.train_labels[held])
                local = local + noise * torch.from_numpy(rng.normal(size=local.shape)).float()
                sent[client] = network.layout.unflatten(local)
        after = {name: torch.stack([one[name] for one in sent.values()]).mean(0) for name in point}
        shown = sent if observer == "uploads" else {}
        recorder.round(point, shown, after, samples=dict.fromkeys(sent, samples))
        point = after


def slope(network, weights, images, labels):
    weights = weights.detach().requires_grad_()
    return torch.autograd.grad(cross_entropy(network.logits(weights, images), labels), weights)[0]
