"""Cohorts in blocks: equal aggregates for every size, and no matrix of all reports unless something needs it."""

import math
from dataclasses import replace

import pytest
import torch
from fedassay.audit.claim import Unit
from fedassay.audit.observer import AGGREGATE, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.client_level.user_level import UserLevelProtection
from fedassay.defenses.controls.noise import ControlLostShares
from fedassay.defenses.layers.scored_layers import LayeredProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.defenses.secure.binomial import Binomial
from fedassay.defenses.secure.distributed_discrete_gaussian import DistributedDiscreteGaussian
from fedassay.defenses.secure.distributed_gaussian import DistributedGaussian
from fedassay.defenses.secure.poisson_binomial import PoissonBinomial
from fedassay.defenses.secure.secure_sum import SERVER
from fedassay.defenses.secure.skellam import Skellam, SkellamProtection
from fedassay.defenses.shuffling.budgeted import BudgetedReports
from fedassay.defenses.shuffling.cldp_sgd import CLDPSGDProtection
from fedassay.defenses.shuffling.flame import FLAMEProtection
from fedassay.defenses.shuffling.s_apes import SAPESProtection
from fedassay.defenses.without_dp.gradient_pruning import GradientPruningProtection
from fedassay.defenses.without_dp.plain_noise import PlainNoiseProtection
from fedassay.defenses.without_dp.sign import SignProtection
from fedassay.fl import engine, rounds
from fedassay.fl.algorithms import Scaffold
from fedassay.fl.canary import Canary
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import LotRecorder, NumbersRecorder, TrafficRecorder, UtilityRecorder, ViewRecorder
from fedassay.fl.rounds import sums_reports
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch
from torch.utils._python_dispatch import TorchDispatchMode

SIZES = tuple(2 + number % 3 for number in range(40))
BUDGETS = tuple(4.0 + number % 5 for number in range(len(SIZES)))
PROTECTIONS = {
    "none": Protection(),
    "dp_fedavg": DPFedAvgProtection(clip_norm=0.5, noise_multiplier=0.8),
    "ldp_gaussian": LDPGaussianProtection(clip_norm=0.5, noise_std=0.3),
    "plain_noise": PlainNoiseProtection(noise_std=0.3, clip_norm=0.5),
    "gradient_pruning": GradientPruningProtection(pruned=0.4),
    "sign": SignProtection(step=0.01),
    "layers": LayeredProtection(clip_norms=(0.5, 0.2), noise_stds=(0.3, 0.1), dropped=0.2),
    "user_level": UserLevelProtection(clip_norm=0.5, noise_multiplier=0.8, clients_per_user=2),
    "dp_sgd": DPSGDProtection(clip_norm=0.5, noise_multiplier=0.8),
    "cldp_sgd": CLDPSGDProtection(radius=0.1, local_epsilon=4.0),
    "budgets": BudgetedReports(radius=0.1, budgets=BUDGETS, shuffled=True),
    "laplace": BudgetedReports(radius=0.1, budgets=BUDGETS, shuffled=True, noise="laplace"),
    "largest": SAPESProtection(radius=0.1, budgets=BUDGETS, kept=200),
    "random": SAPESProtection(radius=0.1, budgets=BUDGETS, kept=200, selection="random"),
}
SECURE = (Binomial, ControlLostShares, DistributedDiscreteGaussian, DistributedGaussian, PoissonBinomial, Skellam)


@pytest.fixture
def task(make_task):
    """Forty clients; a thousand unused weights make the reports larger than the images."""
    return make_task(SIZES, inert=1000)


@pytest.fixture
def in_blocks(monkeypatch):
    """(rows, dim): sets how many reports make a block; None: no limit."""

    def limit(rows, dim):
        most = 10**9 if rows is None else rows * dim
        monkeypatch.setattr(rounds, "_BLOCK", most)
        monkeypatch.setattr(engine, "NUMBERS", most)

    return limit


class Blocks:
    """Keeps the number of rows of each block of reports, and the events."""

    needs_reports = False

    def __init__(self):
        self.rows, self.events = [], []

    def watch_reports(self, reports):
        self.rows.append(reports.values.shape[1])

    def watch(self, event):
        self.events.append(event)


