"""Recorder: each observer gets its rung of the ladder and no more, as copies.

Bytes of messages whose answers are known, and of whole trainings under defenses that send little.
"""

from dataclasses import replace

import pytest
import torch
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.secure.distributed_discrete_gaussian import DistributedDiscreteGaussian
from fedassay.defenses.shuffling.cldp_sgd import CLDPSGD
from fedassay.defenses.shuffling.flame import FLAME
from fedassay.defenses.without_dp.gradient_pruning import GradientPruning
from fedassay.defenses.without_dp.sign import Sign
from fedassay.fl.algorithms import FedAvg, Scaffold
from fedassay.fl.engine import run_federation
from fedassay.fl.message import Message
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import (
    LotRecorder,
    NumbersRecorder,
    RoundEvent,
    TrafficRecorder,
    UtilityRecorder,
    ViewRecorder,
    broadcast_bytes,
    report_bytes,
)
from fedassay.fl.sampling import FixedSize, Poisson
from fedassay.fl.streams import Streams, normal

LADDER = [UPLOADS, SHUFFLED, AGGREGATE, GLOBAL_MODELS, FINAL_MODEL]
PRESENT = torch.tensor([[True, True, False], [True, True, True]])


def event(seed=0, order=(0, 1, 2)):
    """Two replicas, three clients, four coordinates; the channel doubles the reports and puts the rows in ``order``."""
    rng = Streams(seed).generator("event")
    values = normal(rng, (2, 3, 4))
    reports = Message(
        values=values * PRESENT.unsqueeze(-1),
        present=PRESENT.clone(),
        senders=(0, 2, 5),
        side={"budget": values[..., 0].clone()},
    )
    rows = list(order)
    received = Message(
        values=2 * reports.values[:, rows],
        present=reports.present[:, rows],
        senders=tuple(reports.senders[row] for row in rows),
        side={"budget": reports.side["budget"][:, rows]},
    )
    return RoundEvent(
        round=0,
        broadcast=normal(rng, (2, 4)),
        cohort=PRESENT.clone(),
        reports=reports,
        received=received,
        aggregate=normal(rng, (2, 4)),
        model=normal(rng, (2, 4)),
        lots={0: [torch.ones(2, 6, dtype=torch.bool)]},
    )


def seen(observer, happened=None, **fields):
    recorder = ViewRecorder(observer=observer, **fields)
    happened = happened or event()
    recorder.watch(happened)
    return recorder.view(None, happened.model).rounds[0]


@pytest.mark.parametrize("observer", LADDER, ids=str)
def test_each_observer_sees_what_its_rank_allows(observer):
    happened, round_view = event(), seen(observer)
    sees_reports, sees_sum, sees_models = observer.rank >= 3, observer.rank >= 2, observer.rank >= 1
    assert (round_view.reports is not None) == sees_reports
    assert (round_view.aggregate is not None) == sees_sum
    assert (round_view.broadcast is not None) == sees_models
    assert round_view.aggregate is None or torch.equal(round_view.aggregate, happened.aggregate)
    assert round_view.broadcast is None or torch.equal(round_view.broadcast, happened.broadcast)
    recorder = ViewRecorder(observer=observer)
    assert torch.equal(recorder.view(None, happened.model).final_model, happened.model)


def test_uploads_are_the_reports_before_the_channel_with_their_senders():
    happened, reports = event(), seen(UPLOADS).reports
    assert torch.equal(reports.values, happened.reports.values)
    assert torch.equal(reports.present, happened.reports.present)
    assert torch.equal(reports.side["budget"], happened.reports.side["budget"])
    assert reports.senders == (0, 2, 5)


def test_the_analyser_gets_what_arrived_without_senders():
    def rows(message, replica):
        there = message.present[replica]
        sides = message.side["budget"][replica, there].unsqueeze(-1)
        return sorted(torch.cat([message.values[replica, there], sides], dim=-1).tolist())

    happened, reports = event(), seen(SHUFFLED).reports
    assert reports.senders is None
    assert [rows(reports, replica) for replica in (0, 1)] == [rows(happened.received, replica) for replica in (0, 1)]


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0), (2, 0, 1)])
def test_the_order_of_shuffled_rows_reveals_no_sender(order):
    """No channel shuffled, yet who sent which row cannot be read off its place."""
    for seed in range(6):
        plain, permuted = (seen(SHUFFLED, event(seed, rows)).reports for rows in ((0, 1, 2), order))
        assert torch.equal(plain.values, permuted.values)
        assert torch.equal(plain.present, permuted.present)
        assert torch.equal(plain.side["budget"], permuted.side["budget"])
        # Absent rows go last: their place would be a client's, too.
        assert plain.present.tolist() == [[True, True, False], [True, True, True]]


