"""Attack that recovers whole texts from the gradients of low-rank adapters of attention (after Petrov et al. 2024)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...audit.evidence import TokenGuesses
from ...audit.wording import counted
from ...fl.fields import Count
from ...fl.models.layers import LowRank
from ...fl.models.network import Network
from ...fl.recorder import View
from ..attack import Knowledge, Undefined
from ..labels.label_attack import LabelLots, read_label_lots
from .text_attack import TextAttack, counts_of, guesses_of_round, span_of, texts_in_spans


@dataclass(frozen=True, kw_only=True)
class AdapterSpan(TextAttack):
    """An attack that recovers the texts behind each upload of adapters of attention, token by token.

    An adapter adds B A x to what a layer computes from its input x. As in `AttentionSpan`, rows of a gradient span
    inputs, and tokens are tried whether their inputs lie in the span:

    - The gradient of B spans the inputs A x, of as many numbers as the adapter's rank. While there are fewer places
      than that, one upload gives the texts, in the first round too.
    - The gradient of A spans the inputs x, but no more of their directions than the rank, and is zero in the first
      round, because B is. Where weights other than adapters are frozen, the inputs of the first layer are the same in
      every round, and so are the texts of a client that trains on all of its samples. The spans of ``rounds`` rounds
      are then parts of one span, which they fill once ``rounds - 1`` times the rank reaches the places of the text.

    The first is used where there are few enough places, else the second, which needs a single text per client. In
    single precision it is exact for a few rounds only, because models of successive rounds are alike and each round
    adds ever smaller directions.

    Args:
        rounds: successive rounds whose uploads are read, from ``round`` on.
    """

    rounds: Count = 1

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> TokenGuesses:
        """Return the texts of each upload of the first attacked round, with their token counts ``(n, tokens)``.

        Raises:
            Undefined: for a model without adapters of attention, or with a trained embedding; where the rank, times the
                rounds that have a gradient of A, is too small for the number of places, for lots that are drawn anew in
                each round, and for several texts where one round is not enough.
            ValueError: like `read_label_lots`.
        """
        network = knowledge.network
        names = _adapters(network)
        lots = read_label_lots(view, knowledge, self.round)
        places, rank = lots.sizes * network.shape[2], _rank(network, names[0])
        used = self.rounds if bool((places >= rank).any()) else 1
        rounds = [lots, *(read_label_lots(view, knowledge, self.round + later) for later in range(1, used))]
        texts = []
        for row, client in enumerate(lots.clients):
            if places[row] < rank:
                spans = _spans_of_one_round(network, lots.gradients[row], names, int(places[row]))
            else:
                _check_same_texts(knowledge, client, int(lots.sizes[row]))
                spans = {f"{names[0]}.down": _span_of_rounds(network, rounds, names[0], client)}
            texts.append(texts_in_spans(network, lots.model, spans, int(lots.sizes[row])))
        counts = np.stack([counts_of(own, network.classes) for own in texts])
        return guesses_of_round(counts, view, self.round, texts, used)


def _adapters(network: Network) -> list[str]:
    """The names of the adapters of the first two attention layers."""
    named = network.module.named_modules()
    found = [name for name, one in named if name.rpartition(".")[2] == "attention" and isinstance(one, LowRank)]
    if not found:
        raise Undefined(
            f"model {network.model} has no low-rank adapter of a layer called attention, as text_lora has, whose "
            "gradient spans the inputs of attention"
        )
    return found[:2]


def _rank(network: Network, name: str) -> int:
    return network.layout.shapes[network.layout.names.index(f"{name}.down.weight")][0]


def _spans_of_one_round(network: Network, gradient: Tensor, names: list[str], places: int) -> dict[str, Tensor]:
    """The spans of the gradients of B, whose inputs are A x."""
    layers = network.layout.unflatten(gradient)
    return {f"{name}.up": span_of(layers[f"{name}.up.weight"], places) for name in names}


def _check_same_texts(knowledge: Knowledge, client: int, size: int) -> None:
    """Raise Undefined unless the first layer has the same inputs in every round, those of one text."""
    network, plan = knowledge.network, knowledge.plan
    adapters = [name for name, one in network.module.named_modules() if isinstance(one, LowRank)]
    trained = set(network.layout.names) - {f"{name}.{part}.weight" for name in adapters for part in ("down", "up")}
    if trained:
        raise Undefined(
            f"model {network.model} trains {min(trained)} too, so inputs of attention may change from round to round, "
            "and one round reveals fewer positions than the rank"
        )
    if size > 1 or plan.lot.rate(plan.sizes[client]) < 1:
        raise Undefined(
            "the texts of a lot have at least as many positions as the rank, so the attack needs several rounds with "
            "the same single text; attack clients that hold one text"
        )


def _span_of_rounds(network: Network, rounds: Sequence[LabelLots], name: str, client: int) -> Tensor:
    """The span of the gradients of A in all rounds in which the client sent one and B was not zero."""
    length, rank, rows = network.shape[2], _rank(network, name), []
    for lots in rounds:
        if client in lots.clients and bool(network.layout.unflatten(lots.model)[f"{name}.up.weight"].any()):
            layers = network.layout.unflatten(lots.gradients[lots.clients.index(client)])
            rows.append(layers[f"{name}.down.weight"])
    if len(rows) * rank < length:
        raise Undefined(
            f"the gradients of A in {counted(len(rows), 'round')} have {len(rows) * rank} rows, fewer than the "
            f"{length} positions of the text; {math.ceil(length / rank)} rounds are needed in which B is not zero"
        )
    width = rows[0].shape[1]
    # A layer norm takes one direction away.
    if length >= width - 1:
        raise Undefined(
            f"texts of {length} tokens have as many positions as attention has inputs ({width}, of which a layer norm "
            "fixes one), so that every token lies in the span of their gradient"
        )
    return span_of(torch.cat(rows), length)
