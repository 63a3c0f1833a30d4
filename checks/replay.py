"""Checks that run a federation a few times with equal random draws and compare the runs exactly, without statistics.

Two runs that differ by one row give a lower bound on the sensitivity that is enforced; two runs that differ by the
draws of the hooks show the noise. A check that passes proves nothing; one that fails names the row that violates the
sensitivity, or the noise that is missing. The checks run on the audit's small model, and on the claim's own model too,
because its layers are others.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from ..audit.check import BETWEEN_ROUNDS, PRESENT, SCALE, SENSITIVITY, CheckResult
from ..audit.claim import HELD_BY_CLIENTS, Claim, Unit
from ..audit.observer import AGGREGATE
from ..fl.canary import Canary
from ..fl.channels import changes_broadcast
from ..fl.plan import Plan
from ..fl.protection import Protection
from ..fl.replay import (
    DrawHalf,
    FixedGradients,
    Recording,
    unequal_stream,
)
from ..fl.task import Task
from .event_odds import EventOdds, SideArrays
from .extreme import extreme_checks
from .messages import MessageComparison
from .neighbours import (
    BRIEF,
    FEW,
    LENGTHS,
    PLANTED,
    Inputs,
    ReplaySetup,
    RunPair,
    canary_rows,
    distance,
    other_data,
    other_labels,
    pairs_of,
    replay_setup,
    sampled_pairs,
    steeper,
)
from .noise_law import LawOfDraws, draw_checks, other_data_check
from .noise_sample import NUMBERS, NoiseSample, equal_states, noise_sample, runs_needed, same_state, spacing
from .noise_structure import Move, bare_checks, freshness_checks, noise_checks, structure_checks
from .setup import SeenLaws

_STEEPEST = 1e6
"""Factor of the real gradients where all of them change at once: no federation of the checks has so many samples."""


def check_claim(
    task: Task,
    plan: Plan,
    protection: Protection,
    claim: Claim,
    *,
    seed: int = 0,
    seen: SeenLaws | None = None,
) -> tuple[CheckResult, ...]:
    """Return the results of ``replay_checks``; ``seen``: laws estimated from runs of hooks, if none is published."""
    return replay_checks(replay_setup(task, plan, protection, claim, seed=seed, seen=seen))


def replay_checks(setup: ReplaySetup) -> tuple[CheckResult, ...]:
    """Run every implementation check that applies to the claim, in some thirty runs of the federation, most of them
    brief.

    Sensitivity and noise scale are compared with the published law, in the rounds that share the first one's public
    state; a claim without a Gaussian law gets the other checks. Everything else that the claim's observer receives is
    compared between runs that differ by a unit.
    """
    message, moves, moved, unequal = _message(setup), list[CheckResult](), list[Move](), dict[str, str]()
    reason, constant = "", {*range(setup.rounds)}
    sampled = setup.sampled
    odds, side = EventOdds(setup=sampled), SideArrays(setup=sampled)
    for pair in chain(pairs_of(setup), sampled_pairs(sampled, message.missing)):
        message.add(pair)
        odds.add(pair)
        side.add(pair)
        constant -= _moved_rounds(pair)
        reason = reason or _add_moves(setup, pair, moves, unequal)
        moved += _moved(setup, pair)
    moves += moves_of_all(setup)
    found = (
        setup.seen.named(_sensitivity(setup, moves, reason, unequal)),
        *_noise(setup, setup.draws, moved, constant),
        *message.results(),
    )
    return (*found, *odds.results(), *side.results(), *extreme_checks(setup))


def _message(setup: ReplaySetup) -> MessageComparison:
    """The comparison of everything that the observer receives, with what it leaves out."""
    claim, plan = setup.claim, setup.plan
    covered = setup.protection.law(claim.observer, plan, setup.holder) is not None
    message = MessageComparison(setup=setup, covered=covered)
    if not changes_broadcast(setup.protection):
        message.missing["broadcast model"] = "the defense does not change it, so it follows from the aggregates"
    if claim.unit not in HELD_BY_CLIENTS and setup.unaccepted:
        message.missing["an additional client"] = (
            f"the defense does not run with an additional client ({setup.unaccepted})"
        )
    if setup.adds_to_sum and setup.brings_noise:
        message.missing["whether a client takes part"] = "a client that is absent also adds no noise"
    if setup.rounds < claim.rounds:
        message.missing[f"rounds after round {setup.rounds - 1}"] = "the model is too large to run all rounds"
    if len(setup.checked_clients) < plan.clients:
        message.missing[f"{plan.clients - len(setup.checked_clients)} of {plan.clients} clients"] = (
            "no canary was inserted at these clients"
        )
    return message


def _noise(
    setup: ReplaySetup, draws: Sequence[Recording], moved: Sequence[Move], constant: Collection[int]
) -> list[CheckResult]:
    sees_models = setup.claim.observer.rank < AGGREGATE.rank
    if sees_models and changes_broadcast(setup.protection):
        reason = (
            "noise may be added to the model that is broadcast, which another check compares with the whole message"
        )
        return [PRESENT.skipped(reason)]
    senders = draws[0].senders
    if senders is None:
        senders = (setup.holder,)
    laws = [law for law in map(setup.law, senders) if law is not None]
    law = LawOfDraws(laws=laws, layers=setup.plan.layout.slices) if len(laws) == len(senders) else None
    rounded = max((spacing(row.numpy()) for row in draws[0].releases[0]), default=0.0) > 0
    check = partial(
        noise_checks,
        laws=laws if law else None,
        layers=setup.plan.layout.slices,
        drawn=setup.drawn,
        rounded=rounded,
        reason=setup.no_law,
        constant=constant,
    )
    found, repeated = check(draws), set[int]()
    if any(one.name == BETWEEN_ROUNDS and one.passed is False for one in found):
        repeated = _repeated_rounds(setup)
        found = check([_without(draw, repeated) for draw in draws]) if repeated else found
    # Reports that are drawn from a law of their own have no noise that could be told from the rest.
    if setup.drawn:
        return found
    draw = partial(noise_sample, protection=setup.protection, observer=setup.claim.observer, seed=setup.seed)
    dim, rows = setup.plan.layout.dim, len(senders)
    rounds = max(1, min(setup.rounds, NUMBERS // (6 * rows * dim)))
    try:
        sample = draw(setup.still, runs=runs_needed(dim, rows, rounds), rounds=rounds)
    except Exception as error:  # A user's own defense may raise anything, and other checks still apply.
        reason = f"the defense cannot make several runs in one batch: {type(error).__name__}: {error}"
        return [*(one for one in found if one.name != SCALE), SCALE.skipped(reason)]
    return [*_over_many_runs(found, sample, repeated), *_sampled(setup, draw, sample, law, moved)]


def _over_many_runs(
    found: Sequence[CheckResult], sample: NoiseSample, repeated: Collection[int]
) -> Iterator[CheckResult]:
    """The results, in which shared noise must persist over all runs of a sample: one draw shows its direction alone."""
    present = sample.present.T.copy()
    present[[turn for turn in repeated if turn < len(present)]] = False
    # (rounds, rows, numbers of all runs)
    noise = torch.from_numpy(sample.paired.transpose(2, 1, 0, 3).reshape(*present.shape, -1))
    again = {one.name: one for one in freshness_checks(noise, torch.from_numpy(present), sample.senders)}
    for one in found:
        yield again.get(one.name, one) if one.passed is False else one


def _sampled(
    setup: ReplaySetup,
    draw: Callable[..., NoiseSample],
    sample: NoiseSample,
    law: LawOfDraws | None,
    moved: Sequence[Move],
) -> Iterator[CheckResult]:
    """The checks of noise that need many runs; ``draw`` makes a sample."""
    still, (_, rows, rounds, _) = setup.still, sample.values.shape
    one, other = setup.draws[:2]
    noisy = any(bool((a != b).any()) for a, b in zip(one.releases, other.releases, strict=True))
    if noisy and bool((sample.values == sample.values[:1]).all()):
        reason = "the runs of one batch share their noise, which is drawn once for all of them"
        yield SCALE.skipped(reason)
        return
    if law is not None:
        yield from map(setup.seen.named, draw_checks(sample, law, setup.claim))
        few, brief = 8 if rows >= FEW else 16, min(BRIEF, rounds)
        others = enumerate(other_data(still), start=1)
        samples = {words: draw(other, runs=few, rounds=brief, number=n) for n, (words, other) in others}
        yield setup.seen.named(other_data_check(samples, law, sample.silent))
    yield from structure_checks(sample, moved, setup.claim)
    if (law is None or setup.seen) and setup.claim.unit in PLANTED:
        yield from bare_checks(sample, setup.claim, partial(_sample_with_unit, setup, draw, sample))


def _sample_with_unit(
    setup: ReplaySetup, draw: Callable[..., NoiseSample], sample: NoiseSample, row: int
) -> NoiseSample | None:
    """The sample with a unit's row along all weights in each run, at the client of a row or in a sum; None where it
    cannot be made.
    """
    direction, _, _ = list(canary_rows(setup))[2]
    client = setup.checked_clients[0] if sample.senders is None else sample.senders[row]
    of_sample, length = setup.claim.unit is Unit.SAMPLE, setup.length * LENGTHS[0]
    where = {"client": client} if of_sample else {"place": client}
    canary = Canary(unit=setup.claim.unit, present=length * direction, absent=None, **where)
    try:
        return draw(setup.still, runs=sample.runs, rounds=sample.values.shape[2], canary=canary)
    except Exception:  # A user's own defense may raise anything with other rows.
        return None


def _repeated_rounds(setup: ReplaySetup) -> set[int]:
    """Rounds that send an earlier release once more, bit for bit, although the clients' data changed in between."""
    plan = setup.plan
    changing = replace(setup, plan=replace(plan, lot=DrawHalf(plan.lot)))
    runs = [changing.run(noise=number).releases for number in range(2)]
    return {
        turn
        for turn in range(1, len(runs[0]))
        if any(all(torch.equal(run[turn], run[earlier]) for run in runs) for earlier in range(turn))
    }


