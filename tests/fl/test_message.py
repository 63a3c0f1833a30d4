"""Message: rows that fit together, and absent rows that stay zero."""

import pytest
import torch
from fedassay.fl.message import Message

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
