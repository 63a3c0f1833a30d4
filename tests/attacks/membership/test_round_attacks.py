"""Attacks on rounds: naive versions, signs, which clients are scored, and what remains without named senders.

A malicious server: what it sends, what stays its own, and the control that climbs nowhere.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from digits_federation import received
from fedassay.attacks.attack import Undefined
from fedassay.attacks.membership import candidates as alignment
from fedassay.attacks.membership.active_ascent import ActiveAscent
from fedassay.attacks.membership.confidence_series import ConfidenceSeries
from fedassay.attacks.membership.fedmia_cosine import FedMIACosine
from fedassay.attacks.membership.fedmia_loss import FedMIALoss
from fedassay.attacks.membership.gradient_cosine import GradientCosine
from fedassay.attacks.membership.gradient_dot import GradientDot
from fedassay.attacks.membership.likelihood_ratio import LikelihoodRatio
from fedassay.attacks.membership.loss_series import LossSeries
from fedassay.attacks.membership.round_attack import compare_with_other_clients
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.algorithms import FedAvg, FedSGD
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import ViewRecorder
from fedassay.fl.sampling import Poisson
from fedassay.fl.streams import Streams
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch.nn.functional import cross_entropy

COUNT, CLIENTS = 3, 4
NOISY = DPSGDProtection(clip_norm=0.5, noise_multiplier=1.0)
ROWS = [GradientDot, GradientCosine, FedMIACosine, FedMIALoss, LikelihoodRatio]


@pytest.fixture
def attacked(toy_task, toy_plan, knowledge_of):
    """(attack, observer, changes) -> scores, view, planted and task of a federation of four clients."""

    def run(attack, observer=UPLOADS, *, protection=NOISY, task=None, seed=0, view_of=lambda view: view, **changes):
        task = task or toy_task((4, 4, 4, 4), outsiders=12, seed=seed)
        plan = toy_plan(task, **changes)
        planted = attack.plant(task, np.random.default_rng(5))
        view = view_of(received(task, plan, protection, observer=observer, seed=seed))
        knowledge = knowledge_of(task, plan, protection, candidates=planted.shown)
        return attack.run(view, knowledge, np.random.default_rng(0)), view, planted, task

    return run


def slope(task, model, image, label):
    weights = model.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(cross_entropy(task.network.logits(weights, image[None]), label[None]), weights)
    return gradient.double().numpy()


def by_hand(view, planted, task, statistic):
    """Sums over rounds of ``statistic(upload, candidate)``, both as gradients: (clients, n), and rounds."""
    found, rounds = np.zeros((CLIENTS, len(planted.holder))), np.zeros(CLIENTS)
    for seen in view.rounds:
        uploads = view.plan.algorithm.gradient(seen.reports.values[0]).double().numpy()
        for row, (client, here) in enumerate(zip(seen.reports.senders, seen.reports.present[0], strict=True)):
            if here:
                rounds[client] += 1
                for i, (image, label) in enumerate(zip(planted.shown.images, planted.shown.labels, strict=True)):
                    found[client, i] += statistic(uploads[row], slope(task, seen.broadcast[0], image, label))
    return found, rounds


def cosine(u, g):
    return u @ g / (np.linalg.norm(u) * np.linalg.norm(g))


ALGORITHMS = [FedSGD(learning_rate=0.5), FedAvg(learning_rate=0.3, local_steps=2)]


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=["fedsgd", "fedavg"])
def test_dot_and_cosine_are_those_of_each_pair_taken_alone(algorithm, attacked, monkeypatch):
    monkeypatch.setattr(alignment, "CHUNK", 5)
    changes = {"algorithm": algorithm, "cohort": Poisson(0.7), "rounds": 6}
    evidence, *run = attacked(GradientDot(count=COUNT, client="all"), **changes)
    expected, _ = by_hand(*run, lambda u, g: u @ g)
    np.testing.assert_allclose(evidence.values.reshape(CLIENTS, -1), expected, rtol=1e-4, atol=1e-6)
    evidence, *run = attacked(GradientCosine(count=COUNT, client="all"), **changes)
    expected, rounds = by_hand(*run, cosine)
    assert rounds.min() < 6
    np.testing.assert_allclose(evidence.values.reshape(CLIENTS, -1), expected / rounds[:, None], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("part", ROWS)
def test_all_clients_at_once_are_each_client_alone(part, attacked):
    together, _view, planted, _ = attacked(part(count=COUNT, client="all"))
    for row, client in enumerate(planted.shown.clients):
        shown = replace(planted.shown, clients=(client,))
        alone = part(count=COUNT, client=client)

        def asked(task, rng, shown=shown, planted=planted):
            return replace(planted, shown=shown, holder=np.full(len(planted.holder), -1))

        object.__setattr__(alone, "plant", asked)
        np.testing.assert_allclose(attacked(alone)[0].values, together.values.reshape(CLIENTS, -1)[row], rtol=1e-6)


def sent(change):
    def changed(view):
        return replace(
            view, rounds=tuple(replace(s, reports=s.reports.with_values(change(s.reports.values))) for s in view.rounds)
        )

    return changed


def test_a_gradient_of_zero_has_cosine_zero(attacked):
    assert (attacked(GradientCosine(count=COUNT), view_of=sent(torch.zeros_like))[0].values == 0).all()


@pytest.mark.parametrize("part", ROWS)
def test_an_upload_that_is_no_number_is_an_error_and_no_score(part, attacked):
    with pytest.raises(ValueError, match="finite"):
        attacked(part(count=COUNT), view_of=sent(lambda values: torch.full_like(values, torch.nan)))


@pytest.mark.parametrize("part", [GradientDot, GradientCosine])
def test_a_sum_gives_one_score_per_candidate_for_all_clients(part, attacked):
    evidence, view, planted, task = attacked(part(count=COUNT, client="all"), AGGREGATE)
    total = 0
    for seen in view.rounds:
        moved = view.plan.algorithm.gradient(seen.aggregate[0]).double().numpy()
        slopes = [
            slope(task, seen.broadcast[0], *pair)
            for pair in zip(planted.shown.images, planted.shown.labels, strict=True)
        ]
        total = total + np.array([moved @ g if part is GradientDot else cosine(moved, g) / 3 for g in slopes])
    np.testing.assert_allclose(evidence.values, total, rtol=1e-4, atol=1e-6)
    assert evidence.setting.observer == AGGREGATE


@pytest.mark.parametrize("part", [GradientDot, GradientCosine, LikelihoodRatio])
def test_two_models_tell_the_sum_that_lies_between_them(part, attacked):
    summed, moved = (attacked(part(count=COUNT), who)[0].values for who in (AGGREGATE, GLOBAL_MODELS))
    np.testing.assert_allclose(summed, moved, rtol=1e-3, atol=1e-5)


def test_of_a_multiset_the_highest_row_counts_and_the_order_does_not(attacked):
    changes = {"protection": Protection(), "rounds": 1}
    named = attacked(GradientDot(count=COUNT, client="all"), **changes)[0].values.reshape(CLIENTS, -1)
    evidence, view, *_ = attacked(GradientDot(count=COUNT, client="all"), SHUFFLED, **changes)
    assert view.rounds[0].reports.senders is None
    np.testing.assert_allclose(evidence.values, named.max(0), rtol=1e-5)


def test_the_ratio_of_a_multiset_is_the_mean_of_all_rows_ratios(attacked):
    """Undefended, where every row's ratio is the same function whether named or not."""
    ratio = LikelihoodRatio(count=COUNT, client="all")
    named = attacked(ratio, rounds=1, protection=Protection())[0].values.reshape(CLIENTS, -1)
    mixed = attacked(ratio, SHUFFLED, rounds=1, protection=Protection())[0].values
    np.testing.assert_allclose(np.exp(mixed), np.exp(named).mean(0), rtol=1e-4)


