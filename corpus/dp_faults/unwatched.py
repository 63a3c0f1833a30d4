"""What a training hands its steps to where nobody watches it: the third argument of ``train`` of the part ``loop``."""

from collections.abc import Mapping
from typing import Any


class Unwatched:
    """Notes nothing, and returns each noised sum as it is."""

    def model(self, tensors: Mapping[str, Any]) -> None:
        """Name the tensors that are trained."""

    def lot(self, indices: Any, rows: Any) -> None:
        """Take the gradients ``(n, d)`` of the records of these indices, before they are clipped."""

    def release(self, total: Any, noised: Any, **of_step: Any) -> Any:
        """Return the noised sum ``(d,)`` with which the training goes on.

        ``of_step``: the stated ``noise_multiplier`` or ``clip_norm`` of this step, where steps differ.
        """
        return noised
