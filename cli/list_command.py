"""Define the commands ``list``, which prints what is available, and ``doctor``, which describes this machine."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..audit.check import CHECKS
from ..audit.wording import nearest
from ..suites.config.source import ConfigError

if TYPE_CHECKING:
    from ..fl.data.dataset import Dataset
    from ..suites.config.part_files import Kind

# Described here and not where they are computed, because importing that code loads torch.
METRICS = {
    "accuracy": "share of test images that the final model classifies correctly",
    "r2": "of a regression: 1 - squared error / variance of the labels, over the test samples; mean over labels",
    "mean_absolute_error": "of a regression: mean absolute error on the test samples, in the labels' own unit",
    "mean_squared_error": "of a regression: mean squared error on the test samples, in the labels' own unit",
    "macro_f1": "of a model with several labels per sample: F1 of each label on the test samples, mean over labels",
    "subset_accuracy": "share of test samples for which all labels are predicted correctly",
    "loss": "mean cross-entropy of the final model over the test images (over their pixels for a segmentation model, "
    "over labels where there are several; of a regression the mean squared error of the scaled labels)",
    "class_accuracy_worst": "lowest accuracy on the test images of one class (class_iou_worst: IoU of pixels; "
    "class_macro_f1_worst: F1 of a label)",
    "class_accuracy_mean": "mean over classes of the accuracy on each class (class_iou_mean: IoU)",
    "class_accuracy_std": "standard deviation over classes of the accuracy on each class (class_iou_std: IoU)",
    "client_accuracy_worst": "accuracy on own samples, mean over the worst 10 % of clients (client_iou_worst, "
    "client_r2_worst, client_macro_f1_worst: the same of these metrics)",
    "client_accuracy_mean": "mean over clients of the accuracy on each client's own samples (client_iou_mean: IoU)",
    "client_accuracy_std": "standard deviation over clients of that accuracy (client_iou_std: IoU)",
    "bytes_up_client": "payload bytes that one client sends in one round, mean over clients and rounds",
    "bytes_up_round": "payload bytes that all clients send in one round, mean over rounds",
    "bytes_up_total": "payload bytes that all clients send in the whole training",
    "bytes_down_client": "payload bytes that one client receives in one round: the model and the algorithm's numbers",
    "bytes_down_round": "payload bytes that all clients receive in one round, mean over rounds",
    "bytes_down_total": "payload bytes that all clients receive in the whole training",
    "teacher_accuracy": "share of the queries of a transfer for which a teacher votes correctly, mean over teachers",
    "answered": "share of the queries of a transfer for which a label is released",
    "released_accuracy": "share of the released labels of a transfer that are true",
    "epsilon_spent_client": "stated epsilon of all labels of a transfer for one client, as its claim describes it",
    "epsilon_spent_sample": "stated epsilon of all labels of a transfer for one sample, as its claim describes it",
    "epsilon_spent_report": "stated epsilon of all answers of one teacher of a transfer, as its claim describes it",
    "epsilon_of_these_votes": "published epsilon that holds for the votes of one transfer only, and is no claim",
    "epsilon_low": "lower bound on epsilon from an audit, at level alpha divided by the number of claims",
    **{check.metric: check.measures for check in CHECKS.values() if check.measures},
    "auc": "chance that a member scores above a non-member",
    "balanced_accuracy": "share of correct membership guesses when the upper half of the scores is called members",
    "tpr_at_fpr_0.01": "true-positive rate at false-positive rate 0.01, both bounded; needs 1,000 runs",
    "tpr_at_fpr_0.001": "the same at 0.001; fewer runs allow a higher rate, such as 0.1 from 100 runs on",
    "tpr_at_fpr_0.01_estimate": "point estimate from scores that share one run's noise; says nothing about other runs",
    "label_accuracy": "share of the labels behind an upload that are inferred correctly, as a multiset; of people or "
    "votes: of each one's own label",
    "label_over_chance": "label accuracy, rescaled: 0 is guessing equal counts (of votes: at random), 1 is all correct",
    "label_exact_rate": "share of uploads for which the count of every class is correct",
    "label_count_error": "absolute error of the count of a class, mean over classes and uploads",
    "label_total_variation": "total variation distance between inferred and true class distribution, mean over uploads",
    "label_class_existence": "share of classes whose presence in an upload is inferred correctly",
    "label_count_accuracy": "share of classes whose count is correct, absent ones included (Ma et al. 2023)",
    "column_error": "squared error of the columns that an attack infers, over their variance: 0 is exact, 1 as good "
    "as the mean of all people",
    "column_mse": "squared error of the columns that an attack infers, in the columns' own unit",
    "exposure": "bits by which a planted secret ranks above random words under the model; 1.44 on average by chance",
    "exposure_absent": "the same of secrets that no client trained on",
    "token_accuracy": "share of the tokens of the texts behind an upload that are recovered, as a multiset",
    "token_over_chance": "token accuracy, rescaled: 0 is guessing the frequencies of public texts, 1 is all correct",
    "token_set_f1": "F1 of the tokens said to occur behind an upload, mean over uploads",
    "token_places": "share of places of the texts whose token is recovered, texts matched to fit best",
    "token_exact_rate": "share of texts of which every token is recovered",
    "psnr": "peak signal-to-noise ratio of a reconstruction, in decibels",
    "psi_psnr": "PSNR inside the privacy-sensitive region of the image (outside_psnr: outside it)",
    "psi_ssim": "structural similarity (SSIM) inside that region (outside_ssim: outside it)",
    "psi_mse": "mean squared error inside that region (outside_mse: outside it)",
    "psi_lpips": "LPIPS with all pixels outside that region set to the true ones (outside_lpips: those inside)",
    "mse": "mean squared error of a reconstruction, pixels in [0, 1]",
    "ssim": "structural similarity (SSIM) of a reconstruction",
    "lpips": "perceptual distance (LPIPS) of a reconstruction; needs AlexNet's ImageNet weights",
}


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
        "metrics": lambda: METRICS,
        "models": lambda: _named("model"),
        "algorithms": lambda: _named("algorithm"),
        "partitions": lambda: _named("partition"),
        "samplings": lambda: _named("sampling"),
        "canaries": lambda: _named("canary"),
    }
    if kind not in kinds:
        raise ConfigError(f"cannot list {kind!r}; kinds that can be listed: {nearest(kind, kinds)}")
    return kinds[kind]()


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
    try:
        dataset = load_dataset({"part": name, **options} if options else name)
    except ValueError as error:
        raise ConfigError(str(error)) from error
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
