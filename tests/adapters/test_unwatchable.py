"""Several processes, compiled models, mixed precision, Lightning Fabric and lots that are split by hand: each is
watched as a plain training is, or refused by name.
"""

import subprocess
import sys
import textwrap

import pytest
import torch
from fedassay.adapters.logged_data import LoggedData
from fedassay.adapters.loop import LoopWatch
from fedassay.adapters.unwatchable import Unwatchable, refuse_sharded, unwrapped
from torch import nn
from torch.utils.data import TensorDataset

pytest.importorskip("opacus")
from fedassay.adapters.opacus import Training
from opacus_runs import BROKEN, EPOCHS, LOSS, build, network, records, train

pytestmark = [
    pytest.mark.filterwarnings("ignore:Secure RNG"),
    pytest.mark.filterwarnings("ignore:Full backward hook"),
    pytest.mark.filterwarnings("ignore:Optimal order"),
]


def watched(build=build, train=train):
    return Training(build, train, records(), delta=1e-5).watch()


def compiled(module):
    torch._dynamo.reset()
    return torch.compile(module, backend="eager")


def build_and_compile(data, build=build):
    model, *rest = build(data)
    return (compiled(model), *rest)


def train_compiled(model, *rest):
    train(compiled(model), *rest)


COMPILED = {
    "before make_private": (lambda data: build(data, model=compiled(network())), train),
    "after make_private": (build_and_compile, train),
    "in train": (build, train_compiled),
}


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_models_are_watched_like_plain_ones(name):
    found = watched(*COMPILED[name])
    assert [one.words for one in found.failed + found.unseen] == []


@pytest.mark.long
@pytest.mark.simulations
def test_half_of_the_noise_of_a_compiled_model_is_found_under_the_names_of_its_tensors():
    broken, train, check = BROKEN["half of the noise"]
    found = Training(lambda data: build_and_compile(data, broken), train, records(), delta=1e-5)
    assert check in {one.name for one in found.watch().failed}
    assert found.run().layout.names == ("0.weight", "0.bias", "2.weight", "2.bias")


