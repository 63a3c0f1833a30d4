"""A suite whose data set, model, partition, sampling, algorithm and canary are the user's own runs like any other."""

import importlib
import tomllib

import fedassay
import pytest
from fedassay.attacks.membership.loss import LossThreshold
from fedassay.suites.config.source import ConfigError, Source
from fedassay.suites.config.suite_file import check_suite
from own_parts_source import OWN_PARTS
from suite_text import suite_text, tables


def own_suite(module, *, canary="long_row", **federation):
    main = {
        "dataset": {"part": f"{module}:rows", "count": 60},
        "model": {"part": f"{module}:small", "width": 4},
        "partition": f"{module}:Halves",
        "cohort": f"{module}:EveryOther",
        "lot": {"part": f"{module}:EveryOther", "odd": True},
        "algorithm": {"part": f"{module}:Slow", "learning_rate": 0.1},
        "clients": 4,
        "rounds": 2,
    }
    audit = {"replicas": 4, "dataset": f"{module}:ROWS", "model": f"{module}:small", "canary": f"{module}:{canary}"}
    more = tables(defenses={"ldp_gaussian": {"epsilon": 4.0}}, attacks={"loss": {"count": 4}}, audit=audit)
    return suite_text(more, **(main | federation))


@pytest.fixture
def planned_own(planned, own_module):
    """(changes) -> the plan of that suite, with a module of its own."""
    return lambda source=OWN_PARTS, **changes: planned(
        text=own_suite(own_module(source, name="own_parts_all"), **changes)
    )


@pytest.mark.processes
def test_a_suite_of_own_parts_runs_in_worker_processes_and_can_be_resumed(assay, own_module, suite_file):
    path = suite_file(text=own_suite(own_module(OWN_PARTS)))
    run = assay(path, jobs=2)
    assert {record.status for record in run.records} == {"ok"}, [record.error for record in run.records]
    assert {record.model for record in run.records if record.role == "utility"} == {
        record.model for record in run.records if record.role == "attack"
    }
    again = fedassay.resume(run.folder, jobs=1, report=False)
    assert len(again.records) == len(run.records)


def cells(plan):
    return {(cell.facts["role"], cell.facts["attack"], cell.facts["seed"]): cell.cell_id for cell in plan.cells}


def test_the_source_of_any_part_changes_the_ids_of_the_cells_that_it_touches(planned_own):
    before, same, after = planned_own(), planned_own(), planned_own(OWN_PARTS + "\n# edited")
    assert cells(before) == cells(same)
    assert not set(cells(before).values()) & set(cells(after).values())
    assert before.run_id == same.run_id != after.run_id


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("dataset", {"part": "MODULE:rows", "cuont": 3}, "data set MODULE:rows has no option 'cuont'; it has: c"),
        ("dataset", {"count": 3}, "the table of the data set needs a name as its key part"),
        ("dataset", "MODULE:small", "data set MODULE:small needs a value for shape, classes"),
        ("model", "MODULE:ROWS", "must be a function .*, got Dataset"),
        ("model", {"part": "mlp", "hiden": 3}, "model mlp has no option 'hiden'; it has: hidden"),
        ("cohort", "MODULE:Halves", "sampling rule 'MODULE:Halves' must be a subclass of fedassay's Sampling"),
        ("algorithm", "MODULE:Halves", "algorithm MODULE:Halves must have .*, but Halves lacks"),
    ],
)
def test_a_bad_part_is_refused_before_anything_runs_with_its_line(planned, own_module, key, value, message):
    module = own_module(OWN_PARTS)
    if isinstance(value, dict):
        value = {name: str(one).replace("MODULE", module) if name == "part" else one for name, one in value.items()}
    else:
        value = value.replace("MODULE", module)
    text = own_suite(module, **{key: value})
    number = next(n for n, line in enumerate(text.splitlines(), 1) if line.startswith(f"{key} ="))
    with pytest.raises(ConfigError, match=message.replace("MODULE", module)) as refused:
        planned(text=text)
    assert f"line {number}: " in str(refused.value)


def test_python_code_may_give_the_part_itself(planned, own_module, resolved):
    name = own_module(OWN_PARTS)
    own = importlib.import_module(name)
    table = {
        "dataset": own.rows,
        "model": own.small,
        "partition": own.Halves(share=0.25),
        "cohort": own.EveryOther(odd=True),
        "algorithm": own.Slow(learning_rate=0.1),
        "clients": 2,
        "rounds": 1,
    }
    spec = check_suite({"name": "x", "federations": {"main": table}, "defenses": {"none": {}}}, Source("x"))
    main = spec.federations["main"]
    assert (main.dataset, main.model) == (f"{name}:rows", f"{name}:small")
    assert main.partition == {"part": f"{name}:Halves", "share": 0.25}
    assert main.cohort == {"part": f"{name}:EveryOther", "odd": True}


def test_python_code_may_give_a_defense_and_an_attack_as_class_or_object(assay, tiny, own_module):
    name = own_module(
        "from dataclasses import dataclass\n"
        "from fedassay.attacks.membership.loss import LossThreshold\n"
        "from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian\n"
        "class Mine(LossThreshold): ...\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Own(LDPGaussian): ...\n"
    )
    own = importlib.import_module(name)
    tree = tomllib.loads(tiny)
    del tree["audit"]
    tree["defenses"] = {"object": own.Own(epsilon=2.0), "class": own.Own, "table": {"part": own.Own, "epsilon": 3.0}}
    tree["attacks"] = {"object": own.Mine(count=4), "table": {"part": own.Mine, "count": 4}}
    run = assay(tree)
    assert {record.status for record in run.records} == {"ok"}
    assert {(record.defense, record.attack) for record in run.records if record.role == "attack"} == {
        (defense, attack) for defense in tree["defenses"] for attack in tree["attacks"]
    }
    assert [stated.stated.claim.epsilon for stated in run.claims] == [2.0, 4.0, 3.0]


@pytest.mark.parametrize("value", [3, [1], "dp_sgd"])
def test_a_defense_that_is_no_table_class_or_object_is_refused(tiny, value):
    with pytest.raises(ConfigError, match=r"defenses\.mine must be a table of keys and values"):
        check_suite({**tomllib.loads(tiny), "defenses": {"mine": value}}, Source("x"))


def test_a_class_that_no_module_defines_is_refused(tiny):
    class Local(LossThreshold): ...

    with pytest.raises(ConfigError, match=r"attacks\.mine: .*Local. cannot be found by worker processes"):
        check_suite({**tomllib.loads(tiny), "attacks": {"mine": Local}}, Source("x"))
