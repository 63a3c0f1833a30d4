"""The best membership attack by observer, and the gain of inversions by noise."""

import re

import numpy as np
import pytest
from fedassay.audit.claim import Unit
from fedassay.audit.observer import UPLOADS
from fedassay.reports.figures.attacks import observers
from fedassay.reports.figures.frame import BLUE, COLUMN, MARGIN, RED, column
from fedassay.reports.figures.images import IN_CLIP_NORMS, gain_by_noise, noise_of
from fedassay.reports.reading.membership import memberships


def normal(shift, seed=0, count=60):
    rng = np.random.default_rng(seed)
    return {"member": rng.normal(shift, 1, count), "nonmember": rng.normal(0, 1, count)}


@pytest.fixture
def drawn(run_maker, add_membership, make_claim):
    run_maker.sign("dp_sgd", make_claim(unit=Unit.SAMPLE, observer=UPLOADS))
    for defense in ("none", "dp_sgd"):
        add_membership(run_maker, defense, "weak", **normal(0.1))
        add_membership(run_maker, defense, "strong", **normal(1.0))
        add_membership(run_maker, defense, "coin", role="null", **normal(4.0))
        add_membership(run_maker, defense, "loss", observer="final_model", **normal(0.5))
    add_membership(run_maker, "dp_sgd", "ratio", adversary="worst_case", **normal(2.0))
    return run_maker.write()


def test_the_best_of_each_kind_of_adversary_stands_at_its_place_and_no_null_attack(drawn):
    (figure,) = observers(drawn)
    told = [(row[0], row[2], row[3], row[4], row[8]) for row in figure.table.rows if "individual updates" in row[1]]
    assert sorted(told) == sorted(
        [
            ("none", "sample", "realistic", "strong", "not covered"),
            ("dp_sgd", "sample", "realistic", "strong", "ε 4"),
            ("dp_sgd", "sample", "worst-case adversary", "ratio", "ε 4"),
        ]
    )


@pytest.mark.simulations
def test_intervals_are_for_all_attacks_at_a_place(drawn):
    (figure,) = observers(drawn)
    row = next(row for row in figure.table.rows if row[4] == "ratio")
    one = next(one for one in memberships(drawn) if one.attack == "ratio")
    low, high = one.interval(1 - 0.05 / 3)
    assert row[5:8] == (f"{one.area:.3f}", f"{low:.3f}", f"{high:.3f}")


def test_one_defense_alone_is_nothing_to_compare(run_maker, add_membership):
    add_membership(run_maker, "none", **normal(1.0))
    assert observers(run_maker.write()) == ()


def bars(figure, colour):
    """(left, y, right) of the intervals in one colour, in pixels of the sheet."""
    found = re.findall(
        rf'd="M([\d.]+) ([\d.]+)H([\d.]+)"[^>]*style="fill: none; stroke: {colour}; stroke-width: 1.4', figure.svg
    )
    return [tuple(map(float, one)) for one in found]


def test_an_interval_that_reaches_far_below_chance_is_drawn_to_its_end(run_maker, add_membership):
    for defense in ("none", "dp_sgd"):
        add_membership(run_maker, defense, member=[0.0, 1.0, 2.0, 3.0], nonmember=[0.5, 1.5, 2.5, 3.5])
    (figure,) = observers(run_maker.write())
    low, high = (float(end) for end in figure.table.rows[0][6:8])
    assert low < 0.25
    # Between the names of the defenses and the end of the first column.
    assert all(40 < left < right < MARGIN + COLUMN for left, _, right in bars(figure, BLUE))
    assert len(bars(figure, BLUE)) == 2
    assert high <= 1.0


def test_intervals_of_two_adversaries_do_not_cover_each_other(drawn):
    (figure,) = observers(drawn)
    (red,) = bars(figure, RED)
    first_panel = [blue for blue in bars(figure, BLUE) if blue[0] < column(1)]
    assert len(first_panel) == 2
    assert min(abs(red[1] - blue[1]) for blue in first_panel) > 5


def test_an_area_below_the_usual_range_is_on_the_sheet(run_maker, add_membership):
    for defense in ("none", "dp_sgd"):
        add_membership(run_maker, defense, **normal(-3.0))
    (figure,) = observers(run_maker.write())
    assert float(figure.table.rows[0][5]) < 0.1


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
