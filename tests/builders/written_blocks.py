"""Runs of an audit's blocks, written by hand as they would be if one thing were wrong with the claimed mechanism."""

from dataclasses import replace
from typing import Any

import numpy as np
from fedassay.audit.estimators.release_tests import BrokenRelease, draw_projections
from fedassay.audit.evidence import Projections, Setting
from fedassay.fl.streams import Streams
from fedassay.suites.audits.audit_method import BlockJob
from fedassay.suites.audits.replicas import save_projections
from fedassay.suites.results.store import Store


def write_block(
    store: Store, block: BlockJob, truth: BrokenRelease, *, stream: int = 0, shift: float = 0.0, **setting: Any
) -> None:
    """Store the block's scores as ``truth`` draws them, ``shift`` higher, as evidence of a ``setting`` of the claim."""
    seen, arms = replace(Setting.claimed(block.claim), **setting), []
    for arm in (0, 1):
        rng = Streams(stream).generator("by hand", arm=arm, client=block.seed, replicate=block.stage)
        values = draw_projections(block.release, truth, arm=arm, n=block.replicas, rng=rng) + shift
        arms.append([Projections(values, np.ones(values.shape, dtype=bool), seen)])
    artifact = save_projections(block, arms, store)
    row = block.cell.record(metric="replicas", value=block.replicas, n=block.replicas, artifact=artifact)
    store.finish(block.cell.cell_id, [row])
