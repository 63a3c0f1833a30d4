"""Masks against a naive version pair by pair: what cancels, what is recovered, and that one word reveals nothing."""

import numpy as np
import pytest
import torch
from fedassay.defenses.secure import modular_sum as drawn_masks
from fedassay.defenses.secure.modular_sum import Grid, draw_masks
from scipy import stats

GRID = Grid(step=1.0, bits=8)


def cohort(invited, dropped):
    """Four replicas of ten clients, the last of them never invited, the first ``dropped`` lost."""
    asked = torch.ones(4, 10, dtype=torch.bool)
    asked[:, invited:] = False
    stayed = asked.clone()
    stayed[:, :dropped] = False
    return asked, stayed


@pytest.fixture(params=["by pairs", "by sums"])
def way(request, monkeypatch):
    """Small cohorts are drawn by pairs, unless the limit is 0."""
    if request.param == "by sums":
        monkeypatch.setattr(drawn_masks, "_PAIRS", 0)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("invited", "dropped"), [(10, 0), (10, 1), (10, 3), (7, 2), (1, 0), (2, 2)])
def test_what_is_not_recovered_cancels_among_the_survivors(invited, dropped):
    asked, stayed = cohort(invited, dropped)
    masks = draw_masks(asked, stayed, 50, GRID, np.random.default_rng(0))
    left = (masks.words - masks.recovered) * stayed.unsqueeze(-1)
    assert not GRID.wrap(left.sum(1)).any()
    assert int(masks.words.min()) >= 0
    assert int(masks.words.max()) < GRID.modulus
    assert not masks.words[~asked].any()
    assert not masks.recovered[~stayed].any()


def test_masks_are_those_of_the_protocol_pair_by_pair():
    """The naive version draws the same numbers: for each client its own mask, then those with every later one."""
    asked, stayed = cohort(9, 3)
    masks = draw_masks(asked, stayed, 6, GRID, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    words, recovered = np.zeros((4, 10, 6), int), np.zeros((4, 10, 6), int)
    for u in range(10):
        own = rng.integers(0, GRID.modulus, (4, 6))
        pairs = rng.integers(0, GRID.modulus, (4, 9 - u, 6))
        for replica in range(4):
            words[replica, u] += own[replica]
            recovered[replica, u] += own[replica]
            for v in range(u + 1, 10):
                if not (asked[replica, u] and asked[replica, v]):
                    continue
                shared = pairs[replica, v - u - 1]
                words[replica, u] += shared
                words[replica, v] -= shared
                # The pair's key is revealed if one of the two is gone.
                recovered[replica, u] += shared * (not stayed[replica, v])
                recovered[replica, v] -= shared * (not stayed[replica, u])
    np.testing.assert_array_equal(masks.words, words % 256 * asked.numpy()[..., None])
    np.testing.assert_array_equal(masks.recovered, recovered % 256 * stayed.numpy()[..., None])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seen", ["word", "word without what is recovered", "two words together"])
def test_one_clients_word_is_uniform_whatever_it_holds(seen):
    """Chi-square of 40,000 words at one in a million; two survivors of three, of words of 8 bits, all holding 77."""
    asked = torch.ones(1, 4, dtype=torch.bool)
    stayed = torch.tensor([[True, True, True, False]])
    masks = draw_masks(asked, stayed, 40_000, GRID, np.random.default_rng(2))
    shown = 77 + masks.words - (masks.recovered if seen != "word" else 0)
    word = GRID.wrap(shown[0, 0] + 3 * shown[0, 1] if seen == "two words together" else shown[0, 0])
    counts = np.bincount(word, minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.usefixtures("way")
def test_without_its_pairs_one_client_that_is_left_alone_would_be_bare():
    """All others dropped: everything of its mask is recovered. That is why a round needs a threshold."""
    asked = torch.ones(1, 3, dtype=torch.bool)
    stayed = torch.tensor([[False, True, False]])
    masks = draw_masks(asked, stayed, 9, GRID, np.random.default_rng(3))
    assert torch.equal(masks.words[0, 1], masks.recovered[0, 1])


@pytest.mark.usefixtures("way")
def test_words_and_what_is_recovered_have_one_joint_law():
    """Three survivors, a client that dropped out, and one that was not invited: the parities of 20,000 coordinates.

    The four words and two of the three differences to what is recovered are independent fair coins; the third
    difference is their sum. Every combination of the six coins is equally frequent (chi-square at one in a million).
    """
    asked = torch.tensor([[True, True, False, True, True]])
    stayed = torch.tensor([[True, False, False, True, True]])
    masks = draw_masks(asked, stayed, 20_000, GRID, np.random.default_rng(4))
    words, between = masks.words[0, [0, 1, 3, 4]] % 2, (masks.words - masks.recovered)[0, [0, 3, 4]] % 2
    assert torch.equal(between[2], (between[0] + between[1]) % 2)
    coins = torch.cat([words, between[:2]])
    counts = np.bincount((coins * 2 ** torch.arange(6).unsqueeze(1)).sum(0), minlength=64)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_large_cohorts_draw_as_many_numbers_as_they_have_clients():
    """By pairs, 300 clients would draw 45,150 numbers a coordinate."""
    asked = torch.ones(1, 300, dtype=torch.bool)
    drawn = Counting(5)
    draw_masks(asked, asked, 2, GRID, drawn)
    assert drawn.numbers == 2 * (300 + 299)


class Counting:
    """A generator that counts what it draws."""

    def __init__(self, seed):
        self.rng, self.numbers = np.random.default_rng(seed), 0

    def integers(self, low, high, shape):
        self.numbers += int(np.prod(shape))
        return self.rng.integers(low, high, shape)
