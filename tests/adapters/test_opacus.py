"""Opacus trainings: correct ones are not accused, eight ways of breaking them are found, and wrong use is refused."""

import subprocess
import sys

import pytest
import torch
from fedassay.adapters.many_units import ManyUnits, audit_many_units
from fedassay.adapters.replicas import audit_replicas, plan_replicas
from fedassay.audit.check import NEIGHBOUR
from fedassay.checks.training_record import Plant
from fedassay.fl.streams import seeded
from torch import nn
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

pytest.importorskip("opacus")
from fedassay.adapters.opacus import Training
from fedassay.adapters.opacus_hooks import _content
from opacus_runs import (
    BROKEN,
    CORRECT,
    EPOCHS,
    LOSS,
    RECORDS,
    NoClip,
    build,
    build_ghost_without_clip,
    built,
    network,
    records,
    steps,
    train,
    train_in_parts,
    with_class,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG"),
    pytest.mark.filterwarnings("ignore:Full backward hook"),
    pytest.mark.filterwarnings("ignore:Optimal order"),
]


def training(build=build, train=train, **options):
    return Training(build, train, records(), delta=1e-5, **options)


@pytest.mark.simulations
@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_training_passes_all_checks(name):
    found = training(*CORRECT[name]).watch()
    assert [one.words for one in found.failed] == []
    assert [one.name for one in found.unseen] == []


@pytest.mark.long
@pytest.mark.parametrize("name", CORRECT)
def test_forty_correct_trainings_are_not_accused(name):
    run = training(*CORRECT[name])
    assert [one.words for seed in range(40) for one in run.watch(seed).failed] == []


@pytest.mark.simulations
@pytest.mark.parametrize("name", BROKEN)
def test_each_way_of_breaking_it_is_found_by_one_watched_run(name):
    build, train, check = BROKEN[name]
    assert check in {one.name for one in training(build, train).watch().failed}


def test_a_watched_training_ends_with_the_same_model():
    ends = []

    def keep(model, *rest):
        train(model, *rest)
        ends.append([one.detach().clone() for one in model.parameters()])

    with seeded(3):
        keep(*build(records()))
    training(train=keep).watch(3)
    assert all(torch.equal(one, other) for one, other in zip(*ends[:2], strict=True))


def test_the_claim_is_that_of_the_history():
    run = training()
    assert run.claim.parameters == {"noise_multiplier": 1.0, "sampling_rate": 0.1, "steps": 20}
    assert (run.law.clip_norm, run.law.noise_std, run.law.rate) == (1.0, 1.0, 0.1)
    assert run.replayable
    assert "adversary: a receiver of the model of every step" in run.claim.describe()
    assert "client" not in run.claim.describe()


def test_a_planted_unit_enters_with_one_clip_norm_in_the_steps_that_draw_it():
    run, plant = training(), Plant(tensor="0.bias", weight=10.0)
    within, out = (run.run(member, 5, plant=plant) for member in (True, False))
    drawn = [RECORDS - 1 in release.ids for release in within.releases]
    assert drawn == [RECORDS - 1 in release.ids for release in out.releases]
    assert any(drawn)
    moved = within.projections(plant) - out.projections(plant)
    first = drawn.index(True)
    assert moved[:first] == pytest.approx(0, abs=1e-5)
    assert moved[first] == pytest.approx(1.0, abs=1e-4)


def test_a_planted_unit_that_is_not_clipped_enters_whole():
    build_broken, _, _ = BROKEN["no clip"]
    plant = Plant(weight=10.0)
    run = training(build_broken, train)
    moved = run.run(True, 5, plant=plant).projections(plant) - run.run(False, 5, plant=plant).projections(plant)
    assert moved.max() > 9


class WithoutIndices(IterableDataset):
    def __iter__(self):
        return iter([])


def test_data_without_indices_are_refused():
    with pytest.raises(TypeError, match=r"data must have a length and indices, .*got WithoutIndices"):
        Training(build, train, WithoutIndices(), delta=1e-5)


