"""Reports, shuffled reports and masked words: planted bugs of three families are found, correct versions pass."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from fedassay.checks.claim_checks import hook_runs
from fedassay.defenses.local.categories.ldp_grr import LDPGRR
from fedassay.defenses.local.defense import LocalProtection
from fedassay.defenses.local.numbers.ldp_duchi import LDPDuchi
from fedassay.defenses.local.numbers.ldp_laplace import LDPLaplace
from fedassay.defenses.local.numbers.ldp_piecewise import LDPPiecewise
from fedassay.defenses.secure.distributed_gaussian import DistributedGaussian, DistributedGaussianProtection
from fedassay.defenses.secure.skellam import Skellam
from fedassay.defenses.shuffling.budgeted import BudgetedReports
from fedassay.defenses.shuffling.cldp_sgd import CLDPSGD
from fedassay.defenses.shuffling.unis import UniS
from fedassay.fl.message import Message
from fedassay.fl.sampling import FixedSize, Poisson
from fedassay.fl.streams import uniform
from open_defenses import WithoutLaw, failed
from toy_federation import toy_plan, toy_task

SIZES, ROUNDS = (4, 9, 6, 5, 5, 5), 5


@pytest.fixture(scope="module")
def task():
    return toy_task(SIZES, side=4, inert=1)


@pytest.fixture(scope="module")
def checked(task):
    """(defense, class of its protection) -> the names of failed checks and the results of all claims."""

    def check(part, kind=None, *, law=True, **changes):
        plan = toy_plan(task, rounds=ROUNDS, **changes)
        prepared = part.prepare(plan)
        kind = kind or type(prepared.protection)
        if not law:
            kind = type(f"{kind.__name__}WithoutLaw", (kind,), {"law": lambda self, observer, plan, client: None})
        protection = kind(**vars(prepared.protection))
        found = [one for claim in prepared.claims for one in hook_runs(task, plan, protection, claim).checks()]
        return failed(found), found

    return check


DUCHI = LDPDuchi(epsilon=4.0, coordinates=8)


class WholeBudgetPerNumber(LocalProtection):
    """Each number gets the budget of the whole report, as if it were the only one."""

    def report(self, updates, context, state, rng):
        number = DUCHI.number(4.0 / ROUNDS)
        return updates.with_values(replace(self.release, number=number).sample(updates.values, rng))


@dataclass(frozen=True, kw_only=True)
class OneBit(WithoutLaw, LocalProtection):
    """Randomised response of each number's sign: 52 numbers in 5 rounds spend 2.6 of 4."""

    def flips(self, shape, context, rng):
        return uniform(rng, shape)

    def report(self, updates, context, state, rng):
        signs = torch.where(updates.values >= 0, 1.0, -1.0)
        flipped = self.flips(tuple(updates.values.shape), context, rng) < 1 / (1 + np.exp(0.01))
        return updates.with_values(torch.where(flipped, -signs, signs))


class OneCoinPerReport(OneBit):
    def flips(self, shape, context, rng):
        return uniform(rng, (*shape[:2], 1)).expand(shape)


class OneCoinForAllClients(OneBit):
    def flips(self, shape, context, rng):
        return uniform(rng, (shape[0], 1, shape[2])).expand(shape)


class NoClamp(WithoutLaw, LocalProtection):
    """Laplace noise on numbers that are not clipped to the range."""

    def report(self, updates, context, state, rng):
        noise = torch.from_numpy(rng.laplace(size=tuple(updates.values.shape))).float()
        scale = 2 * self.release.radius * updates.values.shape[-1] * ROUNDS / 4.0
        return updates.with_values(updates.values + scale * noise)


