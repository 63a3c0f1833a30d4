"""A part of the user's own that fails in the middle of a run costs its own cells alone, and they are computed again
once the part is mended.
"""

import importlib
import sys
import threading

import fedassay
import pytest
from fedassay.suites.config.source import ConfigError
from fedassay.suites.execution import run as workers
from run_files import contents, results

SOURCE = """\
import dataclasses
import threading
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedassay.attacks.membership.loss import LossThreshold
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.evidence import MembershipScores
from fedassay.audit.measurement import Measurement
from fedassay.defenses.defense import Defense, Prepared
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.protection import Protection

CALLS = []


class Counting(Protection):
    def aggregate(self, received, context, state, rng):
        if context.round == 2: pass  # defense
        return super().aggregate(received, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class Guard(Defense):
    def prepare(self, plan):
        return Prepared(protection=Counting(), claims=())


class Locked(Protection):
    def __init__(self):
        self.lock = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class Unpicklable(Defense):
    def prepare(self, plan):
        return Prepared(protection=Locked(), claims=())


class Reseeding(Protection):
    def aggregate(self, received, context, state, rng):
        np.random.seed(0)
        torch.manual_seed(0)
        return super().aggregate(received, context, state, rng)


@dataclass(frozen=True, kw_only=True)
class Global(Defense):
    def prepare(self, plan):
        return Prepared(protection=Reseeding(), claims=())


@dataclass(frozen=True, kw_only=True)
class Steps(FedSGD):
    def combine(self, model, aggregate):
        CALLS.append(1)
        if len(CALLS) > 2: pass  # algorithm
        return super().combine(model, aggregate)


class Net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.output = nn.Linear(shape[1] * shape[2], classes)
        nn.init.zeros_(self.output.bias)

    def forward(self, images):
        if bool(self.output.bias.abs().sum() > 0): pass  # model
        return self.output(images.flatten(1))


def net(shape, classes):
    return Net(shape, classes)


@dataclass(frozen=True, kw_only=True)
class Loss(LossThreshold):
    def run(self, view, knowledge, rng):
        pass  # attack
        return super().run(view, knowledge, rng)


def bound(scores: MembershipScores, *, delta: float, alpha: float, threshold) -> Measurement:
    pass  # estimator
    return clopper_pearson(scores, delta=delta, alpha=alpha, threshold=threshold)
"""
FAULT = "raise RuntimeError('lost its mind')"
FIVE = ("rounds = 2", "rounds = 5")
UNDEFENDED = ("[defenses.ldp_gaussian]\ndelta = 1e-5\nepsilon = 4.0\n", "")
CELLS = {
    "defense": {("Guard", "training"), ("Guard", "loss"), ("Guard", "random_scores")},
    "algorithm": {("none", "training"), ("ldp_gaussian", "training")},
    "model": {("none", "training"), ("ldp_gaussian", "training")},
    "attack": {("none", "mine"), ("ldp_gaussian", "mine")},
    "estimator": {("ldp_gaussian", "likelihood_ratio")},
}
"""The cells that each kind of part takes part in."""


def faulty(kind):
    """The source in which the part of this kind raises, and the line where it does."""
    lines = SOURCE.splitlines()
    number = next(number for number, line in enumerate(lines) if line.endswith(f"pass  # {kind}"))
    lines[number] = lines[number].replace("pass", FAULT)
    return "\n".join(lines), number + 1


def suite(kind, module):
    """Changes of the small suite that bring the part in; a model or algorithm has a federation of its own."""
    own = {
        "model": f'model = "{module}:net"\nalgorithm = {{ name = "fedsgd", learning_rate = 0.5 }}',
        "algorithm": f'model = "logistic"\nalgorithm = {{ part = "{module}:Steps", learning_rate = 0.5 }}',
    }
    changes = {
        "attack": ("[attacks.loss]\n", f'[attacks.mine]\npart = "{module}:Loss"\ncount = 8\n\n[attacks.loss]\n'),
        "estimator": ("[audit]\n", f'[audit]\nestimator = "{module}:bound"\n'),
        "defense": ("[defenses.none]\n", f'[defenses.none]\n\n[defenses.Guard]\npart = "{module}:Guard"\n'),
    }
    second = f'[federations.own]\ndataset = "digits"\nclients = 2\nsamples = 60\nrounds = 5\n{own.get(kind)}\n\n'
    return (*FIVE, *changes.get(kind, ("[defenses.none]\n", f"{second}[defenses.none]\n")))


def values(records):
    return {(row.cell_id, row.metric, row.record, row.value) for row in records}


