"""Sums of clipped rows: what is computed again, what one row may add, and other rules of clipping."""

import pytest
import torch
from fedassay.adapters.checks.sums import contributions, sum_checks
from foreign_runs import recording

ROWS = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.5, 0.0]])


def result(sums, **other):
    return sum_checks(recording(sums=sums, **other))[0]


def test_a_correct_sum_is_found_again():
    found = contributions(ROWS, torch.tensor([1.0, 0.5, 0.0]), 1.0)
    assert found.longest == pytest.approx(1.0)
    assert result(None).passed


def test_the_longest_row_of_another_rule_is_solved_for():
    assert contributions(ROWS, torch.tensor([2.5, 0.5, 0.0]), 1.0).longest == pytest.approx(2.5)
    normalised = contributions(ROWS, torch.tensor([1.0, 1.0, 0.0]), 1.0)
    assert (normalised.longest, normalised.explained) == (pytest.approx(1.0), True)


def test_a_sum_outside_of_the_span_of_the_rows_is_not_explained():
    found = contributions(ROWS, torch.tensor([1.0, 0.5, 7.0]), 1.0)
    assert (found.longest, found.explained) == (None, False)


def test_rows_that_pass_unclipped_fail():
    found = result(lambda rows: rows.sum(0))
    assert found.passed is False
    assert found.measured > 1
    assert "clip norms that one row added" in found.witness


def test_a_sum_longer_than_all_rows_together_fails_whatever_the_rows_were():
    found = result(lambda rows: 40 * torch.ones(rows.shape[1]))
    assert found.passed is False


def test_another_rule_within_the_clip_norm_passes():
    normalised = result(lambda rows: (0.7 * rows / rows.norm(dim=1, keepdim=True)).sum(0))
    assert normalised.passed


def test_sums_without_rows_are_not_checked():
    assert result(None, rows=False).passed is None


def test_an_empty_lot_sums_to_zero():
    found = contributions(torch.zeros(0, 3), torch.zeros(3), 1.0)
    assert (found.longest, found.expected.tolist()) == (0.0, [0.0, 0.0, 0.0])
