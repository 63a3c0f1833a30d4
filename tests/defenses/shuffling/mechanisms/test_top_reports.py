"""Post-sparsification: exactly the given count of numbers stays, the largest ones, equal ones too."""

import numpy as np
import pytest
import torch
from fedassay.defenses.shuffling import clip_laplace
from fedassay.defenses.shuffling.top_reports import _largest, sparse_rows


@pytest.mark.parametrize("kept", [1, 3, 7, 8])
def test_the_largest_are_those_of_a_sort(kept):
    sizes = np.random.default_rng(0).random((50, 8)).astype(np.float32)
    chosen = _largest(sizes, kept)
    naive = np.zeros_like(chosen)
    np.put_along_axis(naive, np.argsort(-sizes, axis=-1)[:, :kept], True, axis=-1)
    assert np.array_equal(chosen, naive)


def test_of_equal_numbers_the_first_stay():
    sizes = np.array([[2, 5, 2, 2, 1], [3, 3, 3, 3, 3], [1, 2, 3, 4, 5]], dtype=np.float32)
    assert _largest(sizes, 3).astype(int).tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 1, 1, 1]]


@pytest.mark.parametrize("selection", ["largest", "random"])
def test_blocks_change_nothing(monkeypatch, selection):
    rows, budgets = torch.linspace(-1, 1, 60).view(2, 5, 6), torch.linspace(0.1, 4, 10).view(2, 5)
    whole = sparse_rows(rows, budgets, 0.5, 2, np.random.default_rng(3), selection=selection)
    monkeypatch.setattr(clip_laplace, "_CHUNK", 12)
    assert torch.equal(whole, sparse_rows(rows, budgets, 0.5, 2, np.random.default_rng(3), selection=selection))
