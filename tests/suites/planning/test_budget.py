"""A budget of time: no part of a suite is left out, runs go where claims are weakest, and time alone ends an audit."""

import math
import sys
import time
from types import SimpleNamespace

import fedassay
import pytest
from fedassay.api import Silent
from fedassay.suites.config.resolve import resolve
from fedassay.suites.config.source import ConfigError, Source
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.execution import run as run_module
from fedassay.suites.execution.backend import LocalBackend
from fedassay.suites.execution.clusters import DaskBackend, RayBackend
from fedassay.suites.planning import budget as budget_module
from fedassay.suites.planning.budget import budget_seconds, in_budget, until_spent
from fedassay.suites.planning.estimate import Pilot, Times
from fedassay.suites.planning.run_plan import plan_run

NOTHING = Times(exact={}, alike={}, rests={}, runs=0)
WEAKER = "[defenses.small]\npart = 'ldp_gaussian'\nepsilon = 0.5\ndelta = 1e-5\n\n[attacks.loss]"


@pytest.fixture
def fitted(suite_file, monkeypatch):
    """(budget) -> the small suite of two claims in this budget, where a run takes 10 ms and everything else 1 s."""

    def pilot(plan):
        cells = dict.fromkeys((cell.cell_id for cell in plan.cells), 0.0)
        cells |= {block.cell.cell_id: 0.01 * block.runs for block in plan.blocks}
        return Pilot(cells=cells, rest=1.0)

    monkeypatch.setattr(budget_module, "pilot_times", pilot)
    path = suite_file("[attacks.loss]", WEAKER, "replicas = 40", "replicas = 400")

    def fit(budget, **options):
        spec, source = load_suite(str(path), overrides=("audit.trials=0",))
        return in_budget(spec, source, budget, NOTHING, **{"workers": 1, **options})

    return fit


