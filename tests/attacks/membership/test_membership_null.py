"""The null test of membership attacks, with fewer repeats than the benchmark of the same name."""

import numpy as np
import pytest
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import Design, Setting
from fedassay.audit.metrics import area_interval, counted_runs, joint_statement, lowest_rate
from fedassay.audit.observer import UPLOADS
from fedassay.suites.scoring.membership_rows import all_scores

BENCHMARK = "membership_null"
REPEATS = 40
SETTING = Setting(unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=UPLOADS, rounds=1, design=Design.CLUSTERED)


@pytest.fixture(scope="module")
def runs(benchmark):
    return [benchmark.repeat(1000 + seed) for seed in range(REPEATS)]


@pytest.mark.simulations
def test_intervals_of_attacks_on_outsiders_contain_chance(benchmark, runs):
    """23 attacks: intervals that hold it 93 times in a hundred hold it 30 of 40 times or fewer once in 2,900."""
    for name in benchmark.ATTACKS:
        assert sum(run[name].holds for run in runs) > 30, name


@pytest.mark.simulations
def test_attacks_on_outsiders_hardly_ever_seem_better_than_chance(benchmark, runs):
    """20 attacks: statements of which one in 100 is wrong are wrong 6 of 40 times once in 350,000."""
    for name in benchmark.ATTACKS:
        assert sum(run[name].fires for run in runs) < 6, name


def test_an_attack_that_gets_the_truth_is_not_at_chance(benchmark):
    """The same samples and coins, and scores that lean by one standard deviation."""
    rng, held, fired = np.random.default_rng(0), 0, 0
    for _ in range(REPEATS):
        member = rng.permutation(benchmark.ASKED) < benchmark.ASKED // 2
        scores = benchmark.CandidateScores(rng.standard_normal(benchmark.ASKED) + member, SETTING)
        sides = all_scores(scores, member).given_the_run
        found = area_interval(sides)
        held += found.low <= 0.5 <= found.high
        fired += joint_statement(sides, lowest_rate(counted_runs(sides))).exceeds(lambda fpr: fpr)
    assert held < 10
    assert fired > 10
