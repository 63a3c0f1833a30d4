"""Attacks on a model that the caller built: known answers, null cases, and inputs that cannot be used."""

from dataclasses import dataclass

import fedassay
import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Undefined
from fedassay.attacks.gradient.inversion import GradientInversion
from fedassay.attacks.membership.loss import LossThreshold
from fedassay.fl.laws import GaussianLaw
from fedassay.suites.attacking.own_model import LeakedImages
from fedassay.suites.config.source import ConfigError
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

DIGITS = load_digits()
IMAGES = torch.tensor(DIGITS.images[:, None] / 16).float()
LABELS = torch.tensor(DIGITS.target)
SHAPE = (1, 8, 8)


def linear_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Sigmoid(), nn.Linear(32, 10)).eval()


def gradient_of(model: nn.Module, rows: slice) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(cross_entropy(model(IMAGES[rows]), LABELS[rows]), tuple(model.parameters()))


def flat(gradient) -> torch.Tensor:
    return torch.cat([part.flatten() for part in gradient])


MODEL = linear_model()
ONE = gradient_of(MODEL, slice(0, 1))


def test_a_fully_connected_model_leaks_its_image_exactly():
    leaked = fedassay.attack_gradient(MODEL, ONE, shape=SHAPE, attack="analytic_linear")
    assert leaked.against(IMAGES[:1]).psnr[0] > 60
    assert leaked.images.shape == (1, *SHAPE)
    assert leaked._repr_html_().count("<img") == 1


@pytest.mark.parametrize(
    ("originals", "says"),
    [
        ("abc", "originals must be real numbers, got <U3"),
        (IMAGES[:1] * 16, r"originals must be finite and in \[0, 1\], got 0 to 1[56]"),
        (IMAGES[:2], "originals must have the shape"),
    ],
)
def test_originals_that_cannot_be_compared_are_refused_by_name(originals, says):
    leaked = LeakedImages(images=IMAGES[:1].double().numpy(), labels=None, gradients=np.zeros(1, int))
    assert leaked.against(IMAGES[:1].clone().requires_grad_()).mse[0] == 0
    with pytest.raises(ValueError, match=says):
        leaked.against(originals)


def test_a_search_finds_image_and_label_and_a_null_attack_does_not():
    leaked = fedassay.attack_gradient(MODEL, ONE, shape=SHAPE, iterations=100, restarts=1)
    blind = fedassay.attack_gradient(MODEL, ONE, shape=SHAPE, attack="noise_image")
    assert leaked.labels.tolist() == LABELS[:1].tolist()
    assert leaked.against(IMAGES[:1]).psnr[0] > blind.against(IMAGES[:1]).psnr[0] + 8


@pytest.mark.parametrize("form", ["list", "dict", "flat", "rows", "array"])
def test_a_gradient_may_have_any_of_five_forms(form):
    names = [name for name, _ in MODEL.named_parameters()]
    forms = {
        "list": list(ONE),
        "dict": dict(zip(names, ONE, strict=True)),
        "flat": flat(ONE),
        "rows": flat(ONE).unsqueeze(0),
        "array": flat(ONE).numpy(),
    }
    counts = fedassay.attack_labels(MODEL, forms[form], shape=SHAPE, attack="idlg")
    assert counts.argmax(1).tolist() == LABELS[:1].tolist()


def test_several_gradients_give_images_and_labels_in_their_order():
    rows = torch.stack([flat(gradient_of(MODEL, slice(i, i + 1))) for i in range(3)])
    leaked = fedassay.attack_gradient(MODEL, rows, shape=SHAPE, attack="analytic_linear")
    assert leaked.gradients.tolist() == [0, 1, 2]
    assert leaked.against(IMAGES[:3]).psnr.min() > 60


def test_normalised_input_is_inverted_to_the_image_itself():
    scaled = (IMAGES[:1] - 0.3) / 0.4
    gradient = torch.autograd.grad(cross_entropy(MODEL(scaled), LABELS[:1]), tuple(MODEL.parameters()))
    known = {"mean": 0.3, "std": 0.4}
    leaked = fedassay.attack_gradient(MODEL, gradient, shape=SHAPE, normalise=known, iterations=100, restarts=1)
    wrong = fedassay.attack_gradient(MODEL, gradient, shape=SHAPE, iterations=100, restarts=1)
    assert leaked.against(IMAGES[:1]).psnr[0] > wrong.against(IMAGES[:1]).psnr[0] + 3


