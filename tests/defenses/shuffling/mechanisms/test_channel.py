"""The shuffler: it keeps every multiset, breaks every tie, hides who was absent, and is uniform and independent."""

import pytest
import torch
from fedassay.defenses.shuffling import budgeted
from fedassay.defenses.shuffling.budgeted import shuffle_coordinates, shuffle_rows
from fedassay.fl.message import Message
from scipy.stats import chi2


def message(values, present=None, **side):
    there = torch.ones(values.shape[:2], dtype=torch.bool) if present is None else present
    return Message(values=values, present=there, senders=tuple(range(values.shape[1])), side=side)


def numbers(replicas, rows, dim):
    return torch.arange(replicas * rows * dim, dtype=torch.float32).view(replicas, rows, dim)


def test_each_coordinate_keeps_its_multiset_and_no_row_stays_together(rng):
    sent = numbers(2, 200, 5)
    arrived = shuffle_coordinates(message(sent, budget=torch.rand(2, 200)), rng)
    assert arrived.senders is None
    torch.testing.assert_close(arrived.values.sort(1).values, sent)
    rows = ((arrived.values - torch.arange(5)) / 5).long()
    together = (rows == rows[..., :1]).all(-1).sum()
    assert together == 0
    assert not torch.equal(rows[0, :, 0], rows[0, :, 1])


def test_whole_rows_stay_together(rng):
    sent = numbers(2, 50, 3)
    arrived = shuffle_rows(message(sent), rng)
    assert not torch.equal(arrived.values, sent)
    torch.testing.assert_close(arrived.values.sort(1).values, sent)
    torch.testing.assert_close(arrived.values[..., 1] - arrived.values[..., 0], torch.ones(2, 50))


@pytest.mark.parametrize("shuffle", [shuffle_coordinates, shuffle_rows])
def test_absent_rows_arrive_last_as_zeros_and_reveal_no_client(shuffle, rng):
    present = torch.tensor([[True, False, True, True], [False, False, True, True]])
    sent = numbers(2, 4, 3).add(1).masked_fill(~present.unsqueeze(-1), 0)
    arrived = shuffle(message(sent, present), rng)
    assert arrived.present.tolist() == [[True, True, True, False], [True, True, False, False]]
    assert not arrived.values[~arrived.present].any()
    torch.testing.assert_close(arrived.values.sort(1).values, sent.sort(1).values)


@pytest.mark.parametrize("shuffle", [shuffle_coordinates, shuffle_rows])
def test_every_order_is_as_likely_and_replicas_and_coordinates_draw_their_own(shuffle, rng):
    """All pairs of orders of two coordinates of three rows, chi-square, falsely "no" once in a million seeds."""
    arrived = shuffle(message(torch.arange(3.0).view(1, 3, 1).expand(7200, 3, 2).contiguous()), rng).values.long()
    order = arrived[:, 0] * 3 + arrived[:, 1]
    codes, counts = torch.unique(order[:, 0] * 9 + order[:, 1], return_counts=True)
    expected = 36 if shuffle is shuffle_coordinates else 6
    assert len(codes) == expected
    assert float(((counts - 7200 / expected) ** 2).sum() / (7200 / expected)) < chi2.ppf(1 - 1e-6, expected - 1)


def test_blocks_of_columns_are_all_columns(rng, monkeypatch):
    monkeypatch.setattr(budgeted, "_CHUNK", 40)
    sent = numbers(1, 20, 7)
    torch.testing.assert_close(shuffle_coordinates(message(sent), rng).values.sort(1).values, sent)


def test_a_shuffler_of_rows_passes_on_nothing_that_might_name_them(rng):
    with pytest.raises(ValueError, match=r"must not forward side information, got \['budget'\]"):
        shuffle_rows(message(numbers(1, 2, 1), budget=torch.ones(1, 2)), rng)
