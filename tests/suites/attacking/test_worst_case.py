"""What differential privacy grants the adversary: both arms of every release, against naive twins."""

import numpy as np
import pytest
import torch
from fedassay.attacks.attack import Knowledge, Level
from fedassay.attacks.membership.likelihood_ratio import LikelihoodRatio
from fedassay.audit.observer import AGGREGATE, FINAL_MODEL, GLOBAL_MODELS, SHUFFLED, UPLOADS
from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.layers.scored_layers import LayeredProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.defenses.sample_level.dp_sgd import DPSGDProtection
from fedassay.fl.candidates import plant_candidates
from fedassay.fl.engine import run_federation
from fedassay.fl.protection import Protection
from fedassay.fl.recorder import LotRecorder, ViewRecorder
from fedassay.fl.streams import Streams
from fedassay.suites.attacking.worst_case import worst_case_hypotheses
from fedassay.suites.config.resolve import plan_of, task_of
from fedassay.suites.config.tables.suite import FederationSpec, PlanChange
from scipy import stats

CLIENTS, COUNT, RATE, ROUNDS, CLIP = 3, 8, 0.4, 3, 0.5
LDP = LDPGaussianProtection(clip_norm=CLIP, noise_std=0.3)
LAYERED = LayeredProtection(clip_norms=(0.4, 0.1), noise_stds=(0.3, 0.2))
CENTRAL = DPFedAvgProtection(clip_norm=CLIP, noise_multiplier=0.5)


class Watched:
    """A small federation of unequal clients, what an observer saw of it, and candidates of all of them."""

    def __init__(self, protection, observer=UPLOADS, seed=3, **changes):
        fields = {
            "model": "logistic",
            "clients": CLIENTS,
            "samples": 61,
            "rounds": ROUNDS,
            "lot": {"poisson": RATE},
            "algorithm": {"name": "fedsgd", "learning_rate": 0.5},
        }
        spec = FederationSpec(**(fields | changes))
        streams = Streams(seed)
        self.protection, self.task = protection, task_of(spec, 3)
        self.plan = plan_of(spec, PlanChange(), self.task)
        clients = range(self.plan.clients)
        self.planted = plant_candidates(self.task, count=COUNT, clients=clients, rng=streams.generator("candidates"))
        self.lots = {client: LotRecorder(client=client) for client in clients}
        recorder = ViewRecorder(observer=observer)
        final = run_federation(self.task, self.plan, protection, streams, recorders=[*self.lots.values(), recorder])
        self.view = recorder.view(self.plan, final)
        self.hypotheses = worst_case_hypotheses(self.task, self.plan, protection, self.lots, self.view, self.planted)

    def scores(self):
        """(clients, n)."""
        shown = self.planted.shown
        knowledge = Knowledge.of(
            self.task, self.plan, self.protection, level=Level.WORST_CASE, candidates=shown, hypotheses=self.hypotheses
        )
        attack = LikelihoodRatio(rest="known", client="all", count=COUNT)
        return attack.run(self.view, knowledge, np.random.default_rng(0)).values.reshape(len(shown.clients), -1)

    def gradient(self, number, image, label):
        """One sample's, by plain autograd, in double precision."""
        point = self.view.rounds[number].broadcast[0].clone().requires_grad_(True)
        (gradient,) = torch.autograd.grad(self.task.network.losses(point, image[None], label[None]).sum(), point)
        return gradient.double().numpy()

    def lot(self, number, client, *, without=None):
        """Gradients of the samples that a client drew, but for one of them."""
        masks, part = self.lots[client].lots[number], self.task.parts[client]
        drawn = [place for place in range(len(part)) if masks and masks[0][0][place] and place != without]
        return [self.gradient(number, self.task.images[part[k]], self.task.labels[part[k]]) for k in drawn]

    def naive(self, release, log_ratio):
        """Sums over rounds, for each client and candidate, of the mixture of ``log_ratio(release, lots, client, g)``,
        where ``lots`` are all clients' without the candidate.
        """
        shown, found = self.planted.shown, np.zeros((CLIENTS, len(self.planted.holder)))
        for number in range(self.plan.rounds):
            whole = [self.lot(number, client) for client in range(CLIENTS)]
            for client in range(CLIENTS):
                for row, (image, label) in enumerate(zip(shown.images, shown.labels, strict=True)):
                    place = self.planted.sample[row] if self.planted.holder[row] == client else None
                    lots = [*whole]
                    lots[client] = whole[client] if place is None else self.lot(number, client, without=place)
                    seen = release(self.view.rounds[number], client)
                    ratio = log_ratio(seen, lots, client, self.gradient(number, image, label))
                    found[client, row] += np.log(1 - RATE + RATE * np.exp(ratio))
        return found


def clipped(row, norm=CLIP):
    return row * min(1.0, norm / max(np.linalg.norm(row), 1e-30))


def upload(seen, client):
    return seen.reports.values[0, seen.reports.senders.index(client)].double().numpy()


def total(seen, client):
    return seen.aggregate[0].double().numpy()


def report(lot):
    """What FedSGD uploads of a lot: minus its mean gradient."""
    return -np.mean(lot, axis=0) if lot else np.zeros(1)


