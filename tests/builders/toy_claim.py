"""A claim with plain defaults: a test names only what it is about."""

from fedassay.audit.claim import Adjacency, Claim, Unit
from fedassay.audit.curve import GaussianCurve
from fedassay.audit.observer import GLOBAL_MODELS


def toy_claim(epsilon=4.0, mu=None, unit=Unit.CLIENT, **other):
    fields = {
        "epsilon": epsilon,
        "delta": 1e-5,
        "unit": unit,
        "adjacency": Adjacency.ADD_REMOVE,
        "observer": GLOBAL_MODELS,
        "rounds": 20,
        "dp_model": "central",
        "mechanism": "gaussian",
        "parameters": {"noise_multiplier": 4.8},
        "accountant": "gdp 1",
        "sampling": "every client, every round",
        "trust": "the server is trusted",
        "source": "McMahan et al. 2018, Theorem 1",
        "curve": None if mu is None else GaussianCurve(mu),
    }
    return Claim(**{**fields, **other})
