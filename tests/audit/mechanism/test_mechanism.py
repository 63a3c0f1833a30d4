"""A mechanism alone: what it must show, what it must never show, and that trials are counted and not kept.

Outputs of runs that were made before: half of them learn an event, and the other half is counted.

Pairs of inputs on a ball: lengths, distances, what each adjacency allows.
"""

import math
import tracemalloc

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.estimators.guess_odds import odds_low
from fedassay.audit.finding import Verdict
from fedassay.audit.mechanism.mechanism import audit_mechanism, audit_outputs, ball_neighbours

REPEATS = 300


def gaussian(sigma):
    return lambda x, rng: x + sigma * rng.normal(size=x.shape)


def randomised(epsilon, domain):
    """Randomised response over whole numbers below ``domain``."""
    stay = math.exp(epsilon) / (math.exp(epsilon) + domain - 1)

    def mechanism(x, rng):
        other = rng.integers(0, domain - 1, size=x.shape)
        return np.where(rng.random(x.shape) < stay, x, other + (other >= x))

    return mechanism


def coin(x, rng):
    """Randomised response at epsilon 1, one trial a call."""
    return bool(x) == (rng.random() < math.e / (1 + math.e))


def test_randomised_response_over_ten_shows_98_hundredths_from_a_million_trials():
    # A claim a little above the true epsilon of 1, because one seed in twenty may refute a claim at it.
    finding = audit_mechanism(randomised(1, 10), Claim.stated(1.01), inputs=(0, 1), trials=10**6, batched=True)
    assert 0.98 <= finding.measurement.epsilon_low < 1.01
    assert finding.verdict is Verdict.NOT_REFUTED
    assert finding.measurement.n0 + finding.measurement.n1 == 2 * 10**6


@pytest.mark.simulations
@pytest.mark.parametrize(("epsilon", "limit"), [(1, 0.60), (2, 1.29), (4, 2.59)])
def test_a_gaussian_shows_85_hundredths_of_what_an_oracle_threshold_would(epsilon, limit):
    # 1e5 trials per arm at delta 1e-5: the mean of eight audits over the expected bound of the best threshold.
    claim = Claim.stated(epsilon, 1e-5)
    sigma = 1 / mu_from_epsilon(epsilon, 1e-5)
    shown = [
        audit_mechanism(gaussian(sigma), claim, inputs=(0.0, 1.0), seed=seed, batched=True).measurement.epsilon_low
        for seed in range(8)
    ]
    assert 0.85 * limit < np.mean(shown) < epsilon


@pytest.mark.simulations
def test_half_the_noise_is_refuted_by_the_curve_and_all_of_it_is_not():
    mu = mu_from_epsilon(4, 1e-5)
    claim = Claim.stated(4.0, 1e-5, mu=mu)
    # A thousand runs are a weak test of all but gross violations.
    weak = (Verdict.NOT_REFUTED, Verdict.UNDERPOWERED)
    for share, expected in ((0.5, (Verdict.REFUTED,)), (1.01, weak)):
        for seed in range(20):
            finding = audit_mechanism(
                gaussian(share / mu), claim, inputs=(0.0, 1.0), trials=1000, seed=seed, batched=True
            )
            assert finding.verdict in expected
            assert finding.route == ("curve" if finding.verdict is Verdict.REFUTED else "")


def test_a_deterministic_mechanism_is_refuted_at_its_ceiling():
    for batched in (False, True):
        finding = audit_mechanism(lambda x, rng: 2 * x, Claim.stated(3.0), inputs=(0, 1), trials=1000, batched=batched)
        assert finding.verdict is Verdict.REFUTED
        assert finding.measurement.epsilon_low == finding.measurement.ceiling == odds_low(2000, 0, 0.05)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["coin", "ten", "gaussian"])
def test_a_mechanism_exactly_at_its_claim_is_refuted_no_oftener_than_alpha(kind, most_false_alarms):
    mechanism, claim = {
        "coin": (randomised(1, 2), Claim.stated(1.0)),
        "ten": (randomised(1, 10), Claim.stated(1.0)),
        "gaussian": (gaussian(1.0), Claim.stated(delta=1e-5, mu=1.0)),
    }[kind]
    inputs = (0.0, 1.0) if kind == "gaussian" else (0, 1)
    verdicts = [
        audit_mechanism(mechanism, claim, inputs=inputs, trials=500, seed=seed, batched=True).verdict
        for seed in range(REPEATS)
    ]
    assert verdicts.count(Verdict.REFUTED) <= most_false_alarms(REPEATS, 0.05)
    assert set(verdicts) <= {Verdict.REFUTED, Verdict.NOT_REFUTED, Verdict.UNDERPOWERED}