def test_an_attack_uses_the_noise_that_the_caller_states():
    law = GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=1e-3)
    row = flat(ONE)
    noisy = row / row.norm().clamp_min(1.0) + 1e-3 * torch.randn(row.shape, generator=torch.Generator().manual_seed(1))
    public = (IMAGES[100:300], LABELS[100:300])
    options = {"iterations": 30, "restarts": 1}
    leaked = fedassay.attack_gradient(
        MODEL, noisy, shape=SHAPE, attack="map_inversion", law=law, public=public, **options
    )
    assert leaked.images.shape == (1, *SHAPE)
    with pytest.raises(Undefined, match="no distribution of one client's upload"):
        fedassay.attack_gradient(MODEL, noisy, shape=SHAPE, attack="map_inversion", public=public, **options)


def test_the_callers_model_and_random_state_stay_as_they_were():
    before = [value.clone() for value in MODEL.parameters()]
    state = torch.get_rng_state()
    fedassay.attack_gradient(MODEL, ONE, shape=SHAPE, attack=GradientInversion(iterations=3, restarts=1))
    assert all(torch.equal(old, new) for old, new in zip(before, MODEL.parameters(), strict=True))
    assert torch.equal(state, torch.get_rng_state())


class Raises(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

    def forward(self, images):
        raise RuntimeError("no such layer")


DROPS = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10)).train()
TWO = nn.Sequential(nn.Flatten(), nn.Linear(64, 2)).eval()
NANS = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()
nn.init.constant_(NANS[1].bias, float("nan"))


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"model": lambda x: x}, TypeError, "model must be a torch.nn.Module with its weights, got function"),
        ({"model": Raises()}, ValueError, "cannot evaluate images of shape .*RuntimeError: no such layer"),
        ({"model": nn.Sequential(nn.Conv2d(1, 3, 3))}, ValueError, r"logits \(n, classes\) with 2 classes or more"),
        ({"model": DROPS}, ValueError, "in training mode and its layer '1' .* call its eval"),
        ({"model": NANS}, ValueError, "NaN or infinite for a grey image"),
        ({"shape": (8, 8)}, ValueError, r"shape must be \(channels, height, width\)"),
        ({"gradient": ONE[:2]}, ValueError, "one array per parameter of the model, 4, .* got 2"),
        ({"gradient": {"2.weight": ONE[0]}}, ValueError, "names '2.weight', which is no parameter"),
        ({"gradient": flat(ONE) * float("nan")}, ValueError, "^gradient must be finite and not zero, got NaN"),
        ({"gradient": flat(ONE) * torch.tensor([[1.0], [0.0]])}, ValueError, "^gradient .* got zero in row 1"),
        ({"gradient": None}, TypeError, "^gradient must be numbers: .* got None"),
        ({"gradient": [*ONE[:3], "abc"]}, TypeError, "^the gradient of 3.bias must be numbers: .* got 'abc'"),
        ({"samples": 2, "attack": "grad_inversion"}, ValueError, r"give public=\(images, labels\)"),
        ({"attack": "inversio"}, ConfigError, "unknown attack 'inversio'; known: inversion"),
        ({"attack": "loss"}, ConfigError, "'loss' reconstructs no images"),
        ({"public": (IMAGES[:3] * 9, LABELS[:3])}, ValueError, r"images of public must be finite and in \[0, 1\]"),
    ],
)
def test_what_cannot_be_attacked_is_refused_with_the_reason(changes, error, says):
    given = {"model": MODEL, "gradient": ONE, "shape": SHAPE} | changes
    with pytest.raises(error, match=says):
        fedassay.attack_gradient(given.pop("model"), given.pop("gradient"), **given)


@pytest.mark.parametrize("law", ["gauss", 1.0, GaussianLaw])
def test_what_is_no_law_is_refused_also_by_attacks_that_use_none(law):
    for entry, attack in ((fedassay.attack_gradient, "analytic_linear"), (fedassay.attack_labels, "llg")):
        with pytest.raises(TypeError, match="law must be a law such as GaussianLaw"):
            entry(MODEL, ONE, shape=SHAPE, attack=attack, law=law)


def test_labels_are_not_inferred_by_an_attack_on_images():
    with pytest.raises(ConfigError, match="infers no labels"):
        fedassay.attack_labels(MODEL, ONE, shape=SHAPE, attack="noise_image")


