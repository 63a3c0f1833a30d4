"""Trials of queries: their score is the exact log-likelihood ratio, and shows what Adap DP-FL leaves unpaid."""

import math

import numpy as np
import pytest
import torch
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.evidence import MembershipScores
from fedassay.audit.finding import Verdict, judge
from fedassay.audit.threshold import SplitThreshold
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.defenses.sample_level.adap_dp_fl import AdapDPFL
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.protection import Context
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import Streams
from fedassay.suites.audits.queried_lots import published_query_trials
from scipy.stats import norm
from toy_federation import flat_plan

RATE, SIGMA, ROUNDS = 0.1, 1.0, 50


def plan_of(rate=RATE, rounds=ROUNDS, algorithm=None):
    algorithm = algorithm or FedSGD(learning_rate=1.0)
    return flat_plan(1, 1, size=40, rounds=rounds, lot=Poisson(rate), algorithm=algorithm)


def trials_of(plan, *, trials, seed=0, queried=True, **fields):
    """Summed log-ratios of arm 0 and 1, and the claim."""
    prepared = AdapDPFL(noise_multiplier=SIGMA, **fields).prepare(plan)
    (claim,) = prepared.claims
    arms = [
        published_query_trials(
            prepared.protection, plan, claim, arm=arm, trials=trials, streams=Streams(seed), queried=queried
        )
        for arm in (0, 1)
    ]
    return arms, claim


@pytest.mark.parametrize("variant", ["corrected", "as_published"])
@pytest.mark.parametrize("queried", [True, False])
def test_the_score_is_the_exact_log_likelihood_ratio(variant, queried):
    """E e^L is 1 without the sample, E e^-L is 1 with it, over two steps in each of five rounds (5 standard errors)."""
    plan = plan_of(rounds=5, algorithm=FedAvg(learning_rate=0.1, local_steps=2))
    (out, within), _ = trials_of(plan, trials=20_000, variant=variant, queried=queried, epsilon=50.0)
    for ratio in (np.exp(out.values.sum(1)), np.exp(-within.values.sum(1))):
        assert abs(ratio.mean() - 1) < 5 * ratio.std() / math.sqrt(len(ratio))
    assert out.seen.all()


@pytest.mark.parametrize(("variant", "times"), [("corrected", 1.0), ("as_published", math.sqrt(2))])
def test_whole_lots_show_the_sample_as_far_as_the_noise_is_paid_for_or_root_two_farther(variant, times):
    """At rate 1 a run's score is Gaussian with mean mu^2 / 2, mu = sqrt(rounds) / sigma, times root 2 unpaid."""
    (out, within), _ = trials_of(plan_of(rate=1.0, rounds=3), trials=20_000, variant=variant, epsilon=40.0)
    mu = times * math.sqrt(3) / SIGMA
    for side, sign in ((out, -1), (within, 1)):
        scores = side.values.sum(1)
        assert abs(scores.mean() - sign * mu**2 / 2) < 5 * mu / math.sqrt(len(scores))
        assert scores.std() == pytest.approx(mu, rel=0.03)
        assert abs(np.mean(scores < sign * mu**2 / 2 - mu) - norm.cdf(-1)) < 0.02


def found(variant, epsilon, *, queried=True, seed=0):
    (out, within), claim = trials_of(
        plan_of(), trials=40_000, variant=variant, epsilon=epsilon, delta=0.01, queried=queried, seed=seed
    )
    scores = MembershipScores(within.values.sum(1), out.values.sum(1), within.setting)
    measured = clopper_pearson(
        scores, delta=claim.delta, alpha=0.01, threshold=SplitThreshold(0.5), epsilon=claim.epsilon
    )
    return judge(claim, measured)


EPSILON = 2.94
"""What the filter asks for 50 steps at (.1, 1), delta .01, so that no client stops before the end."""


