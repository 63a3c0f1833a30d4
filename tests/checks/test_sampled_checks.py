"""Units in cohorts and lots as sampled: bugs in sampling and weights are found, odd but correct protections pass."""

from dataclasses import dataclass, field, replace

import pytest
import torch
from fedassay.audit.check import AS_SAMPLED, MEASURED, ONCE, PARTICIPATION
from fedassay.checks import sampled as sampled_checks
from fedassay.checks.claim_checks import hook_runs
from fedassay.checks.given_rows import draw_surroundings
from fedassay.checks.measured import measured_checks
from fedassay.checks.neighbours import replay_setup
from fedassay.defenses.accounting.stated_laws import claim_from_noise
from fedassay.defenses.client_level.dp_fedavg import DPFedAvg, DPFedAvgProtection
from fedassay.defenses.client_level.quantile_clipping import QuantileClipping
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGD, DPSGDProtection
from fedassay.defenses.secure.distributed_gaussian import DistributedGaussian
from fedassay.fl.algorithms import FedAvg
from fedassay.fl.laws import clip, clipped_sum
from fedassay.fl.sampling import FixedSize, Poisson
from fedassay.fl.streams import normal, uniform
from fedassay.suites.mutation.mutants import versions
from open_defenses import Reports, failed, prepared_as
from thinned import every
from toy_federation import toy_plan, toy_task

SIZES, ROUNDS = (4, 9, 6, 5), 6


@pytest.fixture(scope="module")
def task():
    return toy_task(SIZES, side=6, inert=1)


@pytest.fixture(scope="module")
def checked(task):
    """(defense, class of its protection) -> the names of failed checks and the results."""

    def check(part, kind=None, *, seed=0, rounds=ROUNDS, law=True, **changes):
        plan = toy_plan(task, rounds=rounds, **changes)
        protection, claim = prepared_as(part, plan, kind, law=law)
        found = hook_runs(task, plan, protection, claim, seed=seed).checks()
        return failed(found), found

    return check


CLIENTS, SAMPLES = DPFedAvg(epsilon=4.0), DPSGD(epsilon=4.0)
HALF = {"cohort": Poisson(0.5)}
LOTS = {"lot": Poisson(0.4)}


@dataclass(frozen=True, kw_only=True)
class Sum(DPFedAvgProtection):
    """DP-FedAvg with a memory that a broken version keeps between rounds."""

    memory: dict = field(default_factory=dict, compare=False)

    def noise(self, like, rng):
        return self.noise_multiplier * self.clip_norm * normal(rng, tuple(like.shape))

    def mean(self, total, context, rng):
        return (total + self.noise(total, rng)) / context.plan.expected_cohort


class PassesABand(Sum):
    """Updates of a band of lengths pass unclipped."""

    low, high = 2.0, 3.0

    def report(self, updates, context, state, rng):
        lengths = torch.linalg.vector_norm(updates.values, dim=-1, keepdim=True) / self.clip_norm
        within = (lengths >= self.low) & (lengths < self.high)
        clipped = super().report(updates, context, state, rng)
        return clipped.with_values(torch.where(within, updates.values, clipped.values))


class PassesAHighBand(PassesABand):
    low, high = 300.0, 450.0


class PassesShortOnes(PassesABand):
    """What is shorter than the clip norm needs no clip."""

    low, high = 0.0, 1.0


class ThinnedCohort(Sum):
    """Thins each cohort by coins of one half, and accounts for them."""

    def law(self, observer, plan, client):
        law = super().law(observer, plan, client)
        return law and replace(law, rate=law.rate * 0.5)


class ByLabels(ThinnedCohort):
    """Clients whose first sample has label 0 take part with probability one, others with what is left."""

    def participates(self, context, state, rng):
        coins = uniform(rng, (context.replicas, len(context.senders))) < 0.5
        for row, client in enumerate(context.senders):
            if client < context.plan.clients and int(context.samples(client).labels[0]) == 0:
                coins[:, row] = True
        return coins


