"""Check that a shuffler hides who sent which report: the place of a report must not depend on its client.

Each report is found again behind the shuffler by its numbers. Over many runs, the places of one client, of two clients,
in two rounds and in two coordinates are compared with a uniform order, and so are the places of rows of which a number
could name the client. All tests are one-sided and exact, also where a shuffler adds dummy reports.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from scipy.stats import binom, hypergeom
from torch import Tensor

from ...audit.arrays import BoolArray, FloatArray, IntArray
from ...audit.check_result import CheckResult
from ...fl.laws.law import Mixing, ReportLaw
from ...fl.message import Message
from ...fl.protection import Context
from ...fl.replay import ReplayedStreams
from ...fl.streams import normal
from .hook_run import HookSetup
from .level import level

ORDER = "order of shuffled reports"
_CLIENTS = 24
"""Clients whose places are compared at most."""
_COORDINATES = 4
"""Coordinates of a report that are found again, where each coordinate is shuffled by itself."""
_FOUND = 0.5
"""Share of reports that must be found again."""
_LEAST = 24
"""Runs from which something is compared."""
_Test = tuple[float, int, int, float, str]
"""Chance, number seen, number counted, the probability under a uniform order, and words."""


def shuffle_checks(setup: HookSetup, runs: int) -> Iterator[CheckResult]:
    """Check the order of the reports that arrive, in ``runs`` runs of two rounds."""
    clients = setup.plan.clients
    if clients < 2:
        yield CheckResult(name=ORDER, passed=None, witness="one client alone cannot be shuffled")
        return
    everyone = torch.ones(runs, clients, dtype=torch.bool)
    sent = [sent_and_received(setup, everyone, turn, 0) for turn in range(2)]
    split = _mixing(setup) is Mixing.COORDINATES
    places = np.stack([_places(reports, received, split=split) for reports, received in sent], axis=1)
    found = float((places >= 0).mean()) >= _FOUND
    tests = [*_copies(*sent[0]), *_absences(setup, runs)]
    if found:
        tests += [*_orders(places, clients), *_names(setup, sent[0][1], places, split=split)]
    elif not any(test[0] < level(len(tests)) for test in tests):
        reason = "the channel changes reports, or too many are alike: they cannot be found again"
        yield CheckResult(name=ORDER, passed=None, witness=reason)
        return
    worst = min(tests, key=lambda test: test[0])
    chance, hits, count, expected, words = worst
    failed = chance < level(len(tests))
    share = hits / max(1, count)
    yield CheckResult(
        name=ORDER,
        passed=not failed,
        measured=share if failed else min(share, expected),
        allowed=expected,
        unit="share of runs",
        witness=f"{words}: {hits} of {count}, chance {chance:.2g} in a uniform order",
    )


def _mixing(setup: HookSetup) -> Mixing:
    law = setup.protection.law(setup.claim.observer, setup.plan, 0)
    return law.mixing if isinstance(law, ReportLaw) else Mixing.ROWS


def sent_and_received(setup: HookSetup, present: Tensor, turn: int, noise: int) -> tuple[Message, Message]:
    """Return what clients with rows of their own send in one round, and what arrives."""
    plan, protection, runs = setup.plan, setup.protection, len(present)
    streams = ReplayedStreams(setup.seed, noise)
    draws = partial(streams.generator, round=turn)
    model = setup.task.initial(streams).expand(runs, -1).clone()
    context = Context(
        plan=plan,
        round=turn,
        replicas=runs,
        senders=tuple(range(plan.clients)),
        public_loss=partial(setup.task.public_loss, model),
        samples=partial(setup.task.samples, model),
    )
    state = protection.open_round(context, protection.initial_state(plan))
    rows = setup.length * normal(draws("rows"), (runs, plan.clients, plan.layout.dim))
    updates = Message(values=rows, present=present, senders=context.senders)
    reports = protection.report(updates.with_values(rows), context, state, draws("report"))
    return reports, protection.channel(reports, context, state, draws("channel"))


def _places(reports: Message, received: Message, *, split: bool) -> IntArray:
    """The place at which each client's report arrived, ``(R, groups, clients)``; -1 where it is not the only one."""
    one, other = reports.values.double(), received.values.double()
    if split:
        chosen = _chosen(one.shape[-1])
        keys, seen = one[..., chosen].transpose(1, 2), other[..., chosen].transpose(1, 2)
    else:
        weights = _weights(one.shape[-1])
        keys, seen = (one @ weights).unsqueeze(1), (other @ weights).unsqueeze(1)
    there = received.present.unsqueeze(1).unsqueeze(1)
    same = (keys.unsqueeze(-1) == seen.unsqueeze(-2)) & there & reports.present.unsqueeze(1).unsqueeze(-1)
    alone = (same.sum(-1) == 1) & (same.sum(-2).gather(-1, same.double().argmax(-1)) == 1)
    return torch.where(alone, same.double().argmax(-1), -1).numpy()


