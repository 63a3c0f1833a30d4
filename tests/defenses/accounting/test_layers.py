"""Layers: the reference's figures for FedRE, and the joint cost by an independent accountant."""

import math

import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent, SelfComposedDpEvent
from fedassay.audit.claim import Adjacency
from fedassay.audit.curve import epsilon_from_mu, mu_from_epsilon
from fedassay.defenses.accounting.accountant import Method, epsilon_of, gaussian_steps
from fedassay.defenses.accounting.gaussian import Layer, LayeredGaussian, gaussian_noise, joint_noise, published_noise
from hypothesis import given
from hypothesis import strategies as st

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
DELTA = 1e-5


@pytest.mark.parametrize(("adjacency", "worth"), [(ADD, 10.5), (REPLACE, 25.8)])
@pytest.mark.parametrize("rounds", [1, 20])
def test_fedres_equation_nine_at_epsilon_ten_is_worth_what_the_reference_states(adjacency, worth, rounds):
    noise = published_noise(epsilon=10.0, delta=DELTA, rounds=rounds)
    release = LayeredGaussian(layers=(Layer(clip_norm=1.0, noise_std=noise),), adjacency=adjacency, releases=rounds)
    assert release.epsilon(DELTA) == pytest.approx(worth, abs=0.05)


@pytest.mark.parametrize(("epsilon", "holds"), [(1.0, True), (7.96, True), (7.98, False), (10.0, False)])
def test_equation_nine_holds_up_to_an_epsilon_of_7_96_where_inputs_are_one_clip_norm_apart(epsilon, holds):
    noise = published_noise(epsilon=epsilon, delta=DELTA, rounds=3)
    release = LayeredGaussian(layers=(Layer(clip_norm=1.0, noise_std=noise),), adjacency=ADD, releases=3)
    assert (release.epsilon(DELTA) <= epsilon) is holds


@pytest.mark.parametrize(("epsilon", "worth"), [(10.0, 0.759), (50.0, 4.59)])
def test_equation_nine_is_more_than_enough_for_a_mean_of_ten_clipped_gradients_of_samples(epsilon, worth):
    """One sample moves the mean by a tenth of the clip norm, to which the noise is scaled."""
    noise = 10 * published_noise(epsilon=epsilon, delta=DELTA, rounds=3)
    release = LayeredGaussian(layers=(Layer(clip_norm=1.0, noise_std=noise),), adjacency=ADD, releases=3)
    assert release.epsilon(DELTA) == pytest.approx(worth, abs=0.005)


@pytest.mark.parametrize(
    ("adjacency", "layer_delta", "joint", "alone"),
    [(REPLACE, 1e-6, 5.43, 1.67), (REPLACE, 1e-5, 6.05, 1.63), (ADD, 1e-6, 2.45, 0.79), (ADD, 1e-5, 2.72, 0.76)],
)
@pytest.mark.parametrize("rounds", [1, 7])
def test_ten_layers_by_equation_nine_are_jointly_below_their_sum(adjacency, layer_delta, joint, alone, rounds):
    """Epsilon 1 each, noise as FedRE prints it over C: its corollary 1 states 10, whether inputs are C or 2C apart."""
    noise = 0.7 * published_noise(epsilon=1.0, delta=layer_delta, rounds=rounds)
    layers = (Layer(clip_norm=0.7, noise_std=noise),) * 10
    release = LayeredGaussian(layers=layers, adjacency=adjacency, releases=rounds)
    assert release.epsilon(DELTA) == pytest.approx(joint, abs=0.005)
    assert release.layer_epsilon(0, layer_delta) == pytest.approx(alone, abs=0.005)


@pytest.mark.parametrize(("layer_delta", "joint"), [(1e-6, 3.140), (1e-5, 3.619)])
@pytest.mark.parametrize("rounds", [1, 7])
def test_ten_calibrated_layers_keep_their_own_epsilon_and_jointly_less_than_its_sum(layer_delta, joint, rounds):
    noise = 2 * 0.7 * gaussian_noise(epsilon=1.0, delta=layer_delta, releases=rounds)
    layers = (Layer(clip_norm=0.7, noise_std=noise),) * 10
    release = LayeredGaussian(layers=layers, adjacency=REPLACE, releases=rounds)
    assert release.layer_epsilon(3, layer_delta) == pytest.approx(1.0, rel=1e-5)
    exact = epsilon_from_mu(math.sqrt(10) * mu_from_epsilon(1.0, layer_delta), DELTA)
    assert release.epsilon(DELTA) == pytest.approx(exact, rel=1e-5)
    assert exact == pytest.approx(joint, abs=5e-4)


@pytest.mark.simulations
def test_layers_of_their_own_clip_and_noise_agree_with_the_librarys_composition():
    layers = (
        Layer(clip_norm=1.0, noise_std=4.0),
        Layer(clip_norm=0.5, noise_std=3.0),
        Layer(clip_norm=2.0, noise_std=9),
    )
    release = LayeredGaussian(layers=layers, adjacency=REPLACE, releases=5)
    event = ComposedDpEvent([GaussianDpEvent(layer.noise_std / (2 * layer.clip_norm)) for layer in layers])
    library = epsilon_of(SelfComposedDpEvent(event, 5), delta=DELTA, adjacency=REPLACE)
    assert release.epsilon(DELTA) == pytest.approx(library, rel=1e-3)
    assert release.curve().mu == release.mu


@given(st.lists(st.floats(0.1, 20), min_size=1, max_size=6))
def test_the_joint_cost_lies_between_the_worst_layer_and_the_sum(noises):
    release = LayeredGaussian(layers=tuple(Layer(clip_norm=1.0, noise_std=z) for z in noises), adjacency=ADD)
    each = [release.layer_mu(index) for index in range(len(noises))]
    assert max(each) * (1 - 1e-12) <= release.mu <= sum(each) * (1 + 1e-12)


def test_two_queries_on_one_lot_are_one_with_less_noise():
    assert joint_noise(1.1, 1.1) == pytest.approx(1.1 / math.sqrt(2))
    assert joint_noise(3.0, 4.0) == pytest.approx(12 / 5)
    event = gaussian_steps(sigma=joint_noise(1.1, 1.1), rate=0.013, steps=1000)
    assert epsilon_of(event, delta=DELTA, adjacency=ADD, method=Method.RDP) == pytest.approx(5.07, abs=0.005)


def test_a_single_layer_is_the_analytic_gaussian():
    release = LayeredGaussian(layers=(Layer(clip_norm=1.0, noise_std=2.0),), adjacency=ADD)
    assert release.epsilon(DELTA) == epsilon_from_mu(0.5, DELTA) == pytest.approx(1.993091, abs=5e-7)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: LayeredGaussian(layers=(), adjacency=ADD), "layers must hold at least one layer"),
        (lambda: Layer(clip_norm=0.0, noise_std=1.0), "clip_norm must be"),
        (lambda: Layer(clip_norm=1.0, noise_std=0.0), "noise_std must be"),
        (
            lambda: LayeredGaussian(layers=(Layer(clip_norm=1, noise_std=1),), adjacency=ADD, releases=0),
            "releases must",
        ),
        (lambda: joint_noise(1.0, 0.0), "multiplier must be"),
        (lambda: published_noise(epsilon=1.0, delta=DELTA, rounds=0), "rounds must be a whole number >= 1, got 0"),
    ],
)
def test_impossible_targets_are_refused_by_name(build, message):
    with pytest.raises(ValueError, match=message):
        build()