@pytest.mark.simulations
def test_the_published_claim_falls_where_the_query_is_read_and_only_there():
    assert found("as_published", EPSILON).verdict is Verdict.REFUTED
    blind = found("as_published", EPSILON, queried=False)
    assert blind.verdict is Verdict.NOT_REFUTED
    assert blind.measurement.epsilon_low < EPSILON


@pytest.mark.simulations
@pytest.mark.parametrize("seed", range(3))
def test_the_corrected_claim_stands(seed):
    """It errs once in a hundred seeds at most."""
    assert found("corrected", EPSILON, seed=seed).verdict is Verdict.NOT_REFUTED


def test_a_client_that_has_stopped_shows_nothing():
    """Half of the budget: later rounds are not seen and score zero."""
    (out, within), _ = trials_of(plan_of(), trials=50, epsilon=2.0, delta=0.01)
    for side in (out, within):
        assert 0 < side.seen.mean() < 1
        assert not side.values[~side.seen].any()
        assert (side.values[side.seen] != 0).all()


def test_the_bound_moves_with_what_was_answered():
    """Ratios stay exact only if they follow it: two clients' second rounds differ in their public bound."""
    plan = plan_of(rate=0.5)
    protection = AdapDPFL(variant="as_published", noise_multiplier=4.0).prepare(plan).protection
    context = Context(plan=plan, round=1, replicas=2, senders=(0,))
    state = protection.initial_state(plan) | {"clip_norm": {0: torch.tensor([1.0, 0.01])}}
    step, answer = torch.tensor([[0.3], [0.003]]), torch.tensor([[0.2], [0.002]])
    ratios = protection.log_ratio(step, answer, 0, context, state)
    torch.testing.assert_close(ratios[0], ratios[1])
    # Lot 20, noise 4: views 6 and 4 of a shift of 1.
    moved = (6 - 0.5) / 16 + (4 - 0.5) / 16
    assert float(ratios[0]) == pytest.approx(math.log(0.5 + 0.5 * math.exp(moved)))


def test_a_protection_without_such_a_law_or_a_claim_of_another_unit_is_refused():
    plan = plan_of()
    prepared = LDPGaussian().prepare(plan)
    with pytest.raises(ValueError, match=r"an audit of query answers needs a protection with a method log_ratio"):
        published_query_trials(prepared.protection, plan, prepared.claims[0], arm=0, trials=2, streams=Streams(0))


PARAMETERS = 'part = "adap_dp_fl"\nepsilon = {epsilon}\ndelta = 0.01\nnoise_multiplier = 1.0\n'
DEFENSES = f'[defenses.corrected]\n{PARAMETERS}[defenses.published]\nvariant = "as_published"\n{PARAMETERS}'


@pytest.fixture
def audited(suite_file, assay):
    """(epsilon, replicas, rounds) -> the rows of the suite's run."""

    def go(epsilon, replicas, rounds=50):
        tables = DEFENSES.format(epsilon=epsilon) + f"[audit]\nreplicas = {replicas}\n"
        federation = {"clients": 2, "samples": 60, "rounds": rounds, "lot": {"poisson": 0.1}}
        return assay(suite_file(text=tables, alpha=0.05, **federation)).records

    return go


@pytest.mark.simulations
@pytest.mark.long
def test_a_suites_audit_reads_the_query(audited):
    """That the published claim falls is shown on trials alone above."""
    rows = [row for row in audited(2.94, 100, rounds=5) if row.role == "audit"]
    assert [row.status for row in rows] == ["ok", "ok"]
    for row in rows:
        assert row.attack == "queried_lots"
        assert "evidence: a client's steps and answers" in row.reason


@pytest.mark.long
def test_clients_that_stop_early_do_not_stop_the_audit(audited):
    """Half of the budget: from some round on nobody sends anything, nor in the runs of the checks."""
    rows = [row for row in audited(2.0, 100) if row.role in ("audit", "check")]
    assert {row.status for row in rows} <= {"ok", "skipped"}
    assert {row.metric for row in rows if row.verdict == "PASSED"} >= {"check_noise_present"}
