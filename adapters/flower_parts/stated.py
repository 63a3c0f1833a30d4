"""The noise that a Flower strategy, a client-side mod or the user states; Flower has each class in two interfaces."""

import math
from dataclasses import dataclass
from typing import Any

from ...fl.laws.law import GaussianLaw

try:
    from flwr.client.mod import LocalDpMod as OlderLocalDpMod
    from flwr.clientapp.mod import LocalDpMod
    from flwr.server import strategy as older
    from flwr.serverapp import strategy as newer
except ImportError as error:
    raise ImportError("fedassay.adapters.flower needs Flower: pip install 'fedassay[flower]'") from error

_ADAPTIVE = (
    newer.DifferentialPrivacyServerSideAdaptiveClipping,
    newer.DifferentialPrivacyClientSideAdaptiveClipping,
    older.DifferentialPrivacyServerSideAdaptiveClipping,
    older.DifferentialPrivacyClientSideAdaptiveClipping,
)
_FIXED = (
    newer.DifferentialPrivacyServerSideFixedClipping,
    newer.DifferentialPrivacyClientSideFixedClipping,
    older.DifferentialPrivacyServerSideFixedClipping,
    older.DifferentialPrivacyClientSideFixedClipping,
)
_SERVER_SIDE = (
    newer.DifferentialPrivacyServerSideFixedClipping,
    newer.DifferentialPrivacyServerSideAdaptiveClipping,
    older.DifferentialPrivacyServerSideFixedClipping,
    older.DifferentialPrivacyServerSideAdaptiveClipping,
)


@dataclass(frozen=True, kw_only=True)
class StatedNoise:
    """Noise, clip norm and number of clients that a wrapper, a mod or the user states.

    Args:
        noise_multiplier: noise standard deviation of the sum over ``clip_norm``, >= 0.
        clip_norm: of one update, > 0.
        clients: by which the sum is divided, > 0.
    """

    noise_multiplier: float
    clip_norm: float
    clients: float = 1.0


def stated_noise(strategy: Any, law: GaussianLaw | None) -> StatedNoise | None:
    """Return what a strategy states now, or else the law that the user stated; None where neither states any."""
    if law is not None:
        deviation = law.noise_std / (law.scale * law.clip_norm)
        return StatedNoise(noise_multiplier=deviation, clip_norm=law.clip_norm, clients=1 / law.scale)
    if not isinstance(strategy, (*_FIXED, *_ADAPTIVE)):
        return None
    return StatedNoise(
        noise_multiplier=float(strategy.noise_multiplier),
        clip_norm=float(strategy.clipping_norm),
        clients=float(strategy.num_sampled_clients),
    )


def clips_at_server(strategy: Any) -> bool:
    """Whether a strategy clips what arrives, and not what mods of the clients are handed."""
    return isinstance(strategy, _SERVER_SIDE)


def noises_reports(mod: Any) -> bool:
    """Whether a mod is Flower's for local differential privacy, which noises each report."""
    return isinstance(mod, LocalDpMod | OlderLocalDpMod)


def stated_by_mod(mod: Any) -> StatedNoise:
    """Return what Flower's mod for local differential privacy states."""
    deviation = mod.sensitivity * math.sqrt(2 * math.log(1.25 / mod.delta)) / mod.epsilon
    return StatedNoise(noise_multiplier=deviation / mod.clipping_norm, clip_norm=float(mod.clipping_norm))


def noise_of_updates_and_count(strategy: Any) -> float:
    """Return the noise multiplier of one round: for adaptive clipping, of the noised updates and count together."""
    multiplier = float(strategy.noise_multiplier)
    if not isinstance(strategy, _ADAPTIVE) or multiplier == 0:
        return multiplier
    # Andrew et al. 2021, Theorem 1, with the deviation of the count.
    return float((multiplier**-2 + (2 * float(strategy.clipped_count_stddev)) ** -2) ** -0.5)
