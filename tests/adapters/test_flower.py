"""Flower apps that are run, watched and judged: correct ones pass, and defects of wrappers and mods are found."""

import sys

import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedassay[flower]'")

import older_flower_apps
from fedassay.adapters.flower import App
from fedassay.adapters.flower_hooks import FEWER, WEIGHTED
from fedassay.adapters.flower_play_back import EQUAL
from fedassay.adapters.many_units import ManyUnits
from fedassay.adapters.replicas import audit_replicas, plan_replicas
from fedassay.audit.supplied.scores import audit_one_run
from fedassay.checks.training_record import Plant, equal_releases
from fedassay.fl.laws import GaussianLaw
from fedassay.fl.streams import global_states
from flower_apps import CLIENTS, CLIP, NOISE, accounted, client, client_side, fixed, flower, quiet, server
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod


def adaptive(kind=flower.DifferentialPrivacyServerSideAdaptiveClipping, rate=0.2):
    return lambda: kind(quiet(), 0.5, 100, initial_clipping_norm=CLIP, clip_norm_lr=rate)


def failed(app, seed=0):
    return [one.name for one in app.watch(seed).failed]


@pytest.mark.parametrize(
    "app",
    [
        App(server(), client()),
        App(server(client_side), client([fixedclipping_mod])),
        App(server(lambda: fixed(quiet(flower.FedAvgM, server_momentum=0.9)), rounds=1), client()),
        App(server(accounted), client()),
        App(server(quiet), client([LocalDpMod(CLIP, CLIP, 5.0, 1e-5)])),
    ],
    ids=["server side", "client side", "momentum, first round", "accounted", "local"],
)
def test_correct_runs_are_not_accused(app):
    assert [failed(app, seed) for seed in range(4)] == [[]] * 4


def test_a_model_in_single_precision_with_large_weights_is_not_accused():
    app = App(server(dtype=np.float32, shapes={"weight": (300, 100)}), client(length=1e-3))
    assert failed(app) == []


def test_a_client_that_sends_nan_limits_the_claim_and_ends_no_watched_run():
    found = App(server(), client(length=float("nan"))).watch()
    assert not found.failed
    assert "is NaN or infinite" in found.limit


@pytest.mark.simulations
def test_none_of_a_hundred_correct_runs_is_accused():
    app = App(server(), client())
    assert [seed for seed in range(100) if failed(app, seed)] == []


def test_more_examples_of_one_client_and_missing_replies_show_as_a_row_that_is_too_long():
    heavy = App(server(), client(examples=lambda node: 10 if node == 3 else 1))
    assert [one.name for one in heavy.watch().failed] == ["sum of clipped rows"]
    assert heavy.watch().failed[0].measured == pytest.approx(10 * 10 / 19, rel=1e-3)
    (missing,) = App(server(), client(), missing=5).watch().failed
    assert missing.measured == pytest.approx(2.0, rel=1e-3)
    assert (heavy.watch().failed[0].cause, missing.cause) == (WEIGHTED, FEWER)
    (short,) = App(server(client_side), client()).watch().failed  # No share: a mod is missing.
    assert (short.cause, "client" in short.words, "record" in short.words) == ("", True, False)


def test_clients_without_the_mod_and_half_of_the_noise_are_found():
    assert failed(App(server(client_side), client())) == ["sum of clipped rows"]

    class Halved(flower.DifferentialPrivacyServerSideFixedClipping):
        def _add_noise_to_aggregated_arrays(self, arrays):
            self.noise_multiplier /= 2
            noised = super()._add_noise_to_aggregated_arrays(arrays)
            self.noise_multiplier *= 2
            return noised

    assert "noise scale" in failed(App(server(lambda: Halved(quiet(), NOISE, CLIP, CLIENTS)), client()))


def test_an_array_of_dimension_0_is_not_clipped_and_the_local_mod_does_not_noise_it():
    shapes = {"weight": (40, 5), "temperature": ()}
    assert failed(App(server(shapes=shapes, rounds=8), client())) == ["sum of clipped rows"]
    local = App(server(quiet, shapes=shapes), client([LocalDpMod(CLIP, CLIP, 5.0, 1e-5)]))
    assert local.play_back().effective_multiplier() == 0


