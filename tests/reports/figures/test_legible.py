"""Every text of every figure can be read, and shorter paths go through the same points."""

import itertools
import re
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest
from fedassay.audit.claim import Unit
from fedassay.audit.observer import UPLOADS
from fedassay.reports.figures.frame import WIDTH, Sheet, shorter
from fedassay.reports.figures.letters import GAP, SMALL, broken, distinct, label_column, spread, text_width
from fedassay.reports.formats.page import figures
from hypothesis import given, settings
from hypothesis import strategies as st

ROUNDS = 5
SHARES = st.integers(0, 20).map(lambda twentieths: twentieths / 20)
PHONE = 390.0
"""Width of a phone in CSS pixels."""


class Box(NamedTuple):
    words: str
    size: float
    left: float
    top: float
    right: float
    bottom: float

    def covers(self, other):
        return (
            min(self.right, other.right) - max(self.left, other.left) > 0.5
            and min(self.bottom, other.bottom) - max(self.top, other.top) > 0.5
        )

    def within(self, window):
        return (
            self.left >= window.left - 0.5
            and self.top >= window.top - 0.5
            and self.right <= window.left + window.width + 0.5
            and self.bottom <= window.top + window.height + 0.5
        )


def box(element):
    """The rectangle of one <text>, measured with a wide font; digits and capitals are .76 of the size high."""
    style = dict(part.split(": ") for part in element.get("style").split("; "))
    words, size = element.text, float(style["font-size"].removesuffix("px"))
    width = text_width(words, size, bold=style.get("font-weight") == "700")
    x, y = float(element.get("x")), float(element.get("y"))
    start = {"start": 0.0, "middle": width / 2, "end": width}[style["text-anchor"]]
    if "rotate(-90" in (element.get("transform") or ""):
        return Box(words, size, x - 0.76 * size, y - width + start, x + 0.22 * size, y + start)
    return Box(words, size, x - start, y - 0.76 * size, x - start + width, y + 0.22 * size)


def boxes(svg):
    return [box(one) for one in ElementTree.fromstring(svg).iter() if one.tag.endswith("}text") and one.text.strip()]


def covered(found):
    return [(one.words, other.words) for one, other in itertools.combinations(found, 2) if one.covers(other)]


def cut_off(figure, found):
    windows = [window for panel in figure.panels for window in panel]
    return [one.words for one in found if not any(one.within(window) for window in windows)]


def over_marks(svg, found):
    """The texts in which the centre of a marker lies."""
    marks = [one for one in ElementTree.fromstring(svg).iter() if one.tag.endswith("}use")]
    centres = [(float(mark.get("x")), float(mark.get("y"))) for mark in marks]
    return [one.words for one in found for x, y in centres if one.left < x < one.right and one.top < y < one.bottom]


def is_legible(figure):
    found = boxes(figure.svg)
    assert found
    assert covered(found) == [], figure.key
    assert over_marks(figure.svg, found) == [], figure.key
    assert cut_off(figure, found) == [], figure.key
    widest = max(window.width for panel in figure.panels for window in panel)
    # The margins of the page and of the box around the drawing, and its border, on both sides.
    scale = min(1.0, (PHONE - 2 * 20 - 2 * 8 - 2) / widest)
    assert min(one.size for one in found) * scale >= 9.9, figure.key
    # Each panel lies on the drawing.
    assert all(w.left >= 0 and w.left + w.width <= WIDTH for panel in figure.panels for w in panel)


class Hard(NamedTuple):
    """Defenses of a run: their names, claimed epsilons, final accuracies and losses, and PSNR of a reconstruction."""

    names: tuple[str, ...]
    epsilons: tuple[float, ...]
    accuracies: tuple[float, ...]
    losses: tuple[float, ...]
    psnr: tuple[float, ...]


LONG = tuple(f"a_defense_whose_name_fills_a_line_of_any_width_{place}_and_ends_alike" for place in range(14))
CASES = {
    "one": Hard(("a",), (4.0,), (0.9,), (0.4,), (11.0,)),
    "many at equal points": Hard(LONG, (4.0,) * 14, (0.9,) * 14, (0.4,) * 14, (11.0,) * 14),
    "extremes": Hard(
        ("漢" * 40, "W" * 60, "_" * 9, "b <&> c", "none_at_all"),
        (1e-3, 0.5, 12.345, 600.0, 654.321),
        (0.0, 1.0, 0.5, 0.999, 1e-4),
        (1e-6, 1.0, 1e3, 123456.789, 0.1),
        (-21.5, 0.0, 130.2, 300.0, 9.0),
    ),
}