class AlwaysTheLargest(ThinnedCohort):
    def participates(self, context, state, rng):
        coins = uniform(rng, (context.replicas, len(context.senders))) < 0.5
        largest = max(range(context.plan.clients), key=lambda client: context.plan.sizes[client])
        coins[:, largest] = True
        return coins


class Resent(Sum):
    """Adds the sum of the last round once more."""

    def aggregate(self, received, context, state, rng):
        total = received.values.sum(1)
        last = self.memory.get(context.replicas, torch.zeros_like(total)) if context.round else torch.zeros_like(total)
        self.memory[context.replicas] = total
        return self.mean(total + last, context, rng)


class LessNoiseForFew(Sum):
    def aggregate(self, received, context, state, rng):
        total = received.values.sum(1)
        share = (received.present.sum(1, keepdim=True) / context.plan.clients).sqrt()
        return (total + share * self.noise(total, rng)) / context.plan.expected_cohort


class NoiseOfTheFirst(Sum):
    """Only client 0 adds noise, so that cohorts without it have none."""

    def aggregate(self, received, context, state, rng):
        total = received.values.sum(1)
        noise = self.noise(total, rng) * received.present[:, :1]
        return (total + noise) / context.plan.expected_cohort


class WholeLot(DPSGDProtection):
    """Sums all rows that it receives, also those that are in no lot."""

    def local_step(self, gradients, present, client, context, state, rng):
        total = clip(gradients, self.clip_norm).sum(1)
        noise = self.noise_multiplier * self.clip_norm * normal(rng, tuple(total.shape))
        return (total + noise) / context.plan.expected_lot(client)


class ThinnedLot(DPSGDProtection):
    """Keeps half of each lot and accounts for it."""

    def kept(self, gradients, context, rng):
        return uniform(rng, tuple(gradients.shape[:2])) < 0.5

    def local_step(self, gradients, present, client, context, state, rng):
        kept = present & self.kept(gradients, context, rng)
        total = clipped_sum(gradients, kept, self.clip_norm)
        noise = self.noise_multiplier * self.clip_norm * normal(rng, tuple(total.shape))
        return (total + noise) / context.plan.expected_lot(client)

    def law(self, observer, plan, client):
        law = super().law(observer, plan, client)
        return law and replace(law, rate=law.rate * 0.5)


class KeepsMore(ThinnedLot):
    """Keeps .63 of each lot and accounts for one half."""

    def kept(self, gradients, context, rng):
        return uniform(rng, tuple(gradients.shape[:2])) < 0.63


class LongestRows(ThinnedLot):
    """Keeps rows that are longer than the mean one."""

    def kept(self, gradients, context, rng):
        lengths = torch.linalg.vector_norm(gradients, dim=-1)
        return lengths >= lengths.mean(1, keepdim=True)


class FirstRow(ThinnedLot):
    """The first row of a lot is always kept."""

    def kept(self, gradients, context, rng):
        coins = super().kept(gradients, context, rng)
        coins[:, 0] = True
        return coins


BROKEN = {
    ByLabels: (CLIENTS, HALF),
    AlwaysTheLargest: (CLIENTS, HALF),
    Resent: (CLIENTS, HALF),
    LessNoiseForFew: (CLIENTS, HALF),
    NoiseOfTheFirst: (CLIENTS, HALF),
    WholeLot: (SAMPLES, LOTS),
    LongestRows: (SAMPLES, LOTS),
    FirstRow: (SAMPLES, LOTS),
}


@pytest.mark.simulations
@pytest.mark.parametrize("kind", BROKEN)
def test_a_bug_in_sampling_or_weights_fails_a_check(checked, kind):
    part, changes = BROKEN[kind]
    names, found = checked(part, kind, **changes)
    assert names, [one.words for one in found]


class FreshCoins(ThinnedCohort):
    """Thins each cohort by fresh coins."""

    def participates(self, context, state, rng):
        return uniform(rng, (context.replicas, len(context.senders))) < 0.5


class SkippedRounds(Sum):
    """Skips a round by a coin that does not depend on the clients."""

    def aggregate(self, received, context, state, rng):
        coins = uniform(rng, (context.replicas, 1)) < 0.7
        return super().aggregate(received, context, state, rng) * coins


