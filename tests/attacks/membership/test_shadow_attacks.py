"""Attacks with shadow models: hand-computed scores, naive versions, laws with known answers, and chance where there is
nothing to see.

Shadow bank: whom it leaves out, what it hands on of a target, and what it refuses.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch
from digits_federation import received
from fedassay.attacks.attack import Knowledge
from fedassay.attacks.membership.attack_p import AttackP
from fedassay.attacks.membership.attack_r import AttackR
from fedassay.attacks.membership.calibrated_loss import CalibratedLoss
from fedassay.attacks.membership.lira_offline import LiRAOffline
from fedassay.attacks.membership.lira_online import LiRAOnline
from fedassay.attacks.membership.quantile_regression import QuantileRegression, conditional_deviations
from fedassay.attacks.membership.rmia import RMIA
from fedassay.attacks.shadow_bank import ModelLogits, ShadowBank, of_true_class, rank_among, true_class_logits
from fedassay.audit.claim import Adjacency, Unit
from fedassay.audit.evidence import Design, MembershipScores, Setting
from fedassay.audit.observer import FINAL_MODEL
from fedassay.fl.protection import Protection
from fedassay.suites.scoring.membership_rows import auc, groups, over_targets
from scipy.special import expit
from scipy.stats import norm, t

SETTING = Setting(
    unit=Unit.SAMPLE, adjacency=Adjacency.ADD_REMOVE, observer=FINAL_MODEL, rounds=1, design=Design.CLUSTERED
)
ATTACKS = [
    CalibratedLoss(),
    AttackR(),
    LiRAOffline(),
    LiRAOnline(),
    LiRAOnline(variance="pooled"),
    RMIA(),
    RMIA(online=True),
]


def bank(logits, included, population=None, paired=True):
    models, candidates = logits.shape
    return ShadowBank(
        logits=logits,
        included=included,
        population=np.zeros((models, 3)) if population is None else population,
        ids=np.arange(candidates),
        paired=paired,
    )


def pairs(rng, models, candidates):
    halves = rng.random((models // 2, candidates)) < 0.5
    return np.stack([halves, ~halves], axis=1).reshape(models, candidates)


def normal_bank(*, gain, models=32, candidates=400, points=200, seed=0):
    """Candidates of unlike difficulty and scatter, whose logit rises by ``gain`` deviations where they are in."""
    rng = np.random.default_rng(seed)
    included, place, spread = (
        pairs(rng, models, candidates),
        2 * rng.standard_normal(candidates),
        rng.gamma(4, 0.25, candidates),
    )
    logits = place + spread * (rng.standard_normal((models, candidates)) + gain * included)
    population = 2 * rng.standard_normal(points) + rng.gamma(4, 0.25, points) * rng.standard_normal((models, points))
    return bank(logits, included, population)


def area(scores, member):
    return auc(MembershipScores(scores[member], scores[~member], SETTING))


def mean_area(score, whole):
    """``score``: (references, outputs) -> scores; the mean over all targets."""
    return float(np.mean(areas(score, whole)))


def areas(score, whole):
    return [
        area(score(whole.references(target), whole.model_logits(target)), whole.included[target])
        for target in range(whole.models)
    ]


def test_scores_computed_by_hand():
    """Two candidates; references 0 and 1 hold the first, 2 and 3 the second."""
    logits = np.array([[3.0, 0.0], [5.0, 2.0], [1.0, 4.0], [2.0, 8.0]])
    included = np.array([[True, False], [True, False], [False, True], [False, True]])
    references = bank(logits, included, np.array([[0.0, 1.0]] * 4), paired=False)
    target_rows = ModelLogits(candidates=np.array([4.0, 1.0]), population=np.array([0.0, -5.0]))
    np.testing.assert_allclose(CalibratedLoss().scores(references, target_rows), [4 - 1.5, 1 - 1.0])
    np.testing.assert_allclose(AttackR().scores(references, target_rows), [1.0, 0.5])
    np.testing.assert_allclose(LiRAOffline().scores(references, target_rows), [2.5 / math.sqrt(0.5), 0.0])
    online = [
        norm.logpdf(4, 4, math.sqrt(2)) - norm.logpdf(4, 1.5, math.sqrt(0.5)),
        norm.logpdf(1, 6, math.sqrt(8)) - norm.logpdf(1, 1, math.sqrt(2)),
    ]
    np.testing.assert_allclose(LiRAOnline().scores(references, target_rows), online)
    # Within members (2 + 8) / 2 about their own means, within non-members (.5 + 2) / 2.
    pooled = [
        norm.logpdf(x, within, math.sqrt(5)) - norm.logpdf(x, out, math.sqrt(1.25))
        for x, within, out in ((4, 4, 1.5), (1, 6, 1))
    ]
    np.testing.assert_allclose(LiRAOnline(variance="pooled").scores(references, target_rows), pooled)


@pytest.mark.parametrize("online", [False, True])
def test_rmia_is_the_plain_loop_over_pairs(online):
    whole, a = normal_bank(gain=1.0, models=8, candidates=20, points=9), 0.3
    references, target_rows = whole.references(0), whole.model_logits(0)
    found = RMIA(online=online).scores(references, target_rows)
    p, q = expit(references.logits), expit(references.population)
    for x in range(20):
        out, within = p[~references.included[:, x], x].mean(), p[references.included[:, x], x].mean()
        usual = (out + within) / 2 if online else ((1 + a) * out + 1 - a) / 2
        mine = expit(target_rows.candidates[x]) / usual
        others = [expit(target_rows.population[z]) / (((1 + a) * q[:, z].mean() + 1 - a) / 2) for z in range(9)]
        wins = sum((other < mine) + 0.5 * (other == mine) for other in others) / 9
        assert found[x] == pytest.approx(wins)


def test_ties_count_half():
    ranks = rank_among(np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 2.0, 2.0, 5.0]))
    np.testing.assert_allclose(ranks, [0.0, 0.125, 0.5, 0.75])


@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_identical_models_are_separated_by_chance_only(attack):
    included = pairs(np.random.default_rng(0), 8, 40)
    same = bank(np.full((8, 40), 1.25), included, np.full((8, 5), 1.25))
    assert mean_area(attack.scores, same) == 0.5


@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_what_members_gain_is_found(attack):
    """Far more than chance, and no more than the test that knows each candidate's law: Phi(1 / sqrt(2)) = .760."""
    found = mean_area(attack.scores, normal_bank(gain=1.0))
    assert 0.6 < found < norm.cdf(1 / math.sqrt(2)) + 0.01


