"""Steps that are played back: a correct one has its claimed multiplier, a broken one shows the row that breaks it."""

import math

import numpy as np
import pytest
import torch
from fedassay.adapters.play_back import PlayBack, Step
from fedassay.audit.check import EFFECTIVE, FINITE
from fedassay.checks.training_record import Plant
from fedassay.fl.layout import Layout
from torch import Tensor

LAYOUT = Layout(names=("weight", "bias"), shapes=((5, 6), (5,)))
CLIP, NOISE = 2.0, 0.8


def noise(seed):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(LAYOUT.dim)).float() * NOISE * CLIP


def clip(rows, norm=CLIP):
    lengths = rows.double().norm(dim=1, keepdim=True)
    return torch.nan_to_num((rows * (norm / lengths).clamp(max=1)).float(), nan=0.0)


def correct(rows, seed):
    return clip(rows).sum(0) + noise(seed)


def unclipped(rows, seed):
    return rows.sum(0) + noise(seed)


def clipped_after_the_sum(rows, seed):
    return clip(rows.sum(0, keepdim=True))[0] * len(rows) + noise(seed)


def clipped_per_tensor(rows, seed):
    return torch.cat([clip(rows[:, :30]), clip(rows[:, 30:])], dim=1).sum(0) + noise(seed)


def averaged_over_the_real_lot(rows, seed):
    return (clip(rows).sum(0) + noise(seed)) / max(1, len(rows))


def noised_in_one_tensor(rows, seed):
    drawn = noise(seed)
    drawn[30:] = 0
    return clip(rows).sum(0) + drawn


def halved(rows, seed):
    return clip(rows).sum(0) + noise(seed) / 2


def clipped_up_to_a_thousand(rows, seed):
    """Rows that look broken pass, as where a filter of outliers stands in for the clip."""
    lengths = rows.norm(dim=1, keepdim=True)
    return torch.where(lengths > 1e3 * CLIP, rows, clip(rows)).sum(0) + noise(seed)


def played(call):
    return PlayBack(Step(call=call, layout=LAYOUT, clip_norm=CLIP, noise_multiplier=NOISE))


def result(call, name=EFFECTIVE):
    return {one.name: one for one in played(call).results().results}[name]


def test_a_correct_step_has_its_claimed_multiplier():
    assert result(correct).passed
    assert played(correct).effective_multiplier == pytest.approx(NOISE, rel=0.05)
    assert played(correct).deviations["bias"] == pytest.approx(NOISE * CLIP, rel=0.2)


@pytest.mark.parametrize("factor", [0.01, 7.0])
def test_the_scale_of_the_release_does_not_matter(factor):
    found = played(lambda rows, seed: factor * correct(rows, seed))
    assert found.effective_multiplier == pytest.approx(NOISE, rel=0.05)
    assert not found.results().failed


@pytest.mark.parametrize(
    ("call", "multiplier", "witness"),
    [
        (halved, NOISE / 2, "clip norms"),
        (unclipped, 0.0, "a gradient of 1e+20 clip norms"),
        (clipped_per_tensor, NOISE / math.sqrt(2), "in all tensors"),
        (noised_in_one_tensor, 0.0, "clip norms in"),
        (clipped_up_to_a_thousand, 0.0, "a gradient of 1e+20 clip norms"),
        (averaged_over_the_real_lot, None, "other gradients"),
        (clipped_after_the_sum, None, "clip norms in"),
    ],
)
def test_each_broken_step_fails_with_its_multiplier_and_its_witness(call, multiplier, witness):
    found = result(call)
    assert found.passed is False
    assert found.allowed == NOISE
    assert witness in found.witness
    if multiplier is not None:
        assert found.measured == pytest.approx(multiplier, rel=0.1, abs=1e-3)


@pytest.mark.simulations
def test_forty_correct_steps_of_other_seeds_are_not_accused():
    calls = [lambda rows, seed, k=k: correct(rows, 1000 * k + seed) for k in range(40)]
    assert not [one for call in calls for one in played(call).results().failed]


