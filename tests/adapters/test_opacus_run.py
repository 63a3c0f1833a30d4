"""Whole Opacus trainings on neighbouring data: what records enter apart from their rows, and what else is trained."""

import copy
import io
import math
import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

pytest.importorskip("opacus")
from fedassay.adapters.opacus import Training
from fedassay.adapters.opacus_run import PrivacyEngine
from fedassay.adapters.replicas import audit_replicas, plan_replicas
from fedassay.checks.training_record import Plant
from fedassay.cli.system_run import judge_watched
from opacus_runs import LOSS, build, built, records, steps, train

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG"),
    pytest.mark.filterwarnings("ignore:Full backward hook"),
    pytest.mark.filterwarnings("ignore:Optimal order"),
    pytest.mark.simulations,
]


def training(build=build, train=train, data=None, **options):
    return Training(build, train, records() if data is None else data, delta=1e-5, **options)


def result(found, name):
    (one,) = [one for one in found.results if one.name == name]
    return one


def train_on_copies(model, optimizer, loader, _):
    for x, y in loader:
        list(steps(model, optimizer, [(torch.cat([x + 0.1 * n for n in range(4)]), y.repeat(4))]))


def train_on_centred_batches(model, optimizer, loader, _):
    for x, y in loader:
        list(steps(model, optimizer, [(x - x.mean(0) if len(x) else x, y)]))


def build_standardised(data):
    x = torch.stack([data[index][0] for index in range(len(data))])
    y = torch.stack([data[index][1] for index in range(len(data))])

    class Standardised(TensorDataset):
        def __getitem__(self, index):
            data[index]  # So that lots are known.
            return super().__getitem__(index)

    return build(Standardised((x - x.mean(0)) / x.std(0), y))


LOSS_OF_EACH = nn.CrossEntropyLoss(reduction="none")


def train_by_class_counts(model, optimizer, loader, _, *, scale=0.1):
    """A small ``scale`` makes gradients short, so that no clip hides their weights."""
    labels = torch.tensor([int(loader.dataset[index][1]) for index in range(len(loader.dataset))])
    weights = scale * len(labels) / torch.bincount(labels, minlength=4)
    for x, y in loader:
        list(steps(model, optimizer, [(x, y)], loss=lambda out, y: (LOSS_OF_EACH(out, y) * weights[y]).mean()))


