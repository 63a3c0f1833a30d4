"""Every part of the catalogue passes the conformance checks of its kind."""

import pytest
from fedassay.audit.parts import KINDS
from fedassay.fl.data.datasets import available
from fedassay.suites.config.source import ConfigError
from fedassay.suites.conformance.conformance import check_part, kind_of, known_parts

QUICK = ("partition", "sampling", "algorithm", "canary")


def here(kind, name):
    return kind != "dataset" or available(name) in ("bundled", "drawn here")


EACH = [
    pytest.param(kind, name, marks=() if kind in QUICK else pytest.mark.simulations, id=f"{kind}-{name}")
    for kind in KINDS
    for name in known_parts(kind)
    if here(kind, name)
]


@pytest.mark.simulations
@pytest.mark.parametrize(("kind", "name"), EACH)
def test_a_part_of_the_catalogue_has_no_fault(kind, name):
    outcomes = list(check_part(name, kind=kind))
    assert len(outcomes) > 2
    assert [outcome.line for outcome in outcomes if not outcome.passed] == []


def test_the_kind_is_found_out_from_the_name_or_from_the_part(own_module):
    assert kind_of("dp_sgd") == "defense"
    assert kind_of("dirichlet") == "partition"
    with pytest.raises(ConfigError, match="give --kind model or --kind attack"):
        kind_of("imprint")
    with pytest.raises(ConfigError, match="unknown part 'dp_sgdd'; known: dp_sgd"):
        kind_of("dp_sgdd")
    module = own_module(
        "from fedassay.fl.partitions import IID\nfrom fedassay.fl.algorithms import FedSGD\n"
        "from fedassay.defenses.without_dp.none import Undefended\n"
        "def net(shape, classes): pass\ndef rows(): pass\ndef row(inputs): pass\ndef other(x, y): pass\n"
    )
    found = {name: kind_of(f"{module}:{name}") for name in ("IID", "FedSGD", "Undefended", "net", "rows", "row")}
    assert list(found.values()) == ["partition", "algorithm", "defense", "model", "dataset", "canary"]
    with pytest.raises(ConfigError, match="cannot be told from"):
        kind_of(f"{module}:other")
