"""One training and all attacks on it: what each observer sees, other tasks and models, and what ends the run."""

import functools
import itertools
import signal

import fedassay
import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Knowledge, Level, Undefined
from fedassay.attacks.membership.likelihood_ratio import LikelihoodRatio
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import Design, LabelCounts, Reconstructions, Setting
from fedassay.audit.observer import SHUFFLED, UPLOADS
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.candidates import plant_candidates
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.data.datasets import _load
from fedassay.fl.data.location30 import FILE
from fedassay.fl.engine import run_federation
from fedassay.fl.recorder import LotRecorder, ViewRecorder
from fedassay.fl.sampling import FixedSize, Full
from fedassay.fl.streams import Streams
from fedassay.fl.training.local import Batch
from fedassay.reports.figures.curves import learning
from fedassay.reports.reading.run_folder import RunFolder
from fedassay.suites.attacking.finished_cells import raised_by_signal
from fedassay.suites.attacking.trial import is_pooled, pooled_evidence, pooled_truth
from fedassay.suites.attacking.worst_case import worst_case_hypotheses
from fedassay.suites.audits.canary_replicas import canary_for
from fedassay.suites.config.resolve import plan_of, task_of
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.tables.suite import FederationSpec, PlanChange
from fedassay.suites.planning.run_plan import plan_run
from fedassay.suites.results.store import Store
from fedassay.suites.scoring.label_rows import true_counts
from suite_text import suite_text, tables
from tape import Tape
from toy_federation import toy_plan

SETTING = Setting(
    unit=Unit.SAMPLE, adjacency=Adjacency.REPLACE_ONE, observer=SHUFFLED, rounds=1, design=Design.CLUSTERED
)
POOLED_ATTACKS = {
    "imprint": {},
    "imprint_of_sum": {"part": "imprint", "observer": "aggregate"},
    "mean_image": {"observer": "aggregate"},
    "llg_plus": {"observer": "aggregate"},
    "equal_counts": {"observer": "aggregate"},
    "row_sum": {"observer": "shuffled"},
    "random_scores": {"count": 8},
}
POOLED_TABLES = tables(
    defenses={"none": {}, "distributed_gaussian": {"epsilon": 8.0, "delta": 1e-5}}, attacks=POOLED_ATTACKS
)
POOLED_SUITE = {"text": POOLED_TABLES, "model": "imprint", "clients": 4, "samples": 32}


def mask(*drawn):
    return torch.tensor([drawn], dtype=torch.bool)


def pooled_counts(lot, steps, *clients):
    """True counts of a round of three clients with two samples each, pooled and not."""
    spec = FederationSpec(
        model="logistic", clients=3, samples=6, rounds=1, algorithm={"name": "fedsgd", "learning_rate": 1.0}
    )
    task = task_of(spec, 0)
    algorithm = FedSGD(learning_rate=1.0) if steps == 1 else FedAvg(learning_rate=1.0, local_steps=steps)
    plan = toy_plan(task, rounds=1, lot=lot, algorithm=algorithm)
    lots = {client: LotRecorder(client=client, lots=[masks]) for client, masks in enumerate(clients)}
    pool = pooled_truth(task, plan, lots)
    return true_counts(pool.task, plan, pool.lots, 0), true_counts(task, plan, lots, 0)


@pytest.mark.parametrize(
    ("lot", "steps", "clients"),
    [
        (Full(), 1, ([mask(1, 1)], [mask(1, 1)], [mask(1, 1)])),
        # Everything in each of two steps counts once.
        (Full(), 2, ([mask(1, 1)] * 2, [mask(1, 1)] * 2, [mask(1, 1)] * 2)),
        # What was drawn counts anew in each step; the second client was absent.
        (FixedSize(1), 2, ([mask(1, 0), mask(1, 0)], [], [mask(0, 1), mask(1, 0)])),
    ],
    ids=["one step", "full lots", "drawn lots"],
)
def test_the_pooled_truth_is_the_sum_of_the_clients(lot, steps, clients):
    pooled, apart = pooled_counts(lot, steps, *clients)
    np.testing.assert_array_equal(pooled, apart.sum(0, keepdims=True))
    assert pooled.sum() == (4 if isinstance(lot, FixedSize) else 6)


