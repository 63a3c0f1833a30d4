"""Suites with vertical federations from file to verdict: correct and broken label randomisers, and what is refused."""

import numpy as np
import pytest
from fedassay.audit.observer import Observer
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.data.datasets import load_dataset
from fedassay.suites.config.source import ConfigError
from fedassay.suites.planning.plan_text import headline, plan_lines

SUITE = """\
name = "small_vertical"
alpha = 0.01
seeds = 1

[vertical.main]
dataset = "digits"
people = 300
epochs = 2
batch = 50
learning_rate = 0.5
summed = true

[vertical.main.audit]
people = 8
batch = 4
replicas = 600
pilot = 200

[defenses.flip]
part = "MODULE:Flip"
{more}
"""

OWN = """\
import math
from dataclasses import dataclass

import torch
from fedassay.audit.claim import Claim
from fedassay.audit.observer import PASSIVE_PARTY
from fedassay.defenses.vertical.defense import VerticalDefense, VerticalPrepared
from fedassay.fl.vertical.protection import VerticalProtection
from torch.nn.functional import one_hot


class Flipped(VerticalProtection):
    def __init__(self, keep):
        self.keep = keep

    def targets(self, values, context, rng):
        runs, people, classes = values.shape
        other = (values.argmax(-1) + torch.from_numpy(rng.integers(1, classes, size=(runs, people)))) % classes
        stays = torch.from_numpy(rng.random((runs, people)) < self.keep)
        return one_hot(torch.where(stays, values.argmax(-1), other), classes).to(values.dtype)


@dataclass(frozen=True, kw_only=True)
class Flip(VerticalDefense):
    \"\"\"Randomised response at ``spent``, which states a claim at epsilon.\"\"\"

    epsilon: float = 1.0
    spent: float = 1.0

    def prepare(self, plan):
        keep = math.exp(self.spent) / (math.exp(self.spent) + plan.network.classes - 1)
        claim = Claim.stated(self.epsilon, unit="label", observer=PASSIVE_PARTY, rounds=plan.epochs)
        return VerticalPrepared(protection=Flipped(keep), claims=(claim,))
"""


@pytest.fixture
def written(own_module, suite_file):
    def write(more=""):
        return suite_file(text=SUITE.format(more=more).replace("MODULE", own_module(OWN)))

    return write


@pytest.fixture
def table(tmp_path):
    """A table of 300 people in a folder, and a suite on it whose parties hold columns by name."""
    rng = np.random.default_rng(0)
    age, job = rng.integers(20, 70, 300), rng.choice(["cook", "pilot", "nurse"], 300)
    bought = np.where(age + 5 * rng.normal(size=300) > 45, "yes", "no")
    (tmp_path / "people.csv").write_text(
        "\n".join(["age,job,bought", *(f"{a},{j},{b}" for a, j, b in zip(age, job, bought, strict=True))])
    )
    head, _, _ = SUITE.partition("[vertical.main.audit]")
    text = head.replace('"digits"', '{ part = "people.csv", label = "bought" }').replace("people = 300", "people = 200")
    path = tmp_path / "suite.toml"

    def write(columns):
        path.write_text(f"{text}columns = {columns}\n[defenses.unprotected]\n")
        return path

    return write


def test_columns_of_an_own_table_are_held_by_name(assay, table):
    run = assay(table('[["job"], ["age"]]'))
    accuracy = {row.metric: row.value for row in run.records}["accuracy"]
    # Age decides, and only one of the two parties holds it.
    without = {row.metric: row.value for row in assay(table('[["job"]]')).records}["accuracy"]
    assert accuracy > without + 0.1


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ('[["age"], ["bought"]]', "'bought', which is the label"),
        ('[["job"], ["job"]]', r"columns: .* twice: \['job'\]"),
    ],
)
def test_a_column_that_no_party_may_hold_is_named(assay, table, columns, words):
    with pytest.raises(ConfigError, match=rf"suite.toml, line \d+: .*{words}"):
        assay(table(columns))


def test_a_data_set_may_be_an_object_of_python(assay):
    names = ("train_images", "train_labels", "test_images", "test_labels", "classes")
    own = Dataset(name="mine", **{name: getattr(load_dataset("digits"), name) for name in names})
    settings = {"people": 300, "epochs": 2, "batch": 50, "learning_rate": 0.5}
    suite = {"name": "object", "seeds": 1, "defenses": {"unprotected": {}}}
    given, bundled = (assay(suite | {"vertical": {"main": {"dataset": data, **settings}}}) for data in (own, "digits"))
    assert [row.value for row in given.records] == [row.value for row in bundled.records]


def verdicts(run):
    return {row.defense: row.verdict for row in run.records if row.role == "audit"}


@pytest.mark.simulations
def test_randomised_response_keeps_its_claim_and_a_weaker_one_does_not(assay, written):
    run = assay(written('[defenses.weak]\npart = "MODULE:Flip"\nspent = 3.0\n'))
    assert verdicts(run)["flip"] == "NOT_REFUTED"
    assert verdicts(run)["weak"] == "REFUTED"
    assert run.verdict.exit_code == 10
    found = {(row.defense, row.metric): row.value for row in run.records}
    assert found["weak", "accuracy"] > found["flip", "accuracy"]