def test_the_order_is_decided_before_the_coordinates_are_cut():
    """An unused coordinate is zero in every row: ordered by it alone, rows would stay in the clients' order."""
    cut = [
        seen(SHUFFLED, event(order=order), coordinates=slice(1, 3)).reports.values for order in ((0, 1, 2), (1, 2, 0))
    ]
    assert torch.equal(*cut)


def test_equal_rows_are_ordered_by_their_side_arrays():
    def tied(order):
        happened = event(order=order)
        return replace(happened, received=happened.received.with_values(torch.ones(2, 3, 4)))

    sides = [seen(SHUFFLED, tied(order)).reports.side["budget"] for order in ((0, 1, 2), (1, 0, 2))]
    assert torch.equal(*sides)


@pytest.mark.parametrize("observer", LADDER, ids=str)
def test_only_the_wanted_coordinates_are_kept_of_every_vector(observer):
    recorder = ViewRecorder(observer=observer, coordinates=slice(3, 4))
    happened = event()
    recorder.watch(happened)
    view = recorder.view("plan", happened.model)
    assert (view.coordinates, view.plan, view.observer) == (slice(3, 4), "plan", observer)
    assert torch.equal(view.final_model, happened.model[:, 3:])
    whole, cut = seen(observer), view.rounds[0]
    assert cut.broadcast is None or torch.equal(cut.broadcast, whole.broadcast[:, 3:])
    assert cut.aggregate is None or torch.equal(cut.aggregate, whole.aggregate[:, 3:])
    assert cut.reports is None or torch.equal(cut.reports.values, whole.reports.values[..., 3:])


@pytest.mark.parametrize(("senders", "rows"), [((2,), [1]), ((5, 0), [0, 2]), ((7,), []), ((), [])])
def test_only_the_wanted_senders_are_kept_of_the_uploads(senders, rows):
    happened, reports = event(), seen(UPLOADS, senders=senders).reports
    assert reports.senders == tuple(happened.reports.senders[row] for row in rows)
    assert torch.equal(reports.values, happened.reports.values[:, rows])
    assert torch.equal(reports.present, happened.reports.present[:, rows])
    assert torch.equal(reports.side["budget"], happened.reports.side["budget"][:, rows])


def parts(message):
    return [message.values, message.present, *message.side.values()]


@pytest.mark.parametrize("observer", LADDER, ids=str)
@pytest.mark.parametrize("coordinates", [None, slice(0, 2)])
def test_a_view_holds_copies_that_nothing_later_can_change(observer, coordinates):
    recorder, happened = ViewRecorder(observer=observer, coordinates=coordinates), event()
    recorder.watch(happened)
    view = recorder.view(None, happened.model)
    kept = view.rounds[0]
    held = [view.final_model, *(t for t in (kept.broadcast, kept.aggregate) if t is not None)]
    held += parts(kept.reports) if kept.reports else []
    before = [tensor.clone() for tensor in held]
    live = [happened.model, happened.broadcast, happened.aggregate, *parts(happened.reports), *parts(happened.received)]
    for tensor in live:
        tensor.zero_()
    assert all(torch.equal(*pair) for pair in zip(held, before, strict=True))
    assert all(tensor.any() for tensor in held)


def test_a_view_holds_no_graph():
    happened = event()
    happened = replace(happened, broadcast=happened.broadcast.requires_grad_(True) * 2)
    assert not seen(UPLOADS, happened).broadcast.requires_grad


def test_a_recorder_watches_one_run_only(trained):
    for recorder in (ViewRecorder(observer=UPLOADS), LotRecorder(client=0)):
        trained(recorders=[recorder])
        with pytest.raises(ValueError, match="a recorder can record one run only, got round 0 after 3 rounds"):
            trained(recorders=[recorder])


def test_a_view_of_a_run_names_the_rounds_and_ends_with_its_final_model(trained):
    recorder = ViewRecorder(observer=UPLOADS)
    done = trained(rounds=4, recorders=[recorder])
    view = recorder.view(done.plan, done.final)
    assert [kept.round for kept in view.rounds] == [0, 1, 2, 3]
    assert torch.equal(view.final_model, done.final)
    ends = [*(event.broadcast for event in done.events[1:]), done.final]
    for kept, happened, after in zip(view.rounds, done.events, ends, strict=True):
        assert torch.equal(kept.reports.values, happened.reports.values)
        between = done.plan.algorithm.aggregate_between(kept.broadcast, after)
        torch.testing.assert_close(between, kept.aggregate, rtol=0, atol=1e-6)


