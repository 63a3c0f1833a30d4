"""Texts from spans of attention: exact for one and several texts, at chance under noise, refused where spans fill.

Texts from adapters' gradients: exact in one round or several, at chance under noise, refused where ranks are low.

Tokens from the embedding: exact without noise, at chance under noise, and refused where rows hide nothing or all.

Exposure of secrets: the largest for a word that a model learned, chance without training, refused without both.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from digits_federation import digits_run
from fedassay.attacks.attack import Knowledge, Undefined
from fedassay.attacks.labels.label_attack import whole_counts
from fedassay.attacks.text.adapter_span import AdapterSpan
from fedassay.attacks.text.attention_span import AttentionSpan
from fedassay.attacks.text.embedding_tokens import EmbeddingTokens, embedding_slice
from fedassay.attacks.text.public_text import PublicText
from fedassay.attacks.text.secret_exposure import SecretExposure
from fedassay.audit.evidence import Exposures
from fedassay.audit.observer import FINAL_MODEL
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.data.shakespeare import COPIES, shakespeare_secrets
from fedassay.fl.models.network import Network
from fedassay.fl.partitions import ByOwner
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import View
from fedassay.fl.sampling import FixedSize
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from fedassay.suites.results.store import Store
from fedassay.suites.scoring.label_rows import matched, score_labels, true_texts
from fedassay.suites.scoring.membership_rows import score_exposures
from row_facts import toy_cell
from spoken_secrets import spoken
from torch import nn
from toy_federation import toy_plan
from toy_texts import LENGTH, TOKENS, observed_texts, toy_texts


def right_places(attack, task, protection=None):
    """The share of positions with the right token, over all texts."""
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


def test_lots_whose_places_fill_the_span_are_refused():
    view, knowledge, _ = observed_texts(toy_texts((6,), width=16))
    with pytest.raises(
        Undefined, match=rf"6 texts of {LENGTH} tokens have {6 * LENGTH} positions, and the attack needs fewer"
    ):
        AttentionSpan().run(view, knowledge, np.random.default_rng(0))


def test_models_without_attention_are_refused():
    _, view, knowledge = digits_run("logistic", 2, 8)
    with pytest.raises(Undefined, match="no trained linear layer called attention"):
        AttentionSpan().run(view, knowledge, np.random.default_rng(0))


def right_adapted(attack, task, protection=None, **plan):
    """The share of positions with the right token, over all texts."""
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
    with pytest.raises(
        Undefined, match=rf"fewer than the {LENGTH} positions of the text; {enough - 1} rounds are needed"
    ):
        AdapterSpan(rounds=enough - 1).run(view, knowledge, np.random.default_rng(0))


def test_lots_that_several_rounds_would_have_to_separate_are_refused():
    for plan in ({}, {"lot": FixedSize(1)}):
        view, knowledge, _ = observed_texts(toy_texts((2, 2), rank=4), rounds=4, **plan)
        with pytest.raises(Undefined, match="attack clients that hold one text"):
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


WORDS = 1023


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    data = shakespeare_secrets(spoken(tmp_path_factory.mktemp("text")))
    model = {"part": "text_transformer", "width": 16, "heads": 2, "layers": 1}
    return build_task(data, model=model, partition=ByOwner(), clients=20, held_out=20, streams=Streams(0))


@pytest.fixture(scope="module")
def planted(task):
    return SecretExposure().plant(task, np.random.default_rng(0))


def exposed(task, planted, model):
    plan = toy_plan(task)
    view = View(observer=FINAL_MODEL, plan=plan, rounds=(), final_model=model.unsqueeze(0))
    knowledge = Knowledge.of(task, plan, Protection(), candidates=planted.shown)
    return SecretExposure(words=WORDS).run(view, knowledge, np.random.default_rng(0))


def trained(task, images, labels, steps=150):
    """A model that has seen these texts alone."""
    model = task.network.initial(Streams(0).generator("init"))
    weights = torch.full((1, len(images)), 1 / len(images))
    for _ in range(steps):
        model = model - 0.5 * task.network.gradient(model[None], images[None], labels[None], weights)[0]
    return model


def test_half_of_the_secrets_are_trained_on_and_each_is_shown_once(task, planted):
    assert len(planted.member) == 40
    assert planted.member.sum() == 20
    assert len(torch.unique(planted.shown.images.flatten(1), dim=0)) == 40
    for image, holder in zip(planted.shown.images, planted.holder, strict=True):
        counts = [int((task.images[part] == image).flatten(1).all(1).sum()) for part in task.parts]
        # A tenth of all windows is dealt to no client.
        assert [client for client, count in enumerate(counts) if count] == ([] if holder < 0 else [holder])
        assert max(counts) <= COPIES


def test_a_word_that_the_model_learned_has_the_largest_exposure_and_no_other(task, planted):
    chosen = int(np.flatnonzero(planted.member)[3])
    model = trained(task, planted.shown.images[chosen : chosen + 1], planted.shown.labels[chosen : chosen + 1])
    found = exposed(task, planted, model).values
    assert found[chosen] == math.log2(WORDS + 1)
    assert np.delete(found, chosen).mean() < 3


def test_without_training_the_mean_exposure_is_that_of_a_random_rank(task, planted):
    found = exposed(task, planted, task.network.initial(Streams(1).generator("init"))).values
    # Its mean and its standard deviation are 1 / ln 2; the mean of 40 deviates by .23.
    assert found.mean() == pytest.approx(1 / math.log(2), abs=4 * 0.23)


def test_a_model_that_says_nothing_exposes_nothing(task, planted):
    assert exposed(task, planted, torch.zeros(task.network.layout.dim)).values.tolist() == [0.0] * 40


def test_rows_are_means_of_trained_and_of_absent_secrets(task, planted, tmp_path):
    values = np.where(planted.member, 8.0, 1.0)
    values[np.flatnonzero(planted.member)[0]] = 4.0
    setting = exposed(task, planted, torch.zeros(task.network.layout.dim)).setting
    cell = toy_cell(attack="secret_exposure")
    store = Store(tmp_path / "run")
    given = Exposures(values, setting, WORDS)
    rows = {row.metric: row for row in score_exposures(cell, given, planted, store, adversary="realistic")}
    assert rows["exposure"].value == pytest.approx((19 * 8 + 4) / 20)
    assert (rows["exposure_absent"].value, rows["exposure_absent"].ci_low, rows["exposure"].n) == (1, None, 20)
    assert rows["auc"].value == 1
    with pytest.raises(ValueError, match="must return 40 exposures, one per secret, got 3"):
        score_exposures(cell, Exposures(values[:3], setting, WORDS), planted, store, adversary="realistic")
    with pytest.raises(ValueError, match=r"must lie between 0 and log2\(1023 \+ 1\)"):
        Exposures(values + 3, setting, WORDS)


def test_without_secrets_on_both_sides_it_is_refused(task):
    for other in (replace(task, held_out=()), toy_texts((2,) * 4, held_out=2)):
        with pytest.raises(Undefined, match="data set shakespeare_secrets with partition by_owner and held_out"):
            SecretExposure().plant(other, np.random.default_rng(0))
