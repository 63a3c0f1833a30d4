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


def within(records, trees, gone):
    """Epsilon of labels that alternate from tree to tree, with and without one record."""
    labels = [tree % 2 for tree in range(trees) for _ in range(records // trees)]
    labels += labels[-1:] * (records - len(labels))
    return epsilon(counts(labels, trees), counts(labels[:gone] + labels[gone + 1 :], trees))


one, replaced = within(4, 1, 0), epsilon(counts([0, 0], 1), counts([0, 1], 1))
print(f"one tree: epsilon {one:.2f} for a removed record, {replaced:.2f} for a replaced one (claim 1)")
first, last = within(40, 10, 0), within(40, 10, 39)
print(f"ten trees: epsilon {first:.2f} for the first of 40 records, {last:.2f} for the last of them")
print(f"of 41 records: {within(41, 10, 0):.2f} for the first, {within(41, 10, 40):.2f} for the last")
words = f"epsilon {first:.2f} if the first of 40 records is removed"
print(f"verdict: REFUTED, {words} (ten trees, claim 1; {replaced:.2f} if one is replaced)")
