"""Look-alikes of defenses of vertical federations: they do what they say, and state no claim."""

import math

import numpy as np
import pytest
import torch
from fedassay.defenses.vertical.without_dp.discrete_gradients import DiscreteGradients
from fedassay.defenses.vertical.without_dp.gradient_compression import GradientCompression
from fedassay.defenses.vertical.without_dp.marvell import Marvell, best_spreads, divergence
from fedassay.defenses.vertical.without_dp.max_norm import MaxNorm
from fedassay.defenses.vertical.without_dp.unprotected import Unprotected
from fedassay.fl.vertical.protection import VerticalProtection
from scipy.optimize import minimize
from toy_vertical import BINARY, LOGISTIC, context_of, steps_of, toy_vertical


def sent(defense, values, seed=0, **facts):
    _, plan = toy_vertical(BINARY)
    protection = defense.prepare(plan).protection
    return protection.gradients(values, 0, context_of(plan, **facts), np.random.default_rng(seed))


@pytest.mark.parametrize(
    "defense", [Unprotected(), MaxNorm(), Marvell(), GradientCompression(kept=0.5), DiscreteGradients(bins=3)]
)
def test_they_state_nothing_and_change_what_is_sent_alone(defense):
    """All but the first leave residuals, targets and embeddings as they are."""
    task, plan = toy_vertical(BINARY)
    prepared = defense.prepare(plan)
    assert (prepared.claims, dict(prepared.laws), dict(prepared.spending)) == ((), {}, {})
    (first, *_), (plain, *_) = (steps_of(task, plan, one) for one in (prepared.protection, VerticalProtection()))
    assert torch.equal(first.gradients[0], plain.gradients[0]) == isinstance(defense, Unprotected)
    assert torch.equal(first.targets, plain.targets)
    assert torch.equal(first.embeddings[0], plain.embeddings[0])


def test_max_norm_evens_out_the_expected_squared_norms_and_keeps_directions():
    """The mean of 20,000 squares, within five standard errors; (1 + s N)^2 has a variance of at most 2 (1 + s^2)^2."""
    rows = torch.tensor([[3.0, 4.0], [0.3, -0.4], [0.0, 0.0]])
    found = sent(MaxNorm(), rows.repeat(20_000, 1, 1))
    squares = found.double().square().sum(-1)
    assert torch.equal(found[:, 0], rows[0].repeat(20_000, 1))
    assert not found[:, 2].any()
    assert abs(float(squares[:, 1].mean()) / 25 - 1) < 5 * math.sqrt(2 / 20_000)
    torch.testing.assert_close(found[:, 1, 0] / found[:, 1, 1], torch.full((20_000,), -0.75))


def test_the_largest_entries_are_sent_as_they_are():
    values = torch.tensor([[[3.0, -1.0], [0.5, -4.0]], [[0.1, 0.2], [-0.3, 0.0]]])
    assert sent(GradientCompression(kept=0.5), values).tolist() == [
        [[3.0, 0.0], [0.0, -4.0]],
        [[0.0, pytest.approx(0.2)], [pytest.approx(-0.3), 0.0]],
    ]
    assert (sent(GradientCompression(kept=0.01), values) != 0).flatten(1).sum(1).tolist() == [1, 1]


def test_discrete_gradients_take_the_ends_of_bins_within_two_deviations():
    """Entries -1 and 1 have mean 0 and deviation 1: with four bins the ends are -2 to 2."""
    values = torch.tensor([[[1.0, -1.0], [-1.0, 1.0]]])
    assert sent(DiscreteGradients(bins=4), values).tolist() == values.tolist()
    assert sent(DiscreteGradients(bins=1), values).abs().unique().tolist() == [2.0]
    many = torch.from_numpy(np.random.default_rng(0).normal(3, 2, (1, 500, 4)).astype(np.float32))
    found = sent(DiscreteGradients(bins=12), many)
    width = 4 * float(many.std(correction=0)) / 12
    assert len(found.unique()) <= 2 * 13
    inside = (many - many.mean()).abs() < 2 * many.std(correction=0)
    assert float((found - many)[inside].abs().max()) <= width / 2 + 1e-5
    assert torch.equal(sent(DiscreteGradients(), torch.ones(1, 3, 2)), torch.ones(1, 3, 2))


