"""Flat areas in MAP's prior: the fit, the peak by hand, and how far it is trusted."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from digits_federation import digits_run, psnr
from fedassay.attacks.gradient.image_attack import ImageLots
from fedassay.attacks.gradient.map_inversion import MapInversion
from fedassay.attacks.gradient.posterior import FlatPrior, GaussianPrior, ImagePosterior
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.defenses.shuffling.cldp_sgd import CLDPSGDProtection
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.laws import GaussianLaw
from fedassay.fl.models.network import Network
from fedassay.fl.streams import uniform
from toy_federation import flat_plan


def of_nothing(pixels):
    return GaussianPrior(mean=torch.zeros(pixels), class_means=torch.zeros(1, pixels), precision=torch.eye(pixels))


def federation(protection, clients=8):
    return digits_run("lenet", clients, clients, protection=protection, seed=1)


def test_the_fit_finds_which_differences_are_flat_and_how_wide_the_others_are():
    """Images of rows: from each pixel to the next a Laplace step, of a 255th with probability .7, else of .1; no two
    pixels below each other. 20,000 steps: a share's deviation is .004, the scale's 1.5 %.
    """
    rng = np.random.default_rng(0)
    steps = rng.laplace(size=(100, 1, 1, 200)) * np.where(rng.random((100, 1, 1, 200)) < 0.7, 1 / 255, 0.1)
    prior = FlatPrior.of(torch.from_numpy(0.5 + steps.cumsum(-1)).float(), of_nothing(200))
    assert prior.flat == 1 / 255
    assert prior.share == pytest.approx(0.7, abs=0.02)
    assert prior.wide == pytest.approx(0.1, rel=0.06)


def test_what_a_flat_pair_adds_by_hand():
    """Three pixels in a row, differences 0 and .2: log mixture less the wide part's log, halved."""
    prior = FlatPrior(gaussian=of_nothing(3), share=0.25, flat=0.01, wide=0.3)
    image = torch.tensor([0.4, 0.4, 0.6])

    def added(size):
        wide = 0.75 / 0.6 * math.exp(-size / 0.3)
        return math.log(0.25 / 0.02 * math.exp(-size / 0.01) + wide) - math.log(wide)

    expected = 0.5 * float(image.square().sum()) - (added(0.0) + added(0.2)) / 2
    assert prior.values(image.view(1, 1, 1, 1, 3)).item() == pytest.approx(expected, abs=1e-6)


def test_uploads_that_tell_nothing_leave_the_gaussian():
    """Where the resolution of pixels is the wide scale, a flat pair adds the same to every image: no slope."""
    prior = FlatPrior(gaussian=of_nothing(16), share=0.4, flat=1 / 255, wide=0.3).seen_at(1.0)
    images = uniform(np.random.default_rng(0), (5, 1, 1, 4, 4))
    apart = prior.values(images) - prior.gaussian.values(images)
    torch.testing.assert_close(apart, apart[:1].expand(5))
    assert prior.seen_at(0.0).flat == prior.flat


@pytest.mark.parametrize("rounds", [1, 4])
@pytest.mark.parametrize("sigma", [0.001, 0.1])
def test_the_resolution_is_that_of_the_fisher_information(sigma, rounds):
    """Logistic regression at weights of zero: each pixel has sum(factor^2) / sigma^2 a round, all alike, so that nats
    are half the squared distance of two images times that. Pixels of deviation .1 about .5.
    """
    network, rng = Network(model="logistic", shape=(1, 5, 5), classes=4), np.random.default_rng(1)
    factor = torch.full((4,), 0.25) - torch.eye(4)[2]
    pixels = torch.from_numpy(0.5 + 0.1 * rng.standard_normal((120, 1, 1, 5, 5))).float()
    labels = torch.full((120, 1), 2)
    gradients = torch.cat([torch.einsum("c,np->ncp", factor, pixels.flatten(1)).flatten(1), factor.expand(120, 4)], 1)
    law = GaussianLaw(clip_norm=100.0, scale=-1.0, noise_std=sigma)
    plan = flat_plan(1, size=1, rounds=rounds, algorithm=FedSGD(learning_rate=1.0), layout=network.layout)
    posterior = ImagePosterior(
        network=network,
        plan=plan,
        client=0,
        law=law,
        models=(torch.zeros(network.layout.dim),) * rounds,
        releases=tuple(law.sample(-gradients[:60], rng) for _ in range(rounds)),
        prior=of_nothing(25),
    )
    lots = ImageLots(images=pixels[60:], labels=labels[60:])
    information = rounds * float(factor.square().sum()) / sigma**2
    expected = 4 * 0.1 / math.sqrt(1 + 0.1**2 * information)
    # At sigma .1 and one round 1/13 nat a pixel: the mean over 60 lots of 104 numbers is .06 off at one deviation.
    assert posterior.resolution(lots, 0.1, rng) == pytest.approx(expected, rel=0.05)


@pytest.mark.simulations
def test_flat_areas_sharpen_what_little_noise_lets_through(monkeypatch):
    """Noise of .001 clip norms: the same search with and without."""
    task, view, knowledge = federation(DPSGDProtection(clip_norm=1.0, noise_multiplier=1e-3))

    def mean():
        attack = MapInversion(iterations=120, restarts=1)
        return float(psnr(attack.run(view, knowledge, np.random.default_rng(0)).images, task).mean())

    sharp = mean()
    monkeypatch.setattr(FlatPrior, "seen_at", lambda prior, resolution: replace(prior, flat=prior.wide))
    assert sharp > mean() + 1


def test_a_report_of_one_bit_can_be_searched_by():
    """CLDP-SGD's density takes a release for each candidate."""
    _, view, knowledge = federation(CLDPSGDProtection(radius=0.1, local_epsilon=2.0), clients=2)
    found = MapInversion(iterations=2).run(view, knowledge, np.random.default_rng(0))
    assert found.images.shape == (2, 1, 8, 8)
    assert np.isfinite(found.images).all()
