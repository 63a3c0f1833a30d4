"""Two runs on neighbouring data: what a replaced record moves, and what follows the number of records."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency
from fedassay.checks.neighbour_runs import ReplacedRun, renamed, shown_by_size, size_check, sums_on_neighbours
from fedassay.checks.watched_sums import marks_of
from foreign_runs import CLIP, LAYOUT, RECORDS, recording
from scipy.stats import chi2

REPLACED = 7


def pair(*, move=0.0, elsewhere=0.0, **changes):
    """A run, and one whose sums move by so many clip norms where the lot holds the record, and where it does not."""
    first = replace(recording(), drawn=tuple(range(12)))
    direction = torch.zeros(LAYOUT.dim)
    direction[3] = CLIP
    releases = []
    for one in first.releases:
        by = move if REPLACED in one.ids else elsewhere
        releases.append(replace(one, received=one.received + by * direction))
    return first, [ReplacedRun(replaced=REPLACED, record=replace(first, releases=tuple(releases), **changes))]


def compared(first, others, control=None):
    return sums_on_neighbours(control or first, others, first=first)


def test_a_replaced_record_moves_a_sum_by_two_clip_norms_and_no_more():
    assert compared(*pair(move=1.99)).passed
    found = compared(*pair(move=2.02))
    assert (found.passed, found.allowed) == (False, 2.0)
    assert found.measured == pytest.approx(2.02, rel=1e-3)


def test_a_sum_without_the_record_must_not_move():
    found = compared(*pair(move=1.0, elsewhere=0.02))
    assert (found.passed, found.allowed) == (False, 0.0)
    assert "does not contain it" in found.witness


def test_what_cannot_be_compared_is_not_passed():
    short = compared(*pair(move=1e-6))
    assert (short.passed, "its gradients are short next to the clip norm" in short.witness) == (None, True)
    assert compared(*pair(move=5.0, drawn=tuple(range(100, 112)))).passed is None, "other draws"
    first, others = pair(move=5.0)
    unseen = tuple(replace(one, received=None) for one in others[0].record.releases)
    assert compared(first, [replace(others[0], record=replace(others[0].record, releases=unseen))]).passed is None


def test_runs_that_differ_on_equal_data_accuse_nobody():
    first, others = pair(move=5.0)
    _, moved = pair(move=0.1, elsewhere=0.1)
    assert compared(first, others, control=moved[0].record).passed is None


def test_a_record_with_another_index_is_named_and_one_whose_gradient_vanished_in_a_lot_is_not():
    first, (other,) = pair(move=1.0)
    holding = [step for step, one in enumerate(first.releases) if REPLACED in one.ids]
    one_moves = list(first.releases)
    one_moves[holding[0]] = other.record.releases[holding[0]]
    vanished = ReplacedRun(replaced=REPLACED, record=replace(first, releases=tuple(one_moves)))
    assert len(holding) > 1
    assert renamed(first, [vanished], first=first) == ""
    wrong = replace(other, replaced=next(one for one in range(RECORDS) if one not in first.releases[holding[0]].ids))
    assert f"has the index {REPLACED} in the lots" in renamed(first, [wrong], first=first)


@pytest.mark.parametrize(("own", "repeats", "failed"), [(0.1, True, True), (0.1, False, False), (0.0, True, False)])
def test_equal_sums_and_draws_must_give_equal_releases(own, repeats, failed):
    first = replace(recording(steps=2), drawn=(0, 1))
    control, other = (
        replace(first, releases=tuple(replace(one, own=one.released + (not repeats) + moved) for one in first.releases))
        for moved in (0.0, own)
    )
    found = compared(first, [ReplacedRun(replaced=REPLACED, record=other)], control)
    assert (found.passed is False, found.hook == ("noised step",)) == (failed, failed)


def test_rows_of_other_records_must_not_move():
    first, others = pair(move=1.0)
    first = replace(first, releases=tuple(replace(one, rest=one.received) for one in first.releases))
    releases = tuple(replace(one, rest=one.received) for one in others[0].record.releases)
    found = compared(first, [replace(others[0], record=replace(others[0].record, releases=releases))])
    assert (found.passed, found.allowed) == (False, 0.0)
    assert "the gradients of other records change" in found.witness


def sized(factor, **changes):
    return replace(recording(), factors=(factor,) * 12, delta=1e-5, **changes)


def test_a_divisor_that_follows_the_number_of_records_fails_under_add_remove_alone():
    first, smaller = sized(1 / 20, population=RECORDS + 1), sized(1 / 19)
    found = size_check(first, smaller, Adjacency.ADD_REMOVE)
    assert found.passed is False
    assert "the factor of the noised sum is 0.0526316 instead of 0.05" in found.witness
    public = size_check(first, smaller, Adjacency.ZERO_OUT)
    assert public.passed
    assert public.witness.startswith("the number of records is public (zero-out): with 100 instead of 101 records")
    assert size_check(first, sized(1 / 20), Adjacency.ADD_REMOVE).passed


def clipped_at(*norms):
    run = recording()
    releases = (replace(one, clip_norm=norm) for one, norm in zip(run.releases, norms, strict=False))
    return replace(run, releases=tuple(releases))


@pytest.mark.parametrize(("other", "passed"), [((1.0, 1.2), None), ((0.9, 1.1), False), ((1.0, 1.1), True)])
def test_a_clip_norm_that_changes_within_a_run_may_follow_a_noised_count(other, passed):
    assert size_check(clipped_at(1.0, 1.1), clipped_at(*other), Adjacency.ADD_REMOVE).passed is passed


def test_steps_and_rates_that_follow_the_number_of_records_are_named():
    shorter = replace(recording(steps=10), ledger=((1.1, 0.21, 10),))
    words = size_check(recording(), shorter, Adjacency.ADD_REMOVE).witness
    assert "a run has 10 steps instead of 12" in words
    assert "the sampling rate is 0.21 instead of 0.2" in words


def test_the_epsilon_of_sizes_is_that_of_the_best_event_of_a_naive_search():
    first, smaller = sized(1.0), sized(1.02)
    numbers, ratio = 12 * LAYOUT.dim, 1.02**2
    cuts = np.linspace(0.5, 1.8, 200_001) * numbers
    above, below = chi2.sf(cuts / ratio, numbers), chi2.cdf(cuts, numbers)
    with np.errstate(divide="ignore", invalid="ignore"):
        naive = [
            np.log((above - 1e-5) / chi2.sf(cuts, numbers)),
            np.log((below - 1e-5) / chi2.cdf(cuts / ratio, numbers)),
        ]
    expected = max(float(np.nanmax(np.where(np.isfinite(one), one, -np.inf))) for one in naive)
    assert shown_by_size(first, smaller) == pytest.approx(expected, rel=2e-3)
    assert shown_by_size(smaller, first) == pytest.approx(shown_by_size(first, smaller), rel=2e-3)
    assert shown_by_size(first, sized(1.0)) == 0


def marked(*, moves, holding=True, raw=False, inputs=False, mixing=()):
    """Runs of three lots of 40 rows, of which ``moves`` change in the lots with the record, or in all; ``raw``: before
    the clip only; ``mixing``: layers of the model.
    """
    rng = np.random.default_rng(1)
    first, other = [], []
    for one in recording(steps=3).releases:
        ids = tuple(range(40)) if one.step else tuple(range(10, 50))
        rows = torch.from_numpy(rng.standard_normal((40, LAYOUT.dim)))
        again = rows.clone()
        if not holding or REPLACED in ids:
            again[:moves] *= 3 if raw else -1
        kept = [each * (CLIP / each.norm(dim=1, keepdim=True)).clamp(max=1) for each in (rows, again)]
        seen = [tuple(range(40)), tuple(range(40 - 2 * inputs, 80 - 2 * inputs)) if inputs else tuple(range(40))]
        for releases, each, after, names in zip((first, other), (rows, again), kept, seen, strict=True):
            facts = {"received": after.sum(0), "rows": 40, "ids": ids, "longest": 1.0, "inputs": names}
            releases.append(replace(one, marks=marks_of(each, after), **facts))
    facts = {"drawn": (0, 1, 2), "mixing": mixing}
    made = [replace(recording(steps=3), releases=tuple(one), **facts) for one in (first, other)]
    return compared(made[0], [ReplacedRun(replaced=REPLACED, record=made[1])])


@pytest.mark.parametrize(
    ("options", "hook"),
    [
        ({"inputs": True, "holding": False}, "preparation of the data"),
        ({"holding": False}, "loss or model"),
        ({"holding": True}, "loss or model"),
        ({"holding": True, "mixing": ("1 (BatchNorm1d)",)}, "model"),
        # Not where other lots change too, which no layer of a lot does.
        ({"holding": False, "mixing": ("1 (BatchNorm1d)",)}, "loss or model"),
    ],
)
def test_gradients_of_others_that_change_are_explained_by_inputs_and_lots(options, hook):
    found = marked(moves=20, **options)
    assert (found.passed, found.hook) == (False, (hook,))
    assert "20 of 40 gradients" in found.witness
    assert ("only in lots that contain it" in found.cause) == (options == {"holding": True})
    assert ("1 (BatchNorm1d)" in found.cause) == ("GroupNorm" in found.mend) == (hook == "model")


def test_gradients_of_others_that_change_before_the_clip_alone_leave_the_check_open():
    found = marked(moves=20, raw=True)
    assert (found.passed, "before they are clipped" in found.witness) == (None, True)


def test_rows_in_another_order_are_no_change():
    first, (other,) = pair(move=1.0)
    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((20, LAYOUT.dim)))
    turned = {id(first): marks_of(rows, rows), id(other.record): marks_of(rows.flip(0), rows.flip(0))}
    runs = [
        replace(run, releases=tuple(replace(one, marks=turned[id(run)]) for one in run.releases))
        for run in (first, other.record)
    ]
    assert compared(runs[0], [replace(other, record=runs[1])]).passed
