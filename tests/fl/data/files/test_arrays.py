"""A numpy archive of one's own: what is read, what is decided for the user and reported, and what is refused."""

import io
import zipfile

import numpy as np
import pytest
import torch
from fedassay.fl.data.files.arrays import write_npz
from fedassay.fl.data.files.lookup import DataFile
from fedassay.fl.data.files.readers import arrays_of


def images(n=40, shape=(6, 5), top=255):
    return np.random.default_rng(0).integers(top + 1, size=(n, *shape)).astype(np.uint16 if top > 255 else np.uint8)


@pytest.fixture
def read(tmp_path):
    """(arrays and options) -> the data set that an archive of these arrays holds."""

    def load(options=None, **arrays):
        given = {"x_train": images(), "y_train": np.arange(40) % 4} | arrays
        np.savez(tmp_path / "own.npz", **{key: value for key, value in given.items() if value is not None})
        return DataFile.of("own.npz", options or {}, str(tmp_path)).load()

    return load


def pixels(loaded):
    return sorted(torch.cat([loaded.train_images, loaded.test_images])[:, 0, 0, 0].mul(255).round().int().tolist())


def test_the_arrays_arrive_unchanged_in_their_order(read):
    x, y = images(), np.arange(40) % 4
    loaded = read(x_test=x[:8], y_test=y[:8], owner_train=np.arange(40) // 10)
    assert torch.equal(loaded.train_images[:, 0], torch.from_numpy(x / np.float32(255)).float())
    assert loaded.train_labels.tolist() == y.tolist()
    assert torch.equal(loaded.test_images, loaded.train_images[:8])
    assert loaded.train_owners.tolist() == (np.arange(40) // 10).tolist()
    assert (loaded.classes, loaded.shape, loaded.train_masks, loaded.rows) == (4, (1, 6, 5), None, False)


def test_without_a_test_part_each_class_gives_a_fifth_and_no_sample_is_in_both(read):
    x = np.arange(40, dtype=np.uint8)[:, None, None] * np.ones((1, 6, 5), dtype=np.uint8)
    loaded = read(x_train=x)
    assert pixels(loaded) == list(range(40))
    assert torch.bincount(loaded.test_labels).tolist() == [2, 2, 2, 2]
    assert any("8 of 40 samples were split off" in note and "split_seed 0" in note for note in loaded.notes)
    assert not torch.equal(read(x_train=x, options={"split_seed": 1}).test_images, loaded.test_images)
    assert len(read(x_train=x, options={"test_share": 0.5}).test_labels) == 20


def test_the_split_keeps_the_samples_of_an_owner_together(read):
    x = (np.arange(40) // 4).astype(np.uint8)[:, None, None] * np.ones((1, 6, 5), dtype=np.uint8)
    loaded = read(x_train=x, owner_train=np.array([f"user {i // 4}" for i in range(40)]))
    train, test = (set(part.mul(255).round().flatten().tolist()) for part in (loaded.train_images, loaded.test_images))
    assert (train & test, len(train), len(test)) == (set(), 8, 2)
    assert sorted(set(loaded.train_owners.tolist())) == list(range(8))


@pytest.mark.parametrize(
    ("given", "options", "shape"),
    [
        ((6, 5, 3), {}, (3, 6, 5)),
        ((3, 6, 5), {}, (3, 6, 5)),
        ((6, 5, 1), {}, (1, 6, 5)),
        ((3, 4, 1), {"channels": "first"}, (3, 4, 1)),
        ((3, 4, 1), {"channels": "last"}, (1, 3, 4)),
    ],
)
def test_the_channel_axis_is_found_where_only_one_fits_or_stated(read, given, options, shape):
    x = images(shape=given)
    loaded = read(x_train=x, x_test=x[:4], y_test=np.arange(4), options=options)
    wanted = x if given == shape else x.transpose(0, 3, 1, 2)
    assert torch.equal(loaded.train_images, torch.from_numpy(wanted / np.float32(255)).float())


def test_rows_are_kept_as_they_are(read):
    rows = np.random.default_rng(0).normal(size=(40, 7)) * 100
    loaded = read(x_train=rows, x_test=rows[:5], y_test=np.arange(5) % 4)
    assert loaded.rows
    np.testing.assert_allclose(loaded.train_images[:, 0, 0], rows, rtol=1e-6)
    read(x_train=np.stack([np.zeros(40), np.arange(40) + 2.0**22], axis=1))


def test_texts_are_names_of_classes_and_look_alikes_are_reported(read):
    loaded = read(y_train=np.array(["dog", "cat"] * 20), x_test=images(4), y_test=np.array(["cat", "dog"] * 2))
    assert loaded.class_names == ("cat", "dog")
    assert loaded.train_labels[:2].tolist() == [1, 0]
    notes = read(y_train=np.array(["dog", "Dog", "cat", "cat "] * 10)).notes
    assert any("only by case or blanks: 'Dog', 'cat', 'cat ', 'dog'" in note for note in notes)


def test_labels_that_leave_out_class_0_are_kept_and_reported(read):
    loaded = read(y_train=np.arange(40) % 4 + 1)
    assert (loaded.classes, int(loaded.train_labels.min())) == (5, 1)
    assert "Classes without a training sample: 0." in loaded.notes
    assert any("start at 0" in note for note in loaded.notes)
    assert read(options={"classes": 9, "ignore": ["x_val"]}, x_val=images(3)).classes == 9


@pytest.mark.parametrize(
    ("given", "unit"),
    [
        (images(), 255),
        (images().astype(float), 255),
        (images() / 255.0, 1),
        (images(top=1).astype(bool), 1),
        (images(top=4095), 4095),
        (images(top=65535), 65535),
    ],
)
def test_the_range_of_the_pixels_is_decided_and_reported(read, given, unit):
    loaded = read(x_train=given)
    total = float(loaded.train_images.double().sum() + loaded.test_images.double().sum())
    assert total == pytest.approx(float(given.astype(float).sum()) / unit, rel=1e-5)
    assert any((f"divided by {unit}" if unit > 1 else "kept as they are") in note for note in loaded.notes)


def test_one_rule_scales_both_parts(read):
    # Alone, a dark test part would count as one in [0, 1].
    loaded = read(x_test=images(4, top=1), y_test=np.arange(4))
    assert float(loaded.test_images.max()) == pytest.approx(1 / 255)


def test_masks_and_targets_make_a_segmentation_which_is_written_and_read_back(read, tmp_path):
    marks = images(top=1).astype(bool)
    marks[:10] = False
    loaded = read(target_train=marks, mask_train=marks, y_train=None, owner_train=np.arange(40) // 4)
    assert loaded.classes == 2
    for part in ("train", "test"):
        targets = getattr(loaded, f"{part}_targets")
        assert torch.equal(targets, getattr(loaded, f"{part}_masks"))
        assert getattr(loaded, f"{part}_labels").tolist() == targets.any(2).any(1).long().tolist()
    write_npz(loaded, tmp_path / "again.npz")
    again = DataFile("again.npz", folder=str(tmp_path)).load()
    for name in ("train_images", "test_labels", "train_masks", "test_targets", "train_owners"):
        assert torch.equal(getattr(again, name), getattr(loaded, name))
    with pytest.raises(ValueError, match="no option applies"):
        DataFile.of("again.npz", {"test_share": 0.5}, str(tmp_path)).load()


def wrong(array, row, value):
    changed = array.astype(float)
    changed[row] = value
    return changed


def rows(values):
    return {"x_train": np.stack([np.zeros_like(values), values], axis=1)}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x_train": None}, "must hold an array x_train, got y_train"),
        ({"owners_train": np.arange(40)}, "array 'owners_train' is unknown; known arrays: owner_train"),
        ({"x_test": images(4)}, "needs an array y_test, which is missing"),
        ({"mask_train": images(top=1), "x_test": images(4), "y_test": np.arange(4)}, "needs an array mask_test"),
        ({"y_train": np.arange(39) % 4}, "y_train and x_train must have equal lengths, got 39 and 40 rows"),
        ({"owner_train": np.arange(40) * 0.5}, "owner_train must hold one owner per sample.* float64"),
        ({"owner_train": np.zeros(40, int)}, "too few owners"),
        ({"x_train": images(4), "y_train": np.arange(4)}, "too few samples of a class"),
        ({"x_train": wrong(images() / 255, 7, np.nan)}, r"finite numbers.* row 7 \(1 such row\)"),
        ({"x_train": images() / 100.0}, r"pixels in 0..1, or whole numbers .* got 0 to 2.55"),
        ({"x_train": images().astype(int) * 999}, "got 0 to 254745"),
        ({"x_train": images(shape=(3, 3, 3))}, r'shape \(40, 3, 3, 3\), in which both.* set channels to "first"'),
        ({"x_train": images(shape=(3, 2, 2, 2))}, r"must be real numbers: images .* got shape \(40, 3, 2, 2, 2\)"),
        ({"x_train": np.zeros((0, 5, 5)), "y_train": np.zeros(0, int)}, r"got shape \(0, 5, 5\)"),
        (rows(np.arange(40) + 2.0**24), "column 1 holds different whole numbers that are one number in single"),
        (rows(np.where(np.arange(40) == 7, 1e308, 0)), "column 1 holds a number that is too large in row 7"),
        ({"x_test": images(4, shape=(6, 6)), "y_test": np.arange(4)}, r"one shape and kind, got \(6, 5\)"),
        ({"x_test": images(4), "y_test": np.array(["a", "b"] * 2)}, "y_train and y_test must .* of one shape and kind"),
        ({"x_test": images(4).astype("M8[s]"), "y_test": np.arange(4)}, r"one shape and kind, got .* of datetime64\[s"),
        ({"y_train": wrong(np.arange(40) % 4, 5, 0.5)}, "one class per sample.*float64"),
        ({"y_train": (np.arange(40) % 4).astype(np.uint64) + 2**63}, r"class numbers .* in row 0 \(40"),
        ({"y_train": np.arange(40) % 4 - 1}, r"class numbers from 0 to 2, got another in row 0 \("),
        ({"y_train": np.zeros(40, int)}, "at least two classes"),
        ({"y_train": np.where(np.arange(40) == 3, 10**9, np.arange(40) % 4)}, "from 0 to 9999, got another in row 3"),
        ({"y_train": np.array([{"a": 1}] * 40, dtype=object)}, "y_train holds Python objects, which are never read"),
        ({"target_train": images()}, "target must be .* booleans"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(read, arrays, says):
    with pytest.raises(ValueError, match=says) as refused:
        read(**arrays)
    assert "own.npz" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"test_share": 1.0}, "own.npz: option test_share.*got 1.0"),
        ({"test_shares": 0.1}, "own.npz has no option 'test_shares'; it has test_share"),
        ({"pixels": "0..1"}, "must hold pixels in 0..1, got 0 to 255"),
        ({"classes": 3}, "class numbers from 0 to 2, got another in row"),
    ],
)
def test_options_are_checked(read, options, says):
    with pytest.raises(ValueError, match=says):
        read(options=options)


def header(shape, descr="<f8"):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": descr, "fortran_order": False, "shape": shape})
    return content.getvalue()


BROKEN = {
    "no array": b"no array",
    "a header that claims more than there is": header((1000,)),
    "a header that claims more than the limit": header((10**12,)),
    "a header that cannot be parsed": header((5,)).replace(b"'descr'", b"(\xf8desc"),
    "a header that is too long": b"\x93NUMPY\x02\x00" + (1 << 20).to_bytes(4, "little") + b" " * (1 << 20),
    "a negative length": header((5,)).replace(b"(5,)", b"(-5,)"),
    "two negative lengths": header((-2, -2)) + bytes(32),
    "a version of numpy's format that there is not": b"\x93NUMPY\x09\x00" + header((5,))[8:] + bytes(40),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_damaged_array_is_refused_in_one_sentence_with_the_name_of_its_file(tmp_path, content):
    with zipfile.ZipFile(tmp_path / "own.npz", "w") as archive:
        archive.writestr("x_train.npy", content)
    (tmp_path / "own.npy").write_bytes(content)
    for name in ("own.npz", "own.npy"):
        with pytest.raises(ValueError, match=f"^{name}") as refused:
            arrays_of(tmp_path / name, lambda one: True)
        assert "\n" not in str(refused.value)


def test_a_damaged_archive_is_refused_with_its_name(tmp_path):
    np.savez(tmp_path / "own.npz", x_train=np.zeros(99))
    whole = (tmp_path / "own.npz").read_bytes()
    # The entry of the array in the directory points before the file's beginning.
    at = whole.index(b"PK\x01\x02") + 42
    for content in (b"PK\x03\x04 nothing", whole[:-9], whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :]):
        (tmp_path / "own.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"own.npz cannot be read as a numpy file: [^\[]"):
            arrays_of(tmp_path / "own.npz", lambda one: True)


def test_the_limit_holds_for_the_bytes_of_all_arrays_together(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDASSAY_DATA_LIMIT_GB", "3e-5")
    np.savez(tmp_path / "own.npz", a=np.zeros(1000), b=np.zeros(1000))
    assert arrays_of(tmp_path / "own.npz", lambda one: one == "a")["a"].shape == (1000,)
    with pytest.raises(ValueError, match=r"own\.npz: array b would need 0\.0 GB of memory, more than the limit"):
        arrays_of(tmp_path / "own.npz", lambda one: True)


def test_the_limit_can_be_set(read, monkeypatch):
    monkeypatch.setenv("FEDASSAY_DATA_LIMIT_GB", "1e-9")
    with pytest.raises(ValueError, match="more than the limit of 1e-09 GB"):
        read()
    monkeypatch.setenv("FEDASSAY_DATA_LIMIT_GB", "much")
    with pytest.raises(ValueError, match="FEDASSAY_DATA_LIMIT_GB must be a number of gigabytes > 0, got 'much'"):
        read()
