"""Secrets in texts: every speaker has its own, the same in each of its copies, drawn once for all."""

import pytest
import torch
from fedassay.fl.data.shakespeare import (
    CODES,
    COPIES,
    LENGTH,
    PREFIX,
    SPEAKERS,
    WINDOWS,
    secret_words,
    shakespeare,
    shakespeare_secrets,
    tokens_of,
)
from spoken_secrets import spoken


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
