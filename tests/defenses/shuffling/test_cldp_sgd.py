"""CLDP-SGD: the report's law by enumeration, unbiased, both claims against brute force, what plans it refuses."""

import itertools
import math

import numpy as np
import pytest
import torch
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.observer import AGGREGATE, SHUFFLED, UPLOADS
from fedassay.defenses.accounting.blanket import randomised_response
from fedassay.defenses.accounting.counts import CountPair
from fedassay.defenses.accounting.pld import many_epsilon
from fedassay.defenses.shuffling.cldp_sgd import CLDPSGD, OneBitLaw, record_pair
from fedassay.fl.algorithms import FedAvg, Scaffold
from fedassay.fl.engine import run_federation
from fedassay.fl.laws import Mixing
from fedassay.fl.message import Message
from fedassay.fl.protection import Context
from fedassay.fl.sampling import FixedSize, Full, Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch
from toy_federation import flat_plan


def plan(clients=500, dim=6, rounds=2, size=8, **changes):
    return flat_plan(clients, dim, **({"size": size, "rounds": rounds, "lot": FixedSize(1)} | changes))


def law(epsilon0=1.5):
    return OneBitLaw(radius=0.5, local_epsilon=epsilon0, mixing=Mixing.ROWS)


def all_reports(dim, size):
    return torch.stack([sign * size * row for row in torch.eye(dim) for sign in (1, -1)])


def test_the_law_is_a_distribution_with_the_row_as_its_mean_and_the_budget_as_its_largest_ratio():
    rows = torch.tensor([[0.5, -0.5, 0.2], [-0.5, 0.5, 9.0], [0.0, 0.1, -0.3]])
    reports = all_reports(3, law().size(3))
    masses = torch.stack([law().log_density(reports, law().contribution(row)).exp() for row in rows])
    torch.testing.assert_close(masses.sum(1), torch.ones(3).double())
    torch.testing.assert_close(masses @ reports.double(), rows.clamp(-0.5, 0.5).double(), atol=1e-6, rtol=0)
    assert float((masses[0] / masses[1]).log().abs().max()) == pytest.approx(1.5)


def test_what_is_no_report_has_no_mass():
    size = law().size(2)
    for impossible in ([size, size], [0.0, 0.0], [size / 2, 0.0], [0.0, -1.001 * size]):
        assert law().log_density(torch.tensor(impossible), torch.zeros(2)) == -math.inf
    with pytest.raises(ValueError, match="the coordinates of a report are not independent"):
        law().log_densities(torch.zeros(2), torch.zeros(2))


def test_the_hook_sends_by_the_law_and_the_shuffler_moves_whole_rows():
    """Each of the 6 reports of 40,000 within five standard errors of its mass."""
    prepared = CLDPSGD(local_epsilon=1.5, radius=0.5).prepare(plan())
    protection, row = prepared.protection, torch.tensor([0.5, -0.1, 0.3])
    present = torch.ones(20_000, 2, dtype=torch.bool)
    sent = Message(values=row.expand(20_000, 2, 3), present=present, senders=(0, 1))
    context = Context(plan=plan(dim=3), round=0, replicas=20_000, senders=(0, 1))
    reports = protection.report(sent, context, {}, np.random.default_rng(0))
    assert protection.law(UPLOADS, plan(), 0).mixing is Mixing.NONE
    seen = protection.law(SHUFFLED, plan(), 0)
    assert seen.mixing is Mixing.ROWS
    assert protection.law(AGGREGATE, plan(), 0) is None
    for report in all_reports(3, seen.size(3)):
        share = float(reports.values.flatten(0, 1).eq(report).all(-1).double().mean())
        mass = float(seen.log_density(report, row).exp())
        assert share == pytest.approx(mass, abs=5 * (mass / 40_000) ** 0.5)
    arrived = protection.channel(reports, context, {}, np.random.default_rng(1))
    assert arrived.senders is None
    assert not torch.equal(arrived.values, reports.values)
    torch.testing.assert_close(arrived.values.sum(1), reports.values.sum(1))


