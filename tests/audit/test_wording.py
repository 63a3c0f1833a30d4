import pytest
from fedassay.audit.wording import at_least, at_most, duration, nearest, plain
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("number", "text"), [(4.0, "4"), (1e-05, "1e-5"), (0.5, "0.5"), (2.5e-10, "2.5e-10"), (1e6, "1e6"), (0.0, "0")]
)
def test_numbers_are_printed_without_padding(number, text):
    assert plain(number) == text


@pytest.mark.parametrize(("number", "text"), [(2.289, "2.28"), (2.3, "2.3"), (12.519, "12.5"), (0.0, "0"), (3.0, "3")])
def test_a_lower_bound_is_rounded_down(number, text):
    assert at_least(number) == text


@pytest.mark.parametrize(("share", "text"), [(0.0201, ".021"), (0.021, ".021"), (1.0, "1"), (0.996, "1"), (0.0, "0")])
def test_an_upper_bound_is_rounded_up(share, text):
    assert at_most(share) == text


@settings(derandomize=True, deadline=None)
@given(st.floats(1e-6, 1))
def test_rounding_never_claims_more_than_was_shown(share):
    assert float(at_most(share)) >= share * (1 - 1e-8)
    assert float(at_least(share)) <= share * (1 + 1e-8)


def test_of_many_names_the_likeliest_six_are_reported():
    names = [f"name_{letter}" for letter in "abcdefghi"]
    assert nearest("name_f", names).startswith("name_f, name_a, ")
    assert nearest("name_f", names).endswith("name_e or 3 others")
    assert nearest("name_f", names[:8]).count(",") == 6
    assert "others" not in nearest("name_f", names[:8])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "about a second"),
        (50.4, "about 50 seconds"),
        (240.0, "about 4 minutes"),
        (7200.0, "about 2 hours"),
        (864_000.0, "about 10 days"),
    ],
)
def test_a_time_is_rounded_to_what_a_reader_plans_with(seconds, text):
    assert duration(seconds) == text
