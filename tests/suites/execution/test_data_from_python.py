"""A data set that Python code gives as an object: read once, found by workers and by ``fedassay resume``."""

import json
import shutil
import tomllib

import fedassay
import pytest
import torch
from fedassay.cli.app import app
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.data.files.lookup import keep
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from run_files import begun_and_stopped
from torch.utils.data import IterableDataset, TensorDataset
from typer.testing import CliRunner


class Counted(torch.utils.data.Dataset):
    """120 images of three classes, which counts its reads; no worker could import the class of this test."""

    def __init__(self, seed=0):
        rng = torch.Generator().manual_seed(seed)
        self.images, self.reads = torch.rand(120, 1, 5, 5, generator=rng), 0

    def __len__(self):
        return 120

    def __getitem__(self, number):
        self.reads += 1
        return self.images[number], number % 3


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def suite(tiny, dataset):
    tree = tomllib.loads(tiny)
    tree["federations"]["main"]["dataset"] = dataset
    return tree


@pytest.mark.simulations
def test_a_run_with_such_data_is_resumed_from_the_command_line(tiny, tmp_path):
    data = Counted()
    begun_and_stopped(suite(tiny, data), tmp_path / "run")
    assert data.reads == 120
    resumed = CliRunner().invoke(app, ["resume", str(tmp_path / "run"), "-j", "1"])
    assert resumed.exit_code == 0, resumed.output
    whole = fedassay.run(suite(tiny, Counted()), jobs=1, report=False, folder=tmp_path / "whole")
    rows = [
        {(row.cell_id, row.metric, row.value) for row in run.records}
        for run in (whole, fedassay.open(tmp_path / "run"))
    ]
    assert rows[0] == rows[1]


@pytest.mark.simulations
def test_the_identity_is_that_of_the_content(tiny, tmp_path):
    runs = [begun_and_stopped(suite(tiny, Counted(seed)), tmp_path / f"{n}") for n, seed in enumerate((0, 0, 1))]
    first, equal, other = (run.store.manifest() for run in runs)
    assert first["run_id"] == equal["run_id"] != other["run_id"]
    assert str(tmp_path) not in json.dumps([first["suite"], first["data"]])


@pytest.mark.simulations
def test_resuming_without_the_copy_names_the_data_and_what_to_do(tiny, tmp_path, cache):
    data = Counted()
    begun_and_stopped(suite(tiny, data), tmp_path / "run")
    shutil.rmtree(cache)
    resumed = CliRunner().invoke(app, ["resume", str(tmp_path / "run"), "-j", "1"])
    assert resumed.exit_code == 2
    printed = " ".join(resumed.output.split())
    assert "was given to fedassay.run as a Python object, and its copy is not in the folder" in printed
    # The same object brings the copy back under the same name.
    keep(data)
    assert CliRunner().invoke(app, ["resume", str(tmp_path / "run"), "-j", "1"]).exit_code == 0


def test_a_table_gives_test_part_owners_and_a_class_without_samples(tiny):
    spec = {"part": Counted(), "test": Counted(1), "owners": [number // 10 for number in range(120)]}
    loaded = load_dataset(keep(spec | {"class_names": ["a", "b", "c", "d"]}))
    assert (loaded.classes, len(loaded.test_labels), int(loaded.train_owners.max())) == (4, 120, 11)
    assert torch.equal(loaded.train_images, Counted().images)
    load_suite(suite(tiny, spec))


@pytest.mark.parametrize("low", [0.0, 1.0])
def test_a_data_set_of_this_package_is_kept_as_it_is(low):
    # All black and all white images are not taken for whole numbers up to 255.
    images, labels = torch.full((6, 2, 3, 3), low), torch.arange(6) % 2
    given = Dataset(
        name="own", train_images=images, train_labels=labels, test_images=images, test_labels=labels, classes=2
    )
    loaded = load_dataset(keep(given))
    assert torch.equal(loaded.train_images, images)
    assert torch.equal(loaded.test_labels, labels)


def test_rows_of_a_table_are_kept_with_their_numbers():
    rows = 100 * torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    loaded = load_dataset(keep(TensorDataset(rows, torch.arange(40) % 2)))
    assert loaded.rows
    found = {tuple(row) for part in (loaded.train_images, loaded.test_images) for row in part[:, 0, 0].tolist()}
    assert found == {tuple(row) for row in rows.tolist()}


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Stream(), "federations.main.dataset: Stream: train must be a map-style data set"),
        (TensorDataset(torch.full((4, 1, 3, 3), torch.nan), torch.arange(4)), "NaN"),
        (
            TensorDataset(torch.rand(4, 1, 3, 3), torch.tensor([0.5] * 4)),
            "the label of sample 0 must be a class number",
        ),
        ({"part": Counted(), "owner": [0]}, "a data set of PyTorch has no option 'owner'; it has owners"),
        ({"part": Counted(), "owners": [0]}, "must have equal lengths, got 1 and 120 rows"),
        (3.5, "data set must be a name or a table with the key part"),
    ],
)
def test_an_object_that_is_no_such_data_set_is_refused(tiny, dataset, message):
    with pytest.raises(ConfigError, match=message):
        load_suite(suite(tiny, dataset))


@pytest.mark.processes
@pytest.mark.long
def test_workers_find_the_copy(tiny, tmp_path):
    run = fedassay.run(suite(tiny, Counted()), jobs=2, report=False, folder=tmp_path / "run")
    assert "failed" not in {record.status for record in run.records}
