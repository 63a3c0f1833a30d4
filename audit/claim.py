"""A claim is one privacy guarantee that a defense states, with the facts needed to test and to print the guarantee."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .binomial import check_delta, check_number, check_positive
from .curve import Curve, GaussianCurve, curve_from_dict, epsilon_from_mu
from .observer import UPLOADS, Observer
from .wording import NamedEnum, plain, unknown

Value = float | int | str | bool
DP_MODELS = ("central", "local", "shuffle", "distributed")
AS_PUBLISHED = "as_published"
"""The variant of a defense that states the claim of its paper, so that an audit can test it."""
PROVABLE, NOT_PROVABLE = "provable_epsilon", "provable"
"""The claim parameter that states what holds instead of the published claim, or in words that nothing does."""
_NOT_STATED = "not stated"
_CURVE_SLACK = 1e-6
ONE_TRAINER = "one party holds all data and trains"
"""Trust assumption of a central training, which has no clients."""
_MODEL_OF = {"uploads": "local", "shuffled": "shuffle", "aggregate": "distributed"}


class Unit(NamedEnum):
    """The part of the data that two neighbouring datasets differ in, such as one sample, one client or one report."""

    SAMPLE = "sample"
    CLIENT = "client"
    USER = "user"
    REPORT = "report"
    COORDINATE = "coordinate"
    LABEL = "label"


HELD_BY_CLIENTS = (Unit.SAMPLE, Unit.USER)
"""Units that clients hold: one more of them is no client more."""


class Adjacency(NamedEnum):
    """How two neighbouring datasets differ in one unit (such as one sample): it is added or removed, replaced, or set
    to zero.
    """

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"

    @property
    def phrase(self) -> str:
        return {"add_remove": "add/remove", "replace_one": "replace-one", "zero_out": "zero-out"}[self.value]


_TEXTS = ("mechanism", "accountant", "sampling", "trust", "source", "subjects", "part")


class Parameters(Mapping[str, Value]):
    """A mechanism's parameters as an immutable, hashable mapping from names to numbers, strings or booleans."""

    __slots__ = ("_items",)
    _items: tuple[tuple[str, Value], ...]

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._items = tuple((name, _plain_value(name, values[name])) for name in sorted(values))

    def __getitem__(self, name: str) -> Value:
        return dict(self._items)[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return f"Parameters({dict(self._items)})"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement that a training run is (epsilon, delta)-DP for one unit of data (such as a sample) against one
    adversary.

    The guarantee holds for one ``unit`` under one ``adjacency``, against one ``observer``, over ``rounds`` rounds.

    The claim is about one training run. Choosing the configuration by looking at the data costs privacy that this
    epsilon does not contain.

    Args:
        epsilon: > 0 and finite.
        delta: in [0, 1).
        rounds: >= 1, the rounds that the claim covers.
        dp_model: "central", "local", "shuffle" or "distributed".
        parameters: of the mechanism: finite numbers, strings, booleans.
        accountant: its name and version.
        sampling, trust: what the theorem in ``source`` assumes about sampling and about the parties.
        subjects: "all", or the users of one privacy budget.
        part: "joint" for the whole release, or one layer, or one coordinate.
        curve: the tight trade-off curve, where the defense states one. It is part of the claim, and refuted separately.

    Raises:
        ValueError: names the field that is wrong.
        TypeError: for a parameter that is no number, text or truth value.
    """

    epsilon: float
    delta: float
    unit: Unit
    adjacency: Adjacency
    observer: Observer
    rounds: int
    dp_model: str
    mechanism: str
    parameters: Mapping[str, Value]
    accountant: str
    sampling: str
    trust: str
    source: str
    subjects: str = "all"
    part: str = "joint"
    curve: Curve | None = None

    def __post_init__(self) -> None:
        for name in ("delta", "rounds"):
            check_number(name, getattr(self, name))
        check_delta(self.delta)
        if self.epsilon == 0 < self.delta:
            raise ValueError(
                f"epsilon must be > 0 and finite, got {self.epsilon} at delta {self.delta:g}: a claim that bounds "
                "only the total variation distance is not tested; state a smaller delta"
            )
        check_positive("epsilon", self.epsilon)
        if self.rounds < 1 or int(self.rounds) != self.rounds:
            raise ValueError(f"rounds must be a whole number >= 1, got {self.rounds}")
        if self.dp_model not in DP_MODELS:
            raise unknown("dp_model", self.dp_model, DP_MODELS)
        for name in _TEXTS:
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be text, got {getattr(self, name)!r}")
        if not (self.curve is None or isinstance(self.curve, Curve)):
            raise ValueError(f"curve must be a GaussianCurve, a ProfileCurve or None, got {self.curve!r}")
        if not isinstance(self.parameters, Mapping):
            raise ValueError(f"parameters must be a mapping from names to values, got {self.parameters!r}")
        if not isinstance(self.observer, Observer):
            raise ValueError(f"observer (the adversary) must be an Observer such as UPLOADS, got {self.observer!r}")
        # One canonical type per field: 4 and 4.0 are the same claim and must have the same identity.
        for name, value in (
            ("epsilon", float(self.epsilon)),
            ("delta", float(self.delta)),
            ("rounds", int(self.rounds)),
            ("unit", Unit(self.unit)),
            ("adjacency", Adjacency(self.adjacency)),
            ("parameters", Parameters(self.parameters)),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def stated(
        cls,
        epsilon: float | None = None,
        delta: float = 0.0,
        *,
        mu: float | None = None,
        unit: Unit | str = Unit.REPORT,
        adjacency: Adjacency | str = Adjacency.REPLACE_ONE,
        observer: Observer | str = UPLOADS,
        rounds: int = 1,
    ) -> "Claim":
        """Build a claim from epsilon, delta or mu alone; its mechanism, accountant, trust assumptions and source are
        "not stated".

        ``mu`` (sensitivity over noise standard deviation) also states the curve of mu-GDP, and gives ``epsilon`` at
        ``delta`` in (0, 1) where that is left out. Raises ValueError without epsilon and mu, and where the curve of
        ``mu`` does not imply the given epsilon.
        """
        curve = None if mu is None else GaussianCurve(mu)
        check_number("delta", delta)
        adversary = observer if isinstance(observer, Observer) else Observer.parse(observer)
        claim = cls(
            epsilon=_implied(curve, delta) if epsilon is None else epsilon,
            delta=delta,
            unit=Unit(unit),
            adjacency=Adjacency(adjacency),
            observer=adversary,
            rounds=rounds,
            dp_model=_MODEL_OF.get(adversary.name, "central"),
            mechanism=_NOT_STATED,
            parameters={},
            accountant=_NOT_STATED,
            sampling=_NOT_STATED,
            trust=_NOT_STATED,
            source=_NOT_STATED,
            curve=curve,
        )
        if claim.curve_shortfall() > _CURVE_SLACK:
            implied = f"epsilon {epsilon_from_mu(mu, delta):.4g}" if mu and delta else "no finite epsilon"
            raise ValueError(
                f"mu {mu} does not imply epsilon {epsilon} at delta {delta}, but {implied}: state values that agree"
            )
        return claim

    def curve_shortfall(self) -> float:
        """The largest amount by which the claim's stated trade-off curve lies below the trade-off curve of its
        (epsilon, delta).

        It is 0 where the stated curve implies (epsilon, delta)-DP.

        An audit tests the curve while people read the epsilon, so the two must not contradict each other.
        """
        if self.curve is None:
            return 0.0
        # False-positive rates below 1e-9 need more trials than any audit has.
        rates = np.logspace(-9, 0, 200)
        ratio = math.exp(min(self.epsilon, 700.0))
        stated = np.maximum(1 - self.delta - ratio * rates, (1 - self.delta - rates) / ratio)
        return max(0.0, float((stated - self.curve.fnr(rates)).max()))

    @property
    def claim_id(self) -> str:
        """The claim's identity: the first twelve hexadecimal digits of the SHA-256 of the claim as canonical JSON."""
        canonical = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def describe(self) -> str:
        """Return the claim as one line of text.

        For example ``eps 4, delta 1e-5, one client (add/remove), adversary: other clients (every round's model)``.
        """
        who = "" if self.subjects == "all" else f", for {self.subjects}"
        what = "" if self.part == "joint" else f", {self.part} alone"
        adversary = self.observer.central_phrase if self.trust == ONE_TRAINER else self.observer.phrase
        return (
            f"eps {plain(self.epsilon)}, delta {plain(self.delta)}, one {self.unit} ({self.adjacency.phrase}), "
            f"adversary: {adversary}{who}{what}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the claim as a dictionary of JSON values; ``from_dict`` is the inverse."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {
            "unit": self.unit.value,
            "adjacency": self.adjacency.value,
            "observer": str(self.observer),
            "parameters": dict(self.parameters),
            "curve": None if self.curve is None else self.curve.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Claim":
        """Build a claim from a dictionary that ``to_dict`` returned.

        Raises ValueError for an unknown field or name, TypeError for a missing field.
        """
        known = {field.name for field in fields(cls)}
        for name in values:
            if name not in known:
                raise unknown("field of a claim", name, known)
        curve = values.get("curve")
        read = {
            "observer": Observer.parse(values["observer"]),
            "curve": None if curve is None else curve_from_dict(curve),
        }
        return cls(**{**values, **read})


def check_claim(claim: object) -> None:
    """Raise TypeError unless ``claim`` is a Claim."""
    if not isinstance(claim, Claim):
        raise TypeError(f"claim must be a Claim, such as Claim.stated(epsilon=1.0), got {claim!r}")


def _implied(curve: GaussianCurve | None, delta: float) -> float:
    if curve is None:
        raise ValueError("a claim must state epsilon or mu, got neither")
    if not 0 < delta < 1:
        raise ValueError(
            f"a claim of mu without epsilon needs a delta in (0, 1) at which to compute epsilon, got {delta}"
        )
    return epsilon_from_mu(curve.mu, delta)


def _plain_value(name: str, value: Value) -> Value:
    item = value.item() if isinstance(value, np.generic) else value
    if not isinstance(item, float | int | str | bool):
        raise TypeError(f"parameters[{name!r}] must be a number, a string or a boolean, got {type(item).__name__}")
    if isinstance(item, float) and not math.isfinite(item):
        raise ValueError(f"parameters[{name!r}] must be finite, got {item}")
    return item
