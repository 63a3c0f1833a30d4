"""A data set that logs what was read."""

import pytest
import torch
from fedassay.adapters.logged_data import LoggedData
from torch.utils.data import DataLoader, TensorDataset

DATA = TensorDataset(torch.arange(5.0))


def test_indices_are_kept_in_the_order_of_reading():
    logged = LoggedData(DATA)
    list(DataLoader(logged, batch_size=2, sampler=[3, 1, 4]))
    assert logged.last(2) == (1, 4)
    assert (logged.last(2), logged.unread) == (None, 1)
    logged.begin()
    assert logged.unread == 0


def test_negative_indices_are_those_of_the_records_and_others_are_refused():
    logged = LoggedData(DATA)
    assert logged[-1][0] == 4
    assert logged.last(1) == (4,)
    with pytest.raises(IndexError, match="index 5 is out of range for 5 records"):
        logged[5]


def test_planted_units_have_the_last_indices_and_the_number_of_records_stays():
    logged = LoggedData(DATA, planted=1)
    assert (len(logged), list(logged.units), logged[4][0]) == (5, [4], 0)
    assert LoggedData(DATA)[4][0] == 4
    with pytest.raises(ValueError, match="the number of canaries must be below the number of records, 5, got 5"):
        LoggedData(DATA, planted=5)


def test_other_attributes_are_those_of_the_data():
    assert LoggedData(DATA).tensors is DATA.tensors
    assert not hasattr(LoggedData(DATA), "__getitems__")


def test_batches_that_workers_read_ahead_are_taken_in_order_and_in_parts():
    logged = LoggedData(DATA)
    loader = DataLoader(logged, batch_size=3, sampler=[3, 1, 4, 0], num_workers=1)
    logged.follow(loader)
    batches = iter(loader)
    next(batches)
    assert (logged.last(2), logged.last(1), logged.unread) == ((3, 1), (4,), 0)
    next(batches)
    assert logged.last(2) is None
    assert logged.last(1) is None, "the order is lost"


def test_records_of_other_places_stand_in_attributes_too():
    logged = LoggedData(DATA, places=[4, 4, 0])
    assert (len(logged), logged[0][0], logged[2][0]) == (3, 4, 0)
    assert logged.tensors[0].tolist() == [4, 4, 0]
    held = type("Held", (list,), {})([10, 11, 12, 13, 14])
    held.targets, held.classes, held.samples = [0, 1, 0, 1, 2], ["a", "b"], [("f", n) for n in range(5)]
    named = LoggedData(held, places=[4, 1])
    assert (named.targets, named.classes, named.samples) == ([2, 1], ["a", "b"], [("f", 4), ("f", 1)])
    far = LoggedData(DATA, places=[4, 1], stretched=(0,))
    assert (far[0][0], far[1][0], far.tensors[0].tolist(), DATA.tensors[0][4]) == (32, 1, [32, 1], 4)


def test_what_a_training_reads_and_sets_is_of_its_data():
    class Images(TensorDataset):
        data, transform = torch.arange(5.0) + 10, None

    own = Images(torch.arange(5.0))
    logged = LoggedData(own)
    logged.transform = abs
    assert (own.transform, logged.data[1]) == (abs, 11)
    assert logged[1:3][0].tolist() == [1, 2]
    assert logged.last(2) == (1, 2)
    assert LoggedData(own, places=[4, 3, 0])[1:][0].tolist() == [3, 0]


def test_stretched_records_are_stretched_in_slices_too():
    held = TensorDataset(torch.arange(5.0), torch.arange(5))
    far = LoggedData(held, places=[4, 1, 2], stretched=(0,))
    assert [one.tolist() for one in far[:2]] == [[32, 1], [4, 1]]
    assert LoggedData([1.0, 2.0], stretched=(1,))[:] == [1.0, 16.0]


def test_records_of_another_data_set_are_known_by_their_numbers_or_their_places():
    def read(numbers, held=(0.0, 1.0, 1.0, 3.0)):
        logged = LoggedData(TensorDataset(torch.tensor(held)))
        loader = DataLoader(TensorDataset(numbers(logged[:][0])), batch_size=4)
        logged.follow(loader)
        list(loader)
        return logged.last(4), logged.placed, logged.misplaced

    assert read(lambda x: x, (0.0, 1.0, 2.0, 3.0)) == ((0, 1, 2, 3), False, False)
    assert read(lambda x: x.flip(0), (0.0, 1.0, 2.0, 3.0)) == ((3, 2, 1, 0), False, False)
    assert read(lambda x: x + 10) == ((0, 1, 2, 3), True, False)
    # Equal records are known by their places alone, and these are not theirs.
    assert read(lambda x: x.flip(0))[1:] == (True, True)
