import base64
import io
import re
import warnings
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from fedassay.audit.claim import Unit
from fedassay.audit.metrics import roc_vertices
from fedassay.audit.observer import GLOBAL_MODELS
from fedassay.reports.figures.claims import claimed_measured, privacy_utility
from fedassay.reports.figures.curves import learning
from fedassay.reports.figures.frame import Sheet, line_styles
from fedassay.reports.figures.images import reconstructions
from fedassay.reports.figures.roc import drawable, roc
from fedassay.reports.formats.page import figures
from PIL import Image

AUDIT = {"role": "audit", "attack": "canary", "metric": "epsilon_low", "seed": None, "n": 500}


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}text")]


def test_nothing_is_drawn_below_one_trial_in_n():
    rng = np.random.default_rng(1)
    x, y = drawable(*roc_vertices(rng.normal(1, 1, 200), rng.normal(0, 1, 100)), 1 / 100, 1 / 200, width=254)
    assert x.min() >= 1 / 100
    assert y.min() >= 1 / 200
    assert (x[-1], y[-1]) == (1, 1)


def test_an_errorless_attack_is_drawn_at_one_from_the_first_trial_on():
    x, y = drawable(*roc_vertices(np.ones(10), np.zeros(10)), 0.1, 0.1, width=254)
    assert (x.tolist(), y.tolist()) == ([0.1, 1.0], [1.0, 1.0])


def test_ten_thousand_scores_are_thinned_to_what_a_screen_can_show():
    rng = np.random.default_rng(2)
    x, y = drawable(*roc_vertices(rng.normal(1, 1, 10_000), rng.normal(0, 1, 10_000)), 1e-4, 1e-4, width=254)
    assert len(x) < 1200
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) >= 0).all()


def sign_and_measure(run, defense, claim):
    run.sign(defense, claim)
    row = AUDIT | {"defense": defense, "claim_id": claim.claim_id, "ceiling": 4.5, "verdict": "NOT_REFUTED"}
    run.row(**row, value=1.0)
    run.accuracy_row(defense=defense, value=0.9)


@pytest.mark.simulations
@pytest.mark.parametrize("draw", [claimed_measured, privacy_utility])
def test_claims_of_other_units_or_deltas_have_panels_of_their_own(run_maker, make_claim, draw):
    sign_and_measure(run_maker, "dp_fedavg", make_claim())
    sign_and_measure(run_maker, "dp_sgd", make_claim(delta=1e-6))
    sign_and_measure(run_maker, "no_clip", make_claim(unit=Unit.SAMPLE))
    sign_and_measure(run_maker, "noise_halved", make_claim(epsilon=8.0))
    headings = [text for text in texts(draw(run_maker.write()).svg) if text.startswith("one ")]
    assert headings == [
        "one client (add/remove), δ = 1e-5",
        "one client (add/remove), δ = 1e-6",
        "one sample (add/remove), δ = 1e-5",
    ]


def test_the_points_of_a_sweep_share_a_line_a_colour_and_a_label(run_maker, make_claim):
    names = ("dp_sgd", "dp_fedavg", "ldp_gaussian", "skellam", "user_level", "ldp_duchi")
    points = {f"{name}-epsilon-{epsilon}": (name, epsilon) for name in names for epsilon in (1, 2, 4, 8)}
    for label, (_, epsilon) in points.items():
        sign_and_measure(run_maker, label, make_claim(epsilon=float(epsilon)))
    run_maker.manifest["suite"]["defenses"] = {label: {"sweep": name} for label, (name, _) in points.items()}
    folder = run_maker.write()
    words = texts(privacy_utility(folder).svg)
    assert [words.count(name) for name in names] == [1] * 6
    assert not {*words} & {*points}
    styles = line_styles(((label, False) for label in points), folder.line_of)
    assert len({style["color"] for style in styles.values()}) == 6
    assert len({str(style) for style in styles.values()}) == len(points)


def test_claimed_against_measured_shows_the_bound_rounded_down_and_the_claim(run_maker, make_claim):
    signed = run_maker.sign("dp_fedavg", make_claim(epsilon=2.5))
    row = AUDIT | {"defense": "dp_fedavg", "claim_id": signed.claim_id, "verdict": "REFUTED", "detectable": 6.1}
    run_maker.row(**row, value=3.199)
    words = texts(claimed_measured(run_maker.write()).svg)
    assert {"≥ 3.19", "2.5", "REFUTED", "min detectable 6.10"} <= set(words)
    assert "adversary: other clients (every round's model)" in words


