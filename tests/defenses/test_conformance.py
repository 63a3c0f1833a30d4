"""Conformance of every defense: shapes, streams, hooks, claims, curves and laws, on a small federation."""

import copy
import dataclasses
import math
import sys
from functools import cache, partial

import numpy as np
import pytest
import torch
from fedassay.audit.claim import AS_PUBLISHED, NOT_PROVABLE, PROVABLE, Unit
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.without_dp.plain_noise import PlainNoise
from fedassay.fl.algorithms import BoundedUpdate, FedAvg, FedProx, FedSGD, Scaffold
from fedassay.fl.engine import run_federation
from fedassay.fl.laws import ReportLaw
from fedassay.fl.message import Message
from fedassay.fl.protection import Protection
from fedassay.fl.sampling import Epoch, FixedSize, Poisson
from fedassay.fl.streams import Streams, normal
from fedassay.fl.training.local import Batch
from known_parts import parts_by_name

DEFENSES = parts_by_name("defense")
EACH = [pytest.param(part, id=name) for name, part in DEFENSES.items()]
OBSERVERS = (UPLOADS, SHUFFLED, AGGREGATE, GLOBAL_MODELS, FINAL_MODEL)
HOOK_STREAMS = (
    "participates",
    "local_step",
    "local_query",
    "report",
    "channel",
    "aggregate",
    "query",
    "broadcast",
    "open_round",
    "close_round",
)
ALGORITHMS = {
    "fedsgd": FedSGD(learning_rate=0.5),
    "fedavg": FedAvg(learning_rate=0.2, local_steps=2),
    "adam": FedAvg(learning_rate=0.01, local_steps=2, optimizer="adam"),
    "fedprox": FedProx(learning_rate=0.2, local_steps=2, mu=0.1),
    "bounded": BoundedUpdate(learning_rate=0.2, local_steps=2, mu=0.1, radius=1.0),
    "scaffold": Scaffold(learning_rate=0.2, local_steps=2),
}
ONLY = {
    "blur_lus": ["bounded"],
    "cldp_sgd": ["one_record"],
    "control_user_clip_per_client": ["fedsgd"],
    "control_user_clip_per_sample": ["fedsgd"],
    "dp_fedsgd": ["fedsgd"],
    "dp_scaffold": ["scaffold"],
    "regularised_sparsified": ["bounded"],
    "user_level": ["fedsgd"],
}
"""Defenses that are defined for one algorithm; all others take any, and are tried under one unless they see steps."""
STATEFUL = {"dp_scaffold", "quantile_clipping", "adap_dp_fl", "fedre", "fedre_per_sample"}
"""Defenses whose release hangs on what was released before: a law knows no state, so they publish none."""
SAMPLED_APART = {"user_level", "control_user_clip_per_client", "control_user_clip_per_sample"}
"""Defenses of units with several clients, which are drawn independently: no law of one rate describes the release."""
CORRELATED = {"dp_ftrl", "control_one_participation", "control_closer_participations", "control_short_horizon"}
CORRELATED |= {"control_restart_unpaid", "control_columns_not_normalised", "control_nodes_redrawn"}
"""Defenses whose noise depends on that of other rounds: a law is that of one round, so they publish none."""
LOTS = {"one_record": FixedSize(1)}
"""FedSGD with other lots than a sample of all."""
PLAIN, WIDELY = ["fedsgd", "fedavg", "adam"], {"none", "dp_sgd", "dp_fedavg", "ldp_gaussian"}


def sees_steps(part):
    """Whether a protection that its file names works on a client's steps, so that the algorithm matters to it."""
    named = (
        [part.broken]
        if part.control
        else [one for one in vars(sys.modules[part.__module__]).values() if isinstance(one, type)]
    )
    return any(
        getattr(one, hook) is not getattr(Protection, hook)
        for one in named
        if issubclass(one, Protection)
        for hook in ("local_step", "local_query")
    )


def taken(name, part):
    """The algorithms that a defense is tried under."""
    if name in ONLY:
        return ONLY[name]
    return [*PLAIN, "fedprox", "scaffold"] if name in WIDELY else PLAIN if sees_steps(part) else PLAIN[:1]


TAKEN = {part: taken(name, part) for name, part in DEFENSES.items()}
UNDER = [pytest.param(part, one, id=f"{name}-{one}") for name, part in DEFENSES.items() for one in TAKEN[part]]
REPLICAS, ROUNDS = 3, 2


@pytest.fixture(scope="module")
def task(toy_task):
    return toy_task((5, 4, 6, 5))


