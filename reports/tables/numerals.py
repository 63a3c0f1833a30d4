"""Format numbers for print, with lower bounds rounded down and upper bounds rounded up."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ...audit.metrics import LADDER

T = TypeVar("T")
NOTHING = "–"
"""Printed where there is no number. A zero would look like a measurement."""

DIRECTIONS = {
    "higher_leaks": "(↑ leaks more)",
    "lower_leaks": "(↓ leaks more)",
    "higher_better": "(↑ better)",
    "lower_better": "(↓ better)",
}
"""What a higher or lower value means; printed next to the metric's name."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric's printed name, its unit and its number of decimals."""

    name: str
    unit: str = ""
    decimals: int = 3
    any_size: bool = False
    """Whether values have the unit of the user's own data, so that four significant digits are shown."""

    @property
    def label(self) -> str:
        return f"{self.name}, {self.unit}" if self.unit else self.name


METRICS = {
    "psnr": Metric(name="PSNR", unit="dB", decimals=1),
    "mse": Metric(name="MSE", decimals=4),
    "ssim": Metric(name="SSIM"),
    "lpips": Metric(name="LPIPS"),
    "psi_psnr": Metric(name="PSI PSNR", unit="dB", decimals=1),
    "psi_ssim": Metric(name="PSI SSIM"),
    "outside_psnr": Metric(name="PSNR outside PSI", unit="dB", decimals=1),
    "outside_ssim": Metric(name="SSIM outside PSI"),
    "psi_mse": Metric(name="PSI MSE", decimals=4),
    "outside_mse": Metric(name="MSE outside PSI", decimals=4),
    "psi_lpips": Metric(name="PSI LPIPS"),
    "outside_lpips": Metric(name="LPIPS outside PSI"),
    "auc": Metric(name="AUC"),
    "balanced_accuracy": Metric(name="balanced accuracy"),
    **{f"tpr_at_fpr_{rate:g}": Metric(name=f"TPR at FPR {100 * rate:g} %") for rate in LADDER},
    **{f"tpr_at_fpr_{rate:g}_estimate": Metric(name=f"TPR at FPR {100 * rate:g} %, point estimate") for rate in LADDER},
    "references": Metric(name="references", unit="models", decimals=0),
    "source_advantage": Metric(name="source accuracy above chance"),
    "source_accuracy": Metric(name="source accuracy"),
    "attribute_over_imputation": Metric(name="attribute accuracy above imputation"),
    "attribute_accuracy": Metric(name="attribute accuracy"),
    "attribute_imputed": Metric(name="accuracy of imputation"),
    "attribute_majority": Metric(name="share of the public majority"),
    "attribute_gain": Metric(name="attribute accuracy, members above others"),
    "property_gain": Metric(name="squared error of the public share removed"),
    "property_error": Metric(name="error of a group's share"),
    "property_public_error": Metric(name="error of the public share"),
    "property_order": Metric(name="clients in the right order"),
    "label_over_chance": Metric(name="label accuracy above chance"),
    "label_accuracy": Metric(name="label accuracy"),
    "label_exact_rate": Metric(name="exact uploads"),
    "label_count_error": Metric(name="count error", unit="samples", decimals=2),
    "label_total_variation": Metric(name="total variation of labels"),
    "label_class_existence": Metric(name="class-existence accuracy"),
    "label_count_accuracy": Metric(name="label-count accuracy"),
    "column_error": Metric(name="squared error of columns divided by their variance"),
    "column_mse": Metric(name="squared error of columns", any_size=True),
    "exposure": Metric(name="exposure of secrets", unit="bits", decimals=2),
    "exposure_absent": Metric(name="exposure of secrets not trained on", unit="bits", decimals=2),
    "token_over_chance": Metric(name="token accuracy above chance"),
    "token_accuracy": Metric(name="token accuracy"),
    "token_set_f1": Metric(name="F1 of the tokens that occur"),
    "token_places": Metric(name="positions with the right token"),
    "token_exact_rate": Metric(name="exact texts"),
    "accuracy": Metric(name="accuracy"),
    "iou": Metric(name="IoU"),
    "f_score": Metric(name="F score"),
    "r2": Metric(name="R2"),
    "mean_absolute_error": Metric(name="mean absolute error", any_size=True),
    "mean_squared_error": Metric(name="mean squared error", any_size=True),
    "macro_f1": Metric(name="macro F1"),
    "subset_accuracy": Metric(name="subset accuracy"),
    "teacher_accuracy": Metric(name="accuracy of teachers"),
    "answered": Metric(name="share of queries answered"),
    "released_accuracy": Metric(name="accuracy of released labels"),
    **{
        f"epsilon_spent_{unit}": Metric(name=f"stated epsilon of all answers, one {unit}", decimals=2)
        for unit in ("client", "sample", "report")
    },
    "epsilon_of_these_votes": Metric(name="published epsilon of these votes (no claim)", decimals=2),
    "loss": Metric(name="test loss"),
    **{
        f"{group}_{metric}_{part}": Metric(name=f"{name}, {words}")
        for metric, name in (("accuracy", "accuracy"), ("iou", "IoU"), ("r2", "R2"), ("macro_f1", "macro F1"))
        for group, part, words in (
            ("class", "worst", "worst class"),
            ("class", "mean", "mean over classes"),
            ("class", "std", "deviation over classes"),
            ("client", "worst", "worst 10 % of clients"),
            ("client", "mean", "mean over clients"),
            ("client", "std", "deviation over clients"),
        )
    },
    **{
        f"bytes_{way}_{part}": Metric(name=f"bytes {verb} {words}", decimals=0)
        for way, verb in (("up", "sent"), ("down", "received"))
        for part, words in (("client", "per client and round"), ("round", "per round"), ("total", "in total"))
    },
    "none": Metric(name="every metric"),
}
_OWN_TABLES = ("class_", "client_", "bytes_")
"""Prefixes of the metrics of utility rows that have tables of their own."""
LOSS = "loss"
HEADLINES = ("accuracy", "iou", "r2", "macro_f1")
"""The utility metric that is shown where there is room for one: of a classifier, a segmentation, a regression, and a
model with several labels per sample.
"""
ATTACK_HEADLINES = (
    "exposure",
    "psnr",
    "auc",
    "source_advantage",
    "attribute_over_imputation",
    "property_gain",
    "label_over_chance",
    "label_accuracy",
    "column_error",
    "token_over_chance",
)
"""The metric that represents an attack where there is room for one."""