def test_parts_that_are_missing_are_named():
    with pytest.raises(TypeError, match="build must return what make_private returned"):
        training(lambda data: (network(), data)).watch()
    unaccounted = training(lambda data: {"one": build(data)[0], "two": build(data)[1]}, lambda one, two: None)
    with pytest.raises(TypeError, match="must also return the model whose parameters the optimizer holds"):
        unaccounted.watch()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Training(train, build, records(), delta=1e-5), "but train has the signature .* swapped"),
        (lambda: Training(build, train, records().tensors, delta=1e-5), "a tuple of arrays .* wrap it in a data set"),
        (lambda: Training(build, train, None, delta=1e-5), "got NoneType"),
        (lambda: Training(build, train, (one for one in records()), delta=1e-5), "got generator"),
        (lambda: training(train=lambda model: None).watch(), r"the 4 values that build returns, but <lambda> has"),
        (lambda: training(lambda data: None).watch(), "build must return .* NoneType"),
    ],
)
def test_functions_and_data_of_another_kind_are_refused_before_the_training(make, words):
    # A ValueError ends a command with exit code 2, and a TypeError is what Python raises.
    with pytest.raises(TypeError, match=words) as caught:
        make()
    assert isinstance(caught.value, ValueError)


def test_a_list_of_arrays_is_a_data_set_of_records():
    # As of lists of one shape, and of lengths of their own.
    for held in ([torch.zeros(5, 3), torch.zeros(5, 3)], [torch.zeros(5), torch.zeros(4)]):
        Training(build, train, held, delta=1e-5)


def test_lots_that_were_not_read_from_the_given_data_are_not_compared():
    found = training(lambda data: build(records())).watch()
    assert not found.failed
    reasons = {one.name: one.witness for one in found.unseen}
    assert "DataLoader(Subset(data, kept), ...)" in reasons["sizes of lots"]


@pytest.mark.processes
def test_a_loader_with_workers_is_watched_with_its_lots_and_takes_a_plant():
    for how in (train, train_in_parts):
        run, alone = (Training(built(workers=n), how, records(), delta=1e-5) for n in (1, 0))
        recording = run.run(seed=3)
        assert all(one.ids is not None and len(one.ids) == one.rows for one in recording.releases)
        found = run.watch()
        assert found.failed == ()
        assert "sizes of lots" not in {one.name for one in found.unseen}
        plant = Plant()
        seen = [one.run(True, 3, plant=plant).projections(plant) for one in (run, alone)]
        assert [one.max() > 0.5 for one in seen] == [True, True]
    shuffled = Training(built(workers=1, poisson_sampling=False), train, records(), delta=1e-5).watch()
    assert "sizes of lots" in {one.name for one in shuffled.failed}


def moved_by_ghost_clipping(build_ghost, **options):
    run, plant = training(build_ghost, train), Plant(**options)
    within, out = (run.run(member, 5, plant=plant) for member in (True, False))
    drawn = [RECORDS - 1 in release.ids for release in within.releases]
    assert any(drawn)
    return drawn.index(True), within.projections(plant) - out.projections(plant)


@pytest.mark.simulations
def test_under_ghost_clipping_the_loss_of_a_record_is_stretched_to_the_units_length():
    ghost, _ = CORRECT["ghost clipping"]
    first, moved = moved_by_ghost_clipping(ghost, weight=10.0)
    assert moved[:first] == pytest.approx(0, abs=1e-5)
    assert moved[first] == pytest.approx(1.0, abs=1e-4)
    first, moved = moved_by_ghost_clipping(ghost, weight=0.25)
    assert moved[first] == pytest.approx(0.25, abs=1e-4)
    first, moved = moved_by_ghost_clipping(build_ghost_without_clip, weight=10.0)
    assert moved[first] == pytest.approx(10.0, abs=1e-3)


def test_a_plant_that_ghost_clipping_cannot_take_is_refused():
    run = training(*CORRECT["ghost clipping"])
    with pytest.raises(ValueError, match="the direction of its record's own gradient, in all tensors"):
        run.run(True, plant=Plant(tensor="0.bias"))
    with pytest.raises(ValueError, match="the direction of its record's own gradient, in all tensors"):
        run.run_many_units(ManyUnits(units=5))


@pytest.mark.parametrize("change", [lambda loss: loss / 2, lambda loss: 0.5 * (loss + loss)], ids=("quotient", "sum"))
def test_losses_that_are_computed_from_losses_of_ghost_clipping_are_watched(change):
    def weighted(model, optimizer, loss, loader, engine):
        list(steps(model, optimizer, loader, loss=lambda out, y: change(loss(out, y))))

    found = training(CORRECT["ghost clipping"][0], weighted).watch()
    assert found.failed == ()
    assert "sum of clipped rows" not in {one.name for one in found.unseen}


