"""What the replicas of a claim share (data, initial model) and what they may not (cohorts, lots, noise, coins)."""

import itertools

import numpy as np
import pytest
import torch
from fedassay.fl.engine import run_federation
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch
from fedassay.suites.audits.canary_replicas import canary_for
from tape import Tape

TABLES = '[defenses.dp_sgd]\n\n[audit]\nclients = 8\nsamples_per_client = 40\nreplicas = 8\ncanary = "CANARY"\n'
SUITE = {"text": TABLES, "seeds": 2, "alpha": 0.05, "clients": 8, "samples": 320, "rounds": 3}
SUITE |= {"lot": {"poisson": 0.5}, "cohort": {"poisson": 0.5}}


@pytest.fixture(params=["dirac", "crafted"])
def taped(request, planned):
    """Every (seed, arm, block) of a claim: its task, and the events of two replicas."""
    found = {}
    for job in planned("CANARY", request.param, **SUITE).blocks:
        for arm, block in itertools.product((0, 1), (0, 1, 2)):
            task, plan = job.small
            tape, batch = Tape(), Batch(replicas=2, block=block, arm=arm)
            canary = canary_for(job)
            run_federation(task, plan, job.protection, Streams(job.seed), batch=batch, canary=canary, recorders=[tape])
            found[job.seed, arm, block] = (task, tape.events)
    return found


def test_the_replicas_of_a_seed_share_data_and_initial_model(taped):
    for seed in (0, 1):
        runs = [run for (own, _, _), run in taped.items() if own == seed]
        (task, events), *others = runs
        for other, seen in others:
            assert torch.equal(task.images, other.images)
            assert [part.tolist() for part in task.parts] == [part.tolist() for part in other.parts]
            assert torch.equal(events[0].broadcast, seen[0].broadcast)
        assert torch.equal(events[0].broadcast[0], events[0].broadcast[1])


def test_no_two_replicas_share_a_cohort_a_lot_or_a_draw_of_noise(taped):
    """48 clients' lots of 40 samples and 24 cohorts of 8 clients: equal ones would be a shared stream, not chance."""
    cohorts, lots, noise = [], [], []
    for _, events in taped.values():
        for replica in range(2):
            cohort = np.zeros((3, 8), dtype=bool)
            for number, event in enumerate(events):
                for row, sender in enumerate(event.reports.senders):
                    cohort[number, sender] = event.reports.present[replica, row]
                    if event.reports.present[replica, row]:
                        lots.append(event.lots[sender][0][replica].numpy().tobytes())
                        # DP-SGD's noise is on every weight; no two uploads that hold it are equal anywhere.
                        noise.append(float(event.reports.values[replica, row, 0]))
            cohorts.append(cohort.tobytes())
    assert len(taped) == 12
    assert len(set(cohorts)) == len(cohorts) == 24
    assert len(lots) > 200
    assert len(set(lots)) == len(lots)
    assert len(set(noise)) == len(noise)
