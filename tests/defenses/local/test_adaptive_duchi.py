"""Adaptive-Duchi and LDP-Fed: ranges by layer, numbers shuffled apart, and what their papers' claims leave out."""

import itertools
import math

import numpy as np
import pytest
import torch
from fedassay.audit.observer import SHUFFLED, UPLOADS
from fedassay.defenses.accounting.pure import composed_epsilon
from fedassay.defenses.local.numbers.adaptive_duchi import LDPAdaptiveDuchi, shuffled_apart
from fedassay.defenses.local.numbers.ldp_fed import LDPFed
from fedassay.fl.laws import Mixing
from fedassay.fl.message import Message
from fedassay.fl.protection import Context
from scipy import stats


@pytest.fixture(scope="module")
def plan(toy_task, toy_plan):
    """Two rounds, three clients; layers of 27 and 3 coordinates."""
    return toy_plan(toy_task(), rounds=2)


def test_a_layers_range_is_larger_as_the_root_of_its_size_is_smaller(plan):
    law = LDPAdaptiveDuchi(radius=0.6).prepare(plan).protection.law(UPLOADS, plan, 0)
    assert sorted(law.sizes) == [3, 27]
    by_size = {3: 0.6 * math.sqrt(5), 27: 0.6 * math.sqrt(5 / 9)}
    expected = [by_size[size] for size in law.sizes for _ in range(size)]
    np.testing.assert_allclose(law.radii(30), expected)
    assert np.linalg.norm(law.radii(30)) == pytest.approx(0.6 * math.sqrt(30))
    np.testing.assert_allclose(law.contribution(torch.full((30,), 9.0)), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="vector must have at most 30 coordinates"):
        law.radii(31)


def test_a_report_holds_its_layers_bound(plan):
    """One coordinate at epsilon 2 a round: 30 times its range times coth(1)."""
    protection = LDPAdaptiveDuchi(epsilon=4.0).prepare(plan).protection
    updates = Message(values=torch.zeros(50, 3, 30), present=torch.ones(50, 3, dtype=torch.bool), senders=(0, 1, 2))
    context = Context(plan=plan, round=0, replicas=50, senders=(0, 1, 2))
    seen = protection.report(updates, context, {}, np.random.default_rng(0)).values.reshape(150, 30)
    sizes = 30 * protection.law(UPLOADS, plan, 0).radii(30) / math.tanh(1)
    sent = seen != 0
    assert torch.equal(sent.sum(1), torch.ones(150, dtype=torch.int64))
    np.testing.assert_allclose(seen.abs()[sent], sizes[sent.nonzero()[:, 1]], rtol=1e-6)


def test_every_column_is_shuffled_by_itself_among_those_who_came():
    """Orders of two columns are independent and uniform: chi-square over 36 pairs of orders, wrong once in 10^6."""
    present = torch.tensor([True, False, True, True])
    rows = torch.tensor([[1.0, 10.0], [0.0, 0.0], [2.0, 20.0], [3.0, 30.0]])
    reports = Message(
        values=rows.expand(7200, 4, 2),
        present=present.expand(7200, 4),
        senders=(0, 1, 2, 3),
        side={"query": rows.expand(7200, 4, 2)},
    )
    seen = shuffled_apart(reports, np.random.default_rng(0))
    assert seen.senders is None
    assert not seen.side
    assert torch.equal(seen.present, torch.tensor([True, True, True, False]).expand(7200, 4))
    assert not seen.values[:, 3].any()
    torch.testing.assert_close(seen.values[:, :3].sort(1).values, rows[present].expand(7200, 3, 2))
    _, counts = np.unique(seen.values[:, :3].reshape(7200, 6).numpy(), axis=0, return_counts=True)
    assert len(counts) == 36
    assert stats.chi2.sf(np.sum((counts - 200) ** 2 / 200), 35) > 1e-6


def test_the_server_averages_shuffled_numbers_as_it_would_the_rows(plan):
    protection = LDPAdaptiveDuchi(epsilon=400.0).prepare(plan).protection
    values = torch.randn(20, 3, 30, generator=torch.Generator().manual_seed(0))
    present = torch.ones(20, 3, dtype=torch.bool)
    context = Context(plan=plan, round=0, replicas=20, senders=(0, 1, 2))
    received = protection.channel(
        Message(values=values, present=present, senders=(0, 1, 2)), context, {}, np.random.default_rng(0)
    )
    aggregate = protection.aggregate(received, context, {}, np.random.default_rng(0))
    torch.testing.assert_close(aggregate, values.mean(1))