@pytest.fixture(scope="module")
def trained():
    """A model that overfits 60 digits of which 20 % have a wrong label."""
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    labels = LABELS.clone()
    wrong = torch.tensor(rng.random(len(labels)) < 0.2)
    labels[wrong] = torch.tensor(rng.integers(10, size=int(wrong.sum())))

    def fit(rows):
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(150):
            optimizer.zero_grad()
            cross_entropy(model(IMAGES[rows]), labels[rows]).backward()
            optimizer.step()
        return model.eval()

    sets = [(IMAGES[rows], labels[rows]) for rows in (slice(0, 60), slice(60, 160), slice(500, 700))]
    return fit(slice(0, 60)), sets, [fit(slice(low, low + 60)) for low in (700, 800, 900)]


@pytest.mark.parametrize(
    ("attack", "low", "high"), [("loss", 0.65, 1), ("rmia", 0.65, 1), ("random_scores", 0.35, 0.65)]
)
def test_members_of_an_overfitted_model_are_found_and_by_chance_are_not(trained, attack, low, high):
    model, (members, nonmembers, public), references = trained
    others = {} if attack == "loss" else {"references": references}
    found = fedassay.attack_membership(model, members, nonmembers, attack=attack, **others, public=public)
    assert low < found.auc.value < high
    assert found.auc.low < found.auc.value < found.auc.high
    assert (len(found.members), len(found.nonmembers)) == (60, 100)
    assert [row["metric"] for row in found.rows] == ["AUC", "TPR at FPR 1 %", "TPR at FPR 0.1 %"]
    assert "AUC" in found._repr_html_()


@dataclass(frozen=True, kw_only=True)
class ByOrder(LossThreshold):
    def run(self, view, knowledge, rng):
        return self.evidence(-np.arange(len(self.shown(knowledge).labels), dtype=float), view)


def test_the_order_of_the_samples_does_not_reveal_membership():
    sides = ((IMAGES[:100], LABELS[:100]), (IMAGES[100:200], LABELS[100:200]))
    assert 0.4 < fedassay.attack_membership(MODEL, *sides, attack=ByOrder()).auc.value < 0.6
    one, other = (MODEL(side[0]).log_softmax(1)[range(100), side[1]].detach().numpy() for side in sides)
    found = fedassay.attack_membership(MODEL, *sides)
    assert np.allclose(found.members, one, atol=1e-5)
    assert np.allclose(found.nonmembers, other, atol=1e-5)


def test_included_follows_the_samples_into_any_order(trained):
    model, (members, nonmembers, public), references = trained
    given = {"attack": "rmia", "references": [*references, model], "public": public}
    given["included"] = np.arange(4 * 160).reshape(4, 160) % 3 == 0
    one, other = (fedassay.attack_membership(model, members, nonmembers, **given, seed=seed) for seed in (0, 1))
    assert np.array_equal(one.members, other.members)
    assert np.array_equal(one.nonmembers, other.nonmembers)


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"attack": "inversion"}, ConfigError, "no membership attack on a final model"),
        ({"attack": "rmia"}, ValueError, r"give references=\[...\]"),
        ({"attack": "rmia", "references": [MODEL]}, ValueError, r"give public=\(images, labels\)"),
        ({"members": (IMAGES[:2], ["a", "b"])}, ValueError, r"members must be a pair of arrays of numbers"),
        ({"nonmembers": (IMAGES[[9, 3, 1]], LABELS[5:8])}, ValueError, r"nonmembers\[1\] is members\[3\], and 1 more"),
        ({"references": [MODEL]}, ConfigError, "'loss' compares with no reference models: leave out references"),
        ({"attack": "rmia", "references": ["ab"]}, TypeError, r"references\[0\] must be a torch.nn.Module"),
        ({"attack": "rmia", "references": [TWO]}, ValueError, r"references\[0\] must have the 10 classes of model"),
        ({"nonmembers": (IMAGES[:5], LABELS[:5] + 9)}, ValueError, r"labels of nonmembers must be in 0..9, got"),
    ],
)
def test_membership_of_what_cannot_be_attacked_is_refused(changes, error, says):
    given = {"members": (IMAGES[:5], LABELS[:5]), "nonmembers": (IMAGES[5:9], LABELS[5:9])} | changes
    with pytest.raises(error, match=says):
        fedassay.attack_membership(MODEL, given.pop("members"), given.pop("nonmembers"), **given)
