"""Define for each metric the smallest worsening that counts as a regression (its margin), in the metric's unit."""

import math
from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ....audit.wording import nearest

DEFAULT_MARGINS = {
    "auc": 0.05,
    "psnr": 1.0,
    "source_advantage": 0.05,
    "attribute_over_imputation": 0.05,
    "property_gain": 0.1,
    "label_over_chance": 0.1,
    "label_accuracy": 0.1,
    "label_exact_rate": 0.1,
    "token_over_chance": 0.1,
    "exposure": 1.0,
    "accuracy": 0.02,
    "iou": 0.02,
    "r2": 0.02,
    "macro_f1": 0.02,
}
"""A change below half of the margin never fails the gate; one that may exceed the margin never passes. The values are
our choice: a suite's ``[gate.margins]`` overrides them, and ``--margin`` overrides both."""


def margins_with(overrides: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the regression margin of each metric: the one in ``overrides`` if given, otherwise the default.

    Raises:
        ValueError: for a metric that has no margin, or a margin that is not a positive number.
    """
    for metric, margin in (overrides or {}).items():
        if metric not in DEFAULT_MARGINS:
            raise ValueError(
                f"a margin is set for an unknown metric {metric!r}; known: {nearest(metric, DEFAULT_MARGINS)}"
            )
        # True is an int in Python, but a mistake as a margin.
        if isinstance(margin, bool) or not isinstance(margin, int | float) or not 0 < margin < math.inf:
            raise ValueError(f"margin of {metric} must be a number > 0, got {margin!r}")
    return DEFAULT_MARGINS | {metric: float(margin) for metric, margin in (overrides or {}).items()}


def stated_margins(assignments: Iterable[str]) -> dict[str, float]:
    """Parse the regression margins given on the command line as ``metric=value``; raise ValueError for any other
    form.
    """
    margins = {}
    for assignment in assignments:
        metric, sign, text = assignment.partition("=")
        try:
            margins[metric.strip()] = float(text)
        except ValueError:
            sign = ""
        if not sign:
            raise ValueError(f"--margin must have the form metric=value, got {assignment!r}")
    return margins


def _valid_margins(margins: dict[str, float]) -> dict[str, float]:
    margins_with(margins)
    return margins


class GateSpec(BaseModel):
    """How ``fedassay gate`` judges a run and compares it with its baseline; the run itself stays the same."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    margins: Annotated[dict[str, Annotated[float, Field(strict=True)]], AfterValidator(_valid_margins)] = Field(
        default_factory=dict
    )
    """By metric, such as ``auc``, the smallest worsening that matters to you, in the metric's own unit."""
    accept_weak: Annotated[bool, Field(strict=True)] = Field(default=False, exclude_if=lambda accepted: not accepted)
    """Whether you know that tests of this suite are weak: a claim that is UNDERPOWERED only because its minimum
    detectable epsilon is too large then counts as not refuted, and the line says so."""
