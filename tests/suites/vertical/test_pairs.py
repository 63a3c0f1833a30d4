"""Pairs of data sets differ in several ways, because each broken defense fails in its own corner."""

from dataclasses import replace

import pytest
import torch
from fedassay.fl.streams import Streams, normal
from fedassay.fl.vertical.protection import VerticalProtection
from fedassay.suites.vertical.runs import best_separated
from toy_vertical import SPLIT, row_case, toy_vertical

TASK, PLAN = toy_vertical(SPLIT, frozen=True)
CASE = row_case(VerticalProtection(), delta=1e-5, federation=(TASK, PLAN))


def embedded(pair):
    """The embeddings of both rows at the pair's party, (2, embedding)."""
    rows = torch.cat([pair.plant(arm, 1).rows[pair.party] for arm in (0, 1)])
    bottoms = TASK.network.bottoms[pair.party], TASK.network.initial(Streams(0)).bottoms[pair.party]
    return bottoms[0].forward(bottoms[1], rows.unsqueeze(0))[0][0]


@pytest.mark.parametrize("pair", [pair for pair in CASE.pairs if "one number" in pair.words])
def test_a_row_may_have_one_number_alone_in_its_embedding(pair):
    up, down = torch.nn.functional.normalize(embedded(pair), p=1, dim=1)
    number = int((up - down).abs().argmax())
    assert up[number] > 0.95
    assert down[number] < -0.95


class ZerosStay(VerticalProtection):
    """A missing number is 0 and stays missing; all others are hidden."""

    def columns(self, values, party, plan, rng):
        return torch.where(values == 0, values, normal(rng, tuple(values.shape)))


class OverLongest(VerticalProtection):
    """All people's embeddings are made short where one of the batch is long."""

    def embeddings(self, values, party, context, rng):
        longest = values.norm(dim=-1).amax(1).view(-1, 1, 1)
        sent = torch.nn.functional.normalize(values, dim=-1) / (1 + longest)
        return sent + 0.2 * normal(rng, tuple(values.shape))


class Spread(VerticalProtection):
    """Noise that fits an embedding whose length is spread over its numbers."""

    def embeddings(self, values, party, context, rng):
        return torch.nn.functional.normalize(values, p=1, dim=-1) + normal(rng, tuple(values.shape))


@pytest.mark.parametrize(
    ("protection", "words"), [(ZerosStay(), "zeros"), (OverLongest(), "zeros"), (Spread(), "one number")]
)
def test_the_runs_are_those_of_the_pair_that_a_score_separates_best(protection, words):
    assert words in best_separated(replace(CASE, protection=protection), CASE.pairs).words
