"""The one-shot estimate: the hockey stick of two Gaussians, how far it overshoots, and that it never refutes."""

import math

import numpy as np
import pytest
from fedassay.audit.curve import delta_from_mu, epsilon_from_mu, mu_from_epsilon
from fedassay.audit.estimators.one_shot import epsilon_of_two_gaussians, hockey_stick_of_gaussians, one_shot
from fedassay.audit.evidence import CandidateScores, Design
from fedassay.audit.finding import Verdict, judge
from fedassay.audit.measurement import Kind
from scipy.integrate import quad

D = 10_000


@pytest.fixture(scope="module")
def cosines_of(setting_of):
    return lambda values, design=Design.ONE_RUN: CandidateScores(values, setting_of(design=design))


@pytest.mark.parametrize(
    ("mean", "spread", "epsilon"),
    [(0.0, 0.6, 0.5), (0.7, 0.999, 0.0), (-1.5, 1.0, 2.0), (0.7, 1.01, 0.5), (-1.5, 2.0, 0.5), (0.7, 0.6, 2.0)],
)
def test_the_hockey_stick_is_its_integral(mean, spread, epsilon):
    def density(x, mean, spread):
        return math.exp(-0.5 * ((x - mean) / spread) ** 2) / (spread * math.sqrt(2 * math.pi))

    def excess(x):
        return max(0.0, density(x, mean, spread) - math.exp(epsilon) * density(x, 0.0, 1.0))

    naive = sum(quad(excess, low, low + 0.5, epsabs=1e-12)[0] for low in np.arange(-20, 20, 0.5))
    assert hockey_stick_of_gaussians(mean, spread, epsilon) == pytest.approx(naive, abs=1e-7)


@pytest.mark.parametrize("mu", [0.3, 1.0, 4.0])
def test_one_variance_is_gaussian_dp(mu):
    assert hockey_stick_of_gaussians(mu, 1.0, 1.0) == pytest.approx(delta_from_mu(mu, 1.0), rel=1e-9)
    assert epsilon_of_two_gaussians(mu, 1.0, 1e-5) == pytest.approx(epsilon_from_mu(mu, 1e-5), rel=1e-6)
    assert epsilon_of_two_gaussians(-mu, 1.0, 1e-5) == pytest.approx(epsilon_from_mu(mu, 1e-5), rel=1e-6)


@pytest.mark.parametrize(("true", "mean"), [(1.0, 1.32), (3.0, 3.34), (10.0, 10.5)])
def test_it_exceeds_the_truth_in_most_ideal_runs(cosines_of, true, mean):
    # 1000 ideal canaries, 200 runs: the mean overshoots as published, more than 80 % of runs do.
    rng, mu = np.random.default_rng(0), mu_from_epsilon(true, 1e-5)
    runs = rng.normal(mu, 1, (200, 1000)) / math.sqrt(D)
    estimates = [one_shot(cosines_of(run), dimension=D, delta=1e-5).estimate for run in runs]
    assert np.mean(estimates) == pytest.approx(mean, abs=0.1)
    assert np.mean(np.array(estimates) > true) > 0.8


def test_it_is_labelled_an_estimate_and_never_refutes(cosines_of, claim_of):
    run = np.random.default_rng(1).normal(5, 1, 1000) / math.sqrt(D)
    seen = one_shot(cosines_of(run), dimension=D, delta=1e-5, witness="1000 random directions")
    assert (seen.kind, seen.alpha, seen.epsilon_low, seen.ceiling) == (Kind.ESTIMATE, 1.0, 0.0, 0.0)
    assert (seen.canaries, seen.n0, seen.fpr_high) == (1000, 0, None)
    assert seen.estimate > 20
    finding = judge(claim_of(epsilon=1.0), seen)
    assert finding.verdict is Verdict.UNDERPOWERED
    assert f"point estimate of eps {round(seen.estimate, 2)}, which is not a bound" in finding.line()
    assert "eps >=" not in finding.line()


def test_cosines_that_do_not_vary_or_nearly_so_give_no_number(cosines_of):
    assert one_shot(cosines_of(np.zeros(10)), dimension=D, delta=1e-5).estimate is None
    assert one_shot(cosines_of([0.5, 0.5 + 1e-12]), dimension=D, delta=1e-5).estimate is None
