"""Apps of Flower's older interface are run, watched and judged as those of the newer one."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedassay[flower]'")

import flower_apps as newer_apps
from fedassay.adapters.flower import App
from fedassay.adapters.flower_play_back import CASES, EQUAL, FlowerPlayBack
from fedassay.adapters.runner import watch
from fedassay.checks.training_record import Plant
from fedassay.fl.laws import GaussianLaw
from fedassay.fl.streams import global_states
from flower_apps import CLIENTS, CLIP
from flwr.client.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod, secaggplus_mod
from flwr.compat.server import ServerAppComponents
from flwr.server import LegacyContext, ServerConfig
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp
from older_flower_apps import average, client, fixed, older, server

CLIENT_SIDE = older.DifferentialPrivacyClientSideFixedClipping
SERVER_SIDE = older.DifferentialPrivacyServerSideFixedClipping


def client_side():
    return fixed(CLIENT_SIDE)


def adaptive(kind):
    return lambda: kind(average(), 0.5, 100, initial_clipping_norm=CLIP)


def legacy_server():
    return ServerApp(strategy=fixed(), config=ServerConfig(num_rounds=4))


def workflow_server(make_strategy=fixed, **options):
    app = ServerApp()

    @app.main()
    def main(grid, context):
        context = LegacyContext(context=context, strategy=make_strategy(), config=ServerConfig(num_rounds=4))
        DefaultWorkflow(**options)(grid, context)

    return app


def secure_server(make_strategy, max_weight=10.0):
    return lambda: workflow_server(make_strategy, fit_workflow=SecAggPlusWorkflow(5, 3, max_weight=max_weight))


def failed(app, seed=0):
    return [one.name for one in app.watch(seed).failed]


def effective(app, case=EQUAL, draws=16):
    return FlowerPlayBack(app.play(), lengths=(10.0,), draws=draws).effective_multiplier(case)


@pytest.mark.parametrize(
    "app",
    [
        App(server(), client()),
        App(server(client_side), client([fixedclipping_mod])),
        App(server(lambda: average()), client([LocalDpMod(CLIP, CLIP, 5.0, 1e-5)])),
        App(legacy_server, client()),
        App(workflow_server, client()),
        App(server(lambda: fixed(inner=average(initial_parameters=None))), client()),
    ],
    ids=["server side", "client side", "local", "without server_fn", "workflow", "model of a client"],
)
def test_correct_runs_are_not_accused(app):
    assert [failed(app, seed) for seed in range(4)] == [[]] * 4
    assert len(app.run().releases) in (4, 4 * CLIENTS)


@pytest.mark.parametrize(
    ("kind", "mods"),
    [
        (older.DifferentialPrivacyServerSideAdaptiveClipping, ()),
        (older.DifferentialPrivacyClientSideAdaptiveClipping, (adaptiveclipping_mod,)),
    ],
    ids=["server side", "client side"],
)
def test_adaptive_clipping_is_watched_by_the_norm_of_each_round(kind, mods):
    app = App(server(adaptive(kind), rounds=2), client(mods), nodes=100)
    assert "sum of clipped rows" not in failed(app)
    norms = [one.clip_norm for one in app.run().releases]
    assert norms[0] == CLIP != norms[1]


def test_both_interfaces_release_the_same_numbers_and_have_the_same_multipliers():
    older_app, newer_app = App(server(), client()), App(newer_apps.server(), newer_apps.client())
    # The newer interface adds up in the order in which nodes were sampled.
    for one, other in zip(older_app.run(seed=3).releases, newer_app.run(seed=3).releases, strict=True):
        assert one.released.allclose(other.released, atol=1e-9)
    assert older_app.claim == newer_app.claim
    for case in (EQUAL, CASES[1], CASES[4]):
        assert effective(older_app, case, 2) == pytest.approx(effective(newer_app, case, 2), rel=1e-6)


def test_wrappers_release_nothing_where_replies_are_missing_and_a_workflow_does_not_see_that():
    half = App(server(), client(), missing=5)
    assert half.run().releases == ()
    assert half.run().steps == 0
    assert effective(App(server(), client()), CASES[3]) == float("inf")
    assert App(workflow_server, client(), missing=5).watch().failed[0].measured == pytest.approx(2.0, rel=1e-3)
    assert effective(App(workflow_server, client()), CASES[3]) == pytest.approx(0.5, rel=0.07)


class Halved(SERVER_SIDE):
    def aggregate_fit(self, server_round, results, failures):
        self.noise_multiplier /= 2
        try:
            return super().aggregate_fit(server_round, results, failures)
        finally:
            self.noise_multiplier *= 2


class Unclipped(SERVER_SIDE):
    def aggregate_fit(self, server_round, results, failures):
        # The noise stays as it is stated.
        self.clipping_norm, self.noise_multiplier = 1e6 * CLIP, self.noise_multiplier / 1e6
        try:
            return super().aggregate_fit(server_round, results, failures)
        finally:
            self.clipping_norm, self.noise_multiplier = CLIP, self.noise_multiplier * 1e6


def test_half_of_the_noise_a_clip_that_is_skipped_and_a_mod_that_is_missing_are_found():
    halved = App(server(lambda: fixed(Halved)), client())
    unclipped = App(server(lambda: fixed(Unclipped)), client())
    forgotten = App(server(client_side), client())
    assert failed(halved) == ["noise scale"]
    assert [failed(one) for one in (unclipped, forgotten)] == [["sum of clipped rows"]] * 2
    assert effective(halved) == pytest.approx(0.5, rel=0.07)
    assert [effective(one) < 0.2 for one in (unclipped, forgotten)] == [True] * 2


def test_mods_are_played_and_optimizers_at_the_server_lower_the_multiplier():
    assert effective(App(server(client_side), client([fixedclipping_mod]))) == pytest.approx(1.0, rel=0.07)
    local = App(server(average), client([LocalDpMod(CLIP, CLIP, 5.0, 1e-5)]))
    assert effective(local) == pytest.approx(np.sqrt(2 * np.log(1.25e5)) / 5, rel=0.07)
    assert (local.claim.epsilon, local.claim.unit.value) == (5.0, "report")
    assert effective(App(server(lambda: fixed(inner=average(older.FedAdagrad))), client())) < 0.2


def test_secure_aggregation_is_watched_by_its_sum():
    secure = App(secure_server(client_side), client([secaggplus_mod, fixedclipping_mod]))
    results = secure.watch().results
    assert [(one.name, one.passed) for one in results if "noise scale" in one.name or "clipped rows" in one.name] == [
        ("sum of clipped rows", True),
        ("noise scale", True),
    ]
    assert failed(App(secure_server(client_side), client([secaggplus_mod]))) == ["sum of clipped rows"]
    # A server that sees the sum alone clips the average of all clients instead of each client.
    assert failed(App(secure_server(fixed), client([secaggplus_mod]))) == ["sum of clipped rows"]
    rounded = App(secure_server(client_side, max_weight=1000.0), client([secaggplus_mod, fixedclipping_mod]))
    assert "too coarse to be compared" in " ".join(rounded.watch().lines())
    assert "cannot be played back through secure aggregation" in " ".join(secure.play_back().results().lines())


def test_runs_with_and_without_the_unit_differ_by_its_clipped_update_alone():
    app, plant, before = App(server(), client()), Plant(weight=10.0), global_states()
    within, out = (app.run(member, 5, plant=plant) for member in (True, False))
    for one, other in zip(within.releases, out.releases, strict=True):
        assert one.rest.allclose(other.rest)
        moved = one.released - other.released
        # An absent unit has a thousandth of the clip norm.
        assert float(moved @ plant.direction(within.layout)) == pytest.approx(CLIP, rel=2e-3)
        assert float(moved.norm()) == pytest.approx(CLIP, rel=2e-3)
    assert app.replayable
    assert global_states() == before


def test_a_law_of_ones_own_stands_in_for_a_wrapper():
    law = GaussianLaw(clip_norm=CLIP, scale=1 / CLIENTS, noise_std=0.05)
    app = App(server(average), client(length=1e-3), law=law)
    assert [one.name.partition(",")[0] for one in watch(app).failed] == ["effective noise multiplier"] * 5
    assert App(server(average), client(length=1e-3), law=law, missing=2).run().steps == 4
    with pytest.raises(ValueError, match="give the noise distribution of one aggregate as law="):
        _ = App(server(average), client()).claim
    without = App(lambda: ServerApp(server_fn=lambda context: ServerAppComponents()), client())
    with pytest.raises(ValueError, match="give the noise distribution of one aggregate as law="):
        _ = without.claim


def test_wrong_use_is_told_in_words():
    for one, other in ((server, newer_apps.client), (newer_apps.server, client)):
        with pytest.raises(TypeError, match="both apps must use the same interface of Flower"):
            App(one(), other()).run()
    asked = server(lambda: fixed(inner=average(initial_parameters=None)))
    with pytest.raises(TypeError, match="both apps must use the same interface of Flower"):
        App(asked, newer_apps.client()).run()
    with pytest.raises(ValueError, match="at least the 20 that the strategy waits for, got 10"):
        App(server(lambda: fixed(inner=average(min_available_clients=20))), client()).run()
    with pytest.raises(ValueError, match="at least one round"):
        App(server(rounds=0), client()).run()
    with pytest.raises(TypeError, match="clip inside of fit"):
        App(server(lambda: older.DPFedAvgFixed(average(), CLIENTS, CLIP)), client()).run()
    made = client()()
    with pytest.raises(ValueError, match="takes its mods when it is made"):
        App(server(), lambda: made).run(True, 0, plant=Plant())
    masked = client([secaggplus_mod, fixedclipping_mod])()
    with pytest.raises(ValueError, match="takes its mods when it is made"):
        App(secure_server(client_side), lambda: masked).run(True, 0, plant=Plant())
