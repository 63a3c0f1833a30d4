"""One run with many planted units: scores, a gross fault, a correct system, and wrong use."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.adapters.many_units import ManyUnits, audit_many_units
from fedassay.checks.training_record import Release, TrainingRecord
from fedassay.defenses.accounting.stated_laws import claim_from_noise
from fedassay.fl.laws import GaussianLaw
from fedassay.fl.layout import Layout

LAYOUT = Layout(names=("weight",), shapes=((1500,),))
STEPS = 4


class OneRun:
    """Gaussian releases of all records; ``clip`` is the length at which a row is really clipped."""

    def __init__(self, *, clip=1.0, share=1.0):
        self.clip, self.share = clip, share
        self.claim = claim_from_noise(4.0, delta=1e-5, steps=STEPS)
        self.law = GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=4.0)

    def run_many_units(self, many, seed=0):
        rng = np.random.default_rng(seed)
        rows = torch.stack(list(many.vectors(LAYOUT)))
        lengths = rows.norm(dim=1, keepdim=True).clamp_min(1e-9)
        total, rest = (rows * (self.clip / lengths).clamp(max=1)).sum(0), torch.zeros(1500)
        releases = []
        for step in range(STEPS):
            noise = 4.0 * self.share * torch.from_numpy(rng.standard_normal(1500))
            releases.append(Release(step=step, released=total + noise, rest=rest, clip_norm=1.0, noise_multiplier=4.0))
        return TrainingRecord(layout=LAYOUT, releases=tuple(releases))


def test_coins_are_fair_and_coordinates_differ():
    many = ManyUnits(units=1000)
    assert 440 < many.coins.sum() < 560
    assert len(set(many.coordinates(LAYOUT))) == 1000
    taken = [float(vector.norm()) for vector in many.vectors(LAYOUT)]
    assert taken == [10.0 * coin for coin in many.coins]


@pytest.mark.parametrize(("broken", "verdict"), [({}, "NOT_REFUTED"), ({"clip": 10.0}, "REFUTED")])
def test_a_missing_clip_is_refuted_and_the_correct_system_is_not(broken, verdict):
    assert audit_many_units(OneRun(**broken), ManyUnits(units=1000)).verdict.value == verdict


@pytest.mark.long
def test_correct_systems_are_refuted_no_oftener_than_alpha():
    found = [audit_many_units(OneRun(), ManyUnits(units=400, seed=n), seed=n).verdict.value for n in range(100)]
    assert found.count("REFUTED") <= 11  # 5 expected at most; more than 11 have probability .004.


def test_wrong_use_is_refused():
    with pytest.raises(ValueError, match="units must be at most the 1500 coordinates, got 2000"):
        ManyUnits(units=2000).coordinates(LAYOUT)
    with pytest.raises(ValueError, match="weight"):
        ManyUnits(units=3, weight=0.0)
    runner = OneRun()
    runner.law = None
    with pytest.raises(ValueError, match="many units are scored by one noise multiplier"):
        audit_many_units(runner, ManyUnits(units=3))
    run = OneRun().run_many_units(ManyUnits(units=3))
    unknown = replace(run, releases=(replace(run.releases[0], rest=None),))
    with pytest.raises(ValueError, match="step 0 holds no sum without the planted units"):
        ManyUnits(units=3).scores(unknown, OneRun().law)
