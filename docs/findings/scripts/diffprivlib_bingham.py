"""The rejection sampler divides by the factor by which it should multiply, so it draws another distribution.

Library: diffprivlib==0.6.6.
"""

import numpy as np
from diffprivlib.mechanisms import Bingham
from scipy.optimize import brentq


def log_density(first, second, dimensions, epsilon, power, s, angle):  # second >= first: two top eigenvalues, others 0
    in_plane = s * (first * np.cos(angle) ** 2 + second * np.sin(angle) ** 2)
    t = epsilon / 4 * (max(first, second) - in_plane)
    shifted = epsilon / 4 * (max(first, second) - np.array([first, second] + [0.0] * (dimensions - 2)))
    b = brentq(lambda b: np.sum(1 / (b + 2 * shifted)) - 1, 1, dimensions)
    return -t + power * np.log1p(2 * t / b)  # power: 0 is Bingham's law; -dimensions is what the code accepts


def grid(dimensions):  # of the sphere: squared length outside the plane of the two (log grid), and angle in it
    outside = np.logspace(-9, 0, 1500) if dimensions > 2 else np.zeros(1)
    volume = outside ** ((dimensions - 2) / 2) if dimensions > 2 else np.ones(1)
    return 1 - outside[:, None], ((np.arange(1000) + 0.5) / 1000 * np.pi)[None], volume[:, None]


s, angle, volume = grid(2)  # two dimensions: which law do the draws follow?
sampler = Bingham(epsilon=4.0, random_state=0)
drawn = np.mean([sampler.randomise(np.diag([3.0, 0.0]))[0] ** 2 for _ in range(10_000)])
for name, power in (("Bingham's law", 0), ("accepted law", -2)):
    weight = np.exp(log_density(3.0, 0.0, 2, 4.0, power, s, angle))
    print(f"mean of u_1^2: {name} {np.sum(weight * np.cos(angle) ** 2) / weight.sum():.3f}, drawn {drawn:.3f}")

epsilons = {}
for dimensions in (5, 10, 20, 50):  # neighbours: 1000 rows each of e_1 and e_2, and one row e_1 more; claim: epsilon 1
    for power in (0, -dimensions):
        s, angle, volume = grid(dimensions)
        logs = [log_density(rows, 1000.0, dimensions, 1.0, power, s, angle) for rows in (1000.0, 1001.0)]
        logs = [one - one.max() - np.log(np.sum(volume * np.exp(one - one.max()))) for one in logs]
        epsilons[dimensions, power == 0] = np.abs(logs[1] - logs[0]).max()
print(
    {
        f"{d} dimensions, {'Bingham' if right else 'as accepted'}": round(float(e), 2)
        for (d, right), e in epsilons.items()
    }
)
print(f"verdict: REFUTED, epsilon {epsilons[20, False]:.2f} in 20 dimensions by exact densities (claim 1)")
