"""Margins: the worsening of a metric that its users would mind, in the metric's own unit."""

import math
from collections.abc import Iterable, Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ...audit.nearest import nearest

DEFAULT_MARGINS = {
    "auc": 0.05,
    "psnr": 1.0,
    "source_advantage": 0.05,
    "label_over_chance": 0.1,
    "label_accuracy": 0.1,
    "label_exact_rate": 0.1,
    "accuracy": 0.02,
    "iou": 0.02,
}
"""A change of less than half of it never fails; one that may exceed it never passes. Ours; a suite's
``[gate.margins]`` sets others, and ``--margin`` others again."""


def margins_with(wished: Mapping[str, float] | None = None) -> dict[str, float]:
    """The default margins with these in their place.

    Raises:
        ValueError: a metric that stands for no attack, or a margin that is no positive number.
    """
    for metric, margin in (wished or {}).items():
        if metric not in DEFAULT_MARGINS:
            raise ValueError(f"margin: unknown metric {metric!r}; known: {nearest(metric, DEFAULT_MARGINS)}")
        if isinstance(margin, bool) or not isinstance(margin, int | float) or not 0 < margin < math.inf:
            raise ValueError(f"margin of {metric} must be a number > 0, got {margin!r}")
    return DEFAULT_MARGINS | {metric: float(margin) for metric, margin in (wished or {}).items()}


def stated_margins(assignments: Iterable[str]) -> dict[str, float]:
    """``metric=value`` of the command line; ValueError where it is no such thing."""
    wished = {}
    for assignment in assignments:
        metric, sign, text = assignment.partition("=")
        try:
            wished[metric.strip()] = float(text)
        except ValueError:
            sign = ""
        if not sign:
            raise ValueError(f"--margin takes metric=value, got {assignment!r}")
    return wished


def _checked(margins: dict[str, float]) -> dict[str, float]:
    margins_with(margins)
    return margins


class GateSpec(BaseModel):
    """How the gate holds a run against its baseline. It changes nothing of the run."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    margins: Annotated[dict[str, Annotated[float, Field(strict=True)]], AfterValidator(_checked)] = Field(
        default_factory=dict
    )
    """By metric, such as ``auc``, the worsening that you would mind, in the metric's own unit."""