def train_with_a_scaler(model, optimizer, loader, _, **options):
    scaler = torch.amp.GradScaler("cpu", **options)
    for _ in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = LOSS(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()


def test_a_scaler_that_skips_steps_by_gradients_without_noise_is_refused_and_one_that_does_nothing_is_not():
    with pytest.raises(Unwatchable, match=r"GradScaler skips steps .* train in bfloat16 without it") as raised:
        watched(train=train_with_a_scaler)
    assert not getattr(raised.value, "__notes__", [])  # No fault inside of the training.
    found = watched(train=lambda *built: train_with_a_scaler(*built, enabled=False))
    assert found.failed == ()
    assert not found.blind


def train_and_skip(parts):
    """Split each lot of a loader by hand; ``parts``: (x, y) -> batches."""

    def method(model, optimizer, loader, _):
        for _ in range(EPOCHS):
            for x, y in loader:
                batches = parts(x, y)
                for number, (a, b) in enumerate(batches):
                    optimizer.zero_grad()
                    optimizer.signal_skip_step(do_skip=number < len(batches) - 1)
                    LOSS(model(a), b).backward()
                    optimizer.step()

    return method


def in_order(x, y):
    return list(zip(x.split(7), y.split(7), strict=True))


def shuffled(x, y):
    order = torch.randperm(len(x))
    return in_order(x[order], y[order])


def first_rows_twice(x, y):
    return [*in_order(x, y), (x[:2], y[:2])]


@pytest.mark.parametrize("parts", [in_order, shuffled])
def test_lots_that_are_split_by_hand_are_known(parts):
    found = watched(train=train_and_skip(parts))
    assert [one.words for one in found.failed + found.unseen] == []


def test_a_record_that_enters_a_split_lot_twice_is_found():
    assert "records once in a lot" in {one.name for one in watched(train=train_and_skip(first_rows_twice)).failed}


def test_records_are_known_by_their_numbers_where_these_are_of_one_record_alone():
    data = TensorDataset(torch.tensor([[0.0], [1.0], [0.0], [2.0]]), torch.tensor([0, 1, 2, 3]))
    logged = LoggedData(data)
    batch = torch.stack([logged[index][0] for index in (3, 0, 2, 1)])
    # Two records have the number 0, and other labels.
    assert logged.alike(batch[[3, 1]]) == [1, None]
    assert logged.alike(batch[[3, 0]]) == [1, 3]
    assert logged.unread == 2
    assert logged.alike(torch.tensor([[7.0]])) == [None]
    assert logged.alike(batch[1:3]) == [0, 2]  # In the order of reading.
    assert logged.unread == 0
    assert logged.alike(batch[:1]) == [3]  # It comes again, without being read.


def in_other_order(x, y):
    order = torch.randperm(len(x))
    return x[order], y[order]


def every_other_row_turned(x, y):
    signs = 1.0 - 2.0 * (torch.arange(len(x)) % 2)
    return x * signs.reshape(-1, *[1] * (x.ndim - 1)), y


@pytest.mark.parametrize("changed", [in_other_order, every_other_row_turned])
def test_a_lot_that_is_shuffled_or_augmented_after_it_was_read_is_known(changed):
    def method(model, optimizer, loader, _):
        for batch in loader:
            x, y = changed(*batch)
            optimizer.zero_grad()
            LOSS(model(x), y).backward()
            optimizer.step()

    found = watched(train=method)
    assert [one.words for one in found.failed + found.unseen] == []


def fabric(name, **attributes):
    """An object like the wrapper of Lightning Fabric of this name."""
    kind = type(name, (), {"__module__": "lightning.fabric.wrappers"})
    found = kind()
    vars(found).update(attributes)
    return found


def test_what_fabric_wraps_is_watched():
    def build_with_fabric(data):
        model, optimizer, loader, engine = build(data)
        return model, fabric("_FabricOptimizer", optimizer=optimizer, step=optimizer.step), loader, engine

    def train_with_fabric(model, optimizer, loader, _):
        for x, y in loader:
            optimizer.optimizer.zero_grad()
            LOSS(model(x), y).backward()
            optimizer.step()

    found = watched(build_with_fabric, train_with_fabric)
    assert found.failed == ()
    assert not found.blind
    assert unwrapped(fabric("_FabricDataLoader", _dataloader=3)) == 3
    module = nn.Linear(2, 1)
    assert LoopWatch(fabric("_FabricModule", module=module), noise_multiplier=1.0, clip_norm=1.0).layout.dim == 3


@pytest.mark.simulations
def test_fabric_itself_is_watched():
    lightning = pytest.importorskip("lightning")

    def build_with_fabric(data):
        model, optimizer, loader, engine = build(data)
        fabric = lightning.Fabric(accelerator="cpu", devices=1)
        return (*fabric.setup(model, optimizer), fabric.setup_dataloaders(loader), engine)

    found = watched(build_with_fabric)
    assert [one.words for one in found.failed + found.unseen] == []


def test_a_model_in_shards_is_refused():
    class FSDPModule(nn.Linear):
        pass

    with pytest.raises(Unwatchable, match=r"sharded over processes \(FSDPModule\).* without FSDP, in one process"):
        LoopWatch(nn.Sequential(FSDPModule(2, 1)), noise_multiplier=1.0, clip_norm=1.0)
    refuse_sharded(nn.Linear(2, 1))


def test_a_loop_in_one_of_several_processes_hands_over_all_of_them(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    given = {"noise_multiplier": 1.0, "clip_norm": 1.0}
    with pytest.raises(Unwatchable, match=r"one of 2 processes that train together .* with gathered=True"):
        LoopWatch({"w": (2,)}, **given).release(None, torch.zeros(2))
    gathered = LoopWatch({"w": (2,)}, **given, gathered=True)
    gathered.release(None, torch.zeros(2))
    assert len(gathered.recording().releases) == 1


def test_a_scaler_in_a_loop_is_refused_at_its_first_step():
    model = nn.Linear(2, 1)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    watch = LoopWatch(model, noise_multiplier=1.0, clip_norm=1.0)
    watch.attach(optimizer)
    scaler.scale(model(torch.ones(1, 2)).sum()).backward()
    with pytest.raises(Unwatchable, match="GradScaler"):
        scaler.step(optimizer)


PROCESSES = """
    import sys, warnings

    import torch
    import torch.distributed as distributed
    from fedassay.adapters.opacus import Training
    from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
    from opacus.utils.fsdp_utils import FSDP2Wrapper
    from opacus_runs import build, network, records, train
    from torch.distributed.device_mesh import init_device_mesh

    warnings.simplefilter("ignore")
    rank, size, kind, place = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    distributed.init_process_group("gloo", rank=rank, world_size=size, init_method=f"file://{place}")
    torch.manual_seed(0)


    def build_here(data):
        if kind == "ddp":
            return build(data, model=DifferentiallyPrivateDistributedDataParallel(network()))
        model = FSDP2Wrapper(network(), mesh=init_device_mesh("cpu", (size,)))
        return build(data, model=model, grad_sample_mode="ghost_fsdp")


    try:
        found = Training(build_here, train, records(), delta=1e-5).watch()
        print("watched", len(found.failed), found.blind)
    except ValueError as error:
        print("refused", error)
    distributed.destroy_process_group()
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("size", "kind", "words"),
    [
        (1, "ddp", "watched 0 \n"),
        (2, "ddp", "refused this is one of 2 processes that train together"),
        (2, "fsdp", "refused the model is sharded over processes"),
    ],
)
def test_processes_that_train_together_are_refused_each_and_one_alone_is_watched(size, kind, words, tmp_path):
    (tmp_path / "training.py").write_text(textwrap.dedent(PROCESSES), encoding="utf-8")
    code = f"import sys; sys.path[:0] = {list(sys.path)!r}; del sys.argv[0]; exec(open(sys.argv[0]).read())"
    words_of = [str(size), kind, str(tmp_path / "group")]
    command = [sys.executable, "-c", code, str(tmp_path / "training.py")]
    started = [
        subprocess.Popen([*command, str(rank), *words_of], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(size)
    ]
    printed = [one.communicate(timeout=120)[0] for one in started]
    assert all(words in one for one in printed), printed
