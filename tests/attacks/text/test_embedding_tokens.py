"""Tokens from the embedding: exact without noise, at chance under noise, and refused where rows hide nothing or all."""

import numpy as np
import pytest
import torch
from digits_federation import digits_run
from fedassay.attacks.attack import Undefined
from fedassay.attacks.labels.label_attack import whole_counts
from fedassay.attacks.text.embedding_tokens import EmbeddingTokens, embedding_slice
from fedassay.attacks.text.public_text import PublicText
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.models.network import Network
from fedassay.suites.scoring.label_rows import score_labels, true_texts
from torch import nn
from toy_texts import LENGTH, TOKENS, observed_texts, toy_texts


def truth_of(task, view, lots):
    texts = true_texts(task, view.plan, lots, 0)
    return np.stack([np.bincount(own.ravel(), minlength=TOKENS) for own in texts])


def counted(attack, task, protection=None, **plan):
    view, knowledge, lots = observed_texts(task, protection, **plan)
    return attack.run(view, knowledge, np.random.default_rng(0)).counts, truth_of(task, view, lots)


def gain(task, counts, truth):
    """The accuracy over that of the public texts' frequencies."""
    public = np.bincount(task.test_images.long().flatten().numpy(), minlength=TOKENS)
    reference = whole_counts(np.tile(public, (len(truth), 1)), truth.sum(1))
    return score_labels(counts, truth, reference).over_chance.value


@pytest.mark.parametrize("sizes", [(1,) * 6, (2, 3, 5)])
def test_every_token_that_occurs_is_found_and_no_other(sizes):
    counts, truth = counted(EmbeddingTokens(), toy_texts(sizes))
    np.testing.assert_array_equal(counts > 0, truth > 0)
    assert counts.sum(1).tolist() == [size * LENGTH for size in sizes]
    # Of each text one token may be counted in place of another, and softmax averages are estimates.
    assert np.abs(counts - truth).sum(1).max() <= 4 * max(sizes)


def test_the_set_is_exact_after_several_local_steps_too():
    several = FedAvg(learning_rate=0.1, local_steps=3)
    counts, truth = counted(EmbeddingTokens(), toy_texts((2, 3, 5)), algorithm=several)
    np.testing.assert_array_equal(counts > 0, truth > 0)


@pytest.mark.simulations
def test_under_strong_noise_it_guesses_public_frequencies_and_counts_no_better_than_they_do():
    task = toy_texts((2,) * 40)
    noisy = LDPGaussianProtection(clip_norm=1.0, noise_std=5.0)
    counts, truth = counted(EmbeddingTokens(), task, noisy)
    assert gain(task, counts, truth) == pytest.approx(0, abs=0.1)
    clear = LDPGaussianProtection(clip_norm=1.0, noise_std=1e-4)
    counts, truth = counted(EmbeddingTokens(), task, clear)
    assert gain(task, counts, truth) > 0.5


def test_noise_alone_makes_a_token_found_no_oftener_than_stated():
    rows, stds = torch.randn(2000, TOKENS, 8, generator=torch.Generator().manual_seed(0)), torch.ones(TOKENS, 8)
    attack = EmbeddingTokens(error_rate=0.1)
    rate = np.mean([attack._found(one.double(), stds.double()).any() for one in rows])
    assert 0.07 < rate < 0.13


def test_public_texts_are_drawn_and_score_no_better_than_their_frequencies():
    task = toy_texts((2,) * 40)
    counts, truth = counted(PublicText(), task)
    assert counts.sum(1).tolist() == [2 * LENGTH] * 40
    assert gain(task, counts, truth) < 0


class Tied(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.tokens, self.output = nn.Embedding(classes, 4), nn.Linear(4, classes)
        self.output.weight = self.tokens.weight

    def forward(self, texts):
        return self.output(self.tokens(texts.flatten(1).long()))


def tied(shape, classes):
    return Tied(classes)


def test_models_without_an_embedding_of_their_own_are_refused():
    _, view, knowledge = digits_run("logistic", 2, 8)
    with pytest.raises(Undefined, match="model logistic has no embedding"):
        EmbeddingTokens().run(view, knowledge, np.random.default_rng(0))
    network = Network(model=f"{__name__}:tied", shape=(1, 1, LENGTH), classes=TOKENS, task="next_token")
    with pytest.raises(Undefined, match="ties its embedding"):
        embedding_slice(network)
    with pytest.raises(ValueError, match=r"error_rate must be in \(0, 1\), got 0"):
        EmbeddingTokens(error_rate=0)
