"""Each layer has its own clip norm and an equal share of the budget (local DP; our own baseline for FedRE)."""

from dataclasses import dataclass

import torch

from ...fl.plan import Plan
from ..accounting.spending import gaussian_spending
from ..defense import Defense, Delta, Epsilon, Prepared
from .budget import JointBudget, check_numbers, layer_norms, layered_claims
from .scored_layers import LayeredProtection


@dataclass(frozen=True, kw_only=True)
class UniformLayers(Defense):
    """A defense that gives local DP for a client's reports over all rounds; its noise gives every layer the same mu (as
    in mu-GDP).

    All claims are of any two updates (replace-one; two clipped layers are up to twice their clip norm apart); the
    adversary is the server, which observes individual updates. One claim is of all layers jointly, to which the noise
    is calibrated, and one of each layer alone. A layer is a named tensor of the model.

    Args:
        epsilon, delta: the joint budget of all layers and rounds, by the analytic Gaussian.
        clip_norms: L2 bound of each layer of an update, or one for all.

    Raises (in prepare):
        ValueError: if there is neither one clip norm nor one per layer.
    """

    epsilon: Epsilon = 4.0
    delta: Delta = 1e-5
    clip_norms: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "clip_norms", check_numbers("clip_norms", self.clip_norms))

    def prepare(self, plan: Plan) -> Prepared:
        norms = layer_norms(self.clip_norms, plan)
        return even_layers(
            JointBudget(epsilon=self.epsilon, delta=self.delta, rounds=plan.rounds),
            norms,
            plan,
            source="Balle and Wang 2018, Theorem 8, on each layer; composition: Dong et al. 2022, Corollary 3.3",
        )


def even_layers(
    budget: JointBudget, clip_norms: tuple[float, ...], plan: Plan, *, source: str, dropped: float = 0.0
) -> Prepared:
    """Return the protection and the claims for a joint budget that all layers share equally."""
    # Equal shares of mu^2, so every layer has the same mu.
    shares = [1 / len(clip_norms)] * len(clip_norms)
    noise_stds = tuple(budget.noise(torch.tensor(shares, dtype=torch.float64), clip_norms).tolist())
    claims = layered_claims(budget, shares, clip_norms, plan, source=source, noise_stds=noise_stds)
    return Prepared(
        protection=LayeredProtection(clip_norms=clip_norms, noise_stds=noise_stds, dropped=dropped),
        claims=claims,
        spending=gaussian_spending(claims[0]),
    )
