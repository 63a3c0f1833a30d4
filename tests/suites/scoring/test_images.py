"""Image scores against numbers computed by hand."""

import itertools

import numpy as np
import pytest
from fedassay.suites.scoring.images import PSNR_CAP, match, psnr, score_images
from hypothesis import given, settings
from hypothesis import strategies as st


def flat(*levels: float, side: int = 8, channels: int = 1) -> np.ndarray:
    return np.stack([np.full((channels, side, side), level) for level in levels])


def textured(count: int, side: int = 8, channels: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, channels, side, side))


def test_an_error_of_a_tenth_everywhere_is_20_decibels() -> None:
    (score,) = score_images(flat(0.5), flat(0.6))
    assert score.mse == pytest.approx(0.01)
    assert score.psnr == pytest.approx(20)
    assert score.lpips is None


def test_a_perfect_reconstruction_has_the_cap_and_no_infinity() -> None:
    for score in score_images(textured(3), textured(3)):
        assert (score.mse, score.psnr) == (0, PSNR_CAP)
        assert score.ssim == pytest.approx(1)


@settings(derandomize=True, deadline=None)
@given(st.floats(0, 1), st.floats(0, 1))
def test_psnr_falls_as_the_error_grows_and_stays_finite(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert 0 <= psnr(high) <= psnr(low) <= PSNR_CAP


def test_ssim_of_two_flat_images_is_the_luminance_term() -> None:
    """Without variance the contrast term is 1: (2ab + c) / (a^2 + b^2 + c), c = .01^2 (Wang et al. 2004, eq. 6)."""
    (score,) = score_images(flat(0.2), flat(0.8))
    assert score.ssim == pytest.approx((2 * 0.16 + 1e-4) / (0.04 + 0.64 + 1e-4))


def ssim_of_windows(ours: np.ndarray, wanted: np.ndarray, window: int) -> float:
    """Mean over all windows of Wang et al. 2004, eq. 13, with sample variances."""
    places = range(ours.shape[0] - window + 1)
    scores = []
    for top in places:
        for left in places:
            a, b = (image[top : top + window, left : left + window].ravel() for image in (ours, wanted))
            (aa, ab), (_, bb) = np.cov(a, b)
            light = (2 * a.mean() * b.mean() + 1e-4) / (a.mean() ** 2 + b.mean() ** 2 + 1e-4)
            scores.append(light * (2 * ab + 9e-4) / (aa + bb + 9e-4))
    return float(np.mean(scores))


@pytest.mark.parametrize(("side", "window"), [(12, 7), (8, 7), (6, 5), (4, 3)])
def test_ssim_is_the_mean_over_flat_windows_of_seven_pixels_or_fewer(side: int, window: int) -> None:
    ours, wanted = textured(1, side, seed=1), textured(1, side, seed=2)
    expected = ssim_of_windows(ours[0, 0], wanted[0, 0], window)
    assert score_images(ours, wanted)[0].ssim == pytest.approx(expected)


def test_ssim_of_a_colour_image_is_the_mean_of_its_channels() -> None:
    ours, wanted = textured(1, channels=3, seed=1), textured(1, channels=3, seed=2)
    single = [score_images(ours[:, [c]], wanted[:, [c]])[0].ssim for c in range(3)]
    assert score_images(ours, wanted)[0].ssim == pytest.approx(np.mean(single))


def test_matching_takes_the_least_total_and_not_the_nearest_first() -> None:
    """Costs .01 + 1 in order, .16 + .25 swapped: the nearest pair (.5, .4) is given up."""
    np.testing.assert_array_equal(match(flat(0.5, 0.0), flat(0.4, 1.0)), [1, 0])


def test_matching_is_the_best_of_all_orders() -> None:
    """Against every order of four colour images; costs are drawn, so no order but the best has its total."""
    ours, truth = textured(4, channels=3, seed=5), textured(4, channels=3, seed=6)
    totals = {order: ((ours[list(order)] - truth) ** 2).sum() for order in itertools.permutations(range(4))}
    assert tuple(match(ours, truth).tolist()) == min(totals, key=totals.__getitem__)


def test_ties_are_matched_one_to_one_at_the_least_total() -> None:
    """Two guesses alike and two true images alike: any order of each pair is as good, none is used twice."""
    ours, truth = flat(0.2, 0.9, 0.2, 0.9), flat(1.0, 1.0, 0.0, 0.0)
    order = match(ours, truth)
    assert sorted(order.tolist()) == [0, 1, 2, 3]
    assert ours[order][:, 0, 0, 0].tolist() == [0.9, 0.9, 0.2, 0.2]
    assert sorted(match(flat(0.5, 0.5, 0.5), flat(0.1, 0.5, 0.8)).tolist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("images", "truth", "message"),
    [
        (flat(0.5, 0.5), flat(0.5), "the same shape"),
        (flat(0.5, side=2), flat(0.5, side=2), "3 pixels"),
        (flat(1.5), flat(0.5), r"images must lie in \[0, 1\], got 1.5"),
        (flat(0.5), flat(float("nan")), r"truth must lie in \[0, 1\]"),
    ],
)
def test_images_that_cannot_be_compared_are_refused(images: np.ndarray, truth: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score_images(images, truth)
