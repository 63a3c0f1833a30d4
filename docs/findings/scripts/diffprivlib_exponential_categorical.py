"""Whether the factor 2 may be left out is decided on probabilities that are computed with it.

Library: diffprivlib==0.6.6.
"""

from itertools import combinations

import numpy as np
from diffprivlib.mechanisms import ExponentialCategorical

EPSILON = 4.0
even = -2 / EPSILON * np.log((1 + 2 * np.exp(-EPSILON / 2)) / 3)  # equal sums at epsilon/2
first = {("a", "b"): 0.0, ("c", "d"): 0.0}  # other pairs of a to d: 1
utilities = [(v, w, even if v > "d" and w > "d" else first.get((v, w), 1.0)) for v, w in combinations("abcdefgh", 2)]
mechanism = ExponentialCategorical(epsilon=EPSILON, utility_list=utilities)
chance = {
    (given, out): mechanism._get_prob(given, out) / mechanism._normalising_constant[given]
    for given in "abcdefgh"
    for out in "abcdefgh"
}
epsilon = max(np.log(chance[v, out] / chance[w, out]) for v in "abcdefgh" for w in "abcdefgh" for out in "abcdefgh")
print("factor 2 left out:", mechanism._balanced_tree)
print(f"verdict: REFUTED for a constructed utility, epsilon {epsilon:.2f} by exact probabilities (claim 4)")
