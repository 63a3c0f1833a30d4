"""Part listing: the kinds of federations of parts, how the errata of a docstring are read, and what they state."""

import json

import pytest
from fedassay.attacks.membership.candidates import MembershipAttack
from fedassay.attacks.transfer.vote_attack import VoteAttack
from fedassay.attacks.vertical.attack import VerticalAttack
from fedassay.audit.observer import FINAL_MODEL
from fedassay.defenses.transfer.defense import TransferDefense
from fedassay.defenses.vertical.defense import VerticalDefense
from fedassay.suites.config.part_files import own_parts
from fedassay.suites.config.part_listing import _by_class, all_errata, errata_in, federation_kinds

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


@pytest.mark.parametrize("kind", ["defense", "attack"])
def test_each_part_is_listed_with_the_kinds_of_federations_that_its_class_runs_on(kind):
    listed, parts = federation_kinds(kind), own_parts(kind)
    assert listed.keys() == parts.keys()
    found = {name: part.load() for name, part in parts.items()}
    assert {name for name, one in found.items() if issubclass(one, VerticalDefense | VerticalAttack)} == {
        name for name, words in listed.items() if words == "vertical"
    }
    assert {name for name, one in found.items() if issubclass(one, TransferDefense | VoteAttack)} == {
        name for name, words in listed.items() if words == "transfer"
    }
    on_students = {
        name for name, one in found.items() if issubclass(one, MembershipAttack) and one.observer == FINAL_MODEL
    }
    assert on_students == {name for name, words in listed.items() if words == "horizontal, transfer"}
    assert {"horizontal", "vertical", "transfer"} <= set(listed.values())
    # A part of another package, of which only the class is known, has the same kinds.
    assert {name: _by_class(one) for name, one in found.items()} == listed


def test_the_command_prints_the_kinds(say):
    listed = json.loads(say("list", "attacks", "--json").stdout)
    assert listed["gradient_sign"].startswith("vertical: ")
    assert listed["vote_likelihood"].startswith("transfer: ")
    assert listed["lira_offline"].startswith("horizontal, transfer: ")
