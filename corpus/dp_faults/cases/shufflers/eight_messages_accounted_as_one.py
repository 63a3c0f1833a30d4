"""Each client sends its bit in eight randomised messages, and epsilon is that of one message.

Both claims are exact, as the largest delta over all bits of the other 49 clients.
"""

import numpy as np

from dp_faults import Case, Claim, Program

LOCAL = 2.0
MESSAGES = 8


def release(bits, rng):
    repeated = np.repeat(bits, MESSAGES)
    flips = rng.random(len(repeated)) < 1 / (1 + np.exp(LOCAL))
    return rng.permutation(np.where(flips, 1 - repeated, repeated).astype(float))


def claim(epsilon):
    return Claim(epsilon=epsilon, delta=0.01, unit="client", observer="the server that receives the shuffled messages")


CASE = Case(
    fault="accounting",
    correct=Program(claim=claim(2.43), release=release),
    broken=Program(claim=claim(0.75), release=release),
    neighbours=(np.zeros(50), np.append(1.0, np.zeros(49))),
    source="own",
    ideal="a client moves eight messages: epsilon is 2.43",
    event=lambda released: released.sum() >= 53,
    trials=16000,
    proof="the number of ones has standard deviation 6.5 and moves by 6.1",
)