@pytest.mark.parametrize("part", ROWS)
def test_the_last_model_alone_shows_no_round(part, attacked):
    with pytest.raises(Undefined, match="does not observe rounds"):
        attacked(part(count=COUNT), FINAL_MODEL)


@pytest.mark.parametrize("part", [FedMIACosine, FedMIALoss])
def test_without_two_other_clients_there_is_no_comparison(part, attacked, toy_task):
    with pytest.raises(Undefined, match="the audited client took part in no round together with 2 others"):
        attacked(part(count=COUNT), task=toy_task((4, 4)))
    with pytest.raises(Undefined, match="the audited client took part in no round together with 2 others"):
        attacked(part(count=COUNT), AGGREGATE)


def test_masked_words_are_not_read_as_uploads(attacked):
    def masked(view):
        hidden = [replace(seen, reports=replace(seen.reports, masked=True)) for seen in view.rounds]
        return replace(view, rounds=tuple(hidden))

    for part in ROWS:
        with pytest.raises(Undefined, match="masked words of a secure sum"):
            attacked(part(count=COUNT), view_of=masked)


@pytest.mark.simulations
@given(st.integers(3, 7), st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e6]))
def test_one_for_all_is_the_normal_law_of_the_other_clients(clients, seed, offset):
    table = np.random.default_rng(seed).normal(offset, 1.0, size=(clients, 4))
    for client in range(clients):
        others = np.delete(table, client, axis=0)
        distance = (table[client] - others.mean(0)) / others.std(0, ddof=1)
        np.testing.assert_allclose(
            compare_with_other_clients(table)[client], stats.norm.cdf(distance), rtol=1e-5, atol=1e-8
        )


