"""An audit method is one file: planner, run, measurement, verdict and plan text use it without any other change."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fedassay.suites import audits
from fedassay.suites.audits.audit_method import BlockMethod, audit_methods, chosen_method
from fedassay.suites.config import part_files
from fedassay.suites.config.tables.key_types import DESIGNS
from fedassay.suites.planning.plan_text import plan_lines
from fedassay.suites.results.store import Store

TOY = '''\
"""Toy method: guesses that one number in ten comes from a run with the canary."""

import numpy as np
from fedassay.audit.estimators.clopper_pearson import clopper_pearson
from fedassay.audit.evidence import MembershipScores, Setting
from fedassay.audit.finding import Weakness
from fedassay.audit.threshold import FixedThreshold
from fedassay.suites.audits.audit_method import BlockMethod, Reading


class Toy(BlockMethod):
    attack = "toy"
    precedence = -1

    def covers(self, request):
        return request.claim.unit == "report"

    def plan_text(self, audit):
        return [f"{sum(block.replicas for block in audit.blocks)} tosses", "a second line"]

    def run(self, job, store):
        arrays = {"member": np.full(job.replicas, MEMBER), "nonmember": np.zeros(job.replicas)}
        artifact = store.save_arrays(job.cell.cell_id, "tosses", arrays)
        return {"metric": "tosses", "value": job.replicas, "n": job.replicas, "unit": "tosses", "artifact": artifact}

    def measure(self, audit, store):
        (block,) = audit.blocks
        arrays = store.load_arrays(store.cell_records(block.cell.cell_id)[0].artifact)
        scores = MembershipScores(arrays["member"], arrays["nonmember"], Setting.claimed(audit.claim))
        levels = {"delta": audit.claim.delta, "alpha": audit.alpha, "epsilon": audit.claim.epsilon}
        measured = clopper_pearson(scores, threshold=FixedThreshold(0.5), witness="a toy", **levels)
        return Reading(measurement=measured, scores=scores)

    def checks(self, audit, store):
        return ()

    def trials_of_view(self, audit):
        return ()

    def weakness(self, audit, measured, checks):
        return Weakness(unseen="toys show nothing")


METHOD = Toy()
'''


@pytest.fixture
def add_toy(tmp_path):
    """(score of a run with the canary) -> drops the toy's file into a folder of the audit methods' package."""

    def add(member):
        folder = tmp_path / "more_methods"
        folder.mkdir()
        (folder / "toy.py").write_text(TOY.replace("MEMBER", member), encoding="utf-8")
        audits.__path__.append(str(folder))
        audit_methods.cache_clear()

    before = list(audits.__path__)
    yield add
    audits.__path__[:] = before
    audit_methods.cache_clear()
    sys.modules.pop(f"{audits.__name__}.toy", None)


@pytest.fixture
def planned(planned):
    """() -> the plan of the small suite with a thousand replicas: one claim about reports."""
    return lambda: planned("replicas = 40", "replicas = 1000")


@pytest.mark.parametrize(
    ("member", "verdict", "reason"),
    [("1.0", "REFUTED", "eps >= "), ("0.0", "UNDERPOWERED", "toys show nothing; evidence: a toy")],
)
def test_a_file_adds_a_method_to_plan_run_verdict_and_plan_text(add_toy, planned, tmp_path, member, verdict, reason):
    add_toy(member)
    plan = planned()
    (audit,), (block,) = plan.audits, plan.blocks
    assert (audit.method.name, block.method.name, audit.cell.facts["attack"]) == ("toy", "toy", "toy")
    lines = plan_lines(plan)
    assert lines[lines.index("       a second line") - 1].endswith(": 1000 tosses")
    store = Store.create(tmp_path / "run", {}, [])
    assert block.run(store, frozenset()) == []
    assert [row.metric for row in store.cell_records(block.cell.cell_id)] == ["tosses"]
    assert audit.run(store, frozenset()) == []
    (row,) = store.cell_records(audit.cell.cell_id)
    assert (row.verdict, row.n) == (verdict, 1000)
    assert row.reason.startswith(reason)


def test_without_the_file_the_planted_canary_audits_the_claim(planned):
    (audit,) = planned().audits
    assert audit.method.name == "planted_canary"


def test_every_method_has_a_file_and_a_precedence_of_its_own():
    methods = audit_methods()
    files = Path(audits.__file__).parent.glob("*.py")
    assert {file.stem for file in files if "\nMETHOD = " in file.read_text(encoding="utf-8")} == set(methods)
    assert len({method.precedence for method in methods.values()}) == len(methods)


def test_a_method_brings_the_design_that_chooses_it(tmp_path, monkeypatch):
    package = tmp_path / "audits"
    package.mkdir()
    toy = TOY.replace("precedence = -1\n", 'precedence = -1\n    design = "tosses"\n')
    (package / "toy.py").write_text(toy, encoding="utf-8")
    monkeypatch.setattr(part_files.resources, "files", lambda package: tmp_path)
    assert list(part_files.texts_of("design", "audits")) == ["tosses"]
    assert {method.design for method in audit_methods().values() if isinstance(method, BlockMethod)} == set(DESIGNS)


def test_every_canary_of_a_suite_is_covered_by_exactly_one_method_that_the_suite_chooses(planned):
    (block,) = planned().blocks
    for canary in ("dirac", "random", "mislabelled", "crafted"):
        request = replace(block, audit=block.audit.model_copy(update={"canary": canary}))
        chosen = [
            method.name
            for method in audit_methods().values()
            if isinstance(method, BlockMethod) and method.chosen_by_suite and method.covers(request)
        ]
        assert chosen == [chosen_method(request)[0].name]
