"""MAP inversion: least squares where gradients are linear, its prior where noise drowns them, a law or nothing.

Flat areas in MAP's prior: the fit, the peak by hand, and how far it is trusted.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from digits_federation import digits_run, psnr
from fedassay.attacks.attack import Undefined
from fedassay.attacks.gradient.image_attack import ImageLots
from fedassay.attacks.gradient.inversion import GradientInversion
from fedassay.attacks.gradient.map_inversion import MapInversion, _Start
from fedassay.attacks.gradient.mean_image import MeanImage
from fedassay.attacks.gradient.posterior import FlatPrior, GaussianPrior, ImagePosterior, TotalVariationPrior
from fedassay.attacks.gradient.search import slopes
from fedassay.audit.observer import UPLOADS
from fedassay.defenses.local.numbers.ldp_piecewise import LDPPiecewise
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.defenses.shuffling.cldp_sgd import CLDPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.laws import GaussianLaw
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import FixedSize
from fedassay.fl.streams import normal, uniform
from toy_federation import flat_plan


def federation(protection, *, model="lenet", clients=6, samples=1, **changes):
    changes = {"algorithm": FedSGD(learning_rate=0.1)} | changes
    return digits_run(model, clients, clients * samples, protection=protection, **changes)


def said(attack, seen):
    return attack.run(seen[1], seen[2], np.random.default_rng(0)).images


def at_zero(*, sigma, rounds=1):
    """Logistic regression at weights of zero, where softmax is uniform and gradients are linear in the image: the
    posterior of one upload of label 2, the images' factor in each weight ``(classes,)``, the noisy uploads.
    """
    network, rng = Network(model="logistic", shape=(1, 3, 3), classes=4), np.random.default_rng(1)
    factor = torch.full((4,), 0.25) - torch.eye(4)[2]
    image = 0.3 + 0.4 * uniform(rng, (9,))
    gradient = torch.cat([torch.outer(factor, image).flatten(), factor])
    uploads = -gradient + sigma * normal(rng, (rounds, len(gradient)))
    public = 0.35 + 0.3 * uniform(rng, (60, 1, 3, 3))
    algorithm = FedSGD(learning_rate=1.0)
    plan = flat_plan(1, size=1, rounds=rounds, algorithm=algorithm, layout=network.layout)
    posterior = ImagePosterior(
        network=network,
        plan=plan,
        client=0,
        law=GaussianLaw(clip_norm=100.0, scale=-1.0, noise_std=sigma),
        models=(torch.zeros(network.layout.dim),) * rounds,
        releases=tuple(uploads.unsqueeze(1)),
        prior=GaussianPrior.of(public, torch.full((60,), 2), 4),
    )
    return posterior, factor, uploads


def solved(posterior, factor, uploads, sigma):
    """Mode of the posterior in closed form: least squares on the weights' gradients, with the prior's precision."""
    prior = posterior.prior
    assert isinstance(prior, GaussianPrior)
    weights = -uploads[:, :36].view(-1, 4, 9)
    precision = prior.precision + len(uploads) * factor.square().sum() / sigma**2 * torch.eye(9)
    target = prior.precision @ prior.mean + torch.einsum("rcp,c->p", weights, factor) / sigma**2
    return torch.linalg.solve(precision, target)


@pytest.mark.simulations
@pytest.mark.parametrize(("sigma", "rounds"), [(0.01, 1), (0.1, 3)])
def test_where_gradients_are_linear_the_search_ends_at_least_squares(sigma, rounds):
    """Three rounds are one of a third of the variance: their log densities add up."""
    posterior, factor, uploads = at_zero(sigma=sigma, rounds=rounds)
    lots = ImageLots(images=torch.full((1, 1, 1, 3, 3), 0.5), labels=torch.tensor([[2]]))
    start = _Start(lots=lots, classes=torch.eye(4)[2].view(1, 1, 4))
    found = MapInversion(iterations=250, restarts=1)._searched(posterior, start).images.flatten()
    torch.testing.assert_close(found, solved(posterior, factor, uploads, sigma), atol=3e-4, rtol=0)


def test_rounds_count_by_their_noise_and_the_prior_counts_once():
    """Nats of three rounds less the prior's are the sum of each round's less the prior's."""
    posterior, _, _ = at_zero(sigma=0.1, rounds=3)
    lots = ImageLots(images=uniform(np.random.default_rng(2), (1, 1, 1, 3, 3)), labels=torch.tensor([[2]]))
    alone = [replace(posterior, models=posterior.models[:1], releases=(release,)) for release in posterior.releases]
    prior = float(posterior.prior.values(lots.images))
    expected = sum(float(one.values(lots)) - prior for one in alone)
    assert float(posterior.values(lots)) - prior == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("law", ["samples", "reports"])
