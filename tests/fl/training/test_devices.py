"""Devices: what leaves the CPU for a device comes back, no operation mixes both, and draws do not depend on it."""

import pytest
import torch
from fedassay.audit.claim import Unit
from fedassay.defenses.sample_level.dp_sgd import DPSGD
from fedassay.fl.algorithms import FedAvg, Scaffold
from fedassay.fl.canary import Canary
from fedassay.fl.engine import run_federation
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.training import devices, local
from fedassay.fl.training.devices import numbers_of_sample
from fedassay.fl.training.executor_choice import executor_named
from fedassay.fl.training.executors import batched, compiled
from fedassay.fl.training.local import Batch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CASES = {
    "logistic": ("logistic", FedAvg(learning_rate=0.3, local_steps=2)),
    "dropout": ("lenet_dropout", FedAvg(learning_rate=0.3, local_steps=1)),
    "control": ("mlp", Scaffold(learning_rate=0.2, local_steps=2)),
    "moments": ("mlp", FedAvg(learning_rate=0.01, local_steps=2, optimizer="adam", keep_moments=True)),
}


class Apart(TorchDispatchMode):
    """A pretended device: the tensors that ``moved`` sends there, and all that is computed from them.

    An operation on tensors of both sides raises, except for what PyTorch allows: numbers without a dimension, and
    indices on the CPU.
    """

    def __init__(self):
        super().__init__()
        self.there, self.sent, self.returned = {}, 0, 0

    def is_there(self, tensor):
        return tensor.untyped_storage()._cdata in self.there

    def put(self, tensor):
        storage = tensor.untyped_storage()
        self.there[storage._cdata] = storage  # Held, so that no later tensor has the same address.

    def moved(self, tensor, device):
        copy = torch.from_numpy(tensor.detach().numpy().copy())
        if device == "pretended":
            self.put(copy)
            self.sent += 1
        else:
            self.returned += self.is_there(tensor)
        return copy

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        if func is torch.ops.aten.index.Tensor and self.is_there(given[0]):
            given = given[:1]
        if func is torch.ops.aten.scatter_.value:  # Of ``one_hot``, on zeros that it made on the labels' device.
            self.put(given[0])
        sides = {self.is_there(one) for one in given if one.ndim}
        if len(sides) > 1:
            raise RuntimeError(f"{func} mixes devices")
        found = func(*args, **(kwargs or {}))
        if any(self.is_there(one) for one in given):
            for one in tree_leaves(found):
                if isinstance(one, torch.Tensor):
                    self.put(one)
        return found


def exactly(function, backend):
    """What is compiled for a device, which computes convolutions there without TF32."""

    def checked(*given):
        assert backend == "eager" or torch.backends.cudnn.conv.fp32_precision == "ieee"
        return function(*given)

    return checked


@pytest.fixture
def pretended(monkeypatch):
    """A run on the pretended device, with how many tensors were sent there and came back."""

    def run(task, plan, protection, **options):
        apart = Apart()
        for module in (devices, batched, local):
            monkeypatch.setattr(module, "moved", apart.moved)
        monkeypatch.setattr(batched, "free_numbers", lambda device: 2**18)
        monkeypatch.setattr(compiled, "_compiled", exactly)
        devices.network_on.cache_clear()
        compiled._mean_gradients.cache_clear()
        compiled._sample_gradients.cache_clear()
        with apart:
            final = run_federation(task, plan, protection, Streams(0), device="pretended", **options)
        assert not apart.is_there(final)
        return final, apart

    return run


def protections(plan):
    return {"none": Protection(), "dp_sgd": DPSGD(clip_norm=0.5, epsilon=5.0).prepare(plan).protection}


@pytest.mark.long
@pytest.mark.parametrize("protected", ["none", "dp_sgd"])
@pytest.mark.parametrize("executor", ["sequential", "batched", "compiled"])
@pytest.mark.parametrize(
    "case",
    ["logistic", *(pytest.param(name, marks=pytest.mark.simulations) for name in CASES if name != "logistic")],
)
def test_a_run_on_a_device_never_mixes_it_with_the_cpu_and_draws_the_same(
    make_task, make_plan, pretended, case, executor, protected
):
    model, algorithm = CASES[case]
    task = make_task((4, 3, 5), model=model, side=7)
    plan = make_plan(task, algorithm=algorithm, lot=Poisson(0.6), cohort=Poisson(0.8), rounds=2)
    options = {"executor": executor_named(executor), "batch": Batch(replicas=2)}
    protection = protections(plan)[protected]
    expected = run_federation(task, plan, protection, Streams(0), **options)
    found, apart = pretended(task, plan, protection, **options)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-6)
    assert apart.sent > 0
    assert apart.returned > 0


@pytest.mark.parametrize("executor", ["sequential", "batched"])
def test_canaries_and_absent_samples_meet_no_other_device(make_task, make_plan, pretended, executor):
    task = make_task((4, 7, 5), model="mlp")
    plan = make_plan(task, lot=Poisson(0.6))
    included = torch.rand(2, len(task.labels), generator=torch.Generator().manual_seed(0)) < 0.7
    canary = Canary(unit=Unit.SAMPLE, present=torch.ones(plan.layout.dim), client=1)
    batch = Batch(replicas=2, arm=1, included=included)
    options = {"executor": executor_named(executor), "batch": batch, "canary": canary}
    expected = run_federation(task, plan, Protection(), Streams(0), **options)
    torch.testing.assert_close(pretended(task, plan, Protection(), **options)[0], expected, rtol=1e-4, atol=2e-6)


def test_the_pretended_device_notices_an_operation_on_both_sides():
    apart = Apart()
    with apart:
        there = apart.moved(torch.ones(3), "pretended")
        assert apart.is_there(2 * there)
        with pytest.raises(RuntimeError, match="mixes devices"):
            there + torch.ones(3)


def test_the_numbers_of_a_sample_are_the_outputs_of_all_layers():
    # Two linear layers and what lies between: 4 flat pixels, 3 and 3 hidden values, 2 logits.
    network = Network(model="mlp", shape=(1, 2, 2), classes=2, options={"hidden": 3})
    assert numbers_of_sample(network) == 4 + 3 + 3 + 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("protected", ["none", "dp_sgd"])
@pytest.mark.parametrize("executor", ["sequential", "batched", "compiled"])
@pytest.mark.parametrize("case", list(CASES))
def test_a_gpu_gives_the_models_of_the_cpu_and_the_same_bits_twice(make_task, make_plan, case, executor, protected):
    model, algorithm = CASES[case]
    task = make_task((4, 7, 5), model=model, side=7)
    plan = make_plan(task, algorithm=algorithm, lot=Poisson(0.6))
    options = {"executor": executor_named(executor), "batch": Batch(replicas=2)}
    protection = protections(plan)[protected]
    expected = run_federation(task, plan, protection, Streams(0), **options)
    found = [run_federation(task, plan, protection, Streams(0), device="cuda", **options) for _ in range(2)]
    assert torch.equal(*found)
    torch.testing.assert_close(found[0], expected, rtol=1e-3, atol=1e-5)