def attacks(run, add_membership, name, shift, psnr):
    rng = np.random.default_rng(0)
    for attack, role in (("cosine", "attack"), ("an_attack_with_a_long_name_" + "x" * 30, "attack"), ("coin", "null")):
        for observer in ("uploads", "final_model"):
            sides = {"member": rng.normal(shift, 1, 40), "nonmember": rng.normal(0, 1, 40)}
            add_membership(run, name, attack, role=role, observer=observer, **sides)
        run.rounds(f"main_{attack}_{name}_0", list(np.linspace(0.5, 0.5 + shift / 3, ROUNDS)), name="auc")
    images = rng.random((1, 1, 8, 8))
    for attack, role, level in (("inversion", "attack", psnr), ("mean_image", "null", 10.0)):
        cell = f"{attack}_{name}"
        of = {"originals": images, "reconstructions": images, "psnr": np.array([level])}
        row = {
            "metric": "psnr",
            "scope": "record",
            "client": 0,
            "value": level,
            "artifact": run.arrays(cell, "images", **of),
        }
        for record in range(3):
            run.row(**row, cell_id=cell, defense=name, attack=attack, role=role, observer="uploads", record=record)


def training(run, name, accuracy, loss):
    for seed, error in enumerate((-0.02, 0.0, 0.02)):
        final = float(np.clip(accuracy + error, 0, 1))
        curve = [final * (number + 1) / ROUNDS for number in range(ROUNDS)]
        artifact = run.rounds(f"training_{name}_{seed}", curve, loss=[loss * (ROUNDS - n) for n in range(ROUNDS)])
        for metric, value in (("accuracy", final), ("loss", loss)):
            run.accuracy_row(defense=name, seed=seed, metric=metric, value=value, artifact=artifact)


def hard_run(run, make_claim, add_membership, case):
    """A run with every kind of figure: its defenses claim, are audited, attacked and trained."""
    run.manifest["suite"]["defenses"] = {name: {"part": "plain_noise"} for name in ("none", *case.names)}
    training(run, "none", 0.9, 0.4)
    for place, (name, epsilon, accuracy, loss, psnr) in enumerate(zip(*case, strict=True)):
        noise = {"noise_multiplier": 10.0 ** (place % 4)}
        claim = make_claim(epsilon, unit=Unit.SAMPLE, observer=UPLOADS, parameters=noise)
        spent = [(number + 1, epsilon * (number + 1) / ROUNDS) for number in range(ROUNDS)]
        run.sign(name, claim, control=place % 3 == 1, spent=spent)
        scores = {"member": np.arange(60.0) + place, "nonmember": np.arange(60.0), "alpha": 0.01}
        bounds = {"fpr_high": 0.1, "fnr_high": 0.2, "threshold": 1.0}
        cell = f"audit_{place}"
        verdict = ("NOT_REFUTED", "REFUTED", "UNDERPOWERED")[place % 3]
        run.verdict_row(
            claim, cell_id=cell, defense=name, control=place % 3 == 1, attack="canary", verdict=verdict, n=500,
            value=epsilon * (0.0, 0.5, 1.05)[place % 3], ceiling=epsilon, detectable=epsilon,
            artifact=run.arrays(cell, "scores", **scores, **bounds),
        )  # fmt: skip
        training(run, name, accuracy, loss)
        attacks(run, add_membership, name, 0.2 * (place % 4), psnr)
    return run.write()


@pytest.mark.simulations
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_no_text_of_a_hard_run_covers_another_or_is_cut_off_or_small(run_maker, make_claim, add_membership, case):
    drawn = figures(hard_run(run_maker, make_claim, add_membership, case))
    kinds = {re.sub("-(main|plain).*", "", figure.key) for figure in drawn}
    every = {"claimed-measured", "privacy-utility", "roc", "membership", "reconstructions", "by-round",
             "accuracy-spent", "learning"}  # fmt: skip
    assert kinds == every
    for figure in drawn:
        is_legible(figure)


@pytest.mark.simulations
def test_no_text_of_a_run_like_the_quick_suite_covers_another_or_is_cut_off_or_small(quick_folder):
    for figure in figures(quick_folder):
        is_legible(figure)


@pytest.mark.simulations
@settings(max_examples=30, deadline=None)
@given(points=st.lists(st.tuples(SHARES, SHARES), min_size=1, max_size=14))
def test_labels_at_any_points_are_apart_to_the_right_of_their_axes_and_in_the_order_of_the_points(points):
    with Sheet("key", 240) as sheet:
        ax = sheet.axes(50, 20, 100, GAP * 14)
        ax.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
        label_column(ax, [(x, y, f"label {place}", "#000000") for place, (x, y) in enumerate(points)])
        found = boxes(sheet.svg())
    assert covered(found) == []
    assert all(one.left > 150 and one.top >= 19 and one.bottom <= 20 + GAP * 14 + 1 for one in found)
    heights = [next(one.top for one in found if one.words == f"label {place}") for place in range(len(points))]
    above = itertools.combinations(range(len(points)), 2)
    assert all((heights[a] - heights[b]) * (points[a][1] - points[b][1]) <= 0 for a, b in above)