def test_the_target_is_no_part_of_its_own_null():
    """Of 5 values none lies 4 / sqrt(5) = 1.79 of their deviations from their mean; from the others it may."""
    table = np.array([[100.0], [0.0], [1.0], [-1.0], [0.5]])
    assert compare_with_other_clients(table)[0, 0] == pytest.approx(1, abs=1e-12)
    assert compare_with_other_clients(-table)[0, 0] < stats.norm.cdf(-25)


def test_ties_are_a_coin_and_others_that_do_not_vary_decide_for_sure():
    tied = compare_with_other_clients(np.full((4, 2), 7.0))
    np.testing.assert_array_equal(tied, 0.5)
    above = compare_with_other_clients(np.array([[2.0], [1.0], [1.0], [1.0]]))
    assert above[0, 0] == 1
    assert np.isfinite(above).all()


def test_fedmia_is_the_mean_over_rounds_of_losses_under_each_clients_own_model(attacked):
    evidence, view, planted, task = attacked(FedMIALoss(count=COUNT, client="all"))
    shown, total = planted.shown, 0
    for seen in view.rounds:
        rows = [seen.broadcast[0] + 0.5 * row for row in seen.reports.values[0]]
        losses = [cross_entropy(task.network.logits(row, shown.images), shown.labels, reduction="none") for row in rows]
        total = total + 1 / 3 * compare_with_other_clients(-torch.stack(losses).double().numpy())
    np.testing.assert_allclose(evidence.values.reshape(CLIENTS, -1), total, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("part", [LossSeries, ConfidenceSeries])
def test_a_series_is_the_mean_over_the_models_that_training_moved(part, attacked):
    evidence, view, planted, task = attacked(part(count=COUNT, client="all"), GLOBAL_MODELS)
    models = [*[seen.broadcast[0] for seen in view.rounds][1:], view.final_model[0]]
    assert len(models) == 3
    shown = planted.shown
    losses = [cross_entropy(task.network.logits(m, shown.images), shown.labels, reduction="none") for m in models]
    each = [-loss if part is LossSeries else torch.exp(-loss) for loss in losses]
    np.testing.assert_allclose(evidence.values, torch.stack(each).mean(0).numpy(), rtol=1e-5)


@pytest.mark.parametrize("attack", [*ROWS, LossSeries, ConfidenceSeries])
def test_the_history_holds_what_a_shorter_look_would_have_said(attack, attacked):
    """Scores after two of four rounds are those of who saw two rounds only; the last ones are the attack's own."""

    def first_two(view):
        return replace(view, rounds=view.rounds[:2], final_model=view.rounds[2].broadcast)

    asking = attack(count=COUNT, client="all")
    whole, *_ = attacked(asking, rounds=4)
    short, *_ = attacked(asking, rounds=4, view_of=first_two)
    history = dict(whole.history)
    assert list(history) == [1, 2, 3, 4]
    np.testing.assert_array_equal(history[4], whole.values)
    np.testing.assert_allclose(history[2], short.values, rtol=1e-12)
    assert not np.array_equal(history[1], history[2])


def test_a_client_that_has_not_taken_part_yet_has_no_scores_yet(attacked):
    whole, view, *_ = attacked(GradientCosine(count=COUNT, client="all"), rounds=6, cohort=Poisson(0.4))
    came = [set(seen.reports.senders) for seen in view.rounds]
    complete = [number for number in range(1, 7) if set().union(*came[:number]) == set(range(CLIENTS))]
    assert [rounds for rounds, _ in whole.history] == [number for number in complete if came[number - 1]]
    assert complete[0] > 1


@pytest.fixture
def setting(toy_task, toy_plan, knowledge_of):
    task = toy_task((4, 4, 4), model="mlp", outsiders=12)
    plan, planted = toy_plan(task), ActiveAscent(count=3, client="all").plant(task, np.random.default_rng(0))
    return task, plan, planted, knowledge_of(task, plan, Protection(), candidates=planted.shown)


def watched(task, plan, tamper=None):
    recorder = ViewRecorder(observer=UPLOADS)
    final = run_federation(task, plan, Protection(), Streams(0), recorders=[recorder], tamper=tamper)
    return recorder.view(plan, final)


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_every_candidate_is_raised_by_a_step_of_the_stated_length(rate, setting):
    task, _, planted, knowledge = setting
    model = task.network.initial(np.random.default_rng(1))
    sent = ActiveAscent(rate=rate).tamper(model[None], knowledge)[0]
    assert float((sent - model).norm() / model.norm()) == pytest.approx(rate, rel=1e-4)
    before, after = (
        task.network.losses(one, planted.shown.images, planted.shown.labels).mean() for one in (model, sent)
    )
    assert after > before


def test_clients_train_on_what_is_sent_and_the_server_goes_on_from_its_own(setting):
    task, plan, _, _ = setting
    view = watched(task, plan, tamper=lambda models: models + 1)
    own = task.network.initial(Streams(0).generator("init"))
    for seen in view.rounds:
        torch.testing.assert_close(seen.broadcast[0], own + 1)
        own = own + 0.5 * seen.reports.values[0].mean(0)
    torch.testing.assert_close(view.final_model[0], own)


def test_the_control_that_climbs_nowhere_is_the_passive_attack(setting):
    task, plan, _, knowledge = setting
    attack = ActiveAscent(count=3, client="all", rate=0.0)
    seen = watched(task, plan, tamper=lambda models: attack.tamper(models, knowledge))
    passive = watched(task, plan)
    assert torch.equal(seen.final_model, passive.final_model)
    ours, theirs = (
        one.run(view, knowledge, np.random.default_rng(0)).values
        for one, view in ((attack, seen), (GradientCosine(count=3, client="all"), passive))
    )
    np.testing.assert_array_equal(ours, theirs)


def test_a_tampered_model_of_another_shape_is_refused(setting):
    task, plan, _, _ = setting
    with pytest.raises(ValueError, match="tamper must return"):
        watched(task, plan, tamper=lambda models: models[:, 1:])


@pytest.mark.simulations
def test_an_active_attack_has_a_federation_of_its_own_and_leaves_the_others_alone(assay, suite_file, timeless):
    ascent = (
        '[attacks.active_ascent]\ncount = 8\n\n[attacks.control]\npart = "active_ascent"\nrate = 0.0\ncount = 8\n\n'
    )
    passive = "[attacks.gradient_cosine]\ncount = 8\n\n[attacks.loss]\n"
    run, alone = (assay(suite_file("[attacks.loss]\n", tables)) for tables in (ascent + passive, passive))
    scores = {(row.defense, row.attack): row.value for row in run.records if row.metric == "auc"}
    for defense in ("none", "ldp_gaussian"):
        assert scores[defense, "control"] == scores[defense, "gradient_cosine"]
    values = [
        {(r.defense, r.attack, r.metric): r.value for r in one.records if "a" in r.attack} for one in (run, alone)
    ]
    assert all(values[0][key] == value for key, value in values[1].items())
