"""Base class of attacks that infer labels from the uploads of one round."""

from abc import ABC
from dataclasses import dataclass

from ..attack import Attack
from ..uploads import check_round


@dataclass(frozen=True, kw_only=True)
class LabelAttack(Attack, ABC):
    """A base class of attacks that infer how often each label occurs behind each client's upload of one round."""

    round: int = 0

    def __post_init__(self) -> None:
        check_round(self.round)
