"""Whole messages: what is sent raw beside the update is found in every channel, and the same with noise is not."""

import math
import struct
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from fedassay.audit.check import EXTREME, MESSAGE, PUBLIC_STATE
from fedassay.audit.observer import FINAL_MODEL, Observer
from fedassay.checks.neighbours import replay_setup
from fedassay.checks.replay import check_claim
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGD, DPSGDProtection
from fedassay.defenses.shuffling.budgeted import shuffle_coordinates
from fedassay.fl.laws import clip
from fedassay.fl.streams import normal
from open_defenses import WithoutLaw, prepared_as
from thinned import every
from toy_federation import toy_plan, toy_task

ROUNDS = 5


@pytest.fixture(scope="module")
def task():
    return toy_task((4, 7, 5), side=4, inert=1)


@pytest.fixture(scope="module")
def checked(task):
    """(defense, class of its protection, changes of the claim) -> results by name."""

    def check(part, kind=None, *, fields=None, seed=0, **changes):
        plan = toy_plan(task, rounds=ROUNDS)
        protection, claim = prepared_as(part, plan, kind, **(fields or {}))
        claim = replace(claim, **changes)
        return {one.name: one for one in check_claim(task, plan, protection, claim, seed=seed)}

    return check


def failed(found):
    names = {name for name, one in found.items() if one.passed is False}
    # What sends a raw number sends an extreme one too.
    return names - {EXTREME} if names & {MESSAGE, PUBLIC_STATE} else names


@dataclass(frozen=True, kw_only=True)
class Sends(LDPGaussianProtection):
    """Sends one weight of the update in another channel too: as it is, or with noise."""

    raw: bool

    def secret(self, updates, rng):
        if self.raw:
            return updates.values[..., -1]
        rows = clip(updates.values, self.clip_norm)[..., -1]
        return rows + self.noise_std * normal(rng, tuple(rows.shape))

    def report(self, updates, context, state, rng):
        return self.put(super().report(updates, context, state, rng), self.secret(updates, rng))


@dataclass(frozen=True, kw_only=True)
class InASide(Sends):
    def put(self, reports, secret):
        return replace(reports, side={"norm": secret})


@dataclass(frozen=True, kw_only=True)
class InTheShape(Sends):
    def put(self, reports, secret):
        return replace(reports, side={"pad": torch.zeros(*reports.present.shape, 1 + int(secret.sum() > 0))})


@dataclass(frozen=True, kw_only=True)
class InTheType(Sends):
    def put(self, reports, secret):
        return replace(reports, values=reports.values.double() if secret.sum() > 0 else reports.values)

    def aggregate(self, received, context, state, rng):
        return super().aggregate(replace(received, values=received.values.float()), context, state, rng)


@dataclass(frozen=True, kw_only=True)
class ByAbsence(Sends):
    def put(self, reports, secret):
        stays = reports.present & ~((secret > 0) & (torch.arange(secret.shape[1]) == secret.shape[1] - 1))
        return replace(reports, present=stays).with_values(reports.values)


@dataclass(frozen=True, kw_only=True)
class ByOrder(Sends):
    def put(self, reports, secret):
        if not secret.sum() > 0:
            return reports
        turned = reports.senders[::-1]
        return replace(reports, values=reports.values.flip(1), present=reports.present.flip(1), senders=turned)


@dataclass(frozen=True, kw_only=True)
class InAnArraysName(Sends):
    def put(self, reports, secret):
        return replace(reports, side={f"pad {int(secret.sum() > 0)}": torch.zeros(reports.present.shape)})


@dataclass(frozen=True, kw_only=True)
class InTheWordSize(Sends):
    def put(self, reports, secret):
        return replace(reports, word_bits=32 if secret.sum() > 0 else 16)


@dataclass(frozen=True, kw_only=True)
class InThePrecision(Sends):
    """Half precision if a bit of the update says so."""

    def put(self, reports, secret):
        halved = reports.values.half().float()
        return reports.with_values(torch.where((secret > 0).unsqueeze(-1), halved, reports.values))


LOCAL = [InASide, InTheShape, InTheType, ByAbsence, ByOrder, InAnArraysName, InTheWordSize, InThePrecision]


