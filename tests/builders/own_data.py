"""Small data files as users have them, and suites of at most fifteen lines on them."""

import numpy as np
from PIL import Image

SUITE = """\
name = "mine"
alpha = 0.05
seeds = 2
[federations.main]
dataset = {dataset}
model = "{model}"
clients = 3
rounds = 2
algorithm = {{ name = "fedsgd", learning_rate = 0.5 }}
[defenses.none]
[defenses.ldp_gaussian]
delta = 1e-5
epsilon = 4.0
[attacks.loss]
count = 4
"""


def write_images(path, *, seed=0):
    """An archive of 90 grey images 8x8 of three classes from nine owners."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=90)
    images = (rng.random((90, 8, 8)) * 100 + 50 * labels[:, None, None]).astype(np.uint8)
    np.savez(path, x_train=images, y_train=labels, owner_train=np.arange(90) // 10)


def write_records(path):
    """A table of 80 records with numbers far outside of [0, 1], a category and a label."""
    jobs = ("cook", "nurse", "pilot")
    rows = [f"{20 + i % 40},{1000 * (i % 2) + i},{jobs[i % 3]},{'yes' if i % 2 else 'no'}" for i in range(80)]
    path.write_text("\n".join(["age,income,job,label", *rows]), encoding="utf-8")


def write_photos(folder):
    """A folder of 80 colour images 8x8, forty for each of two classes."""
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(40):
            Image.fromarray(rng.integers(256, size=(8, 8, 3), dtype=np.uint8)).save(folder / name / f"{number}.png")


def write_suite(folder, kind):
    """Write the data of one kind and a suite on them, and return the suite's path."""
    dataset, model = {
        "images": ('"own.npz"', "lenet"),
        "records": ('{ part = "data/own.csv", ranges = { age = [0, 100] } }', "mlp"),
        "photos": ('"./photos"', "logistic"),
    }[kind]
    if kind == "images":
        write_images(folder / "own.npz")
    elif kind == "records":
        (folder / "data").mkdir()
        write_records(folder / "data" / "own.csv")
    else:
        write_photos(folder / "photos")
    (folder / "suite.toml").write_text(SUITE.format(dataset=dataset, model=model), encoding="utf-8")
    return folder / "suite.toml"
