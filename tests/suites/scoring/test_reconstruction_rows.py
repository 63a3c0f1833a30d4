"""Uploads of one sample each: every guess meets the sample behind its own upload, and nowhere earlier."""

import dataclasses

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Level
from fedassay.attacks.membership.owner_attack import OwnerAttack
from fedassay.attacks.membership.shadow_attack import ShadowAttack
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import Design, Reconstructions, Setting
from fedassay.audit.observer import UPLOADS
from fedassay.fl.candidates import PlantedOwners
from fedassay.fl.objective import CLASSIFICATION
from fedassay.suites.attacking import trial as trial_module
from fedassay.suites.config.resolve import task_of
from fedassay.suites.config.tables.suite import FederationSpec
from fedassay.suites.results.store import Store
from fedassay.suites.scoring import reconstruction_rows
from fedassay.suites.scoring.images import PSNR_CAP, Unavailable
from fedassay.suites.scoring.reconstruction_rows import score_reconstructions
from known_parts import parts_by_name
from row_facts import toy_cell
from suite_text import ONE_UPLOAD, tables

SETTING = Setting(
    unit=Unit.SAMPLE, adjacency=Adjacency.REPLACE_ONE, observer=UPLOADS, rounds=1, design=Design.CLUSTERED
)
UPLOADERS = 5


@pytest.fixture
def task():
    spec = FederationSpec(
        model="logistic",
        partition="one_sample",
        clients=UPLOADERS,
        samples=20,
        rounds=1,
        algorithm={"name": "fedsgd", "learning_rate": 1.0},
    )
    return task_of(spec, 0)


@pytest.fixture
def cell():
    return toy_cell(federation="shown", attack="inversion")


@pytest.fixture(autouse=True)
def no_weights(monkeypatch):
    """As on a machine without AlexNet's weights, wherever the tests run."""
    monkeypatch.setattr(reconstruction_rows, "lpips_scorer", lambda: Unavailable("no weights here"))


def behind_the_uploads(task):
    """Images and labels of the clients' samples, in the order of the clients, one by one."""
    indices = [int(part[0]) for part in task.parts]
    assert indices != sorted(indices)  # The pool's order would not do.
    return np.stack([task.images[index].numpy() for index in indices]), [int(task.labels[index]) for index in indices]


def images_of(task, guess):
    return Reconstructions(np.clip(guess, 0, 1), None, SETTING)


def test_the_true_images_in_the_order_of_the_clients_are_perfect(tmp_path, cell, task):
    truth, _ = behind_the_uploads(task)
    rows = score_reconstructions(cell, images_of(task, truth), task, Store(tmp_path))
    values = {(row.metric, row.record): row.value for row in rows if row.status == "ok"}
    for number in range(UPLOADERS):
        assert values["mse", number] == 0
        assert values["psnr", number] == PSNR_CAP
        assert values["psi_psnr", number] == values["outside_psnr", number] == PSNR_CAP
        for metric in ("ssim", "psi_ssim", "outside_ssim"):
            assert values[metric, number] == pytest.approx(1)
    assert len(values) == 9 * UPLOADERS


def test_each_image_is_scored_against_its_own_upload(tmp_path, cell, task):
    truth, _ = behind_the_uploads(task)
    guess = truth.copy()
    guess[2] = 1 - guess[2]
    rows = score_reconstructions(cell, images_of(task, guess), task, Store(tmp_path))
    errors = {row.record: row.value for row in rows if row.metric == "mse"}
    wanted = float(np.mean((2 * truth[2].astype(np.float64) - 1) ** 2))
    assert errors == {0: 0.0, 1: 0.0, 2: pytest.approx(wanted), 3: 0.0, 4: 0.0}
    assert {row.record: row.client for row in rows if row.metric == "mse"} == {n: n for n in range(UPLOADERS)}


def test_a_distance_that_cannot_be_had_is_one_row_a_region_that_states_why(tmp_path, cell, task):
    truth, _ = behind_the_uploads(task)
    rows = score_reconstructions(cell, images_of(task, truth), task, Store(tmp_path))
    omitted = [row for row in rows if row.status != "ok"]
    assert [row.metric for row in omitted] == ["lpips", "psi_lpips", "outside_lpips"]
    assert {(row.status, row.reason, row.value) for row in omitted} == {("unavailable", "no weights here", None)}


