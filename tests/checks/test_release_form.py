"""Runs of a sum with Gaussian noise show its law; releases of another form show none."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from fedassay.audit.curve import epsilon_from_mu
from fedassay.checks.claim_checks import hook_runs
from fedassay.checks.release_form import Shown, covered_shift, has_form
from fedassay.checks.setup import SUM, SeenLaws
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussian, LDPGaussianProtection
from fedassay.fl.laws import clip
from fedassay.fl.layout import Layout
from open_defenses import Reports, without_law
from toy_federation import toy_plan, toy_task

TASK = toy_task((4, 9, 6, 5), side=4, inert=1)
PLAN = toy_plan(TASK, rounds=3)
PREPARED = LDPGaussian().prepare(PLAN)
CLAIM = PREPARED.claims[0]
LAYOUT = Layout(names=("weight", "bias"), shapes=((4, 10), (10,)))
RUNS, ROUNDS, SIZE = 400, 3, 2.0


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def shown(change, *, rounded=False):
    """Runs of a release whose form is changed: of noise, and of noise and rows with two draws."""
    dim, first, second = LAYOUT.dim, generator(0), generator(1)
    shape = (RUNS, ROUNDS, dim)
    noise, again = (SIZE * torch.randn(shape, generator=rng, dtype=torch.float64) for rng in (first, second))
    rows = torch.zeros(shape, dtype=torch.float64)
    edges = torch.linspace(0, dim, ROUNDS + 2).long().tolist()
    parts = tuple(slice(low, high) for low, high in pairwise(edges))
    for turn, part in enumerate(parts[:-1]):
        rows[:, turn, part] = 1.0
    silent = torch.zeros_like(rows)
    released = {
        (draw, moved): change(numbers, unit)
        for draw, numbers in (("one", noise), ("two", again))
        for moved, unit in ((True, rows), (False, silent))
    }
    own = released["one", False]
    return Shown(
        noise=own.unsqueeze(2),
        moved=released["one", True] - own,
        again=released["two", True] - released["two", False],
        own=own,
        rows=rows.float(),
        opposite=change(noise, -rows) - own,
        alone=torch.ones(RUNS, dtype=torch.bool),
        parts=parts,
        rounded=rounded,
    )


def laplace(noise, rows):
    uniform = torch.special.ndtr(noise / SIZE) - 0.5
    return rows - SIZE * uniform.sign() * torch.log1p(-2 * uniform.abs())


def momentum(noise, rows):
    released = (noise + rows).clone()
    for turn in range(1, ROUNDS):
        released[:, turn] += 0.9 * released[:, turn - 1]
    return released


def scaled_numbers(noise, rows):
    factors = torch.linspace(0.1, 1, LAYOUT.dim, dtype=torch.float64)
    return factors * (noise + rows)


def mixed_numbers(noise, rows):
    mixing = torch.randn(LAYOUT.dim, LAYOUT.dim, generator=generator(2), dtype=torch.float64)
    return scaled_numbers(noise, rows) @ mixing


def louder_layer(noise, rows):
    released = (noise + rows).clone()
    released[..., LAYOUT.slices["bias"]] *= 2
    return released


def quieter_round(noise, rows):
    released = (noise + rows).clone()
    released[:, -1] /= 2
    return released


def sizes_by_coin(noise, rows):
    coins = torch.rand(noise.shape[:2], generator=generator(5)) < 0.5
    return torch.where(coins[..., None], noise, 3 * noise) + rows


def clipped_afterwards(noise, rows):
    return clip(noise + rows, 5.0)


def kept_half(noise, rows):
    return (noise + rows) * (noise > 0)


def neighbours_alike(noise, rows):
    noise = noise.clone()
    noise[..., 1:] = 0.1 * noise[..., :-1] + 0.99**0.5 * noise[..., 1:]
    return noise + rows


def rounds_opposed(noise, rows):
    noise = noise.clone()
    noise[:, 1] = -0.3 * noise[:, 0] + 0.91**0.5 * noise[:, 1]
    return noise + rows


def one_sided(noise, rows):
    return noise + rows.clamp_min(0)


def no_noise(noise, rows):
    return rows


def plain(noise, rows):
    return noise + rows


def quiet_numbers(noise, rows):
    """A bug: four numbers have a quarter of the noise."""
    noise = noise.clone()
    noise[..., :4] /= 4
    return noise + rows


def rarely_weak(noise, rows):
    """A bug: one run in twenty has a tenth of the noise."""
    noise = noise.clone()
    noise[: RUNS // 20] /= 10
    return noise + rows


def doubled_rarely(noise, rows):
    """A bug: one run in twenty counts the row twice."""
    rows = rows.clone()
    rows[: RUNS // 20] *= 2
    return noise + rows


@pytest.mark.parametrize("change", [plain, quiet_numbers, rarely_weak, doubled_rarely, laplace])
def test_a_sum_with_noise_of_one_size_has_the_form_whatever_a_few_of_its_numbers_or_runs_do(change):
    assert has_form(shown(change), LAYOUT, stated=True)


@pytest.mark.parametrize(
    "change",
    [
        momentum,
        scaled_numbers,
        mixed_numbers,
        louder_layer,
        quieter_round,
        sizes_by_coin,
        clipped_afterwards,
        kept_half,
        neighbours_alike,
        rounds_opposed,
        one_sided,
        no_noise,
    ],
)
def test_what_an_honest_defense_does_after_the_noise_shows_no_law(change):
    assert not has_form(shown(change), LAYOUT, stated=True)


def test_numbers_on_a_grid_show_no_law():
    assert not has_form(shown(plain, rounded=True), LAYOUT, stated=True)


def test_noise_that_no_claim_states_to_be_gaussian_must_look_so():
    assert has_form(shown(plain), LAYOUT, stated=False)
    assert not has_form(shown(laplace), LAYOUT, stated=False)


@pytest.mark.parametrize("rounds", [1, 3, 40])
def test_the_shift_that_a_claim_covers_is_that_of_its_epsilon(rounds):
    claim = replace(CLAIM, rounds=rounds, curve=None)
    plan = replace(PLAN, rounds=rounds)
    shift = covered_shift(claim, plan, PREPARED.protection, rate=1.0, steps=1)
    # Of the default adjacency, which replaces a report, the law's row moves to its opposite.
    implied = epsilon_from_mu(2 * shift * rounds**0.5, claim.delta)
    # The search ends within half a per cent, and claims may be exceeded by one per cent.
    assert claim.epsilon < implied < 1.03 * claim.epsilon


@pytest.mark.parametrize("stated", [True, False])
def test_the_law_that_runs_show_is_the_published_one(stated):
    protection = without_law(Reports(**vars(PREPARED.protection)))
    claim = CLAIM if stated else replace(CLAIM, curve=None, parameters={"clip_norm": 1.0})
    seen = hook_runs(TASK, PLAN, protection, claim).seen
    published = PREPARED.protection.law(claim.observer, PLAN, 0)
    assert sorted(seen.laws) == list(range(PLAN.clients))
    for law in seen.laws.values():
        assert law.noise_std == pytest.approx(published.noise_std, rel=0.02)
        # The claim is that of the law, and the search leaves four per cent.
        assert law.scale * law.clip_norm == pytest.approx(published.scale * published.clip_norm, rel=0.05)


def test_no_law_is_seen_where_one_is_published_or_the_claim_has_no_delta():
    assert not hook_runs(TASK, PLAN, Reports(**vars(PREPARED.protection)), CLAIM).seen
    pure = replace(CLAIM, delta=0.0, curve=None)
    assert not hook_runs(TASK, PLAN, without_law(Reports(**vars(PREPARED.protection))), pure).seen


class Raises(LDPGaussianProtection):
    def report(self, updates, context, state, rng):
        raise ValueError("no rows of this kind")


def test_hooks_that_do_not_run_on_given_rows_show_no_law():
    assert not hook_runs(TASK, PLAN, without_law(Raises(**vars(PREPARED.protection))), CLAIM).seen


def test_the_law_of_a_sum_is_that_of_every_client():
    law = PREPARED.protection.law(CLAIM.observer, PLAN, 0)
    assert SeenLaws(laws={SUM: law}).of(7) is law
    assert SeenLaws(laws={1: law}).of(0) is None
