"""Rows of attacks on uploads of one sample each: reconstructions against the sample behind the upload."""

import numpy as np
import torch
from torch import Tensor

from ...audit.evidence import Reconstructions
from ...fl.task import Task
from ..cells import Cell
from ..record import Record
from ..store import Store
from .images import Unavailable, lpips_scorer, score_images

_UNITS = {"mse": "squared pixel", "psnr": "dB", "ssim": "index", "lpips": "distance"}
_LEAK_MORE_WHEN = {"mse": "lower_leaks", "psnr": "higher_leaks", "ssim": "higher_leaks", "lpips": "lower_leaks"}


def score_reconstructions(cell: Cell, evidence: Reconstructions, task: Task, store: Store) -> list[Record]:
    """One row per image and metric; LPIPS is a row that says why it is missing where its weights are not here."""
    samples = _samples(task, len(evidence.images))
    truth = task.images[samples].double().numpy()
    lpips = lpips_scorer()
    scorer = None if isinstance(lpips, Unavailable) else lpips
    scores = score_images(evidence.images, truth, scorer)
    images = {
        "originals": truth.astype(np.float32),
        "reconstructions": evidence.images.astype(np.float32),
        "psnr": np.array([score.psnr for score in scores]),
    }
    artifact = store.save_arrays(cell.cell_id, "images", images)
    rows = [
        cell.record(
            metric=metric,
            scope="record",
            record=number,
            client=number,
            value=getattr(score, metric),
            n=1,
            unit=_UNITS[metric],
            direction=_LEAK_MORE_WHEN[metric],
            artifact=artifact,
        )
        for number, score in enumerate(scores)
        for metric in ("psnr", "mse", "ssim", "lpips")
        if getattr(score, metric) is not None
    ]
    if isinstance(lpips, Unavailable):
        rows.append(cell.record(metric="lpips", status="unavailable", reason=lpips.reason, unit=_UNITS["lpips"]))
    return rows


def _samples(task: Task, uploads: int) -> Tensor:
    """The one sample of each client, in the order of the uploads.

    Raises:
        ValueError: where a client holds several, or not every client uploaded: then no upload is one image.
    """
    if set(task.sizes) != {1} or uploads != task.clients:
        raise ValueError(
            'this attack is scored on uploads of one sample each: use partition "one_sample", full cohorts, '
            f"full lots; got {uploads} uploads of {task.clients} clients that hold {min(task.sizes)} to "
            f"{max(task.sizes)} samples"
        )
    return torch.cat(list(task.parts))
