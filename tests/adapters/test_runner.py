"""All checks of a system at once, with and without play-back, and systems that are no runners."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from fedassay.adapters.play_back import PlayBack, Step
from fedassay.adapters.replicas import audit_replicas, plan_replicas
from fedassay.adapters.runner import is_runner, watch
from fedassay.checks.training_record import Release, TrainingRecord
from foreign_runner import LAYOUT, GaussianRunner


def test_a_system_without_play_back_is_watched():
    assert watch(GaussianRunner()).failed == ()
    assert [one.name for one in watch(GaussianRunner(share=0.1)).failed] == ["noise scale"]
    assert is_runner(GaussianRunner())
    assert not is_runner(GaussianRunner)


@dataclass(frozen=True)
class Played(GaussianRunner):
    """Its step sums rows without a clip; ``takes_rows``: or takes none."""

    takes_rows: bool = True

    def play_back(self, seed):
        if not self.takes_rows:
            raise ValueError("no rows can be played back")
        step = Step(call=lambda rows, seed: rows.sum(0), layout=LAYOUT, clip_norm=1.0, noise_multiplier=1.0)
        return PlayBack(step, seed)


@pytest.mark.parametrize(("takes_rows", "passed"), [(True, False), (False, None)])
def test_a_system_with_play_back_is_also_played(takes_rows, passed):
    last = watch(Played(takes_rows=takes_rows)).results[-1 if not takes_rows else -2]
    assert last.passed is passed


class ReturnsNothing(GaussianRunner):
    def run(self, member=False, seed=0, *, plant=None):
        super().run(member, seed, plant=plant)


class TakesASeedAlone(GaussianRunner):
    def run(self, seed):
        return super().run(False, seed)


@pytest.mark.parametrize(
    ("system", "words"),
    [
        (ReturnsNothing(), "run of ReturnsNothing must return a TrainingRecord, got NoneType in"),
        (TakesASeedAlone(), r"run of TakesASeedAlone must take \(member, seed, \*, plant=None\), .*is \(seed\)"),
    ],
)
@pytest.mark.parametrize("use", [watch, plan_replicas, audit_replicas])
def test_a_method_run_of_another_kind_is_refused_with_what_is_wanted(system, words, use):
    with pytest.raises(ValueError, match=words):
        use(system)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("claim", "epsilon 1", "must be a Claim, got 'epsilon 1'"), ("law", 1.0, "must be a GaussianLaw, .*got 1.0")],
)
def test_a_claim_or_law_of_another_kind_is_refused(name, value, words):
    system = type("Stated", (GaussianRunner,), {name: value})()
    with pytest.raises(ValueError, match=f"{name} of Stated {words}"):
        plan_replicas(system)


def test_runs_of_other_numbers_of_releases_are_refused_with_the_run():
    class Shorter(GaussianRunner):
        def run(self, member=False, seed=0, *, plant=None):
            found = super().run(member, seed, plant=plant)
            return replace(found, releases=found.releases[: 3 if member else None])

    with pytest.raises(ValueError, match="got 3 in run 0 with the planted unit, and 5 in the first run"):
        audit_replicas(replace(Shorter(), replayable=False), plan=plan_replicas(GaussianRunner()))


@pytest.mark.parametrize(
    ("released", "words"),
    [
        (np.zeros(6), r"released of step 0 must be a tensor \(d,\), got ndarray"),
        (torch.zeros(5), r"released of step 0 must have shape \(6,\), as the layout has, got \(5,\)"),
    ],
)
def test_releases_that_do_not_fit_the_layout_are_refused(released, words):
    with pytest.raises(ValueError, match=words):
        TrainingRecord(
            layout=LAYOUT, releases=(Release(step=0, released=released, clip_norm=1.0, noise_multiplier=1.0),)
        )