@pytest.mark.simulations
@pytest.mark.parametrize("kind", every(2, LOCAL))
def test_what_a_client_sends_raw_beside_its_report_is_found_and_the_same_with_noise_is_not(kind, checked):
    found = checked(LDPGaussian(), kind, fields={"raw": True})
    assert MESSAGE in failed(found)
    assert "report" in found[MESSAGE].witness
    assert "round 0" in found[MESSAGE].witness
    assert "one unit's vector of 10 clip norms along an unused weight and its opposite" in found[MESSAGE].witness
    correct = checked(LDPGaussian(), kind, fields={"raw": False})
    assert MESSAGE not in failed(correct), correct[MESSAGE].words


@dataclass(frozen=True, kw_only=True)
class WithLittleNoise(LDPGaussianProtection):
    """Sends one weight of the update in a side array, with noise of this deviation."""

    little: float

    def report(self, updates, context, state, rng):
        secret = updates.values[..., -1]
        noise = self.little * normal(rng, tuple(secret.shape))
        return replace(super().report(updates, context, state, rng), side={"norm": secret + noise})


@pytest.mark.parametrize(("little", "found"), [(1e-4, True), (30.0, False)])
def test_noise_hides_a_number_that_a_unit_moves_less_than_a_thousand_times_as_far(little, found, checked):
    """A row of 10,000 clip norms along all weights and its opposite move the number by 3,206."""
    results = checked(LDPGaussian(), WithLittleNoise, fields={"little": little})
    assert (MESSAGE in failed(results)) == found, results[MESSAGE].words


@dataclass(frozen=True, kw_only=True)
class Publishes(DPFedAvgProtection):
    """Writes one weight of the sum into the public state: as it is, or as it was released with noise."""

    raw: bool
    kept: list = field(default_factory=list)

    def initial_state(self, plan):
        return self.told(torch.zeros(1), 0)

    def aggregate(self, received, context, state, rng):
        released = super().aggregate(received, context, state, rng)
        self.kept[:] = [received.values.sum(1)[:, -1] if self.raw else released[:, -1]]
        return released

    def close_round(self, aggregate, context, state):
        return self.told(self.kept[0], context.round + 1)


STATES = {
    "a number": lambda secret, turn: {"norm": float(secret)},
    "an array": lambda secret, turn: {"norm": secret.clone()},
    "one of many numbers": lambda secret, turn: {"norms": torch.cat([torch.arange(40.0), secret])},
    "text": lambda secret, turn: {"log": f"round {turn}: norm {float(secret):.4f}, all is well"},
    "a word": lambda secret, turn: {"log": "long" if secret > 0 else "short"},
    "bytes": lambda secret, turn: {"log": struct.pack("<if", turn, float(secret))},
    "a key": lambda secret, turn: {f"norm {float(secret):.4f}": turn},
    "the key order": lambda secret, turn: dict(sorted({"a": 1, "b": 2}.items(), reverse=bool(secret > 0))),
    "a boolean": lambda secret, turn: {"long": bool(secret > 0)},
    "none": lambda secret, turn: {"long": None if secret > 0 else 0},
    "nesting": lambda secret, turn: {"log": [[turn], {"deep": ({"er": (1, float(secret))},)}]},
    "a length": lambda secret, turn: {"log": [0] * (3 + int(secret > 0))},
    "a fraction": lambda secret, turn: {"norm": Fraction(float(secret))},
    "not a number": lambda secret, turn: {"norm": math.nan if secret > 0 else 1.0},
    "infinity": lambda secret, turn: {"norm": torch.tensor([1.0, math.inf if secret > 0 else 1.0])},
    "digits of doubles": lambda secret, turn: {"norm": 1.0 + 1e-9 * math.atan(float(secret))},
    "complex": lambda secret, turn: {"norm": complex(0, float(secret))},
}


@pytest.mark.simulations
@pytest.mark.parametrize("where", every(3, STATES))
def test_what_the_public_state_tells_raw_is_found_and_what_was_released_is_not(where, checked):
    @dataclass(frozen=True, kw_only=True)
    class Kind(Publishes):
        def told(self, secret, turn):
            return STATES[where](secret, turn)

    found = checked(DPFedAvg(), Kind, fields={"raw": True})
    assert failed(found) == {PUBLIC_STATE}
    assert "public state" in found[PUBLIC_STATE].witness
    assert "round 1" in found[PUBLIC_STATE].witness
    correct = checked(DPFedAvg(), Kind, fields={"raw": False})
    assert failed(correct) == set(), correct[PUBLIC_STATE].words


