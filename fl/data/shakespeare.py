"""Loads speeches of Shakespeare's plays as windows of characters; speakers are their owners (as in Caldas et al. 2018).

The text is Karpathy's "tiny Shakespeare" (2015), in the public domain.

A secret can be planted in the text of every speaker, to measure what a model memorises (Carlini et al. 2019).
"""

import re

import numpy as np
import torch
from torch import Tensor

from ..objective import NEXT_TOKEN
from ..streams import Streams
from .data_folder import DataFolder
from .dataset import Dataset

FILE = "shakespeare/input.txt.gz"
LENGTH = 32
"""Tokens of a window."""
ALPHABET = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
"""The characters in the order of their tokens, 0 to 64: a fixed vocabulary, which is public and not read from data."""
_TEST_SHARE = 20
_TOKEN_OF = np.full(128, -1, dtype=np.int64)
_TOKEN_OF[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))


def shakespeare(folder: DataFolder) -> Dataset:
    """Load the speeches as windows of 32 characters; the label of each character is the character that follows it.

    Inputs are ``(n, 1, 1, 32)`` whole numbers, the tokens of ``ALPHABET``, and labels ``(n, 32)`` the same tokens one
    place on. Windows of a speaker do not overlap: all speeches of a speaker are joined by line ends and cut. What is
    left at the end is dropped, and with it speakers of fewer than 33 characters. The owner of a window is its speaker,
    numbered in the order of the text; names such as "First Citizen" occur in several plays and are one speaker.

    There is no official split: of every speaker the last twentieth of the windows, rounded down, are test data.

    Raises:
        DatasetMissing: if the file is not in ``folder``.
        ValueError: if it is not gzip text of these characters, or holds too little text to train and to test.
    """
    return as_dataset("shakespeare", *speakers_of(folder))


def speakers_of(folder: DataFolder) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the training and the test windows of each speaker as whole numbers ``(n, 33)``: 32 input tokens and the
    token that follows them.

    Raises like `shakespeare`.
    """
    windows = [_windows(speech) for speech in _speeches(folder.text(FILE, of="shakespeare")).values()]
    windows = [own for own in windows if len(own)]
    tested = [len(own) // _TEST_SHARE for own in windows]
    if not sum(tested):
        raise ValueError(
            f"{folder.root}/{FILE} must hold a speaker with at least {_TEST_SHARE * LENGTH + 1} characters, so that "
            "there is a test part, got none"
        )
    train = [own[: len(own) - count] for own, count in zip(windows, tested, strict=True)]
    test = [own[len(own) - count :] for own, count in zip(windows, tested, strict=True)]
    return train, test


def as_dataset(name: str, train: list[np.ndarray], test: list[np.ndarray]) -> Dataset:
    """Return the windows ``(n, 33)`` of each speaker as a data set, in which the speakers own their windows."""
    owners = np.repeat(np.arange(len(train)), [len(own) for own in train])
    return Dataset.of_parts(
        name,
        _parts(train),
        _parts(test),
        classes=len(ALPHABET),
        train_owners=torch.from_numpy(owners),
        rows=True,
        class_names=tuple(ALPHABET),
        task=NEXT_TOKEN,
    )


def tokens_of(text: str) -> np.ndarray:
    """Return the token of each character, ``(characters,)``; raise ValueError for one that is not in ``ALPHABET``."""
    codes = np.array([min(ord(character), 127) for character in text], dtype=np.int64)
    tokens = np.asarray(_TOKEN_OF[codes])
    if (tokens < 0).any():
        raise ValueError(f"a text must hold the {len(ALPHABET)} characters of the alphabet only, got another one")
    return tokens


def _speeches(text: str) -> dict[str, str]:
    """All speeches of each speaker, joined by line ends."""
    speeches: dict[str, list[str]] = {}
    # Speeches are separated by an empty line and start with the speaker's name and a colon on a line of its own.
    for part in re.split(r"\n{2,}", text.strip()):
        name, _, speech = part.partition("\n")
        speeches.setdefault(name.removesuffix(":"), []).append(speech)
    return {name: "\n".join(parts) for name, parts in speeches.items()}


def _windows(text: str) -> np.ndarray:
    """``(n, LENGTH + 1)`` tokens; the last one of a window is the first of the next."""
    tokens = tokens_of(text)
    starts = np.arange(0, len(tokens) - LENGTH, LENGTH)
    return np.asarray(tokens[starts[:, None] + np.arange(LENGTH + 1)])


def _parts(windows: list[np.ndarray]) -> tuple[Tensor, Tensor]:
    tokens = torch.from_numpy(np.concatenate(windows))
    return tokens[:, :-1].float().reshape(-1, 1, 1, LENGTH), tokens[:, 1:].contiguous()


SPEAKERS, WINDOWS, COPIES, LETTERS = 40, 50, 10, 6
"""Speakers, windows of each of them, windows with the secret among them, and letters of a secret."""
PREFIX = "I swear the secret word is "
"""The text before a secret; with it a secret fills a window and its last next character."""
CODES = "abcdefghijklmnopqrstuvwxyz"
"""The letters of which secrets are drawn."""


def shakespeare_secrets(folder: DataFolder) -> Dataset:
    """Load the first 50 windows of each of the 40 speakers with the most windows; 10 of each speaker's windows are
    replaced by one that holds a secret.

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
    """Return the words of the secrets for so many speakers, drawn uniformly with a fixed seed."""
    assert len(PREFIX) + LETTERS == LENGTH + 1
    raw = Streams(0).generator("secret words").bit_generator.random_raw((count, LETTERS))
    return ["".join(CODES[int(one) % len(CODES)] for one in row) for row in raw]