def test_the_task_states_which_pixels_are_sensitive_whatever_their_image(tmp_path, cell, task):
    """Only the first pixel of each image is: an error there is all inside; each image has the mask of its sample."""
    masks = torch.zeros(task.images.shape[0], 8, 8, dtype=torch.bool)
    spots = {int(part[0]): (number, 7 - number) for number, part in enumerate(task.parts)}
    for sample, (row, column) in spots.items():
        masks[sample, row, column] = True
    truth, _ = behind_the_uploads(task)
    guess = truth.copy()
    for number, (row, column) in enumerate(spots.values()):
        guess[number, 0, row, column] = 1 - truth[number, 0, row, column]
    told = dataclasses.replace(task, masks=masks)
    rows = score_reconstructions(cell, images_of(told, guess), told, Store(tmp_path))
    wanted = [(2 * truth[number, 0, row, column] - 1) ** 2 for number, (row, column) in enumerate(spots.values())]
    assert [row.value for row in rows if row.metric == "psi_mse"] == pytest.approx(wanted)
    assert [row.value for row in rows if row.metric == "outside_mse"] == [0.0] * UPLOADERS


def test_behind_noise_on_pixels_the_image_without_it_is_what_was_to_be_hidden(tmp_path, cell, task):
    truth, _ = behind_the_uploads(task)
    noisy = dataclasses.replace(task, images=1 - task.images, originals=task.images)
    rows = score_reconstructions(cell, images_of(noisy, truth), noisy, Store(tmp_path))
    assert [row.value for row in rows if row.metric == "mse"] == [0.0] * UPLOADERS


def test_a_distance_that_can_be_had_is_a_row_an_image(tmp_path, cell, task, monkeypatch):
    monkeypatch.setattr(reconstruction_rows, "lpips_scorer", lambda: lambda images, truth: np.arange(5.0))
    truth, _ = behind_the_uploads(task)
    rows = score_reconstructions(cell, images_of(task, truth), task, Store(tmp_path))
    for metric in ("lpips", "psi_lpips", "outside_lpips"):
        assert [row.value for row in rows if row.metric == metric] == [0.0, 1.0, 2.0, 3.0, 4.0]
        assert {row.direction for row in rows if row.metric == metric} == {"lower_leaks"}


def test_originals_and_reconstructions_are_kept_side_by_side(tmp_path, cell, task):
    truth, _ = behind_the_uploads(task)
    store = Store(tmp_path)
    rows = score_reconstructions(cell, images_of(task, 1 - truth), task, store)
    kept = store.load_arrays(rows[0].artifact)
    np.testing.assert_array_equal(kept["originals"], truth)
    np.testing.assert_allclose(kept["reconstructions"], 1 - truth, atol=1e-6)
    assert kept["psnr"].tolist() == [row.value for row in rows if row.metric == "psnr"]


def test_the_images_of_a_lot_are_matched_to_its_samples(tmp_path, cell):
    """Two clients of two and three samples, each client's images in the wrong order; a client's own, not another's."""
    spec = FederationSpec(
        model="logistic", clients=2, samples=5, rounds=1, algorithm={"name": "fedsgd", "learning_rate": 1.0}
    )
    task = task_of(spec, 0)
    assert sorted(task.sizes) == [2, 3]
    images = np.concatenate([task.images[part].numpy()[::-1] for part in task.parts])
    uploads = np.repeat([0, 1], task.sizes)
    rows = score_reconstructions(cell, Reconstructions(images, None, SETTING, uploads), task, Store(tmp_path))
    assert [row.value for row in rows if row.metric == "mse"] == [0.0] * 5
    assert [row.client for row in rows if row.metric == "mse"] == uploads.tolist()
    swapped = Reconstructions(images, None, SETTING, np.repeat([0, 1], task.sizes[::-1]))
    with pytest.raises(ValueError, match="as many images reconstructed from it as the client has samples"):
        score_reconstructions(cell, swapped, task, Store(tmp_path))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"partition": "iid"}, "clients with 4 to 4 samples"),
        ({"clients": 4}, "got updates of 5 of 4 clients"),
    ],
)
def test_uploads_of_more_than_one_sample_are_not_scored(tmp_path, cell, task, changes, says):
    fields = {"model": "logistic", "partition": "one_sample", "clients": UPLOADERS, "samples": 20, "rounds": 1}
    algorithm = {"name": "fedsgd", "learning_rate": 1.0}
    other = task_of(FederationSpec(**(fields | changes), algorithm=algorithm), 0)
    evidence = Reconstructions(np.zeros((UPLOADERS, 1, 8, 8)), None, SETTING)
    with pytest.raises(ValueError, match=says):
        score_reconstructions(cell, evidence, other, Store(tmp_path))