@dataclass(frozen=True, kw_only=True)
class Plots(DPFedAvgProtection):
    """Plots a number that is not in the state."""

    raw: bool
    kept: list = field(default_factory=lambda: [0.0])

    def aggregate(self, received, context, state, rng):
        released = super().aggregate(received, context, state, rng)
        self.kept[:] = [float(received.values.sum()) if self.raw else float(released.sum())]
        return released

    def numbers(self, plan, state):
        return {"total": self.kept[0]}


@dataclass(frozen=True, kw_only=True)
class Broadcasts(WithoutLaw, DPFedAvgProtection):
    """The server sends the sum as it is; all noise is on the broadcast model."""

    raw: bool

    def aggregate(self, received, context, state, rng):
        return received.values.sum(1) / context.plan.expected_cohort

    def broadcast(self, model, context, state, rng):
        return model if self.raw else model + self.noise_multiplier * self.clip_norm * normal(rng, tuple(model.shape))


@dataclass(frozen=True, kw_only=True)
class OneWeightRaw(WithoutLaw, DPFedAvgProtection):
    """Without a law, one weight of the aggregate has no noise."""

    raw: bool

    def aggregate(self, received, context, state, rng):
        released = super().aggregate(received, context, state, rng)
        if self.raw:
            released[:, -1] = received.values.sum(1)[:, -1]
        return released


@dataclass(frozen=True, kw_only=True)
class RawSupport(WithoutLaw, DPFedAvgProtection):
    """Only some weights get noise and are sent, by their values with or without noise."""

    raw: bool

    def aggregate(self, received, context, state, rng):
        exact, released = received.values.sum(1), super().aggregate(received, context, state, rng)
        by = (exact if self.raw else released).abs()
        return released * (by >= by.topk(10, dim=1).values[:, -1:])


@pytest.mark.simulations
@pytest.mark.parametrize(
    ("kind", "name"),
    [(Plots, PUBLIC_STATE), (Broadcasts, MESSAGE), (OneWeightRaw, MESSAGE), (RawSupport, MESSAGE)],
)
def test_other_ways_of_a_server_are_found_and_their_correct_versions_are_not(kind, name, checked):
    assert name in failed(checked(DPFedAvg(), kind, fields={"raw": True}))
    correct = checked(DPFedAvg(), kind, fields={"raw": False})
    assert failed(correct) == set(), correct[name].words


@dataclass(frozen=True, kw_only=True)
class Shuffles(WithoutLaw, InASide):
    """A shuffler hides who sent the raw number, not the number."""

    def channel(self, reports, context, state, rng):
        return shuffle_coordinates(reports, rng)


@pytest.mark.simulations
def test_a_raw_number_behind_a_shuffler_is_found(checked):
    seen = {"observer": Observer("shuffled")}
    found = checked(LDPGaussian(), Shuffles, fields={"raw": True}, **seen)
    assert failed(found) == {MESSAGE}
    assert "arrived report array norm" in found[MESSAGE].witness
    assert failed(checked(LDPGaussian(), Shuffles, fields={"raw": False}, **seen)) == set()


@pytest.mark.simulations
def test_a_weaker_observer_is_not_told_what_it_does_not_receive(checked):
    """Who sees models only does not see side arrays, and who sees the last model only sees no state."""

    @dataclass(frozen=True, kw_only=True)
    class Kind(Publishes):
        def report(self, updates, context, state, rng):
            return replace(super().report(updates, context, state, rng), side={"raw": updates.values[..., -1]})

        def told(self, secret, turn):
            return {"norm": float(secret)}

    assert failed(checked(DPFedAvg(), Kind, fields={"raw": False})) == set()
    assert failed(checked(DPFedAvg(), Kind, fields={"raw": True}, observer=FINAL_MODEL)) == set()


@dataclass(frozen=True, kw_only=True)
class Honest(DPFedAvgProtection):
    """Everything in the state is public, released or of the round alone."""

    def initial_state(self, plan):
        huge = torch.arange(100_000.0)
        loop = []
        loop.append(loop)
        return {
            "turn": 0,
            "log": "round 0 of 5",
            "empty": {},
            "nothing": [],
            "bad": math.nan,
            "worse": torch.tensor([math.inf, -math.inf, math.nan]),
            "huge": huge,
            "sizes": plan.sizes,
            "seed": np.random.default_rng(1),
            "momentum": torch.zeros(1, plan.layout.dim),
            "filter": ("spent", None, {"left": {1, 2}}, b"\x00\xff", 2**70, Fraction(1, 3), 1e308, True),
            "loop": loop,
            "object": object(),
            "stopped": False,
            "coarse": 0,
            3: "a key that is a number",
        }

    def close_round(self, aggregate, context, state):
        momentum = 0.9 * state["momentum"] + aggregate
        norm = float(momentum.norm())
        return {
            **state,
            "turn": context.round + 1,
            "log": f"round {context.round + 1} of 5, released norm {norm:.3f}",
            "momentum": momentum,
            "stopped": norm > 2.0,
            "coarse": round(norm),
        }

    def participates(self, context, state, rng):
        # A filter that stops by what was released.
        return torch.full((context.replicas, len(context.senders)), not state["stopped"])

    def numbers(self, plan, state):
        raise RuntimeError("no numbers")


