"""Court session: pools the replicas of one claim over the seeds, measures by tests designed beforehand, judges."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...audit.estimators.clopper_pearson import clopper_pearson
from ...audit.estimators.release_tests import GaussianRelease, ReleaseTest, audit_release_tests, release_scores
from ...audit.evidence import MembershipScores, Projections, Setting
from ...audit.finding import Finding, Verdict, judge
from ...audit.measurement import Measurement
from ...audit.power.threshold import SplitThreshold
from ..attacking.trial import Clock, failures_as_rows
from ..checks.check import CheckResult
from ..checks.replay_checks import checked_rows
from ..checks.replica_checks import ARRIVES, replica_checks
from ..checks.report_checks import FITS, report_checks
from ..config.canaries import CANARY_PHRASES
from ..jobs.audited_federation import claimed_release
from ..jobs.cells import AuditCell, Cell
from ..jobs.crafted_reports import report_law
from ..jobs.crafted_reports import witness as crafted_witness
from ..jobs.queried_lots import WITNESS as QUERIED
from ..jobs.queried_lots import audited_law
from ..results.record import Record
from ..results.store import Store
from .one_run import SETTING, measure_one_run
from .power import designed_tests, detectable_epsilon, replicas_needed


def hold_court(audit: AuditCell, store: Store) -> list[str]:
    """Judge one claim by its finished blocks, probe it, and write the rows; returns what failed."""
    clock = Clock()
    if audit.beyond:
        row = audit.cell.record(metric="epsilon_low", verdict=Verdict.OUT_OF_SCOPE.value, reason=audit.beyond)
        store.finish(audit.cell.cell_id, [row])
        return []
    with failures_as_rows([audit.cell], store, clock) as failed:
        release = claimed_release(audit.blocks[0])
        measured, shown = _measured(audit, release, store)
        exposures = _shown_by_replicas(audit, release, store)
        finding = _arrived(_sober(judge(audit.claim, measured), audit, release), exposures)
        record = verdict_row(audit.cell, finding, measured, shown, store)
        rows = checked_rows(audit, record, exposures)
        store.finish(audit.cell.cell_id, [row.model_copy(update=clock.fields()) for row in rows])
    return failed


def _measured(audit: AuditCell, release: GaussianRelease | None, store: Store) -> tuple[Measurement, MembershipScores]:
    """By the suite's design, and by the published law where scores may use it."""
    if audit.blocks[0].audit.design == "one_run":
        reading = measure_one_run(audit, release, store, witness=_witness(audit))
        return reading.measurement, reading.scores
    member, nonmember = pooled(audit, store)
    if release is None:
        return measure_by_split(audit, member, nonmember)
    return measure(audit, release, member, nonmember)


def _shown_by_replicas(audit: AuditCell, release: GaussianRelease | None, store: Store) -> tuple[CheckResult, ...]:
    """Of crafted reports, and of replicas whose projections are noise alone under a published law."""
    if audit.blocks[0].audit.design == "one_run":
        return ()
    if report_law(audit.blocks[0]) is not None:
        return report_checks(audit.blocks[0], _kept_arrays(audit, store))
    if release is None:
        return ()
    return replica_checks(*pooled(audit, store), release)


def _sober(finding: Finding, audit: AuditCell, release: GaussianRelease | None) -> Finding:
    """NOT_REFUTED only where some missing noise would have been refuted: else the tests could not have seen any."""
    measured = finding.measurement
    if finding.verdict is not Verdict.NOT_REFUTED or measured is None or measured.detectable is not None:
        return finding
    if audit.blocks[0].audit.canary != "dirac":
        if measured.epsilon_low > 0:
            return finding
        reason = "the canary did not show at all: how much noise must be missing before it does is not known"
    elif release is not None:
        reason = (
            f"no missing noise would have been refuted ({_cost_of_half(audit, release)}): too few replicas, "
            "or a published law that does not fit the claim"
        )
    else:
        return finding
    return replace(finding, verdict=Verdict.UNDERPOWERED, route="", reason=reason)


def _arrived(finding: Finding, exposures: Sequence[CheckResult]) -> Finding:
    """NOT_REFUTED only where the canary reached the release: one that a filter dropped would show nothing anyway."""
    if finding.verdict is not Verdict.NOT_REFUTED or finding.measurement is None:
        return finding
    for exposure in exposures:
        if exposure.name == FITS and exposure.kept is False:
            blind = replace(finding.measurement, detectable=None)
            reason = f"the published law does not score these reports ({exposure.words})"
            return replace(finding, verdict=Verdict.UNDERPOWERED, route="", reason=reason, measurement=blind)
        if exposure.name == ARRIVES and exposure.kept is not True:
            blind = replace(finding.measurement, detectable=None)
            reason = f"the canary hardly reached the release ({exposure.words}): plant one that does"
            return replace(finding, verdict=Verdict.UNDERPOWERED, route="", reason=reason, measurement=blind)
    return finding


