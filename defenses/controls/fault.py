"""Define faults of defenses and mechanisms: what is correct, the one thing that is broken, and the claim of both."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ...audit.arrays import FloatArray
from ...audit.claim import Adjacency, Claim, Unit
from ...audit.curve import Curve
from ...audit.observer import UPLOADS, Observer
from ..defense import DefensePart

Part = TypeVar("Part", bound=DefensePart)
Sample = Callable[[int, int, np.random.Generator], NDArray[Any]]
"""(arm, n, rng) -> outputs of ``n`` independent runs ``(n, ...)`` on the worst-case input; ``arm`` is 1 with the
canary and 0 without.
"""
Score = Callable[[NDArray[Any]], FloatArray]
"""Outputs ``(n, ...)`` -> ``(n,)``, higher means with the canary."""


class Control(DefensePart, ABC):
    """A base class of defenses with a planted bug, of any kind of federation: ``class ControlX(Control, X)`` is the
    correct defense ``X``, except that it runs the protection class ``broken``.

    The claims, the laws, the spending and every field of the protection come from the correct version, so that only the
    bug differs. An audit or an implementation check must refute a control. ``broken`` is a subclass of the protection
    that ``X`` prepares, or that protection itself; it publishes the law of the correct version.
    """

    control = True
    broken: ClassVar[type[Any] | None] = None

    def prepare(self, plan: Any) -> Any:
        """Calibrate the broken protection in the same way as the correct one, and state its claims.

        Raises:
            ValueError: as the correct version, and for a variant of it that does not have what the bug breaks.
        """
        correct = super().prepare(plan)  # type: ignore[misc]
        # The fields of a protection are its calibrated numbers, so both versions run at the same noise.
        numbers = vars(correct.protection) | self.bug(correct, plan)
        kind = self.broken or type(correct.protection)
        if unknown := numbers.keys() - {field.name for field in dataclasses.fields(kind)}:
            raise ValueError(
                f"{type(self).__name__} overrides what its correct defense does not have: {kind.__name__} has no "
                f"{', '.join(sorted(unknown))}, which {type(correct.protection).__name__} has"
            )
        return dataclasses.replace(correct, protection=kind(**numbers))

    def bug(self, correct: Any, plan: Any) -> dict[str, object]:
        """Return the fields of the broken protection that differ from the correct one's or are missing there."""
        return {}


def correct_version(control: Part) -> Part:
    """Return the correct defense whose class a control (a defense with a planted bug) inherits from, with the control's
    configuration.

    Raises:
        ValueError: for a control that inherits from no correct defense.
    """
    # By class and not by ``Control``: a control of another package may only set ``control``.
    for base in type(control).__mro__[1:]:
        if issubclass(base, DefensePart) and not base.control and ABC not in base.__bases__ and base is not DefensePart:
            known = {field.name for field in dataclasses.fields(base)}
            fields = {name: value for name, value in control.fields().items() if name in known}
            return cast(Part, base(**fields))
    raise ValueError(f"{type(control).__name__} does not inherit from a correct defense, so the two cannot be compared")


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A mechanism in two versions, one correct and one with a planted bug, which state the same claim.

    Args:
        claim: what both versions state; only the correct one satisfies it.
        correct, broken: samplers with one output per run; arm 1 holds the unit in question, arm 0 does not, or
            holds another.
        scores: fixed before any run; each looks for one bug that may be there.
        witness: the inputs and the event that show the bug.
    """

    claim: Claim
    correct: Sample
    broken: Sample
    scores: tuple[Score, ...]
    witness: str


class Mechanism(ABC):
    """A base class of mechanisms with a planted bug, which run in no federation: both versions, their claim, and the
    score that shows the bug.

    The claim is that of pure local DP, for any two values of one client, where a subclass states nothing else. It names
    the mechanism and its source, and states no public parameters.
    """

    named: ClassVar[str]
    source: ClassVar[str]
    witness: ClassVar[str]
    delta: ClassVar[float] = 0.0
    unit: ClassVar[Unit] = Unit.REPORT
    adjacency: ClassVar[Adjacency] = Adjacency.REPLACE_ONE
    observer: ClassVar[Observer] = UPLOADS
    rounds: ClassVar[int] = 1
    dp_model: ClassVar[str] = "local"

    @property
    def epsilon(self) -> float:
        """The epsilon of the claim."""
        raise NotImplementedError

    @property
    def sampling(self) -> str:
        """The claim's assumption about sampling."""
        return "none assumed"

    @property
    def curve(self) -> Curve | None:
        """The trade-off curve that the claim states."""
        return None

    def claim(self) -> Claim:
        """Return the claim that both versions state."""
        return Claim(
            epsilon=self.epsilon,
            delta=self.delta,
            unit=self.unit,
            adjacency=self.adjacency,
            observer=self.observer,
            rounds=self.rounds,
            dp_model=self.dp_model,
            mechanism=self.named,
            parameters={},
            accountant="exact",
            sampling=self.sampling,
            trust="as the model says",
            source=self.source,
            curve=self.curve,
        )

    @abstractmethod
    def drawn(self, arm: int, n: int, rng: np.random.Generator, *, broken: bool) -> NDArray[Any]:
        """Draw the outputs of ``n`` runs of one version: see ``Sample``."""

    @abstractmethod
    def score(self, outputs: NDArray[Any]) -> FloatArray:
        """Score outputs: see ``Score``."""

    def mutant(self) -> Mutant:
        """Return both versions, ready to be audited."""
        correct, broken = (partial(self.drawn, broken=one) for one in (False, True))
        return Mutant(claim=self.claim(), correct=correct, broken=broken, scores=(self.score,), witness=self.witness)
