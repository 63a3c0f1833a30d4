"""Executors: each gives the models, lots and reports of the sequential one up to rounding, and always the same bits."""

from dataclasses import replace

import pytest
import torch
from fedassay.audit.claim import Unit
from fedassay.defenses.sample_level.dp_sgd import DPSGD
from fedassay.fl.algorithms import FedAvg, FedSGD, Scaffold
from fedassay.fl.canary import Canary, DataCanary
from fedassay.fl.engine import run_federation
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import FixedSize, Full, Poisson
from fedassay.fl.streams import Streams
from fedassay.fl.training.executor_choice import executor_named, known_executors, usual_executor
from fedassay.fl.training.executors import batched, compiled
from fedassay.fl.training.local import Batch

SIZES = (4, 7, 5, 6, 1)
FEDSGD = FedSGD(learning_rate=0.5)
FEDAVG = FedAvg(learning_rate=0.3, local_steps=3)
SCAFFOLD = Scaffold(learning_rate=0.2, local_steps=2)
ADAM = FedAvg(learning_rate=0.01, local_steps=2, optimizer="adam", keep_moments=True)
# Updates are of order 1; float32 sums of a few dozen terms differ by some 1e-7.
TOLERANCE = {"rtol": 1e-4, "atol": 2e-6}
# Model, side of its images, algorithm, lot, cohort.
CASES = {
    "logistic": ("logistic", 3, FEDSGD, Full(), Full()),
    "linear steps": ("logistic", 3, FEDAVG, Poisson(0.3), Poisson(0.6)),
    "cnn": ("lenet", 7, FEDAVG, FixedSize(3), FixedSize(3)),
    "cnn poisson": ("lenet", 7, FEDAVG, Poisson(0.4), Poisson(0.6)),
    "dropout": ("lenet_dropout", 7, FEDAVG, Poisson(0.5), Full()),
    "dropout of fixed lots": ("lenet_dropout", 7, FEDAVG, FixedSize(3), Full()),
    "batch norm": ("lenet_bn", 7, FEDAVG, Poisson(0.5), Full()),
    "scaffold": ("mlp", 3, SCAFFOLD, FixedSize(2), Poisson(0.5)),
    "moments": ("mlp", 3, ADAM, Full(), Poisson(0.5)),
}


class PerSample(Protection):
    """No protection; its hook gets per-sample gradients."""

    per_sample = True


@pytest.fixture(autouse=True)
def uncompiled(request, monkeypatch):
    """Compiling takes ten seconds a shape: most tests run the same calls of the same functions uncompiled."""
    compiled._mean_gradients.cache_clear()
    compiled._sample_gradients.cache_clear()
    compiled._descents.cache_clear()
    if request.node.get_closest_marker("simulations") is None:
        monkeypatch.setattr(compiled, "_compiled", lambda function, backend: function)


def both(executor, task, plan, make_tape, protection=None, **options):
    """The final models and recorded rounds of the sequential executor and of another one."""
    found = []
    for name in ("sequential", executor):
        tape = make_tape()
        final = run_federation(
            task,
            plan,
            protection or Protection(),
            Streams(0),
            recorders=[tape],
            executor=executor_named(name),
            **options,
        )
        found.append((final, tape))
    return found


def assert_equal_runs(found):
    (one, first), (other, second) = found
    torch.testing.assert_close(other, one, **TOLERANCE)
    assert first.masks() == second.masks()
    for ours, theirs in zip(first.events, second.events, strict=True):
        torch.testing.assert_close(theirs.reports.values, ours.reports.values, **TOLERANCE)
        assert torch.equal(theirs.reports.present, ours.reports.present)


def others(case):
    return [name for name in known_executors() if name != "sequential" and (name, case) != ("compiled", "batch norm")]


