"""The gain of inversions by noise."""

import re

import numpy as np
import pytest
from fedassay.audit.claim import Unit
from fedassay.reports.figures.images import IN_CLIP_NORMS, gain_by_noise, noise_of

SPREAD = np.tile([-0.5, 0.5], 8)


@pytest.fixture
def ladder(run_maker):
    """(noises, federation) -> a run with plain_noise at each, in whose suite their strength alone tells them apart."""

    def build(noises, **fields):
        run_maker.manifest["suite"]["defenses"] = {
            f"noise_{place}": {"part": "plain_noise", "noise_std": noise} | fields for place, noise in enumerate(noises)
        }
        for place, noise in enumerate(noises):
            for attack, role, level in (("mean_image", "null", 10.0), ("cosine", "attack", 14 - 2 * np.log10(noise))):
                for record, spread in enumerate(SPREAD if role == "attack" else 0 * SPREAD):
                    run_maker.row(
                        cell_id=f"{attack}_{place}",
                        federation="noise",
                        defense=f"noise_{place}",
                        attack=attack,
                        role=role,
                        observer="uploads",
                        metric="psnr",
                        scope="record",
                        client=record,
                        record=record,
                        value=float(level + spread),
                    )
        return run_maker.write()

    return build


def test_the_curve_goes_down_with_noise_and_its_end_is_reported(ladder):
    (figure,) = gain_by_noise(ladder([1000.0, 1.0, 10.0, 1e-3]))
    assert figure.key == "gain-by-noise-noise-plain_noise"
    assert figure.table.headers == ("standard deviation of the noise", "cosine")
    assert [row[0] for row in figure.table.rows] == ["0.001", "1", "10", "1e+03", "largest noise with a gain"]
    assert [row[1].partition(" ")[0] for row in figure.table.rows] == ["+10.0", "+4.0", "+2.0", "−2.0", "10"]
    assert re.findall(r'(?:href|src)="(?!#)', figure.svg) == []


def test_noise_is_in_clip_norms_where_the_defense_names_one(ladder):
    folder = ladder([1.0, 2.0, 4.0], clip_norm=0.5)
    assert gain_by_noise(folder)[0].table.headers[0] == "noise, in clip norms"
    assert noise_of(folder, "noise", "noise_2") == (8.0, IN_CLIP_NORMS)


def test_what_a_claim_signs_goes_before_what_the_suite_states(ladder, run_maker, make_claim):
    run_maker.sign("noise_0", make_claim(unit=Unit.SAMPLE, parameters={"noise_multiplier": 4.8}), federation="noise")
    folder = ladder([1.0, 2.0, 4.0])
    assert noise_of(folder, "noise", "noise_0") == (4.8, IN_CLIP_NORMS)
    # Of the three two are left in the upload's unit: no curve.
    assert gain_by_noise(folder) == ()
