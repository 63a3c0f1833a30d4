"""Membership masks: a replica trains on the samples that are in, and on nothing else."""

import dataclasses

import pytest
import torch
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import LotRecorder
from fedassay.fl.sampling import FixedSize, Full, Poisson
from fedassay.fl.streams import Streams, uniform
from fedassay.fl.training.local import Batch

SIZES = (6, 10, 4, 8)


class PerSample(Protection):
    """No protection, by per-sample gradients."""

    per_sample = True


class Looking(Protection):
    """Uses a client's samples in addition to its lots."""

    def report(self, updates, context, state, rng):
        context.samples(0)
        return updates


def half_of_each(task, replicas):
    """Masks that leave each client as many samples, so that a mean over clients weighs them as the plan does."""
    rng = Streams(7).generator("halves")
    included = torch.zeros(replicas, len(task.labels), dtype=torch.bool)
    for replica in range(replicas):
        for part in task.parts:
            chosen = torch.from_numpy(rng.permutation(len(part))[: len(part) // 2])
            included[replica, part[chosen]] = True
    return included


def restricted(task, included):
    """The task of those alone who are in."""
    return dataclasses.replace(task, parts=tuple(part[included[part]] for part in task.parts))


@pytest.mark.parametrize("protection", [Protection(), PerSample()], ids=["mean", "per sample"])
@pytest.mark.parametrize(
    "algorithm", [FedSGD(learning_rate=0.5), FedAvg(learning_rate=0.3, local_steps=3)], ids=["fedsgd", "fedavg"]
)
@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_a_replica_is_the_federation_of_those_who_are_in(make_task, make_plan, model, algorithm, protection):
    task = make_task(SIZES, model=model)
    included = half_of_each(task, 3)
    plan = make_plan(task, algorithm=algorithm)
    found = run_federation(task, plan, protection, Streams(0), batch=Batch(replicas=3, included=included))
    for replica in range(3):
        alone = restricted(task, included[replica])
        expected = run_federation(alone, make_plan(alone, algorithm=algorithm), protection, Streams(0))
        torch.testing.assert_close(found[replica], expected[0], atol=1e-5, rtol=0)
    assert not torch.allclose(found[0], found[1], atol=1e-3)


@pytest.mark.parametrize(
    "protection",
    [
        Protection(),
        DPSGDProtection(clip_norm=1.0, noise_multiplier=0.5),
        LDPGaussianProtection(clip_norm=1.0, noise_std=0.1),
    ],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("lot", [Full(), Poisson(0.4)], ids=str)
def test_what_is_out_can_be_anything(make_task, make_plan, protection, lot):
    """Not a bit of a replica moves where another image and label stand in for one that is out of it."""
    task = make_task(SIZES)
    included = uniform(Streams(1).generator("coins"), (4, len(task.labels))) < 0.5
    plan, batch = make_plan(task, lot=lot), Batch(replicas=4, included=included)
    found = run_federation(task, plan, protection, Streams(0), batch=batch)
    for replica in range(4):
        images, labels = task.images.clone(), task.labels.clone()
        images[~included[replica]], labels[~included[replica]] = 0.77, 2
        other = dataclasses.replace(task, images=images, labels=labels)
        again = run_federation(other, plan, protection, Streams(0), batch=batch)
        assert torch.equal(found[replica], again[replica])


def test_a_mask_of_all_samples_changes_nothing(make_task, make_plan):
    task = make_task(SIZES)
    plan = make_plan(task, lot=Poisson(0.4))
    everybody = Batch(replicas=2, included=torch.ones(2, len(task.labels), dtype=torch.bool))
    found = [run_federation(task, plan, Protection(), Streams(0), batch=b) for b in (everybody, Batch(replicas=2))]
    assert torch.equal(*found)


def test_lots_are_those_of_the_plan_less_who_is_out(make_task, make_plan):
    """The same draws: leaving one sample out changes no other sample's draw."""
    task = make_task(SIZES)
    plan = make_plan(task, lot=Poisson(0.5))
    included = half_of_each(task, 2)
    drawn = []
    for mask in (included, None):
        recorder = LotRecorder(client=1)
        batch = Batch(replicas=2, included=mask)
        run_federation(task, plan, Protection(), Streams(0), batch=batch, recorders=[recorder])
        drawn.append(torch.stack([step for steps in recorder.lots for step in steps]))
    assert torch.equal(drawn[0], drawn[1] & included[:, task.parts[1]])


def test_a_client_without_samples_sends_nothing(make_task, make_plan):
    task = make_task(SIZES)
    included = torch.ones(1, len(task.labels), dtype=torch.bool)
    for part in task.parts:
        included[:, part] = False
    plan = make_plan(task)
    final = run_federation(task, plan, Protection(), Streams(0), batch=Batch(included=included))
    torch.testing.assert_close(final[0], task.network.initial(Streams(0).generator("init")))


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (torch.ones(2, 28, dtype=torch.bool), r"booleans of shape \(replicas, samples\) with 1 rows, got \(2, 28\)"),
        (torch.ones(1, 28), "got .* of torch.float32"),
        (torch.ones(28, dtype=torch.bool), r"got \(28,\)"),
        (torch.ones(1, 27, dtype=torch.bool), "included .*must have a column for each of the 28 samples, got 27"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(make_task, make_plan, mask, words):
    task = make_task(SIZES)
    with pytest.raises(ValueError, match=words):
        run_federation(task, make_plan(task), Protection(), Streams(0), batch=Batch(included=mask))


def test_lots_of_one_size_are_refused_under_a_mask(make_task, make_plan):
    task = make_task(SIZES)
    batch = Batch(included=torch.ones(1, len(task.labels), dtype=torch.bool))
    with pytest.raises(ValueError, match=r"included .*needs full or Poisson sampling of batches, got FixedSize"):
        run_federation(task, make_plan(task, lot=FixedSize(3)), Protection(), Streams(0), batch=batch)


def test_a_protection_that_looks_at_more_than_lots_is_refused_under_a_mask(make_task, make_plan):
    task, plan = make_task(SIZES), None
    plan = make_plan(task)
    run_federation(task, plan, Looking(), Streams(0))
    batch = Batch(included=torch.ones(1, len(task.labels), dtype=torch.bool))
    with pytest.raises(ValueError, match="uses all of a client's samples"):
        run_federation(task, plan, Looking(), Streams(0), batch=batch)