@pytest.mark.parametrize(("words", "seconds"), [("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0)])
def test_a_budget_is_a_number_with_a_unit(words, seconds):
    assert budget_seconds(words) == seconds


@pytest.mark.parametrize(
    "words",
    ["0", "0s", "-5m", "abc", "1y", "", "10", "10 m", "nan s", "1e3s", "\N{ARABIC-INDIC DIGIT THREE}m", 600, None],
)
def test_anything_else_is_a_mistake_that_shows_what_a_budget_is(words):
    with pytest.raises(ConfigError, match=r"budget must be a time above 0 .* such as 90s, 10m or 1.5h"):
        budget_seconds(words)


def test_a_budget_below_the_minimum_is_refused_before_anything_runs(fitted):
    # An eighth of 400 runs, in two arms, of two claims at 10 ms each, and one second.
    with pytest.raises(ConfigError, match=r"budget 2s: with the fewest runs .* about 3 s on 1 worker"):
        fitted("2s")


@pytest.mark.simulations
def test_more_time_never_gives_an_audit_fewer_runs_and_the_claim_that_needs_more_gets_more(fitted):
    found = [fitted(budget).replicas for budget in ("5s", "20s", "1m", "1h")]
    for label in found[0]:
        counts = [one[label] for one in found]
        assert counts == sorted(counts)
        assert counts[0] >= 400 // 8
    enough = found[-1]
    # Epsilon 0.5 needs more runs than epsilon 4 to be refuted at twice its value.
    assert enough["small"] > enough["ldp_gaussian"] >= 400
    assert found[1]["small"] > found[1]["ldp_gaussian"]


def test_the_runs_are_expected_to_take_the_budget_at_most(fitted):
    for seconds in (5, 10, 20):
        one = fitted(f"{seconds}s")
        assert one.minimum_s <= one.expected_s <= seconds
        assert one.expected_s == pytest.approx(1 + 0.02 * sum(one.replicas.values()), rel=1e-6)
    assert seconds * 0.9 < one.expected_s


def test_twice_the_workers_do_twice_the_runs_in_the_same_time(fitted):
    one, two = fitted("9s"), fitted("5s", workers=2)
    assert one.replicas == two.replicas
    assert two.expected_s == pytest.approx(1 + (one.expected_s - 1) / 2)


@pytest.mark.parametrize(("cpus", "workers"), [({"CPU": 5.0, "memory": 1e9}, 5), ({"CPU": 0.5}, 1), ({}, 1)])
def test_a_ray_cluster_does_one_job_per_cpu(monkeypatch, cpus, workers):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(cluster_resources=lambda: cpus))
    assert RayBackend("auto", 2).at_once == workers


@pytest.mark.parametrize(("threads", "workers"), [({"a": 1, "b": 4, "c": 1}, 3), ({}, 1)])
def test_a_dask_worker_does_one_job_whatever_its_threads(threads, workers):
    backend = DaskBackend("tcp://host:8786", 2)
    backend._client = SimpleNamespace(nthreads=lambda: threads)
    assert backend.at_once == workers


def test_a_run_counts_the_workers_of_its_backend(suite_file, tmp_path, monkeypatch):
    given = {}

    def refuse(*_, **options):
        given.update(options)
        raise ConfigError("enough")

    monkeypatch.setattr(budget_module, "in_budget", refuse)
    with pytest.raises(ConfigError, match="enough"):
        fedassay.run(str(suite_file()), jobs=3, folder=tmp_path / "run", budget="10m")
    assert given["workers"] == 3


def test_a_resumed_run_has_the_budget_less_what_follows_its_runs(fitted):
    plan = plan_run(resolve(fitted("20s").spec, Source("suite"), seed=0))
    before = time.monotonic()
    until = until_spent(plan, "10s", NOTHING, workers=1)
    # Half of the second that a run takes beyond its cells.
    assert before + 9.5 <= until <= time.monotonic() + 9.5


def test_a_run_whose_audits_do_not_stop_early_is_not_resumed_with_a_budget(suite_file, tmp_path):
    spec, source = load_suite(str(suite_file()))
    run_module.launch(spec, source, folder=tmp_path / "run")
    with pytest.raises(ConfigError, match="budget 10m: the audits of this run must make all their runs"):
        fedassay.resume(tmp_path / "run", jobs=1, report=False, budget="10m")


@pytest.mark.simulations
def test_a_resumed_run_begins_no_stage_after_its_budget_and_keeps_its_numbers_of_runs(suite_file, tmp_path, timeless):
    spec, source = load_suite(str(suite_file("replicas = 40", "replicas = 400\nsequential = true")))
    for name in ("resumed", "whole"):
        begun = run_module.launch(spec, source, folder=tmp_path / name, until=time.monotonic())
    run_module.carry_out(begun, Silent(), LocalBackend(1))
    resumed = fedassay.resume(tmp_path / "resumed", jobs=1, report=False, budget="0.001s")
    assert timeless(resumed.records) == timeless(begun.store.records())
    assert "the time budget (--budget) was used up" in next(
        row.stopped for row in resumed.records if row.role == "audit"
    )


@pytest.mark.simulations
def test_an_audit_whose_time_is_over_says_so_and_is_judged_by_the_runs_that_it_made(suite_file, tmp_path, timeless):
    path = suite_file("replicas = 40", "replicas = 400\nsequential = true")
    spec, source = load_suite(str(path))
    begun = run_module.launch(spec, source, folder=tmp_path / "run", until=time.monotonic())
    run_module.carry_out(begun, Silent(), LocalBackend(1))
    row = next(row for row in begun.store.records() if row.role == "audit")
    assert row.n == 400 // 8
    assert "the time budget (--budget) was used up" in row.stopped
    assert row.verdict in ("UNDERPOWERED", "NOT_REFUTED")
    # What it could have shown is that of the look that it reached: fewer runs certify less.
    whole = fedassay.run(str(path), jobs=1, folder=tmp_path / "whole", report=False)
    full = next(row for row in whole.records if row.role == "audit")
    assert row.ceiling < full.ceiling
    assert math.inf if row.detectable is None else row.detectable >= (full.detectable or 0.0)
    # A resumed run keeps what was recorded.
    resumed = fedassay.resume(tmp_path / "run", jobs=1, report=False)
    assert timeless(resumed.records) == timeless(begun.store.records())