def _cost_of_half(audit: AuditCell, release: GaussianRelease) -> str:
    """How many replicas would show half of the noise."""
    if audit.blocks[0].audit.design == "one_run":
        return "it takes more canaries, or replicas"
    needed = replicas_needed(audit.claim, release, share=0.5, alpha=audit.alpha)
    least = min((n for n in needed.values() if n is not None), default=None)
    return "no number of replicas would show half of it" if least is None else f"half of it needs {least:,} a world"


def pooled(audit: AuditCell, store: Store) -> tuple[Projections, Projections]:
    """All replicas of the claim, canary in and canary out; one independent trial each.

    Raises:
        ValueError: if a block failed (the reason is the block's), or blocks are evidence of different settings.
    """
    arrays = _kept_arrays(audit, store)
    settings = {(store.cell_folder(block.cell.cell_id) / SETTING).read_text(encoding="utf-8") for block in audit.blocks}
    if len(settings) != 1:
        raise ValueError(f"blocks of one claim must be evidence of one setting, got {sorted(settings)}")
    setting = Setting.from_dict(json.loads(settings.pop()))

    def side(name: str) -> Projections:
        values = np.concatenate([block[name] for block in arrays])
        return Projections(values, np.concatenate([block[f"{name}_seen"] for block in arrays]), setting)

    return side("member"), side("nonmember")


def _kept_arrays(audit: AuditCell, store: Store) -> list[dict[str, Any]]:
    """What each block kept; ValueError with the block's reason where one failed."""
    arrays = []
    for block in audit.blocks:
        row = store.cell_records(block.cell.cell_id)[0]
        if row.status != "ok":
            raise ValueError(f"replicas of seed {block.seed}: {row.reason}")
        arrays.append(store.load_arrays(row.artifact))
    return arrays


def measure(
    audit: AuditCell, release: GaussianRelease, member: Projections, nonmember: Projections
) -> tuple[Measurement, MembershipScores]:
    """The best of the designed tests at alpha over their number, and the scores that it read."""
    claim, trials = audit.claim, min(len(member.values), len(nonmember.values))
    tests = designed_tests(claim, release, audit.blocks[0].audit, n=trials)
    measured = audit_release_tests(
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


def measure_by_split(
    audit: AuditCell, member: Projections, nonmember: Projections
) -> tuple[Measurement, MembershipScores]:
    """Where no law can score: the projection summed over rounds, its threshold chosen on half of the replicas.

    What is detectable assumes the best of scores; along a direction that others share the projection is not.
    """
    within, out = (np.where(side.seen, side.values, 0.0).sum(axis=1) for side in (member, nonmember))
    shown = MembershipScores(within, out, member.setting)
    claim = audit.claim
    measured = clopper_pearson(
        shown,
        delta=claim.delta,
        alpha=audit.alpha,
        threshold=SplitThreshold(0.5, curve=claim.curve),
        curve=claim.curve,
        epsilon=claim.epsilon,
        witness=_witness(audit),
    )
    alone = audit.blocks[0].audit.canary == "dirac"
    return measured if alone else replace(measured, detectable=None), shown


def _witness(audit: AuditCell) -> str:
    law, spec = report_law(audit.blocks[0]), audit.blocks[0].audit
    if law is not None:
        return crafted_witness(audit.claim, law)
    if audited_law(audit.blocks[0]) is not None:
        return QUERIED
    words = CANARY_PHRASES[spec.canary].format(length=spec.canary_norm)
    return words if spec.canaries is None else f"each of {spec.canaries} in one run {words}"


def _scores_read(
    measured: Measurement,
    release: GaussianRelease,
    tests: Sequence[ReleaseTest],
    member: Projections,
    nonmember: Projections,
) -> MembershipScores:
    """The scores of the test that the measurement reports."""
    twin = next(test.broken for test in tests if test.threshold == measured.threshold)
    within, out = (release_scores(side.values, release, twin, seen=side.seen) for side in (member, nonmember))
    return MembershipScores(within, out, member.setting)


def verdict_row(cell: Cell, finding: Finding, measured: Measurement, shown: MembershipScores, store: Store) -> Record:
    """The row of a finding; beside it the scores that it was read off."""
    counted = ("threshold", "fpr_high", "fnr_high", "alpha", "made", "right")
    known = {name: getattr(measured, name) for name in counted}
    arrays = {"member": shown.member, "nonmember": shown.nonmember}
    arrays |= {name: np.array(value) for name, value in known.items() if value is not None}
    tested_curve = finding.verdict is not Verdict.REFUTED and measured.below_curve is not None
    return cell.record(
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
        n=measured.canaries or min(measured.n0, measured.n1),
        unit="epsilon",
        direction="higher_leaks",
        artifact=store.save_arrays(cell.cell_id, "scores", arrays),
    )
