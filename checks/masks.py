"""Check that the masked words of a secure sum are uniform, one by one and together, as their security proof states.

The server knows every masked word and the masks that key shares reveal. What it can compute from the words of fewer
than all remaining clients must be uniform, and independent between clients, rounds and runs.
"""

from collections.abc import Iterator

import numpy as np
import torch
from scipy.stats import binom, chi2
from torch import Tensor

from ..audit.check import MASKS, CheckResult
from ..audit.ledger import SUITE
from ..fl.message import Message
from .given_rows import PRESENT, HookRun, HookSetup, Surroundings

_CELLS = 16
"""Equal parts of the range of words that are counted, by their first and by their last bits."""
_UNFILLED = 1e-3
"""Share of the range of words that may lie above the largest of thousands."""
_CLIENTS = 6
"""Clients whose words are compared with each other, at most."""
_FACTORS = ((1, -1), (1, 1), (1, 2), (1, -2), (2, 1), (-2, 1), (1, 3), (1, -3), (3, 1), (-3, 1))
"""Factors of two clients' words; one of them is odd, so that a uniform word stays uniform."""
_LEAST = 100
"""Words that each part must be expected to hold."""


def mask_checks(setup: HookSetup, around: Surroundings) -> Iterator[CheckResult]:
    """Compare the masked words of secure aggregation, and differences and sums of words, with a uniform
    distribution.
    """
    run = setup.run(around, PRESENT)
    if not any(message.masked for message in run.reports):
        yield MASKS.skipped("no message is masked")
        return
    bits = _bits(run.reports[0])
    if bits is None or run.reports[0].values.dtype.is_floating_point or bits < 8:
        yield MASKS.skipped("the masked values are not integers with a stated number of bits")
        return
    found = [test for words, values in _views(run) for test in _tests(words, values, bits)]
    found += _between_runs(run, bits)
    again = setup.run(around, PRESENT, noise=1)
    found += [test for words, values in _against(run, again) for test in _tests(words, values, bits)]
    if not found:
        yield MASKS.skipped("too few masked integers were sent")
        return
    chance, most, words = min(found, key=lambda test: test[0])
    failed = chance < SUITE.level("hooks", len(found))
    yield CheckResult(
        name=MASKS,
        passed=not failed,
        measured=most if failed else min(most, 1 / _CELLS),
        allowed=1 / _CELLS,
        unit="share of masked integers",
        witness=f"{words}, with probability {chance:.2g} if they were uniform",
    )


def _bits(message: Message) -> int | None:
    """The bits of a word, as stated or as they are used; None where words do not fill the range of a number of bits."""
    words = message.values[message.present]
    if message.word_bits is not None or words.dtype.is_floating_point or not words.numel() or int(words.min()) < 0:
        return message.word_bits
    bits = int(words.max()).bit_length()
    return bits if int(words.max()) >= (1 - _UNFILLED) * 2**bits else None


def _views(run: HookRun) -> Iterator[tuple[str, Tensor]]:
    """Words that must be uniform, with what they are."""
    for turn, message in enumerate(run.reports):
        words, there = message.values, message.present
        revealed = _known(message)
        clients = range(min(words.shape[1], _CLIENTS))
        for client in clients:
            sent = there[:, client]
            yield f"masked integers of client {client} in round {turn}", words[sent, client]
            # Alone, a client has no partner whose mask could hide its word.
            several = sent & (there.sum(1) > 1)
            following = (client + 1) % words.shape[1]
            for name, known in revealed.items():
                rest = words - known
                yield f"masked integers of client {client} minus {name} in round {turn}", rest[several, client]
                yield from _combined(rest, there, client, f"minus {name} in round {turn}")
            if following != client:
                both = sent & there[:, following]
                yield (
                    f"differences of the masked integers of clients {client} and {following} in round {turn}",
                    words[both, client] - words[both, following],
                )
                yield (
                    f"sums of the masked integers of clients {client} and {following} in round {turn}",
                    words[both, client] + words[both, following],
                )
            if turn:
                before = run.reports[turn - 1]
                both = sent & before.present[:, client]
                yield (
                    f"differences of the masked integers of client {client} in rounds {turn - 1} and {turn}",
                    words[both, client] - before.values[both, client],
                )
        yield f"differences of adjacent masked integers of one client in round {turn}", _neighbours(words[there])


def _against(run: HookRun, again: HookRun) -> Iterator[tuple[str, Tensor]]:
    """Differences of the words of runs with other random streams: masks that a server can compute by itself cancel."""
    for turn, (one, other) in enumerate(zip(run.reports, again.reports, strict=True)):
        if one.values.shape != other.values.shape:
            continue
        for client in range(min(one.values.shape[1], _CLIENTS)):
            both = one.present[:, client] & other.present[:, client]
            words = (
                f"differences of the masked integers of client {client} between runs with other random draws in "
                f"round {turn}"
            )
            yield words, one.values[both, client] - other.values[both, client]


def _combined(rest: Tensor, there: Tensor, client: int, words: str) -> Iterator[tuple[str, Tensor]]:
    """Small multiples of the words of two clients, which hide as long as a third client is there."""
    for other in range(client + 1, min(rest.shape[1], _CLIENTS)):
        both = there[:, client] & there[:, other] & (there.sum(1) > 2)
        for one, two in _FACTORS:
            yield (
                f"{one} times the masked integers of client {client} plus {two} times those of client {other}, {words}",
                one * rest[both, client] + two * rest[both, other],
            )


def _known(message: Message) -> dict[str, Tensor]:
    """The masks that the server computes from key shares, one by one and together: no client sends them."""
    found = {
        f"the revealed masks {name}": message.side[name]
        for name in sorted(message.unsent & message.side.keys())
        if message.side[name].shape == message.values.shape and not message.side[name].dtype.is_floating_point
    }
    if len(found) > 1:
        found["all revealed masks"] = torch.stack([*found.values()]).sum(0)
    return found


def _neighbours(words: Tensor) -> Tensor:
    return words[:, 1:] - words[:, :-1]


def _between_runs(run: HookRun, bits: int) -> Iterator[tuple[float, float, str]]:
    """Whether words of any two runs differ by little, as where masks come from few seeds."""
    for turn, message in enumerate(run.reports):
        cells = (message.values >> (bits - 4)) & (_CELLS - 1)
        for client in range(min(cells.shape[1], _CLIENTS)):
            own = cells[message.present[:, client], client]
            for later in range(1, len(own)):
                # Differences of equal masks lie in the first or in the last part of the range, by rounding.
                near = ((own[later] - own[:later]) % _CELLS + 1) % _CELLS <= 2
                hits = near.sum(1).numpy()
                most = int(hits.max())
                chance = min(1.0, later * float(binom.sf(most - 1, cells.shape[-1], 3 / _CELLS)))
                words = f"the first four bits of the masked integers of client {client} in two runs in round {turn}"
                yield chance, most / cells.shape[-1] / 3, words


def _tests(words: str, values: Tensor, bits: int) -> Iterator[tuple[float, float, str]]:
    numbers = values.flatten().numpy() & ((1 << bits) - 1)
    if len(numbers) < _LEAST * _CELLS:
        return
    for part, kind in ((numbers >> (bits - 4), "first"), (numbers & (_CELLS - 1), "last")):
        counts = np.bincount(part, minlength=_CELLS)
        expected = len(numbers) / _CELLS
        statistic = float(np.square(counts - expected).sum() / expected)
        yield (
            float(chi2.sf(statistic, _CELLS - 1)),
            float(counts.max() / len(numbers)),
            f"the {kind} four bits of {words}",
        )
