"""Rows of guessed labels, votes, tokens and people's data, by hand and through whole runs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fedassay.attacks.labels.label_attack import whole_counts
from fedassay.attacks.text.attention_span import AttentionSpan
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import Design, LabelCounts, PersonColumns, PersonLabels, Setting, TokenGuesses, VoteScores
from fedassay.audit.observer import AGGREGATE, ANSWERS, PASSIVE_PARTY, UPLOADS
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.recorder import LotRecorder
from fedassay.fl.sampling import FixedSize, Full
from fedassay.fl.vertical.task import People
from fedassay.suites.attacking.trial import pooled_evidence
from fedassay.suites.config.resolve import resolve, task_of
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.config.tables.suite import FederationSpec
from fedassay.suites.results.store import Store
from fedassay.suites.scoring.label_rows import (
    LabelScores,
    best_constant_guess,
    hits,
    matched,
    mean_interval,
    rate_interval,
    score_label_counts,
    score_labels,
    score_person_columns,
    score_person_labels,
    score_tokens,
    score_votes,
    true_counts,
    true_texts,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from row_facts import toy_cell
from suite_text import suite_text, tables
from toy_federation import toy_plan
from toy_texts import LENGTH, TOKENS, observed_texts, toy_texts

SETTING = Setting(
    unit=Unit.SAMPLE, adjacency=Adjacency.REPLACE_ONE, observer=UPLOADS, rounds=1, design=Design.CLUSTERED
)


def federation(size=4, clients=3, lot=None, steps=1):
    """A task and its plan."""
    algorithm = {"name": "fedsgd", "learning_rate": 1.0}
    spec = FederationSpec(model="logistic", clients=clients, samples=size * clients, rounds=1, algorithm=algorithm)
    task = task_of(spec, 0)
    ours = FedSGD(learning_rate=1.0) if steps == 1 else FedAvg(learning_rate=1.0, local_steps=steps)
    return task, toy_plan(task, rounds=2, lot=lot or Full(), algorithm=ours)


def recorded(*rounds):
    """One client's masks: for each round, for each step."""
    steps = [[torch.tensor([mask], dtype=torch.bool) for mask in masks] for masks in rounds]
    return LotRecorder(client=0, lots=steps)


def labels_of(task, client, places):
    return np.bincount(task.labels[task.parts[client]][places].numpy(), minlength=10)


def test_truth_is_of_the_round_asked_about_and_leaves_out_who_was_absent():
    task, plan = federation(lot=FixedSize(2))
    lots = {
        0: recorded([[1, 1, 0, 0]], [[0, 1, 1, 0]]),
        1: recorded([[1, 0, 1, 0]], []),
        2: recorded([], [[0, 0, 1, 1]]),
    }
    wanted = [labels_of(task, 0, [1, 2]), labels_of(task, 2, [2, 3])]
    np.testing.assert_array_equal(true_counts(task, plan, lots, 1), wanted)


def test_drawn_lots_count_in_each_step_and_full_ones_once():
    task, drawn = federation(clients=1, lot=FixedSize(2), steps=2)
    lots = {0: recorded([[1, 1, 0, 0], [0, 1, 0, 1]])}
    wanted = labels_of(task, 0, [0, 1]) + labels_of(task, 0, [1, 3])
    np.testing.assert_array_equal(true_counts(task, drawn, lots, 0), [wanted])
    task, full = federation(clients=1, steps=2)
    everything = {0: recorded([[1, 1, 1, 1], [1, 1, 1, 1]])}
    np.testing.assert_array_equal(true_counts(task, full, everything, 0), [labels_of(task, 0, [0, 1, 2, 3])])


def rows_of(counts, task, plan):
    lots = {client: recorded([[1] * len(part)]) for client, part in enumerate(task.parts)}
    return score_label_counts(toy_cell(attack="llg"), LabelCounts(counts, SETTING), task, plan, lots)


def test_batches_get_every_score_with_its_interval_and_direction():
    task, plan = federation(size=8)
    counts = np.stack([labels_of(task, client, range(8)) for client in range(3)])
    counts[0] = np.roll(counts[0], 1)
    rows = {row.metric: row for row in rows_of(counts, task, plan)}
    assert set(rows) == {
        "label_over_chance",
        "label_accuracy",
        "label_exact_rate",
        "label_count_error",
        "label_total_variation",
        "label_class_existence",
        "label_count_accuracy",
    }
    assert rows["label_exact_rate"].value == pytest.approx(2 / 3)
    assert {metric for metric, row in rows.items() if row.direction == "lower_leaks"} == {
        "label_count_error",
        "label_total_variation",
    }
    for row in rows.values():
        assert row.n == 3
        assert row.ci_low < row.value < row.ci_high
        assert row.ci_level == 0.95