def _without(draw: Recording, rounds: set[int]) -> Recording:
    """The recording, in which nothing was sent in some rounds."""
    there = [torch.zeros_like(row) if turn in rounds else row for turn, row in enumerate(draw.present)]
    return replace(draw, present=there)


def _moved(setup: ReplaySetup, pair: RunPair) -> Iterator[Move]:
    """How far the pair's row moved each row of the first and the last round that both runs have.

    A round whose public state follows from noised releases that the row moved shows nothing: noise of another size does
    not cancel.
    """
    law = setup.law(pair.sender)
    if (law is not None and not law.additive) or pair.before.senders != pair.after.senders:
        return
    rounds = min(len(pair.before.releases), len(pair.after.releases))
    for turn in sorted({0, rounds - 1}):
        if not equal_states(pair.before.states[turn], pair.after.states[turn]):
            continue
        delta = (pair.after.releases[turn] - pair.before.releases[turn]).numpy() / pair.rows
        for row in np.flatnonzero(np.abs(delta).max(axis=1) > 0):
            yield Move(delta[row], f"{pair.witness}, round {turn}", turn, pair)


def _moved_rounds(pair: RunPair) -> set[int]:
    """Rounds in which the pair's unit moved anything that was released."""
    runs = zip(pair.before.releases, pair.after.releases, strict=False)
    return {turn for turn, (one, other) in enumerate(runs) if one.shape != other.shape or bool((one != other).any())}


