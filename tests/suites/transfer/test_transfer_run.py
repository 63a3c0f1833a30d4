"""Suites with transfers from file to verdict: correct and broken votes, resumed runs, own data, and what is refused."""

import fedassay
import numpy as np
import pytest
import torch
from fedassay.cli.list_command import metrics
from fedassay.fl.data.dataset import Dataset
from fedassay.suites import transfer as trial
from fedassay.suites.config.resolve import resolve
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.planning.plan_text import headline, plan_lines
from fedassay.suites.planning.run_plan import plan_run
from fedassay.suites.results.store import Store

SUITE = """\
name = "small_transfer"
alpha = 0.01
seeds = 1

[transfer.main]
dataset = "digits"
teachers = 12
samples = 240
queries = 30
students = 6
teacher = { steps = 30, learning_rate = 0.05 }
student = { steps = 40, learning_rate = 0.05 }

[transfer.main.audit]
trials = 2000

[defenses.plain_votes]

[defenses.gnmax]
epsilon = 2.0
"""
BROKEN = "[defenses.control_votes_noise_reused]\nepsilon = 2.0\n"
ATTACKS = "[attacks.random_guess]\n\n[attacks.vote_likelihood]\n\n[attacks.answer_likelihood]\n\n"
SHADOWS = "[attacks.loss]\nshadows = 4\n"


@pytest.fixture
def written(suite_file):
    return lambda more="": suite_file(text=SUITE + more)


