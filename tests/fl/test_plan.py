"""Plan: public sizes and rates, and what a canary client counts as.

Layout: a vector is its layers, in order, and nothing else.

Message: rows that fit together, and absent rows that stay zero.
"""

from dataclasses import replace

import pytest
import torch
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.layout import Layout
from fedassay.fl.message import Message
from fedassay.fl.plan import Plan
from fedassay.fl.sampling import Epoch, FixedSize, Full, Poisson
from hypothesis import given, settings
from hypothesis import strategies as st

PLAN = Plan(
    sizes=(2, 10, 3),
    rounds=4,
    cohort=Poisson(0.5),
    lot=Poisson(0.1),
    algorithm=FedAvg(learning_rate=1.0, local_steps=5),
    layout=Layout(names=("bias",), shapes=((4,),)),
)


def test_cohorts_and_steps_are_counted_in_expectation():
    assert (PLAN.clients, PLAN.cohort_rate, PLAN.expected_cohort, PLAN.steps) == (3, 0.5, 1.5, 20)
    fixed = replace(PLAN, cohort=FixedSize(2))
    assert (fixed.cohort_rate, fixed.expected_cohort) == (2 / 3, 2.0)
    assert replace(PLAN, cohort=FixedSize(9)).expected_cohort == 3


def test_in_passes_over_all_clients_a_client_takes_part_once_per_pass():
    passes = replace(PLAN, cohort=Epoch(3))
    assert (PLAN.participations, passes.participations) == (4, 2)
    assert passes.expected_cohort == pytest.approx(1)
    # An audit of fewer clients keeps the number of times that a client takes part.
    assert passes.resized((5,)).participations == 2


@pytest.mark.parametrize(
    ("rounds", "first", "last", "count"),
    [(1, (1,), (1,), 1), (4, (1, 2), (3, 4), 4), (45, (2, 4), (44, 45), 23), (400, (20, 40), (380, 400), 20)],
)
def test_curves_have_about_twenty_marks_and_always_the_last_round(rounds, first, last, count):
    marks = replace(PLAN, rounds=rounds).marks
    assert marks[:2] == first or rounds == 1
    assert marks[-len(last) :] == last
    assert len(marks) == count


@pytest.mark.parametrize(
    ("lot", "expected", "of_a_canary"),
    [
        (Full(), [2, 10, 3], 5),
        (Poisson(0.1), [0.2, 1.0, 0.3], 0.5),
        (FixedSize(4), [2, 4, 3], 3),
    ],
)
def test_a_lot_is_as_large_as_its_client_allows_and_a_canary_client_counts_as_the_mean_one(lot, expected, of_a_canary):
    plan = replace(PLAN, lot=lot)
    assert [plan.expected_lot(client) for client in range(3)] == pytest.approx(expected)
    assert plan.expected_lot(3) == pytest.approx(of_a_canary)


def test_a_client_weighs_its_samples_and_a_canary_client_the_mean():
    assert [PLAN.weight(client) for client in range(4)] == [2, 10, 3, 5]


def test_a_resized_plan_changes_nothing_but_the_sizes():
    smaller = PLAN.resized((10, 3))
    assert smaller == replace(PLAN, sizes=(10, 3))
    assert smaller.expected_cohort == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": ()}, "sizes must list at least one client"),
        ({"sizes": (3, 0)}, r"each with at least one sample, got \(3, 0\)"),
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0"),
        ({"lot": Epoch(3)}, "lot must be full, Poisson or of fixed size"),
    ],
)
def test_a_plan_without_clients_samples_or_rounds_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(PLAN, **change)


LAYOUT = Layout(names=("conv", "bias", "scalar"), shapes=((2, 3), (4,), ()), inert=2)


def test_dimensions_and_slices_are_the_hand_computed_ones():
    assert (LAYOUT.model_dim, LAYOUT.dim) == (11, 13)
    assert LAYOUT.slices == {
        "conv": slice(0, 6),
        "bias": slice(6, 10),
        "scalar": slice(10, 11),
        "inert": slice(11, 13),
    }


def test_without_inert_weights_no_slice_is_called_inert():
    assert Layout(names=("bias",), shapes=((4,),)).slices == {"bias": slice(0, 4)}


def test_layers_stand_in_the_layout_order_row_major_and_the_inert_weights_are_zero():
    layers = {
        "scalar": torch.tensor(30.0),
        "bias": torch.tensor([20.0, 21.0, 22.0, 23.0]),
        "conv": torch.tensor([[10.0, 11.0, 12.0], [13.0, 14.0, 15.0]]),
    }
    expected = [10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 30, 0, 0]
    assert LAYOUT.flatten(layers).tolist() == expected


