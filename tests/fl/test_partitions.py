"""Partitions: disjoint, covering, of the promised sizes and skew."""

import numpy as np
import pytest
from fedassay.fl.partitions import IID, KNOWN_PARTITIONS, ByOwner, Dirichlet, OneSample, Shards, partition_from
from fedassay.fl.streams import Streams
from hypothesis import given, settings
from hypothesis import strategies as st

_labels = st.lists(st.integers(0, 9), min_size=1, max_size=120).map(lambda labels: np.array(labels, dtype=np.int64))
_alphas = st.sampled_from([1e-9, 1e-3, 0.1, 1.0, 100.0, 1e9])
_properties = settings(derandomize=True, deadline=None, max_examples=60)


def _rng(replicate=0):
    return Streams(0).generator("partition", replicate=replicate)


def _assert_deals_all(parts, samples):
    assert sorted(np.concatenate(parts).tolist()) == list(range(samples))
    assert all(len(part) >= 1 and (np.diff(part) > 0).all() for part in parts)


@pytest.mark.simulations
@_properties
@given(labels=_labels, data=st.data())
def test_iid_deals_each_sample_once_and_sizes_differ_by_one_at_most(labels, data):
    clients = data.draw(st.integers(1, len(labels)))
    parts = IID().split(labels, clients, _rng())
    _assert_deals_all(parts, len(labels))
    sizes = [len(part) for part in parts]
    assert len(sizes) == clients
    assert max(sizes) - min(sizes) <= 1


def _naive_dirichlet(labels, alpha, clients, rng):
    """Looks through all samples for each client, and through all clients for each that has none."""
    holder = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        samples = rng.permutation(np.flatnonzero(labels == label))
        cuts = np.rint(np.cumsum(rng.dirichlet(np.full(clients, alpha))) * len(samples)).astype(np.int64)
        holder[samples] = np.searchsorted(cuts[:-1], np.arange(len(samples)), side="right")
    for client in np.flatnonzero(np.bincount(holder, minlength=clients) == 0):
        richest = np.argmax(np.bincount(holder, minlength=clients))
        holder[rng.choice(np.flatnonzero(holder == richest))] = client
    return [np.flatnonzero(holder == client).tolist() for client in range(clients)]


@_properties
@given(labels=_labels, alpha=_alphas, replicate=st.integers(0, 5), data=st.data())
def test_dirichlet_deals_as_the_naive_version_does(labels, alpha, replicate, data):
    clients = data.draw(st.integers(1, len(labels)))
    parts = Dirichlet(alpha=alpha).split(labels, clients, _rng(replicate))
    assert [part.tolist() for part in parts] == _naive_dirichlet(labels, alpha, clients, _rng(replicate))


@_properties
@given(labels=_labels, data=st.data())
def test_by_owner_deals_as_the_naive_version_does(labels, data):
    """Owners need not be numbered from 0 without gaps."""
    owners = labels * labels + 3
    clients = data.draw(st.integers(1, len(np.unique(owners))))
    hands = np.array_split(_rng().permutation(np.unique(owners)), clients)
    naive = [np.flatnonzero(np.isin(owners, hand)).tolist() for hand in hands]
    assert [part.tolist() for part in ByOwner().split(owners, clients, _rng())] == naive


