"""A numpy archive of one's own: what is read, what is decided for the user and reported, and what is refused."""

import io
import zipfile

import numpy as np
import pytest
import torch
from fedassay.fl.data.files.lookup import DataFile
from fedassay.fl.data.files.npz import write_npz


def images(n=40, shape=(6, 5), top=255):
    return np.random.default_rng(0).integers(top + 1, size=(n, *shape)).astype(np.uint8)


@pytest.fixture
def read(tmp_path):
    """(arrays and options) -> the data set that an archive of these arrays holds."""

    def load(options=None, **arrays):
        given = {"x_train": images(), "y_train": np.arange(40) % 4} | arrays
        np.savez(tmp_path / "own.npz", **{key: value for key, value in given.items() if value is not None})
        return DataFile.of("own.npz", options or {}, str(tmp_path)).load()

    return load


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
    parts = [(part[:, 0, 0, 0] * 255).round().int().tolist() for part in (loaded.train_images, loaded.test_images)]
    assert sorted(parts[0] + parts[1]) == list(range(40))
    assert torch.bincount(loaded.test_labels).tolist() == [2, 2, 2, 2]
    assert any("8 of 40 samples were split off" in note and "split_seed 0" in note for note in loaded.notes)
    again = read(x_train=x, options={"split_seed": 1})
    assert not torch.equal(again.test_images, loaded.test_images)
    assert len(read(x_train=x, options={"test_share": 0.5}).test_labels) == 20


def test_the_split_keeps_the_samples_of_an_owner_together(read):
    x = (np.arange(40) // 4).astype(np.uint8)[:, None, None] * np.ones((1, 6, 5), dtype=np.uint8)
    loaded = read(x_train=x, owner_train=np.array([f"user {i // 4}" for i in range(40)]))
    train, test = (
        set((part * 255).round().flatten().int().tolist()) for part in (loaded.train_images, loaded.test_images)
    )
    assert not train & test
    assert (len(train), len(test)) == (8, 2)
    assert sorted(set(loaded.train_owners.tolist())) == list(range(8))


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        (images(shape=(6, 5, 3)), (3, 6, 5)),
        (images(shape=(3, 6, 5)), (3, 6, 5)),
        (images(shape=(6, 5, 1)), (1, 6, 5)),
        (images(shape=(1, 6, 5)), (1, 6, 5)),
    ],
)
def test_the_channel_axis_is_found_where_only_one_fits(read, given, shape):
    loaded = read(x_train=given)
    assert loaded.shape == shape
    wanted = given if given.shape[1] == shape[0] else given.transpose(0, 3, 1, 2)
    assert sorted(loaded.train_images.sum((1, 2, 3)).tolist() + loaded.test_images.sum((1, 2, 3)).tolist()) == (
        pytest.approx(sorted((wanted / 255).sum((1, 2, 3)).tolist()), rel=1e-4)
    )


def test_an_axis_that_is_not_clear_is_asked_for(read):
    with pytest.raises(ValueError, match=r'own.npz: x_train has shape \(40, 3, 3, 3\).*set channels to "first"'):
        read(x_train=images(shape=(3, 3, 3)))
    first = read(x_train=images(shape=(3, 4, 1)), options={"channels": "first"})
    assert first.shape == (3, 4, 1)
    assert read(x_train=images(shape=(3, 4, 1)), options={"channels": "last"}).shape == (1, 3, 4)


def test_rows_are_kept_as_they_are(read):
    rows = np.random.default_rng(0).normal(size=(40, 7)) * 100
    loaded = read(x_train=rows, x_test=rows[:5], y_test=np.arange(5) % 4)
    assert loaded.rows
    assert loaded.train_images.shape == (40, 1, 1, 7)
    np.testing.assert_allclose(loaded.train_images[:, 0, 0], rows, rtol=1e-6)


def test_texts_are_names_of_classes_and_owners(read):
    loaded = read(y_train=np.array(["dog", "cat"] * 20), x_test=images(4), y_test=np.array(["cat", "dog"] * 2))
    assert loaded.class_names == ("cat", "dog")
    assert loaded.train_labels[:2].tolist() == [1, 0]


