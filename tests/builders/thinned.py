"""Combinations of parameters, of which the default run takes few."""

from itertools import product

import pytest


def thinned(*axes):
    """Every combination of the axes' values, for ``parametrize``; all but as many as the longest axis has values are
    marked ``simulations``. Those that are left hold each value of each axis.
    """
    values = [list(axis) for axis in axes]
    diagonal = {tuple(turn % len(axis) for axis in values) for turn in range(max(map(len, values)))}
    places = product(*(range(len(axis)) for axis in values))
    return [
        pytest.param(
            *(axis[place] for axis, place in zip(values, where, strict=True)),
            marks=() if where in diagonal else pytest.mark.simulations,
        )
        for where in places
    ]


def every(step, values):
    """All values, for ``parametrize``; those other than the first of each ``step`` are marked ``simulations``."""
    return [
        pytest.param(
            *(one if isinstance(one, tuple) else (one,)), marks=() if place % step == 0 else pytest.mark.simulations
        )
        for place, one in enumerate(values)
    ]