def test_equal_values_have_no_interval_but_a_rate_always_has():
    task, plan = federation(size=8)
    counts = np.stack([labels_of(task, client, range(8)) for client in range(3)])
    rows = {row.metric: row for row in rows_of(counts, task, plan)}
    assert (rows["label_accuracy"].value, rows["label_accuracy"].ci_low, rows["label_accuracy"].ci_level) == (
        1,
        None,
        None,
    )
    # Clopper-Pearson of 3 of 3: (.025)**(1/3) to 1.
    assert rows["label_exact_rate"].ci_low == pytest.approx(0.025 ** (1 / 3))
    assert rows["label_exact_rate"].ci_high == 1


def test_single_samples_get_the_share_named_right():
    task, plan = federation(size=1, clients=5)
    guessed = np.stack([labels_of(task, client, [0]) for client in range(5)])
    guessed[[0, 3]] = np.roll(guessed[[0, 3]], 1, axis=1)
    (row,) = rows_of(guessed, task, plan)
    chance = best_constant_guess(task)
    assert (row.metric, row.value, row.n, row.unit) == (
        "label_accuracy",
        3 / 5,
        5,
        f"share of uploads, chance {chance:.3g}",
    )


@pytest.mark.parametrize(("shares", "chance"), [([1] * 10, 0.1), ([1, 3], 0.75)])
def test_the_chance_of_a_label_is_that_of_the_best_constant_guess_from_public_data(shares, chance):
    task, _ = federation(size=1, clients=5)
    labels = np.resize(np.repeat(np.arange(len(shares)), shares), 400)
    task = replace(task, test_images=task.test_images[:400], test_labels=torch.tensor(labels))
    assert best_constant_guess(task) == chance


def test_a_run_scores_the_lots_that_were_drawn_in_the_round_attacked(planned, tmp_path):
    drawn = {"cohort": {"fixed_size": 3}, "lot": {"fixed_size": 30}}
    attacks = {"llg_plus": {"round": 1}, "equal_counts": {"round": 1}, "loss": {"count": 8}}
    text = tables(defenses={"none": {}}, attacks=attacks)
    (job,) = planned(text=text, clients=4, samples=400, rounds=2, **drawn).trials
    store = Store(tmp_path / "run")
    assert job.run(store, frozenset()) == []
    rows = [row for cell in job.cells for row in store.cell_records(cell.cell_id) if row.metric.startswith("label_")]
    values = {(row.attack, row.metric): row.value for row in rows}
    assert {row.n for row in rows} == {3}
    assert values["equal_counts", "label_over_chance"] == pytest.approx(0, abs=1e-12)
    assert values["llg_plus", "label_over_chance"] > 0.5


def one_hot(labels: list[int], classes: int = 10) -> np.ndarray:
    return np.eye(classes)[labels]


def pooled(scores: LabelScores) -> float:
    """The fraction of labels that were counted correctly, over all samples of all client updates."""
    return float(np.average(scores.accuracy, weights=scores.sizes))


def test_one_sample_uploads_are_scored_by_the_share_of_right_labels() -> None:
    scores = score_labels(one_hot([3, 1, 4, 1]), one_hot([3, 1, 4, 5]))
    assert scores.exact.tolist() == [True, True, True, False]
    assert scores.exact.mean() == pooled(scores) == 0.75
    assert scores.chance_accuracy == pytest.approx(0.1)
    assert scores.over_chance.value == pytest.approx((0.75 - 0.1) / 0.9)
    assert scores.total_variation.mean() == 0.25


def test_a_batch_counts_each_label_as_often_as_it_is_there() -> None:
    """Guess 2, 1, 1, 0 of truth 3, 0, 1, 0: min is 2 + 0 + 1; equal counts (1 each) would have had 1 + 0 + 1 + 0."""
    scores = score_labels([[2, 1, 1, 0]], [[3, 0, 1, 0]])
    assert pooled(scores) == 0.75
    assert scores.chance_accuracy == 0.5
    assert scores.over_chance.value == pytest.approx(0.5)
    assert scores.total_variation.mean() == 0.25
    assert scores.exact.mean() == 0


def test_counts_and_classes_are_scored_class_by_class() -> None:
    """Guess 2, 1, 1, 0 of truth 3, 0, 1, 0: two of four counts are right; class 1 alone is wrongly said to be there."""
    scores = score_labels([[2, 1, 1, 0]], [[3, 0, 1, 0]])
    assert scores.counted.tolist() == [0.5]
    assert scores.existence.tolist() == [0.75]
    assert scores.count_error.tolist() == [0.5]