def _add_moves(setup: ReplaySetup, pair: RunPair, found: list[CheckResult], unequal: dict[str, str]) -> str:
    """Add how far the pair's row moves each release, relative to what the law allows; return why it cannot be compared,
    if so.

    ``unequal``: gets the reason, by the words of a pair, where its two runs did not draw equally much.
    """
    law = setup.law(pair.sender)
    if law is None:
        return setup.no_law
    if not law.additive:
        return "the noise depends on the data, so that it does not cancel between runs with equal random draws"
    allowed = pair.rows * abs(law.scale) * law.clip_norm * law.steps
    # A brief run is the beginning of a full one.
    for number, (before, after) in enumerate(zip(pair.before.releases, pair.after.releases, strict=False)):
        # The law is published for the first round's public state; in another state its clip norm may differ.
        if not (same_state(pair.before, number) and same_state(pair.after, number)):
            continue
        # Without the client a hook may draw fewer numbers, and so another cohort of the others.
        if not _same_others(pair, number):
            continue
        move = _move(before, after, allowed, f"{pair.witness}, round {number}")
        # Noise that differs in the two runs looks like a move; within the limit there was none.
        stream = move.passed is False and unequal_stream(pair.before.consumed, pair.after.consumed, number)
        if stream:
            unequal[move.witness] = (
                f"with the unit, the defense makes another number of draws from the random stream {stream}"
            )
        else:
            found.append(replace(move, proposal=pair.proposal) if move.passed is False else move)
    return ""


def _same_others(pair: RunPair, number: int) -> bool:
    """Whether the same clients other than the pair's took part in a round of both runs."""
    one, other = (run.took_part[number] - {pair.sender} for run in (pair.before, pair.after))
    return one == other


def _move(before: Tensor, after: Tensor, allowed: float, witness: str) -> CheckResult:
    """How far a release ``(rows, d)`` moved."""
    moved, slack = distance(before, after, allowed)
    return SENSITIVITY.at_most(moved, allowed, unit="L2 norm", witness=witness, slack=slack)


