"""Texts from spans of attention: exact for one and several texts, at chance under noise, refused where spans fill.

Texts from adapters' gradients: exact in one round or several, at chance under noise, refused where ranks are low.
"""

import math

import numpy as np
import pytest
from digits_federation import digits_run
from fedassay.attacks.attack import Undefined
from fedassay.attacks.text.adapter_span import AdapterSpan
from fedassay.attacks.text.attention_span import AttentionSpan
from fedassay.attacks.text.embedding_tokens import EmbeddingTokens
from fedassay.attacks.text.public_text import PublicText
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.fl.sampling import FixedSize
from fedassay.suites.scoring.label_rows import matched, true_texts
from toy_texts import LENGTH, TOKENS, observed_texts, toy_texts


def right_places(attack, task, protection=None):
    """The share of places with the right token, over all texts."""
    view, knowledge, lots = observed_texts(task, protection)
    found = attack.run(view, knowledge, np.random.default_rng(0))
    truth = true_texts(task, view.plan, lots, 0)
    for counts, texts in zip(found.counts, found.texts, strict=True):
        np.testing.assert_array_equal(counts, np.bincount(texts.ravel(), minlength=TOKENS))
    return np.concatenate([matched(ours, own) for ours, own in zip(found.texts, truth, strict=True)]).mean()


def test_every_single_text_is_recovered():
    assert right_places(AttentionSpan(), toy_texts((1,) * 8)) == 1


@pytest.mark.parametrize("size", [2, 3])
def test_every_text_of_a_lot_is_recovered(size):
    assert right_places(AttentionSpan(), toy_texts((size,) * 4, width=64)) == 1


@pytest.mark.simulations
def test_under_strong_noise_it_is_no_better_than_public_texts():
    task = toy_texts((1,) * 60)
    noisy = LDPGaussianProtection(clip_norm=1.0, noise_std=5.0)
    found, null = right_places(AttentionSpan(), task, noisy), right_places(PublicText(), task, noisy)
    # A wrong place is hit with a share of at most the most frequent token; 360 places deviate by .025.
    assert found < null + 0.1
    assert 0.05 < null < 0.4


def test_lots_whose_places_fill_the_span_are_refused():
    view, knowledge, _ = observed_texts(toy_texts((6,), width=16))
    with pytest.raises(Undefined, match=rf"6 texts of {LENGTH} tokens have as many places as attention has inputs"):
        AttentionSpan().run(view, knowledge, np.random.default_rng(0))


def test_models_without_attention_are_refused():
    _, view, knowledge = digits_run("logistic", 2, 8)
    with pytest.raises(Undefined, match="no trained linear layer called attention"):
        AttentionSpan().run(view, knowledge, np.random.default_rng(0))


def right_adapted(attack, task, protection=None, **plan):
    """The share of places with the right token, over all texts."""
    view, knowledge, lots = observed_texts(task, protection, **plan)
    found = attack.run(view, knowledge, np.random.default_rng(0))
    truth = true_texts(task, view.plan, lots, 0)
    assert len(found.texts) == task.clients
    return np.concatenate([matched(ours, own) for ours, own in zip(found.texts, truth, strict=True)]).mean()


@pytest.mark.parametrize("rank", [LENGTH + 1, 16])
def test_one_round_gives_every_text_with_fewer_places_than_the_rank(rank):
    assert right_adapted(AdapterSpan(), toy_texts((1,) * 8, rank=rank)) == 1


def test_one_round_gives_every_text_of_a_lot():
    assert right_adapted(AdapterSpan(), toy_texts((2,) * 4, rank=32)) > 0.9


@pytest.mark.parametrize("rank", [3, LENGTH])
def test_a_small_rank_gives_every_text_once_the_rounds_fill_the_span_and_one_round_less_is_refused(rank):
    task, enough = toy_texts((1,) * 4, rank=rank), 1 + math.ceil(LENGTH / rank)
    assert right_adapted(AdapterSpan(rounds=enough), task, rounds=enough) == 1
    view, knowledge, _ = observed_texts(task, rounds=enough)
    with pytest.raises(Undefined, match=rf"fewer than the {LENGTH} places of the text; {enough - 1} rounds are needed"):
        AdapterSpan(rounds=enough - 1).run(view, knowledge, np.random.default_rng(0))


def test_lots_that_several_rounds_would_have_to_separate_are_refused():
    for plan in ({}, {"lot": FixedSize(1)}):
        view, knowledge, _ = observed_texts(toy_texts((2, 2), rank=4), rounds=4, **plan)
        with pytest.raises(Undefined, match="attack clients with one text"):
            AdapterSpan(rounds=4).run(view, knowledge, np.random.default_rng(0))


def test_models_without_adapters_and_attacks_on_frozen_layers_are_refused():
    view, knowledge, _ = observed_texts(toy_texts((1, 1)))
    with pytest.raises(Undefined, match="no low-rank adapter"):
        AdapterSpan().run(view, knowledge, np.random.default_rng(0))
    view, knowledge, _ = observed_texts(toy_texts((1, 1), rank=8))
    with pytest.raises(Undefined, match="frozen embedding"):
        EmbeddingTokens().run(view, knowledge, np.random.default_rng(0))
    with pytest.raises(Undefined, match="no trained linear layer called attention"):
        AttentionSpan().run(view, knowledge, np.random.default_rng(0))
