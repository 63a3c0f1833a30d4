"""Part listing: how the errata of a docstring are read, and what each of them states."""

import pytest
from fedassay.suites.config.part_listing import all_errata, errata_in

CLASSES = ("False: ", "Loose but valid: ", "Slip: ", "Not stated: ")


def test_items_of_several_lines_are_joined_and_the_section_ends_at_the_next_heading():
    doc = "A.\n\nErrata:\n    - False: one\n      claim. Here: none.\n    - Slip: two. Here: right.\nRaises:\n    - no"
    assert errata_in(doc) == ("False: one claim. Here: none.", "Slip: two. Here: right.")
    assert errata_in("A part.\n\nArgs:\n    - no erratum") == ()


@pytest.mark.parametrize(("part", "items"), list(all_errata("defense").items()), ids=lambda value: str(value)[:20])
def test_each_erratum_starts_with_its_class_and_ends_with_what_the_code_does(part, items):
    for item in items:
        assert item.startswith(CLASSES), f"{part}: {item[:60]}"
        assert item.count(" Here: ") == 1, f"{part}: {item[:60]}"
        assert item.endswith(".")