def test_the_online_ratio_reaches_the_test_that_knows_the_laws():
    many = normal_bank(gain=1.0, models=200, candidates=300)
    assert mean_area(LiRAOnline().scores, many) == pytest.approx(norm.cdf(1 / math.sqrt(2)), abs=0.015)


@pytest.mark.simulations
@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_exchangeable_members_are_found_no_oftener_than_intervals_allow(attack):
    """200 repeats without a gain: at least 180 of the 95 % intervals hold .5. A sound interval fails that with
    probability .002; the seeds are fixed.
    """
    held, scattered = 0, 0
    for repeat in range(200):
        whole = normal_bank(gain=0.0, models=8, candidates=30, points=20, seed=repeat)
        values = areas(attack.scores, whole)
        found = over_targets(values, [areas(attack.scores, whole.without(group)) for group in groups(8)])
        held += found.low <= 0.5 <= found.high
        pairs = np.reshape(values, (-1, 2)).mean(1)
        scattered += abs(pairs.mean() - 0.5) <= t.ppf(0.975, 3) * pairs.std(ddof=1) / 2
    assert held >= 180
    if attack == LiRAOnline(variance="pooled"):
        # As if targets were strangers to each other: each is the others' reference, and pairs repeat one another.
        assert scattered < 180


def test_with_the_targets_pair_left_in_there_is_something_to_find_where_nothing_is():
    """The planted bug: six references including the target's pair. A member's mean without it uses one model more."""
    found, sound = [], []
    for seed in range(60):
        whole = normal_bank(gain=0.0, models=6, candidates=200, seed=seed)
        leaky = bank(whole.logits, whole.included, whole.population, paired=False)
        for target in range(6):
            target_rows, truth = whole.model_logits(target), whole.included[target]
            found.append(area(LiRAOnline(variance="pooled").scores(leaky.references(target), target_rows), truth))
            sound.append(area(LiRAOnline(variance="pooled").scores(whole.references(target), target_rows), truth))
    assert abs(np.mean(sound) - 0.5) < 0.005
    assert abs(np.mean(found) - 0.5) > 0.02


def test_a_point_is_compared_with_public_points_like_it():
    """Half of all points are easy, scatter little and are known by one pixel: there a small gain is a large one."""
    rng = np.random.default_rng(2)

    def points(n):
        easy = rng.random(n) < 0.5
        features = np.stack([easy, rng.random(n), np.ones(n)], axis=1).astype(float)
        return features, np.where(easy, 8 + 0.3 * rng.standard_normal(n), 3 * rng.standard_normal(n))

    (features, logits), (public, public_logits) = points(2000), points(600)
    member = np.arange(2000) < 1000
    logits[member] += np.where(features[member, 0] == 1, 0.3, 3.0)
    scores = conditional_deviations(features, logits, public, public_logits)
    # One deviation for all candidates: Phi(1 / sqrt(2)) = .760, less what the fit misses.
    assert area(scores, member) == pytest.approx(norm.cdf(1 / math.sqrt(2)), abs=0.02)
    assert area(logits, member) < 0.67