class NoisyCount(Sum):
    """Skips a round in which a noised count of its clients is small."""

    def aggregate(self, received, context, state, rng):
        count = received.present.sum(1, keepdim=True) + 2 * normal(rng, (len(received.present), 1))
        return super().aggregate(received, context, state, rng) * (count > 1)


class AtMostTwice(Sum):
    """Clients stop after two rounds, as under a privacy filter."""

    def initial_state(self, plan):
        return {"left": torch.full((1, plan.clients), 2)}

    def participates(self, context, state, rng):
        return (state["left"] > 0).expand(context.replicas, -1)[:, list(context.senders)]

    def open_round(self, context, state):
        return state if context.round < 2 else {"left": torch.zeros_like(state["left"])}


class CappedBySize(Sum):
    """Weights by size of at most one."""

    def aggregate(self, received, context, state, rng):
        sizes = torch.tensor([context.plan.weight(one) for one in received.senders])
        weights = sizes / max(context.plan.sizes)
        return self.mean((received.values * weights.view(1, -1, 1)).sum(1), context, rng)


CORRECT = {
    "client": (CLIENTS, None, HALF),
    "sample": (SAMPLES, None, LOTS),
    "sample, several steps": (SAMPLES, None, {**LOTS, "algorithm": FedAvg(learning_rate=0.5, local_steps=3)}),
    "report": (LDPGaussian(epsilon=4.0), None, {}),
    "fixed cohorts": (LDPGaussian(epsilon=4.0), None, {"cohort": FixedSize(2)}),
    "secure sum": (DistributedGaussian(epsilon=8.0, dropout=0.3), None, {}),
    "secure sum of sampled clients": (DistributedGaussian(epsilon=8.0), None, {"cohort": Poisson(0.7)}),
    "adaptive clip": (QuantileClipping(epsilon=4.0), None, HALF),
    "fresh coins": (CLIENTS, FreshCoins, HALF),
    "thinned lot": (SAMPLES, ThinnedLot, LOTS),
    "skipped rounds": (CLIENTS, SkippedRounds, HALF),
    "noisy count": (CLIENTS, NoisyCount, HALF),
    "at most twice": (CLIENTS, AtMostTwice, HALF),
    "capped weights": (CLIENTS, CappedBySize, HALF),
}


@pytest.mark.simulations
@pytest.mark.parametrize("law", [True, False], ids=("law", "no law"))
@pytest.mark.parametrize("name", every(2, CORRECT))
def test_a_correct_protection_passes_every_check(checked, name, law):
    part, kind, changes = CORRECT[name]
    names, found = checked(part, kind, law=law, **changes)
    assert not names, [one.words for one in found]


@pytest.mark.long
@pytest.mark.parametrize("name", ["client", "sample", "fresh coins", "thinned lot", "skipped rounds"])
def test_no_seed_of_thirty_accuses_a_correct_protection(checked, name):
    """The checks' chance of a false alarm is 3e-6 per claim, so that 30 seeds fail falsely once in 10,000 times."""
    part, kind, changes = CORRECT[name]
    for seed in range(30):
        names, found = checked(part, kind, seed=seed, **changes)
        assert not names, (seed, [one.words for one in found])


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.simulations) for seed in (1, 2))])
def test_a_rate_that_is_in_doubt_is_counted_again_in_fresh_runs(checked, monkeypatch, seed):
    """A rate of .252 where .2 is accounted: five standard errors in the first runs, and twelve in the fresh ones."""
    # Rates below the plan's are counted in more runs at once.
    monkeypatch.setattr(sampled_checks, "_rate_of_plan", lambda *_: 0.0)
    names, found = checked(SAMPLES, KeepsMore, seed=seed, **LOTS)
    assert PARTICIPATION in names, [one.words for one in found if one.name == PARTICIPATION]
    monkeypatch.setattr(sampled_checks, "_DOUBTFUL", 0.0)
    assert PARTICIPATION not in checked(SAMPLES, KeepsMore, seed=seed, **LOTS)[0]


