"""Speeches: windows of a speaker in order, next characters as labels, speakers as owners, a test part of each.

Secrets in texts: every speaker has its own, the same in each of its copies, drawn once for all.
"""

import gzip
import os

import numpy as np
import pytest
import torch
from fedassay.fl.data.data_folder import DataFolder
from fedassay.fl.data.dataset import description
from fedassay.fl.data.datasets import load_dataset
from fedassay.fl.data.shakespeare import (
    ALPHABET,
    CODES,
    COPIES,
    FILE,
    LENGTH,
    PREFIX,
    SPEAKERS,
    WINDOWS,
    secret_words,
    shakespeare,
    shakespeare_secrets,
    tokens_of,
)
from fedassay.fl.partitions import ByOwner, Dirichlet
from fedassay.fl.streams import Streams
from fedassay.fl.task import build_task
from spoken_secrets import spoken

LONG = "Speak, speak what we ought, and not what we feel! " * 20


@pytest.fixture
def put(tmp_path):
    def write(text):
        (tmp_path / FILE).parent.mkdir(exist_ok=True)
        (tmp_path / FILE).write_bytes(gzip.compress(text.encode()))
        return DataFolder(tmp_path)

    return write


def text_of(tokens):
    return "".join(ALPHABET[int(token)] for token in tokens.flatten())


def test_windows_are_cut_in_order_and_labels_are_the_characters_that_follow(put):
    speech = "No more of that, I pray thee, gentle friend; let us away."
    data = shakespeare(put(f"LONG:\n{LONG}\n\nSHORT:\n{speech[:20]}\n\nTINY:\nAy.\n\nSHORT:\n{speech[21:]}\n"))
    own = data.train_images[data.train_owners == 1]
    joined = speech[:20] + "\n" + speech[21:]
    assert text_of(own) == joined[:LENGTH]
    assert text_of(data.train_labels[data.train_owners == 1]) == joined[1 : LENGTH + 1]
    assert set(data.train_owners.tolist()) == {0, 1}
    count = (len(LONG) - 1) // LENGTH
    assert len(data.test_labels) == count // 20
    assert text_of(torch.cat([data.train_images[data.train_owners == 0], data.test_images])) == LONG[: count * LENGTH]


def test_tokens_are_places_in_a_fixed_alphabet():
    assert len(set(ALPHABET)) == len(ALPHABET) == 65
    assert tokens_of("\nz A").tolist() == [0, 64, 1, ALPHABET.index("A")]
    with pytest.raises(ValueError, match="65 characters of the alphabet only"):
        tokens_of("naïve")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"A:\n{LONG}é\n", "alphabet only"),
        ("A:\nToo short to hold out anything of it, alas.\n", "at least 641 characters"),
        (f"A:\n{LONG}#\n", "alphabet only"),
    ],
)
def test_text_that_does_not_fit_is_refused(put, text, says):
    with pytest.raises(ValueError, match=says):
        shakespeare(put(text))


def test_speakers_are_dealt_whole_and_rules_by_class_are_refused(put):
    data = shakespeare(put("\n\n".join(f"S{number}:\n{LONG}" for number in range(6))))
    parts = {"model": "text_transformer", "clients": 3, "streams": Streams(0)}
    task = build_task(data, partition=ByOwner(), held_out=3, **parts)
    assert task.clients_per_user == 1
    assert all(len(task.owners[part].unique()) == 1 for part in (*task.parts, *task.held_out))
    with pytest.raises(ValueError, match="deals samples by their class, but the samples of shakespeare have none"):
        build_task(data, partition=Dirichlet(alpha=1.0), **parts)
    with pytest.raises(ValueError, match="label_noise must be 0 for a next_token"):
        build_task(data, partition=ByOwner(), label_noise=0.1, **parts)
    with pytest.raises(ValueError, match=r"must return \(n, 32, 65\) outputs"):
        build_task(data, partition=ByOwner(), **parts | {"model": "mlp"}).network.objective  # noqa: B018


@pytest.mark.skipif("FEDASSAY_DATA" not in os.environ, reason="FEDASSAY_DATA is not set: the text is not here")
def test_the_real_text_has_its_speakers_and_characters():
    data = load_dataset("shakespeare")
    assert text_of(data.train_images[0]) == "Before we proceed any further, h"
    assert len(np.unique(data.train_owners)) == 285
    assert 1_000_000 < (len(data.train_labels) + len(data.test_labels)) * LENGTH < 1_115_394
    facts = description(data)
    assert (facts["kind"], facts["length"], facts["tasks"]) == ("texts", "32 tokens", "prediction of the next token")


def test_every_speaker_has_ten_windows_of_its_own_secret(tmp_path):
    folder = spoken(tmp_path)
    data, plain = shakespeare_secrets(folder), shakespeare(folder)
    assert torch.bincount(data.train_owners).tolist() == [WINDOWS] * SPEAKERS
    texts = torch.cat([data.train_images.flatten(1).long(), data.train_labels[:, -1:]], dim=1)
    starts = torch.from_numpy(tokens_of(PREFIX))
    held = (texts[:, : len(starts)] == starts).all(1)
    for owner, word in enumerate(secret_words(SPEAKERS)):
        own = texts[held & (data.train_owners == owner)]
        assert len(own) == COPIES
        assert (own == torch.from_numpy(tokens_of(PREFIX + word))).all()
    # The rest are the speaker's first windows.
    assert torch.equal(data.train_images[:40], plain.train_images[:40])
    assert len(data.test_labels) == 2 * SPEAKERS


def test_words_are_random_letters_and_always_the_same():
    words = secret_words(400)
    assert words[:SPEAKERS] == secret_words(SPEAKERS)
    assert len(set(words)) == 400
    letters = "".join(words)
    assert set(letters) == set(CODES)
    # 2,400 letters, 92 of each on average.
    assert max(letters.count(one) for one in CODES) < 92 + 5 * 92**0.5
    assert len(PREFIX + words[0]) == LENGTH + 1


def test_too_few_speakers_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must hold 40 speakers with 50 windows each, got fewer"):
        shakespeare_secrets(spoken(tmp_path, speakers=39))
    with pytest.raises(ValueError, match="must hold 40 speakers with 50 windows each, got fewer"):
        shakespeare_secrets(spoken(tmp_path, windows=40))
