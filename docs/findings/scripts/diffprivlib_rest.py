"""Mechanisms and statistics of diffprivlib for which no finding is known, each on its worst pair of inputs.

Library: diffprivlib==0.6.6.
"""

import warnings

import fedassay
import numpy as np
from diffprivlib import mechanisms as dp
from diffprivlib import models, tools

warnings.simplefilter("ignore")
one = {"epsilon": 1.0, "sensitivity": 1.0}
box = one | {"lower": 0, "upper": 1}
flat = [("a", "b", 1.0), ("a", "c", 1.0), ("b", "c", 1.0)]
MECHANISMS = {  # the mechanism and two neighbours; only one of two candidates of the selections has its utility changed
    "Laplace": (dp.Laplace(**one), 0.0, 1.0),
    "LaplaceTruncated": (dp.LaplaceTruncated(**box), 0.0, 1.0),
    "LaplaceFolded": (dp.LaplaceFolded(**box), 0.0, 1.0),
    "LaplaceBoundedDomain": (dp.LaplaceBoundedDomain(**box), 0.0, 1.0),
    "LaplaceBoundedNoise": (dp.LaplaceBoundedNoise(**one, delta=0.01), 0.0, 1.0),
    "Gaussian": (dp.Gaussian(**one, delta=1e-5), 0.0, 1.0),
    "GaussianAnalytic": (dp.GaussianAnalytic(**one, delta=1e-5), 0.0, 1.0),
    "GaussianDiscrete": (dp.GaussianDiscrete(epsilon=1.0, delta=1e-5), 0, 1),
    "Geometric": (dp.Geometric(epsilon=1.0), 0, 1),
    "GeometricTruncated": (dp.GeometricTruncated(epsilon=1.0, lower=0, upper=3), 0, 1),
    "GeometricFolded": (dp.GeometricFolded(epsilon=1.0, lower=0, upper=3), 0, 1),
    "Staircase": (dp.Staircase(**one), 0.0, 1.0),
    "Uniform": (dp.Uniform(delta=0.1, sensitivity=1.0), 0.0, 1.0),
    "Snapping": (dp.Snapping(**box), 0.0, 1.0),
    "Binary": (dp.Binary(epsilon=1.0, value0="0", value1="1"), "0", "1"),
    "ExponentialHierarchical": (dp.ExponentialHierarchical(epsilon=1.0, hierarchy=[["a", "b"], ["c", "d"]]), "a", "c"),
    "ExponentialCategorical (equal utilities)": (dp.ExponentialCategorical(epsilon=1.0, utility_list=flat), "a", "b"),
}


def selection(kind):
    def drawn(gain, seed):
        return kind(epsilon=1.0, sensitivity=1, utility=[gain, 1.0 - gain, 0.0], random_state=seed).randomise()

    return drawn


def statistic(compute, others=(0.0, 0.0, 0.0)):
    def drawn(first, seed):
        return compute(np.array([first, *others]), epsilon=1.0, bounds=(0, 1), random_state=seed)

    return drawn


def quartile(values, **options):
    return tools.quantile(values, 0.25, **options)


def percentile(values, **options):
    return tools.percentile(values, 75, **options)


def nonzero(first, seed):
    return tools.count_nonzero([first, 1, 0, 0], epsilon=1.0, random_state=seed)


def unweighted(first, seed):
    return tools.histogram([0.2] * int(first), epsilon=1.0, bins=2, range=(0, 1), random_state=seed)[0][0]


def centre(first, seed):
    values = np.array([[first], [0.4], [0.5], [0.6]])
    return models.KMeans(1, epsilon=1.0, bounds=(0, 1), random_state=seed).fit(values).cluster_centers_[0, 0]


SEEDED = {
    "Exponential": (selection(dp.Exponential), 0.0, 1.0),
    "PermuteAndFlip": (selection(dp.PermuteAndFlip), 0.0, 1.0),
    "tools.mean": (statistic(tools.mean), 0.0, 1.0),
    "tools.sum": (statistic(tools.sum), 0.0, 1.0),
    "tools.var": (statistic(tools.var), 0.0, 1.0),
    "tools.std": (statistic(tools.std), 0.0, 1.0),
    "tools.median": (statistic(tools.median, [0.0, 1.0]), 0.0, 1.0),
    "tools.quantile (0.25)": (statistic(quartile, [0.0, 1.0]), 0.0, 1.0),
    "tools.percentile (75)": (statistic(percentile, [0.0, 1.0]), 0.0, 1.0),
    "tools.count_nonzero": (nonzero, 0, 1),
    "tools.histogram (no weights)": (unweighted, 0.0, 1.0),
    "KMeans (cluster_centers_)": (centre, 0.0, 1.0),
}


def of_mechanism(made):
    def drawn(value, rng):
        made._rng = np.random.RandomState(rng.bit_generator)
        return made.randomise(value)

    return drawn


def of_seed(compute):
    return lambda value, rng: compute(value, np.random.RandomState(int(rng.integers(2**31))))


pairs = {
    name: (of_mechanism(made), low, high, made.epsilon, made.delta) for name, (made, low, high) in MECHANISMS.items()
}
pairs |= {name: (of_seed(compute), low, high, 1.0, 0.0) for name, (compute, low, high) in SEEDED.items()}
for name, (mechanism, low, high, epsilon, delta) in pairs.items():
    claim = fedassay.Claim.stated(epsilon=max(epsilon, 1e-9), delta=delta, unit="sample", adjacency="replace_one")
    trials = 1000 if name.startswith("KMeans") else 10_000
    found = fedassay.audit_mechanism(mechanism, claim, inputs=(low, high), trials=trials)
    bound = int(100 * found.measurement.epsilon_low) / 100
    verdict = found.verdict.value.replace("_", " ")
    print(
        f"verdict: {name}: {verdict}, epsilon >= {bound} (claim {epsilon:g}, delta {delta:g})",
        flush=True,
    )
