"""Base class of attacks that recover tokens from the uploads of one round."""

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike

from ...audit.arrays import IntArray
from ...audit.evidence import TokenGuesses
from ...fl.objective import NEXT_TOKEN
from ...fl.view import View
from ..attack import Attack
from ..uploads import check_round, upload_setting


@dataclass(frozen=True, kw_only=True)
class TextAttack(Attack, ABC):
    """A base class of attacks that recover the tokens of the texts behind each client's upload of one round."""

    tasks: ClassVar[tuple[str, ...]] = (NEXT_TOKEN,)
    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)


def guesses_of_round(
    counts: ArrayLike, view: View, round: int, texts: Sequence[IntArray] | None = None, rounds: int = 1
) -> TokenGuesses:
    """Return the counts ``(n, tokens)`` and, where given, the texts behind each of the n uploads of one ``round``, as
    the attack's result; ``rounds``: rounds whose uploads it read.
    """
    values = np.asarray(counts, dtype=np.float64)
    return TokenGuesses(
        values, upload_setting(view, rounds), texts=None if texts is None else tuple(texts), round=round
    )


def counts_of(texts: ArrayLike, tokens: int) -> IntArray:
    """Return how often each of ``tokens`` tokens occurs in ``texts``, whole numbers of any shape, ``(tokens,)``."""
    flat = torch.as_tensor(np.asarray(texts)).long().flatten()
    return np.asarray(torch.bincount(flat, minlength=tokens).numpy(), dtype=np.int64)
