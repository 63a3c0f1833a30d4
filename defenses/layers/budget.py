"""Split a joint privacy budget among layers by their sensitivity scores, and state claims about all layers and about
each layer alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...audit.claim import Adjacency, Claim
from ...audit.curve import GaussianCurve, epsilon_from_mu
from ...fl.fields import check_positive
from ...fl.plan import Plan
from ..accounting.accountant import ANALYTIC_GAUSSIAN, sensitivity
from ..accounting.gaussian import gaussian_noise
from ..defense import check_bound, report_claim

_LEAST_SCORE = 1e-12
_LEAST_EPSILON = 1e-9


def score_shares(scores: Tensor, even: float) -> Tensor:
    """Return each layer's fraction of one round's mu^2 (as in mu-GDP), shape ``(..., layers)``, from the layers'
    sensitivity scores.

    mu, which stands for equation 6's epsilon, decreases as 1 / score. The part ``even`` is split evenly whatever the
    scores, so that no layer gets unbounded noise and none takes more than ``largest_share``.
    """
    bounded = scores.double().clamp_min(_LEAST_SCORE)
    weights = (bounded.amin(-1, keepdim=True) / bounded).square()
    return (1 - even) * weights / weights.sum(-1, keepdim=True) + even / scores.shape[-1]


def largest_share(layers: int, even: float) -> float:
    """Return the largest fraction of the budget that one layer can get for any sensitivity scores."""
    return 1 - even + even / layers


@dataclass(frozen=True, kw_only=True)
class JointBudget:
    """An (epsilon, delta) budget for all layers over all rounds, accounted by exact mu-GDP.

    A round's mu is fixed. Only its split among layers changes, by what is public before the round. The layers of a
    round are therefore jointly Gaussian with that mu whatever the split, and the rounds compose adaptively (Dong, Roth,
    Su 2022, Corollary 3.3).

    Args:
        rounds: number of releases.
        adjacency: under replace-one, two clipped layers are up to twice the clip norm apart; else up to the clip norm.
    """

    epsilon: float
    delta: float
    rounds: int
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    @property
    def mu(self) -> float:
        """Return mu (as in mu-GDP) of all rounds together; raise ValueError if epsilon is so large that the noise of
        one round would be too small.
        """
        return math.sqrt(self.rounds) / gaussian_noise(epsilon=self.epsilon, delta=self.delta, releases=self.rounds)

    def noise(self, shares: Tensor, clip_norms: Sequence[float]) -> Tensor:
        """Return the noise standard deviation of each layer in one round, shape ``(..., layers)``."""
        reach = torch.tensor([sensitivity(norm, self.adjacency) for norm in clip_norms], dtype=torch.float64)
        return reach * math.sqrt(self.rounds) / (self.mu * shares.double().sqrt())


def layer_norms(clip_norms: Sequence[float], plan: Plan) -> tuple[float, ...]:
    """Return one clip norm for every layer of the plan's model; ``clip_norms`` may hold a single number, which then
    applies to all layers.

    Raises:
        ValueError: for any other number of them.
    """
    for norm in clip_norms:
        check_bound("each of clip_norms", norm)
    return _one_per_layer(
        "clip_norms", tuple(clip_norms) * (len(plan.layout.names) if len(clip_norms) == 1 else 1), plan
    )


def layer_scores(scores: Sequence[float], plan: Plan) -> tuple[float, ...]:
    """Return the given sensitivity scores; raise ValueError unless there is one for every layer of the plan's model.

    Raises:
        ValueError: for any other number of them, because a layer without a score has no budget.
    """
    return _one_per_layer("scores", tuple(scores), plan)


def check_numbers(name: str, values: object) -> tuple[float, ...]:
    """Return the numbers of a configuration field as a tuple; raise ValueError unless each is finite and above zero."""
    if not isinstance(values, list | tuple):
        raise ValueError(f"{name} must be a list of numbers > 0, got {values!r}")
    for value in values:
        check_positive(f"each of {name}", value)
    return tuple(float(value) for value in values)


def layered_claims(
    budget: JointBudget,
    shares: Sequence[float],
    clip_norms: Sequence[float],
    plan: Plan,
    *,
    source: str,
    noise_stds: Sequence[float] | None = None,
) -> tuple[Claim, ...]:
    """Return the claim of all layers jointly, and one claim per layer alone, all at the same delta.

    Args:
        shares: of mu^2, the share of each layer in every round, or an upper bound of it.
        noise_stds: each layer's, where it is the same in all rounds.
    """
    noises: Sequence[float | None] = noise_stds or [None] * len(clip_norms)
    joint = layered_claim(
        plan,
        epsilon=budget.epsilon,
        delta=budget.delta,
        source=source,
        curve=GaussianCurve(mu=budget.mu),
        clip_norm=math.hypot(*clip_norms),
    )
    # Shares are of mu^2, because Gaussian layers compose by the sum of squares.
    mus = [budget.mu * math.sqrt(share) for share in shares]
    layers = zip(plan.layout.names, mus, clip_norms, noises, strict=True)
    return (
        joint,
        *(
            layered_claim(
                plan,
                # A claim's epsilon must be above 0, also where the layer's delta alone covers its loss.
                epsilon=max(_LEAST_EPSILON, epsilon_from_mu(mu, budget.delta)),
                delta=budget.delta,
                source=source,
                curve=GaussianCurve(mu=mu),
                part=f"layer {name}",
                clip_norm=norm,
                noise_std=noise,
            )
            for name, mu, norm, noise in layers
        ),
    )


def layered_claim(
    plan: Plan,
    *,
    epsilon: float,
    delta: float,
    source: str,
    clip_norm: float,
    noise_std: float | None = None,
    curve: GaussianCurve | None = None,
    part: str = "joint",
    accountant: str = ANALYTIC_GAUSSIAN,
) -> Claim:
    """Return a local DP claim over all rounds, about a client's whole report or about one layer of it."""
    # A noise that changes from round to round is no parameter of the claim.
    known = {} if noise_std is None else {"noise_std": noise_std}
    return report_claim(
        epsilon=epsilon,
        delta=delta,
        rounds=plan.rounds,
        mechanism="Gaussian, layer by layer",
        parameters={"clip_norm": clip_norm, "layers": len(plan.layout.names), "releases": plan.rounds, **known},
        accountant=accountant,
        source=source,
        part=part,
        curve=curve,
    )


def _one_per_layer(name: str, values: tuple[float, ...], plan: Plan) -> tuple[float, ...]:
    layers = plan.layout.names
    if len(values) != len(layers):
        raise ValueError(
            f"{name} must have one number for each of the {len(layers)} layers {', '.join(layers)}, got "
            f"{len(values)} numbers"
        )
    return values