def test_ghost_clipping_of_losses_of_two_dimensions_is_found():
    """Opacus 1.6 multiplies the factors of all records with the loss of each: docs/findings/opacus_ghost_loss.md."""

    def build_regression(data):
        targets = TensorDataset(data.tensors[0], torch.zeros(RECORDS, 1))
        return build(_Read(data, targets), model=nn.Linear(20, 1), criterion=nn.MSELoss(), grad_sample_mode="ghost")

    assert "sum of clipped rows" in {one.name for one in training(build_regression).watch().failed}


def test_half_precision_is_not_compared_number_by_number():
    def build_half(data):
        halves = TensorDataset(data.tensors[0].bfloat16(), data.tensors[1])
        return build(_Read(data, halves), model=network().bfloat16())

    found = training(build_half).watch()
    assert [one.words for one in found.failed] == []
    assert "sums of bfloat16 are rounded too coarsely" in {one.name: one.witness for one in found.unseen}["noise scale"]


class _Read(Dataset):
    """Reads the logged record, and returns the converted one."""

    def __init__(self, logged, converted):
        self.logged, self.converted = logged, converted

    def __len__(self):
        return len(self.logged)

    def __getitem__(self, index):
        self.logged[index]
        return self.converted[index]


def test_an_exception_in_the_third_step_keeps_what_was_seen():
    def fails(model, optimizer, loader, engine):
        for number, *_ in steps(model, optimizer, loader):
            if number == 2:
                raise RuntimeError("out of memory")

    run = training(train=fails)
    with pytest.raises(RuntimeError, match="out of memory") as raised:
        run.run()
    assert raised.value.__notes__ == ["raised by train after 3 releases, which are kept as Training.interrupted"]
    assert len(run.interrupted.releases) == 3


def test_a_training_that_seeds_cannot_repeat_is_not_replayable():
    source = torch.Generator()
    source.seed()
    assert not training(built(noise_generator=source)).replayable


def test_a_training_that_seeds_itself_is_refused():
    def build_seeded(data):
        torch.manual_seed(0)
        return build(data)

    with pytest.raises(ValueError, match="runs with two seeds have the same noise"):
        _ = training(build_seeded).replayable


def with_optimizer(kind):
    def build_with(data):
        model, optimizer, loader, engine = build(data)
        optimizer.original_optimizer = kind(model.parameters(), lr=0.01)
        return model, optimizer, loader, engine

    return build_with


ADAPTIVE = {
    "clipping": "adaptive",
    "target_unclipped_quantile": 0.5,
    "clipbound_learning_rate": 0.2,
    "min_clipbound": 0.01,
    "max_clipbound": 10.0,
    "unclipped_num_std": 2.0,
}


@pytest.mark.parametrize(
    "build_other",
    [
        built(grad_sample_mode="ew"),
        built(grad_sample_mode="functorch"),
        built(**ADAPTIVE),
        with_optimizer(torch.optim.Adam),
        with_optimizer(torch.optim.AdamW),
    ],
    ids=["rows by ew", "rows by functorch", "adaptive clipping", "Adam", "AdamW"],
)
def test_other_settings_of_opacus_are_watched(build_other):
    assert not training(build_other).watch().failed


@pytest.mark.simulations  # Four seconds: ten laws are composed.
def test_schedules_of_noise_and_clip_are_watched():
    from opacus.schedulers import ExponentialGradClip, ExponentialNoise

    def scheduled(model, optimizer, loader, engine):
        noise, clip = ExponentialNoise(optimizer, gamma=0.9), ExponentialGradClip(optimizer, gamma=0.9)
        for _ in steps(model, optimizer, loader):
            noise.step()
            clip.step()

    run = training(train=scheduled)
    assert not run.watch().failed
    assert (len(run._first.ledger), run.law) == (10, None)
    assert run.claim.mechanism == "composition of an accountant's history"


def test_a_module_with_attributes_of_its_own_can_hold_the_parts():
    parts = dict(zip(("model", "optimizer", "loader", "engine"), build(records()), strict=True))
    assert isinstance(parts["model"], nn.Module)
    named = training(
        lambda data: dict(zip(parts, build(data), strict=True)),
        lambda model, optimizer, loader, engine: train(model, optimizer, loader, engine),
    )
    assert not named.watch().failed