def test_evidence_of_rows_without_senders_is_of_one_lot():
    images = Reconstructions(np.zeros((3, 1, 2, 2)), None, SETTING, np.array([0, 1, 1]))
    assert pooled_evidence(images).uploads.tolist() == [0, 0, 0]
    counts = LabelCounts(np.array([[1.0, 0.0], [0.5, 0.5]]), SETTING)
    assert pooled_evidence(counts).counts.tolist() == [[1.5, 0.5]]
    assert is_pooled(counts)
    named = Setting(unit=Unit.SAMPLE, adjacency=Adjacency.REPLACE_ONE, observer=UPLOADS, rounds=1, design="clustered")
    assert not is_pooled(LabelCounts(np.ones((1, 2)), named))


def test_a_run_scores_each_view_on_what_its_observer_has(assay, suite_file):
    run = assay(suite_file(**POOLED_SUITE))
    rows = [row for row in run.records if row.role in ("attack", "null")]
    assert not [row for row in rows if row.status == "failed"]
    plain = {}
    for row in rows:
        if row.defense == "none" and row.metric in ("psnr", "label_accuracy"):
            plain.setdefault(row.attack, []).append(row)
    observers = {attack: {row.observer for row in found} for attack, found in plain.items()}
    assert observers == {
        "imprint": {"uploads"},
        "imprint_of_sum": {"aggregate"},
        "mean_image": {"aggregate"},
        "llg_plus": {"aggregate"},
        "equal_counts": {"aggregate"},
        "row_sum": {"shuffled"},
    }
    exact = {attack: sum(row.value > 40 for row in plain[attack]) for attack in ("imprint", "imprint_of_sum")}
    # Lots of 8 images, and one of 32, in 256 bins: all but one, and all but nine, expected.
    assert len(plain["imprint"]) == len(plain["imprint_of_sum"]) == 32
    assert exact["imprint"] >= 28
    assert exact["imprint_of_sum"] >= 22
    assert [row.n for row in plain["llg_plus"]] == [1]
    assert plain["llg_plus"][0].value > plain["equal_counts"][0].value


def test_masked_uploads_and_a_shuffled_sum_are_omitted_with_their_reason(assay, suite_file):
    run = assay(suite_file(**POOLED_SUITE))
    skipped = {row.attack: row.reason for row in run.records if row.status == "skipped" and row.role == "attack"}
    assert "masked words of a secure sum" in skipped["imprint"]
    assert "not a client's update but 1 rows" in skipped["row_sum"]
    assert "imprint_of_sum" not in skipped


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "count = 8",
            'observer = "aggregate"',
            "only for an attack on client uploads; random_scores attacks what the observer final",
        ),
        ('observer = "shuffled"', 'observer = "final_model"', "observer"),
    ],
)
def test_an_attack_with_an_observer_of_its_own_keeps_its_view(old, new, message, resolved):
    with pytest.raises(ConfigError, match=message):
        resolved(old, new, **POOLED_SUITE)


DP = ("dp_sgd", "dp_fedavg", "ldp_gaussian", "distributed_gaussian")
ROUND_ATTACKS = {
    "random_scores": {"count": 8, "client": "all"},
    "gradient_dot": {"count": 8, "client": "all"},
    "cosine_of_sum": {"part": "gradient_cosine", "observer": "aggregate", "count": 8},
    "ratio_of_models": {
        "part": "likelihood_ratio",
        "observer": "global_models",
        "rest": "known",
        "client": "all",
        "count": 8,
    },
    "ratio": {"part": "likelihood_ratio", "rest": "known", "count": 8},
    "fedmia_loss": {"count": 8},
    "loss_series": {"count": 8},
    "source": {"count": 8},
    "random_source": {"count": 8},
    "client_membership": {},
    "clients_of_uploads": {"part": "client_membership", "observer": "uploads"},
    "writer_membership": {},
    "random_people": {},
}
ROUND_TABLES = tables(
    defenses={"none": {}} | {name: {"epsilon": 4.0, "delta": 1e-5} for name in DP}, attacks=ROUND_ATTACKS
)
FEDERATION = {"clients": 4, "held_out": 3, "rounds": 2}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    import fedassay

    place = tmp_path_factory.mktemp("rounds")
    (place / "rounds.toml").write_text(suite_text(ROUND_TABLES, alpha=0.05, samples=140, **FEDERATION))
    return fedassay.run(str(place / "rounds.toml"), jobs=1, report=False, folder=place / "run").records


def found(rows, attack, metric):
    """The value of every defense."""
    return {row.defense: row for row in rows if (row.attack, row.metric) == (attack, metric)}