@pytest.mark.long
@pytest.mark.simulations
def test_choosing_among_pairs_spends_no_alpha(most_false_alarms):
    # Randomised response over four at its claim, six pairs that are all alike: the luckiest pilot is no excuse.
    pairs = [(a, b) for a in range(4) for b in range(a)]
    refuted = sum(
        audit_mechanism(
            randomised(1, 4), Claim.stated(1.0), pairs=pairs, trials=300, pilot=100, seed=seed, batched=True
        ).verdict
        is Verdict.REFUTED
        for seed in range(REPEATS)
    )
    assert refuted <= most_false_alarms(REPEATS, 0.05)


def test_streamed_counts_are_those_of_a_reference_that_keeps_every_output():
    outputs = {0.0: [], 1.0: []}

    def kept(x, rng):
        drawn = x + rng.laplace(size=x.shape)
        outputs[float(x[0])].append(drawn)
        return drawn

    def score(values):
        return values

    finding = audit_mechanism(
        kept, Claim.stated(1.0), inputs=(0.0, 1.0), trials=100_000, pilot=500, batched=True, score=score
    )
    measured = finding.measurement
    out, within = (np.concatenate(outputs[x])[-n:] for x, n in ((0.0, measured.n0), (1.0, measured.n1)))
    assert measured.false_positives == np.count_nonzero(out > measured.threshold)
    assert measured.false_negatives == np.count_nonzero(within <= measured.threshold)
    assert len(outputs[0.0]) > 4  # Two guards, a pilot and several chunks.


@pytest.mark.simulations
def test_no_two_trials_share_a_draw_and_the_same_seed_draws_the_same():
    def seen(seed):
        drawn = []

        def mechanism(x, rng):
            drawn.append(x * 0 + rng.random(x.shape))
            return drawn[-1]

        audit_mechanism(mechanism, Claim.stated(1.0), pairs=[(0, 1), (1, 0)], trials=70_000, seed=seed, batched=True)
        return np.concatenate(drawn)

    first = seen(3)
    # The first call on each of the four inputs is made twice, to see whether the mechanism keeps state.
    assert len(np.unique(first)) == len(first) - 4 * 256
    np.testing.assert_array_equal(first, seen(3))
    assert not np.isin(seen(4), first).any()


def test_memory_does_not_grow_with_the_trials():
    def peak(trials):
        tracemalloc.start()
        audit_mechanism(
            gaussian(1.0), Claim.stated(5.0, 1e-5), inputs=(0.0, 1.0), trials=trials, pilot=50_000, batched=True
        )
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak(1000)
    assert peak(10**6) < 1.05 * peak(10**5) < 40e6


@pytest.mark.simulations
def test_the_search_finds_the_pair_that_leaks_and_audits_it_with_fresh_trials():
    # Laplace noise for sensitivity 1 on the first nine of ten coordinates; the last has a tenth of it.
    scale = np.r_[np.ones(9), 0.1] * 2

    def mechanism(x, rng):
        return x + scale * rng.laplace(size=x.shape)

    claim = Claim.stated(1.0)
    finding = audit_mechanism(
        mechanism, claim, pairs=ball_neighbours(10, radius=1.0, norm=1), trials=4000, batched=True
    )
    assert finding.verdict is Verdict.REFUTED
    last = "array([ 0., 0., 0., 0., 0., 0., 0., 0., 0., -1.])"
    assert finding.measurement.witness.startswith(f"inputs {last} and ")
    assert "chosen from 10 pairs on pilot trials" in finding.measurement.witness
    blind = audit_mechanism(mechanism, claim, inputs=(np.eye(10)[0], -np.eye(10)[0]), trials=4000, batched=True)
    assert blind.verdict is Verdict.NOT_REFUTED


def test_one_trial_a_call_takes_any_input_and_any_plain_output():
    said = {"no": 0.3, "yes": 0.7}

    def answer(x, rng):
        return "yes" if rng.random() < said[x["answer"]] else "no"

    inputs = ({"answer": "no"}, {"answer": "yes"})
    shown = audit_mechanism(answer, Claim.stated(1.0), inputs=inputs, trials=10_000).measurement
    assert 0.7 < shown.epsilon_low < math.log(7 / 3)
    assert "likelihood ratio of 2 outputs" in shown.witness
    assert "{'answer': 'no'} and {'answer': 'yes'}" in shown.witness
    assert audit_mechanism(coin, Claim.stated(1.0), inputs=(0, 1), trials=5000).measurement.epsilon_low > 0.85


@pytest.mark.parametrize("batched", [False, True])
def test_vectors_of_whole_numbers_are_one_output_each(batched):
    # Two bits, each by randomised response at epsilon 1: the pair of inputs differs in both, so epsilon is 2.
    def bits(x, rng):
        return np.where(rng.random(x.shape) < math.e / (1 + math.e), x, 1 - x)

    finding = audit_mechanism(
        bits, Claim.stated(1.5), inputs=(np.array([0, 1]), np.array([1, 0])), trials=20_000, batched=batched
    )
    assert finding.verdict is Verdict.REFUTED
    assert finding.measurement.epsilon_low < 2


