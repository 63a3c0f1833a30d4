"""Independent runs of the audit: what is kept of them does not grow with their number."""

import numpy as np
from fedassay.audit.claim import Claim
from fedassay.audit.observer import PASSIVE_PARTY
from fedassay.defenses.vertical.labels.label_randomised_response import LabelRandomisedResponse
from fedassay.fl.streams import Streams
from fedassay.suites.vertical import runs
from fedassay.suites.vertical.pairs import pair_of_labels
from toy_vertical import SPLIT, toy_vertical


def measured(**settings):
    task, plan = toy_vertical(SPLIT)
    claim = Claim.stated(1.0, unit="label", observer=PASSIVE_PARTY, rounds=plan.epochs)
    protection = LabelRandomisedResponse(epsilon=3.0).prepare(plan).protection
    pair = pair_of_labels(task, Streams(1))
    return runs.measured_in_runs(
        claim, task, plan, protection, streams=Streams(1), pairs=[pair], replicas=2000, alpha=0.01, **settings
    )


def test_scores_learned_on_fewer_runs_still_find_a_false_claim(monkeypatch):
    whole = measured(pilot=1000)
    monkeypatch.setattr(runs, "MOST_KEPT", 1)
    few = measured(pilot=1000)
    assert few.epsilon_low > 1
    assert whole.epsilon_low > 1


def test_blocks_are_kept_up_to_the_limit(monkeypatch):
    monkeypatch.setattr(runs, "MOST_KEPT", 100)
    made = []

    def blocks():
        for number in range(50):
            made.append(number)
            yield [np.full((4, 2), number), np.full((4, 10), number)]

    own, everything = runs._kept(blocks())
    assert (own.shape, everything.shape) == ((8, 2), (8, 10))
    assert len(made) == 2