def test_reconstructions_show_best_median_and_worst(run_maker):
    images = np.zeros((5, 1, 4, 4))
    psnr = np.array([12.0, 30.0, 5.0, 20.0, 8.0])
    artifact = run_maker.arrays("c", "images", originals=images, reconstructions=images, psnr=psnr)
    for record, value in enumerate(psnr):
        run_maker.row(metric="psnr", scope="record", record=record, value=float(value), artifact=artifact, cell_id="c")
    (figure,) = reconstructions(run_maker.write())
    assert figure.table.rows == (("loss", "none", "5", "30.0", "12.0", "5.0"),)
    assert [text for text in texts(figure.svg) if text.endswith(" dB")] == ["30.0 dB", "12.0 dB", "5.0 dB"]
    assert figure.svg.count("data:image/png;base64,") == 6


def test_reconstructions_that_no_claim_covers_are_marked(run_maker, make_claim):
    run_maker.sign("mine", make_claim(observer=GLOBAL_MODELS))
    images = np.zeros((1, 1, 4, 4))
    for defense, observer, role in (
        ("none", "uploads", "attack"),
        ("mine", "uploads", "attack"),
        ("mine", "uploads", "null"),
    ):
        cell = f"{defense}-{role}"
        artifact = run_maker.arrays(cell, "images", originals=images, reconstructions=images, psnr=np.array([9.0]))
        run_maker.row(
            metric="psnr", scope="record", record=0, value=9.0, artifact=artifact, cell_id=cell, defense=defense,
            observer=observer, role=role, attack=role,
        )  # fmt: skip
    (figure,) = reconstructions(run_maker.write())
    assert [text for text in texts(figure.svg) if "image" in text and "null" not in text] == [
        "1 image",
        "1 image, out of scope",
        "1 image",
    ]
    assert [row[0] for row in figure.table.rows] == ["attack", "attack (out of scope)", "null (null attack)"]


def test_a_null_attack_stands_below_the_reconstructions_once(quick_folder):
    (figure,) = reconstructions(quick_folder)
    assert [row[0] for row in figure.table.rows].count("mean_image (null attack)") == 1
    assert figure.table.rows[-1][0] == "mean_image (null attack)"


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGBA")])
def test_grey_images_are_stored_grey_and_no_pixel_changes(run_maker, channels, mode):
    images = np.random.default_rng(0).integers(256, size=(1, channels, 8, 8)) / 255
    artifact = run_maker.arrays("c", "images", originals=images, reconstructions=images, psnr=np.array([100.0]))
    run_maker.row(metric="psnr", scope="record", record=0, value=100.0, artifact=artifact)
    (figure,) = reconstructions(run_maker.write())
    png = re.search(r'base64,([^"]+)"', figure.svg)[1]
    with Image.open(io.BytesIO(base64.b64decode(png))) as stored:
        assert stored.mode == mode
        pixels = np.asarray(stored.convert("RGB"))
    assert (pixels == np.round(255 * np.moveaxis(images[0], 0, -1))).all()


def test_large_images_are_thinned(run_maker):
    images = np.random.default_rng(0).random((1, 3, 256, 256))
    artifact = run_maker.arrays("c", "images", originals=images, reconstructions=images, psnr=np.array([12.0]))
    run_maker.row(metric="psnr", scope="record", record=0, value=12.0, artifact=artifact)
    (figure,) = reconstructions(run_maker.write())
    assert len(figure.svg) < 60_000


def test_the_learning_curve_is_the_mean_of_the_seeds(run_maker):
    for seed, curve in enumerate(([0.1, 0.5], [0.3, 0.7, 0.9])):
        artifact = run_maker.rounds(f"c{seed}", curve)
        run_maker.accuracy_row(seed=seed, value=curve[-1], artifact=artifact)
    (figure,) = learning(run_maker.write())
    assert figure.table.rows == (("1", "accuracy", "0.200"), ("2", "accuracy", "0.600"))


def test_a_regression_has_a_curve_of_r2_and_what_is_far_below_zero_does_not_flatten_it(run_maker):
    for defense, curve in (("none", [0.1, 0.5]), ("noisy", [-300.0, -500.0])):
        artifact = run_maker.rounds(f"c{defense}", curve, "r2")
        run_maker.accuracy_row(defense=defense, metric="r2", value=curve[-1], artifact=artifact)
    (figure,) = learning(run_maker.write())
    assert figure.table.rows == (("1", "R2", "0.100", "−300.000"), ("2", "R2", "0.500", "−500.000"))
    found = texts(figure.svg)
    assert {"R2", "−500.000", "−1.0", "0.0"} <= set(found)
    assert not {"−400", "−500"} & set(found)