def test_an_interval_of_weighted_values_is_that_of_their_linear_approximation() -> None:
    """Equal weights: the t interval. 0, 1, 1 has deviation .577, error .333, t(2) 4.303."""
    plain = mean_interval([0.0, 1.0, 1.0])
    assert (plain.value, plain.low, plain.high) == pytest.approx((2 / 3, 2 / 3 - 1.4342, 2 / 3 + 1.4342), abs=1e-4)
    same = mean_interval([0.0, 1.0, 1.0], [2, 2, 2])
    assert (same.low, same.high) == (plain.low, plain.high)
    weighed = mean_interval([0.0, 1.0, 1.0], [1, 1, 2])
    error = np.std([0.75 * -0.75, 0.75 * 0.25, 1.5 * 0.25], ddof=1) / 3**0.5
    assert weighed.value == 0.75
    assert weighed.high == pytest.approx(0.75 + 4.302653 * error)


def test_one_value_or_equal_ones_give_no_interval() -> None:
    assert mean_interval([0.3]).low is None
    assert mean_interval([0.3, 0.3]).high is None


def test_a_rate_has_the_exact_binomial_interval() -> None:
    """8 of 10: .4439 to .9748 (Clopper and Pearson)."""
    found = rate_interval([True] * 8 + [False] * 2)
    assert (found.value, found.low, found.high) == pytest.approx((0.8, 0.4439, 0.9748), abs=1e-4)


def test_equal_counts_and_random_draws_already_score_high_on_a_batch_of_32() -> None:
    """Ten classes: .788 and .706 in expectation (Monte Carlo error here below .001)."""
    rng = np.random.default_rng(0)
    truth = rng.multinomial(32, np.full(10, 0.1), size=10_000)
    equal = score_labels(np.full((10_000, 10), 3.2), truth)
    assert pooled(equal) == pytest.approx(0.788, abs=0.002)
    assert equal.over_chance.value == pytest.approx(0, abs=1e-12)
    drawn = score_labels(rng.multinomial(32, np.full(10, 0.1), size=10_000), truth)
    assert pooled(drawn) == pytest.approx(0.706, abs=0.002)
    assert drawn.over_chance.value < 0


def test_where_equal_counts_are_the_truth_there_is_nothing_to_correct() -> None:
    assert score_labels([[2, 2]], [[2, 2]]).over_chance is None


@settings(derandomize=True, deadline=None)
@given(arrays(np.int64, (3, 5), elements=st.integers(0, 6)))
def test_with_the_right_totals_accuracy_and_total_variation_are_one_number(counts: np.ndarray) -> None:
    """sum min(a, b) = n - sum |a - b| / 2 where both sum to n."""
    counts[:, 0] += 1
    guess = np.roll(counts, 1, axis=1)
    scores = score_labels(guess, counts)
    np.testing.assert_allclose(scores.accuracy, 1 - scores.total_variation)


