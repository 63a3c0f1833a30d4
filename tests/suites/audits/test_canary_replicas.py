"""Replicas through the real hooks show what the claimed law says; those of the controls show what is broken."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from fedassay.audit.claim import Adjacency, Claim, Unit
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.evidence import Design, Projections, Setting
from fedassay.audit.mechanism.trial_stream import call_effect
from fedassay.audit.observer import AGGREGATE, GLOBAL_MODELS
from fedassay.defenses.defense import Defense, Prepared
from fedassay.fl.laws import GaussianLaw, clip
from fedassay.fl.protection import Protection
from fedassay.fl.streams import normal
from fedassay.suites.audits.canary_replicas import dependent_columns, repeated
from fedassay.suites.audits.replicas import SETTING
from fedassay.suites.results.store import Store
from scipy.stats import binom, chi2

REPLICAS, ROUNDS, RATE = 600, 5, 0.3
SETTING_OF_RUNS = Setting(
    unit=Unit.CLIENT, adjacency=Adjacency.ADD_REMOVE, observer=GLOBAL_MODELS, rounds=3, design=Design.INDEPENDENT
)

DEFENSES = {
    "dp_sgd": "",
    "control_no_clip": "",
    "dp_fedavg": f"plan = {{ cohort = {{ poisson = {RATE} }} }}",
    "control_noise_halved": f"plan = {{ cohort = {{ poisson = {RATE} }} }}",
    "ldp_gaussian": "",
}


@pytest.fixture
def block_of(planned):
    """(defense, changes) -> the audit's one block of a suite with this defense alone."""

    def build(defense, *changes, seed=0):
        audit = f"[audit]\nsamples_per_client = 3\nreplicas = {REPLICAS}\nbatch = 250\n"
        tables = f"[defenses.{defense}]\n{DEFENSES[defense]}\n\n{audit}"
        federation = {"clients": 2, "samples": 40, "rounds": ROUNDS, "lot": {"poisson": RATE}}
        (block,) = planned(*changes, seed=seed, text=tables, **federation).blocks
        return block

    return build


@pytest.fixture
def shown(tmp_path):
    """(block) -> its arrays, after it was run."""

    def run(block):
        store = Store(tmp_path / "run")
        assert block.run(store, frozenset()) == []
        (row,) = store.cell_records(block.cell.cell_id)
        assert (row.metric, row.value, row.status) == ("replicas", REPLICAS, "ok")
        return store.load_arrays(row.artifact)

    return run


def has_std(values, std):
    """Whether centred Gaussian numbers have this standard deviation: falsely "no" once in a million seeds."""
    low, high = chi2.ppf([5e-7, 1 - 5e-7], values.size)
    return low <= float(np.square(values).sum()) / std**2 <= high


@pytest.mark.simulations
@pytest.mark.parametrize("defense", ["dp_sgd", "dp_fedavg", "ldp_gaussian"])
def test_a_correct_defenses_replicas_follow_its_claimed_law(block_of, shown, defense):
    block = block_of(defense)
    release, arrays = block.release, shown(block)
    out, within = arrays["nonmember"], arrays["member"]
    assert out.shape == within.shape == (REPLICAS, ROUNDS)
    assert arrays["nonmember_seen"].all()
    assert arrays["member_seen"].all()
    assert release.rate == (1.0 if defense == "ldp_gaussian" else RATE)
    assert has_std(out, release.sigma)
    # With the canary in, each number stands sigma beside 0 or 1, and on the mean as often beside 1 as it is drawn.
    spread = math.sqrt(release.rate * (1 - release.rate) + release.sigma**2)
    assert abs(within.mean() - release.rate) < 5 * spread / math.sqrt(within.size)
    assert abs(within.std() - spread) < 0.05 * spread


@pytest.mark.simulations
def test_the_control_with_half_the_noise_shows_half_the_noise(block_of, shown):
    block = block_of("control_noise_halved")
    arrays, sigma = shown(block), block.release.sigma
    assert has_std(arrays["nonmember"], sigma / 2)
    assert not has_std(arrays["nonmember"], sigma)


def test_the_control_without_a_clip_shows_the_canary_in_its_raw_length(block_of, shown):
    block = block_of("control_no_clip")
    arrays, sigma = shown(block), block.release.sigma
    assert has_std(arrays["nonmember"], sigma)
    taken = int((arrays["member"] > 5).sum())
    low, high = binom.ppf([5e-7, 1 - 5e-7], arrays["member"].size, RATE)
    assert low <= taken <= high
    assert arrays["member"][arrays["member"] > 5].mean() == pytest.approx(10, abs=5 * sigma / math.sqrt(taken))


