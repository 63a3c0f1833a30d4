"""The sum of squares of a feature gets noise for the lower bound alone: at a lower bound of 0 it gets none.

Library: diffprivlib==0.6.6.
"""

import numpy as np
from diffprivlib.models import LinearRegression


def sum_of_squares(first, seed):  # the noised coefficient, from which the model is fitted
    model = LinearRegression(epsilon=1.0, bounds_X=(0, 1), bounds_y=(0, 1), fit_intercept=False, random_state=seed)
    return model.fit(np.array([[first], [0.5]]), np.array([0.0, 1.0]))._obj_coefs[2][0, 0]


released = {first: {sum_of_squares(first, seed) for seed in range(100)} for first in (0.0, 1.0)}
print("sum of squares released in 100 fits, first row 0:", released[0.0], "first row 1:", released[1.0])
assert released == {0.0: {0.25}, 1.0: {1.25}}
print("verdict: REFUTED, epsilon infinite: the second moment of a feature is released without noise")
