"""What trials of all that is received prove of a suite's claims, and how often each way of deciding is wrong.

    python benchmarks/trial_power.py quick                    # each claim: measured, minimum detectable, runs, CPU
    python benchmarks/trial_power.py quick --violated 1.15    # defenses prepared for 1.15 times the claimed epsilon
    python benchmarks/trial_power.py --boundary 1000          # tight mechanisms: how often true claims are refuted

``best`` is the bound that the best test of as many runs is expected to prove of a Gaussian mechanism of the claimed
epsilon and delta. At the boundary the true epsilon is the claimed one, and each way of deciding has the level .05, at
which 1,000 repeats show an error.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from math import exp
from types import SimpleNamespace

import numpy as np
import torch
from fedassay.audit.binomial import privacy_loss, upper_bound
from fedassay.audit.check import PREPARATION
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.finding import refutes
from fedassay.audit.ledger import SUITE
from fedassay.audit.measurement import Measurement
from fedassay.checks import neighbour_draws
from fedassay.checks.arms import Arms, TwoArms, of_one_step, two_steps
from fedassay.checks.claim_checks import Fitted, received_checks
from fedassay.fl.plan import Plan
from fedassay.suites.audits.audit_method import PlannedAudit
from fedassay.suites.config.resolve import resolve
from fedassay.suites.config.suite_file import load_suite
from fedassay.suites.planning.run_plan import plan_run
from scipy.stats import beta, norm

LEVEL, RUNS = 0.05, 2**12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="?", default="")
    parser.add_argument("--only", default="", help="names of defenses, with commas")
    parser.add_argument("--violated", type=float, default=1.0, help="factor of the prepared epsilon")
    parser.add_argument("--boundary", type=int, default=0, help="repeats of each way of deciding at the boundary")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.suite:
        print(
            f"{'defense':28} {'claimed':>7} {'measured':>8} {'best':>6} {'detect':>7} {'runs':>7} {'CPU s':>6}  verdict"
        )
        for audit in audits(args.suite, [name for name in args.only.split(",") if name]):
            print(line(audit, args.violated), flush=True)
    if args.boundary:
        for words, refuted in boundary():
            wrong = sum(refuted(seed) for seed in range(args.boundary))
            high = beta.ppf(0.975, wrong + 1, args.boundary - wrong)
            print(f"{words}: {wrong} of {args.boundary} true claims refuted, rate at most {high:.4f}, level {LEVEL}")


def audits(suite: str, only: list[str]) -> Iterator[PlannedAudit]:
    """The audits of a suite's claims by runs of their own."""
    spec, source = load_suite(suite)
    for audit in plan_run(resolve(spec, source, seed=0)).audits:
        if audit.blocks and (not only or audit.cell.facts["defense"] in only):
            yield audit


def line(audit: PlannedAudit, violated: float) -> str:
    block, begun = audit.blocks[0], time.process_time()
    small = block.small if audit.method.own_federation else block.checked

    def fit(plan: Plan) -> Fitted:
        if violated == 1 or block.defense is None:
            return block.fitted(plan)
        looser = replace(block.defense, epsilon=violated * audit.claim.epsilon)
        return replace(block.fitted(plan), protection=looser.prepare(plan).protection)

    found = received_checks(fit, block.own[1], small, most=block.audit.trials, seed=block.seed)[0]
    name, claim, measured = audit.cell.facts["defense"], audit.claim, found.evidence
    if measured is None:
        return f"{name:28} {claim.epsilon:7g} {'-':>8} {'-':>6} {'-':>7} {'-':>7} {'-':>6}  {found.witness[:90]}"
    best, detects = best_bound(claim, measured.n1), f"{found.detects:.3g}" if found.detects else "-"
    verdict = "refuted" if refutes(claim, measured) else "not refuted"
    return (
        f"{name:28} {claim.epsilon:7g} {measured.epsilon_low:8.3f} {best:6.3f} {detects:>7} {measured.n1:7d} "
        f"{time.process_time() - begun:6.1f}  {verdict}{'' if claim.curve is None else ', curve'}"
    )


