"""Bytes of messages whose answers are known, and of whole trainings under defenses that send little."""

from dataclasses import replace

import pytest
import torch
from fedassay.defenses.secure.distributed_discrete_gaussian import DistributedDiscreteGaussian
from fedassay.defenses.shuffling.cldp_sgd import CLDPSGD
from fedassay.defenses.shuffling.flame import FLAME
from fedassay.defenses.without_dp.gradient_pruning import GradientPruning
from fedassay.defenses.without_dp.sign import Sign
from fedassay.fl.algorithms import FedAvg, Scaffold
from fedassay.fl.engine import run_federation
from fedassay.fl.message import Message
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import TrafficRecorder, broadcast_bytes, report_bytes
from fedassay.fl.sampling import FixedSize, Poisson
from fedassay.fl.streams import Streams

DIM = 51
"""Weights of the toy task's model: 48 weights and 3 biases."""
DENSE, SPARSE, TWO = 4 * DIM, 8, 7 + 8
"""Bytes of 51 numbers of 32 bits; of one number with its index; of 51 bits with two values of 32 bits."""


def message(rows, **changes):
    values = torch.as_tensor(rows).unsqueeze(0)
    present = torch.ones(values.shape[:2], dtype=torch.bool)
    return Message(**({"values": values, "present": present, "senders": tuple(range(values.shape[1]))} | changes))


@pytest.fixture
def counted(make_task, make_plan):
    """(protection or defense, changes to the plan) -> the recorder of its training of three rounds, four clients."""

    def train(defense=None, **changes):
        task, traffic = make_task(), TrafficRecorder()
        plan = make_plan(task, **changes)
        protection = Protection() if defense is None else defense.prepare(plan).protection
        run_federation(task, plan, protection, Streams(0), recorders=[traffic])
        return traffic

    return train


@pytest.mark.parametrize(
    ("row", "bytes_of_it"),
    [
        (torch.randn(DIM), DENSE),
        (torch.randn(DIM).double(), 2 * DENSE),
        (torch.randn(DIM) * (torch.arange(DIM) % 10 == 3), 5 * SPARSE),
        (torch.where(torch.randn(DIM) > 0, 0.1, -0.1), TWO),
        # Three values: neither two-valued nor sparse.
        (torch.arange(DIM).float() % 3 - 1, 34 * SPARSE if 34 * SPARSE < DENSE else DENSE),
        (torch.zeros(DIM), 0),
        (torch.arange(DIM), 2 * DENSE),
    ],
    ids=["dense", "double", "sparse", "signs", "three values", "nothing", "int64"],
)
def test_a_report_counts_in_its_shortest_plain_encoding(row, bytes_of_it):
    assert report_bytes(message([row.tolist()], values=row[None, None])).tolist() == [bytes_of_it]


def test_a_row_whose_first_numbers_are_two_and_others_more_is_dense():
    row = torch.ones(1, 1, 200)
    row[..., 199] = 2.0
    row[..., 198] = 3.0
    assert report_bytes(message(row[0], values=row)).tolist() == [800]
    row[..., 198] = 2.0
    assert report_bytes(message(row[0], values=row)).tolist() == [200 // 8 + 8]


def test_side_arrays_count_their_type_and_those_that_are_not_sent_do_not():
    side = {"budget": torch.zeros(1, 2).double(), "flags": torch.ones(1, 2, 9).bool(), "known": torch.zeros(1, 2, 99)}
    sent = message(torch.randn(2, DIM), side=side, unsent=frozenset({"known"}))
    assert report_bytes(sent).tolist() == [DENSE + 8 + 2] * 2


def test_absent_clients_send_nothing_and_masked_words_count_their_size():
    words = torch.randint(0, 2**18, (1, 3, DIM)) * torch.tensor([1, 1, 0])[:, None]
    there = torch.tensor([[True, False, True]])
    sent = message(words[0], values=words, present=there, masked=True, word_bits=18)
    # A row of zeros is a masked word like any other: (51 * 18 + 7) // 8 bytes.
    assert report_bytes(sent).tolist() == [115, 0, 115]
    assert report_bytes(replace(sent, word_bits=None)).tolist() == [2 * DENSE, 0, 2 * DENSE]


def test_a_message_without_rows_has_no_bytes():
    assert report_bytes(message(torch.zeros(0, DIM))).tolist() == []


def test_a_plain_training_counts_four_bytes_a_number_both_ways(counted):
    found = counted()
    assert found == TrafficRecorder(rounds=3, reports=12, receipts=12, up=12 * DENSE, down=12 * DENSE)


def test_only_the_clients_of_a_round_count(counted):
    assert counted(cohort=FixedSize(2)) == TrafficRecorder(
        rounds=3, reports=6, receipts=6, up=6 * DENSE, down=6 * DENSE
    )
    some = counted(cohort=Poisson(0.4))
    assert 0 < some.reports == some.receipts < 12
    assert some.up == some.down == some.reports * DENSE


def test_scaffold_broadcasts_a_control_variate_as_large_as_the_model(counted):
    found = counted(algorithm=Scaffold(learning_rate=0.1, local_steps=2))
    assert found.down == 2 * 12 * DENSE
    assert broadcast_bytes(torch.zeros(1, DIM), {"control": torch.zeros(1, DIM)}) == 2 * DENSE


def test_pruned_signed_and_single_coordinates_are_counted_as_sent(counted):
    pruned = counted(GradientPruning(pruned=0.9))
    assert pruned.down == 12 * DENSE
    # prune() keeps 10 % of 51 numbers: 5 or 6.
    assert 12 * 5 * SPARSE <= pruned.up <= 12 * 6 * SPARSE
    signs = counted(Sign(step=0.1))
    assert signs.up == 12 * TWO
    assert (
        counted(CLDPSGD(local_epsilon=1.0), lot=FixedSize(1), algorithm=FedAvg(learning_rate=0.1, local_steps=1)).up
        == 12 * SPARSE
    )


def test_a_sampled_coordinate_counts_once_with_its_index(counted):
    """FLAME's mask of drawn coordinates is no second copy of the indices; each report has a budget of 8 bytes."""
    found = counted(FLAME(rate=0.2))
    numbers, rest = divmod(found.up - 12 * 8, SPARSE)
    assert rest == 0
    assert 12 * DIM * 0.1 < numbers < 12 * DIM * 0.3


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_secure_sum_counts_words_of_the_clients_that_did_not_drop_out(counted, dropout):
    found = counted(
        DistributedDiscreteGaussian(bits=16, dropout=dropout), algorithm=FedAvg(learning_rate=0.1, local_steps=1)
    )
    left = round(12 * (1 - dropout))
    # The broadcast reached all of them.
    assert found == TrafficRecorder(rounds=3, reports=left, receipts=12, up=left * 2 * DIM, down=12 * DENSE)
