"""Event search on the twenty mechanisms of DP-Sniper's evaluation: our bound, its bounds, CPU seconds.

    python benchmarks/event_search.py                      # a million counted trials per input, minutes on one core
    python benchmarks/event_search.py --only SVT3 SVT6     # some mechanisms
    python benchmarks/event_search.py --trials 100000 --seeds 20   # bounds above a known epsilon, by seed

The level is .1, that of DP-Sniper's bounds. Its search trained on 10.7 million trials per input and chose by as many
more; its last bounds count 200 million. Ours counts ``--trials`` and searches with ``--pilot`` others, on average over
the pairs of inputs.
"""

import argparse
import time

from fedassay.audit.claim import Claim
from fedassay.audit.mechanism.mechanism import audit_mechanism
from published_mechanisms import MECHANISMS

ALPHA = 0.1
# Above every bound, because the claim is not what is tested.
CLAIM = Claim.stated(50.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10**6)
    parser.add_argument("--pilot", type=int, default=2 * 10**6, help="trials per input that learn and choose")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    print(f"{'mechanism':19} {'true':>7} {'search':>7} {'last':>7} {'ours':>8} {'counted':>8}  CPU s  event")
    reached = {"search": 0, "last": 0}
    for one in MECHANISMS:
        if arguments.only and one.name not in arguments.only:
            continue
        shown, start = [], time.process_time()
        for seed in range(arguments.seeds):
            found = audit_mechanism(
                one.call,
                CLAIM,
                pairs=one.pairs,
                trials=arguments.trials,
                pilot=arguments.pilot,
                alpha=ALPHA,
                seed=seed,
                batched=True,
            ).measurement
            assert found is not None
            shown.append(found.epsilon_low)
        reached["search"] += shown[0] >= one.search
        reached["last"] += shown[0] >= one.last
        true = "" if one.epsilon is None else f"{one.epsilon:.4f}"
        print(
            f"{one.name:19} {true:>7} {one.search:>7} {one.last:>7} {shown[0]:8.4f} {found.estimate or 0.0:8.4f} "
            f"{time.process_time() - start:6.1f}  {found.witness.partition('event ')[2]}",
            flush=True,
        )
        if arguments.seeds > 1:
            reaching = f"at least the search: {sum(low >= one.search for low in shown)} of {len(shown)} seeds"
            above = (
                "" if one.epsilon is None else f", above the true epsilon: {sum(low > one.epsilon for low in shown)}"
            )
            print(f"{'':19} {reaching}{above}", flush=True)
    print(f"at least DP-Sniper's search: {reached['search']}, at least its last bound: {reached['last']}")


if __name__ == "__main__":
    main()