@pytest.mark.parametrize("name", ["plain", "per layer"])
def test_a_correct_step_played_back_has_its_claimed_multiplier(name):
    run = training(*CORRECT[name]).play_back()
    found = run.results()
    assert not found.failed
    assert run.effective_multiplier == pytest.approx(1.0, rel=0.05)
    # Opacus itself sums rows that are no numbers.
    assert [one.name for one in found.unseen] == ["finite for all rows"]


@pytest.mark.parametrize(
    ("name", "multiplier"), [("half of the noise", 0.5), ("no clip", 0.0), ("noise on matrices alone", 0.0)]
)
def test_steps_that_are_broken_are_found_without_training(name, multiplier):
    run = training(*BROKEN[name][:2]).play_back()
    assert [one.name for one in run.results().failed] == ["effective noise multiplier"]
    assert run.effective_multiplier == pytest.approx(multiplier, abs=0.05)


def test_ghost_clipping_cannot_be_played_back():
    with pytest.raises(ValueError, match="none can be played back"):
        training(*CORRECT["ghost clipping"]).play_back()


@pytest.mark.long
def test_replicas_refute_broken_trainings_at_the_first_look_and_not_the_correct_one():
    plan = plan_replicas(training())
    assert 100 < plan.runs < 500
    for name in ("half of the noise", "no clip"):
        found = audit_replicas(training(*BROKEN[name][:2]), plan=plan)
        assert (found.verdict.value, found.route) == ("REFUTED", "curve")
        assert found.measurement.n1 <= plan.runs
    assert audit_replicas(training(), plan=plan).verdict.value == "NOT_REFUTED"


def test_one_run_with_many_units_refutes_a_missing_clip_and_not_the_correct_training():
    # At epsilon 0.5: the 3.6 of the other tests cannot be refuted with so few units.
    many = ManyUnits(units=200)
    assert audit_many_units(training(with_class(NoClip, noise_multiplier=4.0)), many).verdict.value == "REFUTED"
    # One run of so few units finds gross faults only, which is stated as a weak test.
    assert audit_many_units(training(built(noise_multiplier=4.0)), many).verdict.value != "REFUTED"


def train_with_a_leak(model, optimizer, loader, _):
    for _, _, y, _ in steps(model, optimizer, loader):
        with torch.no_grad():
            list(model.parameters())[-1].add_(1e-3 * y.float().mean())


def train_and_average(model, optimizer, loader, engine):
    average = [one.detach().clone() for one in model.parameters()]
    for _ in steps(model, optimizer, loader):
        for one, parameter in zip(average, model.parameters(), strict=True):
            one.mul_(0.9).add_(0.1 * parameter.detach())
    with torch.no_grad():
        for one, parameter in zip(average, model.parameters(), strict=True):
            parameter.copy_(one)


def train_with_clamped_gradients(model, optimizer, *rest):
    def clamp(*_):
        for one in model.parameters():
            one.grad.clamp_(-0.1, 0.1)

    optimizer.original_optimizer.register_step_pre_hook(clamp)
    train(model, optimizer, *rest)


def train_and_read_other_batches(model, optimizer, loader, _):
    others = iter(torch.utils.data.DataLoader(loader.dataset, batch_size=13))
    for x, y in loader:
        optimizer.zero_grad()
        loss = LOSS(model(x), y)
        with torch.no_grad():
            model(next(others)[0])
        loss.backward()
        optimizer.step()


def train_in_mixed_precision(model, optimizer, loader, _):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = LOSS(model(x), y)
        loss.backward()
        optimizer.step()


@pytest.mark.simulations
@pytest.mark.parametrize(
    "method",
    [train_and_average, train_with_clamped_gradients, train_and_read_other_batches, train_in_mixed_precision],
)
def test_unusual_trainings_that_are_correct_are_not_accused(method):
    found = training(train=method).watch()
    assert [one.words for one in found.failed + found.unseen] == []


def test_a_parameter_that_data_move_outside_of_the_noised_sums_is_found():
    found = training(train=train_with_a_leak).watch()
    assert [one.name for one in found.failed] == ["state without noise"]
    assert (
        "2.bias ends with different values on different records, although all noised sums were equal"
        in found.failed[0].witness
    )


def stepping(change):
    """A training with ``change(optimizer, loss, x)`` before each step."""

    def method(model, optimizer, loader, _):
        list(steps(model, optimizer, loader, before=change))

    return method


