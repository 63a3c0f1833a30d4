"""The folder of data sets: which files exist, and whether they have the listed checksums."""

import hashlib

import pytest
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.data.dataset import DatasetMissing


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