@pytest.fixture
def quick(suite_file):
    """The same with audits that cost little."""
    return lambda more="": suite_file("trials = 2000", "trials = 500\nqueries = [1]", text=SUITE + more)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run with a correct and a broken defense and every kind of attack."""
    place = tmp_path_factory.mktemp("transfer")
    (place / "suite.toml").write_text(SUITE + BROKEN + ATTACKS + SHADOWS, encoding="utf-8")
    return fedassay.run(str(place / "suite.toml"), jobs=1, folder=place / "run", report=False)


def values(run, metric, attack="training"):
    return {row.defense: row for row in run.records if row.metric == metric and row.attack == attack}


def test_gnmax_keeps_its_claims_and_reused_noise_does_not(done):
    found = {(row.defense, row.verdict) for row in done.records if row.role == "audit"}
    assert found == {("gnmax", "NOT_REFUTED"), ("control_votes_noise_reused", "REFUTED")}
    assert done.verdict.exit_code == 0
    reasons = {row.reason for row in done.records if row.role == "audit"}
    assert all("of 30 queries" in reason for reason in reasons)


def test_students_learn_what_votes_without_noise_teach_and_less_under_noise(done):
    accuracy = values(done, "accuracy")
    assert accuracy["plain_votes"].value > 0.5 > accuracy["gnmax"].value
    assert accuracy["gnmax"].ci_low < accuracy["gnmax"].value < accuracy["gnmax"].ci_high
    # All students of plain votes are equal, so that there is nothing to put an interval around.
    assert accuracy["plain_votes"].ci_low is None
    assert (
        values(done, "teacher_accuracy")["gnmax"].value == values(done, "teacher_accuracy")["plain_votes"].value > 0.4
    )
    assert values(done, "released_accuracy")["plain_votes"].value > values(done, "released_accuracy")["gnmax"].value
    assert {row.value for row in values(done, "answered").values()} == {1.0}
    spent = values(done, "epsilon_spent_client")
    assert {name: row.value for name, row in spent.items()} == {"gnmax": 2.0, "control_votes_noise_reused": 2.0}
    assert "delta 1e-5" in spent["gnmax"].reason


def test_the_null_attack_is_at_chance_and_the_server_sees_votes_that_are_sent_as_they_are(done):
    """180 guesses: a standard error of .025 over chance."""
    null = values(done, "label_over_chance", "random_guess")
    assert all(abs(row.value) < 0.12 and row.role == "null" for row in null.values())
    assert values(done, "label_over_chance", "answer_likelihood")["plain_votes"].value == 1.0
    likelihood = values(done, "label_over_chance", "vote_likelihood")
    assert abs(likelihood["gnmax"].value) < 0.15
    # The baseline of an attack: what it shows without protection.
    assert likelihood["plain_votes"].value > -0.15


def test_membership_of_a_students_samples_is_attacked_on_shadow_students(done):
    found = values(done, "auc", "loss")
    assert found.keys() == {"plain_votes", "gnmax", "control_votes_noise_reused"}
    assert all(0.3 < row.value < 0.7 and row.n == 4 for row in found.values())


def test_every_metric_is_listed(done):
    assert {row.metric for row in done.records} - {"references", "none"} <= set(metrics())


@pytest.mark.simulations
def test_a_run_that_was_stopped_resumes_to_the_same_rows(assay, quick, timeless, monkeypatch, tmp_path):
    path = quick(ATTACKS + SHADOWS)
    whole = assay(path)
    calls = []

    def stopping(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return attacked(*arguments)

    attacked, folder = trial.TransferTrialJob.attacked, tmp_path / "stopped"
    with monkeypatch.context() as patched:
        patched.setattr(trial.TransferTrialJob, "attacked", stopping)
        with pytest.raises(KeyboardInterrupt):
            fedassay.run(str(path), jobs=1, folder=folder, report=False)
    before = Store(folder).finished()
    assert 0 < len(before) < len(Store(whole.folder).finished())
    resumed = fedassay.resume(folder, jobs=1, report=False)
    assert timeless(resumed.records) == timeless(whole.records)


def test_a_plan_says_what_is_trained_and_what_the_audits_can_show(planned, written):
    plan = planned(text=written(ATTACKS).read_text())
    assert "2 defenses x 3 attacks, 1 seed: 2 federations; 2 audits on 24,000 replicas" in headline(plan)
    lines = plan_lines(plan)
    assert any("12 teachers, 30 queries, 6 students a seed" in line for line in lines)
    assert sum("4,000 runs per arm, max certifiable" in line for line in lines) == 2


def test_kinds_of_federations_share_alpha(resolved, planned, written):
    alone = resolved(text=written().read_text()).spec
    assert alone.alpha_of_kind == alone.alpha == 0.01
    vertical = "[vertical.two]\nepochs = 1\nbatch = 50\npeople = 100\nlearning_rate = 0.5\nsummed = true\n"
    clients = '[federations.third]\nclients = 2\nsamples = 20\nrounds = 1\nalgorithm = "fedsgd"\n'
    both = written(vertical + "\n[vertical.two.audit]\n\n[defenses.label_laplace]\n\n" + clients).read_text()
    both = both.replace('algorithm = "fedsgd"', "algorithm = { part = 'fedsgd', learning_rate = 0.1 }")
    spec = resolved(text=both).spec
    assert spec.alpha_of_kind == pytest.approx(0.01 / 3)
    audits = [job for job in planned(text=both).others if hasattr(job, "alpha")]
    assert sum(job.alpha for job in audits) == pytest.approx(2 * 0.01 / 3)


def test_own_data_are_read_from_the_suites_folder(assay, written):
    path = written()
    rng = np.random.default_rng(0)
    labels = np.arange(600) % 3
    rows = rng.normal(size=(600, 4)) + 4 * np.eye(4)[labels]
    lines = ["a,b,c,d,label", *(",".join([*map(str, row), str(one)]) for row, one in zip(rows, labels, strict=True))]
    (path.parent / "own.csv").write_text("\n".join(lines), encoding="utf-8")
    text = path.read_text().replace('dataset = "digits"', 'dataset = { part = "own.csv", label = "label" }')
    path.write_text(text.replace("[transfer.main.audit]\ntrials = 2000\n", ""), encoding="utf-8")
    run = assay(path)
    assert values(run, "accuracy")["plain_votes"].value > 0.8


def test_a_suite_from_python_may_hold_the_data_themselves(assay, written):
    spec, _ = load_suite(str(written()))
    tree = spec.model_dump(exclude_unset=True)
    labels = torch.arange(400) % 2
    images = 0.2 * torch.rand(400, 1, 2, 2, generator=torch.Generator().manual_seed(0)) + 0.7 * labels.view(-1, 1, 1, 1)
    own = Dataset(
        name="own",
        train_images=images[:300],
        train_labels=labels[:300],
        test_images=images[300:],
        test_labels=labels[300:],
        classes=2,
    )
    tree["transfer"]["main"] |= {"dataset": own}
    tree["transfer"]["main"].pop("audit")
    assert values(assay(tree), "accuracy")["plain_votes"].value > 0.8


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[defenses.dp_sgd]", r"line 21: defense dp_sgd runs on federations of clients .* the suite has none"),
        ("[attacks.dlg]", r"line 21: attack dlg runs on federations of clients .* main is none"),
        ("[attacks.loss]", r"line 21: attack loss runs on .*with the key shadows it runs on transfers too"),
        ("[attacks.released_label]\nteacher = 12", "line 22: .*teacher must be below teachers = 12, got 12"),
        ("[attacks.released_label]\nshadows = 4", "line 22: the keys shadows and observer are for attacks on"),
        ("[attacks.lira_offline]\nshadows = 4", r"line 22: attacks.lira_offline.shadows: 4 are too few, 6 suffice"),
        ('[attacks.released_label]\nfederation = "other"', "no federation 'other'"),
        (
            "[vertical.main]\nepochs = 1\nbatch = 2\nlearning_rate = 1.0",
            r"line 21: .*'main' is that of \[transfer.main\] as well",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(planned, written, more, words):
    with pytest.raises(ConfigError, match=words):
        planned(text=written(more).read_text())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('dataset = "digits"', 'dataset = "digit"', "line 6: .*unknown data set 'digit'"),
        ("teachers = 12", "teachers = 0", "line 7: transfer.main.teachers"),
        (
            "teachers = 12\nsamples = 240",
            "teachers = 100000",
            r"line 7: .*each of the teachers .*teachers must be at most 1213",
        ),
        ("samples = 240", "samples = 5", "samples must be at least teachers = 12, got 5"),
        ("samples = 240", "samples = 24000", "line 8: federation main cannot be set up: .*samples"),
        ("queries = 30", "queries = 3000", r"line 9: federation main cannot be set up: queries must be in 1\.\."),
        ("queries = 30", 'queries = 30\nmodel = "lenett"', "line 10: .*unknown model 'lenett'"),
        ("student = { steps = 40,", "student = { steps = 40, lot = 0,", "line 12: .*lot"),
        ("students = 6", "studens = 6", r"line 10: unknown key 'transfer.main.studens'; known here: students"),
        ("trials = 2000", "trials = 10", "line 15: transfer.main.audit.trials"),
        ("trials = 2000", "queries = [0]", "line 15: transfer.main.audit.queries"),
    ],
)
def test_every_bad_key_gets_one_sentence(planned, written, old, new, words):
    text = written().read_text()
    assert old in text
    with pytest.raises(ConfigError, match=words) as refused:
        planned(text=text.replace(old, new))
    assert "\n" not in str(refused.value.args[0])


@pytest.mark.simulations
def test_the_small_preset_needs_no_download_and_is_planned_whole():
    for preset in ("smoke", "digits"):
        spec, source = load_suite("transfer", preset=preset)
        plan = plan_run(resolve(spec, source, seed=0))
        assert {trial.federation.dataset for trial in plan.others} == {"digits"}
        controls = {stated.defense for stated in plan.claims if stated.control}
        assert len(controls) == (1 if preset == "smoke" else 5)
