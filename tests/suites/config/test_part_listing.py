"""Part listing: how the errata of a docstring are read."""

from fedassay.suites.config.part_listing import errata_in


def test_items_of_several_lines_are_joined_and_the_section_ends_at_the_next_heading():
    doc = "A.\n\nErrata:\n    - False: one\n      claim. Here: none.\n    - Slip: two. Here: right.\nRaises:\n    - no"
    assert errata_in(doc) == ("False: one claim. Here: none.", "Slip: two. Here: right.")
    assert errata_in("A part.\n\nArgs:\n    - no erratum") == ()
