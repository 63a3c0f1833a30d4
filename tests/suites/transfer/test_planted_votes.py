"""Planted votes: the attacked teacher votes as drawn, all other teachers as before."""

import numpy as np
import torch
from fedassay.fl.streams import Streams
from fedassay.fl.transfer.protection import votes_of
from fedassay.suites.transfer import Transferred, planted
from toy_transfer import votes_plan


def test_only_the_attacked_teachers_votes_change_and_they_are_uniform():
    plan = votes_plan(teachers=4, queries=200, classes=3)
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 4, 200, 3))).float()
    found = Transferred(task=None, plan=plan, streams=Streams(0), logits=logits, event=None)
    votes, changed = planted(found, teacher=2, runs=50)
    assert votes.shape == (50, 200)
    assert torch.equal(votes_of(changed)[:, 2].argmax(-1), votes)
    kept = [0, 1, 3]
    assert torch.equal(changed[:, kept], logits[:, kept].expand(50, 3, 200, 3))
    # The same logits in another order.
    assert torch.equal(changed[:, 2].sort(-1).values, logits[:, 2].sort(-1).values.expand(50, 200, 3))
    shares = torch.bincount(votes.flatten(), minlength=3) / votes.numel()
    assert bool((abs(shares - 1 / 3) < 5 * (2 / 9 / 10_000) ** 0.5).all())
    assert not torch.equal(votes[0], votes[1])
    assert torch.equal(logits, found.logits)
