"""Nouns of a recorded run: releases, plants and projections."""

import pytest
import torch
from fedassay.checks.training_record import Plant, Release, TrainingRecord
from fedassay.fl.layout import Layout

LAYOUT = Layout(names=("a", "b"), shapes=((2,), (3,)))


def test_a_plant_lies_in_its_tensor():
    direction = Plant(tensor="b").direction(LAYOUT)
    assert direction[:2].tolist() == [0.0, 0.0]
    assert float(direction.norm()) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="tensor must be one of a, b, got 'c'"):
        Plant(tensor="c").direction(LAYOUT)


def test_projections_are_lengths_in_clip_norms():
    plant, rest = Plant(tensor="b"), torch.ones(5)
    direction = plant.direction(LAYOUT).float()
    release = Release(step=0, released=rest + 4 * direction, rest=rest, clip_norm=2.0, noise_multiplier=1.0)
    run = TrainingRecord(layout=LAYOUT, releases=(release,))
    assert run.projections(plant) == pytest.approx([2.0])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Plant(weight=0.0), "weight"),
        (lambda: Release(step=1, released=torch.zeros(2), clip_norm=0.0, noise_multiplier=1.0), "step 1: clip_norm"),
        (
            lambda: Release(
                step=1, released=torch.zeros(2), received=torch.zeros(3), clip_norm=1.0, noise_multiplier=1.0
            ),
            "step 1: received must have the shape of released",
        ),
    ],
)
def test_values_out_of_range_are_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        wrong()
