"""Attack that measures the exposure of planted secrets under the final model (Carlini et al. 2019)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency, Unit
from ...audit.evidence import Exposures
from ...audit.observer import FINAL_MODEL, Observer
from ...fl.candidates import Candidates, PlantedCandidates
from ...fl.data.shakespeare import CODES, LETTERS, PREFIX, tokens_of
from ...fl.fields import Count
from ...fl.objective import NEXT_TOKEN
from ...fl.recorder import View
from ...fl.task import Task
from ..attack import Attack, Knowledge, Undefined, clustered_setting

# Texts per pass.
_AT_ONCE = 250


@dataclass(frozen=True, kw_only=True)
class SecretExposure(Attack):
    """An attack that ranks the secrets of a data set among random words by their loss under the final model.

    The loss of a word is the sum of the cross-entropies of its letters behind the secrets' phrase. The exposure of a
    secret is log2(number of words) - log2(its rank), where the words are the secret and ``words`` random ones: 0 if the
    secret is the least likely and at most log2(words + 1). It estimates the exposure among all words, up to that value.
    The secret of a speaker that never took part has a rank like any other word's, and an exposure of 1.44 bits (1 /
    ln 2) on average. It needs data set ``shakespeare_secrets`` and a federation that holds speakers out (``held_out``,
    partition ``by_owner``).

    Args:
        words: random words; the same ones for every secret.
    """

    tasks: ClassVar[tuple[str, ...]] = (NEXT_TOKEN,)
    observer: ClassVar[Observer] = FINAL_MODEL
    words: Count = 4095

    def plant(self, task: Task, rng: np.random.Generator) -> PlantedCandidates:
        held = [(client, place) for client, part in enumerate(task.parts) for place in _secrets(task, part)]
        absent = [place for part in task.held_out for place in _secrets(task, part)]
        # One window per secret: a speaker has several equal ones.
        texts = {task.images[place].numpy().tobytes(): (-1, place) for place in absent}
        texts |= {task.images[place].numpy().tobytes(): (client, place) for client, place in held}
        holders = [client for client, _ in texts.values()]
        if -1 not in holders or len(set(holders)) < 2:
            raise Undefined(
                "exposure needs secrets that clients train on and others that they do not: data set "
                "shakespeare_secrets with partition by_owner and held_out"
            )
        found = list(texts.values())
        order = rng.permutation(len(found))
        holder, place = (np.array(column, dtype=np.int64)[order] for column in zip(*found, strict=True))
        shown = Candidates(
            images=task.images[place], labels=task.labels[place], clients=tuple(sorted(set(holder.tolist()) - {-1}))
        )
        return PlantedCandidates(shown=shown, holder=holder, sample=np.where(holder < 0, -1, place))

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Exposures:
        """Return the exposure of each secret, ``(n,)`` in bits."""
        if not isinstance(knowledge.candidates, Candidates):
            raise ValueError("SecretExposure needs secrets as candidates, which must be planted before training")
        shown = knowledge.candidates
        secrets = torch.cat([shown.images.flatten(1).long(), shown.labels[:, -1:]], dim=1)
        letters = tokens_of(CODES)[rng.integers(len(CODES), size=(self.words, LETTERS))]
        others = secrets[:1].repeat(self.words, 1)
        others[:, -LETTERS:] = torch.from_numpy(letters)
        own, reference = (_losses(knowledge, view.final_model[0], texts) for texts in (secrets, others))
        # A tie counts against the secret: a model that says nothing exposes nothing.
        ranks = 1 + (reference[None] <= own[:, None]).sum(1)
        setting = clustered_setting(view, Unit.CLIENT, Adjacency.ADD_REMOVE)
        return Exposures(np.log2(self.words + 1) - np.log2(ranks), setting, self.words)


def _secrets(task: Task, part: Tensor) -> list[int]:
    """The places in the pool of a client's windows that start with the secrets' phrase."""
    phrase = torch.from_numpy(tokens_of(PREFIX)).float()
    images = task.images[part].flatten(1)
    if images.shape[1] < len(phrase):
        return []
    return [int(place) for place in part[(images[:, : len(phrase)] == phrase).all(1)]]


def _losses(knowledge: Knowledge, model: Tensor, texts: Tensor) -> FloatArray:
    """The sum of the losses of the last letters of each of ``texts (n, length + 1)``, ``(n,)``."""
    found = []
    for part in torch.split(texts, _AT_ONCE):
        images = part[:, :-1].float().reshape(len(part), 1, 1, -1)
        with torch.no_grad():
            logits = knowledge.network.logits(model, images)[:, -LETTERS:].double()
        found.append(-logits.log_softmax(-1).gather(2, part[:, -LETTERS:].unsqueeze(2)).sum((1, 2)))
    return np.asarray(torch.cat(found).numpy(), dtype=np.float64)