def lr_by_loss(optimizer, loss, x):
    optimizer.param_groups[0]["lr"] = float(loss.detach())


def train_divided_by_size(model, optimizer, loader, _):
    sizes = []

    def divide(*_):
        for one in optimizer.params:
            one.grad.mul_(20 / max(sizes[-1], 1))

    def counted(_, loss, x):
        sizes.append(len(x))
        if len(sizes) == 1:
            optimizer.original_optimizer.register_step_pre_hook(divide)

    for _ in range(EPOCHS):
        list(steps(model, optimizer, loader, before=counted))


def train_until_the_loss_says_so(model, optimizer, loader, _):
    last = None
    for number, _, _, loss in steps(model, optimizer, loader):
        last = 1 + int(1e4 * float(loss.detach())) % 8 if last is None else last
        if number >= last:
            return


def train_and_add_the_mean_label(model, optimizer, loader, engine):
    train(model, optimizer, loader, engine)
    labels = [float(loader.dataset[index][1]) for index in range(len(loader.dataset))]
    with torch.no_grad():
        list(model.parameters())[-1].add_(sum(labels) / len(labels))


def train_twice_on_each_lot(model, optimizer, loader, _):
    for batch in loader:
        list(steps(model, optimizer, [batch, batch]))


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("method", "check", "words"),
    [
        (stepping(lr_by_loss), "state without noise", "end with different values"),
        (train_divided_by_size, "state without noise", "divided by the number of records in its lot"),
        (train_and_add_the_mean_label, "state without noise", "2.bias ends with different values"),
        (train_twice_on_each_lot, "records in common", "hold the same"),
    ],
)
def test_what_data_decide_without_noise_is_found(method, check, words):
    found = {one.name: one.witness for one in training(train=method).watch().failed}
    assert words in found[check]


def test_a_number_of_steps_that_other_records_change_is_found():
    found = training(train=train_until_the_loss_says_so).watch()
    (state,) = [one for one in found.results if one.name == "state without noise"]
    assert state.passed is False
    assert "the number of steps is" in state.witness


def test_what_a_training_keeps_between_runs_is_not_taken_for_the_data():
    steps = []

    def warming_up(optimizer, loss, x):
        steps.append(1)
        optimizer.param_groups[0]["lr"] = 0.1 * min(1, len(steps) / 100)

    assert not training(train=stepping(warming_up)).watch().failed


def test_weights_that_start_elsewhere_in_each_run_are_not_taken_for_the_data():
    source = torch.Generator()
    source.seed()

    def build_anywhere(data):
        model = network()
        with torch.no_grad():
            model[0].weight.copy_(torch.rand(model[0].weight.shape, generator=source))
        return build(data, model=model)

    assert not training(build_anywhere).watch().failed


def test_what_a_stated_claim_pays_for_outside_of_the_accountant_is_not_accused():
    found = training(train=stepping(lr_by_loss), epsilon=50.0).watch()
    assert (found.failed, found.blind.count("leave out epsilon=, so that the claim is that of the history")) == ((), 1)


