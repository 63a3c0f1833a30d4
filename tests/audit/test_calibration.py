"""The calibrator: what keeps its alpha holds, what does not FAILS, and no estimator is forgotten."""

import ast
import math
from dataclasses import replace
from pathlib import Path

import fedassay.audit
import numpy as np
import pytest
from fedassay.audit.calibration import (
    ALPHA,
    EPSILON,
    KnownMechanism,
    calibrate,
    known_mechanism_for,
    null_measurement,
)
from fedassay.audit.curve import epsilon_from_mu
from fedassay.audit.estimators.catalogue import describe, estimators
from fedassay.audit.estimators.gaussian_dp import gaussian_dp
from fedassay.audit.estimators.one_run import one_run
from fedassay.audit.evidence import CandidateScores, Guesses, MembershipScores, Reconstructions
from fedassay.audit.measurement import Kind, Measurement
from fedassay.audit.threshold import ThresholdPolicy
from scipy.special import ndtri
from scipy.stats import binom

REPEATS = 60
NO_ESTIMATOR = {
    "event_ratio": "calibrated in its own test",
    "one_run_gaussian": "of suites alone, calibrated in its own test",
    "joint_point": "the joint point that several estimators share, and the best of their bounds",
    "calibration": "measures the estimators",
    "chosen": "runs the estimators of given names",
    "one_run_claim": "runs the one-run estimators that a claim allows",
    "power": "completes the detectable epsilon of a measurement",
}
"""Files with a function that returns a Measurement, and why they are none."""


@pytest.fixture(scope="module")
def table():
    return list(calibrate(repeats=REPEATS, seed=0))


def rows_of(function, repeats=REPEATS, name="mutant"):
    return {row.situation: row for row in calibrate(repeats=repeats, only=[describe(name, function)])}


def test_every_file_with_a_function_that_returns_a_measurement_is_calibrated():
    returning = set()
    for path in Path(fedassay.audit.__file__).parent.rglob("*.py"):
        functions = [
            node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)
        ]
        if any(
            f.returns is not None and ast.unparse(f.returns) == "Measurement" for f in functions if f.name[0] != "_"
        ):
            returning.add(path.stem)
    assert len(returning) > 10
    assert returning - set(NO_ESTIMATOR) == set(estimators())


@pytest.mark.parametrize("name", estimators())
def test_every_estimator_answers_or_refuses_degenerate_inputs_levels_and_designs(name):
    rows = list(calibrate(repeats=1, only=[estimators()[name]]))
    assert [row for row in rows if row.fails] == []
    assert {"NaN", "constant scores"} < {row.situation for row in rows}


@pytest.mark.long
@pytest.mark.simulations
def test_every_estimator_is_in_the_table_under_its_own_name_and_kind(table):
    assert {row.estimator for row in table} == set(estimators())
    kinds = {row.estimator: row.kind for row in table if row.kind is not Kind.BOUND}
    assert kinds == {"one_shot": Kind.ESTIMATE}


@pytest.mark.long
@pytest.mark.simulations
def test_nothing_fails(table):
    assert [row for row in table if row.fails] == []


@pytest.mark.long
@pytest.mark.simulations
def test_every_bound_is_held_to_the_limit_on_null_and_boundary_and_no_other_number_is(table):
    limit = int(binom.ppf(0.999, REPEATS, ALPHA))
    for row in table:
        if row.kind is not Kind.BOUND:
            assert row.limit is None
        elif row.situation in ("null", "boundary", "ties"):
            assert (row.repeats, row.limit, row.outcome) == (REPEATS, limit, "holds")
            assert 0 <= row.refuted <= limit


@pytest.mark.long
@pytest.mark.simulations
def test_independent_trials_refuse_a_shared_coin_and_one_run_is_valid_under_it(table):
    rows = {row.estimator: row for row in table if row.situation == "shared coin"}
    valid = {name for name, row in rows.items() if row.outcome == "holds"}
    assert valid >= {"one_run", "one_run_fdp"}
    for name in set(rows) - valid - {"one_shot"}:
        assert rows[name].outcome.startswith("refused: ")
        assert "needs independent" in rows[name].outcome