def test_a_client_is_hidden_by_the_blanket_and_a_record_by_its_own_kin_too():
    record, client = CLDPSGD(local_epsilon=1.5).prepare(plan()).claims
    assert (record.unit, client.unit) == (Unit.SAMPLE, Unit.CLIENT)
    assert {claim.adjacency for claim in (record, client)} == {Adjacency.REPLACE_ONE}
    assert {claim.observer for claim in (record, client)} == {SHUFFLED}
    whole = randomised_response(epsilon0=1.5, values=2, reports=500)
    assert client.epsilon == pytest.approx(many_epsilon(whole, releases=2, delta=1e-5))
    assert record.parameters["rate"] == 1 / 8
    assert record.epsilon < client.epsilon / 4


@pytest.mark.parametrize("at", [0.0, 0.05, 0.2])
def test_no_four_shuffled_clients_leak_more_of_a_record_than_is_claimed(at):
    """One coordinate: client 0 has two records, +1 and the record in question; the other three are at -1, all bits
    enumerated.
    """
    epsilon0, clients = 1.0, 4
    up = math.exp(epsilon0) / (1 + math.exp(epsilon0))
    laws = []
    for value in (1, -1):
        own = (up + (up if value == 1 else 1 - up)) / 2
        ones = np.zeros(clients + 1)
        for bits in itertools.product((0, 1), repeat=clients):
            chances = [own if bits[0] else 1 - own] + [1 - up if bit else up for bit in bits[1:]]
            ones[sum(bits)] += math.prod(chances)
        laws.append(ones)
    exact = CountPair(*laws).delta(at)
    assert exact <= record_pair(plan(clients, 1, size=2), epsilon0).delta(at)
    assert exact > 0


def test_the_local_budget_costs_the_target_for_a_record():
    prepared = CLDPSGD(epsilon=1.0).prepare(plan(clients=50, rounds=3))
    assert 0.999 < prepared.claims[0].epsilon <= 1.0
    assert prepared.protection.local_epsilon == prepared.claims[0].parameters["local_epsilon"]


def test_clients_that_check_in_by_coins_leak_less_of_it_and_hide_less_of_each_other():
    whole, half = (CLDPSGD(local_epsilon=1.0).prepare(plan(cohort=one)).claims for one in (Full(), Poisson(0.5)))
    fewer = CLDPSGD(local_epsilon=1.0).prepare(plan(250)).claims[1].epsilon
    assert half[1].epsilon < whole[1].epsilon < fewer
    # Half the reports hide it by the root of 1/2, and half the time it is there.
    assert half[1].epsilon == pytest.approx(fewer / 2, rel=0.1)


def test_a_federation_trains_on_the_mean_of_one_number_a_client(toy_task, toy_plan, tape):
    task = toy_task((4,) * 6)
    federation = toy_plan(task, rounds=1, lot=FixedSize(1))
    protection = CLDPSGD(local_epsilon=2.0).prepare(federation).protection
    run_federation(task, federation, protection, Streams(0), batch=Batch(replicas=3), recorders=[tape])
    (event,) = tape.events
    assert event.reports.values.ne(0).sum(-1).eq(1).all()
    assert all(int(lot.sum()) == 3 for lots in event.lots.values() for lot in lots)
    torch.testing.assert_close(event.aggregate, event.reports.values.mean(1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lot": Poisson(0.125)}, r"lot, .* must draw one record, such as FixedSize\(1\)"),
        ({"lot": Full()}, "lot, .* must draw one record"),
        ({"lot": FixedSize(2)}, "lot, .* must draw one record"),
        (
            {"algorithm": FedAvg(learning_rate=0.1, local_steps=2)},
            "algorithm must be FedSGD or FedAvg with one local step",
        ),
        ({"algorithm": Scaffold(learning_rate=0.1, local_steps=1)}, "algorithm must be FedSGD or FedAvg"),
        ({"sizes": (8,)}, "clients must be >= 2"),
        ({"cohort": FixedSize(5)}, "cohort must be Poisson or full"),
    ],
)
def test_plans_that_its_theorem_does_not_cover_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        CLDPSGD().prepare(plan(**changes))


def test_clients_of_one_record_each_use_it_whole():
    record, client = CLDPSGD(local_epsilon=1.0).prepare(plan(size=1, lot=Full())).claims
    assert record.epsilon == pytest.approx(client.epsilon)


@pytest.mark.parametrize("fields", [{"epsilon": 0.0}, {"delta": 0.0}, {"local_epsilon": 0.0}, {"radius": 0.0}])
def test_budgets_that_are_none_are_refused(fields):
    with pytest.raises(ValueError, match="must be"):
        CLDPSGD(**fields)