@settings(deadline=None)
@given(heights=st.lists(st.floats(-50, 150), max_size=5))
def test_limits_move_labels_to_the_nearest_places_that_keep_them(heights):
    apart = spread(heights, gap=20.0, lowest=0.0, highest=100.0)
    ranked = sorted(apart)
    assert all(-1e-9 <= height <= 100 + 1e-9 for height in apart)
    assert all(b - a >= 20 - 1e-9 for a, b in itertools.pairwise(ranked))
    # Moving any single label by a pixel within what is allowed is no better.
    for place in range(len(apart)):
        for step in (-1.0, 1.0):
            moved = [*apart]
            moved[place] += step
            order = [moved[one] for one in sorted(range(len(apart)), key=lambda one: apart[one])]
            if 0 <= moved[place] <= 100 and all(b - a >= 20 for a, b in itertools.pairwise(order)):
                assert abs(moved[place] - heights[place]) > abs(apart[place] - heights[place]) - 1e-9


def test_names_that_differ_in_their_middle_only_stay_distinct():
    assert distinct(["none", LONG[0]], SMALL, 110)["none"] == "none"
    short = distinct(["none", *LONG], SMALL, 110)
    assert len(set(short.values())) == len(LONG) + 1
    assert all(text_width(one, SMALL) <= 110 for one in short.values())
    assert "_3_" in short[LONG[3]]
    assert distinct(["a", "a"], SMALL, 110) == {"a": "a"}


@given(words=st.text(alphabet="ab_ W\n漢", max_size=80), width=st.integers(30, 120))
def test_broken_lines_are_no_wider_than_allowed_and_lose_no_letter_of_short_words(words, width):
    lines = broken(words, SMALL, width, most=99)
    assert all(text_width(line, SMALL) <= width for line in lines)
    if "…" not in "".join(lines):
        assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", words)


def ends_of_bars(folder):
    """The ends of all intervals of accuracies that the frontier draws, read from its table."""
    (figure,) = [one for one in figures(folder) if one.key == "privacy-utility"]
    return [float(end) for row in figure.table.rows for end in re.findall(r"\d\.\d+", row[-1])]


def test_intervals_of_accuracies_at_the_ends_of_their_range_stay_inside(run_maker, make_claim):
    for name, values in (("high", (0.999, 0.9, 1.0)), ("low", (0.0, 0.001, 0.1))):
        run_maker.verdict_row(run_maker.sign(name, make_claim()), defense=name, attack="canary", verdict="NOT_REFUTED")
        for seed, value in enumerate(values):
            run_maker.accuracy_row(defense=name, seed=seed, value=value)
    ends = ends_of_bars(run_maker.write())
    assert len(ends) == 6
    assert all(0 <= end <= 1 for end in ends)


@pytest.mark.simulations
def test_a_saved_drawing_holds_its_title_and_description_and_the_page_repeats_no_drawing(quick_folder, tmp_path):
    figure = figures(quick_folder)[0]
    saved = ElementTree.parse(figure.save(tmp_path / "a.svg")).getroot()
    words = {child.tag.partition("}")[2]: child.text for child in saved}
    assert (words["title"], words["desc"]) == (figure.title, figure.description)
    assert len(figure.narrow) < len(figure.svg) / 2
    (drawing,) = set(re.findall(r'href="#([^"]+)"', figure.narrow))
    assert figure.svg.count(f'id="{drawing}"') == 1


@pytest.mark.simulations
def test_the_panels_of_a_run_among_several_refer_to_their_own_drawing(quick_folder):
    figure = figures(quick_folder)[0].of_run(2, "b")
    (drawing,) = set(re.findall(r'href="#([^"]+)"', figure.narrow))
    assert f'id="{drawing}"' in figure.svg


NUMBER = st.sampled_from(["0", "1", "12.5", "-3.25", "100", "0.01"])
POINT = st.tuples(NUMBER, NUMBER)
SEGMENT = st.one_of(
    st.tuples(st.sampled_from("ML"), st.tuples(POINT)),
    st.tuples(st.just("Q"), st.tuples(POINT, POINT)),
    st.tuples(st.just("C"), st.tuples(POINT, POINT, POINT)),
    st.just(("z", ())),
)


def visited(path):
    """(command, points) of each segment, a line along an axis as the line that it is."""
    found, at = [], ("", "")
    for command, numbers in re.findall(r"([MLHVQCz])([^MLHVQCz]*)", path):
        values = numbers.split()
        if command == "H":
            command, values = "L", [values[0], at[1]]
        elif command == "V":
            command, values = "L", [at[0], values[0]]
        found.append((command, tuple(zip(values[::2], values[1::2], strict=True))))
        at = tuple(values[-2:]) if values else ("", "")
    return found


@given(st.lists(SEGMENT))
def test_a_shorter_path_goes_through_the_same_points(segments):
    path = " ".join(
        " ".join([command, *(number for point in points for number in point)]) for command, points in segments
    )
    short = shorter(path)
    assert visited(short) == [(command, points) for command, points in segments]
    assert len(short) <= len(path)


def test_every_path_of_a_page_is_short_and_whole(quick_page):
    paths = re.findall(r'<path (?:[^>]*? )?d="([^"]*)"', quick_page.partition("<figure")[2])
    assert len(paths) > 100
    for path in paths:
        assert shorter("".join(f"{command} {' '.join(sum(points, ()))} " for command, points in visited(path))) == path