def test_every_attack_has_rows_or_states_why_not(rows):
    assert not [(row.attack, row.reason) for row in rows if row.status == "failed"]
    skipped = {(row.defense, row.attack): row.reason for row in rows if row.status == "skipped"}
    expected = {("distributed_gaussian", name) for name in ("gradient_dot", "fedmia_loss", "source", "ratio")}
    expected |= {(defense, "ratio") for defense in ("none", "dp_fedavg")}
    # Of the secure sum's clients one may drop out: what is left is no known sum.
    expected |= {(defense, "ratio_of_models") for defense in ("none", "ldp_gaussian", "distributed_gaussian")}
    expected |= {(row.defense, name) for row in rows for name in ("clients_of_uploads", "writer_membership")}
    assert set(skipped) == expected
    assert "observes which clients take part" in skipped["none", "clients_of_uploads"]
    assert "the exact ratio is not defined" in skipped["none", "ratio"]


def test_of_whole_writers_samples_are_an_omission_and_writers_and_sources_are_measured(tmp_path, monkeypatch):
    import fedassay
    from fedassay.suites.config import resolve

    digits = resolve.load_dataset("digits")
    kept = ("train_images", "train_labels", "test_images", "test_labels", "classes")
    owned = Dataset(
        name="digits", **{name: getattr(digits, name) for name in kept}, train_owners=torch.arange(1347) // 10
    )
    monkeypatch.setattr(resolve, "load_dataset", lambda name: owned)
    asked = ["gradient_dot", "random_scores", "writer_membership", "client_membership", "source"]
    text = tables(defenses={"none": {}}, attacks={name: {"count": 3} for name in asked})
    (tmp_path / "owners.toml").write_text(suite_text(text, alpha=0.05, partition="by_owner", **FEDERATION))
    rows = fedassay.run(str(tmp_path / "owners.toml"), jobs=1, report=False, folder=tmp_path / "run").records
    assert not [(row.attack, row.reason) for row in rows if row.status == "failed"]
    skipped = {row.attack: row.reason for row in rows if row.status == "skipped"}
    reason = (
        "under the partition by_owner no sample outside of training is comparable to a client's samples; "
        "use the attack writer_membership"
    )
    assert skipped == dict.fromkeys(["gradient_dot", "random_scores"], reason)
    assert {row.attack for row in rows if row.metric in ("auc", "source_accuracy")} == set(asked) - set(skipped)


def test_all_clients_are_asked_about_all_candidates_and_outsiders_at_each(rows):
    # 8 members of each of 4 clients, and 32 outsiders at each of 4.
    assert found(rows, "gradient_dot", "auc")["none"].n == 32 + 4 * 32
    assert found(rows, "random_scores", "auc")["none"].n == 64


def test_source_rows_stand_beside_chance_and_have_an_interval(rows):
    for attack, role in (("source", "attack"), ("random_source", "null")):
        row, over = (found(rows, attack, f"source_{name}")["none"] for name in ("accuracy", "advantage"))
        assert row.role == role
        assert row.ci_low <= row.value <= row.ci_high
        assert over.value == pytest.approx((row.value - 0.25) / 0.75)
        assert (row.n, row.unit) == (32, "share of samples, chance 0.25")


NONE = "[defenses.none]\n"
SEGMENTATION = {"dataset": "synthetic_receipts_tampered", "model": "unet", "clients": 2, "samples": 4, "rounds": 2}
SEGMENTATION |= {"algorithm": {"name": "fedsgd", "learning_rate": 2.0}, "alpha": 0.05}


@pytest.mark.simulations
def test_utility_is_of_pixels_and_what_is_undefined_is_a_row_without_a_value(suite_file, assay):
    """After two steps a model marks nothing: no precision, and the three others are 0."""
    run = assay(suite_file(text=f"{NONE}[attacks.random_image]\n[attacks.mean_image]\n", **SEGMENTATION))
    rows = {row.metric: row for row in run.records if row.role == "utility"}
    loss = rows.pop("loss")
    assert 0 < loss.value < 5
    # The pixels to find have an IoU of 0, all others one of more than one half.
    assert rows["class_iou_worst"].value == rows["client_iou_mean"].value == 0
    assert 0.25 < rows["class_iou_mean"].value < 0.5
    pixels = {name: rows[name].value for name in ("iou", "precision", "recall", "f_score")}
    assert pixels == {"iou": 0, "precision": None, "recall": 0, "f_score": 0}
    assert (rows["precision"].status, rows["precision"].reason) == (
        "skipped",
        "the model marks no pixel of any test image",
    )
    assert {row.status for row in rows.values()} == {"ok", "skipped"}
    assert {row.metric for row in run.records if row.role == "null"} >= {"psnr", "psi_psnr", "outside_ssim"}
    (figure,) = learning(RunFolder.read(run.folder))
    assert figure.table.rows[:2] == (("1", "IoU", "0.000"), ("2", "IoU", "0.000"))
    assert [row[:2] for row in figure.table.rows[2:]] == [("1", "test loss"), ("2", "test loss")]
    assert "IoU" in figure.svg