@pytest.mark.simulations
@pytest.mark.parametrize("seed", range(3))
def test_an_honest_state_of_any_kind_is_kept_and_what_was_not_compared_is_said(seed, checked):
    found = checked(DPFedAvg(), Honest, seed=seed)
    assert failed(found) == set(), found[PUBLIC_STATE].words
    state = found[PUBLIC_STATE]
    assert {"public state.momentum", "public state.turn", "public state.huge"} <= {*state.compared}
    assert {one.split(": ")[-1] for one in state.not_compared} == {
        "contains itself",
        "an object of type object",
        "the hook numbers raised RuntimeError",
    }


@dataclass(frozen=True, kw_only=True)
class Coin(LDPGaussianProtection):
    """One honest bit per report and round, at the budget of the round, sent beside the report."""

    budget: float

    def report(self, updates, context, state, rng):
        reports = super().report(updates, context, state, rng)
        truth = updates.values[..., -1] > 0
        lies = torch.from_numpy(rng.random(tuple(truth.shape)) < 1 / (1 + math.exp(self.budget)))
        return replace(reports, side={"bit": truth ^ lies})


@pytest.mark.parametrize("budget", [0.2, 4.0, *(pytest.param(b, marks=pytest.mark.simulations) for b in (0.8, 2.0))])
def test_a_bit_that_randomised_response_paid_for_is_no_finding(budget, checked):
    """At epsilon 4 a bit is turned in 2 % of all reports: a few runs show none turned, and that is no finding."""
    for seed in range(2):
        found = checked(LDPGaussian(), Coin, fields={"budget": budget}, seed=seed, epsilon=budget * ROUNDS)
        assert MESSAGE not in failed(found), found[MESSAGE].words


@dataclass(frozen=True, kw_only=True)
class Grid(WithoutLaw, DPFedAvgProtection):
    """Rounds what it released to a grid, without a law."""

    step: float

    def aggregate(self, received, context, state, rng):
        released = super().aggregate(received, context, state, rng)
        return (released / self.step).round() * self.step


@pytest.mark.simulations
@pytest.mark.parametrize("step", [0.1, 0.5, 2.0, 2.0**-6, 5.0])
def test_rounding_after_the_noise_is_no_finding(step, checked):
    assert MESSAGE not in failed(checked(DPFedAvg(), Grid, fields={"step": step}))


@dataclass(frozen=True, kw_only=True)
class TwoCoins(WithoutLaw, LDPGaussianProtection):
    """Two coins per report, and their mean, of which too few numbers come to know that they are coarse."""

    def report(self, updates, context, state, rng):
        right = torch.from_numpy(rng.random(tuple(updates.values.shape)) < 1 / (1 + math.exp(-2)))
        signs = torch.where(updates.values >= 0, 1.0, -1.0)
        bits = torch.where(right, signs, -signs)
        bits[..., 2:] = 0
        return updates.with_values(bits)


@pytest.mark.simulations
def test_a_mean_of_few_coins_is_no_finding():
    task = toy_task((4, 4), inert=1)
    plan = toy_plan(task, rounds=2)
    prepared = LDPGaussian().prepare(plan)
    claim = replace(prepared.claims[0], epsilon=8.0)
    for seed in range(10):
        found = check_claim(task, plan, TwoCoins(**vars(prepared.protection)), claim, seed=seed)
        assert MESSAGE not in {one.name for one in found if one.passed is False}, [one.words for one in found]


def test_every_client_is_checked_at_its_own_size_and_of_many_the_largest_and_the_smallest_first():
    for sizes, count in (((3, 9, 2, 5, 4, 8), 6), (tuple(range(2, 42)), 16)):
        task = toy_task(sizes)
        plan = toy_plan(task)
        prepared = DPSGD().prepare(plan)
        chosen = replay_setup(task, plan, prepared.protection, prepared.claims[0]).checked_clients
        assert len(chosen) == len({*chosen}) == count
        assert [sizes[client] for client in chosen[:2]] == [max(sizes), min(sizes)]


