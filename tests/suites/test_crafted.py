"""Crafted reports: the score is the likelihood ratio of what the observer saw, and a broken coin is found by it."""

import math

import numpy as np
import pytest
from fedassay.suites.crafted import crafted_evidence, report_law
from fedassay.suites.resolve import resolve
from fedassay.suites.run_plan import plan_run
from fedassay.suites.suite_file import load_suite
from scipy.stats import binom

EPSILON, CLIENTS, ROUNDS, TRIALS = 1.0, 3, 2, 4000

COINS = """\
import math
from dataclasses import dataclass, replace

import torch
from fedassay.audit.claim import Claim
from fedassay.audit.observer import SHUFFLED, UPLOADS
from fedassay.defenses.defense import Defense, Prepared
from fedassay.fl.law import Mixing
from fedassay.fl.protection import Protection
from fedassay.fl.streams import uniform


@dataclass(frozen=True, kw_only=True)
class Law:
    epsilon: float
    mixing: Mixing

    def contribution(self, rows):
        return rows.sign()

    def sample(self, contribution, rng):
        raise NotImplementedError

    def log_density(self, release, contribution):
        return self.log_densities(release, contribution).sum(-1)

    def log_densities(self, release, contribution):
        wrong = math.log(1 / (1 + math.exp(self.epsilon)))
        logs = torch.where(release.sign() == contribution, wrong + self.epsilon, wrong).double()
        # Only two coordinates are sent.
        return torch.cat([logs[..., :2], torch.zeros_like(logs[..., 2:])], dim=-1)

    def worst_pair(self, dim):
        return -torch.ones(dim), torch.ones(dim)


@dataclass(frozen=True, kw_only=True)
class Coins(Protection):
    told: float
    true: float
    mixing: Mixing

    def report(self, updates, context, state, rng):
        right = uniform(rng, tuple(updates.values.shape)) < 1 / (1 + math.exp(-self.true))
        bits = torch.where(right, updates.values.sign(), -updates.values.sign())
        return updates.with_values(torch.cat([bits[..., :2], 0 * bits[..., 2:]], dim=-1))

    def channel(self, reports, context, state, rng):
        if self.mixing is Mixing.NONE:
            return reports
        return replace(reports, senders=None)

    def law(self, observer, plan, client):
        seen = UPLOADS if self.mixing is Mixing.NONE else SHUFFLED
        return Law(epsilon=self.told / 2, mixing=self.mixing) if observer == seen else None


@dataclass(frozen=True, kw_only=True)
class Mine(Defense):
    epsilon: float = {epsilon}
    share: float = 1.0
    mixing: str = "none"
    piece: str = "joint"
    rounds: int = {rounds}
    variant: str = "corrected"
    unit: str = "report"
    rate: float = 1.0

    def prepare(self, plan):
        mixing = Mixing(self.mixing)
        observer = UPLOADS if mixing is Mixing.NONE else SHUFFLED
        claim = Claim.stated(self.epsilon * self.rounds, observer=observer, rounds=self.rounds, unit=self.unit)
        claim = replace(claim, part=self.piece, parameters={"rate": self.rate})
        protection = Coins(told=self.epsilon, true=self.epsilon / self.share / 2, mixing=mixing)
        return Prepared(protection=protection, claims=(claim,))
"""

SUITE = """name = "one"
seeds = 1

[federations.main]
model = "logistic"
clients = {clients}
samples = 40
rounds = {rounds}
algorithm = {{ name = "fedsgd", learning_rate = 0.5 }}

[defenses.mine]
part = "{module}:Mine"
{fields}

[audit]
replicas = {trials}
batch = 500
"""


@pytest.fixture
def suite_of(suite_file, own_module):
    """(fields) -> the path of a suite with that defense alone."""

    def build(fields="", trials=TRIALS):
        module = own_module(COINS.replace("{epsilon}", str(EPSILON)).replace("{rounds}", str(ROUNDS)))
        text = SUITE.format(clients=CLIENTS, rounds=ROUNDS, module=module, fields=fields, trials=trials)
        return str(suite_file(text=text))

    return build


