"""Attack a recording of a deployment in place of a federation that is trained."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...attacks.attack import Attack, Undefined
from ...attacks.uploads import UploadAttack, upload_senders
from ...audit.evidence import LabelCounts, Reconstructions
from ...audit.observer import UPLOADS
from ...fl.plan import Plan
from ...fl.recorder import View
from ...fl.recording import MessageRecording
from ..config.resolve import AttackEntry
from ..results.cell import Cell
from ..results.record import Record
from ..results.store import Store

_BYTES, _OF_CLIENTS = "bytes_", "client_"


def watch_recording(recording: MessageRecording, plan: Plan, recorders: Iterable[Any]) -> Tensor:
    """Show every round of a recording to recorders, as the engine does, and return the final model ``(1, d)``."""
    final = torch.empty(0)
    for event in recording.events(plan):
        for recorder in recorders:
            if (show := getattr(recorder, "watch_reports", None)) is not None:
                show(event.reports)
            recorder.watch(event)
        final = event.model
    return final


def check_recorded(entry: AttackEntry, recording: MessageRecording) -> None:
    """Raise Undefined if an attack cannot be carried out on what was recorded, or nothing is known to attack."""
    attack = entry.attack
    if attack.active:
        raise Undefined("an active server changes what clients train on, and a recorded training is over")
    if entry.observer.rank > recording.observer.rank:
        raise Undefined(
            f"the attack needs what {entry.observer.phrase} receives, and the recording holds what "
            f"{recording.observer.phrase} receives"
        )
    if recording.truth is None and type(attack).plant is not Attack.plant:
        raise Undefined(
            "the recording names no rows of its clients, so there are no candidates with a known answer (record_rows)"
        )


def senders_of(attack: Attack, view: View) -> tuple[int, ...] | None:
    """Return the clients whose uploads an attack on one round reads; None for another attack."""
    if not isinstance(attack, UploadAttack) or view.observer.rank < UPLOADS.rank:
        return None
    return upload_senders(view, attack.round)


def unscored(cell: Cell, evidence: object, store: Store) -> list[Record]:
    """Store what an attack found in a recording without a truth, and return a row that says where, without a score."""
    found: dict[str, np.ndarray] = {}
    if isinstance(evidence, Reconstructions):
        found = {"reconstructions": evidence.images.astype(np.float32)}
    elif isinstance(evidence, LabelCounts):
        found = {"label_counts": evidence.counts}
    place = store.save_arrays(cell.cell_id, "found", found) if found else ""
    what = f"; {', '.join(f'{name} {array.shape}' for name, array in found.items())} are in {place}" if place else ""
    reason = f"not scored, because the recording names no rows of its clients (record_rows){what}"
    return [cell.record(metric="none", status="unavailable", reason=reason, artifact=place)]


def known_rows(rows: list[Record], recording: MessageRecording) -> list[Record]:
    """Leave out the rows about clients and bytes that a recording does not hold."""
    unknown = [_OF_CLIENTS] if recording.truth is None else []
    unknown += [_BYTES] if recording.observer.rank < UPLOADS.rank else []
    return [row for row in rows if not row.metric.startswith(tuple(unknown))]