def test_the_ratio_of_noise_on_clipped_samples_is_the_formula_written_out():
    noise = 2.0
    seen = Watched(DPSGDProtection(clip_norm=CLIP, noise_multiplier=noise))

    def ratio(released, lots, client, gradient):
        share = -clipped(gradient) / seen.plan.expected_lot(client)
        rest = sum(-clipped(row) / seen.plan.expected_lot(client) for row in lots[client])
        std = noise * CLIP / seen.plan.expected_lot(client)
        return ((released - rest) @ share - share @ share / 2) / std**2

    np.testing.assert_allclose(seen.scores(), seen.naive(upload, ratio), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("observer", [AGGREGATE, GLOBAL_MODELS])
def test_the_ratio_of_a_sum_of_noised_sums_is_the_formula_written_out(observer):
    """Clients of 21, 20 and 20 samples: each weighs in by its own."""
    noise, shares = 1.0, np.array([21, 20, 20]) / 61
    protection = DPSGDProtection(clip_norm=CLIP, noise_multiplier=noise)
    seen, sums = Watched(protection, observer), Watched(protection, AGGREGATE).view
    assert seen.plan.sizes == (21, 20, 20)
    scales = [share / seen.plan.expected_lot(client) for client, share in enumerate(shares)]

    def ratio(released, lots, client, gradient):
        rest = sum(-scale * clipped(row) for scale, lot in zip(scales, lots, strict=True) for row in lot)
        share = -scales[client] * clipped(gradient)
        std = noise * CLIP * np.linalg.norm(scales)
        return ((released - rest) @ share - share @ share / 2) / std**2

    expected = seen.naive(lambda round, client: total(sums.rounds[round.round], client), ratio)
    np.testing.assert_allclose(seen.scores(), expected, rtol=1e-3, atol=1e-4)


def test_the_ratio_of_local_noise_is_that_of_two_reports():
    def ratio(released, lots, client, gradient):
        absent, present = (clipped(report(lot)) for lot in (lots[client], [*lots[client], gradient]))
        return (stats.norm.logpdf(released, present, 0.3) - stats.norm.logpdf(released, absent, 0.3)).sum()

    seen = Watched(LDP)
    np.testing.assert_allclose(seen.scores(), seen.naive(upload, ratio), rtol=1e-3, atol=1e-5)


def test_the_ratio_of_a_layered_report_has_each_layers_clip_and_noise():
    seen = Watched(LAYERED)
    weights = seen.task.network.layout.slices["output.weight"].stop
    stds = np.r_[np.full(weights, 0.3), np.full(seen.plan.layout.dim - weights, 0.2)]

    def sent(lot):
        row = np.broadcast_to(report(lot), stds.shape)
        return np.r_[clipped(row[:weights], 0.4), clipped(row[weights:], 0.1)]

    def ratio(released, lots, client, gradient):
        absent, present = sent(lots[client]), sent([*lots[client], gradient])
        return (stats.norm.logpdf(released, present, stds) - stats.norm.logpdf(released, absent, stds)).sum()

    np.testing.assert_allclose(seen.scores(), seen.naive(upload, ratio), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("observer", [AGGREGATE, GLOBAL_MODELS])
def test_the_ratio_of_a_sum_of_clipped_reports_knows_all_the_others(observer):
    seen, sums = Watched(CENTRAL, observer), Watched(CENTRAL, AGGREGATE).view
    std = 0.5 * CLIP / CLIENTS

    def ratio(released, lots, client, gradient):
        rest = sum(clipped(report(lot)) for k, lot in enumerate(lots) if k != client)
        absent, present = (rest + clipped(report(lot)) for lot in (lots[client], [*lots[client], gradient]))
        both = [stats.norm.logpdf(released, mean / CLIENTS, std) for mean in (present, absent)]
        return (both[0] - both[1]).sum()

    expected = seen.naive(lambda round, client: total(sums.rounds[round.round], client), ratio)
    np.testing.assert_allclose(seen.scores(), expected, rtol=1e-3, atol=1e-4)


def test_with_hardly_any_noise_every_candidate_that_was_ever_taken_is_reported():
    quiet = (
        Watched(DPSGDProtection(clip_norm=CLIP, noise_multiplier=1e-3)),
        Watched(LDPGaussianProtection(clip_norm=CLIP, noise_std=1e-6)),
    )
    for seen in quiet:
        ever = np.zeros((CLIENTS, len(seen.planted.holder)), dtype=bool)
        for row, (holder, place) in enumerate(zip(seen.planted.holder, seen.planted.sample, strict=True)):
            if holder >= 0:
                ever[holder, row] = any(bool(seen.lots[holder].lots[n][0][0][place]) for n in range(ROUNDS))
        scores = seen.scores()
        assert 0 < ever.sum() < seen.planted.member.sum()
        assert scores[ever].min() > scores[~ever].max() + 100


FEDAVG = {"name": "fedavg", "learning_rate": 0.5}


@pytest.mark.parametrize(
    ("protection", "observer", "changes"),
    [
        (Protection(), UPLOADS, {}),
        (CENTRAL, UPLOADS, {}),
        (LDP, UPLOADS, {"algorithm": FEDAVG | {"local_steps": 2}}),
        (LDP, UPLOADS, {"lot": {"fixed_size": 4}}),
        (LDP, UPLOADS, {"algorithm": {"name": "scaffold", "learning_rate": 0.5, "local_steps": 1}}),
        (LDP, SHUFFLED, {}),
        (LDP, AGGREGATE, {}),
        (CENTRAL, AGGREGATE, {"cohort": {"poisson": 0.9}}),
        (CENTRAL, FINAL_MODEL, {}),
    ],
    ids=["no law", "not seen", "two steps", "lots", "state", "mixed", "sum of local", "cohorts", "no rounds"],
)
def test_where_the_release_is_no_noise_around_something_known_there_are_no_arms(protection, observer, changes):
    assert Watched(protection, observer, **changes).hypotheses is None


def test_one_local_step_is_known_whatever_the_optimiser():
    for algorithm in (FEDAVG | {"local_steps": 1}, FEDAVG | {"local_steps": 1, "optimizer": "adam"}):
        assert Watched(LDP, algorithm=algorithm).hypotheses is not None