@pytest.mark.parametrize("attack", ["loss", "idlg", "class_mean_image", "lira_online"])
def test_an_attack_that_needs_a_label_an_image_is_refused_with_its_line(resolved, attack):
    with pytest.raises(
        ConfigError,
        match=r"line 15: .* needs .*one class per sample.*, but model unet of federation main .* one label per pixel",
    ):
        resolved(text=f"{NONE}\n[attacks.{attack}]\n", **SEGMENTATION)


def test_a_segmenter_is_refused_where_nothing_is_to_be_found(assay, suite_file):
    with pytest.raises(ConfigError, match="classes must be 2 for unet, which separates two classes of pixels"):
        assay(suite_file(text=NONE, **(SEGMENTATION | {"dataset": "synthetic_receipts"})))


@pytest.mark.simulations
@pytest.mark.long
def test_an_audit_with_an_update_as_canary_ends_and_relabels_pixels(assay, suite_file):
    """One implementation check changes the labels of samples, which are booleans here."""
    tables = "[defenses.ldp_gaussian]\nepsilon = 4.0\ndelta = 1e-5\n"
    run = assay(suite_file(text=f'{tables}[audit]\nmodel = "unet"\nreplicas = 2\n', **SEGMENTATION))
    assert {row.status for row in run.records if row.role == "audit"} == {"ok"}


SHARED_TABLES = '[defenses.dp_sgd]\n\n[audit]\nclients = 8\nsamples_per_client = 40\nreplicas = 8\ncanary = "CANARY"\n'
SHARED_SUITE = {"text": SHARED_TABLES, "seeds": 2, "alpha": 0.05, "clients": 8, "samples": 320, "rounds": 3}
SHARED_SUITE |= {"lot": {"poisson": 0.5}, "cohort": {"poisson": 0.5}}


@pytest.fixture(params=["dirac", "crafted"])
def taped(request, planned):
    """Every (seed, arm, block) of a claim: its task, and the events of two replicas."""
    found = {}
    for job in planned("CANARY", request.param, **SHARED_SUITE).blocks:
        for arm, block in itertools.product((0, 1), (0, 1, 2)):
            task, plan = job.small
            tape, batch = Tape(), Batch(replicas=2, block=block, arm=arm)
            canary = canary_for(job)
            run_federation(task, plan, job.protection, Streams(job.seed), batch=batch, canary=canary, recorders=[tape])
            found[job.seed, arm, block] = (task, tape.events)
    return found


def test_the_replicas_of_a_seed_share_data_and_initial_model(taped):
    for seed in (0, 1):
        runs = [run for (own, _, _), run in taped.items() if own == seed]
        (task, events), *others = runs
        for other, seen in others:
            assert torch.equal(task.images, other.images)
            assert [part.tolist() for part in task.parts] == [part.tolist() for part in other.parts]
            assert torch.equal(events[0].broadcast, seen[0].broadcast)
        assert torch.equal(events[0].broadcast[0], events[0].broadcast[1])


def test_no_two_replicas_share_a_cohort_a_lot_or_a_draw_of_noise(taped):
    """48 clients' lots of 40 samples and 24 cohorts of 8 clients: equal ones would be a shared stream, not chance."""
    cohorts, lots, noise = [], [], []
    for _, events in taped.values():
        for replica in range(2):
            cohort = np.zeros((3, 8), dtype=bool)
            for number, event in enumerate(events):
                for row, sender in enumerate(event.reports.senders):
                    cohort[number, sender] = event.reports.present[replica, row]
                    if event.reports.present[replica, row]:
                        lots.append(event.lots[sender][0][replica].numpy().tobytes())
                        # DP-SGD's noise is on every weight; no two uploads that hold it are equal anywhere.
                        noise.append(float(event.reports.values[replica, row, 0]))
            cohorts.append(cohort.tobytes())
    assert len(taped) == 12
    assert len(set(cohorts)) == len(cohorts) == 24
    assert len(lots) > 200
    assert len(set(lots)) == len(lots)
    assert len(set(noise)) == len(noise)


