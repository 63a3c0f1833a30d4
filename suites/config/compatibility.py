"""Check before a run that attacks and audits fit the data, models and shadow federations of their federations."""

from collections.abc import Iterable

import numpy as np

from ...attacks.attack import Attack, Undefined
from ...attacks.membership.shadow_attack import ShadowAttack
from ...attacks.shadow_bank import ShadowBank
from ...audit.parts import Spec, label
from ...checks.canaries import canary_kind
from ...fl.data.datasets import load_dataset
from ...fl.data.files.lookup import DataFile
from ...fl.objective import OBJECTIVES, Objective, objective_of
from ...fl.streams import Streams
from ...fl.task import Task, network_of
from .source import ConfigError
from .tables.suite import Suite

LEAST_SIDE = 3
"""Pixels per side. Smaller inputs, such as the rows of a table, are not scored as images: SSIM has no window there."""


def check_federations(attack: Attack, path: str, federations: Iterable[str], spec: Suite, where: str) -> None:
    """Raise ConfigError if the attack named ``path`` cannot run on one of ``federations``, which the suite ``spec``
    defines.

    Raises:
        ConfigError: for an attack that reconstructs images where the data are rows of a table, or one that does not
            attack models of this task, such as one that needs a class per image where the model has a label per pixel;
            the message starts with ``where``.
    """
    for name in federations:
        federation = spec.federations[name]
        data, model = label("dataset", federation.dataset), label("model", federation.model)
        _, height, width = load_dataset(federation.data).shape
        # Found before the run: the error of SSIM could come after hours of training and searching.
        if attack.reconstructs and min(height, width) < LEAST_SIDE:
            raise ConfigError(
                f"{where}: {path} reconstructs images of at least {LEAST_SIDE}x{LEAST_SIDE} pixels, but data set "
                f"{data} of federation {name} has {height}x{width}: run the attack only on federations "
                "with such images, or remove it"
            )
        objective = objective_for(federation.model, federation.data)
        if objective.name not in attack.tasks:
            known = " or ".join(OBJECTIVES[task].words for task in attack.tasks)
            raise ConfigError(
                f"{where}: {path} needs {known}, but model {model} of federation {name} is trained on "
                f"{objective.words} (task {objective.name}): run the attack only on federations of the tasks "
                f"{', '.join(attack.tasks)} (key federations of the attack), or remove it"
            )


def check_recordings(spec: Suite, shadowed: Iterable[str], where: str) -> None:
    """Raise ConfigError if a federation that was recorded would have to be trained: for its audit, or for an attack on
    shadow federations, which runs on those ``shadowed``.
    """
    recorded = {name for name, one in spec.federations.items() if one.recording is not None}
    trained = {
        "an attack on shadow federations": set(shadowed),
        "an audit": {spec.audit.federation} if spec.audit else (),
    }
    for what, names in trained.items():
        if found := recorded.intersection(names):
            raise ConfigError(f"{where}: {what} trains federations, and {min(found)} is a recording: leave it out")


def check_candidates(attack: Attack, task: Task, seed: int, where: str) -> None:
    """Raise ConfigError, which starts with ``where``, if a federation has too few candidates for an attack."""
    try:
        attack.plant(task, Streams(seed).generator("candidates"))
    except Undefined:  # The attack's rows record why it does not apply here.
        return
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
    except Exception:  # A user's attack may raise anything: it becomes a failed row, and the other attacks still run.
        return


def objective_for(model: Spec, dataset: Spec | DataFile) -> Objective:
    """Return the form of a model's predictions on a data set. If the model cannot be built, return the form that the
    data set's task implies; the error is then reported when the federation is set up.
    """
    data = load_dataset(dataset)
    try:
        return network_of(data, model, None).objective
    except ValueError:
        return objective_of(data.task)


def check_audit(spec: Suite, where: str) -> None:
    """Raise ConfigError if an audit would add a canary image with a class as its label to the training of a model whose
    labels are not classes.
    """
    audit = spec.audit
    # A canary that is an update has no label, so it fits every model.
    if audit is None or not canary_kind(audit.canary).image:
        return
    federation = spec.federations[audit.federation]
    used = federation.model_copy(update={"dataset": audit.dataset or federation.dataset})
    objective = objective_for(audit.model, used.data)
    if not objective.classifies:
        raise ConfigError(
            f"{where}: canary {audit.canary!r} is a sample with a class, but the model "
            f"{label('model', audit.model)} is trained on {objective.words} (task {objective.name}): choose a canary "
            "that is an update, dirac or random"
        )


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
    return "" if least is None else f"{count} shadow models are too few, and {least} suffice ({words})"


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
