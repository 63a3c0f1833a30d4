"""A published law against its claim: known epsilons, planted contradictions with correct twins, special cases."""

import itertools
import math
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from fedassay.audit.check import LAW_CURVE, LAW_EPSILON, SENSITIVITY, Check
from fedassay.audit.claim import AS_PUBLISHED, PROVABLE, Adjacency, Unit
from fedassay.audit.curve import GaussianCurve, epsilon_from_mu
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.checks.law import law_check, law_checks, law_of_all_rounds, with_law_checks
from fedassay.defenses.accounting.gaussian import SampledGaussian
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg
from fedassay.defenses.layers.fedre import FedRE
from fedassay.defenses.layers.uniform_layers import UniformLayers
from fedassay.defenses.local.numbers.ldp_duchi import LDPDuchi
from fedassay.defenses.local.numbers.ldp_fed import LDPFed
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGD
from fedassay.defenses.shuffling.ldp_min import LDPMin
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.laws import GaussianLaw
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Epoch, FixedSize, Full, Poisson
from known_parts import parts_by_name, plan_of_part
from toy_federation import toy_task

DEFENSES = parts_by_name("defense")
TASK = toy_task((5, 4, 6, 5))
COHORTS = {"full": Full(), "poisson": Poisson(0.6), "fixed size": FixedSize(2), "epoch": Epoch(2)}


def plan_for(name="", **changes):
    return plan_of_part(name, TASK, **({"rounds": 4} | changes))


def law_of(prepared, claim, plan, client=0):
    return prepared.protection.law(claim.observer, plan, client)


def checked(prepared, plan, replayed=(), **changes):
    """The results by name; ``changes`` are of the first claim."""
    claim = replace(prepared.claims[0], **changes)
    return {found.name: found for found in law_checks(prepared.protection, claim, plan, replayed)}


def passed(results):
    return {name: found.passed for name, found in results.items()}


# Known answers


def test_a_gaussian_law_implies_the_exact_epsilon():
    plan = plan_for()
    found = checked(LDPGaussian(epsilon=3.0).prepare(plan), plan)
    assert found[LAW_EPSILON].measured == pytest.approx(3.0, rel=1e-6)
    assert passed(found) == {LAW_EPSILON: True, LAW_CURVE: True}


@pytest.mark.parametrize("rate", [0.05, 0.3])
def test_a_sampled_law_implies_little_less_than_the_accountant_states(rate):
    plan = plan_for(rounds=20, cohort=Poisson(rate))
    prepared = DPFedAvg(epsilon=3.0).prepare(plan)
    (claim,) = prepared.claims
    stated = SampledGaussian(sigma=claim.parameters["noise_multiplier"], rate=rate, steps=20).epsilon(claim.delta)
    measured = checked(prepared, plan)[LAW_EPSILON].measured
    assert 0.985 * stated < measured <= stated


def test_several_steps_are_one_release_of_their_sum():
    """The server sees an update and not its steps, so the law implies less than the accountant's steps."""
    plan = plan_for(algorithm=FedAvg(learning_rate=0.2, local_steps=3))
    found = checked(DPSGD(epsilon=4.0).prepare(plan), plan)[LAW_EPSILON]
    assert 3.5 < found.measured < 4.0
    assert found.passed


def test_a_published_formula_implies_what_is_provable():
    """LDP-Fed spends its whole budget on each number; FedRE's equation 9 is no epsilon of two layers."""
    plan = plan_for(rounds=2)
    for part in (LDPFed(variant=AS_PUBLISHED), FedRE(variant=AS_PUBLISHED, scores=(2.0, 1.0), epsilon=20.0)):
        prepared = part.prepare(plan)
        for claim in prepared.claims:
            (first, *_) = law_check(law_of(prepared, claim, plan), claim, plan)
            assert first.measured == pytest.approx(claim.parameters[PROVABLE], rel=1e-3)
            assert first.passed is (claim.parameters[PROVABLE] <= claim.epsilon * 1.01)


# Planted contradictions: each broken form has a correct twin that differs in nothing else