@pytest.mark.parametrize("defense", ["dp_sgd", "dp_fedavg", "ldp_gaussian"])
def test_no_two_replicas_share_a_draw_of_noise_in_any_batch_or_arm(block_of, shown, defense):
    arrays = shown(block_of(defense))
    noise = np.concatenate([arrays["nonmember"], arrays["member"]]).astype(np.float64)
    # Less the whole number of times that the canary was taken, equal draws of noise would be equal fractions.
    fractions = np.sort((noise % 1).round(5), axis=0)
    repeated = (np.diff(fractions, axis=0) == 0).mean()
    assert repeated < 0.03  # 1200 numbers on 100,000 places: .012 meet by chance.


def test_a_block_states_what_its_scores_are_evidence_of(block_of, shown, tmp_path):
    block = block_of("dp_fedavg")
    shown(block)
    kept = (Store(tmp_path / "run").cell_folder(block.cell.cell_id) / SETTING).read_text()
    assert kept == (
        '{"unit": "client", "adjacency": "add_remove", "observer": "global_models", "rounds": 5, '
        '"design": "independent"}'
    )


def test_replicas_that_share_their_noise_are_no_independent_trials():
    setting = SETTING_OF_RUNS
    own = np.random.default_rng(0).normal(size=(50, 3))
    seen = np.ones(own.shape, dtype=bool)
    own_noise = Projections(own, seen, setting)
    assert not repeated([own_noise], pytest.fail)
    shared = Projections(np.broadcast_to(own[:1], own.shape), seen, setting)
    assert repeated([shared], lambda: own_noise)
    # Runs made alone are equal too: they share nothing, and there is no noise.
    assert not repeated([shared], lambda: shared)
    # Three replicas in four never saw the sender: they show the same nothing, and no shared noise.
    absent = np.arange(50) % 4 > 0
    values, came = np.where(absent[:, None], 0.5, own), np.repeat(~absent[:, None], 3, axis=1)
    assert not repeated([Projections(values, came, setting)], pytest.fail)


def test_a_coin_or_a_noise_of_each_call_shows_in_its_columns():
    """Level 1e-9; a release that a public coin skips for all runs of a call has the mean of the others."""
    rng, setting = np.random.default_rng(3), replace(SETTING_OF_RUNS, rounds=2)
    seen = np.ones((24, 2), dtype=bool)

    def calls(change):
        return [Projections(change(rng.normal(size=(24, 2))), seen, setting) for _ in range(8)]

    def least(change):
        return call_effect(dependent_columns(calls(change))).min()

    assert min(least(lambda noise: noise) for _ in range(50)) > 1e-5
    assert least(lambda noise: noise + 2 * rng.normal(size=2)) < 1e-9
    assert least(lambda noise: noise * (rng.random(2) < 0.5)) < 1e-9


@dataclass(frozen=True, kw_only=True)
class OneNoise(Protection):
    """The server's noise is drawn for a single run, so that all runs of a batch share it."""

    sigma: float

    def report(self, updates, context, state, rng):
        return updates.with_values(clip(updates.values, 1.0))

    def aggregate(self, received, context, state, rng):
        total = received.values.sum(1)
        return (total + self.sigma * normal(rng, (total.shape[-1],))) / context.plan.clients


class OneNoiseWithLaw(OneNoise):
    def law(self, observer, plan, client):
        if observer.rank > AGGREGATE.rank:
            return None
        return GaussianLaw(clip_norm=1.0, scale=1 / plan.clients, noise_std=self.sigma / plan.clients)


@dataclass(frozen=True, kw_only=True)
class SharedNoise(Defense):
    share: float = 1.0
    law: bool = False

    def prepare(self, plan):
        mu = mu_from_epsilon(4.0, 1e-5)
        facts = {"unit": "client", "adjacency": "add_remove", "observer": GLOBAL_MODELS, "rounds": plan.rounds}
        kind = OneNoiseWithLaw if self.law else OneNoise
        protection = kind(sigma=self.share * math.sqrt(plan.rounds) / mu)
        return Prepared(protection=protection, claims=(Claim.stated(4.0, 1e-5, mu=mu, **facts),))


@pytest.mark.long
@pytest.mark.simulations
@pytest.mark.parametrize("law", ["true", "false"])
@pytest.mark.parametrize(("share", "code"), [(1.0, 0), (0.3, 10)])
def test_noise_that_runs_share_is_judged_by_runs_made_one_at_a_time(suite_file, assay, share, code, law):
    """Before, the correct one was refuted without a law, and failed with one."""
    table = f'[defenses.shared]\npart = "{__name__}:SharedNoise"\nshare = {share}\nlaw = {law}\n'
    audit = "[audit]\nclients = 2\nsamples_per_client = 8\nreplicas = 200\nmost_replicas = 2000\n"
    result = assay(suite_file(text=f"{table}\n{audit}", clients=3, samples=40, rounds=3))
    assert result.verdict.exit_code == code, [row.reason for row in result.records if row.verdict == "FAILED"]
    (row,) = [row for row in result.records if row.role == "replicas"]
    assert "one at a time" in row.reason
