"""Clients in Ray's workers: the same numbers as in one process, planted units, exceptions, and refused apps."""

import sys
import threading

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedassay[flower]'")
pytest.importorskip("ray", reason="Ray is not installed: pip install 'flwr[simulation]'")

import older_flower_apps
from fedassay.adapters.flower import App
from fedassay.checks.training_record import Plant, equal_releases
from flower_apps import client, client_side, server
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod

PAIRS = {
    "server side": (server(), client()),
    "client side": (server(client_side), client([fixedclipping_mod])),
    "older": (older_flower_apps.server(), older_flower_apps.client()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_both_backends_release_the_same_numbers_with_a_planted_unit_too(name):
    here, there = App(*PAIRS[name]), App(*PAIRS[name], backend="ray")
    plant = Plant()
    for member in (True, False):
        runs = [app.run(member, 5, plant=plant) for app in (here, there)]
        assert equal_releases(*runs)
        assert runs[0].projections(plant) == pytest.approx(runs[1].projections(plant), abs=0)
    assert there.watch(3).failed == ()


def test_a_missing_clip_is_found():
    assert [one.name for one in App(server(client_side), client(), backend="ray").watch().failed] == [
        "sum of clipped rows"
    ]


def make_failing_client():
    app = ClientApp()

    @app.train()
    def train(message, context):
        raise ZeroDivisionError(f"node {context.node_config['partition-id']}")

    return app


def test_an_exception_of_a_client_passes_through():
    with pytest.raises(ZeroDivisionError, match=r"node \d"):
        App(server(), make_failing_client, backend="ray").run()


def test_an_app_that_cannot_be_sent_and_an_unknown_backend_are_refused():
    lock = threading.Lock()

    def make():
        app = ClientApp()

        @app.train()
        def train(message, context):
            with lock:
                return message

        return app

    with pytest.raises(TypeError, match="the client app cannot be sent to another process"):
        App(server(), make, backend="ray").run()
    with pytest.raises(ValueError, match="backend must be 'process' or 'ray', got 'slurm'"):
        App(server(), client(), backend="slurm")


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"backend='ray' needs Ray: pip install 'flwr\[simulation\]'"):
        App(server(), client(), backend="ray").run()