@pytest.mark.long
@pytest.mark.parametrize("name", ["client", "thinned lot"])
def test_counting_again_accuses_no_correct_rate(checked, monkeypatch, name):
    """Ten seeds in which every rate counts as in doubt: one false alarm in 30,000 repeats of this test."""
    monkeypatch.setattr(sampled_checks, "_DOUBTFUL", 1.1)
    part, kind, changes = CORRECT[name]
    for seed in range(10):
        names, found = checked(part, kind, seed=seed, **changes)
        assert PARTICIPATION not in names, (seed, [one.words for one in found])


@pytest.mark.parametrize("kind", [PassesABand, PassesAHighBand])
def test_updates_of_one_band_of_lengths_that_pass_unclipped_are_found(kind, checked):
    names, _ = checked(CLIENTS, kind, **HALF)
    assert AS_SAMPLED in names


def test_short_updates_need_no_clip(checked):
    assert not checked(CLIENTS, PassesShortOnes, **HALF)[0]


def test_every_band_of_lengths_by_a_half_holds_rows_of_several_runs():
    around = draw_surroundings(holders=[0, 1], clients=3, dim=12, rounds=2, replicas=256, clip_norm=2.0, seed=0)
    for rows in (around.units[:, 0], around.units[:, 1]):
        lengths = torch.linalg.vector_norm(rows, dim=-1) / 2.0
        edges = 0.3 * 1.5 ** torch.arange(20)
        assert all(int(((lengths >= low) & (lengths < 1.5 * low)).sum()) >= 8 for low in edges)
        assert torch.equal(around.long, lengths >= 10 * (1 - 1e-6))


@pytest.mark.long
def test_a_shift_that_equal_draws_do_not_show_is_measured_over_more_runs():
    """A second draw for large numbers: the order of draws depends on the noised report."""
    found = versions("lazy_draws")
    claim = found.correct.claims[0]
    claim = replace(claim, parameters={**claim.parameters, "noise_multiplier": 1.0})
    for factor, passes in ((1.0, True), (0.4, False)):
        protection = replace(found.correct.protection, noise_std=factor * found.correct.protection.noise_std)
        checks = {one.name: one for one in hook_runs(found.task, found.plan, protection, claim, seed=1).checks()}
        assert checks[AS_SAMPLED].passed is passes, checks[AS_SAMPLED].words
        assert checks[AS_SAMPLED].detects is not None or not passes


class NoiseDropped(Reports):
    """One number of noise in five hundred is left out."""

    def noise(self, shape, context, rng, rows):
        return normal(rng, shape) * (uniform(rng, shape) > 0.002)


class MaskedAfterwards(Reports):
    """Numbers are left out with their noise: post-processing."""

    def report(self, updates, context, state, rng):
        sent = super().report(updates, context, state, rng)
        return sent.with_values(sent.values * (uniform(rng, tuple(sent.values.shape)) > 0.3))


class NoiseOnAGrid(Reports):
    """Noise is rounded, the row is not."""

    def noise(self, shape, context, rng, rows):
        return (normal(rng, shape) * 2.0**8).round() / 2.0**8 / self.noise_std


class SinglePrecision(Reports):
    """Noise of single precision on a row of double precision."""

    def clipped(self, rows):
        return clip(rows.double(), self.clip_norm)


class DoublePrecision(SinglePrecision):
    """Noise and row of double precision."""

    def noise(self, shape, context, rng, rows):
        return normal(rng, shape, dtype=torch.float64)


class SparseUnclipped(Reports):
    """Rows of few numbers are clipped number by number."""

    def clipped(self, rows):
        count = (rows != 0).sum(-1, keepdim=True)
        bounded = rows.clamp(-self.clip_norm, self.clip_norm)
        return torch.where((count >= 3) & (count <= 6), bounded, super().clipped(rows))


class NormOfACoarseCopy(Reports):
    """The norm is that of a copy with few levels, in which small numbers are zero."""

    def clipped(self, rows):
        values = clip(rows, 1e6 * self.clip_norm)
        top = values.abs().amax(-1, keepdim=True).clamp_min(1e-30)
        coarse = torch.round(values / top * 7) * top / 7
        length = 1.06 * torch.linalg.vector_norm(coarse, dim=-1, keepdim=True)
        return values * self.clip_norm / length.clamp_min(self.clip_norm)


