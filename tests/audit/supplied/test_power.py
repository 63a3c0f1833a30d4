"""The power of audits of supplied evidence: events with exchanged roles, and estimators that compute no power.

An audit of scores that could refute nothing ends as UNDERPOWERED, by every design and estimator.
"""

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.audit.supplied.scores import audit_one_run, audit_scores

CLAIM = Claim.stated(delta=1e-5, mu=1.0)
RUNS = {"design": "independent", "higher_is_member": True}


def test_an_event_that_is_nearly_certain_has_the_power_of_its_complement():
    # The threshold lies 2 below the nonmembers' mean, or 3 above the members': the same test in exchanged roles.
    rng = np.random.default_rng(0)
    member, nonmember = rng.normal(1, 1, 1000), rng.normal(0, 1, 1000)
    low = audit_scores(member, nonmember, CLAIM, threshold=-2.0, **RUNS).measurement
    high = audit_scores(1 - nonmember, 1 - member, CLAIM, threshold=3.0, **RUNS).measurement
    assert (low.false_positives, low.false_negatives) == (high.false_negatives, high.false_positives)
    assert low.detectable == high.detectable is not None


def test_an_estimator_whose_power_is_not_known_is_weak_where_nothing_was_shown():
    rng, claim = np.random.default_rng(0), Claim.stated(2.0, 1e-5)
    options = {"estimator": "sequential", **RUNS}
    nothing = audit_scores(rng.normal(size=600), rng.normal(size=600), claim, **options)
    assert (nothing.verdict, nothing.measurement.detectable) == (Verdict.UNDERPOWERED, None)
    assert "its power is not known" in nothing.reason
    refuted = audit_scores(rng.normal(5.0, 1, 600), rng.normal(0, 1, 600), claim, **options)
    assert (refuted.verdict, refuted.measurement.detectable) == (Verdict.REFUTED, None)


PLAIN, GAUSSIAN = Claim.stated(1.0, 1e-5), Claim.stated(delta=1e-5, mu=1.0)
N = 1000
RNG = np.random.default_rng(0)
ONE = np.r_[1.0, np.zeros(N - 1)]
BARE = {
    "constant": (np.full(N, 0.3), np.full(N, 0.3)),
    "one of many differs": (ONE, np.zeros(N)),
    "one of each differs": (ONE, ONE[::-1]),
    "one is lower": (-ONE, np.zeros(N)),
}
INFORMATIVE = {
    "continuous": (RNG.normal(size=N), RNG.normal(size=N)),
    "coins": (RNG.integers(0, 2, N) * 1.0, RNG.integers(0, 2, N) * 1.0),
    "rare": ((RNG.random(N) < 0.2) * 1.0, (RNG.random(N) < 0.2) * 1.0),
    "grid": (RNG.normal(size=N).round(1), RNG.normal(size=N).round(1)),
    "mostly zero": (np.maximum(RNG.normal(size=N), 0), np.maximum(RNG.normal(size=N), 0)),
}
WAYS = {
    "guess_odds": (PLAIN, {}),
    "clopper_pearson": (PLAIN, {"estimator": "clopper_pearson"}),
    "threshold": (PLAIN, {"threshold": 0.35}),
    "curve": (GAUSSIAN, {}),
    "hockey_stick": (PLAIN, {"estimator": "hockey_stick"}),
    "pairwise_event": (PLAIN, {"estimator": "pairwise_event", "threshold": 0.5}),
    "gaussian_dp": (GAUSSIAN, {"estimator": "gaussian_dp"}),
    "z_test": (GAUSSIAN, {"estimator": "z_test", "deviation": 1.0}),
    "release_tests": (GAUSSIAN, {"estimator": "release_tests", "sigma": 1.0}),
}


def judged(sides, way):
    claim, options = WAYS[way]
    return audit_scores(*sides, claim, design="independent", higher_is_member=True, **options)


def judged_in_one_run(sides, **options):
    scores, coins = np.concatenate(sides), np.arange(2 * N) < N
    return audit_one_run(scores, coins, PLAIN, higher_is_member=True, ordered=False, **options)


@pytest.mark.parametrize("way", WAYS)
def test_scores_without_information_are_underpowered(way):
    for sides in BARE.values():
        finding = judged(sides, way)
        assert (finding.verdict, finding.measurement.detectable) == (Verdict.UNDERPOWERED, None)
        assert "weak test: " in finding.reason


def could_refute(finding):
    """Whether the claim is not refuted, or only because a far larger epsilon would be."""
    assert finding.verdict in (Verdict.NOT_REFUTED, Verdict.UNDERPOWERED)
    return finding.verdict is Verdict.NOT_REFUTED or finding.weak


@pytest.mark.parametrize("kind", INFORMATIVE)
def test_scores_that_could_have_refuted_are_not(kind):
    assert could_refute(judged_in_one_run(INFORMATIVE[kind]))
    for way in ("clopper_pearson", "threshold"):
        assert could_refute(judged(INFORMATIVE[kind], way))


def test_the_numbers_of_equal_scores_that_make_a_test_weak_are_those_of_the_bound():
    # About 500 of 1000 scores are counted on each side: 8 hits among members against none bound no epsilon above 1,
    # while 120 do.
    for hits, enough in ((4, False), (60, True)):
        marked = np.r_[np.ones(hits), np.zeros(2 * N - hits)]
        assert could_refute(judged((marked, marked[::-1]), "clopper_pearson")) is enough


@pytest.mark.parametrize("kind", BARE)
def test_canaries_of_one_run_without_information_are_underpowered(kind):
    assert judged_in_one_run(BARE[kind]).verdict is Verdict.UNDERPOWERED


def test_rows_that_are_nearly_all_equal_are_underpowered():
    rows = np.zeros((N, 3))
    rows[0] = 1.0, -1.0, 2.0
    assert judged((rows, np.zeros((N, 3))), "hockey_stick").verdict is Verdict.UNDERPOWERED
    rng = np.random.default_rng(0)
    assert could_refute(judged((rng.normal(size=(N, 3)), rng.normal(size=(N, 3))), "hockey_stick"))


def test_a_threshold_beyond_all_scores_shows_nothing():
    finding = audit_scores(*INFORMATIVE["continuous"], PLAIN, design="independent", higher_is_member=True, threshold=99)
    assert (finding.verdict, "one side of the threshold" in finding.reason) == (Verdict.UNDERPOWERED, True)


def test_one_nonmember_is_underpowered_with_the_number_needed():
    finding = judged((RNG.normal(size=N), np.zeros(1)), "clopper_pearson")
    assert (finding.verdict, "at least 15 of each are needed" in finding.reason) == (Verdict.UNDERPOWERED, True)