@pytest.fixture(scope="module")
def plan_of(task, toy_plan):
    """(algorithm) -> the plan: two rounds, Poisson cohorts and lots."""
    return lambda name: toy_plan(
        task,
        algorithm=ALGORITHMS["fedsgd" if name in LOTS else name],
        rounds=ROUNDS,
        cohort=Poisson(0.6),
        lot=LOTS.get(name, Poisson(0.3)),
    )


@pytest.fixture(scope="module")
def prepared(plan_of):
    """(part, algorithm) -> what it prepares with its defaults; by default under the first algorithm that it takes."""
    return cache(lambda part, name=None: part().prepare(plan_of(name or TAKEN[part][0])))


@pytest.fixture
def trained(task, plan_of, prepared, make_tape):
    """(part, algorithm, seed) -> final models and every event."""

    def run(part, name=None, seed=1):
        tape, batch, name = make_tape(), Batch(replicas=REPLICAS), name or TAKEN[part][0]
        protection = prepared(part, name).protection
        final = run_federation(task, plan_of(name), protection, Streams(seed), batch=batch, recorders=[tape])
        return final, tape.events

    return run


@pytest.fixture(scope="module")
def laws(plan_of, prepared):
    """(part) -> every law that it publishes: to each observer, of a client and of a canary, under each algorithm."""

    def publish(part):
        found = []
        for name in TAKEN[part]:
            plan = plan_of(name)
            for observer in OBSERVERS:
                for client in (0, plan.clients):
                    law = prepared(part, name).protection.law(observer, plan, client)
                    found += [law] if law is not None and law not in found else []
        return found

    return publish


@pytest.mark.parametrize(("part", "algorithm"), UNDER)
def test_a_defended_federation_gives_finite_rows_of_the_right_shape(part, algorithm, task, trained):
    final, events = trained(part, algorithm)
    dim = task.network.layout.dim
    assert final.shape == (REPLICAS, dim)
    assert len(events) == ROUNDS
    for event in events:
        rows = len(event.reports.senders)
        assert event.reports.values.shape == (REPLICAS, rows, dim)
        assert event.received.values.shape[0] == REPLICAS
        assert not event.reports.values[~event.reports.present].any()
        assert event.broadcast.shape == event.aggregate.shape == event.model.shape == (REPLICAS, dim)
        # Masked words are integers.
        assert event.reports.values.dtype == (torch.int64 if event.reports.masked else torch.float32)
        for tensor in (event.broadcast, event.reports.values, event.aggregate, event.model):
            assert tensor is event.reports.values or tensor.dtype == torch.float32
            assert bool(tensor.isfinite().all())


UNCLIPPED = {"control_no_clip", "control_batch_clip", "control_adaptive_clip_raw"}
"""Controls whose fault is the clip: what no clip bounds may be anything."""
WILD = (math.nan, math.inf, -math.inf, 1e38)


def wild(rows):
    """Rows that hold nothing but one of ``WILD`` each, in turn; one more differs from entry to entry."""
    values = torch.tensor(WILD).repeat(rows.shape[-1])[: rows.shape[-1]]
    kinds = torch.stack([*(torch.full_like(values, one) for one in WILD), values])
    return kinds[torch.arange(rows[..., 0].numel()) % len(kinds)].view_as(rows)


@pytest.mark.parametrize("name", [name for name in DEFENSES if name not in UNCLIPPED])
def test_no_row_passes_a_hook_that_states_unbounded(name, monkeypatch, prepared, trained):
    """Where no number came what leaves is what leaves of zeros, and nothing that leaves is infinite or no number: an
    overflow in training would tell of itself through any noise.
    """
    protection, tried = prepared(DEFENSES[name]).protection, []

    def left(hook, rows, rest, rng):
        out = hook(protection, rows, *rest, copy.deepcopy(rng))
        return out.values if isinstance(out, Message) else out

    def tries(real, hook, rows, *rest):
        values, put = (rows.values, rows.with_values) if isinstance(rows, Message) else (rows, torch.Tensor.clone)
        *public, rng = rest
        tried.append(hook)
        assert bool(left(real, put(wild(values)), public, rng).isfinite().all())
        none, zero = (left(real, put(torch.full_like(values, one)), public, rng) for one in (math.nan, 0.0))
        assert torch.equal(none, zero)
        return real(protection, rows, *rest)

    for hook in ("report", "local_step", "local_query"):
        real = getattr(type(protection), hook)
        if real is not getattr(Protection, hook):
            monkeypatch.setattr(type(protection), hook, partial(tries, real, hook))
    if prepared(DEFENSES[name]).claims:
        trained(DEFENSES[name])
        assert tried