def test_the_loss_has_a_panel_beside_the_accuracy_and_rows_of_its_own(run_maker):
    """One training diverges: its loss is drawn on a logarithmic axis, which needs no zero."""
    for defense, losses in (("none", [2.0, 0.5]), ("noisy", [20.0, 800.0])):
        artifact = run_maker.rounds(f"c{defense}", [0.1, 0.5], loss=losses)
        for metric, value in (("accuracy", 0.5), ("loss", losses[-1])):
            run_maker.accuracy_row(defense=defense, metric=metric, value=value, artifact=artifact)
    (figure,) = learning(run_maker.write())
    assert figure.table.headers == ("round", "metric", "none", "noisy")
    assert figure.table.rows == (
        ("1", "accuracy", "0.100", "0.100"),
        ("2", "accuracy", "0.500", "0.500"),
        ("1", "test loss", "2.000", "20.000"),
        ("2", "test loss", "0.500", "800.000"),
    )
    assert {"accuracy", "test loss", "none", "0.500", "800.000", "100"} <= set(texts(figure.svg))


@pytest.mark.parametrize("draw", [claimed_measured, privacy_utility, roc])
def test_a_run_without_claims_has_no_figure_of_claims(run_maker, draw):
    run_maker.row(value=0.5)
    assert draw(run_maker.write()) is None


def test_figures_without_their_artifacts_are_left_out(run_maker, make_claim):
    sign_and_measure(run_maker, "dp_fedavg", make_claim())
    run_maker.row(metric="psnr", scope="record", record=0, value=10.0, artifact="cells/gone/images.npz")
    folder = run_maker.write()
    assert roc(folder) is None
    assert reconstructions(folder) == ()
    assert learning(folder) == ()


@pytest.mark.simulations
def test_every_figure_is_whole_and_stands_alone(quick_folder):
    drawn = figures(quick_folder)
    assert [figure.key for figure in drawn] == [
        "claimed-measured",
        "privacy-utility",
        "roc",
        "reconstructions-main-inverting_gradients",
        "learning-main",
    ]
    for figure in drawn:
        ElementTree.fromstring(figure.svg)
        assert figure.title
        assert figure.description.endswith(".")
        assert figure.table.rows
        assert re.findall(r'(?:href|src)="(?!#|data:image/png)', figure.svg) == []
        assert "<metadata" not in figure.svg


def test_drawing_leaves_matplotlib_as_it_was(quick_folder):
    with matplotlib.rc_context({"font.size": 23.0, "axes.grid": True}):
        before = dict(matplotlib.rcParams)
        figure = claimed_measured(quick_folder)
        assert dict(matplotlib.rcParams) == before
    # And a reader's own settings do not reach the figure.
    assert claimed_measured(quick_folder).svg == figure.svg


def test_of_many_audits_twelve_are_drawn_alarming_ones_first_and_all_are_in_the_table(run_maker, make_claim):
    for place in range(14):
        name = f"d{place:02d}"
        signed = run_maker.sign(name, make_claim())
        artifact = run_maker.arrays(name, "scores", member=np.arange(9.0) + place, nonmember=np.arange(9.0))
        run_maker.verdict_row(
            signed,
            cell_id=name,
            defense=name,
            value=0.1 * (place + 1),
            verdict="REFUTED" if place == 0 else "NOT_REFUTED",
            artifact=artifact,
        )
    figure = roc(run_maker.write())
    assert len(figure.table.rows) == 14
    assert [f">d{place:02d}<" in figure.svg for place in range(14)] == [True, False, False] + [True] * 11
    assert "Drawn: the 12 of 14 panels with problems first" in figure.description


def test_letters_that_matplotlib_s_font_lacks_are_drawn_without_a_warning():
    with warnings.catch_warnings(record=True) as caught, Sheet("key", 50) as sheet:
        warnings.simplefilter("always")
        sheet.text(0, 0, "mine \ufdfd 漢 \U0001f600")
        svg = sheet.svg()
    assert [str(warning.message) for warning in caught] == []
    assert "mine \ufdfd 漢 \U0001f600" in texts(svg)