PROBLEMS = [
    ((0.02, 0.3), 4, 1.5, 0.25, 6.0),
    ((0.3, 0.02), 4, 1.5, 0.25, 6.0),
    ((0.1, 0.1), 3, 0.7, 0.5, 0.7),
    ((0.0, 0.5), 6, 2.0, 0.1, 1.0),
    ((0.01, 0.4), 2, 0.2, 0.7, 10.0),
    ((0.2, 0.6), 1, 1.0, 0.4, 4.0),
]


@pytest.mark.parametrize(("variances", "dimension", "distance", "share", "power"), PROBLEMS)
def test_marvells_noise_is_as_good_as_a_general_optimiser_finds(variances, dimension, distance, share, power):
    """Against SLSQP over all four variances from twenty starts, with the power and the orders as constraints."""
    low, high = best_spreads(variances=variances, dimension=dimension, distance=distance, share=share, power=power)

    def spent(x):
        return (1 - share) * (x[0] + (dimension - 1) * x[1]) + share * (x[2] + (dimension - 1) * x[3])

    def objective(x):
        u, v = (one + 1e-9 for one in variances)
        first = (x[0] + u + distance) / (x[2] + v) + (x[2] + v + distance) / (x[0] + u)
        rest = (x[1] + u) / (x[3] + v) + (x[3] + v) / (x[1] + u)
        return (first + (dimension - 1) * rest) / 2 - dimension

    found = np.array([low.along, low.across, high.along, high.across])
    assert spent(found) == pytest.approx(power)
    assert (found >= 0).all()
    assert low.along >= low.across
    assert high.along >= high.across
    assert objective(found) == pytest.approx(
        float(
            divergence(
                low.along + variances[0],
                high.along + variances[1],
                low.across + variances[0],
                high.across + variances[1],
                dimension,
                distance,
            )
        ),
        rel=1e-5,
        abs=1e-6,
    )
    rng, best = np.random.default_rng(0), math.inf
    limits = [
        {"type": "eq", "fun": lambda x: spent(x) - power},
        {"type": "ineq", "fun": lambda x: x[0] - x[1]},
        {"type": "ineq", "fun": lambda x: x[2] - x[3]},
    ]
    for _ in range(20):
        start = rng.uniform(0.01, 1, 4)
        done = minimize(
            objective, start * power / spent(start), bounds=[(0, None)] * 4, constraints=limits, method="SLSQP"
        )
        if done.success and abs(spent(done.x) - power) < 1e-6:
            best = min(best, done.fun)
    assert objective(found) <= best * (1 + 1e-4) + 1e-6


def test_marvells_noise_has_the_stated_power_and_lies_along_the_difference():
    """1,500 batches with the same gradients; five standard errors of a chi-square's mean."""
    rows = torch.tensor([[1.0, 0.2, 0.0], [1.0, -0.2, 0.0], [-1.0, 0.0, 0.1], [-1.0, 0.0, -0.1]])
    targets = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    many = rows.repeat(1500, 1, 1)
    noise = sent(Marvell(power=2.0), many, replicas=1500, targets=targets.repeat(1500, 1, 1)) - many
    squared = noise.square().sum(-1).mean()
    assert abs(float(squared) / (2.0 * 4.0) - 1) < 5 * math.sqrt(2 / 6000)
    assert float(noise[..., 0].square().mean()) > 5 * float(noise[..., 1].square().mean())


def test_a_batch_of_one_class_gets_no_noise():
    values = torch.ones(1, 3, 2)
    targets = torch.tensor([[0.0, 1.0]]).repeat(1, 3, 1)
    assert torch.equal(sent(Marvell(), values, targets=targets), values)


def test_marvell_refuses_more_than_two_classes():
    with pytest.raises(ValueError, match="two classes, got classes = 3"):
        Marvell().prepare(toy_vertical(LOGISTIC)[1])