@pytest.mark.parametrize(
    ("counts", "truth", "message"),
    [
        ([[1, 0]], [[1, 0, 0]], "the same shape"),
        ([1, 0], [1, 0], r"must have shape \(n, classes\)"),
        ([[1, -1]], [[1, 0]], "counts must be finite and >= 0"),
        (
            [[1, 0]],
            [[0, 0]],
            r"truth must count at least one label for every client update, got none for updates \[0\]",
        ),
        ([[1, 0]], [[0.5, 0]], "whole numbers"),
    ],
)
def test_counts_that_cannot_be_scored_are_refused(counts: object, truth: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score_labels(counts, truth)


VOTES_SETTING = Setting(
    unit=Unit.CLIENT, adjacency=Adjacency.REPLACE_ONE, observer=ANSWERS, rounds=1, design=Design.CLUSTERED
)


def vote_rows(scores, votes):
    return {
        row.metric: row for row in score_votes(toy_cell(), [VoteScores(one, VOTES_SETTING) for one in scores], votes)
    }


def test_of_equal_scores_each_vote_gets_its_part():
    scores = np.array([[1.0, 0, 0], [1, 1, 0], [1, 1, 1], [0, 0, 5]])
    assert hits(scores, np.array([0, 1, 2, 0])).tolist() == pytest.approx([1, 1 / 2, 1 / 3, 0])
    with pytest.raises(ValueError, match="a row per query and a column per class"):
        hits(scores, np.array([0, 1, 2, 3]))


def test_a_perfect_attack_scores_one_and_equal_scores_nought():
    votes = np.array([[0, 1, 2, 2], [1, 1, 0, 2]])
    perfect = vote_rows(np.eye(3)[votes], votes)
    assert (perfect["label_over_chance"].value, perfect["label_accuracy"].value) == (1.0, 1.0)
    assert perfect["label_over_chance"].ci_low is None
    nothing = vote_rows(np.zeros((2, 4, 3)), votes)
    assert nothing["label_over_chance"].value == pytest.approx(0.0)
    assert nothing["label_accuracy"].value == pytest.approx(1 / 3)


@pytest.mark.parametrize("classes", [2, 5])
def test_uniform_guesses_of_uniform_votes_are_covered_by_the_interval(classes):
    """Of 200 intervals at 95 %, fewer than 178 cover with probability 1e-4."""
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        found = vote_rows(rng.random((6, 40, classes)), rng.integers(classes, size=(6, 40)))["label_over_chance"]
        covered += found.ci_low <= 0 <= found.ci_high
    assert covered >= 178


PEOPLE_SETTING = Setting(
    unit=Unit.LABEL, adjacency=Adjacency.REPLACE_ONE, observer=PASSIVE_PARTY, rounds=1, design=Design.CLUSTERED
)
# Three people of class 0 and one of class 1.
PEOPLE = People(columns=(torch.tensor([[0.0], [2], [4], [2]]), torch.zeros(4, 0)), labels=torch.tensor([0, 0, 0, 1]))


def person_rows(scores, people=(0, 1, 2, 3)):
    evidence = PersonLabels(np.array(scores, dtype=float), np.array(people), PEOPLE_SETTING)
    return {row.metric: row for row in score_person_labels(toy_cell(), evidence, PEOPLE)}


def test_naming_the_majority_is_a_good_accuracy_and_no_gain_over_chance():
    found = person_rows([[1, 0]] * 4)
    assert found["label_accuracy"].value == 0.75
    assert found["label_over_chance"].value == pytest.approx(0)
    assert found["label_auc"].value == 0.5


def test_a_perfect_attack_scores_one_and_a_reversed_one_minus_one():
    right = [[1, 0], [1, 0], [1, 0], [0, 1]]
    assert {name: row.value for name, row in person_rows(right).items()} == pytest.approx(
        {"label_over_chance": 1, "label_accuracy": 1, "label_auc": 1}
    )
    wrong = [[0, 1], [0, 1], [0, 1], [1, 0]]
    assert person_rows(wrong)["label_over_chance"].value == pytest.approx(-1)


def test_a_person_of_a_rare_class_weighs_as_much_as_its_class():
    found = person_rows([[1, 0], [1, 0], [0, 1], [0, 1]])
    # Recall 2/3 and 1: their mean is 5/6, halfway from 1/2 to 1 is 2/3.
    assert found["label_over_chance"].value == pytest.approx(2 / 3)
    assert found["label_auc"].value == pytest.approx((1 + 1 + 0.5) / 3)


def test_one_class_alone_leaves_nothing_to_infer():
    found = person_rows([[1, 0]] * 3, people=(0, 1, 2))
    assert found["label_over_chance"].value == 0
    assert "nothing to infer" in found["label_over_chance"].ci_method
    assert "label_auc" not in found


def test_guessing_the_mean_of_a_column_has_an_error_of_one():
    evidence = PersonColumns(np.full((4, 1), 2.0), 0, np.arange(4), PEOPLE_SETTING)
    found = {row.metric: row.value for row in score_person_columns(toy_cell(), evidence, PEOPLE)}
    assert found == pytest.approx({"column_error": 1, "column_mse": 2})
    assert next(iter(found)) == "column_error"


@pytest.mark.parametrize(("party", "width", "words"), [(5, 1, "party"), (0, 2, "shape")])
def test_columns_that_do_not_exist_are_refused(party, width, words):
    evidence = PersonColumns(np.zeros((4, width)), party, np.arange(4), PEOPLE_SETTING)
    with pytest.raises(ValueError, match=words):
        score_person_columns(toy_cell(), evidence, PEOPLE)


@pytest.mark.parametrize(("scores", "people", "words"), [([[1.0]] * 2, (0, 3), "class"), ([[1.0, 0]], (4,), "people")])
def test_labels_of_other_people_or_classes_are_refused(scores, people, words):
    with pytest.raises(ValueError, match=words):
        person_rows(scores, people)


def counts_of(texts):
    return np.stack([np.bincount(own.ravel(), minlength=TOKENS) for own in texts]).astype(float)


def token_rows_of(task, view, lots, texts, **changes):
    evidence = TokenGuesses(counts_of(texts), SETTING, **({"texts": tuple(texts)} | changes))
    cell = toy_cell(attack="attention_span")
    return {row.metric: row for row in score_tokens(cell, evidence, task, view.plan, lots)}


def test_the_best_order_of_texts_counts_and_a_missing_text_is_wrong():
    truth = np.array([[1, 2, 3], [4, 5, 6]])
    assert matched([[4, 5, 6], [1, 2, 0]], truth).tolist() == [[True, True, False], [True] * 3]
    assert matched([[4, 0, 6]], truth).tolist() == [[False] * 3, [True, False, True]]
    with pytest.raises(ValueError, match="must have 3 tokens, got 2"):
        matched([[1, 2]], truth)


def test_true_texts_are_perfect_and_public_frequencies_are_chance():
    task = toy_texts((1, 2, 3))
    view, _, lots = observed_texts(task)
    truth = true_texts(task, view.plan, lots, 0)
    assert [one.shape for one in truth] == [(1, LENGTH), (2, LENGTH), (3, LENGTH)]
    rows = token_rows_of(task, view, lots, [own[::-1] for own in truth])
    assert {metric: row.value for metric, row in rows.items()} == dict.fromkeys(
        ("token_over_chance", "token_accuracy", "token_set_f1", "token_places", "token_exact_rate"), 1
    )
    assert (rows["token_places"].n, rows["token_exact_rate"].n) == (3, 6)
    public = np.bincount(task.test_images.long().flatten().numpy(), minlength=TOKENS)
    evidence = TokenGuesses(whole_counts(np.tile(public, (3, 1)), [6, 12, 18]), SETTING)
    cell = toy_cell(attack="embedding_tokens")
    found = {row.metric: row for row in score_tokens(cell, evidence, task, view.plan, lots)}
    assert found["token_over_chance"].value == pytest.approx(0, abs=1e-12)
    assert set(found) == {"token_over_chance", "token_accuracy", "token_set_f1"}


def test_shares_by_hand():
    task = toy_texts((1, 1))
    view, _, lots = observed_texts(task)
    truth = true_texts(task, view.plan, lots, 0)
    wrong = truth[0].copy()
    wrong[0, :3] = (wrong[0, :3] + 1) % TOKENS
    rows = token_rows_of(task, view, lots, [wrong, truth[1]])
    assert rows["token_places"].value == pytest.approx((0.5 + 1) / 2)
    assert rows["token_exact_rate"].value == 0.5
    kept = np.minimum(counts_of([wrong]), counts_of([truth[0]])).sum() / LENGTH
    assert rows["token_accuracy"].value == pytest.approx((kept + 1) / 2)


def test_guesses_that_do_not_fit_are_refused():
    task = toy_texts((1, 1))
    view, _, lots = observed_texts(task)
    with pytest.raises(ValueError, match=rf"must have shape \(2, {TOKENS}\)"):
        token_rows_of(task, view, lots, [np.zeros((1, LENGTH), dtype=np.int64)])
    with pytest.raises(ValueError, match="texts must be given for each of 2 observations, got 1"):
        TokenGuesses(np.ones((2, 3)), SETTING, texts=(np.zeros((1, 2), dtype=np.int64),))
    with pytest.raises(ValueError, match="whole numbers of shape"):
        TokenGuesses(np.ones((1, 3)), SETTING, texts=(np.zeros((1, 2)),))


def test_texts_of_all_clients_are_one_lot_for_who_does_not_learn_senders():
    texts = tuple(np.full((size, LENGTH), size) for size in (1, 2))
    given = TokenGuesses(counts_of(texts), SETTING, texts=texts)
    pooled = pooled_evidence(given)
    assert pooled.counts.tolist() == [counts_of(texts).sum(0).tolist()]
    np.testing.assert_array_equal(pooled.texts[0], np.concatenate(texts))
    assert AGGREGATE.rank < UPLOADS.rank


@pytest.mark.parametrize("attack", ["embedding_tokens", "attention_span", "public_text"])
def test_an_attack_on_texts_is_refused_on_images_before_the_run(attack, tmp_path):
    path = tmp_path / "suite.toml"
    path.write_text(suite_text(tables(defenses={"none": {}}, attacks={attack: {}}), dataset="digits", clients=4))
    spec, source = load_suite(str(path))
    with pytest.raises(ConfigError, match=rf"{attack} needs the next token at each position of a text, but model"):
        resolve(spec, source, seed=0)
    assert AttentionSpan().tasks == ("next_token",)
