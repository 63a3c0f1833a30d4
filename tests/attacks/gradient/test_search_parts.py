"""Searches in parts: what one batch holds changes no find by a bit, and holds no more than it may."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from digits_federation import digits_run
from fedassay.attacks.attack import Knowledge
from fedassay.attacks.gradient import search
from fedassay.attacks.gradient.dlg import DLG
from fedassay.attacks.gradient.fedavg_inversion import FedAvgInversion
from fedassay.attacks.gradient.grad_inversion import GradInversion
from fedassay.attacks.gradient.image_attack import ImageLots, SearchAttack
from fedassay.attacks.gradient.inversion import GradientInversion
from fedassay.attacks.gradient.map_inversion import MapInversion
from fedassay.attacks.gradient.search import upload_parts
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import View
from torch import Tensor


@cache
def federation(model: str = "lenet") -> tuple[View, Knowledge]:
    """Four uploads of three images each, with next to no noise; with none where the model draws or mixes."""
    protection = DPSGDProtection(clip_norm=1.0, noise_multiplier=1e-3) if model == "lenet" else Protection()
    return digits_run(model, 4, 12, protection=protection)[1:]


def found(attack: Any, model: str = "lenet") -> np.ndarray:
    images: np.ndarray = attack.run(*federation(model), np.random.default_rng(0)).images
    return images


@pytest.mark.simulations
@pytest.mark.parametrize("attack", [GradientInversion, MapInversion, GradInversion, FedAvgInversion, DLG])
def test_finds_are_the_same_bit_for_bit_however_few_uploads_are_in_a_part(
    attack: type[SearchAttack], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All four uploads at once, two and two, one by one; GradInversion's restarts still pull each other."""
    whole = found(attack(iterations=8, restarts=2))
    for held, parts in ((2 * 2 * 3 * 6500, 2), (1, 4)):
        monkeypatch.setattr(search, "_HELD", held)
        assert len(upload_parts(8, 2, 3 * (5854 + 64))) == parts
        np.testing.assert_array_equal(found(attack(iterations=8, restarts=2)), whole)


@pytest.mark.simulations
@pytest.mark.parametrize("model", ["lenet_dropout", "lenet_bn"])
@pytest.mark.parametrize("attack", [GradientInversion, GradInversion])
def test_parts_keep_what_an_upload_gives_away_of_its_model(
    attack: type[SearchAttack], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = found(attack(iterations=8, restarts=2), model)
    monkeypatch.setattr(search, "_HELD", 1)
    np.testing.assert_array_equal(found(attack(iterations=8, restarts=2), model), whole)


def test_parts_are_whole_uploads_and_as_large_as_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 numbers bear three restarts of 10 thrice; one upload that is too large stands alone."""
    monkeypatch.setattr(search, "_HELD", 100)
    assert upload_parts(21, 3, 10) == [slice(0, 9), slice(9, 18), slice(18, 21)]
    assert upload_parts(6, 3, 34) == [slice(0, 3), slice(3, 6)]
    assert upload_parts(0, 3, 10) == []


def test_no_batch_of_a_search_holds_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of 40 numbers and images of 10, of lots of two: 100 numbers a candidate."""
    monkeypatch.setattr(search, "_HELD", 450)
    sizes = list[int]()

    def objective(part: slice) -> search.Values:
        def values(images: Tensor) -> Tensor:
            sizes.append(len(images))
            return images.square().flatten(1).sum(1)

        return values

    start = ImageLots(images=torch.full((14, 2, 1, 2, 5), 0.5), labels=torch.arange(14).unsqueeze(1).expand(-1, 2))
    kept = GradientInversion(iterations=2, restarts=2).search(objective, start, 40)
    assert max(sizes) * (2 * 40 + 20) <= 450
    # Of equal restarts the first is kept, whichever part it is in.
    assert kept.labels[:, 0].tolist() == [0, 2, 4, 6, 8, 10, 12]
