"""Label likelihood under layers of different noise, and under laws that are no Gaussian; the plain law as ever."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from digits_federation import dealt_digits, received
from fedassay.attacks.attack import Attack, Knowledge
from fedassay.attacks.labels.bias_corrected import BiasCorrected
from fedassay.attacks.labels.label_attack import noise_units
from fedassay.attacks.labels.label_likelihood import LabelLikelihood
from fedassay.audit.observer import UPLOADS
from fedassay.defenses.layers.protection import LayeredProtection
from fedassay.defenses.local.numbers.ldp_laplace import LDPLaplace
from fedassay.defenses.local.vectors.em_mds import LDPEMMDS
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.laws import GaussianLaw, LayeredGaussianLaw
from fedassay.fl.plan import Plan
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import View
from fedassay.fl.task import Task
from fedassay.suites.scoring.label_rows import score_labels
from toy_federation import toy_plan


@cache
def setting(model: str) -> tuple[Task, Plan]:
    task = dealt_digits(model, 16, 256, seed=1)
    return task, toy_plan(task, rounds=1, algorithm=FedSGD(learning_rate=1.0))


def seen(protection: Protection, model: str = "lenet") -> tuple[View, Knowledge]:
    task, plan = setting(model)
    return received(task, plan, protection, seed=1), Knowledge.of(task, plan, protection)


def accuracy(part: Attack, view: View, knowledge: Knowledge, model: str = "lenet") -> float:
    task, _ = setting(model)
    truth = np.stack([np.bincount(task.labels[held].numpy(), minlength=10) for held in task.parts])
    return score_labels(part.run(view, knowledge, np.random.default_rng(0)).counts, truth).accuracy.mean()


def layered(std: float, *, loud: str, clip_norm: float = 1.0) -> LayeredProtection:
    """Noise ``std``, thirty times as much in the layers whose name begins with ``loud``."""
    names = setting("lenet")[1].layout.names
    stds = tuple(std * (30 if name.startswith(loud) else 1) for name in names)
    return LayeredProtection(clip_norms=(clip_norm,) * len(names), noise_stds=stds)


@pytest.mark.parametrize(("std", "least"), [(3e-3, 0.98), (1e-2, 0.98), (3e-2, 0.9)])
def test_a_noisy_layer_has_little_weight(std: float, least: float) -> None:
    """Observed 1, 1 and .945; bias_corrected, which reads the quiet layer alone, 1, 1 and .926; without noise .926,
    .789 and .688, equal counts .678.
    """
    view, knowledge = seen(layered(std, loud="conv"))
    found = accuracy(LabelLikelihood(), view, knowledge)
    assert found > least
    assert found >= accuracy(BiasCorrected(), view, knowledge) - 0.02


def test_one_noise_for_all_layers_is_caught() -> None:
    """The planted bug: the last layer's noise, or the layers' pooled, used for all layers. Observed .746 and .660."""
    protection = layered(1e-2, loud="conv")
    view, knowledge = seen(protection)
    found = accuracy(LabelLikelihood(), view, knowledge)
    for std in (1e-2, 0.3):
        pooled = replace(
            knowledge, law=lambda observer, client, std=std: GaussianLaw(clip_norm=10, scale=1.0, noise_std=std)
        )
        assert accuracy(LabelLikelihood(), view, pooled) < found - 0.1


def test_each_layer_is_read_at_its_own_clip() -> None:
    """Observed .965; bias_corrected, which takes a clipped report for the truth, .789."""
    view, knowledge = seen(layered(1e-3, loud="conv", clip_norm=0.05))
    assert accuracy(LabelLikelihood(), view, knowledge) > accuracy(BiasCorrected(), view, knowledge) + 0.1


@pytest.mark.simulations
def test_layers_of_one_noise_and_no_clip_that_bites_are_the_plain_gaussian() -> None:
    view, knowledge = seen(layered(3e-2, loud="none", clip_norm=10.0))
    plain = replace(knowledge, law=lambda observer, client: GaussianLaw(clip_norm=10, scale=1.0, noise_std=3e-2))
    ours, theirs = (LabelLikelihood().run(view, told, np.random.default_rng(0)).counts for told in (knowledge, plain))
    assert np.array_equal(ours, theirs)


def test_units_are_the_noise_of_the_layer_that_a_coordinate_is_in() -> None:
    _, plan = setting("lenet")
    law = layered(1e-2, loud="conv").law(UPLOADS, plan, 0)
    assert isinstance(law, LayeredGaussianLaw)
    units, noise = noise_units(law, plan, np.random.default_rng(0))
    assert noise == 1.0
    for name, layer in plan.layout.slices.items():
        assert (units[layer] == (0.3 if name.startswith("conv") else 0.01)).all()


def test_a_local_randomisers_noise_is_drawn_and_is_its_variance() -> None:
    """Laplace of a scale b has variance 2 b^2, b = 2 radius / epsilon: fewer than one seed in 1e5 would fail."""
    _, plan = setting("lenet")
    dim = plan.layout.dim
    law = LDPLaplace(epsilon=3.0 * dim, radius=0.1, coordinates=dim).release(plan)
    units, _ = noise_units(law, plan, np.random.default_rng(0))
    wide = plan.layout.slices["output.weight"]
    assert units[wide].tolist() == pytest.approx([2**0.5 * 2 * 0.1 / 3] * len(units[wide]), rel=0.03)


def test_coordinates_that_hang_together_count_as_no_noise() -> None:
    _, plan = setting("logistic")
    for defense in (LDPLaplace(), LDPEMMDS()):
        law = defense.prepare(plan).protection.law(UPLOADS, plan, 0)
        assert law is not None
        assert noise_units(law, plan, np.random.default_rng(0))[1] == 0.0
