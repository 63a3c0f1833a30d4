"""Suites with transfers from file to verdict: correct and broken votes, resumed runs, own data, and what is refused."""

import math
from dataclasses import dataclass

import fedassay
import numpy as np
import pytest
import torch
from fedassay.audit.claim import Claim
from fedassay.audit.finding import Verdict
from fedassay.audit.observer import ANSWERS
from fedassay.cli.list_command import metrics
from fedassay.defenses.transfer.defense import PreparedTransfer, TransferDefense
from fedassay.fl.streams import Streams
from fedassay.fl.transfer.protection import ReleasedLabels, TransferProtection, counts_of, votes_of
from fedassay.suites.config.resolve import resolve
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.config.tables.other_federations import TransferSpec
from fedassay.suites.planning.plan_text import headline, plan_lines
from fedassay.suites.planning.run_plan import plan_run
from fedassay.suites.results.cell import Cell
from fedassay.suites.transfer import TransferAuditJob, Transferred, planted
from toy_transfer import votes_plan

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


def test_a_plan_says_what_is_trained_and_what_the_audits_can_show(planned, written):
    plan = planned(text=written(ATTACKS).read_text())
    assert "2 defenses x 3 attacks, 1 seed: 2 federations; 2 audits on 24,000 replicas" in headline(plan)
    lines = plan_lines(plan)
    assert any("12 teachers, 30 queries, 6 students per seed" in line for line in lines)
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


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[defenses.dp_sgd]", r"line 21: defense dp_sgd runs on federations of clients .* the suite has none"),
        ("[attacks.dlg]", r"line 21: attack dlg runs on federations of clients .* main is none"),
        ("[attacks.loss]", r"line 21: attack loss runs on .*with the key shadows it runs on transfers too"),
        ("[attacks.released_label]\nteacher = 12", "line 22: .*teacher must be below teachers = 12, got 12"),
        ("[attacks.released_label]\nshadows = 4", "line 22: the keys shadows and observer are for attacks on"),
        (
            "[attacks.lira_offline]\nshadows = 4",
            r"line 22: attacks.lira_offline.shadows: 4 shadow models are too few, and 6 suffice",
        ),
        ('[attacks.released_label]\nfederation = "other"', "no federation 'other'"),
        (
            "[vertical.main]\nepochs = 1\nbatch = 2\nlearning_rate = 1.0",
            r"line 21: .*'main' is already used by \[transfer.main\]",
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
        (
            "teachers = 12\nsamples = 240",
            "teachers = 100000",
            r"line 7: .*each of the teachers .*teachers must be at most 1213",
        ),
        ("samples = 240", "samples = 5", "samples must be at least teachers = 12, got 5"),
        ("samples = 240", "samples = 24000", "line 8: federation main cannot be set up: .*samples"),
        ("queries = 30", "queries = 3000", r"line 9: federation main cannot be set up: queries must be in 1\.\."),
        ("queries = 30", 'queries = 30\nmodel = "lenett"', "line 10: .*unknown model 'lenett'"),
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


def test_only_the_attacked_teachers_votes_change_and_they_are_uniform():
    plan = votes_plan(teachers=4, queries=200, classes=3)
    logits = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 4, 200, 3))).float()
    found = Transferred(task=None, plan=plan, streams=Streams(0), logits=logits, event=None)
    votes, changed = planted(found, teacher=2, runs=50)
    assert votes.shape == (50, 200)
    assert torch.equal(votes_of(changed)[:, 2].argmax(-1), votes)
    kept = [0, 1, 3]
    assert torch.equal(changed[:, kept], logits[:, kept].expand(50, 3, 200, 3))
    # The same logits in another order.
    assert torch.equal(changed[:, 2].sort(-1).values, logits[:, 2].sort(-1).values.expand(50, 200, 3))
    shares = torch.bincount(votes.flatten(), minlength=3) / votes.numel()
    assert bool((abs(shares - 1 / 3) < 5 * (2 / 9 / 10_000) ** 0.5).all())
    assert not torch.equal(votes[0], votes[1])
    assert torch.equal(logits, found.logits)


RULE = {"steps": 5, "learning_rate": 0.05}
EPSILON = 2.0


