"""Reconstruction: gains over the best null attack, successes, and what the claim allows, all by hand."""

import numpy as np
import pytest
from fedassay.audit.binomial import upper_bound
from fedassay.audit.claim import Unit
from fedassay.audit.observer import AGGREGATE, UPLOADS
from fedassay.reports.formats.markdown import markdown
from fedassay.reports.formats.page import html
from fedassay.reports.tables.reconstruction import gains, reconstruction_rows, reconstruction_table
from scipy.stats import norm, t

SPREAD = np.tile([-1.0, 1.0], 10)


def images(run, attack, psnr, role="attack", defense="dp_sgd", federation="main", each=1):
    """Of uploads of ``each`` images."""
    for record, value in enumerate(psnr):
        run.row(
            cell_id=f"{federation}_{attack}_{defense}",
            federation=federation,
            attack=attack,
            role=role,
            defense=defense,
            observer="uploads",
            scope="record",
            metric="psnr",
            client=record // each,
            record=record,
            value=float(value),
        )


@pytest.fixture
def signed(run_maker, make_claim):
    """(changes of the claim, ...) -> a run in which dp_sgd signs it: 15 of 20 images at 30 dB, nulls at 10 and 12."""

    def build(**changes):
        images(run_maker, "strong", [30.0] * 15 + [11.0] * 5)
        images(run_maker, "weak", 10 + SPREAD)
        images(run_maker, "mean_image", [12.0] * 20, role="null")
        images(run_maker, "random_image", [10.0] * 20, role="null")
        run_maker.sign("dp_sgd", make_claim(**{"unit": Unit.SAMPLE, "observer": UPLOADS, "mu": 1.0} | changes))
        return run_maker.write()

    return build


def test_the_gain_is_paired_with_the_null_that_scores_best_and_its_interval_is_shared(signed):
    strong, weak = gains(signed())
    assert (strong.null, weak.null) == ("mean_image", "mean_image")
    assert strong.mean == pytest.approx(0.75 * 18 - 0.25)
    half = t.ppf(1 - 0.05 / 2 / 2, 19) * SPREAD.std(ddof=1) / 20**0.5
    assert (weak.mean, weak.low, weak.high) == pytest.approx((-2, -2 - half, -2 + half))
    assert (strong.beats_null, weak.beats_null) == (True, False)


def test_images_are_paired_whatever_order_they_were_written_in(run_maker):
    images(run_maker, "mean_image", np.arange(20.0), role="null")
    images(run_maker, "strong", np.arange(20.0) + 3 + SPREAD)
    run_maker.lines.reverse()
    (gain,) = gains(run_maker.write())
    assert gain.mean == pytest.approx(3)
    assert gain.low == pytest.approx(3 - t.ppf(0.975, 19) * SPREAD.std(ddof=1) / 20**0.5)


def test_images_of_one_upload_count_once(run_maker):
    """Five uploads of four images: taken for twenty trials they would seem to know twice as much."""
    by_upload = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], 4)
    images(run_maker, "mean_image", [10.0] * 20, role="null", each=4)
    images(run_maker, "strong", 10 + by_upload, each=4)
    folder = run_maker.write()
    (gain,) = gains(folder)
    half = t.ppf(0.975, 4) * by_upload[::4].std(ddof=1) / 5**0.5
    assert (gain.uploads, gain.mean) == (5, pytest.approx(3))
    assert (gain.low, gain.high) == pytest.approx((3 - half, 3 + half))
    (row,) = reconstruction_rows(folder)
    assert (row.best.low, row.best.high) == (0.0, 1.0)
    assert reconstruction_table([row]).rows[0][3] == "0 of 20"


def test_who_sees_no_senders_is_paired_image_by_image_and_has_one_trial(run_maker):
    images(run_maker, "mean_image", np.arange(20.0), role="null", each=4)
    images(run_maker, "sum_inversion", np.arange(20.0) + 2, each=20)
    (gain,) = gains(run_maker.write())
    assert (gain.uploads, gain.low, gain.high) == (1, None, None)
    assert gain.mean == pytest.approx(2)


def test_what_is_certain_to_the_last_digit_is_not_claimed(run_maker):
    images(run_maker, "mean_image", [10.0] * 20, role="null")
    images(run_maker, "strong", [20.0] * 20)
    (gain,) = gains(run_maker.write())
    assert (gain.mean, gain.low, gain.beats_null) == (10.0, None, False)


def test_success_prior_and_allowance_by_hand(signed):
    (row,) = reconstruction_rows(signed())
    prior = float(upper_bound(0, 20, 0.05 / 2))
    assert (row.best.attack, row.best.count, row.best.n) == ("strong", 15, 20)
    assert row.best.low == pytest.approx(1 - float(upper_bound(5, 20, 0.05 / 4)))
    assert row.prior == pytest.approx(prior)
    assert row.allowed == pytest.approx(norm.cdf(norm.ppf(prior) + 1.0))
    assert not row.exceeds


def test_more_than_the_claim_allows_is_reported(signed):
    folder = signed(mu=0.1, epsilon=0.5)
    (row,) = reconstruction_rows(folder)
    assert row.exceeds
    assert reconstruction_table([row]).rows[0][-1].endswith(": EXCEEDED")
    assert "EXCEEDED" in html(folder)
    assert "EXCEEDED" in markdown(folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"observer": AGGREGATE}, "the claim covers the server that observes only the aggregate"),
        ({"unit": Unit.LABEL}, "is less than a whole sample"),
        ({"part": "layer output.bias"}, "covers only layer output.bias"),
    ],
)
def test_a_claim_that_does_not_speak_about_the_attack_allows_nothing_and_forbids_nothing(signed, changes, reason):
    (row,) = reconstruction_rows(signed(**changes))
    assert row.allowed is None
    words = reconstruction_table([row]).rows[0][-1]
    assert words.startswith("OUT OF SCOPE (")
    assert reason in words


@pytest.mark.parametrize(
    ("observer", "more"),
    [(UPLOADS, False), (AGGREGATE, True)],
)
def test_a_claim_on_another_federation_is_no_missing_claim(run_maker, make_claim, observer, more):
    images(run_maker, "strong", [30.0] * 20, federation="far")
    images(run_maker, "mean_image", [12.0] * 20, federation="far", role="null")
    run_maker.sign("dp_sgd", make_claim(unit=Unit.SAMPLE, observer=observer))
    (row,) = reconstruction_rows(run_maker.write())
    words = reconstruction_table([row]).rows[0][-1]
    assert words.startswith("OUT OF SCOPE (the defense states its claim on federation main, not on far")
    assert ("the claim covers the server that observes only the aggregate" in words) == more


def test_a_claim_over_fewer_rounds_than_were_run_does_not_speak(signed, run_maker):
    run_maker.manifest["suite"]["federations"] = {"main": {"rounds": 21}}
    (row,) = reconstruction_rows(signed())
    assert "use 21 rounds, but the claim covers 20" in row.beyond
