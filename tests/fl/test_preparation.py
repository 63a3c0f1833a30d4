"""A preparation of data: what it may return, which rows clients hold then, and from which model training starts."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.partitions import IID
from fedassay.fl.preparation import Pipeline, Preparation, PreparedData, check_options, leaves_of, preparation_from
from fedassay.fl.streams import Streams


def table(rows=40, features=4):
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.normal(size=(rows + 10, 1, 1, features)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(3, size=rows + 10))
    train, test = (images[:rows], labels[:rows]), (images[rows:], labels[rows:])
    return Dataset.of_parts("table", train, test, classes=3, rows=True)


RECORDS = table()


def given(**values):
    return PreparedData(dataset=RECORDS, **values)


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"dataset": "table.csv"}, TypeError, "dataset must be a Dataset, got str"),
        ({"initial": [1.0]}, TypeError, "initial must be a tensor of float32, got list"),
        ({"initial": torch.zeros(3, dtype=torch.int64)}, TypeError, "initial must be a tensor of float32"),
        ({"initial": torch.zeros(2, 2)}, ValueError, r"initial must be a vector \(d,\) .* \(2, 2\)"),
        ({"initial": torch.tensor([float("nan")])}, ValueError, "initial must be finite"),
        ({"initial": {"w": torch.tensor([float("inf")])}}, ValueError, r"initial\['w'\] must be finite"),
        ({"initial": {1: torch.zeros(1)}}, TypeError, "initial must have texts as names"),
        ({"algorithm": [("learning_rate", 0.1)]}, TypeError, "algorithm must be a dictionary"),
        ({"algorithm": {"learning_rate": float("nan")}}, ValueError, "algorithm.learning_rate must be finite"),
        ({"published": {"mean": float("nan")}}, ValueError, "mean must be finite"),
        ({"published": {"means": np.array([1.0, np.inf])}}, ValueError, "means must be finite"),
        ({"published": {"model": object()}}, TypeError, "model must be a number, a text, an array"),
        ({"published": {3: 1.0}}, TypeError, "published must have texts as names, got 3"),
        ({"published": 3.0}, TypeError, "published must be a dictionary"),
        ({"parts": 3}, TypeError, "parts must be a list"),
        ({"parts": []}, ValueError, "parts must list the rows of one client at least"),
        ({"parts": [[0], []]}, ValueError, "one row or more of each client"),
        ({"parts": [[0.5]]}, ValueError, "whole numbers"),
        ({"parts": [[True, False]]}, ValueError, "whole numbers"),
        ({"parts": [[0, 40]]}, ValueError, r"rows in 0\.\.39, got 0 to 40"),
        ({"parts": [[0, -1]]}, ValueError, r"rows in 0\.\.39, got -1 to 0"),
        ({"parts": [[0, 1], [1, 2]]}, ValueError, "each row to one client at most"),
    ],
)
def test_what_a_preparation_must_not_return_is_refused_by_name(values, error, words):
    with pytest.raises(error, match=words):
        PreparedData(**{"dataset": RECORDS, **values})


def test_later_changes_of_what_was_returned_change_nothing():
    mean, initial, options = np.zeros(2), torch.zeros(3), {"learning_rate": 0.1}
    found = given(initial=initial, algorithm=options, published={"mean": mean})
    mean += 1
    initial += 1
    options["learning_rate"] = 9.0
    assert found.published["mean"].tolist() == [0.0, 0.0]
    assert found.initial.tolist() == [0.0, 0.0, 0.0]
    assert dict(found.algorithm) == {"learning_rate": 0.1}
    with pytest.raises(TypeError):
        found.published["mean"] = 1.0


def test_published_values_become_arrays_of_numbers_or_texts_by_name():
    found = leaves_of(
        "published",
        {"a": 1, "b": [1, 2.5], "c": ["x", "y"], "d": {"e": torch.ones(2, 2)}, "f": [1, "x"], "g": {3, 2}, "h": None},
    )
    assert {name: leaf.tolist() for name, leaf in found.items()} == {
        "a": 1.0,
        "b": [1.0, 2.5],
        "c": ["x", "y"],
        "d.e": [[1.0, 1.0], [1.0, 1.0]],
        "f[0]": 1.0,
        "f[1]": "x",
        "g": [2.0, 3.0],
        "h": "None",
    }


@dataclass(frozen=True, kw_only=True)
class Given(Preparation):
    """Returns what the test gives, or calls it with the records and the generator."""

    made: object = field(default=None, compare=False)

    def prepare(self, records, rng):
        return self.made(records, rng) if callable(self.made) else self.made


def pipeline(made, **settings):
    facts = {"records": RECORDS, "model": "logistic", "partition": IID(), "clients": 4, "streams": Streams(0)}
    return Pipeline(preparation=Given(made=made), **(facts | settings))


def run(made, **settings):
    found = pipeline(made, **settings)
    return found.task(found.draw(found.records).data)


def shifted(records, rng):
    return PreparedData(dataset=replace(records, train_images=records.train_images + 1))


def test_clients_hold_the_records_that_the_partition_deals_of_the_unprepared_data():
    plain, moved = run(lambda records, rng: PreparedData(dataset=records)), run(shifted)
    assert plain.sizes == moved.sizes == (9, 9, 9, 9)
    for one, other in zip(plain.parts, moved.parts, strict=True):
        assert torch.equal(plain.images[one] + 1, moved.images[other])
    assert len(moved.outsider_labels) == 4


def test_rows_that_are_no_records_are_dealt_as_they_are():
    def half(records, rng):
        return PreparedData(
            dataset=replace(records, train_images=records.train_images[:20], train_labels=records.train_labels[:20])
        )

    assert run(half).sizes == (5, 5, 4, 4)


def test_parts_replace_the_partition():
    task = run(lambda records, rng: given(parts=[[3, 2], [7], [9, 8, 5], [0]]))
    assert task.sizes == (2, 1, 3, 1)
    assert torch.equal(task.images[task.parts[2]], RECORDS.train_images[[9, 8, 5]])
    assert len(task.outsider_labels) == 33
    assert task.exchangeable == "none"
    with pytest.raises(ValueError, match="parts must list the 4 clients, got 1"):
        run(lambda records, rng: given(parts=[[3, 2]]))
    with pytest.raises(ValueError, match="held_out must be 0"):
        run(lambda records, rng: given(parts=[[0], [1], [2], [3]]), held_out=1)


def test_held_out_clients_hold_rows_that_nobody_trains_on():
    task = run(shifted, held_out=1)
    assert len(task.held_out) == 1
    assert task.clients == 4


def test_training_starts_from_the_given_model():
    weights = torch.arange(15.0)
    task = run(lambda records, rng: given(initial=weights))
    assert task.initial(Streams(0)).tolist() == weights.tolist()
    assert task.with_inert(2).initial(Streams(0)).tolist() == [*weights.tolist(), 0.0, 0.0]
    layout = task.network.layout
    named = run(lambda records, rng: given(initial=layout.unflatten(weights)))
    assert named.initial(Streams(0)).tolist() == weights.tolist()
    with pytest.raises(ValueError, match=r"initial must hold the 15 weights of model logistic, got \(3,\)"):
        run(lambda records, rng: given(initial=torch.zeros(3)))
    with pytest.raises(ValueError, match="layers must be"):
        run(lambda records, rng: given(initial={"w": torch.zeros(3)}))
    # An audit's other model is drawn.
    assert run(lambda records, rng: given(initial=torch.zeros(3)), own_model=False).first_model is None


def test_options_of_the_algorithm_are_those_that_it_has():
    options = {"name": "fedsgd", "learning_rate": 1.0}
    assert check_options(options, {}) == options
    assert check_options(options, {"learning_rate": 0.3}) == {"name": "fedsgd", "learning_rate": 0.3}
    with pytest.raises(ValueError, match=r"preparation: algorithm: .*no option 'rate'"):
        check_options(options, {"rate": 0.3})


def test_errors_name_the_preparation_and_the_step():
    def fails(records, rng):
        raise KeyError("age")

    def in_place(records, rng):
        records.train_images.add_(1)
        return PreparedData(dataset=records)

    with pytest.raises(ValueError, match=r"preparation Given.prepare: KeyError: 'age' \(test_preparation.py, line"):
        run(fails)
    with pytest.raises(ValueError, match=r"preparation Given.prepare: TypeError: must return PreparedData.*NoneType"):
        run(None)
    with pytest.raises(ValueError, match=r"Given.prepare changed the records in place"):
        run(in_place, records=table())


def test_equal_numbers_give_equal_draws_and_what_draws_nothing_is_known():
    def noisy(records, rng):
        return PreparedData(dataset=records, published={"noise": rng.normal(), "global": float(torch.rand(()))})

    found = pipeline(noisy)
    one, same, other = (found.draw(RECORDS, number=number) for number in (1, 1, 2))
    assert one.random
    assert dict(one.data.published) == dict(same.data.published)
    assert one.data.published["noise"] != other.data.published["noise"]
    assert one.data.published["global"] != other.data.published["global"]
    assert not pipeline(shifted).draw(RECORDS).random


def test_a_suite_names_a_preparation_by_its_path():
    with pytest.raises(ValueError, match="unknown preparation 'scaled'"):
        preparation_from("scaled")
    with pytest.raises(ValueError, match="must have prepare, finish"):
        preparation_from("collections:OrderedDict")
