"""Noise multiplier that Flower's wrappers really have, over the stated one, by inner strategy, examples and replies.

    python benchmarks/flower_multipliers.py             # the table, less than a minute of CPU; needs Flower
    python benchmarks/flower_multipliers.py --slow      # with Bulyan and QFedAvg, which take many minutes more

Eleven clients, a model of 100 numbers, round 1. One client's update is long or absent, among others that are quiet, all
clipped, split along one coordinate, and split along all. A cell is the smallest multiplier over the stated one; 1 is
right, ``inf`` where no unit moves the model. ``ten times``: the unit has ten times the examples of the others;
``half``: 6 of 11 replies arrive. For adaptive clipping the stated multiplier is that of the update, beside the count's.
The noise is measured by draws: standard deviation of a cell 2 %.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from fedassay.adapters.flower import App
from fedassay.adapters.flower_play_back import FlowerPlayBack, Replies
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import ServerApp
from flwr.serverapp import strategy as flower

CLIENTS, DIMENSIONS, CLIP, DRAWS = 11, 100, 1.0, 12
STRATEGIES: dict[str, Callable[[], Any]] = {
    "FedAvg": flower.FedAvg,
    "FedAvgM": lambda: flower.FedAvgM(server_momentum=0.9),
    "FedAdam": flower.FedAdam,
    "FedAdagrad": flower.FedAdagrad,
    "FedYogi": flower.FedYogi,
    "FedMedian": flower.FedMedian,
    "Krum": lambda: flower.Krum(num_malicious_nodes=1),
    "trimmed mean": flower.FedTrimmedAvg,
    "FedProx": lambda: flower.FedProx(proximal_mu=0.1),
    "MultiKrum": lambda: flower.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=5),
}
SLOW: dict[str, Callable[[], Any]] = {
    "Bulyan": lambda: flower.Bulyan(num_malicious_nodes=1),
    "QFedAvg": lambda: flower.QFedAvg(client_learning_rate=0.1),
}
"""Strategies that need minutes of CPU, because Flower collects garbage whenever they read a reply."""
WRAPPERS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "server, fixed": (
        lambda inner: flower.DifferentialPrivacyServerSideFixedClipping(inner, 1.0, CLIP, CLIENTS),
        [],
    ),
    "client, fixed": (
        lambda inner: flower.DifferentialPrivacyClientSideFixedClipping(inner, 1.0, CLIP, CLIENTS),
        [fixedclipping_mod],
    ),
    "server, adaptive": (
        lambda inner: flower.DifferentialPrivacyServerSideAdaptiveClipping(inner, 0.5, CLIENTS, CLIP),
        [],
    ),
    "client, adaptive": (
        lambda inner: flower.DifferentialPrivacyClientSideAdaptiveClipping(inner, 0.5, CLIENTS, CLIP),
        [adaptiveclipping_mod],
    ),
}
CASES = (
    Replies(words="equal, all"),
    Replies(words="ten times, all", examples=(10, 1)),
    Replies(words="equal, half", arrived=0.5),
    Replies(words="ten times, half", examples=(10, 1), arrived=0.5),
)


def back(wrapper: str, strategy: str) -> FlowerPlayBack:
    """The plays of a wrapper around a strategy."""
    wrap, mods = WRAPPERS[wrapper]

    def make_server_app() -> ServerApp:
        app = ServerApp()

        @app.main()
        def main(grid: Any, context: Any) -> None:
            wrap((STRATEGIES | SLOW)[strategy]()).start(grid, ArrayRecord({"weight": Array(np.zeros(DIMENSIONS))}))

        return app

    def make_client_app() -> ClientApp:
        app = ClientApp(mods=list(mods))
        app.train()(lambda message, context: message)
        return app

    play = App(make_server_app, make_client_app, nodes=CLIENTS).play()
    return FlowerPlayBack(play, lengths=(10.0,), draws=DRAWS)


def table(strategies: Iterable[str]) -> dict[tuple[str, str, Replies], float]:
    """Print the table, and return its cells."""
    cells = {}
    print(f"| wrapper | inner strategy | {' | '.join(case.words for case in CASES)} |")
    print("|---" * (2 + len(CASES)) + "|")
    for wrapper in WRAPPERS:
        for strategy in strategies:
            plays = back(wrapper, strategy)
            stated = plays.play.stated.noise_multiplier
            row = [plays.effective_multiplier(case) / stated for case in CASES]
            cells |= {(wrapper, strategy, case): one for case, one in zip(CASES, row, strict=True)}
            print(f"| {wrapper} | {strategy} | {' | '.join(f'{one:.2g}' for one in row)} |", flush=True)
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slow", action="store_true", help="with the strategies that take minutes")
    arguments = parser.parse_args()
    start = time.process_time()
    cells = table([*STRATEGIES, *(SLOW if arguments.slow else ())])
    print(f"{len(cells)} cells, {time.process_time() - start:.0f} s of CPU")


if __name__ == "__main__":
    main()
