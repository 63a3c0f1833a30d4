"""User-level DP-FedSGD clips each user's gradients at all clients together and adds Gaussian noise to their sum.

McMahan et al. 2018 (Algorithm 1) protect a user whose samples all lie with one client. Here a user may have samples at
up to k clients, which do not know of each other: each clips what it holds of the user to 1/k of the bound.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...audit.claim import Unit
from ...audit.observer import AGGREGATE, GLOBAL_MODELS, Observer
from ...fl.fields import check_count
from ...fl.laws import GaussianLaw, clip
from ...fl.message import Message
from ...fl.plan import Plan
from ...fl.protection import Context, Protection, State
from ...fl.streams import normal
from ..accounting.gaussian import poisson_rate
from ..clipped.claims import ClippedDefense, check_fedsgd
from ..defense import Prepared, restated


@dataclass(frozen=True, kw_only=True)
class UserLevelProtection(Protection):
    """A protection in which each client sends the sum of its users' clipped gradients, and the server computes (sum of
    the clients' sums + N(0, (noise_multiplier * clip_norm)^2 I)) / expected number of samples.

    Args:
        clip_norm: L2 bound of what all samples of one user contribute to a round, at all clients together.
        clients_per_user: clients among which this bound is divided equally.
    """

    clip_norm: float
    noise_multiplier: float
    clients_per_user: int
    per_sample: bool = True
    sums = "sum"

    @property
    def share(self) -> float:
        """The L2 bound of a user's contribution at one client."""
        return self.clip_norm / self.clients_per_user

    def local_step(
        self, gradients: Tensor, present: Tensor, client: int, context: Context, state: State, rng: np.random.Generator
    ) -> Tensor:
        if context.owners is None:
            raise ValueError("user_level needs the owner of each sample, and the task does not state owners")
        return self.total(gradients, present, context.owners)

    def total(self, gradients: Tensor, present: Tensor, owners: Tensor) -> Tensor:
        """Return the sum of one client's users, shape ``(R, d)`` for R runs; the sum of each user's gradients is first
        clipped to norm ``share``.
        """
        return clip(user_sums(gradients, present, owners), self.share).sum(1)

    def aggregate(self, received: Message, context: Context, state: State, rng: np.random.Generator) -> Tensor:
        total = received.values.sum(1)
        noise = self.noise_multiplier * self.clip_norm * normal(rng, tuple(total.shape))
        # The expected number is public; the actual one would reveal who took part.
        return (total + noise) / _expected_samples(context.plan)

    def law(self, observer: Observer, plan: Plan, client: int) -> GaussianLaw | None:
        """Return the distribution of one round's aggregate as a function of one user's rows, added up over all clients.
        Return None if the user's clients are drawn independently, because no single rate then describes how many take
        part.
        """
        apart = self.clients_per_user > 1 and plan.cohort_rate < 1
        if apart or not GLOBAL_MODELS.rank <= observer.rank <= AGGREGATE.rank:
            return None
        scale = 1 / _expected_samples(plan)
        return GaussianLaw(
            clip_norm=self.clip_norm,
            # Clients send minus the gradient.
            scale=-scale,
            noise_std=scale * self.noise_multiplier * self.clip_norm,
            rate=plan.cohort_rate,
        )


@dataclass(frozen=True, kw_only=True)
class UserLevel(ClippedDefense):
    """A defense for user-level DP with a trusted server: users own samples, which may lie with several clients.

    In a round each client adds up the gradients of each of its users, clips every user's sum to ``clip_norm / k``, and
    sends the sum over its users. The server adds noise. A user who has samples at k clients at most moves the server's
    sum by at most ``clip_norm``. The claim: one user with all samples at all clients, add/remove. The adversary is
    another client, who sees every round's model but not who else takes part. Where clients are sampled, each of the
    user's clients is drawn independently, and the number of them in a round is binomial (Choquette-Choo et al.
    2024, Corollary 4.7). No single rate then describes the release, so that no law of it is published, and an audit can
    refute the claim but is UNDERPOWERED where it does not.

    Args:
        epsilon, delta: the budget to calibrate to, by the privacy-loss distribution over the rounds.
        clip_norm: L2 bound of the sum of a user's gradients in a round, at all clients together.
        clients_per_user: k, a public bound on the number of clients that hold samples of one user. None: all clients,
            which is no assumption. For the partition by_owner it is 1.

    Raises (in prepare):
        ValueError: if the owners of samples are not known, or a user has samples at more clients than stated; if
            clients compute more than one gradient per round, in whose second one users no longer add up; if cohorts or
            lots are not Poisson samples (or full), because a user would change which other samples are drawn.
    """

    clients_per_user: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clients_per_user is not None:
            check_count("clients_per_user", self.clients_per_user)

    def prepare(self, plan: Plan) -> Prepared:
        shares = self._shares(plan)
        check_fedsgd(plan)
        poisson_rate("lot", plan.lot)
        mechanism = self.calibrated(plan, Unit.USER, parts=shares)
        protection = UserLevelProtection(
            clip_norm=self.clip_norm, noise_multiplier=mechanism.sigma, clients_per_user=shares
        )
        prepared = self.stated(
            plan,
            mechanism,
            protection,
            Unit.USER,
            source="McMahan et al. 2018, Algorithm 1, for users of several clients; Choquette-Choo et al. 2024, "
            "Corollary 4.7",
            more={"clients_per_user": shares},
        )
        if shares == plan.clients:
            return prepared
        trust = f"{prepared.claims[0].trust}; no user has samples at more than {_clients(shares)}"
        return restated(prepared, trust=trust)

    def _shares(self, plan: Plan) -> int:
        """Among how many clients a user's bound is divided."""
        if plan.clients_per_user is None:
            raise ValueError(
                "user_level needs a data set that names the owners of its samples, such as qmnist or a table with a "
                "column owner; got a plan without owners"
            )
        shares = min(self.clients_per_user or plan.clients, plan.clients)
        if plan.clients_per_user > shares:
            raise ValueError(
                f"clients_per_user must be at least {plan.clients_per_user}, because one user has samples at that "
                f"many clients, got {shares}"
            )
        return shares


def user_sums(gradients: Tensor, present: Tensor, owners: Tensor) -> Tensor:
    """Return the sum of each user's gradients in each independent run, ``(R, users, d)``; zero for a user without
    gradients.

    ``gradients (R, n, d)`` of which those in ``present (R, n)`` count; ``owners (R, n)``: whole numbers.
    """
    users, places = torch.unique(owners, return_inverse=True)
    runs, count, width = len(gradients), len(users), gradients.shape[-1]
    # Added up and not multiplied: an overflow in one user's gradients must not reach the others' sums.
    rows = gradients.masked_fill(~present.unsqueeze(-1), 0).reshape(-1, width)
    slots = (places + count * torch.arange(runs, device=owners.device).unsqueeze(1)).flatten()
    return gradients.new_zeros(runs * count, width).index_add(0, slots, rows).view(runs, count, width)


def _expected_samples(plan: Plan) -> float:
    """The expected number of samples in the lots of a round's cohort."""
    return plan.cohort_rate * sum(map(plan.expected_lot, range(plan.clients)))


def _clients(count: int) -> str:
    return "one client" if count == 1 else f"{count} clients"
