"""Base classes of attacks that return images, and of null attacks that ignore the uploads."""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import Tensor

from ....audit.evidence import Reconstructions
from ....fl.objective import OBJECTIVES
from ....fl.view import View
from ...attack import Attack, Knowledge
from ...uploads import check_round, upload_setting
from .image_lots import upload_of_each_image


@dataclass(frozen=True, kw_only=True)
class ImageAttack(Attack, ABC):
    """A base class of attacks that return images for the samples behind the clients' uploads of one round."""

    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)


@dataclass(frozen=True, kw_only=True)
class NullImageAttack(ImageAttack, ABC):
    """A base class of null attacks, which return an image for each sample behind one round's uploads without using the
    uploads.
    """

    null: ClassVar[bool] = True
    tasks: ClassVar[tuple[str, ...]] = tuple(OBJECTIVES)

    def run(self, view: View, knowledge: Knowledge, rng: np.random.Generator) -> Reconstructions:
        uploads = upload_of_each_image(view, knowledge, self.round)
        images, labels = self.guesses(knowledge, len(uploads), rng)
        named = None if labels is None else labels.numpy()
        return Reconstructions(images.numpy(), named, upload_setting(view), uploads)

    def guesses(self, knowledge: Knowledge, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor | None]:
        """Return guessed images ``(count, c, h, w)`` and their labels ``(count,)``, or None in place of labels."""
        raise TypeError(
            f"every null image attack must define guesses(knowledge, count, rng), but {type(self).__name__} does not"
        )