@pytest.mark.simulations
@pytest.mark.parametrize("kind", CELLS)
def test_a_part_that_raises_fails_its_own_cells_alone_and_is_computed_again_once_mended(
    assay, suite_file, own_module, kind
):
    source, line = faulty(kind)
    module = own_module(source)
    run = assay(suite_file(*suite(kind, module)))
    failed = [record for record in run.records if record.status == "failed"]
    assert {(record.defense, record.attack) for record in failed} == CELLS[kind]
    assert {record.reason for record in failed} == {f"RuntimeError: lost its mind ({module}.py, line {line})"}
    assert run.verdict.exit_code == 12
    kept = {name: text for name, text in contents(run.folder).items() if name.split("/")[1] not in ids(failed)}

    own_module(SOURCE, name=module)
    with pytest.raises(ConfigError, match="If you mended a part of your own, resume with --retry-failed"):
        fedassay.resume(run.folder, jobs=1, report=False)
    again = fedassay.resume(run.folder, retry_failed=True, jobs=1, report=False)
    assert again.verdict.exit_code == 0
    records = again.records
    assert len(results(run.folder)) == len(set(results(run.folder)))
    own_module(SOURCE, name=module)
    fresh = assay(suite_file(*suite(kind, module)))
    assert values(records) == values(fresh.records)
    # What does not depend on the part was not computed again, and the rows of the failure are still there.
    untouched = {name: text for name, text in kept.items() if name.split("/")[1] in ids(records)}
    assert untouched.items() <= contents(run.folder).items()
    assert any(row.defense == "none" for row in records if row.cell_id in {name.split("/")[1] for name in untouched})
    assert any(name.endswith(("failed-records.jsonl", "former-records.jsonl")) for name in contents(run.folder))


def ids(records):
    return {record.cell_id for record in records}


def test_an_exception_before_the_run_names_the_line_too(assay, suite_file, own_module):
    module = own_module("def net(shape, classes):\n    return shape[7]\n")
    with pytest.raises(ConfigError, match=rf"IndexError: tuple index out of range \({module}\.py, line 2\)"):
        assay(suite_file('model = "logistic"\nclients', f'model = "{module}:net"\nclients'))


def test_an_edited_file_is_refused_until_it_is_reloaded_and_then_its_new_code_runs(
    assay, suite_file, own_module, tmp_path
):
    source = "from torch import nn\n\n\ndef net(shape, classes, width=3):\n    return nn.Sequential(nn.Flatten(), "
    source += "nn.Linear(64, width), nn.Linear(width, classes))\n"
    module = own_module(source)
    path = suite_file('model = "logistic"\nclients', f'model = "{module}:net"\nclients', *UNDEFENDED)
    assay(path)
    file = tmp_path / "own" / f"{module}.py"
    file.write_text(source.replace("width=3", "width=30"), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"line 8: .*{module}.py changed after Python loaded it: restart Python, or"):
        assay(path)
    importlib.reload(sys.modules[module])
    run = assay(path)
    sent = next(row.value for row in run.records if row.metric == "bytes_up_round")
    assert sent == 2 * 4 * (64 * 30 + 30 + 30 * 10 + 10)


def test_a_job_that_cannot_be_pickled_or_built_again_is_not_sent_to_a_worker():
    class Unbuildable:
        def __reduce__(self):
            return (int, ("three",))

    assert workers._can_be_sent(3)
    assert not workers._can_be_sent(threading.Lock())
    assert not workers._can_be_sent(Unbuildable())


@pytest.mark.processes
def test_parts_that_fail_in_workers_leave_the_cells_of_all_others_as_they_are(assay, suite_file, own_module):
    source, line = faulty("defense")
    module = own_module(source)
    plain = assay(suite_file(*FIVE))
    run = assay(suite_file(*FIVE), jobs=2, defenses=[f"{module}:{name}" for name in ("Guard", "Unpicklable", "Global")])
    failed = [record for record in run.records if record.status == "failed"]
    assert {(record.defense, record.attack) for record in failed} == CELLS["defense"]
    assert {record.reason for record in failed} == {f"RuntimeError: lost its mind ({module}.py, line {line})"}
    assert run.verdict.exit_code == 12
    assert values(plain.records) <= values(run.records)

    def rows(defense):
        return {(row.attack, row.metric, row.record, row.value) for row in run.records if row.defense == defense}

    # Both change nothing of the updates, and neither the lock nor the global generators change a result.
    assert rows("none") == rows("Unpicklable") == rows("Global")
