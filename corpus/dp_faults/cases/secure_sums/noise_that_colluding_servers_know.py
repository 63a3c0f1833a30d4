"""Five servers add a share of the noise each, and four of them collude and subtract their own shares."""

import numpy as np

from dp_faults import Case, Claim, Program

SIGMA, SERVERS = 1.5, 5


def release(values, share, rng):
    """Return the noised sum, and the noise that the colluding servers added."""
    noise = rng.normal(scale=share, size=SERVERS)
    return np.append(np.clip(values, -1, 1).sum() + noise.sum(), noise[1:])


def correct(values, rng):
    """Each server adds enough noise alone."""
    return release(values, SIGMA, rng)


def broken(values, rng):
    return release(values, SIGMA / np.sqrt(SERVERS), rng)


claim = Claim(epsilon=2, delta=1e-3, unit="client", adjacency="zero_out", observer="four of the five servers")
CASE = Case(
    fault="protocol",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(np.zeros(6), np.append(np.zeros(5), 1.0)),
    source="https://github.com/ietf-wg-ppm/draft-ietf-ppm-dap/issues/19",
    ideal="only the noise of one server is unknown: its standard deviation is 0.67 instead of 1.5",
    event=lambda released: released[0] - released[1:].sum() > 1.4,
    trials=16000,
    proof="delta at epsilon 2 and noise 0.67 is 0.14",
)