class Largest(TorchDispatchMode):
    """The most numbers of a tensor that an operation returns."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, (tuple, list)) else [found]:
            if isinstance(tensor, torch.Tensor) and not tensor._is_view():
                self.numbers = max(self.numbers, tensor.numel())
        return found


def trained(task, plan, protection, *more):
    """The final model, the events, and the rows of the blocks."""
    seen = Blocks()
    final = run_federation(task, plan, protection, Streams(3), recorders=[seen, *more])
    return final, seen


@pytest.mark.simulations
@pytest.mark.parametrize("name", PROTECTIONS)
@pytest.mark.parametrize("cohort", [None, Poisson(0.5)])
def test_every_size_of_block_gives_the_same_aggregates(task, make_plan, in_blocks, name, cohort):
    """Exactly the same in blocks of any size, and up to the rounding of single precision as in one matrix."""
    plan = make_plan(task, lot=Poisson(0.7), **({} if cohort is None else {"cohort": cohort}))
    dim, found = plan.layout.dim, {}
    for rows in (1, 7, None):
        in_blocks(rows, dim)
        found[rows] = trained(task, plan, PROTECTIONS[name])
    assert max(found[1][1].rows) == 1
    assert max(found[7][1].rows) == 7
    assert max(found[None][1].rows) > 7
    assert torch.equal(found[1][0], found[7][0])
    torch.testing.assert_close(found[1][0], found[None][0], rtol=1e-5, atol=1e-6)
    for one, other in zip(found[7][1].events, found[None][1].events, strict=True):
        torch.testing.assert_close(one.aggregate, other.aggregate, rtol=1e-5, atol=1e-6)
        assert one.reports.senders == other.reports.senders
        assert torch.equal(one.reports.present, other.reports.present)
        assert one.lots.keys() == other.lots.keys()
        assert all(torch.equal(a, b) for k in one.lots for a, b in zip(one.lots[k], other.lots[k], strict=True))


@pytest.mark.parametrize(("part", "cohort"), [*((part, Poisson(0.5)) for part in SECURE), (Skellam, None)])
def test_a_secure_sum_in_blocks_is_that_of_one_matrix_bit_by_bit(task, make_plan, in_blocks, make_tape, part, cohort):
    """Without masks in blocks, one of which may hold all, and with masks where a recorder needs the reports."""
    plan = make_plan(task, **({} if cohort is None else {"cohort": cohort}))
    protection, found = part(bits=28, dropout=0.3, epsilon=20.0).prepare(plan).protection, {}
    for rows in (1, 7, None):
        in_blocks(rows, plan.layout.dim)
        found[rows] = trained(task, plan, protection)
    tape = make_tape()
    whole, seen = trained(task, plan, protection, tape)
    assert all(event.reports.side["recovered"].any() for event in tape.events)
    for rows in (1, 7, None):
        assert rows is None or max(found[rows][1].rows) == rows
        assert torch.equal(found[rows][0], whole)
        for one, other in zip(found[rows][1].events, seen.events, strict=True):
            assert torch.equal(one.received.values, other.received.values)
            assert torch.equal(one.received.side["survivors"], other.received.side["survivors"])
            assert torch.equal(one.reports.present, other.reports.present)
            assert not torch.equal(one.reports.present, one.cohort)


def test_a_round_to_which_no_client_came_adds_nothing_up(task, make_plan):
    plan = make_plan(task, rounds=2)
    protection = Skellam(bits=28).prepare(plan).protection
    _, seen = trained(task, replace(plan, cohort=Poisson(1e-12)), protection)
    assert len(seen.events) == 2
    assert not any(event.received.present.any() or event.aggregate.any() for event in seen.events)


def test_bytes_of_a_secure_sum_are_counted_in_blocks(task, make_plan, in_blocks, make_tape):
    plan, found = make_plan(task), []
    protection = Skellam(bits=28, dropout=0.3).prepare(plan).protection
    in_blocks(7, plan.layout.dim)
    for recorders in ((), (make_tape(),)):
        found.append(TrafficRecorder())
        trained(task, plan, protection, found[-1], *recorders)
    assert found[0] == found[1]
    assert found[0].up == found[0].reports * math.ceil(plan.layout.dim * 28 / 8)


def test_reports_are_summed_with_the_clients_weights_in_double_precision(task, make_plan, in_blocks, make_tape):
    """The mean of one matrix, in double precision by hand."""
    plan, tape = make_plan(task, rounds=1), make_tape()
    run_federation(task, plan, Protection(), Streams(3), recorders=[tape])
    in_blocks(7, plan.layout.dim)
    _, seen = trained(task, plan, Protection())
    weights = torch.tensor(task.sizes, dtype=torch.float64)
    exact = (tape.events[0].reports.values[0].double() * weights.unsqueeze(1)).sum(0) / weights.sum()
    assert torch.equal(seen.events[0].aggregate[0], exact.float())


def test_what_clients_keep_passes_through_blocks(task, make_plan, in_blocks):
    plan = make_plan(task, rounds=4, cohort=Poisson(0.6), algorithm=Scaffold(learning_rate=0.3, local_steps=2))
    found = []
    for rows in (3, None):
        in_blocks(rows, plan.layout.dim)
        found.append(trained(task, plan, Protection())[0])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)


def test_canaries_are_in_the_sum(task, make_plan, in_blocks):
    """A canary client, whose row comes last; without it the model is another one."""
    plan, row = make_plan(task, rounds=2), torch.linspace(-3, 3, task.network.layout.dim)
    finals = {}
    for rows in (7, None):
        in_blocks(rows, plan.layout.dim)
        for arm in (0, 1):
            canary = Canary(unit=Unit.CLIENT, present=row)
            finals[rows, arm] = run_federation(
                task, plan, PROTECTIONS["dp_fedavg"], Streams(3), batch=Batch(arm=arm), canary=canary
            )
    for arm in (0, 1):
        torch.testing.assert_close(finals[7, arm], finals[None, arm], rtol=1e-5, atol=1e-6)
    assert float((finals[7, 0] - finals[7, 1]).abs().max()) > 1e-3


@pytest.mark.parametrize("name", ["none", "dp_fedavg", "ldp_gaussian", "cldp_sgd", "budgets", "largest"])
def test_no_tensor_holds_the_reports_of_all_clients(task, make_plan, in_blocks, name):
    plan = make_plan(task, rounds=2)
    dim, most = plan.layout.dim, {}
    for rows in (7, None):
        in_blocks(rows, dim)
        with Largest() as largest:
            trained(task, plan, PROTECTIONS[name])
        most[rows] = largest.numbers
    assert most[None] >= 40 * dim
    assert most[7] <= 7 * dim


def test_no_tensor_holds_the_words_of_all_clients_of_a_secure_sum(task, make_plan, in_blocks):
    plan = make_plan(task, rounds=2)
    protection = DistributedDiscreteGaussian(bits=28, epsilon=20.0).prepare(plan).protection
    in_blocks(7, plan.layout.dim)
    with Largest() as largest:
        trained(task, plan, protection)
    assert largest.numbers <= 7 * plan.layout.dim


def test_recorders_of_a_training_and_of_sums_need_no_reports(task, make_plan, in_blocks):
    """All of them together record in blocks what they record of one matrix."""
    plan, found = make_plan(task), {}
    for rows in (7, None):
        in_blocks(rows, plan.layout.dim)
        traffic, utility = TrafficRecorder(), UtilityRecorder(task=task)
        numbers, lots = NumbersRecorder(protection=Protection(), plan=plan), LotRecorder(client=5)
        views = [ViewRecorder(observer=observer) for observer in (AGGREGATE, GLOBAL_MODELS)]
        _, seen = trained(task, plan, Protection(), traffic, utility, numbers, lots, *views)
        assert max(seen.rows) == (rows or 40)
        found[rows] = traffic, len(utility.rows), len(lots.lots)
    assert found[7] == found[None]


@pytest.mark.parametrize("observer", [UPLOADS, SHUFFLED, SERVER, None])
def test_recorded_reports_are_one_matrix(task, make_plan, in_blocks, make_tape, observer):
    """Also for a recorder that states nothing of what it needs."""
    plan, recorder = make_plan(task, rounds=1), make_tape() if observer is None else ViewRecorder(observer=observer)
    in_blocks(7, plan.layout.dim)
    final, seen = trained(task, plan, PROTECTIONS["ldp_gaussian"], recorder)
    assert seen.rows == [40]
    if observer is not SERVER:
        (event,) = recorder.events if observer is None else recorder.view(plan, final).rounds
        assert event.reports.values.shape == (1, 40, plan.layout.dim)


def test_replicas_stay_one_matrix(task, make_plan, in_blocks):
    """The draws of one replica come before those of the next: in blocks of clients the noise would be another one."""
    plan, seen = make_plan(task, rounds=1), Blocks()
    in_blocks(7, plan.layout.dim)
    run_federation(task, plan, Protection(), Streams(3), batch=Batch(replicas=2), recorders=[seen])
    assert seen.rows == [40]


class OwnReport(DPFedAvgProtection):
    """Overrides a hook and states nothing: the median of norms needs all reports."""

    def report(self, updates, context, state, rng):
        middle = updates.values.norm(dim=-1, keepdim=True).median()
        return updates.with_values(updates.values / middle)


class OwnQuery(Protection):
    def query(self, received, context, state, rng):
        return {"rows": received.values.shape[1]}


class OwnModel(Protection):
    def broadcast(self, model, context, state, rng):
        return model.clamp(-1, 1)


class Stated(OwnReport):
    sums = "sum"


def test_a_defense_with_hooks_of_its_own_gets_all_reports_unless_it_states_that_it_needs_a_sum():
    assert not sums_reports(OwnReport(clip_norm=0.5, noise_multiplier=0.8))
    assert sums_reports(Stated(clip_norm=0.5, noise_multiplier=0.8))
    assert not sums_reports(OwnQuery())
    assert sums_reports(OwnModel())
    assert all(map(sums_reports, PROTECTIONS.values()))


@pytest.mark.parametrize("hook", ["report", "channel", "aggregate", "query", "local_query"])
def test_a_hook_that_is_set_on_the_object_gets_all_reports_too(hook):
    protection = Protection()
    setattr(protection, hook, lambda *given: given)
    assert not sums_reports(protection)
    protection.sums = "sum"
    assert sums_reports(protection)


def test_an_unknown_sum_is_refused_in_small_cohorts_too(task, make_plan):
    class Average(Protection):
        sums = "average"

    with pytest.raises(ValueError, match=r"Average\.sums must be one of \('mean', .*got 'average'"):
        run_federation(task, make_plan(task), Average(), Streams(0))


class OwnShuffler(CLDPSGDProtection):
    """A shuffler that adds reports of its own."""

    def channel(self, reports, context, state, rng):
        return reports.with_values(reports.values + 1)


class OwnReports(SkellamProtection):
    """States a sum again, with reports that the inherited sum in blocks does not have."""

    sums = "sum"

    def report(self, updates, context, state, rng):
        return super().report(updates.with_values(2 * updates.values), context, state, rng)


def test_a_shuffler_or_secure_sum_whose_hooks_are_overridden_gets_all_reports(task, make_plan):
    assert not sums_reports(OwnShuffler(radius=1.0, local_epsilon=1.0))
    # A shuffler that adds dummies does more than to change an order.
    assert not sums_reports(FLAMEProtection(radius=1.0, local_epsilon=1.0, rate=0.5))
    plain = Skellam(bits=28).prepare(make_plan(task)).protection
    assert sums_reports(plain)
    assert not sums_reports(OwnReports(**vars(plain)))


class RoundedWords(SkellamProtection):
    """Adds no noise and rounds to the nearest word, so that what arrives depends on nothing that is drawn."""

    def word(self, vectors, invited, rng):
        return (vectors / self.sized.grid.step).round().long()


class ClampedWords(RoundedWords):
    """Sends masked words of a few bits: the masks no longer cancel."""

    def _sent(self, updates, survived, words):
        return super()._sent(updates, survived, words.clamp(-5, 5))


class CohortInWords(RoundedWords):
    """Adds the number of clients to each word, and takes no part of a cohort."""

    def encoded(self, updates, rng):
        return super().encoded(updates, rng) + updates.present.shape[1]


class UnwrappedSum(RoundedWords):
    """Adds up as many masks as there are clients, without a modulus."""

    def summed(self, total, survived):
        return super().summed(total, survived).with_values(total.unsqueeze(1))


@pytest.mark.parametrize("kind", [RoundedWords, ClampedWords, CohortInWords, UnwrappedSum])
def test_a_single_run_of_a_changed_secure_sum_is_that_of_a_batch(task, make_plan, in_blocks, make_tape, kind):
    """With all reports recorded the same arrives bit by bit; in a batch too, where masks cancel."""
    plan = make_plan(task, rounds=1)
    protection = kind(**vars(Skellam(bits=28, dropout=0.0).prepare(plan).protection))
    in_blocks(7, plan.layout.dim)
    _, alone = trained(task, plan, protection)
    recorded, batch = make_tape(), Blocks()
    trained(task, plan, protection, recorded)
    run_federation(task, plan, protection, Streams(3), batch=Batch(replicas=2), recorders=[batch])
    (single,), (matrix,), (both,) = alone.events, recorded.events, batch.events
    assert torch.equal(single.received.values, matrix.received.values)
    if kind in (RoundedWords, CohortInWords):
        assert torch.equal(single.received.values.expand_as(both.received.values), both.received.values)
        assert single.received.values.any()


def test_a_method_that_hooks_call_counts_as_a_hook_unless_the_class_states_its_sum_again(task, make_plan):
    plain = vars(Skellam(bits=28).prepare(make_plan(task)).protection)

    class StatedAgain(RoundedWords):
        sums = "sum"

    class NewMethod(SkellamProtection):
        def spare(self):
            return 0

    assert not sums_reports(RoundedWords(**plain))
    assert sums_reports(StatedAgain(**plain))
    assert sums_reports(NewMethod(**plain))


def test_a_defense_that_needs_all_reports_gets_them(task, make_plan, in_blocks):
    plan, protection = make_plan(task, rounds=2), OwnReport(clip_norm=0.5, noise_multiplier=0.8)
    found = []
    for rows in (7, None):
        in_blocks(rows, plan.layout.dim)
        final, seen = trained(task, plan, protection)
        assert seen.rows == [40, 40]
        found.append(final)
    assert torch.equal(*found)