class NormOfTheLargest(Reports):
    """The norm is taken from the eight largest numbers, with a reserve for the others."""

    def clipped(self, rows):
        values = clip(rows, 1e6 * self.clip_norm)
        largest = values.abs().topk(8, dim=-1).values
        length = torch.linalg.vector_norm(largest, dim=-1, keepdim=True) * (values.shape[-1] / 8) ** 0.5
        spread = (largest[..., -1:] / largest[..., :1].clamp_min(1e-30)) < 0.05
        length = torch.where(spread, torch.linalg.vector_norm(largest, dim=-1, keepdim=True), length)
        return values * self.clip_norm / length.clamp_min(self.clip_norm)


@dataclass(frozen=True, kw_only=True)
class Rounded(LDPGaussianProtection):
    """Rounds each noised number to a public grid: post-processing."""

    step = 2.0**-4
    memory: dict = field(default_factory=dict, compare=False)

    def rows(self, updates, context):
        return clip(updates.values, self.clip_norm)

    def report(self, updates, context, state, rng):
        noised = self.rows(updates, context) + self.noise_std * normal(rng, tuple(updates.values.shape))
        return updates.with_values((noised / self.step).round() * self.step)


class RoundedCoarsely(Rounded):
    step = 0.25


class RoundedTwice(Rounded):
    """Sends the row of the last round once more, with the noise of one."""

    def rows(self, updates, context):
        rows = super().rows(updates, context)
        last = self.memory.get("rows") if context.round else None
        self.memory["rows"] = rows
        return rows if last is None else rows + last


@pytest.mark.simulations
@pytest.mark.parametrize("kind", [Rounded, RoundedCoarsely])
def test_rounding_after_the_noise_is_no_further_move(checked, kind):
    """The bound on errors of rounding fails once in 10^6 claims."""
    for seed in range(3):
        names, found = checked(LDPGaussian(epsilon=4.0), kind, seed=seed)
        assert not names, [one.words for one in found]


def test_a_row_that_is_sent_twice_shows_through_rounding(checked):
    assert ONCE in checked(LDPGaussian(epsilon=4.0), RoundedTwice)[0]


@dataclass(frozen=True, kw_only=True)
class RareCohorts(Sum):
    """A third of the clients, drawn by a hook for each round."""

    rate = 1 / 3

    def participates(self, context, state, rng):
        return uniform(rng, (context.replicas, len(context.senders))) < self.rate

    def mean(self, total, context, rng):
        return (total + self.noise(total, rng)) / (self.rate * context.plan.clients)


class FixedCohorts(RareCohorts):
    """Exactly a third of the clients, which is accounted as independent coins."""

    def participates(self, context, state, rng):
        order = uniform(rng, (context.replicas, len(context.senders))).argsort(dim=1).argsort(dim=1)
        return order < round(self.rate * context.plan.clients)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "failing"), [(RareCohorts, set()), (FixedCohorts, {PARTICIPATION})])
@pytest.mark.parametrize("stated", [True, False])
def test_cohorts_of_a_hook_are_counted_at_the_rate_of_the_claim(task, kind, failing, stated):
    """Without a law; a claim without a rate cannot be compared, because each rate would give another epsilon."""
    plan = toy_plan(task, rounds=ROUNDS)
    claim = claim_from_noise(
        1.0, delta=1e-5, sampling_rate=RareCohorts.rate, steps=ROUNDS, unit="client", observer="global_models"
    )
    claim = replace(claim, rounds=ROUNDS)
    claim = claim if stated else replace(claim, parameters={"noise_multiplier": 1.0}, curve=None)
    protection = type(f"{kind.__name__}WithoutLaw", (kind,), {"law": lambda self, observer, plan, client: None})(
        **{**vars(CLIENTS.prepare(plan).protection), "noise_multiplier": 1.0}
    )
    for seed in range(2):
        found = [*measured_checks(replay_setup(task, plan, protection, claim, seed=seed), plan)]
        found += hook_runs(task, plan, protection, claim, seed=seed).checks()
        assert {one.name for one in found if one.passed is False} == (failing if stated else set())
        assert len([one for one in found if one.name == PARTICIPATION]) <= 1
        assert stated or all("no claim states" in one.witness for one in found if one.name in (MEASURED, AS_SAMPLED))


