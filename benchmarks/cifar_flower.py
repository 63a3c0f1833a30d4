"""The job of ``cifar_job.py`` in Flower: its FedAvg with direct calls of client apps, and its simulation on Ray."""

from functools import cache
from typing import Any

import torch
from cifar_job import EVERY, Draws, Job, local_steps
from torch import Tensor, nn
from turns import TurnOver


@cache
def _job_of(clients: int, rounds: int, cohort: int, data: str, network: str) -> tuple[Job, nn.Module]:
    """The job and a model, once per process."""
    torch.set_num_threads(1)
    job = Job(clients=clients, rounds=rounds, cohort=cohort, data=data, network=network)
    return job, job.model()


def client_app(facts: tuple[int, int, int, str, str], draws: Draws | None = None) -> Any:
    """Return a client app that trains on the lots of its client; ``facts`` are those of the job."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message: Any, context: Any) -> Any:
        job, model = _job_of(*facts)
        turn = int(message.content["config"]["server-round"]) - 1
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        local_steps(model, *job.lot_data(draws or job.draws, turn, int(context.node_config["partition-id"])))
        metrics = MetricRecord({"num-examples": len(job.parts[0])})
        reply = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content=reply, reply_to=message)

    return app


def _trained(job: Job, grid: Any, turn_over: TurnOver) -> Tensor:
    """Run Flower's FedAvg on a grid; returns the last model ``(d,)``."""
    from flwr.app import ArrayRecord
    from flwr.serverapp.strategy import FedAvg

    model = job.model()

    def after_round(turn: int, arrays: Any) -> None:
        if turn and turn % EVERY == 0:
            model.load_state_dict(arrays.to_torch_state_dict())
            job.tested(model)
        if turn:
            turn_over()

    strategy = FedAvg(
        fraction_train=0.5 / job.clients,  # The cohort is the smallest number of nodes.
        min_train_nodes=job.cohort,
        fraction_evaluate=0.0,
        min_available_nodes=job.clients,
    )
    result = strategy.start(
        grid=grid, initial_arrays=ArrayRecord(model.state_dict()), num_rounds=job.rounds, evaluate_fn=after_round
    )
    model.load_state_dict(result.arrays.to_torch_state_dict())
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def flower_in_process(job: Job, turn_over: TurnOver, *, draws: Draws | None = None) -> Tensor:
    """Flower's FedAvg with calls of the client app in this process; returns the last model ``(d,)``."""
    import flwr.serverapp  # noqa: F401 - Its own error, if it is not installed.
    from fedassay.adapters.flower_grid import LocalClients, ProcessGrid, in_process

    app = client_app(_facts(job), draws)
    with in_process():
        clients = LocalClients(app, copied=lambda message: message)
        grid = ProcessGrid(clients, job.clients, run_config={}, answered=lambda asked, reply: reply)
        return _trained(job, grid, turn_over)


def flower_on_ray(job: Job, turn_over: TurnOver) -> Tensor:
    """Flower's simulation, with one client at a time in Ray's one worker; returns the last model ``(d,)``."""
    import logging

    import ray  # noqa: F401 - Its own error, if it is not installed.
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    server, found = ServerApp(), list[Tensor]()

    @server.main()
    def main(grid: Any, context: Any) -> None:
        torch.set_num_threads(1)  # Of this thread, which is not the one that the caller set.
        found.append(_trained(job, grid, turn_over))

    run_simulation(
        server_app=server,
        client_app=client_app(_facts(job)),
        num_supernodes=job.clients,
        backend_config={
            "init_args": {"address": "local", "num_cpus": 1, "include_dashboard": False, "log_to_driver": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    return found[0]


def _facts(job: Job) -> tuple[int, int, int, str, str]:
    return job.clients, job.rounds, job.cohort, job.data, job.network