def metric(key: str) -> Metric:
    """Return the metric with this key; an unknown one is printed under its key, with blanks for underscores."""
    return METRICS.get(key) or Metric(name=key.replace("_", " "))


def is_quality(key: str) -> bool:
    """Return whether a metric of a utility row measures the quality of the model on all test data, as accuracy does.
    Other metrics measure the spread over classes and clients, or communication.
    """
    return not key.startswith(_OWN_TABLES)


def data_size(value: float | None) -> str:
    """Format a number of bytes with three significant digits and a unit of powers of 1,000."""
    if value is None:
        return NOTHING
    units = ["B", "kB", "MB", "GB", "TB"]
    # 999.6 kB must become 1.00 MB, so that the rounded number decides about the unit.
    while len(units) > 1 and float(f"{value:.3g}") >= 1000:
        value, units = value / 1000, units[1:]
    return f"{value:.0f} B" if units[0] == "B" and value == int(value) else f"{significant(value)} {units[0]}"


def metric_place(key: str) -> tuple[int, str]:
    """Return the sort key of a metric: known metrics come in the order of ``METRICS``, others after them by name."""
    # Records of a newer version may hold metrics that are unknown here; they must not break the sort.
    known = list(METRICS)
    return (known.index(key) if key in known else len(known)), key


def rounded(value: float, decimals: int, towards: Callable[[float], int]) -> float:
    """Round a bound with ``math.floor`` or ``math.ceil``, in the direction in which it claims less."""
    # The inner rounding removes binary errors such as 0.29 * 100 > 29.
    return float(towards(round(value * 10**decimals, 9)) / 10**decimals)


def lower_bound(epsilon: float | None) -> str:
    """Format a lower bound on epsilon with two decimals, rounded down, so that it never exceeds the measured bound."""
    return NOTHING if epsilon is None else f"{rounded(epsilon, 2, math.floor):.2f}"


def epsilon(value: float | None) -> str:
    """Format an epsilon that is not a lower bound, with two decimals."""
    return NOTHING if value is None else f"{value:.2f}"


def significant(value: float | None) -> str:
    """Format an epsilon of any size with three significant digits; digits before the decimal point are never rounded
    off.
    """
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    # The exponent of the rounded number counts: 9.996 rounds to 10.0, which has one more digit before the point.
    places = max(0, 2 - math.floor(math.log10(float(f"{abs(value):.2e}"))))
    return f"{value:.{places}f}"


def optional(value: T | None, text: Callable[[T], str]) -> str:
    """Format a value by the function ``text``; a missing value becomes a dash."""
    return NOTHING if value is None else text(value)


def rounded_up(share: float) -> str:
    """Format an upper bound on a share with three decimals, rounded up."""
    return f"{min(1.0, rounded(share, 3, math.ceil)):.3f}"


def count(number: int | None) -> str:
    """Format an integer with a narrow space between thousands, which cannot be mistaken for a decimal mark."""
    return NOTHING if number is None else f"{number:,}".replace(",", "\u202f")


def metric_value(key: str, value: float | None) -> str:
    """Format a metric's value with the metric's number of decimals and a true minus sign, without its unit."""
    if value is None:
        return NOTHING
    found = metric(key)
    text = f"{value:.4g}".replace("e+", "e") if found.any_size else f"{value:.{found.decimals}f}"
    return text.replace("-", "−")


def interval_words(key: str, low: float | None, high: float | None) -> str:
    """Format an interval as ``[low, high]`` behind a blank; empty string if there is none."""
    return "" if low is None or high is None else f" [{metric_value(key, low)}, {metric_value(key, high)}]"


def metric_words(key: str, direction: str) -> str:
    """Format a metric's name and unit, and the meaning of a higher value."""
    return " ".join(filter(None, (metric(key).label, DIRECTIONS.get(direction, ""))))
