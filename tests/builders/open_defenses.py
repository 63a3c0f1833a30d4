"""Correct defenses of which a test overrides one step, and what their checks find."""

from dataclasses import dataclass

from fedassay.defenses.client_level.dp_fedavg import DPFedAvgProtection
from fedassay.defenses.local.vectors.ldp_gaussian import LDPGaussianProtection
from fedassay.fl.laws import clip
from fedassay.fl.streams import normal


class WithoutLaw:
    """Publishes no law."""

    def law(self, observer, plan, client):
        return None


@dataclass(frozen=True, kw_only=True)
class Reports(LDPGaussianProtection):
    """A local Gaussian with a method for the clip of rows, and one for the standard noise ``(R, rows, d)``."""

    def clipped(self, rows):
        return clip(rows, self.clip_norm)

    def noise(self, shape, context, rng, rows):
        return normal(rng, shape)

    def report(self, updates, context, state, rng):
        rows = updates.values
        noise = self.noise(tuple(rows.shape), context, rng, rows)
        return updates.with_values(self.clipped(rows) + self.noise_std * noise)


@dataclass(frozen=True, kw_only=True)
class Sums(DPFedAvgProtection):
    """A central Gaussian with a method for the sum of rows, and one for the standard noise ``(R, d)``."""

    def total(self, rows, present):
        return rows.sum(1)

    def noise(self, shape, context, rng):
        return normal(rng, shape)

    def aggregate(self, received, context, state, rng):
        total = self.total(received.values, received.present)
        noise = self.noise_multiplier * self.clip_norm * self.noise(tuple(total.shape), context, rng)
        return (total + noise) / context.plan.expected_cohort


def prepared_as(part, plan, kind=None, *, law=True, **fields):
    """The protection of a defense for a plan, of another class and with other fields if given, and its first claim."""
    prepared = part.prepare(plan)
    kind = kind or type(prepared.protection)
    if not law:
        kind = type(f"{kind.__name__}WithoutLaw", (WithoutLaw, kind), {})
    return kind(**{**vars(prepared.protection), **fields}), prepared.claims[0]


def without_law(protection):
    """The same protection, except that it publishes no law."""
    kind = type(protection)
    return type(f"Hidden{kind.__name__}", (WithoutLaw, kind), {})(**vars(protection))


def failed(results):
    """The names of the checks that failed."""
    return {one.name for one in results if one.passed is False}