def best_bound(claim: Claim, runs: int) -> float:
    """The largest bound that is expected of so many runs of each arm, over all thresholds."""
    level = SUITE.level("trials") / 2
    if claim.delta == 0:
        q = 1 / (1 + exp(claim.epsilon))
        rates = np.array([[q, q]])
    else:
        cuts, mu = np.linspace(-5, 8, 2000), mu_from_epsilon(claim.epsilon, claim.delta)
        rates = np.stack([norm.sf(cuts), norm.cdf(cuts - mu)], axis=1)
    highs = upper_bound(np.floor(rates * runs), runs, level)
    return float(np.max(privacy_loss(highs[:, 0], highs[:, 1], claim.delta)))


def boundary() -> Iterator[tuple[str, Callable[[int], bool]]]:
    """Whether a true claim about a tight mechanism is refuted, by a seed, for each way of deciding."""
    mu = mu_from_epsilon(1.0, 1e-5)
    facts = {"unit": "report", "adjacency": "replace_one"}
    with_curve = Claim.stated(epsilon=1.0, delta=1e-5, mu=mu, **facts)
    pure = Claim.stated(epsilon=1.0, **facts)
    yield "by the curve and epsilon", lambda seed: refutes_one(with_curve, by_trials(with_curve, gaussian(mu, seed)))
    yield "by epsilon alone", lambda seed: refutes_one(pure, by_trials(pure, response(1.0, seed)))
    yield "by inputs two steps apart", lambda seed: refutes_one(pure, by_two_steps(pure, response(2.0, seed)))
    for words, claim, arms in (
        ("preparations, by the curve and epsilon", with_curve, lambda seed: gaussian(mu, seed)),
        ("preparations, by epsilon alone", pure, lambda seed: response(1.0, seed)),
    ):
        yield words, lambda seed, claim=claim, arms=arms: by_draws(claim, arms(seed))


def gaussian(mu: float, seed: int) -> Arms:
    def draw(arm: int, runs: int, block: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([seed, arm, block])
        return {"sum": rng.standard_normal((runs, 4)) + arm * mu / 2}

    return Arms(draw=draw, words="", batch=RUNS, most=RUNS, rounds={"sum": 1})


def response(epsilon: float, seed: int) -> Arms:
    def draw(arm: int, runs: int, block: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([seed, arm, block])
        kept = rng.random((runs, 1)) < exp(epsilon) / (1 + exp(epsilon))
        return {"answer": np.where(kept, arm, 1 - arm).astype(float)}

    return Arms(draw=draw, words="", batch=RUNS, most=RUNS)


def by_trials(claim: Claim, arms: Arms) -> Measurement | None:
    trials = TwoArms(claim=claim, alpha=LEVEL, most=RUNS)
    return trials.count(trials.pilot(arms, 256, 512))


def by_two_steps(claim: Claim, arms: Arms) -> Measurement | None:
    measured = by_trials(two_steps(claim), arms)
    return None if measured is None else of_one_step(measured, claim)


def refutes_one(claim: Claim, measured: Measurement | None) -> bool:
    return measured is not None and refutes(claim, measured)


def by_draws(claim: Claim, arms: Arms) -> bool:
    """As the draws of a preparation are counted."""

    def draw(arm: int, runs: int, block: int = 0) -> np.ndarray:
        return np.concatenate(list(arms.draw(arm, runs, block).values()), axis=1)

    counter = neighbour_draws.DrawCounter(setup=SimpleNamespace(claim=claim, most=RUNS), apart=1, words="")
    neighbour_draws._ALPHA = LEVEL  # That of a suite's ledger is too small for so few repeats.
    blocks = count(1)
    fresh = lambda arm, runs: iter([draw(arm, runs, next(blocks))])  # noqa: E731
    again = lambda arm, number: draw(arm, 16, 2**20 + number)  # noqa: E731
    found = counter.result(PREPARATION, [draw(arm, 512) for arm in (0, 1)], fresh, again, 1e-9)
    return found.passed is False


if __name__ == "__main__":
    main()
