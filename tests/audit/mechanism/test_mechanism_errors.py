"""What cannot be audited is refused in words that carry it; what the mechanism raises passes with a note."""

import math
import sys

import numpy as np
import pytest
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.audit.mechanism.mechanism import audit_mechanism, audit_outputs
from fedassay.audit.supplied.chosen import EstimatorOptions
from fedassay.audit.supplied.scores import audit_scores

CLAIM = Claim.stated(1.0)


def audit(mechanism, **options):
    return audit_mechanism(mechanism, CLAIM, **({"inputs": (0.0, 1.0), "trials": 200} | options))


def correct(x, rng):
    return x + rng.laplace(size=np.shape(x))


def test_a_mechanism_and_a_claim_of_another_type_are_named():
    with pytest.raises(TypeError, match=r"mechanism must be a function mechanism\(x, rng\), got 3"):
        audit(3)
    with pytest.raises(TypeError, match=r"score must be a function score\(outputs\), got 3"):
        audit(correct, score=3)
    with pytest.raises(TypeError, match=r"claim must be a Claim, .*, got None"):
        audit_mechanism(correct, None, inputs=(0.0, 1.0))
    with pytest.raises(TypeError, match=r"claim must be a Claim, .*, got None"):
        audit_scores([1.0, 2.0], [0.0, 1.0], None)


def test_noise_added_to_nan_reveals_it():
    assert audit(correct, inputs=(0.0, math.nan)).verdict is Verdict.REFUTED
    assert audit(lambda x, rng: correct(np.nan_to_num(x), rng), inputs=(0.0, math.nan)).verdict is not Verdict.REFUTED


@pytest.mark.parametrize(
    ("estimator", "options", "error", "words"),
    [
        (None, EstimatorOptions(sigma=1.0), ValueError, "the default estimator does not use the option sigma"),
        ("hockey_stick", EstimatorOptions(rate=0.1), ValueError, "hockey_stick does not use the option rate"),
        ("z_test", EstimatorOptions(threshold=0.1), ValueError, "must hold no threshold, .* got 0.1"),
        ("hockey_stick", {"sigma": 1}, TypeError, r"options must be EstimatorOptions .* got {'sigma': 1}"),
    ],
)
def test_options_that_are_not_used_are_refused(estimator, options, error, words):
    outputs = np.arange(8.0), np.arange(8.0) + 0.5
    with pytest.raises(error, match=words):
        audit(correct, estimator=estimator, options=options)
    with pytest.raises(error, match=words.replace("the default estimator", "clopper_pearson")):
        audit_outputs(*outputs, CLAIM, estimator=estimator, options=options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trials": 1}, "trials must be >= 2, got 1"),
        ({"trials": 1e6}, "trials must be a whole number, got 1000000.0"),
        ({"pilot": 3}, "pilot must be >= 4, got 3"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
        ({"alpha": 0.0}, r"alpha .* must lie in \(0, 0.5\], got 0.0"),
        ({"alpha": math.nan}, r"alpha .* must lie in \(0, 0.5\], got nan"),
        ({"inputs": None}, "give either inputs or pairs, got neither"),
        ({"pairs": [(0, 1)]}, "give either inputs or pairs, got both"),
        ({"inputs": None, "pairs": []}, "pairs must hold at least one pair of inputs, got none"),
        ({"inputs": (1.0,)}, r"a pair must be two inputs \(x0, x1\), got \(1.0,\)"),
        ({"inputs": "ab"}, "a pair must be two inputs"),
        ({"batched": True, "inputs": ({}, {1})}, "inputs of a batched mechanism must be arrays of numbers or strings"),
    ],
)
def test_arguments_out_of_range_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        audit(correct, **options)