class ShownNow(LocalProtection):
    """A further array of dummy flags shows the sign of the first number, by a coin of too large a budget."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        wrong = uniform(rng, tuple(updates.present.shape)) < 0.05
        flags = (updates.values[..., 0] > 0) ^ wrong
        return replace(sent, side={"dummy": flags & updates.present})


LOCAL = (WholeBudgetPerNumber, OneCoinPerReport, OneCoinForAllClients, NoClamp, ShownNow)


@pytest.mark.simulations
@pytest.mark.parametrize("kind", LOCAL)
def test_a_bug_in_a_local_randomiser_fails_a_check(checked, kind):
    names, found = checked(DUCHI, kind)
    assert names, [one.words for one in found]


class Rotated(BudgetedReports):
    """Rotates the reports by a random number of places."""

    def order(self, reports, context, rng):
        count = reports.present.shape[1]
        shift = rng.integers(count, size=len(reports.present))
        return torch.from_numpy((np.arange(count) + shift[:, None]) % count)

    def channel(self, reports, context, state, rng):
        order = self.order(reports, context, rng)
        runs = torch.arange(len(order)).unsqueeze(1)
        side = {name: array[runs, order] for name, array in reports.side.items()}
        values, present = reports.values[runs, order], reports.present[runs, order]
        return Message(values=values, present=present, senders=None, side=side)


class FixedOrder(Rotated):
    """One secret order for all rounds and runs."""

    def order(self, reports, context, rng):
        order = np.random.default_rng(3).permutation(reports.present.shape[1])
        return torch.from_numpy(np.tile(order, (len(reports.present), 1)))


class WholeRows(Rotated):
    """Shuffles whole reports where every coordinate should be shuffled by itself."""

    def order(self, reports, context, rng):
        return torch.from_numpy(rng.random(reports.present.shape).argsort(1))


class SameOrderEachRound(BudgetedReports):
    def channel(self, reports, context, state, rng):
        return super().channel(reports, context, state, np.random.default_rng(len(reports.present)))


SHUFFLED = (Rotated, FixedOrder, WholeRows, SameOrderEachRound)


@pytest.mark.simulations
@pytest.mark.parametrize("kind", SHUFFLED)
def test_a_shuffler_that_shows_senders_fails_a_check(checked, kind):
    names, found = checked(UniS(), kind)
    assert "order of shuffled reports" in names, [one.words for one in found]


class NoMaskOfItsOwn(DistributedGaussianProtection):
    """What key shares reveal takes the whole mask away, so that the server reads single vectors."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        plain = self.encoded(updates, np.random.default_rng(1))
        recovered = (sent.values - plain) * updates.present.unsqueeze(-1)
        return replace(sent, side={"recovered": recovered})


class OneMaskForAll(DistributedGaussianProtection):
    """All clients add the same mask."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        mask = rng.integers(self.sized.grid.modulus, size=(len(sent.values), 1, sent.values.shape[-1]))
        words = self.encoded(updates, rng) + torch.from_numpy(mask)
        masks = torch.from_numpy(mask) * updates.present.unsqueeze(-1)
        return replace(sent.with_values(self.sized.grid.wrap(words)), side={"recovered": masks})


MASKED = (NoMaskOfItsOwn, OneMaskForAll)


@pytest.mark.simulations
@pytest.mark.parametrize("kind", MASKED)
def test_a_bug_in_a_secure_sum_fails_a_check(checked, kind):
    names, found = checked(DistributedGaussian(epsilon=8.0, dropout=0.0), kind, cohort=Poisson(0.7))
    assert names, [one.words for one in found]


CORRECT = {
    "Duchi": (LDPDuchi(epsilon=4.0), None, {}),
    "Duchi of many numbers": (DUCHI, None, {}),
    "Laplace": (LDPLaplace(epsilon=2.0), None, {}),
    "piecewise": (LDPPiecewise(epsilon=4.0, delta=1e-6), None, {}),
    "levels": (LDPGRR(epsilon=4.0), None, {}),
    "one bit": (DUCHI, OneBit, {}),
    "clipped Laplace, shuffled": (UniS(), None, {}),
    "one bit, shuffled": (CLDPSGD(), None, {"lot": FixedSize(1)}),
    "Gaussian shares": (DistributedGaussian(epsilon=8.0, dropout=0.3), None, {}),
    "Skellam shares": (Skellam(epsilon=8.0), None, {"cohort": Poisson(0.7)}),
}


@pytest.mark.simulations
@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_report_passes_every_check(checked, name):
    part, kind, changes = CORRECT[name]
    names, found = checked(part, kind, **changes)
    assert not names, [one.words for one in found]
    assert any(one.passed for one in found), [one.words for one in found]


@dataclass(frozen=True, kw_only=True)
class NoisedSteps(LocalProtection):
    """Noise is added to samples in local steps, and ``report`` alone would show none."""

    per_sample: bool = True

    def report(self, updates, context, state, rng):
        return updates


def test_reports_that_are_noised_in_local_steps_are_not_looked_at(checked):
    names, found = checked(DUCHI, NoisedSteps)
    assert not names
    assert all(one.passed is None for one in found)