@pytest.mark.parametrize("observer", LADDER, ids=str)
def test_a_round_without_a_cohort_is_a_round_of_the_view(trained, observer):
    recorder = ViewRecorder(observer=observer)
    done = trained(replicas=2, recorders=[recorder], cohort=Poisson(1e-9))
    reports = recorder.view(done.plan, done.final).rounds[2].reports
    assert (reports is not None) == (observer.rank >= 3)
    assert reports is None or (reports.values.shape, reports.present.shape) == ((2, 0, 51), (2, 0))


def test_the_lot_recorder_keeps_one_clients_lots_and_nothing_where_it_was_absent(trained):
    recorder = LotRecorder(client=2)
    events = trained(recorders=[recorder], cohort=Poisson(0.4), lot=Poisson(0.5), rounds=12).events
    came = [2 in happened.reports.senders for happened in events]
    assert {True, False} == set(came)
    for here, told, happened in zip(came, recorder.lots, events, strict=True):
        assert [mask.tolist() for mask in told] == ([mask.tolist() for mask in happened.lots[2]] if here else [])
        assert [tuple(mask.shape) for mask in told] == [(1, 3)] * (2 if here else 0)


def test_a_replica_that_the_client_missed_used_none_of_its_samples(trained):
    for happened in trained(replicas=8, cohort=Poisson(0.5)).events:
        for row, client in enumerate(happened.reports.senders):
            present = happened.reports.present[:, row : row + 1]
            assert all(torch.equal(mask, present.expand_as(mask)) for mask in happened.lots[client])


def test_accuracy_and_loss_count_rounds_from_one_and_are_of_the_servers_model(make_task, trained):
    task = make_task()
    curves = [UtilityRecorder(task=task, every=every) for every in (1, 2)]
    expected = [
        (n + 1, {one.metric: one.value for one in task.utility(happened.model[0])})
        for n, happened in enumerate(trained(task=task, rounds=5, recorders=curves).events)
    ]
    assert expected[0][1].keys() == {"accuracy", "loss"}
    assert curves[0].rows == expected
    assert curves[1].rows == [expected[1], expected[3]]


def test_a_curve_of_no_rounds_is_refused(make_task):
    with pytest.raises(ValueError, match=r"every \(rounds between two records\) must be a whole number >= 1, got 0"):
        UtilityRecorder(task=make_task(), every=0)


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_masked_words_are_seen_only_with_the_flag_and_where_reports_are_masked(told, masked):
    happened = event()
    happened = replace(happened, reports=replace(happened.reports, masked=masked))
    view = seen(replace(AGGREGATE, sees_masked_words=told), happened, coordinates=slice(1, 3))
    assert view.reports is None
    if not (told and masked):
        assert view.masked_words is None
        return
    assert torch.equal(view.masked_words.values, happened.reports.values[..., 1:3])
    assert view.masked_words.senders == (0, 2, 5)
    assert view.masked_words.values.data_ptr() != happened.reports.values.data_ptr()


def test_public_numbers_are_those_with_which_a_round_was_run(make_task, make_plan):
    class Counting(Protection):
        def initial_state(self, plan):
            return {"count": 0}

        def numbers(self, plan, state):
            return {"count": float(state["count"])}

        def close_round(self, aggregate, context, state):
            return {"count": state["count"] + 1}

    task, protection = make_task(), Counting()
    plan = make_plan(task, rounds=5)
    told = NumbersRecorder(protection=protection, plan=plan, every=2)
    run_federation(task, plan, protection, Streams(0), recorders=[told])
    assert told.rows == [(0, {"count": 0.0}), (2, {"count": 2.0}), (4, {"count": 4.0})]


DIM = 51
"""Weights of the toy task's model: 48 weights and 3 biases."""
DENSE, SPARSE, TWO = 4 * DIM, 8, 7 + 8
"""Bytes of 51 numbers of 32 bits; of one number with its index; of 51 bits with two values of 32 bits."""


def message(rows, **changes):
    values = torch.as_tensor(rows).unsqueeze(0)
    present = torch.ones(values.shape[:2], dtype=torch.bool)
    return Message(**({"values": values, "present": present, "senders": tuple(range(values.shape[1]))} | changes))


@pytest.fixture
def counted(make_task, make_plan, trained):
    """(protection or defense, changes to the plan) -> the recorder of its training of three rounds, four clients."""

    def train(defense=None, **changes):
        traffic = TrafficRecorder()
        protection = None if defense is None else defense.prepare(make_plan(make_task(), **changes)).protection
        trained(protection, recorders=[traffic], **changes)
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