@pytest.mark.parametrize("cohort", ["full", "epoch"])
def test_half_of_the_rounds_accounted(cohort):
    half, whole = (plan_for(rounds=rounds, cohort=COHORTS[cohort]) for rounds in (4, 8))
    prepared = LDPGaussian().prepare(half)
    assert checked(prepared, whole)[LAW_EPSILON].passed
    assert passed(checked(prepared, whole, rounds=8)) == {LAW_EPSILON: False, LAW_CURVE: False}


SAMPLED = {
    "dp_sgd": (DPSGD(), plan_for(rounds=10)),
    "dp_sgd, all samples": (DPSGD(), plan_for(rounds=10, lot=Full())),
    "dp_fedavg": (DPFedAvg(), plan_for(rounds=10, cohort=Poisson(0.2))),
    "ldp_gaussian": (LDPGaussian(), plan_for(rounds=10)),
}
FAULTS = {
    "correct": {},
    "more noise": {"noise_std": 1.3},
    "a tenth less noise": {"noise_std": 0.9},
    "half of the noise": {"noise_std": 0.5},
    "a larger clip norm": {"clip_norm": 1.2},
    "a larger scale": {"scale": 1.25},
    "a larger rate": {"rate": 1.4},
}


@cache
def sampled(name):
    part, plan = SAMPLED[name]
    return part.prepare(plan), plan