@pytest.mark.simulations
def test_one_run_with_a_coin_for_each_label_gives_the_same_verdicts(assay, written):
    path = written('[defenses.weak]\npart = "MODULE:Flip"\nspent = 3.0\n')
    audit = '[vertical.main.audit]\ndesign = "one_run"'
    path.write_text(path.read_text().replace("[vertical.main.audit]", audit).replace("people = 300", "people = 1200"))
    run = assay(path)
    assert verdicts(run) == {"flip": "NOT_REFUTED", "weak": "REFUTED"}
    assert {row.n for row in run.records if row.role == "audit"} == {600}


def test_a_plan_says_what_the_audit_can_show(planned, written):
    plan = planned(text=written().read_text())
    assert "1 defense x 0 attacks, 1 seed: 1 federation; 1 audit on 1,600 replicas" in headline(plan)
    assert any("600 runs per arm, max certifiable" in line for line in plan_lines(plan))


@pytest.mark.simulations
@pytest.mark.parametrize("design", ["independent", "one_run"])
def test_what_a_plan_says_is_what_the_audit_does(assay, planned, written, design):
    path = written()
    text = path.read_text()
    text = text[: text.index("[defenses.flip]")] + "[defenses.label_randomised_response]\nepsilon = 1.0\n"
    path.write_text(text.replace("[vertical.main.audit]", f'[vertical.main.audit]\ndesign = "{design}"'))
    lines = [line for line in plan_lines(planned(text=path.read_text())) if line.startswith("audit")]
    rows = [row for row in assay(path).records if row.role == "audit" and row.verdict]
    assert len(lines) == 2
    for row in rows:
        (line,) = [line for line in lines if Observer.parse(row.observer).phrase in line]
        if row.verdict == "OUT_OF_SCOPE":
            assert "OUT OF SCOPE" in line
        else:
            assert f"max certifiable {row.ceiling:.2f}" in line


PREPARED = "VerticalPrepared(protection=Flipped(keep), claims=(claim,))"


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("None", "got None"),
        ('{"protection": 1}', "got an object of type dict"),
        ("VerticalPrepared(protection=3, claims=())", "protection must be a VerticalProtection, got 3"),
        (PREPARED.replace("(claim,)", "'abc'"), "claims must be a tuple of Claim, got 'abc'"),
        (PREPARED.replace("(claim,)", "(claim, 1)"), "claims must be a tuple of Claim, got an entry 1"),
        (PREPARED[:-1] + ", laws={'x': 1})", "laws must be .* VerticalLaw by claim_id, got the entry 'x': 1"),
        (PREPARED[:-1] + ", laws=3)", "laws must be .* VerticalLaw by claim_id, got 3"),
        (
            PREPARED[:-1] + ", spending={'x': object()})",
            "spending must be .*, got the entry 'x': an object of type object",
        ),
    ],
)
def test_what_prepare_returns_is_refused_by_the_field_that_is_wrong(planned, own_module, suite_file, returned, words):
    module = own_module(OWN.replace(PREPARED, returned))
    with pytest.raises(
        ConfigError, match=rf"defense flip: prepare\(plan\) must return VerticalPrepared.*{words}"
    ) as found:
        planned(text=suite_file(text=SUITE.format(more="").replace("MODULE", module)).read_text())
    assert " at 0x" not in str(found.value)


TABLE = SUITE[SUITE.index("people = 300") : SUITE.index("people = 8")]
AUDIT, FLIP = "[vertical.main.audit]", '[defenses.flip]\npart = "MODULE:Flip"'
FEW = "people = 3\nepochs = 2\nbatch = 2\nlearning_rate = 0.5\nsummed = true\nknown = 1\n\n"
REFUSED = [
    ("people = 300", "people = 40", "batch must be at most people"),
    ("people = 300", "people = 3000", "at most 1347"),
    ("summed = true", "summed = true\nembedding = 3", "embedding must be classes"),
    ("epochs = 2", "epochs = 2\nknown = 300", "known must be below people = 300"),
    ("summed = true", "columns = [[0, 1], [1, 2]]", "held by one party only"),
    ("summed = true", 'columns = [["left"], [2]]', r"line \d+: .*unknown column 'left'; .* have no names"),
    ("summed = true", "columns = [3]", r"line \d+: vertical.main.columns: .* a list of at most"),
    *(
        ("summed = true", f"columns = {wrong}", r"line \d+: vertical.main.columns: .*from 1 .*got " + shown)
        for wrong, shown in (("0", "0"), ("-1", "-1"), ("true", "True"))
    ),
    (TABLE, f'{FEW}{AUDIT}\ndesign = "one_run"\n', r"line 7: people must be >= 4 .* got 3"),
    (FLIP, f"{FLIP}\nreplicas = 300", r"line \d+: defenses.flip.replicas changes federations of clients"),
    (FLIP, "[defenses.dp_sgd]", r"line \d+: defense dp_sgd runs on federations of clients .* the suite has none"),
    (FLIP, "[defenses.embedding_bits]", r"line \d+: defense embedding_bits cannot be prepared for federation main"),
    (FLIP, f'{FLIP}\n[attacks.loss]\nfederation = "other"', "no federation 'other'"),
    (FLIP, f"{FLIP}\n[audit]\nfederation = 'main'", r"line \d+: audit.federation: .*known: \(no name is known\)"),
]


@pytest.mark.parametrize(("old", "new", "words"), REFUSED)
def test_settings_that_do_not_fit_are_refused(planned, own_module, old, new, words):
    text = SUITE.format(more="")
    assert old in text
    with pytest.raises(ConfigError, match=words):
        planned(text=text.replace(old, new).replace("MODULE", own_module(OWN)))