@pytest.fixture
def scores_of(suite_of):
    """(fields) -> the ratios of world 0 and of world 1, ``(trials, rounds)`` each."""

    def build(fields):
        spec, source = load_suite(suite_of(fields))
        (block,) = plan_run(resolve(spec, source, seed=0)).blocks
        law = report_law(block)
        return [np.concatenate([part.values for part in crafted_evidence(block, law, world)]) for world in (0, 1)]

    return build


def test_of_uploads_it_is_the_ratio_of_the_clients_own_report(scores_of):
    out, within = scores_of("")
    assert out.shape == within.shape == (TRIALS, ROUNDS)
    # Two coins of epsilon 1/2 each: they agree on either side, or cancel.
    assert set(np.unique(within.round(9))) == {-1.0, 0.0, 1.0}
    chance = (1 / (1 + math.exp(-EPSILON / 2))) ** 2
    low, high = binom.ppf([5e-7, 1 - 5e-7], within.size, chance)  # Falsely out once in a million seeds.
    assert low <= np.count_nonzero(within.round(9) == 1) <= high
    assert low <= np.count_nonzero(out.round(9) == -1) <= high


@pytest.mark.parametrize("mixing", ["rows", "coordinates"])
def test_behind_a_shuffler_it_is_a_ratio_too(scores_of, mixing):
    """A likelihood ratio has mean 1 where it does not belong, whatever the law (falsely "no" once in a million)."""
    out, within = scores_of(f'mixing = "{mixing}"')
    for side in (np.exp(out), np.exp(-within)):
        assert abs(side.mean() - 1) < 5 * side.std() / math.sqrt(side.size)
    assert np.exp(within).mean() > 1.02


def test_coordinates_shuffled_apart_show_less_than_whole_rows(scores_of):
    rows, apart = (scores_of(f'mixing = "{mixing}"')[1].mean() for mixing in ("rows", "coordinates"))
    assert 0 < apart < rows


def test_a_claim_of_one_coordinate_is_tried_on_one(scores_of):
    out, within = scores_of('piece = "one coordinate"')
    assert set(np.unique(within.round(9))) == {-EPSILON / 2, EPSILON / 2}
    assert within.mean() > 0 > out.mean()


@pytest.mark.parametrize(("unit", "share"), [("sample", 0.25), ("report", 1.0)])
def test_a_record_that_is_drawn_by_chance_stands_in_a_report_as_often(unit, share, scores_of):
    """Falsely out once in a million seeds; else the report is of the other record, which both coins seldom turn."""
    _, within = scores_of(f'rate = 0.25\nunit = "{unit}"')
    right = 1 / (1 + math.exp(-EPSILON / 2))
    chance = share * right**2 + (1 - share) * (1 - right) ** 2
    low, high = binom.ppf([5e-7, 1 - 5e-7], within.size, chance)
    assert low <= np.count_nonzero(within.round(9) == 1) <= high


def test_rounds_beyond_the_claim_are_not_looked_at(scores_of):
    assert scores_of("rounds = 1")[0].shape == (TRIALS, 1)


@pytest.mark.parametrize(
    ("fields", "verdict", "code"),
    [
        ("", "NOT_REFUTED", 0),
        ("share = 0.5", "REFUTED", 10),
        ('mixing = "rows"', "NOT_REFUTED", 0),
        ('share = 0.4\nvariant = "as_published"', "REFUTED", 0),
        ('piece = "half"', None, 12),
    ],
)
def test_the_court_judges_them(suite_of, assay, fields, verdict, code):
    result = assay(suite_of(fields))
    (row,) = [record for record in result.records if record.role == "audit"]
    assert (row.verdict or None, result.gate.exit_code) == (verdict, code)
    if verdict:
        assert "the two rows that differ most" in row.reason
    else:
        assert "part must be" in row.reason or "part must be" in str([r.reason for r in result.records])
