"""A record that is replaced, and one that is removed, from the training set of a random forest.

Library: diffprivlib==0.6.6.
"""

import warnings

import numpy as np
from diffprivlib.models import forest

warnings.simplefilter("ignore")
seen, kind = [], forest.PermuteAndFlip


def counted(**options):
    seen.append(options["utility"])
    assert options["epsilon"] == 1.0
    assert options["monotonic"]
    return kind(**options)


forest.PermuteAndFlip = counted


def counts(labels, trees):
    """The counts of labels with which the leaf of the only point chooses its label, tree by tree."""
    seen.clear()
    x = np.full((len(labels), 1), 0.5)
    model = forest.RandomForestClassifier(trees, epsilon=1.0, bounds=(0, 1), classes=(0, 1), max_depth=1)
    model.fit(x, np.array(labels))
    return [np.array(each, dtype=float) for each in seen]


def chance(of, label):
    """Permute-and-flip of two candidates: the smaller one is chosen if it comes first and its coin says so."""
    low, high = sorted(of)
    smaller = np.exp(low - high) / 2
    return 0.5 if low == high else smaller if of[label] == low else 1 - smaller


def epsilon(one, other):
    """The largest log-ratio of any labels of all trees, whose coins are independent."""
    ratios = [
        [np.log(chance(a, label) / chance(b, label)) for label in (0, 1)] for a, b in zip(one, other, strict=True)
    ]
    return max(sum(max(each) for each in ratios), sum(max(-np.array(each)) for each in ratios))


def within(removed, trees):
    """Epsilon of the labels with which the trees' records differ most, with and without the first record."""
    labels = [tree % 2 for tree in range(trees) for _ in range(4)]
    return epsilon(counts(labels, trees), counts(labels[removed:], trees))


replaced = epsilon(counts([0, 0], 1), counts([0, 1], 1))
print(f"one tree: epsilon {replaced:.2f} for a replaced record, {within(1, 1):.2f} for a removed one (claim 1)")
words = f"epsilon {replaced:.2f} if a record is replaced and {within(1, 10):.2f} if the first of 40 is removed"
print(f"verdict: REFUTED, {words} (ten trees, claim 1)")