@pytest.mark.parametrize("part", EACH)
def test_every_hook_that_it_overrides_is_called_and_leaves_the_object_as_it_was(part, monkeypatch, prepared, trained):
    protection, called = prepared(part).protection, set()
    protection_type = type(protection)
    used = {name for name in HOOK_STREAMS if getattr(protection_type, name) is not getattr(Protection, name)}

    def hook(name, real, *arguments, **named):
        called.add(name)
        return real(protection, *arguments, **named)

    for name in used:
        monkeypatch.setattr(protection_type, name, partial(hook, name, getattr(protection_type, name)))
    before = copy.deepcopy(vars(protection))
    trained(part)
    assert called == used
    assert vars(protection) == before


def refusal(part, plan):
    """Why a defense cannot be prepared for a plan; empty if it can."""
    try:
        part().prepare(plan)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("part", EACH)
def test_in_passes_over_all_clients_it_refuses_or_also_runs_rounds_that_no_client_is_in(part, task, plan_of):
    plan = dataclasses.replace(plan_of(TAKEN[part][0]), cohort=Epoch(2))
    if words := refusal(part, plan):
        assert "cohort must be Poisson or full" in words
        return
    found = part().prepare(plan)
    assert all(claim.rounds in (1, ROUNDS) for claim in found.claims)
    # As in an audit that cuts the federation: of four clients in passes of eight rounds none is in the second.
    fewer = dataclasses.replace(plan, cohort=Epoch(8))
    final = run_federation(task, fewer, found.protection, Streams(1), batch=Batch(replicas=REPLICAS))
    assert bool(final.isfinite().all())


@pytest.mark.parametrize("part", EACH)
def test_what_it_states_is_complete_and_what_the_rounds_spend_grows_to_it(part, prepared):
    found = prepared(part)
    claims = {claim.claim_id: claim for claim in found.claims}
    for claim in found.claims:
        assert claim.rounds == (1 if claim.unit is Unit.COORDINATE else ROUNDS)
        texts = (claim.mechanism, claim.accountant, claim.sampling, claim.trust, claim.source)
        assert all(len(text) > 3 for text in texts)
    for claim_id, spent in found.spending.items():
        first, last = spent(1), spent(ROUNDS)
        assert 0 <= first < last
        assert last == pytest.approx(claims[claim_id].epsilon, rel=5e-3)


@pytest.mark.parametrize("part", EACH)
def test_a_stated_curve_agrees_with_the_stated_epsilon_and_delta(part, prepared):
    """The line of (epsilon, delta) stays under the curve, which wastes less than a tenth of delta: the delta that the
    curve allows at epsilon is the largest ``1 - f(a) - e^epsilon a``. Where epsilon is the sum of pure budgets nothing
    of delta is left, but a twentieth below it more than delta.
    """
    fpr = np.concatenate([np.logspace(-9, -1, 4000), np.linspace(0.1, 1, 2000)])
    for claim in prepared(part).claims:
        if claim.curve is None:
            continue
        fnr = claim.curve.fnr(fpr)
        allowed, below = (np.max(1 - fnr - math.exp(share * claim.epsilon) * fpr) for share in (1, 0.95))
        assert allowed <= claim.delta * (1 + 1e-6)
        assert allowed > 0.9 * claim.delta or (allowed < 1e-12 and below > claim.delta)
        for line in (1 - claim.delta - np.exp(claim.epsilon) * fpr, np.exp(-claim.epsilon) * (1 - claim.delta - fpr)):
            assert (line <= fnr + 1e-6 * claim.delta).all()
        assert (np.diff(fnr) <= 1e-12).all()


@pytest.mark.parametrize(
    ("name", "part"), [(name, part) for name, part in DEFENSES.items() if hasattr(part, "variant")]
)
def test_what_is_stated_as_published_states_what_is_provable(name, part, plan_of):
    """A number at the claim's own delta, or words that none is known; what is corrected is what is provable."""
    plan = plan_of(TAKEN[part][0])
    for claim in part(variant=AS_PUBLISHED).prepare(plan).claims:
        value, words = claim.parameters.get(PROVABLE), str(claim.parameters.get(NOT_PROVABLE, ""))
        assert (value is None) == words.startswith("none: ")
        assert value is None or value >= 0
    for claim in part().prepare(plan).claims:
        assert not claim.parameters.keys() & {PROVABLE, NOT_PROVABLE}