def of_the_largest_losses(losses, x):
    return losses.topk(max(1, len(losses) // 2)).indices


def by_a_coin(losses, x):
    return torch.rand(len(losses)) < 0.5


def by_its_own_numbers(losses, x):
    return x.mean(1) > 0


def train_on_chosen(model, optimizer, loader, _, *, choice):
    for _ in range(2):
        for x, y in loader:
            with torch.no_grad():
                kept = choice(LOSS_OF_EACH(model(x), y), x)
            list(steps(model, optimizer, [(x[kept], y[kept])]))


@pytest.mark.parametrize("seed", range(3))
def test_a_record_that_lets_another_one_into_the_sum_is_found_although_the_sum_moves_by_less_than_two_norms(seed):
    found = training(train=partial(train_on_chosen, choice=of_the_largest_losses)).watch(seed=seed)
    (failed,) = found.failed
    assert (failed.name, failed.hook) == ("sums on neighbouring data", ("choice of records",))


@pytest.mark.parametrize("choice", [by_a_coin, by_its_own_numbers])
def test_records_that_are_left_out_by_a_coin_or_by_their_own_numbers_accuse_nobody(choice):
    assert training(train=partial(train_on_chosen, choice=choice)).watch().failed == ()


@pytest.mark.parametrize(
    ("build", "train", "words"),
    [
        (build, train_on_copies, "one record has several gradients in a lot"),
        (build, train_on_centred_batches, "changes the gradients of others only in lots that contain it"),
        (build_standardised, train, "the inputs of other records change too"),
        (build, train_by_class_counts, "also in lots that do not contain it, as where weights of the loss"),
    ],
)
def test_a_record_that_enters_more_than_its_own_row_is_found(build, train, words):
    found = training(build, train).watch()
    assert "sums on neighbouring data" in {one.name for one in found.failed}
    assert words in result(found, "sums on neighbouring data").words


def test_weights_by_class_counts_that_the_clip_hides_leave_the_verdict_open():
    found = training(train=partial(train_by_class_counts, scale=1e4)).watch()
    assert (found.failed, "before they are clipped" in found.blind) == ((), True)


def test_records_of_a_data_set_that_is_made_of_the_tensors_are_known_by_their_numbers():
    run = training(lambda data: build(TensorDataset(*data.tensors)))
    found = run.watch()
    assert judge_watched(found).exit_code == 0, found.lines()
    assert result(found, "records once in a lot").passed
    assert result(found, "sums on neighbouring data").passed
    within, out = (run.run(member, plant=Plant()).projections(Plant()) for member in (True, False))
    assert max(within - out) == pytest.approx(1.0, abs=1e-3)


def build_of_slices(data, *, change=lambda x: x / 2, kept=slice(None), order=None, **options):
    x, y = data[:]
    order = range(len(x)) if order is None else order(len(x))
    return build(TensorDataset(change(x)[order][kept], y[order][kept]), **options)


def test_records_of_a_slice_that_each_change_by_themselves_are_known_by_their_places():
    run = training(build_of_slices)
    found = run.watch()
    assert judge_watched(found).exit_code == 0, found.lines()
    assert result(found, "records once in a lot").passed
    assert result(found, "sums on neighbouring data").passed
    within, out = (run.run(member, plant=Plant()).projections(Plant()) for member in (True, False))
    assert max(within - out) == pytest.approx(1.0, abs=1e-3)


def lots_of(**options):
    found = training(partial(build_of_slices, **options)).watch()
    return {one.name for one in found.failed}, result(found, "sizes of lots")


def test_faults_of_a_training_on_slices_are_found():
    assert lots_of(poisson_sampling=False)[0] == {"sizes of lots", "records in common"}
    assert lots_of(change=lambda x: (x - x.mean(0)) / x.std(0))[0] == {"sums on neighbouring data"}


def test_records_of_a_slice_that_are_at_other_places_are_not_known_and_accuse_nobody():
    failed, sizes = lots_of(order=torch.randperm)
    assert (failed, sizes.passed, "Subset(data, kept)" in sizes.witness) == (set(), None, True)
    failed, sizes = lots_of(kept=slice(200))
    assert (failed, sizes.passed) == (set(), None)
    # As they are, they are known by their numbers.
    assert lots_of(change=lambda x: x, kept=slice(200))[1].passed


class OwnDraws(torch.utils.data.Dataset):
    """Draws from a generator that no seed of the audit reaches."""

    def __init__(self):
        self.own, self.held = np.random.default_rng(0), records()

    def __len__(self):
        return len(self.held)

    def __getitem__(self, index):
        x, y = self.held[index]
        return x + 0.1 * torch.from_numpy(self.own.normal(size=20)).float(), y


def build_of_logarithms(data):
    class Log(nn.Module):
        def __init__(self):
            super().__init__()
            self.last = nn.Linear(20, 4)

        def forward(self, x):
            return self.last(torch.log(6 - x))

    return build(data, model=Log())


def train_in_range(model, optimizer, loader, engine):
    for batch in loader:
        assert not (batch[0].abs() > 6).any()
        list(steps(model, optimizer, [batch]))


def train_and_copy(model, optimizer, loader, engine):
    train(model, optimizer, loader, engine)
    torch.save(copy.deepcopy(model)._module, io.BytesIO())
    torch.save(model._module, io.BytesIO())


@pytest.mark.parametrize(
    ("build", "train", "data"),
    [
        (build, train, OwnDraws()),
        (build_of_logarithms, train, None),
        (build, train_in_range, None),
        (build, train_and_copy, None),
    ],
)
def test_trainings_with_draws_ranges_and_copies_of_their_own_are_not_accused(build, train, data):
    assert [one.words for one in training(build, train, data).watch().failed] == []


def clip_at_the_median(model, optimizer, loader, _):
    def change(optimizer, loss, x):
        rows = torch.stack([one.grad_sample.flatten(1).norm(dim=1) for one in optimizer.params]).norm(dim=0)
        if len(rows):
            optimizer.max_grad_norm = float(rows.median())

    list(steps(model, optimizer, loader, before=change))


def noise_by_the_loss(model, optimizer, loader, _):
    def change(optimizer, loss, x):
        optimizer.noise_multiplier = 1 + float(loss.detach())

    list(steps(model, optimizer, loader, before=change))


@pytest.mark.parametrize("train", [clip_at_the_median, noise_by_the_loss])
def test_a_clip_norm_or_noise_that_follows_the_data_is_no_ok(train):
    gate = judge_watched(training(train=train).watch())
    assert gate.exit_code == 11
    assert "the clip norm" in gate.verdict_line or "the noise multiplier" in gate.verdict_line


def train_on_the_hardest(model, optimizer, loader, _):
    for x, y in loader:
        with torch.no_grad():
            hardest = nn.functional.cross_entropy(model._module(x), y, reduction="none").topk(len(y) // 2).indices
        list(steps(model, optimizer, [(x[hardest], y[hardest])]))


def train_on_scaled_batches(model, optimizer, loader, _):
    for x, y in loader:
        list(steps(model, optimizer, [(3 * x / x.std() if len(x) else x, y)]))


def test_rows_that_follow_other_rows_of_their_lot_are_found():
    found = training(train=train_on_scaled_batches).watch()
    assert "sums on neighbouring data" in {one.name for one in found.failed}
    assert judge_watched(training(train=train_on_the_hardest).watch()).exit_code != 0


def train_for_some_time(model, optimizer, loader, _, calls=[]):  # noqa: B006
    calls.append(1)
    for number, *_ in steps(model, optimizer, loader):
        if number == 4 + len(calls) % 3:
            return


def test_a_number_of_steps_that_changes_with_every_run_accuses_nobody_and_is_no_ok():
    found = training(train=train_for_some_time).watch()
    assert [one.words for one in found.failed] == []
    assert judge_watched(found).exit_code == 11


def build_with_dropout(data):
    return build(data, model=nn.Sequential(nn.Linear(20, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 4)))


def train_on_jittered_rows(model, optimizer, loader, _):
    for x, y in loader:
        list(steps(model, optimizer, [(x + 0.1 * torch.randn_like(x), y)]))


@pytest.mark.parametrize(("build", "train"), [(build_with_dropout, train), (build, train_on_jittered_rows)])
def test_draws_for_each_record_are_not_taken_for_its_neighbours(build, train):
    found = training(build, train).watch()
    assert [one.words for one in found.failed] == []
    assert result(found, "sums on neighbouring data").passed


def test_under_add_remove_a_divisor_that_follows_the_records_fails_and_a_constant_one_passes():
    # 240 records in lots of 24: int(239 * 0.1) is 23.
    found = training(adjacency="add_remove").watch()
    assert [one.name for one in found.failed] == ["number of records"]
    assert "the factor of the noised sum is 0.0434783 instead of 0.0416667" in found.failed[0].witness

    def build_constant(data):
        made = build(data)
        made[1].expected_batch_size = 24
        return made

    assert [one.words for one in training(build_constant, adjacency="add_remove").watch().failed] == []
    public, limit = training().watch(), "the sizes of the updates alone would show eps >= "
    assert "the number of records is public (zero-out)" in result(public, "number of records").witness
    assert (limit in public.limit, limit in public.finding(training().claim).line()) == (True, True)


def train_with_small_steps_on_large_records(model, optimizer, loader, _):
    for _, x, *_ in steps(model, optimizer, loader):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 if not len(x) or x.abs().max() < 20 else 0.05


def test_a_step_size_that_large_records_alone_change_is_found():
    assert records().tensors[0].abs().max() < 10
    found = training(train=train_with_small_steps_on_large_records).watch()
    assert [one.name for one in found.failed] == ["state without noise"]
    assert "learning rate" in found.failed[0].words


def train_and_keep_the_best(model, optimizer, loader, _):
    best, kept = -1.0, None
    for _ in range(4):
        list(steps(model, optimizer, loader))
        x, y = loader.dataset.tensors
        with torch.no_grad():
            right = float((model(x).argmax(1) == y).float().mean())
        if right > best:
            best, kept = right, {name: one.clone() for name, one in model.state_dict().items()}
    model.load_state_dict(kept)


def train_until_the_loss_is_small(model, optimizer, loader, _):
    for number, _, _, loss in steps(model, optimizer, loader):
        if number >= 3 and int(1e4 * float(loss.detach())) % 2:
            return


@pytest.mark.parametrize("train", [train_and_keep_the_best, train_until_the_loss_is_small])
def test_what_is_chosen_by_private_data_is_found(train):
    assert [one.name for one in training(train=train).watch().failed] == ["state without noise"]


def train_where_the_loss_is_large(model, optimizer, loader, _):
    """Skips the steps of lots with a small loss."""
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            if float(loss.detach()) > 1.4:
                optimizer.step()


def train_every_second_lot(model, optimizer, loader, _):
    for number, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        if number % 2:
            optimizer.step()


def test_steps_that_are_skipped_by_private_loss_leave_the_verdict_open_and_by_a_public_rule_do_not():
    def state(train, seed):
        found = training(train=train).watch(seed=seed)
        return next(one.passed for one in found.results if one.name == "state without noise")

    assert [state(train_where_the_loss_is_large, seed) for seed in range(4)].count(True) == 0
    assert [state(train_every_second_lot, seed) for seed in range(4)].count(True) == 4


def build_with_a_head(data):
    body = nn.Sequential(nn.Linear(20, 16), nn.ReLU())
    head = nn.Linear(16, 4)
    model, optimizer, loader, engine = build(data, model=body)
    return {"model": model, "optimizer": optimizer, "loader": loader, "engine": engine, "head": head}


def train_a_head(model, optimizer, loader, engine, head):
    other = torch.optim.SGD(head.parameters(), lr=0.5)
    for x, y in loader:
        optimizer.zero_grad()
        found = model(x)
        LOSS(head(found), y).backward()
        optimizer.step()
        other.zero_grad()
        LOSS(head(found.detach()), y).backward()
        other.step()


def test_a_head_that_another_optimizer_trains_on_the_data_is_found_and_one_on_public_data_is_not():
    found = training(build_with_a_head, train_a_head).watch()
    assert "state without noise" in {one.name for one in found.failed}
    assert "Linear 1.weight end with different values" in result(found, "state without noise").witness

    def train_public(model, optimizer, loader, engine, head):
        list(steps(model, optimizer, loader))
        other = torch.optim.SGD(head.parameters(), lr=0.5)
        LOSS(head(torch.ones(3, 16)), torch.tensor([0, 1, 2])).backward()
        other.step()

    assert [one.words for one in training(build_with_a_head, train_public).watch().failed] == []


def train_another_model(model, optimizer, loader, _):
    hidden = nn.Linear(20, 4)
    other = torch.optim.SGD(hidden.parameters(), lr=0.5)
    for _, x, y, _ in steps(model, optimizer, loader):
        other.zero_grad()
        LOSS(hidden(x), y).backward()
        other.step()


def test_tensors_of_an_optimizer_that_build_did_not_return_are_watched():
    found = training(train=train_another_model).watch()
    assert "SGD 1.tensor 0" in result(found, "state without noise").witness


def in_rounds(*, again):
    """Two rounds of training, the second with ``make_private`` called anew."""

    def train_in_rounds(model, optimizer, loader, engine):
        list(steps(model, optimizer, loader))
        plain = model.to_standard_module()
        used = PrivacyEngine() if again else engine
        fresh = torch.optim.SGD(plain.parameters(), lr=0.1)
        batches = torch.utils.data.DataLoader(loader.dataset, batch_size=24)
        setting = {"noise_multiplier": 1.0, "max_grad_norm": 1.0}
        model, optimizer, loader = used.make_private(module=plain, optimizer=fresh, data_loader=batches, **setting)
        list(steps(model, optimizer, loader))

    return train_in_rounds


def test_engines_of_several_rounds_are_composed():
    found = training(train=in_rounds(again=False)).watch()
    assert [one.words for one in found.failed] == []
    assert result(found, "steps accounted").measured == 20
    two = training(train=in_rounds(again=True))
    assert [one.name for one in two.watch().failed] == ["epsilon accounted"]
    assert two.claim.epsilon == pytest.approx(training(train=in_rounds(again=False)).claim.epsilon, rel=1e-3)
    assert [one.words for one in training(train=in_rounds(again=True), epsilon=two.claim.epsilon).watch().failed] == []


def test_models_of_several_engines_are_refused_by_name():
    def train_two(model, optimizer, loader, engine):
        other = nn.Linear(20, 2)
        engine.make_private(
            module=other,
            optimizer=torch.optim.SGD(other.parameters(), lr=0.1),
            data_loader=torch.utils.data.DataLoader(loader.dataset, batch_size=24),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )

    original = PrivacyEngine.make_private
    with pytest.raises(ValueError, match="make_private was called again for other tensors"):
        training(train=train_two).watch()
    assert PrivacyEngine.make_private is original


def test_a_stated_epsilon_below_the_history_fails():
    assert not training(epsilon=50.0).watch().failed
    for stated in (0.5, 0.0):
        found = training(epsilon=stated).watch()
        assert [one.name for one in found.failed] == ["epsilon accounted"]


def test_an_audit_by_replicas_is_refuted_by_a_failed_check():
    run = training(train=train_another_model)
    found = audit_replicas(run, plan=plan_replicas(run, noise_share=0.1))
    assert (found.verdict.value, found.route) == ("REFUTED", "check")
    assert "state without noise" in found.reason


class Masked(Dataset):
    """Draws a mask until it leaves enough of a record, so that another record may take another number of draws."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        x, y = self.data[index]
        while (masked := x * (torch.rand(x.shape) < 0.8)).abs().sum() < 0.6 * x.abs().sum():
            pass
        return masked, y


@pytest.mark.parametrize("seed", range(2))
def test_draws_that_meet_again_within_a_lot_accuse_nobody(seed):
    assert Training(lambda data: build(Masked(data)), train, records(), delta=1e-5).watch(seed).failed == ()


def test_a_stated_epsilon_is_compared_also_of_little_noise_and_of_replaced_records():
    little = Training(built(noise_multiplier=0.01), train, records(), delta=1e-5, epsilon=3.0)
    assert [one.name for one in little.watch(again=False).failed] == ["epsilon accounted"]
    accounted = Training(build, train, records(), delta=1e-5).claim.epsilon
    replaced = Training(build, train, records(), delta=1e-5, epsilon=accounted * 1.01, adjacency="replace_one")
    assert [one.name for one in replaced.watch(again=False).failed] == ["epsilon accounted"]
    false = audit_replicas(Training(build, train, records(), delta=1e-5, epsilon=accounted / 2))
    assert (false.verdict.value, false.claim.epsilon, false.claim.curve) == ("REFUTED", accounted / 2, None)
    for wrong in (math.nan, -1.0, math.inf, "3"):
        with pytest.raises(ValueError, match="epsilon must be a finite number"):
            Training(build, train, records(), delta=1e-5, epsilon=wrong)


def test_lots_of_which_few_were_seen_and_sums_that_are_no_numbers_are_no_ok():
    def thirty_steps_on_one_lot(model, optimizer, loader, engine):
        x, y = next(iter(loader))
        for _ in range(30):
            optimizer.zero_grad()
            LOSS(model(x + 0.01 * torch.randn(x.shape)), y).backward()
            optimizer.step()

    found = Training(build, thirty_steps_on_one_lot, records(), delta=1e-5).watch(again=False)
    assert "the records are known for only 1 of 30 lots" in found.blind
    x, y = records().tensors
    nan = Training(build, train, TensorDataset(x * math.nan, y), delta=1e-5).watch(again=False)
    assert "all sums of the run are NaN or infinite" in nan.blind


def test_a_training_that_ends_the_process_is_no_ok():
    with pytest.raises(RuntimeError, match="ends the process"):
        Training(build, lambda *_: sys.exit(), records(), delta=1e-5).watch()


def test_noise_of_a_seed_of_the_trainings_own_is_no_ok():
    def seeded(model, optimizer, loader, engine):
        torch.manual_seed(0)
        return train(model, optimizer, loader, engine)

    found = Training(build, seeded, records(), delta=1e-5).watch()
    assert (found.failed, "the same in runs with two seeds" in found.unexplained) == ((), True)


def test_what_moves_without_an_explanation_is_no_ok():
    def jitter(model, optimizer, loader, _):
        for _ in steps(model, optimizer, loader):
            with torch.no_grad():
                for one in model.parameters():
                    one.add_(1e-3 * torch.randn_like(one))

    fixed = records()
    found = training(lambda _: build(fixed), jitter).watch()
    gate = judge_watched(found)
    assert gate.exit_code == 11
    assert "state without noise" in gate.verdict_line