def test_deviations_of_points_that_no_model_trained_on_are_standard():
    rng = np.random.default_rng(4)
    features, public = rng.standard_normal((3000, 40)), rng.standard_normal((300, 40))
    weights = rng.standard_normal(40)
    scores = conditional_deviations(
        features,
        features @ weights + 2 * rng.standard_normal(3000),
        public,
        public @ weights + 2 * rng.standard_normal(300),
    )
    assert abs(scores.mean()) < 0.3
    assert scores.std() == pytest.approx(1, rel=0.2)


def test_a_regression_on_two_points_is_refused():
    with pytest.raises(ValueError, match="a regression needs at least 3 public points, got 2"):
        conditional_deviations(np.zeros((4, 2)), np.zeros(4), np.zeros((2, 2)), np.zeros(2))


@pytest.fixture
def seen(toy_task, toy_plan, knowledge_of):
    """A federation's last model, and what an attacker without shadow models knows of it."""
    task = toy_task((40, 40), outsiders=40)
    plan, planted = toy_plan(task), CalibratedLoss().plant(task, np.random.default_rng(0))
    return received(task, plan, observer=FINAL_MODEL), knowledge_of(task, plan, Protection(), candidates=planted.shown)


@pytest.mark.parametrize("attack", ATTACKS, ids=repr)
def test_without_shadow_models_there_is_nothing_to_compare_with(attack, seen):
    view, knowledge = seen
    with pytest.raises(ValueError, match="needs shadow models, and none is available"):
        attack.run(view, knowledge, np.random.default_rng(0))


def test_a_bank_of_other_candidates_is_refused(seen):
    view, knowledge = seen
    fields = {name: getattr(knowledge, name) for name in Knowledge.__dataclass_fields__}
    other = Knowledge(**(fields | {"shadows": normal_bank(gain=1.0)}))
    with pytest.raises(
        ValueError, match="the shadow models' logits must cover the 80 candidates and 9 public images, got 400 and 200"
    ):
        CalibratedLoss().run(view, other, np.random.default_rng(0))


@pytest.mark.parametrize("attack", [AttackP(), QuantileRegression()], ids=repr)
def test_attacks_on_public_points_need_no_shadow_models(attack, seen):
    assert attack.run(*seen, np.random.default_rng(0)).values.shape == (80,)


MODELS, CANDIDATES = 12, 30


