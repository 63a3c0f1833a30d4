"""Define the commands ``list``, which prints what is available, and ``doctor``, which describes this machine."""

import tomllib
from collections.abc import Callable
from importlib import resources
from typing import TYPE_CHECKING, Any

from ..audit.check import CHECKS
from ..audit.wording import nearest
from ..suites.config.source import ConfigError, config_errors

if TYPE_CHECKING:
    from ..fl.data.dataset import Dataset
    from ..suites.config.part_files import Kind


def listing(kind: str) -> dict[str, str]:
    """Return the names of all items of one kind, each with a one-line description; raise ConfigError for an unknown
    kind.
    """
    kinds: dict[str, Callable[[], dict[str, str]]] = {
        "defenses": lambda: _parts("defense"),
        "attacks": lambda: _parts("attack"),
        "estimators": _estimators,
        "mutants": _mutants,
        "suites": _suites,
        "datasets": _datasets,
        "metrics": metrics,
        "models": lambda: _named("model"),
        "algorithms": lambda: _named("algorithm"),
        "partitions": lambda: _named("partition"),
        "samplings": lambda: _named("sampling"),
        "canaries": lambda: _named("canary"),
    }
    if kind not in kinds:
        raise ConfigError(f"cannot list {kind!r}; kinds that can be listed: {nearest(kind, kinds)}")
    return kinds[kind]()


def metrics() -> dict[str, str]:
    """Return a description of each metric that result rows may hold, keyed by its name."""
    described = tomllib.loads((resources.files(__package__) / "metrics.toml").read_text(encoding="utf-8"))
    return described | {check.metric: check.measures for check in CHECKS.values() if check.measures}


def one_dataset(kind: str, name: str | None, changes: tuple[str, ...]) -> dict[str, str]:
    """Read one data set, by name or path, and return facts about it, such as its size, classes and owners.

    ``changes``: options of its reader, each ``key=value``. Raises ConfigError for another kind, an unknown name or
    option, or data that do not fit.
    """
    from ..fl.data.dataset import description
    from ..fl.data.datasets import load_dataset
    from ..suites.config.source import apply_override

    if kind != "datasets" or name is None:
        raise ConfigError(f"a name and --set can be given only as `list datasets NAME`, got `list {kind} {name or ''}`")
    options: dict[str, Any] = {}
    for change in changes:
        apply_override(options, change)
    with config_errors():
        dataset = load_dataset({"part": name, **options} if options else name)
    notes = {f"note {number}": text for number, text in enumerate(dataset.notes, 1)}
    return {"name": dataset.name, **description(dataset), "models": ", ".join(_models_for(dataset)), **notes}


def _models_for(dataset: "Dataset") -> list[str]:
    """The models of the catalogue that accept the data set's images or rows."""
    from ..fl.models.small_models import known_models
    from ..fl.objective import SEGMENTATION
    from ..fl.task import network_of

    found = []
    for name in known_models():
        try:
            objective = network_of(dataset, name, None).objective
        except ValueError:  # Images that are too small, for example.
            continue
        if dataset.train_targets is not None or objective.name != SEGMENTATION:
            found.append(name)
    return found


def errata_of(kind: str) -> dict[str, str]:
    """Return the known errors in the papers of the defenses (errata), keyed by defense; raise ConfigError for any other
    kind of item.
    """
    from ..suites.config.part_listing import all_errata

    if kind != "defenses":
        raise ConfigError(f"--errata can be given only with defenses, got {kind!r}")
    return {name: "\n".join(items) for name, items in all_errata("defense").items()}


def diagnosis(*, digests: bool = False) -> list[str]:
    """Return the lines that ``fedassay doctor`` prints about this machine; with ``digests``, also read every local data
    set and state its SHA-256.
    """
    # Imported late, like everything below: `fedassay list` must start without torch.
    from ..suites.results.environment import accelerator, hardware, threads, versions
    from ..suites.scoring.images import Unavailable, convolutions

    machine = hardware()
    lpips = convolutions()
    return [
        f"cores     {machine['cores']}, {machine['memory_gb']} GB",
        f"threads   {threads()}",
        f"gpu       {accelerator()}",
        *(f"version   {name} {number}" for name, number in versions().items()),
        *(f"data set  {name}: {where}{_digest(name, where) if digests else ''}" for name, where in _datasets().items()),
        f"lpips     {'unavailable: ' + lpips.reason if isinstance(lpips, Unavailable) else 'ready'}",
    ]


def _parts(kind: "Kind") -> dict[str, str]:
    from ..suites.config.part_listing import federation_kinds, summaries

    kinds = federation_kinds(kind)
    return {name: f"{kinds[name]}: {words}" for name, words in summaries(kind).items()}


def _estimators() -> dict[str, str]:
    from ..audit.calibration import null_measurement
    from ..audit.estimators.catalogue import estimators

    measured = {estimator: null_measurement(estimator) for estimator in estimators().values()}
    return {
        estimator.name: (
            f"{result.kind.value}: {estimator.summary} Assumes: {result.assumption}. Design: {estimator.design.value}. "
            f"Takes: {estimator.inputs}."
        )
        for estimator, result in measured.items()
    }


def _named(kind: str) -> dict[str, str]:
    from ..suites.conformance.federation_parts import summaries_of

    return summaries_of(kind)


def _mutants() -> dict[str, str]:
    from ..suites.config.part_listing import mutant_summaries

    return mutant_summaries()


def _suites() -> dict[str, str]:
    from ..suites.config.part_listing import bundled_suites
    from ..suites.config.source import Source

    parsed = {name: Source(name, text).parse() for name, text in bundled_suites().items()}
    return {name: _described(tree) for name, tree in parsed.items()}


def _described(tree: dict[str, Any]) -> str:
    presets = ", ".join(tree.get("presets", {}))
    return str(tree.get("description", "")) + (f" Presets: {presets}." if presets else "")


def _datasets() -> dict[str, str]:
    from ..fl.data.datasets import KNOWN_DATASETS, available

    return {name: available(name) for name in KNOWN_DATASETS}


def _digest(name: str, where: str) -> str:
    from ..fl.data.datasets import load_dataset

    on_this_machine = where == "bundled" or where.startswith(("found", "in the cache"))
    return f", SHA-256 {load_dataset(name).digest}" if on_this_machine else ""
