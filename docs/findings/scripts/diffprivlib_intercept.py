"""With an intercept, two means are released at the share of epsilon that is set aside for one.

Library: diffprivlib==0.6.6.
"""

import diffprivlib.tools.utils as statistics
import numpy as np
from diffprivlib.models import linear_regression

spent = []


def counted(kind):
    def make(**options):
        spent.append(options["epsilon"])
        return kind(**options)

    return make


for place, names in ((linear_regression, ("Laplace", "LaplaceFolded")), (statistics, ("LaplaceTruncated",))):
    for name in names:
        setattr(place, name, counted(getattr(place, name)))
totals = {}
for intercept in (True, False):
    spent.clear()
    data = np.linspace(-1, 1, 50)[:, None]
    model = linear_regression.LinearRegression(
        epsilon=1.0, bounds_X=(-1, 1), bounds_y=(-1, 1), fit_intercept=intercept, random_state=0
    )
    model.fit(data, data[:, 0])
    totals[intercept] = sum(spent)
print(
    "sum of epsilon over all mechanisms, claim 1:", {f"intercept {key}": round(sum_, 3) for key, sum_ in totals.items()}
)
print(f"verdict: REFUTED, mechanisms of epsilon {totals[True]:.2f} in all (claim 1) with an intercept and one feature")