def drawn_bank(*, models=MODELS, candidates=CANDIDATES, seed=0, paired=True, **changes):
    rng = np.random.default_rng(seed)
    halves = rng.random((models // 2, candidates)) < 0.5
    fields = {
        "logits": rng.standard_normal((models, candidates)),
        "included": np.stack([halves, ~halves], axis=1).reshape(models, candidates),
        "population": rng.standard_normal((models, 7)),
        "ids": np.arange(candidates) + 100,
        "paired": paired,
    }
    return ShadowBank(**(fields | changes))


def with_opposite_truth(whole, target):
    """The same bank with the opposite truth about the target; pairs stay complementary."""
    included = whole.included.copy()
    rows = [target - target % 2, target - target % 2 + 1]
    included[rows] = ~included[rows]
    return dataclasses.replace(whole, included=included)


def test_the_references_are_without_the_target_and_its_pair():
    whole = drawn_bank()
    for target in (0, 1, 6, 7, 11):
        left = [model for model in range(MODELS) if model // 2 != target // 2]
        references = whole.references(target)
        np.testing.assert_array_equal(references.logits, whole.logits[left])
        np.testing.assert_array_equal(references.included, whole.included[left])
        np.testing.assert_array_equal(references.population, whole.population[left])
        np.testing.assert_array_equal(references.ids, whole.ids)


def test_models_that_are_no_pairs_leave_the_target_alone_out():
    whole = drawn_bank(paired=False)
    np.testing.assert_array_equal(whole.references(3).logits, np.delete(whole.logits, 3, axis=0))


@pytest.mark.parametrize(
    "attack",
    ATTACKS,
    ids=repr,
)
def test_another_truth_about_the_target_changes_no_score(attack):
    whole = drawn_bank()
    for target in (0, 5):
        scores, other = (
            attack.scores(one.references(target), one.model_logits(target))
            for one in (whole, with_opposite_truth(whole, target))
        )
        np.testing.assert_array_equal(scores, other)


def test_the_targets_pair_left_in_would_reveal_everything():
    """Counting the references with a candidate reveals nothing; with the target's pair it gives the target's row."""
    whole = drawn_bank()
    for target in range(MODELS):
        assert len(set(whole.references(target).included.sum(0).tolist())) == 1
        leaky = dataclasses.replace(whole, paired=False).references(target)
        np.testing.assert_array_equal(leaky.included.sum(0) == MODELS // 2 - 1, whole.included[target])


def test_moments_are_those_of_a_plain_loop():
    whole = drawn_bank(models=10, candidates=6)
    for included in (True, False):
        found, squares, counts = whole.moments(included=included), 0.0, 0
        for candidate in range(6):
            own = [whole.logits[m, candidate] for m in range(10) if whole.included[m, candidate] == included]
            assert found.count[candidate] == len(own)
            assert found.mean[candidate] == pytest.approx(np.mean(own))
            assert found.variance[candidate] == pytest.approx(np.var(own, ddof=1))
            squares, counts = squares + np.var(own) * len(own), counts + len(own) - 1
        assert found.pooled_variance == pytest.approx(squares / counts)


def test_the_true_classes_logit_is_that_of_its_probability():
    logits = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 4)))
    labels = torch.tensor([0, 3, 1, 2, 2])
    p = logits.softmax(-1).gather(1, labels.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(of_true_class(logits, labels), (p / (1 - p)).log())


def test_a_probability_that_rounds_to_one_has_a_finite_logit(toy_task):
    task = toy_task()
    model = torch.zeros(task.network.layout.dim)
    model[-3] = 200.0  # The first class's bias: exp(-200) is no number of single precision.
    found = true_class_logits(task.network, model, task.images[:1], torch.tensor([0]))
    assert found == pytest.approx(200 - np.log(2))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"logits": np.full((MODELS, CANDIDATES), np.nan)}, "logits must be finite, got 360 of 360 NaN or infinite"),
        ({"population": np.full((MODELS, 1), np.inf)}, "population must be finite"),
        ({"logits": np.zeros(5)}, r"logits must have 2 dimension\(s\)"),
    ],
)
def test_logits_that_are_no_numbers_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        drawn_bank(**changes)


def test_a_bank_is_not_changed_by_who_holds_its_arrays():
    logits = np.zeros((MODELS, CANDIDATES))
    whole = drawn_bank(logits=logits)
    logits[:] = 1.0
    assert not whole.logits.any()
    with pytest.raises(ValueError, match="read-only"):
        whole.included[0, 0] = True


def test_targets_that_are_not_there_and_banks_that_nothing_is_left_of_are_refused():
    with pytest.raises(ValueError, match=r"target .*must be in 0\.\.11, got 12"):
        drawn_bank().references(12)
    with pytest.raises(
        ValueError, match="more than 2 shadow models are needed, because the attack leaves 2 of them out, got 2"
    ):
        drawn_bank(models=2).references(0)


@pytest.mark.parametrize(
    ("attack", "models", "words"),
    [
        (LiRAOffline(), 4, "must be out of 2 or more of their training sets, candidate 100 is out of 1 of 2"),
        (LiRAOnline(), 4, "must be out of 2 or more of their training sets, candidate 100 is out of 1 of 2"),
    ],
    ids=repr,
)
def test_fewer_references_than_a_variance_takes_are_refused(attack, models, words):
    whole = drawn_bank(models=models)
    with pytest.raises(ValueError, match=words):
        attack.scores(whole.references(0), whole.model_logits(0))


@pytest.mark.parametrize("attack", [CalibratedLoss(), AttackR(), RMIA(), LiRAOnline()], ids=repr)
def test_a_candidate_that_every_reference_holds_is_refused(attack):
    included = drawn_bank(paired=False).included.copy()
    included[:, 4] = True
    whole = drawn_bank(paired=False, included=included)
    with pytest.raises(
        ValueError, match=r"must be out of \d or more of their training sets, candidate 104 is out of 0 of 11"
    ):
        attack.scores(whole.references(0), whole.model_logits(0))


@pytest.mark.parametrize("attack", [LiRAOnline(), RMIA(online=True)], ids=repr)
def test_a_candidate_that_no_reference_holds_is_refused_where_one_has_to(attack):
    included = drawn_bank(paired=False).included.copy()
    included[:, 4] = False
    whole = drawn_bank(paired=False, included=included)
    with pytest.raises(ValueError, match=r"must be in \d or more of their training sets, candidate 104 is in 0 of 11"):
        attack.scores(whole.references(0), whole.model_logits(0))
    CalibratedLoss().scores(whole.references(0), whole.model_logits(0))
