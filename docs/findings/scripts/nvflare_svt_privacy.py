"""The selection repeats until enough values are accepted, and NaN never is.

Library: nvflare==2.9.0.
"""

import logging
import signal

import fedassay
import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters.svt_privacy import SVTPrivacy

logging.disable(logging.CRITICAL)


def sent(weights, **options):
    made = SVTPrivacy(gamma=1.0, tau=0.5, **options)
    return made.process_dxo(DXO(DataKind.WEIGHT_DIFF, data={"w": np.array(weights)}), Shareable(), FLContext()).data[
        "w"
    ]


def chosen(x, rng):  # which of 3 values is chosen, and the noised value
    np.random.seed(int(rng.integers(2**32)))
    released = sent(x, fraction=0.34, epsilon=1.0, epsilon_release=1.0)
    return np.array([*(released != 0), released.sum()], dtype=float)


claim = fedassay.Claim.stated(epsilon=2.0, unit="report", adjacency="replace_one")
pairs = [([1.0, 0.0, 0.0], [0.0, 1.0, 1.0]), ([1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]), ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0])]
print(fedassay.audit_mechanism(chosen, claim, pairs=pairs, trials=10_000).line())


def give_up(*_):
    raise TimeoutError


signal.signal(signal.SIGALRM, give_up)
signal.alarm(5)
try:
    sent([0.5, np.nan, 0.5], fraction=1.0)
    ended = "ended"
except TimeoutError:
    ended = "no end within 5 s"
print("an update with one NaN and fraction 1:", ended)
print(f"verdict: NOT REFUTED on 3 pairs of 3 values; does not end for NaN ({ended})")
