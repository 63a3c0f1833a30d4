"""For every folder: hypothesis repeats itself; a suite small enough to run in half a second, resolved and planned;
a row's facts; and a defense of one's own, wrong in a way of the test's choice.
"""

import gc
import importlib.util
import itertools
import os
import sys
import time
from pathlib import Path

import pytest
from fedassay.suites.config.resolve import resolve
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.planning.run_plan import plan_run
from hypothesis import settings
from suite_text import suite_text

# While tests are collected nothing becomes garbage, and looking for it takes half of the time.
gc.disable()

# Weights on this machine would change what the rows of reconstructions hold.
os.environ |= {"TORCH_HOME": os.devnull, "FEDASSAY_OFFLINE": "1"}

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

TINY = """\
name = "tiny"
description = "Two clients, two rounds."
alpha = 0.05
seeds = 1

[federations.main]
dataset = "digits"
model = "logistic"
clients = 2
samples = 60
rounds = 2
algorithm = { name = "fedsgd", learning_rate = 0.5 }

[defenses.none]

[defenses.ldp_gaussian]
delta = 1e-5
epsilon = 4.0

[attacks.loss]
count = 8

[attacks.random_scores]
count = 8

[audit]
replicas = 40
batch = 16
samples_per_client = 4
noise_shares = [0.5]
trials = 0
"""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    """Collects garbage again, but not among the tests themselves."""
    gc.enable()
    gc.freeze()


@pytest.fixture(scope="session")
def tiny():
    """The text of a suite that runs in half a second: two defenses, two attacks, one claim, 40 replicas, no trials."""
    return TINY


@pytest.fixture
def suite_file(tmp_path):
    """(old text, new text, ...) -> the path of the small suite with these replacements.

    ``text``: another suite's text; where fields of ``suite_text`` are given too, the tables below its federation.
    """
    numbers = itertools.count()

    def write(*changes, text=TINY, **federation):
        text = suite_text(text, **federation) if federation else text
        for old, new in zip(changes[::2], changes[1::2], strict=True):
            assert old in text, f"the suite holds no {old!r}"
            text = text.replace(old, new)
        path = tmp_path / f"suite{next(numbers)}.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """(source) -> the name of a module of one's own that can be imported; forgotten after the test."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    numbers, written = itertools.count(), []

    def write(source, *, name=None):
        name = name or f"own_{folder.parent.name}_{next(numbers)}"
        (folder / f"{name}.py").write_text(source, encoding="utf-8")
        written.append(name)
        sys.modules.pop(name, None)
        return name

    yield write
    for name in written:
        sys.modules.pop(name, None)


@pytest.fixture
def assay(tmp_path):
    """(suite path or name, options) -> a run in this process, without a report, in a folder of its own."""
    import fedassay

    numbers = itertools.count()

    def run(suite, **options):
        folder = tmp_path / f"run{next(numbers)}"
        return fedassay.run(
            str(suite) if isinstance(suite, Path) else suite,
            **({"jobs": 1, "report": False, "folder": folder} | options),
        )

    return run


@pytest.fixture(scope="session")
def built_once(tmp_path_factory):
    """(name, build) -> the folder that ``build(folder)`` filled, once for all processes of this session of tests."""
    base = tmp_path_factory.getbasetemp()
    # Each worker of pytest-xdist has a base folder below the one that they share.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def once(name, build):
        folder, ready, failed = (shared / f"{name}{end}" for end in ("", ".ready", ".failed"))
        try:
            folder.mkdir()  # One process alone makes it.
        except FileExistsError:
            deadline = time.monotonic() + 600
            while not ready.exists():
                assert not failed.exists(), f"{name} could not be built: see the worker that tried"
                assert time.monotonic() < deadline, f"{name} was not built in ten minutes"
                time.sleep(0.05)
            return folder
        try:
            build(folder)
        except BaseException:
            failed.touch()
            raise
        ready.touch()
        return folder

    return once


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A run of the small suite with its report. Read it, copy it, do not change it."""
    import fedassay

    place = tmp_path_factory.mktemp("finished")
    (place / "tiny.toml").write_text(TINY, encoding="utf-8")
    return fedassay.run(str(place / "tiny.toml"), jobs=1, folder=place / "run")


@pytest.fixture(scope="session")
def timeless():
    """(records) -> what must be equal in two runs: the rows as dictionaries in a fixed order, without times."""
    times = {"wall_s", "cpu_s", "peak_mem_mb"}

    def strip(records):
        rows = [record.model_dump(exclude=times) for record in records]
        return sorted(rows, key=lambda row: (row["cell_id"], row["metric"], row["record"] or 0))

    return strip


@pytest.fixture
def say(tmp_path, monkeypatch):
    """(words) -> the result of the command, given in an empty folder; nothing but an exit may come out of it."""
    from fedassay.cli.app import app
    from typer.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # The command looks for modules where it stands.

    def invoke(*words):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    return invoke


@pytest.fixture(scope="module")
def benchmark(request):
    """The script of the benchmarks' folder that the test module names as ``BENCHMARK``."""
    name = request.module.BENCHMARK
    path = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # Its dataclasses look themselves up.
    spec.loader.exec_module(module)
    return module


OWN = """\
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from fedassay.defenses.defense import Defense, Prepared
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian
from fedassay.fl.protection import Protection


class Wrong(Protection):
    def aggregate(self, received, context, state, rng):
        aggregate = super().aggregate(received, context, state, rng)
        {body}
        return aggregate


@dataclass(frozen=True, kw_only=True)
class Mine(Defense):
    def prepare(self, plan):
        return Prepared(protection=Wrong(), claims=())


@dataclass(frozen=True, kw_only=True)
class Signing(LDPGaussian):
    def prepare(self, plan):
        return Prepared(protection=Wrong(), claims=super().prepare(plan).claims)
"""


@pytest.fixture
def resolved(suite_file):
    """(old, new, ..., options) -> the resolved small suite, or the suite of this ``text``, with these changes."""

    def build(*changes, overrides=(), seed=0, extra=(), **suite):
        spec, source = load_suite(str(suite_file(*changes, **suite)), overrides=overrides)
        return resolve(spec, source, seed=seed, extra=extra)

    return build


@pytest.fixture
def planned(resolved):
    """(old, new, ..., options) -> the run plan of that resolved suite."""
    return lambda *changes, **options: plan_run(resolved(*changes, **options))


@pytest.fixture
def own_source():
    """(statements) -> the source of a module whose defenses do this in every round, before the aggregate is used.

    ``Mine`` states no claim, ``Signing`` that of LDPGaussian.
    """
    return lambda body: OWN.format(body=body)


@pytest.fixture
def own_defense(own_module, own_source):
    """(statements, module's name) -> the name of a module with the defenses of ``own_source``."""
    return lambda body, **options: own_module(own_source(body), **options)
