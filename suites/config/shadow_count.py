"""Check before a run that an attack which compares its target with reference models can work with so few of them."""

import numpy as np

from ...attacks.membership.shadow_attack import ShadowAttack
from ...attacks.shadow_bank import ShadowBank

DEFAULT_SHADOWS = 64
"""The default number of shadow models, which every attack of the package can work with."""
_CANDIDATES, _POPULATION = 16, 16


def too_few(attack: ShadowAttack, count: int) -> str:
    """Return why ``count`` shadow models are too few for an attack, with the number that suffices; empty if they
    suffice.

    The attack is tried on logits of made-up models. An attack that fails with many models too, or otherwise than by a
    ValueError, is left to the run, whose rows record the error.
    """
    if not (words := _refusal(attack, count)):
        return ""
    least = next((more for more in range(count + 2, DEFAULT_SHADOWS + 2, 2) if not _refusal(attack, more)), None)
    return "" if least is None else f"{count} are too few, {least} suffice ({words})"


def _refusal(attack: ShadowAttack, count: int) -> str:
    """The words with which an attack refuses the references of one of ``count`` models; empty if it does not."""
    try:
        bank = _made_up(count)
        attack.scores(bank.references(0), bank.model_logits(0))
    except ValueError as error:
        return str(error)
    except Exception:  # A user's attack may raise anything: the run records it.
        return ""
    return ""


def _made_up(count: int) -> ShadowBank:
    """Logits of models in pairs, of which each candidate belongs to exactly one."""
    rng = np.random.default_rng(0)
    half = rng.random((count // 2, _CANDIDATES)) < 0.5
    included = np.stack([half, ~half], axis=1).reshape(count, _CANDIDATES)
    return ShadowBank(
        logits=rng.normal(size=(count, _CANDIDATES)) + included,
        included=included,
        population=rng.normal(size=(count, _POPULATION)),
        ids=np.arange(_CANDIDATES),
        paired=True,
    )
