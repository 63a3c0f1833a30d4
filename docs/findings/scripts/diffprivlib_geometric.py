"""Whole numbers pass through float64, so beyond 2^53 neighbours are far apart.

Library: diffprivlib==0.6.6.
"""

from diffprivlib.mechanisms import Geometric

BASE = 2**60
released = {
    step: {
        Geometric(epsilon=1.0, sensitivity=1, random_state=seed).randomise(BASE + step) - BASE for seed in range(200)
    }
    for step in (128, 129)  # neighbours at sensitivity 1; float64 rounds them to 0 and to 256
}
print(released)
assert released[128].isdisjoint(released[129])
small = {Geometric(epsilon=1.0, random_state=seed).randomise(128) for seed in range(200)}
assert len(small) > 5  # below 2^53 the noise is there
print("verdict: REFUTED for whole numbers beyond 2^53, epsilon infinite; below it: holds")
