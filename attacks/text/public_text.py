"""Null attack that guesses texts drawn from the public ones, without using the upload."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from ...audit.evidence import TokenGuesses
from ...fl.recorder import View
from ..attack import Knowledge
from ..labels.label_attack import public_sizes
from .text_attack import TextAttack, counts_of, guesses_of_round


@dataclass(frozen=True, kw_only=True)
class PublicText(TextAttack):
    """A null attack that draws, for each upload of one round, as many public texts as there are samples behind it."""

    null: ClassVar[bool] = True

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> TokenGuesses:
        """Return the drawn texts of each upload, with their token counts ``(n, tokens)``."""
        texts = []
        for size in public_sizes(view, knowledge, self.round).tolist():
            drawn = torch.from_numpy(rng.integers(len(knowledge.public_images), size=size))
            texts.append(np.asarray(knowledge.public_images[drawn].flatten(1).long().numpy(), dtype=np.int64))
        counts = np.stack([counts_of(own, knowledge.network.classes) for own in texts])
        return guesses_of_round(counts, view, self.round, texts)