# One replica descends layer by layer, where no hook and no other algorithm has to do with its steps.
@pytest.mark.parametrize(
    ("executor", "case", "replicas"),
    [(name, case, 3) for case in CASES for name in others(case)]
    + [(name, case, 1) for case in ("linear steps", "cnn poisson", "dropout", "moments") for name in others(case)],
)
def test_an_executor_gives_the_sequential_models_reports_and_lots(
    make_task, make_plan, make_tape, in_double, executor, case, replicas
):
    model, side, algorithm, lot, cohort = CASES[case]
    task = make_task(SIZES, model=model, side=side)
    if algorithm is ADAM:
        task = in_double(task)
    plan = make_plan(task, algorithm=algorithm, lot=lot, cohort=cohort)
    assert_equal_runs(both(executor, task, plan, make_tape, batch=Batch(replicas=replicas)))


@pytest.mark.parametrize("executor", others(""))
@pytest.mark.parametrize(("model", "side"), [("logistic", 3), ("lenet_dropout", 7)])
def test_hooks_on_per_sample_gradients_draw_the_same_noise(make_task, make_plan, make_tape, executor, model, side):
    task = make_task(SIZES, model=model, side=side)
    plan = make_plan(task, algorithm=FEDAVG, lot=Poisson(0.5))
    protection = DPSGD(clip_norm=0.5, epsilon=5.0).prepare(plan).protection
    assert_equal_runs(both(executor, task, plan, make_tape, protection, batch=Batch(replicas=2)))


def canaries(task):
    row = torch.ones(task.network.layout.dim)
    return {
        "sample row": Canary(unit=Unit.SAMPLE, present=row, client=1),
        "client row": Canary(unit=Unit.CLIENT, present=row),
        "user rows": Canary(unit=Unit.USER, present=row, clients=2, copies=2),
        "sample data": DataCanary(
            unit=Unit.SAMPLE, images=task.test_images[:1], present=task.test_labels[:1], client=2
        ),
        "client data": DataCanary(unit=Unit.CLIENT, images=task.test_images[:3], present=task.test_labels[:3]),
    }


@pytest.mark.parametrize("executor", others(""))
@pytest.mark.parametrize(
    ("kind", "protection"),
    [
        ("sample row", Protection()),
        ("user rows", PerSample()),
        ("client row", Protection()),
        ("sample data", Protection()),
        ("sample data", PerSample()),
        ("client data", PerSample()),
    ],
    ids=lambda given: given if isinstance(given, str) else type(given).__name__,
)
def test_canaries_pass_as_in_the_sequential_executor(make_task, make_plan, make_tape, executor, protection, kind):
    task = make_task(SIZES, model="mlp")
    plan = make_plan(task, algorithm=FEDAVG, lot=Poisson(0.6))
    batch = Batch(replicas=2, arm=1)
    assert_equal_runs(both(executor, task, plan, make_tape, protection, batch=batch, canary=canaries(task)[kind]))


@pytest.mark.parametrize("executor", others(""))
def test_samples_that_are_left_out_stay_out(make_task, make_plan, make_tape, executor):
    task = make_task(SIZES, model="mlp")
    plan = make_plan(task, algorithm=FEDAVG)
    included = torch.rand(3, len(task.labels), generator=torch.Generator().manual_seed(0)) < 0.5
    included[0, task.parts[0]] = False  # A client without a sample in one replica.
    assert_equal_runs(both(executor, task, plan, make_tape, batch=Batch(replicas=3, included=included)))


@pytest.mark.parametrize("executor", known_executors())
def test_two_runs_of_an_executor_have_the_same_bits(make_task, make_plan, executor):
    task = make_task(SIZES, model="lenet", side=7)
    plan = make_plan(task, algorithm=FEDAVG, lot=Poisson(0.5))
    one, other = (
        run_federation(task, plan, Protection(), Streams(3), executor=executor_named(executor)) for _ in range(2)
    )
    assert torch.equal(one, other)


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize("protection", [Protection(), PerSample()], ids=["mean", "per sample"])
@pytest.mark.parametrize("case", ["cnn", "dropout of fixed lots"])
def test_machine_code_gives_the_sequential_models(make_task, make_plan, make_tape, case, protection):
    model, side, algorithm, lot, cohort = CASES[case]
    task = make_task(SIZES, model=model, side=side)
    plan = make_plan(task, algorithm=algorithm, lot=lot, cohort=cohort)
    assert_equal_runs(both("compiled", task, plan, make_tape, protection))