@pytest.mark.long
@pytest.mark.parametrize("stated", ["with its curve", "without a curve"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", SAMPLED)
def test_a_law_that_is_not_the_accounted_one(name, fault, stated):
    prepared, plan = sampled(name)
    claim = prepared.claims[0] if stated == "with its curve" else replace(prepared.claims[0], curve=None)
    law = law_of(prepared, claim, plan)
    factors = {field: getattr(law, field) * factor for field, factor in FAULTS[fault].items()}
    if factors.get("rate", 0) > 1:
        pytest.skip("nothing is sampled")
    found = law_check(replace(law, **factors), claim, plan)
    assert all(one.passed is (fault in ("correct", "more noise")) for one in found)


def test_replace_one_accounted_as_add_or_remove():
    plan = plan_for()
    prepared = LDPGaussian().prepare(plan)
    law = law_of(prepared, prepared.claims[0], plan)
    halved = replace(law, noise_std=law.noise_std / 2)
    claim = replace(prepared.claims[0], adjacency=Adjacency.ADD_REMOVE)
    assert law_check(halved, claim, plan)[0].passed
    assert not law_check(halved, prepared.claims[0], plan)[0].passed


def test_steps_left_out():
    plan = plan_for(lot=Full(), algorithm=FedAvg(learning_rate=0.2, local_steps=4))
    prepared = DPSGD().prepare(plan)
    law = law_of(prepared, prepared.claims[0], plan)
    assert law_check(law, prepared.claims[0], plan)[0].passed
    assert not law_check(replace(law, noise_std=law.noise_std / 2), prepared.claims[0], plan)[0].passed


def test_a_layer_left_out_of_the_account():
    plan = plan_for()
    prepared = UniformLayers().prepare(plan)
    joint, weight, bias = prepared.claims
    law = law_of(prepared, joint, plan)
    assert all(found.passed for claim in prepared.claims for found in law_check(law, claim, plan))
    # Noise for the budget of one layer alone, as if the other one were not sent.
    alone = replace(law, noise_stds=(law.noise_stds[0] / math.sqrt(2), law.noise_stds[1]))
    assert [law_check(alone, claim, plan)[0].passed for claim in (joint, weight, bias)] == [False, False, True]


def test_coordinates_and_rounds_left_out_of_a_pure_budget():
    plan = plan_for()
    prepared = LDPDuchi(epsilon=8.0, coordinates=2).prepare(plan)
    (claim,) = prepared.claims
    law = law_of(prepared, claim, plan)
    assert law_check(law, claim, plan)[0].measured == pytest.approx(8.0, rel=1e-6)
    assert law_check(replace(law, coordinates=4), claim, plan)[0].measured == pytest.approx(16.0, rel=1e-6)
    assert not law_check(law, replace(claim, epsilon=2.0), plan)[0].passed


def test_a_local_budget_that_is_too_large_at_a_delta():
    plan = plan_for()
    prepared = LDPMin(noise="laplace").prepare(plan)
    (claim,) = prepared.claims
    law = law_of(prepared, claim, plan)
    assert all(found.passed for found in law_check(law, claim, plan))
    assert [found.passed for found in law_check(replace(law, budget=1.1 * law.budget), claim, plan)] == [False, False]


SENT = [name for name, part in DEFENSES.items() if {"coordinates", "delta"} <= set(part.__dataclass_fields__)]


@pytest.mark.parametrize("name", SENT)
def test_some_of_the_coordinates_are_sent_at_a_delta(name):
    """Of 15 coordinates 2 are sent; twice as many as the account has are a contradiction."""
    plan = plan_for()
    prepared = DEFENSES[name](epsilon=8.0, delta=1e-5, coordinates=2).prepare(plan)
    (claim,) = prepared.claims
    law = law_of(prepared, claim, plan)
    (found,) = law_check(law, claim, plan)
    if name == "ldp_hybrid":
        assert "cannot be integrated" in found.witness
        return
    assert found.passed
    assert found.measured > 5.5
    assert not law_check(replace(law, coordinates=4), claim, plan)[0].passed


def test_a_delta_that_is_ignored():
    plan = plan_for()
    found = checked(LDPGaussian().prepare(plan), plan, delta=0.0, curve=None)[LAW_EPSILON]
    assert (found.passed, found.unit, found.allowed) == (False, "delta", 0.0)


def test_a_law_without_noise():
    plan = plan_for()
    law = GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=0.0)
    found = law_check(law, LDPGaussian().prepare(plan).claims[0], plan)[0]
    assert (found.passed, found.measured) == (False, 1.0)


def test_a_curve_that_promises_more_than_its_epsilon():
    plan = plan_for()
    prepared = LDPGaussian(epsilon=4.0).prepare(plan)
    (claim,) = prepared.claims
    tighter = replace(claim, curve=GaussianCurve(mu=0.7 * claim.curve.mu))
    results = {found.name: found for found in law_check(law_of(prepared, claim, plan), tighter, plan)}
    assert passed(results) == {LAW_EPSILON: True, LAW_CURVE: False}


# Honest cases in which the rounds times the law are not what the claim is about

CONTRADICTED = {"ldp_fed": 80.0}
"""Published forms whose own law contradicts their claim, which is known to be false, with all clients in all of four
rounds; and the epsilon of the law.
"""


def variants(part):
    return [{}, {"variant": AS_PUBLISHED}] if hasattr(part, "variant") else [{}]


def bundled(name, cohort):
    """Every claim of every variant that takes these cohorts, with its results."""
    for fields in variants(DEFENSES[name]):
        plan = plan_for(name, cohort=COHORTS[cohort])
        try:
            prepared = DEFENSES[name](**fields).prepare(plan)
        except ValueError:
            assert cohort in ("fixed size", "epoch")
            continue
        for claim in prepared.claims:
            yield fields, claim, law_checks(prepared.protection, claim, plan)


@pytest.mark.parametrize("name", DEFENSES)
def test_no_bundled_law_contradicts_its_claim(name):
    for fields, _, found in bundled(name, "full"):
        if fields and name in CONTRADICTED:
            assert found[0].measured == pytest.approx(CONTRADICTED[name], rel=1e-6)
            assert found[0].passed is False
        else:
            assert all(one.passed is not False for one in found), [one.words for one in found]
            assert all(one.witness for one in found)


@pytest.mark.simulations
@pytest.mark.parametrize("cohort", ["poisson", "fixed size", "epoch"])
@pytest.mark.parametrize("name", DEFENSES)
def test_a_bundled_law_contradicts_only_a_published_claim_that_is_known_to_be_false(name, cohort):
    for fields, claim, found in bundled(name, cohort):
        provable = claim.parameters.get(PROVABLE, 0.0)
        broken = [one for one in found if one.passed is False]
        assert not broken or (fields and provable > claim.epsilon), [one.words for one in broken]
        assert all(one.measured <= 1.001 * provable for one in broken)


def test_a_claim_over_fewer_rounds_counts_those():
    few, many = plan_for(rounds=2), plan_for(rounds=50)
    assert checked(LDPGaussian().prepare(few), many)[LAW_EPSILON].passed


def test_clients_that_come_once_per_pass_release_once_per_pass():
    plan = plan_for(rounds=6, cohort=Epoch(3))
    found = checked(LDPGaussian().prepare(plan), plan)[LAW_EPSILON]
    assert found.measured == pytest.approx(4.0, rel=1e-6)


def test_a_chance_of_taking_part_that_the_observer_sees_may_be_counted():
    """A hundred rounds at chance .05: an account of at most 20 of them holds up to a tiny delta."""
    plan, counted = plan_for(rounds=100, cohort=Poisson(0.05)), plan_for(rounds=20)
    prepared = LDPGaussian().prepare(counted)
    assert checked(prepared, plan, rounds=100)[LAW_EPSILON].passed
    # That of two rounds does not hold.
    assert not checked(LDPGaussian().prepare(plan_for(rounds=2)), plan, rounds=100)[LAW_EPSILON].passed


@dataclass(frozen=True, kw_only=True)
class GrowingNoise(LDPGaussianProtection):
    """Noise that grows over the rounds; the law is that of the first one."""

    def report(self, updates, context, state, rng):
        return grown(self, 1.5**context.round).report(updates, context, state, rng)


def grown(protection, factor):
    return LDPGaussianProtection(clip_norm=protection.clip_norm, noise_std=protection.noise_std * factor)


class Locked(GrowingNoise):
    """It cannot be copied."""

    def __deepcopy__(self, memo):
        raise TypeError("cannot copy a lock")


class Alternating(GrowingNoise):
    def report(self, updates, context, state, rng):
        return grown(self, 3.0 if context.round % 2 else 1.0).report(updates, context, state, rng)


class LaterClients(GrowingNoise):
    """All clients but the first two add more noise after the first round."""

    def report(self, updates, context, state, rng):
        message, more = (
            grown(self, 1 + 2.0 * at * (context.round > 0)).report(updates, context, state, rng) for at in (0, 1)
        )
        late = torch.tensor([client > 1 for client in updates.senders])[None, :, None]
        return message.with_values(torch.where(late, more.values, message.values))


class ReadingSamples(GrowingNoise):
    """Its hook asks for data, which is known in no round without a training."""

    def report(self, updates, context, state, rng):
        return super().report(updates, context, state, rng) if context.samples(0) else updates


class OwnNumbers(GrowingNoise):
    """Noise of a generator of its own: each call has other noise."""

    def report(self, updates, context, state, rng):
        return updates.with_values(updates.values + float(next(COUNTED)))


COUNTED = itertools.count()


@dataclass(frozen=True, kw_only=True)
class Wrapped(Protection):
    """Another protection does its work."""

    inner: Protection


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (LDPGaussianProtection, ""),
        (GrowingNoise, "its hooks depend on the number of the round"),
        (Locked, "its hooks depend on the number of the round"),
        (Alternating, "its hooks depend on the number of the round"),
        (LaterClients, "its hooks depend on the number of the round"),
        (ReadingSamples, "its hooks could not be run with other round numbers (TypeError)"),
        (OwnNumbers, "its hooks draw further random numbers when they are called again"),
    ],
)
def test_rounds_are_alike_if_equal_draws_give_equal_messages_whatever_their_number(kind, why):
    plan = plan_for(rounds=37)
    protection = kind(**vars(LDPGaussian().prepare(plan_for(rounds=2)).protection))
    assert law_of_all_rounds(protection, plan) == why


