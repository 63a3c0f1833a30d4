"""FLAME: the epsilon of a report or a dummy by quadrature, both amplifications, padding, the server's mean."""

import math

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import SHUFFLED, UPLOADS
from fedassay.defenses.accounting.blanket import laplace as blanket
from fedassay.defenses.accounting.pld import many_epsilon
from fedassay.defenses.randomisers.numbers.clipped_laplace import ClippedLaplace
from fedassay.defenses.shuffling.flame import FLAME
from fedassay.defenses.shuffling.unis import UniS
from fedassay.fl.message import Message
from fedassay.fl.protection import Context
from toy_federation import flat_plan


def plan(clients=1000, dim=100, rounds=1):
    return flat_plan(clients, dim, rounds=rounds)


@pytest.mark.parametrize("epsilon0", [0.5, 2.0, 5.0])
@pytest.mark.parametrize("rate", [0.05, 0.5, 1.0])
def test_a_report_or_a_dummy_is_ldp_at_the_largest_ratio_of_all_values(epsilon0, rate):
    one, grid = ClippedLaplace(epsilon=epsilon0, radius=1.0), np.linspace(-1, 1, 401)
    values = np.linspace(-1, 1, 41)
    dummy = np.exp(one.log_density(grid, 0.0))
    laws = np.log([rate * np.exp(one.log_density(grid, value)) + (1 - rate) * dummy for value in values])
    pair = blanket(epsilon0=epsilon0, reports=9, clipped=True).drawn(rate)
    assert pair.pure_epsilon == pytest.approx((laws.max(0) - laws.min(0)).max(), rel=1e-9)
    assert pair.similarity == pytest.approx(np.trapezoid(np.exp(laws.min(0)), grid), rel=1e-3)


def test_the_claims_are_those_of_that_randomisers_blanket_over_all_coordinates():
    joint, coordinate = FLAME(local_epsilon=4.0, rate=0.1).prepare(plan(rounds=3)).claims
    assert (joint.unit, joint.adjacency, joint.observer) == (Unit.CLIENT, Adjacency.REPLACE_ONE, SHUFFLED)
    pair = blanket(epsilon0=4.0, reports=1000, clipped=True).drawn(0.1)
    assert joint.epsilon == pytest.approx(many_epsilon(pair, releases=300, delta=1e-5))
    assert (coordinate.unit, coordinate.rounds) == (Unit.COORDINATE, 1)
    assert coordinate.epsilon == pytest.approx(pair.epsilon(1e-8), abs=2e-9)
    # Sampling alone and shuffling alone both leave more.
    assert joint.epsilon < UniS(local_epsilon=4.0).prepare(plan(rounds=3)).claims[0].epsilon / 4


def test_at_rate_one_it_is_the_uniform_shuffle():
    flame, unis = (one.prepare(plan(60, 20)).claims for one in (FLAME(rate=1.0), UniS()))
    assert flame[0].parameters["local_epsilon"] == pytest.approx(unis[0].parameters["local_epsilon"], rel=1e-4)


@pytest.mark.simulations
def test_the_same_target_allows_a_much_larger_local_budget():
    drawn, all_ = (FLAME(epsilon=2.0, rate=rate).prepare(plan(60, 20)).protection.local_epsilon for rate in (0.1, 1.0))
    assert drawn > 2 * all_


def rounds(protection, values, replicas, absent=()):
    clients, dim = len(values), values.shape[1]
    there = torch.ones(replicas, clients, dtype=torch.bool)
    there[:, list(absent)] = False
    sent = Message(
        values=values.expand(replicas, -1, -1).masked_fill(~there.unsqueeze(-1), 0),
        present=there,
        senders=tuple(range(clients)),
    )
    context = Context(plan=plan(clients, dim), round=0, replicas=replicas, senders=sent.senders)
    reports = protection.report(sent, context, {}, np.random.default_rng(0))
    received = protection.channel(reports, context, {}, np.random.default_rng(1))
    return reports, received, protection.aggregate(received, context, {}, np.random.default_rng(2))


def test_only_drawn_coordinates_leave_a_client_and_every_coordinate_arrives_full():
    protection = FLAME(local_epsilon=2.0, rate=0.25).prepare(plan(4, 50)).protection
    reports, received, _ = rounds(protection, torch.zeros(4, 50), 100, absent=(1,))
    drawn = reports.side["drawn"]
    assert not drawn[:, 1].any()
    # 15,000 draws; five standard errors.
    assert float(drawn[:, [0, 2, 3]].double().mean()) == pytest.approx(0.25, abs=5 * (0.1875 / 15_000) ** 0.5)
    assert not reports.values[~drawn].any()
    assert received.present.sum(1).eq(3).all()
    assert received.values[:, :3].ne(0).float().mean() > 0.999
    assert not received.values[:, 3].any()
    assert "drawn" not in received.side
    kept = torch.where(drawn, reports.values, math.inf)
    assert all(np.isin(kept[0][drawn[0]].numpy(), received.values[0].numpy()))


@pytest.mark.simulations
def test_the_law_behind_the_shuffler_is_a_report_or_a_dummy():
    """Mean of the other end's density over the own one's, 20,000 lone rows, five standard errors."""
    protection = FLAME(local_epsilon=3.0, rate=0.3, radius=1.0).prepare(plan(4, 3)).protection
    low, high = protection.law(SHUFFLED, plan(4, 3), 0).worst_pair(3)
    law = protection.law(SHUFFLED, plan(4, 3), 0)
    _, received, _ = rounds(protection, high.unsqueeze(0), 20_000)
    ratio = (law.log_density(received.values[:, 0], low) - law.log_density(received.values[:, 0], high)).exp()
    assert abs(float(ratio.mean()) - 1) < 5 * float(ratio.std()) / 20_000**0.5
    assert protection.law(UPLOADS, plan(4, 3), 0) is None


def test_the_server_finds_the_mean_of_all_though_each_reports_a_share():
    """300 clients at .04, rate .5: unbiased within four standard errors of 2000 coordinates."""
    protection = FLAME(local_epsilon=6.0, rate=0.5).prepare(plan(300, 10)).protection
    _, _, found = rounds(protection, torch.full((300, 2000), 0.04), 1)
    assert float(found.double().mean()) == pytest.approx(0.04, abs=4 * float(found.double().std()) / 2000**0.5)