@pytest.mark.parametrize(("name", "part"), DEFENSES.items(), ids=DEFENSES)
def test_controls_are_marked_and_state_what_a_correct_defense_states(name, part, prepared, plan_of):
    assert part.control == name.startswith("control_")
    if not part.control:
        return
    (correct,) = [other for other in part.__mro__[1:] if other in DEFENSES.values() and not other.control]
    plan, broken = plan_of(TAKEN[part][0]), prepared(part)
    fixed = correct(**part().fields()).prepare(plan)
    assert broken.claims == fixed.claims != ()
    assert type(broken.protection) is not type(fixed.protection)
    for observer in OBSERVERS:
        assert broken.protection.law(observer, plan, 0) == fixed.protection.law(observer, plan, 0)


def test_somebody_states_and_somebody_publishes_a_law(prepared, laws):
    """Else the tests of claims and laws would pass over nothing."""
    signing = {name for name, part in DEFENSES.items() if prepared(part).claims}
    assert signing >= {"dp_sgd", "dp_fedavg", "ldp_gaussian", "control_no_clip", "control_noise_halved"}
    publishing = {name for name, part in DEFENSES.items() if laws(part)}
    assert publishing | STATEFUL | SAMPLED_APART | CORRELATED >= signing
    assert not publishing & (STATEFUL | SAMPLED_APART | CORRELATED)


def test_a_defense_that_changes_a_clients_steps_is_tried_under_more_than_one_algorithm(prepared):
    """By the protection that it prepares, which may come from another file than its own."""
    for name, part in DEFENSES.items():
        kind = type(prepared(part).protection)
        works = kind.local_step is not Protection.local_step or kind.local_query is not Protection.local_query
        assert not works or name in ONLY or TAKEN[part] != PLAIN[:1]


@pytest.mark.parametrize("name", ONLY)
def test_a_defense_of_one_algorithm_refuses_the_others(name, plan_of):
    for other in ALGORITHMS.keys() - {*ONLY[name]}:
        with pytest.raises(
            ValueError,
            match=r"(algorithm must be .*, got (Fed|Bounded|Scaffold))|lot, .*one record",
        ):
            DEFENSES[name]().prepare(plan_of(other))


def assert_density_of_samples(law):
    """Of the pair that differs most: under either row the mean of the other's density over its own is 1."""
    rows = [law.contribution(row) for row in law.worst_pair(4)]
    for one, other in (rows, rows[::-1]):
        drawn = law.sample(one.expand(20_000, -1), np.random.default_rng(1))
        ratio = (law.log_density(drawn, other) - law.log_density(drawn, one)).exp()
        assert float(ratio.std()) > 0
        assert abs(float(ratio.mean()) - 1) < 5 * float(ratio.std()) / 20_000**0.5


@pytest.mark.parametrize("part", EACH)
def test_a_laws_density_is_that_of_its_samples(part, laws):
    """Mean of p_other/p over 20,000 samples is 1 (five standard errors: the shift is one deviation), and so is that of
    p/g over a wider Gaussian g, which a wrong constant would move.
    """
    for law in laws(part):
        if isinstance(law, ReportLaw):
            assert_density_of_samples(law)
            continue
        centre = law.contribution(normal(np.random.default_rng(0), (4,))).double()
        drawn = law.sample(centre.expand(20_000, -1), np.random.default_rng(1)).double()
        spread = float((drawn - centre).std())
        other = centre + torch.tensor([spread, 0, 0, 0])
        ratio = (law.log_density(drawn, other) - law.log_density(drawn, centre)).exp()
        assert abs(float(ratio.mean()) - 1) < 5 * (math.e - 1) ** 0.5 / 20_000**0.5
        wide = centre + 1.2 * spread * normal(np.random.default_rng(2), (20_000, 4)).double()
        guide = torch.distributions.Normal(centre, 1.2 * spread).log_prob(wide).sum(-1)
        weight = (law.log_density(wide, centre) - guide).exp()
        assert abs(float(weight.mean()) - 1) < 5 * float(weight.std()) / 20_000**0.5


@pytest.mark.parametrize("part", EACH)
def test_a_law_is_differentiable_and_bounds_what_a_row_adds(part, laws):
    for law in laws(part):
        row = normal(np.random.default_rng(0), (4,))
        small, large = (float(law.contribution(length * row).norm()) for length in (1e3, 1e6))
        assert large > 0
        # Who bounds nothing states nothing.
        assert large <= small * (1 + 1e-5) or part is PlainNoise
        if isinstance(law, ReportLaw):
            continue
        release = law.sample(law.contribution(row), np.random.default_rng(1)).double()
        point = law.contribution(row).double().requires_grad_(True)
        assert torch.autograd.gradcheck(partial(law.log_density, release), point)
