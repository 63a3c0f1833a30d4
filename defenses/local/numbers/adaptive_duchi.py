"""Adaptive-Duchi is local DP with one range per layer; each coordinate is shuffled separately (Sun et al. 2021)."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from ....audit.arrays import FloatArray
from ....audit.claim import Claim, Value
from ....audit.observer import SHUFFLED, UPLOADS, Observer
from ....fl.laws import Mixing
from ....fl.layout import Layout
from ....fl.message import Message
from ....fl.plan import Plan
from ....fl.protection import Context, Protection, State
from ...accounting.pure import composed_epsilon
from ...defense import Prepared, Variant, provable
from ...randomisers.numbers.duchi import Duchi
from ..defense import NumberDefense, SampledLaw


@dataclass(frozen=True, kw_only=True)
class LayeredLaw(SampledLaw):
    """A distribution of a report of sampled coordinates, where every layer of the model has its own range.

    Args:
        sizes: coordinates of each layer; a shorter row ends before the last one does.
    """

    sizes: tuple[int, ...]

    def radii(self, dim: int) -> FloatArray:
        """Return each coordinate's bound, ``radius`` * sqrt(d / (number of layers * size of its layer)). The vectors of
        bounds of all layers have equal L2 norms, and the norm over all coordinates is the same as if every bound were
        ``radius``.
        """
        whole = sum(self.sizes)
        if dim > whole:
            raise ValueError(
                f"a client's vector must have at most {whole} coordinates, the total size of all layers, got {dim}"
            )
        each = [self.radius * math.sqrt(whole / (len(self.sizes) * size)) for size in self.sizes]
        return np.repeat(each, self.sizes)[:dim]


@dataclass(frozen=True, kw_only=True)
class AdaptiveDuchiProtection(Protection):
    """A protection in which clients send sampled, randomised coordinates with one range per layer, and a shuffler hides
    the senders of each coordinate separately.

    Args:
        release: the law of a row with one range; the layers are those of the plan.
    """

    release: SampledLaw

    def report(self, updates: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return updates.with_values(self._layered(context.plan.layout).sample(updates.values, rng))

    def channel(self, reports: Message, context: Context, state: State, rng: np.random.Generator) -> Message:
        return shuffled_apart(reports, rng)

    def law(self, observer: Observer, plan: Plan, client: int) -> SampledLaw | None:
        """Return the distribution of one client's report; for an observer behind the shuffler, return None unless all
        coordinates are sent, because only then are the coordinates of a report independent.
        """
        law = self._layered(plan.layout)
        if observer.rank >= UPLOADS.rank:
            return law
        alone = law.coordinates >= plan.layout.dim
        # If only some coordinates are sent, those of one report are not independent.
        return replace(law, mixing=Mixing.COORDINATES) if observer.rank == SHUFFLED.rank and alone else None

    def _layered(self, layout: Layout) -> LayeredLaw:
        sizes = tuple(place.stop - place.start for place in layout.slices.values())
        return LayeredLaw(
            number=self.release.number, radius=self.release.radius, coordinates=self.release.coordinates, sizes=sizes
        )


def shuffled_apart(reports: Message, rng: np.random.Generator) -> Message:
    """Shuffle every coordinate separately among the reports of clients that take part; in the result these reports come
    first, before empty rows.
    """
    # Sorting random keys permutes every column independently; absent rows get the largest keys.
    keys = torch.from_numpy(rng.random(tuple(reports.values.shape)))
    order = keys.masked_fill(~reports.present.unsqueeze(-1), 2.0).argsort(dim=1)
    count = reports.present.sum(1, keepdim=True)
    present: Tensor = torch.arange(reports.present.shape[1]) < count
    return Message(values=reports.values.gather(1, order), present=present, senders=None)


@dataclass(frozen=True, kw_only=True)
class LDPAdaptiveDuchi(NumberDefense):
    """A local DP defense that sends coordinates by Duchi's mechanism, each within a range around zero that depends on
    its layer.

    The claim is the local one and trusts no party; the shuffler is additional. Shuffling amplifies a coordinate's
    epsilon among the clients, but no such claim is stated here.

    Args:
        epsilon, delta: budget of all rounds together; of one number in one round where "as_published".
        radius: L-infinity bound of a coordinate in a layer of mean size; smaller layers have a larger bound, by the
            inverse root of the size.
        variant: "corrected": as many coordinates as Wang et al. (2019) sample, which share the budget. "as_published":
            all coordinates, the whole budget for each one in each round, claimed for the whole report behind the
            shuffler, without the condition that layers are independent.

    Errata:
        - Not stated: in the survey of Fu et al. 2024, section 3.2 (the paper itself was not at hand), why a client's
          layers may be taken as independent. The survey gives the condition: "If regarding the information in different
          layers as independent in some scenarios", the budget need not be split. Where a client's data touch one layer
          only, that is parallel composition, and right. Where layers are merely independent, each layer is protected at
          epsilon, and the whole report is not. Where all parts of a report move together, the analyser may add up what
          all columns show: three shuffled columns with one other client have a loss of 3 epsilon exactly. Here: the
          budget is split over the sent coordinates and the rounds, and the claim trusts no shuffler.
        - Not stated: how a layer's range is chosen without a privacy cost. The survey of Fu et al. 2024 has "an
          adaptive perturbation range for each layer"; the paper itself was not at hand. A range computed from private
          data must be paid for. Here: a public rule of the layer's size.
    """

    variant: Variant = "corrected"
    mechanism = "Adaptive-Duchi"
    source = "Duchi, Jordan, Wainwright 2018; Wang et al. 2019, Algorithm 4; ranges: Sun et al. 2021"
    of = Duchi

    def spent(self, plan: Plan) -> tuple[int, float]:
        return (plan.layout.dim, self.epsilon) if self.variant == "as_published" else super().spent(plan)

    def prepare(self, plan: Plan) -> Prepared:
        claim = self._stated(plan)
        return Prepared(
            protection=AdaptiveDuchiProtection(release=self.release(plan)),
            claims=(claim,),
            spending=self.spending(plan, claim),
        )

    def published(self, plan: Plan) -> dict[str, Value]:
        return super().published(plan) | {"ranges": "radius sqrt(d / (layers size)) in a layer"}

    def _stated(self, plan: Plan) -> Claim:
        claim = self.claim(plan, self.published(plan))
        if self.variant == "corrected":
            return claim
        count, epsilon = self.spent(plan)
        # The epsilon of the reports before the shuffler, which is post-processing.
        whole = composed_epsilon(epsilon, releases=count * plan.participations, delta=self.delta)
        return replace(
            claim,
            parameters={**claim.parameters, **provable(whole)},
            observer=SHUFFLED,
            dp_model="shuffle",
            accountant="epsilon of one number, without composition",
            trust="the shuffler, which splits each report into its numbers and hides who sent which",
            source="Sun et al. 2021 (LDP-FL), parameter shuffling, as published",
        )
