"""What there is: parts, suites, data sets, metrics, and what this machine has."""

from collections.abc import Callable
from typing import Any

from ..audit.nearest import nearest
from ..suites.config.source import ConfigError

METRICS = {
    "accuracy": "share of test images that the final model labels right",
    "epsilon_low": "lower bound on epsilon that an audit proves, at alpha over the number of claims",
    "probe_sensitivity": "longest move of a release by one row, found by replaying a run; against the published law",
    "probe_noise_present": "least share of a layer's numbers in a release that other draws move",
    "probe_noise_fresh_between_clients": "largest cosine of two clients' noise in a round",
    "probe_noise_fresh_between_rounds": "largest cosine of one sender's noise in two rounds",
    "probe_noise_scale": "standard deviation of the noise over the published law's",
    "probe_noise_of_its_own_in_every_replica": "share of releases without the canary that repeat another replica's",
    "probe_noise_scale_in_every_round": "scatter of the releases without the canary over the law's, in its worst round",
    "probe_canary_arrives": "how far the canary moves a run's releases, over what the law says",
    "probe_public_state": "longest move of a number of the public state by one row",
    "auc": "chance that a member scores above a non-member",
    "balanced_accuracy": "membership guesses right, the upper half of all scores called members",
    "tpr_at_fpr_0.01": "members found at one false alarm in a hundred, both rates bounded; from 1,000 runs on",
    "tpr_at_fpr_0.001": "the same at one in a thousand; fewer runs allow a higher rate, such as 0.1 from 100 on",
    "tpr_at_fpr_0.01_estimate": "point estimate of scores that share a run's noise: says nothing of other runs",
    "label_accuracy": "labels behind an upload named right, as a multiset; of one-sample uploads the share named right",
    "label_over_chance": "label accuracy from equal counts (0) to all right (1)",
    "label_exact_rate": "share of uploads with every class's count right",
    "label_count_error": "samples by which a class's count is off, mean over classes and uploads",
    "label_total_variation": "distance of guessed and true class distribution, mean over uploads",
    "label_class_existence": "share of classes rightly said to be in an upload or not",
    "label_count_accuracy": "share of classes whose count is right, absent ones included (Ma et al. 2023)",
    "psnr": "likeness of a reconstruction, in decibels",
    "psi_psnr": "the same inside the image's sensitive region (outside_psnr: outside it)",
    "psi_ssim": "structural similarity inside that region (outside_ssim: outside it)",
    "psi_mse": "mean squared error inside that region (outside_mse: outside it)",
    "psi_lpips": "perceptual distance, the other pixels being the truth's (outside_lpips: of those outside)",
    "mse": "mean squared error of a reconstruction, pixels in [0, 1]",
    "ssim": "structural similarity of a reconstruction",
    "lpips": "perceptual distance of a reconstruction (needs AlexNet's ImageNet weights)",
}


def listing(kind: str) -> dict[str, str]:
    """Names of a kind with a line of words each; ConfigError for an unknown kind."""
    kinds: dict[str, Callable[[], dict[str, str]]] = {
        "defenses": _defenses,
        "attacks": _attacks,
        "estimators": _estimators,
        "mutants": _mutants,
        "suites": _suites,
        "datasets": _datasets,
        "metrics": lambda: METRICS,
    }
    if kind not in kinds:
        raise ConfigError(f"cannot list {kind!r}; known: {nearest(kind, kinds)}")
    return kinds[kind]()


def errata_of(kind: str) -> dict[str, str]:
    """The errata of each defense that has any, a line each; ConfigError for another kind of part."""
    from ..suites.config.part_listing import all_errata

    if kind != "defenses":
        raise ConfigError(f"only defenses have errata, got --errata with {kind!r}")
    return {name: "\n".join(items) for name, items in all_errata("defense").items()}


def diagnosis(*, digests: bool = False) -> list[str]:
    """What ``fedassay doctor`` prints; ``digests``: data sets that are here are read, and their SHA-256 stands beside
    them.
    """
    from ..suites.results.environment import accelerator, hardware, threads, versions
    from ..suites.scoring.images import Unavailable, lpips_scorer

    machine = hardware()
    lpips = lpips_scorer()
    return [
        f"cores     {machine['cores']}, {machine['memory_gb']} GB",
        f"threads   {threads()}",
        f"gpu       {accelerator()}",
        *(f"version   {name} {number}" for name, number in versions().items()),
        *(f"data set  {name}: {where}{_digest(name, where) if digests else ''}" for name, where in _datasets().items()),
        f"lpips     {'unavailable: ' + lpips.reason if isinstance(lpips, Unavailable) else 'ready'}",
    ]


def _defenses() -> dict[str, str]:
    from ..api import parts

    return parts("defense")


def _attacks() -> dict[str, str]:
    from ..api import parts

    return parts("attack")


def _estimators() -> dict[str, str]:
    from ..audit.calibration.calibration import worth
    from ..audit.estimators.catalogue import estimators

    found = estimators()
    seen = {name: worth(estimator) for name, estimator in found.items()}
    return {
        name: f"{seen[name].kind.value}: {estimator.summary} Assumes: {seen[name].assumption}."
        for name, estimator in found.items()
    }


def _mutants() -> dict[str, str]:
    from ..suites.mutation.mutants import known_mutants, module_of

    first = {name: (module_of(name).__doc__ or "").splitlines()[0] for name in known_mutants()}
    return {name: f"{kind}: {first[name]}" for name, kind in known_mutants().items()}


def _suites() -> dict[str, str]:
    from ..suites.config.source import Source
    from ..suites.config.suite_file import bundled_suites

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

    here = where == "bundled" or where.startswith(("found", "in the cache"))
    return f", SHA-256 {load_dataset(name).digest}" if here else ""
