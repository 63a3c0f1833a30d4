"""The folder of data sets: which files exist, and whether they have the listed checksums."""

import gzip
import hashlib

import numpy as np
import pytest
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.data.dataset import DatasetMissing
from PIL import Image


def test_a_file_with_its_listed_sum_is_given_and_any_other_refused(tmp_path):
    (tmp_path / "set").mkdir()
    for name in ("good", "bad", "unlisted"):
        (tmp_path / "set" / name).write_bytes(b"content")
    right = hashlib.sha256(b"content").hexdigest()
    (tmp_path / "SHA256SUMS").write_text(f"{right}  ./set/good\n{'0' * 64}  ./set/bad\n")
    folder = DataFolder(tmp_path)
    assert folder.file("set/good", of="toy") == tmp_path / "set" / "good"
    assert folder.file("set/unlisted", of="toy") == tmp_path / "set" / "unlisted"
    with pytest.raises(ValueError, match=r"set/bad must have the SHA-256 sum 0{64}, which SHA256SUMS lists"):
        folder.file("set/bad", of="toy")


@pytest.mark.parametrize(
    "content",
    [b"text", gzip.compress(b"\xff\xfe", mtime=0), gzip.compress(b"{}" * 99, mtime=0)[:-8]],
    ids=["no gzip", "no text", "cut short"],
)
def test_what_is_no_gzip_of_text_and_no_image_is_named(tmp_path, content):
    (tmp_path / "any.gz").write_bytes(content)
    folder = DataFolder(tmp_path)
    for read in (folder.text, lambda path, *, of: folder.image(path, "L", of=of)):
        with pytest.raises(ValueError, match=r"any\.gz must be an? (gzip file|image)"):
            read("any.gz", of="toy")


def test_texts_and_images_are_read(tmp_path):
    (tmp_path / "any.gz").write_bytes(gzip.compress("naïve".encode()))
    Image.new("RGB", (3, 2), (5, 5, 5)).save(tmp_path / "any.png")
    folder = DataFolder(tmp_path)
    assert folder.text("any.gz", of="toy") == "naïve"
    np.testing.assert_array_equal(folder.image("any.png", "L", of="toy"), np.full((2, 3), 5))


def test_without_a_list_files_are_taken_as_they_are(tmp_path):
    (tmp_path / "any").write_bytes(b"content")
    assert DataFolder(tmp_path).file("any", of="toy") == tmp_path / "any"


def test_a_missing_file_is_named_with_its_folder(tmp_path):
    with pytest.raises(
        DatasetMissing, match=rf"toy is not on this machine.*holds set/x \(FEDASSAY_DATA is {tmp_path}\)"
    ):
        DataFolder(tmp_path).file("set/x", of="toy")
    with pytest.raises(DatasetMissing, match="FEDASSAY_DATA is not set"):
        DataFolder(None).file("set/x", of="toy")


def test_all_files_must_be_there(tmp_path, monkeypatch):
    (tmp_path / "one").touch()
    monkeypatch.setenv("FEDASSAY_DATA", str(tmp_path))
    assert DataFolder.from_environment().has("one")
    assert not DataFolder.from_environment().has("one", "two")
    monkeypatch.setenv("FEDASSAY_DATA", "")
    assert DataFolder.from_environment() == DataFolder(None)
    assert not DataFolder.from_environment().has("one")
