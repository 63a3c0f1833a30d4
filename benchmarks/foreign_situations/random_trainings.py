"""Correct trainings of random settings: how many of them a watched run accuses."""

import os
from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from fedassay.adapters.runner import watch
from fedassay.checks.watched_run import Watched
from fedassay.cli.system_run import judge_watched
from fedassay.suites.results.outcome import FAIL, OK
from torch import nn

Rng = np.random.Generator
Looked = tuple[str, Watched]


def watch_all(seeds: Iterable[int]) -> None:
    """Watch one correct training of each seed, and print those that do not end with OK, and the counts."""
    kinds = [name for name, library in (("Opacus", "opacus"), ("loop", ""), ("Flower", "flwr")) if _has(library)]
    shares = {"Opacus": 0.7, "loop": 0.2, "Flower": 0.1}
    odds = np.array([shares[name] for name in kinds])
    makers = {"Opacus": opacus, "loop": loop, "Flower": flower}
    counts = {name: [0, 0, 0] for name in kinds}
    start = sum(os.times()[:4])
    for seed in seeds:
        rng = np.random.default_rng(seed)
        kind = str(rng.choice(kinds, p=odds / odds.sum()))
        words, seen = makers[kind](rng, seed)
        code = judge_watched(seen).exit_code
        counts[kind][0] += 1
        counts[kind][1] += code == FAIL
        counts[kind][2] += code not in (OK, FAIL)
        if code != OK:
            shown = ", ".join(one.words for one in seen.failed) or judge_watched(seen).verdict_line
            print(f"seed {seed}: {kind}, {words}: exit code {code}, {shown}", flush=True)
    for kind, (runs, accused, open_) in counts.items():
        print(f"{kind}: {runs} correct runs: {accused} accused, {open_} inconclusive")
    total = [sum(one) for one in zip(*counts.values(), strict=True)]
    print(f"{total[0]} correct runs: {total[1]} accused, {total[2]} inconclusive")
    print(f"{(sum(os.times()[:4]) - start) / max(1, total[0]):.2f} s of CPU for each")


def _has(library: str) -> bool:
    return not library or find_spec(library) is not None


def opacus(rng: Rng, seed: int) -> Looked:
    """Watch an Opacus training of random model, lots, clip, noise, schedule, accumulation, workers and optimizer."""
    import opacus_parts as parts
    from fedassay.adapters.opacus import Training
    from opacus.schedulers import ExponentialGradClip, ExponentialNoise
    from opacus_data import random_first_layer
    from opacus_steps import Recurrent, Shared, convolutions, train_in_parts, with_scheduler

    models = {
        "perceptron": parts.network,
        "linear": partial(nn.Linear, parts.FEATURES, parts.CLASSES),
        "layer norm": lambda: parts.network(nn.LayerNorm(parts.FEATURES)),
        "dropout": lambda: parts.network(nn.Dropout(0.2)),
        "convolutions": convolutions,
        "LSTM": Recurrent,
        "shared layer": Shared,
        "frozen layer": random_first_layer,
    }
    optimizers = {
        "SGD": partial(torch.optim.SGD, lr=0.1),
        "momentum": partial(torch.optim.SGD, lr=0.05, momentum=0.9),
        "AdamW": partial(torch.optim.AdamW, lr=0.01, weight_decay=0.05),
        "RMSprop": partial(torch.optim.RMSprop, lr=0.003),
    }
    model, optimizer = str(rng.choice(list(models))), str(rng.choice(list(optimizers)))
    mode = str(rng.choice(["hooks", "functorch", "ew", "ghost", "per_layer"], p=[0.4, 0.15, 0.1, 0.2, 0.15]))
    if model == "shared layer" and mode == "ghost":  # Which Opacus refuses.
        mode = "hooks"
    records, lot = int(rng.integers(60, parts.RECORDS + 1)), int(rng.integers(6, 31))
    if mode == "ew":  # Which takes no empty lot.
        lot = max(lot, 20)
    noise, clip = float(rng.uniform(0.5, 3.0)), float(10 ** rng.uniform(-1, 1))
    options: dict[str, Any] = {"noise_multiplier": noise, "max_grad_norm": clip}
    if mode == "per_layer":
        tensors = sum(one.requires_grad for one in models[model]().parameters())
        options |= {"clipping": "per_layer", "max_grad_norm": [clip / tensors**0.5] * tensors}
    elif mode != "hooks":
        options["grad_sample_mode"] = mode
    plan = str(rng.choice(["none", "parts", "noise", "clip"], p=[0.5, 0.2, 0.15, 0.15]))
    if plan == "clip" and mode == "per_layer":
        plan = "none"
    if mode == "ghost" and plan in ("noise", "clip"):
        plan = "parts"
    trains = {
        "none": parts.train,
        "parts": partial(train_in_parts, most=int(rng.integers(3, 12))),
        "noise": with_scheduler(ExponentialNoise, gamma=0.95),
        "clip": with_scheduler(ExponentialGradClip, gamma=0.95),
    }
    workers = int(rng.random() < 0.05)
    made = {"model": models[model], "optimizer": optimizers[optimizer], "lot": lot, "workers": workers}
    words = f"{model}, {optimizer}, {mode}, {records} records, lots of {lot}, noise {noise:.2f}, clip {clip:.2f}, "
    words += f"schedule {plan}, {workers} workers"
    data = torch.utils.data.Subset(parts.DATA, range(records))
    training = Training(parts.built(**made, **options), trains[plan], data, delta=1e-5)
    return words, training.watch(seed)


def loop(rng: Rng, seed: int) -> Looked:
    """Watch a loop of random noise, clip, schedule and optimizer."""
    from plain_loops import STEPS, DpSgd, in_devices, less

    noise, clip, decay = float(rng.uniform(0.5, 3.0)), float(10 ** rng.uniform(-1, 1)), float(rng.choice([1.0, 0.95]))
    kinds = {
        "SGD": partial(torch.optim.SGD, lr=0.1, weight_decay=0.01),
        "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        "Adam": partial(torch.optim.Adam, lr=0.01),
        "by hand": None,
    }
    kind, devices = str(rng.choice(list(kinds))), bool(rng.random() < 0.3)
    found = DpSgd(
        optimizer=kinds[kind],
        noise=in_devices(0.5) if devices else less(1.0),
        stated={"noise_multiplier": noise * decay**STEPS, "clip_norm": clip},
        schedule=lambda step: (noise * decay**step, clip),
        dtype=torch.float64 if rng.random() < 0.3 else torch.float32,
    )
    words = f"{kind}, noise {noise:.2f}, clip {clip:.2f}, decay {decay}, {devices} devices"
    return words, watch(found.system(), seed=seed)


def flower(rng: Rng, seed: int) -> Looked:
    """Watch a Flower app of one of the right ways."""
    from flower_ways import rows

    way = [one for one in rows() if one.right][int(rng.integers(sum(one.right for one in rows())))]
    return way.name, watch(way.make(), seed=seed)