def test_classes_that_differ_only_by_case_or_blanks_are_reported(read):
    loaded = read(y_train=np.array(["dog", "Dog", "cat", "cat "] * 10))
    assert any("only by case or blanks: 'Dog', 'cat', 'cat ', 'dog'" in note for note in loaded.notes)
    assert not any("blanks" in note for note in read(y_train=np.array(["dog", "cat"] * 20)).notes)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (
            2**62 + np.arange(40),
            r"x_train: column 1 holds different whole numbers that are one number .* in row 1: sub",
        ),
        (np.arange(40) + 2.0**24, "x_train: column 1 holds different whole numbers that are one number"),
        (
            np.where(np.arange(40) == 7, 1e308, 0),
            r"x_train must hold numbers of size 3e\+38 at most, .* in row 7 \(1 such",
        ),
    ],
)
def test_rows_that_single_precision_cannot_hold_are_refused(read, rows, says):
    with pytest.raises(ValueError, match=says):
        read(x_train=np.stack([np.zeros_like(rows), rows], axis=1))
    read(x_train=np.stack([np.zeros(40), np.arange(40) + 2.0**22], axis=1))


@pytest.mark.parametrize(
    ("given", "divided"),
    [
        (images(), True),
        (images().astype(float), True),
        (images() / 255.0, False),
        (images(top=1), False),
        (images(top=1).astype(bool), False),
    ],
)
def test_the_range_of_the_pixels_is_decided_and_reported(read, given, divided):
    loaded = read(x_train=given)
    total = float(loaded.train_images.double().sum() + loaded.test_images.double().sum())
    assert total == pytest.approx(float(given.sum()) / (255 if divided else 1), rel=1e-5)
    assert any(("divided by 255" if divided else "kept as they are") in note for note in loaded.notes)


def test_one_rule_scales_both_parts(read):
    # Alone, a dark test part would count as one in [0, 1].
    loaded = read(x_test=images(4, top=1), y_test=np.arange(4))
    assert float(loaded.test_images.max()) == pytest.approx(1 / 255)


def test_masks_and_targets_make_a_segmentation(read):
    marks = images(top=1).astype(bool)
    marks[:10] = False
    loaded = read(target_train=marks, mask_train=marks, y_train=None)
    assert loaded.classes == 2
    for part in ("train", "test"):
        targets = getattr(loaded, f"{part}_targets")
        assert torch.equal(targets, getattr(loaded, f"{part}_masks"))
        assert getattr(loaded, f"{part}_labels").tolist() == targets.any(2).any(1).long().tolist()