@pytest.mark.parametrize(
    "kind", [NoiseDropped, NoiseOnAGrid, SinglePrecision, SparseUnclipped, NormOfACoarseCopy, NormOfTheLargest]
)
def test_noise_that_lacks_numbers_or_digits_and_clips_that_depend_on_the_shape_of_rows_are_found(checked, kind):
    names, found = checked(LDPGaussian(epsilon=4.0), kind)
    assert AS_SAMPLED in names, [one.words for one in found]


@pytest.mark.parametrize("kind", [Reports, DoublePrecision])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.simulations) for seed in range(1, 10))])
def test_noise_of_one_precision_is_no_fault(checked, kind, seed):
    names, found = checked(LDPGaussian(epsilon=4.0), kind, seed=seed)
    assert not names, [one.words for one in found]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.simulations) for seed in range(1, 10))])
def test_numbers_that_are_left_out_with_their_noise_are_not_bare(checked, seed):
    """The law does not state the mask, so that other checks may fail."""
    _, found = checked(LDPGaussian(epsilon=4.0), MaskedAfterwards, seed=seed)
    assert not any("without any noise" in one.words for one in found)


@dataclass(frozen=True, kw_only=True)
class PaidTwice(DPSGDProtection):
    """The cohort's rate is counted in the law's rate, though the adversary sees who takes part."""

    def law(self, observer, plan, client):
        law = super().law(observer, plan, client)
        return law and replace(law, rate=law.rate * plan.cohort_rate)


@pytest.mark.simulations
@pytest.mark.parametrize(("kind", "failing"), [(None, set()), (PaidTwice, {PARTICIPATION})])
@pytest.mark.parametrize("cohort", [Poisson(0.5), FixedSize(2)])
def test_a_row_is_counted_in_the_rounds_of_its_client_where_these_are_seen(checked, kind, failing, cohort):
    names, found = checked(SAMPLES, kind, cohort=cohort, **LOTS)
    assert names == failing, [one.words for one in found]


@dataclass(frozen=True)
class DrawnInEights(Poisson):
    """A loader reads blocks of eight records; each record has the stated rate."""

    def draw(self, rng, replicas, n, turn=0):
        return (uniform(rng, (replicas, -(-n // 8))) < self.probability).repeat_interleave(8, dim=1)[:, :n]


@dataclass(frozen=True)
class Sticky(Poisson):
    """A loader keeps half of what it drew before; each record has the stated rate."""

    kept: dict = field(default_factory=dict, compare=False)

    def draw(self, rng, replicas, n, turn=0):
        fresh, again = uniform(rng, (2, replicas, n))
        drawn = fresh < self.probability
        before = self.kept.get((replicas, n))
        self.kept[replicas, n] = drawn if before is None else torch.where(again < 0.5, before, drawn)
        return self.kept[replicas, n]


@pytest.mark.parametrize("rule", [DrawnInEights, Sticky])
def test_samples_that_are_drawn_together_or_again_are_found_whatever_their_rate_is(checked, rule):
    assert PARTICIPATION in checked(SAMPLES, lot=rule(0.25))[0]


@pytest.mark.parametrize("rule", [DrawnInEights, Sticky])
def test_clients_that_a_rule_of_the_plan_draws_together_or_again_are_found(checked, rule):
    assert PARTICIPATION in checked(CLIENTS, cohort=rule(0.5))[0]


@pytest.mark.simulations
@pytest.mark.parametrize("changes", [{"lot": Poisson(0.25)}, {"lot": Poisson(0.02)}, {"lot": FixedSize(2)}])
def test_samples_of_rules_that_keep_their_word_are_never_said_to_be_drawn_together(checked, changes):
    part = SAMPLES if isinstance(changes["lot"], Poisson) else LDPGaussian(epsilon=4.0)
    assert not any(PARTICIPATION in checked(part, seed=seed, **changes)[0] for seed in range(6))