def test_rows_that_are_no_numbers_are_reported_and_are_no_accusation():
    assert result(correct, FINITE).passed
    passing = result(lambda rows, seed: (rows * (CLIP / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0), FINITE)
    assert passing.passed is None
    assert "a gradient with a NaN entry makes the release NaN or infinite" in passing.witness

    def refusing(rows, seed):
        if not rows.isfinite().all():
            raise ArithmeticError("no number")
        return correct(rows, seed)

    assert "NaN entry raises ArithmeticError" in result(refusing, FINITE).witness


def test_noise_that_cannot_be_seeded_is_not_compared():
    source = np.random.default_rng(0)
    found = played(lambda rows, seed: correct(rows, int(source.integers(2**31)))).results()
    assert {one.passed for one in found.results} == {None}


def test_a_step_that_takes_no_rows_is_also_played_on_an_empty_lot():
    assert any("other gradients none" in one.witness for one in played(correct).shifts)

    def refusing(rows, seed):
        if not len(rows):
            raise IndexError("empty")
        return correct(rows, seed)

    found = played(refusing).results()
    assert not found.failed
    assert found.results[0].witness.endswith("the step does not accept an empty lot")


def test_an_exception_names_the_rows():
    def failing(rows, seed):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as raised:
        played(failing).results()
    assert "raised by the step on 6 gradients" in raised.value.__notes__[0]


@pytest.mark.parametrize("wrong", [{"clip_norm": 0.0}, {"noise_multiplier": math.inf}])
def test_a_step_out_of_range_is_refused(wrong):
    with pytest.raises(ValueError, match="must be a number > 0"):
        Step(**({"call": correct, "layout": LAYOUT, "clip_norm": 1.0, "noise_multiplier": 1.0} | wrong))


def test_scalars_and_empty_tensors_are_played_and_a_tensor_without_numbers_takes_no_plant():
    layout = Layout(names=("scale", "none", "bias"), shapes=((), (0, 2), (4,)))
    rng = np.random.default_rng

    def call(rows, seed):
        drawn = torch.from_numpy(rng(seed).standard_normal(layout.dim)).float() * NOISE * CLIP
        return clip(rows).sum(0) + drawn

    played = PlayBack(Step(call=call, layout=layout, clip_norm=CLIP, noise_multiplier=NOISE))
    assert played.results().failed == ()
    with pytest.raises(ValueError, match="none holds none"):
        Plant(tensor="none").direction(layout)


def in_half_precision(rows, seed):
    """Takes rows in half precision, and clips, sums and noises them in single precision."""
    held = rows.half().float()
    return (held * (CLIP / held.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0) + noise(seed)


def test_no_unit_is_longer_than_the_type_of_the_rows_holds():
    step = Step(call=in_half_precision, layout=LAYOUT, clip_norm=CLIP, noise_multiplier=NOISE, dtype=torch.float16)
    assert PlayBack(step).results().failed == ()
    assert any(shift.witness.startswith("a gradient of 4094 clip norms") for shift in PlayBack(step).shifts)
    # As single precision, 1e20 is infinite in half precision, and clips to nothing that is a number.
    assert EFFECTIVE in {one.name for one in played(in_half_precision).results().failed}


def test_whole_numbers_are_no_type_of_rows():
    with pytest.raises(ValueError, match="floating-point"):
        Step(call=correct, layout=LAYOUT, clip_norm=CLIP, noise_multiplier=NOISE, dtype=torch.int64)


@pytest.mark.parametrize("after", [torch.Tensor.int, torch.Tensor.sign, lambda noised: (noised * 2).round() / 2])
def test_a_correct_release_that_is_rounded_after_the_noise_is_not_compared(after):
    found = result(lambda rows, seed: after(correct(rows, seed)))
    assert found.passed is None
    assert "after rounding" in found.witness


@pytest.mark.parametrize("kind", [Tensor.numpy, Tensor.tolist, Tensor.double, Tensor.bfloat16])
def test_a_release_may_be_an_array_a_list_or_of_another_type(kind):
    assert not played(lambda rows, seed: kind(correct(rows, seed))).results().failed
    assert result(lambda rows, seed: kind(halved(rows, seed))).passed is False


@pytest.mark.parametrize(
    ("release", "kind", "words"),
    [
        (1.0, ValueError, r"a release must have shape \(35,\), got \(\)"),
        (None, TypeError, "a release must be a tensor, an array or a list of numbers, got NoneType"),
        ({"w": 1.0}, TypeError, "got dict"),
    ],
)
def test_a_release_of_other_things_is_refused(release, kind, words):
    with pytest.raises(kind, match=words):
        played(lambda rows, seed: release).results()