@pytest.fixture
def large(monkeypatch):
    """Every model counts as large, so that blocks have one client."""
    for module in (batched, compiled):
        monkeypatch.setattr(module, "LARGE", 0)


@pytest.mark.parametrize(
    ("executor", "case"),
    [(name, case) for case in ("linear steps", "cnn", "dropout", "scaffold") for name in others(case)],
)
def test_one_client_of_a_large_model_at_a_time_gives_the_sequential_models(
    make_task, make_plan, make_tape, large, executor, case
):
    model, side, algorithm, lot, cohort = CASES[case]
    task = make_task(SIZES, model=model, side=side, inert=3)
    plan = make_plan(task, algorithm=algorithm, lot=lot, cohort=cohort)
    assert_equal_runs(both(executor, task, plan, make_tape))


@pytest.mark.simulations
@pytest.mark.long
@pytest.mark.parametrize("case", ["cnn poisson", "dropout"])
def test_machine_code_of_a_large_model_gives_the_sequential_models(make_task, make_plan, make_tape, large, case):
    model, side, algorithm, lot, cohort = CASES[case]
    task = make_task(SIZES, model=model, side=side, inert=3)
    plan = make_plan(task, algorithm=algorithm, lot=lot, cohort=cohort)
    assert_equal_runs(both("compiled", task, plan, make_tape))


@pytest.mark.simulations
@pytest.mark.parametrize("protection", [Protection(), PerSample()], ids=["mean", "per sample"])
def test_traced_recurrent_cells_give_the_sequential_models(make_task, make_plan, make_tape, monkeypatch, protection):
    """Their products with the parameters are written in place, which a function transform refuses at first."""
    monkeypatch.setattr(compiled, "_BACKEND", "eager")
    task = make_task(SIZES, model="own_models:recurrent", side=4)
    executor_named("compiled").check(task.network)
    plan = make_plan(task, algorithm=FEDAVG, lot=FixedSize(2))
    assert_equal_runs(both("compiled", task, plan, make_tape, protection))


def test_compiled_refuses_batch_norm_and_a_machine_without_a_compiler(make_task):
    check = executor_named("compiled").check
    with pytest.raises(ValueError, match="batch norm mixes"):
        check(make_task(model="lenet_bn", side=7).network)
    absent = torch._inductor.config.patch({"cpp.cxx": ("/no/such/compiler",)})
    with absent, pytest.raises(ValueError, match="C\\+\\+ compiler"):
        check(make_task(model="mlp").network)


@pytest.mark.simulations
def test_compiled_refuses_a_model_that_cannot_be_traced(make_task):
    network = replace(make_task(model="mlp").network, model="own_models:branching")
    with pytest.raises(ValueError, match="cannot compile model"):
        executor_named("compiled").check(network)


def test_an_unknown_executor_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="'batch'; known: batched"):
        executor_named("batch")


def test_only_many_clients_of_one_plain_step_are_batched_by_default(make_task, make_plan):
    task, plain = make_task((2,) * 100), {"algorithm": FEDSGD, "lot": Full()}

    def name(plan=None, task=task, protection=None, batch=None, canary=None):
        chosen = usual_executor(
            task, plan or make_plan(task, **plain), protection or Protection(), batch or Batch(), canary
        )
        return chosen.__name__

    assert name() == "Batched"
    assert name(batch=Batch(replicas=2)) == "Sequential"
    assert usual_executor(task, make_plan(task), PerSample(), Batch(), None, "cuda").__name__ == "Batched"
    assert name(make_plan(task, **plain | {"lot": Poisson(0.5)})) == "Sequential"
    assert name(make_plan(task, **plain | {"algorithm": FedAvg(learning_rate=1.0, local_steps=1)})) == "Sequential"
    assert name(protection=PerSample()) == "Sequential"
    few = replace(task, parts=task.parts[:99])
    assert name(make_plan(few, **plain), few) == "Sequential"


@pytest.mark.simulations
def test_a_run_may_have_more_models_than_pytorch_compiles_by_default():
    for hidden in range(3, 14):
        network = Network(model="mlp", shape=(1, 4, 4), classes=3, options={"hidden": hidden})
        executor_named("compiled").check(network)
