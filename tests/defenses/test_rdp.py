"""RDP filter: costs against dp-accounting, a budget that converts back, an order fixed beforehand."""

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant
from fedassay.defenses.rdp import RDPFilter

DELTA = 1e-5


def renyi_epsilon(sigma, rate, steps, orders=None):
    """Epsilon at delta 1e-5 by dp-accounting's RDP."""
    sampled = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    accountant = RdpAccountant(orders=orders).compose(dp_accounting.SelfComposedDpEvent(sampled, steps))
    return accountant.get_epsilon(DELTA)


@pytest.mark.parametrize(("sigma", "steps", "epsilon"), [(1.1, 1000, 2.250012), (6.0, 5000, 0.602583)])
def test_a_constant_schedule_fits_as_often_as_renyi_accounting_says(sigma, steps, epsilon):
    """The reference figures at rate .013; the order is the accountant's own best one, to a grid step."""
    assert renyi_epsilon(sigma, 0.013, steps) == pytest.approx(epsilon, abs=1e-6)
    fitted = RDPFilter.fitted(epsilon=epsilon, delta=DELTA, sigma=sigma, rate=0.013)
    assert fitted.budget / fitted.cost(sigma, 0.013) == pytest.approx(steps, rel=1e-4)


@pytest.mark.parametrize("order", [2.0, 8.0, 64, 512])
def test_a_cost_is_the_divergence_at_its_order(order):
    """Without sampling it is order / (2 sigma^2), and costs add up to what converts back to epsilon."""
    kept = RDPFilter(order=order, budget=1.0)
    assert kept.cost(3.0, 1.0) == pytest.approx(order / 18, rel=1e-9)
    assert kept.cost(2.0, 0.1) < kept.cost(2.0, 0.2) < kept.cost(1.5, 0.2)


def test_a_mixed_schedule_within_the_budget_keeps_epsilon_and_wastes_some():
    """Noise that shrinks by 3 % a release wants a smaller order at the end than at the beginning."""
    fitted = RDPFilter.fitted(epsilon=2.0, delta=DELTA, sigma=2.0, rate=0.05)
    spent, schedule = 0.0, []
    for sigma in (2.0 * 0.97**step for step in range(10_000)):
        if spent + fitted.cost(sigma, 0.05) > fitted.budget:
            break
        spent += fitted.cost(sigma, 0.05)
        schedule.append(sigma)
    accountant = RdpAccountant()
    for sigma in schedule:
        accountant.compose(dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(sigma)))
    assert 1.2 < accountant.get_epsilon(DELTA) <= 2.0
    assert 10 < len(schedule) < 200


def test_a_bad_budget_is_refused():
    with pytest.raises(ValueError, match="epsilon must be a number > 0, got 0"):
        RDPFilter.fitted(epsilon=0, delta=DELTA, sigma=1.0, rate=0.1)
