"""Noise that is correlated over rounds: errors beside a peer's, and what an observer of all models can prove.

    python benchmarks/factorisations.py                      # errors and sensitivities, a second
    python benchmarks/factorisations.py --audit              # lower bounds of epsilon by four scores, three CPU minutes
    pip install jax-privacy && python benchmarks/factorisations.py --peer     # BandMF, BLT, dense by jax_privacy too

Errors are root mean squares over all prefix sums, at the noise whose sensitivity is 1. The audit runs the hooks of the
defense ``dp_ftrl`` with and without a client whose update is the clip norm along all weights, and counts, in runs apart
from those that fixed it, an event of one score of what the other clients receive: the exact likelihood ratio, whitened
by the public matrix; Fisher's discriminant, learnt from other runs; the ratio as if rounds were independent; and the
last model alone. Alpha is .05 for each bound.
"""

import argparse
import time
from typing import get_args

import numpy as np
import torch
from fedassay.audit.binomial import privacy_loss, upper_bound
from fedassay.audit.curve import mu_from_epsilon
from fedassay.checks.arms import fitted_directions
from fedassay.defenses.accounting.correlated import Kind, Participation, correlated_noise
from fedassay.defenses.client_level.dp_ftrl import DPFTRL
from fedassay.defenses.controls.correlated import (
    ControlNodesRedrawn,
    ControlOneParticipation,
    ControlRestartUnpaid,
)
from fedassay.fl.algorithms import FedSGD
from fedassay.fl.layout import Layout
from fedassay.fl.plan import Plan
from fedassay.fl.rounds import Rounds, given_rows
from fedassay.fl.sampling import Epoch, Full
from fedassay.fl.streams import Runs, Streams
from scipy.stats import norm

ROUNDS, PERIOD, WEIGHTS, CLIENTS = 64, 16, 2, 16
EPSILON, DELTA, ALPHA = 4.0, 1e-5, 0.05
BANDS = {"banded": 16, "banded_square_root": 16, "banded_inverse_square_root": 8, "blt": 3}
PILOT, BATCH = 2**14, 2**12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audit", action="store_true")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--runs", type=int, default=2**16, help="counted runs of each arm")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.peer:
        import jax

        jax.config.update("jax_enable_x64", True)
        print_peer()
    elif args.audit:
        print_audit(args.runs)
    else:
        print_errors()


def print_errors() -> None:
    print(f"{ROUNDS} rounds\n{'kind':28} {'one participation':>18} {'every 16th round':>17} {'every round':>12}")
    for kind in get_args(Kind):
        losses = [ours(kind, period) for period in (ROUNDS, PERIOD, 1)]
        print(f"{kind:28} {losses[0]:18.3f} {losses[1]:17.3f} {losses[2]:12.3f}")


def ours(kind: Kind, period: int, rounds: int = ROUNDS) -> float:
    schema = Participation(period=period)
    noise = correlated_noise(kind, rounds, schema=schema, bands=BANDS.get(kind, 0))
    return noise.error * noise.sensitivity(schema)


def print_peer() -> None:
    """Errors by jax_privacy, each optimised for the mean squared error."""
    print(f"{ROUNDS} rounds\n{'kind':8} {'period':>6} {'ours':>8} {'CPU s':>6} {'jax_privacy':>12} {'CPU s':>6}")
    for period in (ROUNDS, PERIOD):
        for kind, peer in (("banded", peer_banded), ("blt", peer_blt), ("dense", peer_dense)):
            (own, own_time), (other, other_time) = timed(ours, kind, period), timed(peer, period)
            print(f"{kind:8} {period:6} {own:8.4f} {own_time:6.2f} {other:12.4f} {other_time:6.2f}")


