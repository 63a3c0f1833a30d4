"""The suites that promise every defense hold every one, and the published form of each that has one."""

from dataclasses import fields

import pytest
from fedassay.audit.claim import AS_PUBLISHED
from fedassay.suites.config.catalogue import build
from fedassay.suites.config.suite_file import load_suite
from known_parts import parts_by_name

DEFENSES = parts_by_name("defense")
# The other reading of fedre is in the suite of its paper only, and the data of these suites name no owners of samples.
HONEST = {name for name, part in DEFENSES.items() if not part.control} - {"fedre_per_sample", "user_level"}
ON_TRIAL = {name for name, part in DEFENSES.items() if "variant" in {field.name for field in fields(part)}}


def entries(name):
    """(part, its fields) of every defense of a bundled suite."""
    spec, _ = load_suite(name)
    return [(entry.part or label, dict(entry.model_extra or {})) for label, entry in spec.defenses.items()]


@pytest.mark.parametrize("name", ["defenses", "training"])
def test_every_defense_is_in_it(name):
    assert {part for part, _ in entries(name)} >= HONEST


def test_users_have_a_suite_on_data_with_owners():
    assert {part for part, _ in entries("users")} > {"user_level"}


def test_every_paper_that_differs_stands_beside_its_corrected_form_in_the_same_setting():
    found = entries("defenses")
    for name in ON_TRIAL:
        variants = {fields.get("variant", "corrected") for part, fields in found if part == name}
        assert variants == {"corrected", AS_PUBLISHED}


@pytest.mark.parametrize("name", ["defenses", "training"])
def test_every_defense_of_it_can_be_built(name):
    for part, configuration in entries(name):
        assert (
            build("defense", part, configuration).instance.fields().items()
            >= {key: tuple(value) if isinstance(value, list) else value for key, value in configuration.items()}.items()
        )


def test_training_spends_epsilon_8_and_shufflers_have_a_thousand_clients():
    spec, _ = load_suite("training")
    assert all(field.get("epsilon", 8.0) == 8.0 for _, field in entries("training"))
    assert {spec.federations[name].rounds for name in spec.federations} == {20}
    crowd = {label for label, entry in spec.defenses.items() if entry.federation == "crowd"}
    assert spec.federations["crowd"].clients >= 1000
    assert crowd >= {"unis", "apes", "s_apes", "flame", "ldp_min", "pldp", "cldp_sgd"}