def moves_of_all(setup: ReplaySetup) -> Iterator[CheckResult]:
    """Check how far each release changes if all vectors of all clients change at once, to vectors so long that a single
    unclipped one would outweigh all others. The limit is the sensitivity times the number of units.
    """
    task, plan, network = setup.task, setup.plan, setup.task.network
    if setup.claim.unit not in PLANTED or not isinstance(network, FixedGradients) or network.mixes:
        return
    units = plan.sizes if setup.claim.unit is Unit.SAMPLE else (1,) * plan.clients
    laws = [law for law in map(setup.law, range(plan.clients)) if law is not None and law.additive]
    if len(laws) < plan.clients:
        return
    allowed = [2 * n * abs(law.scale) * law.clip_norm * law.steps for n, law in zip(units, laws, strict=True)]
    steep = steeper(task, _STEEPEST)
    other = other_labels(steep, torch.arange(len(task.labels)))
    before, after = (setup.run(Inputs(task=held), rounds=1) for held in (steep, other))
    if before.senders != after.senders or unequal_stream(before.consumed, after.consumed, 0):
        return
    words = f"another label for all samples, with gradients {_STEEPEST:g} times as long,"
    for row, sender in enumerate(before.senders or [None]):
        limit, rows = sum(allowed) if sender is None else allowed[sender], slice(row, row + 1)
        where = f"{words} {'all clients' if sender is None else f'client {sender}'}, round 0"
        yield _move(before.releases[0][rows], after.releases[0][rows], limit, where)


def _sensitivity(
    setup: ReplaySetup, found: Sequence[CheckResult], reason: str, unequal: Mapping[str, str]
) -> CheckResult:
    """The largest move of a release by one row, relative to what the law allows; ``unequal``: moves that no equal draws
    show, with the reason.
    """
    if unequal and not found:
        reason = reason or f"noise differs between runs with equal random draws: {next(iter(unequal.values()))}"
    if reason:
        return SENSITIVITY.skipped(reason)
    if not found:
        if setup.claim.unit is Unit.USER and setup.several_reports:
            reason = "no published distribution covers the reports of several clients that hold samples of one user"
            return SENSITIVITY.skipped(reason)
        reason = f"no canary for one {setup.claim.unit} under {setup.claim.adjacency.phrase} adjacency is possible"
        return SENSITIVITY.skipped(reason)
    # Rounded: the last digit must not decide which of several equal moves is named.
    most = max(found, key=lambda result: round((result.measured or 0.0) / (result.allowed or 1.0), 4))
    return replace(most, not_compared=tuple(f"{name}: {one}" for one, name in _by_reason(unequal).items()))


def _by_reason(unequal: Mapping[str, str]) -> dict[str, str]:
    """The first of all moves for each reason, with the number of others."""
    found: dict[str, list[str]] = {}
    for words, reason in unequal.items():
        found.setdefault(reason, []).append(words)
    return {
        reason: words[0] + (f" and {len(words) - 1} more" if len(words) > 1 else "") for reason, words in found.items()
    }


_OWN = "the claim's own model "
_OWN_ROUNDS = 2
"""Rounds that are run; the state of the second one shows what the first one left."""


def with_own_model(
    checks: Sequence[CheckResult], task: Task, plan: Plan, protection: Protection, claim: Claim, *, seed: int = 0
) -> tuple[CheckResult, ...]:
    """Return the results of the replay checks. If a check fails on the claim's own model, or can be made only there,
    the result on that model is returned.

    Args:
        checks: results on the model of the audit.
        task, plan: a few clients with the claim's own model.
        protection, claim: as prepared and stated for this plan.
    """
    words = f"{_OWN}{task.network.model}, {_OWN_ROUNDS} rounds"
    brief = replace(claim, rounds=min(_OWN_ROUNDS, claim.rounds))
    try:
        found = {one.name: one for one in check_claim(task, plan, protection, brief, seed=seed)}
    except Exception as error:  # A user's own model or hook may raise anything, and the other results stand.
        reason = f"{words}: the checks could not be run on it ({type(error).__name__}: {error})"
        return (replace(checks[0], not_compared=(*checks[0].not_compared, reason)), *checks[1:])
    return tuple(_together(one, found.get(one.name), words) for one in checks)


def on_own_model(checks: Sequence[CheckResult]) -> bool:
    """Return whether any of the results comes from runs of the claim's own model."""
    return any(words.startswith(_OWN) for one in checks for words in one.compared)


def _together(one: CheckResult, other: CheckResult | None, words: str) -> CheckResult:
    if other is None or other.passed is None or one.passed is False:
        return one
    if other.passed is False or one.passed is None:
        witness = f"{words}: {other.witness}"
        one = replace(other, witness=witness, compared=one.compared, not_compared=one.not_compared)
    return replace(one, compared=(*one.compared, words))