def test_a_state_of_a_protection_within_a_protection_within_another_may_change_its_law():
    plan = plan_for(rounds=8)
    filtered = Filtered(**vars(LDPGaussian().prepare(plan).protection))
    why = law_of_all_rounds(Wrapped(inner=Wrapped(inner=filtered)), plan)
    assert why == "the hook participates may change the distribution of the noise from round to round"


@dataclass(frozen=True, kw_only=True)
class NumberRead(LDPGaussianProtection):
    """It reads the number of the round, which changes nothing that is released."""

    def report(self, updates, context, state, rng):
        return super().report(updates, context, state, rng) if context.round >= 0 else updates


@dataclass(frozen=True, kw_only=True)
class Filtered(LDPGaussianProtection):
    """Clients that stop after some rounds."""

    def participates(self, context, state, rng):
        return torch.ones(1, 1, dtype=torch.bool)


@pytest.mark.parametrize("kind", [LDPGaussianProtection, Filtered])
def test_a_unit_that_moves_further_than_the_laws_bound_is_excused_only_by_all_rounds(kind):
    """One round of eight at 1.5 times the law's move is within the claim, and all eight are not."""
    plan = plan_for(rounds=8)
    prepared = LDPGaussian(epsilon=4.0).prepare(plan)
    far = SENSITIVITY.failed("", 1.5, 1.0)
    claim = replace(prepared.claims[0], epsilon=4.0, curve=None)
    kept, _ = with_law_checks(kind(**vars(prepared.protection)), claim, plan, [far])
    assert kept[0].passed is False
    loose = replace(claim, epsilon=40.0)
    kept, _ = with_law_checks(kind(**vars(prepared.protection)), loose, plan, [far])
    assert kept[0].passed is None


