"""Hooks on the objects of one Flower run, which record updates as clients made them, and each model before and after
its noise.

The noise is that which a strategy, a client-side mod or the user states; Flower has each class in two interfaces.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..checks.training_record import Movement, Release
from ..checks.watched_sums import contributions
from ..fl.laws import GaussianLaw
from ..fl.layout import Layout
from .flower_grid import InnerMod, examples_of, flat, is_masked, is_training, layout_of, masked_examples, only_arrays
from .flower_rounds import StrategyRounds

try:
    from flwr.client.mod import LocalDpMod as OlderLocalDpMod
    from flwr.clientapp.mod import LocalDpMod
    from flwr.server import strategy as older
    from flwr.serverapp import strategy as newer
except ImportError as error:
    raise ImportError("fedassay.adapters.flower needs Flower: pip install 'fedassay[flower]'") from error

QUIET = 1e-3
"""Length, in clip norms, of an update that stands for an absent unit: Flower divides by lengths, and fails at zero."""
_SINGLE = 2.0**-23
_ROUNDING = 2.0**-22
"""Relative rounding of a model in single precision, with a reserve."""

_ADAPTIVE = (
    newer.DifferentialPrivacyServerSideAdaptiveClipping,
    newer.DifferentialPrivacyClientSideAdaptiveClipping,
    older.DifferentialPrivacyServerSideAdaptiveClipping,
    older.DifferentialPrivacyClientSideAdaptiveClipping,
)
_FIXED = (
    newer.DifferentialPrivacyServerSideFixedClipping,
    newer.DifferentialPrivacyClientSideFixedClipping,
    older.DifferentialPrivacyServerSideFixedClipping,
    older.DifferentialPrivacyClientSideFixedClipping,
)
_SERVER_SIDE = (
    newer.DifferentialPrivacyServerSideFixedClipping,
    newer.DifferentialPrivacyServerSideAdaptiveClipping,
    older.DifferentialPrivacyServerSideFixedClipping,
    older.DifferentialPrivacyServerSideAdaptiveClipping,
)


@dataclass(frozen=True, kw_only=True)
class StatedNoise:
    """The noise, the clip norm and the number of clients that a wrapper, a mod or the user states.

    Args:
        noise_multiplier: noise standard deviation of the sum over ``clip_norm``, >= 0.
        clip_norm: of one update, > 0.
        clients: by which the sum is divided, > 0.
    """

    noise_multiplier: float
    clip_norm: float
    clients: float = 1.0


def stated_noise(strategy: Any, law: GaussianLaw | None) -> StatedNoise | None:
    """Return the noise that a strategy states at present, or else the law that the user stated; None if neither states
    any.
    """
    if law is not None:
        deviation = law.noise_std / (law.scale * law.clip_norm)
        return StatedNoise(noise_multiplier=deviation, clip_norm=law.clip_norm, clients=1 / law.scale)
    if not isinstance(strategy, (*_FIXED, *_ADAPTIVE)):
        return None
    return StatedNoise(
        noise_multiplier=float(strategy.noise_multiplier),
        clip_norm=float(strategy.clipping_norm),
        clients=float(strategy.num_sampled_clients),
    )


def clips_at_server(strategy: Any) -> bool:
    """Whether a strategy clips the updates after they arrived at the server; otherwise the clients' mods clip them."""
    return isinstance(strategy, _SERVER_SIDE)


def noises_reports(mod: Any) -> bool:
    """Whether a mod is Flower's mod for local differential privacy, which adds noise to each report."""
    return isinstance(mod, LocalDpMod | OlderLocalDpMod)


def stated_by_mod(mod: Any) -> StatedNoise:
    """Return what Flower's mod for local differential privacy states."""
    deviation = mod.sensitivity * math.sqrt(2 * math.log(1.25 / mod.delta)) / mod.epsilon
    return StatedNoise(noise_multiplier=deviation / mod.clipping_norm, clip_norm=float(mod.clipping_norm))


WEIGHTED = "replies are weighted by their numbers of examples, which differ"
FEWER = "fewer clients reply than the noise is divided by (`num_sampled_clients` of a wrapper)"
MENDS = {
    WEIGHTED: "send the same `num-examples` from every client",
    FEWER: "require a reply of each of these clients",
}
"""What mends a sum in which one client has too large a share, by cause."""
_SAME = 1e-3
"""Relative difference of two lengths that is rounding."""


def cause_of_share(examples: Sequence[float], clients: float, length: float, *, within: float = _SAME) -> str:
    """Return why a clipped update has this length in the sum, in clip norms; empty unless its weight alone explains it.

    ``examples``: of all replies, >= 0, the sum > 0; ``clients``: by which the noise is divided.
    """
    share = clients * max(examples) / sum(examples)
    if share <= 1 + within or abs(length / share - 1) > within:
        return ""
    causes = {WEIGHTED: max(examples) > min(examples), FEWER: len(examples) < clients * (1 - _SAME)}
    return ", and ".join(cause for cause, applies in causes.items() if applies)