def laplace_max(scores, scale, rng):
    noise = torch.from_numpy(rng.laplace(scale=scale, size=tuple(scores.shape)))
    return (scores.double() + noise).argmax(-1)


@dataclass(frozen=True, kw_only=True)
class RandomResponse(TransferProtection):
    """Teachers keep a vote with probability ``keep``, and otherwise draw it uniformly."""

    keep: float

    def teacher_answers(self, logits, context, state, rng):
        votes = votes_of(logits)
        drawn = torch.from_numpy(rng.integers(0, votes.shape[-1], size=tuple(votes.shape[:3])))
        kept = torch.from_numpy(rng.random(tuple(votes.shape[:3])) < self.keep).unsqueeze(-1)
        return torch.where(kept, votes, torch.nn.functional.one_hot(drawn, votes.shape[-1]).float())


@dataclass(frozen=True, kw_only=True)
class UnboundedLogits(TransferProtection):
    """Noise for votes, and teachers that send logits of any size."""

    scale: float

    def teacher_answers(self, logits, context, state, rng):
        return 1000 * logits

    def aggregate_votes(self, answers, context, state, rng):
        return ReleasedLabels(labels=laplace_max(counts_of(answers), self.scale, rng)), state


@dataclass(frozen=True, kw_only=True)
class FirstTeacher(TransferProtection):
    """Noise for votes, of which the first teacher's count a hundred times."""

    scale: float
    weight: float = 100.0

    def aggregate_votes(self, answers, context, state, rng):
        weights = torch.ones(answers.shape[1])
        weights[0] = self.weight
        scores = (answers * weights.view(1, -1, 1, 1)).sum(1)
        return ReleasedLabels(labels=laplace_max(scores, self.scale, rng)), state


def keep_of(plan):
    """With k labels, a label's probabilities under two votes have the ratio ``(keep k + 1 - keep) / (1 - keep)``."""
    grown = math.exp(EPSILON / plan.queries) - 1
    return grown / (grown + plan.classes)


PROTECTIONS = {
    "random response": lambda plan: RandomResponse(keep=keep_of(plan)),
    "votes kept": lambda plan: RandomResponse(keep=0.999),
    "unbounded logits": lambda plan: UnboundedLogits(scale=2 * plan.queries / EPSILON),
    "one teacher's votes a hundred times": lambda plan: FirstTeacher(scale=2 * plan.queries / EPSILON),
    "all teachers alike": lambda plan: FirstTeacher(scale=2 * plan.queries / EPSILON, weight=1.0),
}


@dataclass(frozen=True, kw_only=True)
class Own(TransferDefense):
    name: str
    change: str = "replace_one"

    def prepare(self, plan):
        claim = Claim.stated(EPSILON, unit="client", adjacency=self.change, observer=ANSWERS)
        return PreparedTransfer(protection=PROTECTIONS[self.name](plan), claims=(claim,))


def found_of(own, queries=(1,), trials=2000):
    spec = TransferSpec(
        dataset="digits",
        teachers=5,
        queries=8,
        teacher=RULE,
        student=RULE,
        audit={"trials": trials, "queries": queries},
    )
    (claim,) = own.prepare(type("Plan", (), {"queries": 8, "classes": 10})).claims
    job = TransferAuditJob(
        federation=spec, defense=own, claim=claim, seed=0, alpha=0.01, cell=Cell(cell_id="c", facts={})
    )
    return job.found()[0]


HELD = ("random response", "all teachers alike")


@pytest.mark.simulations
@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("name", PROTECTIONS)
def test_own_hooks_are_judged_by_what_a_training_runs(name, queries):
    found = found_of(Own(name=name), (queries,))
    assert found.verdict is (Verdict.NOT_REFUTED if name in HELD else Verdict.REFUTED)


def test_a_teacher_that_is_not_there_is_no_input_of_own_hooks():
    found = found_of(Own(name="all teachers alike", change="add_remove"))
    assert found.verdict is Verdict.OUT_OF_SCOPE
    assert "has its own hook teacher_answers or aggregate_votes" in found.reason


def test_a_number_of_queries_that_is_listed_twice_is_refused():
    with pytest.raises(ValueError, match=r"queries must be different numbers, got \[1, 1\]"):
        found_of(Own(name="random response"), (1, 1))
