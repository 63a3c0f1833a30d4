"""Rounds of NVFlare with a filter that clips and adds noise, of which tests change a part. Needs NVFlare."""

import numpy as np
from fedassay.adapters.nvflare import Training
from nvflare.apis.dxo import DataKind
from nvflare.apis.dxo_filter import DXOFilter
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType

CLIENTS, ROUNDS, CLIP, NOISE = 8, 6, 0.5, 1.0
START = {"weight": np.zeros((6, 2), dtype=np.float32), "bias": np.zeros(2, dtype=np.float32)}
STATED = {"rounds": ROUNDS, "noise_multiplier": NOISE, "clip_norm": CLIP, "delta": 1e-5}


def points():
    """Clients with 4 to 7 points of 6 features each."""
    draws = np.random.default_rng(3)
    x = [draws.normal(size=(4 + client % 4, 6)).astype(np.float32) for client in range(CLIENTS)]
    return [(one, one @ np.ones((6, 2), dtype=np.float32)) for one in x]


def fit(model, data, *, kind=ParamsType.DIFF, meta=lambda x: {}):
    """One step of gradient descent."""
    x, y = data
    error = x @ model.params["weight"] + model.params["bias"] - y
    change = {"weight": -0.3 * x.T @ error / len(x), "bias": -0.3 * error.mean(0)}
    if kind is ParamsType.FULL:
        change = {name: model.params[name] + one for name, one in change.items()}
    return FLModel(params=change, params_type=kind, meta=meta(x))


class ClipAndNoise(DXOFilter):
    """Clips the change of the model, and adds this client's part of the noise."""

    std = NOISE * CLIP / CLIENTS**0.5

    def __init__(self):
        super().__init__([DataKind.WEIGHT_DIFF], None)

    def process_dxo(self, dxo, shareable, fl_ctx):
        clipped = self.clipped(dxo.data)
        dxo.data = {name: one + self.noise(name, one.shape) for name, one in clipped.items()}
        return dxo

    def clipped(self, data):
        norm = np.sqrt(sum(float(np.square(one).sum()) for one in data.values()))
        return {name: one * min(1.0, CLIP / max(norm, 1e-12)) for name, one in data.items()}

    def noise(self, name, shape):
        return np.random.normal(0.0, self.std, shape)  # noqa: NPY002


def training(kind=ClipAndNoise, fit=fit, **stated):
    return Training(fit, points(), START, filters=lambda: [kind()], **(STATED | stated))
