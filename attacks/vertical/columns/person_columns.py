"""Base class of attacks that reconstruct a passive party's columns of all people."""

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from ....audit.claim import Unit
from ....audit.evidence import PersonColumns
from ....audit.observer import ACTIVE_PARTY, Observer
from ....fl.fields import check_count
from ....fl.vertical.view import VerticalView
from ..attack import VerticalAttack, setting_of


@dataclass(frozen=True, kw_only=True)
class PersonColumnAttack(VerticalAttack, ABC):
    """A base class of attacks that reconstruct the columns of all people at one passive party.

    Args:
        party: number of the passive party.
    """

    observer: ClassVar[Observer] = ACTIVE_PARTY
    infers: ClassVar[Literal["columns"]] = "columns"
    party: int = 0

    def __post_init__(self) -> None:
        check_count("party", self.party, least=0)

    def check_party(self, view: VerticalView) -> None:
        """Raise ValueError unless the federation has this passive party."""
        passive = view.plan.network.passive
        if self.party >= passive:
            raise ValueError(f"party must be a passive party, 0..{passive - 1}, got {self.party}")

    def evidence(self, rows: Tensor, view: VerticalView) -> PersonColumns:
        """Return the attack's result; ``rows``: (people, width) of all people."""
        people = torch.arange(len(rows)).numpy()
        return PersonColumns(rows.double().numpy(), self.party, people, setting_of(view, Unit.SAMPLE))