@pytest.mark.long
@pytest.mark.simulations
def test_a_broken_version_is_caught_by_most_estimators(table):
    shares = {row.estimator: row.refuted / row.repeats for row in table if row.situation.startswith("broken version")}
    assert all(share > 0.3 for share in shares.values()), shares
    assert sorted(shares.values())[2] > 0.7


def test_the_boundary_law_meets_its_claim_at_every_cut_beyond_both():
    law = known_mechanism_for(MembershipScores, gaussian=False)
    assert law == KnownMechanism(gaussian=False, epsilon=EPSILON, delta=0.1)
    rng = np.random.default_rng(0)
    member, nonmember = (law.draw(arm, 1_000_000, rng) for arm in (1, 0))
    for cut in (1.0, 1.5, 2.0):
        excess = np.mean(member > cut) - math.exp(EPSILON) * np.mean(nonmember > cut)
        assert excess == pytest.approx(law.delta, abs=0.005)
    assert np.mean(member > 0.5) - math.exp(EPSILON) * np.mean(nonmember > 0.5) < law.delta - 0.02


def test_the_absolute_value_of_mu_fails_on_null_scores():
    def mutant(scores: MembershipScores, *, delta: float, alpha: float, threshold: ThresholdPolicy) -> Measurement:
        seen = gaussian_dp(scores, delta=delta, alpha=alpha, threshold=threshold)
        mu = float(-ndtri(seen.fpr_high) - ndtri(seen.fnr_high))
        return replace(seen, epsilon_low=epsilon_from_mu(abs(mu), delta))

    rows = rows_of(mutant)
    assert rows["null"].outcome == "FAILS"
    assert rows["null"].refuted > 0.9 * REPEATS
    assert rows["constant scores"].outcome == "FAILS: epsilon_low must be finite, got inf"


def test_an_edge_of_a_grid_and_a_swallowed_design_fail():
    def mutant(guesses: Guesses, *, delta: float, alpha: float) -> Measurement:
        seen = one_run(
            replace(guesses, setting=null_measurement(estimators()["one_run"]).setting), delta=1e-5, alpha=0.05
        )
        return replace(seen, epsilon_low=min(max(seen.epsilon_low, 0.397), 2.0))

    rows = rows_of(mutant)
    assert rows["null"].outcome == "FAILS"
    assert rows["zero counts"].outcome == "FAILS: epsilon >= 2, but >= 2 from ten times as many trials"
    assert rows["constant scores"].outcome == "FAILS: uninformative scores gave the lower bound 0.397 on epsilon"
    assert (
        rows["trials of another design"].outcome
        == "FAILS: the estimator accepted independent trials, which its theorem does not cover"
    )
    assert rows["alpha out of (0, 1)"].outcome == "FAILS: the estimator returned a measurement where none is possible"


def test_a_number_that_is_none_and_an_unclear_error_fail():
    def mutant(cosines: CandidateScores, *, delta: float) -> Measurement:
        seen = null_measurement(estimators()["one_shot"])
        return replace(seen, estimate=math.nan if np.ptp(cosines.values) == 0 else 1 / float(delta > 0))

    rows = rows_of(mutant)
    assert rows["constant scores"].outcome == "FAILS: estimate must be finite, got nan"
    assert rows["delta 0"].outcome == "FAILS: ZeroDivisionError: float division by zero"


def test_an_estimator_that_no_situation_fits_is_reported_and_not_skipped():
    def asks(scores: MembershipScores, *, delta: float, colour: str) -> Measurement: ...

    def takes(images: Reconstructions, *, delta: float) -> Measurement: ...

    with pytest.raises(
        TypeError, match="estimator asks requires argument 'colour', for which the calibration has no value"
    ):
        list(calibrate(repeats=1, only=[describe("asks", asks)]))
    with pytest.raises(
        TypeError, match="estimator takes takes evidence of type Reconstructions, which the calibration cannot simulate"
    ):
        list(calibrate(repeats=1, only=[describe("takes", takes)]))


def test_what_takes_no_evidence_or_returns_no_measurement_is_no_estimator():
    def number(scores: MembershipScores) -> float: ...

    def chooser(measurements: list[Measurement]) -> Measurement: ...

    def without() -> Measurement: ...

    assert [describe("x", function) for function in (number, chooser, without)] == [None] * 3
