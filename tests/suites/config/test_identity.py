"""Identity: a hash that is the same everywhere and forever, until IDENTITY is changed on purpose."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from fedassay.suites.config.resolve import IDENTITY, identity, plain_data
from hypothesis import given
from hypothesis import strategies as st

FACTS = {"seed": 3, "epsilon": 4.0, "name": "ü", "list": [1, None, True], "table": {"b": 1, "a": 0.1}}
PINNED = "4fad95583fbdcfaf"
"""The SHA-256 of FACTS in canonical JSON, as sha256sum gives it. If it changes, resumed runs no longer know their
cells: change IDENTITY with it, knowingly."""

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def test_the_pinned_value_stands():
    assert IDENTITY == "identity-6"
    assert identity(**FACTS) == PINNED


def test_another_process_finds_the_same_value():
    code = f"from fedassay.suites.config.resolve import identity; print(identity(**{FACTS!r}))"
    out = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": "7"},
    )
    assert out.stdout.strip() == PINNED


def test_the_order_of_the_facts_does_not_count():
    turned = {key: FACTS[key] for key in reversed(FACTS)} | {"table": {"a": 0.1, "b": 1}}
    assert identity(**turned) == PINNED


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 4},
        {"epsilon": 4.000000000000001},
        {"name": "u"},
        {"list": [None, 1, True]},
        {"table": {"a": 1, "b": 0.1}},
        {"one more": None},
    ],
)
def test_any_other_fact_gives_another_value(change):
    assert identity(**(FACTS | change)) != PINNED


@given(plain_values, plain_values)
def test_two_facts_share_a_value_only_if_they_are_written_alike(one, other):
    alike = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (identity(fact=one) == identity(fact=other)) == alike


def test_what_is_no_plain_data_is_refused():
    with pytest.raises(TypeError):
        identity(fact=object())


@given(plain_values)
def test_plain_data_stays_as_it_is(value):
    assert plain_data(value) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        ((1, (2, 3)), [1, [2, 3]]),
        ({1: np.float64(2.0)}, {"1": 2.0}),
        (float("inf"), "inf"),
        (range(3), "range(0, 3)"),
    ],
)
def test_other_values_become_plain(value, expected):
    assert plain_data(value) == expected
    identity(fact=plain_data(value))