@pytest.mark.parametrize(
    ("mechanism", "words", "batched"),
    [
        (lambda x, rng: correct(x, rng)[:-1], r"one row per trial, got shape \(255,\) for 256 trials", True),
        (lambda x, rng: 0.0, r"one row per trial, got shape \(\) for 256 trials", True),
        (lambda x, rng: x + rng.laplace(), "all 256 rows that one call returned are equal, while another call", True),
        (lambda x, rng: x + np.random.default_rng(7).laplace(size=x.shape), "draw all its noise from the rng", True),
        (lambda x, rng: None, "outputs must be numbers or strings, got NoneType in the first calls on input 0", False),
        (lambda x, rng: {"a": 1}, "outputs must be numbers or strings, got dict", False),
        (lambda x, rng: 1j, "outputs must be numbers or strings, got complex", False),
        (lambda x, rng: [], "outputs must not be empty", False),
        (lambda x, rng: [0.0] * (1 + int(x)), r"numbers of shape \(1,\) and numbers of shape \(2,\)", False),
        (lambda x, rng: "a" if x else 1.0, r"got numbers of shape \(\) and strings of shape \(\)", False),
        (lambda x, rng: [0.0] * rng.integers(1, 3), "one shape, got several in the first calls", False),
        (lambda x, rng: str(rng.random() + x), "strings with too many different values to learn a score", False),
    ],
)
def test_outputs_that_cannot_be_audited_are_refused(mechanism, words, batched):
    with pytest.raises(ValueError, match=words):
        audit(mechanism, batched=batched)


@pytest.mark.parametrize(
    ("x0", "x1"),
    [
        (1, 1),
        (1, 1.0),
        ("no", "no"),
        (np.arange(3), np.arange(3.0)),
        ([np.zeros(2), 1], [np.zeros(2), 1]),
        ({"a": np.ones(2)}, {"a": np.ones(2)}),
    ],
)
def test_equal_inputs_are_refused_for_they_can_show_nothing(x0, x1):
    for given in ({"inputs": (x0, x1)}, {"inputs": None, "pairs": [(0.0, 1.0), (x0, x1)]}):
        with pytest.raises(ValueError, match=r"a pair must be two different inputs, got .* twice"):
            audit(lambda x, rng: rng.random(), **given)


@pytest.mark.parametrize(
    ("x0", "x1"),
    [
        (0, -1),
        ([1], [1, 2]),
        (np.zeros(2), np.zeros((2, 1))),
        ({"a": 1}, {"b": 1}),
        ([np.zeros(2)], [np.ones(2)]),
        (None, "no"),
    ],
)
def test_inputs_that_differ_anywhere_are_audited(x0, x1):
    assert audit(lambda x, rng: rng.random(), inputs=(x0, x1)).verdict is not Verdict.REFUTED


def test_sys_exit_is_an_error_of_the_mechanism_and_no_end_of_the_audit():
    for code, words in ((0, r"sys.exit\(0\)"), (None, r"sys.exit\(\)"), ("done", r"sys.exit\('done'\)")):
        with pytest.raises(RuntimeError, match=f"the mechanism called {words}") as caught:
            audit(lambda x, rng, code=code: sys.exit(code))
        assert caught.value.__notes__ == ["raised by the mechanism in the first calls on input 0 (0.0), trial 0"]


def test_a_mechanism_for_arrays_that_gets_a_plain_number_is_reported_of_batched():
    for broken in (lambda x, rng: x + rng.normal(size=x.shape), lambda x, rng: len(x)):
        with pytest.raises((AttributeError, TypeError)) as caught:
            audit(broken)
        assert len(caught.value.__notes__) == 2
        assert "needs batched=True (on the command line --batched)" in caught.value.__notes__[1]
        with pytest.raises((AttributeError, TypeError)) as caught:
            audit(lambda x, rng: None.shape, batched=True)
        assert len(caught.value.__notes__) == 1


def test_whole_numbers_that_no_float_holds_are_refused_where_floats_are_needed():
    odd = 2**60 + 1
    for mechanism in (
        lambda x, rng: int(rng.integers(0, 2**40)) * 2**20 + odd,
        lambda x, rng: [int(rng.integers(0, 2**62)), odd],
        lambda x, rng: odd if rng.random() < 0.5 else 0.5,
        lambda x, rng: [odd, 0.5],
    ):
        with pytest.raises(
            ValueError, match=r"must be numbers that float64 holds exactly \(whole numbers up to 2\^53\)"
        ):
            audit(mechanism)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, None])