def _chosen(dim: int) -> Tensor:
    """The coordinates that are found again where each is shuffled by itself."""
    return torch.linspace(0, dim - 1, min(_COORDINATES, dim)).long()


def _weights(dim: int) -> Tensor:
    return torch.arange(1, dim + 1, dtype=torch.float64).cos()


def _orders(places: IntArray, clients: int) -> Iterator[_Test]:
    """Tests of ``places (R, rounds, groups, clients)``."""
    few = min(clients, _CLIENTS)
    for client in range(few):
        own = places[:, 0, 0, client]
        yield from _cells(own, 1 / clients, f"client {client} at place {{}}")
        known = (own >= 0) & (places[:, 1, 0, client] >= 0)
        yield _test(
            own[known] == places[known, 1, 0, client], 1 / clients, f"client {client} at one place in both rounds"
        )
        for group in range(1, places.shape[2]):
            known = (own >= 0) & (places[:, 0, group, client] >= 0)
            alike = own[known] == places[known, 0, group, client]
            yield _test(alike, 1 / clients, f"two coordinates of client {client} at one place")
    total = int(places.max()) + 1
    for client in range(few if clients > 2 else 0):
        after = (client + 1) % clients
        own, other = places[:, 0, 0, client], places[:, 0, 0, after]
        known = (own >= 0) & (other >= 0)
        apart = (other[known] - own[known]) % max(total, clients)
        yield from _cells(apart, 1 / (clients - 1), f"client {after} {{}} places after client {client}")


def _cells(places: IntArray, chance: float, words: str) -> Iterator[_Test]:
    known = places[places >= 0]
    if len(known) >= _LEAST:
        values, counts = np.unique(known, return_counts=True)
        most = int(counts.argmax())
        # The fullest of all places: as many tests as there are places.
        p = min(1.0, len(values) * float(binom.sf(counts[most] - 1, len(known), chance)))
        yield p, int(counts[most]), len(known), chance, words.format(int(values[most]))


def _test(hits: BoolArray, chance: float, words: str) -> _Test:
    count, number = int(hits.sum()), len(hits)
    return (float(binom.sf(count - 1, number, chance)) if count else 1.0), count, number, chance, words


def _names(setup: HookSetup, received: Message, places: IntArray, *, split: bool) -> Iterator[_Test]:
    """Whether a number of a row that arrives, whatever noise it has, names its sender: an array that travels with the
    row, or the size of its numbers.

    Rows of all clients have one distribution here, and so has the place of a client's row among those that arrive.
    """
    clients = setup.plan.clients
    laws = [setup.protection.law(setup.claim.observer, setup.plan, client) for client in range(clients)]
    # Clients of different laws send different reports, which the claim must account for.
    if any(law != laws[0] for law in laws):
        return
    learnt = len(places) // 2
    for name, keys, group in _keys(received, split=split):
        for client in range(min(clients, _CLIENTS)):
            own = places[:, 0, group, client]
            known = np.flatnonzero(own[:learnt] >= 0)
            if not len(known):
                continue
            values, counts = np.unique(keys[known, own[known]], return_counts=True)
            same = keys[learnt:] == values[int(counts.argmax())]
            # Runs without the client's place count: a row with a number of its own is found more often than others.
            single = same.sum(1) == 1
            hits = same.argmax(1)[single] == own[learnt:][single]
            yield _test(hits, 1 / clients, f"the row whose {name} is that of client {client} is its report")


