"""Region scores by hand, and the interval of a success rate."""

import numpy as np
import pytest
from fedassay.suites.scoring.images import PSNR_CAP, score_images, score_regions


def test_an_error_inside_is_scored_inside() -> None:
    """A tenth inside, nothing outside: 20 dB and the cap; all pixels together by their share."""
    truth = np.random.default_rng(0).random((2, 3, 9, 9)) * 0.8
    mask = np.zeros((2, 9, 9), dtype=bool)
    mask[:, 3:6, 3:6] = True
    for score in score_regions(truth + 0.1 * mask[:, None], truth, mask):
        assert score["psi"].mse == pytest.approx(0.01)
        assert score["psi"].psnr == pytest.approx(20)
        assert (score["outside"].mse, score["outside"].psnr) == (0, PSNR_CAP)
        assert score["psi"].ssim < score["outside"].ssim < 1


def test_with_every_pixel_inside_there_is_no_outside_and_errors_are_those_of_the_image() -> None:
    rng = np.random.default_rng(1)
    ours, truth = rng.random((3, 1, 8, 8)), rng.random((3, 1, 8, 8))
    everything = np.ones((3, 8, 8), dtype=bool)
    for score, plain in zip(score_regions(ours, truth, everything), score_images(ours, truth), strict=True):
        assert score["psi"].mse == pytest.approx(plain.mse)
        assert score["psi"].psnr == pytest.approx(plain.psnr)
        assert list(score) == ["psi"]


def test_ssim_of_both_regions_weighs_up_to_the_map_of_the_whole() -> None:
    """Their mean by pixels is the map's; identical images have 1 everywhere."""
    rng = np.random.default_rng(2)
    truth, mask = rng.random((1, 1, 9, 9)), rng.random((1, 9, 9)) < 0.4
    (same,) = score_regions(truth, truth, mask)
    assert (same["psi"].ssim, same["outside"].ssim) == (pytest.approx(1), pytest.approx(1))


def test_a_colour_image_is_scored_by_the_same_pixels_of_each_channel():
    """Errors .1, .2 and .3 of the three channels inside: MSE (.01 + .04 + .09) / 3; outside .5 in one channel."""
    truth = np.full((1, 3, 9, 9), 0.5)
    mask = np.zeros((1, 9, 9), dtype=bool)
    mask[0, 2:5, 1:8] = True
    ours = truth + np.array([0.1, 0.2, 0.3]).reshape(1, 3, 1, 1) * mask[:, None]
    ours[0, 1, ~mask[0]] = 0
    (score,) = score_regions(ours, truth, mask)
    assert score["psi"].mse == pytest.approx(0.14 / 3)
    assert score["psi"].psnr == pytest.approx(-10 * np.log10(0.14 / 3))
    assert score["outside"].mse == pytest.approx(0.25 / 3)


def test_perceptual_distance_of_a_region_sees_the_truth_elsewhere():
    """A stand-in that counts the pixels that differ; where there is no region it measures nothing."""
    truth, ours = np.zeros((2, 3, 8, 8)), np.ones((2, 3, 8, 8))
    mask = np.zeros((2, 8, 8), dtype=bool)
    mask[0, :2, :3] = True

    def differing(images, wanted):
        return np.asarray(images != wanted).sum((1, 2, 3)) / 3

    scores = score_regions(ours, truth, mask, differing)
    assert [{name: one.lpips for name, one in score.items()} for score in scores] == [
        {"psi": 6, "outside": 58},
        {"outside": 64},
    ]
    assert score_regions(ours, truth, mask)[0]["psi"].lpips is None


@pytest.mark.parametrize("masks", [np.ones((1, 8, 8)), np.ones((1, 1, 8, 8), dtype=bool)], ids=["floats", "shape"])
def test_masks_of_another_kind_are_refused(masks: np.ndarray) -> None:
    image = np.zeros((1, 1, 8, 8))
    with pytest.raises(ValueError, match=r"masks must be booleans of shape \(1, 8, 8\), got"):
        score_regions(image, image, masks)