def test_missing_and_infinite_outputs_are_values_that_an_event_can_hold(odd):
    # One answer in twenty is missing, on the second input only; an answer of rng.laplace() has epsilon 1.
    def mechanism(x, rng):
        noisy = float(correct(x, rng))
        return odd if x and rng.random() < 0.05 else noisy

    finding = audit(mechanism, trials=4000)
    assert finding.verdict is Verdict.REFUTED
    assert finding.measurement.false_positives < 40


def test_state_that_is_kept_between_calls_is_refused():
    calls = []

    def every_other(x, rng):
        calls.append(x)
        return x if len(calls) % 2 else correct(x, rng)

    shared = np.random.default_rng(0)
    for mechanism in (every_other, lambda x, rng: x + shared.laplace(size=np.shape(x))):
        for batched in (False, True):
            with pytest.raises(ValueError, match="the same calls with the same generator returned other outputs"):
                audit(mechanism, batched=batched)


def test_a_shape_that_changes_on_the_way_is_refused():
    calls = []

    def growing(x, rng):
        calls.append(x)
        # Guards: three large and sixteen small calls on each input.
        return np.zeros((len(x), 1 + (len(calls) > 38)))

    with pytest.raises(ValueError, match=r"must be numbers of shape \(1,\), got float64 of \(2,\) in the pilot on inp"):
        audit(growing, batched=True)


def test_what_the_mechanism_raises_passes_with_a_note():
    calls = []

    def failing(x, rng):
        calls.append(x)
        # Guards: fifteen calls twice on each input.
        if len(calls) == 68:
            raise KeyError("budget")
        return x

    with pytest.raises(KeyError, match="budget") as caught:
        audit(failing)
    assert caught.value.__notes__ == ["raised by the mechanism in the pilot on input 0 (0.0), trial 7"]
    with pytest.raises(ZeroDivisionError) as caught:
        audit(lambda x, rng: 1 // 0, batched=True)
    assert caught.value.__notes__ == ["raised by the mechanism in the first calls on input 0 (0.0), trials 0 to 255"]


@pytest.mark.parametrize("x", [np.zeros(2), 0.0])
def test_an_input_cannot_be_written_into(x):
    def careless(x, rng):
        x += 1
        return x

    with pytest.raises(ValueError, match="read-only"):
        audit(careless, inputs=(x, x + 1), batched=True)
    if isinstance(x, np.ndarray):
        with pytest.raises(ValueError, match="read-only"):
            audit(careless, inputs=(x, x + 1))


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (lambda outputs: outputs[:1], r"one number per output, shape \(40,\), got shape \(1,\)"),
        (lambda outputs: outputs * np.nan, "score must return finite numbers, got 40 of 40 NaN or infinite"),
        (lambda outputs: outputs - outputs.mean(), "depend on each output alone, but 40 outputs got other scores"),
        (lambda outputs: np.full(len(outputs), 2**60 + 1), "score must be numbers that float64 holds exactly"),
    ],
)
def test_a_score_gives_one_finite_number_for_each_output_by_itself(score, words):
    with pytest.raises(ValueError, match=words):
        audit(correct, score=score)


def test_strings_of_many_values_are_audited_by_a_score():
    scored = audit(lambda x, rng: str(rng.random() + x), score=lambda outputs: outputs.astype(float))
    assert scored.verdict is Verdict.REFUTED


def test_huge_tiny_and_constant_outputs_give_finite_numbers():
    for mechanism in (
        lambda x, rng: 1e308 * (rng.random() - 0.5),
        lambda x, rng: [1e308 * rng.random(), -1e308 * rng.random()],
        lambda x, rng: 5e-324 * x,
        lambda x, rng: 0,
        lambda x, rng: rng.integers(0, 2**50, dtype=np.uint64) << np.uint64(13),
    ):
        for trials in (2, 3, 200):
            measured = audit(mechanism, trials=trials).measurement
            assert math.isfinite(measured.epsilon_low)
            assert 0 <= measured.epsilon_low <= measured.ceiling