def test_what_is_written_is_read_back(read, tmp_path):
    marks = images(top=1)
    loaded = read(owner_train=np.arange(40) // 4, mask_train=marks, target_train=marks)
    write_npz(loaded, tmp_path / "again.npz")
    again = DataFile("again.npz", folder=str(tmp_path)).load()
    for name in ("images", "labels", "masks", "targets"):
        for part in ("train", "test"):
            assert torch.equal(getattr(again, f"{part}_{name}"), getattr(loaded, f"{part}_{name}"))
    assert torch.equal(again.train_owners, loaded.train_owners)


def wrong(array, row, value):
    changed = array.astype(float)
    changed[row] = value
    return changed


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x_train": None}, "own.npz must hold an array x_train, got y_train"),
        ({"y_train": None}, "must hold an array y_train, got x_train"),
        ({"owners_train": np.arange(40)}, "array 'owners_train' is unknown; known arrays: owner_train"),
        ({"x_test": images(4)}, "array x_test needs an array y_test, which is missing"),
        ({"mask_train": images(top=1), "x_test": images(4), "y_test": np.arange(4)}, "needs an array mask_test"),
        ({"y_train": np.arange(39) % 4}, "y_train and x_train must have equal lengths, got 39 and 40 rows"),
        ({"owner_train": np.arange(41)}, "owner_train and x_train must have equal lengths, got 41 and 40 rows"),
        ({"owner_train": np.arange(40) * 0.5}, "owner_train must hold one owner per sample.* float64"),
        ({"owner_train": np.zeros(40, int)}, "too few owners to split off"),
        ({"x_train": images(4), "y_train": np.arange(4)}, "too few samples of a class to split off"),
        ({"x_train": wrong(images() / 255, 7, np.nan)}, r"x_train must hold finite numbers.* row 7 \(1 such row\)"),
        (
            {"x_train": wrong(images() / 255, 3, np.inf)},
            "x_train must hold finite numbers, got NaN or infinity in row 3",
        ),
        ({"x_train": images() / 100.0}, r"must hold pixels in 0..1, or whole numbers in 0..255, got 0 to 2.55"),
        ({"x_train": images() - 128.0}, "got -128 to 127: scale them"),
        ({"x_train": images().astype(int) * 256}, "got 0 to 65280"),
        ({"x_train": images(shape=(6, 5, 4))}, r"x_train has shape \(40, 6, 5, 4\), in which neither"),
        ({"x_train": images(shape=(3, 2, 2, 2))}, r"x_train must be images .* got shape \(40, 3, 2, 2, 2\)"),
        ({"x_train": images(shape=(0, 5))}, "at least one number each"),
        ({"x_train": np.zeros((0, 5, 5)), "y_train": np.zeros(0, int)}, "at least one"),
        ({"x_train": images() * 1j}, "must hold real numbers, got complex128"),
        ({"x_train": np.array(["a"] * 40)}, "must hold numbers, got <U1"),
        (
            {"x_test": images(4, shape=(6, 6)), "y_test": np.arange(4)},
            r"samples of one shape, got \(1, 6, 5\) and \(1, 6, 6\)",
        ),
        ({"y_train": wrong(np.arange(40) % 4, 5, 0.5)}, "y_train must hold whole numbers .* got float64"),
        (
            {"y_train": (np.arange(40) % 4).astype(np.uint64) + 2**63},
            r"y_train must hold class numbers .* in row 0 \(40",
        ),
        ({"y_train": np.arange(40) % 4 - 1}, r"y_train must hold class numbers from 0 to 2, got -1 in row 0 \("),
        ({"y_train": np.zeros(40, int)}, "y_train must hold at least two classes, got only class 0 in"),
        ({"y_train": np.where(np.arange(40) == 3, 10**9, np.arange(40) % 4)}, "the largest is 1000000000"),
        ({"y_train": np.ones((40, 2), int)}, r"y_train must have one class per sample"),
        (
            {"y_train": np.array([{"a": 1}] * 40, dtype=object)},
            "array y_train holds Python objects, which are never read",
        ),
        ({"target_train": images()}, "target_train must be .* booleans"),
        ({"x_test": images(4), "y_test": np.array(["a", "b"] * 2)}, "must both be numbers or both be texts"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(read, arrays, says):
    with pytest.raises(ValueError, match=says) as refused:
        read(**arrays)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"test_share": 1.0}, "test_share must be a number > 0 and < 1, got 1.0"),
        ({"test_shares": 0.1}, "a numpy archive has no option 'test_shares'; it has test_share"),
        ({"split_seed": -1}, "split_seed must be a whole number >= 0, got -1"),
        ({"pixels": 255}, "pixels must be .*, got 255"),
        ({"pixels": "0..1"}, "x_train must hold pixels in 0..1, got 0 to 255, first outside in row 0"),
        ({"classes": 3}, r"class numbers from 0 to 2, got 3 in row"),
        ({"classes": 1}, "classes must be a whole number >= 2"),
        ({"ignore": "x_val"}, "ignore must be a list of names"),
    ],
)
def test_options_are_checked(read, options, says):
    with pytest.raises(ValueError, match=says):
        read(options=options)


def test_classes_without_samples_and_further_arrays_are_stated(read):
    assert read(options={"classes": 9, "ignore": ["x_val"]}, x_val=images(3)).classes == 9


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "own.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ValueError, match=r"own.npz must be a numpy archive as numpy.savez writes it"):
        DataFile("own.npz", folder=str(tmp_path)).load()
    with zipfile.ZipFile(tmp_path / "own.npz", "w") as archive:
        archive.writestr("x_train.npy", b"no array")
    with pytest.raises(ValueError, match=r"own.npz: x_train.npy is not an array"):
        DataFile("own.npz", folder=str(tmp_path)).load()


def test_a_header_that_claims_a_huge_array_is_refused_before_it_is_read(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10**9, 28, 28)})
    with zipfile.ZipFile(tmp_path / "own.npz", "w") as archive:
        archive.writestr("x_train.npy", header.getvalue())
        archive.writestr("y_train.npy", header.getvalue())
    with pytest.raises(ValueError, match=r"own.npz would need 6272.0 GB .* limit of 4 GB.* FEDASSAY_DATA_LIMIT_GB"):
        DataFile("own.npz", folder=str(tmp_path)).load()


def test_the_limit_can_be_set(read, monkeypatch):
    monkeypatch.setenv("FEDASSAY_DATA_LIMIT_GB", "1e-9")
    with pytest.raises(ValueError, match="more than the limit of 1e-09 GB"):
        read()
    monkeypatch.setenv("FEDASSAY_DATA_LIMIT_GB", "much")
    with pytest.raises(ValueError, match="FEDASSAY_DATA_LIMIT_GB must be a number of gigabytes > 0, got 'much'"):
        read()
