"""What the accountants' cases share: the exact epsilon of Gaussian noise, and Renyi divergences of sampled steps."""

import math

ORDERS = tuple(range(2, 64))


def gaussian_delta(mu, epsilon):
    """Return the exact delta of N(0, 1) against N(mu, 1)."""

    def below(x):
        return math.erfc(-x / math.sqrt(2)) / 2

    return below(mu / 2 - epsilon / mu) - math.exp(epsilon) * below(-mu / 2 - epsilon / mu)


def gaussian_epsilon(mu, delta):
    """Return the exact epsilon of N(0, 1) against N(mu, 1), by bisection, rounded up."""
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(mu, middle) > delta else (low, middle)
    return high


def sampled_gaussian_rdp(rate, noise_multiplier, order):
    """Return the Renyi divergence of one step of Poisson-sampled Gaussian noise (Mironov, Talwar and Zhang 2019)."""
    moment = sum(
        math.comb(order, k)
        * (1 - rate) ** (order - k)
        * rate**k
        * math.exp(min((k * k - k) / (2 * noise_multiplier**2), 600))
        for k in range(order + 1)
    )
    return math.log(moment) / (order - 1)


def epsilon_of_rdp(rdp, order, delta):
    """Convert a Renyi divergence (Canonne, Kamath and Steinke 2020, proposition 12)."""
    return rdp + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)


def sampled_gaussian_epsilon(rate, noise_multiplier, steps, delta):
    """Return the least epsilon over the orders."""
    return min(
        epsilon_of_rdp(steps * sampled_gaussian_rdp(rate, noise_multiplier, order), order, delta) for order in ORDERS
    )