def _keys(received: Message, *, split: bool) -> Iterator[tuple[str, FloatArray, int]]:
    """Numbers by which rows can be told apart, ``(R, rows)`` with NaN for absent ones, and the coordinates' group."""
    absent = ~received.present.numpy()
    if split:
        chosen = _chosen(received.values.shape[-1])
        yield from (
            ("size", _masked(received.values[..., where].abs().double(), absent), group)
            for group, where in enumerate(chosen.tolist())
        )
        return
    for name, array in received.side.items():
        flat = array.double().reshape(*array.shape[:2], -1)
        if name not in received.unsent and flat.shape[-1]:
            yield f"array {name}", _masked(flat @ _weights(flat.shape[-1]), absent), 0
    values = received.values.double()
    if values.shape[-1]:
        yield "largest number", _masked(values.abs().amax(-1), absent), 0
        yield "length", _masked(torch.linalg.vector_norm(values, dim=-1), absent), 0


def _masked(keys: Tensor, absent: BoolArray) -> FloatArray:
    """Numbers of five digits, so that rounding does not tell equal ones apart."""
    found = keys.numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = 10.0 ** np.floor(np.log10(np.abs(found)) - 4)
        rounded = np.where(np.isfinite(found) & (found != 0), np.rint(found / unit) * unit, found)
    return np.where(absent, np.nan, rounded)


def _copies(reports: Message, received: Message) -> Iterator[_Test]:
    """Whether the reports of one client arrive more often, or less often, than those of another one."""
    one, other = reports.values.double(), received.values.double().masked_fill(~received.present.unsqueeze(-1), 0)
    weights = _weights(one.shape[-1])
    keys, seen = one @ weights, (other @ weights).masked_fill(~received.present, torch.nan)
    alone = ((keys.unsqueeze(-1) == keys.unsqueeze(-2)).sum(-1) == 1).numpy()
    times = (keys.unsqueeze(-1) == seen.unsqueeze(-2)).sum(-1).numpy()
    for client in range(min(keys.shape[1], _CLIENTS)):
        following = (client + 1) % keys.shape[1]
        known = alone[:, client] & alone[:, following]
        more = int((times[known, client] > times[known, following]).sum())
        less = int((times[known, client] < times[known, following]).sum())
        words = f"reports of client {client} arrive more often than those of client {following}"
        for hits in (more, less):
            yield (float(binom.sf(hits - 1, more + less, 0.5)) if hits else 1.0), hits, more + less, 0.5, words


def _absences(setup: HookSetup, runs: int) -> Iterator[_Test]:
    """Whether the empty places show which clients are absent, among runs of equally many."""
    streams, plan = ReplayedStreams(setup.seed), setup.plan
    context = Context(plan=plan, round=0, replicas=runs, senders=tuple(range(plan.clients)))
    state = setup.protection.open_round(context, setup.protection.initial_state(plan))
    present = plan.draw_cohort(streams.generator, runs, plan.clients, round=0)
    thinned = setup.protection.participates(context, state, streams.generator("participation"))
    present = present if thinned is None else present & thinned
    # Only absences that the plan allows: a shuffler may rest on all reports being there.
    if bool(present.all()):
        return
    _, received = sent_and_received(setup, present, 0, 1)
    if received.present.shape[1] != setup.plan.clients:
        return
    gone, empty = (~present).numpy(), (~received.present).numpy()
    counts = gone.sum(1)
    for count in np.unique(counts):
        here = counts == count
        number = int(here.sum())
        if number < _LEAST:
            continue
        for client in range(min(setup.plan.clients, _CLIENTS)):
            a, b = gone[here, client], empty[here, client]
            both = int((a & b).sum())
            chance = float(hypergeom.sf(both - 1, number, int(a.sum()), int(b.sum())))
            words = f"place {client} empty where client {client} is absent, of {count} absent ones"
            yield chance, both, number, float(a.mean() * b.mean()), words
