"""A Parquet file of one's own gives the same data set as the same table in a text file."""

import sys

import pytest
import torch
from fedassay.fl.data.files.lookup import DataFile


def test_without_pyarrow_the_message_names_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "own.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"own.parquet can be read only with the package pyarrow.*fedassay\[parquet\]"):
        DataFile("own.parquet", folder=str(tmp_path)).load()


@pytest.fixture
def frame():
    pytest.importorskip("pyarrow")
    import pandas

    rows = range(40)
    return pandas.DataFrame(
        {
            "age": [20.5 + i for i in rows],
            "old": [i > 20 for i in rows],
            "job": ["abc"[i % 3] for i in rows],
            "label": [["no", "yes"][i % 2] for i in rows],
            "owner": [i // 4 for i in rows],
        }
    )


def test_it_is_the_table_of_the_text_file(frame, tmp_path):
    frame.to_parquet(tmp_path / "own.parquet")
    frame.assign(old=frame.old.astype(int), job=frame.job.astype("category")).to_csv(tmp_path / "own.csv", index=False)
    loaded, text = (DataFile(name, folder=str(tmp_path)).load() for name in ("own.parquet", "own.csv"))
    for name in ("train_images", "train_labels", "test_images", "test_labels", "train_owners"):
        assert torch.equal(getattr(loaded, name), getattr(text, name))


def test_a_column_of_dates_is_refused_by_name(frame, tmp_path):
    import pandas

    frame.assign(born=pandas.Timestamp("2000-01-01")).to_parquet(tmp_path / "own.parquet")
    with pytest.raises(
        ValueError, match=r"own.parquet: column born must hold numbers or texts, got Timestamp: list it"
    ):
        DataFile("own.parquet", folder=str(tmp_path)).load()


def test_a_column_that_pandas_keeps_as_index_is_read(frame, tmp_path):
    frame.to_parquet(tmp_path / "plain.parquet")
    frame.set_index("age").to_parquet(tmp_path / "own.parquet")
    plain, loaded = (DataFile(name, folder=str(tmp_path)).load() for name in ("plain.parquet", "own.parquet"))
    assert loaded.shape == plain.shape
    frame.sample(frac=1, random_state=0).to_parquet(tmp_path / "turned.parquet")
    turned = DataFile("turned.parquet", folder=str(tmp_path)).load()
    assert turned.shape == plain.shape
    assert any("index of a pandas table" in note for note in turned.notes)


def test_a_damaged_file_is_refused(frame, tmp_path):
    (tmp_path / "own.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(ValueError, match=r"own.parquet must be a Parquet file"):
        DataFile("own.parquet", folder=str(tmp_path)).load()
