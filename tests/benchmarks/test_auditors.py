"""Auditors compared: bounds that share a call, invalid cells, missing libraries, our rows on null scores."""

import auditors
import numpy as np
import pytest
from foreign_auditors import ByCount


def test_bounds_by_count_are_those_of_one_call_each():
    called = []

    def bound(scores, coins, cell):
        called.append(1)
        return max(0.0, float((scores > 0).sum()) - 8) ** 2

    rng = np.random.default_rng(0)
    scores, coins = rng.standard_normal((200, 20)), np.ones((200, 20), dtype=bool)
    shared = ByCount(lambda scores, coins, cell: int((scores > 0).sum()), bound, tolerance=0.0)
    naive = [bound(*pair, {}) for pair in zip(scores, coins, strict=True)]
    called.clear()
    assert shared.all_bounds(scores, coins, {})[0] == naive
    assert len(called) < 20


def test_a_cell_is_invalid_where_the_level_hardly_gives_so_large_a_share():
    assert not auditors.share([1.0] * 60 + [0.0] * 940, 0)[1]
    assert not auditors.share([0.0] * 1000, 0)[1]
    assert auditors.share([1.0] * 112 + [0.0] * 888, 0)[1]


def test_a_missing_library_says_how_to_install_it(tmp_path):
    assert "pip install opake-auditing" in auditors.foreign("opake", tmp_path, tmp_path / "scores.npz")


@pytest.mark.simulations
def test_our_rows_are_valid_on_null_scores_of_a_small_run():
    cells = dict(auditors.ideal_cells([100], 1, 60, 60.0))
    found = auditors.measured({"100 0": cells["100 0"]}, ["fedassay"], auditors.Path())
    assert found["fedassay"]["auditors"].keys() == {row.name for row in auditors.ROWS if row.library == "fedassay"}
    for rows in found["fedassay"]["auditors"].values():
        assert not auditors.share(rows["100 0"]["bounds"], 0)[1]
