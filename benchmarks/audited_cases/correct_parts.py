"""Correct protections, claims and preparations, on which the defenses of the files beside it are built."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from fedassay.audit.claim import Claim
from fedassay.audit.curve import mu_from_epsilon
from fedassay.audit.observer import GLOBAL_MODELS, UPLOADS, Observer
from fedassay.defenses.accounting.gaussian import poisson_rate
from fedassay.defenses.defense import Prepared
from fedassay.fl.data.dataset import Dataset
from fedassay.fl.laws import clip, clipped_sum
from fedassay.fl.message import Message
from fedassay.fl.plan import Plan
from fedassay.fl.preparation import Preparation, PreparedData
from fedassay.fl.protection import Context, Protection, State
from fedassay.fl.streams import normal
from torch import Tensor

Rng = np.random.Generator


@dataclass(frozen=True, kw_only=True)
class _NoisedSum(Protection):
    """Gaussian noise of a multiple of the clip norm."""

    noise_multiplier: float
    clip_norm: float = 1.0

    def drawn(self, like: Tensor, context: Context, rng: Rng) -> Tensor:
        return self.noise_multiplier * self.clip_norm * normal(rng, tuple(like.shape))


@dataclass(frozen=True, kw_only=True)
class SampleNoise(_NoisedSum):
    """Each client clips the gradient of each sample and adds Gaussian noise to their sum."""

    per_sample: bool = True

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: Rng
    ) -> Tensor:
        total = clipped_sum(gradients, present, self.clip_norm)
        return (total + self.drawn(total, context, rng)) / context.plan.expected_lot(client)


@dataclass(frozen=True, kw_only=True)
class ServerNoise(_NoisedSum):
    """A trusted server adds Gaussian noise to the sum of clipped updates."""

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        return updates.with_values(clip(updates.values, self.clip_norm))

    def aggregate(self, received: Message, context: Context, state: State, rng: Rng) -> Tensor:
        total = received.values.sum(1)
        return (total + self.drawn(total, context, rng)) / context.plan.expected_cohort


@dataclass(frozen=True, kw_only=True)
class ReportNoise(Protection):
    """Each client clips its update and adds Gaussian noise to it; two reports are two clip norms apart."""

    noise_multiplier: float
    clip_norm: float = 1.0

    def report(self, updates: Message, context: Context, state: State, rng: Rng) -> Message:
        noise = self.noise_std * normal(rng, tuple(updates.values.shape))
        return updates.with_values(clip(updates.values, self.clip_norm) + noise)

    @property
    def noise_std(self) -> float:
        return 2 * self.clip_norm * self.noise_multiplier


def sigma_of(epsilon: float, delta: float, releases: int) -> float:
    """Noise over sensitivity of each of several Gaussian releases that keep the budget together."""
    return math.sqrt(releases) / mu_from_epsilon(epsilon, delta)


def claims_of(
    case: Any, plan: Plan, unit: str, adjacency: str, observer: Observer, *, gaussian: bool = True, **words: float
) -> tuple[Claim, ...]:
    """The claim of a case's budget; ``gaussian``: with the curve of Gaussian noise at this budget."""
    delta = getattr(case, "delta", 0.0)
    mu = mu_from_epsilon(case.epsilon, delta) if gaussian and delta else None
    facts = {"unit": unit, "adjacency": adjacency, "observer": observer, "rounds": plan.rounds}
    return (replace(Claim.stated(case.epsilon, delta, mu=mu, **facts), parameters=words),)


def by_samples(case: Any, plan: Plan, *, spent: float = 0.0, replaced: bool = False) -> Prepared:
    """Correct training with noise for each sample, at what the preparation leaves of the budget, and its claim.

    A preparation that spends some of the epsilon has half of the delta.
    """
    poisson_rate("lot", plan.lot)
    delta = case.delta / 2 if spent else case.delta
    sigma = (2 if replaced else 1) * sigma_of(case.epsilon - spent, delta, plan.steps)
    adjacency, words = "replace_one" if replaced else "add_remove", {"noise_multiplier": sigma, "clip_norm": 1.0}
    claims = claims_of(case, plan, "sample", adjacency, UPLOADS, gaussian=not spent, **words)
    return Prepared(protection=SampleNoise(noise_multiplier=sigma), claims=claims)


def by_server(case: Any, plan: Plan, observer: Observer = GLOBAL_MODELS, *, unit: str = "sample") -> Prepared:
    """Correct training with a trusted server's noise. One sample more moves a client's clipped update by up to two
    clip norms; one client more moves the sum by one.
    """
    poisson_rate("cohort", plan.cohort)
    sigma = (2 if unit == "sample" else 1) * sigma_of(case.epsilon, case.delta, plan.rounds)
    claims = claims_of(case, plan, unit, "add_remove", observer, gaussian=unit == "client")
    return Prepared(protection=ServerNoise(noise_multiplier=sigma), claims=claims)


def imaged(records: Dataset, train: Tensor, test: Tensor | None = None, **more: Any) -> Dataset:
    """The records with other images."""
    test = records.test_images if test is None else test
    return replace(records, train_images=train, test_images=test, train_masks=None, test_masks=None, **more)


def class_counts(records: Dataset) -> Tensor:
    """How many records each class has."""
    return torch.bincount(records.train_labels, minlength=records.classes)


class Unchanged(Preparation):
    """Changes nothing before the training."""

    def prepare(self, records: Dataset, rng: Rng) -> PreparedData:
        return PreparedData(dataset=records)