def mend_of_share(cause: str) -> str:
    """Return what mends a cause that ``cause_of_share`` found."""
    return ", and ".join(mend for one, mend in MENDS.items() if one in cause)


def noise_of_updates_and_count(strategy: Any) -> float | None:
    """Return the noise multiplier of one round of adaptive clipping, which holds for the noised updates and the noised
    count together; None for other strategies, and without noise.
    """
    if not isinstance(strategy, _ADAPTIVE) or (multiplier := float(strategy.noise_multiplier)) == 0:
        return None
    # Andrew et al. 2021, Theorem 1, with the deviation of the count.
    return float((multiplier**-2 + (2 * float(strategy.clipped_count_stddev)) ** -2) ** -0.5)


def quiet_vector(direction: Tensor) -> Tensor:
    """Return the update ``(d,)``, in clip norms, that stands for an absent unit: a short vector whose only entry other
    than 0 is at the largest coordinate of ``direction``.
    """
    quiet = torch.zeros_like(direction)
    largest = int(direction.abs().argmax())
    quiet[largest] = math.copysign(QUIET, float(direction[largest]))
    return quiet


class FirstRoundEnded(BaseException):
    """Raised to end a run after its first release."""


@dataclass(kw_only=True)
class FlowerHooks:
    """Records the releases of one run of a Flower app.

    Args:
        law: that the user stated; None where wrapper or mod state the noise.
        planted: updates of the audit's units by node, ``(d,)`` in clip norms, none of them zero.
        missing: replies of the nodes 1 to ``missing`` never arrive.
        first_alone: whether a run ends with its first release.
    """

    law: GaussianLaw | None
    planted: Callable[[Layout], Mapping[int, Tensor]]
    missing: int = 0
    first_alone: bool = False
    strategy: Any = None
    mod: Any = None
    layout: Layout | None = None
    releases: list[Release] = field(default_factory=list)
    moved: list[Movement] = field(default_factory=list)
    rounds: int = 0
    skipped: int = 0
    unmodded: bool = False
    failure: Exception | None = None
    inner: InnerMod = field(default_factory=InnerMod)
    _before: Tensor | None = None
    _after: Tensor | None = None
    _stated: StatedNoise | None = None
    _averaged: Tensor | None = None
    _quantum: float = 0.0
    _masked: float = 0.0
    _arrived: dict[int, Tensor] = field(default_factory=dict)
    _examples: dict[int, float] = field(default_factory=dict)

    @property
    def has_units(self) -> bool:
        """Whether the audit plants updates in this run."""
        return bool(self.inner.units)

    @property
    def movement(self) -> Tensor:
        """The change of the model's weights in the last round, ``(d,)``; zeros if no model followed."""
        assert self._before is not None
        return torch.zeros_like(self._before) if self._after is None else self._after - self._before

    def see_mod(self, mod: Any) -> None:
        """Remember a mod that adds noise to each report."""
        if noises_reports(mod):
            self.mod = mod

    def start(self, rounds: StrategyRounds) -> None:
        """Hook into a strategy when it is started. Raises TypeError for a second strategy."""
        if self.strategy is not None:
            raise TypeError("a run must start exactly one strategy, but it started a second one")
        self.strategy, self._quantum = rounds.strategy, rounds.quantum
        rounds.watch(self)

    def fail(self, error: Exception) -> None:
        """Keep an exception of a client, because servers of the older interface would only count it and continue."""
        self.failure = self.failure or error

    def raise_failure(self) -> None:
        """Raise the first exception that a client raised."""
        if self.failure is not None:
            raise self.failure

    def answered(self, asked: Any, reply: Any) -> Any:
        """Keep a client's reply as it arrives at the server, and return it; return None if the reply never arrives."""
        node = int(asked.metadata.dst_node_id)
        if not is_training(asked):
            return reply
        if node <= self.missing:
            self.inner.made.pop(node, None)
            return None
        if is_masked(reply):
            self._masked += masked_examples(reply)
            return reply
        if reply.has_content() and self._before is not None:
            self._compare_sent(node, flat(only_arrays(asked.content)[1]))
            sent = flat(only_arrays(reply.content)[1])
            self._arrived[node] = sent if self.inner.differences else sent - self._before
            self._examples[node] = examples_of(reply, self.strategy)
            if self.mod is not None and self.law is None:
                self._reported(node)
        else:
            self.inner.made.pop(node, None)
        return reply

    def _compare_sent(self, node: int, sent: Tensor) -> None:
        """Report a client that receives another model than was aggregated, or is asked twice in a round."""
        assert self._before is not None
        how = ""
        if node in self._arrived:
            how = f"uses two replies of node {node}, so that its data count twice"
        elif sent.shape != self._before.shape or not torch.equal(sent, self._before):
            how = "is another one in the messages to clients than in the strategy"
        if how and how not in [one.how for one in self.moved]:
            self.moved.append(Movement(name="the model", how=how, by_data=False))

    def configured(self, arrays: Any) -> None:
        """Begin a round. The methods ``configured``, ``raise_failure``, ``averaged`` and ``aggregated`` implement
        ``RoundWatcher``.
        """
        if self.layout is None:
            self.layout = layout_of(arrays)
            self.inner.units = dict(self.planted(self.layout))
        self._before = flat(arrays)
        if self._after is not None and not torch.equal(self._before, self._after):
            how = f"changed between the rounds {self.rounds} and {self.rounds + 1}"
            self.moved.append(Movement(name="the model", how=how, by_data=False))
        self.rounds += 1
        self._stated = stated_noise(self.strategy, self.law)
        if self._stated is None and self.mod is not None:
            self._stated = stated_by_mod(self.mod)
        self.inner.clip_norm = None if self._stated is None else self._stated.clip_norm
        self.inner.made, self._arrived, self._examples, self._averaged, self._masked = {}, {}, {}, None, 0.0

    def averaged(self, arrays: Any | None) -> None:
        """Keep the model as it is before noise is added."""
        self._averaged = None if arrays is None else flat(arrays)

    def aggregated(self, arrays: Any | None) -> None:
        """Keep the release of a round."""
        stated, before = self._stated, self._before
        assert before is not None
        self.unmodded |= bool(set(self._arrived) - set(self.inner.made)) or (self._masked > 0 and not self.inner.made)
        self._after = before if arrays is None else flat(arrays)
        if arrays is None:
            self.skipped += 1
            return
        if self.first_alone:
            raise FirstRoundEnded
        if stated is None or (self.mod is not None and self.law is None):
            return
        if self._after.shape != before.shape:
            raise TypeError(
                f"the strategy must return the arrays of the model, of {before.numel()} numbers, got "
                f"{self._after.numel()}: all other arrays also leave the server, and are part of no release"
            )
        updates = (
            {**self.inner.made, **self._arrived}
            if clips_at_server(self.strategy)
            else {**self._arrived, **self.inner.made}
        )
        # A law states the noise of all that the strategy does, whatever wrapper is part of it.
        known = self._averaged if self.law is None else None
        received = None if known is None else stated.clients * (known - before)
        self._release(stated, updates, stated.clients * (self._after - before), received, scale=stated.clients)

    def _reported(self, node: int) -> None:
        """Keep a report that a mod noised; of a run with a planted unit, the unit's first one."""
        if self.inner.units and (node not in self.inner.units or self.releases):
            return
        if node in self.inner.made:
            updates = {node: self.inner.made[node]}
            self._release(stated_by_mod(self.mod), updates, self._arrived[node], None, scale=1.0)

    def _share(self, nodes: Sequence[int], clients: float, longest: float) -> str:
        """Why the longest update in a sum of these nodes is longer than the clip norm, where its weight explains it."""
        examples = [self._examples.get(node, 0.0) for node in nodes]
        return cause_of_share(examples, clients, longest) if sum(examples) > 0 else ""

    def _rounding_of_masked(self, rows: Tensor) -> float:
        """The length that secure aggregation's random rounding of rows ``(n, d)`` adds to their average."""
        if self._masked == 0:
            return 0.0
        return self._quantum * math.sqrt(rows.numel()) / 2 / self._masked

    def _release(
        self,
        stated: StatedNoise,
        updates: Mapping[int, Tensor],
        released: Tensor,
        received: Tensor | None,
        *,
        scale: float,
    ) -> None:
        nodes = sorted(updates)
        rows = torch.stack([updates[node] for node in nodes]) if nodes else torch.zeros(0, len(released))
        rounding = max(_SINGLE, self._rounding_of_masked(rows) * scale / stated.clip_norm)
        found = contributions(rows, received, stated.clip_norm, rounding=rounding)
        rest = None
        if self.inner.units:
            others = [number for number, node in enumerate(nodes) if node not in self.inner.units]
            rest = contributions(rows[others], None, stated.clip_norm).expected
        assert self._before is not None
        self.releases.append(
            Release(
                step=len(self.releases),
                released=released,
                received=received,
                expected=found.expected,
                rest=rest,
                longest=found.longest,
                rule="" if found.longest is None else self._share(nodes, scale, found.longest),
                clip_norm=stated.clip_norm,
                noise_multiplier=stated.noise_multiplier,
                rows=len(rows),
                rounding=rounding,
                # Of numbers alone: a model may have become NaN.
                coarseness=_ROUNDING * scale * float(torch.nan_to_num(self._before.abs(), 0.0, 0.0).max()),
            )
        )