def test_adaptive_clipping_takes_the_noise_of_the_next_norm():
    sides = (
        (flower.DifferentialPrivacyServerSideAdaptiveClipping, ()),
        (flower.DifferentialPrivacyClientSideAdaptiveClipping, (adaptiveclipping_mod,)),
    )
    for kind, mods in sides:
        # At this rate all clipped updates make the next norm smaller by exp(-1/2).
        app = App(server(adaptive(kind, rate=1.0), shapes={"weight": (400,)}), client(mods, length=9), nodes=100)
        found = app.watch().failed
        assert [one.name for one in found] == ["noise scale"]
        assert found[0].measured == pytest.approx(np.exp(-0.5), abs=0.1)


def test_claims_are_those_of_wrapper_accountant_and_mod():
    claim = App(server(), client()).claim
    assert dict(claim.parameters) == {"noise_multiplier": NOISE, "sampling_rate": 1.0, "steps": 4}
    assert (claim.unit.value, claim.adjacency.value, claim.source) == ("client", "zero_out", "not stated")
    stated = App(server(accounted), client()).claim
    assert (stated.adjacency.value, stated.delta) == ("add_remove", 1e-4)
    assert claim.epsilon > 4
    two = App(server(adaptive(), rounds=1), client(), nodes=100).claim
    assert two.parameters["noise_multiplier"] == pytest.approx(0.5)
    local = App(server(quiet), client([LocalDpMod(CLIP, 2 * CLIP, 3.0, 1e-5)])).claim
    assert (local.epsilon, local.unit.value, local.adjacency.value) == (3.0, "report", "replace_one")
    with pytest.raises(ValueError, match="no release has stated noise"):
        _ = App(server(quiet), client()).claim


def test_a_law_of_ones_own_stands_in_for_a_wrapper():
    class Own(flower.FedAvg):
        def aggregate_train(self, number, replies):
            arrays, metrics = super().aggregate_train(number, list(replies))
            kept = {name: array.numpy() for name, array in arrays.items()}
            noised = {name: one + 0.05 * torch.randn(one.shape).numpy() for name, one in kept.items()}
            return type(arrays)({name: type(arrays[name])(one) for name, one in noised.items()}), metrics

    law = GaussianLaw(clip_norm=CLIP, scale=1 / CLIENTS, noise_std=0.05)
    app = App(server(lambda: quiet(Own)), client(length=1e-3), law=law)
    assert failed(app) == []
    assert app.claim.parameters["noise_multiplier"] == pytest.approx(1.0)


def test_equal_seeds_give_equal_runs_and_generators_are_restored():
    app, before = App(server(), client()), global_states()
    one, again, other = app.run(seed=3), app.run(seed=3), app.run(seed=4)
    assert equal_releases(one, again)
    assert not equal_releases(one, other)
    assert app.replayable
    assert before == global_states()


def test_the_planted_unit_moves_every_round_by_its_clipped_length():
    app, plant = App(server(noise_free), client()), Plant(weight=10.0)
    within, out = (app.run(member, 0, plant=plant).projections(plant) for member in (True, False))
    assert within == pytest.approx(np.ones(4), abs=1e-6)
    assert np.abs(out).max() < 2e-3


def noise_free():
    return fixed(noise=0.0)


def test_replicas_refute_an_unequal_weight_and_not_the_wrapper_itself():
    heavy = App(server(rounds=1), client(examples=lambda node: 10 if node == CLIENTS else 1))
    plan = plan_replicas(heavy)
    assert audit_replicas(heavy, plan=plan).verdict.value == "REFUTED"
    equal = App(server(rounds=1), client(), cases=(EQUAL,))
    assert audit_replicas(equal, plan=plan).verdict.value == "NOT_REFUTED"