@pytest.mark.simulations
def test_a_leak_at_the_sixth_client_alone_is_found():
    """Only the first four clients were checked before."""

    @dataclass(frozen=True, kw_only=True)
    class Sixth(DPSGDProtection):
        def local_query(self, gradients, present, client, context, state, rng):
            norms = torch.linalg.vector_norm(gradients, dim=-1)
            return (norms * present * (client == 5)).sum(1, keepdim=True)

    task = toy_task((3, 9, 2, 5, 4, 8), inert=1)
    plan = toy_plan(task)
    prepared = DPSGD().prepare(plan)
    broken = Sixth(**vars(prepared.protection))
    found = {one.name: one for one in check_claim(task, plan, broken, prepared.claims[0])}
    assert failed(found) == {MESSAGE}
    assert "of client 5, round 0" in found[MESSAGE].witness


def test_the_results_name_the_channels_and_what_was_left_out(checked):
    found = checked(LDPGaussian())[MESSAGE]
    assert {"report values of client #", "report: senders", "report: form", "aggregate"} <= {*found.compared}
    assert found.not_compared == ("broadcast model: the defense does not change it, so it follows from the aggregates",)
    assert found.measured == found.allowed == 0
    assert "not compared: broadcast model" in found.words


@dataclass(frozen=True, kw_only=True)
class FlagOfClipping(Sends):
    """Whether the update, or the noised report, was longer than the clip norm."""

    def report(self, updates, context, state, rng):
        sent = LDPGaussianProtection.report(self, updates, context, state, rng)
        rows = updates.values if self.raw else sent.values
        return replace(sent, side={"was_clipped": torch.linalg.vector_norm(rows, dim=-1) > self.clip_norm})


@pytest.mark.simulations
@pytest.mark.parametrize("epsilon", [4.0, 20.0])
def test_a_bit_without_noise_is_repeated_until_noise_would_have_shown(epsilon, checked):
    assert MESSAGE in failed(checked(LDPGaussian(), FlagOfClipping, fields={"raw": True}, epsilon=epsilon))
    assert not failed(checked(LDPGaussian(), FlagOfClipping, fields={"raw": False}, epsilon=epsilon)) & {MESSAGE}


def test_a_bit_that_a_huge_budget_would_leave_as_it_is_is_no_finding_and_not_compared(checked):
    found = checked(LDPGaussian(), FlagOfClipping, fields={"raw": True}, epsilon=200.0)[MESSAGE]
    assert found.passed
    assert any("takes few different values" in one for one in found.not_compared)


@dataclass(frozen=True, kw_only=True)
class CoinsAndALastBit(FlagOfClipping):
    """Each report has a paid coin, and the last client sends a raw bit too."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        last = torch.arange(updates.values.shape[1]) == updates.values.shape[1] - 1
        up = torch.from_numpy(rng.random(tuple(updates.present.shape))) < 1 / (1 + math.exp(-0.8))
        coin = up == (updates.values[..., -1] > 0)
        return replace(sent, side={"coin": coin, "flag": (updates.values[..., -1] > 0) & last})


@pytest.mark.simulations
def test_coins_that_are_repeated_often_do_not_hide_a_raw_bit_of_another_array(checked):
    found = checked(LDPGaussian(), CoinsAndALastBit, fields={"raw": True})[MESSAGE]
    assert found.passed is False
    assert "array flag" in found.witness


@dataclass(frozen=True, kw_only=True)
class OnAGrid(WithoutLaw, Sends):
    """Reports on a grid, whose numbers are even, but for a bit of the update or a coin."""

    def report(self, updates, context, state, rng):
        sent, step = LDPGaussianProtection.report(self, updates, context, state, rng), self.noise_std / 256
        coins = torch.from_numpy(rng.random(tuple(updates.values.shape))) < 0.5
        odd = updates.values > 0 if self.raw else coins
        return sent.with_values(((sent.values / (2 * step)).round() * 2 + odd) * step)


@pytest.mark.simulations
def test_a_bit_below_the_step_of_the_noise_is_found_and_a_coin_in_its_place_is_not(checked):
    found = checked(LDPGaussian(), OnAGrid, fields={"raw": True})
    assert failed(found) == {MESSAGE}
    assert "all its noise is a multiple of this step" in found[MESSAGE].witness
    assert failed(checked(LDPGaussian(), OnAGrid, fields={"raw": False})) == set()
