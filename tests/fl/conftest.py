"""A federation small enough to compute by hand: random 4x4 images, three classes, four unequal clients."""

import gzip
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.engine import run_federation
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Protection
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch
from PIL import Image, ImageDraw
from tape import Tape
from toy_federation import toy_plan, toy_task


@pytest.fixture
def make_task():
    """(sizes, model, ...) -> a Task of random images; the logistic one has 51 weights and ``inert`` more."""
    given = {"side": 4, "outsiders": 7, "stream": "toy images", "shuffled": True}
    return lambda sizes=(6, 10, 3, 5), **changes: toy_task(sizes, **(given | changes))


@pytest.fixture
def make_plan():
    """(task, changes) -> its Plan; by default three rounds, all clients and samples, two local steps."""
    algorithm = FedAvg(learning_rate=0.3, local_steps=2)
    return lambda task, **changes: toy_plan(task, **({"algorithm": algorithm} | changes))


@pytest.fixture
def trained(make_task, make_plan):
    """(protection, changes to the plan) -> a training with its ``task``, ``plan``, ``final`` models, ``tape`` and
    ``events``; of the task of ``sizes`` where none is given. ``more``: further arguments of ``run_federation``.
    """

    def train(
        protection=None, *, task=None, sizes=(6, 10, 3, 5), seed=0, canary=None, recorders=(), more=(), **changes
    ):
        runs = {name: changes.pop(name) for name in ("replicas", "block", "arm", "included") if name in changes}
        task = task or make_task(sizes)
        plan, tape = make_plan(task, **changes), Tape()
        options = {"batch": Batch(**runs), "canary": canary, "recorders": [tape, *recorders]} | dict(more)
        final = run_federation(task, plan, protection or Protection(), Streams(seed), **options)
        return SimpleNamespace(task=task, plan=plan, final=final, tape=tape, events=tape.events)

    return train


@pytest.fixture
def in_double(monkeypatch):
    """(task) -> the task in double precision, and so all that is trained on it.

    Adam divides each gradient by its own size: what single precision leaves of a sum near 0 differs from processor to
    processor, and is as large a step as any other.
    """
    initial = Network.initial

    def convert(task):
        monkeypatch.setattr(Network, "initial", lambda network, rng: initial(network, rng).double())
        # Its fields are set, since a task in double precision is refused.
        object.__setattr__(task, "images", task.images.double())
        if task.warm_start:
            object.__setattr__(task, "warm_start", replace(task.warm_start, images=task.warm_start.images.double()))
        return task

    return convert


@pytest.fixture
def make_tape():
    return Tape


class ReceiptPrinter:
    """Draws receipts 200 x 300 without real data and writes them in SROIE's format."""

    def __init__(self, root):
        self.root = root

    def entry(self, number):
        """An annotation: shop, phone, date, two prices, total; fields far enough apart for three crops."""
        date, total = f"{number % 28 + 1:02}/03/2018", f"{number + 10}.{number % 9}5"
        lines = [
            [20, 2, 80, 14, f"SHOP NO {number}"],
            [20, 20, 120, 32, f"TEL: 03-{5550000 + number}"],
            [20, 110, 120, 122, f"DATE: {date}"],
            [120, 150, 160, 162, f"{number + 1}.20"],
            [120, 170, 160, 182, f"{number + 2}.30"],
            [20, 240, 60, 252, "TOTAL"],
            [120, 240, 160, 252, total],
        ]
        return {"id": f"{number:03}", "w": 200, "h": 300, "boxes": lines, "key": {"date": date, "total": f"RM{total}"}}

    def print(self, entries):
        """Write scans and annotations; an entry that is text already is written as it is."""
        folder = self.root / "sroie"
        (folder / "img").mkdir(parents=True, exist_ok=True)
        for entry in entries:
            if isinstance(entry, dict):
                self.draw(entry).save(folder / "img" / f"{entry['id']}.webp", lossless=True)
        text = "\n".join(entry if isinstance(entry, str) else json.dumps(entry) for entry in entries) + "\n"
        (folder / "annotations.jsonl.gz").write_bytes(gzip.compress(text.encode()))
        return DataFolder(self.root)

    def draw(self, entry):
        """Black text on white, each line within its box."""
        scan = Image.new("L", (entry["w"], entry["h"]), 255)
        for left, top, _, _, text in entry["boxes"]:
            ImageDraw.Draw(scan).text((left, top), text, fill=0)
        return scan


@pytest.fixture
def printer(tmp_path):
    return ReceiptPrinter(tmp_path)
