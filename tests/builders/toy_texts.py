"""Federations of short random texts, with what an attacker sees of them: a test names only what it is about."""

import numpy as np
import torch
from fedassay.attacks.attack import Knowledge
from fedassay.audit.observer import UPLOADS
from fedassay.fl.data.shakespeare import ALPHABET, LETTERS, PREFIX, tokens_of
from fedassay.fl.engine import run_federation
from fedassay.fl.models.network import Network
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import LotRecorder, ViewRecorder
from fedassay.fl.streams import Streams
from fedassay.fl.task import Task
from toy_federation import toy_plan

LENGTH, TOKENS = 6, 9


def toy_texts(sizes=(1,) * 6, *, held_out=0, outsiders=8, seed=0, width=32, secrets=False, rank=None):
    """Texts of skewed random tokens, or secrets; the last ``held_out`` clients never take part. Clients are owners.

    ``rank``: that of adapters, which are trained in place of a model of this ``width``.
    """
    rng = Streams(seed).generator("toy texts")
    length, tokens = (len(PREFIX) + LETTERS - 1, len(ALPHABET)) if secrets else (LENGTH, TOKENS)

    def data(n):
        words = np.minimum(rng.geometric(0.25, size=(n, LETTERS if secrets else LENGTH + 1)), TOKENS) - 1
        phrase = np.tile(tokens_of(PREFIX), (n, 1))
        drawn = torch.from_numpy(np.hstack([phrase, words + tokens_of("a")]) if secrets else words)
        return drawn[:, None, None, :-1].float(), drawn[:, 1:].contiguous()

    (pool, labels), (outside, outside_labels), (test, test_labels) = data(sum(sizes)), data(outsiders), data(200)
    hands = torch.arange(sum(sizes)).split(list(sizes))
    # The frozen weights behind adapters know the tokens of the alphabet.
    model = ("text_transformer", {"width": width, "heads": 2}) if rank is None else ("text_lora", {"rank": rank})
    tokens = tokens if rank is None else len(ALPHABET)
    return Task(
        network=Network(model=model[0], shape=(1, 1, length), classes=tokens, task="next_token", options=model[1]),
        images=pool,
        labels=labels,
        parts=hands[: len(sizes) - held_out],
        held_out=hands[len(sizes) - held_out :],
        outsider_images=outside,
        outsider_labels=outside_labels,
        test_images=test,
        test_labels=test_labels,
        owners=torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)),
    )


def observed_texts(task, protection=None, **plan):
    """What a server that sees uploads receives of a training, one round by default, what it knows, and the lots."""
    used, chosen = protection or Protection(), toy_plan(task, **({"rounds": 1} | plan))
    recorder = ViewRecorder(observer=UPLOADS)
    lots = {client: LotRecorder(client=client) for client in range(task.clients)}
    final = run_federation(task, chosen, used, Streams(0), recorders=[recorder, *lots.values()])
    return recorder.view(chosen, final), Knowledge.of(task, chosen, used), lots