BODY = """import signal
        if context.round == 1 and not Path("go").exists(): signal.raise_signal(signal.SIGUSR1)"""


class Stopped(Exception):
    pass


def leaving(number, frame):
    raise SystemExit(7)


def stopping(number, frame):
    raise Stopped


@pytest.fixture
def handle():
    """(handler) -> it is that of SIGUSR1 until the end of the test."""
    before = signal.getsignal(signal.SIGUSR1)
    yield functools.partial(signal.signal, signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.simulations
@pytest.mark.parametrize(("handler", "error"), [(leaving, SystemExit), (stopping, Stopped)])
def test_what_a_handler_raises_ends_the_run_which_goes_on_later(
    assay, suite_file, own_defense, tmp_path, monkeypatch, handle, handler, error
):
    monkeypatch.chdir(tmp_path)
    module = own_defense(BODY)
    handle(handler)
    with pytest.raises(error):
        assay(suite_file(), defenses=[f"{module}:Mine"], folder="run")
    kept = Store(tmp_path / "run").finished()
    (tmp_path / "go").touch()
    run = fedassay.resume("run", jobs=1, report=False)
    assert not any(row.status == "failed" for row in run.records)
    assert kept < {row.cell_id for row in run.records}


def test_an_exception_of_another_function_is_not_of_a_handler(handle):
    handle(leaving)
    for function, found in ((leaving, True), (stopping, False)):
        with pytest.raises((SystemExit, Stopped)) as raised:
            function(0, None)
        assert raised_by_signal(raised.value) is found


@pytest.fixture
def check_ins(tmp_path, monkeypatch):
    """200 made-up rows of check-ins in FEDASSAY_DATA; what was loaded before is forgotten, and so is this after."""
    rng = np.random.default_rng(0)
    (tmp_path / FILE).parent.mkdir()
    bits = rng.integers(256, size=(200, 56), dtype=np.uint8)
    np.savez(tmp_path / FILE, x=bits, y=rng.integers(30, size=200, dtype=np.uint8))
    monkeypatch.setenv("FEDASSAY_DATA", str(tmp_path))
    _load.cache_clear()
    task_of.cache_clear()
    yield DataFolder(tmp_path)
    _load.cache_clear()
    task_of.cache_clear()


@pytest.fixture
def tabular(resolved, check_ins):
    def build(*changes, model="logistic"):
        table = f'[federations.main]\ndataset = "location30"\nmodel = "{model}"'
        return resolved('[federations.main]\ndataset = "digits"\nmodel = "logistic"', table, *changes)

    return build


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_a_federation_of_rows_trains_and_is_attacked(tabular, tmp_path, model):
    plan = plan_run(tabular(model=model))
    for trial in plan.trials:
        store = Store(tmp_path / "run")
        assert trial.run(store, frozenset()) == []
        metrics = {row.metric for cell in trial.cells for row in store.cell_records(cell.cell_id)}
        assert {"accuracy", "auc"} <= metrics


def test_a_model_of_images_is_refused_before_anything_runs(tabular):
    with pytest.raises(
        ConfigError, match="federation main cannot be set up: model lenet: lenet needs images of at least 7x7"
    ):
        plan_run(tabular(model="lenet"))


@pytest.mark.parametrize("attack", ["inversion", "mean_image", "dlg", "imprint"])
def test_an_attack_that_reconstructs_images_is_refused_with_its_line(tabular, attack):
    with pytest.raises(
        ConfigError, match=r"suite\d+\.toml, line \d+: .*has 1x446: run the attack only on federations with such images"
    ) as refused:
        tabular("[attacks.loss]", f"[attacks.{attack}]\n\n[attacks.loss]")
    assert f"{attack} reconstructs images of at least 3x3 pixels, but data set location30 of federation main" in str(
        refused.value
    )


TRAINED = 'model = "logistic"'
DP_SGD = "[defenses.dp_sgd]\nepsilon = 4.0\ndelta = 1e-5\nplan = { lot = { poisson = 0.5 } }\n\n[attacks.loss]"
MODE_ATTACKS = (
    "[attacks.likelihood_ratio]\ncount = 8\n[attacks.grad_inversion]\niterations = 3\n"
    "[attacks.llg_star]\n[attacks.label_likelihood]\n\n[audit]"
)


@pytest.mark.simulations
@pytest.mark.parametrize("model", ["lenet_bn", "lenet_dropout"])
def test_a_suite_runs_and_states_what_batch_norm_leaves_undefined(assay, suite_file, model):
    """Four clients of 15 samples: their uploads' labels and candidates have no likelihood where the lot is mixed."""
    run = assay(suite_file(TRAINED, f'model = "{model}"', "clients = 2", "clients = 4", "[audit]", MODE_ATTACKS))
    skipped = [row for row in run.records if row.status == "skipped" and row.role != "check"]
    left_out = {row.attack for row in skipped}
    assert "failed" not in {row.status for row in run.records}
    assert left_out == ({"likelihood_ratio", "label_likelihood"} if model == "lenet_bn" else set())
    words = "batch norm mixes the samples of a batch, so no sample has a gradient of its own"
    assert all(words in row.reason for row in skipped)
    assert {row.attack for row in run.records} > {"training", "loss", "grad_inversion", "llg_star"}


def test_a_defense_that_clips_samples_is_refused_before_anything_runs(assay, suite_file):
    path = suite_file(TRAINED, 'model = "lenet_bn"', "[attacks.loss]", DP_SGD)
    with pytest.raises(
        ConfigError, match="federation main: defense dp_sgd needs a separate gradient for each sample, but under mod"
    ):
        assay(path)


@pytest.mark.simulations
def test_dropout_leaves_samples_their_gradients(assay, suite_file):
    run = assay(suite_file(TRAINED, 'model = "lenet_dropout"', "[attacks.loss]", DP_SGD))
    assert {row.status for row in run.records if row.defense == "dp_sgd" and row.role != "check"} == {"ok"}


@pytest.mark.simulations
def test_a_claim_of_a_sample_is_out_of_scope_of_an_audit_whose_model_mixes(assay, suite_file):
    """The federation's own model is a logistic regression, which DP-SGD protects; claims of reports are audited."""
    path = suite_file("[attacks.loss]", DP_SGD, "[audit]", '[audit]\nmodel = "lenet_bn"\ncanary = "random"')
    rows = [row for row in assay(path).records if row.role == "audit"]
    verdicts = {row.defense: row.verdict for row in rows}
    assert verdicts["dp_sgd"] == "OUT_OF_SCOPE"
    assert verdicts["ldp_gaussian"] != "OUT_OF_SCOPE"
    (row,) = [row for row in rows if row.defense == "dp_sgd"]
    assert row.reason == (
        "this claim is not audited on this model: under model lenet_bn batch norm mixes the samples of a batch, so "
        "no sample has a gradient of its own; use group norms instead: torch.nn.GroupNorm(4, 12) as layer norm1, "
        "torch.nn.GroupNorm(4, 12) as layer norm2"
    )


def test_the_rest_of_an_upload_is_not_known_where_dropout_was_drawn():
    """Else the exact ratio would be taken of gradients that nobody had."""
    lot, algorithm = {"poisson": 0.5}, {"name": "fedsgd", "learning_rate": 0.1}
    fields = {"clients": 2, "samples": 40, "rounds": 1, "lot": lot, "algorithm": algorithm}
    spec = FederationSpec(model="lenet_dropout", **fields)
    task, protection = task_of(spec, 0), DPSGDProtection(clip_norm=1.0, noise_multiplier=0.1)
    plan = plan_of(spec, PlanChange(), task)
    planted = plant_candidates(task, count=4, clients=(0,), rng=Streams(0).generator("candidates"))
    lots, recorder = LotRecorder(client=0), ViewRecorder(observer=UPLOADS)
    final = run_federation(task, plan, protection, Streams(0), recorders=[lots, recorder])
    view = recorder.view(plan, final)
    hypotheses = worst_case_hypotheses(task, plan, protection, {0: lots}, view, planted)
    assert hypotheses is None
    known = Knowledge.of(
        task, plan, protection, level=Level.WORST_CASE, candidates=planted.shown, hypotheses=hypotheses
    )
    with pytest.raises(Undefined, match="the exact ratio is not defined"):
        LikelihoodRatio(count=4, rest="known").run(view, known, Streams(0).generator("attack"))
    assert torch.isfinite(final).all()