def peer_banded(period: int) -> float:
    from jax_privacy.matrix_factorization import banded

    found = banded.optimize(ROUNDS, bands=BANDS["banded"], max_optimizer_steps=300)
    return float(np.sqrt(np.mean(np.asarray(banded.per_query_error(found))) * -(-ROUNDS // period)))


def peer_blt(period: int) -> float:
    from jax_privacy.matrix_factorization import buffered_toeplitz

    facts = {"n": ROUNDS, "error": "mean", "min_sep": period, "max_participations": -(-ROUNDS // period)}
    found = buffered_toeplitz.optimize(**facts, min_buffers=BANDS["blt"], max_buffers=BANDS["blt"])
    return float(np.sqrt(buffered_toeplitz.LossFn.build_min_sep(**facts).loss(found)))


def peer_dense(period: int) -> float:
    from jax_privacy.matrix_factorization import dense, sensitivity

    found = dense.optimize(ROUNDS, epochs=-(-ROUNDS // period))
    error = np.sqrt(np.mean(np.asarray(dense.per_query_error(strategy_matrix=found))))
    return float(error * sensitivity.fixed_epoch_sensitivity(found, -(-ROUNDS // period)))


def timed(compute, *arguments):
    begun = time.process_time()
    return compute(*arguments), time.process_time() - begun


def print_audit(runs: int) -> None:
    mu = mu_from_epsilon(EPSILON, DELTA)
    print(f"{runs} runs of each arm; the best test of a Gaussian mechanism of epsilon 4: {best_bound(mu, runs):.3f}")
    names = ("exact ratio", "learnt", "as if independent", "last model")
    print(f"{'defense':28} " + " ".join(f"{name:>17}" for name in names) + f" {'CPU s':>7}")
    parts = {kind: DPFTRL(kind=kind, bands=BANDS.get(kind, 0)) for kind in get_args(Kind)}
    parts |= {
        "one participation is paid": ControlOneParticipation(),
        "restarts are unpaid": ControlRestartUnpaid(restart=PERIOD),
        "nodes are drawn again": ControlNodesRedrawn(),
    }
    for name, defense in parts.items():
        found, seconds = timed(bounds, defense, runs)
        print(f"{name:28} " + " ".join(f"{bound:17.3f}" for bound in found) + f" {seconds:7.1f}", flush=True)


def bounds(defense: DPFTRL, runs: int) -> list[float]:
    """Lower bounds of epsilon by each score."""
    plan = Plan(
        sizes=(1,) * CLIENTS,
        rounds=ROUNDS,
        cohort=Epoch(PERIOD, same=True),
        lot=Full(),
        algorithm=FedSGD(learning_rate=1.0),
        layout=Layout(names=("weight",), shapes=((WEIGHTS,),)),
    )
    protection = defense.prepare(plan).protection
    unit = torch.full((WEIGHTS,), WEIGHTS**-0.5)
    rows = torch.zeros(1, CLIENTS, WEIGHTS)

    def drawn(arm: int, count: int, block: int) -> np.ndarray:
        rows[0, 0] = arm * unit
        parts = []
        for number in range(-(-count // BATCH)):
            rounds = Rounds(
                plan=plan,
                protection=protection,
                streams=Streams(0),
                runs=Runs(replicas=BATCH, block=2 * (block * 2**20 + number) + arm),
                rows=given_rows(rows),
            )
            parts.append(torch.stack([turn.aggregate @ unit for turn in rounds.each(ROUNDS)], dim=1).double().numpy())
        return np.concatenate(parts)[:count]

    pilots, counted = ([drawn(arm, count, block) for arm in (0, 1)] for block, count in ((0, PILOT), (1, runs)))
    taken = np.zeros(ROUNDS)
    taken[::PERIOD] = 1
    # Of the two that are learnt, the one that tells the second half of the pilot best.
    firsts, seconds = zip(*((side[: PILOT // 2], side[PILOT // 2 :]) for side in pilots), strict=True)
    found = [one.weights for one in fitted_directions("aggregate", np.arange(ROUNDS), *firsts)]
    learnt = max(found, key=lambda one: ((seconds[1] - seconds[0]) @ one).mean() / (seconds[0] @ one).std())
    weights = (
        protection.noise.precision @ taken,
        learnt,
        taken / np.square(protection.noise.weights).sum(axis=1),
        np.ones(ROUNDS),
    )
    return [bound_of([side @ one for side in pilots], [side @ one for side in counted]) for one in weights]


def bound_of(pilots: list[np.ndarray], counted: list[np.ndarray]) -> float:
    """The bound at the threshold that does best on the pilot, counted on fresh runs."""
    cuts = np.quantile(np.concatenate(pilots), np.linspace(1e-3, 1 - 1e-3, 400))
    fpr, fnr = (pilots[0][:, None] > cuts).mean(0), (pilots[1][:, None] <= cuts).mean(0)
    runs = len(counted[0])
    cut = cuts[np.argmax(loss(np.maximum(fpr, 2 / PILOT), np.maximum(fnr, 2 / PILOT), runs))]
    rates = np.array([(counted[0] > cut).mean()]), np.array([(counted[1] <= cut).mean()])
    return float(loss(*rates, runs)[0])


def loss(fpr: np.ndarray, fnr: np.ndarray, runs: int) -> np.ndarray:
    highs = [upper_bound(np.round(rates * runs), runs, ALPHA / 2) for rates in (fpr, fnr)]
    return np.asarray(privacy_loss(*highs, DELTA))


def best_bound(mu: float, runs: int) -> float:
    cuts = np.linspace(-5, 8, 2000)
    return float(loss(norm.sf(cuts), norm.cdf(cuts - mu), runs).max())


if __name__ == "__main__":
    main()
