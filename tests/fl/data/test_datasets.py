"""Data sets: their sources, their content, and the errors where none is available."""

import functools
import gzip
import hashlib
import os
import struct
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from fedassay.fl.data import datasets
from fedassay.fl.data.dataset import Dataset, DatasetMissing
from fedassay.fl.data.datasets import KNOWN_DATASETS, available, load_dataset

REAL = os.environ.get("FEDASSAY_DATA")
needs_real_data = pytest.mark.skipif(not REAL, reason="FEDASSAY_DATA is not set: the real MNIST files are not here")


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """An empty cache folder, no FEDASSAY_DATA, nothing remembered from before."""
    monkeypatch.delenv("FEDASSAY_DATA", raising=False)
    monkeypatch.setenv("FEDASSAY_CACHE", str(tmp_path / "cache"))
    datasets._load.cache_clear()
    yield tmp_path / "cache"
    datasets._load.cache_clear()


def _write_idx(path, array):
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes(), mtime=0))


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A folder with a four-image MNIST whose sums are expected; no mirror can be reached."""
    from torchvision.datasets import MNIST

    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    images = np.arange(4 * 28 * 28, dtype=np.uint64).reshape(4, 28, 28) % 256
    for part, count in (("train", 4), ("t10k", 2)):
        _write_idx(raw / f"{part}-images-idx3-ubyte.gz", images[:count].astype(np.uint8))
        _write_idx(raw / f"{part}-labels-idx1-ubyte.gz", np.array([7, 0, 9, 1], dtype=np.uint8)[:count])
    sums = [(path.name, hashlib.md5(path.read_bytes()).hexdigest()) for path in sorted(raw.glob("*.gz"))]
    monkeypatch.setattr(MNIST, "resources", sums)
    genuine = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in raw.glob("*.gz")}
    monkeypatch.setitem(datasets._SUMS, "mnist", genuine)
    monkeypatch.setattr(MNIST, "mirrors", [(tmp_path / "no-mirror").as_uri() + "/"])
    return tmp_path / "data"


def test_digits_are_split_three_to_one_and_scaled_to_the_unit_interval():
    digits = load_dataset("digits")
    assert digits.shape == (1, 8, 8)
    assert digits.train_images.shape == (1347, 1, 8, 8)
    assert digits.test_images.shape == (450, 1, 8, 8)
    assert digits.classes == 10
    assert float(digits.train_images.max()) == 1.0
    assert torch.equal(digits.train_labels[:8], torch.tensor([8, 8, 7, 7, 3, 5, 2, 7]))


def test_digits_hold_scikit_learns_images_each_once():
    from sklearn.datasets import load_digits

    digits = load_dataset("digits")
    ours = torch.cat([digits.train_images, digits.test_images]).flatten(1) * 16
    labels = torch.cat([digits.train_labels, digits.test_labels])
    theirs = load_digits()
    assert sorted(zip(ours.int().tolist(), labels.tolist(), strict=True)) == sorted(
        zip(theirs.data.astype(int).tolist(), theirs.target.tolist(), strict=True)
    )


def test_the_digest_of_digits_is_pinned():
    assert load_dataset("digits").digest == "259f9f4be4833893cfecbfd56426bad050a4790f6e703a007f7a06d3f6b77c51"


ANNOTATIONS = ("train_masks", "test_masks", "train_targets", "test_targets")


def test_the_region_of_a_digit_is_the_box_of_its_strokes():
    """Every stroke pixel is inside, and each side of the box touches one: of the box's rows and columns none is bare
    at its edge.
    """
    digits = load_dataset("digits")
    for images, masks in ((digits.train_images, digits.train_masks), (digits.test_images, digits.test_masks)):
        ink = images[:, 0] > 0.1
        assert not (ink & ~masks).any()
        for axis in (1, 2):
            assert torch.equal(masks.any(axis).int().sum(1), _length(ink.any(axis)))


def _length(there):
    return torch.tensor([int(row.nonzero().max() - row.nonzero().min()) + 1 for row in there])


def test_a_data_set_of_strokes_has_no_masks_of_its_own_and_the_same_digest():
    assert _two_images(strokes=True).digest == _two_images().digest
    assert _two_images(strokes=True).train_masks.all()
    assert _two_images().train_masks is None
    with pytest.raises(ValueError, match=r"masks .*must be None if strokes is true"):
        _two_images(strokes=True, test_masks=torch.zeros(2, 4, 4, dtype=torch.bool))


def _two_images(**changes):
    images, labels = torch.full((2, 1, 4, 4), 0.5), torch.tensor([0, 1])
    fields = {"train_images": images, "train_labels": labels, "test_images": images, "test_labels": labels}
    return Dataset(**{"name": "two", "classes": 2, **fields, **changes})


def test_the_digest_changes_with_the_name_and_with_each_array():
    flipped, brighter = torch.tensor([1, 0]), torch.full((2, 1, 4, 4), 0.75)
    changes = [
        {},
        {"name": "other"},
        {"train_images": brighter},
        {"test_images": brighter},
        {"train_labels": flipped},
        {"test_labels": flipped},
        *({name: torch.zeros(2, 4, 4, dtype=torch.bool)} for name in ANNOTATIONS),
        {"train_owners": flipped},
    ]
    digests = {_two_images(**change).digest for change in changes}
    assert len(digests) == len(changes)
    assert _two_images().digest == _two_images().digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": torch.zeros(2, 4, 4)}, r"train_images must be \(n, channel, height, width\) float32"),
        ({"test_images": torch.zeros(2, 1, 4, 4).double()}, "test_images must be .*of torch.float64"),
        ({"train_images": torch.full((2, 1, 4, 4), 255.0)}, r"train_images must be in \[0, 1\], got 255.0 to 255.0"),
        ({"train_images": torch.full((2, 1, 4, 4), torch.nan)}, r"train_images must be in \[0, 1\], got nan"),
        ({"train_labels": torch.tensor([0])}, r"train_labels must be int64 of shape \(2,\), got \(1,\)"),
        ({"test_labels": torch.tensor([0, 2])}, r"test_labels must be in \[0, 2\), got 0 to 2"),
        *(
            ({name: torch.zeros(2, 4, 4)}, rf"{name} must be booleans of shape \(2, 4, 4\), got")
            for name in ANNOTATIONS
        ),
        ({"train_owners": torch.tensor([0])}, r"train_owners must be int64 of shape \(2,\), got \(1,\)"),
        ({"train_owners": torch.tensor([0, -1])}, r"train_owners must be >= 0, got -1"),
        ({"columns": (("age", 4),)}, "columns must give each column of a table's rows"),
        ({"test_images": torch.zeros(2, 1, 8, 8)}, r"one shape, got \(1, 4, 4\) and \(1, 8, 8\)"),
        (
            {"test_images": torch.zeros(0, 1, 4, 4), "test_labels": torch.zeros(0).long()},
            "must hold at least one image, got none",
        ),
    ],
)
def test_arrays_that_are_not_as_promised_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        _two_images(**changes)


@pytest.mark.parametrize("columns", [(("age", 1), ("job", 2)), (("age", 4), ("job", 0)), (("age", 2), ("age", 2))])
def test_columns_that_do_not_make_the_row_are_refused(columns):
    rows = torch.zeros(2, 1, 1, 4)
    with pytest.raises(ValueError, match="features, 4 in all"):
        _two_images(train_images=rows, test_images=rows, train_masks=None, test_masks=None, columns=columns)


def test_a_second_load_gives_the_same_object():
    assert load_dataset("digits") is load_dataset("digits")


def test_an_unknown_name_lists_the_nearest_first():
    for ask in (load_dataset, available):
        with pytest.raises(ValueError, match=r"unknown data set 'fashion-mnist'; known: fashion_mnist, "):
            ask("fashion-mnist")


def test_available_names_the_source_of_each_data_set(fresh, tiny, monkeypatch):
    assert [available(name) for name in ("digits", "mnist", "fashion_mnist")] == [
        "bundled",
        "would be downloaded",
        "would be downloaded",
    ]
    from_folders = [available(name) for name in KNOWN_DATASETS[5:-2]]
    assert set(from_folders) == {"not here: FEDASSAY_DATA must name its folder"}
    monkeypatch.setenv("FEDASSAY_DATA", str(tiny))
    assert [available(name) for name in KNOWN_DATASETS[:3]] == [
        "bundled",
        "found in FEDASSAY_DATA",
        "would be downloaded",
    ]
    (tiny / "QMNIST" / "raw").mkdir(parents=True)
    (tiny / "QMNIST" / "raw" / "qmnist-train-labels-idx2-int.gz").touch()
    assert available("qmnist") == "found in FEDASSAY_DATA"
    assert available("fashion_features") == "would be downloaded"
    load_dataset("mnist")
    monkeypatch.delenv("FEDASSAY_DATA")
    assert available("mnist") == "in the cache"


def test_archives_in_a_read_only_folder_are_loaded_and_the_folder_stays_as_it_was(fresh, tiny, monkeypatch):
    monkeypatch.setenv("FEDASSAY_DATA", str(tiny))
    raw = tiny / "MNIST" / "raw"
    before = {path.name: path.read_bytes() for path in raw.iterdir()}
    raw.chmod(0o555)
    mnist = load_dataset("mnist")
    raw.chmod(0o755)
    assert {path.name: path.read_bytes() for path in raw.iterdir()} == before
    assert mnist.train_labels.tolist() == [7, 0, 9, 1]
    assert mnist.test_labels.tolist() == [7, 0]
    # The image bytes count 0, 1, 2, ... and start again after 255.
    expected = (torch.arange(4 * 28 * 28) % 256).reshape(4, 1, 28, 28) / 255
    torch.testing.assert_close(mnist.train_images, expected, rtol=0, atol=0)


def test_the_cache_alone_is_enough_once_it_is_filled(fresh, tiny, monkeypatch):
    monkeypatch.setenv("FEDASSAY_DATA", str(tiny))
    first = load_dataset("mnist")
    monkeypatch.delenv("FEDASSAY_DATA")
    datasets._load.cache_clear()
    again = load_dataset("mnist")
    assert again is not first
    assert again.digest == first.digest


def test_several_loads_at_once_leave_one_complete_copy_and_no_scraps(fresh, tiny, monkeypatch):
    monkeypatch.setenv("FEDASSAY_DATA", str(tiny))
    together, extract = threading.Barrier(4, timeout=20), datasets._extract_or_download

    def extract_together(*arguments):
        together.wait()
        extract(*arguments)
        together.wait()

    monkeypatch.setattr(datasets, "_extract_or_download", extract_together)
    digests = []
    threads = [threading.Thread(target=lambda: digests.append(load_dataset("mnist").digest)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(digests) == 4
    assert len(set(digests)) == 1
    assert [path.name for path in fresh.iterdir()] == ["MNIST"]
    assert sorted(path.name for path in (fresh / "MNIST" / "raw").iterdir()) == sorted(datasets._IDX_FILES)


def test_without_files_and_network_the_error_names_both_ways_out(fresh, tiny):
    with pytest.raises(DatasetMissing) as caught:
        load_dataset("mnist")
    message = str(caught.value)
    assert "mnist is not on this machine" in message
    assert "set FEDASSAY_DATA to a folder that holds MNIST/raw/train-images-idx3-ubyte.gz" in message
    assert "or connect to a network" in message
    assert isinstance(caught.value, FileNotFoundError)
    assert list(fresh.iterdir()) == []


def test_a_missing_archive_counts_as_missing(fresh, tiny, monkeypatch):
    monkeypatch.setenv("FEDASSAY_DATA", str(tiny))
    (tiny / "MNIST" / "raw" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DatasetMissing, match="three other archives"):
        load_dataset("mnist")


def test_a_damaged_archive_is_named_and_not_overwritten(fresh, tiny, monkeypatch):
    monkeypatch.setenv("FEDASSAY_DATA", str(tiny))
    damaged = tiny / "MNIST" / "raw" / "train-labels-idx1-ubyte.gz"
    damaged.write_bytes(b"cut off")
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte\.gz must have the SHA-256 sum"):
        load_dataset("mnist")
    assert damaged.read_bytes() == b"cut off"
    assert list(fresh.iterdir()) == []


def test_a_download_is_said_first_compared_with_its_sum_and_lands_in_the_cache(fresh, tiny, monkeypatch, capsys):
    from torchvision.datasets import MNIST

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    # A mirror on the loopback interface: torchvision's own download code runs, without a network.
    monkeypatch.setenv("no_proxy", "*")
    handler = functools.partial(Quiet, directory=str(tiny / "MNIST" / "raw"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as mirror:
        monkeypatch.setattr(MNIST, "mirrors", [f"http://127.0.0.1:{mirror.server_port}/"])
        threading.Thread(target=mirror.serve_forever, daemon=True).start()
        with monkeypatch.context() as patched:
            patched.setitem(datasets._SUMS, "mnist", datasets._SUMS["mnist"] | {"t10k-labels-idx1-ubyte.gz": "0" * 64})
            with pytest.raises(DatasetMissing, match="invalid hash value"):
                load_dataset("mnist")
        assert list(fresh.iterdir()) == []
        labels = load_dataset("mnist").train_labels
        mirror.shutdown()
    assert labels.tolist() == [7, 0, 9, 1]
    assert capsys.readouterr().err == f"mnist is not on this machine: it is downloaded to {fresh}\n" * 2
    assert available("mnist") == "in the cache"


def test_a_broken_cache_folder_is_named(fresh, tiny, monkeypatch):
    monkeypatch.setenv("FEDASSAY_DATA", str(tiny))
    (fresh / "MNIST" / "raw").mkdir(parents=True)
    with pytest.raises(OSError, match="MNIST is incomplete and could not be replaced"):
        load_dataset("mnist")


@pytest.mark.parametrize("name", KNOWN_DATASETS[6:-2])
def test_a_missing_data_set_of_a_folder_names_the_file_that_it_needs(fresh, name):
    files = {"sroie_tampered": "sroie", "shakespeare_secrets": "shakespeare"}.get(name, name)
    with pytest.raises(DatasetMissing, match=rf"{files} is not on this machine.*folder that holds .*is not set"):
        load_dataset(name)


@pytest.mark.simulations
@needs_real_data
@pytest.mark.parametrize(
    ("name", "first", "digest"),
    [
        ("mnist", [5, 0, 4, 1, 9], "38553f5f2eb7a864fd508b69100238f8d641481a019fd427c62164b9c8ca17dc"),
        ("fashion_mnist", [9, 0, 0, 3, 0], "f6601b4598d56f4119c2c61bfed4742cc8d8b1bceba860078f1f36df50ef2d03"),
    ],
)
def test_the_real_files_give_sixty_thousand_known_images(fresh, monkeypatch, name, first, digest):
    monkeypatch.setenv("FEDASSAY_DATA", REAL)
    loaded = load_dataset(name)
    assert loaded.train_images.shape == (60_000, 1, 28, 28)
    assert loaded.test_images.shape == (10_000, 1, 28, 28)
    assert loaded.train_labels[:5].tolist() == first
    assert loaded.digest == digest


def test_a_data_folder_that_does_not_exist_is_an_error(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("FEDASSAY_DATA", str(tmp_path / "slip"))
    with pytest.raises(DatasetMissing, match=r"FEDASSAY_DATA must name a folder, got .*slip"):
        load_dataset("mnist")
    assert load_dataset("digits").name == "digits"