def test_the_batch_agrees_with_one_candidate_at_a_time(law, samples):
    """Naive version: backward through the module for each sample, clip, sum, normal density by hand."""
    network, rng = Network(model="lenet", shape=(1, 8, 8), classes=10), np.random.default_rng(3)
    plan = flat_plan(2, size=samples, algorithm=FedSGD(learning_rate=1.0), layout=network.layout)
    scale, clip, sigma = (-1 / samples, 0.5, 0.2) if law == "samples" else (1.0, 0.5, 0.2)
    model, releases = network.initial(rng), 0.1 * normal(rng, (2, network.layout.dim))
    posterior = ImagePosterior(
        network=network,
        plan=plan,
        client=0,
        law=GaussianLaw(clip_norm=clip, scale=scale, noise_std=sigma),
        models=(model,),
        releases=(releases,),
        prior=TotalVariationPrior(mean_difference=0.25),
    )
    images = uniform(rng, (4, samples, 1, 8, 8))
    lots = ImageLots(images=images, labels=torch.from_numpy(rng.integers(10, size=(4, samples))))

    def naive(candidate):
        rows = [
            network.sample_gradients(model[None], image[None, None], label[None, None])[0, 0].double()
            for image, label in zip(images[candidate], lots.labels[candidate], strict=True)
        ]
        if law == "samples":
            total = sum((scale * row * min(1, clip / float(row.norm())) for row in rows), torch.zeros(()))
        else:
            mean = -sum(rows, torch.zeros(())) / samples
            total = mean * min(1, clip / float(mean.norm()))
        spread = torch.distributions.Normal(total, sigma)
        down, across = images[candidate].diff(dim=-2).abs().sum(), images[candidate].diff(dim=-1).abs().sum()
        return float((down + across) / 0.5 - spread.log_prob(releases[candidate // 2].double()).sum())

    found = posterior.values(lots)
    np.testing.assert_allclose(found.numpy(), [naive(candidate) for candidate in range(4)], rtol=1e-6)
    pool = posterior.of_pool(lots)
    each = posterior.prior.values(images) - pool[[0, 0, 1, 1], [0, 1, 2, 3]]
    np.testing.assert_allclose(found.numpy(), each.numpy(), rtol=1e-9)
    moved = slopes(lambda x: posterior.values(ImageLots(images=x, labels=lots.labels)), images)
    assert (moved.abs().flatten(1).amax(1) > 0).all()


@pytest.mark.simulations
@pytest.mark.parametrize("prior", ["gaussian", "total_variation"])
def test_known_noise_makes_the_attack_better_than_cosine_where_noise_is_strong(prior):
    """DP-SGD's noise at .05 of the clip norm: observed 15.7 and 11.0 dB, cosine 9.2."""
    seen = federation(DPSGDProtection(clip_norm=1.0, noise_multiplier=0.05))
    attack = MapInversion(prior=prior, iterations=60)
    ours, cosine = psnr(said(attack, seen), seen[0]), psnr(said(GradientInversion(iterations=60), seen), seen[0])
    assert ours.mean() > cosine.mean() + 0.5


@pytest.mark.simulations
def test_where_noise_drowns_the_upload_nothing_is_gained_over_the_mean_image():
    """Ten times the clip norm on each coordinate: the prior's mode is left (observed -.2 dB)."""
    seen = federation(DPSGDProtection(clip_norm=1.0, noise_multiplier=10.0))
    null = psnr(said(MeanImage(), seen), seen[0])
    ours = psnr(said(MapInversion(iterations=60), seen), seen[0])
    assert -1.5 < (ours - null).mean() <= 0.1


@dataclass(frozen=True, kw_only=True)
class LastLayerNoised:
    """A law of reports by layers: strong noise from coordinate ``start`` on, weak before."""

    start: int
    strong: float

    def contribution(self, rows: torch.Tensor) -> torch.Tensor:
        return rows

    def sample(self, contribution: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        return contribution + self._std(contribution) * normal(rng, tuple(contribution.shape))

    def log_density(self, release: torch.Tensor, contribution: torch.Tensor) -> torch.Tensor:
        std = self._std(release)
        return (-0.5 * ((release - contribution) / std).square() - std.log()).sum(-1)

    def _std(self, like: torch.Tensor) -> torch.Tensor:
        std = torch.full((like.shape[-1],), 1e-3).to(like)
        std[self.start :] = self.strong
        return std


@pytest.mark.simulations
def test_noise_by_layers_is_weighed_by_layers():
    """The output layer drowned, the convolutions nearly plain: who knows that sees through; who takes the noise for
    equal does not. Observed 28.5 against 13.8 dB.
    """
    task, view, knowledge = federation(Protection(), clients=4)
    start = knowledge.network.layout.slices["output.weight"].start
    correct = LastLayerNoised(start=start, strong=1.0)
    reports = view.rounds[0].reports
    noisy = replace(reports, values=correct.sample(reports.values, np.random.default_rng(0)))
    seen = replace(view, rounds=(replace(view.rounds[0], reports=noisy),))

    def with_law(law):
        known = replace(knowledge, law=lambda observer, client: law)
        return float(psnr(said(MapInversion(iterations=50), (task, seen, known)), task).mean())

    equal = GaussianLaw(clip_norm=1e3, scale=1.0, noise_std=0.5)
    assert with_law(correct) > with_law(equal) + 4


def fixed_law(noise_std):
    return lambda observer, client: GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=noise_std)


def test_without_a_density_it_is_undefined_with_a_reason():
    task, view, knowledge = federation(Protection(), clients=2)
    with pytest.raises(Undefined, match="publishes no distribution of one client's upload"):
        said(MapInversion(iterations=1), (task, view, knowledge))
    with pytest.raises(Undefined, match="without noise has no density"):
        said(MapInversion(iterations=1), (task, view, replace(knowledge, law=fixed_law(0.0))))
    noised = DPSGDProtection(clip_norm=1.0, noise_multiplier=1.0)
    steps = federation(noised, clients=2, algorithm=FedAvg(learning_rate=0.1, local_steps=2))
    with pytest.raises(Undefined, match="the previous step's hidden noise"):
        said(MapInversion(iterations=1), steps)
    adam = federation(
        LDPGaussianProtection(clip_norm=1.0, noise_std=1.0),
        clients=2,
        algorithm=FedAvg(learning_rate=0.1, local_steps=2, optimizer="adam"),
    )
    with pytest.raises(Undefined, match="Adam's local steps"):
        said(MapInversion(iterations=1), adam)
    changing = federation(noised, clients=2, samples=4, rounds=2, lot=FixedSize(2))
    with pytest.raises(Undefined, match="only if each batch is the client's whole dataset"):
        said(MapInversion(iterations=1, rounds=2), changing)


def test_priors_by_hand():
    """Two pixels of variance v and no correlation: half the squared distance over v; a step of .5 at a mean
    difference of .25, half of it down or across: 1 nat for each pair.
    """
    means = torch.tensor([[0.5, 0.5], [0.7, 0.5]])
    prior = GaussianPrior(mean=means[0], class_means=means, precision=torch.eye(2) / 0.01)
    image = torch.tensor([0.6, 0.5]).view(1, 1, 1, 1, 2)
    assert prior.values(image).item() == pytest.approx(0.5)
    assert prior.given(torch.tensor([[[0.0, 1.0]]])).values(image).item() == pytest.approx(0.5)
    assert prior.given(torch.tensor([[[0.5, 0.5]]])).values(image).item() == pytest.approx(0)
    flat = torch.zeros(1, 1, 1, 2, 2)
    flat[..., 0] = 0.5
    assert TotalVariationPrior(mean_difference=0.25).values(flat).item() == pytest.approx(2.0)
    assert TotalVariationPrior.of(torch.ones(3, 1, 4, 4)).mean_difference == 1 / 255


def test_a_density_that_torch_cannot_differentiate_is_refused_before_the_search():
    task, view, knowledge = federation(Protection(), clients=2)
    sampled = LDPPiecewise().prepare(knowledge.plan).protection.law(UPLOADS, knowledge.plan, 0)
    with pytest.raises(Undefined, match="is not differentiable"):
        said(MapInversion(iterations=1), (task, view, replace(knowledge, law=lambda observer, client: sampled)))


def of_nothing(pixels):
    return GaussianPrior(mean=torch.zeros(pixels), class_means=torch.zeros(1, pixels), precision=torch.eye(pixels))


def defended_by(protection, clients=8):
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
    task, view, knowledge = defended_by(DPSGDProtection(clip_norm=1.0, noise_multiplier=1e-3))

    def mean():
        attack = MapInversion(iterations=120, restarts=1)
        return float(psnr(attack.run(view, knowledge, np.random.default_rng(0)).images, task).mean())

    sharp = mean()
    monkeypatch.setattr(FlatPrior, "seen_at", lambda prior, resolution: replace(prior, flat=prior.wide))
    assert sharp > mean() + 1


def test_a_report_of_one_bit_can_be_searched_by():
    """CLDP-SGD's density takes a release for each candidate."""
    _, view, knowledge = defended_by(CLDPSGDProtection(radius=0.1, local_epsilon=2.0), clients=2)
    found = MapInversion(iterations=2).run(view, knowledge, np.random.default_rng(0))
    assert found.images.shape == (2, 1, 8, 8)
    assert np.isfinite(found.images).all()