def test_of_a_long_vector_the_coordinate_that_differs_is_found():
    x1 = np.zeros(500)
    x1[17] = 1.0
    finding = audit_mechanism(
        gaussian(0.25), Claim.stated(8.0, 1e-5, mu=1.0), inputs=(np.zeros(500), x1), trials=3000, batched=True
    )
    assert (finding.verdict, finding.route) == (Verdict.REFUTED, "curve")
    assert any(name in finding.measurement.witness for name in ("x1 - x0", "the coordinate 17"))


def test_a_long_vector_of_another_shape_than_the_input_is_projected_on_the_difference_of_the_means():
    def mechanism(x, rng):
        return rng.normal(size=(len(x), 150)) + 0.5 * x[:, None]

    claim = Claim.stated(delta=1e-5, mu=3.0)
    finding = audit_mechanism(mechanism, claim, inputs=(0.0, 1.0), trials=2000, batched=True)
    assert finding.route == "curve"
    assert "projection on the difference of the means" in finding.measurement.witness


def test_a_score_of_ones_own_is_used_as_it_is_given():
    def middle(outputs):
        assert outputs.shape[1:] == (3, 2)
        return -np.abs(outputs).sum(axis=(1, 2))

    def mechanism(x, rng):
        return rng.normal(size=(len(x), 3, 2)) * (4 - 3 * x)[:, None, None]

    shown = audit_mechanism(
        mechanism, Claim.stated(1.0), inputs=(0.0, 1.0), trials=5000, batched=True, score=middle
    ).measurement
    assert "event {score middle " in shown.witness
    assert shown.epsilon_low > 3


@pytest.mark.parametrize("batched", [False, True])
def test_whole_numbers_beyond_two_to_the_53_keep_their_last_bit(batched):
    def odd_or_even(x, rng):
        return np.asarray(2**60 + x + 2 * rng.integers(0, 2, size=np.shape(x))).astype(np.int64)

    finding = audit_mechanism(odd_or_even, Claim.stated(1.0), inputs=(0, 1), trials=1000, batched=batched)
    assert finding.verdict is Verdict.REFUTED
    assert finding.measurement.epsilon_low == finding.measurement.ceiling


def test_outputs_are_audited_from_python_too():
    rng, claim = np.random.default_rng(0), Claim.stated(1.0, 1e-5)
    out, within = rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 9
    assert audit_outputs(out, within, claim).verdict is Verdict.REFUTED
    assert audit_outputs(out, within, claim, estimator="hockey_stick").measurement.estimator == "hockey_stick"
    with pytest.raises(ValueError, match="member must hold at least 8 outputs, got 3"):
        audit_outputs(out, within[:3], claim)
    with pytest.raises(ValueError, match="must have the same type and shape"):
        audit_outputs(out, within[:, :1], claim)


def test_the_event_depends_on_every_first_output_alone_and_the_counts_on_every_second():
    claim, rng = Claim.stated(1.0, 1e-5), np.random.default_rng(0)
    out, within = rng.normal(size=400), rng.normal(1, 1, 400)
    others, alike = rng.normal(5, 1, 200), rng.normal(size=200)

    def audited(pilots, counted):
        rows = np.empty(400)
        rows[::2], rows[1::2] = pilots, counted
        return audit_outputs(out, rows, claim).measurement

    first = audited(within[::2], within[1::2])
    assert audited(within[::2], others).witness == first.witness
    assert audited(others, within[1::2]).witness != first.witness
    assert audited(others, alike).epsilon_low == 0


@pytest.mark.simulations
def test_outputs_at_the_claim_are_refuted_no_oftener_than_alpha(most_false_alarms):
    rng, claim, repeats = np.random.default_rng(0), Claim.stated(delta=1e-5, mu=1.0), 60
    found = (audit_outputs(rng.normal(size=120), rng.normal(1, 1, 120), claim).verdict for _ in range(repeats))
    assert sum(verdict is Verdict.REFUTED for verdict in found) <= most_false_alarms(repeats, 0.05)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize(("adjacency", "count"), [("replace_one", 10), ("add_remove", 5), ("zero_out", 5)])
def test_vectors_lie_on_the_ball_and_zero_stands_for_what_is_away(norm, adjacency, count):
    pairs = ball_neighbours(7, radius=3.0, norm=norm, adjacency=adjacency)
    assert len(pairs) == count
    for x0, x1 in pairs:
        assert np.linalg.norm(x1, norm) == pytest.approx(3)
        assert np.array_equal(x0, -x1) or not x0.any()
    assert sum(x0.any() for x0, _ in pairs) == (5 if adjacency == "replace_one" else 0)


def test_the_directions_by_hand():
    pairs = ball_neighbours(4, radius=2.0, norm=1, adjacency="add_remove", directions=0)
    np.testing.assert_array_equal([x1 for _, x1 in pairs], [[2, 0, 0, 0], [0, 0, 0, 2], [0.5] * 4])
    np.testing.assert_array_equal(ball_neighbours(1, radius=2.0), [([0], [2]), ([-2], [2])])