def test_one_run_with_many_nodes_refutes_a_tenth_of_the_noise_and_not_the_stated_one():
    many = ManyUnits(units=150)
    correct = App(server(lambda: fixed(clients=200, noise=2.0), rounds=1), client(), nodes=200)
    broken = App(server(lambda: fixed(clients=200, noise=0.2), rounds=1), client(), nodes=200)
    for app, refuted in ((correct, False), (broken, True)):
        scores = many.scores(app.run_many_units(many), correct.law)
        found = audit_one_run(scores, many.coins, correct.claim, higher_is_member=True)
        assert (found.verdict.value == "REFUTED") is refuted
    with pytest.raises(ValueError, match="at most the 10 nodes"):
        App(server(), client()).run_many_units(many)


def test_wrong_use_is_told_in_words():
    made = client()()
    assert failed(App(server(), lambda: made)) == []
    with pytest.raises(ValueError, match="takes its mods when it is made"):
        App(server(), lambda: made).run(True, 0, plant=Plant())
    with pytest.raises(ValueError, match="make_client_app must make a new ClientApp"):
        App(server(), lambda: made).play().releases(torch.ones(2, 5), 0)
    with pytest.raises(TypeError, match="no strategy was started"):
        App(lambda: lambda grid, context: None, client()).run()
    with pytest.raises(ValueError, match=r"missing .* must be below"):
        App(server(), client(), missing=10)


def test_the_apps_of_a_project_are_those_of_its_modules_and_get_its_configuration(tmp_path, monkeypatch):
    """Apps of modules are made when these are imported, with configured numbers, as ``flwr new`` writes them."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "pyproject.toml").write_text(
        "[tool.flwr.app.components]\nserverapp = 'shown_server:app'\nclientapp = 'shown_client:app'\n"
        "[tool.flwr.app.config]\nrounds = 2\nnoise.multiplier = 1.0\n"
    )
    (tmp_path / "shown_server.py").write_text(
        "import numpy as np\nfrom flower_apps import fixed\nfrom flwr.app import Array, ArrayRecord\n"
        "from flwr.serverapp import ServerApp\n\napp = ServerApp()\n\n\n@app.main()\ndef main(grid, context):\n"
        "    strategy = fixed(noise=context.run_config['noise.multiplier'])\n"
        "    arrays = ArrayRecord({'weight': Array(np.ones((40, 5)))})\n"
        "    strategy.start(grid, arrays, num_rounds=context.run_config['rounds'])\n"
    )
    (tmp_path / "shown_client.py").write_text("import flower_apps\n\napp = flower_apps.client()()\n")
    app = App.of_project(tmp_path, nodes=CLIENTS, cases=(EQUAL,))
    assert failed(app) == []
    assert len(app.run(True, 0, plant=Plant()).releases) == 2
    assert [one.passed for one in app.play_back().results().results][:2] == [True, True]
    assert len(App.of_project(tmp_path, run_config={"rounds": 1}).run().releases) == 1
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    with pytest.raises(ValueError, match="must have the keys serverapp and clientapp"):
        App.of_project(tmp_path)
    for name in ("shown_server", "shown_client"):
        del sys.modules[name]


@pytest.mark.parametrize("made", [(server, client), (older_flower_apps.server, older_flower_apps.client)])
def test_an_exception_of_a_client_ends_the_run_and_what_was_seen_is_kept(made):
    def breaks(node):
        if node == 4 and next(calls) == 2:
            raise RuntimeError("out of memory")
        return 1

    calls = iter(range(9))
    app = App(made[0](), made[1](examples=breaks))
    with pytest.raises(RuntimeError, match="out of memory") as caught:
        app.run()
    assert "raised after 2 releases" in caught.value.__notes__[0]
    assert len(app.interrupted.releases) == 2


def test_flowers_division_by_an_update_of_zero_is_explained_and_one_of_the_apps_is_not():
    with pytest.raises(ZeroDivisionError) as raised:
        App(server(), client(length=0.0)).run()
    assert "a client's update was zero" in " ".join(raised.value.__notes__)

    def dividing(node):
        return 1 // 0

    with pytest.raises(ZeroDivisionError) as raised:
        App(server(), client(examples=dividing)).run()
    assert "update was zero" not in " ".join(raised.value.__notes__)
