"""Court session: pools the replicas of one claim over the seeds, measures by tests designed beforehand, judges."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..audit.clopper_pearson import clopper_pearson
from ..audit.evidence import MembershipScores, Projections, Setting
from ..audit.finding import Finding, Verdict, judge
from ..audit.measurement import Measurement
from ..audit.threshold import Split
from ..audit.twins import Release, TwinTest, audit_twins, scores
from .cells import AuditCell
from .power import designed_tests, detectable_epsilon, replicas_needed
from .probes import probed_rows
from .record import Record
from .replicas import SETTING, claimed_release
from .store import Store
from .trial import Clock, failures_as_rows


def hold_court(audit: AuditCell, store: Store) -> list[str]:
    """Judge one claim by its finished blocks, probe it, and write the rows; returns what failed."""
    clock = Clock()
    with failures_as_rows([audit.cell], store, clock) as failed:
        member, nonmember = pooled(audit, store)
        release = claimed_release(audit.blocks[0])
        if release is None:
            measured, shown = measure_without_law(audit, member, nonmember)
        else:
            measured, shown = measure(audit, release, member, nonmember)
        finding = _sober(judge(audit.claim, measured), audit, release)
        record = _record(audit, finding, measured, shown, store)
        rows = probed_rows(audit, record)
        store.finish(audit.cell.cell_id, [row.model_copy(update=clock.fields()) for row in rows])
    return failed


def _sober(finding: Finding, audit: AuditCell, release: Release | None) -> Finding:
    """NOT_REFUTED only where some missing noise would have been refuted: else the tests could not have seen any."""
    measured = finding.measurement
    if release is None or measured is None or measured.detectable is not None:
        return finding
    if finding.verdict is not Verdict.NOT_REFUTED:
        return finding
    needed = replicas_needed(audit.claim, release, share=0.5, alpha=audit.alpha)
    least = min((n for n in needed.values() if n is not None), default=None)
    cost = "no number of replicas would show half of it" if least is None else f"half of it needs {least:,} a world"
    reason = (
        f"no missing noise would have been refuted ({cost}): too few replicas, or a law that does not fit the claim"
    )
    return replace(finding, verdict=Verdict.UNDERPOWERED, route="", reason=reason)


def pooled(audit: AuditCell, store: Store) -> tuple[Projections, Projections]:
    """All replicas of the claim, canary in and canary out; one independent trial each.

    Raises:
        ValueError: if a block failed (the reason is the block's), or blocks are evidence of different settings.
    """
    arrays, settings = [], set()
    for block in audit.blocks:
        row = store.cell_records(block.cell.cell_id)[0]
        if row.status != "ok":
            raise ValueError(f"replicas of seed {block.seed}: {row.reason}")
        arrays.append(store.load_arrays(row.artifact))
        settings.add((store.cell_folder(block.cell.cell_id) / SETTING).read_text(encoding="utf-8"))
    if len(settings) != 1:
        raise ValueError(f"blocks of one claim must be evidence of one setting, got {sorted(settings)}")
    setting = Setting.from_dict(json.loads(settings.pop()))

    def side(name: str) -> Projections:
        values = np.concatenate([block[name] for block in arrays])
        return Projections(values, np.concatenate([block[f"{name}_seen"] for block in arrays]), setting)

    return side("member"), side("nonmember")


def measure(
    audit: AuditCell, release: Release, member: Projections, nonmember: Projections
) -> tuple[Measurement, MembershipScores]:
    """The best of the designed tests at alpha over their number, and the scores that it read."""
    claim, trials = audit.claim, min(len(member.values), len(nonmember.values))
    tests = designed_tests(claim, release, audit.blocks[0].audit, n=trials)
    measured = audit_twins(
        member,
        nonmember,
        release,
        tests,
        alpha=audit.alpha,
        delta=claim.delta,
        curve=claim.curve,
        epsilon=claim.epsilon,
        witness=_witness(audit),
    )
    detectable = detectable_epsilon(claim, release, tests, n=trials, alpha=audit.alpha)
    return replace(measured, detectable=detectable), _scores_read(measured, release, tests, member, nonmember)


def measure_without_law(
    audit: AuditCell, member: Projections, nonmember: Projections
) -> tuple[Measurement, MembershipScores]:
    """For a defense that publishes no law: the summed projection, its threshold chosen on half of the replicas."""
    shown = MembershipScores(member.values.sum(axis=1), nonmember.values.sum(axis=1), member.setting)
    claim = audit.claim
    measured = clopper_pearson(
        shown,
        delta=claim.delta,
        alpha=audit.alpha,
        threshold=Split(0.5),
        curve=claim.curve,
        epsilon=claim.epsilon,
        witness=_witness(audit),
    )
    return measured, shown


def _witness(audit: AuditCell) -> str:
    return f"a canary of {audit.blocks[0].audit.canary_norm:g} clip norms along a weight that no data moves"


def _scores_read(
    measured: Measurement, release: Release, tests: Sequence[TwinTest], member: Projections, nonmember: Projections
) -> MembershipScores:
    """The scores of the test that the measurement reports."""
    twin = next(test.twin for test in tests if test.threshold == measured.threshold)
    within, out = (scores(side.values, release, twin, seen=side.seen) for side in (member, nonmember))
    return MembershipScores(within, out, member.setting)


def _record(audit: AuditCell, finding: Finding, measured: Measurement, shown: MembershipScores, store: Store) -> Record:
    arrays = {
        "member": shown.member,
        "nonmember": shown.nonmember,
        "threshold": np.array(measured.threshold),
        "fpr_high": np.array(measured.fpr_high),
        "fnr_high": np.array(measured.fnr_high),
        "alpha": np.array(measured.alpha),
    }
    tested_curve = finding.verdict is not Verdict.REFUTED and audit.claim.curve is not None
    return audit.cell.record(
        metric="epsilon_low",
        value=measured.epsilon_low,
        ci_low=measured.epsilon_low,
        ci_level=1 - measured.alpha,
        ci_method=f"{measured.estimator}, one-sided, {measured.threshold_policy}",
        ceiling=measured.ceiling,
        detectable=measured.detectable,
        verdict=finding.verdict.value,
        route=finding.route or ("curve" if tested_curve else "eps_low"),
        reason=f"{finding.reason}; witness: {measured.witness}",
        n=min(measured.n0, measured.n1),
        unit="epsilon",
        direction="higher_leaks",
        artifact=store.save_arrays(audit.cell.cell_id, "scores", arrays),
    )
