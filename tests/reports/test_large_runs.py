"""The work of a gate and of a page grows with the rows of a run, not with their square: counted, not timed."""

import sys
import tracemalloc

import numpy as np
import pytest
from fedassay.reports.reading.membership import memberships
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.reports.regression.gated_run import judge_folder
from fedassay.reports.tables.answers import answers
from fedassay.reports.tables.sections import sections

FEW, TIMES, ATTACKS = 8, 6, 6
SLACK = 2
"""Largest growth of the work beyond that of the rows; work that is quadratic has ``TIMES``."""


def lines_run(action):
    """The number of lines of Python that ``action`` runs, which is the same each time."""
    count = 0

    def trace(_frame, event, _argument):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


@pytest.fixture
def run_of(make_run, make_claim):
    """(defenses) -> a run of so many, each with a claim, its audit, attacks outside the claim and a training."""

    def make(defenses):
        run = make_run(f"run-{defenses}")
        for number in range(defenses):
            name = f"defense_{number}"
            signed = run.sign(name, make_claim(4.0 + number / 1000, mu=0.9))
            run.verdict_row(signed, defense=name, observer=str(signed.observer), verdict="NOT_REFUTED", n=100)
            run.accuracy_row(defense=name, value=0.9)
            for attack in range(ATTACKS):
                run.row(defense=name, attack=f"attack_{attack}", observer="uploads", value=0.7)
        run.save()
        return run.path

    return make


@pytest.mark.parametrize(
    "action",
    [
        lambda path: judge_folder(RunFolder.read(path)),
        lambda path: answers(RunFolder.read(path)),
        lambda path: sections(RunFolder.read(path)),
    ],
    ids=["gate", "answers", "tables"],
)
def test_six_times_the_defenses_take_at_most_twice_six_times_the_work(run_of, action):
    few, many = run_of(FEW), run_of(FEW * TIMES)
    action(few)  # Imports and results that are kept between calls.
    assert lines_run(lambda: action(many)) <= SLACK * TIMES * lines_run(lambda: action(few))


def test_scores_of_many_seeds_are_in_memory_once(run_maker, add_membership):
    seeds, scores = 20, 4000
    rng = np.random.default_rng(0)
    for seed in range(seeds):
        add_membership(run_maker, "none", seed=seed, member=rng.normal(size=scores), nonmember=rng.normal(size=scores))
    folder = run_maker.write()
    tracemalloc.start()
    found = memberships(folder)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A number of eight bytes for each score and one for its run.
    assert len(found) == 1
    assert kept < 1.2 * 2 * seeds * scores * (8 + 8)
