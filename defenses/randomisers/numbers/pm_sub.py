"""Randomise a number by the Piecewise mechanism with a nearly optimal interval width (PM-SUB: Zhao et al. 2020)."""

from .piecewise import Piecewise


class PMSub(Piecewise):
    """A Piecewise mechanism with the parameter t = e^(epsilon / 3) instead of e^(epsilon / 2), which lowers the
    worst-case variance.

    PM-OPT, its optimum, needs the root of a quartic and gains little. Here too two intervals at the ends of the range
    do not overlap, so that {report >= low(radius)} has exactly the ratio e^epsilon.
    """

    source = "Zhao et al. 2020 (Local Differential Privacy based Federated Learning for IoT)"
    power = 1 / 3
