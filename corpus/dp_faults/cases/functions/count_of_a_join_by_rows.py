"""The rows of a join are counted with sensitivity 1, but a user owns several rows.

Each visit of a user is joined with the table of shops. The correct version keeps one visit of each user.
"""

import numpy as np

from dp_faults import Case, Claim, Program

EPSILON = 1.0
SHOPS = {1: "north", 2: "south", 3: "north"}


def joined(visits):
    return [user for user, shop in visits if SHOPS.get(shop) == "north"]


def correct(visits, rng):
    return np.array([len(set(joined(visits))) + rng.laplace(scale=1 / EPSILON)])


def broken(visits, rng):
    return np.array([len(joined(visits)) + rng.laplace(scale=1 / EPSILON)])


claim = Claim(epsilon=EPSILON, unit="user", adjacency="add_remove")
others = [(1, 1), (1, 2), (2, 3)]
CASE = Case(
    fault="clip",
    correct=Program(claim=claim, release=correct),
    broken=Program(claim=claim, release=broken),
    neighbours=(others, [*others, (3, 1), (3, 3), (3, 1), (3, 1), (3, 3)]),
    source="https://github.com/google/differential-privacy/pull/84",
    ideal="the number of rows of a user must be bounded before they are counted",
    event=lambda released: released[0] > 4.5,
    proof="a user with five rows moves the count by 5: epsilon is 5, and grows with the rows",
)
