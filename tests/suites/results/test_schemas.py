"""The published schemas against what is written and read: what a run writes they accept, what is none they refuse."""

import json
import tomllib
from dataclasses import fields

import pytest
from fedassay.audit.claim import Claim
from fedassay.suites.config.part_listing import bundled_suites
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.results.claims_file import ClaimFields
from fedassay.suites.results.rows import read_record
from fedassay.suites.results.schemas import DIALECT, KINDS, schema_of
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match


@pytest.fixture(scope="module")
def wrong():
    """(kind, document) -> what is wrong with it, or None."""
    validators = {kind: Draft202012Validator(schema_of(kind)) for kind in KINDS}
    return lambda kind, document: best_match(validators[kind].iter_errors(document))


def rows_of(run):
    return [json.loads(line) for line in (run.folder / "results.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_a_schema_is_one_and_states_what_it_is(kind):
    schema = schema_of(kind)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == DIALECT
    assert schema["$id"].startswith("urn:fedassay:")
    assert schema["title"]
    assert schema["description"]


def test_fields_are_described_by_their_docstrings():
    described = schema_of("result")["properties"]
    assert described["ceiling"]["description"].startswith("Largest epsilon that this sample size can certify")
    assert schema_of("suite")["properties"]["alpha"]["description"].startswith("Probability that any true claim")


def test_every_row_that_a_run_writes_is_a_row(finished, wrong):
    rows = rows_of(finished)
    assert {row["role"] for row in rows} >= {"utility", "attack", "null", "audit", "check", "replicas"}
    assert [error for row in rows if (error := wrong("result", row))] == []


def test_the_claims_that_a_run_writes_are_claims(finished, wrong):
    claims = json.loads((finished.folder / "claims.json").read_text())
    assert claims["claims"]
    assert wrong("claim", claims) is None


def test_the_suite_of_a_manifest_is_a_suite(finished, wrong):
    assert wrong("suite", json.loads((finished.folder / "manifest.json").read_text())["suite"]) is None


@pytest.mark.parametrize("name", bundled_suites())
def test_every_bundled_suite_is_a_suite(name, wrong):
    assert wrong("suite", tomllib.loads(bundled_suites()[name])) is None


@pytest.mark.parametrize(
    "change",
    [
        {"value": "0.5"},
        {"n": 1.5},
        {"role": "guess"},
        {"schema": "result-9"},
        {"epsilon": 1.0},
        {"value": 1e101},
        {"cell_id": ""},
        {"cell_id": ".."},
        {"artifact": "/etc/passwd"},
        {"artifact": "cells/../../a.npz"},
        {"artifact": "cells/\0.npz"},
        {"observer": "everybody"},
        {"observer": "uploads+nothing"},
    ],
)
def test_what_is_no_row_both_the_schema_and_the_reader_refuse(finished, wrong, change):
    row = rows_of(finished)[0]
    assert wrong("result", row) is None
    assert wrong("result", row | change)
    with pytest.raises(ValueError):
        read_record(row | change)


@pytest.mark.parametrize(
    "change",
    [
        {"cell_id": "..."},
        {"artifact": "cells/a..b/c...npz"},
        {"observer": ""},
        {"observer": "uploads + participation+masked_words"},
    ],
)
def test_an_odd_row_both_the_schema_and_the_reader_take(finished, wrong, change):
    row = rows_of(finished)[0] | change
    assert wrong("result", row) is None
    read_record(row)


@pytest.mark.parametrize("field", ["schema", "run_id", "cell_id", "defense", "metric", "role"])
def test_what_lacks_a_field_both_refuse(finished, wrong, field):
    row = {name: value for name, value in rows_of(finished)[0].items() if name != field}
    assert field in wrong("result", row).message
    with pytest.raises(ValueError, match=field):
        read_record(row)


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0},
        {"observer": ""},
        {"delta": 1},
        {"unit": "person"},
        {"parameters": {"sigma": None}},
        {"curve": {"family": "gaussian", "mu": -1}},
        {"tuning": "free"},
    ],
)
def test_what_is_no_claim_is_refused(finished, wrong, change):
    claims = json.loads((finished.folder / "claims.json").read_text())
    claims["claims"][0]["claim"] |= change
    assert wrong("claim", claims)


def test_a_claim_of_the_schema_has_the_fields_of_a_claim():
    assert set(ClaimFields.model_fields) == {field.name for field in fields(Claim)}


WRONG_SUITES = [
    ("seeds = 1", "seeds = 0"),
    ("seeds = 1", "seedz = 1"),
    ("clients = 2", ""),
    ("rounds = 2", 'rounds = 2\npartition = "dirichlet"'),
    ("rounds = 2", "rounds = 2\ncohort = { poisson = 2.0 }"),
    ("rounds = 2", "rounds = 2\nlot = { fixed_size = 3, poisson = 0.5 }"),
    ('name = "fedsgd", learning_rate = 0.5', 'name = "fedsgd"'),
    ("[defenses.none]", '[defenses."a b"]'),
]


@pytest.mark.parametrize(("old", "new"), WRONG_SUITES)
def test_what_is_no_suite_both_the_schema_and_the_reader_refuse(suite_file, wrong, old, new):
    path = suite_file("noise_shares = [0.5]\n", "", old, new)
    assert wrong("suite", tomllib.loads(path.read_text()))
    with pytest.raises(ConfigError):
        load_suite(str(path))


GOOD = [
    ("rounds = 2", 'rounds = 2\npartition = { kind = "dirichlet", alpha = 0.5 }'),
    ("rounds = 2", "rounds = 2\ncohort = { poisson = 0.5 }\nlot = { fixed_size = 3 }"),
    ('name = "fedsgd", learning_rate = 0.5', 'name = "fedprox", learning_rate = 0.5, local_steps = 2, mu = 0.1'),
    ("[defenses.none]", "[defenses.none]\nplan = { lot = { poisson = 0.5 } }"),
]


@pytest.mark.parametrize(("old", "new"), GOOD)
def test_what_is_a_suite_both_accept(suite_file, wrong, old, new):
    path = suite_file(old, new)
    assert wrong("suite", tomllib.loads(path.read_text())) is None
    load_suite(str(path))
