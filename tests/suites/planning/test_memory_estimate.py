"""What does not fit into memory is refused before a run, with the estimate, the limit and the key."""

import pytest
from fedassay.audit.observer import ACTIVE_PARTY, PASSIVE_PARTY
from fedassay.fl.vertical.network import VerticalNetwork
from fedassay.fl.vertical.protection import VerticalPlan
from fedassay.suites.config.source import ConfigError, Source
from fedassay.suites.config.tables.other_federations import TransferSpec, VerticalSpec
from fedassay.suites.planning import plan_other as memory_estimate
from fedassay.suites.planning.plan_other import HeldArrays, check_memory, of_transfer, of_vertical
from toy_transfer import votes_plan

SPEC = {"epochs": 3, "batch": 5, "learning_rate": 0.1, "embedding": 4, "hidden": [7]}
PLAN = VerticalPlan(
    people=10,
    network=VerticalNetwork(widths=(2, 3, 0), classes=2, embedding=4, hidden=(7,)),
    epochs=3,
    batch=5,
    learning_rate=0.1,
)
# Bottom models (2 + 1) 7 + (7 + 1) 4, (3 + 1) 7 + 32 and (0 + 1) 7 + 32, and a top model (12 + 1) 2.
BOTTOMS, TOP = (53, 60, 39), 26


def spec_of(**changes):
    return VerticalSpec.model_validate(SPEC | changes)


def numbers(found):
    return [one.numbers for one in found]


@pytest.mark.parametrize(
    ("observers", "kept"),
    [
        (set(), 0),
        # Six steps of the first party's model, and 30 messages of 4 numbers.
        ({PASSIVE_PARTY}, 6 * BOTTOMS[0] + 30 * 4),
        # Embeddings of two parties, and as many gradients.
        ({ACTIVE_PARTY}, 6 * TOP + 30 * 2 * 2 * 4),
    ],
)
def test_a_training_holds_its_models_and_what_adversaries_receive(observers, kept):
    assert numbers(of_vertical(spec_of(), PLAN, observers)) == [2 * (sum(BOTTOMS) + TOP), kept]


def test_an_audit_holds_the_runs_that_are_made_at_once():
    audit = {"people": 6, "batch": 3, "replicas": 100}
    last = of_vertical(spec_of(audit=audit), PLAN, set())[-1]
    assert last.numbers == 100 * (2 * (sum(BOTTOMS) + TOP) + 6 * 3 * 4)
    assert len(of_vertical(spec_of(audit={"design": "one_run"}), PLAN, set())) == 2


@pytest.fixture
def machine(monkeypatch):
    def of(gigabytes):
        monkeypatch.setattr(memory_estimate, "hardware", lambda: {"memory_gb": gigabytes})

    return of


@pytest.mark.parametrize(("limit", "fits"), [(4.0, True), (3.9, False), (0.0, True)])
def test_the_limit_is_the_memory_of_the_machine_if_it_is_known(machine, limit, fits):
    machine(limit)
    # 2^30 numbers of 4 bytes.
    held = [HeldArrays(what="all models", numbers=2**30, keys=("embedding", "hidden"))]
    source = Source("own.toml", "[vertical.main]\nembedding = 4\nhidden = [7]\n")
    if fits:
        check_memory(held, ("vertical", "main"), spec_of(), source)
        return
    with pytest.raises(ConfigError) as error:
        check_memory(held, ("vertical", "main"), spec_of(), source)
    # The key with the largest number is the one that is named.
    said = str(error.value)
    assert said.startswith("own.toml, line 3: vertical.main.hidden = [7]: all models")
    assert "about 4 GB, more than the 3.9 GB" in said


def test_a_transfer_holds_teachers_answers_and_students():
    plan = votes_plan()
    training = {"steps": 1, "learning_rate": 0.1}
    spec = TransferSpec(teachers=plan.teachers, queries=plan.queries, students=3, teacher=training, student=training)
    votes, dim = plan.teachers * plan.queries * plan.classes, plan.layout.dim
    assert numbers(of_transfer(spec, plan, 0)) == [plan.teachers * dim, 3 * votes, 3 * dim]
    assert numbers(of_transfer(spec, plan, 8)) == [8 * plan.teachers * dim, 8 * votes, 8 * dim]