def test_sizes_of_a_public_plan_are_not_those_of_poisson_lots():
    sizes = [10, 20, 30, 40, 50, 50, 40]

    def build_planned(data):
        model, optimizer, _, engine = build(data, poisson_sampling=False)
        starts = [sum(sizes[:n]) for n in range(len(sizes))]
        batches = [list(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]
        return model, optimizer, torch.utils.data.DataLoader(data, batch_sampler=batches), engine

    def train_planned(model, optimizer, loader, _):
        def planned(_, loss, x):
            optimizer.expected_batch_size = len(x)

        list(steps(model, optimizer, loader, before=planned))

    found = training(build_planned, train_planned).watch()
    assert "state without noise" not in {one.name for one in found.failed}


@pytest.mark.parametrize(
    "tensor",
    [
        torch.rand(4, 1).t().t()[:, :1],
        torch.rand(0, 4)[:, ::2],
        torch.rand(3, 4) > 0.5,
        torch.rand(3, dtype=torch.complex64).conj(),
        torch.rand(3, 2).bfloat16(),
        torch.zeros(0),
    ],
)
def test_batches_of_any_layout_and_type_are_known_by_their_numbers(tensor):
    found = _content([tensor])
    assert found is not None
    assert found == _content([tensor.clone()])
    assert found != _content([tensor.clone(), tensor])
    assert _content([torch.eye(3).to_sparse()]) is None


class Rejecting(Dataset):
    """Each record draws until its number is large enough, so that other records take other numbers of draws.

    Clamped, because no draw would do for a record of large numbers, which a watched run also tries.
    """

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        x, y = self.data[index]
        while float(torch.rand(1)) < float(x[0].clamp(-3, 3).sigmoid()):
            pass
        return x, y


def train_with_jitter(model, optimizer, loader, _):
    for _ in steps(model, optimizer, loader):
        with torch.no_grad():
            for one in model.parameters():
                one.add_(1e-3 * torch.randn_like(one))


@pytest.mark.simulations
@pytest.mark.parametrize("of", [TensorDataset, lambda x, y: Subset(TensorDataset(x, y), range(len(x) - 9))])
def test_an_order_that_follows_the_records_is_no_fault(of):
    def in_order(data):
        x, y = data[:]
        places = y.argsort(stable=True)
        return build(of(2 * x[places] - 1, y[places]))

    found = training(in_order).watch()
    assert [one.words for one in found.failed] == []
    (sums,) = [one for one in found.results if one.name == NEIGHBOUR]
    assert sums.passed is None
    assert "order" in sums.witness


@pytest.mark.simulations
def test_draws_whose_number_follows_the_data_do_not_accuse_what_is_drawn_after_them():
    found = training(lambda data: build(Rejecting(data)), train_with_jitter).watch()
    assert [one.words for one in found.failed] == []
    # Without such draws the second run shows that jitter is no function of the data.
    (plain,) = [one for one in training(train=train_with_jitter).watch().results if one.name == "state without noise"]
    assert plain.passed
    assert (
        plain.witness == "what changed without noise had the same final values on other records, in lots of equal sizes"
    )


def test_what_moves_and_is_not_read_from_the_data_is_not_called_passed():
    fixed = records()
    found = training(lambda _: build(fixed), train_with_jitter).watch()
    (state,) = [one for one in found.results if one.name == "state without noise"]
    assert state.passed is None


def test_without_a_second_run_only_what_moved_outside_of_updates_is_seen():
    assert not training(train=stepping(lr_by_loss)).watch(again=False).failed


def test_a_training_that_refuses_other_records_is_watched_all_the_same():
    def refusing(data):
        if float(data[1][1]) != float(records()[1][1]) or not torch.equal(data[0][0], records()[0][0]):
            raise RuntimeError("not my data")
        return build(data)

    found = training(refusing).watch()
    assert not found.failed
    assert "ended with RuntimeError" in " ".join(one.witness for one in found.unseen)


@pytest.mark.simulations
def test_a_training_that_goes_on_with_an_older_history_is_not_accused():
    def resumed(data):
        model, optimizer, loader, engine = build(data)
        engine.accountant.history = [(3 * optimizer.noise_multiplier, 0.5, 40)]
        return model, optimizer, loader, engine

    assert [one.words for one in training(resumed).watch().failed] == []


@pytest.mark.filterwarnings("ignore:First batch is empty")
def test_lots_may_be_empty():
    few = TensorDataset(*(one[:40] for one in records().tensors))
    found = Training(lambda data: built(batch_size=1)(data), train, few, delta=1e-3).watch()
    assert [one.words for one in found.failed] == []


def test_an_evaluation_on_the_training_data_does_not_disturb_the_lots():
    def with_evaluation(model, optimizer, loader, engine):
        for _ in range(2):
            train(model, optimizer, loader, engine)
            model.eval()
            for x, _ in torch.utils.data.DataLoader(loader.dataset, batch_size=50):
                model(x)
            model.train()

    found = training(train=with_evaluation).watch()
    assert [one.words for one in found.failed + found.unseen] == []


@pytest.mark.processes
def test_without_opacus_the_import_names_the_extra():
    code = "import sys\nsys.modules['opacus'] = None\nimport fedassay.adapters.opacus"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "needs Opacus: pip install 'fedassay[opacus]'" in done.stderr


def test_a_loss_that_train_returns_is_named():
    def losing(model, optimizer, loader, engine):
        train(model, optimizer, loader, engine)
        return float(sum(LOSS(model(x), y).item() for x, y in loader))

    assert "what train returns depends on the data without noise (returned)" in training(train=losing).watch().aside
    assert "what train returns" not in training().watch().aside
