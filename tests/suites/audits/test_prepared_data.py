"""A suite's preparation of data: in trainings, plans and identities, and in the verdict and exit code of a run."""

import pytest
from fedassay.suites.config.source import ConfigError
from fedassay.suites.results.outcome import row_exit_code

OWN = """\
from dataclasses import dataclass, replace

import torch

from fedassay.fl.preparation import Preparation, PreparedData


def moved(records, shift):
    images = (0.5 * records.train_images + shift).clamp(0, 1)
    return replace(records, train_images=images, train_masks=None, test_masks=None)


@dataclass(frozen=True, kw_only=True)
class Public(Preparation):
    shift: float = 0.25
    rate: float = 0.3

    def prepare(self, records, rng):
        return PreparedData(dataset=moved(records, self.shift), algorithm={"learning_rate": self.rate})


@dataclass(frozen=True, kw_only=True)
class Private(Preparation):
    def prepare(self, records, rng):
        mean = float(records.train_images.mean())
        return PreparedData(dataset=moved(records, mean), published={"mean": mean})


@dataclass(frozen=True, kw_only=True)
class Sampled(Preparation):
    def prepare(self, records, rng):
        kept = torch.from_numpy(rng.random(len(records.train_labels)) < 0.0625)
        images, labels = records.train_images.where(kept.view(-1, 1, 1, 1), 0), records.train_labels.where(kept, 0)
        changes = {"train_images": images, "train_labels": labels, "train_masks": None, "test_masks": None}
        return PreparedData(dataset=replace(records, **changes))


@dataclass(frozen=True, kw_only=True)
class Refuses(Preparation):
    def prepare(self, records, rng):
        if float(records.train_images[..., 0, 0].max()) > 0.9:
            raise RuntimeError("outlier")
        return PreparedData(dataset=records)
"""
DEFENSE = """\
[defenses.dp_sgd]
epsilon = 4.0
[audit]
clients = 2
samples_per_client = 4
replicas = 250
noise_shares = [0.5]
"""
FEDERATION = {"clients": 3, "samples": 60, "rounds": 2, "algorithm": {"name": "fedsgd", "learning_rate": 0.5}}


@pytest.fixture
def plan(planned, own_module):
    """(class or table, fields of the federation) -> the plan of a run of that suite."""
    module = own_module(OWN)

    def of(preparation, **more):
        given = {"part": f"{module}:{preparation}", **more.pop("options", {})}
        return planned(text=DEFENSE, **(FEDERATION | {"preparation": given} | more))

    return of


def test_trainings_and_audits_use_the_prepared_data_and_the_options_of_the_algorithm(plan):
    made = plan("Public", options={"shift": 0.5})
    (block,) = made.blocks
    for task, public in (block.own, block.small, block.checked):
        assert float(task.images.min()) >= 0.5
        assert public.algorithm.learning_rate == 0.3


def test_options_of_a_preparation_are_part_of_a_cell(plan):
    one, same, other = (plan("Public", options={"shift": shift}).blocks[0].cell.cell_id for shift in (0.1, 0.1, 0.2))
    assert one == same != other


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"label_noise": 0.1}, "a federation with a preparation has no label_noise"),
        ({"warm_start": {"samples": 5, "steps": 1, "learning_rate": 0.1}}, "has no warm_start"),
        ({"options": {"shfit": 1.0}}, "preparation .*:Public has no option 'shfit'; it has: shift or rate"),
        ({"options": {"rate": -1.0}}, "preparation: algorithm: .*learning_rate must be a number > 0"),
    ],
)
def test_what_does_not_go_together_is_refused_before_any_work(fields, words, plan):
    with pytest.raises(ConfigError, match=words):
        plan("Public", **fields)


def test_an_error_of_the_preparation_names_its_line(planned, own_module):
    module = own_module(OWN.replace("mean = float(", "mean = 1 / float(0 * "))
    with pytest.raises(ConfigError, match=r"federation main cannot be set up: preparation Private\.prepare: ZeroDiv"):
        planned(text=DEFENSE, **(FEDERATION | {"preparation": f"{module}:Private"}))


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("Public", 0, "NOT REFUTED"),
        ("Private", 10, "mean differs between two neighbouring data sets in every draw"),
        ("Refuses", 11, "preparation: not looked at: "),
        ("Sampled", 11, "which may amplify privacy"),
    ],
)
def test_the_exit_code_of_a_run_follows_from_its_preparation(name, code, words, own_module, suite_file, assay):
    module = own_module(OWN)
    run = assay(suite_file(text=DEFENSE, **(FEDERATION | {"preparation": f"{module}:{name}"})))
    (row,) = (row for row in run.records if row.role == "audit")
    assert row_exit_code(row) == code
    assert words in row.reason or words in row.verdict.replace("_", " ")
