"""Rows of attacks on texts: shares by hand, texts matched in any order, and a suite that refuses what does not fit."""

import numpy as np
import pytest
from fedassay.attacks.labels.label_attack import whole_counts
from fedassay.attacks.text.attention_span import AttentionSpan
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import Design, Setting, TokenGuesses
from fedassay.audit.observer import AGGREGATE, UPLOADS
from fedassay.suites.attacking.trial import pooled_evidence
from fedassay.suites.config.resolve import resolve
from fedassay.suites.config.source import ConfigError
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.results.cell import Cell
from fedassay.suites.scoring.label_rows import matched, score_tokens, true_texts
from row_facts import FACTS
from suite_text import suite_text, tables
from toy_texts import LENGTH, TOKENS, observed_texts, toy_texts

SETTING = Setting(
    unit=Unit.SAMPLE, adjacency=Adjacency.REPLACE_ONE, observer=UPLOADS, rounds=1, design=Design.CLUSTERED
)


def counts_of(texts):
    return np.stack([np.bincount(own.ravel(), minlength=TOKENS) for own in texts]).astype(float)


def rows_of(task, view, lots, texts, **changes):
    evidence = TokenGuesses(counts_of(texts), SETTING, **({"texts": tuple(texts)} | changes))
    cell = Cell(cell_id="c", facts=FACTS | {"attack": "attention_span", "seed": 0})
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
    rows = rows_of(task, view, lots, [own[::-1] for own in truth])
    assert {metric: row.value for metric, row in rows.items()} == dict.fromkeys(
        ("token_over_chance", "token_accuracy", "token_set_f1", "token_places", "token_exact_rate"), 1
    )
    assert (rows["token_places"].n, rows["token_exact_rate"].n) == (3, 6)
    public = np.bincount(task.test_images.long().flatten().numpy(), minlength=TOKENS)
    evidence = TokenGuesses(whole_counts(np.tile(public, (3, 1)), [6, 12, 18]), SETTING)
    cell = Cell(cell_id="c", facts=FACTS | {"attack": "embedding_tokens", "seed": 0})
    found = {row.metric: row for row in score_tokens(cell, evidence, task, view.plan, lots)}
    assert found["token_over_chance"].value == pytest.approx(0, abs=1e-12)
    assert set(found) == {"token_over_chance", "token_accuracy", "token_set_f1"}


def test_shares_by_hand():
    task = toy_texts((1, 1))
    view, _, lots = observed_texts(task)
    truth = true_texts(task, view.plan, lots, 0)
    wrong = truth[0].copy()
    wrong[0, :3] = (wrong[0, :3] + 1) % TOKENS
    rows = rows_of(task, view, lots, [wrong, truth[1]])
    assert rows["token_places"].value == pytest.approx((0.5 + 1) / 2)
    assert rows["token_exact_rate"].value == 0.5
    kept = np.minimum(counts_of([wrong]), counts_of([truth[0]])).sum() / LENGTH
    assert rows["token_accuracy"].value == pytest.approx((kept + 1) / 2)


def test_guesses_that_do_not_fit_are_refused():
    task = toy_texts((1, 1))
    view, _, lots = observed_texts(task)
    with pytest.raises(ValueError, match=rf"must have shape \(2, {TOKENS}\)"):
        rows_of(task, view, lots, [np.zeros((1, LENGTH), dtype=np.int64)])
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
    with pytest.raises(ConfigError, match=rf"{attack} needs the next token at each place of a text, but model"):
        resolve(spec, source, seed=0)
    assert AttentionSpan().tasks == ("next_token",)