EVERYTHING = tables(federations={"shown": ONE_UPLOAD | {"samples": 30}}, defenses={"none": {}})
DEFENSES = {"map_inversion": "ldp_gaussian"}
"""Whose law an attack cannot do without."""
OBSERVING = sorted(
    name
    for name, part in parts_by_name("attack").items()
    # Those on shadows have their own trials, active ones train anew, and writers and texts need other data.
    if not issubclass(part, ShadowAttack) and not part.active and name != "writer_membership"
    if CLASSIFICATION in part.tasks
)
MODELS = {"imprint": "imprint"}
"""Which an attack cannot do without."""


@pytest.fixture
def trial_of(planned):
    """(attack) -> the trial of the suite above with this one attack on the federation that it is for."""

    def build(name):
        part = parts_by_name("attack")[name]
        membership = "count" in part.__dataclass_fields__
        table = f'\n[attacks.{name}]\nfederation = "{"main" if membership else "shown"}"\n'
        people = issubclass(part, OwnerAttack) or name == "random_people"
        table += f"count = {3 if people else 8}\n" if membership else ""
        table += "iterations = 5\nrestarts = 1\n" if "iterations" in part.__dataclass_fields__ else ""
        table += "column = 20\n" if "column" in part.__dataclass_fields__ else ""
        needed = ("defenses.none", f"defenses.{DEFENSES.get(name, 'none')}", "logistic", MODELS.get(name, "logistic"))
        jobs = planned(*needed, text=EVERYTHING + table, clients=3, held_out=3, samples=60, rounds=2).trials
        return next(job for job in jobs if job.attacks)

    return build


def another_truth(trained):
    """The same views and candidates; other originals, labels, members and parts behind them."""
    task, generator = trained.task, torch.Generator().manual_seed(1)
    turned = dataclasses.replace(
        task,
        images=torch.rand(task.images.shape, generator=generator),
        labels=(task.labels + 1) % 10,
        masks=~task.masks,
        outsider_images=1 - task.outsider_images,
        outsider_labels=(task.outsider_labels + 1) % 10,
        parts=tuple(part.flip(0) for part in reversed(task.parts)),
    )
    candidates = {
        label: None if planted is None else other_truth(planted) for label, planted in trained.candidates.items()
    }
    return dataclasses.replace(trained, task=turned, candidates=candidates)


def other_truth(planted):
    if isinstance(planted, PlantedOwners):
        return dataclasses.replace(planted, member=np.roll(planted.member, 3))
    return dataclasses.replace(planted, holder=np.roll(planted.holder, 3), sample=np.roll(planted.sample, 3))


def numbers(evidence):
    return [value for value in vars(evidence).values() if isinstance(value, np.ndarray)]


@pytest.mark.parametrize("name", OBSERVING)
def test_another_truth_changes_the_scores_of_an_attack_and_not_a_bit_of_what_it_states(
    name, trial_of, tmp_path, monkeypatch
):
    job = trial_of(name)
    (item,) = job.attacks
    assert item.entry.attack.level is Level.REALISTIC
    trained, said = job.trained(Store(tmp_path), trial_module.Clock()), []
    real = trial_module.score
    monkeypatch.setattr(
        trial_module,
        "score",
        lambda cell, evidence, *rest, **told: said.append(evidence) or real(cell, evidence, *rest, **told),
    )
    rows = [trial_module._attack(item, job, truth, Store(tmp_path)) for truth in (trained, another_truth(trained))]
    assert numbers(said[0])
    for one, other in zip(numbers(said[0]), numbers(said[1]), strict=True):
        assert one.tobytes() == other.tobytes()
    values = [[row.value for row in group if row.status == "ok"] for group in rows]
    # Guesses may be right as often under both.
    assert values[0] != values[1] or parts_by_name("attack")[name].null