@pytest.mark.parametrize("kind", [GrowingNoise, Filtered])
def test_a_law_that_may_change_from_round_to_round_counts_once(kind):
    plan = plan_for(rounds=8)
    prepared = LDPGaussian().prepare(plan_for(rounds=2))
    changing = replace(prepared, protection=kind(**vars(prepared.protection)))
    assert not checked(prepared, plan, rounds=8)[LAW_EPSILON].passed
    found = checked(changing, plan, rounds=8)[LAW_EPSILON]
    assert found.passed
    assert "computed for one round only, because" in found.witness
    # Half of what even one round needs is still found.
    halved = kind(**(vars(prepared.protection) | {"noise_std": 0.3 * prepared.protection.noise_std}))
    assert not checked(replace(prepared, protection=halved), plan, rounds=8)[LAW_EPSILON].passed


def test_a_number_of_the_round_that_changes_nothing_leaves_all_rounds_to_the_law():
    prepared = LDPGaussian().prepare(plan_for(rounds=2))
    found = checked(replace(prepared, protection=NumberRead(**vars(prepared.protection))), plan_for(rounds=8), rounds=8)
    assert not found[LAW_EPSILON].passed


def replayed(name, measured, allowed):
    return Check(name).passes("", measured, allowed)


def test_a_unit_that_moves_less_than_the_law_says_counts_as_far_as_it_moves():
    """The law of a whole client, and a claim of one of its samples, which is a fourth of it."""
    plan = plan_for(rounds=1)
    prepared = LDPGaussian(epsilon=8.0).prepare(plan)
    claim = {"unit": Unit.SAMPLE, "epsilon": 2.0, "curve": None}
    assert checked(prepared, plan, **claim)[LAW_EPSILON].passed is None
    assert checked(prepared, plan, [replayed("sensitivity", 0.5, 2.0)], **claim)[LAW_EPSILON].passed
    assert not checked(prepared, plan, [replayed("sensitivity", 2.0, 2.0)], **claim)[LAW_EPSILON].passed


def test_noise_beyond_the_laws_counts_as_it_was_seen():
    plan = plan_for()
    prepared = LDPGaussian().prepare(plan)
    understated = replace(prepared.protection, noise_std=prepared.protection.noise_std / 2)
    prepared = replace(prepared, protection=understated)
    assert not checked(prepared, plan)[LAW_EPSILON].passed
    assert checked(prepared, plan, [replayed("noise scale", 2.0, 1.0)])[LAW_EPSILON].passed