def test_the_corrected_budget_is_shared_and_the_published_one_is_not(plan):
    (corrected,) = LDPAdaptiveDuchi(epsilon=6.0).prepare(plan).claims
    (published,) = LDPAdaptiveDuchi(epsilon=6.0, variant="as_published").prepare(plan).claims
    assert (corrected.observer, corrected.dp_model, corrected.trust) == (UPLOADS, "local", "nobody")
    assert (corrected.parameters["coordinates"], corrected.parameters["number_epsilon"]) == (1, 3.0)
    assert (published.observer, published.dp_model, published.epsilon) == (SHUFFLED, "shuffle", 6.0)
    assert (published.parameters["coordinates"], published.parameters["number_epsilon"]) == (30, 6.0)


def test_numbers_shuffled_apart_still_add_up_to_more_than_the_published_epsilon(plan):
    """One other client and three columns, counted exactly: all of them up makes epsilon threefold."""
    protection = LDPAdaptiveDuchi(epsilon=1.0, variant="as_published").prepare(plan).protection
    law = protection.law(SHUFFLED, plan, 0)
    assert (law.mixing, law.coordinates) == (Mixing.COORDINATES, 30)
    absent, present = law.worst_pair(3)
    tops = torch.tensor(law.radii(3)).float() / math.tanh(0.5)
    release = tops * torch.tensor(list(itertools.product((-1.0, 1.0), repeat=3)))
    up, down = (law.log_densities(release, row).exp()[-1, 0] for row in (present, absent))
    assert float(law.log_densities(release, present).sum(-1).exp().sum()) == pytest.approx(1)
    # The other holds the absent row: both up with the member's chance times his own, or twice his own.
    per_column = math.log(up * down) - math.log(down * down)
    assert 3 * per_column == pytest.approx(3.0)
    assert protection.law(UPLOADS, plan, 0).mixing is Mixing.NONE


def test_condensed_alpha_read_as_epsilon_is_worth_as_many_times_more_as_there_are_steps(plan):
    for variant, spent in (("corrected", 3.0), ("as_published", 30.0)):
        defense = LDPFed(epsilon=3.0, steps=10, variant=variant)
        (claim,) = defense.prepare(plan).claims
        law = defense.release(plan)
        release = torch.full((1, 30), 0.0)
        release[0, 4] = 30 * law.radius
        absent, present = law.worst_pair(30)
        loss = float(law.log_density(release, present) - law.log_density(release, absent))
        assert claim.epsilon == 3.0
        assert 2 * loss == pytest.approx(spent)
        assert claim.parameters["alpha"] == pytest.approx(spent / 2 / 10)


def test_a_condensed_number_by_hand():
    """Alpha 2 ln 2 a step, two steps to each side: every step away halves the chance."""
    number = LDPFed(steps=2).number(2 * 2 * math.log(2))
    masses = np.exp(number.log_density(number.atoms, np.full(5, -1.0)))
    np.testing.assert_allclose(number.atoms, [-1, -0.5, 0, 0.5, 1])
    np.testing.assert_allclose(masses, np.array([16, 8, 4, 2, 1]) / 31)


@pytest.mark.parametrize("part", [LDPAdaptiveDuchi, LDPFed])
def test_a_variant_that_there_is_not_is_refused(part):
    with pytest.raises(ValueError, match="variant must be"):
        part(variant="fixed")


def test_no_steps_are_refused():
    with pytest.raises(ValueError, match="steps must be given"):
        LDPFed(steps=0)


def test_as_published_each_states_what_is_provable_of_it(plan):
    """Two rounds: of one condensed number its ten steps, of thirty numbers each its own, at delta 0; else less."""
    (condensed,) = LDPFed(epsilon=3.0, steps=10, variant="as_published").prepare(plan).claims
    assert condensed.parameters["provable_epsilon"] == pytest.approx(30.0)
    (shuffled,) = LDPAdaptiveDuchi(epsilon=0.1, variant="as_published").prepare(plan).claims
    assert shuffled.parameters["provable_epsilon"] == pytest.approx(2 * 30 * 0.1)
    (less,) = LDPAdaptiveDuchi(epsilon=0.1, delta=1e-5, variant="as_published").prepare(plan).claims
    exact = composed_epsilon(0.1, releases=60, delta=1e-5)
    assert less.parameters["provable_epsilon"] == exact < 4.0
