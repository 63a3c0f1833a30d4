"""Plants a secret in the text of every speaker, to measure what a model memorises (Carlini et al. 2019)."""

import numpy as np

from ..streams import Streams
from .data_folder import DataFolder
from .dataset import Dataset
from .shakespeare import LENGTH, as_dataset, speakers_of, tokens_of

SPEAKERS, WINDOWS, COPIES, LETTERS = 40, 50, 10, 6
"""Speakers, windows of each of them, windows with the secret among them, and letters of a secret."""
PREFIX = "I swear the secret word is "
"""The text before a secret; with it a secret fills a window and its last next character."""
CODES = "abcdefghijklmnopqrstuvwxyz"
"""The letters of which secrets are drawn."""


def shakespeare_secrets(folder: DataFolder) -> Dataset:
    """Load the first 50 windows of each of the 40 speakers with most windows, 10 of them replaced by one of a secret.

    The secret of a speaker is a word of six random letters behind a fixed phrase, the same ten times. All speakers have
    one, so that the secrets of speakers that are held out of a federation (partition ``by_owner``) are secrets like
    those of the others that were never trained on. Their words are drawn with a fixed seed. The test part is that of
    these speakers in the data set ``shakespeare``, without secrets.

    Raises like `shakespeare`, and ValueError where there are fewer speakers with so many windows.
    """
    train, test = speakers_of(folder)
    chosen = sorted(range(len(train)), key=lambda speaker: -len(train[speaker]))[:SPEAKERS]
    if len(chosen) < SPEAKERS or len(train[chosen[-1]]) < WINDOWS:
        raise ValueError(f"the text must hold {SPEAKERS} speakers with {WINDOWS} windows each, got fewer")
    words = secret_words(SPEAKERS)
    windows = [
        np.concatenate([train[speaker][: WINDOWS - COPIES], np.tile(tokens_of(PREFIX + word), (COPIES, 1))])
        for speaker, word in zip(sorted(chosen), words, strict=True)
    ]
    return as_dataset("shakespeare_secrets", windows, [test[speaker] for speaker in sorted(chosen)])


def secret_words(count: int) -> list[str]:
    """Return the words of the secrets of so many speakers, drawn uniformly with a fixed seed."""
    assert len(PREFIX) + LETTERS == LENGTH + 1
    raw = Streams(0).generator("secret words").bit_generator.random_raw((count, LETTERS))
    return ["".join(CODES[int(one) % len(CODES)] for one in row) for row in raw]