def test_the_client_with_the_loudest_law_counts():
    plan = plan_for()
    prepared = DPSGD().prepare(plan)

    class Uneven(type(prepared.protection)):
        def law(self, observer, plan, client):
            found = super().law(observer, plan, client)
            return replace(found, noise_std=found.noise_std * (0.7 if client == 2 else 1.0))

    uneven = replace(prepared, protection=Uneven(**vars(prepared.protection)))
    assert passed(checked(prepared, plan)) == {LAW_EPSILON: True, LAW_CURVE: True}
    assert not checked(uneven, plan)[LAW_EPSILON].passed


REASONS = {
    "shuffler": ({"observer": SHUFFLED}, "before the shuffler"),
    "final model": ({"observer": FINAL_MODEL}, "reveals no single round"),
    "another unit": ({"unit": Unit.LABEL}, "one label"),
    "a part": ({"part": "one coordinate"}, "the claim covers one coordinate"),
    "other subjects": ({"subjects": "some"}, "does not name a client"),
}


@pytest.mark.parametrize("case", REASONS)
def test_what_a_law_does_not_determine_is_said(case):
    changes, reason = REASONS[case]
    plan = plan_for()
    prepared = LDPGaussian().prepare(plan)
    law = law_of(prepared, prepared.claims[0], plan)

    class Everywhere(LDPGaussianProtection):
        def law(self, observer, plan, client):
            return law

    everywhere = replace(prepared, protection=Everywhere(**vars(prepared.protection)))
    (found,) = checked(everywhere, plan, **changes).values()
    assert found.passed is None
    assert reason in found.witness


def test_no_law_and_a_law_that_raises_are_said():
    plan = plan_for()
    prepared = LDPGaussian().prepare(plan)
    (none,) = checked(prepared, plan, observer=GLOBAL_MODELS).values()
    assert (none.passed, none.witness) == (None, "the defense publishes no noise distribution for this adversary")

    class Raising(LDPGaussianProtection):
        def law(self, observer, plan, client):
            raise KeyError("no such client")

    (raising,) = checked(replace(prepared, protection=Raising(**vars(prepared.protection))), plan).values()
    assert raising.passed is None
    assert "KeyError" in raising.witness


def test_rounded_noise_is_not_held_to_a_delta_of_zero():
    plan = plan_for()
    claim = replace(LDPGaussian().prepare(plan).claims[0], observer=AGGREGATE, delta=0.0, curve=None)
    law = GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=2.0, additive=False)
    assert law_check(law, claim, plan)[0].passed is None


def test_more_rounds_than_the_federation_has_count_as_those():
    plan = plan_for(rounds=1)
    law = GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=2.0)
    claim = replace(LDPGaussian().prepare(plan).claims[0], rounds=5, observer=UPLOADS)
    assert law_check(law, claim, plan)[0].measured == pytest.approx(epsilon_from_mu(1.0, claim.delta))


def test_a_drawn_unit_that_takes_anothers_place_moves_a_sum_twice_as_far():
    law = GaussianLaw(clip_norm=1.0, scale=1.0, noise_std=4.0)
    stated = replace(DPFedAvg().prepare(plan_for(cohort=Poisson(0.5))).claims[0], curve=None, epsilon=1.0)
    found = {
        name: law_check(law, stated, plan_for(cohort=cohort))[0]
        for name, cohort in (("poisson", Poisson(0.5)), ("fixed", FixedSize(2)), ("all", FixedSize(4)))
    }
    twice = law_check(replace(law, clip_norm=2.0), stated, plan_for(cohort=Poisson(0.5)))[0]
    assert found["fixed"].measured == pytest.approx(twice.measured, rel=1e-3)
    assert found["fixed"].measured > 1.5 * found["poisson"].measured
    assert "replaces another" in found["fixed"].witness
    # Where all take part, no place is taken.
    assert "takes the place" not in found["all"].witness + found["poisson"].witness
