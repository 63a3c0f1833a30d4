"""Build the claim that the options of ``fedassay audit`` state, and list what they left open."""

from typing import Any

from ..audit.claim import Claim
from ..suites.config.source import ConfigError

_ASSUMED = {"unit": "report", "adjacency": "replace_one", "observer": "uploads"}
_OF_DPSGD = {"unit": "sample", "adjacency": "add_remove", "observer": "uploads"}
"""What is assumed of a claim of DP-SGD, whose accountants state one sample under add/remove."""


def stated_claim(
    *,
    epsilon: float | None,
    delta: float,
    mu: float | None,
    rho: float | None,
    noise_multiplier: float | None,
    sampling_rate: float | None,
    steps: int | None,
    rounds: int,
    **setting: str | None,
) -> tuple[Claim, dict[str, str]]:
    """Return the claim, and the unit, adjacency and observer that were assumed because no option stated them.

    Raises:
        ConfigError: options that state no claim, several claims, or one that contradicts itself.
    """
    default = _ASSUMED if noise_multiplier is None else _OF_DPSGD
    assumed = {name: value for name, value in default.items() if setting[name] is None}
    fields: dict[str, Any] = {name: value for name, value in setting.items() if value is not None} | assumed
    fields |= {"epsilon": epsilon, "delta": delta, "rounds": rounds}
    laws = {"--mu": mu, "--rho": rho, "--noise-multiplier": noise_multiplier}
    if len(given := [name for name, value in laws.items() if value is not None]) > 1:
        raise ConfigError(f"the law of a claim is stated once, got {' and '.join(given)}")
    try:
        if rho is not None:
            # Loads dp-accounting and torch, which no other claim needs.
            from ..defenses.accounting.stated_laws import claim_from_rho

            return claim_from_rho(rho, **fields), assumed
        if noise_multiplier is not None:
            from ..defenses.accounting.stated_laws import claim_from_noise

            rate, count = 1.0 if sampling_rate is None else sampling_rate, 1 if steps is None else steps
            return claim_from_noise(noise_multiplier, sampling_rate=rate, steps=count, **fields), assumed
        for name, value in (("--sampling-rate", sampling_rate), ("--steps", steps)):
            if value is not None:
                raise ConfigError(f"{name} describes the noise of DP-SGD: give --noise-multiplier as well")
        return Claim.stated(mu=mu, **fields), assumed
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None
