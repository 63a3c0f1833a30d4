"""The cells of a job: what is finished is not computed again, and a failure leaves the other cells."""

from fedassay.suites.attacking.finished_cells import finish_job
from fedassay.suites.results.cell import Cell
from fedassay.suites.results.store import Store
from row_facts import FACTS

CELLS = tuple(Cell(cell_id=name, facts=FACTS | {"seed": 0}) for name in "abc")


def failing(clock=None):
    raise ValueError("it fails")


def works_of(trained, failed=()):
    """The trained model, a number, is the value of each row."""
    for cell in CELLS:
        row = cell.record(metric="m", value=trained)
        yield cell, failing if cell.cell_id in failed else lambda row=row: [row]


def statuses(store):
    return {cell.cell_id: [row.status for row in store.cell_records(cell.cell_id)] for cell in CELLS}


def test_only_cells_that_are_not_finished_are_stored(tmp_path):
    store = Store(tmp_path)
    assert finish_job(CELLS, store, frozenset("b"), lambda clock: 2.0, works_of) == []
    assert statuses(store) == {"a": ["ok"], "b": [], "c": ["ok"]}
    assert store.cell_records("c")[0].value == 2.0


def test_nothing_is_trained_where_all_cells_are_finished(tmp_path):
    assert finish_job(CELLS, Store(tmp_path), frozenset("abc"), failing, works_of) == []
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_training_that_fails_fails_the_cells_that_are_not_finished(tmp_path):
    store = Store(tmp_path)
    assert len(finish_job(CELLS, store, frozenset("a"), failing, works_of)) == 2
    assert statuses(store) == {"a": [], "b": ["failed"], "c": ["failed"]}


def test_a_cell_that_fails_leaves_the_others(tmp_path):
    store = Store(tmp_path)
    (failed,) = finish_job(CELLS, store, frozenset(), lambda clock: 1.0, lambda trained: works_of(trained, failed="b"))
    assert "it fails" in failed
    assert statuses(store) == {"a": ["ok"], "b": ["failed"], "c": ["ok"]}


def test_the_time_of_the_training_counts_to_the_first_cell_that_is_stored(tmp_path):
    def slow(clock):
        clock.wall -= 1000.0
        return 1.0

    store = Store(tmp_path)
    finish_job(CELLS, store, frozenset("a"), slow, works_of)
    assert store.cell_records("b")[0].wall_s >= 1000.0
    assert store.cell_records("c")[0].wall_s < 1000.0