@_properties
@given(labels=_labels, data=st.data())
def test_shards_deal_each_sample_once_in_hands_of_equal_size(labels, data):
    clients = data.draw(st.integers(1, len(labels)))
    per_client = data.draw(st.integers(1, len(labels) // clients))
    parts = Shards(per_client=per_client).split(labels, clients, _rng())
    _assert_deals_all(parts, len(labels))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= per_client


def test_one_shard_each_is_the_sorted_labels_cut_and_dealt():
    labels = np.array([2, 1, 0, 2, 1, 0])
    parts = Shards(per_client=1).split(labels, 3, _rng())
    assert {tuple(part.tolist()) for part in parts} == {(2, 5), (1, 4), (0, 3)}


def test_adap_dpfl_fragments_are_150_samples_of_mnist_size():
    labels = np.repeat(np.arange(10), 6000)
    parts = Shards(per_client=40).split(labels, 10, _rng())
    assert [len(part) for part in parts] == [6000] * 10
    # 400 fragments of 150 samples: each label fills 40 of them, so each client's count of a label is a multiple of 150.
    assert all((np.bincount(labels[part], minlength=10) % 150 == 0).all() for part in parts)


def test_by_owner_deals_whole_owners_and_as_many_to_each_client():
    owners = np.array([7, 3, 7, 9, 3, 5, 7, 1, 5])
    parts = ByOwner().split(owners, 2, _rng())
    whose = [set(owners[part].tolist()) for part in parts]
    assert [len(names) for names in whose] == [3, 2]
    assert not whose[0] & whose[1]
    assert np.sort(np.concatenate(parts)).tolist() == list(range(9))
    assert [set(owners[part].tolist()) for part in ByOwner().split(owners, 2, _rng(1))] != whose
    with pytest.raises(ValueError, match="clients must be at most the number of owners, got 6 > 5"):
        ByOwner().split(owners, 6, _rng())


@pytest.mark.parametrize("partition", [IID(), Dirichlet(alpha=1.0), OneSample()])
def test_the_first_sample_goes_to_either_of_two_clients_equally_often(partition):
    labels = np.zeros(2 if partition == OneSample() else 100, dtype=np.int64)
    with_first_client = [0 in partition.split(labels, 2, _rng(replicate))[0] for replicate in range(400)]
    # Four standard deviations: one choice of streams in 16,000 would fail.
    assert np.mean(with_first_client) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("partition", "samples", "together"),
    [
        (Shards(per_client=1), 100, 49 / 99),
        (Dirichlet(alpha=1e9), 100, 49 / 99),
        # One client gets all six, the other one is fed one of them.
        (Dirichlet(alpha=1e-6), 6, 4 / 6),
    ],
)
def test_neighbours_of_one_label_are_together_no_more_often_than_any_two(partition, samples, together):
    """What makes outsiders of a label stand in for members of it: fragments in stored order hold whole writers."""
    labels = np.zeros(samples, dtype=np.int64)
    hands = [partition.split(labels, 2, _rng(replicate))[0] for replicate in range(400)]
    # Four standard deviations: one choice of streams in 16,000 would fail.
    assert np.mean([(0 in hand) == (1 in hand) for hand in hands]) == pytest.approx(together, abs=0.1)


def test_each_partition_states_which_outsiders_are_exchangeable():
    kinds = {kind: partition.exchangeable for kind, partition in KNOWN_PARTITIONS.items()}
    assert kinds == {
        "iid": "all",
        "one_sample": "all",
        "dirichlet": "label",
        "shards": "label",
        "by_owner": "none",
    }


def test_specifications_of_suite_files_give_the_partitions():
    assert partition_from("iid") == IID()
    assert partition_from("one_sample") == OneSample()
    assert partition_from("by_owner") == ByOwner()
    assert partition_from({"kind": "dirichlet", "alpha": 0.5}) == Dirichlet(alpha=0.5)
    assert partition_from({"kind": "shards", "per_client": 2}) == Shards(per_client=2)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("dirichle", "unknown partition 'dirichle'; known: dirichlet, "),
        ({"kind": "shard", "per_client": 2}, "unknown partition 'shard'; known: shards, "),
        ({"kind": "dirichlet", "alfa": 0.5}, "dirichlet has no option 'alfa'; it has: alpha"),
        ({"kind": "iid", "alpha": 0.5}, "iid has no option 'alpha'; it has: none"),
        ("dirichlet", "dirichlet needs a value for alpha"),
        ({"alpha": 0.5}, "table of the partition needs a name as its key kind"),
        ({"kind": "dirichlet", "alpha": 0}, "alpha must be a number > 0, got 0"),
        ({"kind": "dirichlet", "alpha": 2e9}, "alpha .*must be at most 1e9, got 2000000000.0"),
        ({"kind": "shards", "per_client": 0}, "per_client .*must be a whole number >= 1, got 0"),
    ],
)
def test_a_bad_specification_is_named(spec, message):
    with pytest.raises(ValueError, match=message):
        partition_from(spec)


@pytest.mark.parametrize("partition", [IID(), Dirichlet(alpha=1.0), Shards(per_client=1), OneSample()])
def test_more_clients_than_samples_is_an_error(partition):
    with pytest.raises(ValueError, match="at most the number of samples, got 4 > 3"):
        partition.split(np.arange(3), 4, _rng())
    with pytest.raises(ValueError, match="clients must be >= 1, got 0"):
        partition.split(np.arange(3), 0, _rng())


def test_too_many_fragments_are_counted_in_the_error():
    with pytest.raises(ValueError, match=r"fragments \(2 clients \* 3 per_client\) must be at most .*got 6 > 5"):
        Shards(per_client=3).split(np.arange(5), 2, _rng())


def test_labels_that_are_no_integers_are_refused():
    with pytest.raises(ValueError, match=r"labels must be an integer array .*got shape \(3,\) of float64"):
        IID().split(np.zeros(3), 1, _rng())
    with pytest.raises(ValueError, match=r"got shape \(2, 2\) of int64"):
        IID().split(np.zeros((2, 2), dtype=np.int64), 1, _rng())
