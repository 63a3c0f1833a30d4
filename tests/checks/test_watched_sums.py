"""Sums of clipped rows: what is computed again, what one row may add, and other rules of clipping."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.checks.watched_sums import contributions, sum_checks, undetermined_rule
from foreign_runs import CLIP, LAYOUT, clipped, recording

ROWS = torch.tensor([[3.0, *[0.0] * 5], [0.0, 0.5, *[0.0] * 4]])


def total(*numbers):
    return torch.tensor([*numbers, *[0.0] * (6 - len(numbers))])


def result(sums, **other):
    return sum_checks(recording(sums=sums, **other))[0]


def test_a_correct_sum_is_found_again():
    found = contributions(ROWS, total(1.0, 0.5), 1.0)
    assert found.longest == pytest.approx(1.0)
    assert result(None).passed


def test_the_longest_row_of_another_rule_is_solved_for():
    assert contributions(ROWS, total(2.5, 0.5), 1.0).longest == pytest.approx(2.5)
    normalised = contributions(ROWS, total(1.0, 1.0), 1.0)
    assert (normalised.longest, normalised.explained) == (pytest.approx(1.0), True)


def test_a_sum_outside_of_the_span_of_the_rows_is_not_explained():
    found = contributions(ROWS, total(1.0, 0.5, 7.0), 1.0)
    assert (found.longest, found.explained) == (None, False)


def test_rows_that_pass_unclipped_fail():
    found = result(lambda rows: rows.sum(0))
    assert found.passed is False
    assert found.measured > 1
    assert "clip norms that one gradient added" in found.witness


@pytest.mark.parametrize("count", [4, 10, 12, 13, 14, 20])
def test_rows_that_are_rounded_after_the_clip_are_not_accused(count):
    """As many rows as numbers explain any sum, with weights of any size."""
    for seed in range(200):
        rows = torch.from_numpy(np.random.default_rng(seed).standard_normal((count, 14)))
        kept = (64 * rows * (0.9 / rows.norm(dim=1, keepdim=True)).clamp(max=1)).round() / 64
        found = contributions(rows, kept.sum(0), 1.0)
        assert found.longest is None or found.longest <= 1
        assert contributions(rows, rows.sum(0), 1.0).longest == pytest.approx(float(rows.norm(dim=1).max()))


def test_a_sum_longer_than_all_rows_together_fails_whatever_the_rows_were():
    found = result(lambda rows: 40 * torch.ones(rows.shape[1]))
    assert found.passed is False


def test_another_rule_within_the_clip_norm_passes():
    normalised = result(lambda rows: (0.7 * rows / rows.norm(dim=1, keepdim=True)).sum(0))
    assert normalised.passed


def test_sums_without_rows_are_not_checked():
    assert result(None, rows=False).passed is None


def test_sums_whose_rows_have_no_known_length_are_not_checked():
    run = recording()
    bare = tuple(replace(one, expected=one.received, longest=None, rows=None) for one in run.releases)
    (found,) = sum_checks(replace(run, releases=bare))
    assert found.passed is None
    assert "the largest norm of a clipped gradient is not known" in found.witness


def test_an_empty_lot_sums_to_zero():
    found = contributions(torch.zeros(0, 3), torch.zeros(3), 1.0)
    assert (found.longest, found.expected.tolist()) == (0.0, [0.0, 0.0, 0.0])


def weights_of(rule, *, lots=12, seed=0):
    """Weights of lots of one set of records, whose sum follows ``rule(rows)``."""
    rng = np.random.default_rng(seed)
    records = torch.from_numpy(rng.standard_normal((100, 60)) * rng.lognormal(0, 1, (100, 1))) / 4
    chosen = [records[rng.random(100) < 0.15] for _ in range(lots)]
    return [contributions(rows, rule(rows), 1.0).weights for rows in chosen]


def clipped_to(norm):
    return lambda rows: (rows * (norm / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)


def clipped_mean(rows):
    mean = rows.mean(0)
    return mean * (1 / mean.norm()).clamp(max=1)


def long_rows_left_out(rows):
    return (rows * (rows.norm(dim=1, keepdim=True) < 1)).sum(0)


@pytest.mark.parametrize(
    "rule",
    [
        lambda rows: (rows / rows.norm(dim=1, keepdim=True)).sum(0),
        lambda rows: (rows / (rows.norm(dim=1, keepdim=True) + 0.01)).sum(0),
        clipped_to(0.5),
        long_rows_left_out,
    ],
)
def test_weights_that_depend_on_each_row_alone_are_consistent(rule):
    assert undetermined_rule(weights_of(rule)) is None


def test_a_clip_after_averaging_gives_equal_rows_other_weights():
    assert "different weights in different lots" in undetermined_rule(weights_of(clipped_mean))


def test_one_lot_alone_does_not_show_a_rule_and_the_stated_one_needs_none():
    assert "are too few to find the rule" in undetermined_rule(weights_of(clipped_to(0.5), lots=1))
    assert weights_of(clipped_to(1.0)) == [None] * 12
    assert undetermined_rule([]) is None


def test_weights_that_show_no_rule_are_not_checked_and_hide_no_long_row():
    run = recording(sums=lambda rows: (0.7 * rows / rows.norm(dim=1, keepdim=True)).sum(0))
    assert sum_checks(replace(run, remarks={"weights": "a reason"}))[0].passed is None
    broken = recording(sums=lambda rows: rows.sum(0))
    assert sum_checks(replace(broken, remarks={"weights": "a reason"}))[0].passed is False


def factors(rows, norm=CLIP):
    return (norm / rows.norm(dim=1, keepdim=True)).clamp(max=1)


def head_unclipped(rows):
    found, head = clipped(rows).sum(0), LAYOUT.slices["head"]
    found[head] = rows[:, head].sum(0)
    return found


def each_alone(rows):
    return torch.cat([clipped(rows[:, place]) for place in LAYOUT.slices.values()], dim=1).sum(0)


def without_head(rows):
    return (rows * factors(rows[:, : LAYOUT.slices["head"].start])).sum(0)


def by_short_norms(rows):
    norms = rows.bfloat16().norm(dim=1, keepdim=True).float()
    return (rows * (CLIP / norms).clamp(max=1)).sum(0)


@pytest.mark.parametrize(
    ("sums", "words", "others"),
    [
        (by_short_norms, "gradients are clipped by norms that are off by up to", ("weight", "head")),
        (head_unclipped, "the gradients of head are summed without clipping", ("weight", "bias", "all")),
        (each_alone, "the gradients of weight, bias, head are clipped to norm 0.7 in each tensor alone", ("without",)),
        (without_head, "the clip leaves out the gradients of head", ("weight", "all")),
        (lambda rows: (rows * factors(rows, 0.704)).sum(0), "all gradients are clipped to norm 0.704 instead of", ()),
        (lambda rows: (rows * factors(rows, 1.4)).sum(0), "all gradients are clipped to norm 1.4 instead of 0.7", ()),
        (lambda rows: 2 * clipped(rows).sum(0), "all gradients are multiplied by 2 after the clip", ()),
        (lambda rows: rows.sum(0), "all gradients are summed without clipping, or with a clip norm above", ()),
    ],
)
def test_another_rule_of_the_sum_is_named_with_its_tensors(sums, words, others):
    found = result(sums)
    assert found.passed is False
    assert found.cause.startswith(words)
    assert not [one for one in others if one in found.cause]


def test_the_clip_of_a_mean_is_named_and_not_accused():
    def together(rows):
        return rows.sum(0) * min(1.0, CLIP / float(rows.sum(0).norm()))

    found = result(together)
    assert found.passed is None
    assert "multiplied by one number for the lot" in found.witness


def test_random_sums_are_named_by_no_rule():
    for seed in range(50):
        rng = np.random.default_rng(seed)
        rows = torch.from_numpy(rng.standard_normal((200, LAYOUT.dim)))
        found = contributions(rows, torch.from_numpy(rng.standard_normal(LAYOUT.dim)), 1.0, tensors=LAYOUT.slices)
        assert (found.rule, found.longest) == ("", None)
