"""Compare reconstructed images with the samples behind each client update, as result rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...attacks.attack import Undefined
from ...audit.arrays import BoolArray, FloatArray
from ...audit.evidence import Reconstructions
from ...fl.task import Task
from ..results.cell import Cell
from ..results.record import Record
from ..results.store import Store
from .images import REGIONS, ImageScore, Unavailable, lpips_scorer, match, score_images, score_regions

_UNITS = {"mse": "squared pixel", "psnr": "dB", "ssim": "index", "lpips": "distance"}


@dataclass(frozen=True, kw_only=True)
class _Aligned:
    """Images ``(n, c, h, w)`` with their originals, the originals' sensitive pixels ``(n, h, w)`` where the task has
    any, and the client of each.
    """

    images: FloatArray
    truth: FloatArray
    masks: BoolArray | None
    clients: list[int]


def score_reconstructions(
    cell: Cell, evidence: Reconstructions, task: Task, store: Store, senders: Sequence[int] | None = None
) -> list[Record]:
    """Build one result row per image and metric; images of one update are matched to its samples by least total MSE.

    ``senders``: the client of each update of the round; by default every client sent one, in their order.

    Where the task marks sensitive pixels, images are also scored inside and outside that region. Where the weights of
    LPIPS are missing, its row gives the reason.
    """
    aligned = _aligned(evidence, task, list(range(task.clients)) if senders is None else list(senders))
    # No download here: the run did it before its first job, and workers of a cluster may have no network.
    lpips = lpips_scorer()
    scorer = None if isinstance(lpips, Unavailable) else lpips
    scores = score_images(aligned.images, aligned.truth, scorer)
    found: dict[str, Sequence[ImageScore | None]] = {"": scores}
    if aligned.masks is not None:
        regions = score_regions(aligned.images, aligned.truth, aligned.masks, scorer)
        found |= {f"{name}_": [image.get(name) for image in regions] for name in REGIONS}
    images = {
        "originals": aligned.truth.astype(np.float32),
        "reconstructions": aligned.images.astype(np.float32),
        "psnr": np.array([score.psnr for score in scores]),
    }
    # Images are saved as float32: half the size, and far more precise than any display.
    artifact = store.save_arrays(cell.cell_id, "images", images)
    rows = [
        cell.record(
            metric=f"{region}{metric}",
            scope="record",
            record=number,
            client=aligned.clients[number],
            value=value,
            n=1,
            unit=unit,
            direction="lower_leaks" if metric in ("mse", "lpips") else "higher_leaks",
            artifact=artifact,
        )
        for region, each in found.items()
        for number, score in enumerate(each)
        for metric, unit in _UNITS.items()
        if (value := getattr(score, metric, None)) is not None
    ]
    if isinstance(lpips, Unavailable):
        # A row per missing metric, because a report must not show fewer metrics without a reason.
        rows += [
            cell.record(metric=f"{region}lpips", status="unavailable", reason=lpips.reason, unit=_UNITS["lpips"])
            for region in found
        ]
    return rows


def _aligned(evidence: Reconstructions, task: Task, senders: list[int]) -> _Aligned:
    """Each client's images in the order of its samples.

    Raises:
        Undefined: where the attack returns another number of images for a client than it has samples.
    """
    uploads = np.arange(len(evidence.images)) if evidence.uploads is None else evidence.uploads
    named, counts = np.unique(uploads, return_counts=True)
    sizes = [task.sizes[client] for client in senders]
    if named.tolist() != list(range(len(senders))) or counts.tolist() != sizes:
        raise Undefined(
            "scores need an update of every client, with as many images reconstructed from it as the client has "
            'samples: use full cohorts and full batches, and partition "one_sample" for an attack that reconstructs '
            f"one image; got updates of {len(named)} of {task.clients} clients with {min(task.sizes)} to "
            f"{max(task.sizes)} samples"
        )
    images, truth, clients = [], [], []
    for row, client in enumerate(senders):
        part = task.parts[client]
        ours, wanted = evidence.images[uploads == row], task.private_images[part].double().numpy()
        # A gradient does not reveal the order of a lot's samples, so that any order of images is as good.
        images.append(ours[match(ours, wanted)] if len(part) > 1 else ours)
        truth.append(wanted)
        clients += [client] * len(part)
    return _Aligned(
        images=np.concatenate(images),
        truth=np.concatenate(truth),
        masks=None if task.masks is None else task.masks[torch.cat([task.parts[client] for client in senders])].numpy(),
        clients=clients,
    )