@settings(derandomize=True, max_examples=60, deadline=None)
@given(
    lead=st.lists(st.integers(0, 3), max_size=3),
    shapes=st.lists(st.lists(st.integers(1, 4), max_size=3).map(tuple), min_size=1, max_size=4),
    inert=st.integers(0, 3),
)
def test_flatten_after_unflatten_gives_the_vector_back_with_its_inert_weights_zeroed(lead, shapes, inert):
    layout = Layout(names=tuple(f"layer{n}" for n in range(len(shapes))), shapes=tuple(shapes), inert=inert)
    vector = torch.arange(1.0, 1 + layout.dim * torch.Size(lead).numel()).reshape(*lead, layout.dim)
    layers = layout.unflatten(vector)
    assert {name: tuple(layer.shape) for name, layer in layers.items()} == {
        name: (*lead, *shape) for name, shape in zip(layout.names, shapes, strict=True)
    }
    expected = vector.clone()
    expected[..., layout.model_dim :] = 0
    assert torch.equal(layout.flatten(layers), expected)


def test_a_transposed_layer_is_refused_and_not_reshaped():
    layers = LAYOUT.unflatten(torch.zeros(13))
    with pytest.raises(ValueError, match=r"layer conv must have shape \(2, 3\), got \(3, 2\)"):
        LAYOUT.flatten({**layers, "conv": torch.zeros(3, 2)})


def test_a_layer_without_the_leading_dimensions_of_the_others_is_refused():
    layers = LAYOUT.unflatten(torch.zeros(5, 13))
    with pytest.raises(ValueError, match=r"layer bias must have shape \(5, 4\), got \(4,\)"):
        LAYOUT.flatten({**layers, "bias": torch.zeros(4)})


@pytest.mark.parametrize("change", [{"more": torch.zeros(1)}, {"bias": None}])
def test_a_missing_layer_or_one_too_many_is_named(change):
    layers = {k: v for k, v in (LAYOUT.unflatten(torch.zeros(13)) | change).items() if v is not None}
    with pytest.raises(ValueError, match=r"layers must be conv, bias, scalar, got conv,"):
        LAYOUT.flatten(layers)


@pytest.mark.parametrize("shape", [(12,), (13, 4), ()])
def test_a_vector_of_another_length_is_refused(shape):
    with pytest.raises(ValueError, match="the last dimension of vector must be 13"):
        LAYOUT.unflatten(torch.zeros(shape))


@pytest.mark.parametrize(
    ("names", "shapes", "inert", "message"),
    [
        (("a", "a"), ((1,), (1,)), 0, "names must be unique"),
        (("a",), ((1,), (1,)), 0, "one per shape"),
        ((), (), 0, "at least one layer"),
        (("inert",), ((1,),), 1, "none may be called 'inert'"),
        (("a",), ((1,),), -1, "must be a whole number >= 0, got -1"),
    ],
)
def test_a_layout_that_could_confuse_two_layers_is_refused(names, shapes, inert, message):
    with pytest.raises(ValueError, match=message):
        Layout(names=names, shapes=shapes, inert=inert)


PRESENT = torch.tensor([[True, False, True], [True, True, True]])


def message(**changes):
    fields = {"values": torch.ones(2, 3, 4), "present": PRESENT, "senders": (0, 1, 5)}
    return Message(**(fields | changes))


def test_new_values_keep_who_sent_them_and_absent_rows_stay_zero():
    side = {"budget": torch.arange(6).reshape(2, 3)}
    sent = message(side=side).with_values(torch.full((2, 3, 7), 2.0))
    assert torch.equal(sent.values, 2.0 * PRESENT.unsqueeze(-1).expand(2, 3, 7))
    assert (sent.senders, sent.side) == ((0, 1, 5), side)
    assert torch.equal(sent.present, PRESENT)


def test_an_absent_row_that_is_not_a_number_becomes_zero_all_the_same():
    values = torch.ones(2, 3, 4)
    values[0, 1] = torch.nan
    assert message().with_values(values).values[0, 1].tolist() == [0, 0, 0, 0]


def test_integers_stay_integers():
    assert message().with_values(torch.full((2, 3, 1), 2**40)).values.max() == 2**40


def test_a_message_without_rows_is_a_message():
    empty = Message(values=torch.zeros(2, 0, 4), present=torch.zeros(2, 0, dtype=torch.bool), senders=())
    assert empty.with_values(torch.zeros(2, 0, 9)).values.shape == (2, 0, 9)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"values": torch.ones(3, 4)}, r"values must have shape \(replicas, rows, d\).*got shapes \(3, 4\)"),
        ({"values": torch.ones(2, 2, 4)}, r"got shapes \(2, 2, 4\) and \(2, 3\)"),
        ({"senders": (0, 1)}, "senders must name one client per row, got 2 for 3 rows"),
        ({"present": PRESENT.float()}, "present must hold booleans, got torch.float32"),
        ({"side": {"budget": torch.ones(3, 2)}}, "array budget, sent with the reports, must have shape"),
    ],
)
def test_shapes_that_do_not_fit_together_are_refused(change, text):
    with pytest.raises(ValueError, match=text):
        message(**change)
